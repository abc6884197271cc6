//! The blocks that the callers of this node were found to own: each connection remembers its own,
//! and all of them together no more than there is memory for.

use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_core::datanode::{BlockAccess, OwnBlocks, REMEMBERED_BY_ALL_MAX};
use sanderling_protocol::BlockId;
use sanderling_protocol::message::BlockCount;

/// How many blocks all connections remember, beyond those that each always may.
#[derive(Debug, Default)]
pub(crate) struct RememberedBlocks(Mutex<usize>);

/// The blocks of one connection.
#[derive(Debug)]
pub(crate) struct CallerBlocks {
    own: Mutex<OwnBlocks>,
    all: Arc<RememberedBlocks>,
}

impl CallerBlocks {
    /// Returns the blocks of a new connection: none.
    pub(crate) fn new(all: &Arc<RememberedBlocks>) -> Self {
        Self { own: Mutex::default(), all: Arc::clone(all) }
    }

    /// Keeps those blocks that must be looked up before they are accessed so.
    pub(crate) fn retain_unknown(&self, access: BlockAccess, blocks: &mut Vec<BlockId>) {
        self.own.lock().retain_unknown(access, blocks);
    }

    /// Remembers the blocks that were found to be the caller's.
    pub(crate) fn found(&self, counts: impl ExactSizeIterator<Item = (BlockId, BlockCount)>) {
        let mut own = self.own.lock();
        // Held meanwhile: two connections must not take the same room.
        let mut all = self.all.0.lock();
        let others = all.saturating_sub(own.counted());
        // Half of what is free: however many one caller has, the next one finds room.
        own.found(counts, REMEMBERED_BY_ALL_MAX.saturating_sub(others) / 2);
        *all = others + own.counted();
        debug_assert!(*all <= REMEMBERED_BY_ALL_MAX, "no more is remembered than there is room");
    }
}

impl Drop for CallerBlocks {
    fn drop(&mut self) {
        let counted = self.own.get_mut().counted();
        let mut all = self.all.0.lock();
        *all = all.saturating_sub(counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds so many blocks; returns how many of them are remembered.
    fn remembered(caller: &CallerBlocks, count: usize) -> usize {
        let mut blocks: Vec<BlockId> = (1..=count as u64).map(BlockId).collect();
        let counts = blocks.iter().map(|block| (*block, BlockCount::Elsewhere));
        caller.found(counts.collect::<Vec<_>>().into_iter());
        caller.retain_unknown(BlockAccess::Read, &mut blocks);
        count - blocks.len()
    }

    #[test]
    fn connections_remember_together_what_there_is_memory_for_and_give_it_back() {
        let all = Arc::new(RememberedBlocks::default());
        let full: Vec<_> = (0..REMEMBERED_BY_ALL_MAX / 10_000)
            .map(|_| {
                let caller = CallerBlocks::new(&all);
                remembered(&caller, 10_000);
                caller
            })
            .collect();
        // However many there are before it, each one gets some.
        let late = CallerBlocks::new(&all);
        let few = remembered(&late, 10_000);
        assert!(100 < few && few < 10_000, "{few}");
        assert!(*all.0.lock() <= REMEMBERED_BY_ALL_MAX);
        drop(full);
        assert_eq!(remembered(&late, 10_000), 10_000);
        drop(late);
        assert_eq!(*all.0.lock(), 0);
    }

    #[test]
    fn callers_with_many_blocks_leave_others_a_part_of_the_memory() {
        let all = Arc::new(RememberedBlocks::default());
        let greedy: Vec<_> = (0..16).map(|_| CallerBlocks::new(&all)).collect();
        greedy.iter().for_each(|caller| {
            remembered(caller, REMEMBERED_BY_ALL_MAX / 16);
        });
        let other = CallerBlocks::new(&all);
        assert!(remembered(&other, 1000) == 1000, "{:?}", all.0.lock());
    }
}
