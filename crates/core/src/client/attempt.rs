//! What a client does after a failed attempt at a change.

use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Instant, Millis, Refusal};

use crate::retry::{Retry, RetryDecision};

/// The way in which one attempt at a call failed.
#[derive(Debug, Clone, Copy)]
pub struct AttemptFailure<'a> {
    /// The refusal that was answered; `None` if no answer came.
    pub refusal: Option<&'a Refusal>,
    /// What the caller of any server does next. [`AttemptFailure::recovery`] adds what is special
    /// about the namenode.
    pub recovery: Recovery,
    /// Whether the request may have taken effect although no outcome came. False if it was never
    /// sent, and if it was refused other than by [`Refusal::Undecided`].
    pub may_be_done: bool,
}

impl<'a> AttemptFailure<'a> {
    /// The request was sent, and no answer came.
    pub const NO_ANSWER: AttemptFailure<'static> =
        AttemptFailure { refusal: None, recovery: Recovery::Refresh, may_be_done: true };

    /// Returns the failure of a request that was refused: it has changed nothing, unless the
    /// refusal is [`Refusal::Undecided`].
    #[must_use]
    pub const fn refused(refusal: &'a Refusal) -> Self {
        let may_be_done = matches!(refusal, Refusal::Undecided { .. });
        Self { refusal: Some(refusal), recovery: refusal.recovery(), may_be_done }
    }

    /// Returns what the caller of the namenode does next. It differs from the general answer for
    /// [`Refusal::ObjectGone`]: the namenode holds the catalog, so another look-up finds nothing.
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        match self.refusal {
            Some(Refusal::ObjectGone { .. }) => Recovery::Fix,
            // The next attempt goes to another member, after the pause of the retry policy.
            Some(Refusal::NotLeader { .. }) => Recovery::RetryAfter(Millis(0)),
            _ => self.recovery,
        }
    }

    /// Returns whether a datanode that failed so is suspect, so that the client reports it to the
    /// namenode: it did not answer, or another process has its address.
    #[must_use]
    pub const fn makes_suspect(&self) -> bool {
        match self.refusal {
            None => matches!(self.recovery, Recovery::Refresh),
            Some(refusal) => matches!(refusal, Refusal::WrongNode { .. }),
        }
    }
}

/// The client's next step after a failed attempt at a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAttempt {
    /// Wait, then send the same change again.
    Again {
        /// How long to wait: a pause of the [`RetryPolicy`](crate::retry::RetryPolicy), or longer
        /// if the refusal demands it.
        pause: Millis,
        /// Whether to open another client first and to send the change under one of its sequences.
        /// True if the namenode has forgotten this client and no attempt can have taken effect.
        as_other_client: bool,
    },
    /// Return the failure to the application.
    GiveUp,
    /// Return to the application that the deadline has passed: the next attempt would start later.
    /// The change may have been made, or may still be.
    TooLate,
}

/// The attempts at one change. The change has one sequence, so that the namenode makes it once
/// however often it is sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChangeAttempts {
    is_in_doubt: bool,
}

/// Pause of a change before it is sent under another client's sequence: one unit of
/// [`Millis`], because nothing is waited for. The pause of the retry policy is longer and applies.
const REOPEN_PAUSE: Millis = Millis(1);

/// Pause before a change in doubt is sent again whose last attempt did not reach the log: about
/// what a full disk or a closed session takes to be looked at again.
const DOUBT_PAUSE: Millis = Millis(100);

/// Returns whether the log decided a refusal: it is the change's outcome then, also for a repeat.
/// All others are given before a change reaches the log.
#[must_use]
pub const fn is_of_the_log(refusal: &Refusal) -> bool {
    !matches!(
        refusal,
        Refusal::RetryAfter { .. }
            | Refusal::NotManager { .. }
            | Refusal::NotLeader { .. }
            | Refusal::Undecided { .. }
            | Refusal::SecondWriter { .. }
            | Refusal::JournalFull { .. }
            | Refusal::Unauthenticated { .. }
            | Refusal::Forbidden { .. }
            | Refusal::BadFrame { .. }
            | Refusal::UnknownVersion { .. }
            | Refusal::UnknownOp { .. }
            | Refusal::WrongCluster { .. }
            | Refusal::NoHello
    )
}

impl ChangeAttempts {
    /// Returns whether an attempt that got no answer may have made the change. If the call then
    /// fails, the application must look at the object before it repeats the change.
    #[must_use]
    pub const fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Returns what to do after an attempt that failed at `now`. `retry` counts the attempts of
    /// this call and holds its deadline; `now` is by the same clock.
    ///
    /// A refusal that the log decided ends the change: the namenode keeps it as the outcome and
    /// would answer each further attempt with it. Any other refusal leaves open what became of an
    /// earlier attempt. That one may still arrive and take effect, so a change in doubt is sent
    /// again until the log answers, or until the deadline ([`NextAttempt::TooLate`]).
    /// [`Refusal::OutcomeUnknown`] is retried as another client if no attempt is in doubt; else it
    /// ends the change.
    pub fn failed(
        &mut self,
        retry: &mut Retry,
        now: Instant,
        failure: &AttemptFailure<'_>,
    ) -> NextAttempt {
        let is_forgotten = matches!(failure.refusal, Some(Refusal::OutcomeUnknown { .. }));
        // A change that may have been made keeps its sequence: another one would make it twice.
        let as_other_client = is_forgotten && !self.is_in_doubt;
        self.is_in_doubt |= failure.may_be_done;
        let leaves_doubt =
            self.is_in_doubt && failure.refusal.is_some_and(|refusal| !is_of_the_log(refusal));
        let recovery = match failure.recovery() {
            _ if as_other_client => Recovery::RetryAfter(REOPEN_PAUSE),
            Recovery::RetryAfter(after) => Recovery::RetryAfter(after),
            _ if leaves_doubt => Recovery::RetryAfter(DOUBT_PAUSE),
            Recovery::Refresh if failure.refusal.is_some() => return NextAttempt::GiveUp,
            recovery => recovery,
        };
        match retry.failed(now, recovery) {
            RetryDecision::Again { pause } => NextAttempt::Again { pause, as_other_client },
            RetryDecision::GiveUp => NextAttempt::GiveUp,
            RetryDecision::TooLate => NextAttempt::TooLate,
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{BlockId, NodeId};

    use super::*;
    use crate::retry::RetryPolicy;

    const NOW: Instant = Instant(0);

    fn retry() -> Retry {
        Retry::new(RetryPolicy::default(), Instant(5_000_000))
    }

    fn forgotten() -> Refusal {
        Refusal::OutcomeUnknown { client: 3, sequence: 4 }
    }

    const fn is_again(next: NextAttempt, as_other: bool) -> bool {
        matches!(next, NextAttempt::Again { as_other_client, .. } if as_other_client == as_other)
    }

    #[test]
    fn change_without_an_answer_is_sent_again_until_the_deadline() {
        let (mut retry, mut change) = (retry(), ChangeAttempts::default());
        let mut now = NOW;
        while let NextAttempt::Again { pause, as_other_client } =
            change.failed(&mut retry, now, &AttemptFailure::NO_ANSWER)
        {
            assert!(!as_other_client);
            now = now + pause;
        }
        assert!(change.is_in_doubt());
        assert_eq!(
            change.failed(&mut retry, now, &AttemptFailure::NO_ANSWER),
            NextAttempt::TooLate
        );
    }

    #[test]
    fn change_that_was_never_made_begins_again_when_its_client_is_forgotten() {
        let (mut retry, mut change) = (retry(), ChangeAttempts::default());
        let refusal = forgotten();
        let failure = AttemptFailure::refused(&refusal);
        assert!(is_again(change.failed(&mut retry, NOW, &failure), true));
        // Of the first attempt nothing is known: it may have been made before it was forgotten.
        assert!(is_again(change.failed(&mut retry, NOW, &AttemptFailure::NO_ANSWER), false));
        assert_eq!(change.failed(&mut retry, NOW, &failure), NextAttempt::GiveUp);
    }

    #[test]
    fn refusal_that_was_kept_is_not_requested_again() {
        let (mut retry, mut change) = (retry(), ChangeAttempts::default());
        let waits = Refusal::RetryAfter { after: Millis(7), why: String::new() };
        let next = change.failed(&mut retry, NOW, &AttemptFailure::refused(&waits));
        assert_eq!(next, NextAttempt::Again { pause: Millis(7), as_other_client: false });
        let gone = Refusal::NodeGone { node: NodeId(1) };
        assert_eq!(gone.recovery(), Recovery::Refresh);
        assert_eq!(
            change.failed(&mut retry, NOW, &AttemptFailure::refused(&gone)),
            NextAttempt::GiveUp
        );
        assert!(!change.is_in_doubt());
    }

    #[test]
    fn refusal_that_the_log_did_not_decide_settles_no_change_in_doubt() {
        let full = Refusal::JournalFull { why: "the disk is full".to_owned() };
        let (mut retry, mut change) = (retry(), ChangeAttempts::default());
        // Nothing else was sent: nothing of it can arrive later.
        assert_eq!(
            change.failed(&mut retry, NOW, &AttemptFailure::refused(&full)),
            NextAttempt::GiveUp
        );

        let mut change = ChangeAttempts::default();
        assert!(is_again(change.failed(&mut retry, NOW, &AttemptFailure::NO_ANSWER), false));
        let mut now = NOW;
        while let NextAttempt::Again { pause, .. } =
            change.failed(&mut retry, now, &AttemptFailure::refused(&full))
        {
            now = now + pause;
        }
        let last = change.failed(&mut retry, now, &AttemptFailure::refused(&full));
        assert_eq!(last, NextAttempt::TooLate, "the first attempt may be made later");
        let decided = Refusal::Exists { path: "/a".parse().unwrap() };
        let settled = change.failed(&mut retry, NOW, &AttemptFailure::refused(&decided));
        assert_eq!(settled, NextAttempt::GiveUp);
    }

    #[test]
    fn change_that_met_no_leader_is_sent_again_and_is_in_doubt_only_if_it_was_before() {
        let elsewhere = Refusal::NotLeader { leader: None };
        let (mut retry, mut change) = (retry(), ChangeAttempts::default());
        assert!(is_again(
            change.failed(&mut retry, NOW, &AttemptFailure::refused(&elsewhere)),
            false
        ));
        assert!(!change.is_in_doubt());
        assert!(is_again(change.failed(&mut retry, NOW, &AttemptFailure::NO_ANSWER), false));
        let next = change.failed(&mut retry, NOW, &AttemptFailure::refused(&elsewhere));
        assert!(is_again(next, false), "under the same sequence: {next:?}");
    }

    #[test]
    fn change_that_its_leader_could_not_decide_keeps_its_sequence() {
        let undecided = Refusal::Undecided { why: String::new() };
        let (mut retry, mut change) = (retry(), ChangeAttempts::default());
        let failure = AttemptFailure::refused(&undecided);
        assert!(is_again(change.failed(&mut retry, NOW, &failure), false));
        assert!(change.is_in_doubt());
        // The successor has made it and forgotten the client: another sequence would make it twice.
        let refusal = forgotten();
        let next = change.failed(&mut retry, NOW, &AttemptFailure::refused(&refusal));
        assert_eq!(next, NextAttempt::GiveUp);
        let elsewhere = Refusal::NotLeader { leader: None };
        let mut now = NOW;
        let mut change = ChangeAttempts::default();
        let mut next = change.failed(&mut retry, now, &failure);
        while let NextAttempt::Again { pause, .. } = next {
            now = now + pause;
            next = change.failed(&mut retry, now, &AttemptFailure::refused(&elsewhere));
        }
        assert_eq!(next, NextAttempt::TooLate, "it may have been made");
    }

    #[test]
    fn silence_and_another_process_make_a_node_suspect() {
        let stale = Refusal::UnknownBlock { block: BlockId(1) };
        let other = Refusal::WrongNode { here: NodeId(1), asked: NodeId(2) };
        assert!(AttemptFailure::NO_ANSWER.makes_suspect());
        assert!(AttemptFailure::refused(&other).makes_suspect());
        assert!(!AttemptFailure::refused(&stale).makes_suspect());
        for recovery in [Recovery::RetryAfter(Millis(10)), Recovery::Fix, Recovery::Report] {
            let own = AttemptFailure { recovery, ..AttemptFailure::NO_ANSWER };
            assert!(!own.makes_suspect(), "the node was not reached for another reason");
        }
    }

    #[test]
    fn attempt_that_did_not_begin_leaves_no_doubt() {
        let (mut retry, mut change) = (retry(), ChangeAttempts::default());
        let unreachable = AttemptFailure { may_be_done: false, ..AttemptFailure::NO_ANSWER };
        assert!(is_again(change.failed(&mut retry, NOW, &unreachable), false));
        let refusal = forgotten();
        assert!(is_again(change.failed(&mut retry, NOW, &AttemptFailure::refused(&refusal)), true));
    }
}
