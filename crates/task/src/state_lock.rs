//! The lock of a state directory: one runner or restore at a time.
//!
//! A restore deletes what is in the directory, and a runner reads it as the state of its task. The
//! directory itself is locked (flock): nothing is added to it, and a process that is killed leaves
//! no lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use sanderling_command::failure::{Exit, Failure, FailureKind};

use crate::state_replacement::make_private;

/// A state directory that no other process uses, until this is dropped.
#[derive(Debug)]
pub(crate) struct StateLock {
    /// `None` on a file system without locks, as some network file systems are.
    _directory: Option<File>,
}

impl StateLock {
    /// Locks a state directory, which is made for its owner alone if it does not exist.
    ///
    /// # Errors
    /// A runner or a restore has it (`StateTaken`): another directory, or the same one later. Or it
    /// cannot be made or opened.
    pub(crate) fn take(path: &Path) -> Result<Self, Failure> {
        make_private(path)?;
        let flags = OFlags::DIRECTORY.bits().cast_signed();
        let directory = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let directory = directory.map_err(|error| Failure::file(path, error))?;
        match directory.try_lock() {
            Ok(()) => Ok(Self { _directory: Some(directory) }),
            Err(TryLockError::WouldBlock) => Err(taken(path)),
            Err(TryLockError::Error(_)) => Ok(Self { _directory: None }),
        }
    }
}

fn taken(path: &Path) -> Failure {
    let path = path.display();
    let cause = format!("another task or restore uses the state directory {path} now");
    let next = "the same with another --state DIR, or when that one has ended";
    Failure::new(Exit::Unavailable, FailureKind::StateTaken, cause).next(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_locked_once_at_a_time_and_stays_empty() {
        let place = tempfile::tempdir().unwrap();
        let (state, link) = (place.path().join("below/state"), place.path().join("link"));
        let lock = StateLock::take(&state).unwrap();
        std::os::unix::fs::symlink(&state, &link).unwrap();
        for path in [&state, &link] {
            let refused = StateLock::take(path).unwrap_err();
            assert_eq!(
                (refused.exit, &refused.kind),
                (Exit::Unavailable, &FailureKind::StateTaken)
            );
            assert!(refused.cause.contains(&path.display().to_string()), "{refused}");
        }
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0);
        drop(lock);
        StateLock::take(&link).unwrap();
    }
}
