//! Snapshots: the whole catalog in one file, so that the journal before it can go.
//!
//! ```text
//! 8 bytes magic, u32 version, u32 CRC32C of the body, u64 body bytes, body (postcard `Catalog`)
//! ```

use std::io;
use std::path::{Path, PathBuf};

use sanderling_core::catalog::Catalog;
use sanderling_protocol::checksum::{Running, crc32c};
use thiserror::Error;

use crate::damage::SnapshotDamage;
use crate::directory::{Directory, FileKind, PublishError};
use crate::error::NamenodeStartError;
use crate::files::Window;
use crate::injected_bug::{self, InjectedBug};

/// The first bytes of a snapshot.
const MAGIC: [u8; 8] = *b"SNDLSNAP";
/// The format of the snapshots that this program writes: that of the catalog in them.
const VERSION: u32 = Catalog::FORMAT;

/// Bytes before the body: the sum of the fields in the module's text.
pub(crate) const HEADER_BYTES: usize = 24;

/// Bytes that are checked at once. Chosen, not measured: as the journal is read.
const PIECE: u64 = 1 << 20;

/// Encodes a catalog.
///
/// # Errors
/// The encoder's: the catalog has what this format cannot hold. No snapshot is taken.
pub(crate) fn encode(catalog: &Catalog) -> Result<Vec<u8>, postcard::Error> {
    postcard::to_stdvec(catalog)
}

/// Writes an encoded catalog as the snapshot after `index` commands. It is whole and on the disk
/// when this returns, or not there.
pub(crate) fn write(directory: &Directory, index: u64, body: &[u8]) -> Result<(), PublishError> {
    let header = header(VERSION, body);
    directory.publish(&directory.file(FileKind::Snapshot, index), &[&header, body]).map(drop)
}

/// Returns what stands before the body of a snapshot of this version.
pub(crate) fn header(version: u32, body: &[u8]) -> [u8; HEADER_BYTES] {
    header_of(version, crc32c(body), body.len() as u64)
}

/// Returns the header of a snapshot whose body has this checksum and length.
pub(crate) fn header_of(version: u32, checksum: u32, length: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&version.to_le_bytes());
    header[12..16].copy_from_slice(&checksum.to_le_bytes());
    header[16..].copy_from_slice(&length.to_le_bytes());
    header
}

/// Returns the length of the body that a header names; `None` for bytes that are no header.
pub(crate) fn length_in(header: &[u8; HEADER_BYTES]) -> Option<u64> {
    let length = u64::from_le_bytes(header[16..].try_into().expect("eight bytes"));
    (header[..8] == MAGIC).then_some(length)
}

/// Why a snapshot was not taken.
///
/// After all but [`TakeError::Unsynced`] the journal keeps growing, and a later one may succeed.
#[derive(Debug, Error)]
pub(crate) enum TakeError {
    /// The catalog has what the format cannot hold.
    #[error("{0}")]
    Encode(#[source] postcard::Error),
    /// The file failed, or its sync. Nothing that was there depends on it.
    #[error("{}: {cause}", .path.display())]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: PublishError,
    },
    /// The file is not what was written. It was removed.
    #[error("{0}")]
    ReadBack(#[source] NamenodeStartError),
    /// The snapshot is there, and what it makes unnecessary could not be removed.
    #[error("{}: removing what is unnecessary: {cause}", .directory.display())]
    NotPruned {
        /// The directory.
        directory: PathBuf,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
    /// The directory was not synced: which files the disk has is unknown.
    #[error("{}: sync: {cause}", .directory.display())]
    Unsynced {
        /// The directory.
        directory: PathBuf,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
}

/// Writes the snapshot after `index` commands, and removes what it and the newest good one of
/// `kept` make unnecessary. Returns those that are kept then.
///
/// Both are read back before anything is removed. That does not show what the disk has, as the
/// kernel answers; it does show a file that was written wrongly or cut short.
pub(crate) fn take(
    directory: &Directory,
    catalog: Catalog,
    kept: &[u64],
) -> Result<Vec<u64>, TakeError> {
    let index = catalog.index();
    let body = encode(&catalog).map_err(TakeError::Encode)?;
    // Every page that is written to meanwhile is copied for its sake.
    drop(catalog);
    let path = directory.file(FileKind::Snapshot, index);
    let place = || directory.path().to_owned();
    match write(directory, index, &body) {
        Ok(()) => {}
        Err(cause) if directory.files().open(&path).is_err() => {
            return Err(TakeError::NotWritten { path, cause });
        }
        Err(error) => {
            return Err(TakeError::Unsynced { directory: place(), cause: error.into() });
        }
    }
    drop(body);
    if let Err(error) = verify(directory, index) {
        // Else it would count as one of two at the next start.
        let _ = directory.files().remove(&path);
        return Err(TakeError::ReadBack(error));
    }
    let is_good = |older: &u64| *older < index && verify(directory, *older).is_ok();
    let older = kept.iter().rev().copied().find(is_good);
    let older = if injected_bug::is(InjectedBug::PrunedEarly) { Some(index) } else { older };
    // The journal since the beginning takes the place of an older one.
    let Some(older) = older else { return Ok(vec![index]) };
    directory.prune(older, &[index]).map_err(|error| match error {
        PublishError::NotThere(cause) => TakeError::NotPruned { directory: place(), cause },
        PublishError::Unsynced(cause) => TakeError::Unsynced { directory: place(), cause },
    })?;
    Ok(vec![older, index])
}

/// Reads a snapshot. One that is not what was written is refused.
pub(crate) fn read(directory: &Directory, path: &Path) -> Result<Catalog, NamenodeStartError> {
    read_window(path, &mut open(directory, path)?)
}

/// Reads a snapshot from a file that is open. One that is not what was written is refused.
pub(crate) fn read_window(path: &Path, window: &mut Window) -> Result<Catalog, NamenodeStartError> {
    let (version, length) = check(path, window)?;
    let fail = |cause| NamenodeStartError::Files { what: "read", path: path.to_owned(), cause };
    let body = window.bytes(HEADER_BYTES as u64, length).map_err(fail)?;
    let completion = Catalog::completion(version).unwrap_or_default();
    let completed;
    let body = match completion.is_empty() {
        true => body,
        false => {
            completed = [body, &completion].concat();
            &completed[..]
        }
    };
    match postcard::take_from_bytes(body) {
        Ok((catalog, [])) => Ok(catalog),
        Ok(_) => Err(corrupt(path, SnapshotDamage::Trailing)),
        Err(error) => Err(corrupt(path, SnapshotDamage::Undecodable(error))),
    }
}

/// Checks that a snapshot has the bytes that were written. Cost: one reading.
pub(crate) fn verify(directory: &Directory, index: u64) -> Result<(), NamenodeStartError> {
    let path = directory.file(FileKind::Snapshot, index);
    check(&path, &mut open(directory, &path)?).map(drop)
}

fn open(directory: &Directory, path: &Path) -> Result<Window, NamenodeStartError> {
    let fail = |cause| NamenodeStartError::Files { what: "read", path: path.to_owned(), cause };
    directory.files().open(path).and_then(Window::new).map_err(fail)
}

fn corrupt(path: &Path, damage: SnapshotDamage) -> NamenodeStartError {
    NamenodeStartError::CorruptSnapshot { path: path.to_owned(), damage }
}

/// Compares a snapshot with its header. Returns its version and the bytes of the body.
fn check(path: &Path, window: &mut Window) -> Result<(u32, usize), NamenodeStartError> {
    let fail = |cause| NamenodeStartError::Files { what: "read", path: path.to_owned(), cause };
    let total = window.length();
    let header = window.bytes(0, HEADER_BYTES).map_err(fail)?;
    if header.len() < HEADER_BYTES {
        return Err(corrupt(path, SnapshotDamage::HeaderCut));
    }
    if header[..8] != MAGIC {
        return Err(corrupt(path, SnapshotDamage::Foreign));
    }
    let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
    let (version, checksum) = (number(8), number(12));
    if Catalog::completion(version).is_none() {
        return Err(NamenodeStartError::SnapshotVersion { path: path.to_owned(), version });
    }
    let length = u64::from_le_bytes(header[16..].try_into().expect("eight bytes"));
    let bytes = total - HEADER_BYTES as u64;
    if length != bytes {
        return Err(corrupt(path, SnapshotDamage::Size { bytes, claimed: length }));
    }
    let mut found = Running::default();
    let mut at = HEADER_BYTES as u64;
    while at < total {
        let count = usize::try_from((total - at).min(PIECE)).expect("a piece");
        let piece = window.bytes(at, count).map_err(fail)?;
        if piece.len() < count {
            return Err(corrupt(path, SnapshotDamage::Shrunk));
        }
        found.update(piece);
        at += count as u64;
    }
    if found.value() != checksum && !injected_bug::is(InjectedBug::NoChecksum) {
        return Err(corrupt(path, SnapshotDamage::Checksum));
    }
    let length = usize::try_from(length);
    let length = length.map_err(|_| corrupt(path, SnapshotDamage::TooLong))?;
    Ok((version, length))
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::fs;

    use sanderling_protocol::{ClusterId, Millis};

    use super::*;

    #[test]
    fn snapshot_is_read_back_and_refused_with_any_byte_changed() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        let catalog = Catalog::new(ClusterId(7), Millis(1000));
        write(&directory, 3, &encode(&catalog).unwrap()).unwrap();
        let path = directory.file(FileKind::Snapshot, 3);
        assert_eq!(read(&directory, &path).unwrap(), catalog);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            assert!(
                matches!(
                    read(&directory, &path),
                    Err(NamenodeStartError::CorruptSnapshot { .. }
                        | NamenodeStartError::SnapshotVersion { .. })
                ),
                "byte {at} was changed"
            );
            fs::write(&path, &whole[..at]).unwrap();
            assert!(matches!(
                read(&directory, &path),
                Err(NamenodeStartError::CorruptSnapshot { .. })
            ));
        }
    }

    #[test]
    fn error_of_a_snapshot_has_its_damage_and_the_decoder_as_sources() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        write(&directory, 3, &[0xff; 11]).unwrap();
        let path = directory.file(FileKind::Snapshot, 3);
        let refused = read(&directory, &path).unwrap_err();
        let damage = refused.source().and_then(|it| it.downcast_ref::<SnapshotDamage>()).unwrap();
        let decoder = damage.source().and_then(|it| it.downcast_ref::<postcard::Error>()).unwrap();
        let path = path.display();
        let text = format!("snapshot {path} is corrupt: it holds no catalog: {decoder}");
        assert_eq!(refused.to_string(), text);
        let expected = postcard::from_bytes::<Catalog>(&[0xff; 11]).unwrap_err();
        assert_eq!(*decoder, expected);
    }
}
