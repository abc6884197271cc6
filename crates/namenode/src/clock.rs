//! The namenode's clock: the machine's time at the start, carried on by a clock that never steps.

use std::time::{SystemTime, UNIX_EPOCH};

use sanderling_protocol::Instant;

/// A clock that never goes back, not even behind what the journal holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: std::time::Instant,
    base: u64,
}

impl Clock {
    /// Returns a clock that starts at the machine's time, or at `floor` if that lies behind it.
    pub(crate) fn start(floor: Instant) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        Self { started: std::time::Instant::now(), base: wall.max(floor.0) }
    }

    /// Returns the time now.
    pub(crate) fn now(&self) -> Instant {
        let passed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Instant(self.base.saturating_add(passed))
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
