//! Files that are being written into a directory, and those that killed writers left there.

use std::fs::{DirEntry, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::backend::hex;
use crate::encryption::drawn;

/// Returns the name of a file until all of it is written. It is none of an object.
pub(crate) fn draft_name() -> String {
    format!(".{}", hex(&drawn::<16>()))
}

/// Returns whether a name is that of a file that is not whole.
pub(crate) fn is_draft(name: &str) -> bool {
    name.starts_with('.')
}

/// Makes a new file with a lock on it, which ends with this process.
pub(crate) fn create_draft(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    // Without locks, as on some network file systems, the file's age alone protects it.
    let _ = file.try_lock();
    Ok(file)
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
pub(crate) fn is_locked(path: &Path) -> bool {
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
        drop(dated(".old", 2 * age));
        drop(dated(".new", age / 2));
        drop(dated("whole", 2 * age));
        let written = dated(".written", 2 * age);
        let names = || {
            let entries = std::fs::read_dir(place.path()).unwrap();
            let mut names: Vec<_> = entries.map(|it| it.unwrap().file_name()).collect();
            names.sort();
            names
        };
        remove_left(place.path(), age, is_draft);
        assert_eq!(names(), [".new", ".written", "whole"]);
        drop(written);
        remove_left(place.path(), age, is_draft);
        assert_eq!(names(), [".new", "whole"]);
    }
}
