//! The rate of the last seconds.

use std::collections::VecDeque;

use sanderling_protocol::Instant;

/// Bytes per second over the last seconds, or since the beginning while that is not long ago.
#[derive(Debug, Clone)]
pub(super) struct Rate {
    began: Instant,
    /// Bytes by the slice of time in which they were counted, oldest first.
    slices: VecDeque<(u64, u64)>,
}

impl Rate {
    /// Microseconds looked back: some pushes long where one block takes a second.
    const WINDOW: u64 = 3_000_000;

    /// Microseconds of one slice.
    const SLICE: u64 = 100_000;

    /// Microseconds before which nothing is said: one push more or less would change it too much.
    const FIRST: u64 = 300_000;

    pub(super) const fn new(now: Instant) -> Self {
        Self { began: now, slices: VecDeque::new() }
    }

    /// Counts bytes.
    pub(super) fn record(&mut self, now: Instant, bytes: u64) {
        let slice = now.0 / Self::SLICE;
        match self.slices.back_mut() {
            Some((last, sum)) if *last >= slice => *sum += bytes,
            _ => self.slices.push_back((slice, bytes)),
        }
        let oldest = now.0.saturating_sub(Self::WINDOW) / Self::SLICE;
        while self.slices.front().is_some_and(|(slice, _)| *slice < oldest) {
            self.slices.pop_front();
        }
    }

    /// Returns bytes per second; `None` before enough time has passed to tell.
    pub(super) fn bytes_per_second(&self, now: Instant) -> Option<u64> {
        let micros = now.0.saturating_sub(self.began.0).min(Self::WINDOW);
        if micros < Self::FIRST {
            return None;
        }
        let from = now.0.saturating_sub(micros) / Self::SLICE;
        let seen = self.slices.iter().filter(|(slice, _)| *slice >= from);
        let bytes: u64 = seen.map(|(_, bytes)| bytes).sum();
        let rate = u128::from(bytes) * 1_000_000 / u128::from(micros);
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant(millis * 1000)
    }

    #[test]
    fn nothing_is_said_before_there_is_something_to_say() {
        let mut rate = Rate::new(at(1000));
        rate.record(at(1100), 1000);
        assert_eq!(rate.bytes_per_second(at(1200)), None);
        assert_eq!(rate.bytes_per_second(at(2000)), Some(1000));
    }

    #[test]
    fn what_is_long_ago_counts_no_more() {
        let mut rate = Rate::new(at(0));
        for tenth in 0..100 {
            rate.record(at(tenth * 100), 100);
        }
        let steady = rate.bytes_per_second(at(10_000)).unwrap();
        assert!((950..=1050).contains(&steady), "{steady}");
        assert_eq!(rate.bytes_per_second(at(20_000)), Some(0));
    }
}
