//! How a client waits until the store of a durable directory has what was sealed before.

use sanderling_protocol::message::Durability;
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Instant, Millis};

/// First pause between two looks whether a store has everything; each further one is twice as long.
/// A store that is a directory takes a few milliseconds for a small file.
const PAUSE_MIN: Millis = Millis(5);

/// Longest such pause. A bucket's write takes 20 to 100 ms, and an object takes several: a wait
/// ends at most about one of them too late, for five requests a second.
const PAUSE_MAX: Millis = Millis(200);

/// How long the first look may take at least: a wait of no time also returns how far the copy is.
/// Chosen, not measured: an answer takes milliseconds, and a caller with little time waits for it.
const FIRST_LOOK_MIN: Millis = Millis(1000);

/// The client's next step after a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DurableWaitStep {
    /// Wait, then look again.
    Again {
        /// How long to wait.
        pause: Millis,
    },
    /// The store has everything.
    Copied,
    /// The time is over: return how far the copy was at the last look that was answered.
    TimeOver(Box<Durability>),
}

/// One wait. Looks that the namenode does not answer do not end it: only its own time does.
#[derive(Debug)]
pub struct DurableWait {
    until: Instant,
    pause: Millis,
    /// The number below which everything was sealed before the wait.
    target: Option<u64>,
    last: Option<Durability>,
}

impl DurableWait {
    /// Returns the state of a wait before its first look. It ends at `until`.
    #[must_use]
    pub const fn new(until: Instant) -> Self {
        Self { until, pause: PAUSE_MIN, target: None, last: None }
    }

    /// Returns how long a look that begins at `now` may take.
    #[must_use]
    pub fn look_within(&self, now: Instant) -> Millis {
        let left = now.until(self.until);
        if self.last.is_some() { left } else { left.max(FIRST_LOOK_MIN) }
    }

    /// Returns what to do after a look that was answered at `now`.
    pub fn found(&mut self, now: Instant, found: Durability) -> DurableWaitStep {
        let target = *self.target.get_or_insert(found.next);
        if found.is_copied(target) {
            return DurableWaitStep::Copied;
        }
        match self.next_pause(now) {
            Some(pause) => {
                self.last = Some(found);
                DurableWaitStep::Again { pause }
            }
            None => DurableWaitStep::TimeOver(Box::new(found)),
        }
    }

    /// Returns what to do after a look that failed at `now`; `None` if its error is the wait's
    /// result.
    pub fn failed(&mut self, now: Instant, recovery: Recovery) -> Option<DurableWaitStep> {
        match recovery {
            Recovery::Refresh | Recovery::RetryAfter(_) => {}
            Recovery::Recompute | Recovery::Report | Recovery::Fix => return None,
        }
        match self.next_pause(now) {
            Some(pause) => Some(DurableWaitStep::Again { pause }),
            None => self.last.take().map(|last| DurableWaitStep::TimeOver(Box::new(last))),
        }
    }

    /// Returns the pause before the next look; `None` if that one would begin too late.
    fn next_pause(&mut self, now: Instant) -> Option<Millis> {
        let pause = self.pause;
        self.pause = Millis(pause.0 * 2).min(PAUSE_MAX);
        (now + pause <= self.until).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn progress(done_below: u64, next: u64) -> Durability {
        Durability {
            directory: "/out".parse().unwrap(),
            store: "archive".to_owned(),
            key: String::new(),
            is_durable: false,
            backlog_changes: next - done_below,
            backlog_bytes: 0,
            backlog_age: None,
            done_below,
            next,
            stalled: String::new(),
            stored_bytes: 0,
            adoption: None,
        }
    }

    const fn is_again(step: Option<&DurableWaitStep>) -> bool {
        matches!(step, Some(DurableWaitStep::Again { .. }))
    }

    #[test]
    fn wait_ends_when_the_store_has_what_there_was_at_the_first_look() {
        let mut wait = DurableWait::new(Instant(60 * SECOND));
        let mut now = Instant(0);
        for done in 0..8 {
            match wait.found(now, progress(done, 8 + done)) {
                DurableWaitStep::Again { pause } => now = now + pause,
                other => panic!("{done} of 8 are copied: {other:?}"),
            }
        }
        assert_eq!(wait.found(now, progress(8, 16)), DurableWaitStep::Copied);
    }

    #[test]
    fn looks_that_fail_end_no_wait_before_its_time() {
        let until = Instant(60 * SECOND);
        let mut wait = DurableWait::new(until);
        let away = Recovery::RetryAfter(Millis(1000));
        assert!(is_again(wait.failed(Instant(12 * SECOND), away).as_ref()));
        let found = wait.found(Instant(13 * SECOND), progress(1, 2));
        assert!(is_again(Some(&found)), "{found:?}");
        assert!(is_again(wait.failed(Instant(40 * SECOND), Recovery::Refresh).as_ref()));
        let over = DurableWaitStep::TimeOver(Box::new(progress(1, 2)));
        assert_eq!(wait.failed(until, away), Some(over), "what was found last is the result");
    }

    #[test]
    fn error_is_the_result_without_an_answer_or_if_no_repetition_mends_it() {
        let until = Instant(60 * SECOND);
        assert_eq!(DurableWait::new(until).failed(until, Recovery::Refresh), None);
        for recovery in [Recovery::Fix, Recovery::Recompute, Recovery::Report] {
            let mut wait = DurableWait::new(until);
            let found = wait.found(Instant(0), progress(1, 2));
            assert!(is_again(Some(&found)), "{found:?}");
            assert_eq!(wait.failed(Instant(SECOND), recovery), None);
        }
    }

    #[test]
    fn looks_end_with_the_wait() {
        let mut wait = DurableWait::new(Instant(25 * SECOND));
        assert_eq!(wait.look_within(Instant(0)), Millis(25_000));
        assert_eq!(wait.look_within(Instant(30 * SECOND)), FIRST_LOOK_MIN);
        let found = wait.found(Instant(20 * SECOND), progress(1, 2));
        assert!(is_again(Some(&found)), "{found:?}");
        assert_eq!(wait.look_within(Instant(20 * SECOND)), Millis(5000));
        let over = wait.found(Instant(25 * SECOND), progress(1, 3));
        assert_eq!(over, DurableWaitStep::TimeOver(Box::new(progress(1, 3))));
    }
}
