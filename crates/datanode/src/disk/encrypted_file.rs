//! Files of encrypted blocks.
//!
//! A file is a sequence of units: 4 KiB of the block, the last unit may be short, each followed by
//! its tag. The key is the process's own and never leaves its memory, and neither does the nonce of
//! each unit: the numbers of the file, of the unit, and of the append that wrote it. None is used
//! twice: a file's number is given out once, and an append counts also when it fails. A unit that
//! grows is encrypted again, by another append. So a unit from elsewhere, from another place, or
//! from an earlier state of its own is not taken for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use parking_lot::RwLock;
use sanderling_protocol::BlockId;

use super::read::DiskReader;
use crate::chunk_sums::CHUNK_BYTES;
use crate::encryption_key::{Cipher, Forged, TAG_BYTES};

/// Bytes of the block in a unit: what is read at least, and what has a checksum.
const UNIT_BYTES: u32 = CHUNK_BYTES;

/// A unit in the file.
const ENCRYPTED_UNIT_BYTES: u64 = UNIT_BYTES as u64 + TAG_BYTES as u64;

/// Files that one key is used for: the nonce has 6 bytes for them.
const FILES_MAX: u64 = 1 << 48;

/// Why bytes of an encrypted file cannot be read or written.
#[derive(Debug)]
pub(super) enum EncryptedFileError {
    /// The error of the system.
    Io(io::Error),
    /// The file has other bytes than were written.
    Forged,
    /// There is no further nonce.
    Exhausted,
}

/// A file, how it is read, and the key that it is encrypted with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Medium<'a> {
    pub(super) cipher: &'a Cipher,
    pub(super) reading: &'a DiskReader,
    pub(super) file: &'a File,
}

/// Which append wrote, and with which nonce, each unit of one file.
#[derive(Debug)]
pub(super) struct EncryptedFile {
    file: u64,
    block: BlockId,
    state: RwLock<EncryptedFileState>,
}

/// What is in the file. Only the last unit ever grows, so every earlier state of the block is a
/// prefix of this one.
#[derive(Debug, Default)]
struct EncryptedFileState {
    /// Appends that were begun.
    appends: u32,
    /// Which append wrote the units from `first_unit` on, in their order.
    written: Vec<Written>,
    /// Bytes of the block that are encrypted in the file.
    length: u32,
    /// The bytes of the block after those, when the unit that had them may be torn: an append that
    /// was to make it longer failed.
    kept: Vec<u8>,
}

#[derive(Debug)]
struct Written {
    first_unit: u32,
    append: u32,
}

impl From<io::Error> for EncryptedFileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Forged> for EncryptedFileError {
    fn from(_: Forged) -> Self {
        Self::Forged
    }
}

impl EncryptedFile {
    /// Begins a file that has a number of its own.
    pub(super) fn new(file: u64, block: BlockId) -> Self {
        Self { file, block, state: RwLock::default() }
    }

    /// Encrypts and writes `bytes` after the first `at` bytes of the block.
    ///
    /// # Errors
    /// [`EncryptedFileError`]; the first `at` bytes can be read as before.
    pub(super) fn append(
        &self,
        medium: Medium<'_>,
        at: u32,
        bytes: &[u8],
    ) -> Result<(), EncryptedFileError> {
        let mut state = self.state.write();
        let first_unit = at / UNIT_BYTES;
        let start = first_unit * UNIT_BYTES;
        let begun = self.read_at(&state, medium, start, at - start)?;
        let append = state.appends.checked_add(1).ok_or(EncryptedFileError::Exhausted)?;
        if self.file >= FILES_MAX {
            return Err(EncryptedFileError::Exhausted);
        }
        state.appends = append;
        let encrypted = self.encrypted(medium.cipher, append, first_unit, &begun, bytes);
        state.written.retain(|written| written.first_unit < first_unit);
        state.length = start;
        let position = u64::from(first_unit) * ENCRYPTED_UNIT_BYTES;
        let written = medium.file.write_all_at(&encrypted, position);
        if written.is_ok() {
            state.written.push(Written { first_unit, append });
            state.length = at + bytes.len() as u32;
        }
        state.kept = if written.is_ok() { Vec::new() } else { begun.to_vec() };
        Ok(written?)
    }

    /// Returns units as they are to be in the file: `begun` and `bytes`, from the start of a unit.
    fn encrypted(
        &self,
        cipher: &Cipher,
        append: u32,
        first_unit: u32,
        begun: &[u8],
        bytes: &[u8],
    ) -> Vec<u8> {
        let length = (begun.len() + bytes.len()) as u32;
        let mut encrypted = Vec::with_capacity(file_bytes(length) as usize);
        let room = UNIT_BYTES as usize - begun.len();
        let (completing, further) = bytes.split_at(room.min(bytes.len()));
        let further = further.chunks(UNIT_BYTES as usize).map(|piece| (&[][..], piece));
        let pieces = [(begun, completing)].into_iter().chain(further);
        for (unit, (head, piece)) in (first_unit..).zip(pieces) {
            let from = encrypted.len();
            encrypted.extend_from_slice(head);
            encrypted.extend_from_slice(piece);
            let nonce = self.nonce(unit, append);
            let tag = cipher.encrypt(nonce, &self.context(), &mut encrypted[from..]);
            encrypted.extend_from_slice(tag.as_ref());
        }
        encrypted
    }

    /// Reads `length` bytes of the block from `offset`, as they were written.
    ///
    /// # Errors
    /// [`EncryptedFileError`]: the file is damaged or unreadable; use another copy of the block.
    pub(super) fn read(
        &self,
        medium: Medium<'_>,
        offset: u32,
        length: u32,
    ) -> Result<Bytes, EncryptedFileError> {
        self.read_at(&self.state.read(), medium, offset, length)
    }

    fn read_at(
        &self,
        state: &EncryptedFileState,
        medium: Medium<'_>,
        offset: u32,
        length: u32,
    ) -> Result<Bytes, EncryptedFileError> {
        let end = offset + length;
        let in_file = end.min(state.length).saturating_sub(offset);
        let decrypted = self.decrypted(state, medium, offset, in_file)?;
        if in_file == length {
            return Ok(decrypted);
        }
        let [from, to] = [offset + in_file, end].map(|at| at.saturating_sub(state.length) as usize);
        let kept = state.kept.get(from..to).ok_or(io::ErrorKind::UnexpectedEof);
        Ok([&decrypted[..], kept.map_err(io::Error::from)?].concat().into())
    }

    /// Decrypts the units around a range of bytes and returns the range.
    fn decrypted(
        &self,
        state: &EncryptedFileState,
        medium: Medium<'_>,
        offset: u32,
        length: u32,
    ) -> Result<Bytes, EncryptedFileError> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        let first_unit = offset / UNIT_BYTES;
        let start = first_unit * UNIT_BYTES;
        let end = (offset + length).next_multiple_of(UNIT_BYTES).min(state.length);
        let position = u64::from(first_unit) * ENCRYPTED_UNIT_BYTES;
        let wanted = file_bytes(end - start) as usize;
        let mut read = medium.reading.read_piece(medium.file, position, wanted)?;
        let bytes = read.bytes_mut();
        let units = (start..end).step_by(UNIT_BYTES as usize);
        for (unit, begin) in (first_unit..).zip(units) {
            let plain = UNIT_BYTES.min(end - begin) as usize;
            let to = (begin - start) as usize;
            // The tags of the units before it fall away.
            let skipped = (unit - first_unit) as usize * TAG_BYTES;
            let tag_at = to + skipped + plain;
            let tag = bytes[tag_at..tag_at + TAG_BYTES].try_into().expect("a tag's length");
            let nonce = self.nonce(unit, state.append_of(unit));
            medium.cipher.decrypt(nonce, &self.context(), tag, &mut bytes[to..tag_at], skipped)?;
        }
        Ok(read.freeze((offset - start) as usize, length as usize))
    }

    /// Returns how long the file must be for the first `length` bytes of the block.
    pub(super) fn file_bytes(&self, length: u32) -> u64 {
        file_bytes(length.min(self.state.read().length))
    }

    fn nonce(&self, unit: u32, append: u32) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[..6].copy_from_slice(&self.file.to_le_bytes()[..6]);
        nonce[6..8].copy_from_slice(&unit.to_le_bytes()[..2]);
        nonce[8..].copy_from_slice(&append.to_le_bytes());
        nonce
    }

    fn context(&self) -> [u8; 8] {
        self.block.0.to_le_bytes()
    }
}

impl EncryptedFileState {
    fn append_of(&self, unit: u32) -> u32 {
        let after = self.written.partition_point(|written| written.first_unit <= unit);
        after.checked_sub(1).map_or(0, |index| self.written[index].append)
    }
}

/// Returns the bytes of a file that has so many bytes of a block.
fn file_bytes(length: u32) -> u64 {
    u64::from(length) + u64::from(length.div_ceil(UNIT_BYTES)) * TAG_BYTES as u64
}

#[cfg(test)]
mod tests;
