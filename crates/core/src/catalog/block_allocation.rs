//! Blocks of objects: where new ones go, and what gives old ones up.

use std::collections::BTreeMap;

use sanderling_protocol::{BlockId, Epoch, Millis, NodeId, ObjectId, Refusal, Tier};

use super::Catalog;
use super::block::{Block, BlockState, allocated_bytes};
use super::log::Placement;
use super::orders::Orders;

/// The retry interval of a writer whose places were taken by others in the same round. One unit of
/// [`Millis`]: the next round chooses anew, so nothing is waited for.
const CHOOSE_AGAIN: Millis = Millis(1);

impl Catalog {
    /// Refuses places that were chosen before commands that came first: their nodes may drain
    /// since, or their room may be taken.
    pub(crate) fn check_placed(&self, placed: &[Placement]) -> Result<(), Refusal> {
        if self.uses_reserve(reserved_bytes(placed)) {
            let why = "the room was taken since, what is left is kept for nodes that leave";
            return Err(Refusal::RetryAfter { after: CHOOSE_AGAIN, why: why.to_owned() });
        }
        let mut asked: BTreeMap<(NodeId, Tier), u64> = BTreeMap::new();
        for place in placed {
            let bytes = asked.entry((place.node, place.tier)).or_default();
            *bytes += u64::from(allocated_bytes(place.bytes_max));
            let node = self.nodes.get(place.node).filter(|node| node.policy.takes_blocks());
            if node.is_none_or(|node| node.free_bytes(place.tier) < *bytes) {
                let why = format!("node {} no longer takes the blocks chosen for it", place.node);
                return Err(Refusal::RetryAfter { after: CHOOSE_AGAIN, why });
            }
        }
        Ok(())
    }

    /// Makes a new block of an object at the end of its list.
    pub(crate) fn add_block(&mut self, object: ObjectId, placement: Placement) -> BlockId {
        let id = self.ids.next_block();
        let holder = self.objects.get_mut(&object).expect("blocks are added to a present object");
        let job = holder.job;
        let data = holder.data_mut().expect("only data has blocks");
        data.blocks.push(id);
        data.count_blank(true);
        let block = Block {
            object,
            job,
            epoch: Epoch(1),
            epoch_last: Epoch(1),
            length: 0,
            reserved: allocated_bytes(placement.bytes_max),
            bytes_max: placement.bytes_max,
            home: Some(placement.node),
            lost_on: NodeId(0),
            tier: placement.tier,
            state: BlockState::Open,
            moving: None,
            copy: None,
        };
        self.blocks.insert(id, block, &mut self.nodes, &mut self.jobs);
        id
    }

    /// Forgets a block and frees its places.
    pub(super) fn remove_block(&mut self, id: BlockId, orders: &mut Orders) {
        self.blocks.remove(id, &mut self.nodes, &mut self.jobs, orders);
        self.shown_moves.remove(id);
    }

    /// Gives a reserved move up; its target forgets what it may have stored.
    pub(super) fn void_move(&mut self, id: BlockId, orders: &mut Orders) {
        self.blocks.void_move(id, &mut self.nodes, orders);
    }

    /// Gives a block's copy beside the home up.
    pub(super) fn drop_copy(&mut self, id: BlockId, orders: &mut Orders) {
        self.blocks.drop_copy(id, &mut self.nodes, orders);
        self.shown_moves.remove(id);
    }
}

/// Returns the bytes that new blocks take.
pub(super) fn reserved_bytes(placed: &[Placement]) -> u64 {
    placed.iter().map(|place| u64::from(allocated_bytes(place.bytes_max))).sum()
}
