//! One block report: the node sends which blocks it holds, page by page, and then compares them
//! with the blocks that the namenode expects.
//!
//! 1. The node sends its blocks. A namenode that lost the end of its log so learns which blocks the
//!    lost part had moved here, before any block is reported missing. The namenode answers which
//!    blocks the catalog does not want; the node drops them unless they were stored at another
//!    epoch meanwhile.
//! 2. The node starts to check that the files of its blocks are there. It waits for no disk: what
//!    the check finds is reported as damage.
//! 3. The node requests the expected blocks, page by page, and reports those that it lacks. A page
//!    may be older than an order to drop one of its blocks. So the node requests a page a second
//!    time if it lacks a block of it, and reports only what both pages name.

use sanderling_protocol::BlockId;
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::order::{DamagedBlock, HeldBlock};

use crate::block_table::BlockTable;

/// A block report that is under way. If one of its calls fails, drop it and start another one
/// later: pages that were answered count.
#[derive(Debug, Clone)]
pub struct ReportProgress {
    page_max: usize,
    stage: ReportStage,
    dropped: u64,
}

#[derive(Debug, Clone)]
enum ReportStage {
    Held { after: BlockId, page: Vec<HeldBlock> },
    Probe,
    Expected { after: BlockId, suspects: Option<Vec<DamagedBlock>> },
    Done,
}

/// Names what the shell does next for a report, and what it calls then. When a call to the namenode
/// fails, the shell makes the whole report again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportStep {
    /// Send this page of blocks, in the order of their ids, then call [`ReportProgress::unwanted`].
    Held(Vec<HeldBlock>),
    /// Call [`Damages::report_again`](super::Damages::report_again); start to check that the files
    /// of all blocks are there and long enough, without reading them; then call
    /// [`ReportProgress::probed`], without waiting for the check, as a disk may hang.
    Probe,
    /// Request a page of the blocks that must be here, then call [`ReportProgress::expected`], or
    /// [`ReportProgress::not_comparable`] if the namenode does not know the request.
    Expected {
        /// The page begins after this block.
        after: BlockId,
        /// Most blocks in the page.
        limit: u32,
    },
    /// Nothing: the report has ended.
    Done,
}

impl Default for ReportProgress {
    fn default() -> Self {
        Self::in_pages_of(BLOCKS_PER_PAGE_MAX)
    }
}

impl ReportProgress {
    /// Starts a report with at most `page_max` blocks in a page. Values outside of 1 to
    /// [`BLOCKS_PER_PAGE_MAX`] are moved to the nearer bound. Servers use the upper bound; the
    /// simulator uses small pages, so that its small clusters have several.
    #[must_use]
    pub fn in_pages_of(page_max: usize) -> Self {
        let stage = ReportStage::Held { after: BlockId(0), page: Vec::new() };
        Self { page_max: page_max.clamp(1, BLOCKS_PER_PAGE_MAX), stage, dropped: 0 }
    }

    /// Returns how many blocks the catalog has not wanted so far in this report: they were dropped.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the next step. [`ReportStep::Probe`] and [`ReportStep::Expected`] are returned again
    /// until their outcome is handed over; each page of held blocks is returned once.
    pub fn next<B: Clone>(&mut self, table: &BlockTable<B>) -> ReportStep {
        match &mut self.stage {
            ReportStage::Held { after, page } => {
                *page = table.list(*after, self.page_max);
                match page.last() {
                    Some(last) => {
                        *after = last.block;
                        ReportStep::Held(page.clone())
                    }
                    None => {
                        self.stage = ReportStage::Probe;
                        ReportStep::Probe
                    }
                }
            }
            ReportStage::Probe => ReportStep::Probe,
            ReportStage::Expected { after, .. } => {
                let limit = u32::try_from(self.page_max).expect("a page has a few thousand blocks");
                ReportStep::Expected { after: *after, limit }
            }
            ReportStage::Done => ReportStep::Done,
        }
    }

    /// Handles the answer to a page of held blocks: the ids of those that the catalog does not
    /// want. Returns the blocks to drop, which the caller drops only if it still holds them at that
    /// epoch. Ids that were not in the page are ignored, and so is a second answer to it.
    pub fn unwanted(&mut self, mut unwanted: Vec<BlockId>) -> Vec<HeldBlock> {
        let ReportStage::Held { page, .. } = &mut self.stage else { return Vec::new() };
        unwanted.sort_unstable();
        let mut page = std::mem::take(page);
        page.retain(|held| unwanted.binary_search(&held.block).is_ok());
        self.dropped += page.len() as u64;
        page
    }

    /// Handles that the look for which [`ReportStep::Probe`] calls was started; the next step
    /// requests the first page of expected blocks. The outcome of the look is not waited for.
    pub fn probed(&mut self) {
        self.stage = ReportStage::Expected { after: BlockId(0), suspects: None };
    }

    /// Ends the report without a comparison, because the namenode is of an earlier release, which
    /// cannot list the expected blocks. The report counts as complete: repeating it would send all
    /// blocks again and fail again.
    pub fn not_comparable(&mut self) {
        self.stage = ReportStage::Done;
    }

    /// Handles a page of blocks that must be here, in the order of their ids; `is_more`: further
    /// blocks follow. Returns the blocks to report as missing or damaged. The first page in which
    /// one is lacking returns none: the next step requests the same page again. A page whose last
    /// block is not behind the one before ends the report.
    pub fn expected<B: Clone>(
        &mut self,
        table: &BlockTable<B>,
        expected: &[HeldBlock],
        is_more: bool,
    ) -> Vec<DamagedBlock> {
        let ReportStage::Expected { after, suspects } = &mut self.stage else { return Vec::new() };
        let lacks = |it: &HeldBlock| {
            let damage = table.lacks(it)?;
            Some(DamagedBlock { block: it.block, epoch: it.epoch, damage })
        };
        let mut lacking: Vec<DamagedBlock> = expected.iter().filter_map(lacks).collect();
        match suspects.take() {
            None if !lacking.is_empty() => {
                *suspects = Some(lacking);
                return Vec::new();
            }
            None => {}
            Some(before) => lacking.retain(|it| before.contains(it)),
        }
        // A page that does not go on would be requested again and again.
        match expected.last().filter(|last| is_more && last.block > *after) {
            Some(last) => *after = last.block,
            None => self.stage = ReportStage::Done,
        }
        lacking
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::order::Damage;
    use sanderling_protocol::{Epoch, Tier};

    use super::*;
    use crate::block_table::StoreRequest;

    const BYTES: u32 = 10;

    fn table(blocks: impl IntoIterator<Item = u64>) -> BlockTable<()> {
        let mut table = BlockTable::default();
        blocks.into_iter().for_each(|block| store(&mut table, block, 1));
        table
    }

    fn store(table: &mut BlockTable<()>, block: u64, epoch: u32) {
        let (block, epoch, tier) = (BlockId(block), Epoch(epoch), Tier::Dram);
        table.stored(&StoreRequest { block, epoch, tier, bytes: BYTES }, ()).unwrap();
    }

    const fn held(block: u64) -> HeldBlock {
        HeldBlock { block: BlockId(block), epoch: Epoch(1), length: BYTES, tier: Tier::Dram }
    }

    const fn missing(block: u64) -> DamagedBlock {
        DamagedBlock { block: BlockId(block), epoch: Epoch(1), damage: Damage::Missing }
    }

    #[test]
    fn report_to_a_namenode_that_cannot_compare_is_whole() {
        let table = table([1]);
        let mut report = compares(&table);
        report.probed();
        assert!(matches!(report.next(&table), ReportStep::Expected { .. }));
        report.not_comparable();
        assert_eq!(report.next(&table), ReportStep::Done);
    }

    /// Returns a report that has listed what is held.
    fn compares(table: &BlockTable<()>) -> ReportProgress {
        let mut report = ReportProgress::in_pages_of(2);
        while let ReportStep::Held(_) = report.next(table) {
            report.unwanted(Vec::new());
        }
        assert_eq!(report.next(table), ReportStep::Probe);
        report.probed();
        report
    }

    const fn page_after(after: u64) -> ReportStep {
        ReportStep::Expected { after: BlockId(after), limit: 2 }
    }

    #[test]
    fn everything_is_reported_page_by_page_and_then_compared() {
        let table = table(1..=5);
        let mut report = ReportProgress::in_pages_of(2);
        for page in [vec![held(1), held(2)], vec![held(3), held(4)], vec![held(5)]] {
            assert_eq!(report.next(&table), ReportStep::Held(page));
            assert_eq!(report.unwanted(Vec::new()), []);
        }
        assert_eq!(report.next(&table), ReportStep::Probe);
        report.probed();
        assert_eq!(report.next(&table), page_after(0));
        assert_eq!(report.expected(&table, &[held(1), held(2)], true), []);
        assert_eq!(report.next(&table), page_after(2));
        assert_eq!(report.expected(&table, &[held(5)], false), []);
        assert_eq!(report.next(&table), ReportStep::Done);
        assert_eq!(report.dropped(), 0);
    }

    #[test]
    fn unwanted_blocks_of_the_page_are_dropped_and_no_others() {
        let table = table(1..=3);
        let mut report = ReportProgress::in_pages_of(2);
        report.next(&table);
        let unwanted = vec![BlockId(3), BlockId(2), BlockId(2)];
        assert_eq!(report.unwanted(unwanted.clone()), [held(2)]);
        assert_eq!(report.unwanted(unwanted.clone()), [], "an answer counts once");
        report.next(&table);
        assert_eq!(report.unwanted(unwanted), [held(3)]);
        assert_eq!(report.dropped(), 2);
    }

    #[test]
    fn block_is_missing_when_two_pages_expect_it() {
        let table = table([1, 3]);
        let mut report = compares(&table);
        let expected = [held(1), held(2), held(4)];
        assert_eq!(report.expected(&table, &expected, false), []);
        assert_eq!(report.next(&table), page_after(0), "it is requested once more");
        // The namenode had block 4 dropped.
        assert_eq!(report.expected(&table, &expected[..2], false), [missing(2)]);
        assert_eq!(report.next(&table), ReportStep::Done);
    }

    #[test]
    fn block_that_moved_on_between_two_pages_is_not_missing() {
        let table = table([1]);
        let mut report = compares(&table);
        report.expected(&table, &[held(1), held(2)], false);
        let later = HeldBlock { epoch: Epoch(2), ..held(2) };
        assert_eq!(report.expected(&table, &[held(1), later], false), []);
        assert_eq!(report.next(&table), ReportStep::Done);
    }

    #[test]
    fn pages_that_do_not_go_on_end_the_report() {
        let table = table([1, 2]);
        let mut report = compares(&table);
        report.expected(&table, &[held(1), held(2)], true);
        assert_eq!(report.next(&table), page_after(2));
        assert_eq!(report.expected(&table, &[held(1), held(2)], true), []);
        assert_eq!(report.next(&table), ReportStep::Done);
        let mut report = compares(&table);
        assert_eq!(report.expected(&table, &[], true), []);
        assert_eq!(report.next(&table), ReportStep::Done);
    }
}
