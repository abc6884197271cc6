//! From what a source of notices shows to what the datanode does about it.
//!
//! A source is looked at again and again and shows what holds at the moment. Its agent turns
//! changes of that into acts: fence and notice, recommendation, withdrawal. What it remembers is of
//! one incarnation of the node; the next one is given the same notice again.

use sanderling_protocol::message::SourceNotice;
use sanderling_protocol::{Instant, NodeId, NodeSelector, Nonce, Policy, Refusal, Request};

use super::CallFailure;
use super::repeat::{is_final, millis_left};
use crate::notices::{EARLIER, Notice, Notices, is_far};

/// A reading of what a source of notices shows at the moment; nothing in it if the machine stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceReading {
    /// The machine will be taken.
    pub notice: Option<Notice>,
    /// The machine is likely to be taken soon: the source's words.
    pub recommendation: Option<String>,
}

/// A request about a node's notices that its agent sends to the namenode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Give the notice, sent as a [`crate::notices::NoticeReport`]; the node is fenced already.
    Give {
        /// The notice.
        notice: Notice,
        /// Whether this incarnation has been given none before.
        is_first: bool,
    },
    /// State that the source has withdrawn its notice.
    TakeBack {
        /// The notice that the others still show.
        left: Option<Notice>,
        /// The number of the statement.
        number: u64,
    },
    /// Recommend to leave the node, for this reason.
    Recommend(String),
    /// Take back the recommendation that was made for this reason.
    Withdraw(String),
}

/// The agent of one source: it keeps what the source has shown, and what of it was reported to the
/// namenode.
#[derive(Debug, Clone)]
pub struct Agent {
    source: String,
    /// The incarnation for which a notice was given, and its deadline.
    reported: Option<(NodeId, Instant)>,
    /// The last incarnation for which a notice was to be given.
    noticed: Option<NodeId>,
    /// The incarnation that was reported to be at risk, and why.
    recommended: Option<(NodeId, String)>,
}

impl Act {
    /// Returns the request that does it; `None` for [`Act::Give`], whose request is that of the
    /// report.
    #[must_use]
    pub fn request(&self, now: Instant, node: NodeId, nonce: Nonce) -> Option<Request> {
        let id = node;
        let node = NodeSelector::from(node);
        Some(match self {
            Self::Give { .. } => return None,
            Self::TakeBack { left, number } => {
                let left = left.as_ref();
                Request::SourceNotice(SourceNotice {
                    node: id,
                    nonce,
                    number: *number,
                    deadline_millis: left.map(|left| millis_left(now, left.deadline)),
                    reason: left.map(|left| left.reason.clone()).unwrap_or_default(),
                    is_withdrawn: true,
                })
            }
            Self::Recommend(reason) => {
                Request::Recommend { node, reason: reason.clone(), is_withdrawn: false }
            }
            Self::Withdraw(reason) => {
                Request::Recommend { node, reason: reason.clone(), is_withdrawn: true }
            }
        })
    }
}

impl Agent {
    /// Returns the agent of the source of this name, which has shown nothing yet.
    #[must_use]
    pub const fn new(source: String) -> Self {
        Self { source, reported: None, noticed: None, recommended: None }
    }

    /// Takes what the source shows, and notes it in the node's memory: the machine ends whether or
    /// not the namenode receives it, so writes are refused before it is sent. Returns what to send,
    /// in this order. Each act ends with [`Agent::done`].
    ///
    /// A notice whose deadline is too far ahead ([`is_far`]) is given when it is not any more.
    pub fn look(
        &mut self,
        (node, now): (NodeId, Instant),
        seen: &SourceReading,
        notices: &mut Notices,
    ) -> Vec<Act> {
        match &seen.notice {
            Some(notice) if is_far(now, notice.deadline) => Vec::new(),
            // With a notice, what was recommended is of no consequence.
            Some(notice) => Vec::from_iter(self.give(node, notice, notices)),
            None => {
                let back = self.take_back(node, notices);
                let risk = match &seen.recommendation {
                    Some(reason) => self.recommend(node, reason),
                    None => self.withdraw(node, notices),
                };
                back.into_iter().chain(risk).collect()
            }
        }
    }

    /// Gives a notice, unless this incarnation has it.
    fn give(&mut self, node: NodeId, notice: &Notice, notices: &mut Notices) -> Option<Act> {
        debug_assert_eq!(notice.source, self.source, "an agent has one source");
        let is_reported =
            |(of, deadline): (NodeId, Instant)| of == node && notice.deadline + EARLIER >= deadline;
        if self.reported.is_some_and(is_reported) {
            return None;
        }
        let is_first = self.noticed.replace(node) != Some(node);
        notices.show(notice);
        Some(Act::Give { notice: notice.clone(), is_first })
    }

    /// Takes back the notice that this source gave.
    fn take_back(&mut self, node: NodeId, notices: &mut Notices) -> Option<Act> {
        self.noticed = None;
        let is_reported = self.reported.is_some_and(|(of, _)| of == node);
        // What is remembered may have been repeated to the namenode without this one's doing.
        if !is_reported && !notices.shows(&self.source) {
            self.reported = None;
            return None;
        }
        // If the source shows it again before this has arrived, it is given again.
        self.reported = None;
        notices.withdraw_notice(&self.source);
        let (left, number) = (notices.left_without(&self.source), notices.next_number());
        Some(Act::TakeBack { left, number })
    }

    fn recommend(&self, node: NodeId, reason: &str) -> Option<Act> {
        let is_reported = self.recommended.as_ref().is_some_and(|(of, _)| *of == node);
        (!is_reported).then(|| Act::Recommend(reason.to_owned()))
    }

    /// Takes back the recommendation that this source gave and shows no more.
    fn withdraw(&mut self, node: NodeId, notices: &mut Notices) -> Option<Act> {
        let (of, reason) = self.recommended.as_ref()?;
        if *of == node {
            return Some(Act::Withdraw(reason.clone()));
        }
        notices.withdraw(&self.source);
        self.recommended = None;
        None
    }

    /// Takes what came of an act that was begun at `asked_at` for an incarnation. Returns whether
    /// it is done; if not, the source is looked at again soon.
    pub fn done(
        &mut self,
        (node, asked_at): (NodeId, Instant),
        act: Act,
        outcome: Result<(), &CallFailure>,
        notices: &mut Notices,
    ) -> bool {
        let refusal = match outcome {
            Ok(()) => None,
            Err(CallFailure::Refused(refusal)) => Some(refusal),
            Err(_) => return self.unanswered(&act, notices),
        };
        let may_pass = refusal.is_some_and(|refusal: &Refusal| !is_final(refusal));
        match act {
            Act::Give { notice, .. } if !may_pass => {
                self.reported = Some((node, notice.deadline));
            }
            Act::TakeBack { .. } if !may_pass => {
                notices.hide(&self.source, asked_at);
                self.reported = None;
            }
            // The fence stays.
            Act::Give { .. } | Act::TakeBack { .. } => return false,
            Act::Recommend(reason) => {
                if refusal.is_none_or(|refusal| !is_final(refusal)) {
                    let known_at = refusal.is_none().then_some(asked_at);
                    notices.recommend(&self.source, &reason, known_at);
                }
                self.recommended = Some((node, reason));
            }
            Act::Withdraw(_) => {
                notices.withdraw(&self.source);
                self.recommended = None;
            }
        }
        true
    }

    fn unanswered(&self, act: &Act, notices: &mut Notices) -> bool {
        if let Act::Recommend(reason) = act {
            notices.recommend(&self.source, reason, None);
        }
        false
    }

    /// Returns whether the source may get the acknowledgement that the machine can go: its notice
    /// was given, and, if `is_drained_only`, nothing is left on the node.
    #[must_use]
    pub fn may_acknowledge(&self, node: NodeId, policy: Policy, is_drained_only: bool) -> bool {
        let is_reported = self.reported.is_some_and(|(of, _)| of == node);
        is_reported && (!is_drained_only || policy == Policy::Drained)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notices::NOTICE_MAX;
    use sanderling_protocol::Millis;

    const NODE: NodeId = NodeId(7);
    const NEXT: NodeId = NodeId(8);
    const NOW: Instant = Instant(1_000_000);
    const DEADLINE: Instant = Instant(60_000_000);

    fn notice(deadline: Instant) -> SourceReading {
        let (source, reason) = ("aws".to_owned(), "spot".to_owned());
        SourceReading { notice: Some(Notice { source, deadline, reason }), recommendation: None }
    }

    fn risk() -> SourceReading {
        SourceReading { notice: None, recommendation: Some("rebalance".to_owned()) }
    }

    fn final_refusal() -> CallFailure {
        CallFailure::Refused(Refusal::WrongState { node: NODE, why: String::new() })
    }

    fn passing_refusal() -> CallFailure {
        let (after, why) = (Millis(1), String::new());
        CallFailure::Refused(Refusal::RetryAfter { after, why })
    }

    /// Returns an agent whose notice the namenode has.
    fn agent_with_notice() -> (Agent, Notices) {
        let (mut agent, mut notices) = (Agent::new("aws".to_owned()), Notices::default());
        let act = agent.look((NODE, NOW), &notice(DEADLINE), &mut notices).remove(0);
        assert!(agent.done((NODE, NOW), act, Ok(()), &mut notices));
        (agent, notices)
    }

    #[test]
    fn notice_fences_before_it_is_reported_and_is_given_until_it_is_answered() {
        let (mut agent, mut notices) = (Agent::new("aws".to_owned()), Notices::default());
        for (outcome, is_first) in
            [(CallFailure::Busy, true), (CallFailure::Broken, false), (passing_refusal(), false)]
        {
            let act = agent.look((NODE, NOW), &notice(DEADLINE), &mut notices).remove(0);
            assert!(matches!(&act, Act::Give { is_first: first, .. } if *first == is_first));
            assert!(notices.must_fence(NOW));
            assert!(!agent.done((NODE, NOW), act, Err(&outcome), &mut notices));
            assert!(!agent.may_acknowledge(NODE, Policy::Draining, false));
        }
        let act = agent.look((NODE, NOW), &notice(DEADLINE), &mut notices).remove(0);
        assert!(agent.done((NODE, NOW), act, Err(&final_refusal()), &mut notices));
        assert_eq!(agent.look((NODE, NOW), &notice(DEADLINE), &mut notices), []);
    }

    #[test]
    fn earlier_deadline_and_another_incarnation_are_reported_again() {
        let (mut agent, mut notices) = agent_with_notice();
        let near = notice(DEADLINE - EARLIER);
        assert_eq!(agent.look((NODE, NOW), &near, &mut notices), [], "it is the same");
        let earlier = notice(DEADLINE - EARLIER - Millis(1));
        assert_eq!(agent.look((NODE, NOW), &earlier, &mut notices).len(), 1);
        let (mut agent, mut notices) = agent_with_notice();
        let acts = agent.look((NEXT, NOW), &notice(DEADLINE), &mut notices);
        assert!(matches!(&acts[..], [Act::Give { is_first: true, .. }]));
    }

    #[test]
    fn notice_that_is_shown_no_more_is_taken_back_until_that_is_answered() {
        let (mut agent, mut notices) = agent_with_notice();
        for outcome in [CallFailure::Busy, passing_refusal()] {
            let act = agent.look((NODE, NOW), &SourceReading::default(), &mut notices).remove(0);
            assert!(matches!(act, Act::TakeBack { left: None, .. }));
            assert!(!agent.done((NODE, NOW), act, Err(&outcome), &mut notices));
            assert!(notices.shows("aws"));
        }
        let act = agent.look((NODE, NOW), &SourceReading::default(), &mut notices).remove(0);
        assert!(agent.done((NODE, NOW), act, Err(&final_refusal()), &mut notices));
        assert!(!notices.shows("aws"));
        assert_eq!(agent.look((NODE, NOW), &SourceReading::default(), &mut notices), []);
    }

    #[test]
    fn notice_that_another_source_still_shows_is_what_is_left() {
        let (mut agent, mut notices) = agent_with_notice();
        let (source, reason) = ("file".to_owned(), "test".to_owned());
        let later = Notice { source, deadline: DEADLINE + Millis(5_000), reason };
        notices.show(&later);
        let act = agent.look((NODE, NOW), &SourceReading::default(), &mut notices).remove(0);
        let Act::TakeBack { left, number } = act.clone() else { panic!("{act:?}") };
        assert_eq!((left, number), (Some(later), 1));
        let request = act.request(NOW, NODE, Nonce(3)).expect("it is sent as it is");
        let Request::SourceNotice(stated) = request else { panic!("{request:?}") };
        assert_eq!((stated.deadline_millis, stated.is_withdrawn), (Some(64_000), true));
        assert!(agent.done((NODE, NOW), act, Ok(()), &mut notices));
        assert!(!notices.shows("aws") && notices.shows("file"));
        notices.stands(NOW, Policy::Draining, Some(DEADLINE + Millis(5_000)));
        assert_eq!(notices.next_report(NOW), None, "the earlier one is not taken for lost");
    }

    #[test]
    fn two_sources_that_withdraw_at_once_leave_nothing() {
        let (mut aws, mut notices) = agent_with_notice();
        let mut file = Agent::new("file".to_owned());
        let (source, reason) = ("file".to_owned(), "test".to_owned());
        let shown = Notice { source, deadline: DEADLINE, reason };
        let shown = SourceReading { notice: Some(shown), recommendation: None };
        let act = file.look((NODE, NOW), &shown, &mut notices).remove(0);
        assert!(file.done((NODE, NOW), act, Ok(()), &mut notices));
        let none = SourceReading::default();
        let first = aws.look((NODE, NOW), &none, &mut notices).remove(0);
        let second = file.look((NODE, NOW), &none, &mut notices).remove(0);
        assert!(matches!(first, Act::TakeBack { left: Some(_), .. }), "the file shows its own");
        assert!(matches!(second, Act::TakeBack { left: None, .. }), "nothing shows one");
        assert_eq!(notices.next_report(NOW), None, "nothing of it is sent again");
        for act in [first, second] {
            let agent = if matches!(act, Act::TakeBack { left: Some(_), .. }) {
                &mut aws
            } else {
                &mut file
            };
            assert!(agent.done((NODE, NOW), act, Ok(()), &mut notices));
        }
        assert!(!notices.shows("aws") && !notices.shows("file"));
    }

    #[test]
    fn notice_that_is_shown_again_before_its_withdrawal_arrived_is_given_again() {
        let (mut agent, mut notices) = agent_with_notice();
        let act = agent.look((NODE, NOW), &SourceReading::default(), &mut notices).remove(0);
        assert!(!agent.done((NODE, NOW), act, Err(&CallFailure::Broken), &mut notices));
        let acts = agent.look((NODE, NOW), &notice(DEADLINE), &mut notices);
        assert!(matches!(&acts[..], [Act::Give { .. }]), "the namenode may have taken it back");
        assert!(notices.must_fence(NOW));
    }

    #[test]
    fn notice_that_is_too_far_ahead_is_given_when_it_is_not() {
        let (mut agent, mut notices) = (Agent::new("aws".to_owned()), Notices::default());
        let far = notice(NOW + NOTICE_MAX + Millis(1));
        assert_eq!(agent.look((NODE, NOW), &far, &mut notices), []);
        assert!(!notices.must_fence(NOW));
        let acts = agent.look((NODE, NOW + Millis(1)), &far, &mut notices);
        assert!(matches!(&acts[..], [Act::Give { is_first: true, .. }]));
    }

    #[test]
    fn recommendation_is_made_once_and_withdrawn_once() {
        let (mut agent, mut notices) = (Agent::new("aws".to_owned()), Notices::default());
        let act = agent.look((NODE, NOW), &risk(), &mut notices).remove(0);
        assert_eq!(act, Act::Recommend("rebalance".to_owned()));
        assert!(!agent.done((NODE, NOW), act, Err(&CallFailure::Busy), &mut notices));
        let report = notices.next_report(NOW).expect("it is sent again without an answer");
        assert_eq!((report.deadline, report.known_at), (None, None));
        let act = agent.look((NODE, NOW), &risk(), &mut notices).remove(0);
        assert!(agent.done((NODE, NOW), act, Ok(()), &mut notices));
        assert_eq!(agent.look((NODE, NOW), &risk(), &mut notices), []);
        let act = agent.look((NODE, NOW), &SourceReading::default(), &mut notices).remove(0);
        assert_eq!(act, Act::Withdraw("rebalance".to_owned()));
        assert!(!agent.done((NODE, NOW), act.clone(), Err(&CallFailure::Busy), &mut notices));
        assert!(agent.done((NODE, NOW), act, Ok(()), &mut notices));
        assert_eq!(agent.look((NODE, NOW), &SourceReading::default(), &mut notices), []);
    }

    #[test]
    fn source_is_acknowledged_when_the_namenode_has_the_notice_and_the_node_is_drained() {
        let (agent, _) = agent_with_notice();
        assert!(agent.may_acknowledge(NODE, Policy::Draining, false));
        assert!(!agent.may_acknowledge(NODE, Policy::Draining, true));
        assert!(agent.may_acknowledge(NODE, Policy::Drained, true));
        assert!(!agent.may_acknowledge(NEXT, Policy::Drained, true));
    }
}
