//! How long the next dump of a task takes, as far as that is known before.

use sanderling_protocol::Millis;

use super::forecast::{DumpRates, StoragePrices};
use super::interval::DumpTimes;

/// What a runner expects of the next dump of its task: what the last ones took, before the first
/// one what follows from the size of its state, and without rates an assumption.
#[derive(Debug, Clone, Default)]
pub struct DumpExpectation {
    times: DumpTimes,
    /// The same of each dump from its turn on. With the hook the task has written its state before.
    times_in_turn: DumpTimes,
    rates: Option<DumpRates>,
}

impl DumpExpectation {
    /// Returns what is expected after dumps that took so long, or before them at these rates.
    #[must_use]
    pub const fn new(times: DumpTimes, times_in_turn: DumpTimes, rates: Option<DumpRates>) -> Self {
        Self { times, times_in_turn, rates }
    }

    /// Adds the time that a dump took, and the same from its turn on. `is_whole` is whether there
    /// was no generation before it.
    pub fn add(&mut self, took: Millis, in_turn: Millis, is_whole: bool) {
        self.times.add(took, is_whole);
        self.times_in_turn.add(in_turn, is_whole);
    }

    /// Returns what the last dumps took, without their waits for a turn. It is empty before the
    /// first dump.
    #[must_use]
    pub const fn times(&self) -> &DumpTimes {
        &self.times
    }

    /// Returns whether the size of the state decides how long a dump takes: rates were given, and
    /// no dump was measured yet.
    #[must_use]
    pub fn is_by_size(&self) -> bool {
        self.rates.is_some() && self.times.slowest().is_none()
    }

    /// Returns how many milliseconds a dump of `state_bytes` bytes takes: what the slowest of the
    /// last ones took, before them the forecast, and without rates the assumption.
    #[must_use]
    pub fn takes(&self, state_bytes: u64) -> Millis {
        self.or_forecast(self.times.slowest(), state_bytes)
    }

    /// Returns how many milliseconds a last dump of `state_bytes` bytes takes from its turn on,
    /// with the same precedence as [`Self::takes`].
    #[must_use]
    pub fn takes_in_turn(&self, state_bytes: u64) -> Millis {
        self.or_forecast(self.times_in_turn.slowest(), state_bytes)
    }

    fn or_forecast(&self, measured: Option<Millis>, state_bytes: u64) -> Millis {
        let free = StoragePrices { gigabyte_month: 0.0, thousand_requests: 0.0 };
        match (measured, &self.rates) {
            (Some(measured), _) => measured,
            (None, Some(rates)) => rates.forecast(state_bytes, free).takes,
            (None, None) => self.times.expected(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: DumpRates =
        DumpRates { pack_per_second: 400e6, put_per_second: 36e6, request: Millis(20) };

    #[test]
    fn size_of_the_state_decides_only_before_the_first_dump() {
        let times = DumpTimes::default;
        let mut expectation = DumpExpectation::new(times(), times(), Some(RATES));
        assert!(expectation.is_by_size());
        assert!(expectation.takes(1_000_000_000) > Millis(20_000));
        assert!(expectation.takes(1000) < Millis(1000));
        expectation.add(Millis(700), Millis(300), true);
        assert!(!expectation.is_by_size());
        assert_eq!(expectation.takes(1_000_000_000), Millis(700));
        assert_eq!(expectation.takes_in_turn(1_000_000_000), Millis(300));
    }

    #[test]
    fn without_rates_the_first_dump_is_assumed_to_take_a_second() {
        let mut expectation = DumpExpectation::default();
        assert!(!expectation.is_by_size());
        assert_eq!(expectation.takes(1 << 40), Millis(1000));
        assert_eq!(expectation.takes_in_turn(1 << 40), Millis(1000));
        expectation.add(Millis(50), Millis(40), true);
        expectation.add(Millis(90), Millis(10), false);
        assert_eq!(expectation.takes(0), Millis(90), "the first one has stored all of it");
        assert_eq!(expectation.takes_in_turn(0), Millis(10));
        assert_eq!(expectation.times().expected(), Millis(90));
    }
}
