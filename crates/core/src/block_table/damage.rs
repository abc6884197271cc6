//! Damaged blocks in the table, and blocks that it lacks.

use std::ops::Bound;

use sanderling_protocol::BlockId;
use sanderling_protocol::order::{Damage, DamagedBlock, HeldBlock};

use super::{BlockEntry, BlockTable};

impl<B: Clone> BlockTable<B> {
    /// Notes that the bytes of a block are damaged, if they are still `those` in which that was
    /// seen: the block may have been stored anew since. From now on it is not served and takes no
    /// writes. Returns whether that is new.
    pub fn mark_damaged(
        &mut self,
        block: BlockId,
        damage: Damage,
        those: impl FnOnce(&B) -> bool,
    ) -> bool {
        let Some(held) = self.blocks.get_mut(&block) else { return false };
        if held.damage.is_some() || !held.bytes.as_ref().is_some_and(those) {
            return false;
        }
        held.fence();
        held.damage = Some(damage);
        true
    }

    /// Returns the damaged blocks after `after` in the order of their ids, at most `limit`, as they
    /// are to be reported.
    #[must_use]
    pub fn damaged(&self, after: BlockId, limit: usize) -> Vec<DamagedBlock> {
        let after = (Bound::Excluded(after), Bound::Unbounded);
        let report = |(&block, held): (&BlockId, &BlockEntry<B>)| {
            Some(DamagedBlock { block, epoch: held.epoch, damage: held.damage? })
        };
        self.blocks.range(after).filter_map(report).take(limit).collect()
    }

    /// Returns what is wrong with a block that the namenode expects here; `None` when the table
    /// has all of its published bytes.
    ///
    /// No race makes a block seem to be missing: its bytes were acknowledged here before they were
    /// published, and stored here before the move was committed. If it is dropped here since, the
    /// namenode has raised its epoch or forgotten it before, and the report changes nothing.
    #[must_use]
    pub fn lacks(&self, expected: &HeldBlock) -> Option<Damage> {
        match self.blocks.get(&expected.block) {
            None => Some(Damage::Missing),
            Some(held) if held.damage.is_some() => held.damage,
            Some(held) if held.length == 0 => Some(Damage::Missing),
            Some(held) if held.length < expected.length => Some(Damage::Short),
            Some(_) => None,
        }
    }

    /// Returns a page of blocks with their bytes, as [`Self::list`] does, for callers that look at
    /// each.
    #[must_use]
    pub fn list_bytes(&self, after: BlockId, limit: usize) -> Vec<(HeldBlock, B)> {
        let page = self.blocks.range((Bound::Excluded(after), Bound::Unbounded));
        let with_bytes = |(&block, held): (&BlockId, &BlockEntry<B>)| {
            let bytes = held.bytes.clone().filter(|_| held.damage.is_none())?;
            Some((held.listed(block), bytes))
        };
        page.filter_map(with_bytes).take(limit).collect()
    }
}
