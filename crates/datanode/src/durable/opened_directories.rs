//! Directories of a store, opened one below the other: a symbolic link is never followed, so that
//! no name of an object leads out of the store.

use std::ffi::CStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use sanderling_protocol::limits::ADOPTED_BYTES_MAX;
use thiserror::Error;

/// How often a directory is read to remove all that is in it. One is enough unless another process
/// adds files, or the file system passes some over; what adds files for ever must not keep a thread
/// for ever. Chosen, not measured.
const READINGS_MAX: usize = 8;

/// What is done about a directory that is not there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Missing {
    /// Opening fails: it is not found.
    Fail,
    /// It is made, with these permissions.
    Make(u32),
}

/// Why an object has no place in a store, or that cannot be used.
#[derive(Debug, Error)]
pub(super) enum PlaceError {
    /// The object, or a directory above it, is a symbolic link.
    #[error("{key} is a symbolic link, which is not followed: put what it leads to in its place")]
    Link { key: String },
    /// A pipe, a socket or a directory has its name.
    #[error("{key} is no file: remove it")]
    NoFile { key: String },
    #[error("{key:?} is no name of a file")]
    BadName { key: String },
    /// The operating system failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for PlaceError {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

/// The directory in which an object is, and its name there.
#[derive(Debug)]
pub(super) struct ObjectPlace<'a> {
    directory: File,
    name: &'a str,
    key: &'a str,
}

impl<'a> ObjectPlace<'a> {
    /// Opens the directory of an object. `key` consists of plain names.
    ///
    /// # Errors
    /// [`PlaceError::Link`]: a directory above the object is a symbolic link.
    /// [`PlaceError::Io`]: it is missing, or is no directory.
    pub(super) fn open(root: &Path, key: &'a str, missing: Missing) -> Result<Self, PlaceError> {
        let mut directory = File::open(root)?;
        let mut names = key.split('/').peekable();
        let mut at = 0;
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                return Ok(Self { directory, name, key });
            }
            at += name.len();
            directory = below(&directory, name, &key[..at], missing)?;
            at += 1;
        }
        Err(PlaceError::BadName { key: key.to_owned() })
    }

    /// Opens the object for reading. It does not wait for what is no file, such as a pipe.
    ///
    /// # Errors
    /// [`PlaceError::Link`], [`PlaceError::NoFile`]: something else has its name.
    /// [`PlaceError::Io`]: there is no such object, or it cannot be opened.
    pub(super) fn file(&self) -> Result<File, PlaceError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, self.name, flags, Mode::empty()) {
            Err(Errno::LOOP) => return Err(link(self.key)),
            // What a socket, or a pipe without a writer, answers.
            Err(Errno::NXIO) => return Err(no_file(self.key)),
            opened => File::from(opened?),
        };
        if file.metadata()?.is_file() { Ok(file) } else { Err(no_file(self.key)) }
    }

    /// Puts a file here, in the place of the object that is.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(super) fn take(&self, from: &Path) -> Result<(), PlaceError> {
        let renamed = || rustix::fs::renameat(CWD, from, &self.directory, self.name);
        match renamed() {
            // A directory whose last object was removed stays. One with objects is not removed.
            Err(Errno::ISDIR)
                if rustix::fs::unlinkat(&self.directory, self.name, AtFlags::REMOVEDIR).is_ok() =>
            {
                renamed()?;
            }
            renamed => renamed?,
        }
        self.sync()
    }

    /// Removes the object, not what a symbolic link of its name leads to, before the given time.
    ///
    /// # Errors
    /// [`PlaceError::Io`]: it is too late (`TimedOut`), or the operating system failed.
    pub(super) fn remove(&self, until: Instant) -> Result<(), PlaceError> {
        in_time(until)?;
        rustix::fs::unlinkat(&self.directory, self.name, AtFlags::empty())?;
        self.sync()
    }

    /// Removes a directory with all objects that are in it. What a durable directory never has as
    /// an object stays, and the directories above it. No object is removed after the given time.
    ///
    /// # Errors
    /// As [`Self::remove`]; objects may have been removed by then.
    pub(super) fn remove_tree(&self, until: Instant) -> Result<(), PlaceError> {
        let found = rustix::fs::statat(&self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => self.remove(until),
            _ => {
                remove_below(&self.directory, self.name, until)?;
                self.sync()
            }
        }
    }

    fn sync(&self) -> Result<(), PlaceError> {
        Ok(self.directory.sync_all()?)
    }
}

fn below(above: &File, name: &str, key: &str, missing: Missing) -> Result<File, PlaceError> {
    match (open(above, name), missing) {
        (Err(Errno::NOENT), Missing::Make(mode)) => {
            let is_new = match rustix::fs::mkdirat(above, name, Mode::RWXU) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            let made = open(above, name).map_err(|error| cause(above, name, key, error))?;
            if is_new {
                made.set_permissions(Permissions::from_mode(mode & 0o777))?;
            }
            above.sync_all()?;
            Ok(made)
        }
        (opened, _) => opened.map_err(|error| cause(above, name, key, error)),
    }
}

/// Removes the objects of a directory and those below it; returns whether it is gone.
fn remove_below(above: &File, name: impl Arg + Copy, until: Instant) -> Result<bool, PlaceError> {
    let directory = open(above, name)?;
    for _ in 0..READINGS_MAX {
        let mut is_empty = true;
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let below = entry.file_name();
            if [c".", c".."].contains(&below) {
                continue;
            }
            is_empty &= match remove_entry(&directory, below, until) {
                // Another thread removes the same, or has: it must not look as if all were gone.
                Err(PlaceError::Io(error)) if error.kind() == io::ErrorKind::NotFound => true,
                removed => removed?,
            };
        }
        if !is_empty {
            return Ok(false);
        }
        match rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            // Some file systems pass entries over while others are removed.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty).into())
}

/// Removes an entry of a directory if it is an object or has only such; returns whether it is gone.
fn remove_entry(directory: &File, name: &CStr, until: Instant) -> Result<bool, PlaceError> {
    let found = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let bytes = u64::try_from(found.st_size).unwrap_or(u64::MAX);
    match FileType::from_raw_mode(found.st_mode) {
        _ if !name.to_str().is_ok_and(|it| may_be_object(it, 0)) => Ok(false),
        FileType::Directory => remove_below(directory, name, until),
        FileType::RegularFile if may_be_object("", bytes) => {
            in_time(until)?;
            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Refuses a removal that is too late.
fn in_time(until: Instant) -> Result<(), PlaceError> {
    if Instant::now() < until {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "too late to remove it").into())
}

/// Returns whether an object of this name and size is one of a durable directory: others are left
/// out when a store is adopted, and stay there.
pub(super) fn may_be_object(key: &str, bytes: u64) -> bool {
    bytes <= ADOPTED_BYTES_MAX && !key.chars().any(char::is_control)
}

fn open(above: &File, name: impl Arg) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty()).map(File::from)
}

/// Returns why a directory was not opened. The operating system calls a link "not a directory".
fn cause(above: &File, name: &str, key: &str, error: Errno) -> PlaceError {
    let found = rustix::fs::statat(above, name, AtFlags::SYMLINK_NOFOLLOW);
    let is_link =
        |found: rustix::fs::Stat| FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
    if found.is_ok_and(is_link) { link(key) } else { error.into() }
}

fn link(key: &str) -> PlaceError {
    PlaceError::Link { key: key.to_owned() }
}

fn no_file(key: &str) -> PlaceError {
    PlaceError::NoFile { key: key.to_owned() }
}
