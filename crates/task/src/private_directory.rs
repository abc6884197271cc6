//! Directories below the temporary one that end with their process, also by `kill -9`.
//!
//! What a task writes into one, and what CRIU logs there, is not encrypted. A runner holds a lock
//! on its directory, which the kernel takes from a process that ends. A directory without one was
//! left behind, and the next runner of the same user removes it.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use sanderling_command::failure::Failure;

use crate::backend::hex;
use crate::encryption::drawn;
use crate::state_replacement::{make_private, remove_any};

/// How the names of all of them begin, and end. Directories with other names are no runner's.
const PREFIX: &str = "sanderling-";
const SUFFIX: &str = ".run";

/// How often a directory is made anew that is removed before it is locked: each time another runner
/// that begins took it for one that was left. Chosen, not measured.
const TRIES_MAX: usize = 10;

/// A directory for this user alone, which is removed in the end.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    path: PathBuf,
    /// It ends after the directory was removed.
    _lock: File,
}

impl PrivateDirectory {
    /// Makes one; the stem is a part of its name.
    ///
    /// # Errors
    /// It cannot be made or locked.
    pub(crate) fn new(stem: &str) -> Result<Self, Failure> {
        let temporary = std::env::temp_dir();
        make_private(&temporary)?;
        for _ in 0..TRIES_MAX {
            // The path of a socket in it has at most 107 bytes, with the temporary directory's.
            // Another runner may take it for one that was left, before it is locked: until that one
            // has removed it, its name is taken.
            let name = format!("{PREFIX}{stem}-{}{SUFFIX}", hex(&drawn::<8>()));
            if let Some(made) = Self::at(temporary.join(name))? {
                return Ok(made);
            }
        }
        Err(Failure::file(&temporary, io::ErrorKind::WouldBlock.into()))
    }

    /// Makes and locks one at a path; `None` if another runner was faster to lock or remove it.
    fn at(path: PathBuf) -> Result<Option<Self>, Failure> {
        let failed = |error: io::Error| Failure::file(&path, error);
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        match locked(&path) {
            Ok(lock) => Ok(lock.map(|lock| Self { path, _lock: lock })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves it, so that it stays. What was at that place is removed.
    pub(crate) fn keep_as(self, place: &Path) {
        let _ = remove_any(place);
        let _ = std::fs::rename(&self.path, place);
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // It may have been moved.
        let _ = remove_any(&self.path);
    }
}

/// Removes the directories of this user's runners that have ended without doing so.
pub(crate) fn remove_left() {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = name.starts_with(PREFIX) && name.ends_with(SUFFIX);
        let owner = entry.metadata().ok().filter(std::fs::Metadata::is_dir).map(|it| it.uid());
        if is_ours
            && owner == Some(geteuid().as_raw())
            && let Ok(Some(_lock)) = locked(&entry.path())
        {
            // What cannot be removed now is met again by the next runner.
            let _ = remove_any(&entry.path());
        }
    }
}

/// Locks a directory; `None` if another process has it, or if it is another one by now.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
    let directory = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match directory.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let (own, named) = (directory.metadata()?, std::fs::symlink_metadata(path)?);
    let is_same = (own.dev(), own.ino()) == (named.dev(), named.ino());
    Ok(is_same.then_some(directory))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn directory_is_private_and_ends_with_its_owner() {
        let directory = PrivateDirectory::new("test").unwrap();
        let path = directory.path().to_owned();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::write(path.join("file"), b"state").unwrap();
        // It is locked.
        remove_left();
        assert!(path.join("file").exists());
        drop(directory);
        assert!(!path.exists());
    }

    /// Runners that begin at the same time remove each other's before they are locked.
    #[test]
    fn runners_that_start_at_once_get_a_directory_each() {
        let work = || {
            for _ in 0..200 {
                remove_left();
                let made = PrivateDirectory::new("race").unwrap();
                assert!(made.path().exists());
            }
        };
        std::thread::scope(|scope| drop([scope.spawn(work), scope.spawn(work), scope.spawn(work)]));
    }

    #[test]
    fn directory_without_a_lock_was_left_and_is_removed() {
        let directory = PrivateDirectory::new("left").unwrap();
        let left = directory.path().with_file_name(format!("{PREFIX}left-of-a-test{SUFFIX}"));
        let other = left.with_file_name(format!("{PREFIX}left-of-a-test"));
        for path in [&left, &other] {
            DirBuilder::new().recursive(true).mode(0o700).create(path).unwrap();
            std::fs::write(path.join("file"), b"state").unwrap();
        }
        remove_left();
        assert!(!left.exists() && other.exists() && directory.path().exists());
        std::fs::remove_dir_all(&other).unwrap();
    }
}
