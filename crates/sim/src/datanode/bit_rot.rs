//! What has happened to the bytes of a simulated datanode.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::order::Damage;
use sanderling_protocol::{BlockId, Epoch};

/// What has happened to a datanode's bytes.
#[derive(Debug, Default)]
pub(super) struct Rot {
    /// Blocks of the table whose bytes are damaged or gone, noticed or not.
    pub(super) blocks: BTreeMap<BlockId, Damage>,
    /// Blocks that are not in the table any more, and the epochs at which they were held.
    pub(super) vanished: BTreeMap<BlockId, Epoch>,
    /// Every block that anything happened to since the process began.
    pub(super) ever: BTreeSet<BlockId>,
    /// Whether a report that was not taken is sent again in a moment.
    pub(super) is_delayed: bool,
}

impl Rot {
    pub(super) fn damage_of(&self, block: BlockId) -> Option<Damage> {
        self.blocks.get(&block).copied()
    }

    pub(super) fn was_ever_hurt(&self, block: BlockId) -> bool {
        self.ever.contains(&block)
    }

    pub(super) fn has(&self, block: BlockId) -> bool {
        self.blocks.contains_key(&block)
    }

    /// Returns whether a block is damaged or missing.
    pub(super) fn hurt(&self, block: BlockId) -> bool {
        self.has(block) || self.vanished.contains_key(&block)
    }

    /// Forgets a block that is stored anew.
    pub(super) fn is_stored(&mut self, block: BlockId) {
        self.blocks.remove(&block);
        self.vanished.remove(&block);
    }

    /// Forgets a block that was dropped at an epoch or an earlier one. One that vanished at a later
    /// epoch is still missed.
    pub(super) fn is_dropped(&mut self, block: BlockId, last: Epoch) {
        self.blocks.remove(&block);
        if self.vanished.get(&block).is_some_and(|epoch| *epoch <= last) {
            self.vanished.remove(&block);
        }
    }
}
