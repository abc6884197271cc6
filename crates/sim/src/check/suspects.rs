//! What the namenode does with the reports of clients that a node did not answer: it dials the node
//! soon, and dials no node too often.

use std::collections::BTreeMap;

use sanderling_core::membership::MembershipConfig;
use sanderling_protocol::{NodeId, Policy, Reply, Request};

use super::view::View;
use crate::runtime::CheckResult;
use crate::wire::Host;

/// The nodes that were reported, and those that were dialled, of one process of the namenode.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// When each node was reported for the first time since the namenode last dialled it, or had a
    /// message of it.
    reported_at: BTreeMap<NodeId, u64>,
    dialled_at: BTreeMap<NodeId, u64>,
}

/// Clocks count in milliseconds. Some of them may be rounded one after the other, at both ends.
const ROUNDING_MICROS: u64 = 10_000;

impl Suspects {
    /// Forgets what the process before had received.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Notes that the namenode has the outcome of dialling a node.
    pub(crate) fn saw(&mut self, node: NodeId) {
        self.reported_at.remove(&node);
    }

    /// Notes a report or a heartbeat that was answered.
    pub(super) fn answered(&mut self, request: &Request, reply: Option<&Reply>, now: u64) {
        match (request, reply) {
            (Request::Suspect { node }, Some(_)) => {
                self.reported_at.entry(*node).or_insert(now);
            }
            (Request::Beat(heartbeat), Some(_)) => self.saw(heartbeat.node),
            _ => {}
        }
    }

    /// Checks that each node that is dialled now comes after a pause, and that none is missing that
    /// was reported before; notes them.
    pub(super) fn dialled(&mut self, view: View<'_>, nodes: &[NodeId]) -> CheckResult {
        let now = view.runtime.now();
        let pause = MembershipConfig::default().probe_every.0 * 1000;
        for node in nodes {
            self.reported_at.remove(node);
            let before = self.dialled_at.insert(*node, now);
            if let Some(before) = before.filter(|before| now + ROUNDING_MICROS < before + pause) {
                let millis = (now - before) / 1000;
                let text = format!("node {node} is dialled again after {millis} ms");
                return Err(("suspect-dialled", text));
            }
        }
        self.check_soon(view, pause)
    }

    /// Checks that a node that was reported is dialled after the pause between two dials. A refusal
    /// that comes meanwhile may put it off once.
    fn check_soon(&self, view: View<'_>, pause: u64) -> CheckResult {
        let View { runtime, namenode, .. } = view;
        // One batch of the namenode may lie between.
        let slack = 100_000 + runtime.plan().gather_micros_max * 2;
        let since = namenode.started_at().max(runtime.skewed_at(Host::Namenode));
        // Nothing is dialled while timers wait for the journal, or the process is stopped.
        let since = since.max(namenode.refused_at() + 200_000).max(namenode.frozen_until());
        for (node, at) in &self.reported_at {
            let policy = view.catalog().node_policy(*node).map(|(policy, _)| policy);
            let is_there = policy.is_some_and(|policy| policy != Policy::Gone);
            let at = since.max(*at);
            if is_there && at + 2 * pause + slack < runtime.now() {
                let millis = (runtime.now() - at) / 1000;
                let text = format!("node {node} was reported {millis} ms ago and is not dialled");
                return Err(("suspect-dialled", text));
            }
        }
        Ok(())
    }
}
