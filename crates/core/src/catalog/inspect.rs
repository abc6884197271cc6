//! What the simulator and tests read to check the catalog from outside.

use sanderling_protocol::{BlockId, Epoch, JobId, NodeId, ObjectId};

use super::Catalog;
use super::block::{Block, BlockView};

impl Catalog {
    /// Returns what is known of a block; `None` when it is deleted or never was.
    #[must_use]
    pub fn block_view(&self, id: BlockId) -> Option<BlockView> {
        self.blocks.get(&id).map(Block::view)
    }

    /// Returns a block's home and epoch; `None` when it is deleted or never was.
    #[must_use]
    pub fn block_home(&self, id: BlockId) -> Option<(Option<NodeId>, Epoch)> {
        self.blocks.get(&id).map(|block| (block.home, block.epoch))
    }

    /// Returns the number of timers that are scheduled in the catalog.
    #[must_use]
    pub fn due_count(&self) -> usize {
        self.timers.len() + self.service.timer_count()
    }

    /// Returns whether an object is there, with a name or waiting for its seal.
    #[must_use]
    pub fn has_object(&self, id: ObjectId) -> bool {
        self.objects.contains_key(&id) && !self.is_deleted(id)
    }

    /// Returns whether there is a job with this id that has not ended.
    #[must_use]
    pub fn has_job(&self, id: JobId) -> bool {
        self.job(id).is_some()
    }

    /// Returns the ids of all blocks, lost ones among them, in their order.
    pub fn block_ids(&self) -> impl Iterator<Item = BlockId> {
        self.blocks.iter().map(|(id, _)| id)
    }
}
