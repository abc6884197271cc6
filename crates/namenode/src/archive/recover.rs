//! From an archive to a directory that a namenode starts on.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt;
use object_store::ObjectStoreExt;
use sanderling_core::archive::{ArchiveGeneration, ArchiveManifest, ArchiveObject};
use sanderling_core::group_generation::RestoredGeneration;
use sanderling_core::replica::GroupGeneration;
use sanderling_protocol::ClusterId;
use thiserror::Error;

use super::place::{ArchiveDamage, ArchiveError, ArchiveOptions};
use super::store;
use crate::backup::{RestoreError, UnfinishedRestore, begun_in, restored_generation};
use crate::directory::{Directory, FileKind};
use crate::error::NamenodeStartError;
use crate::file_names;
use crate::group::{origin, recover};
use crate::recovery;

/// The options of a recovery: its archive, and the directory that it fills.
#[derive(Debug, Clone)]
pub struct RecoverOptions {
    /// The namenode's directory, made if it does not exist.
    pub directory: PathBuf,
    /// The cluster, where the archive may hold several.
    pub cluster: Option<ClusterId>,
    /// The generation; the newest with a catalog if none is given.
    pub generation: Option<u64>,
    /// Set aside what a namenode left in the directory.
    pub is_replacing: bool,
    /// The namenode begins a group anew: older members are refused.
    pub is_of_group: bool,
    /// The number of a generation that the one of such a group follows, whatever the archive has.
    pub after: u64,
}

/// A report of what was recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredArchive {
    /// The cluster.
    pub cluster: ClusterId,
    /// The generation that it was read from.
    pub generation: u64,
    /// Changes since the cluster began.
    pub commands: u64,
    /// The namenode that wrote it had stopped, and no later one began: nothing is missing.
    /// Otherwise, what was acknowledged after [`Self::at_unix_millis`] is.
    pub is_closed: bool,
    /// A later generation that has begun, and is not what was recovered.
    pub later: Option<u64>,
    /// When the archive was written last, in milliseconds since 1970 by that namenode's clock.
    pub at_unix_millis: u64,
    /// The generation that begins; the default for a namenode alone.
    pub group: GroupGeneration,
}

/// A reason why nothing was recovered.
#[derive(Debug, Error)]
pub enum RecoverError {
    /// The archive cannot be used.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] RestoreError),
}

impl From<NamenodeStartError> for RecoverError {
    fn from(error: NamenodeStartError) -> Self {
        Self::Directory(error.into())
    }
}

/// Makes a directory from the newest state in an archive. The next namenode on it continues from
/// there as from an older copy of its directory: it skips the numbers that were given out since.
///
/// # Errors
/// [`RecoverError`]: correct its cause, then call again. The directory and what it held are as they
/// were, unless writing failed while files were exchanged, or the archive turned out to be damaged
/// at the very end; then no namenode starts on it until a recovery or a restore succeeds.
pub async fn recover_from_archive(
    archive: &ArchiveOptions,
    options: &RecoverOptions,
) -> Result<RecoveredArchive, RecoverError> {
    let (generation, manifest, later) = choose(archive, options).await?;
    if manifest.group != 0 && !options.is_of_group {
        return Err(ArchiveError::OfGroup { url: archive.url.clone() }.into());
    }
    let newest_group = newest_group(archive, &generation).await;
    let newest_group = match newest_group {
        // A namenode alone needs no number: it begins as after a backup that names none.
        Err(ArchiveError::Damaged { .. }) if !options.is_of_group => None,
        found => Some(found?),
    };
    // Dropped before the files are exchanged, also by a caller that does not wait for the end, it
    // removes what was downloaded.
    let unfinished = UnfinishedRestore::begin(&options.directory, options.is_replacing)?;
    unfinished.accepts(Some(generation.cluster))?;
    // The exchange sets the state of a group's member aside.
    let next = begins(options, &manifest, newest_group, unfinished.directory());
    let files = download(archive, &generation, &manifest, unfinished.directory()).await?;
    let directory = Arc::clone(unfinished.directory());
    let mut other = None;
    let ended = unfinished.end(generation.cluster, &files, || {
        let found = recovery::check(&directory)?;
        let (cluster, commands) = found;
        if cluster != generation.cluster || manifest.commands.is_some_and(|it| it != commands) {
            other = Some(ArchiveDamage::OtherCatalog { commands, cluster });
            // An error keeps the mark.
            return Err(NamenodeStartError::Unrestored { directory: directory.path().to_owned() });
        }
        // Before a namenode can start there.
        origin::write_restored(&directory, next)?;
        recover::leave(&directory)?;
        Ok(found)
    });
    if let Some(damage) = other {
        let (url, object) = (archive.url.clone(), "the manifest".to_owned());
        return Err(ArchiveError::Damaged { url, object, damage }.into());
    }
    let (cluster, commands) = ended?;
    let ArchiveManifest { is_closed, at_unix_millis, .. } = manifest;
    let (generation, is_closed) = (generation.number, is_closed && later.is_none());
    let group = next.begun();
    Ok(RecoveredArchive { cluster, generation, commands, is_closed, later, at_unix_millis, group })
}

/// Decides which generation of a group begins: it is later than that of the directory, too.
/// `newest` is the latest one that has begun in the archive; `None` where it cannot be read.
fn begins(
    options: &RecoverOptions,
    manifest: &ArchiveManifest,
    newest: Option<GroupGeneration>,
    directory: &Directory,
) -> RestoredGeneration {
    if !options.is_of_group {
        // A group may have begun since, in the archive or without it.
        return restored_generation(newest, manifest.at_unix_millis, directory);
    }
    let latest = GroupGeneration(manifest.group).max(newest.unwrap_or_default());
    let latest = latest.max(begun_in(directory));
    RestoredGeneration::Anew(latest.next_after(options.after, rand::random()))
}

/// Returns the latest generation of a group that has begun in an archive, or that the namenode
/// founded which wrote the newest generation.
async fn newest_group(
    archive: &ArchiveOptions,
    generation: &ArchiveGeneration,
) -> Result<GroupGeneration, ArchiveError> {
    let there = store::generations(archive).await?;
    let of_cluster = there.iter().rfind(|it| it.cluster == generation.cluster);
    let newest = of_cluster.unwrap_or(generation);
    let begun = store::group_of(archive, newest).await?;
    let founded = match store::manifest(archive, newest).await {
        // An older generation may be whole.
        Err(ArchiveError::Damaged { .. }) => None,
        found => found?.map(|manifest| GroupGeneration(manifest.group)),
    };
    Ok(begun.max(founded.unwrap_or_default()))
}

/// Returns the generation that is wanted with its manifest, and the newest one after it.
async fn choose(
    archive: &ArchiveOptions,
    options: &RecoverOptions,
) -> Result<(ArchiveGeneration, ArchiveManifest, Option<u64>), ArchiveError> {
    let url = || archive.url.clone();
    let mut there = store::generations(archive).await?;
    there.retain(|it| options.cluster.is_none_or(|cluster| it.cluster == cluster));
    let Some(newest) = there.last().copied() else {
        return Err(ArchiveError::Empty { url: url() });
    };
    if there.iter().any(|it| it.cluster != newest.cluster) {
        let mut ids: Vec<String> =
            there.iter().map(|it| format!("{:016x}", it.cluster.0)).collect();
        ids.sort_unstable();
        ids.dedup();
        return Err(ArchiveError::SeveralClusters { url: url(), there: ids.join(", ") });
    }
    let wanted =
        there.iter().rev().filter(|it| options.generation.is_none_or(|no| no == it.number));
    for generation in wanted {
        // One that began and stored nothing yet is none.
        if let Some(manifest) = store::manifest(archive, generation).await? {
            let later = (newest.number > generation.number).then_some(newest.number);
            return Ok((*generation, manifest, later));
        }
    }
    match options.generation {
        Some(generation) => {
            let numbers: Vec<String> = there.iter().map(|it| it.number.to_string()).collect();
            Err(ArchiveError::NoGeneration { url: url(), generation, there: numbers.join(", ") })
        }
        None => Err(ArchiveError::Empty { url: url() }),
    }
}

/// A file, and the one that it will be.
type Downloaded = (PathBuf, PathBuf);

/// Writes the files beside their places.
async fn download(
    archive: &ArchiveOptions,
    generation: &ArchiveGeneration,
    manifest: &ArchiveManifest,
    directory: &Directory,
) -> Result<Vec<Downloaded>, RecoverError> {
    let mut files = Vec::new();
    for index in &manifest.snapshots {
        let target = directory.file(FileKind::Snapshot, *index);
        let objects = [(ArchiveObject::Snapshot(*index), None)];
        files.push(assemble(archive, generation, &objects, target).await?);
    }
    for segment in &manifest.segments {
        let target = directory.file(FileKind::Journal, segment.first);
        let object = |piece| ArchiveObject::Piece(segment.first, piece);
        let pieces = segment.pieces.iter();
        let objects: Vec<_> =
            pieces.map(|piece| (object(*piece), Some(piece.to - piece.from))).collect();
        files.push(assemble(archive, generation, &objects, target).await?);
    }
    Ok(files)
}

/// Writes objects one after the other into a file beside its place, durably.
async fn assemble(
    archive: &ArchiveOptions,
    generation: &ArchiveGeneration,
    objects: &[(ArchiveObject, Option<u64>)],
    target: PathBuf,
) -> Result<Downloaded, RecoverError> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let temporary = target.with_file_name(file_names::recovered(&name));
    let failed = |what, path: &Path| {
        let path = path.to_owned();
        move |cause| NamenodeStartError::Files { what, path, cause }
    };
    let mut file = File::create(&temporary).map_err(failed("create", &temporary))?;
    for (object, length) in objects {
        let path = store::path(archive, generation, &object.to_string());
        let damaged = |damage| ArchiveError::Damaged {
            url: archive.url.clone(),
            object: path.to_string(),
            damage,
        };
        let broken = |cause| match cause {
            object_store::Error::NotFound { .. } => damaged(ArchiveDamage::Missing(cause)),
            cause => ArchiveError::Store { url: archive.url.clone(), cause },
        };
        let found = archive.store.get(&path).await.map_err(broken)?;
        let size = found.meta.size;
        if length.is_some_and(|length| length != size) {
            return Err(damaged(ArchiveDamage::Size { bytes: size }).into());
        }
        let (mut bytes, mut count) = (found.into_stream(), 0);
        while let Some(part) = bytes.next().await {
            let part = part.map_err(broken)?;
            count += part.len() as u64;
            file.write_all(&part).map_err(failed("write", &temporary))?;
        }
        if count != size {
            return Err(damaged(ArchiveDamage::Short { received: count, bytes: size }).into());
        }
    }
    file.sync_all().map_err(failed("sync", &temporary))?;
    Ok((temporary, target))
}
