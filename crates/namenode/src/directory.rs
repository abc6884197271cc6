//! The namenode's directory: one lock, journal segments and snapshots, each named after the number
//! of commands that came before it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sanderling_protocol::ClusterId;
use sanderling_protocol::token::read_hex;
use thiserror::Error;
use tracing::warn;

use crate::error::NamenodeStartError;
use crate::file_names::{self, GROUP_SUSPECT, LOCK, NUMBER_DIGITS, SUSPECT, UNRESTORED};
use crate::files::{Files, RealFiles, Stored, Window};

/// The directory of a running namenode, locked against a second one.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    files: Arc<dyn Files>,
    /// Locked as long as it is open; the kernel unlocks it when the process dies.
    _lock: Option<File>,
}

/// Why a file was not published.
#[derive(Debug, Error)]
pub(crate) enum PublishError {
    /// It is not there.
    #[error("{0}")]
    NotThere(#[source] io::Error),
    /// A sync has failed: what the disk has is unknown.
    #[error("sync: {0}")]
    Unsynced(#[source] io::Error),
}

impl From<PublishError> for io::Error {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::NotThere(error) | PublishError::Unsynced(error) => error,
        }
    }
}

/// The numbered files of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Journal,
    Snapshot,
    /// The log of a replicated group.
    Rounds,
}

impl FileKind {
    const fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Journal => file_names::JOURNAL,
            Self::Snapshot => file_names::SNAPSHOT,
            Self::Rounds => file_names::ROUNDS,
        }
    }

    /// Returns what a name has where files of this kind have their number; `None` if it is no name
    /// of this kind.
    fn within(self, name: &str) -> Option<&str> {
        let (prefix, suffix) = self.parts();
        name.strip_prefix(prefix)?.strip_suffix(suffix)
    }
}

impl Directory {
    /// Makes the directory if need be and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, NamenodeStartError> {
        let fail = |what, path: &Path| {
            let path = path.to_owned();
            move |cause| NamenodeStartError::Files { what, path, cause }
        };
        let files: Arc<dyn Files> = Arc::new(RealFiles);
        files.make_directory(path).map_err(fail("make directory", path))?;
        let lock_path = path.join(LOCK);
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(fail("open", &lock_path))?;
        let is_locked = match lock.try_lock() {
            // A refused restore that had the lock may have removed its file after it was opened.
            Ok(()) => is_at(&lock, &lock_path).map_err(fail("lock", &lock_path))?,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(cause)) => return Err(fail("lock", &lock_path)(cause)),
        };
        if !is_locked {
            return Err(NamenodeStartError::DirectoryLocked { directory: path.to_owned() });
        }
        Self::ready(path, files, Some(lock))
    }

    /// Opens a directory of other files, without a lock.
    #[cfg(test)]
    pub(crate) fn of(path: &Path, files: Arc<dyn Files>) -> Result<Self, NamenodeStartError> {
        Self::ready(path, files, None)
    }

    fn ready(
        path: &Path,
        files: Arc<dyn Files>,
        lock: Option<File>,
    ) -> Result<Self, NamenodeStartError> {
        let fail =
            |cause| NamenodeStartError::Files { what: "clean", path: path.to_owned(), cause };
        let directory = Self { path: path.to_owned(), files, _lock: lock };
        directory.remove_temporary().map_err(fail)?;
        for name in directory.strange().map_err(fail)? {
            let directory = path.display();
            warn!(%directory, name, "no namenode writes this file: it is passed over");
        }
        // The process before may have ended between a rename and its sync.
        directory.sync().map_err(fail)?;
        Ok(directory)
    }

    pub(crate) fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a numbered file.
    pub(crate) fn file(&self, kind: FileKind, index: u64) -> PathBuf {
        self.path.join(file_names::numbered(kind.parts(), index))
    }

    /// Returns the numbers of the files of a kind, ascending. Names that no namenode writes are
    /// passed over.
    pub(crate) fn list(&self, kind: FileKind) -> io::Result<Vec<u64>> {
        let names = self.files.names(&self.path)?;
        let numbers = names.iter().filter_map(|name| number_of(kind.within(name)?));
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the names that [`Self::list`] passes over although they begin and end as those of a
    /// kind do.
    fn strange(&self) -> io::Result<Vec<String>> {
        let kinds = [FileKind::Journal, FileKind::Snapshot, FileKind::Rounds];
        let mut names = self.files.names(&self.path)?;
        names.retain(|name| {
            let mut texts = kinds.iter().filter_map(|kind| kind.within(name));
            texts.any(|text| number_of(text).is_none())
        });
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the bytes of a numbered file, 0 if it is not there.
    pub(crate) fn bytes(&self, kind: FileKind, index: u64) -> u64 {
        let file = self.files.open(&self.file(kind, index));
        file.and_then(|file| file.length()).unwrap_or(0)
    }

    /// Makes a file appear whole or not at all: written beside its place, synced, renamed.
    pub(crate) fn publish(
        &self,
        target: &Path,
        parts: &[&[u8]],
    ) -> Result<Arc<dyn Stored>, PublishError> {
        let temporary = file_names::temporary(target);
        let written = (|| {
            let file = self.files.create(&temporary).map_err(PublishError::NotThere)?;
            let mut at = 0;
            for part in parts {
                file.write_at(part, at).map_err(PublishError::NotThere)?;
                at += part.len() as u64;
            }
            file.sync().map_err(PublishError::Unsynced)?;
            self.files.rename(&temporary, target).map_err(PublishError::NotThere)?;
            self.sync().map_err(PublishError::Unsynced)?;
            Ok(file)
        })();
        if written.is_err() {
            // The error that matters is the one above; a left-over is removed at the next start.
            let _ = self.files.remove(&temporary);
        }
        written
    }

    /// Makes renames and removals durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.files.sync_directory(&self.path)
    }

    /// Saves the end of a file beside it before it is cut.
    pub(crate) fn save_end(&self, path: &Path, first: u64, offset: u64) -> io::Result<()> {
        let mut window = Window::new(self.files.open(path)?)?;
        let aside = self.files.create(&self.path.join(file_names::cut(first, offset)))?;
        let mut at = offset;
        while at < window.length() {
            let piece = window.bytes(at, 1 << 20)?;
            if piece.is_empty() {
                break;
            }
            aside.write_at(piece, at - offset)?;
            at += piece.len() as u64;
        }
        aside.sync()?;
        self.sync()
    }

    /// Renames a file, so that it is not listed. The caller syncs.
    pub(crate) fn set_aside(&self, kind: FileKind, index: u64) -> io::Result<()> {
        let name = match kind {
            FileKind::Journal => file_names::cut(index, 0),
            FileKind::Snapshot => file_names::numbered(file_names::DAMAGED_SNAPSHOT, index),
            FileKind::Rounds => file_names::numbered(file_names::CUT_ROUNDS, index),
        };
        self.files.rename(&self.file(kind, index), &self.path.join(name))
    }

    /// Removes what is not needed to read the catalog from the snapshot at `index`, or from the
    /// ones in `kept` that come after it.
    pub(crate) fn prune(&self, index: u64, kept: &[u64]) -> Result<(), PublishError> {
        let segments = self.list(FileKind::Journal).map_err(PublishError::NotThere)?;
        for pair in segments.windows(2).filter(|pair| pair[1] <= index) {
            let file = self.file(FileKind::Journal, pair[0]);
            self.files.remove(&file).map_err(PublishError::NotThere)?;
        }
        let snapshots = self.list(FileKind::Snapshot).map_err(PublishError::NotThere)?;
        let newest = kept.iter().copied().max().unwrap_or(index).max(index);
        for old in snapshots.into_iter().filter(|old| *old < newest) {
            if old != index && !kept.contains(&old) {
                let file = self.file(FileKind::Snapshot, old);
                self.files.remove(&file).map_err(PublishError::NotThere)?;
            }
        }
        self.sync().map_err(PublishError::Unsynced)
    }

    /// Notes that a sync has failed, or that what it may have spoiled was written anew. It is meant
    /// for the next process on this machine: after a crash what is read is on the disk.
    pub(crate) fn set_suspect(&self, is_suspect: bool) -> io::Result<()> {
        self.mark(SUSPECT, is_suspect)
    }

    /// Returns whether a sync has failed since the last segment was written anew.
    pub(crate) fn is_suspect(&self) -> bool {
        self.is_marked(SUSPECT)
    }

    /// Notes that a sync of the group's log has failed, or that the log was written anew. It is
    /// meant for the next process on this machine, as [`Directory::set_suspect`] is.
    pub(crate) fn set_group_suspect(&self, is_suspect: bool) -> io::Result<()> {
        self.mark(GROUP_SUSPECT, is_suspect)
    }

    /// Returns whether a sync of the group's log has failed since that was written anew.
    pub(crate) fn is_group_suspect(&self) -> bool {
        self.is_marked(GROUP_SUSPECT)
    }

    /// Returns whether a mark is there. One that cannot be opened counts: what it forbids would
    /// otherwise be done.
    fn is_marked(&self, name: &str) -> bool {
        let opened = self.files.open(&self.path.join(name));
        !opened.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    fn mark(&self, name: &str, is_marked: bool) -> io::Result<()> {
        let path = self.path.join(name);
        match is_marked {
            true => self.files.create(&path).map(drop),
            false => self.files.remove(&path),
        }
    }

    /// Notes durably that a restore exchanges the files for a catalog of this cluster. `None` is
    /// the mark of a program that wrote no cluster. An earlier mark is there until this one is.
    pub(crate) fn set_unrestored(&self, cluster: Option<ClusterId>) -> io::Result<()> {
        let text = cluster.map_or_else(String::new, |cluster| format!("{:016x}", cluster.0));
        self.publish(&self.path.join(UNRESTORED), &[text.as_bytes()])?;
        Ok(())
    }

    /// Notes that the restore has ended. The caller syncs.
    pub(crate) fn clear_unrestored(&self) -> io::Result<()> {
        self.files.remove(&self.path.join(UNRESTORED))
    }

    /// Returns whether a restore ended in the middle of that.
    pub(crate) fn is_unrestored(&self) -> bool {
        self.is_marked(UNRESTORED)
    }

    /// Returns the cluster of that restore; `None` if there was none, or if its mark names none: it
    /// is of a program that wrote no cluster.
    pub(crate) fn unrestored_cluster(&self) -> Option<ClusterId> {
        let file = self.files.open(&self.path.join(UNRESTORED)).ok()?;
        // One byte more than an id has.
        let mut bytes = [0; 17];
        let count = file.read_at(&mut bytes, 0).ok()?;
        read_hex(std::str::from_utf8(&bytes[..count]).ok()?).map(ClusterId)
    }

    /// Removes the files that were not given their names.
    pub(crate) fn remove_temporary(&self) -> io::Result<()> {
        for name in self.files.names(&self.path)? {
            let path = self.path.join(name);
            if path.extension().is_some_and(|extension| extension == "tmp") {
                self.files.remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Reads the number in a file's name; `None` if it has not as many digits as a namenode writes: the
/// file with that number is another one.
fn number_of(text: &str) -> Option<u64> {
    let is_whole = text.len() == NUMBER_DIGITS && text.bytes().all(|it| it.is_ascii_digit());
    text.parse().ok().filter(|_| is_whole)
}

/// Returns whether an open file still has a path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let here = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((here.dev(), here.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::files::disk::{Disk, Faults};

    #[test]
    fn second_namenode_on_a_directory_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let first = Directory::open(place.path()).unwrap();
        let second = Directory::open(place.path());
        assert!(matches!(second, Err(NamenodeStartError::DirectoryLocked { .. })));
        drop(first);
        assert!(Directory::open(place.path()).is_ok());
    }

    #[test]
    fn file_whose_path_another_has_or_none_is_not_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(LOCK);
        let file = File::create(&path).unwrap();
        assert!(is_at(&file, &path).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(!is_at(&file, &path).unwrap());
        File::create(&path).unwrap();
        assert!(!is_at(&file, &path).unwrap());
    }

    #[test]
    fn published_file_is_listed_and_pruned_by_its_number() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        for index in [7, 0, 100] {
            directory.publish(&directory.file(FileKind::Journal, index), &[b"a", b"b"]).unwrap();
        }
        let strange = [
            "journal-+0000000000000000001.log",
            "journal-1.log",
            "journal-99999999999999999999.log",
            "journal-x.log",
            "snapshot-000000000000000000001.bin",
        ];
        for name in strange {
            fs::write(place.path().join(name), b"not ours").unwrap();
        }
        assert_eq!(directory.strange().unwrap(), strange);
        assert_eq!(directory.list(FileKind::Journal).unwrap(), [0, 7, 100]);
        directory.prune(50, &[]).unwrap();
        assert_eq!(directory.list(FileKind::Journal).unwrap(), [7, 100]);
        directory.prune(100, &[]).unwrap();
        assert_eq!(directory.list(FileKind::Journal).unwrap(), [100]);
        assert_eq!(directory.strange().unwrap(), strange);
    }

    #[test]
    fn mark_of_a_restore_is_whole_after_a_crash_at_any_moment() {
        let path = Path::new("/catalog");
        let (one, other) = (Some(ClusterId(1)), Some(ClusterId(2)));
        let faults = [
            Faults::default(),
            // The file is not made, or it is not renamed.
            Faults { name: Some(0), ..Faults::default() },
            Faults { name: Some(1), ..Faults::default() },
            Faults { write: Some(0), ..Faults::default() },
            // Its bytes are not synced, or its name is not.
            Faults { sync: Some(0), ..Faults::default() },
            Faults { sync: Some(1), ..Faults::default() },
        ];
        for (faults, seed) in faults.iter().flat_map(|it| (0..50).map(move |seed| (*it, seed))) {
            let disk = Disk::default();
            for (before, cluster) in [(None, one), (one, other)] {
                let directory = Directory::of(path, Arc::new(disk.clone())).unwrap();
                assert_eq!(directory.unrestored_cluster(), before);
                disk.with(|image| image.faults = faults);
                let marked = directory.set_unrestored(cluster);
                let random = &mut StdRng::seed_from_u64(seed);
                disk.with(|image| {
                    image.faults = Faults::default();
                    image.crash(random);
                });
                let after = Directory::of(path, Arc::new(disk.clone())).unwrap();
                let found = after.unrestored_cluster();
                let is_whole = after.is_unrestored() == found.is_some();
                let is_either = found == cluster || (marked.is_err() && found == before);
                assert!(is_whole && is_either, "{faults:?}, {seed}: {marked:?} and {found:?}");
                after.set_unrestored(cluster).unwrap();
            }
            let directory = Directory::of(path, Arc::new(disk.clone())).unwrap();
            directory.clear_unrestored().unwrap();
            assert!(!directory.is_unrestored());
        }
    }

    #[test]
    fn directory_that_cannot_be_made_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(matches!(Directory::open(&file), Err(NamenodeStartError::Files { .. })));
    }
}
