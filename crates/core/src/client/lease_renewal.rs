//! When a writer renews its lease.

use sanderling_protocol::Millis;

/// The longest pause between two renewals, in milliseconds: a fifth of the lease that a namenode
/// gives by default.
pub const RENEWAL_PAUSE_MAX: Millis = Millis(2000);

/// The shortest pause: a namenode gives no shorter lease than thrice that.
const PAUSE_MIN: Millis = Millis(10);

/// Returns the pause between two renewals of a lease of so many milliseconds: a third, so that two
/// in a row may be lost, and 2 s at most.
#[must_use]
pub fn renewal_pause(lease: Millis) -> Millis {
    Millis((lease.0 / 3).clamp(PAUSE_MIN.0, RENEWAL_PAUSE_MAX.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_renewals_of_a_lease_may_be_lost() {
        let pauses = [0, 90, 2100, 6000, 10_000, u64::MAX].map(|it| renewal_pause(Millis(it)).0);
        assert_eq!(pauses, [10, 30, 700, 2000, 2000, 2000]);
    }
}
