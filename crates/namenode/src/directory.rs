//! The namenode's directory: one lock, journal segments and snapshots, each named after the number
//! of commands that came before it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::StartError;

/// The directory of a running namenode, locked against a second one.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Locked as long as it is open; the kernel unlocks it when the process dies.
    _lock: File,
}

/// The numbered files of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Journal,
    Snapshot,
}

impl Kind {
    const fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Journal => ("journal-", ".log"),
            Self::Snapshot => ("snapshot-", ".bin"),
        }
    }
}

impl Directory {
    /// Makes the directory if need be and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, StartError> {
        let fail = |what, path: &Path| {
            let path = path.to_owned();
            move |cause| StartError::Files { what, path, cause }
        };
        fs::create_dir_all(path).map_err(fail("make directory", path))?;
        let lock_path = path.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(fail("open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StartError::DirectoryLocked { directory: path.to_owned() });
            }
            Err(TryLockError::Error(cause)) => return Err(fail("lock", &lock_path)(cause)),
        }
        let directory = Self { path: path.to_owned(), _lock: lock };
        directory.remove_temporary().map_err(fail("clean", path))?;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a numbered file.
    pub(crate) fn file(&self, kind: Kind, index: u64) -> PathBuf {
        let (prefix, suffix) = kind.parts();
        self.path.join(format!("{prefix}{index:020}{suffix}"))
    }

    /// Returns the numbers of the files of a kind, ascending.
    pub(crate) fn list(&self, kind: Kind) -> io::Result<Vec<u64>> {
        let (prefix, suffix) = kind.parts();
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let name = name.to_str().and_then(|name| name.strip_prefix(prefix));
            let number = name.and_then(|name| name.strip_suffix(suffix));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Makes a file appear whole or not at all: written beside its place, synced, renamed.
    pub(crate) fn publish(&self, target: &Path, parts: &[&[u8]]) -> io::Result<File> {
        let temporary = target.with_extension("tmp");
        let written = (|| {
            let mut file = File::create(&temporary)?;
            for part in parts {
                io::Write::write_all(&mut file, part)?;
            }
            file.sync_all()?;
            fs::rename(&temporary, target)?;
            self.sync()?;
            Ok(file)
        })();
        if written.is_err() {
            // The error that matters is the one above; a left-over is removed at the next start.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Makes renames and removals durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Removes segments and snapshots that the snapshot at `index` makes unnecessary.
    pub(crate) fn prune(&self, index: u64) -> io::Result<()> {
        for kind in [Kind::Journal, Kind::Snapshot] {
            for old in self.list(kind)?.into_iter().filter(|old| *old < index) {
                fs::remove_file(self.file(kind, old))?;
            }
        }
        self.sync()
    }

    fn remove_temporary(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_namenode_on_a_directory_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let first = Directory::open(place.path()).unwrap();
        let second = Directory::open(place.path());
        assert!(matches!(second, Err(StartError::DirectoryLocked { .. })));
        drop(first);
        assert!(Directory::open(place.path()).is_ok());
    }

    #[test]
    fn published_file_is_listed_and_pruned_by_its_number() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        for index in [7, 0, 100] {
            directory.publish(&directory.file(Kind::Journal, index), &[b"a", b"b"]).unwrap();
        }
        fs::write(place.path().join("journal-x.log"), b"not ours").unwrap();
        assert_eq!(directory.list(Kind::Journal).unwrap(), [0, 7, 100]);
        directory.prune(100).unwrap();
        assert_eq!(directory.list(Kind::Journal).unwrap(), [100]);
        assert!(place.path().join("journal-x.log").exists());
    }

    #[test]
    fn directory_that_cannot_be_made_is_said() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(matches!(Directory::open(&file), Err(StartError::Files { .. })));
    }
}
