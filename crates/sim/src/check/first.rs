//! What comes first: writers before copies, drains before balance.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::background::Background;
use sanderling_core::catalog::Catalog;
use sanderling_core::relocation::{CallId, MoveOutput};
use sanderling_protocol::message::{DrainWork, MovePurpose};
use sanderling_protocol::{NodeId, NodeInfo, Policy, Request};

use crate::runtime::CheckResult;

/// What one manager has under way for its drains.
#[derive(Debug, Default)]
pub(crate) struct InFlightPushes {
    /// Nodes that drain with a deadline, as the manager saw them last.
    leaving: BTreeSet<NodeId>,
    /// Source and target of each push.
    pushes: BTreeMap<CallId, (NodeId, NodeId)>,
}

impl InFlightPushes {
    /// Takes a view. What is on its way to a node that is not there, perhaps because the view is an
    /// old one, was given up: its block goes elsewhere.
    pub(crate) fn see(&mut self, drains: &[DrainWork], nodes: &[NodeInfo]) {
        let takes = |node: &&NodeInfo| node.policy.takes_blocks();
        let there: BTreeSet<NodeId> = nodes.iter().filter(takes).map(|node| node.id).collect();
        self.pushes.retain(|_, (_, target)| there.contains(target));
        let leaving = drains.iter().filter(|drain| drain.deadline_in.is_some());
        self.leaving = leaving.map(|drain| drain.node).collect();
    }

    pub(crate) fn begin(&mut self, output: &MoveOutput) {
        if let MoveOutput::Push { call, source, moves, .. } = output
            && *call < Background::CALLS_FROM
            && let Some(first) = moves.first()
        {
            self.pushes.insert(*call, (*source, first.to));
        }
    }

    pub(crate) fn end(&mut self, call: CallId) {
        self.pushes.remove(&call);
    }

    fn uses(&self, node: NodeId) -> bool {
        let of_drains = self.pushes.values().filter(|(source, _)| self.leaving.contains(source));
        of_drains.flat_map(|(source, target)| [source, target]).any(|used| *used == node)
    }
}

impl InFlightPushes {
    /// Checks that nothing moves for balance from or to a node that a drain of the same manager
    /// uses.
    pub(crate) fn check_keeps_off(&self, output: &MoveOutput, catalog: &Catalog) -> CheckResult {
        let MoveOutput::Reserve { moves, .. } = output else { return Ok(()) };
        for one in moves.iter().filter(|one| one.purpose == MovePurpose::Rebalance) {
            // A proposal from an older epoch is refused: the block has moved since it was read.
            let found = catalog.block_home(one.block);
            let Some((home, _)) = found.filter(|(_, epoch)| *epoch == one.from_epoch) else {
                continue;
            };
            let used = [home, Some(one.to)].into_iter().flatten();
            if let Some(node) = used.into_iter().find(|node| self.uses(*node)) {
                let block = one.block;
                let text =
                    format!("block {block} is to move for balance, a drain uses node {node}");
                return Err(("drains-first", text));
            }
        }
        Ok(())
    }
}

/// Checks that a writer is refused for want of room only where nothing is there that gives way.
pub(super) fn check_full(catalog: &Catalog, request: &Request, bytes: u64) -> CheckResult {
    let class = match request {
        Request::Create(create) => Some(create.class),
        Request::Append { path, .. } => catalog.class_at(path),
        Request::AddBlocks { object, .. } => catalog.class_of(*object),
        _ => None,
    };
    let Some(class) = class else { return Ok(()) };
    let is_active = |node: NodeId| {
        catalog.node_policy(node).is_some_and(|(policy, _)| policy == Policy::Active)
    };
    for id in catalog.block_ids() {
        let Some(block_view) = catalog.block_view(id) else { continue };
        if !block_view.home.is_some_and(is_active) {
            continue;
        }
        let copy = block_view.copy.map(|(node, tier, _)| (node, tier));
        let reserved = block_view.reserved.filter(|it| it.2 != MovePurpose::Relocate);
        let reserved = reserved.map(|it| it.0).zip(block_view.reserved_tier);
        // A node that has room and gets no blocks is unreachable for the moment.
        let is_spare = |(node, tier)| {
            let is_full = catalog.node_room(node, tier).0 < bytes;
            is_full && is_active(node) && tier == class.tier
        };
        if let Some((node, tier)) = [copy, reserved].into_iter().flatten().find(|it| is_spare(*it))
        {
            let text = format!("a writer finds no {tier}, block {id} has some of node {node}");
            return Err(("room", text));
        }
    }
    Ok(())
}
