//! When the journal reaches the disk, and when a snapshot takes its place.

use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{info, warn};

use crate::directory::{Directory, Kind};
use crate::journal::Journal;
use crate::options::{NamenodeOptions, Sync};
use crate::snapshot;
use crate::state::State;

/// The background of the writer: syncs and snapshots, each on a thread of its own.
pub(crate) struct Snapshots {
    directory: Arc<Directory>,
    after_bytes: u64,
    /// Bytes of the last snapshot.
    last_bytes: u64,
    journal_bytes_max: u64,
    running: Option<JoinHandle<Result<(), String>>>,
    /// After a snapshot that failed, when to try again.
    again_at: Instant,
    syncer: Option<Syncer>,
}

/// Syncs the journal a little later than it is written.
struct Syncer {
    every: Duration,
    files: SyncSender<File>,
    failure: Arc<Mutex<Option<String>>>,
    is_dirty: bool,
    synced_at: Instant,
}

impl Snapshots {
    /// Pause after a snapshot that failed.
    const PAUSE: Duration = Duration::from_secs(10);

    pub(crate) fn start(
        directory: Arc<Directory>,
        options: &NamenodeOptions,
    ) -> std::io::Result<Self> {
        let syncer = match options.sync {
            Sync::Always => None,
            Sync::Os => Some(Syncer::start(options.sync_every)?),
        };
        Ok(Self {
            last_bytes: snapshot_bytes(&directory),
            directory,
            after_bytes: options.snapshot_after_bytes,
            journal_bytes_max: options.journal_bytes_max,
            running: None,
            again_at: Instant::now(),
            syncer,
        })
    }

    /// Notes that the journal has something that the disk may not have.
    pub(crate) fn wrote(&mut self) {
        if let Some(syncer) = &mut self.syncer {
            syncer.is_dirty = true;
        }
    }

    /// Returns the bytes of journal at which the next snapshot is due: as many as the last one had
    /// at least, so that snapshots cost in proportion to what changes and not to what there is.
    fn due_bytes(&self) -> u64 {
        let bytes = self.after_bytes.max(self.last_bytes);
        bytes.min(self.after_bytes.max(self.journal_bytes_max / 2))
    }

    /// Does what is due. An error means that the journal cannot be trusted any more.
    pub(crate) fn keep(&mut self, state: &State, journal: &mut Journal) -> Result<(), String> {
        if let Some(syncer) = &mut self.syncer
            && let Some(why) = syncer.keep(journal)
        {
            return Err(journal.fail(why).to_string());
        }
        if let Some(running) = self.running.take_if(|running| running.is_finished()) {
            self.end(running, state, journal);
        }
        let is_large = journal.bytes() > self.due_bytes() && !journal.is_empty();
        if is_large && self.running.is_none() && self.again_at <= Instant::now() {
            self.begin(state, journal);
        }
        Ok(())
    }

    /// Takes the catalog's image and starts the next segment; a thread writes the snapshot.
    fn begin(&mut self, state: &State, journal: &mut Journal) {
        let namenode = state.namenode.read();
        let index = namenode.catalog().index();
        let image = namenode.catalog().image();
        drop(namenode);
        debug_assert_eq!(index, journal.index(), "only the writer applies, after the journal");
        let rotated = journal.rotate(&self.directory).map_err(|error| error.to_string());
        let started = rotated.and_then(|()| {
            let directory = Arc::clone(&self.directory);
            let write = move || {
                let body = snapshot::encode(&image)?;
                // Every page that is written to meanwhile is copied for its sake.
                drop(image);
                snapshot::write(&directory, index, &body)
                    .and_then(|()| directory.prune(index))
                    .map_err(|error| error.to_string())
            };
            let thread = thread::Builder::new().name("snapshot".to_owned());
            thread.spawn(write).map_err(|error| error.to_string())
        });
        match started {
            Ok(thread) => self.running = Some(thread),
            Err(why) => self.failed(&why),
        }
    }

    fn end(
        &mut self,
        thread: JoinHandle<Result<(), String>>,
        state: &State,
        journal: &mut Journal,
    ) {
        match thread.join() {
            Ok(Ok(())) => {
                journal.set_older_bytes(0);
                self.last_bytes = snapshot_bytes(&self.directory);
                state.metrics.snapshots.inc();
                info!(journal_bytes = journal.bytes(), "snapshot taken");
            }
            Ok(Err(why)) => self.failed(&why),
            Err(_) => self.failed("its thread panicked"),
        }
    }

    fn failed(&mut self, why: &str) {
        warn!(why, "a snapshot could not be taken: the journal keeps growing");
        self.again_at = Instant::now() + Self::PAUSE;
    }

    /// Waits for the snapshot under way and syncs what was written.
    pub(crate) fn finish(&mut self, journal: &Journal) {
        if let Some(thread) = self.running.take()
            && !matches!(thread.join(), Ok(Ok(())))
        {
            warn!("the last snapshot could not be taken");
        }
        let synced = journal.handle().and_then(|file| file.sync_data());
        if let Err(error) = synced {
            warn!(%error, "the journal could not be synced");
        }
    }
}

/// Returns the bytes of the newest snapshot, 0 without one.
fn snapshot_bytes(directory: &Directory) -> u64 {
    let newest = directory.list(Kind::Snapshot).ok().and_then(|list| list.last().copied());
    let file = newest.and_then(|index| directory.file(Kind::Snapshot, index).metadata().ok());
    file.map_or(0, |file| file.len())
}

impl Syncer {
    fn start(every: Duration) -> std::io::Result<Self> {
        // One file waits at most: a later one covers it.
        let (files, waiting) = sync_channel(1);
        let failure = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&failure);
        let thread = thread::Builder::new().name("journal-sync".to_owned());
        // It ends with the sender, which the writer owns.
        drop(thread.spawn(move || sync_all(&waiting, &noted))?);
        Ok(Self { every, files, failure, is_dirty: false, synced_at: Instant::now() })
    }

    /// Hands the journal over when it is time; returns why an earlier sync failed.
    fn keep(&mut self, journal: &Journal) -> Option<String> {
        if self.is_dirty && self.synced_at.elapsed() >= self.every {
            match journal.handle() {
                Ok(file) => {
                    if self.files.try_send(file).is_ok() {
                        self.is_dirty = false;
                        self.synced_at = Instant::now();
                    }
                }
                Err(error) => return Some(format!("handle: {error}")),
            }
        }
        self.failure.lock().take()
    }
}

fn sync_all(files: &Receiver<File>, failure: &Mutex<Option<String>>) {
    for file in files {
        if let Err(error) = file.sync_data() {
            *failure.lock() = Some(format!("sync: {error}"));
        }
    }
}
