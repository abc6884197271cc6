//! The injected bugs about copies, notices and what is moved without one.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::catalog::{Action, Applied, BlockView, Catalog, Command};
use sanderling_protocol::message::{Layout, MoveCommit, MoveProposal, MovePurpose};
use sanderling_protocol::{
    BlockId, Epoch, Instant, NodeId, NodeInfo, Order, Policy, Refusal, Reply, Request, Tier,
};

use crate::InjectedBug;
use crate::namenode::NamenodeHost;

/// What these bugs must remember.
#[derive(Debug, Default)]
pub(super) struct CopyBugState {
    /// Every copy that was ever made.
    made: BTreeSet<(BlockId, NodeId)>,
    /// Where the last copy of each block was made.
    last: BTreeMap<BlockId, NodeId>,
    /// Blocks whose copy became their home, and the epoch before.
    promoted: BTreeMap<BlockId, (NodeId, Epoch)>,
}

fn block_views(catalog: &Catalog) -> impl Iterator<Item = (BlockId, BlockView)> {
    catalog.block_ids().filter_map(|id| Some((id, catalog.block_view(id)?)))
}

fn is_active(catalog: &Catalog, node: NodeId) -> bool {
    catalog.node_policy(node).is_some_and(|(policy, _)| policy == Policy::Active)
}

impl NamenodeHost {
    /// Takes a late commit of a copy for one of the reservation that is there now.
    pub(super) fn bug_stale_copy(&self, moves: &mut [MoveCommit]) {
        for one in moves {
            let block_view = self.catalog().block_view(one.block);
            if let Some((to, epoch, MovePurpose::Precopy)) = block_view.and_then(|it| it.reserved)
                && to == one.to
            {
                one.to_epoch = epoch;
            }
        }
    }

    /// Does what comes unseen before a command.
    pub(super) fn bug_before(&mut self, command: &Command) {
        match (self.bug, command.action.inner()) {
            (Some(InjectedBug::LaterNoticeWins), Action::Notice { node, deadline, .. }) => {
                let (before, _) = self.catalog().node_deadline(*node);
                if before.is_some_and(|before| before < *deadline) {
                    self.bug_do(command.at, Action::Cancel { node: *node });
                }
            }
            (
                Some(InjectedBug::CopyUnused),
                Action::NodeDead { node, .. } | Action::Notice { node, .. },
            ) => {
                let catalog = self.catalog();
                let is_of = |it: &BlockView| it.home == Some(*node) && it.copy.is_some();
                let blocks =
                    block_views(catalog).filter(|(_, it)| is_of(it)).map(|(id, _)| id).collect();
                if let Some(holder) = self.bugs.holder {
                    self.bug_do(command.at, Action::DropCopies { holder, blocks });
                }
            }
            (Some(InjectedBug::ReserveOnDraining), Action::Reserve { moves, .. }) => {
                for node in self.draining(moves) {
                    self.bug_do(command.at, Action::Cancel { node });
                }
            }
            _ => {}
        }
    }

    /// Returns the targets that drain.
    fn draining(&self, moves: &[MoveProposal]) -> BTreeSet<NodeId> {
        let catalog = self.catalog();
        let drains = |node: &NodeId| {
            catalog.node_policy(*node).is_some_and(|(policy, _)| policy.is_draining())
        };
        moves.iter().map(|one| one.to).filter(drains).collect()
    }

    fn bug_do(&mut self, at: Instant, action: Action) {
        let _ = self.bug_apply(Command { at, action });
    }

    /// Applies a command with what is wrong around it.
    pub(super) fn bug_copies(&mut self, command: &Command) -> Applied {
        let draining = match (self.bug, command.action.inner()) {
            (Some(InjectedBug::ReserveOnDraining), Action::Reserve { moves, .. }) => {
                self.draining(moves)
            }
            _ => BTreeSet::new(),
        };
        self.bug_before(command);
        let before: Vec<(BlockId, BlockView)> = block_views(self.catalog()).collect();
        let applied = self.machine.apply(command);
        for node in draining {
            let reason = String::new();
            self.bug_do(command.at, Action::Decommission { node, reason });
        }
        self.remember_copies(&before);
        if self.has_bug(InjectedBug::ReservationKept) && command.action == Action::Tick {
            self.reserve_again(command.at, &before);
        }
        applied
    }

    fn remember_copies(&mut self, before: &[(BlockId, BlockView)]) {
        let now: Vec<(BlockId, BlockView)> = block_views(self.catalog()).collect();
        let state = &mut self.bugs.copies;
        for (id, it) in now {
            if let Some((node, ..)) = it.copy {
                state.made.insert((id, node));
                state.last.insert(id, node);
            }
        }
        for (id, was) in before {
            let now = self.machine.catalog().block_view(*id).and_then(|it| it.home);
            if let Some((node, ..)) = was.copy
                && now == Some(node)
            {
                state.promoted.insert(*id, (node, was.epoch));
            }
        }
    }

    /// Reserves again what has just ended by itself.
    fn reserve_again(&mut self, at: Instant, before: &[(BlockId, BlockView)]) {
        let Some(holder) = self.bugs.holder else { return };
        for (block, was) in before {
            let Some((to, _, purpose)) = was.reserved else { continue };
            let now = self.catalog().block_view(*block);
            let has_ended = now.is_some_and(|it| it.reserved.is_none() && it.home == was.home);
            if purpose == MovePurpose::Relocate || !has_ended {
                continue;
            }
            let (from_epoch, tier) = (was.epoch, was.tier);
            let moves = vec![MoveProposal { block: *block, from_epoch, to, tier, purpose }];
            self.bug_do(at, Action::Reserve { holder, moves });
        }
    }

    /// Leaves out the drops of copies.
    pub(super) fn bug_drops(&self, applied: &mut Applied) {
        let made = &self.bugs.copies.made;
        for order in &mut applied.orders {
            if let Order::Drop { blocks } = &mut order.order {
                blocks.retain(|(block, _)| !made.contains(&(*block, order.node)));
            }
        }
    }

    pub(super) fn bug_copy_answer(&self, request: &Request, reply: &mut Reply) {
        let state = &self.bugs.copies;
        match (self.bug, request, reply) {
            (Some(InjectedBug::PromotionKeepsEpoch), _, Reply::Layout(layout)) => {
                self.bug_epochs(layout);
            }
            (Some(InjectedBug::GoneCopyCounts), _, Reply::Nodes(nodes)) => self.bug_exposure(nodes),
            (
                Some(InjectedBug::CopyDropForgotten),
                Request::BlockReport { node, .. },
                Reply::Drop { blocks },
            ) => blocks.retain(|block| !state.made.contains(&(*block, *node))),
            (Some(InjectedBug::OpenBlockRebalanced), Request::Reserve { moves, .. }, reply) => {
                self.bug_open_blocks(moves, reply);
            }
            _ => {}
        }
    }

    fn bug_epochs(&self, layout: &mut Layout) {
        for block in &mut layout.blocks {
            let promoted = self.bugs.copies.promoted.get(&block.block);
            if let Some((node, epoch)) = promoted
                && block.home == Some(*node)
            {
                block.epoch = *epoch;
            }
        }
    }

    /// Counts copies on nodes that are gone or drain as if they saved anything.
    fn bug_exposure(&self, nodes: &mut [NodeInfo]) {
        let catalog = self.catalog();
        for (id, it) in block_views(catalog) {
            let Some(last) = self.bugs.copies.last.get(&id) else { continue };
            if it.copy.is_some() || is_active(catalog, *last) || it.home == Some(*last) {
                continue;
            }
            for node in nodes.iter_mut().filter(|node| Some(node.id) == it.home) {
                node.exposure_bytes = node.exposure_bytes.saturating_sub(u64::from(it.length));
            }
        }
    }

    /// Grants what was refused because the block is still written.
    fn bug_open_blocks(&self, moves: &[MoveProposal], reply: &mut Reply) {
        let Reply::Epochs(epochs) = reply else { return };
        for (one, epoch) in moves.iter().zip(epochs) {
            let is_open = |it: BlockView| !it.is_ended && it.tier != Tier::Object;
            let is_open = self.catalog().block_view(one.block).is_some_and(is_open);
            if let Err(Refusal::MoveVoid { from, .. }) = epoch
                && one.purpose != MovePurpose::Relocate
                && is_open
            {
                *epoch = Ok(from.next());
            }
        }
    }
}
