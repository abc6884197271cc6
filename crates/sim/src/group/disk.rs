//! The directory of one member.

use std::collections::BTreeMap;

use sanderling_core::replica::{
    Group, LogEntry, LogPlace, Payload, Persist, Restored, SyncRequirement, Vote,
};
use sanderling_protocol::Instant;

use crate::InjectedBug;

/// The state that a member has applied: what a snapshot contains.
#[derive(Debug, Clone, Default)]
pub(super) struct AppliedState {
    pub(super) place: LogPlace,
    pub(super) rounds: Vec<u64>,
    pub(super) group: Group,
    pub(super) at: Instant,
}

#[derive(Debug, Clone, Default)]
struct DiskImage {
    vote: Vote,
    base: AppliedState,
    entries: BTreeMap<u64, LogEntry>,
}

/// What a member has written, and what of it survives a crash of the machine.
#[derive(Debug, Clone)]
pub(super) struct MemberDisk {
    synced: DiskImage,
    unsynced: Vec<(Persist, Option<AppliedState>)>,
    is_synced: bool,
    bug: Option<InjectedBug>,
}

impl MemberDisk {
    pub(super) fn new(base: AppliedState, is_synced: bool, bug: Option<InjectedBug>) -> Self {
        let is_first = base.place.index != 0;
        let place = base.place;
        let vote = Vote { term: place.term, candidate: None, committed: place.index };
        let vote = if is_first { vote } else { Vote::default() };
        let synced = DiskImage { vote, base, entries: BTreeMap::new() };
        Self { synced, unsynced: Vec::new(), is_synced, bug }
    }

    pub(super) fn write(&mut self, persist: Persist, received: Option<AppliedState>) {
        let must_sync = match persist.durability {
            SyncRequirement::Always => true,
            SyncRequirement::Log => self.is_synced,
            SyncRequirement::None => false,
        };
        self.unsynced.push((persist, received));
        if must_sync {
            self.sync();
        }
    }

    fn sync(&mut self) {
        for (persist, received) in std::mem::take(&mut self.unsynced) {
            self.synced.fold(persist, received, self.bug);
        }
    }

    /// Loses what is not synced, but for the first records.
    pub(super) fn crash(&mut self, kept: u64) {
        let count = self.unsynced.len() as u64;
        self.unsynced.truncate(kept.checked_rem(count + 1).unwrap_or(0) as usize);
    }

    /// Replaces the log up to a snapshot by it.
    pub(super) fn compact(&mut self, state: AppliedState) {
        self.sync();
        let kept = self.synced.entries.split_off(&(state.place.index + 1));
        self.synced.entries = kept;
        self.synced.base = state;
    }

    /// Returns what a process finds at its start.
    pub(super) fn read(&self) -> (Restored, AppliedState, Instant) {
        let mut image = self.synced.clone();
        for (persist, received) in &self.unsynced {
            image.fold(persist.clone(), received.clone(), self.bug);
        }
        let start = image.base.place;
        let last = image.entries.keys().next_back().copied().unwrap_or(start.index);
        let mut vote = image.vote;
        vote.committed = vote.committed.clamp(start.index, last);
        if self.bug == Some(InjectedBug::VoteForgotten) {
            vote.candidate = None;
            vote.term = image.entries.values().next_back().map_or(start.term, |it| it.place.term);
        }
        let times = image.entries.values().filter_map(|entry| match entry.payload {
            Payload::Round { at, .. } => Some(at),
            _ => None,
        });
        let floor = times.chain([image.base.at]).max().unwrap_or_default();
        let restored = Restored {
            vote,
            start,
            group: image.base.group.clone(),
            entries: image.entries.into_values().collect(),
            applied: start.index,
        };
        (restored, image.base, floor)
    }
}

impl DiskImage {
    fn fold(&mut self, persist: Persist, received: Option<AppliedState>, bug: Option<InjectedBug>) {
        let is_cut = bug != Some(InjectedBug::TailNotCut);
        if let Some(state) = received {
            self.entries.clear();
            self.base = state;
        }
        if let Some(from) = persist.truncate_from.filter(|_| is_cut) {
            self.entries.split_off(&from);
        }
        for entry in persist.entries {
            let index = entry.place.index;
            if is_cut || !self.entries.contains_key(&index) {
                self.entries.insert(index, entry);
            }
        }
        self.vote = persist.vote.unwrap_or(self.vote);
    }
}
