//! Retry: how often, and after which pause.

use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Instant, Millis};

/// The pauses between the attempts at one call. The call's deadline bounds how many there are.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Pause before the second attempt; it doubles with each further one.
    pub pause_min: Millis,
    /// Longest pause.
    pub pause_max: Millis,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            // A location that moved is known to the namenode already: the second attempt may come
            // soon.
            pause_min: Millis(2),
            pause_max: Millis(250),
        }
    }
}

/// Shortest pause, whatever the policy is: without any, a call that fails at once would be repeated
/// in a loop until its deadline. One unit of [`Millis`].
const PAUSE_MIN: Millis = Millis(1);

/// The caller's next step after a failed attempt at a call: a pause, or its end.
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
    /// attempt between the bounds of the policy, and is at least what the refusal requires. Only
    /// the deadline ends the attempts at a call that a retry may mend.
    pub fn failed(&mut self, now: Instant, recovery: Recovery) -> RetryDecision {
        let wanted = match recovery {
            Recovery::Refresh => Millis(0),
            Recovery::RetryAfter(after) => after,
            Recovery::Recompute | Recovery::Report | Recovery::Fix => return RetryDecision::GiveUp,
        };
        let RetryPolicy { pause_min, pause_max } = self.policy;
        let pause = doubled(pause_min, self.attempts - 1, pause_max).max(wanted).max(PAUSE_MIN);
        if now + pause >= self.deadline {
            return RetryDecision::TooLate;
        }
        self.attempts = self.attempts.saturating_add(1);
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

    /// Fails each attempt at once until the call ends; returns when that is, and the attempts.
    fn end_of(policy: RetryPolicy, recovery: Recovery, deadline: Instant) -> (Instant, u32) {
        let (mut retry, mut now) = (Retry::new(policy, deadline), Instant(0));
        loop {
            match retry.failed(now, recovery) {
                RetryDecision::Again { pause } => now = now + pause,
                RetryDecision::TooLate => return (now, retry.attempts()),
                RetryDecision::GiveUp => panic!("given up at {now:?} of {deadline:?}"),
            }
        }
    }

    #[test]
    fn pause_doubles_up_to_the_longest_however_often_it_failed() {
        let pauses = [0, 1, 2, 3, 63, 64, u32::MAX].map(|it| doubled(Millis(3), it, Millis(20)).0);
        assert_eq!(pauses, [3, 6, 12, 20, 20, 20, 20]);
        assert_eq!(doubled(Millis(50), 0, Millis(20)), Millis(20));
        assert_eq!(doubled(Millis(0), u32::MAX, Millis(20)), Millis(0));
    }

    #[test]
    fn call_with_minutes_is_repeated_until_its_deadline() {
        let hour = Instant(3_600_000_000);
        for recovery in [Recovery::Refresh, Recovery::RetryAfter(Millis(50))] {
            let (ended, attempts) = end_of(RetryPolicy::default(), recovery, hour);
            assert!(ended + Millis(250) >= hour, "{recovery:?}: given up at {ended:?}");
            // Four in a second, and the few before the pauses have grown.
            assert!(attempts < 4 * 3600 + 10, "{attempts} attempts");
        }
    }

    #[test]
    fn policy_without_pauses_makes_no_loop_without_waiting() {
        let policy = RetryPolicy { pause_min: Millis(0), pause_max: Millis(0) };
        for recovery in [Recovery::Refresh, Recovery::RetryAfter(Millis(0))] {
            let (_, attempts) = end_of(policy, recovery, Instant(1_000_000));
            assert_eq!(attempts, 1000, "one each millisecond");
        }
    }
}
