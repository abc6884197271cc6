//! Backups: a snapshot of the catalog in one file that can be kept anywhere, and its way back into
//! a directory.
//!
//! ```text
//! 8 bytes magic, u32 layout, u32 bytes of the description, description (JSON), a snapshot as in
//! `snapshot.rs`, u32 CRC32C of everything before, 8 bytes end
//! ```

mod restore;
mod write;

use std::io::{self, Read, Write};

use sanderling_core::catalog::Catalog;
use sanderling_core::group_generation::GroupGeneration;
use sanderling_protocol::ClusterId;
use sanderling_protocol::checksum::Running;
use sanderling_protocol::token::read_hex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::NamenodeStartError;
use crate::snapshot;

pub use restore::{RestoreError, RestoreOptions, RestoredBackup, is_restore_unfinished, restore};
pub(crate) use restore::{UnfinishedRestore, begun_in, restored_generation};
pub(crate) use write::write;

/// The first bytes of a backup.
const MAGIC: [u8; 8] = *b"SNDLBKUP";
/// The last bytes of a backup: one that was cut lacks them.
const END: [u8; 8] = *b"SNDLBEND";
/// The version of the layout of a backup; another one is refused (docs/UPGRADING.md).
const LAYOUT: u32 = 1;

/// Longest description: some hundred bytes today. A longer one is none, and no memory is taken for
/// it.
const DESCRIPTION_BYTES_MAX: u32 = 64 << 10;

/// Room on the disk of the journal, in bytes, below which the namenode will soon refuse changes:
/// twice what it writes until the next snapshot by default (64 MiB). A backup leaves that much
/// free. Chosen, not measured.
pub const JOURNAL_FREE_BYTES_MIN: u64 = 128 << 20;

/// Bytes that are copied at once. Chosen, not measured: beyond some hundred KiB a system call costs
/// little beside its copy.
pub(crate) const PIECE: usize = 256 << 10;

/// A description of what a backup holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupDescription {
    /// The version of the program that wrote it.
    pub program: String,
    /// The format of the snapshot.
    pub format: u32,
    /// The cluster, in 16 hexadecimal digits.
    pub cluster: String,
    /// Changes of the catalog since the cluster began.
    pub commands: u64,
    /// When it was taken, by the namenode's clock: milliseconds since 1970.
    pub taken_unix_millis: u64,
    /// The generation of the group of which the namenode was a member; the default if it was alone
    /// and had begun none. `None`: a program of an earlier release has written no generation.
    #[serde(default)]
    pub group: Option<GroupGeneration>,
}

impl BackupDescription {
    /// Returns the cluster; `None` where the text is no id.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        read_hex(&self.cluster).map(ClusterId)
    }
}

/// A reason why a backup cannot be used.
#[derive(Debug, Error)]
pub enum BackupError {
    /// It does not begin like one.
    #[error("it is no backup of a namenode")]
    NotOne,
    /// It is not what was written, or not all of it. Use another backup.
    #[error("the backup is damaged: {0}")]
    Damaged(#[from] BackupDamage),
    /// Another version of the program wrote it. Use that one.
    #[error(
        "the backup was written by sanderling {program} in format {format}; this program reads \
         {} to {}",
        Catalog::FORMAT_MIN,
        Catalog::FORMAT
    )]
    OtherFormat {
        /// The version of the program that wrote it.
        program: String,
        /// The format of its snapshot.
        format: u32,
    },
    /// Its file is laid out in another way. Use the version of the program that wrote it.
    #[error(
        "the backup was written by {} in layout {layout} of the file; this program reads layout {}",
        writer(.program.as_deref()),
        LAYOUT
    )]
    OtherLayout {
        /// The version of the program that wrote it, if its description can be read.
        program: Option<String>,
        /// The layout of the file.
        layout: u32,
    },
    /// It cannot be read, or what it holds cannot be written.
    #[error("{what}: {cause}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
}

/// Names what wrote a backup.
fn writer(program: Option<&str>) -> String {
    match program {
        Some(program) => format!("sanderling {program}"),
        None => "another version of sanderling".to_owned(),
    }
}

/// A kind of damage of a backup.
#[derive(Debug, Error)]
pub enum BackupDamage {
    /// It ends before the bytes that its headers name.
    #[error("it was cut off after {bytes} bytes or more")]
    Cut {
        /// Bytes that were there, at least.
        bytes: u64,
    },
    /// Its description is longer than any that was written.
    #[error("its description is too long")]
    LongDescription,
    /// Its description is not what was written.
    #[error("description: {0}")]
    Description(#[source] serde_json::Error),
    /// No snapshot follows its description.
    #[error("the snapshot in it does not begin like one")]
    NoSnapshot,
    /// Its bytes are not those that were written.
    #[error("its checksum is another")]
    Checksum,
    /// Its last bytes are not its end.
    #[error("it does not end like a backup")]
    NoEnd,
    /// It is longer than what was written.
    #[error("bytes follow its end")]
    Trailing,
    /// The catalog in it is of another cluster or moment.
    #[error("its snapshot is not the one that it describes")]
    OtherCatalog,
}

/// A source whose bytes are counted into a checksum.
struct Summed<R> {
    source: R,
    sum: Running,
    bytes: u64,
}

impl<R: Read> Summed<R> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), BackupError> {
        self.source.read_exact(buffer).map_err(|cause| match cause.kind() {
            io::ErrorKind::UnexpectedEof => BackupDamage::Cut { bytes: self.bytes }.into(),
            _ => BackupError::Io { what: "the backup cannot be read", cause },
        })?;
        self.sum.update(buffer);
        self.bytes += buffer.len() as u64;
        Ok(())
    }

    fn number(&mut self) -> Result<u32, BackupError> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

/// Reads a backup to its end and checks it; writes the snapshot in it to `snapshot`. Whether the
/// catalog in it can be decoded is for [`restore`] to find.
///
/// # Errors
/// [`BackupError`]: what was written to `snapshot` is of no use; remove it, and take another
/// backup.
pub fn check(
    source: impl Read,
    snapshot: &mut impl Write,
) -> Result<BackupDescription, BackupError> {
    let mut source = Summed { source, sum: Running::default(), bytes: 0 };
    let description = describe(&mut source)?;
    let mut header = [0; snapshot::HEADER_BYTES];
    source.fill(&mut header)?;
    let length = snapshot::length_in(&header);
    let mut left = length.ok_or(BackupDamage::NoSnapshot)?;
    let failed = |cause| BackupError::Io { what: "the snapshot cannot be written", cause };
    snapshot.write_all(&header).map_err(failed)?;
    let mut piece = vec![0; PIECE];
    while left > 0 {
        let count = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        source.fill(&mut piece[..count])?;
        snapshot.write_all(&piece[..count]).map_err(failed)?;
        left -= count as u64;
    }
    let found = source.sum.value();
    if source.number()? != found {
        return Err(BackupDamage::Checksum.into());
    }
    let mut end = [0; 8];
    source.fill(&mut end)?;
    match source.source.read(&mut [0]) {
        Ok(0) if end == END => Ok(description),
        Ok(0) => Err(BackupDamage::NoEnd.into()),
        Ok(_) => Err(BackupDamage::Trailing.into()),
        Err(cause) => Err(BackupError::Io { what: "the backup cannot be read", cause }),
    }
}

/// Reads what comes before the snapshot.
fn describe(source: &mut Summed<impl Read>) -> Result<BackupDescription, BackupError> {
    let mut magic = [0; 8];
    source.fill(&mut magic)?;
    if magic != MAGIC {
        return Err(BackupError::NotOne);
    }
    let layout = source.number()?;
    let length = source.number()?;
    if layout != LAYOUT {
        return Err(other_layout(source, layout, length));
    }
    if length > DESCRIPTION_BYTES_MAX {
        return Err(BackupDamage::LongDescription.into());
    }
    let mut text = vec![0; length as usize];
    source.fill(&mut text)?;
    let description: BackupDescription =
        serde_json::from_slice(&text).map_err(BackupDamage::Description)?;
    if Catalog::completion(description.format).is_none() {
        let BackupDescription { program, format, .. } = description;
        return Err(BackupError::OtherFormat { program, format });
    }
    Ok(description)
}

/// Looks for what wrote a backup of another layout: its description may be another one, too.
fn other_layout(source: &mut Summed<impl Read>, layout: u32, length: u32) -> BackupError {
    let mut text = vec![0; length.min(DESCRIPTION_BYTES_MAX) as usize];
    let read = source.fill(&mut text).ok();
    let found = read.and_then(|()| serde_json::from_slice::<serde_json::Value>(&text).ok());
    let program = found.and_then(|found| Some(found.get("program")?.as_str()?.to_owned()));
    BackupError::OtherLayout { program, layout }
}

impl From<NamenodeStartError> for RestoreError {
    fn from(error: NamenodeStartError) -> Self {
        Self::Directory(Box::new(error))
    }
}

#[cfg(test)]
mod tests;
