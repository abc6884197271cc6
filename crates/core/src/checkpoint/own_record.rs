//! When an agent of a bag writes its own record, and what follows if that is not done.

use sanderling_protocol::{Instant, Millis};

use super::agent_work::AgentLoad;
use super::lock::RENEWALS;

/// Pause between two records of an agent that began and ended no task meanwhile, and between two
/// looks whether its bag is there. Chosen, not measured: each record and each look is a request.
pub(super) const RECORD_EVERY: Millis = Millis(5000);

/// The record of an agent, as far as it is written.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnRecord {
    /// The load of the record that is being written: one at most.
    writing: Option<AgentLoad>,
    /// When the last one was written, and its load.
    written: Option<(Instant, AgentLoad)>,
    /// When the last write began or ended.
    tried: Option<Instant>,
    /// Since when the agent tries to write one.
    unwritten_since: Option<Instant>,
}

impl OwnRecord {
    /// Returns whether a record with this load is written from `now` on: if the tasks are others
    /// than in the last one, or that is [`RECORD_EVERY`] old, and none is under way.
    pub(super) fn begin(&mut self, now: Instant, load: &AgentLoad) -> bool {
        let is_due =
            |(at, before): &(Instant, AgentLoad)| now.since(*at) >= RECORD_EVERY || before != load;
        self.written.as_ref().is_none_or(is_due) && self.write(now, load)
    }

    /// Does the same in the middle of a round, which may be long: only if the last write, which may
    /// have failed, is [`RECORD_EVERY`] old.
    pub(super) fn renew(&mut self, now: Instant, load: &AgentLoad) -> bool {
        self.tried.is_none_or(|at| now.since(at) >= RECORD_EVERY) && self.write(now, load)
    }

    /// Begins a write, unless one is under way.
    fn write(&mut self, now: Instant, load: &AgentLoad) -> bool {
        if self.writing.is_some() {
            return false;
        }
        self.unwritten_since.get_or_insert(now);
        self.tried = Some(now);
        self.writing = Some(load.clone());
        true
    }

    /// Takes the end of the write that is under way.
    pub(super) fn ended(&mut self, now: Instant, is_stored: bool) {
        let load = self.writing.take();
        assert!(load.is_some(), "a write that ends has begun");
        self.tried = Some(now);
        if is_stored {
            self.written = load.map(|load| (now, load));
            self.unwritten_since = None;
        }
    }

    /// Returns whether none could be written for as long as a runner counts on its lock. A lock is
    /// written as this record is, so none could be renewed either.
    pub(super) fn is_overdue(&self, now: Instant, lock_age: Millis) -> bool {
        let counts_on = Millis(lock_age.0.saturating_mul(RENEWALS - 1) / RENEWALS);
        self.unwritten_since.is_some_and(|since| now.since(since) >= counts_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Millis = Millis(30_000);

    fn at(millis: u64) -> Instant {
        Instant(0) + Millis(millis)
    }

    fn load(running: &[u32]) -> AgentLoad {
        AgentLoad { running: running.to_vec(), has_room: true }
    }

    #[test]
    fn record_is_written_when_tasks_change_and_every_five_seconds() {
        let mut record = OwnRecord::default();
        assert!(record.begin(at(0), &load(&[])));
        record.ended(at(100), true);
        assert!(!record.begin(at(5099), &load(&[])));
        assert!(record.begin(at(5100), &load(&[])));
        record.ended(at(5200), true);
        assert!(record.begin(at(5300), &load(&[1])), "it runs another task");
        record.ended(at(5400), true);
        let full = AgentLoad { has_room: false, ..load(&[1]) };
        assert!(record.begin(at(5500), &full), "it has no room any more");
    }

    #[test]
    fn one_record_is_written_at_a_time_and_a_failed_one_again() {
        let mut record = OwnRecord::default();
        assert!(record.begin(at(0), &load(&[])));
        assert!(!record.begin(at(60_000), &load(&[1])), "one is under way");
        record.ended(at(60_000), false);
        assert!(record.begin(at(60_000), &load(&[1])));
    }

    #[test]
    fn record_is_renewed_in_the_middle_of_a_round_every_five_seconds() {
        let mut record = OwnRecord::default();
        assert!(record.begin(at(0), &load(&[])));
        record.ended(at(100), false);
        assert!(!record.renew(at(5099), &load(&[1])), "the next round tries it again");
        assert!(record.renew(at(5100), &load(&[1])));
        assert!(!record.renew(at(10_200), &load(&[1])), "one is under way");
        record.ended(at(10_200), true);
        assert!(!record.renew(at(15_199), &load(&[])), "the next round writes what has changed");
        assert!(record.renew(at(15_200), &load(&[])));
    }

    #[test]
    fn record_that_is_not_written_for_two_thirds_of_the_age_is_overdue() {
        let mut record = OwnRecord::default();
        assert!(!record.is_overdue(at(90_000), AGE), "none was to be written");
        assert!(record.begin(at(1000), &load(&[])));
        record.ended(at(9000), false);
        assert!(record.begin(at(9000), &load(&[])));
        assert!(!record.is_overdue(at(20_999), AGE));
        assert!(record.is_overdue(at(21_000), AGE), "a failed write does not count");
        record.ended(at(22_000), true);
        assert!(!record.is_overdue(at(90_000), AGE));
    }
}
