//! Retry: how often, and after which pause.

use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Instant, Millis};

/// Bounds of the attempts at one call.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Most attempts, the first among them.
    pub attempts_max: u32,
    /// Pause before the second attempt; it doubles with each further one.
    pub pause_min: Millis,
    /// Longest pause.
    pub pause_max: Millis,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            // With pauses that grow to a quarter of a second this outlasts the ten seconds of a
            // call's default deadline: the deadline ends a call, not the count, unless nothing is
            // waited for.
            attempts_max: 64,
            // A location that moved is known to the namenode already: the second attempt may come
            // soon.
            pause_min: Millis(2),
            pause_max: Millis(250),
        }
    }
}

/// The caller's next step after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// Wait, then try again.
    Again {
        /// How long to wait.
        pause: Millis,
    },
    /// Give up: the error has the reason.
    GiveUp,
    /// Give up: the next attempt would start after the deadline.
    TooLate,
}

/// Returns the pause before a repetition: the first one after it was doubled so many times, and the
/// longest at most.
pub(crate) fn doubled(first: Millis, doublings: u32, longest: Millis) -> Millis {
    let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
    Millis(first.0.saturating_mul(factor)).min(longest)
}

/// The attempts at one call: make one, and after each failure do what [`Self::failed`] returns. It
/// counts no time by itself.
#[derive(Debug, Clone)]
pub struct Retry {
    policy: RetryPolicy,
    deadline: Instant,
    attempts: u32,
}

impl Retry {
    /// Returns the state of a call before its first attempt. `deadline` is that of the whole call.
    #[must_use]
    pub const fn new(policy: RetryPolicy, deadline: Instant) -> Self {
        Self { policy, deadline, attempts: 1 }
    }

    /// Returns how many attempts were made, with the one that is under way.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Returns what to do after an attempt that failed at `now`. The pause doubles with each
    /// attempt between the bounds of the policy, and is at least what the refusal requires.
    pub fn failed(&mut self, now: Instant, recovery: Recovery) -> RetryDecision {
        let wanted = match recovery {
            Recovery::Refresh => Millis(0),
            Recovery::RetryAfter(after) => after,
            Recovery::Recompute | Recovery::Report | Recovery::Fix => return RetryDecision::GiveUp,
        };
        if self.attempts >= self.policy.attempts_max {
            return RetryDecision::GiveUp;
        }
        let RetryPolicy { pause_min, pause_max, .. } = self.policy;
        let pause = doubled(pause_min, self.attempts - 1, pause_max).max(wanted);
        if now + pause >= self.deadline {
            return RetryDecision::TooLate;
        }
        self.attempts += 1;
        RetryDecision::Again { pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_the_deadline_ends_them() {
        let mut retry = Retry::new(RetryPolicy::default(), Instant(3_000_000));
        let mut now = Instant(0);
        let mut pauses = Vec::new();
        while let RetryDecision::Again { pause } = retry.failed(now, Recovery::Refresh) {
            pauses.push(pause.0);
            now = now + pause;
        }
        assert_eq!(pauses[..9], [2, 4, 8, 16, 32, 64, 128, 250, 250]);
        assert!(now < Instant(3_000_000));
        assert_eq!(retry.failed(now, Recovery::Refresh), RetryDecision::TooLate);
    }

    #[test]
    fn failure_that_no_retry_mends_ends_the_call() {
        let mut retry = Retry::new(RetryPolicy::default(), Instant(3_000_000));
        for recovery in [Recovery::Fix, Recovery::Recompute, Recovery::Report] {
            assert_eq!(retry.failed(Instant(0), recovery), RetryDecision::GiveUp);
        }
        let waits = retry.failed(Instant(0), Recovery::RetryAfter(Millis(700)));
        assert_eq!(waits, RetryDecision::Again { pause: Millis(700) });
    }

    #[test]
    fn pause_doubles_up_to_the_longest_however_often_it_failed() {
        let pauses = [0, 1, 2, 3, 63, 64, u32::MAX].map(|it| doubled(Millis(3), it, Millis(20)).0);
        assert_eq!(pauses, [3, 6, 12, 20, 20, 20, 20]);
        assert_eq!(doubled(Millis(50), 0, Millis(20)), Millis(20));
        assert_eq!(doubled(Millis(0), u32::MAX, Millis(20)), Millis(0));
    }

    #[test]
    fn attempts_are_counted() {
        let policy = RetryPolicy { attempts_max: 3, ..RetryPolicy::default() };
        let mut retry = Retry::new(policy, Instant(u64::MAX));
        assert!(matches!(retry.failed(Instant(0), Recovery::Refresh), RetryDecision::Again { .. }));
        assert!(matches!(retry.failed(Instant(0), Recovery::Refresh), RetryDecision::Again { .. }));
        assert_eq!(retry.failed(Instant(0), Recovery::Refresh), RetryDecision::GiveUp);
        assert_eq!(retry.attempts(), 3);
    }
}
