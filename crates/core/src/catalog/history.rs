//! The history of the log: which starts of a namenode wrote it, and which numbers none of them has
//! given out.
//!
//! A crash can take the end of the log with it (the journal is synced in the background by default,
//! and an operator can restore an older copy of the directory). The numbers that the
//! lost part gave out (of objects, blocks, leases, jobs and nodes) must never get another meaning.
//! So each start skips more of them than the lost part can have given out, and datanodes remember
//! the newest place in the log that they received: a log without it is not a continuation.

use std::collections::BTreeSet;

use sanderling_protocol::{BlockId, Instant, LogPosition, Millis, NodeId, Term};
use serde::{Deserialize, Serialize};

use super::ids::Numbers;
use super::service_time::ServiceTime;

/// Most orphaned blocks that are remembered. Beyond it a page that is reported twice, because its
/// reply was lost, is counted twice. Each snapshot has them, at 8 bytes each: half a megabyte.
/// Sixteen full pages (`BLOCKS_PER_PAGE_MAX`) fit. Chosen, not measured.
const ORPHANS_KEPT_MAX: usize = 1 << 16;

/// Most starts that are remembered, the newest. For a datanode that has only received an older one,
/// the log counts as not continued. A start each day for almost three years. Chosen, not measured.
const STARTS_KEPT_MAX: usize = 1000;

/// Time after a start in which nodes report what they hold: several attempts to join. Datanodes try
/// every 250 ms, and a thousand of them are back after about a second (docs/SCALE.md). As long as a
/// client's call by default.
pub(crate) const SETTLE: Millis = Millis(10_000);

/// Time after a start in which the datanodes register that the log does not know: several rounds of
/// theirs, and less than what a silent node has.
pub(crate) const REGISTERED: Millis = Millis(3_000);

/// Time after a start in which no datanode drops what only a lost end of the log can have made:
/// nodes show meanwhile what it had moved to them, and an operator that has started on the wrong
/// directory can end the namenode and start on one that has more. Thrice [`SETTLE`]. Blocks that
/// were really deleted take room until then. Chosen, not measured.
pub(crate) const UNKNOWN_KEPT: Millis = Millis(30_000);

/// The starts of namenodes that wrote the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct History {
    starts: Vec<TermStart>,
    /// The term whose end was cut off last, and the commands up to there.
    cut: Option<LogPosition>,
    /// The furthest place that a node received and that this log does not contain.
    missing: Option<LogPosition>,
    /// Orphaned blocks that were counted, so that a repeated report does not count them again.
    orphans: BTreeSet<BlockId>,
}

/// One start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct TermStart {
    term: Term,
    /// Commands before its first.
    first: u64,
    /// The numbers that the log before it would have given out next: the first that were skipped.
    before: Numbers,
    /// The numbers that it began with.
    after: Numbers,
}

/// Acknowledged changes that are gone, since the cluster began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalLoss {
    /// How often.
    pub cuts: u64,
    /// Whole records that were given up.
    pub records: u64,
    /// Bytes of journal that were given up.
    pub bytes: u64,
}

impl History {
    /// Notes a start after `index` commands, which goes on with `after`.
    pub(super) fn begin_term(&mut self, term: Term, index: u64, before: Numbers, after: Numbers) {
        self.starts.push(TermStart { term, first: index, before, after });
        if self.starts.len() > STARTS_KEPT_MAX {
            self.starts.remove(0);
        }
    }

    /// Returns whether a namenode has started again.
    const fn is_restart(&self) -> bool {
        self.starts.len() > 1
    }

    /// Returns for how long nodes may still have to report what a lost end of the log has made of
    /// blocks; `None` when that is over. A home that lacks a block is not believed before.
    pub(super) fn settles_in(&self, service: &ServiceTime, now: Instant) -> Option<Millis> {
        let (now, end) = (service.at(now), service.resumed_at() + SETTLE);
        (self.is_restart() && now < end).then(|| now.until(end))
    }

    /// Returns whether the namenode has started so recently that what the log does not know stays
    /// where it is: an operator may end it and start on a directory that has more. A change of
    /// leader counts as a start, because the log of a group of one may lack its end, too.
    pub(super) fn keeps_unknown(&self, service: &ServiceTime, now: Instant) -> bool {
        self.is_restart() && service.at(now) < service.resumed_at() + UNKNOWN_KEPT
    }

    /// Returns the place in the log after `index` commands; `None` before the first start that
    /// named its term.
    pub(super) fn position(&self, index: u64) -> Option<LogPosition> {
        Some(LogPosition { term: self.starts.last()?.term, index })
    }

    /// Returns whether this log of `index` commands goes on from a place.
    pub(super) fn continues(&self, index: u64, place: LogPosition) -> bool {
        self.end_of(index, place.term).is_some_and(|end| place.index <= end)
    }

    /// Returns how many commands the log has up to the end of a term; `None` for one that it does
    /// not know.
    pub(super) fn end_of(&self, index: u64, term: Term) -> Option<u64> {
        let at = self.starts.iter().position(|start| start.term == term)?;
        let end = self.starts.get(at + 1).map_or(index, |next| next.first.saturating_sub(1));
        let cut = self.cut.filter(|cut| cut.term == term);
        Some(cut.map_or(end, |cut| cut.index.min(end)))
    }

    /// Notes that what followed the first `index` commands is gone.
    pub(super) fn cut(&mut self, index: u64) {
        self.cut = self.position(index);
    }

    /// Returns whether a block's number was skipped.
    pub(super) fn is_foreign_block(&self, block: BlockId) -> bool {
        let mut skipped = self.starts.iter().map(|start| start.before.block..start.after.block);
        skipped.any(|skipped| skipped.contains(&block.0))
    }

    /// Returns whether a node's number was skipped.
    pub(super) fn is_foreign_node(&self, node: NodeId) -> bool {
        let mut skipped = self.starts.iter().map(|start| start.before.node..start.after.node);
        skipped.any(|skipped| skipped.contains(&node.0))
    }

    /// Returns whether the log may lack an end: the last start skipped numbers. A new leader of a
    /// group skips none: its log is whole.
    pub(super) fn may_lack_end(&self) -> bool {
        self.is_restart() && self.starts.last().is_some_and(|it| it.before.node < it.after.node)
    }

    /// Returns whether a lost end of the log may have moved a node's blocks: it registered before
    /// the last start, which skipped numbers. A new leader of a group skips none: its log is whole.
    pub(super) fn may_have_moved_off(&self, node: NodeId) -> bool {
        let last = self.starts.last();
        last.is_some_and(|it| node.0 < it.before.node && it.before.node < it.after.node)
    }

    /// Returns whether the log has a record already that it does not contain a place, or one before
    /// it.
    pub(super) fn is_known_missing(&self, place: LogPosition) -> bool {
        self.missing.is_some_and(|known| {
            known == place || (known.term == place.term && known.index >= place.index)
        })
    }

    /// Notes a place that this log does not contain.
    pub(super) const fn note_missing(&mut self, place: LogPosition) {
        self.missing = Some(place);
    }

    /// Returns whether an orphaned block was counted.
    pub(super) fn is_counted(&self, orphan: BlockId) -> bool {
        self.orphans.contains(&orphan)
    }

    /// Notes that an orphaned block is counted.
    pub(super) fn count(&mut self, orphan: BlockId) {
        if self.orphans.len() < ORPHANS_KEPT_MAX {
            self.orphans.insert(orphan);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_starts_are_remembered_up_to_the_bound() {
        let numbers = super::super::ids::Ids::new().numbers(1);
        let mut history = History::default();
        for start in 1..=STARTS_KEPT_MAX as u64 {
            history.begin_term(Term(start), start, numbers, numbers);
        }
        assert!(history.end_of(u64::MAX, Term(1)).is_some());
        let next = STARTS_KEPT_MAX as u64 + 1;
        history.begin_term(Term(next), next, numbers, numbers);
        assert_eq!(history.end_of(u64::MAX, Term(1)), None);
        assert!(history.end_of(u64::MAX, Term(2)).is_some());
        assert_eq!(history.starts.len(), STARTS_KEPT_MAX);
    }
}
