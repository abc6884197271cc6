//! How fast the node can push: what its exposure budget goes by where nobody declared the link.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Measures the bytes per second of pushes, over the time in which at least one was under way.
///
/// Time without pushes does not count: copies in the background are few on purpose, and a rate over
/// all time would say how few, not how many there could be.
#[derive(Debug)]
pub(crate) struct PushRate {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    under_way: u32,
    /// When the first of those under way began, or the last account was made.
    since: Instant,
    busy: Duration,
    bytes: u64,
    window_began: Instant,
    /// Best second of this window and of the one before.
    best: [u64; 2],
}

/// One push under way; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Pushing<'a> {
    rate: &'a PushRate,
    bytes: u64,
}

impl PushRate {
    /// Pushing time after which a rate is taken: a second, because links let a burst pass.
    const SECOND: Duration = Duration::from_secs(1);

    /// How long the best second counts at least; at most twice as long. Clouds change what a
    /// machine may send within minutes.
    const WINDOW: Duration = Duration::from_secs(300);

    pub(crate) fn new(now: Instant) -> Self {
        let (under_way, busy, bytes, best) = (0, Duration::ZERO, 0, [0; 2]);
        let state = State { under_way, since: now, busy, bytes, window_began: now, best };
        Self { state: Mutex::new(state) }
    }

    /// Shortest block whose push says something about the link rather than about round trips.
    const LENGTH_MIN: u32 = 64 << 10;

    /// Counts a push that begins; `None` for one that is too short.
    pub(crate) fn begin(&self, length: u32) -> Option<Pushing<'_>> {
        if length < Self::LENGTH_MIN {
            return None;
        }
        self.state.lock().began(Instant::now());
        Some(Pushing { rate: self, bytes: 0 })
    }

    /// Returns the best second lately; 0 before there was one.
    pub(crate) fn bytes_per_second(&self) -> u64 {
        let mut state = self.state.lock();
        state.turn(Instant::now());
        state.best[0].max(state.best[1])
    }
}

impl State {
    fn account(&mut self, now: Instant) {
        if self.under_way > 0 {
            self.busy += now.duration_since(self.since);
        }
        self.since = now;
    }

    fn began(&mut self, now: Instant) {
        self.account(now);
        self.under_way += 1;
    }

    fn ended(&mut self, now: Instant, bytes: u64) {
        self.account(now);
        self.under_way -= 1;
        self.bytes += bytes;
        if self.busy < PushRate::SECOND {
            return;
        }
        let micros = self.busy.as_micros().max(1);
        let rate = u64::try_from(u128::from(self.bytes) * 1_000_000 / micros);
        (self.busy, self.bytes) = (Duration::ZERO, 0);
        self.turn(now);
        self.best[0] = self.best[0].max(rate.unwrap_or(u64::MAX));
    }

    fn turn(&mut self, now: Instant) {
        if now.duration_since(self.window_began) >= PushRate::WINDOW {
            self.window_began = now;
            self.best = [0, self.best[0]];
        }
    }
}

impl Pushing<'_> {
    /// Says that so many bytes have arrived.
    pub(crate) const fn arrived(&mut self, bytes: u64) {
        self.bytes = bytes;
    }
}

impl Drop for Pushing<'_> {
    fn drop(&mut self) {
        self.rate.state.lock().ended(Instant::now(), self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(now: Instant) -> State {
        PushRate::new(now).state.into_inner()
    }

    #[test]
    fn time_without_pushes_does_not_count() {
        let mut now = Instant::now();
        let mut state = state(now);
        for _ in 0..10 {
            state.began(now);
            now += Duration::from_millis(100);
            state.ended(now, 1_000_000);
            now += Duration::from_secs(20);
        }
        assert_eq!(state.best, [10_000_000, 0]);
    }

    #[test]
    fn pushes_at_the_same_time_share_it() {
        let now = Instant::now();
        let mut state = state(now);
        for _ in 0..4 {
            state.began(now);
        }
        for part in 1..=4 {
            state.ended(now + Duration::from_millis(500 * part), 1_000_000);
        }
        assert_eq!(state.best, [2_000_000, 0]);
    }

    #[test]
    fn best_second_is_forgotten_after_a_while() {
        let now = Instant::now();
        let mut state = state(now);
        state.began(now);
        state.ended(now + Duration::from_secs(1), 7);
        state.turn(now + PushRate::WINDOW);
        assert_eq!(state.best, [0, 7]);
        state.turn(now + PushRate::WINDOW * 2);
        assert_eq!(state.best, [0, 0]);
    }
}
