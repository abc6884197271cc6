//! When a datanode looks up at the namenode how much counts of the blocks that were written to it.
//!
//! A look-up goes through all blocks whose end is not known here, page by page. It begins once a
//! second, and earlier when clients have written much: so the bytes that do not count are no more
//! than what is written in a moment, however fast a client is.

use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{BlockId, Instant, Millis};

use crate::block_table::BlockTable;

/// Pause between the beginnings of two look-ups while little is written. A node sends about as many
/// heartbeats. Chosen, not measured.
const LOOK_UP_EVERY: Millis = Millis(1000);

/// Another look-up is due whenever clients have written so much more: 16 whole blocks, which take
/// 16 ms on a link of 1 GB/s. Chosen, not measured.
pub const LOOK_UP_BYTES: u64 = 16 << 20;

/// How far the look-ups of a datanode are.
#[derive(Debug, Clone, Default)]
pub struct BlockEnds {
    /// When the last one began.
    began_at: Option<Instant>,
    /// The bytes that clients had written by then.
    written_bytes: u64,
    /// The last block of the page before, while one is under way.
    after: Option<BlockId>,
}

/// The next step of the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockEndStep {
    /// Look up what counts of these blocks and apply it, then call [`BlockEnds::next`]; if that
    /// fails, call [`BlockEnds::failed`] before.
    LookUp(Vec<HeldBlock>),
    /// Call [`BlockEnds::next`] at this time, or when clients have written
    /// [`LOOK_UP_BYTES`] more: when the bytes written so far pass a multiple of it.
    Wait(Instant),
}

impl BlockEnds {
    /// Decides whether blocks are looked up now or later. `written_bytes` is what clients have
    /// written since the process started.
    pub fn next<B: Clone>(
        &mut self,
        now: Instant,
        written_bytes: u64,
        table: &mut BlockTable<B>,
    ) -> BlockEndStep {
        let after = match (self.after, self.began_at) {
            (Some(after), _) => after,
            (None, Some(began_at)) if !self.is_due(now, began_at, written_bytes) => {
                return BlockEndStep::Wait(began_at + LOOK_UP_EVERY);
            }
            (None, _) => {
                self.began_at = Some(now);
                self.written_bytes = written_bytes;
                BlockId(0)
            }
        };
        let page = table.unended(after, BLOCKS_PER_PAGE_MAX);
        self.after = page.last().map(|last| last.block);
        debug_assert!(self.after.is_none_or(|last| last > after), "pages go on");
        if page.is_empty() {
            return BlockEndStep::Wait(self.began_at.unwrap_or(now) + LOOK_UP_EVERY);
        }
        BlockEndStep::LookUp(page)
    }

    fn is_due(&self, now: Instant, began_at: Instant, written_bytes: u64) -> bool {
        let is_much = written_bytes / LOOK_UP_BYTES != self.written_bytes / LOOK_UP_BYTES;
        is_much || began_at + LOOK_UP_EVERY <= now
    }

    /// Ends the look-up: the namenode did not return what counts of a page. All blocks are looked
    /// up with the next one.
    pub const fn failed(&mut self) {
        self.after = None;
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::BlockCount;
    use sanderling_protocol::{Epoch, Tier};

    use super::*;
    use crate::block_table::{WriteAdmission, WriteRequest};

    const SECOND: Millis = LOOK_UP_EVERY;

    fn write(table: &mut BlockTable<()>, block: u64) {
        let (block, epoch, tier) = (BlockId(block), Epoch(1), Tier::Dram);
        let request = WriteRequest { block, epoch, tier, offset: 0, bytes: 9 };
        let Ok(WriteAdmission::Append { ticket, .. }) = table.admit_write(&request) else {
            panic!("it begins")
        };
        table.wrote(ticket, ()).unwrap();
    }

    fn looked_up(step: &BlockEndStep) -> Vec<u64> {
        match step {
            BlockEndStep::LookUp(page) => page.iter().map(|held| held.block.0).collect(),
            BlockEndStep::Wait(_) => Vec::new(),
        }
    }

    #[test]
    fn all_blocks_are_looked_up_page_by_page_and_again_a_second_later() {
        let mut table = BlockTable::default();
        let count = BLOCKS_PER_PAGE_MAX as u64 + 2;
        (1..=count).for_each(|block| write(&mut table, block));
        let (mut ends, began) = (BlockEnds::default(), Instant(5));
        assert_eq!(looked_up(&ends.next(began, 0, &mut table)).len(), BLOCKS_PER_PAGE_MAX);
        assert_eq!(looked_up(&ends.next(began, 0, &mut table)), [count - 1, count]);
        let again = began + SECOND;
        assert_eq!(ends.next(began, 0, &mut table), BlockEndStep::Wait(again));
        assert_eq!(ends.next(Instant(again.0 - 1), 0, &mut table), BlockEndStep::Wait(again));
        assert_eq!(looked_up(&ends.next(again, 0, &mut table)).len(), BLOCKS_PER_PAGE_MAX);
        // The second page is not answered: the first one comes again with the next look-up.
        ends.next(again, 0, &mut table);
        ends.failed();
        assert_eq!(ends.next(again, 0, &mut table), BlockEndStep::Wait(again + SECOND));
        assert_eq!(looked_up(&ends.next(again + SECOND, 0, &mut table))[0], 1);
    }

    #[test]
    fn look_up_is_due_early_when_much_was_written() {
        let mut table = BlockTable::default();
        write(&mut table, 1);
        let (mut ends, now) = (BlockEnds::default(), Instant(5));
        let half = LOOK_UP_BYTES / 2;
        assert_eq!(looked_up(&ends.next(now, half, &mut table)), [1]);
        let waits = BlockEndStep::Wait(now + SECOND);
        assert_eq!(ends.next(now, LOOK_UP_BYTES, &mut table), waits, "the last page was empty");
        assert_eq!(looked_up(&ends.next(now, LOOK_UP_BYTES, &mut table)), [1]);
        assert_eq!(ends.next(now, LOOK_UP_BYTES, &mut table), waits);
        assert_eq!(ends.next(now, 2 * LOOK_UP_BYTES - 1, &mut table), waits);
        assert_eq!(looked_up(&ends.next(now, 2 * LOOK_UP_BYTES, &mut table)), [1]);
    }

    #[test]
    fn block_that_has_ended_is_not_looked_up_again() {
        let mut table = BlockTable::default();
        (1..=2).for_each(|block| write(&mut table, block));
        let (mut ends, now) = (BlockEnds::default(), Instant(5));
        let BlockEndStep::LookUp(page) = ends.next(now, 0, &mut table) else { panic!() };
        assert_eq!(table.counted(&page[0], BlockCount::Ended { length: 9 }), None);
        assert_eq!(looked_up(&ends.next(now + SECOND, 0, &mut table)), [0; 0]);
        assert_eq!(looked_up(&ends.next(now + SECOND, 0, &mut table)), [2]);
    }
}
