//! No node is declared dead that the namenode has just heard of.

use std::collections::BTreeMap;

use sanderling_core::catalog::{Action, Command};
use sanderling_core::membership::MembershipConfig;
use sanderling_protocol::{NodeId, Reply, Request};

use crate::world::World;

/// When each node was heard last: its heartbeat was answered, or a probe by it.
#[derive(Debug, Default)]
pub(crate) struct Live {
    heard_at: BTreeMap<NodeId, u64>,
}

/// Clocks count in milliseconds.
const ROUNDING_MICROS: u64 = 10_000;

impl World {
    /// Notes that the namenode has heard of a node.
    pub(crate) fn heard(&mut self, node: NodeId) {
        self.checks.live.heard_at.insert(node, self.runtime.now());
    }

    /// Notes a heartbeat that was answered.
    pub(crate) fn check_beat(&mut self, request: &Request, reply: Option<&Reply>) {
        if let (Request::Beat(heartbeat), Some(Reply::Beat { .. })) = (request, reply) {
            self.heard(heartbeat.node);
        }
    }

    /// A node whose process runs is given up after a silence only.
    pub(super) fn check_dead(&mut self, command: &Command) {
        let Action::NodeDead { node, .. } = &command.action else { return };
        // The process before had written it, and this one reads it.
        if self.namenode.started_at == self.runtime.now() {
            return;
        }
        let heard_at = self.checks.live.heard_at.get(node).copied().unwrap_or(0);
        let since = heard_at.max(self.namenode.started_at);
        let silence = MembershipConfig::default().dead_after.0 * 1000;
        if self.slot_of(*node).is_some() && self.runtime.now() + ROUNDING_MICROS < since + silence {
            let millis = (self.runtime.now() - since) / 1000;
            let text = format!("node {node} is declared dead, it was heard {millis} ms before");
            self.runtime.violate("live-node", text);
        }
    }
}
