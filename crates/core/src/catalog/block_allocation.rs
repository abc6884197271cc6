//! New blocks, at the places that were chosen for them.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::BlockLength;
use sanderling_protocol::{BlockId, Epoch, JobId, Millis, NodeId, ObjectId, Refusal, Tier};

use super::Catalog;
use super::block::{Block, BlockState, allocated_bytes};
use super::log::Placement;
use super::members::Nodes;
use super::room::uses_reserve;

/// The retry interval of a writer whose places were taken by others in the same round. One unit of
/// [`Millis`]: the next round chooses anew, so nothing is waited for.
const RETRY_INTERVAL: Millis = Millis(1);

/// Refuses places that were chosen before commands that came first: their nodes may drain since, or
/// their room may be taken.
pub(super) fn check_placed(nodes: &Nodes, placed: &[Placement]) -> Result<(), Refusal> {
    if uses_reserve(nodes, reserved_bytes(placed)) {
        let why = "the room was taken since, what is left is kept for nodes that leave";
        return Err(Refusal::RetryAfter { after: RETRY_INTERVAL, why: why.to_owned() });
    }
    let mut asked: BTreeMap<(NodeId, Tier), u64> = BTreeMap::new();
    for place in placed {
        let bytes = asked.entry((place.node, place.tier)).or_default();
        *bytes += u64::from(allocated_bytes(place.bytes_max));
        let node = nodes.get(place.node).filter(|node| node.policy.takes_blocks());
        if node.is_none_or(|node| node.free_bytes(place.tier) < *bytes) {
            let why = format!("node {} no longer takes the blocks chosen for it", place.node);
            return Err(Refusal::RetryAfter { after: RETRY_INTERVAL, why });
        }
    }
    Ok(())
}

impl Catalog {
    /// Returns how many blocks an object has once these have ended, and the home of the last one.
    /// A block that ends without bytes is none. Cost: linear in those that end.
    pub(crate) fn blocks_after(
        &self,
        id: ObjectId,
        ended: &[BlockLength],
    ) -> (usize, Option<NodeId>) {
        let is_removed = |ended: &&BlockLength| {
            let block = self.blocks.get(&ended.block).filter(|block| block.object == id);
            ended.length == 0 && block.is_some_and(|block| block.length == 0)
        };
        let removed: BTreeSet<BlockId> =
            ended.iter().filter(is_removed).map(|ended| ended.block).collect();
        let data = self.objects.get(&id).and_then(|object| object.data());
        let blocks = data.map(|data| data.blocks.as_slice()).unwrap_or_default();
        let last = blocks.iter().rev().find(|block| !removed.contains(*block));
        let home = last.and_then(|block| self.blocks.get(block)?.home);
        (blocks.len().saturating_sub(removed.len()), home)
    }
}

/// Returns a new block of an object, which may be written.
pub(super) const fn new_block(object: ObjectId, job: Option<JobId>, placement: Placement) -> Block {
    Block {
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
    }
}

/// Returns the bytes that new blocks take.
pub(super) fn reserved_bytes(placed: &[Placement]) -> u64 {
    placed.iter().map(|place| u64::from(allocated_bytes(place.bytes_max))).sum()
}
