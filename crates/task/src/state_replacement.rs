//! How what was unpacked takes the place of what was in a state directory: as a whole, or not at
//! all.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sanderling_command::failure::Failure;

use crate::mounts::{MountedThere, is_mount_root, mounted_there};

/// How the name of a directory begins in which a state is unpacked before it takes its place.
pub(crate) const UNPACKING: &str = ".sanderling-restoring";

/// How the name of a directory begins with what was in a state directory, until the state that has
/// replaced it is complete.
pub(crate) const OLD: &str = ".sanderling-restoring-old";

/// Entries that were moved, each with where it was before.
#[derive(Debug, Default)]
struct MovedEntries(Vec<(PathBuf, PathBuf)>);

impl MovedEntries {
    /// Moves entries into a directory, up to the first one that cannot be moved.
    fn add(&mut self, entries: Vec<PathBuf>, to: &Path) -> Result<(), Failure> {
        for from in entries {
            let Some(name) = from.file_name() else { continue };
            let to = to.join(name);
            move_any(&from, &to).map_err(|error| Failure::file(&from, error))?;
            self.0.push((from, to));
        }
        Ok(())
    }

    /// Moves all back, the last one first. What cannot be moved stays.
    fn take_back(self) {
        for (from, to) in self.0.into_iter().rev() {
            let _ = move_any(&to, &from);
        }
    }
}

/// What was in a state directory, beside what has replaced it.
#[derive(Debug)]
pub(crate) struct ReplacedState {
    directory: PathBuf,
    old: PathBuf,
    moved: MovedEntries,
}

impl ReplacedState {
    /// Moves what is in a state directory aside, and what is in `place` below it into it.
    ///
    /// # Errors
    /// An entry cannot be moved, or something is mounted below one, whose content would be removed
    /// with it: what was there is there again.
    pub(crate) fn replace(directory: &Path, place: &Path, id: &str) -> Result<Self, Failure> {
        assert_eq!(place.parent(), Some(directory), "renames stay on one file system");
        let old = directory.join(format!("{OLD}-{id}"));
        make_private(&old)?;
        let mut moved = MovedEntries::default();
        let is_of_state = |path: &PathBuf| path.file_name().is_some_and(|it| !is_unpacking(it));
        let replaced = entries(directory).and_then(|found| {
            let found: Vec<PathBuf> = found.into_iter().filter(is_of_state).collect();
            found.iter().try_for_each(|path| expect_no_mount(path))?;
            moved.add(found, &old)?;
            moved.add(entries(place)?, directory)
        });
        let replaced_state = Self { directory: directory.to_owned(), old, moved };
        match replaced {
            Ok(()) => Ok(replaced_state),
            Err(failure) => Err(replaced_state.take_back(failure)),
        }
    }

    /// Puts what was replaced back, because of a failure. Returns the failure to report.
    pub(crate) fn take_back(self, failure: Failure) -> Failure {
        self.moved.take_back();
        if fs::remove_dir(&self.old).is_ok() {
            return failure;
        }
        failure.next(format!("move what is in {} back", self.old.display()))
    }

    /// Removes what was replaced, also by restores that were killed then. What cannot be removed
    /// stays for the next restore: it is no part of the state.
    pub(crate) fn remove(self) {
        for path in entries(&self.directory).unwrap_or_default() {
            let name = path.file_name().unwrap_or_default();
            let Some(id) = name.as_bytes().strip_prefix(OLD.as_bytes()) else { continue };
            if expect_no_mount(&path).is_err() {
                continue;
            }
            // If this is killed, the next restore removes one of this name before it unpacks.
            let mut gone = OsStr::new(UNPACKING).to_owned();
            gone.push("-gone");
            gone.push(OsStr::from_bytes(id));
            let gone = self.directory.join(gone);
            let _ = remove_any(if fs::rename(&path, &gone).is_ok() { &gone } else { &path });
        }
    }
}

/// Returns whether a path below a state directory is one in which a state is unpacked, or that has
/// what was replaced.
pub(crate) fn is_unpacking(below: &OsStr) -> bool {
    let is_direct = Path::new(below).components().count() == 1;
    is_direct && below.as_bytes().starts_with(UNPACKING.as_bytes())
}

/// Returns whether a path below a state directory is one with what a restore has replaced.
pub(crate) fn is_old(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_bytes().starts_with(OLD.as_bytes())
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let listed = fs::read_dir(directory)
        .and_then(|found| found.map(|it| it.map(|it| it.path())).collect::<io::Result<Vec<_>>>());
    listed.map_err(|error| Failure::file(directory, error))
}

/// Refuses an entry at or below which something is mounted, as far as the system shows that.
fn expect_no_mount(path: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::file(path, error);
    // A mount whose server is away fails here.
    let is_directory = fs::symlink_metadata(path).map_err(failed)?.is_dir();
    let is_mounted = is_mount_root(path).ok().flatten().unwrap_or_else(|| {
        is_directory && !matches!(mounted_there(path), Ok(MountedThere::Nothing) | Err(_))
    });
    if is_mounted {
        return Err(failed(io::ErrorKind::ResourceBusy.into()));
    }
    if !is_directory {
        return Ok(());
    }
    match fs::read_dir(path) {
        // Its owner may not read it, so what is below is not seen.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(_) => entries(path)?.iter().try_for_each(|below| expect_no_mount(below)),
    }
}

/// Moves an entry, also a directory that its owner may not write to: it has its mode again then.
fn move_any(from: &Path, to: &Path) -> io::Result<()> {
    let refused = match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            return move_below(from, to, error);
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
        moved => return moved,
    };
    let metadata = fs::symlink_metadata(from)?;
    if !metadata.is_dir() {
        return Err(refused);
    }
    fs::set_permissions(from, fs::Permissions::from_mode(0o700))?;
    let moved = match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => move_below(from, to, error),
        moved => moved,
    };
    let now = if moved.is_ok() { to } else { from };
    // It is where it should be, whatever its mode.
    let _ = fs::set_permissions(now, metadata.permissions());
    moved
}

/// Moves a directory entry by entry: one of a lower layer of an overlay (the image of a container)
/// cannot be renamed. If an entry cannot be moved, those before it are moved back.
fn move_below(from: &Path, to: &Path, refused: io::Error) -> io::Result<()> {
    let metadata = fs::symlink_metadata(from)?;
    if !metadata.is_dir() {
        return Err(refused);
    }
    fs::create_dir(to)?;
    let moved = move_entries(from, to);
    if moved.is_err() {
        let _ = move_entries(to, from);
    }
    let now = if moved.is_ok() { to } else { from };
    let _ = fs::set_permissions(now, metadata.permissions());
    moved
}

/// Moves all that is in a directory into another one, and removes it.
fn move_entries(from: &Path, to: &Path) -> io::Result<()> {
    fs::set_permissions(from, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        move_any(&entry.path(), &to.join(entry.file_name()))?;
    }
    fs::remove_dir(from)
}

/// Makes a directory for its owner alone; one that exists stays as it is.
pub(crate) fn make_private(path: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new();
    let made = {
        use std::os::unix::fs::DirBuilderExt;
        let mut made = made;
        made.recursive(true).mode(0o700).create(path)
    };
    made.map_err(|error| Failure::file(path, error))
}

/// Removes a file, or a directory with what is in it, also if its owner may not write to it.
pub(crate) fn remove_any(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_removable(path)?;
            fs::remove_dir_all(path)
        }
        removed => removed,
    }
}

fn make_removable(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_removable(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_replaced_as_a_whole_and_what_was_there_is_removed_then() {
        let root = tempfile::tempdir().unwrap();
        let (directory, place) = (root.path(), root.path().join(".sanderling-restoring-01"));
        fs::create_dir(&place).unwrap();
        fs::write(place.join("new"), "new").unwrap();
        fs::write(directory.join("old"), "old").unwrap();
        fs::create_dir(directory.join("closed")).unwrap();
        let closed = fs::Permissions::from_mode(0o500);
        fs::set_permissions(directory.join("closed"), closed).unwrap();
        let replaced = ReplacedState::replace(directory, &place, "01").unwrap();
        let old = directory.join(format!("{OLD}-01"));
        assert_eq!(fs::read_to_string(old.join("old")).unwrap(), "old");
        assert_eq!(fs::metadata(old.join("closed")).unwrap().permissions().mode() & 0o777, 0o500);
        replaced.remove();
        fs::remove_dir(&place).unwrap();
        assert_eq!(entries(directory).unwrap(), [directory.join("new")]);
    }

    #[test]
    fn directory_that_cannot_be_renamed_is_moved_entry_by_entry_with_its_mode() {
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        fs::create_dir_all(from.join("below")).unwrap();
        fs::write(from.join("below/file"), "kept").unwrap();
        fs::set_permissions(&from, fs::Permissions::from_mode(0o500)).unwrap();
        let refused = || io::Error::from(io::ErrorKind::CrossesDevices);
        move_below(&from, &to, refused()).unwrap();
        assert_eq!(fs::read_to_string(to.join("below/file")).unwrap(), "kept");
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o500);
        assert!(!from.exists());
        let file = to.join("below/file");
        assert!(move_below(&file, &from, refused()).is_err(), "a file is on another device");
    }

    #[test]
    fn what_was_replaced_is_put_back_after_a_later_failure() {
        let root = tempfile::tempdir().unwrap();
        let (directory, place) = (root.path(), root.path().join(".sanderling-restoring-01"));
        fs::create_dir(&place).unwrap();
        fs::write(place.join("state"), "new").unwrap();
        fs::write(directory.join("state"), "old").unwrap();
        let replaced = ReplacedState::replace(directory, &place, "01").unwrap();
        drop(replaced.take_back(Failure::file(directory, io::ErrorKind::Other.into())));
        assert_eq!(fs::read_to_string(directory.join("state")).unwrap(), "old");
        assert_eq!(fs::read_to_string(place.join("state")).unwrap(), "new");
        assert!(!directory.join(format!("{OLD}-01")).exists());
    }

    /// The new state cannot be read to its end.
    #[test]
    fn state_that_cannot_be_replaced_is_there_again() {
        let root = tempfile::tempdir().unwrap();
        let (directory, place) = (root.path(), root.path().join(".sanderling-restoring-01"));
        fs::write(directory.join("old"), "old").unwrap();
        assert!(ReplacedState::replace(directory, &place, "01").is_err());
        assert_eq!(entries(directory).unwrap(), [directory.join("old")]);
        assert_eq!(fs::read_to_string(directory.join("old")).unwrap(), "old");
    }
}
