//! Why a node drains: an operator's notice, those of its own sources, a decommission.

use sanderling_protocol::message::{Repeat, SourceNotice};
use sanderling_protocol::{Millis, NodeId, Policy, Refusal, Request};

use super::Rig;

const NODE: NodeId = NodeId(1);

impl Rig {
    /// A rig of one node with a block, which has no other place.
    fn with_claims() -> Self {
        let mut rig = Self::with_slices(1, 16);
        rig.put("/file", 10);
        rig
    }

    /// The node's process states what its sources show, with the milliseconds left.
    fn state(&mut self, number: u64, left: Option<i64>, is_withdrawn: bool) -> Result<(), Refusal> {
        let nonce = self.namenode.catalog().node_nonce(NODE).unwrap();
        let (deadline_millis, reason) = (left, "spot".to_owned());
        let stated =
            SourceNotice { node: NODE, nonce, number, deadline_millis, reason, is_withdrawn };
        self.call(Request::SourceNotice(stated)).map(drop)
    }

    fn decommission(&mut self) {
        let (node, reason) = (NODE.into(), "smaller".to_owned());
        self.call(Request::Decommission { node, reason }).unwrap();
    }

    /// Returns the node's policy and the milliseconds left until its deadline.
    fn stands(&self) -> (Policy, Option<u64>) {
        let catalog = self.namenode.catalog();
        let left = catalog.node_deadline(NODE).0.map(|deadline| self.now.until(deadline).0);
        (catalog.node_policy(NODE).unwrap().0, left)
    }
}

#[test]
fn withdrawn_notice_of_a_source_leaves_a_decommission_whichever_came_first() {
    for is_notice_first in [false, true] {
        let mut rig = Rig::with_claims();
        if is_notice_first {
            rig.state(1, Some(30_000), false).unwrap();
        }
        rig.decommission();
        if !is_notice_first {
            rig.state(1, Some(30_000), false).unwrap();
        }
        assert_eq!(rig.stands(), (Policy::Draining, Some(30_000)));
        rig.state(2, None, true).unwrap();
        assert_eq!(rig.stands(), (Policy::Decommissioning, None));
        rig.pass(Millis(40_000));
        assert_eq!(rig.stands(), (Policy::Decommissioning, None), "no deadline ends it");
        rig.call(Request::Cancel { node: NODE.into() }).unwrap();
        assert_eq!(rig.stands(), (Policy::Active, None));
    }
}

#[test]
fn withdrawn_notice_of_a_source_leaves_an_operators_whatever_its_deadline_is() {
    for (operator, source) in [(60_000, 30_000), (30_000, 60_000)] {
        for is_operator_first in [false, true] {
            let mut rig = Rig::with_claims();
            if is_operator_first {
                rig.notice(NODE, operator).unwrap();
            }
            rig.state(1, Some(source), false).unwrap();
            if !is_operator_first {
                rig.notice(NODE, operator).unwrap();
            }
            assert_eq!(rig.stands(), (Policy::Draining, Some(30_000)));
            rig.state(2, None, true).unwrap();
            assert_eq!(rig.stands(), (Policy::Draining, Some(operator.unsigned_abs())));
            let deadline = Millis(operator.unsigned_abs());
            rig.pass(Millis(deadline.0 - 1));
            assert_eq!(rig.stands().0, Policy::Draining);
            rig.pass(Millis(2));
            assert_eq!(rig.stands().0, Policy::Gone, "the later deadline ends it");
        }
    }
}

#[test]
fn withdrawn_notice_leaves_the_later_deadline_of_another_source() {
    let mut rig = Rig::with_claims();
    rig.state(1, Some(30_000), false).unwrap();
    rig.state(2, Some(60_000), false).unwrap();
    assert_eq!(rig.stands(), (Policy::Draining, Some(30_000)));
    rig.state(3, Some(60_000), true).unwrap();
    assert_eq!(rig.stands(), (Policy::Draining, Some(60_000)));
    rig.state(4, None, true).unwrap();
    assert_eq!(rig.stands(), (Policy::Active, None));
}

#[test]
fn statement_that_was_overtaken_or_comes_again_revives_nothing() {
    let mut rig = Rig::with_claims();
    rig.state(2, Some(30_000), false).unwrap();
    rig.state(3, None, true).unwrap();
    let late = rig.state(1, Some(20_000), false);
    assert!(matches!(late, Err(Refusal::RetryAfter { .. })), "its sender states it anew: {late:?}");
    assert_eq!(rig.stands(), (Policy::Active, None));
    rig.state(4, Some(30_000), false).unwrap();
    rig.call(Request::Cancel { node: NODE.into() }).unwrap();
    rig.state(4, Some(30_000), false).unwrap();
    assert_eq!(rig.stands(), (Policy::Active, None), "an operator's cancellation is later");
    rig.state(5, Some(30_000), false).unwrap();
    assert_eq!(rig.stands().0, Policy::Draining);
}

#[test]
fn repetition_of_a_cancelled_notice_revives_nothing_after_another_one() {
    let mut rig = Rig::with_claims();
    rig.notice(NODE, 60_000).unwrap();
    rig.call(Request::Cancel { node: NODE.into() }).unwrap();
    rig.state(1, Some(30_000), false).unwrap();
    let nonce = rig.namenode.catalog().node_nonce(NODE).unwrap();
    let (deadline_millis, reason, known_ago) = (Some(60_000), "again".to_owned(), Millis(1));
    let repeat = Repeat { node: NODE, nonce, deadline_millis, reason, known_ago };
    rig.call(Request::Repeat(repeat)).unwrap();
    rig.state(2, None, true).unwrap();
    assert_eq!(rig.stands(), (Policy::Active, None));
}

#[test]
fn statement_of_another_process_or_without_a_deadline_is_refused() {
    let mut rig = Rig::with_claims();
    let stated = |nonce| {
        let (node, number, reason, is_withdrawn) = (NODE, 1, String::new(), false);
        let deadline_millis = None;
        SourceNotice { node, nonce, number, deadline_millis, reason, is_withdrawn }
    };
    let nonce = rig.namenode.catalog().node_nonce(NODE).unwrap();
    let refused = rig.call(Request::SourceNotice(stated(nonce)));
    assert!(matches!(refused, Err(Refusal::BadRequest { .. })), "{refused:?}");
    let other = sanderling_protocol::Nonce(nonce.0 + 1);
    let refused = rig.call(Request::SourceNotice(stated(other)));
    assert!(matches!(refused, Err(Refusal::NodeGone { .. })), "{refused:?}");
}

#[test]
fn recommendation_outlives_a_notice_that_its_source_withdraws() {
    for is_recommended_first in [false, true] {
        let mut rig = Rig::with_claims();
        let recommend = |rig: &mut Rig| {
            let (node, reason) = (NODE.into(), "rebalance".to_owned());
            rig.call(Request::Recommend { node, reason, is_withdrawn: false }).unwrap();
        };
        if is_recommended_first {
            recommend(&mut rig);
        }
        rig.state(1, Some(30_000), false).unwrap();
        if !is_recommended_first {
            recommend(&mut rig);
        }
        rig.state(2, None, true).unwrap();
        assert_eq!(rig.stands(), (Policy::Active, None));
        assert!(
            rig.namenode.catalog().node_is_at_risk(NODE),
            "the cloud still recommends to leave it"
        );
    }
}
