//! The namenode's clock: the machine's time at the start, carried on by a clock that never steps.
//!
//! It goes on while the machine is suspended, as the clock of the group does: a leader whose
//! commands and heartbeats had two times would carry the difference to its successor, which would
//! end objects whose time to live is shorter. The suspension is logged as an absence instead.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sanderling_core::namenode::start_time;
use sanderling_protocol::{Instant, Millis};
use tracing::warn;

use crate::group::boot_time;

/// A step that is worth a look: a clock in the wrong time zone is off by whole hours, one that
/// nothing corrects by seconds a day. A namenode that was away for an hour causes the warning, too.
const STEP_WARNED: Millis = Millis(3600 * 1000);

/// A clock that never goes back, not even behind what the journal holds.
#[derive(Debug)]
pub(crate) struct Clock {
    /// What carries it on: [`boot_time`], but in tests.
    source: fn() -> Instant,
    /// When it was started, by the source.
    started: Instant,
    /// Microseconds at the start. A member of a group follows the leader's time with it.
    base: AtomicU64,
}

impl Clock {
    /// Returns a clock that starts at the machine's time, or at `floor`, the time of the log's last
    /// command, if that lies behind it. It starts no later than 30 days after the floor.
    pub(crate) fn start(floor: Instant) -> Self {
        Self::start_by(boot_time, floor)
    }

    fn start_by(source: fn() -> Instant, floor: Instant) -> Self {
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
        Self { source, started: source(), base: AtomicU64::new(base.0) }
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

    /// Returns the microseconds since the start, suspensions of the machine included.
    fn passed(&self) -> u64 {
        (self.source)().0.saturating_sub(self.started.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the source of a test shows.
    static SHOWN: AtomicU64 = AtomicU64::new(0);

    fn shown() -> Instant {
        Instant(SHOWN.load(Ordering::Relaxed))
    }

    #[test]
    fn clock_goes_on_with_the_clock_of_the_group_while_the_machine_is_suspended() {
        let booted = boot_time();
        let clock = Clock::start(Instant(0));
        assert!(booted <= clock.started && clock.started <= boot_time());
        assert!(std::ptr::fn_addr_eq(clock.source, boot_time as fn() -> Instant));
        let suspension = Millis(3_600_000);
        let clock = Clock::start_by(shown, Instant(0));
        let before = clock.now();
        SHOWN.store((shown() + suspension).0, Ordering::Relaxed);
        assert_eq!(clock.now(), before + suspension);
        clock.follow(before);
        assert_eq!(clock.now(), before);
        SHOWN.store((shown() + suspension).0, Ordering::Relaxed);
        assert_eq!(clock.now(), before + suspension);
    }

    #[test]
    fn clock_never_lies_behind_the_log() {
        let future = Instant(u64::MAX / 2);
        let clock = Clock::start(future);
        assert!(clock.now() >= future);
        assert!(Clock::start(Instant(0)).now() > Instant(1_600_000_000_000_000));
    }
}
