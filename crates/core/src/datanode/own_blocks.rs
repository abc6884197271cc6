//! The blocks that one caller of a datanode may touch, where these are not all blocks, and how much
//! it may write into each, in which tier.
//!
//! The namenode returns this at the caller's first access to a block. What it granted is remembered
//! for the writes that follow. A write that begins a block is looked up however often it comes: the
//! block may have been deleted since. So is one that goes beyond what is remembered, before it is
//! refused: the remembered number may be older than the grant.

use std::collections::BTreeMap;

use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::BlockCount;
use sanderling_protocol::{BlockId, Refusal, Tier};

/// Blocks that one connection is remembered to be allowed: half a megabyte of memory, and 16 GiB of
/// full blocks. Beyond it they are looked up at the namenode again.
const REMEMBERED_MAX: usize = 16_384;

/// The same of all connections to a datanode together, beyond a few of each: 8 MiB of memory at 30
/// bytes for a block, computed from the nodes of a tree that are half full. Chosen so that the
/// datanode's own 48 MiB have it, not measured.
pub const REMEMBERED_BY_ALL_MAX: usize = 262_144;

/// What each connection is remembered to be allowed, whatever the others take: the blocks that a
/// writer has open. They fit into one node of a tree, 152 bytes.
const ALWAYS_REMEMBERED: usize = 8;

/// What a caller does with its blocks: it reads them, or writes a range of one. Places are bytes
/// from the block's begin.
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
        /// The tier in which it begins the block; `None` if it names none.
        tier: Option<Tier>,
    },
}

/// The blocks that one connection's caller may use, as the namenode returned them. It saves a
/// look-up for each access; it is dropped with the connection.
#[derive(Debug, Default)]
pub struct OwnBlocks {
    /// Those that were found to be the caller's, each with the bytes that it may have.
    granted: BTreeMap<BlockId, u32>,
}

impl BlockAccess {
    /// Returns the access of a write of so many bytes.
    #[must_use]
    pub const fn write(offset: u64, bytes: u32, tier: Option<Tier>) -> Self {
        Self::Write { offset, end: offset.saturating_add(bytes as u64), tier }
    }

    /// Returns what counts for a block of which a namenode of the previous release returns only
    /// whether it is the caller's: as much as for any block.
    #[must_use]
    pub const fn uncounted(self, is_own: bool) -> BlockCount {
        let tier = match self {
            Self::Write { tier: Some(tier), .. } => tier,
            Self::Write { tier: None, .. } | Self::Read => Tier::Dram,
        };
        match is_own {
            true => BlockCount::Open { bytes_max: BLOCK_BYTES_MAX, tier },
            false => BlockCount::Foreign,
        }
    }

    /// Refuses a write of bytes that do not count. `held`: the block's length on this node.
    ///
    /// # Errors
    /// [`Refusal::Moved`]: the block has ended, or its home is elsewhere, in another tier if it is
    /// this node; the writer goes on in a new one. [`Refusal::TooLarge`]: the writer was granted
    /// fewer bytes; it requests another block.
    pub fn check(self, block: BlockId, count: BlockCount, held: u32) -> Result<(), Refusal> {
        let Self::Write { end, tier, .. } = self else { return Ok(()) };
        let limit = u64::from(granted(count));
        let is_here = match count {
            BlockCount::Open { tier: granted, .. } => tier.is_none_or(|tier| tier == granted),
            // Its bytes were acknowledged here before they were published: none begin it.
            BlockCount::Ended { .. } => held > 0 && end <= limit,
            BlockCount::Foreign | BlockCount::Elsewhere => false,
        };
        if !is_here {
            return Err(Refusal::Moved { block, length: held });
        }
        if end > limit {
            let what = format!("end of the write to block {block}");
            return Err(Refusal::TooLarge { what, value: end, limit });
        }
        Ok(())
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
            BlockAccess::Write { offset, end, .. } => offset > 0 && end <= u64::from(*granted),
        }
    }

    /// Remembers the blocks that were found to be the caller's, as far as there is room. `room`:
    /// how many of this caller's may be counted, of all that [`REMEMBERED_BY_ALL_MAX`] allows.
    pub fn found(
        &mut self,
        counts: impl ExactSizeIterator<Item = (BlockId, BlockCount)>,
        room: usize,
    ) {
        let most = REMEMBERED_MAX.min(ALWAYS_REMEMBERED.saturating_add(room));
        if self.granted.len() + counts.len() > most {
            self.granted.clear();
        }
        let own = counts.filter(|(_, count)| count.is_own()).take(most);
        self.granted.extend(own.map(|(block, count)| (block, granted(count))));
    }

    /// Returns how many remembered blocks count among those of all callers.
    #[must_use]
    pub fn counted(&self) -> usize {
        self.granted.len().saturating_sub(ALWAYS_REMEMBERED)
    }
}

/// Returns the bytes that a writer may give a block here.
const fn granted(count: BlockCount) -> u32 {
    match count {
        BlockCount::Foreign | BlockCount::Elsewhere => 0,
        BlockCount::Open { bytes_max, .. } if bytes_max < BLOCK_BYTES_MAX => bytes_max,
        BlockCount::Open { .. } => BLOCK_BYTES_MAX,
        BlockCount::Ended { length } => length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockId = BlockId(7);

    fn write(offset: u64, bytes: u32) -> BlockAccess {
        BlockAccess::write(offset, bytes, Some(Tier::Dram))
    }

    fn open(bytes_max: u32) -> BlockCount {
        BlockCount::Open { bytes_max, tier: Tier::Dram }
    }

    fn looked_up(own: &OwnBlocks, access: BlockAccess) -> bool {
        let mut blocks = vec![BLOCK];
        own.retain_unknown(access, &mut blocks);
        !blocks.is_empty()
    }

    fn found(own: &mut OwnBlocks, count: BlockCount) {
        own.found([(BLOCK, count)].into_iter(), REMEMBERED_BY_ALL_MAX);
    }

    #[test]
    fn block_is_looked_up_once_and_again_when_it_begins_or_passes_its_grant() {
        let mut own = OwnBlocks::default();
        let more = write(4, 4);
        for access in [BlockAccess::Read, more] {
            assert!(looked_up(&own, access), "{access:?}");
        }
        found(&mut own, open(8));
        for (access, is_looked_up) in [
            (BlockAccess::Read, false),
            (more, false),
            (write(4, 5), true),
            (write(0, 8), true),
            (write(u64::MAX, 1), true),
        ] {
            assert_eq!(looked_up(&own, access), is_looked_up, "{access:?}");
        }
        // It was granted more since.
        found(&mut own, open(9));
        assert!(!looked_up(&own, write(4, 5)));
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
        let some = |count: usize| {
            let counts = (0..count as u64).map(|id| (BlockId(id), BlockCount::Elsewhere));
            counts.collect::<Vec<_>>().into_iter()
        };
        own.found(some(REMEMBERED_MAX), REMEMBERED_BY_ALL_MAX);
        assert!(!looked_up(&own, BlockAccess::Read));
        own.found([(BlockId(1 << 40), BlockCount::Elsewhere)].into_iter(), REMEMBERED_BY_ALL_MAX);
        assert!(looked_up(&own, BlockAccess::Read));
        assert_eq!((own.granted.len(), own.counted()), (1, 0));
        // Other callers take all but a hundred, and then all.
        own.found(some(1000), 100);
        assert_eq!((own.granted.len(), own.counted()), (100 + ALWAYS_REMEMBERED, 100));
        own.found(some(ALWAYS_REMEMBERED), 0);
        assert_eq!((own.granted.len(), own.counted()), (ALWAYS_REMEMBERED, 0));
        assert!(!looked_up(&own, BlockAccess::Read), "a writer's few blocks are remembered");
        own.found(some(2 * REMEMBERED_MAX), REMEMBERED_BY_ALL_MAX);
        assert_eq!(own.granted.len(), REMEMBERED_MAX);
    }

    #[test]
    fn bytes_that_do_not_count_are_refused_and_reads_are_not() {
        let granted = open(8);
        let (fits, passes) = (write(4, 4), write(4, 5));
        assert_eq!(fits.check(BLOCK, granted, 4), Ok(()));
        let refused = passes.check(BLOCK, granted, 4);
        let is_too_large = matches!(refused, Err(Refusal::TooLarge { value: 9, limit: 8, .. }));
        assert!(is_too_large, "{refused:?}");
        let moved: Result<(), Refusal> = Err(Refusal::Moved { block: BLOCK, length: 4 });
        assert_eq!(fits.check(BLOCK, BlockCount::Elsewhere, 4), moved);
        assert_eq!(passes.check(BLOCK, BlockCount::Ended { length: 8 }, 4), moved);
        assert_eq!(fits.check(BLOCK, BlockCount::Ended { length: 8 }, 4), Ok(()));
        assert_eq!(BlockAccess::Read.check(BLOCK, BlockCount::Elsewhere, 4), Ok(()));
        let whole = write(0, BLOCK_BYTES_MAX + 1);
        let any = open(u32::MAX);
        assert!(whole.check(BLOCK, any, 0).is_err(), "no block is longer");
    }

    #[test]
    fn block_begins_in_the_tier_in_which_it_was_granted_and_not_after_its_end() {
        let on = |tier| BlockAccess::write(0, 8, tier);
        let moved: Result<(), Refusal> = Err(Refusal::Moved { block: BLOCK, length: 0 });
        let disk = BlockCount::Open { bytes_max: 8, tier: Tier::Disk };
        assert_eq!(on(Some(Tier::Disk)).check(BLOCK, disk, 0), Ok(()));
        assert_eq!(on(Some(Tier::Dram)).check(BLOCK, disk, 0), moved);
        assert_eq!(on(None).check(BLOCK, disk, 0), Ok(()), "it is refused as no write");
        assert_eq!(on(Some(Tier::Disk)).check(BLOCK, BlockCount::Ended { length: 8 }, 0), moved);
        // A namenode of the previous release returns neither tier nor grant.
        for tier in [Some(Tier::Dram), Some(Tier::Disk), None] {
            let count = on(tier).uncounted(true);
            assert_eq!((on(tier).check(BLOCK, count, 0), count.is_own()), (Ok(()), true));
        }
        assert_eq!(on(None).uncounted(false), BlockCount::Foreign);
        assert_eq!(BlockAccess::Read.uncounted(true), open(BLOCK_BYTES_MAX));
    }
}
