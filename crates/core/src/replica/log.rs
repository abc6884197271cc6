//! The log in memory, as the library reads it.

use std::cell::Cell;
use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::storage::{GetEntriesContext, RaftState, Storage};
use raft::{Error, StorageError};

use sanderling_protocol::MemberId;

use super::entry::LogPlace;
use super::group::Group;
use super::raft_types;

/// Entries behind `start`, and the snapshot for members that lag more.
pub(super) struct Log {
    start: LogPlace,
    entries: VecDeque<Entry>,
    bytes: u64,
    state: RaftState,
    snapshot: Option<(LogPlace, Group)>,
    is_snapshot_needed: Cell<bool>,
    snapshot_used: Cell<Option<u64>>,
}

impl Log {
    pub(super) fn new(start: LogPlace, vote: HardState, group: ConfState) -> Self {
        let state = RaftState::new(vote, group);
        let (entries, bytes) = (VecDeque::new(), 0);
        let (is_snapshot_needed, snapshot_used) = (Cell::new(false), Cell::new(None));
        Self { start, entries, bytes, state, snapshot: None, is_snapshot_needed, snapshot_used }
    }

    fn first(&self) -> u64 {
        self.start.index + 1
    }

    pub(super) fn last(&self) -> u64 {
        self.start.index + self.entries.len() as u64
    }

    /// Appends entries, in place of what is there from the first of them on.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            (self.first()..=self.last() + 1).contains(&first.index),
            "entry {} is appended to {} to {}",
            first.index,
            self.first(),
            self.last()
        );
        let keep = (first.index - self.first()) as usize;
        for entry in self.entries.drain(keep..) {
            self.bytes -= raft_types::bytes(&entry);
        }
        self.bytes += entries.iter().map(raft_types::bytes).sum::<u64>();
        self.entries.extend(entries.iter().cloned());
    }

    /// Forgets all entries: a snapshot that was received replaces them.
    pub(super) fn restart(&mut self, start: LogPlace) {
        (self.start, self.bytes) = (start, 0);
        self.entries.clear();
    }

    /// Forgets entries up to `index`, the last one kept for its term.
    pub(super) fn forget(&mut self, index: u64) {
        while self.start.index < index.min(self.last()) {
            self.forget_first();
        }
    }

    /// Forgets applied entries until the log is within its bound.
    pub(super) fn shrink(&mut self, bytes_max: u64, applied: u64) {
        while self.bytes > bytes_max && self.start.index < applied.min(self.last()) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= raft_types::bytes(&entry);
            self.start = LogPlace { term: entry.term, index: entry.index };
        }
    }

    pub(super) fn set_snapshot(&mut self, place: LogPlace, group: Group) {
        if self.snapshot.as_ref().is_none_or(|(newest, _)| newest.index <= place.index) {
            self.snapshot = Some((place, group));
        }
    }

    pub(super) fn snapshot_group(&self, index: u64) -> Option<&Group> {
        let (place, group) = self.snapshot.as_ref()?;
        (place.index == index).then_some(group)
    }

    /// Returns whether a member needs a snapshot that is not there; only once for each need.
    pub(super) fn take_snapshot_need(&self) -> bool {
        self.is_snapshot_needed.take()
    }

    /// Returns the last entry of the snapshot that was given to a member; only once for each.
    pub(super) fn take_snapshot_use(&self) -> Option<u64> {
        self.snapshot_used.take()
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn place(&self, index: u64) -> Option<LogPlace> {
        let term = self.term(index).ok()?;
        Some(LogPlace { term, index })
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(self.state.clone())
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        bytes_max: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.first() {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let bytes_max = bytes_max.into().unwrap_or(u64::MAX);
        let range = (low - self.first()) as usize..(high - self.first()) as usize;
        let mut bytes = 0;
        // The first one whatever it takes: otherwise a long one would never be sent.
        let fits = |(at, entry): &(usize, &Entry)| {
            bytes += raft_types::bytes(entry);
            *at == 0 || bytes <= bytes_max
        };
        let entries = self.entries.range(range).enumerate().take_while(fits);
        Ok(entries.map(|(_, entry)| entry.clone()).collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.start.index {
            return Ok(self.start.term);
        }
        if index < self.start.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        let entry = self.entries.get((index - self.first()) as usize);
        entry.map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, at_least: u64, to: u64) -> raft::Result<Snapshot> {
        let at_least = at_least.max(self.start.index);
        match &self.snapshot {
            // One from before the member was added would be refused by it.
            Some((place, group))
                if place.index >= at_least && group.member(MemberId(to)).is_some() =>
            {
                self.snapshot_used.set(Some(place.index));
                Ok(raft_types::snapshot(*place, group))
            }
            _ => {
                self.is_snapshot_needed.set(true);
                Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}
