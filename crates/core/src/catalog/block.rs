//! Blocks: where each one is, how much of it counts, and what its place costs.

use sanderling_protocol::limits::ALLOCATION_UNIT_BYTES;
use sanderling_protocol::message::{BlockCount, MovePurpose};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{BlockId, Epoch, JobId, NodeId, ObjectId, Tier};
use serde::{Deserialize, Serialize};

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

/// How a block may still change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BlockState {
    /// Its writer may add bytes.
    Open,
    /// No bytes are added, but its final length is not reported yet.
    Fenced,
    /// Its length is final.
    Ended,
    /// Its length is final, and the store of its object's durable directory has the object as it
    /// is.
    Stored,
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

/// A block's metadata in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockView {
    /// Whose bytes they are.
    pub object: ObjectId,
    /// `None` when it is lost.
    pub home: Option<NodeId>,
    /// The home's epoch.
    pub epoch: Epoch,
    /// Published bytes.
    pub length: u32,
    /// Bytes that its place is accounted with.
    pub reserved_bytes: u64,
    /// The home's tier.
    pub tier: Tier,
    /// Whether its length is final.
    pub is_ended: bool,
    /// Its bytes beside the home, with the epoch at which they would become the home.
    pub copy: Option<(NodeId, Tier, Epoch)>,
    /// The future home that is reserved, with its epoch.
    pub reserved: Option<(NodeId, Epoch, MovePurpose)>,
    /// Its tier.
    pub reserved_tier: Option<Tier>,
}

/// What takes room that others need more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct InTheWay {
    /// Blocks whose copies it is.
    pub(crate) copies: Vec<BlockId>,
    /// Blocks for which room is reserved without a drain.
    pub(crate) moves: Vec<BlockId>,
}

impl InTheWay {
    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) const fn len(&self) -> usize {
        self.copies.len() + self.moves.len()
    }
}

/// Joins adjacent ranges, which are in their order.
pub(super) fn joined(ranges: impl Iterator<Item = ByteRange>) -> Vec<ByteRange> {
    let mut joined: Vec<ByteRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.offset + last.bytes == range.offset => last.bytes += range.bytes,
            _ => joined.push(range),
        }
    }
    joined
}

/// Returns the bytes that a block of this length occupies in a tier.
#[must_use]
pub const fn allocated_bytes(length: u32) -> u32 {
    length.div_ceil(ALLOCATION_UNIT_BYTES) * ALLOCATION_UNIT_BYTES
}

impl Block {
    /// Returns whether its object's bytes at this block can no longer be read.
    pub(crate) const fn is_lost(&self) -> bool {
        self.home.is_none()
    }

    /// Returns whether its length is final.
    pub(crate) const fn is_ended(&self) -> bool {
        matches!(self.state, BlockState::Ended | BlockState::Stored)
    }

    /// Returns whether its object's store has it.
    pub(crate) const fn is_stored(&self) -> bool {
        matches!(self.state, BlockState::Stored)
    }

    /// Returns whether its bytes survive its home.
    pub(crate) const fn is_safe(&self) -> bool {
        self.copy.is_some() || self.is_stored() || matches!(self.tier, Tier::Object)
    }

    /// Bytes that a copy elsewhere reserves.
    pub(crate) const fn reserve_bytes(&self) -> u32 {
        match self.state {
            BlockState::Ended | BlockState::Stored => allocated_bytes(self.length),
            BlockState::Open | BlockState::Fenced => self.reserved,
        }
    }

    /// Returns what is counted for it at a node. While its end may be taken back, it may have any
    /// bytes that its writer was granted.
    pub(crate) fn count_at(&self, node: NodeId, may_take_end_back: bool) -> BlockCount {
        let Self { length, tier, .. } = *self;
        match self.state {
            _ if self.home != Some(node) => BlockCount::Elsewhere,
            BlockState::Ended | BlockState::Stored if !may_take_end_back => {
                BlockCount::Ended { length }
            }
            _ => BlockCount::Open { bytes_max: self.bytes_max.max(length), tier },
        }
    }

    /// Returns what is known of it, for checks from outside.
    pub(crate) fn view(&self) -> BlockView {
        BlockView {
            object: self.object,
            home: self.home,
            epoch: self.epoch,
            length: self.length,
            reserved_bytes: u64::from(self.reserved),
            tier: self.tier,
            is_ended: self.is_ended(),
            copy: self.copy.map(|copy| (copy.node, copy.tier, copy.epoch)),
            reserved: self.moving.map(|planned| (planned.to, planned.to_epoch, planned.purpose)),
            reserved_tier: self.moving.map(|planned| planned.tier),
        }
    }
}
