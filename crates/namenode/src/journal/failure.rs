//! Why commands were not written to the journal.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sanderling_protocol::amount;
use thiserror::Error;

use super::record::RecordTooLong;

/// A reason why commands were not written.
#[derive(Debug, Clone, Error)]
pub enum AppendError {
    /// Nothing was written; later appends may succeed.
    #[error("{0}")]
    Refused(#[from] AppendRefusal),
    /// Nothing was written: the disk is too far behind, and will catch up.
    #[error("the disk is {} and {} behind", amount::bytes(*bytes), amount::duration(*age))]
    Behind {
        /// Bytes that wait for the disk.
        bytes: u64,
        /// How long the oldest of them does.
        age: Duration,
    },
    /// It is not known what is on the disk: nothing may be written after it.
    #[error("{0}")]
    Failed(#[from] JournalFailure),
}

/// A reason why nothing was written. The journal is as it was.
#[derive(Debug, Clone, Error)]
pub enum AppendRefusal {
    /// A command is too long.
    #[error("{0}")]
    TooLong(#[from] RecordTooLong),
    /// The journal takes no more before a snapshot.
    #[error("the journal has reached its limit of {}", amount::bytes(*bytes_max))]
    Full {
        /// The limit.
        bytes_max: u64,
    },
    /// The write failed, and was taken back.
    #[error("{}: {cause}", .path.display())]
    Write {
        /// The segment.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: Arc<io::Error>,
    },
    /// The next segment could not be written.
    #[error("the next segment: {0}")]
    NextSegment(#[source] Arc<io::Error>),
}

/// A reason why the journal cannot be trusted any more: what was written may not be on the disk.
/// The journal takes nothing until the next start.
#[derive(Debug, Clone, Error)]
pub enum JournalFailure {
    /// A sync failed: the disk may lack what was written, and a later sync proves nothing.
    #[error("{}: sync: {cause}", .path.display())]
    Unsynced {
        /// The segment.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: Arc<io::Error>,
    },
    /// The same, of commands that were refused then.
    #[error("{}: sync: {cause}; cutting what was refused: {cut:?}", .path.display())]
    UnsyncedRefused {
        /// The segment.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: Arc<io::Error>,
        /// Whether the commands could be cut off.
        cut: Result<(), Arc<io::Error>>,
    },
    /// A write failed half-way, and could not be taken back.
    #[error("{}: write: {cause}; then cutting it: {cut}", .path.display())]
    Uncut {
        /// The segment.
        path: PathBuf,
        /// Why the write failed.
        #[source]
        cause: Arc<io::Error>,
        /// Why it could not be taken back.
        cut: Arc<io::Error>,
    },
    /// The next segment may not be on the disk.
    #[error("{}: sync of the next segment: {cause}", .path.display())]
    NextSegment {
        /// The segment before.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: Arc<io::Error>,
    },
    /// Which files the disk has is unknown.
    #[error("{}: sync of the directory: {cause}", .path.display())]
    Directory {
        /// The segment.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: Arc<io::Error>,
    },
    /// The journal refuses what the group has agreed on.
    #[error("{0}")]
    Refused(#[source] AppendRefusal),
    /// Nothing syncs the journal any more.
    #[error("the thread that syncs the journal panicked")]
    Panicked,
}
