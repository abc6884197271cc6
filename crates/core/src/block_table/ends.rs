//! The ends of blocks that were written here, as the namenode has them: what a writer put into a
//! block beyond its grant, or did not publish, is given back.
//!
//! A writer ends a block at the namenode, and this node is not a party to that. It looks up what is
//! counted for the blocks that began here, and trims those that hold more. Bytes that count stay:
//! in one log, the length of a block that has ended never changes, and a writer publishes no more
//! than it was granted. A log may lose its end, and with it the end of a block. So an end is
//! believed once the namenode has shown it for [`TRIM_AFTER`](super::TRIM_AFTER). Meanwhile the
//! block is fenced, which costs nothing if its end is taken back: its writer goes on in another
//! block.

use std::ops::Bound;

use sanderling_protocol::limits::ALLOCATION_UNIT_BYTES;
use sanderling_protocol::message::BlockCount;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{BlockId, Tier};

use super::unended::LookUpTimes;
use super::{BlockEntry, BlockStage, BlockTable};

impl<B: Clone> BlockTable<B> {
    /// Lists blocks whose end is to be looked up, in the order of their ids, after `after` and at
    /// most `limit` of them. Forgets which of them are gone, came back from another node, or are
    /// damaged and reported as such.
    pub fn unended(&mut self, after: BlockId, limit: usize) -> Vec<HeldBlock> {
        let (mut page, mut gone) = (Vec::new(), Vec::new());
        for block in self.unended.all.range((Bound::Excluded(after), Bound::Unbounded)) {
            if page.len() >= limit {
                break;
            }
            match self.listed_unended(*block) {
                Some(held) => page.push(held),
                None => gone.push(*block),
            }
        }
        gone.into_iter().for_each(|block| self.unended.forget(block));
        page
    }

    /// Takes blocks whose end is to be looked up and that have grown since [`Self::forget_grown`],
    /// at most `limit` of them.
    pub fn take_grown(&mut self, limit: usize) -> Vec<HeldBlock> {
        let mut page = Vec::new();
        while page.len() < limit {
            let Some(block) = self.unended.grown.pop_first() else { break };
            if self.unended.all.contains(&block) {
                page.extend(self.listed_unended(block));
            }
        }
        page
    }

    /// Forgets which blocks have grown: all are looked up.
    pub fn forget_grown(&mut self) {
        self.unended.grown.clear();
    }

    /// Notes that the namenode did not return what counts for these blocks. Those that have ended
    /// must be seen anew for as long as before: another namenode may return the same end.
    pub fn forget_seen_ends(&mut self, blocks: &[HeldBlock]) {
        for held in blocks {
            self.unended.surplus.remove(&held.block);
        }
    }

    /// Notes that the node has registered: blocks that the namenode did not count here are looked
    /// up again. Its log may be another one: an operator has taken a start on an older directory
    /// back.
    pub fn look_up_set_aside(&mut self) {
        self.unended.take_back();
    }

    fn listed_unended(&self, block: BlockId) -> Option<HeldBlock> {
        let held = self.blocks.get(&block)?;
        let is_listed = held.stage != BlockStage::Sealed && held.damage.is_none();
        is_listed.then(|| held.listed(block))
    }

    /// Takes what the namenode counts for a listed block. A block that has ended takes no more
    /// writes, and neither does one that holds more than its writer was granted. Returns the length
    /// to which the block is to be trimmed, by [`Self::trim`]; `None` if it holds no more, if what
    /// it holds more takes no room on the disk, or if it has ended only lately: the next look-up
    /// shows whether it stays so.
    pub fn counted(
        &mut self,
        listed: &HeldBlock,
        count: BlockCount,
        look_up: LookUpTimes,
    ) -> Option<u32> {
        let block = listed.block;
        let is_same = |held: &&mut BlockEntry<B>| {
            held.epoch == listed.epoch && held.stage != BlockStage::Sealed && held.damage.is_none()
        };
        let held = self.blocks.get_mut(&block).filter(is_same)?;
        let (length, is_ended) = match count {
            // The namenode has it dropped, or the next block report does.
            BlockCount::Foreign | BlockCount::Elsewhere => {
                self.unended.set_aside(block);
                return None;
            }
            BlockCount::Open { bytes_max, .. } => {
                // An end that was seen before was taken back.
                self.unended.surplus.remove(&block);
                if held.length <= bytes_max {
                    return None;
                }
                (bytes_max, false)
            }
            BlockCount::Ended { length } => (length, true),
        };
        held.fence();
        debug_assert!(held.is_final(), "what is trimmed must not grow behind the trim");
        if held.length <= length {
            self.unended.forget(block);
            return None;
        }
        let is_final = !is_ended || self.unended.is_confirmed(block, length, look_up);
        // Neither a grant nor a block that has ended is empty: such a block is removed.
        if !is_final || length == 0 {
            return None;
        }
        // To trim a file is to write it anew, and nothing less would be in use then.
        if held.tier == Tier::Disk && units(held.length) == units(length) {
            if is_ended {
                self.unended.forget(block);
            }
            return None;
        }
        Some(length)
    }

    /// Gives back what a fenced block holds beyond `length` bytes. `shrink` does it, and returns
    /// whether it did: not while a reader still has these bytes. Returns whether the block has that
    /// length now; if not, it is still listed by [`Self::unended`].
    pub fn trim(
        &mut self,
        listed: &HeldBlock,
        length: u32,
        shrink: impl FnOnce(&mut B) -> bool,
    ) -> bool {
        let Some(held) = self.blocks.get_mut(&listed.block) else { return false };
        let is_same = held.epoch == listed.epoch && held.stage == BlockStage::Fenced;
        if !is_same || held.damage.is_some() || held.length <= length || length == 0 {
            return false;
        }
        if !held.bytes.as_mut().is_some_and(shrink) {
            return false;
        }
        debug_assert!(held.writing.is_none(), "no write of it is published any more");
        self.bytes -= u64::from(held.length - length);
        held.length = length;
        true
    }
}

/// Returns how many units of its tier a block of this length takes.
const fn units(length: u32) -> u32 {
    length.div_ceil(ALLOCATION_UNIT_BYTES)
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::order::Damage;
    use sanderling_protocol::{Epoch, Instant, Millis, Refusal};

    use super::super::{StoreRequest, WriteAdmission, WriteRequest};
    use super::*;

    const BLOCK: BlockId = BlockId(7);

    type Table = BlockTable<Vec<u8>>;

    fn write(table: &mut Table, block: u64, offset: u64, run: &[u8]) -> Result<u32, Refusal> {
        let (block, epoch, tier) = (BlockId(block), Epoch(1), Tier::Dram);
        let bytes = u32::try_from(run.len()).unwrap();
        match table.admit_write(&WriteRequest { block, epoch, tier, offset, bytes })? {
            WriteAdmission::Append { ticket, bytes } => {
                table.wrote(ticket, [bytes.unwrap_or_default(), run.to_vec()].concat())
            }
            WriteAdmission::AlreadyThere { length, .. } => Ok(length),
        }
    }

    fn listed(table: &mut Table) -> HeldBlock {
        table.unended(BlockId(0), 9).into_iter().find(|held| held.block == BLOCK).unwrap()
    }

    /// A look-up that took no time.
    fn at(second: u64) -> LookUpTimes {
        let now = Instant(0) + Millis::from_secs(second);
        LookUpTimes { sent: now, answered: now }
    }

    fn open(bytes_max: u32) -> BlockCount {
        BlockCount::Open { bytes_max, tier: Tier::Dram }
    }

    fn cut(length: u32) -> impl FnOnce(&mut Vec<u8>) -> bool {
        move |bytes| {
            bytes.truncate(usize::try_from(length).unwrap());
            true
        }
    }

    fn read(table: &Table, bytes: u32) -> Option<Vec<u8>> {
        table.admit_read(BLOCK, Epoch(1), 0, bytes).ok()?.cloned()
    }

    #[test]
    fn block_that_has_ended_takes_no_more_and_gives_back_what_does_not_count() {
        let mut table = Table::default();
        write(&mut table, 7, 0, b"abcdef").unwrap();
        let held = listed(&mut table);
        let ended = BlockCount::Ended { length: 2 };
        assert_eq!(table.counted(&held, ended, at(1)), None, "it may be taken back");
        let late = write(&mut table, 7, 6, b"g");
        assert_eq!(late, Err(Refusal::Moved { block: BLOCK, length: 6 }));
        assert_eq!(table.counted(&held, ended, at(4)), Some(2));
        assert!(!table.trim(&held, 2, |_| false), "a reader has it");
        assert_eq!((listed(&mut table).length, table.bytes()), (6, 6), "it is tried again");
        assert!(table.trim(&held, 2, cut(2)));
        assert_eq!((table.length(BLOCK), table.bytes()), (2, 2));
        assert_eq!((read(&table, 2), read(&table, 3)), (Some(b"ab".to_vec()), None));
        assert!(!table.trim(&held, 2, cut(2)), "once");
        let held = listed(&mut table);
        assert_eq!(table.counted(&held, ended, at(5)), None);
        assert_eq!(table.unended(BlockId(0), 9), [], "its end was applied");
        let expected = HeldBlock { length: 2, ..held };
        assert_eq!(table.lacks(&expected), None, "all of its published bytes are here");
    }

    /// A crash of the namenode's machine takes the end back. The writer, which was only cut off,
    /// goes on in another block and then publishes all that was acknowledged here.
    #[test]
    fn end_that_is_taken_back_trims_nothing() {
        let mut table = Table::default();
        write(&mut table, 7, 0, b"abcdef").unwrap();
        let held = listed(&mut table);
        let ended = |length| BlockCount::Ended { length };
        assert_eq!(table.counted(&held, ended(2), at(1)), None);
        assert_eq!(table.counted(&held, open(9), at(2)), None);
        assert!(write(&mut table, 7, 6, b"g").is_err(), "it stays fenced");
        assert_eq!(table.counted(&held, ended(2), at(5)), None, "it ends for the first time");
        assert_eq!(table.counted(&held, ended(4), at(9)), None, "at this length");
        assert_eq!(table.counted(&held, ended(4), at(11)), None);
        assert_eq!(table.counted(&held, ended(4), at(12)), Some(4));
        // What counts is when the namenode made its replies.
        let mut table = Table::default();
        write(&mut table, 7, 0, b"abcdef").unwrap();
        let slow = LookUpTimes { answered: at(9).answered, ..at(1) };
        assert_eq!(table.counted(&held, ended(2), slow), None);
        let slow = LookUpTimes { answered: at(19).answered, ..at(11) };
        assert_eq!(table.counted(&held, ended(2), slow), None);
        assert_eq!(table.counted(&held, ended(2), at(12)), Some(2));
    }

    /// The namenode may be another one when it answers again.
    #[test]
    fn end_counts_from_anew_after_a_look_up_that_failed() {
        let mut table = Table::default();
        write(&mut table, 7, 0, b"abcdef").unwrap();
        let (held, ended) = (listed(&mut table), BlockCount::Ended { length: 2 });
        assert_eq!(table.counted(&held, ended, at(1)), None);
        table.forget_seen_ends(&[HeldBlock { block: BlockId(8), ..held }]);
        assert_eq!(table.counted(&held, ended, at(4)), Some(2), "another block's failed");
        table.forget_seen_ends(&[held]);
        assert_eq!(table.counted(&held, ended, at(9)), None);
        assert_eq!(table.counted(&held, ended, at(12)), Some(2));
    }

    #[test]
    fn file_is_not_written_anew_for_less_than_a_unit() {
        const UNIT: u32 = ALLOCATION_UNIT_BYTES;
        let mut table = Table::default();
        let (epoch, tier, bytes) = (Epoch(1), Tier::Disk, 2 * UNIT);
        let first = WriteRequest { block: BLOCK, epoch, tier, offset: 0, bytes };
        let Ok(WriteAdmission::Append { ticket, .. }) = table.admit_write(&first) else { panic!() };
        table.wrote(ticket, Vec::new()).unwrap();
        let held = listed(&mut table);
        assert_eq!(table.counted(&held, open(2 * UNIT - 1), at(1)), None);
        let late = write(&mut table, 7, u64::from(2 * UNIT), b"g");
        assert!(late.is_err(), "it holds more than was granted");
        assert_eq!(table.counted(&held, open(UNIT), at(1)), Some(UNIT));
        let ended = |length| BlockCount::Ended { length };
        assert_eq!(table.counted(&held, ended(UNIT), at(1)), None);
        assert_eq!(table.counted(&held, ended(UNIT), at(4)), Some(UNIT));
        assert_eq!(table.counted(&held, ended(UNIT + 1), at(5)), None);
        assert_eq!(listed(&mut table), held, "its end may be taken back");
        assert_eq!(table.counted(&held, ended(UNIT + 1), at(8)), None);
        assert_eq!(table.unended(BlockId(0), 9), [], "its end is final");
        assert_eq!(table.length(BLOCK), 2 * UNIT);
    }

    /// An operator starts on an older directory, and takes the start back.
    #[test]
    fn block_that_was_not_counted_here_is_looked_up_again_after_a_registration() {
        let mut table = Table::default();
        write(&mut table, 7, 0, b"abcdef").unwrap();
        write(&mut table, 8, 0, b"abc").unwrap();
        for held in table.unended(BlockId(0), 9) {
            assert_eq!(table.counted(&held, BlockCount::Foreign, at(1)), None);
        }
        assert_eq!(table.unended(BlockId(0), 9), []);
        table.drop_block(BlockId(8), Epoch(1));
        table.look_up_set_aside();
        let held = listed(&mut table);
        assert_eq!(table.unended(BlockId(0), 9), [held], "the other one is gone");
        assert_eq!(table.counted(&held, open(4), at(2)), Some(4));
        table.look_up_set_aside();
        assert_eq!(table.unended(BlockId(0), 9), [held]);
    }

    #[test]
    fn blocks_that_grew_are_taken_once_each_time() {
        let mut table = Table::default();
        let taken = |table: &mut Table, limit| -> Vec<u64> {
            table.take_grown(limit).iter().map(|it| it.block.0).collect()
        };
        (1..=4).for_each(|block| _ = write(&mut table, block, 0, b"abc").unwrap());
        assert_eq!((taken(&mut table, 3), taken(&mut table, 3)), (vec![1, 2, 3], vec![4]));
        write(&mut table, 2, 3, b"d").unwrap();
        write(&mut table, 2, 3, b"d").unwrap();
        assert_eq!((taken(&mut table, 9), taken(&mut table, 9)), (vec![2], vec![]));
        for block in 1..=4 {
            write(&mut table, block, if block == 2 { 4 } else { 3 }, b"e").unwrap();
        }
        table.drop_block(BlockId(1), Epoch(1));
        table.mark_damaged(BlockId(2), Damage::Checksum, |_| true);
        let held = table.unended(BlockId(2), 1)[0];
        assert_eq!(table.counted(&held, BlockCount::Elsewhere, at(1)), None);
        assert_eq!(taken(&mut table, 9), [4]);
        write(&mut table, 4, 4, b"f").unwrap();
        table.forget_grown();
        assert_eq!(taken(&mut table, 9), [0; 0]);
    }

    #[test]
    fn block_whose_first_write_fails_is_not_looked_up() {
        let mut table = Table::default();
        let (epoch, tier) = (Epoch(1), Tier::Dram);
        let first = WriteRequest { block: BLOCK, epoch, tier, offset: 0, bytes: 1 };
        let Ok(WriteAdmission::Append { ticket, .. }) = table.admit_write(&first) else { panic!() };
        table.abandon_write(ticket);
        assert!(table.unended.all.is_empty(), "what is refused takes no memory");
        let Ok(WriteAdmission::Append { .. }) = table.admit_write(&first) else { panic!() };
        table.revoke_writes();
        assert!(table.unended.all.is_empty());
    }

    #[test]
    fn open_block_keeps_its_grant_and_is_written_on() {
        let mut table = Table::default();
        write(&mut table, 7, 0, b"abc").unwrap();
        let held = listed(&mut table);
        assert_eq!(table.counted(&held, open(3), at(1)), None);
        assert_eq!(write(&mut table, 7, 3, b"d"), Ok(4));
        let held = listed(&mut table);
        assert_eq!(table.counted(&held, open(3), at(1)), Some(3));
        assert!(write(&mut table, 7, 4, b"e").is_err(), "it holds more than was granted");
        assert!(table.trim(&held, 3, cut(3)));
        let held = listed(&mut table);
        assert_eq!(table.counted(&held, open(3), at(1)), None);
        assert_eq!(listed(&mut table).length, 3, "its end is still to come");
    }

    #[test]
    fn block_that_grew_no_longer_than_what_counts_stays_as_it_is() {
        let mut table = Table::default();
        write(&mut table, 7, 0, b"abc").unwrap();
        let held = listed(&mut table);
        // It is shorter than what was published: the next block report finds that.
        assert_eq!(table.counted(&held, BlockCount::Ended { length: 4 }, at(1)), None);
        assert_eq!(table.length(BLOCK), 3);
        assert_eq!(table.unended(BlockId(0), 9), []);
        let expected = HeldBlock { length: 4, ..held };
        assert_eq!(table.lacks(&expected), Some(Damage::Short));
    }

    #[test]
    fn write_under_way_when_its_block_ends_is_not_published() {
        let mut table = Table::default();
        write(&mut table, 7, 0, b"abc").unwrap();
        let (epoch, tier) = (Epoch(1), Tier::Dram);
        let more = WriteRequest { block: BLOCK, epoch, tier, offset: 3, bytes: 1 };
        let Ok(WriteAdmission::Append { ticket, .. }) = table.admit_write(&more) else { panic!() };
        let held = listed(&mut table);
        assert_eq!(table.counted(&held, BlockCount::Ended { length: 3 }, at(1)), None);
        let refused = table.wrote(ticket, b"abcd".to_vec());
        assert_eq!(refused, Err(Refusal::Moved { block: BLOCK, length: 3 }));
    }

    #[test]
    fn block_of_another_home_epoch_or_stage_is_left_alone() {
        let mut table = Table::default();
        let ended = BlockCount::Ended { length: 1 };
        for (block, count) in [(1, BlockCount::Foreign), (2, BlockCount::Elsewhere)] {
            write(&mut table, block, 0, b"abc").unwrap();
            let held = table.unended(BlockId(0), 9).pop().unwrap();
            assert_eq!(table.counted(&held, count, at(1)), None);
            assert_eq!(table.unended(BlockId(0), 9), []);
            assert_eq!(write(&mut table, block, 3, b"d"), Ok(4), "{count:?}");
        }
        write(&mut table, 7, 0, b"abc").unwrap();
        let held = listed(&mut table);
        let before = HeldBlock { epoch: Epoch(0), ..held };
        assert_eq!(table.counted(&before, ended, at(1)), None);
        // It was pushed away, dropped, and has come back whole.
        table.admit_push(BLOCK, Epoch(1)).unwrap();
        let (epoch, tier) = (Epoch(2), Tier::Dram);
        let store = StoreRequest { block: BLOCK, epoch, tier, bytes: 3 };
        table.stored(&store, b"abc".to_vec()).unwrap();
        assert_eq!(table.counted(&held, ended, at(1)), None);
        assert_eq!(table.counted(&HeldBlock { epoch, ..held }, ended, at(1)), None);
        assert!(!table.trim(&held, 1, cut(1)));
        assert_eq!((table.length(BLOCK), table.unended(BlockId(0), 9)), (3, vec![]));
    }

    #[test]
    fn damaged_and_dropped_blocks_are_not_looked_up() {
        let mut table = Table::default();
        for block in 1..=3 {
            write(&mut table, block, 0, b"abc").unwrap();
        }
        let first = table.unended(BlockId(0), 2);
        assert_eq!(first.iter().map(|held| held.block.0).collect::<Vec<_>>(), [1, 2]);
        table.mark_damaged(BlockId(1), Damage::Checksum, |_| true);
        table.drop_block(BlockId(2), Epoch(1));
        let ended = BlockCount::Ended { length: 1 };
        assert_eq!(table.counted(&first[0], ended, at(1)), None);
        assert_eq!(table.counted(&first[1], ended, at(1)), None);
        let left: Vec<u64> = table.unended(BlockId(0), 9).iter().map(|it| it.block.0).collect();
        assert_eq!(left, [3]);
    }
}
