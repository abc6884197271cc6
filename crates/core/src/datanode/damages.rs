//! Reports of damaged and missing blocks: which blocks the next report has, and when a report is
//! sent again.
//!
//! The block table marks the damaged blocks that it holds; blocks that are missing from the table
//! are kept here. A report is repeated until the namenode acknowledges it. Then its blocks are not
//! reported before the next block report. That one reports the damage of the table again, because
//! the namenode may be another process whose log has lost the first report.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::limits::DAMAGED_PER_REPORT_MAX;
use sanderling_protocol::order::{Damage, DamagedBlock};
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{BlockId, Epoch, Millis, Refusal};

use crate::block_table::BlockTable;
use crate::retry::doubled;

/// Pause before a report of damage that was not acknowledged is sent again; it doubles with each
/// further failure. Chosen, not measured: half of the default heartbeat period.
const PAUSE_MIN: Millis = Millis(250);

/// Longest such pause, unless the namenode requires more. Chosen, not measured: damage is declared
/// within seconds after the namenode can be reached again.
const PAUSE_MAX: Millis = Millis(4000);

/// Shortest pause that is taken from a refusal: one without any is not obeyed.
const REFUSAL_PAUSE_MIN: Millis = Millis(10);

/// Most missing blocks that are kept. Further ones are dropped: the next block report finds them
/// again. As many as one page of expected blocks has (`BLOCKS_PER_PAGE_MAX`); chosen, not measured.
const UNHELD_MAX: usize = 4096;

/// A record of which damage the namenode has acknowledged, and which blocks are missing from the
/// block table.
#[derive(Debug, Clone, Default)]
pub struct Damages {
    /// Blocks that the namenode expects here and that are missing from the table.
    unheld: BTreeMap<(BlockId, Epoch), Damage>,
    /// Blocks that the namenode has acknowledged since the last block report.
    taken: BTreeSet<(BlockId, Epoch)>,
    /// Number of calls of [`Damages::report_again`].
    round: u64,
    is_under_way: bool,
    /// Reports since the last acknowledgement that were not acknowledged.
    failures: u32,
}

/// One report of damage. Pass it to [`Damages::reported`] with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamageReport {
    /// The blocks: at least one, at most [`DAMAGED_PER_REPORT_MAX`].
    pub blocks: Vec<DamagedBlock>,
    round: u64,
}

impl Damages {
    /// Adds a block that the namenode expects here and that is missing from the table. Returns
    /// false if the block is known at this epoch, and if 4096 others are kept: then nothing is
    /// added, and the caller needs to do nothing, because the next block report finds the block.
    pub fn add(&mut self, damaged: DamagedBlock) -> bool {
        let DamagedBlock { block, epoch, damage } = damaged;
        let has_room = self.unheld.len() < UNHELD_MAX;
        has_room && self.unheld.insert((block, epoch), damage).is_none()
    }

    /// Forgets what the namenode has acknowledged, so that all damage is reported again. Called at
    /// each block report: the namenode may be another process.
    pub fn report_again(&mut self) {
        self.taken.clear();
        self.round += 1;
    }

    /// Forgets all damage: the node begins again as an incarnation without blocks.
    pub fn forget(&mut self) {
        self.unheld.clear();
        self.report_again();
    }

    /// Returns the next report: damage that the namenode has not acknowledged, blocks of the table
    /// first, up to [`DAMAGED_PER_REPORT_MAX`]. Returns `None` if there is none, and while the
    /// outcome of the last report was not handed to [`Self::reported`].
    pub fn next<B: Clone>(&mut self, table: &BlockTable<B>) -> Option<DamageReport> {
        if self.is_under_way {
            return None;
        }
        let mut blocks = self.held(table);
        let room = DAMAGED_PER_REPORT_MAX - blocks.len();
        let unheld = self.unheld.iter().take(room);
        let unheld = unheld.map(|(&(block, epoch), &damage)| DamagedBlock { block, epoch, damage });
        blocks.extend(unheld);
        self.is_under_way = !blocks.is_empty();
        self.is_under_way.then_some(DamageReport { blocks, round: self.round })
    }

    /// Returns damaged blocks of the table that the namenode has not acknowledged.
    fn held<B: Clone>(&self, table: &BlockTable<B>) -> Vec<DamagedBlock> {
        let (mut after, mut blocks) = (BlockId(0), Vec::new());
        loop {
            let page = table.damaged(after, DAMAGED_PER_REPORT_MAX);
            let Some(last) = page.last() else { return blocks };
            after = last.block;
            let is_new = |it: &DamagedBlock| !self.taken.contains(&(it.block, it.epoch));
            blocks.extend(page.into_iter().filter(is_new));
            if blocks.len() >= DAMAGED_PER_REPORT_MAX {
                blocks.truncate(DAMAGED_PER_REPORT_MAX);
                return blocks;
            }
        }
    }

    /// Handles the outcome of a report. `is_taken`: the namenode acknowledged it; if not, call
    /// [`Self::next`] again after [`Self::pause`]. An acknowledgement that arrives after
    /// [`Self::report_again`] counts for nothing: it may be from the namenode process before.
    pub fn reported(&mut self, report: &DamageReport, is_taken: bool) {
        self.is_under_way = false;
        self.failures = if is_taken { 0 } else { self.failures.saturating_add(1) };
        if is_taken && report.round == self.round {
            for DamagedBlock { block, epoch, .. } in &report.blocks {
                self.taken.insert((*block, *epoch));
                self.unheld.remove(&(*block, *epoch));
            }
        }
    }

    /// Returns how long to wait before the next report, after one that was not acknowledged: as
    /// long as the refusal requires, else 250 ms, twice as long after each further failure up to
    /// 4 s. `refusal` is `None` if there was no answer.
    #[must_use]
    pub fn pause(&self, refusal: Option<&Refusal>) -> Millis {
        if let Some(Recovery::RetryAfter(asked)) = refusal.map(Refusal::recovery) {
            return asked.max(REFUSAL_PAUSE_MIN);
        }
        doubled(PAUSE_MIN, self.failures.saturating_sub(1), PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Tier;

    use super::*;
    use crate::block_table::StoreRequest;

    fn damaged(block: u64, damage: Damage) -> DamagedBlock {
        DamagedBlock { block: BlockId(block), epoch: Epoch(1), damage }
    }

    /// Returns a table with so many blocks, all of them damaged.
    fn table(blocks: u64) -> BlockTable<()> {
        let mut table = BlockTable::default();
        for block in 1..=blocks {
            let (block, epoch, tier, bytes) = (BlockId(block), Epoch(1), Tier::Dram, 1);
            table.stored(&StoreRequest { block, epoch, tier, bytes }, ()).unwrap();
            assert!(table.mark_damaged(block, Damage::Checksum, |()| true));
        }
        table
    }

    #[test]
    fn damage_is_reported_until_it_is_taken_and_then_not_before_the_next_block_report() {
        let (table, mut damages) = (table(1), Damages::default());
        assert!(damages.add(damaged(7, Damage::Missing)));
        assert!(!damages.add(damaged(7, Damage::Missing)), "it is known");
        let report = damages.next(&table).unwrap();
        let both = [damaged(1, Damage::Checksum), damaged(7, Damage::Missing)];
        assert_eq!(report.blocks, both);
        assert_eq!(damages.next(&table), None, "one report at a time");
        damages.reported(&report, false);
        let report = damages.next(&table).unwrap();
        assert_eq!(report.blocks, both);
        damages.reported(&report, true);
        assert_eq!(damages.next(&table), None);
        damages.report_again();
        assert_eq!(damages.next(&table).unwrap().blocks, both[..1], "the table still holds it");
    }

    #[test]
    fn reports_to_an_absent_namenode_become_seldom_and_an_answer_sets_the_next_time() {
        let (table, mut damages) = (table(1), Damages::default());
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let report = damages.next(&table).unwrap();
            damages.reported(&report, false);
            pauses.push(damages.pause(None).0);
        }
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 4000, 4000]);
        // A namenode that answers sets the time.
        let asked = Refusal::RetryAfter { after: Millis(30), why: String::new() };
        assert_eq!(damages.pause(Some(&asked)), Millis(30));
        let report = damages.next(&table).unwrap();
        damages.reported(&report, true);
        damages.report_again();
        let report = damages.next(&table).unwrap();
        damages.reported(&report, false);
        assert_eq!(damages.pause(None), Millis(250));
    }

    #[test]
    fn answer_of_the_namenode_before_counts_for_nothing() {
        let (table, mut damages) = (table(1), Damages::default());
        let report = damages.next(&table).unwrap();
        damages.report_again();
        damages.reported(&report, true);
        assert!(damages.next(&table).is_some());
    }

    #[test]
    fn incarnation_that_begins_again_reports_nothing_of_the_one_before() {
        let mut damages = Damages::default();
        damages.add(damaged(7, Damage::Missing));
        damages.forget();
        assert_eq!(damages.next(&table(0)), None);
    }

    #[test]
    fn report_holds_no_more_than_a_namenode_takes_and_the_next_has_the_rest() {
        let count = DAMAGED_PER_REPORT_MAX as u64 + 3;
        let (table, mut damages) = (table(count), Damages::default());
        damages.add(damaged(count + 1, Damage::Missing));
        let report = damages.next(&table).unwrap();
        assert_eq!(report.blocks.len(), DAMAGED_PER_REPORT_MAX);
        damages.reported(&report, true);
        let report = damages.next(&table).unwrap();
        assert_eq!(report.blocks.len(), 4);
        damages.reported(&report, true);
        assert_eq!(damages.next(&table), None);
    }
}
