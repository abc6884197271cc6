//! Why a namenode does not start, or stops.

use std::io;
use std::path::PathBuf;

use sanderling_transport::ListenError;
use thiserror::Error;

/// Why a namenode does not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be listened on: it is in use, or reaches beyond this machine.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Another namenode runs on this directory.
    #[error("{} is in use by another namenode", .directory.display())]
    DirectoryLocked {
        /// The directory.
        directory: PathBuf,
    },
    /// A file or directory cannot be read or written.
    #[error("cannot {what} {}: {cause}", .path.display())]
    Files {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        cause: io::Error,
    },
    /// A snapshot is not what was written. Move it away, with the journal, to start empty.
    #[error("snapshot {} is corrupt: {why}", .path.display())]
    CorruptSnapshot {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The journal is damaged before its tail: changes would be missing in the middle.
    #[error("journal {} is corrupt: {why}", .path.display())]
    CorruptJournal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The directory could not be read to its end.
    #[error("reading the directory failed: {why}")]
    Reading {
        /// What happened.
        why: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Why a running namenode cannot go on.
#[derive(Debug, Clone, Error)]
pub enum NamenodeFailure {
    /// The journal cannot be trusted any more: what was written may not be on the disk.
    #[error("the journal has failed: {why}")]
    Journal {
        /// What happened.
        why: String,
    },
    /// A part of the server ended by itself.
    #[error("the {part} ended by itself")]
    Ended {
        /// The part.
        part: &'static str,
    },
}
