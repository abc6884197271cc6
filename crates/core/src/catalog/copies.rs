//! Copies beside the home: made ahead of a notice, they become homes when it comes.

use sanderling_protocol::node::Policy;
use sanderling_protocol::{BlockId, EventKind, NodeId, Nonce, Refusal, Reply, Tier};

use super::Catalog;
use super::block_map::{Copied, Orders, allocated_bytes};
use super::due::Due;

/// Most copies that become homes by one command, so that a large node's notice does not stop the
/// namenode for long; the next turn follows at once.
const PROMOTED_PER_TURN_MAX: usize = 2000;

impl Catalog {
    /// Notes that a node holds the block's bytes beside its home.
    pub(super) fn add_copy(&mut self, id: BlockId, copy: Copied) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        let was_safe = block.is_safe();
        block.copy = Some(copy);
        let (home, length) = (block.home, u64::from(block.length));
        let bytes = u64::from(allocated_bytes(block.length));
        self.nodes.add_copy(copy.node, id, copy.tier, bytes);
        if let Some(node) = home.and_then(|home| self.nodes.get_mut(home)) {
            node.copied.insert(id);
            if !was_safe {
                node.safe_bytes += length;
            }
        }
    }

    /// Forgets a block's copy beside the home. Returns where it was.
    fn take_copy(&mut self, id: BlockId) -> Option<Copied> {
        let block = self.blocks.get_mut(&id)?;
        let copy = block.copy.take()?;
        let (home, length, is_safe) = (block.home, u64::from(block.length), block.is_safe());
        self.nodes.remove_copy(copy.node, id);
        if let Some(node) = home.and_then(|home| self.nodes.get_mut(home))
            && node.copied.remove(&id)
            && !is_safe
        {
            node.safe_bytes -= length;
        }
        Some(copy)
    }

    /// Gives a block's copy beside the home up.
    pub(super) fn drop_copy(&mut self, id: BlockId, orders: &mut Orders) {
        if let Some(copy) = self.take_copy(id) {
            orders.drop_block(copy.node, id, copy.epoch);
        }
    }

    pub(super) fn drop_copies(
        &mut self,
        holder: Nonce,
        blocks: &[BlockId],
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        self.check_manager(holder, self.now)?;
        for block in blocks {
            self.drop_copy(*block, orders);
        }
        Ok(Reply::Done)
    }

    /// Forgets the copies that a draining node holds of other nodes' blocks: they would die with
    /// it. It is told when the notice is taken back.
    pub(super) fn leave_copies(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(id) else { return };
        let copies: Vec<BlockId> = node.copies.keys().copied().collect();
        for block in copies {
            self.take_copy(block);
            if let Some(node) = self.nodes.get_mut(id) {
                node.left.insert(block);
            }
        }
    }

    /// Makes homes of the copies of a draining node's blocks, some at once and the others soon.
    pub(super) fn promote_copies(&mut self, id: NodeId, orders: &mut Orders) {
        let Some(node) = self.nodes.get(id).filter(|node| node.policy != Policy::Active) else {
            return;
        };
        let blocks: Vec<BlockId> =
            node.copied.iter().copied().take(PROMOTED_PER_TURN_MAX).collect();
        let is_more = blocks.len() < node.copied.len();
        self.promote(id, &blocks, orders);
        if is_more {
            self.schedule(self.now, Due::Promote(id));
        }
    }

    fn promote(&mut self, from: NodeId, blocks: &[BlockId], orders: &mut Orders) {
        let mut bytes = 0;
        for block in blocks {
            bytes += self.promote_one(from, *block, orders);
        }
        if blocks.is_empty() {
            return;
        }
        let count = blocks.len() as u64;
        if let Some(drain) = self.nodes.get_mut(from).and_then(|node| node.drain.as_mut()) {
            drain.promoted_blocks += count;
            drain.promoted_bytes += bytes;
        }
        self.report.promoted_bytes += bytes;
        self.emit(EventKind::BlocksPromoted { from, blocks: count, bytes });
        self.check_drained(from);
    }

    /// Makes the copy the home. The old home's bytes are served until its node dies.
    fn promote_one(&mut self, from: NodeId, id: BlockId, orders: &mut Orders) -> u64 {
        self.void_move(id, orders);
        let Some(copy) = self.take_copy(id) else { return 0 };
        let block = self.blocks.get_mut(&id).expect("it had a copy");
        self.nodes.leave(from, id, block);
        block.home = Some(copy.node);
        block.tier = copy.tier;
        block.epoch = copy.epoch;
        let length = u64::from(block.length);
        self.nodes.settle(copy.node, id, block);
        if let Some(node) = self.nodes.get_mut(from) {
            node.left.insert(id);
        }
        // A block that has ended takes the same there as here.
        self.resize_block(id, allocated_bytes(u32::try_from(length).expect("a block's length")));
        length
    }

    /// Saves what survives a node that is gone: blocks with a copy elsewhere, and blocks and copies
    /// in the object tier, which another node with that tier serves from now on.
    pub(super) fn save_from(&mut self, id: NodeId, orders: &mut Orders) {
        let Some(node) = self.nodes.get(id) else { return };
        let copied: Vec<BlockId> = node.copied.iter().copied().collect();
        let copies: Vec<(BlockId, Tier)> =
            node.copies.iter().map(|(block, (tier, _))| (*block, *tier)).collect();
        self.promote(id, &copied, orders);
        let heir = self.heir(id);
        for (block, tier) in copies {
            let copy = self.take_copy(block);
            if let (Tier::Object, Some(heir), Some(copy)) = (tier, heir, copy)
                && self.blocks.get(&block).is_some_and(|block| block.home != Some(heir))
            {
                self.add_copy(block, Copied { node: heir, ..copy });
                self.adopt(heir, block, orders);
            }
        }
        let Some(heir) = heir else { return };
        let stored: Vec<BlockId> = self.nodes.get(id).map_or_else(Vec::new, |node| {
            let is_stored = |block: &&BlockId| self.blocks[block].tier == Tier::Object;
            node.homes.iter().filter(is_stored).copied().collect()
        });
        for block_id in stored {
            self.void_move(block_id, orders);
            let block = self.blocks.get_mut(&block_id).expect("a home's block exists");
            self.nodes.leave(id, block_id, block);
            block.home = Some(heir);
            self.nodes.settle(heir, block_id, block);
            self.adopt(heir, block_id, orders);
        }
    }

    /// Returns the node that goes on serving the object tier's blocks of one that is gone: the one
    /// with the fewest blocks.
    fn heir(&self, of: NodeId) -> Option<NodeId> {
        let nodes = self.nodes.by_id.iter().filter(|(id, node)| {
            **id != of
                && node.policy == Policy::Active
                && node.tiers.iter().any(|state| state.tier == Tier::Object)
        });
        nodes.min_by_key(|(id, node)| (node.homes.len(), **id)).map(|(id, _)| *id)
    }

    fn adopt(&self, heir: NodeId, id: BlockId, orders: &mut Orders) {
        let Some(block) = self.blocks.get(&id) else { return };
        let epoch = block.copy.map_or(block.epoch, |copy| copy.epoch);
        orders.adopts.entry(heir).or_default().push((id, epoch, block.length));
    }
}
