//! The ends of blocks that were written here, as the namenode has them: what a writer put into a
//! block beyond its grant, or did not publish, is given back.
//!
//! A writer ends a block at the namenode, and this node is not a party to that. It looks up what is
//! counted for the blocks that began here, and trims those that hold more. Bytes that count stay:
//! the length of a block that has ended never changes, and a writer publishes no more than it was
//! granted.

use std::ops::Bound;

use sanderling_protocol::BlockId;
use sanderling_protocol::message::BlockCount;
use sanderling_protocol::order::HeldBlock;

use super::{BlockEntry, BlockStage, BlockTable};

impl<B: Clone> BlockTable<B> {
    /// Lists blocks whose end is to be looked up, in the order of their ids, after `after` and at
    /// most `limit` of them. Forgets which of them are gone, came back from another node, or are
    /// damaged and reported as such.
    pub fn unended(&mut self, after: BlockId, limit: usize) -> Vec<HeldBlock> {
        let (mut page, mut gone) = (Vec::new(), Vec::new());
        for block in self.unended.range((Bound::Excluded(after), Bound::Unbounded)) {
            if page.len() >= limit {
                break;
            }
            match self.blocks.get(block) {
                Some(held) if held.stage != BlockStage::Sealed && held.damage.is_none() => {
                    page.push(held.listed(*block));
                }
                _ => gone.push(*block),
            }
        }
        gone.iter().for_each(|block| _ = self.unended.remove(block));
        page
    }

    /// Takes what the namenode counts for a listed block. A block that has ended takes no more
    /// writes, and neither does one that holds more than its writer was granted. Returns the length
    /// to which the block is to be trimmed, by [`Self::trim`]; `None` if it holds no more.
    pub fn counted(&mut self, listed: &HeldBlock, count: BlockCount) -> Option<u32> {
        let block = listed.block;
        let is_same = |held: &&mut BlockEntry<B>| {
            held.epoch == listed.epoch && held.stage != BlockStage::Sealed && held.damage.is_none()
        };
        let held = self.blocks.get_mut(&block).filter(is_same)?;
        let length = match count {
            // The namenode has it dropped, or the next block report does.
            BlockCount::Foreign | BlockCount::Elsewhere => {
                self.unended.remove(&block);
                return None;
            }
            BlockCount::Open { bytes_max } if held.length <= bytes_max => return None,
            BlockCount::Open { bytes_max } => bytes_max,
            BlockCount::Ended { length } => length,
        };
        held.fence();
        debug_assert!(held.is_final(), "what is trimmed must not grow behind the trim");
        if held.length <= length {
            self.unended.remove(&block);
            return None;
        }
        // Neither a grant nor a block that has ended is empty: such a block is removed.
        (length > 0).then_some(length)
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

#[cfg(test)]
mod tests {
    use sanderling_protocol::order::Damage;
    use sanderling_protocol::{Epoch, Refusal, Tier};

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
        assert_eq!(table.counted(&held, BlockCount::Ended { length: 2 }), Some(2));
        let late = write(&mut table, 7, 6, b"g");
        assert_eq!(late, Err(Refusal::Moved { block: BLOCK, length: 6 }));
        assert!(!table.trim(&held, 2, |_| false), "a reader has it");
        assert_eq!((listed(&mut table).length, table.bytes()), (6, 6), "it is tried again");
        assert!(table.trim(&held, 2, cut(2)));
        assert_eq!((table.length(BLOCK), table.bytes()), (2, 2));
        assert_eq!((read(&table, 2), read(&table, 3)), (Some(b"ab".to_vec()), None));
        assert!(!table.trim(&held, 2, cut(2)), "once");
        let held = listed(&mut table);
        assert_eq!(table.counted(&held, BlockCount::Ended { length: 2 }), None);
        assert_eq!(table.unended(BlockId(0), 9), [], "its end was applied");
        let expected = HeldBlock { length: 2, ..held };
        assert_eq!(table.lacks(&expected), None, "all of its published bytes are here");
    }

    #[test]
    fn open_block_keeps_its_grant_and_is_written_on() {
        let mut table = Table::default();
        write(&mut table, 7, 0, b"abc").unwrap();
        let held = listed(&mut table);
        assert_eq!(table.counted(&held, BlockCount::Open { bytes_max: 3 }), None);
        assert_eq!(write(&mut table, 7, 3, b"d"), Ok(4));
        let held = listed(&mut table);
        assert_eq!(table.counted(&held, BlockCount::Open { bytes_max: 3 }), Some(3));
        assert!(write(&mut table, 7, 4, b"e").is_err(), "it holds more than was granted");
        assert!(table.trim(&held, 3, cut(3)));
        let held = listed(&mut table);
        assert_eq!(table.counted(&held, BlockCount::Open { bytes_max: 3 }), None);
        assert_eq!(listed(&mut table).length, 3, "its end is still to come");
    }

    #[test]
    fn block_that_grew_no_longer_than_what_counts_stays_as_it_is() {
        let mut table = Table::default();
        write(&mut table, 7, 0, b"abc").unwrap();
        let held = listed(&mut table);
        // It is shorter than what was published: the next block report finds that.
        assert_eq!(table.counted(&held, BlockCount::Ended { length: 4 }), None);
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
        assert_eq!(table.counted(&held, BlockCount::Ended { length: 3 }), None);
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
            assert_eq!(table.counted(&held, count), None);
            assert_eq!(table.unended(BlockId(0), 9), []);
            assert_eq!(write(&mut table, block, 3, b"d"), Ok(4), "{count:?}");
        }
        write(&mut table, 7, 0, b"abc").unwrap();
        let held = listed(&mut table);
        let before = HeldBlock { epoch: Epoch(0), ..held };
        assert_eq!(table.counted(&before, ended), None);
        // It was pushed away, dropped, and has come back whole.
        table.admit_push(BLOCK, Epoch(1)).unwrap();
        let (epoch, tier) = (Epoch(2), Tier::Dram);
        let store = StoreRequest { block: BLOCK, epoch, tier, bytes: 3 };
        table.stored(&store, b"abc".to_vec()).unwrap();
        assert_eq!(table.counted(&held, ended), None);
        assert_eq!(table.counted(&HeldBlock { epoch, ..held }, ended), None);
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
        assert_eq!(table.counted(&first[0], BlockCount::Ended { length: 1 }), None);
        assert_eq!(table.counted(&first[1], BlockCount::Ended { length: 1 }), None);
        let left: Vec<u64> = table.unended(BlockId(0), 9).iter().map(|it| it.block.0).collect();
        assert_eq!(left, [3]);
    }
}
