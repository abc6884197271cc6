//! The archive of a running namenode: its snapshots and its journal in a store that outlives the
//! machine. What is copied next is decided by [`Archive`]; this reads the directory and stores.
//!
//! Each start is a generation of its own, under `generation-NUMBER-CLUSTER/`. A namenode that finds
//! a later generation than its own has been replaced, and ends.

pub(crate) mod place;
mod recover;
mod store;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, WriteMultipart};
use sanderling_core::archive::{Archive, ArchiveObject, DirectoryFiles, Manifest, Piece};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::directory::{Directory, FileKind};
use crate::error::NamenodeFailure;
use crate::journal::SharedEnd;
use crate::metrics::ArchiveStatus;
use crate::recovery::Recovered;
use crate::state::NamenodeState;
use store::{Generation, Standing, unix_millis};

pub use place::{ArchiveError, ArchiveOptions};
pub use recover::{RecoverError, RecoverOptions, RecoveredArchive, recover_from_archive};

/// Time between two looks at what there is to store: half of the second that the archive may be
/// behind.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Time between two comparisons of what the archive must have with what is there.
const COMPARE_EVERY: Duration = Duration::from_secs(60);

/// How long the last changes may take to be stored when the namenode stops: a notice may leave
/// 15 s.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// Bytes of a part of a snapshot's upload.
const PART_BYTES: usize = 8 << 20;

/// Parts of it on their way at once.
const PARTS_MAX: usize = 2;

/// What ends an archiver's work.
enum Ended {
    /// The store or the directory failed: again later.
    Failed(ArchiveError),
    /// A later namenode has the archive.
    Superseded,
}

impl From<ArchiveError> for Ended {
    fn from(error: ArchiveError) -> Self {
        Self::Failed(error)
    }
}

/// An upload of a snapshot under way.
#[derive(Debug)]
struct SnapshotUpload {
    index: u64,
    task: AbortOnDropHandle<Result<(), ArchiveError>>,
}

/// Copies one namenode's directory to its archive.
#[derive(Debug)]
pub(crate) struct Archiver {
    options: ArchiveOptions,
    directory: Arc<Directory>,
    end: SharedEnd,
    state: Option<Arc<NamenodeState>>,
    generation: Generation,
    archive: Archive,
    upload: Option<SnapshotUpload>,
    stored: Option<Manifest>,
    /// Manifests that were begun to be stored.
    manifests: u64,
    compared_at: Instant,
    is_older_removed: bool,
    is_superseded: bool,
}

impl Archiver {
    /// Begins a generation.
    ///
    /// # Errors
    /// [`ArchiveError`]: another namenode may have the archive, or the directory is behind it.
    pub(crate) async fn claim(
        options: &ArchiveOptions,
        directory: &Arc<Directory>,
        recovered: &mut Recovered,
    ) -> Result<Self, ArchiveError> {
        let (cluster, commands) = (recovered.namenode.catalog().cluster(), recovered.commands);
        let generation = store::claim(options, cluster, commands).await?;
        info!(archive = options.url, generation = generation.number, "the archive is written");
        Ok(Self {
            options: options.clone(),
            directory: Arc::clone(directory),
            end: recovered.journal.share_end(),
            state: None,
            generation,
            archive: Archive::new(cluster),
            upload: None,
            stored: None,
            manifests: 0,
            compared_at: Instant::now(),
            is_older_removed: false,
            is_superseded: false,
        })
    }

    /// Shows its work in the state of the server that has begun.
    pub(crate) fn serve(&mut self, state: &Arc<NamenodeState>) {
        let now = ArchiveStatus { complete_at: Instant::now(), is_failing: false };
        *state.metrics.archive.lock() = Some(now);
        self.state = Some(Arc::clone(state));
    }

    /// Changes how the archive stands.
    fn note<T>(&self, change: impl FnOnce(&mut ArchiveStatus) -> T) -> Option<T> {
        self.state.as_ref()?.metrics.archive.lock().as_mut().map(change)
    }

    /// Keeps the archive up to date until it is stopped, or another namenode has taken over.
    pub(crate) async fn run(&mut self, stop: &CancellationToken) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let pass = async {
                ticks.tick().await;
                self.pass(false).await
            };
            let passed = tokio::select! {
                () = stop.cancelled() => return,
                passed = pass => passed,
            };
            match passed {
                Ok(()) => self.answers(),
                Err(Ended::Failed(error)) => self.fails(&error),
                Err(Ended::Superseded) => {
                    self.is_superseded = true;
                    let archive = self.options.url.clone();
                    if let Some(state) = &self.state {
                        state.fail(NamenodeFailure::Superseded { archive });
                    }
                    return;
                }
            }
        }
    }

    /// Stores what is left of a namenode that writes no more.
    ///
    /// # Errors
    /// Why some of the last changes may be missing.
    pub(crate) async fn close(&mut self) -> Result<(), String> {
        if self.is_superseded {
            return Ok(());
        }
        self.upload = None;
        match timeout(CLOSE_WITHIN, self.pass(true)).await {
            Ok(Ok(())) if self.stored.as_ref().is_some_and(|stored| stored.is_closed) => {
                info!(archive = self.options.url, "the archive is closed: it has every change");
                Ok(())
            }
            Ok(Ok(())) => Err("there is no whole copy of the catalog there yet".to_owned()),
            Ok(Err(Ended::Failed(error))) => Err(error.to_string()),
            Ok(Err(Ended::Superseded)) => Ok(()),
            Err(_) => Err(format!("it did not take them within {} s", CLOSE_WITHIN.as_secs())),
        }
    }

    fn answers(&self) {
        if self.note(|status| std::mem::take(&mut status.is_failing)) == Some(true) {
            info!(archive = self.options.url, "the archive takes changes again");
        }
    }

    fn fails(&self, error: &ArchiveError) {
        let was_failing = self.note(|status| std::mem::replace(&mut status.is_failing, true));
        if was_failing == Some(false) {
            warn!(%error, "changes go on, and are not in the archive");
        }
    }

    /// Stores what is missing and describes it; removes what is no longer needed.
    async fn pass(&mut self, is_last: bool) -> Result<(), Ended> {
        let looked_at = Instant::now();
        match store::standing(&self.options, &self.generation).await? {
            Standing::Newest => {}
            Standing::Superseded => return Err(Ended::Superseded),
            Standing::Emptied => self.store_again("everything"),
        }
        if is_last || self.compared_at.elapsed() >= COMPARE_EVERY {
            self.compare().await?;
        }
        let (directory, end) = (Arc::clone(&self.directory), Arc::clone(&self.end));
        let files = spawn_blocking(move || files(&directory, &end)).await;
        let files = files.map_err(io::Error::other).flatten().map_err(ArchiveError::from)?;
        self.archive.look(&files);
        while let Some((first, piece)) = self.archive.next_piece() {
            if !self.store_piece(first, piece).await? {
                break;
            }
        }
        let uploaded = if is_last { Ok(()) } else { self.store_snapshots().await };
        self.describe(is_last).await?;
        if self.archive.is_complete() {
            self.note(|status| status.complete_at = looked_at);
        }
        Ok(uploaded?)
    }

    /// Compares what the archive must have with what is there: a cleaner of the store may have
    /// removed some.
    async fn compare(&mut self) -> Result<(), ArchiveError> {
        let Some(stored) = &self.stored else { return Ok(()) };
        if let Some(name) = store::missing(&self.options, &self.generation, stored).await? {
            self.store_again(&name);
        }
        self.compared_at = Instant::now();
        Ok(())
    }

    /// Begins anew with an empty archive.
    fn store_again(&mut self, missing: &str) {
        warn!(
            archive = self.options.url,
            missing, "objects of the archive are gone: everything is stored again"
        );
        self.archive = Archive::new(self.archive.cluster());
        (self.upload, self.stored) = (None, None);
    }

    /// Stores a piece; returns whether it was still there.
    async fn store_piece(&mut self, first: u64, piece: Piece) -> Result<bool, ArchiveError> {
        let path = self.directory.file(FileKind::Journal, first);
        let files = Arc::clone(self.directory.files());
        let read = move || {
            let length = usize::try_from(piece.to - piece.from).map_err(io::Error::other)?;
            let mut bytes = vec![0; length];
            let (file, mut filled) = (files.open(&path)?, 0);
            while filled < length {
                match file.read_at(&mut bytes[filled..], piece.from + filled as u64)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => filled += count,
                }
            }
            io::Result::Ok(Bytes::from(bytes))
        };
        let bytes = match spawn_blocking(read).await.map_err(io::Error::other)? {
            // A snapshot has taken its place since the look: the next one shows it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            read => read?,
        };
        let object = ArchiveObject::Piece(first, piece);
        let path = store::path(&self.options, &self.generation, &object.to_string());
        let put = self.options.store.put(&path, bytes.into()).await;
        put.map_err(|cause| self.error(cause))?;
        self.archive.stored(object);
        Ok(true)
    }

    /// Goes on with the snapshots, one at a time, beside the journal.
    async fn store_snapshots(&mut self) -> Result<(), ArchiveError> {
        if let Some(mut upload) = self.upload.take_if(|upload| upload.task.is_finished()) {
            let ended = (&mut upload.task).await;
            ended.map_err(io::Error::other)??;
            self.archive.stored(ArchiveObject::Snapshot(upload.index));
        }
        if self.upload.is_none()
            && let Some(index) = self.archive.next_snapshot()
        {
            let name = ArchiveObject::Snapshot(index).to_string();
            let to = store::path(&self.options, &self.generation, &name);
            let from = self.directory.file(FileKind::Snapshot, index);
            let task = tokio::spawn(upload(self.options.clone(), from, to));
            self.upload = Some(SnapshotUpload { index, task: AbortOnDropHandle::new(task) });
        }
        Ok(())
    }

    /// Stores a manifest if there is more to describe than before, then removes what it leaves out.
    async fn describe(&mut self, is_last: bool) -> Result<(), ArchiveError> {
        let failure = self.state.as_ref().and_then(|state| state.failure.borrow().clone());
        let is_whole = !matches!(failure, Some(NamenodeFailure::Journal { .. }));
        let Some(manifest) = self.archive.manifest(unix_millis(), is_last && is_whole) else {
            return Ok(());
        };
        let is_new = self.stored.as_ref().is_none_or(|stored| {
            *stored != Manifest { at_unix_millis: stored.at_unix_millis, ..manifest.clone() }
        });
        if is_new {
            self.manifests += 1;
            let number = self.manifests;
            store::put_manifest(&self.options, &self.generation, number, &manifest).await?;
            self.stored = Some(manifest.clone());
        }
        if is_last {
            return Ok(());
        }
        for object in self.archive.take_surplus(&manifest) {
            let path = store::path(&self.options, &self.generation, &object.to_string());
            // What stays behind costs room until this generation goes.
            let _ = self.options.store.delete(&path).await;
        }
        if !self.is_older_removed {
            store::remove_older(&self.options, &self.generation).await?;
            self.is_older_removed = true;
        }
        Ok(())
    }

    fn error(&self, cause: object_store::Error) -> ArchiveError {
        ArchiveError::Store { url: self.options.url.clone(), cause }
    }
}

/// Lists the directory. The end is read first: a segment that begins meanwhile is not listed.
fn files(directory: &Directory, end: &SharedEnd) -> io::Result<DirectoryFiles> {
    let end = *end.lock();
    let segments = directory.list(FileKind::Journal)?;
    let older = segments.into_iter().filter(|first| *first < end.first);
    Ok(DirectoryFiles {
        snapshots: directory.list(FileKind::Snapshot)?,
        segments: older.map(|it| (it, directory.bytes(FileKind::Journal, it))).collect(),
        end,
    })
}

/// Stores a whole file in parts.
async fn upload(
    options: ArchiveOptions,
    from: std::path::PathBuf,
    to: Path,
) -> Result<(), ArchiveError> {
    use tokio::io::AsyncReadExt;
    let failed = |cause| ArchiveError::Store { url: options.url.clone(), cause };
    let mut file = tokio::fs::File::open(&from).await?;
    let begun = options.store.put_multipart(&to).await.map_err(failed)?;
    let mut parts = WriteMultipart::new_with_chunk_size(begun, PART_BYTES);
    let mut part = vec![0; PART_BYTES];
    loop {
        let count = file.read(&mut part).await?;
        if count == 0 {
            break;
        }
        parts.wait_for_capacity(PARTS_MAX).await.map_err(failed)?;
        parts.write(&part[..count]);
    }
    parts.finish().await.map(drop).map_err(failed)
}
