//! The lock of a cluster's directory: one `local start` or `local stop` at a time.

use std::fs::{File, TryLockError, create_dir_all};
use std::path::Path;

use sanderling_command::failure::{Exit, Failure, FailureKind};

use super::directory::LOCK;
use super::ownership;

/// The directory, while it is this process's to change. The kernel unlocks it when the process
/// ends, however it ends.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Takes a directory for a cluster that is started in it, and marks it as a local cluster's.
    ///
    /// # Errors
    /// As [`Self::take`]; failure (1) where the directory contains files of others.
    pub(super) fn claim(directory: &Path) -> Result<Self, Failure> {
        // Before the lock file is made: nothing is left in a directory that is refused.
        ownership::check(directory)?;
        let lock = Self::take(directory)?;
        ownership::check(directory)?;
        ownership::mark(directory, &lock.file)?;
        Ok(lock)
    }

    /// Makes the directory if need be and locks it.
    ///
    /// # Errors
    /// Unavailable (4) while another process starts or stops the cluster in it: try again when it
    /// has ended. Failure (1) when the directory cannot be made or written.
    pub(super) fn take(directory: &Path) -> Result<Self, Failure> {
        create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
        let path = directory.join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|error| Failure::file(&path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => {
                let cause = "another process starts or stops the cluster in";
                let cause = format!("{cause} {}", directory.display());
                Err(Failure::new(Exit::Unavailable, FailureKind::Busy, cause)
                    .tried("nothing: it must end first")
                    .next("sanderling local status"))
            }
            Err(TryLockError::Error(error)) => Err(Failure::file(&path, error)),
        }
    }
}
