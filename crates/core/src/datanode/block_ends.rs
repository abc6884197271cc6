//! When a datanode looks up at the namenode how much counts of the blocks that were written to it.
//!
//! A look-up of all goes through the blocks whose end is not known here, page by page. When clients
//! have written much, the blocks that have grown are looked up before that. So the bytes beyond
//! grants are no more than what is written in a moment, however fast a client is. Such an early
//! look-up costs in proportion to the writes before it, however many blocks are open, and what all
//! look-ups cost in a second is bounded.

use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{BlockId, Instant, Millis};

use crate::block_table::BlockTable;

/// Pause between the beginnings of two look-ups of all blocks, if these are few. A node sends about
/// as many heartbeats. Chosen, not measured.
const LOOK_UP_INTERVAL: Millis = Millis(1000);

/// Blocks of one look-up for each second until the next one begins: with more of them, look-ups of
/// all are as much rarer. Four pages. The namenode looks at so many in some milliseconds. Chosen,
/// not measured.
const LOOKED_UP_PER_SECOND: u64 = 4 * BLOCKS_PER_PAGE_MAX as u64;

/// Another look-up, of the blocks that have grown, is due whenever clients have written so much
/// more: 16 whole blocks, which take 16 ms on a link of 1 GB/s. Chosen, not measured.
pub const LOOK_UP_BYTES: u64 = 16 << 20;

/// Pause after a reply of the previous release, which does not return what counts: until the
/// namenode is upgraded, each look-up is in vain. Chosen, not measured.
const OLDER_PAUSE: Millis = Millis(60_000);

/// How far the look-ups are by which a datanode finds which bytes of its blocks count, and when the
/// next one is due.
#[derive(Debug, Clone, Default)]
pub struct BlockEnds {
    /// When the next look-up of all blocks is due.
    all_due: Instant,
    /// The one that is under way.
    under_way: Option<LookUpOfAll>,
    /// When another look-up of the blocks that have grown is allowed.
    grown_due: Instant,
    /// The bytes that clients had written at the last look-up.
    written_bytes: u64,
    /// Until when nothing is looked up.
    paused_until: Instant,
}

/// A look-up of all blocks.
#[derive(Debug, Clone, Copy)]
struct LookUpOfAll {
    began: Instant,
    /// The last block of the page before.
    after: BlockId,
    /// Blocks of the pages so far.
    blocks: u64,
}

/// The next step of the shell, as [`BlockEnds::next`] decides: a look-up now, or a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockEndStep {
    /// Look up what counts of these blocks and apply it, then call [`BlockEnds::next`]; if that
    /// fails, call [`BlockEnds::failed`] or [`BlockEnds::found_older`] before.
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
        if now < self.paused_until {
            return BlockEndStep::Wait(self.paused_until);
        }
        if self.under_way.is_none() && self.all_due <= now {
            table.forget_grown();
            self.written_bytes = written_bytes;
            self.under_way = Some(LookUpOfAll { began: now, after: BlockId(0), blocks: 0 });
        }
        let page = match self.under_way {
            Some(look_up) => self.page_of_all(look_up, table),
            None => self.page_of_grown(now, written_bytes, table),
        };
        if !page.is_empty() {
            return BlockEndStep::LookUp(page);
        }
        let is_much = self.is_much(written_bytes);
        BlockEndStep::Wait(if is_much { self.all_due.min(self.grown_due) } else { self.all_due })
    }

    /// Returns the next page of a look-up of all. If it is empty, the look-up is over.
    fn page_of_all<B: Clone>(
        &mut self,
        look_up: LookUpOfAll,
        table: &mut BlockTable<B>,
    ) -> Vec<HeldBlock> {
        let LookUpOfAll { began, after, blocks } = look_up;
        let page = table.unended(after, BLOCKS_PER_PAGE_MAX);
        let Some(last) = page.last() else {
            self.all_due = began + pause_after(blocks).max(LOOK_UP_INTERVAL);
            self.under_way = None;
            return page;
        };
        debug_assert!(last.block > after, "pages go on");
        let blocks = blocks + page.len() as u64;
        self.under_way = Some(LookUpOfAll { began, after: last.block, blocks });
        page
    }

    /// Returns the blocks that have grown if it is time to look them up.
    fn page_of_grown<B: Clone>(
        &mut self,
        now: Instant,
        written_bytes: u64,
        table: &mut BlockTable<B>,
    ) -> Vec<HeldBlock> {
        if now < self.grown_due || !self.is_much(written_bytes) {
            return Vec::new();
        }
        let page = table.take_grown(BLOCKS_PER_PAGE_MAX);
        self.grown_due = now + pause_after(page.len() as u64);
        // What a whole page leaves is next.
        if page.len() < BLOCKS_PER_PAGE_MAX {
            self.written_bytes = written_bytes;
        }
        page
    }

    const fn is_much(&self, written_bytes: u64) -> bool {
        written_bytes / LOOK_UP_BYTES != self.written_bytes / LOOK_UP_BYTES
    }

    /// Notes that the namenode did not return what counts of a page. Its blocks are looked up with
    /// the next look-up of all; this one goes on behind them after a pause, so that no page keeps
    /// others from their turn.
    pub fn failed(&mut self, now: Instant) {
        self.paused_until = now + LOOK_UP_INTERVAL;
    }

    /// Notes that the namenode is of the previous release, and returns no counts. Ends the look-up.
    pub fn found_older(&mut self, now: Instant) {
        self.under_way = None;
        self.paused_until = now + OLDER_PAUSE;
    }
}

/// Returns the time from the beginning of a look-up of so many blocks to that of the next one.
const fn pause_after(blocks: u64) -> Millis {
    Millis(blocks.saturating_mul(1000) / LOOKED_UP_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::BlockCount;
    use sanderling_protocol::{Epoch, Tier};

    use super::*;
    use crate::block_table::{LookUpTimes, WriteAdmission, WriteRequest};

    const SECOND: Millis = LOOK_UP_INTERVAL;

    const PAGE: u64 = BLOCKS_PER_PAGE_MAX as u64;

    fn write_at(table: &mut BlockTable<()>, block: u64, offset: u64) {
        let (block, epoch, tier) = (BlockId(block), Epoch(1), Tier::Dram);
        let request = WriteRequest { block, epoch, tier, offset, bytes: 9 };
        let Ok(WriteAdmission::Append { ticket, .. }) = table.admit_write(&request) else {
            panic!("it begins")
        };
        table.wrote(ticket, ()).unwrap();
    }

    fn write(table: &mut BlockTable<()>, block: u64) {
        write_at(table, block, 0);
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
        let count = PAGE + 2;
        (1..=count).for_each(|block| write(&mut table, block));
        let (mut ends, began) = (BlockEnds::default(), Instant(5));
        assert_eq!(looked_up(&ends.next(began, 0, &mut table)).len(), BLOCKS_PER_PAGE_MAX);
        assert_eq!(looked_up(&ends.next(began, 0, &mut table)), [count - 1, count]);
        let again = began + SECOND;
        assert_eq!(ends.next(began, 0, &mut table), BlockEndStep::Wait(again));
        assert_eq!(ends.next(Instant(again.0 - 1), 0, &mut table), BlockEndStep::Wait(again));
        assert_eq!(looked_up(&ends.next(again, 0, &mut table)).len(), BLOCKS_PER_PAGE_MAX);
    }

    #[test]
    fn page_that_fails_keeps_no_later_one_from_its_turn() {
        let mut table = BlockTable::default();
        (1..=PAGE + 1).for_each(|block| write(&mut table, block));
        let (mut ends, mut now) = (BlockEnds::default(), Instant(5));
        for _ in 0..3 {
            assert_eq!(looked_up(&ends.next(now, 0, &mut table))[0], 1);
            ends.failed(now);
            let waits = BlockEndStep::Wait(now + SECOND);
            assert_eq!(ends.next(now, LOOK_UP_BYTES, &mut table), waits, "also if much is written");
            now = now + SECOND;
            assert_eq!(looked_up(&ends.next(now, 0, &mut table)), [PAGE + 1]);
            assert_eq!(ends.next(now, 0, &mut table), BlockEndStep::Wait(now));
        }
    }

    #[test]
    fn blocks_that_grew_are_looked_up_early_when_much_was_written() {
        let mut table = BlockTable::default();
        (1..=3).for_each(|block| write(&mut table, block));
        let (mut ends, now) = (BlockEnds::default(), Instant(5));
        let half = LOOK_UP_BYTES / 2;
        assert_eq!(looked_up(&ends.next(now, half, &mut table)), [1, 2, 3]);
        let waits = BlockEndStep::Wait(now + SECOND);
        assert_eq!(ends.next(now, half, &mut table), waits, "the last page was empty");
        write_at(&mut table, 2, 9);
        assert_eq!(ends.next(now, LOOK_UP_BYTES - 1, &mut table), waits);
        assert_eq!(looked_up(&ends.next(now, LOOK_UP_BYTES, &mut table)), [2]);
        assert_eq!(ends.next(now, LOOK_UP_BYTES, &mut table), waits);
        write_at(&mut table, 3, 9);
        assert_eq!(ends.next(now, 2 * LOOK_UP_BYTES - 1, &mut table), waits);
        assert_eq!(looked_up(&ends.next(now, 2 * LOOK_UP_BYTES, &mut table)), [3]);
    }

    #[test]
    fn look_ups_of_many_blocks_follow_each_other_in_proportion_to_these() {
        let mut table = BlockTable::default();
        let pages = 8;
        (1..=pages * PAGE).for_each(|block| write(&mut table, block));
        let (mut ends, now) = (BlockEnds::default(), Instant(5));
        for _ in 0..pages {
            assert_eq!(looked_up(&ends.next(now, 0, &mut table)).len(), BLOCKS_PER_PAGE_MAX);
        }
        let all_due = now + Millis(2000);
        assert_eq!(ends.next(now, 0, &mut table), BlockEndStep::Wait(all_due));
        // Much was written into more blocks than a page has.
        (1..=PAGE + 1).for_each(|block| write_at(&mut table, block, 9));
        let early = ends.next(now, LOOK_UP_BYTES, &mut table);
        assert_eq!(looked_up(&early).len(), BLOCKS_PER_PAGE_MAX);
        let grown_due = now + Millis(250);
        let waits = BlockEndStep::Wait(grown_due);
        assert_eq!(ends.next(now, 9 * LOOK_UP_BYTES, &mut table), waits);
        let early = ends.next(grown_due, 9 * LOOK_UP_BYTES, &mut table);
        assert_eq!(looked_up(&early), [PAGE + 1]);
        let waits = BlockEndStep::Wait(all_due);
        assert_eq!(ends.next(grown_due, 9 * LOOK_UP_BYTES, &mut table), waits);
        assert_eq!(looked_up(&ends.next(all_due, 9 * LOOK_UP_BYTES, &mut table))[0], 1);
    }

    #[test]
    fn namenode_of_the_previous_release_is_left_alone_for_a_minute() {
        let mut table = BlockTable::default();
        (1..=PAGE + 1).for_each(|block| write(&mut table, block));
        let (mut ends, now) = (BlockEnds::default(), Instant(5));
        assert_eq!(looked_up(&ends.next(now, 0, &mut table))[0], 1);
        ends.found_older(now);
        let again = now + Millis(60_000);
        assert_eq!(ends.next(now + SECOND, LOOK_UP_BYTES, &mut table), BlockEndStep::Wait(again));
        assert_eq!(looked_up(&ends.next(again, LOOK_UP_BYTES, &mut table))[0], 1);
    }

    #[test]
    fn block_that_has_ended_is_not_looked_up_again() {
        let mut table = BlockTable::default();
        (1..=2).for_each(|block| write(&mut table, block));
        let (mut ends, now) = (BlockEnds::default(), Instant(5));
        let BlockEndStep::LookUp(page) = ends.next(now, 0, &mut table) else { panic!() };
        let look_up = LookUpTimes { sent: now, answered: now };
        assert_eq!(table.counted(&page[0], BlockCount::Ended { length: 9 }, look_up), None);
        assert_eq!(looked_up(&ends.next(now, 0, &mut table)), [0; 0]);
        assert_eq!(looked_up(&ends.next(now + SECOND, 0, &mut table)), [2]);
    }
}
