//! When a source of notices is looked at next, and what a look has changed.
//!
//! A source that fails changes nothing: a notice that it showed stays given, none is made up, and
//! it is looked at as often as before.

use sanderling_protocol::{Instant, Millis};

use super::{NoticeChange, ShownNotice};

/// Pause before a source is looked at again whose last reading requires something that is not done,
/// as a request that the namenode did not answer. Against the 30 s that Google and Azure give,
/// 100 ms do not count, and a node sends ten small requests a second at most.
pub const UNDONE_PAUSE: Millis = Millis(100);

/// The polling of one source of notices: when to look, whether it answers, and what has changed of
/// its notice. The shell makes the calls.
#[derive(Debug, Clone, Default)]
pub struct SourcePoll {
    /// Whether the last look succeeded; `None` before the first.
    is_good: Option<bool>,
    shown: ShownNotice,
    next: NextLook,
}

/// When a source is looked at next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NextLook {
    /// Without a pause: it is the first look, or the last one waited for a change.
    #[default]
    AtOnce,
    /// After the time between two polls.
    AfterPoll,
    /// After [`UNDONE_PAUSE`], by a request that waits for no change.
    Again,
}

/// Whether a source answers, compared with the look before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceHealth {
    /// As before.
    Unchanged,
    /// It answers.
    Answers {
        /// Whether it failed before; else this is the first look.
        is_again: bool,
    },
    /// It fails.
    Fails,
}

impl SourcePoll {
    /// Takes a look that succeeded at `now`, with the deadline of the notice that the source shows,
    /// by the same clock. `has_waited`: the look itself waited for a change.
    pub fn read(
        &mut self,
        now: Instant,
        deadline: Option<Instant>,
        has_waited: bool,
    ) -> (SourceHealth, NoticeChange) {
        let health = match self.is_good.replace(true) {
            Some(true) => SourceHealth::Unchanged,
            before => SourceHealth::Answers { is_again: before.is_some() },
        };
        self.next = if has_waited { NextLook::AtOnce } else { NextLook::AfterPoll };
        (health, self.shown.look(now, deadline))
    }

    /// Takes a look that failed. What the source showed before still holds: a failure takes no
    /// notice back. Returns whether the failure is new; log it only then.
    pub fn failed(&mut self) -> SourceHealth {
        self.next = NextLook::AfterPoll;
        match self.is_good.replace(false) {
            Some(false) => SourceHealth::Unchanged,
            _ => SourceHealth::Fails,
        }
    }

    /// Takes that something which the last reading requires is not done.
    pub const fn undone(&mut self) {
        self.next = NextLook::Again;
    }

    /// Returns when the source is looked at next.
    #[must_use]
    pub const fn next_look(&self) -> NextLook {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000_000);

    #[test]
    fn source_is_polled_at_its_rate_also_while_it_fails() {
        let mut poll = SourcePoll::default();
        assert_eq!(poll.next_look(), NextLook::AtOnce, "the first look");
        poll.read(NOW, None, false);
        assert_eq!(poll.next_look(), NextLook::AfterPoll);
        for _ in 0..3 {
            poll.failed();
            assert_eq!(poll.next_look(), NextLook::AfterPoll);
        }
    }

    #[test]
    fn look_that_waited_for_a_change_is_followed_by_the_next_at_once() {
        let mut poll = SourcePoll::default();
        poll.read(NOW, None, true);
        assert_eq!(poll.next_look(), NextLook::AtOnce);
        poll.failed();
        assert_eq!(poll.next_look(), NextLook::AfterPoll, "a failure does not wait");
    }

    #[test]
    fn what_is_undone_comes_before_a_wait_and_until_the_next_look_alone() {
        let mut poll = SourcePoll::default();
        for has_waited in [true, false] {
            poll.read(NOW, None, has_waited);
            poll.undone();
            assert_eq!(poll.next_look(), NextLook::Again);
        }
        poll.read(NOW, None, false);
        assert_eq!(poll.next_look(), NextLook::AfterPoll);
    }

    #[test]
    fn health_changes_once_and_a_failure_changes_no_notice() {
        let mut poll = SourcePoll::default();
        let deadline = NOW + Millis(30_000);
        let (health, change) = poll.read(NOW, Some(deadline), false);
        assert_eq!(health, SourceHealth::Answers { is_again: false });
        assert_eq!(change, NoticeChange::Given(deadline));
        assert_eq!(poll.failed(), SourceHealth::Fails);
        assert_eq!(poll.failed(), SourceHealth::Unchanged);
        let (health, change) = poll.read(NOW, Some(deadline), false);
        assert_eq!(health, SourceHealth::Answers { is_again: true });
        assert_eq!(change, NoticeChange::Unchanged, "it was given before the failures");
        let (health, change) = poll.read(NOW, None, false);
        assert_eq!((health, change), (SourceHealth::Unchanged, NoticeChange::Withdrawn));
    }

    #[test]
    fn source_that_fails_from_the_start_is_reported_at_its_first_look() {
        let mut poll = SourcePoll::default();
        assert_eq!(poll.failed(), SourceHealth::Fails);
        let (health, _) = poll.read(NOW, None, false);
        assert_eq!(health, SourceHealth::Answers { is_again: true });
    }
}
