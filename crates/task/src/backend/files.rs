//! Objects that are files of a directory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use bytes::Bytes;
use rustix::fs::OFlags;

use crate::unfinished;

/// Opens a file; `None` if there is none of that name. A pipe or a directory is none, and is not
/// waited for.
fn open_file(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(file.metadata()?.is_file().then_some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a range of a file's bytes, or as many of them as there are.
pub(super) fn read_part(path: &Path, range: &Range<u64>) -> io::Result<Option<Bytes>> {
    let Some(mut file) = open_file(path)? else { return Ok(None) };
    file.seek(SeekFrom::Start(range.start))?;
    let mut bytes = Vec::new();
    file.take(range.end.saturating_sub(range.start)).read_to_end(&mut bytes)?;
    Ok(Some(bytes.into()))
}

/// Reads a file, which [`open_file`] opens. Of one that is longer than `bytes_max` its length is
/// returned.
pub(super) fn read_whole(path: &Path, bytes_max: u64) -> io::Result<Option<Result<Bytes, u64>>> {
    let Some(file) = open_file(path)? else { return Ok(None) };
    let length = file.metadata()?.len();
    if length > bytes_max {
        return Ok(Some(Err(length)));
    }
    // It may grow meanwhile.
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    let read = bytes.len() as u64;
    Ok(Some(if read > bytes_max { Err(read) } else { Ok(bytes.into()) }))
}

/// Writes a file beside its name and gives it the name when all of it is on disk.
pub(super) fn write_whole(path: &Path, bytes: &[u8], absent: bool) -> io::Result<bool> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let unfinished = directory.join(unfinished::draft_name());
    let write = || -> io::Result<bool> {
        let mut file = unfinished::create_draft(&unfinished)?;
        io::Write::write_all(&mut file, bytes)?;
        file.sync_all()?;
        if !absent {
            std::fs::rename(&unfinished, path)?;
        } else if let Err(error) = std::fs::hard_link(&unfinished, path) {
            match error.kind() {
                // A network file system repeats a request whose answer was lost, and then finds
                // the link that it has made itself.
                io::ErrorKind::AlreadyExists if is_same(&file.metadata()?, path) => {}
                io::ErrorKind::AlreadyExists => return Ok(false),
                _ => return Err(error),
            }
        }
        File::open(directory)?.sync_all()?;
        Ok(true)
    };
    let written = write();
    // After a rename there is nothing under that name.
    let _ = std::fs::remove_file(&unfinished);
    written
}

/// Returns whether a path leads to this file.
fn is_same(file: &std::fs::Metadata, path: &Path) -> bool {
    let found = std::fs::symlink_metadata(path);
    found.is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()))
}

/// Refuses the name of a directory that is a symbolic link.
pub(super) fn expect_no_link(path: &Path) -> io::Result<()> {
    match path.is_symlink() {
        true => Err(io::Error::other("it is a symbolic link, and has to be a directory itself")),
        false => Ok(()),
    }
}

/// Returns the names and lengths of what is in a directory. What cannot be looked at is an error: a
/// list without the newest generation would let an older one be restored.
pub(super) fn list_files(path: &Path) -> io::Result<Vec<(String, u64)>> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if unfinished::is_hidden(&name) {
            continue;
        }
        match entry.metadata() {
            Ok(metadata) => found.push((name, metadata.len())),
            // Another process has removed it since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    Ok(found)
}
