//! When a snapshot takes the place of the journal before it.
//!
//! Two snapshots are kept, and the journal since the older of them: a snapshot that turns out to be
//! damaged loses nothing.

use std::fmt::Display;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use sanderling_core::namenode::SnapshotSchedule;
use sanderling_protocol::Instant;
use sanderling_transport::time_slice;
use tracing::{info, warn};

use crate::directory::{Directory, FileKind};
use crate::journal::{AppendError, Journal, JournalFailure};
use crate::options::NamenodeOptions;
use crate::recovery::measure;
use crate::snapshot::{TakeError, take};
use crate::state::NamenodeState;

/// A snapshot that a thread writes while the writer has ended.
#[derive(Debug)]
pub(crate) struct SnapshotUnderWay(JoinHandle<Result<Vec<u64>, TakeError>>);

impl SnapshotUnderWay {
    /// Waits until it is taken, or not. This takes as long as the disk takes for the whole catalog.
    pub(crate) fn wait(self) {
        if !matches!(self.0.join(), Ok(Ok(_))) {
            warn!("the last snapshot could not be taken");
        }
    }
}

/// The snapshots of a running namenode.
pub(crate) struct Snapshots {
    directory: Arc<Directory>,
    schedule: SnapshotSchedule,
    /// The start of the schedule's time. The clock of the log does not do: in a group it may go
    /// back.
    started: std::time::Instant,
    /// Those that are kept, ascending.
    kept: Vec<u64>,
    running: Option<JoinHandle<Result<Vec<u64>, TakeError>>>,
    /// The thread that syncs the journal.
    syncer: Option<JoinHandle<()>>,
}

impl Snapshots {
    /// Starts with the snapshots that a start has found, and the thread that syncs the journal.
    pub(crate) fn start(
        directory: Arc<Directory>,
        options: &NamenodeOptions,
        journal: &Journal,
        kept: Vec<u64>,
    ) -> std::io::Result<Self> {
        let newest = kept.last().map_or(0, |index| directory.bytes(FileKind::Snapshot, *index));
        let (after, journal_max) = (options.snapshot_after_bytes, options.journal_bytes_max);
        Ok(Self {
            directory,
            schedule: SnapshotSchedule::new(after, journal_max, newest),
            started: std::time::Instant::now(),
            kept,
            running: None,
            syncer: journal.lag().map(|lag| lag.start()).transpose()?,
        })
    }

    /// Returns the time of the schedule, in microseconds since the start.
    fn now(&self) -> Instant {
        Instant(u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Does what is due.
    ///
    /// # Errors
    /// [`JournalFailure`]: the journal cannot be trusted any more, and the namenode ends.
    pub(crate) fn keep(
        &mut self,
        state: &NamenodeState,
        journal: &mut Journal,
    ) -> Result<(), JournalFailure> {
        if let Some(lag) = journal.lag() {
            let (bytes, age) = lag.waiting();
            state.metrics.set_unsynced(bytes, age);
            if let Some(cause) = lag.failure() {
                return Err(journal.unsynced(cause));
            }
        }
        if let Some(running) = self.running.take_if(|running| running.is_finished()) {
            self.end(running, state, journal)?;
        }
        let may_begin = self.running.is_none() && !journal.is_empty();
        if may_begin && self.schedule.is_due(self.now(), journal.new_bytes()) {
            self.begin(state, journal)?;
        }
        Ok(())
    }

    /// Takes the catalog's image and starts the next segment; a thread writes the snapshot.
    fn begin(
        &mut self,
        state: &NamenodeState,
        journal: &mut Journal,
    ) -> Result<(), JournalFailure> {
        let namenode = state.namenode.read();
        let index = namenode.catalog().index();
        let image = namenode.catalog().image();
        drop(namenode);
        debug_assert_eq!(index, journal.index(), "only the writer applies, after the journal");
        match journal.rotate() {
            Ok(()) => {}
            Err(AppendError::Failed(failure)) => return Err(failure),
            Err(error) => {
                self.failed(state, &error.to_string());
                return Ok(());
            }
        }
        let (directory, kept) = (Arc::clone(&self.directory), self.kept.clone());
        let thread = thread::Builder::new().name("snapshot".to_owned());
        let taking = move || {
            time_slice::set(time_slice::BULK);
            take(&directory, image, &kept)
        };
        match thread.spawn(taking) {
            Ok(thread) => self.running = Some(thread),
            Err(error) => self.failed(state, &error),
        }
        Ok(())
    }

    fn end(
        &mut self,
        thread: JoinHandle<Result<Vec<u64>, TakeError>>,
        state: &NamenodeState,
        journal: &mut Journal,
    ) -> Result<(), JournalFailure> {
        match thread.join() {
            Ok(Ok(kept)) => {
                let newest = kept.last().copied().unwrap_or(0);
                self.kept = kept;
                self.schedule.taken(self.directory.bytes(FileKind::Snapshot, newest));
                if let Err(error) = measure(&self.directory, journal, newest) {
                    warn!(%error, "the journal cannot be measured");
                }
                state.metrics.snapshots.inc();
                state.metrics.set_snapshot_time(SystemTime::now());
                info!(commands = newest, journal_bytes = journal.bytes(), "snapshot taken");
            }
            Ok(Err(TakeError::Unsynced { cause, .. })) => {
                let cause = Arc::new(cause);
                return Err(journal.fail(|path| JournalFailure::Directory { path, cause }));
            }
            Ok(Err(error)) => self.failed(state, &error),
            Err(_) => self.failed(state, &"its thread panicked"),
        }
        Ok(())
    }

    fn failed(&mut self, state: &NamenodeState, why: &dyn Display) {
        state.metrics.snapshots_failed.inc();
        warn!(%why, "a snapshot could not be taken: the journal keeps growing");
        self.schedule.failed(self.now());
    }

    pub(crate) const fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Keeps a snapshot that came from the group's leader, and removes everything before it.
    pub(crate) fn adopted(&mut self, index: u64, journal: &mut Journal) -> std::io::Result<()> {
        if let Some(running) = self.running.take() {
            // It is of a catalog that is given up.
            let _ = running.join();
        }
        self.directory.prune(index, &[index])?;
        self.kept = vec![index];
        self.schedule.taken(self.directory.bytes(FileKind::Snapshot, index));
        measure(&self.directory, journal, index)
    }

    /// Syncs what was written. It does not wait for the snapshot under way, which may take longer
    /// than the machine lives.
    ///
    /// # Errors
    /// [`JournalFailure`]: what the disk has is unknown.
    pub(crate) fn finish(&mut self, journal: &mut Journal) -> Result<(), JournalFailure> {
        let synced = journal.sync();
        if let (Some(lag), Some(syncer)) = (journal.lag(), self.syncer.take()) {
            lag.close();
            if syncer.join().is_err() {
                return Err(JournalFailure::Panicked);
            }
        }
        synced
    }

    /// Returns the snapshot under way, if there is one.
    pub(crate) fn take_under_way(&mut self) -> Option<SnapshotUnderWay> {
        self.running.take().map(SnapshotUnderWay)
    }
}
