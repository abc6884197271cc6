//! The request that repeats a notice or recommendation to the namenode, and what its answer means:
//! which refusals are final, for the memory of notices and for a process that has to end.
//!
//! [`crate::notices`] decides what is repeated and when.

use sanderling_protocol::message::{Repeat, SourceNotice};
use sanderling_protocol::{
    Instant, Millis, NodeId, NodeInfo, NodeSelector, Nonce, Policy, Refusal, Request,
};

use super::CallFailure;
use crate::notices::{NoticeReply, NoticeReport};

/// Pause before a process that has to end gives its notice again. A quarter of
/// [`crate::notices::REPEAT_INTERVAL`], by which a node reminds its namenode of any notice: of this
/// process nothing leaves until the namenode has the notice, and SIGTERM leaves 30 s or less.
pub const NOTICE_RETRY_INTERVAL: Millis = Millis(250);

/// Returns the request that sends `report` at `now`.
///
/// What the namenode had at some time is sent as [`Request::Repeat`] with the time that has passed
/// since, in milliseconds; what it never had as [`Request::SourceNotice`] or
/// [`Request::Recommend`]. The time left until the deadline is at least one millisecond, also if
/// the deadline has passed: the namenode refuses a notice without any.
#[must_use]
pub fn request(report: &NoticeReport, now: Instant, node: NodeId, nonce: Nonce) -> Request {
    let deadline_millis = report.deadline.map(|deadline| millis_left(now, deadline));
    let (selector, reason) = (NodeSelector::from(node), report.reason.clone());
    match (report.known_at, deadline_millis) {
        (Some(known_at), deadline_millis) => {
            let known_ago = now.since(known_at);
            Request::Repeat(Repeat { node, nonce, deadline_millis, reason, known_ago })
        }
        (None, deadline_millis @ Some(_)) => {
            let (number, is_withdrawn) = (report.number, false);
            Request::SourceNotice(SourceNotice {
                node,
                nonce,
                number,
                deadline_millis,
                reason,
                is_withdrawn,
            })
        }
        (None, None) => Request::Recommend { node: selector, reason, is_withdrawn: false },
    }
}

/// Returns the milliseconds until a deadline, at least one.
pub(super) fn millis_left(now: Instant, deadline: Instant) -> i64 {
    i64::try_from(now.until(deadline).0.max(1)).unwrap_or(i64::MAX)
}

/// Returns what the answer to such a request means for the memory of notices: how the node stands,
/// that this will never be accepted, or that nothing is known and it must be sent again.
#[must_use]
pub fn reply(now: Instant, answer: Result<&NodeInfo, &CallFailure>) -> NoticeReply {
    match answer {
        Ok(info) => NoticeReply::Stands {
            policy: info.policy,
            deadline: info.deadline_in.map(|left| now + left),
            is_at_risk: info.is_at_risk,
        },
        Err(CallFailure::Refused(refusal)) if is_final(refusal) => NoticeReply::Refused,
        Err(_) => NoticeReply::Unanswered,
    }
}

/// Returns whether the namenode would refuse the same request each time, so that the caller drops
/// it. All other refusals may pass: the caller sends the request again.
#[must_use]
pub const fn is_final(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::WrongState { .. }
            | Refusal::UnknownNode { .. }
            | Refusal::TooLarge { .. }
            | Refusal::BadRequest { .. }
            | Refusal::DeadlinePassed { .. }
    )
}

/// Returns whether a process that has to end drains no longer, after a call that gave its notice
/// has failed: the namenode refused the notice for good, or has declared the node dead, so that
/// nothing is left to drain. `policy` is the node's own, as of the last answer.
///
/// A refusal is final ([`is_final`]) for the same request. A namenode that does not have the node
/// may have lost the end of its log. The process registers again then, under another number, with
/// its blocks, and its next attempt is another request.
#[must_use]
pub const fn ends_drain(policy: Policy, failure: &CallFailure) -> bool {
    match failure {
        CallFailure::Refused(Refusal::UnknownNode { .. } | Refusal::NodeGone { .. }) => {
            matches!(policy, Policy::Gone)
        }
        CallFailure::Refused(refusal) => is_final(refusal),
        CallFailure::Busy | CallFailure::Broken => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(10_000_000);

    fn sent(deadline: Option<Instant>, known_at: Option<Instant>) -> Request {
        let report = NoticeReport { deadline, reason: "spot".to_owned(), known_at, number: 4 };
        request(&report, NOW, NodeId(7), Nonce(1))
    }

    #[test]
    fn new_notice_is_given_and_one_that_the_namenode_had_is_repeated() {
        let (node, reason) = (NodeSelector::from(NodeId(7)), "spot".to_owned());
        let soon = Some(NOW + Millis(2000));
        let notice = |millis| {
            Request::SourceNotice(SourceNotice {
                node: NodeId(7),
                nonce: Nonce(1),
                number: 4,
                deadline_millis: Some(millis),
                reason: reason.clone(),
                is_withdrawn: false,
            })
        };
        assert_eq!(sent(soon, None), notice(2000));
        assert_eq!(sent(Some(NOW), None), notice(1), "the namenode takes no notice of no time");
        let (recommended, is_withdrawn) = (reason.clone(), false);
        let recommend =
            Request::Recommend { node: node.clone(), reason: recommended, is_withdrawn };
        assert_eq!(sent(None, None), recommend);
        let repeat = |deadline_millis| {
            let (node, nonce, reason) = (NodeId(7), Nonce(1), reason.clone());
            let known_ago = Millis(3000);
            Request::Repeat(Repeat { node, nonce, deadline_millis, reason, known_ago })
        };
        let known_at = Some(NOW - Millis(3000));
        assert_eq!(sent(soon, known_at), repeat(Some(2000)));
        assert_eq!(sent(None, known_at), repeat(None));
    }

    #[test]
    fn refusal_that_may_pass_is_no_answer() {
        let refused = |refusal| reply(NOW, Err(&CallFailure::Refused(refusal)));
        let why = String::new();
        assert_eq!(refused(Refusal::BadRequest { why: why.clone() }), NoticeReply::Refused);
        assert_eq!(refused(Refusal::RetryAfter { after: Millis(1), why }), NoticeReply::Unanswered);
        assert_eq!(refused(Refusal::NodeGone { node: NodeId(7) }), NoticeReply::Unanswered);
        assert_eq!(reply(NOW, Err(&CallFailure::Busy)), NoticeReply::Unanswered);
    }

    #[test]
    fn drain_goes_on_after_a_refusal_that_is_not_of_the_notice() {
        let ends = |policy, refusal| ends_drain(policy, &CallFailure::Refused(refusal));
        let why = String::new;
        for refusal in [
            Refusal::NotLeader { leader: None },
            Refusal::RetryAfter { after: Millis(1), why: why() },
            Refusal::JournalFull { why: why() },
            Refusal::Undecided { why: why() },
            Refusal::Unauthenticated { why: why() },
        ] {
            assert!(!ends(Policy::Active, refusal.clone()), "{refusal:?}");
            assert!(!is_final(&refusal), "{refusal:?}");
        }
        assert!(!ends_drain(Policy::Active, &CallFailure::Busy));
        assert!(!ends_drain(Policy::Gone, &CallFailure::Broken));
        let limit = Refusal::TooLarge { what: why(), value: 2, limit: 1 };
        assert!(ends(Policy::Active, limit));
        assert!(ends(Policy::Active, Refusal::WrongState { node: NodeId(7), why: why() }));
    }

    #[test]
    fn drain_of_a_node_that_the_namenode_does_not_have_ends_only_if_the_node_is_dead() {
        let missing =
            [Refusal::UnknownNode { node: "7".to_owned() }, Refusal::NodeGone { node: NodeId(7) }];
        for refusal in missing {
            let failure = CallFailure::Refused(refusal);
            assert!(!ends_drain(Policy::Active, &failure), "it registers again: {failure:?}");
            assert!(!ends_drain(Policy::Draining, &failure), "it registers again: {failure:?}");
            assert!(ends_drain(Policy::Gone, &failure), "{failure:?}");
        }
    }
}
