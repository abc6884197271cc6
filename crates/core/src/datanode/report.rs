//! One block report: what the node holds, page by page, and whether what is expected is there.
//!
//! First the namenode learns what is here, so that it takes what a lost end of its log had moved
//! here before it believes that anything is missing. What nobody wants is dropped, unless it was
//! stored anew since. Then the node looks at its files, and compares what it has with what the
//! namenode expects. A page of that may be older than an order to drop a block, so what seems to be
//! missing is looked for once more, in a page that was asked for after it was missed.

use sanderling_protocol::BlockId;
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::order::{DamagedBlock, HeldBlock};

use crate::fence::BlockTable;

/// A block report that is under way. It ends early when a call of it fails.
#[derive(Debug, Clone)]
pub struct Report {
    page_max: usize,
    stage: Stage,
    dropped: u64,
}

#[derive(Debug, Clone)]
enum Stage {
    Held { after: BlockId, page: Vec<HeldBlock> },
    Probe,
    Expected { after: BlockId, suspects: Option<Vec<DamagedBlock>> },
    Done,
}

/// What to do next for a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportStep {
    /// Send these blocks, then call [`Report::unwanted`].
    Held(Vec<HeldBlock>),
    /// Look whether the bytes of all blocks are there, as far as that takes no reading, and have
    /// all damage reported again; then call [`Report::probed`].
    Probe,
    /// Ask what must be here, then call [`Report::expected`].
    Expected {
        /// Blocks after this one.
        after: BlockId,
        /// Most blocks in the page.
        limit: u32,
    },
    /// Nothing: the namenode has heard of everything.
    Done,
}

impl Default for Report {
    fn default() -> Self {
        Self::in_pages_of(BLOCKS_PER_PAGE_MAX)
    }
}

impl Report {
    /// Starts a report with so many blocks in a page: at least one, at most
    /// [`BLOCKS_PER_PAGE_MAX`].
    #[must_use]
    pub fn in_pages_of(page_max: usize) -> Self {
        let stage = Stage::Held { after: BlockId(0), page: Vec::new() };
        Self { page_max: page_max.clamp(1, BLOCKS_PER_PAGE_MAX), stage, dropped: 0 }
    }

    /// Returns how many blocks nobody wanted so far.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns what to do now.
    pub fn next<B: Clone>(&mut self, table: &BlockTable<B>) -> ReportStep {
        match &mut self.stage {
            Stage::Held { after, page } => {
                *page = table.list(*after, self.page_max);
                match page.last() {
                    Some(last) => {
                        *after = last.block;
                        ReportStep::Held(page.clone())
                    }
                    None => {
                        self.stage = Stage::Probe;
                        ReportStep::Probe
                    }
                }
            }
            Stage::Probe => ReportStep::Probe,
            Stage::Expected { after, .. } => {
                let limit = u32::try_from(self.page_max).expect("a page has a few thousand blocks");
                ReportStep::Expected { after: *after, limit }
            }
            Stage::Done => ReportStep::Done,
        }
    }

    /// Takes which of the blocks that were sent last nobody wants. Returns those that are to be
    /// dropped if they are still held at that epoch.
    pub fn unwanted(&mut self, mut unwanted: Vec<BlockId>) -> Vec<HeldBlock> {
        let Stage::Held { page, .. } = &mut self.stage else { return Vec::new() };
        unwanted.sort_unstable();
        let mut page = std::mem::take(page);
        page.retain(|held| unwanted.binary_search(&held.block).is_ok());
        self.dropped += page.len() as u64;
        page
    }

    /// Takes that all bytes were looked for.
    pub fn probed(&mut self) {
        self.stage = Stage::Expected { after: BlockId(0), suspects: None };
    }

    /// Takes that the namenode is of a release that cannot say what must be here. The report ends
    /// without a comparison: to make it again at once would send everything again for nothing.
    pub fn not_comparable(&mut self) {
        self.stage = Stage::Done;
    }

    /// Takes a page of what must be here; `is_more`: blocks follow it. Returns what is missing for
    /// sure: nothing at the first miss, which is looked for once more.
    pub fn expected<B: Clone>(
        &mut self,
        table: &BlockTable<B>,
        expected: &[HeldBlock],
        is_more: bool,
    ) -> Vec<DamagedBlock> {
        let Stage::Expected { after, suspects } = &mut self.stage else { return Vec::new() };
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
        // A page that does not go on would be asked for again and again.
        match expected.last().filter(|last| is_more && last.block > *after) {
            Some(last) => *after = last.block,
            None => self.stage = Stage::Done,
        }
        lacking
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::order::Damage;
    use sanderling_protocol::{Epoch, Tier};

    use super::*;
    use crate::fence::StoreRequest;

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

    /// Returns a report that has told what is held.
    fn compares(table: &BlockTable<()>) -> Report {
        let mut report = Report::in_pages_of(2);
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
    fn everything_is_told_page_by_page_and_then_compared() {
        let table = table(1..=5);
        let mut report = Report::in_pages_of(2);
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
        let mut report = Report::in_pages_of(2);
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
        assert_eq!(report.next(&table), page_after(0), "it is asked for once more");
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
