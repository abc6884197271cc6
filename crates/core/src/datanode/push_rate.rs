//! How fast a node can push: what its exposure budget goes by where no link rate is declared.

use sanderling_protocol::{Instant, Millis};

/// Measures the bytes per second of pushes, over the time in which at least one was under way.
///
/// Time without pushes does not count: copies in the background are few on purpose, and a rate over
/// all time would show how few, not how many there could be.
#[derive(Debug, Clone)]
pub struct PushRate {
    under_way: u32,
    /// When the first of those under way began, or the last account was made.
    since: Instant,
    busy_micros: u64,
    bytes: u64,
    window_began: Instant,
    /// Best second of this window and of the one before.
    best: [u64; 2],
}

impl PushRate {
    /// Pushing time after which a rate is taken: a second, because links let a burst pass.
    const SECOND_MICROS: u64 = 1_000_000;

    /// How long the best second counts at least; at most twice as long. Clouds change what a
    /// machine may send within minutes.
    const WINDOW: Millis = Millis(300_000);

    /// Shortest block whose push measures the link rather than round trips. As long as the
    /// relocator's shortest push (`PUSH_BYTES_MIN` of its pace).
    const LENGTH_MIN: u32 = 64 << 10;

    /// Returns the rate of a node that has pushed nothing yet: no rate is measured.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { under_way: 0, since: now, busy_micros: 0, bytes: 0, window_began: now, best: [0; 2] }
    }

    /// Notes that a push of so many bytes begins. Returns whether it counts; one that is too short
    /// does not, and [`PushRate::ended`] is not called for it.
    pub fn began(&mut self, now: Instant, length: u32) -> bool {
        if length < Self::LENGTH_MIN {
            return false;
        }
        self.account(now);
        self.under_way += 1;
        true
    }

    /// Notes that a push has ended with so many bytes at the target, and measures the rate anew
    /// after each second of pushes.
    pub fn ended(&mut self, now: Instant, bytes: u64) {
        self.account(now);
        self.under_way = self.under_way.saturating_sub(1);
        self.bytes += bytes;
        if self.busy_micros < Self::SECOND_MICROS {
            return;
        }
        let rate = u128::from(self.bytes) * 1_000_000 / u128::from(self.busy_micros);
        (self.busy_micros, self.bytes) = (0, 0);
        self.begin_window(now);
        self.best[0] = self.best[0].max(u64::try_from(rate).unwrap_or(u64::MAX));
    }

    /// Returns the highest rate of the last five to ten minutes, in bytes per second of pushing
    /// time; 0 before a second of pushes has passed.
    pub fn bytes_per_second(&mut self, now: Instant) -> u64 {
        self.begin_window(now);
        self.best[0].max(self.best[1])
    }

    fn account(&mut self, now: Instant) {
        if self.under_way > 0 {
            self.busy_micros += now.0.saturating_sub(self.since.0);
        }
        self.since = now;
    }

    fn begin_window(&mut self, now: Instant) {
        if now >= self.window_began + Self::WINDOW {
            self.window_began = now;
            self.best = [0, self.best[0]];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000);
    const LENGTH: u32 = 1_000_000;

    #[test]
    fn time_without_pushes_does_not_count() {
        let (mut now, mut rate) = (NOW, PushRate::new(NOW));
        for _ in 0..10 {
            assert!(rate.began(now, LENGTH));
            now = now + Millis(100);
            rate.ended(now, 1_000_000);
            now = now + Millis(20_000);
        }
        assert_eq!(rate.best, [10_000_000, 0]);
    }

    #[test]
    fn pushes_at_the_same_time_share_it() {
        let mut rate = PushRate::new(NOW);
        for _ in 0..4 {
            assert!(rate.began(NOW, LENGTH));
        }
        for part in 1..=4 {
            rate.ended(NOW + Millis(500 * part), 1_000_000);
        }
        assert_eq!(rate.best, [2_000_000, 0]);
    }

    #[test]
    fn short_push_gives_no_rate() {
        let mut rate = PushRate::new(NOW);
        assert!(!rate.began(NOW, PushRate::LENGTH_MIN - 1));
        assert!(rate.began(NOW, PushRate::LENGTH_MIN));
        rate.ended(NOW + Millis(999), 7);
        assert_eq!(rate.bytes_per_second(NOW + Millis(1000)), 0, "it took no second");
    }

    #[test]
    fn best_second_is_forgotten_after_a_while() {
        let mut rate = PushRate::new(NOW);
        rate.began(NOW, LENGTH);
        rate.ended(NOW + Millis(1000), 7);
        assert_eq!(rate.bytes_per_second(NOW + PushRate::WINDOW), 7);
        assert_eq!(rate.bytes_per_second(NOW + PushRate::WINDOW + PushRate::WINDOW), 0);
    }
}
