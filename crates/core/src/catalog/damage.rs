//! Blocks whose bytes a datanode found damaged or missing: the copy becomes the home, or the bytes
//! are lost.
//!
//! A report names a block and the epoch at which the node holds it. An epoch is given out once, so
//! a report that is late or repeated, or that comes from a node that does not hold the block,
//! matches nothing and changes nothing.

use std::collections::BTreeSet;
use std::ops::Bound;

use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::order::{DamagedBlock, HeldBlock};
use sanderling_protocol::{BlockId, EventKind, NodeId, Reply};

use super::block::Block;
use super::block_map::BlockMap;
use super::fleet::Fleet;
use super::members::NodeRecord;
use super::orders::Orders;

/// What a damaged block is to the catalog.
pub(super) enum DamagedReplica {
    Home,
    Copy,
    /// A move has stored it and is not committed.
    Moving,
}

/// Returns what is damaged by a report; `None` if that changes nothing.
pub(super) fn damaged_replica(
    blocks: &BlockMap,
    node: NodeId,
    reported: &DamagedBlock,
) -> Option<DamagedReplica> {
    let block = blocks.get(&reported.block)?;
    let moving = block.moving.map(|planned| (planned.to, planned.to_epoch));
    let copy = block.copy.map(|copy| (copy.node, copy.epoch));
    let is = |held| held == (node, reported.epoch);
    if block.home.is_some_and(|home| is((home, block.epoch))) {
        Some(DamagedReplica::Home)
    } else if copy.is_some_and(is) {
        Some(DamagedReplica::Copy)
    } else {
        moving.is_some_and(is).then_some(DamagedReplica::Moving)
    }
}

impl Fleet<'_> {
    /// Drops what a node holds damaged. A block whose home it was is at its copy from now on;
    /// returns those that have none, and what is wrong with their bytes.
    pub(super) fn drop_damaged(
        &mut self,
        node: NodeId,
        reported: &[DamagedBlock],
        orders: &mut Orders,
    ) -> (Vec<BlockId>, String) {
        let mut saved = Vec::new();
        let (mut lost, mut why) = (Vec::new(), BTreeSet::new());
        let mut spare = 0;
        let mut seen = BTreeSet::new();
        for damaged in reported.iter().filter(|damaged| seen.insert(damaged.block)) {
            let id = damaged.block;
            match damaged_replica(self.blocks, node, damaged) {
                Some(DamagedReplica::Home) if self.blocks[&id].copy.is_some() => saved.push(id),
                Some(DamagedReplica::Home) => {
                    lost.push(id);
                    why.insert(damaged.damage);
                }
                Some(DamagedReplica::Copy) => {
                    self.drop_copy(id, orders);
                    spare += 1;
                }
                Some(DamagedReplica::Moving) => {
                    self.void_move(id, orders);
                    spare += 1;
                }
                None => continue,
            }
            orders.drop_block(node, id, damaged.epoch);
        }
        let of_copies = saved.len() as u64 + spare;
        let blocks = of_copies + lost.len() as u64;
        if blocks > 0 {
            self.emit(EventKind::BlocksDamaged { node, blocks, saved: of_copies });
        }
        self.promote(node, &saved, orders);
        // There is nothing that the old home could go on serving.
        saved.iter().for_each(|id| self.nodes.forget_left(node, *id));
        let why: Vec<String> = why.iter().map(ToString::to_string).collect();
        (lost, why.join(", or "))
    }
}

/// Returns one page of the blocks that a node must hold: those of which bytes are published, that
/// have their home or a copy there. What is in the object tier is left out: whether it is there is
/// not the node's own affair.
pub(super) fn expected_page(
    blocks: &BlockMap,
    (node, holder): (NodeId, &NodeRecord),
    after: BlockId,
    limit: u32,
) -> Reply {
    let limit = (limit as usize).clamp(1, BLOCKS_PER_PAGE_MAX);
    let after = (Bound::Excluded(after), Bound::Unbounded);
    let mut homes = holder.held().homes.range(after).copied().peekable();
    let mut copies = holder.held().copies.range(after).map(|(id, _)| *id).peekable();
    let mut page = Vec::new();
    while page.len() < limit {
        let id = match (homes.peek(), copies.peek()) {
            (Some(home), Some(copy)) if copy < home => copies.next(),
            (Some(_), _) => homes.next(),
            (None, _) => copies.next(),
        };
        let Some(id) = id else { return Reply::Expected { blocks: page, is_more: false } };
        page.extend(blocks.get(&id).and_then(|block| expected_of(node, id, block)));
    }
    Reply::Expected { blocks: page, is_more: true }
}

fn expected_of(node: NodeId, id: BlockId, block: &Block) -> Option<HeldBlock> {
    let length = block.length;
    let (epoch, tier) = if block.home == Some(node) {
        (block.epoch, block.tier)
    } else {
        let copy = block.copy.filter(|copy| copy.node == node)?;
        (copy.epoch, copy.tier)
    };
    let is_own = length > 0 && tier != sanderling_protocol::Tier::Object;
    is_own.then_some(HeldBlock { block: id, epoch, length, tier })
}
