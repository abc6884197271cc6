//! The time at which a namenode starts, by its machine's clock and by its log.

use sanderling_protocol::{Instant, Millis};

/// Longest step from the log's last command to a start: 30 days. Chosen, not measured: the log's
/// time never goes back, so a machine that was set up with a wrong date must not carry it years
/// ahead. A namenode that was really away for longer starts with a time that lags behind.
const STEP_MAX: Millis = Millis(30 * 24 * 3600 * 1000);

/// Returns the time at which a namenode starts. `floor` is the time of its log's last command, 0
/// for an empty log; `wall` is the machine's clock. Both, and the result, are in microseconds since
/// 1970-01-01 UTC.
///
/// The result is `wall`, but not before `floor`, and at most 30 days after it unless the log is
/// empty.
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
