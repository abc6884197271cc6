//! Exposure: the bytes of a node that are nowhere else, and how many it may have.
//!
//! A notice leaves time to move only so much. What a node holds beyond that must have a copy before
//! the notice comes (Brodmann et al., "An Elastic Ephemeral Datastore using Cheap, Transient Cloud
//! Resources", section 4.5, shows that the memory of large instances does not fit their notice).

pub mod plan;

use sanderling_protocol::Millis;

/// The shortest notice that is assumed if the operator configured none: Google's and Azure's.
pub const NOTICE_MIN: Millis = Millis(30_000);

/// Send rate of a node in bytes per second if none was declared or measured: 1 Gbit/s. The smallest
/// cloud machines have more for moments; too little only makes more copies.
pub const EGRESS_BYTES_PER_SECOND: u64 = 125_000_000;

/// What passes of a notice before bytes flow: the fence, the first reservation, the first push.
/// That is a view of the manager (50 ms by default) and a few round trips; the rest is for a busy
/// namenode. Chosen, not measured.
pub(crate) const REACTION: Millis = Millis(250);

/// Hundredths of what the link could send that are reckoned with. A drain takes at most 1.2 times
/// as long as its bytes take on the link, and clients go on reading. Chosen, not measured.
const SAFETY_PERCENT: u64 = 70;

/// Returns the bytes that a node can surely send within a notice.
#[must_use]
pub const fn budget_bytes(notice: Millis, egress_bytes_per_second: u64) -> u64 {
    let millis = notice.0.saturating_sub(REACTION.0);
    let link = (egress_bytes_per_second / 1000).saturating_mul(millis);
    (link / 100).saturating_mul(SAFETY_PERCENT)
}

/// Returns the bytes per second that a node is reckoned to send after `measured` was its best.
#[must_use]
pub const fn egress(measured_bytes_per_second: u64) -> u64 {
    if measured_bytes_per_second == 0 { EGRESS_BYTES_PER_SECOND } else { measured_bytes_per_second }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_grows_with_notice_and_link_and_is_below_what_the_link_could() {
        let half_minute = budget_bytes(NOTICE_MIN, 4_000_000_000);
        assert!(half_minute > 80_000_000_000 && half_minute < 84_000_000_000);
        assert!(budget_bytes(Millis(15_000), 4_000_000_000) < half_minute / 2 + 1);
        assert_eq!(budget_bytes(Millis(100), 4_000_000_000), 0);
        assert_eq!(egress(0), EGRESS_BYTES_PER_SECOND);
        assert_eq!(egress(7), 7);
    }
}
