//! Files that are being written into a directory, and those that killed writers left there.

use std::fs::{DirEntry, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use crate::backend::{hex, is_hex};
use crate::encryption::drawn;

/// Bytes that are drawn for the name of a draft.
const DRAWN_BYTES: usize = 16;

/// A directory that stays the same one while it is open, whatever gets its name meanwhile.
pub(crate) struct OpenDirectory(File);

impl OpenDirectory {
    /// Opens a directory. One to which a symbolic link of that name leads is not opened: what is in
    /// it may be of another program.
    ///
    /// # Errors
    /// There is no directory of that name.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
        OpenOptions::new().read(true).custom_flags(flags).open(path).map(Self)
    }

    /// Returns a path to it, as long as it is open.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// Returns the name of a file until all of it is written. It is none of an object.
pub(crate) fn draft_name() -> String {
    format!(".{}", hex(&drawn::<DRAWN_BYTES>()))
}

/// Returns whether a name is that of a file that is not whole: one that [`draft_name`] returns.
/// Others that begin with a dot are of other programs.
pub(crate) fn is_draft(name: &str) -> bool {
    name.strip_prefix('.').is_some_and(|it| is_hex(it, DRAWN_BYTES))
}

/// Returns whether a name is none of an object: that of a draft, or of another program's file.
pub(crate) fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

/// Makes a new file with a lock on it, which ends with this process.
pub(crate) fn create_draft(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    // Without locks, as on some network file systems, the file's age alone protects it.
    let _ = file.try_lock();
    Ok(file)
}

/// Removes the drafts of a directory that no process has locked, however old they are.
pub(crate) fn remove_unlocked(directory: &Path) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_left = |entry: &DirEntry| is_draft(&entry.file_name().to_string_lossy());
    for path in entries.filter(is_left).map(|entry| entry.path()) {
        if !is_locked(&path) {
            // One that cannot be removed is met again by the next runner.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes files of a directory that nothing was written to for `age`, and that no process has
/// locked. Their age is by the clock of the file system. Where there are none, nothing is written.
pub(crate) fn remove_left(directory: &Path, age: Duration, is_left: impl Fn(&str) -> bool) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_named = |entry: &DirEntry| is_left(&entry.file_name().to_string_lossy());
    let left: Vec<DirEntry> = entries.filter(is_named).collect();
    if left.is_empty() {
        return;
    }
    let Ok(now) = now_of(&directory.join(draft_name())) else { return };
    for entry in left {
        let written = entry.metadata().ok().filter(|it| it.is_file()).map(|it| it.modified());
        let Some(Ok(written)) = written else { continue };
        let is_old = now.duration_since(written).is_ok_and(|passed| passed >= age);
        if is_old && !is_locked(&entry.path()) {
            // One that cannot be removed is met again by the next runner.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Returns the time of a directory's file system, from a file that is made there and removed.
fn now_of(path: &Path) -> io::Result<std::time::SystemTime> {
    let now = create_draft(path).and_then(|file| file.metadata()?.modified());
    let _ = std::fs::remove_file(path);
    now
}

/// Returns whether a process has a lock on a file, as one that is writing it.
fn is_locked(path: &Path) -> bool {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let locked = file.map(|file| file.try_lock_shared());
    matches!(locked, Ok(Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_old_and_has_no_writer_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let age = Duration::from_secs(30);
        let dated = |name: &str, back: Duration| {
            let file = create_draft(&path(name)).unwrap();
            let then = file.metadata().unwrap().modified().unwrap() - back;
            file.set_times(std::fs::FileTimes::new().set_modified(then)).unwrap();
            file
        };
        let [old, new, written] = ["0a", "1b", "2c"].map(|it| format!(".{}", it.repeat(16)));
        drop(dated(&old, 2 * age));
        drop(dated(&new, age / 2));
        drop(dated("whole", 2 * age));
        let writer = dated(&written, 2 * age);
        let names = || {
            let entries = std::fs::read_dir(place.path()).unwrap();
            let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name()).collect();
            names.sort();
            names
        };
        remove_left(place.path(), age, is_draft);
        assert_eq!(names(), [&*new, &*written, "whole"]);
        drop(writer);
        remove_left(place.path(), age, is_draft);
        assert_eq!(names(), [&*new, "whole"]);
    }

    #[test]
    fn draft_has_a_name_that_no_other_program_gives() {
        assert!(is_draft(&draft_name()));
        let digits = "0".repeat(31);
        assert!(is_draft(&format!(".{digits}f")));
        for name in [".keep", ".bashrc", ".", ".."] {
            assert!(!is_draft(name), "{name}");
        }
        for name in [format!("{digits}00"), format!(".{digits}"), format!(".{digits}00")] {
            assert!(!is_draft(&name), "{name}");
        }
        assert!(!is_draft(&format!(".{digits}A")) && !is_draft(&format!(".{digits}g")));
    }

    #[test]
    fn link_to_a_directory_is_not_opened() {
        let place = tempfile::tempdir().unwrap();
        let (own, link) = (place.path().join("own"), place.path().join("link"));
        std::fs::create_dir(&own).unwrap();
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(OpenDirectory::new(&link).is_err());
        let opened = OpenDirectory::new(&own).unwrap();
        std::fs::rename(&own, place.path().join("moved")).unwrap();
        std::fs::rename(&link, &own).unwrap();
        let draft = draft_name();
        create_draft(&place.path().join("moved").join(&draft)).unwrap();
        remove_unlocked(&opened.path());
        assert!(!place.path().join("moved").join(&draft).exists());
    }
}
