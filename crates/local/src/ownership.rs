//! Which directories are a local cluster's: only in those are files deleted.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sanderling_command::failure::{Exit, Failure, FailureKind, RefusalKind};
use sanderling_command::process::POLL_INTERVAL;

use super::directory::{CATALOG_LOCK, CATALOGS, DISK_MARKER, DISKS, LOCK, LOGS};
use super::record::Record;

/// What the lock file contains: `local start` writes it before anything else.
const MARK: &[u8] = b"a directory of sanderling local\n";

/// Directories of servers below the cluster's, each with the file that its server locks.
const LOCKED: [(&str, &str, &str); 2] =
    [("namenode", CATALOGS, CATALOG_LOCK), ("datanode", DISKS, DISK_MARKER)];

/// How long a process that has just ended may take to give its locks back: its first thread may end
/// before the others. They end within milliseconds, later on a busy machine. Chosen, not measured.
const UNLOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Refuses a directory with files that no local cluster made. One that is new or empty is free, and
/// so is what a start or a stop left that was killed: the mark is written first.
///
/// A release before the mark is recognised by its record, and where it has stopped its cluster by
/// an empty lock file with nothing but logs beside it.
///
/// # Errors
/// Failure (1): the directory contains files of others, of which the first is named, or it cannot
/// be read.
pub(super) fn check(directory: &Path) -> Result<(), Failure> {
    if Record::read(directory)?.is_some() {
        return Ok(());
    }
    let names = names(directory)?;
    let mark = match std::fs::read(directory.join(LOCK)) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        // A directory, for example.
        Err(_) => Some(b"?".to_vec()),
        Ok(text) => Some(text),
    };
    if mark.as_deref() == Some(MARK) {
        return Ok(());
    }
    let has_torn_mark = mark.is_some_and(|text| MARK.starts_with(&text));
    let is_ours = |name: &OsString| {
        has_torn_mark && (name == LOCK || (name == LOGS && has_only_logs(&directory.join(LOGS))))
    };
    let Some(foreign) = names.iter().find(|name| !is_ours(name)) else { return Ok(()) };
    let (directory, foreign) = (directory.display(), foreign.to_string_lossy());
    let cause = format!("{directory} holds {foreign}, which no local cluster made");
    Err(Failure::new(Exit::Failure, FailureKind::LocalFile, cause)
        .tried("nothing: a local cluster deletes what is in its directory")
        .next("the same with another --dir"))
}

/// Writes the mark to the lock file of a directory that [`check`] has admitted, durably.
///
/// # Errors
/// Failure (1): the file cannot be written.
pub(super) fn mark(directory: &Path, mut lock: &File) -> Result<(), Failure> {
    let path = directory.join(LOCK);
    let failed = |error: std::io::Error| Failure::file(&path, error);
    if std::fs::read(&path).map_err(failed)? == MARK {
        return Ok(());
    }
    lock.write_all(MARK).and_then(|()| lock.sync_all()).map_err(failed)?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
}

/// Refuses while a server that is none of the cluster's uses a directory in it.
///
/// # Errors
/// Failure (1) with `next` as the next command: its files are not deleted.
pub(super) fn not_in_use(directory: &Path, next: &str) -> Result<(), Failure> {
    let limit = Instant::now() + UNLOCK_TIMEOUT;
    while let Some((role, used)) = used(directory)? {
        if Instant::now() >= limit {
            let cause = format!("a {role} that is not on record runs in {}", used.display());
            return Err(Failure::new(Exit::Failure, RefusalKind::Exists, cause)
                .tried("nothing: its files would have been deleted; it must end first")
                .next(next));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Returns a directory that a server has locked, and the server's role.
fn used(directory: &Path) -> Result<Option<(&'static str, PathBuf)>, Failure> {
    for (role, top, lock) in LOCKED {
        let top = directory.join(top);
        let below: Vec<PathBuf> = names(&top)?.iter().map(|name| top.join(name)).collect();
        for place in std::iter::once(top).chain(below) {
            if is_locked(&place.join(lock)) {
                return Ok(Some((role, place)));
            }
        }
    }
    Ok(None)
}

fn is_locked(path: &Path) -> bool {
    let locked = File::open(path).map(|file| file.try_lock_shared());
    matches!(locked, Ok(Err(TryLockError::WouldBlock)))
}

fn has_only_logs(directory: &Path) -> bool {
    let is_log = |name: &OsString| Path::new(name).extension().is_some_and(|end| end == "log");
    names(directory).is_ok_and(|names| names.iter().all(is_log))
}

/// Returns the names in a directory in their order; none where there is no directory.
///
/// # Errors
/// Failure (1): the directory cannot be read.
pub(super) fn names(directory: &Path) -> Result<Vec<OsString>, Failure> {
    let failed = |error: std::io::Error| Failure::file(directory, error);
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(failed)?,
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()).map_err(failed));
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    names.sort();
    Ok(names)
}
