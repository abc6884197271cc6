//! When a client renews a lease.

use sanderling_protocol::Millis;

/// The longest pause between two renewals of a writer's lease, in milliseconds: a fifth of the
/// lease that a namenode gives by default.
pub const RENEWAL_PAUSE_MAX: Millis = Millis(2000);

/// The shortest pause: a namenode gives no shorter lease than thrice that.
const PAUSE_MIN: Millis = Millis(10);

/// Returns the pause between two renewals of a writer's lease of so many milliseconds: a third, so
/// that two in a row may be lost, and 2 s at most.
#[must_use]
pub fn renewal_pause(lease: Millis) -> Millis {
    job_renewal_pause(lease).min(RENEWAL_PAUSE_MAX)
}

/// Returns the pause between two renewals of a job's lease: a third, however long that is. Each
/// renewal of a job is a command of the log, and jobs have leases of hours.
#[must_use]
pub fn job_renewal_pause(lease: Millis) -> Millis {
    Millis(lease.0 / 3).max(PAUSE_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_renewals_of_a_lease_may_be_lost() {
        let pauses = [0, 90, 2100, 6000, 10_000, u64::MAX].map(|it| renewal_pause(Millis(it)).0);
        assert_eq!(pauses, [10, 30, 700, 2000, 2000, 2000]);
        let pauses = [0, 1000, 3_600_000].map(|it| job_renewal_pause(Millis(it)).0);
        assert_eq!(pauses, [10, 333, 1_200_000]);
    }
}
