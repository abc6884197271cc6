//! The directory of one member.

use std::collections::BTreeMap;

use sanderling_core::replica::{
    Group, LogEntry, LogPlace, MemberRecord, Payload, Persist, PersistStep, Restored,
    SyncRequirement, Vote, is_log_stale,
};
use sanderling_protocol::Instant;

use crate::InjectedBug;
use crate::random::Random;

/// The state that a member has applied: what a snapshot contains.
#[derive(Debug, Clone, Default)]
pub(super) struct AppliedState {
    pub(super) place: LogPlace,
    pub(super) rounds: Vec<u64>,
    pub(super) group: Group,
    pub(super) at: Instant,
}

/// What a start finds.
#[derive(Debug, Clone, Default)]
struct DirectoryImage {
    record: MemberRecord,
    /// What the snapshots and the journal of the catalog have, by the last entry.
    states: BTreeMap<u64, AppliedState>,
    /// The index of the log's first entry.
    first: u64,
    entries: BTreeMap<u64, LogEntry>,
}

/// Steps that are done, and that a crash of the machine loses.
#[derive(Debug, Clone)]
struct UnsyncedSteps {
    steps: Vec<PersistStep>,
    /// The record in memory, if it is written with them.
    record: Option<MemberRecord>,
    received: Option<AppliedState>,
}

/// What a member has written, and what of it survives a crash of the machine.
#[derive(Debug, Clone)]
pub(super) struct MemberDisk {
    /// What the process has in memory of its record.
    record: MemberRecord,
    synced: DirectoryImage,
    unsynced: Vec<UnsyncedSteps>,
    is_synced: bool,
    /// Draws behind which step of a write a process ends. `None` where all steps of a write, and
    /// what is only in memory, are whole and in one file.
    ends: Option<Random>,
    bug: Option<InjectedBug>,
}

impl MemberDisk {
    pub(super) fn new(
        base: AppliedState,
        is_synced: bool,
        ends: Option<Random>,
        bug: Option<InjectedBug>,
    ) -> Self {
        let is_first = base.place.index != 0;
        let place = base.place;
        let vote = Vote { term: place.term, candidate: None, committed: place.index };
        let vote = if is_first { vote } else { Vote::default() };
        let record = MemberRecord { vote, start: place, group: base.group.clone() };
        let synced = DirectoryImage {
            record: record.clone(),
            states: [(place.index, base)].into(),
            first: place.index + 1,
            entries: BTreeMap::new(),
        };
        Self { record, synced, unsynced: Vec::new(), is_synced, ends, bug }
    }

    pub(super) fn write(&mut self, persist: Persist, received: Option<AppliedState>) {
        let must_sync = match persist.durability {
            SyncRequirement::Always => true,
            SyncRequirement::Log => self.is_synced,
            SyncRequirement::None => false,
        };
        let steps = self.record.persist(persist);
        if self.ends.is_some() {
            for step in steps {
                self.execute(step, received.as_ref());
            }
            return;
        }
        let record = Some(self.record.clone());
        self.unsynced.push(UnsyncedSteps { steps, record, received });
        if must_sync {
            self.sync();
        }
    }

    /// Does a step as a server does: of all of them, only what is appended may not be synced.
    fn execute(&mut self, step: PersistStep, received: Option<&AppliedState>) {
        match step {
            PersistStep::Append(_) if !self.is_synced => {
                let steps = vec![step];
                self.unsynced.push(UnsyncedSteps { steps, record: None, received: None });
                return;
            }
            PersistStep::RestartLog { .. } => self.unsynced.clear(),
            _ => {}
        }
        self.synced.apply(step, &self.record, received, self.bug);
    }

    fn sync(&mut self) {
        for steps in std::mem::take(&mut self.unsynced) {
            self.synced.fold(steps, self.bug);
        }
    }

    /// Ends the process. Of what it was writing, the first steps are done.
    pub(super) fn end(&mut self, writing: Vec<Persist>, received: &BTreeMap<u64, AppliedState>) {
        let Some(mut ends) = self.ends.take() else { return };
        for persist in writing {
            let place = persist.snapshot.as_ref().map(|(place, _)| place.index);
            let state = place.and_then(|index| received.get(&index));
            let steps = self.record.persist(persist);
            let (done, all) = (ends.below(steps.len() as u64 + 1) as usize, steps.len());
            for step in steps.into_iter().take(done) {
                self.execute(step, state);
            }
            if done < all {
                break;
            }
        }
        self.ends = Some(ends);
    }

    /// Loses what is not synced, but for the first records.
    pub(super) fn crash(&mut self, kept: u64) {
        let count = self.unsynced.len() as u64;
        self.unsynced.truncate(kept.checked_rem(count + 1).unwrap_or(0) as usize);
    }

    /// Replaces the log up to a snapshot by it.
    pub(super) fn compact(&mut self, state: AppliedState) {
        if self.ends.is_none() {
            self.sync();
        }
        let steps = self.record.forget(state.place, state.group.clone());
        self.go_on_from(state, steps);
    }

    /// Keeps the members as of a change that the member has applied. What is in one file has them
    /// in the log.
    pub(super) fn change_group(&mut self, state: &AppliedState) {
        if self.ends.is_some() {
            let steps = self.record.change_group(state.place, state.group.clone());
            self.go_on_from(state.clone(), steps);
        }
    }

    fn go_on_from(&mut self, state: AppliedState, steps: impl IntoIterator<Item = PersistStep>) {
        self.synced.states.insert(state.place.index, state);
        for step in steps {
            self.execute(step, None);
        }
    }

    /// Returns why no process can start on the directory; `None` if one can.
    pub(super) fn fault(&self) -> Option<String> {
        let image = self.image();
        let MemberRecord { vote, start, .. } = &image.record;
        if image.states.get(&start.index).is_none_or(|state| state.place != *start) {
            return Some(format!("it goes on from {start}, and has no catalog of there"));
        }
        if image.first > start.index + 1 {
            return Some(format!("it goes on from {start}, and its log from {}", image.first));
        }
        let last = image.entries.values().next_back()?.place;
        let is_known = last.term <= vote.term;
        (!is_known).then(|| format!("it is in term {}, and its log ends at {last}", vote.term))
    }

    fn image(&self) -> DirectoryImage {
        let mut image = self.synced.clone();
        for steps in &self.unsynced {
            image.fold(steps.clone(), self.bug);
        }
        image
    }

    /// Returns what a process finds at its start. `applied` is the last entry that the process
    /// before has applied: the journal has that.
    pub(super) fn start(&mut self, applied: u64) -> (Restored, AppliedState, Instant) {
        let mut image = self.image();
        let (start, next) = (image.record.start, image.next());
        image.entries = image.entries.split_off(&(start.index + 1));
        let first = image.entries.values().next().map(|entry| entry.place);
        if is_log_stale(start, first, next) {
            image.entries.clear();
        }
        let base = image.states.remove(&start.index).unwrap_or_default();
        let times = image.entries.values().filter_map(|entry| match entry.payload {
            Payload::Round { at, .. } => Some(at),
            _ => None,
        });
        let floor = times.chain([base.at]).max().unwrap_or_default();
        let applied = if self.ends.is_some() { applied } else { 0 };
        let mut restored = image.record.restored(image.entries.into_values().collect(), applied);
        if self.bug == Some(InjectedBug::VoteForgotten) {
            let last = restored.entries.last().map_or(start, |entry| entry.place);
            (restored.vote.candidate, restored.vote.term) = (None, last.term);
        }
        self.record = image.record;
        (restored, base, floor)
    }
}

impl DirectoryImage {
    /// Returns the index of the log's next entry.
    fn next(&self) -> u64 {
        self.entries.keys().next_back().map_or(self.first, |last| last + 1)
    }

    fn apply(
        &mut self,
        step: PersistStep,
        record: &MemberRecord,
        received: Option<&AppliedState>,
        bug: Option<InjectedBug>,
    ) {
        match step {
            PersistStep::PublishSnapshot(place) => {
                self.states.extend(received.map(|state| (place.index, state.clone())));
            }
            PersistStep::WriteRecord => {
                self.record = record.clone();
                self.states = self.states.split_off(&record.start.index);
            }
            PersistStep::RestartLog { first } => {
                self.entries.clear();
                self.first = first;
            }
            PersistStep::Append(entries) => self.append(entries, bug),
            PersistStep::ForgetLog { before } => {
                self.entries = self.entries.split_off(&before);
                self.first = before;
            }
        }
    }

    fn append(&mut self, entries: Vec<LogEntry>, bug: Option<InjectedBug>) {
        let is_cut = bug != Some(InjectedBug::TailNotCut);
        if let Some(first) = entries.first().filter(|_| is_cut) {
            self.entries.split_off(&first.place.index);
        }
        for entry in entries {
            let index = entry.place.index;
            if is_cut || !self.entries.contains_key(&index) {
                self.entries.insert(index, entry);
            }
        }
    }

    fn fold(&mut self, unsynced: UnsyncedSteps, bug: Option<InjectedBug>) {
        let UnsyncedSteps { steps, record, received } = unsynced;
        let record = record.unwrap_or_else(|| self.record.clone());
        for step in steps {
            self.apply(step, &record, received.as_ref(), bug);
        }
        self.record = record;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    type Write = fn(&mut MemberRecord) -> Vec<PersistStep>;

    const SNAPSHOT: LogPlace = at(2, 20);

    const fn at(term: u64, index: u64) -> LogPlace {
        LogPlace { term, index }
    }

    fn state(place: LogPlace) -> AppliedState {
        AppliedState { place, ..AppliedState::default() }
    }

    fn persist(term: u64, entries: std::ops::RangeInclusive<u64>) -> Persist {
        let entry = |index| LogEntry { place: at(term, index), payload: Payload::Empty };
        let vote = Some(Vote { term, candidate: None, committed: 1 });
        let (entries, durability) = (entries.map(entry).collect(), SyncRequirement::Always);
        Persist { number: 1, vote, snapshot: None, entries, durability }
    }

    fn snapshot(term: u64, entries: std::ops::RangeInclusive<u64>) -> Persist {
        Persist { snapshot: Some((SNAPSHOT, Group::default())), ..persist(term, entries) }
    }

    /// A directory whose log has the entries 2 to 30 of term 1.
    fn written() -> MemberDisk {
        let mut disk = MemberDisk::new(state(at(1, 1)), true, Some(Random::new(1, 1)), None);
        disk.write(persist(1, 2..=30), None);
        disk.synced.states.extend([(5, state(at(1, 5)))]);
        assert_eq!(disk.fault(), None);
        disk
    }

    /// Every kind of a write: entries of a new term in place of others, a snapshot, one with
    /// entries behind it, a change of the members, and the end of what the log keeps.
    const WRITES: [Write; 5] = [
        |record| record.persist(persist(2, 6..=8)),
        |record| record.persist(Persist { entries: Vec::new(), ..snapshot(2, 0..=0) }),
        |record| record.persist(snapshot(3, 21..=22)),
        |record| record.change_group(at(1, 5), Group::default()).to_vec(),
        |record| record.forget(at(1, 5), Group::default()).to_vec(),
    ];

    #[test]
    fn member_starts_behind_each_step_of_a_write() {
        for write in WRITES {
            let steps = write(&mut written().record);
            for done in 0..=steps.len() {
                let mut disk = written();
                for step in write(&mut disk.record).into_iter().take(done) {
                    disk.execute(step, Some(&state(SNAPSHOT)));
                }
                assert_eq!(disk.fault(), None, "{done} of {steps:?}");
                let (restored, base, _) = disk.start(0);
                assert_eq!(restored.start, base.place, "{done} of {steps:?}");
                let is_of_record = |entry: &LogEntry| entry.place.term >= restored.start.term;
                assert!(restored.entries.iter().all(is_of_record), "{done} of {steps:?}");
            }
        }
    }

    /// The check above is seen to fail.
    #[test]
    fn member_does_not_start_behind_some_step_of_a_write_in_another_order() {
        for write in WRITES {
            let mut disk = written();
            let steps = write(&mut disk.record);
            let mut faults = Vec::new();
            for step in steps.iter().rev().cloned() {
                disk.execute(step, Some(&state(SNAPSHOT)));
                faults.extend(disk.fault());
            }
            assert_eq!(faults.is_empty(), steps.len() == 1, "{steps:?}: {faults:?}");
        }
    }

    #[test]
    fn process_that_ends_has_done_the_first_steps_and_forgets_what_was_in_memory() {
        let agreed = Persist {
            vote: Some(Vote { term: 1, candidate: None, committed: 9 }),
            durability: SyncRequirement::None,
            entries: Vec::new(),
            ..persist(1, 0..=0)
        };
        let received = BTreeMap::from([(SNAPSHOT.index, state(SNAPSHOT))]);
        let mut places = BTreeSet::new();
        for seed in 0..50 {
            let mut disk = written();
            disk.ends = Some(Random::new(seed, 1));
            disk.end(vec![agreed.clone(), snapshot(2, 21..=22)], &received);
            assert_eq!(disk.fault(), None, "seed {seed}");
            let (restored, ..) = disk.start(7);
            let (start, last) = (restored.start, restored.entries.last());
            let committed = if start == SNAPSHOT { 20 } else { 7 };
            assert_eq!(restored.vote.committed, committed, "seed {seed}");
            places.insert((start, last.map(|entry| entry.place)));
        }
        let expected = BTreeSet::from([
            (at(1, 1), Some(at(1, 30))),
            (SNAPSHOT, None),
            (SNAPSHOT, Some(at(2, 22))),
        ]);
        assert_eq!(places, expected);
    }
}
