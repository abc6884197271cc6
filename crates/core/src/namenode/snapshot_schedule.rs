//! When a snapshot of the catalog is due, which makes the journal before it unnecessary.

use sanderling_protocol::{Instant, Millis};

/// Pause after a snapshot that failed. Chosen, not measured: a disk that is full stays full for
/// longer, and each attempt writes the whole catalog.
const PAUSE: Millis = Millis(10_000);

/// Decides when the next snapshot is due.
///
/// Sizes are in bytes. A caller that has a log without bytes may count its commands instead, in all
/// of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSchedule {
    after: u64,
    journal_max: u64,
    last: u64,
    /// After a snapshot that failed, when to try again.
    again_at: Option<Instant>,
}

impl SnapshotSchedule {
    /// Returns the schedule of a process that starts. A snapshot is due at the earliest when the
    /// journal has more than `after` behind the last one, whose size is `last`; 0 without one.
    /// `journal_max` is the room of the whole journal.
    #[must_use]
    pub const fn new(after: u64, journal_max: u64, last: u64) -> Self {
        Self { after, journal_max, last, again_at: None }
    }

    /// Returns whether a snapshot is due at `now`, with so much in the journal behind the last one.
    #[must_use]
    pub fn is_due(&self, now: Instant, journal: u64) -> bool {
        journal > self.due_size() && self.again_at.is_none_or(|again_at| again_at <= now)
    }

    /// Takes the size of a snapshot that is complete.
    pub const fn taken(&mut self, size: u64) {
        self.last = size;
    }

    /// Takes that a snapshot failed at `now`: the next attempt is due 10 s later.
    pub fn failed(&mut self, now: Instant) {
        self.again_at = Some(now + PAUSE);
    }

    /// Returns the size of the journal beyond which the next snapshot is due: as much as the last
    /// one had at least, so that snapshots cost in proportion to what changes and not to what there
    /// is. The journal before the last one stays until then, so it may take a quarter of the room.
    fn due_size(&self) -> u64 {
        let size = self.after.max(self.last);
        size.min(self.after.max(self.journal_max / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000);

    /// Returns the least size of the journal at which a snapshot is due.
    fn least(schedule: &SnapshotSchedule) -> u64 {
        (0..=20_000).find(|size| schedule.is_due(NOW, *size)).unwrap()
    }

    #[test]
    fn snapshot_is_due_when_the_journal_outgrows_the_last_one_or_a_quarter_of_its_room() {
        let mut schedule = SnapshotSchedule::new(1000, 40_000, 0);
        assert_eq!(least(&schedule), 1001);
        for (last, due) in [(500, 1001), (5000, 5001), (50_000, 10_001)] {
            schedule.taken(last);
            assert_eq!(least(&schedule), due, "{last}");
        }
        let small = SnapshotSchedule::new(1000, 400, 5000);
        assert_eq!(least(&small), 1001, "not before the size that is set");
    }

    #[test]
    fn snapshot_that_failed_is_tried_again_after_ten_seconds() {
        let mut schedule = SnapshotSchedule::new(10, u64::MAX, 0);
        assert!(schedule.is_due(NOW, 11));
        schedule.failed(NOW);
        let again = NOW + Millis(10_000);
        assert!(!schedule.is_due(Instant(again.0 - 1), 11));
        assert!(!schedule.is_due(again, 10));
        assert!(schedule.is_due(again, 11));
    }
}
