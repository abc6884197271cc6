//! The journal: the log of commands on disk, append-only.
//!
//! A segment is a header of 32 bytes and records:
//!
//! ```text
//! header: 8 bytes magic, u32 version, u32 CRC32C of the rest, u64 cluster, u64 first index
//! record: u32 length, u32 CRC32C of the payload, payload (one postcard `Command`)
//! ```
//!
//! All numbers are little-endian. A command is in the journal before it is applied. What cannot be
//! read at the end of the last segment was never acknowledged whole, or the disk has lost it: it is
//! cut, kept beside, and said.

mod read;

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;

use sanderling_core::catalog::Command;
use sanderling_protocol::ClusterId;
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::frame::encode_onto;
use thiserror::Error;

pub(crate) use read::{Segment, read_segment};

use crate::directory::{Directory, Kind};
use crate::options::Sync;

const MAGIC: [u8; 8] = *b"SNDLJRNL";
const VERSION: u32 = 3;
const HEADER_BYTES: usize = 32;
const RECORD_HEADER_BYTES: usize = 8;

/// Longest payload of a record: more than the largest request that a frame can carry.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// Why commands were not written.
#[derive(Debug, Error)]
pub(crate) enum AppendError {
    /// Nothing was written; later appends may succeed.
    #[error("{0}")]
    Refused(String),
    /// It is not known what is on the disk: nothing may be written after it.
    #[error("{0}")]
    Failed(String),
}

/// The open segment at the end of the journal.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    sync: Sync,
    cluster: ClusterId,
    /// Number of the next command.
    index: u64,
    /// Bytes of whole records and the header.
    length: u64,
    /// Bytes of earlier segments that still exist.
    older_bytes: u64,
    bytes_max: u64,
    /// Set when the file's end is unknown.
    failure: Option<String>,
    buffer: Vec<u8>,
}

impl Journal {
    /// Starts a new segment whose first command has the number `index`.
    pub(crate) fn create(
        directory: &Directory,
        cluster: ClusterId,
        index: u64,
        sync: Sync,
        bytes_max: u64,
    ) -> io::Result<Self> {
        let path = directory.file(Kind::Journal, index);
        let file = directory.publish(&path, &[&header(cluster, index)])?;
        Ok(Self {
            file,
            path,
            sync,
            cluster,
            index,
            length: HEADER_BYTES as u64,
            older_bytes: 0,
            bytes_max,
            failure: None,
            buffer: Vec::new(),
        })
    }

    /// Goes on at the end of a segment that was read, cutting what follows its last whole record.
    /// What is cut is saved beside the segment first.
    pub(crate) fn resume(
        directory: &Directory,
        segment: &Segment,
        sync: Sync,
        bytes_max: u64,
    ) -> io::Result<Self> {
        let mut file = File::options().read(true).write(true).open(&segment.path)?;
        if segment.cut_bytes > 0 {
            file.seek(SeekFrom::Start(segment.length))?;
            let name = format!("cut-{:020}-{}.bin", segment.first, segment.length);
            let mut aside = File::create(directory.path().join(name))?;
            io::copy(&mut file, &mut aside)?;
            aside.sync_all()?;
            file.set_len(segment.length)?;
            file.sync_all()?;
        }
        file.seek(SeekFrom::Start(segment.length))?;
        Ok(Self {
            file,
            path: segment.path.clone(),
            sync,
            cluster: segment.cluster,
            index: segment.next,
            length: segment.length,
            older_bytes: 0,
            bytes_max,
            failure: None,
            buffer: Vec::new(),
        })
    }

    /// Writes commands after all others, in one write. Under [`Sync::Always`] the disk has them
    /// when this returns. Either all of them are written or, with [`AppendError::Refused`], none.
    pub(crate) fn append<'a>(
        &mut self,
        commands: impl IntoIterator<Item = &'a Command>,
    ) -> Result<(), AppendError> {
        if let Some(why) = &self.failure {
            return Err(AppendError::Failed(why.clone()));
        }
        self.buffer.clear();
        let mut count = 0;
        for command in commands {
            encode(command, &mut self.buffer).map_err(AppendError::Refused)?;
            count += 1;
        }
        let bytes = self.buffer.len() as u64;
        if self.older_bytes + self.length + bytes > self.bytes_max {
            let why = format!("the journal has reached its limit of {} bytes", self.bytes_max);
            return Err(AppendError::Refused(why));
        }
        if let Err(error) = self.file.write_all(&self.buffer) {
            return Err(self.take_back(&error));
        }
        if self.sync == Sync::Always
            && let Err(error) = self.file.sync_data()
        {
            // After a failed sync the kernel may have dropped pages, of earlier records too. These
            // commands are refused, so they had better not be found at the next start.
            let cut = self.file.set_len(self.length);
            return Err(self.fail(format!("sync: {error}; cutting what was refused: {cut:?}")));
        }
        self.length += bytes;
        self.index += count;
        Ok(())
    }

    /// Cuts a write that failed half-way.
    fn take_back(&mut self, error: &io::Error) -> AppendError {
        let cut = self.file.set_len(self.length);
        let cut = cut.and_then(|()| self.file.seek(SeekFrom::Start(self.length)));
        match cut {
            Ok(_) => AppendError::Refused(format!("{}: {error}", self.path.display())),
            Err(cut) => self.fail(format!("write: {error}; then cutting it: {cut}")),
        }
    }

    /// Notes that the journal cannot be trusted any more.
    pub(crate) fn fail(&mut self, why: String) -> AppendError {
        let why = format!("{}: {why}", self.path.display());
        self.failure = Some(why.clone());
        AppendError::Failed(why)
    }

    /// Starts the next segment. The bytes of this one count until it is removed.
    pub(crate) fn rotate(&mut self, directory: &Directory) -> io::Result<()> {
        self.file.sync_data()?;
        let next = Self::create(directory, self.cluster, self.index, self.sync, self.bytes_max)?;
        let older_bytes = self.older_bytes + self.length;
        *self = Self { older_bytes, ..next };
        Ok(())
    }

    /// Returns whether the segment has no records yet.
    pub(crate) const fn is_empty(&self) -> bool {
        self.length == HEADER_BYTES as u64
    }

    /// Sets the bytes of earlier segments that still exist.
    pub(crate) const fn set_older_bytes(&mut self, bytes: u64) {
        self.older_bytes = bytes;
    }

    /// Returns the number of the next command.
    pub(crate) const fn index(&self) -> u64 {
        self.index
    }

    /// Returns the bytes of all segments.
    pub(crate) const fn bytes(&self) -> u64 {
        self.older_bytes + self.length
    }

    /// Returns the bytes of this segment.
    pub(crate) const fn segment_bytes(&self) -> u64 {
        self.length
    }

    /// Returns another handle of the file, for whoever syncs it in the background.
    pub(crate) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

fn header(cluster: ClusterId, first: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&cluster.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&first.to_le_bytes());
    let checksum = crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Writes one record at the end of `out`.
fn encode(command: &Command, out: &mut Vec<u8>) -> Result<(), String> {
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    let mut written = encode_onto(command, std::mem::take(out));
    let payload = &written[start + RECORD_HEADER_BYTES..];
    if payload.len() > RECORD_BYTES_MAX {
        return Err(format!("a command of {} bytes is too long", payload.len()));
    }
    let length = u32::try_from(payload.len()).expect("checked against the limit");
    let checksum = crc32c(payload);
    written[start..start + 4].copy_from_slice(&length.to_le_bytes());
    written[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
    *out = written;
    Ok(())
}

#[cfg(test)]
mod tests;
