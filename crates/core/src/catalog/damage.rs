//! Blocks whose bytes a datanode found damaged or missing: the copy becomes the home, or the bytes
//! are lost.
//!
//! A report names a block and the epoch at which the node holds it. An epoch is given out once, so
//! a report that is late or repeated, or that comes from a node that does not hold the block,
//! matches nothing and changes nothing.

use std::collections::BTreeSet;
use std::ops::Bound;

use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::node::Policy;
use sanderling_protocol::order::{Damage, DamagedBlock, HeldBlock};
use sanderling_protocol::{BlockId, EventKind, Instant, Millis, NodeId, Nonce, Refusal, Reply};

use super::Catalog;
use super::block::Block;
use super::orders::Orders;

/// What a damaged block is to the catalog.
enum DamagedReplica {
    Home,
    Copy,
    /// A move has stored it and is not committed.
    Moving,
}

impl Catalog {
    /// Refuses a request from any process but the node's own.
    pub(crate) fn check_process(&self, node: NodeId, nonce: Nonce) -> Result<(), Refusal> {
        let policy = self.node_policy(node).map(|(policy, _)| policy);
        let is_same = self.node_nonce(node) == Some(nonce);
        match policy {
            Some(policy) if is_same && policy != Policy::Gone => Ok(()),
            _ => Err(Refusal::NodeGone { node }),
        }
    }

    /// Returns whether a report of damage changes anything.
    pub(crate) fn concerns(&self, node: NodeId, reported: &DamagedBlock) -> bool {
        self.held_as(node, reported).is_some()
    }

    fn held_as(&self, node: NodeId, reported: &DamagedBlock) -> Option<DamagedReplica> {
        let block = self.blocks.get(&reported.block)?;
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

    /// Takes a report of damage. What a node holds damaged is dropped there; a block whose home it
    /// was is at its copy from now on, or lost.
    ///
    /// While nodes still report what a lost end of the log had moved to them, no block is taken for
    /// missing: the report may have been prepared before the start was applied.
    pub(super) fn damaged(
        &mut self,
        node: NodeId,
        reported: &[DamagedBlock],
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        self.believes(self.now, reported)?;
        let mut saved = Vec::new();
        let (mut lost, mut why) = (Vec::new(), BTreeSet::new());
        let mut spare = 0;
        let mut seen = BTreeSet::new();
        for damaged in reported.iter().filter(|damaged| seen.insert(damaged.block)) {
            let id = damaged.block;
            match self.held_as(node, damaged) {
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
        self.lose_blocks(node, &lost, &why.join(", or "), orders);
        self.check_drained(node);
        Ok(Reply::Done)
    }

    /// Refuses reports of missing blocks while the nodes report what they hold after a start.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`], until the nodes have had their time, and for a second at most.
    pub(crate) fn believes(&self, now: Instant, reported: &[DamagedBlock]) -> Result<(), Refusal> {
        let Some(left) = self.settles_in(now) else { return Ok(()) };
        if reported.iter().all(|it| it.damage != Damage::Missing) {
            return Ok(());
        }
        let why = "the nodes still report what they hold".to_owned();
        Err(Refusal::RetryAfter { after: left.clamp(Millis(1), Millis(1000)), why })
    }

    /// Returns one page of the blocks that a node must hold: those of which bytes are published,
    /// that have their home or a copy there. What is in the object tier is left out: whether it is
    /// there is not the node's own affair.
    pub(crate) fn expected(
        &self,
        node: NodeId,
        nonce: Nonce,
        after: BlockId,
        limit: u32,
    ) -> Result<Reply, Refusal> {
        self.check_process(node, nonce)?;
        let limit = (limit as usize).clamp(1, BLOCKS_PER_PAGE_MAX);
        let Some(holder) = self.nodes.get(node) else { return Err(Refusal::NodeGone { node }) };
        let after = (Bound::Excluded(after), Bound::Unbounded);
        let mut homes = holder.held().homes.range(after).copied().peekable();
        let mut copies = holder.held().copies.range(after).map(|(id, _)| *id).peekable();
        let mut blocks = Vec::new();
        while blocks.len() < limit {
            let id = match (homes.peek(), copies.peek()) {
                (Some(home), Some(copy)) if copy < home => copies.next(),
                (Some(_), _) => homes.next(),
                (None, _) => copies.next(),
            };
            let Some(id) = id else { return Ok(Reply::Expected { blocks, is_more: false }) };
            blocks.extend(self.blocks.get(&id).and_then(|block| expected_of(node, id, block)));
        }
        Ok(Reply::Expected { blocks, is_more: true })
    }
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
