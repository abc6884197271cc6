//! Why nodes drain: what an operator and what a node's own sources want of it, kept apart.
//!
//! A node drains by the earliest deadline of its claims, without one if it is decommissioned only,
//! and is active without a claim. A source that withdraws its notice ends its own claim. An
//! operator's cancellation ends them all.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis, NodeId, Policy};
use serde::{Deserialize, Serialize};

use super::members::NodeRecord;
use crate::notices::EARLIER;

/// How long a statement or a repetition may have been on its way: by so much, a moment that it
/// names may be later than it was. Longer than a datanode waits for an answer.
const ON_ITS_WAY_MAX: Millis = Millis(5000);

/// The claims on all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DrainClaims(BTreeMap<NodeId, NodeClaims>);

/// The claims on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeClaims {
    /// The earliest notice of an operator.
    operator: Option<NoticeClaim>,
    /// The earliest notice of the node's own sources.
    sources: Option<NoticeClaim>,
    /// The reason of a decommission.
    decommission: Option<String>,
    /// The last statement of the node's process about its sources.
    number: u64,
}

/// A notice that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NoticeClaim {
    pub(super) deadline: Instant,
    pub(super) reason: String,
}

/// Where a notice comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoticeOrigin {
    Operator,
    Sources,
}

/// The nodes of which a notice or a recommendation was taken back, by an operator or by its own
/// source, and when that was last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cancellations(BTreeMap<NodeId, Instant>);

impl Cancellations {
    /// Notes that what a node drained for, or was recommended to, is taken back now.
    pub(super) fn cancel(&mut self, id: NodeId, now: Instant) {
        self.0.insert(id, now);
    }

    /// Returns whether a notice of the moment `known_at` was taken back since. What was given after
    /// that is another notice.
    fn is_after(&self, id: NodeId, known_at: Instant) -> bool {
        self.0.get(&id).is_some_and(|at| *at + ON_ITS_WAY_MAX >= known_at)
    }

    /// Returns whether a repeated notice of a node would change something, or a recommendation,
    /// which has no deadline: the log does not have it, and it was not taken back.
    pub(super) fn is_forgotten(
        &self,
        id: NodeId,
        node: &NodeRecord,
        deadline: Option<Instant>,
        known_at: Instant,
    ) -> bool {
        let is_known = match deadline {
            Some(deadline) => node.deadline.is_some_and(|known| known <= deadline + EARLIER),
            None => node.policy != Policy::Active || node.risk.is_some(),
        };
        !is_known && !self.is_after(id, known_at)
    }

    /// Forgets a node that is gone, or that got another notice by earlier rules.
    pub(super) fn forget(&mut self, id: NodeId) {
        self.0.remove(&id);
    }
}

impl DrainClaims {
    /// Returns the claims on a node. If none were kept yet, the node drains by earlier rules: what
    /// it drains for is taken as an operator's, so that no source takes it back.
    pub(super) fn of(&mut self, id: NodeId, node: &NodeRecord) -> &mut NodeClaims {
        self.0.entry(id).or_insert_with(|| {
            let mut claims = NodeClaims::default();
            let reason = node.reason.clone();
            match node.deadline {
                Some(deadline) => claims.operator = Some(NoticeClaim { deadline, reason }),
                None if node.policy.is_draining() || node.policy == Policy::Drained => {
                    claims.decommission = Some(reason);
                }
                None => {}
            }
            claims
        })
    }

    /// Ends all claims on a node. The number of the last statement stays: an older one that is
    /// still on its way revives nothing.
    pub(super) fn cancel(&mut self, id: NodeId) {
        if let Some(claims) = self.0.get_mut(&id) {
            *claims = NodeClaims { number: claims.number, ..NodeClaims::default() };
        }
    }

    /// Forgets a node that is gone.
    pub(super) fn forget(&mut self, id: NodeId) {
        self.0.remove(&id);
    }

    /// Gives all notices at least until `soonest`.
    pub(super) fn postpone(&mut self, soonest: Instant) {
        for claims in self.0.values_mut() {
            for claim in [&mut claims.operator, &mut claims.sources].into_iter().flatten() {
                claim.deadline = claim.deadline.max(soonest);
            }
        }
    }
}

impl NodeClaims {
    /// Adds a notice: of those of the same origin the earlier deadline holds.
    pub(super) fn notice(&mut self, origin: NoticeOrigin, claim: NoticeClaim) {
        let of_origin = match origin {
            NoticeOrigin::Operator => &mut self.operator,
            NoticeOrigin::Sources => &mut self.sources,
        };
        if of_origin.as_ref().is_none_or(|before| claim.deadline < before.deadline) {
            *of_origin = Some(claim);
        }
    }

    /// Adds a decommission.
    pub(super) fn decommission(&mut self, reason: &str) {
        self.decommission.get_or_insert_with(|| reason.to_owned());
    }

    /// Returns the reason of the decommission, if there is one.
    pub(super) fn decommissioned(&self) -> Option<&str> {
        self.decommission.as_deref()
    }

    /// Takes the number of a statement about the node's sources. Returns how it compares with the
    /// last one that was taken: [`Ordering::Greater`] for one that is to be taken now.
    pub(super) fn order(&mut self, number: u64) -> Ordering {
        let order = number.cmp(&self.number);
        self.number = self.number.max(number);
        order
    }

    /// Sets what the sources still show after one of them withdrew its notice. A deadline that is
    /// later by what a statement may take on its way is the one of before.
    pub(super) fn withdraw(&mut self, left: Option<NoticeClaim>) {
        let is_same = |left: &NoticeClaim, before: &NoticeClaim| {
            left.deadline >= before.deadline && left.deadline <= before.deadline + ON_ITS_WAY_MAX
        };
        match (&left, &self.sources) {
            (Some(left), Some(before)) if is_same(left, before) => {}
            _ => self.sources = left,
        }
    }

    /// Returns the notice that holds: the earliest.
    pub(super) fn earliest(&self) -> Option<&NoticeClaim> {
        [&self.operator, &self.sources].into_iter().flatten().min_by_key(|claim| claim.deadline)
    }
}
