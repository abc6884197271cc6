//! No node is declared dead that the namenode has just seen alive.

use std::collections::BTreeMap;

use sanderling_core::catalog::{Action, Command};
use sanderling_core::membership::MembershipConfig;
use sanderling_protocol::{NodeId, Reply, Request};

use super::view::View;
use crate::runtime::CheckResult;

/// When each node was seen alive last: its heartbeat was answered, or a probe by it.
#[derive(Debug, Default)]
pub(crate) struct Live {
    seen_at: BTreeMap<NodeId, u64>,
}

/// Clocks count in milliseconds. Some of them may be rounded one after the other, at both ends.
const ROUNDING_MICROS: u64 = 10_000;

impl Live {
    /// Notes that the namenode has an answer of a node.
    pub(crate) fn saw(&mut self, node: NodeId, now: u64) {
        self.seen_at.insert(node, now);
    }

    /// Notes a heartbeat that was answered.
    pub(super) fn beat(&mut self, request: &Request, reply: Option<&Reply>, now: u64) {
        if let (Request::Beat(heartbeat), Some(Reply::Beat { .. })) = (request, reply) {
            self.saw(heartbeat.node, now);
        }
    }

    /// Checks that a node whose process runs is given up after a silence only.
    pub(super) fn check_dead(&self, view: View<'_>, command: &Command) -> CheckResult {
        let Action::NodeDead { node, .. } = &command.action else { return Ok(()) };
        let (now, started_at) = (view.runtime.now(), view.namenode.started_at());
        // The process before had written it, and this one reads it.
        if started_at == now {
            return Ok(());
        }
        let since = self.seen_at.get(node).copied().unwrap_or(0).max(started_at);
        let silence = MembershipConfig::default().dead_after.0 * 1000;
        if view.running(*node).is_none() || now + ROUNDING_MICROS >= since + silence {
            return Ok(());
        }
        let millis = (now - since) / 1000;
        let text = format!("node {node} is declared dead, it was alive {millis} ms before");
        Err(("live-node", text))
    }
}
