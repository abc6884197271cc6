//! The blocks that one caller of a datanode may touch, where these are not all blocks, and how much
//! it may write into each.
//!
//! The namenode returns both at the caller's first access to a block. What it granted is remembered
//! for the writes that follow. A write that begins a block is looked up however often it comes: the
//! block may have been deleted since. So is one that goes beyond what is remembered, before it is
//! refused: the remembered number may be older than the grant.

use std::collections::BTreeMap;

use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::BlockCount;
use sanderling_protocol::{BlockId, Refusal};

/// Blocks that one connection is remembered to be allowed: half a megabyte of memory, and 16 GiB of
/// full blocks. Beyond it they are looked up at the namenode again.
const REMEMBERED_MAX: usize = 16_384;

/// What a caller does with its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockAccess {
    /// It reads some of their bytes.
    Read,
    /// It adds bytes to one.
    Write {
        /// Where in the block they begin.
        offset: u64,
        /// Where they end.
        end: u64,
    },
}

/// The blocks of one caller.
#[derive(Debug, Default)]
pub struct OwnBlocks {
    /// Those that were found to be the caller's, each with the bytes that it may have.
    granted: BTreeMap<BlockId, u32>,
}

impl BlockAccess {
    /// Returns the access of a write of so many bytes.
    #[must_use]
    pub const fn write(offset: u64, bytes: u32) -> Self {
        Self::Write { offset, end: offset.saturating_add(bytes as u64) }
    }

    /// Refuses a write of bytes that do not count. `held`: the block's length on this node.
    ///
    /// # Errors
    /// [`Refusal::Moved`]: the block has ended, or its home is elsewhere; the writer goes on in a
    /// new one. [`Refusal::TooLarge`]: the writer was granted fewer bytes; it requests another
    /// block.
    pub fn check(self, block: BlockId, count: BlockCount, held: u32) -> Result<(), Refusal> {
        let Self::Write { end, .. } = self else { return Ok(()) };
        let limit = u64::from(granted(count));
        if end <= limit {
            return Ok(());
        }
        Err(match count {
            BlockCount::Open { .. } => {
                let what = format!("end of the write to block {block}");
                Refusal::TooLarge { what, value: end, limit }
            }
            BlockCount::Foreign | BlockCount::Elsewhere | BlockCount::Ended { .. } => {
                Refusal::Moved { block, length: held }
            }
        })
    }
}

impl OwnBlocks {
    /// Keeps those blocks that must be looked up before they are accessed so.
    pub fn retain_unknown(&self, access: BlockAccess, blocks: &mut Vec<BlockId>) {
        blocks.retain(|block| !self.allows(access, *block));
    }

    fn allows(&self, access: BlockAccess, block: BlockId) -> bool {
        let Some(granted) = self.granted.get(&block) else { return false };
        match access {
            BlockAccess::Read => true,
            BlockAccess::Write { offset, end } => offset > 0 && end <= u64::from(*granted),
        }
    }

    /// Remembers the blocks that were found to be the caller's.
    pub fn found(&mut self, counts: impl ExactSizeIterator<Item = (BlockId, BlockCount)>) {
        if self.granted.len() + counts.len() > REMEMBERED_MAX {
            self.granted.clear();
        }
        let own = counts.filter(|(_, count)| count.is_own());
        self.granted.extend(own.map(|(block, count)| (block, granted(count))));
    }
}

/// Returns the bytes that a writer may give a block here.
const fn granted(count: BlockCount) -> u32 {
    match count {
        BlockCount::Foreign | BlockCount::Elsewhere => 0,
        BlockCount::Open { bytes_max } if bytes_max < BLOCK_BYTES_MAX => bytes_max,
        BlockCount::Open { .. } => BLOCK_BYTES_MAX,
        BlockCount::Ended { length } => length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockId = BlockId(7);

    fn looked_up(own: &OwnBlocks, access: BlockAccess) -> bool {
        let mut blocks = vec![BLOCK];
        own.retain_unknown(access, &mut blocks);
        !blocks.is_empty()
    }

    fn found(own: &mut OwnBlocks, count: BlockCount) {
        own.found([(BLOCK, count)].into_iter());
    }

    #[test]
    fn block_is_looked_up_once_and_again_when_it_begins_or_passes_its_grant() {
        let mut own = OwnBlocks::default();
        let more = BlockAccess::write(4, 4);
        for access in [BlockAccess::Read, more] {
            assert!(looked_up(&own, access), "{access:?}");
        }
        found(&mut own, BlockCount::Open { bytes_max: 8 });
        for (access, is_looked_up) in [
            (BlockAccess::Read, false),
            (more, false),
            (BlockAccess::write(4, 5), true),
            (BlockAccess::write(0, 8), true),
            (BlockAccess::write(u64::MAX, 1), true),
        ] {
            assert_eq!(looked_up(&own, access), is_looked_up, "{access:?}");
        }
        // It was granted more since.
        found(&mut own, BlockCount::Open { bytes_max: 9 });
        assert!(!looked_up(&own, BlockAccess::write(4, 5)));
        found(&mut own, BlockCount::Elsewhere);
        assert!(looked_up(&own, more) && !looked_up(&own, BlockAccess::Read));
    }

    #[test]
    fn block_of_another_caller_is_not_remembered() {
        let mut own = OwnBlocks::default();
        found(&mut own, BlockCount::Foreign);
        assert!(looked_up(&own, BlockAccess::Read));
    }

    #[test]
    fn no_more_blocks_are_remembered_than_there_is_memory_for() {
        let mut own = OwnBlocks::default();
        let counts = (0..REMEMBERED_MAX as u64).map(|id| (BlockId(id), BlockCount::Elsewhere));
        own.found(counts.collect::<Vec<_>>().into_iter());
        assert!(!looked_up(&own, BlockAccess::Read));
        own.found([(BlockId(1 << 40), BlockCount::Elsewhere)].into_iter());
        assert!(looked_up(&own, BlockAccess::Read));
        assert_eq!(own.granted.len(), 1);
    }

    #[test]
    fn bytes_that_do_not_count_are_refused_and_reads_are_not() {
        let open = BlockCount::Open { bytes_max: 8 };
        let (fits, passes) = (BlockAccess::write(4, 4), BlockAccess::write(4, 5));
        assert_eq!(fits.check(BLOCK, open, 4), Ok(()));
        let refused = passes.check(BLOCK, open, 4);
        let is_too_large = matches!(refused, Err(Refusal::TooLarge { value: 9, limit: 8, .. }));
        assert!(is_too_large, "{refused:?}");
        let moved: Result<(), Refusal> = Err(Refusal::Moved { block: BLOCK, length: 4 });
        assert_eq!(fits.check(BLOCK, BlockCount::Elsewhere, 4), moved);
        assert_eq!(passes.check(BLOCK, BlockCount::Ended { length: 8 }, 4), moved);
        assert_eq!(fits.check(BLOCK, BlockCount::Ended { length: 8 }, 4), Ok(()));
        assert_eq!(BlockAccess::Read.check(BLOCK, BlockCount::Elsewhere, 4), Ok(()));
        let whole = BlockAccess::write(0, BLOCK_BYTES_MAX + 1);
        let any = BlockCount::Open { bytes_max: u32::MAX };
        assert!(whole.check(BLOCK, any, 0).is_err(), "no block is longer");
    }
}
