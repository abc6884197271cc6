//! The blocks whose end is not known to be final, and since when their ends are seen.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::{BlockId, Instant, Millis};

/// How long the namenode must have shown an end before the bytes beyond it go. Longer than a change
/// waits for the namenode's disk under `--sync os` (`--unsynced-max`, 2 s by default): a crash of
/// its machine may take back what is younger, and the writer goes on.
pub const TRIM_AFTER: Millis = Millis(3000);

/// When a look-up was under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookUpTimes {
    /// The namenode was sent the request.
    pub sent: Instant,
    /// Its reply was there.
    pub answered: Instant,
}

/// The blocks of which this node has no final length that counts.
#[derive(Debug, Clone, Default)]
pub(super) struct UnendedBlocks {
    /// All of them. They began here with a write.
    pub(super) all: BTreeSet<BlockId>,
    /// Those that have grown since they were last looked up, and others.
    pub(super) grown: BTreeSet<BlockId>,
    /// Those that have ended with fewer bytes than they have here.
    pub(super) surplus: BTreeMap<BlockId, SeenEnd>,
    /// Those that began here and are in none of the above, because the namenode did not count them
    /// here. After its next start it may.
    set_aside: BTreeSet<BlockId>,
}

/// The length with which a block has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeenEnd {
    length: u32,
    /// When the namenode first returned it.
    since: Instant,
}

impl UnendedBlocks {
    /// Notes that a block begins with a write.
    pub(super) fn began(&mut self, block: BlockId) {
        self.all.insert(block);
    }

    /// Notes that a write has made a block longer.
    pub(super) fn grew(&mut self, block: BlockId) {
        self.grown.insert(block);
    }

    /// Forgets a block: it is gone, or its final length is here.
    pub(super) fn forget(&mut self, block: BlockId) {
        self.all.remove(&block);
        self.grown.remove(&block);
        self.surplus.remove(&block);
        self.set_aside.remove(&block);
    }

    /// Sets a block aside that the namenode does not count here.
    pub(super) fn set_aside(&mut self, block: BlockId) {
        self.forget(block);
        self.set_aside.insert(block);
    }

    /// Takes back what was set aside.
    pub(super) fn take_back(&mut self) {
        self.all.append(&mut self.set_aside);
    }

    /// Takes the length with which a block has ended. Returns whether the namenode returned the
    /// same so long before that no crash of its machine takes it back.
    pub(super) fn is_confirmed(
        &mut self,
        block: BlockId,
        length: u32,
        look_up: LookUpTimes,
    ) -> bool {
        let first = SeenEnd { length, since: look_up.answered };
        let seen = self.surplus.entry(block).or_insert(first);
        if seen.length != length {
            *seen = first;
        }
        look_up.sent >= seen.since + TRIM_AFTER
    }
}
