//! From a backup to a directory that a namenode starts on.
//!
//! The backup is checked whole before anything that the directory holds is touched. While files
//! are exchanged, a mark in the directory keeps a namenode from starting on a part of them.
//!
//! If there was a group, the directory begins a later generation of it: those that remember the
//! group take the restored namenode for what follows it.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sanderling_core::catalog::Catalog;
use sanderling_core::group_generation::{FoundGenerations, GroupGeneration, RestoredGeneration};
use sanderling_protocol::ClusterId;
use thiserror::Error;

use super::{BackupDamage, BackupDescription, BackupError, check};
use crate::directory::{Directory, FileKind};
use crate::error::NamenodeStartError;
use crate::file_names::{self, JOURNAL, LOCK, REPLACED_BEGIN, ROUNDS, SNAPSHOT, UNRESTORED};
use crate::group::hard_state::{self, HardState};
use crate::group::origin;
use crate::journal::cluster_of_segment;
use crate::snapshot;

/// The options with which a backup is restored.
#[derive(Debug, Clone)]
pub struct RestoreOptions {
    /// The namenode's directory, made if it does not exist.
    pub directory: PathBuf,
    /// Refuse a backup of any other cluster.
    pub cluster: Option<ClusterId>,
    /// Set aside what a namenode left in the directory.
    pub is_replacing: bool,
}

/// A report of what was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredBackup {
    /// What the backup holds.
    pub backup: BackupDescription,
    /// The generation of the group that begins; the default if the namenode was never in a group.
    pub group: GroupGeneration,
}

/// A reason why a backup was not restored.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// The backup cannot be used.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The directory is in use, or cannot be written; or the catalog cannot be decoded. No file of
    /// a catalog in the directory was exchanged.
    #[error(transparent)]
    Directory(Box<NamenodeStartError>),
    /// Files of the directory were exchanged, and then something failed. The directory has a mark,
    /// and no namenode starts on it before a restore or a recovery has succeeded: do it again.
    #[error(transparent)]
    Unfinished(Box<NamenodeStartError>),
    /// The directory holds a catalog, or a restore of another cluster into it did not reach its
    /// end, and [`RestoreOptions::is_replacing`] is not set.
    #[error("{} holds {name}", .directory.display())]
    NotEmpty {
        /// The directory.
        directory: PathBuf,
        /// One of the files in it.
        name: String,
    },
    /// The directory is not a namenode's.
    #[error("{} holds {name}, which no namenode wrote", .directory.display())]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// One of the files in it.
        name: String,
    },
    /// The backup is of another cluster.
    #[error("the backup is of cluster {found}, not of {wanted:016x}", wanted = .wanted.0)]
    OtherCluster {
        /// The cluster of the backup.
        found: String,
        /// The one that was given, or that the directory holds.
        wanted: ClusterId,
    },
}

/// Returns whether a directory has the mark of a restore or a recovery that did not reach its end.
/// No namenode starts on it before one has succeeded.
#[must_use]
pub fn is_restore_unfinished(directory: &Path) -> bool {
    fs::symlink_metadata(directory.join(UNRESTORED)).is_ok()
}

/// Restores a backup into a directory. The next namenode on it continues from there as from an
/// older copy of its directory: it skips the numbers that were given out since.
///
/// # Errors
/// [`RestoreError`]. The directory and what it held before are as they were, but after
/// [`RestoreError::Unfinished`]: no namenode starts on it, and the same call may be made again.
pub fn restore(
    source: impl Read,
    options: &RestoreOptions,
) -> Result<RestoredBackup, RestoreError> {
    let unfinished = UnfinishedRestore::begin(&options.directory, options.is_replacing)?;
    let temporary = options.directory.join(file_names::RESTORED);
    let (backup, cluster) = write_snapshot(source, &temporary, &unfinished, options)?;
    let directory = Arc::clone(unfinished.directory());
    let target = directory.file(FileKind::Snapshot, backup.commands);
    // The exchange sets the state of a group's member aside.
    let restored = restored_generation(backup.group, backup.taken_unix_millis, &directory);
    unfinished.end(cluster, &[(temporary, target)], || {
        // Before a namenode can start there.
        origin::write_restored(&directory, restored)?;
        Ok(())
    })?;
    Ok(RestoredBackup { backup, group: restored.begun() })
}

/// Decides which generation begins with a copy of a catalog, a backup or an archive, and the one
/// that the copy names. Its number follows from the time: that of the copy if the machine's clock
/// is behind it.
pub(crate) fn restored_generation(
    copy: Option<GroupGeneration>,
    taken_unix_millis: u64,
    directory: &Directory,
) -> RestoredGeneration {
    let (own, begun) = (generation_of(directory), begun_in(directory));
    let found = FoundGenerations { backup: copy, directory: own, begun };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let taken = Duration::from_millis(taken_unix_millis);
    found.restored(now.max(taken).as_secs(), rand::random())
}

/// Returns the latest generation that a directory is known to have begun; the default if none is.
pub(crate) fn begun_in(directory: &Directory) -> GroupGeneration {
    let own = generation_of(directory).unwrap_or_default();
    origin::read(directory).unwrap_or_default().max(own)
}

/// Returns the generation that the namenode of a directory has; the default if it was never in a
/// group. `None`: it was, and its generation cannot be read.
fn generation_of(directory: &Directory) -> Option<GroupGeneration> {
    let none = GroupGeneration::default();
    let is_leaving = hard_state::is_leaving(directory).unwrap_or(true);
    if is_leaving || has_member_aside(directory) {
        return None;
    }
    let of_member = match HardState::read(directory) {
        Ok(None) => none,
        // The state that a release before the first generation wrote has none.
        Ok(Some(state)) => Some(state.generation).filter(|it| *it != none)?,
        Err(_) => return None,
    };
    Some(origin::read(directory).ok()?.max(of_member))
}

/// Returns whether a restore has set a member's state aside. It may have been cut off since.
fn has_member_aside(directory: &Directory) -> bool {
    let Ok(entries) = fs::read_dir(directory.path()) else { return true };
    let is_aside = |name: &str| name.starts_with(REPLACED_BEGIN);
    let mut asides =
        entries.flatten().filter(|entry| is_aside(&entry.file_name().to_string_lossy()));
    asides.any(|aside| hard_state::may_be_in(&aside.path()))
}

/// Writes the snapshot of a backup beside its place, after every check. Returns what the backup
/// holds, and its cluster.
fn write_snapshot(
    source: impl Read,
    temporary: &Path,
    unfinished: &UnfinishedRestore,
    options: &RestoreOptions,
) -> Result<(BackupDescription, ClusterId), RestoreError> {
    let directory = unfinished.directory();
    let made = fs::File::create(temporary).map_err(failed("create", temporary))?;
    let mut writer = std::io::BufWriter::new(made);
    let description = check(source, &mut writer)?;
    writer.flush().map_err(failed("write", temporary))?;
    writer.get_ref().sync_all().map_err(failed("sync", temporary))?;
    is_of(&description, options, directory)?;
    let cluster = decoded(directory, temporary, &description)?;
    unfinished.accepts(Some(cluster))?;
    Ok((description, cluster))
}

fn failed(
    what: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> NamenodeStartError + use<> {
    let path = path.to_owned();
    move |cause| NamenodeStartError::Files { what, path, cause }
}

/// A directory that is being restored: it is locked, and nothing in it has been exchanged. What was
/// added to it is removed when this is dropped, unless [`Self::end`] has exchanged files.
pub(crate) struct UnfinishedRestore {
    directory: Arc<Directory>,
    /// The directory and those above it that were not there, from below.
    new_directories: Vec<PathBuf>,
    /// The lock's file was not there.
    is_lock_new: bool,
    /// A file of the catalog in it, if that is not to be replaced; without one, the mark of a
    /// restore: the catalog may have been set aside.
    held: Option<String>,
    is_kept: bool,
}

impl UnfinishedRestore {
    /// Makes the directory if need be and locks it. If a restore into it was cut off, which catalog
    /// may be put there depends on [`Self::accepts`].
    ///
    /// # Errors
    /// [`RestoreError::Foreign`], or [`RestoreError::NotEmpty`] if the catalog in it is not to be
    /// replaced: take another directory. [`RestoreError::Directory`]: it cannot be used.
    pub(crate) fn begin(path: &Path, is_replacing: bool) -> Result<Self, RestoreError> {
        held(path)?;
        let is_new = |path: &Path| !path.as_os_str().is_empty() && !path.exists();
        let new_directories = path.ancestors().take_while(|path| is_new(path));
        let new_directories = new_directories.map(Path::to_path_buf).collect();
        let is_lock_new = is_new(&path.join(LOCK));
        let directory = Arc::new(Directory::open(path)?);
        let mut unfinished =
            Self { directory, new_directories, is_lock_new, held: None, is_kept: false };
        // Another restore may have ended since.
        let is_marked = unfinished.directory.is_unrestored();
        let mark = is_marked.then(|| UNRESTORED.to_owned());
        let there = held(path)?.into_iter().next().or(mark);
        unfinished.held = there.filter(|_| !is_replacing);
        // Which cluster comes may not be known yet.
        unfinished.accepts(unfinished.directory.unrestored_cluster())?;
        Ok(unfinished)
    }

    /// Refuses a catalog of this cluster if the directory has one that is not to be replaced, or
    /// had one when a restore began that was cut off. What such a restore of the same cluster has
    /// left may be replaced.
    ///
    /// # Errors
    /// [`RestoreError::NotEmpty`]: take another directory.
    pub(crate) fn accepts(&self, cluster: Option<ClusterId>) -> Result<(), RestoreError> {
        let is_same = cluster.is_some() && self.directory.unrestored_cluster() == cluster;
        match self.held.clone().filter(|_| !is_same) {
            Some(name) => {
                let directory = self.directory.path().to_owned();
                Err(RestoreError::NotEmpty { directory, name })
            }
            None => Ok(()),
        }
    }

    /// Returns the directory. Files in it whose names end in `.tmp` are removed with the rest.
    pub(crate) const fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Exchanges the files. What was added to the directory is kept, unless nothing was exchanged.
    ///
    /// # Errors
    /// Those of [`exchange`].
    pub(crate) fn end<T>(
        mut self,
        cluster: ClusterId,
        files: &[(PathBuf, PathBuf)],
        check: impl FnOnce() -> Result<T, NamenodeStartError>,
    ) -> Result<T, RestoreError> {
        let ended = exchange(&self.directory, cluster, files, check);
        self.is_kept = !matches!(ended, Err(RestoreError::Directory(_)));
        ended
    }
}

impl Drop for UnfinishedRestore {
    /// The directory is still locked. What cannot be removed does no harm: the next restore or
    /// start uses or removes it.
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let path = self.directory.path();
        let _ = self.directory.remove_temporary();
        // Of a directory that has a catalog by now, the lock stays.
        if self.is_lock_new && held(path).is_ok_and(|names| names.is_empty()) {
            let _ = fs::remove_file(path.join(LOCK));
        }
        for directory in &self.new_directories {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Returns the names in a directory that a restore would set aside. One that has others and no
/// namenode's lock is not touched.
fn held(path: &Path) -> Result<Vec<String>, RestoreError> {
    let Ok(entries) = fs::read_dir(path) else { return Ok(Vec::new()) };
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.flatten().map(name).collect();
    // A file system's own.
    names.retain(|name| name != "lost+found");
    names.sort_unstable();
    let is_namenodes = names.iter().any(|name| name == LOCK);
    match names.first().filter(|_| !is_namenodes) {
        Some(name) => Err(RestoreError::Foreign { directory: path.to_owned(), name: name.clone() }),
        None => {
            names.retain(|name| is_catalog(name));
            Ok(names)
        }
    }
}

/// Returns whether a file belongs to a catalog, or to the group that its namenode is a member of.
fn is_catalog(name: &str) -> bool {
    let begins = [JOURNAL.0, SNAPSHOT.0, ROUNDS.0, "group-state."];
    begins.iter().any(|begin| name.starts_with(begin))
}

/// Refuses a backup of another cluster than the given one or that of the directory. A directory
/// whose cluster cannot be read refuses none.
fn is_of(
    description: &BackupDescription,
    options: &RestoreOptions,
    directory: &Directory,
) -> Result<(), RestoreError> {
    let segments = directory.list(FileKind::Journal).unwrap_or_default();
    let found = segments.into_iter().rev().find_map(|first| cluster_of_segment(directory, first));
    for wanted in options.cluster.into_iter().chain(found) {
        if description.cluster() != Some(wanted) {
            let found = description.cluster.clone();
            return Err(RestoreError::OtherCluster { found, wanted });
        }
    }
    Ok(())
}

/// Decodes the catalog as a start does, and returns its cluster.
fn decoded(
    directory: &Directory,
    path: &Path,
    description: &BackupDescription,
) -> Result<ClusterId, RestoreError> {
    let catalog = snapshot::read(directory, path)?;
    let is_described =
        catalog.index() == description.commands && Some(catalog.cluster()) == description.cluster();
    if !is_described {
        return Err(BackupError::from(BackupDamage::OtherCatalog).into());
    }
    let rules = catalog.rules().0;
    if rules > Catalog::RULES {
        let path = directory.path().to_owned();
        return Err(NamenodeStartError::NewerRules { path, rules }.into());
    }
    Ok(catalog.cluster())
}

/// Sets aside what was there, gives the files of a cluster's catalog their places, and checks what
/// they make. No namenode starts on the directory before the check has succeeded. After an error
/// none of the files is left beside its place.
///
/// # Errors
/// [`RestoreError::Directory`]: nothing was exchanged, and the mark is there only if it was before.
/// [`RestoreError::Unfinished`]: files were exchanged.
pub(crate) fn exchange<T>(
    directory: &Directory,
    cluster: ClusterId,
    files: &[(PathBuf, PathBuf)],
    check: impl FnOnce() -> Result<T, NamenodeStartError>,
) -> Result<T, RestoreError> {
    let (was_marked, before) = (directory.is_unrestored(), directory.unrestored_cluster());
    let mut is_changed = false;
    let exchanged = put_in_place(directory, cluster, files, &mut is_changed);
    let ended = exchanged.and_then(|()| {
        is_changed = true;
        let checked = check()?;
        directory.clear_unrestored().map_err(failed("remove the mark in", directory.path()))?;
        directory.sync().map_err(failed("sync", directory.path()))?;
        Ok(checked)
    });
    ended.map_err(|error| {
        // The error that matters is the one above: the next restore removes what is left.
        for (temporary, _) in files {
            let _ = fs::remove_file(temporary);
        }
        if is_changed {
            return RestoreError::Unfinished(Box::new(error));
        }
        // The mark of an earlier restore stays as it was: it does not name this one.
        let _ = match was_marked {
            true => directory.set_unrestored(before),
            false => directory.clear_unrestored().and_then(|()| directory.sync()),
        };
        RestoreError::Directory(Box::new(error))
    })
}

/// Marks the directory, sets aside the catalog in it, and renames the files. `is_changed` becomes
/// true with the first of them that was renamed.
fn put_in_place(
    directory: &Directory,
    cluster: ClusterId,
    files: &[(PathBuf, PathBuf)],
    is_changed: &mut bool,
) -> Result<(), NamenodeStartError> {
    let path = directory.path();
    directory.set_unrestored(Some(cluster)).map_err(failed("write a mark in", path))?;
    // A link that leads nowhere has a name, too.
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    let mut asides = (1..).map(|at: u64| path.join(format!("{REPLACED_BEGIN}{at}")));
    let aside = asides.find(is_free).expect("numbers do not end");
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(failed("list", path))? {
        names.push(entry.map_err(failed("list", path))?.file_name());
    }
    names.retain(|name| is_catalog(&name.to_string_lossy()));
    names.sort_unstable();
    if !names.is_empty() {
        fs::create_dir(&aside).map_err(failed("make directory", &aside))?;
        for name in names {
            let file = path.join(&name);
            if let Err(cause) = fs::rename(&file, aside.join(&name)) {
                if !*is_changed {
                    let _ = fs::remove_dir(&aside);
                }
                return Err(failed("set aside", &file)(cause));
            }
            *is_changed = true;
        }
        directory.files().sync_directory(&aside).map_err(failed("sync", &aside))?;
    }
    for (temporary, target) in files {
        fs::rename(temporary, target).map_err(failed("put in place", target))?;
        *is_changed = true;
    }
    directory.sync().map_err(failed("sync", path))
}
