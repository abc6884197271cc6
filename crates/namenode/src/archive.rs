//! The archive of a running namenode: its snapshots and its journal in a store that outlives the
//! machine. What is copied next is decided by [`Archive`]; this reads the directory and stores.
//!
//! Each start is a generation of its own, under `generation-NUMBER-CLUSTER/`. Which namenode begins
//! one, and whether a later one has begun, is decided by the machines of
//! [`sanderling_core::archive`]. A namenode that was superseded ends. In a group the leader writes
//! the archive: each one begins a generation when it begins to lead, and the one before leaves it.

pub(crate) mod place;
mod recover;
mod store;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, WriteMultipart};
use sanderling_core::archive::{
    Archive, ArchiveGeneration, ArchiveManifest, ArchiveObject, ArchiveOwner, DirectoryFiles,
    GenerationState, JournalPiece, PIECE_BYTES_MAX,
};
use sanderling_core::replica::GroupGeneration;
use thiserror::Error;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::directory::{Directory, FileKind};
use crate::error::NamenodeFailure;
use crate::group::{EndedAs, ServingState};
use crate::journal::SharedEnd;
use crate::metrics::ArchiveStatus;
use crate::recovery::Recovered;
use crate::state::NamenodeState;
use store::{Claimed, unix_millis};

pub use place::{ArchiveDamage, ArchiveError, ArchiveOptions};
pub use recover::{RecoverError, RecoverOptions, RecoveredArchive, recover_from_archive};

/// Time between two looks at what there is to store: half of the second that the archive may be
/// behind.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two comparisons of what the archive must have with what is there. It lists all
/// names of the generation, one request to a bucket for each thousand. What another program removed
/// is noticed after this long at most. Chosen, not measured.
const COMPARE_INTERVAL: Duration = Duration::from_secs(60);

/// How long the last changes may take to be stored when the namenode stops: a notice may leave
/// 15 s.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause before they are tried again: that of the looks before the stop ([`POLL_INTERVAL`]), so
/// that 20 attempts fit into [`CLOSE_TIMEOUT`].
const CLOSE_PAUSE: Duration = Duration::from_millis(500);

/// Bytes of a part of a snapshot's upload: as long as the longest piece of the journal. S3 takes
/// none below 5 MiB but the last, and at most 10,000, so a snapshot has 78 GiB at most.
const PART_BYTES: usize = PIECE_BYTES_MAX as usize;

const _: () = assert!(PART_BYTES >= 5 << 20);

/// Parts of it on their way at once, beside the one that is read and the one that is filled: 32 MiB
/// of memory. More would be faster only on links with long round trips. Chosen, not measured.
const PARTS_MAX: usize = 2;

/// What ends an archiver's work.
enum Ended {
    /// The store or the directory failed: again later.
    Failed(ArchiveError),
    /// A later namenode has the archive.
    Superseded,
}

/// Why the archive may lack the last changes of a namenode that has stopped.
#[derive(Debug, Error)]
pub(crate) enum CloseError {
    /// The first snapshot was not stored in time: nothing can be recovered from the archive.
    #[error("there is no whole copy of the catalog there yet")]
    Incomplete,
    /// The store is slow or does not answer.
    #[error("it did not take them within {} s", CLOSE_TIMEOUT.as_secs())]
    Late,
    /// The store or the directory failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// How much an archiver does at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArchivePass {
    /// What is due.
    Usual,
    /// All that is missing; another namenode goes on.
    Final,
    /// All that is missing, and nothing comes after.
    Closing,
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
    /// What it has begun; `None` while another member of the group leads.
    generation: Option<ArchiveGeneration>,
    archive: Archive,
    upload: Option<SnapshotUpload>,
    stored: Option<ArchiveManifest>,
    /// Manifests that were begun to be stored.
    manifests: u64,
    compared_at: Instant,
    /// When another member led, or none; at the start for a namenode alone.
    rested_at: Instant,
    /// By how much the archive was behind when it was claimed.
    behind: Duration,
    is_older_removed: bool,
    /// An object that no manifest names could not be removed, and none has been since.
    is_removal_failing: bool,
    is_superseded: bool,
}

impl Archiver {
    /// Returns an archiver that has stored nothing yet.
    pub(crate) fn new(
        options: &ArchiveOptions,
        directory: &Arc<Directory>,
        recovered: &mut Recovered,
    ) -> Self {
        let end = recovered.journal.share_end();
        Self {
            options: options.clone(),
            directory: Arc::clone(directory),
            end,
            state: None,
            generation: None,
            archive: Archive::new(recovered.namenode.catalog().cluster()),
            upload: None,
            stored: None,
            manifests: 0,
            compared_at: Instant::now(),
            rested_at: Instant::now(),
            behind: Duration::ZERO,
            is_older_removed: false,
            is_removal_failing: false,
            is_superseded: false,
        }
    }

    /// Begins a generation of the archive for a namenode of that generation of its group.
    ///
    /// # Errors
    /// [`ArchiveError`]: another namenode may have the archive, or the directory is behind it.
    pub(crate) async fn claim(&mut self, group: GroupGeneration) -> Result<(), ArchiveError> {
        let (cluster, commands) = (self.archive.cluster(), self.end.lock().commands);
        let owner = ArchiveOwner { cluster, commands, group };
        let Claimed { generation, behind } = store::claim(&self.options, &owner).await?;
        self.behind = behind;
        info!(archive = self.options.url, generation = generation.number, "the archive is written");
        self.archive = Archive::new(cluster);
        (self.upload, self.stored, self.generation) = (None, None, Some(generation));
        (self.manifests, self.is_older_removed) = (0, false);
        self.compared_at = Instant::now();
        let complete_at = self.complete_at();
        self.note(|status| status.complete_at = complete_at);
        Ok(())
    }

    /// Shows its work in the state of the server that has begun.
    pub(crate) fn serve(&mut self, state: &Arc<NamenodeState>) {
        self.rested_at = Instant::now();
        self.state = Some(Arc::clone(state));
        if self.generation.is_some() {
            self.show();
        }
    }

    /// Shows that this member writes the archive.
    fn show(&self) {
        let Some(state) = &self.state else { return };
        // What this leader has acknowledged since is not there before its first manifest.
        let now = ArchiveStatus { complete_at: self.complete_at(), is_failing: false };
        state.metrics.archive.lock().get_or_insert(now);
    }

    /// Returns when the archive had everything, before anything is stored.
    fn complete_at(&self) -> Instant {
        self.rested_at.checked_sub(self.behind).unwrap_or(self.rested_at)
    }

    /// Changes the archive's status in the metrics. Returns the result of `change`; `None` without
    /// a status.
    fn note<T>(&self, change: impl FnOnce(&mut ArchiveStatus) -> T) -> Option<T> {
        self.state.as_ref()?.metrics.archive.lock().as_mut().map(change)
    }

    /// Keeps the archive up to date until it is stopped, or another namenode has taken over.
    pub(crate) async fn run(&mut self, stop: &CancellationToken) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let pass = async {
                ticks.tick().await;
                self.look().await
            };
            let passed = tokio::select! {
                () = stop.cancelled() => return,
                passed = pass => passed,
            };
            match passed {
                Ok(()) => self.answers(),
                Err(Ended::Failed(error)) => self.fails(&error),
                // Another leader, or this one earlier: it begins again if it still leads.
                Err(Ended::Superseded) if !self.is_alone() => self.generation = None,
                Err(Ended::Superseded) => return self.superseded(),
            }
            if self.is_superseded {
                return self.superseded();
            }
        }
    }

    fn is_alone(&self) -> bool {
        self.state.as_ref().is_some_and(|it| it.group.serving_state() == ServingState::Alone)
    }

    fn superseded(&mut self) {
        self.is_superseded = true;
        let archive = self.options.url.clone();
        if let Some(state) = &self.state {
            state.fail(NamenodeFailure::Superseded { archive });
        }
    }

    /// Does what is to be done twice a second: the leader stores, the others do nothing.
    async fn look(&mut self) -> Result<(), Ended> {
        let Some(state) = self.state.clone() else { return Ok(()) };
        if !state.group.archives() {
            self.rested_at = Instant::now();
            if !state.group.serving_state().serves() {
                (self.generation, self.upload) = (None, None);
                *state.metrics.archive.lock() = None;
            }
            return Ok(());
        }
        if self.generation.is_none() {
            self.behind = Duration::ZERO;
            self.show();
            self.begin().await?;
        }
        self.pass(ArchivePass::Usual).await
    }

    /// Begins the generation of a leader that has none yet.
    async fn begin(&mut self) -> Result<(), Ended> {
        match self.claim(self.group()).await {
            Err(ArchiveError::LaterGroup { .. }) => {
                self.is_superseded = true;
                Err(Ended::Superseded)
            }
            claimed => Ok(claimed?),
        }
    }

    /// Stores what is left of a namenode that writes no more. What it was decides whether nothing
    /// can come after.
    ///
    /// # Errors
    /// [`CloseError`]: some of the last changes may be missing. The directory has them, so the same
    /// namenode starts on it again.
    pub(crate) async fn close(&mut self, ended: Option<EndedAs>) -> Result<(), CloseError> {
        let pass = match ended {
            _ if self.is_superseded => return Ok(()),
            Some(EndedAs::Follower) => return Ok(()),
            Some(EndedAs::Leader) | None if self.generation.is_none() => return Ok(()),
            Some(EndedAs::Leader) => ArchivePass::Final,
            Some(EndedAs::Last) | None => ArchivePass::Closing,
        };
        let mut failed = None;
        let last = async {
            loop {
                match self.store_last(pass).await {
                    // Nothing comes after this: a store that is full for a moment is tried again.
                    Err(Ended::Failed(error)) if pass == ArchivePass::Closing => {
                        if failed.is_none() {
                            warn!(%error, "the archive did not take the last changes: once more");
                        }
                        failed = Some(error);
                        sleep(CLOSE_PAUSE).await;
                    }
                    stored => return stored,
                }
            }
        };
        let stored = timeout(CLOSE_TIMEOUT, last).await;
        match stored {
            // Another member goes on, and has everything.
            Ok(Ok(()) | Err(_)) | Err(_) if pass == ArchivePass::Final => Ok(()),
            Ok(Ok(())) if self.stored.as_ref().is_some_and(|stored| stored.is_closed) => {
                info!(archive = self.options.url, "the archive is closed: it has every change");
                Ok(())
            }
            Ok(Ok(())) => Err(CloseError::Incomplete),
            Ok(Err(Ended::Failed(error))) => Err(error.into()),
            Ok(Err(Ended::Superseded)) => {
                warn!("a later namenode has the archive: the last changes are not in it");
                Ok(())
            }
            Err(_) => Err(failed.map_or(CloseError::Late, CloseError::from)),
        }
    }

    async fn store_last(&mut self, pass: ArchivePass) -> Result<(), Ended> {
        // It began to lead a moment ago, or the store did not answer until now.
        if self.generation.is_none() {
            self.begin().await?;
        }
        self.pass(pass).await
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
    async fn pass(&mut self, pass: ArchivePass) -> Result<(), Ended> {
        let (looked_at, is_last) = (Instant::now(), pass != ArchivePass::Usual);
        let Some(generation) = self.generation else { return Ok(()) };
        match store::generation_state(&self.options, &generation, self.group()).await? {
            GenerationState::Newest => {}
            GenerationState::Superseded => return Err(Ended::Superseded),
            GenerationState::Emptied => self.store_again("everything"),
        }
        if is_last || self.compared_at.elapsed() >= COMPARE_INTERVAL {
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
        let uploaded = match pass {
            ArchivePass::Usual => self.store_snapshots().await,
            ArchivePass::Final => Ok(()),
            ArchivePass::Closing => self.complete().await,
        };
        self.describe(pass).await?;
        if self.archive.is_complete() {
            self.note(|status| status.complete_at = looked_at);
        }
        Ok(uploaded?)
    }

    /// Compares what was stored with what is there: a cleaner of the store may have removed some,
    /// also what the next manifest will be the first to name.
    async fn compare(&mut self) -> Result<(), ArchiveError> {
        let Some(generation) = &self.generation else { return Ok(()) };
        if let Some(name) = store::missing(&self.options, generation, &self.archive).await? {
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
    async fn store_piece(&mut self, first: u64, piece: JournalPiece) -> Result<bool, ArchiveError> {
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
        let path = self.path(object);
        let put = self.options.store.put(&path, bytes.into()).await;
        put.map_err(|cause| self.error(cause))?;
        self.archive.stored(object);
        Ok(true)
    }

    /// Goes on with the snapshots, one at a time, beside the journal.
    async fn store_snapshots(&mut self) -> Result<(), ArchiveError> {
        if self.upload.as_ref().is_some_and(|upload| upload.task.is_finished()) {
            self.end_upload().await?;
        }
        self.begin_upload();
        Ok(())
    }

    /// Stores snapshots until all can be read back: a leader that began a moment ago has stored
    /// none.
    async fn complete(&mut self) -> Result<(), ArchiveError> {
        while !self.archive.is_complete() {
            self.begin_upload();
            if self.upload.is_none() {
                break;
            }
            self.end_upload().await?;
        }
        Ok(())
    }

    fn begin_upload(&mut self) {
        if self.upload.is_none()
            && let Some(index) = self.archive.next_snapshot()
        {
            let to = self.path(ArchiveObject::Snapshot(index));
            let from = self.directory.file(FileKind::Snapshot, index);
            let task = tokio::spawn(upload(self.options.clone(), from, to));
            self.upload = Some(SnapshotUpload { index, task: AbortOnDropHandle::new(task) });
        }
    }

    /// Waits for the end of the upload that is under way.
    async fn end_upload(&mut self) -> Result<(), ArchiveError> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let (ended, index) = ((&mut upload.task).await, upload.index);
        self.upload = None;
        ended.map_err(io::Error::other)??;
        self.archive.stored(ArchiveObject::Snapshot(index));
        Ok(())
    }

    /// Stores a manifest if there is more to describe than before, then removes what it leaves out.
    async fn describe(&mut self, pass: ArchivePass) -> Result<(), ArchiveError> {
        let Some(generation) = self.generation else { return Ok(()) };
        let failure = self.state.as_ref().and_then(|state| state.failure.borrow().clone());
        let is_whole = !matches!(
            failure,
            Some(NamenodeFailure::Journal { .. } | NamenodeFailure::Unapplied { .. })
        );
        let is_closed = pass == ArchivePass::Closing && is_whole;
        let Some(mut manifest) = self.archive.manifest(unix_millis(), is_closed) else {
            return Ok(());
        };
        manifest.group = self.group().0;
        let is_new = self.stored.as_ref().is_none_or(|stored| {
            *stored != ArchiveManifest { at_unix_millis: stored.at_unix_millis, ..manifest.clone() }
        });
        if is_new {
            self.manifests += 1;
            let number = self.manifests;
            store::put_manifest(&self.options, &generation, number, &manifest).await?;
            self.stored = Some(manifest.clone());
            // One that stays is not the last.
            let before = store::manifest_name(number.saturating_sub(1));
            self.remove(&store::path(&self.options, &generation, &before)).await;
        }
        if pass != ArchivePass::Usual {
            return Ok(());
        }
        for object in self.archive.take_surplus(&manifest) {
            let path = self.path(object);
            self.remove(&path).await;
        }
        if !self.is_older_removed {
            store::remove_older(&self.options, &generation).await?;
            self.is_older_removed = true;
        }
        Ok(())
    }

    /// Removes an object that no manifest names. One that stays costs room until this generation
    /// goes.
    async fn remove(&mut self, path: &Path) {
        let removed = store::remove(&self.options, path).await;
        let was_failing = std::mem::replace(&mut self.is_removal_failing, removed.is_err());
        if let Err(error) = removed
            && !was_failing
        {
            warn!(
                %error, object = %path,
                "objects that the archive no longer needs stay, and take room: let the namenode \
                 delete there"
            );
        }
    }

    fn group(&self) -> GroupGeneration {
        self.state.as_ref().map(|state| state.group.generation()).unwrap_or_default()
    }

    fn path(&self, object: ArchiveObject) -> Path {
        let generation = self.generation.unwrap_or_default();
        store::path(&self.options, &generation, &object.to_string())
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
