//! The namenode's directory: what its disk has of the journal, the snapshot, and an older copy.
//!
//! Under `--sync os` a change is acknowledged before the disk has it. The end of a process takes
//! nothing, since the kernel has what was written; a crash of the machine takes what the disk does
//! not have.

use std::ops::Range;

use sanderling_core::catalog::{Catalog, Command};
use sanderling_core::namenode::Unwritten;
use sanderling_protocol::frame::decode_body;

use crate::plan::Sync;

/// A snapshot as it is on the disk.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    format: u32,
    bytes: Vec<u8>,
    /// The records that it has.
    pub(super) records: usize,
}

impl Snapshot {
    /// Writes a snapshot of a catalog as a program of that format does.
    pub(super) fn of(catalog: &Catalog, format: u32, records: usize) -> Self {
        let bytes = catalog.earlier(format).expect("a format that is read");
        Self { format, bytes, records }
    }

    /// Reads it, whatever its format.
    pub(super) fn read(&self) -> Catalog {
        let lacks = Catalog::completion(self.format).expect("a format that is read");
        decode_body(&[&self.bytes[..], &lacks].concat()).expect("what was written can be read")
    }
}

/// What is known of the directory beside its records.
#[derive(Debug)]
pub(super) struct Disk {
    sync: Sync,
    /// Of each record: when it was written, and how long a namenode had served by then.
    written: Vec<(u64, u64)>,
    /// Records that the disk has, whatever the time.
    settled: usize,
    /// What an operator has put aside.
    pub(super) copy: Option<Copy>,
    /// What is missing, for the next start to find.
    pub(super) lost: Option<Lost>,
    /// When syncs that begin do not end.
    stalled: Range<u64>,
    full_until: u64,
    /// The next sync fails: how long the process is down then, and what is there of what was not
    /// synced, in thousandths.
    pub(super) fails: Option<(u64, u64)>,
    /// A sync has failed, which is final: the process ends after its batch.
    pub(super) ends: Option<(u64, u64)>,
    /// When it refused something last.
    pub(super) refused_at: u64,
}

/// An older copy of the whole directory.
#[derive(Debug, Clone)]
pub(super) struct Copy {
    pub(super) snapshot: Snapshot,
    pub(super) journal: Vec<Command>,
    written: Vec<(u64, u64)>,
}

/// An end of the journal that is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lost {
    pub(super) records: u64,
    /// Whether records that were written later were found behind a hole.
    pub(super) is_holed: bool,
    /// When the first of them was written.
    pub(super) since: u64,
}

impl Disk {
    pub(super) const fn new(sync: Sync) -> Self {
        Self {
            sync,
            written: Vec::new(),
            settled: 0,
            copy: None,
            lost: None,
            stalled: 0..0,
            full_until: 0,
            fails: None,
            ends: None,
            refused_at: 0,
        }
    }

    /// Notes that the journal has so many records now.
    pub(super) fn wrote(&mut self, records: usize, now: u64, served_millis: u64) {
        self.written.resize(records, (now, served_millis));
    }

    /// Notes that the disk has everything that was written.
    pub(super) const fn settle(&mut self) {
        self.settled = self.written.len();
    }

    /// Returns how many records a crash of the machine cannot take.
    pub(super) fn synced(&self, now: u64) -> usize {
        match self.sync {
            Sync::Always => self.written.len(),
            Sync::Os(lag) => {
                let until = if self.stalled.contains(&now) { self.stalled.start } else { now };
                let is_there = |written: &(u64, u64)| written.0 + lag <= until;
                self.written.partition_point(is_there).max(self.settled)
            }
        }
    }

    /// Refuses what may not be written now.
    pub(super) fn admit(&mut self, now: u64) -> Result<(), Unwritten<&'static str>> {
        if let Some(failed) = self.fails.take() {
            self.ends = Some(failed);
        }
        let refused = if self.ends.is_some() {
            Some(Unwritten::Unknown("a sync has failed"))
        } else if now < self.full_until {
            Some(Unwritten::Refused("the disk is full"))
        } else {
            let oldest = self.written.get(self.synced(now));
            let is_behind = oldest.is_some_and(|oldest| oldest.0 + self.age_max() < now);
            is_behind.then_some(Unwritten::Behind("the disk is behind"))
        };
        refused.map_or(Ok(()), |why| {
            self.refused_at = now;
            Err(why)
        })
    }

    /// Longest time that the oldest change may wait for the disk.
    const fn age_max(&self) -> u64 {
        match self.sync {
            Sync::Always => u64::MAX / 2,
            Sync::Os(lag) => lag + 100_000,
        }
    }

    /// Lets no sync end until a time.
    pub(super) const fn stall(&mut self, now: u64, until: u64) {
        self.stalled = now..until;
    }

    /// Lets nothing be written until a time.
    pub(super) const fn fill(&mut self, until: u64) {
        self.full_until = until;
    }

    /// Ends every fault.
    pub(super) fn calm(&mut self) {
        (self.stalled, self.full_until, self.fails) = (0..0, 0, None);
    }

    /// Returns whether changes wait for the disk.
    pub(super) fn is_sync_always(&self) -> bool {
        self.sync == Sync::Always
    }

    /// Returns how long a namenode had served when a record was written.
    pub(super) fn served_millis(&self, record: usize) -> u64 {
        self.written.get(record).or(self.written.last()).map_or(0, |written| written.1)
    }

    /// Cuts the journal.
    pub(super) fn cut(&mut self, journal: &mut Vec<Command>, keep: usize, is_holed: bool) {
        if keep < journal.len() {
            let records = (journal.len() - keep) as u64;
            let before = self.lost.take();
            let since = self.written.get(keep).map_or(0, |written| written.0);
            let since = before.map_or(since, |lost| lost.since.min(since));
            journal.truncate(keep);
            self.written.truncate(keep);
            let records = records + before.map_or(0, |lost| lost.records);
            self.lost = Some(Lost { records, is_holed, since });
        }
    }

    /// Puts the directory aside.
    pub(super) fn put_aside(&mut self, snapshot: &Snapshot, journal: &[Command]) {
        let (snapshot, journal) = (snapshot.clone(), journal.to_vec());
        self.copy = Some(Copy { snapshot, journal, written: self.written.clone() });
    }

    /// Takes the copy that was put aside; `None` if there is none.
    pub(super) fn put_back(&mut self, records: usize) -> Option<Copy> {
        let copy = self.copy.clone()?;
        self.written.clone_from(&copy.written);
        let records = (records as u64).saturating_sub(copy.journal.len() as u64);
        // What an earlier crash had lost may be in the copy, and is there again.
        self.lost = Some(Lost { records, is_holed: false, since: 0 });
        Some(copy)
    }
}
