//! The namenode's directory: what its disk has of the journal, the snapshot, and an older copy.
//!
//! Under `--sync os` a change is acknowledged before the disk has it. The end of a process takes
//! nothing, since the kernel has what was written; a crash of the machine takes what the disk does
//! not have.

use std::ops::Range;

use sanderling_core::catalog::{Action, Catalog, Command};
use sanderling_core::namenode::Unwritten;
use sanderling_protocol::Instant;
use sanderling_protocol::frame::decode_body;

use crate::plan::{FaultKind, Sync};
use crate::wire::Host;
use crate::world::World;

/// A snapshot as it is on the disk.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    format: u32,
    bytes: Vec<u8>,
    /// The records that it has.
    pub(crate) records: usize,
}

impl Snapshot {
    /// Writes a snapshot of a catalog as a program of that format does.
    pub(crate) fn of(catalog: &Catalog, format: u32, records: usize) -> Self {
        let bytes = catalog.earlier(format).expect("a format that is read");
        Self { format, bytes, records }
    }

    /// Reads it, whatever its format.
    pub(crate) fn read(&self) -> Catalog {
        let lacks = Catalog::completion(self.format).expect("a format that is read");
        decode_body(&[&self.bytes[..], &lacks].concat()).expect("what was written can be read")
    }
}

/// What is known of the directory beside its records.
#[derive(Debug)]
pub(crate) struct Disk {
    sync: Sync,
    /// Of each record: when it was written, and how long a namenode had served by then.
    written: Vec<(u64, u64)>,
    /// Records that the disk has, whatever the time.
    settled: usize,
    /// What an operator has put aside.
    pub(crate) copy: Option<Copy>,
    /// What is missing, for the next start to find.
    pub(crate) lost: Option<Lost>,
    /// When syncs that begin do not end.
    stalled: Range<u64>,
    full_until: u64,
    /// The next sync fails: how long the process is down then, and what is there of what was not
    /// synced, in thousandths.
    pub(crate) fails: Option<(u64, u64)>,
    /// A sync has failed, which is final: the process ends with its turn.
    pub(crate) ends: Option<(u64, u64)>,
    /// When it refused something last.
    pub(crate) refused_at: u64,
}

/// An older copy of the whole directory.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    pub(crate) snapshot: Snapshot,
    pub(crate) journal: Vec<Command>,
    written: Vec<(u64, u64)>,
}

/// An end of the journal that is gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost {
    pub(crate) records: u64,
    /// Whether records that were written later were found behind a hole.
    pub(crate) is_holed: bool,
    /// When the first of them was written.
    since: u64,
}

impl Disk {
    pub(crate) const fn new(sync: Sync) -> Self {
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
    pub(crate) fn wrote(&mut self, records: usize, now: u64, served_millis: u64) {
        self.written.resize(records, (now, served_millis));
    }

    /// Notes that the disk has everything that was written.
    pub(crate) const fn settle(&mut self) {
        self.settled = self.written.len();
    }

    /// Returns how many records a crash of the machine cannot take.
    pub(crate) fn synced(&self, now: u64) -> usize {
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
    pub(crate) fn admit(&mut self, now: u64) -> Result<(), Unwritten> {
        if let Some(failed) = self.fails.take() {
            self.ends = Some(failed);
        }
        let refused = if self.ends.is_some() {
            Some(Unwritten::Unknown("a sync has failed".to_owned()))
        } else if now < self.full_until {
            Some(Unwritten::Refused("the disk is full".to_owned()))
        } else {
            let oldest = self.written.get(self.synced(now));
            let is_behind = oldest.is_some_and(|oldest| oldest.0 + self.age_max() < now);
            is_behind.then(|| Unwritten::Behind("the disk is behind".to_owned()))
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
    pub(crate) const fn stall(&mut self, now: u64, until: u64) {
        self.stalled = now..until;
    }

    /// Lets nothing be written until a time.
    pub(crate) const fn fill(&mut self, until: u64) {
        self.full_until = until;
    }

    /// Ends every fault.
    pub(crate) fn calm(&mut self) {
        (self.stalled, self.full_until, self.fails) = (0..0, 0, None);
    }

    /// Tells whether changes wait for the disk.
    pub(crate) fn is_sync_always(&self) -> bool {
        self.sync == Sync::Always
    }

    /// Returns how long a namenode had served when a record was written.
    pub(crate) fn served_millis(&self, record: usize) -> u64 {
        self.written.get(record).or(self.written.last()).map_or(0, |written| written.1)
    }

    /// Cuts the journal.
    pub(crate) fn cut(&mut self, journal: &mut Vec<Command>, keep: usize, is_holed: bool) {
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
    pub(crate) fn put_aside(&mut self, snapshot: &Snapshot, journal: &[Command]) {
        let (snapshot, journal) = (snapshot.clone(), journal.to_vec());
        self.copy = Some(Copy { snapshot, journal, written: self.written.clone() });
    }

    /// Takes the copy that was put aside; `None` if there is none.
    pub(crate) fn put_back(&mut self, records: usize) -> Option<Copy> {
        let copy = self.copy.clone()?;
        self.written.clone_from(&copy.written);
        let records = (records as u64).saturating_sub(copy.journal.len() as u64);
        // What an earlier crash had lost may be in the copy, and is there again.
        self.lost = Some(Lost { records, is_holed: false, since: 0 });
        Some(copy)
    }
}

impl World {
    /// Does something to the namenode's directory, or to its machine's clock.
    pub(crate) fn directory_fault(&mut self, kind: FaultKind) {
        match kind {
            FaultKind::CrashNamenode { down_millis, kept_permille, is_holed } => {
                self.crash_namenode(down_millis, kept_permille, is_holed);
            }
            FaultKind::CopyDirectory => self.copy_directory(),
            FaultKind::PutDirectoryBack { down_millis } => self.put_directory_back(down_millis),
            FaultKind::SlowSync { millis } => self.slow_sync(millis),
            FaultKind::FullDisk { millis } => {
                self.namenode.disk.fill(self.runtime.now() + millis * 1000)
            }
            FaultKind::FailSync { down_millis, kept_permille } => {
                self.namenode.disk.fails = Some((down_millis, kept_permille));
            }
            FaultKind::StepClock { down_millis, step_millis } => {
                self.kill(Host::Namenode, down_millis);
                self.runtime.step_clock(0, step_millis);
            }
            other => unreachable!("{other:?} is none of the directory"),
        }
    }

    /// Crashes the namenode's machine: what its disk does not have is gone, but for a share.
    pub(crate) fn crash_namenode(&mut self, down_millis: u64, kept_permille: u64, is_holed: bool) {
        self.kill(Host::Namenode, down_millis);
        let host = &mut self.namenode;
        let synced = host.disk.synced(self.runtime.now()).max(host.snapshot.records);
        let unsynced = host.journal.len().saturating_sub(synced) as u64;
        let kept = synced + (unsynced * kept_permille / 1000) as usize;
        let (records, is_holed) = (host.journal.len(), is_holed && kept_permille > 0);
        host.disk.cut(&mut host.journal, kept, is_holed);
        self.runtime.log(14, kept as u64, || {
            format!("namenode: the machine crashed, {kept} of {records} records are there")
        });
    }

    /// Lets no sync of the namenode's disk end for a while: changes that wait for it stop the
    /// writer.
    pub(crate) fn slow_sync(&mut self, millis: u64) {
        if self.namenode.disk.is_sync_always() {
            return self.namenode_freeze(millis);
        }
        self.namenode.disk.stall(self.runtime.now(), self.runtime.now() + millis * 1000);
    }

    pub(crate) fn copy_directory(&mut self) {
        let host = &mut self.namenode;
        host.disk.put_aside(&host.snapshot, &host.journal);
    }

    /// Ends the namenode and puts an older copy of its directory back.
    pub(crate) fn put_directory_back(&mut self, down_millis: u64) {
        if self.namenode.disk.copy.is_none() {
            return;
        }
        self.kill(Host::Namenode, down_millis);
        let host = &mut self.namenode;
        let Some(copy) = host.disk.put_back(host.journal.len()) else { return };
        (host.snapshot, host.journal) = (copy.snapshot, copy.journal);
        let records = host.journal.len();
        self.runtime.log(15, records as u64, || {
            format!("namenode: a copy of the directory is put back, of {records} records")
        });
    }

    /// Goes back to what is left of the log with everything that follows from it.
    pub(crate) fn lose_end(&mut self, lost: Lost) {
        self.runtime.statistics_mut().lost_ends += 1;
        if lost.is_holed {
            let at = self.namenode.journal.last().map_or(Instant(0), |command| command.at);
            let action = Action::JournalCut {
                segment: 0,
                offset: 0,
                bytes: lost.records,
                records: lost.records,
                is_accepted: false,
                why: "a hole".to_owned(),
            };
            self.namenode.journal.push(Command { at, action });
            let (records, served) = (self.namenode.journal.len(), self.served_millis());
            self.namenode.disk.wrote(records, self.runtime.now(), served);
        }
        self.checks.rewind(self.runtime.now());
        self.checks.history.lose(lost.since);
        self.namenode.machine = self.namenode.anew();
        for index in 0..self.namenode.journal.len() {
            let command = self.namenode.journal[index].clone();
            self.checks.names.served_millis = self.namenode.disk.served_millis(index);
            self.check_before(&command);
            let arriving = self.check_arriving(&command, None);
            let applied = self.namenode.machine.apply(&command);
            if !self.check_made(arriving, &applied.result) {
                self.check_again(&command, &applied);
            }
        }
        self.check_rewound();
    }
}
