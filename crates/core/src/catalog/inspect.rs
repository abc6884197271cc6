//! Facts for those who check the catalog from outside: simulator and tests.

use sanderling_protocol::message::MovePurpose;
use sanderling_protocol::{BlockId, Epoch, NodeId, ObjectId, Tier};

use super::Catalog;
use super::block_map::BlockState;

/// One block as the catalog knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockFacts {
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

impl Catalog {
    /// Returns what is known of a block; `None` when it is deleted or never was.
    #[must_use]
    pub fn block_facts(&self, id: BlockId) -> Option<BlockFacts> {
        let block = self.blocks.get(&id)?;
        Some(BlockFacts {
            object: block.object,
            home: block.home,
            epoch: block.epoch,
            length: block.length,
            reserved_bytes: u64::from(block.reserved),
            tier: block.tier,
            is_ended: block.state == BlockState::Ended,
            copy: block.copy.map(|copy| (copy.node, copy.tier, copy.epoch)),
            reserved: block.moving.map(|planned| (planned.to, planned.to_epoch, planned.purpose)),
            reserved_tier: block.moving.map(|planned| planned.tier),
        })
    }

    /// Returns how many things wait for their time.
    #[must_use]
    pub fn due_count(&self) -> usize {
        self.due.len() + self.service.due.len()
    }

    /// Returns the ids of all blocks, lost ones among them, in their order.
    pub fn block_ids(&self) -> impl Iterator<Item = BlockId> {
        self.blocks.keys()
    }
}
