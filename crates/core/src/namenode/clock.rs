//! The time at which a start of a namenode begins, by the machine's clock and by the log.

use sanderling_protocol::{Instant, Millis};

/// The longest step from the log's last command to a start. A machine that was set up with a wrong
/// date must not carry the log's time years ahead, from where it never comes back.
const STEP_MAX: Millis = Millis(30 * 24 * 3600 * 1000);

/// Returns the time at which a start begins whose log ends at `floor`: the machine's time, but not
/// before the log's last command and not more than 30 days after it.
#[must_use]
pub fn start_time(floor: Instant, wall: Instant) -> Instant {
    // An empty log has no time yet.
    let latest = if floor.0 == 0 { wall } else { floor + STEP_MAX };
    wall.min(latest).max(floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_from_the_log_to_a_start_is_bounded() {
        let floor = Instant(1_600_000_000_000_000);
        assert_eq!(start_time(floor, floor + Millis(5000)), floor + Millis(5000));
        assert_eq!(start_time(floor, floor - Millis(5000)), floor);
        assert_eq!(start_time(floor, Instant(u64::MAX)), floor + STEP_MAX);
        assert_eq!(start_time(Instant(0), floor), floor);
    }
}
