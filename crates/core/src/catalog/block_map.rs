//! Blocks: where each one is, how much of it counts, and what its place costs.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::limits::ALLOCATION_UNIT_BYTES;
use sanderling_protocol::message::MovePurpose;
use sanderling_protocol::{BlockId, Epoch, JobId, Millis, NodeId, ObjectId, Refusal, Tier};
use serde::{Deserialize, Serialize};

use super::Catalog;
use super::log::Placement;

/// How soon a writer asks again whose places were taken by others in the same turn.
const CHOOSE_AGAIN: Millis = Millis(1);

/// One block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Block {
    pub(crate) object: ObjectId,
    pub(crate) job: Option<JobId>,
    pub(crate) epoch: Epoch,
    /// The highest epoch ever given out for it, committed or not.
    pub(crate) epoch_last: Epoch,
    /// Published bytes.
    pub(crate) length: u32,
    /// Bytes that its place is accounted with, on its node and its job.
    pub(crate) reserved: u32,
    /// Most bytes that its writer may give it.
    pub(crate) bytes_max: u32,
    /// `None` when it is lost.
    pub(crate) home: Option<NodeId>,
    /// The node it was lost with, once it is lost.
    pub(crate) lost_on: NodeId,
    pub(crate) tier: Tier,
    pub(crate) state: BlockState,
    pub(crate) moving: Option<ReservedMove>,
    /// Its bytes beside the home, made ahead of a notice. Only a block that has ended has any.
    pub(crate) copy: Option<Copied>,
}

/// Who may still change a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BlockState {
    /// Its writer may add bytes.
    Open,
    /// No bytes are added, but the writer has not said yet how many count.
    Fenced,
    /// Its length is final.
    Ended,
}

/// A reserved future home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReservedMove {
    pub(crate) to: NodeId,
    pub(crate) tier: Tier,
    pub(crate) to_epoch: Epoch,
    pub(crate) purpose: MovePurpose,
}

/// Bytes of a block beside its home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Copied {
    pub(crate) node: NodeId,
    pub(crate) tier: Tier,
    /// Later than the home's: the block's when the copy becomes the home.
    pub(crate) epoch: Epoch,
}

/// What datanodes are to be told after a command.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    pub(crate) drops: BTreeMap<NodeId, Vec<(BlockId, Epoch)>>,
    pub(crate) fences: BTreeMap<NodeId, Vec<(BlockId, Epoch)>>,
    pub(crate) fence_nodes: BTreeSet<NodeId>,
    pub(crate) unfence_nodes: BTreeSet<NodeId>,
    pub(crate) adopts: BTreeMap<NodeId, Vec<(BlockId, Epoch, u32)>>,
    /// Nodes that ended: nobody is told, but whoever knew them forgets them.
    pub(crate) gone: Vec<NodeId>,
}

impl Orders {
    /// Tells a node to forget its copy of a block at `last` or an earlier epoch.
    pub(crate) fn drop_block(&mut self, node: NodeId, block: BlockId, last: Epoch) {
        self.drops.entry(node).or_default().push((block, last));
    }
}

/// Returns the bytes that a block of this length occupies in a tier.
#[must_use]
pub const fn allocated_bytes(length: u32) -> u32 {
    length.div_ceil(ALLOCATION_UNIT_BYTES) * ALLOCATION_UNIT_BYTES
}

impl Block {
    /// Tells whether its object's bytes at this block can no longer be read.
    pub(crate) const fn is_lost(&self) -> bool {
        self.home.is_none()
    }

    /// Tells whether its bytes survive its home.
    pub(crate) const fn is_safe(&self) -> bool {
        self.copy.is_some() || matches!(self.tier, Tier::Object)
    }

    /// Bytes that a copy elsewhere reserves.
    pub(crate) const fn reserve_bytes(&self) -> u32 {
        match self.state {
            BlockState::Ended => allocated_bytes(self.length),
            BlockState::Open | BlockState::Fenced => self.reserved,
        }
    }
}

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
        let id = BlockId(self.next_block);
        self.next_block += 1;
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
        self.charge(job, i64::from(reserved));
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
            self.charge(block.job, -i64::from(block.reserved));
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
            self.charge(job, change);
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
        self.charge(job, -i64::from(reserved));
        length
    }

    /// Adds to what a job uses.
    pub(crate) fn charge(&mut self, job: Option<JobId>, change: i64) {
        if let Some(job) = job.and_then(|job| self.jobs.get_mut(&job)) {
            job.used_bytes = job.used_bytes.saturating_add_signed(change);
        }
    }
}
