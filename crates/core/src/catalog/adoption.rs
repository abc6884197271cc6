//! Adoption: blocks in the object tier outlive their node, and other nodes go on serving them.

use sanderling_protocol::node::Policy;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{BlockId, Epoch, NodeId, Tier};

use super::block::Copied;
use super::block_map::BlockMap;
use super::fleet::Fleet;
use super::orders::Orders;
use super::timers::Timer;

/// The nodes that may go on serving the object tier's blocks of another one, in turn.
#[derive(Debug)]
pub(super) struct Adopters {
    nodes: Vec<NodeId>,
    next: usize,
}

impl Adopters {
    /// Returns the next one, passing over `not`.
    fn next(&mut self, not: Option<NodeId>) -> Option<NodeId> {
        for _ in 0..self.nodes.len() {
            let adopter = self.nodes[self.next % self.nodes.len()];
            self.next += 1;
            if Some(adopter) != not {
                return Some(adopter);
            }
        }
        None
    }
}

impl Fleet<'_> {
    /// Saves what survives a node that is gone: blocks with a copy elsewhere, and blocks and copies
    /// in the object tier, which other nodes with that tier serve from now on.
    pub(super) fn save_from(&mut self, id: NodeId, orders: &mut Orders) {
        let Some(node) = self.nodes.get(id) else { return };
        let copied: Vec<BlockId> = node.held().copied.iter().copied().collect();
        self.promote(id, &copied, orders);
        self.leave_copies(id, orders);
        self.hand_over(id, usize::MAX, orders);
    }

    /// Hands at most `most` blocks whose home is in the object tier to other nodes. Returns whether
    /// there are more. Without another node with that tier they stay, to be moved like all others.
    pub(super) fn hand_over(&mut self, from: NodeId, most: usize, orders: &mut Orders) -> bool {
        let mut adopters = self.adopters(from);
        let Some(node) = self.nodes.get(from).filter(|_| !adopters.nodes.is_empty()) else {
            return false;
        };
        let blocks: Vec<BlockId> = node.held().stored.iter().copied().take(most).collect();
        let is_more = blocks.len() < node.held().stored.len();
        let mut bytes = 0;
        for id in &blocks {
            let adopter = adopters.next(None).expect("there is one, looked at above");
            let block = self.blocks.adopt(*id, adopter, self.nodes, orders);
            let block = block.expect("a home's block exists");
            bytes += u64::from(block.length);
            adopt(orders, adopter, *id, block.epoch, block.length);
        }
        self.count_promoted(from, blocks.len() as u64, bytes);
        is_more
    }

    /// Lets another node go on with a copy in the object tier whose node goes. A copy elsewhere
    /// goes with its node.
    pub(super) fn adopt_copy(
        &mut self,
        id: BlockId,
        copy: Copied,
        adopters: &mut Adopters,
        orders: &mut Orders,
    ) {
        let Some(block) = self.blocks.get(&id).filter(|_| copy.tier == Tier::Object) else {
            return;
        };
        let length = block.length;
        if let Some(adopter) = adopters.next(block.home) {
            self.blocks.add_copy(id, Copied { node: adopter, ..copy }, self.nodes);
            adopt(orders, adopter, id, copy.epoch, length);
        }
    }

    /// Returns the nodes that may serve what another one has in the object tier, those with the
    /// fewest blocks first.
    pub(super) fn adopters(&self, of: NodeId) -> Adopters {
        let mut nodes: Vec<(usize, NodeId)> = self
            .nodes
            .iter()
            .filter(|(id, node)| {
                **id != of && node.policy == Policy::Active && node.has_object_tier()
            })
            .map(|(id, node)| (node.held().homes.len(), *id))
            .collect();
        nodes.sort_unstable();
        Adopters { nodes: nodes.into_iter().map(|(_, id)| id).collect(), next: 0 }
    }

    /// Lets draining nodes hand over the blocks that had no adopter until one joined.
    pub(super) fn adopter_joined(&mut self) {
        let waits: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.policy.is_draining() && !node.held().stored.is_empty())
            .map(|(id, _)| *id)
            .collect();
        for id in waits {
            self.timers.schedule(self.now, Timer::Promote(id));
        }
    }
}

/// Returns whether some node serves this object of the object tier or is about to store it. Any
/// other stays unwanted for ever: no epoch is given out twice.
pub(super) fn is_stored_object(blocks: &BlockMap, held: &HeldBlock) -> bool {
    let Some(block) = blocks.get(&held.block) else { return false };
    let is_it = |tier: Tier, epoch: Epoch| tier == Tier::Object && epoch == held.epoch;
    (block.home.is_some() && is_it(block.tier, block.epoch))
        || block.copy.is_some_and(|copy| is_it(copy.tier, copy.epoch))
        || block.moving.is_some_and(|planned| is_it(planned.tier, planned.to_epoch))
}

fn adopt(orders: &mut Orders, adopter: NodeId, id: BlockId, epoch: Epoch, length: u32) {
    orders.lists().adopts.entry(adopter).or_default().push((id, epoch, length));
}
