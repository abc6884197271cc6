//! The clock of the process, by which `core` counts.

use std::time::Duration;

use sanderling_protocol::Instant as Time;
use tokio::time::Instant;

/// Converts between moments of this process and the times that the machines of `core` take:
/// microseconds since the start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessClock(Instant);

impl ProcessClock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the moment at which the clock started, which is its time 0.
    pub(crate) const fn since(self) -> Instant {
        self.0
    }

    /// Returns the time of a moment, zero if it was before the start.
    pub(crate) fn at(self, moment: Instant) -> Time {
        let since = moment.saturating_duration_since(self.0);
        Time(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    pub(crate) fn now(self) -> Time {
        self.at(Instant::now())
    }

    /// Returns the moment of a time.
    pub(crate) fn moment(self, at: Time) -> Instant {
        self.0 + Duration::from_micros(at.0)
    }
}
