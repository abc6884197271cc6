//! The rate of the last seconds.

use std::collections::VecDeque;

use sanderling_protocol::Instant;

/// Bytes per second over the last seconds, or since the beginning while that is not long ago.
#[derive(Debug, Clone, Default)]
pub(super) struct Rate {
    /// When the first bytes were sent on their way.
    began: Option<Instant>,
    /// Bytes by the slice of time in which they were counted, oldest first.
    slices: VecDeque<(u64, u64)>,
}

impl Rate {
    /// Microseconds looked back: some pushes long where one block takes a second.
    const WINDOW: u64 = 3_000_000;

    /// Microseconds of one slice. A thirtieth of [`Self::WINDOW`], so the rate changes by little
    /// when one ends.
    const SLICE: u64 = 100_000;

    /// Microseconds before which no rate is returned: one more push would change it too much.
    const FIRST: u64 = 300_000;

    /// Notes that bytes are sent on their way.
    pub(super) fn begin(&mut self, now: Instant) {
        self.began.get_or_insert(now);
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

    /// Measures anew, unless bytes were counted lately: nothing leaves while the namenode takes no
    /// moves, however fast the link is.
    pub(super) fn held_up(&mut self, now: Instant) {
        let lately = now.0.saturating_sub(Self::FIRST) / Self::SLICE;
        if self.slices.back().is_none_or(|(slice, _)| *slice < lately) {
            *self = Self::default();
        }
    }

    /// Returns bytes per second; `None` before enough time has passed to measure.
    pub(super) fn bytes_per_second(&self, now: Instant) -> Option<u64> {
        let micros = now.0.saturating_sub(self.began?.0).min(Self::WINDOW);
        let first = if self.slices.is_empty() { Self::WINDOW } else { Self::FIRST };
        if micros < first {
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
    fn rate_is_unknown_before_enough_is_measured() {
        let mut rate = Rate::default();
        assert_eq!(rate.bytes_per_second(at(9000)), None);
        rate.begin(at(10_000));
        assert_eq!(rate.bytes_per_second(at(12_999)), None, "the first may take its time");
        assert_eq!(rate.bytes_per_second(at(13_000)), Some(0));
        rate.begin(at(12_000));
        rate.record(at(10_100), 1000);
        assert_eq!(rate.bytes_per_second(at(10_200)), None);
        assert_eq!(rate.bytes_per_second(at(11_000)), Some(1000));
    }

    #[test]
    fn slice_that_the_window_begins_in_counts_to_its_end() {
        let mut rate = Rate::default();
        let window = Rate::WINDOW / 1000;
        rate.begin(at(0));
        rate.record(at(10_000), 4000);
        rate.record(at(10_000 + window), 0);
        let per_second = 4000 * 1000 / window;
        assert_eq!(rate.bytes_per_second(at(10_000 + window)), Some(per_second));
        rate.record(at(10_100 + window), 0);
        assert_eq!(rate.bytes_per_second(at(10_100 + window)), Some(0));
    }

    #[test]
    fn time_in_which_the_namenode_takes_no_moves_is_not_measured() {
        let mut rate = Rate::default();
        rate.begin(at(0));
        rate.record(at(1000), 1000);
        rate.held_up(at(1200));
        assert_eq!(rate.bytes_per_second(at(2000)), Some(500), "others leave meanwhile");
        rate.held_up(at(3000));
        assert_eq!(rate.bytes_per_second(at(9000)), None);
        rate.begin(at(9000));
        rate.record(at(9500), 1000);
        assert_eq!(rate.bytes_per_second(at(10_000)), Some(1000));
    }

    #[test]
    fn what_is_long_ago_counts_no_more() {
        let mut rate = Rate::default();
        rate.begin(at(0));
        for tenth in 0..100 {
            rate.record(at(tenth * 100), 100);
        }
        let steady = rate.bytes_per_second(at(10_000)).unwrap();
        assert!((950..=1050).contains(&steady), "{steady}");
        assert_eq!(rate.bytes_per_second(at(20_000)), Some(0));
    }
}
