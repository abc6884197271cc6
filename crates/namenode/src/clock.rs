//! The namenode's clock: the machine's time at the start, carried on by a clock that never steps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sanderling_core::namenode::start_time;
use sanderling_protocol::{Instant, Millis};
use tracing::warn;

/// A step that is worth a look: a clock in the wrong time zone is off by whole hours, one that
/// nothing corrects by seconds a day. A namenode that was away for an hour causes the warning, too.
const STEP_WARNED: Millis = Millis(3600 * 1000);

/// A clock that never goes back, not even behind what the journal holds.
#[derive(Debug)]
pub(crate) struct Clock {
    started: std::time::Instant,
    /// Microseconds at the start. A member of a group follows the leader's time with it.
    base: AtomicU64,
}

impl Clock {
    /// Returns a clock that starts at the machine's time, or at `floor`, the time of the log's last
    /// command, if that lies behind it. It starts no later than 30 days after the floor.
    pub(crate) fn start(floor: Instant) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = Instant(u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
        let base = start_time(floor, wall);
        let (behind, ahead) = (floor.since(wall), wall.since(floor));
        if floor.0 > 0 && ahead.max(behind) > STEP_WARNED {
            warn!(
                ahead_millis = ahead.0,
                behind_millis = behind.0,
                "the machine's clock is far from the log's last command: is it right?"
            );
        }
        Self { started: std::time::Instant::now(), base: AtomicU64::new(base.0) }
    }

    /// Returns the time now.
    pub(crate) fn now(&self) -> Instant {
        Instant(self.base.load(Ordering::Relaxed).saturating_add(self.passed()))
    }

    /// Carries on from a time of the group's log, as it was when the log's entry arrived: the
    /// machine's own time has no influence.
    pub(crate) fn follow(&self, at: Instant) {
        self.base.store(at.0.saturating_sub(self.passed()), Ordering::Relaxed);
    }

    fn passed(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_never_lies_behind_the_log() {
        let future = Instant(u64::MAX / 2);
        let clock = Clock::start(future);
        assert!(clock.now() >= future);
        assert!(Clock::start(Instant(0)).now() > Instant(1_600_000_000_000_000));
    }
}
