//! What is read from files again when they change, while nothing is taken that is damaged.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

use parking_lot::Mutex;
use rustix::fs::OFlags;

/// How long files that could not be used are left alone while they stay the same: what refused them
/// may pass without a change of theirs, such as a date that is still to come. Chosen, not measured:
/// a certificate whose time has come is used a minute late, and a broken file costs one read and
/// one warning a minute.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Device, inode, bytes, and the time of the last change in seconds and nanoseconds: of the file
/// that a symbolic link leads to, however many links there are. `None` if there is none.
type FileIdentity = Option<(u64, u64, u64, i64, i64)>;

/// Opens a file to read it, and waits for no writer. What may have no end, such as a pipe or a
/// device, is refused: its reader could not be interrupted. A directory is opened; its read fails.
///
/// # Errors
/// The system's error, or what the path leads to in place of a regular file: give another path.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    let words = match kind {
        _ if kind.is_file() || kind.is_dir() => return Ok(file),
        _ if kind.is_fifo() => "it is a pipe, not a regular file",
        _ => "it is a device, not a regular file",
    };
    Err(io::Error::other(words))
}

/// A value that is read from files, and read again when they change.
pub struct Watched<T, E> {
    paths: Vec<PathBuf>,
    /// Makes the value. It is given the one before, if there is one.
    read: Box<Read<T, E>>,
    log: fn(ReloadOutcome<'_>),
    state: Mutex<WatchedState<T>>,
}

/// The result of reading changed files, for the log.
#[derive(Debug, Clone, Copy)]
pub enum ReloadOutcome<'a> {
    /// The value was made anew; of this file, and others.
    Taken(&'a str),
    /// The value stays the one before, for this reason.
    Refused(&'a dyn Error),
}

type Read<T, E> = dyn Fn(Option<&T>) -> Result<T, E> + Send + Sync;

struct WatchedState<T> {
    value: Arc<T>,
    /// What the files were when the value was made of them.
    taken: Vec<FileIdentity>,
    refused: Option<RejectedFiles>,
}

/// Files that were not taken.
struct RejectedFiles {
    found: Vec<FileIdentity>,
    at: Instant,
}

/// Why a running server does not read a file again.
#[derive(Debug, thiserror::Error)]
enum UnusableFile {
    /// It is a pipe, a device or a directory: reading it may wait for a writer.
    #[error("{}: it is not a regular file", .path.display())]
    Irregular { path: PathBuf },
    /// It cannot be looked at.
    #[error("{}: {cause}", .path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
}

impl<T, E> fmt::Debug for Watched<T, E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Watched({:?})", self.paths)
    }
}

impl<T, E: Error> Watched<T, E> {
    /// Reads the files for the first time. `log` is called with the result of each later read.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read(
        paths: Vec<PathBuf>,
        log: fn(ReloadOutcome<'_>),
        read: impl Fn(Option<&T>) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        // Looked at before they are read: what changes meanwhile is read again.
        let taken = identities(&paths);
        let value = Arc::new(read(None)?);
        let state = Mutex::new(WatchedState { value, taken, refused: None });
        Ok(Self { paths, read: Box::new(read), log, state })
    }

    /// Returns what the files contain, or contained before they were damaged. A look costs a system
    /// call for each file.
    pub fn value(&self) -> Arc<T> {
        let mut state = self.state.lock();
        let found = identities(&self.paths);
        if found == state.taken {
            state.refused = None;
            return Arc::clone(&state.value);
        }
        let known = state.refused.as_ref().filter(|refused| refused.found == found);
        if known.is_some_and(|refused| refused.at.elapsed() < RETRY_INTERVAL) {
            return Arc::clone(&state.value);
        }
        match self.regular().map(|()| (self.read)(Some(&state.value))) {
            Ok(Ok(value)) => {
                let file = self.paths.first().map(|path| path.display().to_string());
                (self.log)(ReloadOutcome::Taken(&file.unwrap_or_default()));
                *state = WatchedState { value: Arc::new(value), taken: found, refused: None };
            }
            Ok(Err(error)) => self.refuse(&mut state, found, &error),
            Err(error) => self.refuse(&mut state, found, &error),
        }
        Arc::clone(&state.value)
    }

    /// Keeps the value. The reason is logged once for files that stay the same.
    fn refuse(&self, state: &mut WatchedState<T>, found: Vec<FileIdentity>, error: &dyn Error) {
        if state.refused.as_ref().is_none_or(|refused| refused.found != found) {
            (self.log)(ReloadOutcome::Refused(error));
        }
        state.refused = Some(RejectedFiles { found, at: Instant::now() });
    }

    /// Refuses what a running server must not open, such as a pipe: it would wait for a writer.
    fn regular(&self) -> Result<(), UnusableFile> {
        self.paths.iter().try_for_each(|path| match std::fs::metadata(path) {
            Ok(found) if found.is_file() => Ok(()),
            Ok(_) => Err(UnusableFile::Irregular { path: path.clone() }),
            Err(cause) => Err(UnusableFile::Unreadable { path: path.clone(), cause }),
        })
    }
}

fn identities(paths: &[PathBuf]) -> Vec<FileIdentity> {
    let identity = |path: &PathBuf| {
        let it = std::fs::metadata(path).ok()?;
        Some((it.dev(), it.ino(), it.size(), it.ctime(), it.ctime_nsec()))
    };
    paths.iter().map(identity).collect()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn pipe_and_device_are_refused_without_a_wait() {
        let directory = tempfile::tempdir().unwrap();
        let (pipe, file) = (directory.path().join("pipe"), directory.path().join("file"));
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        let why = |path: &Path| open_regular(path).map(drop).unwrap_err().to_string();
        assert_eq!(why(&pipe), "it is a pipe, not a regular file");
        assert_eq!(why(Path::new("/dev/zero")), "it is a device, not a regular file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(open_regular(&file).and_then(io::read_to_string).unwrap(), "text");
        let error = open_regular(directory.path()).and_then(io::read_to_string).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }
}
