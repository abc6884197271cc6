//! A token bucket: at most so many bytes per second, with a short burst.

use sanderling_protocol::{Instant, Millis};

/// Bytes that may be sent, filling at a rate that may change from time to time.
///
/// Something may be sent whenever the level is not negative, and the whole of it is taken then: one
/// block is sent at once and paid for afterwards.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    level: i64,
    filled_at: Instant,
}

impl Bucket {
    /// Span whose bytes are kept at most: what was not sent before is not sent in one burst later.
    /// As much as one batch has at most.
    const BURST: Millis = Millis(100);

    pub(super) const fn new(now: Instant) -> Self {
        Self { level: 0, filled_at: now }
    }

    fn fill(&mut self, now: Instant, bytes_per_second: u64) {
        let micros = now.0.saturating_sub(self.filled_at.0);
        let bytes = u128::from(bytes_per_second) * u128::from(micros) / 1_000_000;
        if bytes == 0 {
            // Kept for the next time: slow rates would never fill it by steps that round to none.
            return;
        }
        let burst = i64::try_from(bytes_per_second * Self::BURST.0 / 1000).unwrap_or(i64::MAX);
        let level = self.level.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.level = level.min(burst);
        self.filled_at = now;
    }

    /// Takes bytes that are sent now.
    pub(super) fn take(&mut self, bytes: u64) {
        self.level = self.level.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Returns when something may be sent: now, or later; `None` without a rate.
    pub(super) fn ready_at(&mut self, now: Instant, bytes_per_second: u64) -> Option<Instant> {
        if bytes_per_second == 0 {
            return None;
        }
        self.fill(now, bytes_per_second);
        if self.level >= 0 {
            return Some(now);
        }
        let micros =
            (u128::from(self.level.unsigned_abs()) * 1_000_000).div_ceil(bytes_per_second.into());
        Some(Instant(now.0.saturating_add(u64::try_from(micros).unwrap_or(u64::MAX))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_is_sent_at_once_and_paid_for_afterwards() {
        let mut bucket = Bucket::new(Instant(0));
        assert_eq!(bucket.ready_at(Instant(0), 1000), Some(Instant(0)));
        bucket.take(500);
        assert_eq!(bucket.ready_at(Instant(0), 1000), Some(Instant(500_000)));
        assert_eq!(bucket.ready_at(Instant(500_000), 1000), Some(Instant(500_000)));
        bucket.take(500);
        assert_eq!(bucket.ready_at(Instant(600_000), 4000), Some(Instant(625_000)));
    }

    #[test]
    fn idle_time_is_not_saved_and_no_rate_sends_nothing() {
        let mut bucket = Bucket::new(Instant(0));
        let later = Instant(3_600_000_000);
        assert_eq!(bucket.ready_at(later, 1000), Some(later));
        bucket.take(1100);
        assert_eq!(bucket.ready_at(later, 1000), Some(later + Millis(1000)));
        assert_eq!(bucket.ready_at(later, 0), None);
    }

    #[test]
    fn slow_rates_fill_it_too() {
        let mut bucket = Bucket::new(Instant(0));
        bucket.take(2);
        for step in 0..3000 {
            bucket.ready_at(Instant(step * 1000), 1);
        }
        assert_eq!(bucket.ready_at(Instant(3_000_000), 1), Some(Instant(3_000_000)));
    }
}
