//! Since when a backend answers.

use std::time::Duration;

use sanderling_core::checkpoint::BAG_ROUND;
use tokio::time::Instant;

/// The time from which on a backend has answered all calls, and was called often enough to show
/// that. Only in such a time can runners renew their locks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answers {
    since: Instant,
    /// The last answer; none after a call that failed.
    last: Option<Instant>,
}

impl Answers {
    /// Begins at a time.
    pub(crate) const fn from(now: Instant) -> Self {
        Self { since: now, last: Some(now) }
    }

    /// Notes an answer. After a pause of more than a third of a lock's `age`, in which a runner
    /// renews its lock once, the time begins anew.
    pub(crate) fn answered(&mut self, now: Instant, age: Duration) {
        // An agent calls it in each of its rounds, which may be slow.
        let pause_max = (age / 3).max(Duration::from_millis(3 * BAG_ROUND.0));
        if self.last.is_none_or(|last| now - last > pause_max) {
            self.since = now;
        }
        self.last = Some(now);
    }

    /// Notes that a call failed: the time begins anew with the next answer.
    pub(crate) const fn failed(&mut self) {
        self.last = None;
    }

    /// Returns when the time began.
    pub(crate) const fn since(&self) -> Instant {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_long_pauses_begin_anew() {
        let (begun, age) = (Instant::now(), Duration::from_secs(30));
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut answers = Answers::from(begun);
        for seconds in [5, 15, 24] {
            answers.answered(at(seconds), age);
        }
        assert_eq!(answers.since(), begun);
        answers.answered(at(35), age);
        assert_eq!(answers.since(), at(35));
        answers.answered(at(40), age);
        answers.failed();
        answers.answered(at(42), age);
        assert_eq!(answers.since(), at(42));
        // A round may take longer than a third of a short age.
        answers.answered(at(43), Duration::from_secs(1));
        assert_eq!(answers.since(), at(42));
    }
}
