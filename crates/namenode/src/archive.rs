//! The archive of a running namenode: its snapshots and its journal in a store that outlives the
//! machine. [`ArchivePasses`] decides what is stored and removed next, and what follows from each
//! outcome; this reads the directory, and stores.
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
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, WriteMultipart};
use sanderling_core::archive::passes::{
    ArchiveClose, ArchiveFailure, ArchiveLoss, ArchivePasses, ArchiveRole, ArchiveStep,
    CLOSE_TIMEOUT, EndedWriter, SurplusObject, UploadState,
};
use sanderling_core::archive::{
    ArchiveObject, ArchiveOwner, DirectoryFiles, GenerationState, JournalPiece, PIECE_BYTES_MAX,
    manifest_name,
};
use sanderling_core::replica::GroupGeneration;
use thiserror::Error;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::directory::{Directory, FileKind};
use crate::error::NamenodeFailure;
use crate::group::{EndedAs, ServingState, boot_time};
use crate::journal::SharedEnd;
use crate::recovery::Recovered;
use crate::state::NamenodeState;
use store::{Claimed, unix_millis};

pub use place::{ArchiveDamage, ArchiveError, ArchiveOptions};
pub use recover::{RecoverError, RecoverOptions, RecoveredArchive, recover_from_archive};

/// Bytes of a part of a snapshot's upload: as long as the longest piece of the journal. S3 takes
/// none below 5 MiB but the last, and at most 10,000, so a snapshot has 78 GiB at most.
const PART_BYTES: usize = PIECE_BYTES_MAX as usize;

const _: () = assert!(PART_BYTES >= 5 << 20);

/// Parts of it on their way at once, beside the one that is read and the one that is filled: 32 MiB
/// of memory. More would be faster only on links with long round trips. Chosen, not measured.
const PARTS_MAX: usize = 2;

/// Why the archive may lack the last changes of a namenode that has stopped.
#[derive(Debug, Error)]
pub(crate) enum CloseError {
    /// The first snapshot was not stored in time: nothing can be recovered from the archive.
    #[error("there is no whole copy of the catalog there yet")]
    Incomplete,
    /// The store is slow or does not answer.
    #[error("it did not take them within {} s", Duration::from(CLOSE_TIMEOUT).as_secs())]
    Late,
    /// The store or the directory failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
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
    passes: ArchivePasses,
    upload: Option<SnapshotUpload>,
    /// Why a step of the last pass has failed.
    failure: Option<ArchiveError>,
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
            passes: ArchivePasses::new(recovered.namenode.catalog().cluster(), boot_time()),
            upload: None,
            failure: None,
        }
    }

    /// Begins a generation of the archive for a namenode of that generation of its group.
    ///
    /// # Errors
    /// [`ArchiveError`]: another namenode may have the archive, or the directory is behind it.
    pub(crate) async fn claim(&mut self, group: GroupGeneration) -> Result<(), ArchiveError> {
        let (cluster, commands) = (self.passes.cluster(), self.end.lock().commands);
        let owner = ArchiveOwner { cluster, commands, group };
        let Claimed { generation, behind } = store::claim(&self.options, &owner).await?;
        info!(archive = self.options.url, generation = generation.number, "the archive is written");
        self.passes.claimed(boot_time(), generation, behind.into());
        Ok(())
    }

    /// Shows its work in the state of the server that has begun.
    pub(crate) fn serve(&mut self, state: &Arc<NamenodeState>) {
        self.state = Some(Arc::clone(state));
        self.passes.serve(boot_time());
        self.show();
    }

    /// Keeps the archive up to date until it is stopped, or another namenode has taken over.
    pub(crate) async fn run(&mut self, stop: &CancellationToken) {
        let is_superseded = tokio::select! {
            () = stop.cancelled() => false,
            () = self.steps() => true,
        };
        if is_superseded && let Some(state) = &self.state {
            state.fail(NamenodeFailure::Superseded { archive: self.options.url.clone() });
        }
    }

    /// Stores what is left of a namenode that writes no more.
    ///
    /// # Errors
    /// [`CloseError`]: some of the last changes may be missing. The directory has them, so the same
    /// namenode starts on it again.
    pub(crate) async fn close(&mut self, ended: Option<EndedAs>) -> Result<(), CloseError> {
        let ended = match ended {
            Some(EndedAs::Last) => EndedWriter::Last,
            Some(EndedAs::Leader) => EndedWriter::Leader,
            Some(EndedAs::Follower) => EndedWriter::Follower,
            None => EndedWriter::Unknown,
        };
        self.failure = None;
        self.passes.close(boot_time(), ended);
        // If it has not ended in time, it is under way below.
        let _ = timeout(CLOSE_TIMEOUT.into(), self.steps()).await;
        let archive = &self.options.url;
        match self.passes.closed() {
            ArchiveClose::Left => {}
            ArchiveClose::Closed => info!(archive, "the archive is closed: it has every change"),
            ArchiveClose::Unwritten => {
                warn!(archive, "the archive is not closed: the journal was not written to its end");
            }
            ArchiveClose::Superseded => {
                warn!("a later namenode has the archive: the last changes are not in it");
            }
            ArchiveClose::Incomplete => return Err(CloseError::Incomplete),
            ArchiveClose::UnderWay => {
                return Err(self.failure.take().map_or(CloseError::Late, CloseError::from));
            }
        }
        Ok(())
    }

    /// Does one step after the other, until there is none.
    async fn steps(&mut self) {
        loop {
            let step = self.passes.step().clone();
            if step == ArchiveStep::Ended {
                return;
            }
            let was_failing = self.passes.status().is_some_and(|status| status.is_failing);
            if let Err(error) = self.perform(step).await {
                self.failed(error);
            } else if was_failing && self.passes.status().is_some_and(|status| !status.is_failing) {
                info!(archive = self.options.url, "the archive takes changes again");
            }
            self.show();
        }
    }

    fn failed(&mut self, error: ArchiveError) {
        match self.passes.failed(boot_time()) {
            ArchiveFailure::First => warn!(%error, "changes go on, and are not in the archive"),
            ArchiveFailure::FirstOfClose => {
                warn!(%error, "the archive did not take the last changes: once more");
            }
            ArchiveFailure::Repeated => {}
        }
        self.failure = Some(error);
    }

    /// Shows how the archive stands, and gives up an upload that is no longer needed.
    fn show(&mut self) {
        let needed = self.passes.uploading();
        if self.upload.as_ref().is_some_and(|upload| Some(upload.index) != needed) {
            self.upload = None;
        }
        if let Some(state) = &self.state {
            *state.metrics.archive.lock() = self.passes.status();
        }
    }

    async fn perform(&mut self, step: ArchiveStep) -> Result<(), ArchiveError> {
        match step {
            ArchiveStep::Wait(at) => {
                sleep(boot_time().until(at).into()).await;
                let role = self.role();
                self.passes.wake(boot_time(), role);
            }
            ArchiveStep::Claim => {
                let group = self.group();
                match self.claim(group).await {
                    Err(ArchiveError::LaterGroup { .. }) => self.passes.refused(),
                    claimed => claimed?,
                }
            }
            ArchiveStep::Check(generation) => {
                let group = self.group();
                let found = store::generation_state(&self.options, &generation, group).await?;
                if found == GenerationState::Emptied {
                    self.lost(&ArchiveLoss::Part("everything".to_owned()));
                }
                let is_alone = self.role() == ArchiveRole::Alone;
                self.passes.checked(boot_time(), found, is_alone);
            }
            ArchiveStep::ListNames(generation) => {
                let names = store::names(&self.options, &generation).await?;
                if let Some(loss) = self.passes.compared(boot_time(), &names) {
                    self.lost(&loss);
                }
            }
            ArchiveStep::ReadDirectory => {
                let (directory, end) = (Arc::clone(&self.directory), Arc::clone(&self.end));
                let files = spawn_blocking(move || files(&directory, &end)).await;
                self.passes.looked(&files.map_err(io::Error::other).flatten()?);
            }
            ArchiveStep::StorePiece(first, piece) => {
                let is_there = self.store_piece(first, piece).await?;
                self.passes.piece_stored(is_there);
            }
            ArchiveStep::Upload { index, waits } => {
                let state = self.upload(index, waits).await?;
                self.passes.upload_seen(state);
            }
            ArchiveStep::Describe => {
                let (group, is_whole) = (self.group(), self.is_journal_whole());
                self.passes.describe(boot_time(), unix_millis(), group, is_whole);
            }
            ArchiveStep::StoreManifest { number, manifest } => {
                let generation = self.passes.generation().unwrap_or_default();
                store::put_manifest(&self.options, &generation, number, &manifest).await?;
                self.passes.manifest_stored(boot_time());
            }
            ArchiveStep::Remove(object) => self.remove(object).await,
            ArchiveStep::RemoveOlder(generation) => {
                let removed = store::remove_older(&self.options, &generation).await;
                self.removed(removed, &format!("generations before {generation}"));
            }
            ArchiveStep::Ended => {}
        }
        Ok(())
    }

    fn lost(&self, loss: &ArchiveLoss) {
        let archive = &self.options.url;
        match loss {
            ArchiveLoss::Part(missing) => {
                warn!(
                    archive,
                    missing, "objects of the archive are gone: everything is stored again"
                );
            }
            ArchiveLoss::Manifest(missing) => {
                warn!(archive, missing, "the manifest of the archive is gone: it is stored again");
            }
        }
    }

    async fn remove(&mut self, object: SurplusObject) {
        let path = match object {
            SurplusObject::Manifest(number) => self.path(&manifest_name(number)),
            SurplusObject::Part(object) => self.path(&object.to_string()),
        };
        let removed = store::remove(&self.options, &path).await;
        self.removed(removed, path.as_ref());
    }

    /// Takes whether something that no manifest names is removed.
    fn removed(&mut self, removed: Result<(), ArchiveError>, object: &str) {
        let is_first = self.passes.removed(boot_time(), removed.is_ok());
        if let Err(error) = removed
            && is_first
        {
            warn!(
                %error, object,
                "objects that the archive no longer needs stay, and take room: let the namenode \
                 delete there"
            );
        }
    }

    /// Stores a piece; returns whether it was still there.
    async fn store_piece(&self, first: u64, piece: JournalPiece) -> Result<bool, ArchiveError> {
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
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            read => read?,
        };
        let path = self.path(&ArchiveObject::Piece(first, piece).to_string());
        let put = self.options.store.put(&path, bytes.into()).await;
        put.map_err(|cause| ArchiveError::Store { url: self.options.url.clone(), cause })?;
        Ok(true)
    }

    /// Begins to upload a snapshot if that is not under way, and takes how far it is.
    async fn upload(&mut self, index: u64, waits: bool) -> Result<UploadState, ArchiveError> {
        let under_way = self.upload.take().filter(|upload| upload.index == index);
        let begun = under_way.unwrap_or_else(|| {
            let to = self.path(&ArchiveObject::Snapshot(index).to_string());
            let from = self.directory.file(FileKind::Snapshot, index);
            let task = tokio::spawn(upload(self.options.clone(), from, to));
            SnapshotUpload { index, task: AbortOnDropHandle::new(task) }
        });
        let upload = self.upload.insert(begun);
        if !waits && !upload.task.is_finished() {
            return Ok(UploadState::UnderWay);
        }
        let ended = (&mut upload.task).await;
        self.upload = None;
        ended.map_err(io::Error::other)??;
        Ok(UploadState::Stored)
    }

    /// Returns the part that this namenode has in its group.
    fn role(&self) -> ArchiveRole {
        let Some(state) = &self.state else { return ArchiveRole::Waits };
        let archives = state.group.archives();
        match state.group.serving_state() {
            ServingState::Alone => ArchiveRole::Alone,
            _ if archives => ArchiveRole::Leads,
            ServingState::Leader => ArchiveRole::Waits,
            ServingState::Follower | ServingState::Elected => ArchiveRole::Follows,
        }
    }

    /// Returns whether nothing is known that the journal lacks.
    fn is_journal_whole(&self) -> bool {
        let failure = self.state.as_ref().and_then(|state| state.failure.borrow().clone());
        !failure.is_some_and(|failure| failure.is_of_the_journal())
    }

    fn group(&self) -> GroupGeneration {
        self.state.as_ref().map(|state| state.group.generation()).unwrap_or_default()
    }

    fn path(&self, name: &str) -> Path {
        let generation = self.passes.generation().unwrap_or_default();
        store::path(&self.options, &generation, name)
    }
}

/// Lists the directory. The end is read first: a segment that begins meanwhile is not listed.
fn files(directory: &Directory, end: &SharedEnd) -> io::Result<DirectoryFiles> {
    let end = *end.lock();
    let segments = directory.list(FileKind::Journal)?;
    let older = segments.into_iter().filter(|first| *first < end.first);
    let lengths = older.map(|it| (it, directory.bytes(FileKind::Journal, it)));
    Ok(DirectoryFiles {
        snapshots: directory.list(FileKind::Snapshot)?,
        // One that a snapshot has replaced since the list has no bytes: it is gone.
        segments: lengths.filter(|(_, bytes)| *bytes > 0).collect(),
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
