//! What a member must not forget beside its log, and the order in which record, log and snapshots
//! are written.
//!
//! They are several files, so no write of a [`Persist`] is whole by itself. A process may end
//! between any two steps, and a start goes on with what is there. So what another step relies on is
//! written before it: the catalog before the record that names its place, the record before the log
//! that begins behind that place, and a term before the entries of its leader.

use serde::{Deserialize, Serialize};

use super::entry::{LogEntry, LogPlace, Payload, Vote};
use super::group::Group;
use super::options::Restored;
use super::output::{Persist, SyncRequirement};

/// The record that a member's directory has beside the log. It is replaced as a whole, and the disk
/// always has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// The vote. In memory it may be ahead of the disk by how far the log is agreed.
    pub vote: Vote,
    /// The entry from which a start goes on: its catalog has everything up to it.
    pub start: LogPlace,
    /// The members as of `start`.
    pub group: Group,
}

/// A step of a write: done as a whole or not at all, and before the next one begins. The steps are
/// executed in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersistStep {
    /// Give the snapshot of this place, which has arrived, its name. The disk has it then.
    PublishSnapshot(LogPlace),
    /// Write the record as it is in memory, in place of the one before. The disk has it then,
    /// whatever is set for the log.
    WriteRecord,
    /// Begin the log anew, without entries. The disk has that then.
    RestartLog {
        /// The index of the next entry.
        first: u64,
    },
    /// Append these entries, in place of what the log has from the first of them on. The disk has
    /// them then if that is set for the log ([`SyncRequirement::Log`]).
    Append(Vec<LogEntry>),
    /// Remove what the log has before an entry, or a part of it.
    ForgetLog {
        /// The index of that entry.
        before: u64,
    },
}

impl MemberRecord {
    /// Takes what is to be written, and returns the steps. [`super::Replica::persisted`] follows
    /// the last one. Without steps nothing is written: how far the log is agreed can be derived.
    #[must_use]
    pub fn persist(&mut self, persist: Persist) -> Vec<PersistStep> {
        let Persist { number: _, vote, snapshot, entries, durability } = persist;
        self.vote = vote.unwrap_or(self.vote);
        let mut steps = Vec::new();
        // A change of the members in the log means that the one before it was applied: a start must
        // not take up the members before both.
        let is_change =
            |it: &LogEntry| matches!(it.payload, Payload::Change(_) | Payload::ChangeDone);
        if let Some((place, group)) = snapshot {
            // The catalog first: one that is ahead of the log skips what it has already.
            steps.push(PersistStep::PublishSnapshot(place));
            self.go_on_from(place, group);
            steps.push(PersistStep::WriteRecord);
            steps.push(PersistStep::RestartLog { first: place.index + 1 });
        } else if durability == SyncRequirement::Always || entries.iter().any(is_change) {
            steps.push(PersistStep::WriteRecord);
        }
        if !entries.is_empty() {
            steps.push(PersistStep::Append(entries));
        }
        steps
    }

    /// Takes the members as of an entry that was applied, and returns the steps that come before
    /// anything is decided by them: a start that took older ones for those of now could elect a
    /// second leader. What is before that entry is read no more.
    #[must_use]
    pub fn change_group(&mut self, place: LogPlace, group: Group) -> [PersistStep; 1] {
        self.go_on_from(place, group);
        [PersistStep::WriteRecord]
    }

    /// Lets the log begin behind an entry that was applied, with the members as of it, and returns
    /// the steps.
    #[must_use]
    pub fn forget(&mut self, place: LogPlace, group: Group) -> [PersistStep; 2] {
        self.go_on_from(place, group);
        [PersistStep::WriteRecord, PersistStep::ForgetLog { before: place.index + 1 }]
    }

    fn go_on_from(&mut self, place: LogPlace, group: Group) {
        (self.start, self.group) = (place, group);
        self.vote.committed = self.vote.committed.max(place.index);
    }

    /// Returns what a member starts with whose log has these entries behind `start`, without gaps.
    /// `applied` is the last entry that its catalog shows as agreed, 0 if it shows none.
    #[must_use]
    pub fn restored(&self, entries: Vec<LogEntry>, applied: u64) -> Restored {
        let Self { vote, start, group } = self.clone();
        let last = entries.last().map_or(start.index, |entry| entry.place.index);
        // The record may name an entry that was not written any more: it counted for nothing then.
        let committed = vote.committed.max(applied).clamp(start.index, last);
        let vote = Vote { committed, ..vote };
        Restored { vote, start, group, entries, applied: start.index }
    }
}

/// Returns whether a start drops the log that it finds, since a snapshot was to replace it: the
/// process ended behind the record and before [`PersistStep::RestartLog`]. `first` is the place of
/// the log's first entry behind `start`, and `next` the index of its next entry.
#[must_use]
pub fn is_log_stale(start: LogPlace, first: Option<LogPlace>, next: u64) -> bool {
    first.map_or(next <= start.index, |first| first.term < start.term)
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{MemberId, Nonce};

    use super::*;
    use crate::replica::MemberAddress;

    fn at(term: u64, index: u64) -> LogPlace {
        LogPlace { term, index }
    }

    fn group() -> Group {
        let address = "host:1".to_owned();
        Group::of_one(MemberAddress { http_address: address.clone(), address, nonce: Nonce(1) })
    }

    fn entries(term: u64, range: std::ops::Range<u64>, payload: &Payload) -> Vec<LogEntry> {
        let entry = |index| LogEntry { place: at(term, index), payload: payload.clone() };
        range.map(entry).collect()
    }

    fn vote(term: u64, committed: u64) -> Option<Vote> {
        Some(Vote { term, candidate: Some(MemberId(1)), committed })
    }

    const NOTHING: Persist = Persist {
        number: 1,
        vote: None,
        snapshot: None,
        entries: Vec::new(),
        durability: SyncRequirement::None,
    };

    #[test]
    fn how_far_the_log_is_agreed_is_written_with_the_next_record_and_before_a_change() {
        let mut record = MemberRecord::default();
        let agreed = Persist { vote: vote(1, 7), ..NOTHING };
        assert_eq!(record.persist(agreed), []);
        assert_eq!(record.vote.committed, 7);
        let durability = SyncRequirement::Log;
        let rounds = entries(1, 8..10, &Payload::Empty);
        let more = Persist { entries: rounds.clone(), durability, ..NOTHING };
        assert_eq!(record.persist(more), [PersistStep::Append(rounds)]);
        for payload in [Payload::ChangeDone, Payload::Change(Default::default())] {
            let change = entries(1, 10..11, &payload);
            let more = Persist { entries: change.clone(), durability, ..NOTHING };
            let steps = [PersistStep::WriteRecord, PersistStep::Append(change)];
            assert_eq!(record.persist(more), steps);
        }
    }

    #[test]
    fn vote_is_written_before_the_entries_of_its_term() {
        let mut record = MemberRecord::default();
        let (durability, rounds) = (SyncRequirement::Always, entries(3, 1..4, &Payload::Empty));
        let voted = Persist { vote: vote(3, 0), entries: rounds.clone(), durability, ..NOTHING };
        let steps = [PersistStep::WriteRecord, PersistStep::Append(rounds)];
        assert_eq!(record.persist(voted), steps);
        assert_eq!(Some(record.vote), vote(3, 0));
    }

    #[test]
    fn snapshot_has_its_name_before_the_record_and_that_is_there_before_the_log_begins_anew() {
        let mut record = MemberRecord::default();
        let (place, rounds) = (at(2, 20), entries(3, 21..23, &Payload::ChangeDone));
        let received = Persist {
            vote: vote(3, 12),
            snapshot: Some((place, group())),
            entries: rounds.clone(),
            durability: SyncRequirement::Always,
            ..NOTHING
        };
        let steps = [
            PersistStep::PublishSnapshot(place),
            PersistStep::WriteRecord,
            PersistStep::RestartLog { first: 21 },
            PersistStep::Append(rounds),
        ];
        assert_eq!(record.persist(received), steps);
        let agreed = vote(3, 20).expect("it is one");
        assert_eq!(record, MemberRecord { vote: agreed, start: place, group: group() });
    }

    #[test]
    fn record_is_there_before_the_log_forgets_what_is_before_its_place() {
        let mut record =
            MemberRecord { vote: vote(2, 9).unwrap_or_default(), ..Default::default() };
        assert_eq!(record.change_group(at(1, 4), group()), [PersistStep::WriteRecord]);
        assert_eq!((record.start, record.vote.committed), (at(1, 4), 9));
        let steps = [PersistStep::WriteRecord, PersistStep::ForgetLog { before: 13 }];
        assert_eq!(record.forget(at(2, 12), group()), steps);
        assert_eq!((record.start, record.vote.committed), (at(2, 12), 12));
    }

    #[test]
    fn start_takes_as_agreed_what_record_and_catalog_show_and_no_more_than_the_log_has() {
        let record =
            MemberRecord { vote: vote(2, 9).unwrap_or_default(), start: at(1, 4), group: group() };
        let agreed = |last: u64, applied| {
            let restored = record.restored(entries(2, 5..last + 1, &Payload::Empty), applied);
            assert_eq!((restored.start, restored.applied), (at(1, 4), 4));
            restored.vote.committed
        };
        assert_eq!([agreed(12, 0), agreed(12, 11), agreed(7, 0), agreed(4, 6)], [9, 11, 7, 4]);
    }

    #[test]
    fn log_that_a_snapshot_was_to_replace_is_dropped_and_the_leaders_own_is_kept() {
        let start = at(5, 100);
        assert!(is_log_stale(start, None, 0) && is_log_stale(start, None, 100));
        assert!(!is_log_stale(start, None, 101), "it ends there");
        assert!(is_log_stale(start, Some(at(4, 101)), 121));
        assert!(!is_log_stale(start, Some(at(5, 101)), 121));
    }
}
