//! Blocks with what their places cost: on their nodes, and on the accounts of jobs.

use std::collections::BTreeMap;

use sanderling_protocol::{BlockId, Epoch, JobId, Millis, NodeId, ObjectId, Refusal, Tier};

use super::Catalog;
use super::block::{Block, BlockState, allocated_bytes};
use super::log::Placement;
use super::orders::Orders;

/// How soon a writer asks again whose places were taken by others in the same turn.
const CHOOSE_AGAIN: Millis = Millis(1);

impl Catalog {
    /// Refuses places that were chosen before commands that came first: their nodes may have been
    /// told to drain since, or their room may be taken.
    pub(crate) fn check_placed(&self, placed: &[Placement]) -> Result<(), Refusal> {
        let all = placed.iter().map(|place| u64::from(allocated_bytes(place.bytes_max)));
        if self.uses_reserve(all.sum()) {
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
        let reserved = allocated_bytes(placement.bytes_max);
        let block = Block {
            object,
            job,
            epoch: Epoch(1),
            epoch_last: Epoch(1),
            length: 0,
            reserved,
            bytes_max: placement.bytes_max,
            home: Some(placement.node),
            lost_on: NodeId(0),
            tier: placement.tier,
            state: BlockState::Open,
            moving: None,
            copy: None,
        };
        self.nodes.settle(placement.node, id, &block);
        self.blocks.insert(id, block);
        self.jobs.charge(job, i64::from(reserved));
        id
    }

    /// Forgets a block and frees its places.
    pub(crate) fn remove_block(&mut self, id: BlockId, orders: &mut Orders) {
        self.void_move(id, orders);
        self.drop_copy(id, orders);
        let Some(block) = self.blocks.remove(&id) else { return };
        if let Some(home) = block.home {
            self.nodes.leave(home, id, &block);
            orders.drop_block(home, id, block.epoch_last);
            self.jobs.charge(block.job, -i64::from(block.reserved));
        }
    }

    /// Sets how many bytes a block's place is accounted with.
    pub(crate) fn resize_block(&mut self, id: BlockId, reserved: u32) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        let change = i64::from(reserved) - i64::from(block.reserved);
        let (home, tier, job) = (block.home, block.tier, block.job);
        block.reserved = reserved;
        if let Some(home) = home {
            self.nodes.account(home, tier, change);
            self.jobs.charge(job, change);
        }
    }

    /// Gives a reserved move up; its target forgets what it may have stored.
    pub(crate) fn void_move(&mut self, id: BlockId, orders: &mut Orders) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        if let Some(planned) = block.moving.take() {
            self.nodes.release_incoming(planned.to, id);
            orders.drop_block(planned.to, id, planned.to_epoch);
        }
    }

    /// Marks a block's bytes as gone. Returns its published bytes.
    pub(crate) fn lose_block(&mut self, id: BlockId, orders: &mut Orders) -> u32 {
        self.void_move(id, orders);
        self.drop_copy(id, orders);
        let Some(block) = self.blocks.get_mut(&id) else { return 0 };
        let Some(home) = block.home.take() else { return 0 };
        self.nodes.leave(home, id, block);
        block.epoch_last = block.epoch_last.next();
        block.epoch = block.epoch_last;
        block.lost_on = home;
        let (reserved, job, length) = (block.reserved, block.job, block.length);
        block.reserved = 0;
        self.jobs.charge(job, -i64::from(reserved));
        length
    }
}
