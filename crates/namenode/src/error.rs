//! Why a namenode does not start, or stops.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

/// Why a namenode does not start. Nothing on disk was changed.
#[derive(Debug, Error)]
pub enum StartError {
    /// Another process listens there.
    #[error("{address} is in use by another process: stop it or listen elsewhere")]
    AddressInUse {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        cause: io::Error,
    },
    /// The address reaches beyond this machine and nobody would be asked who he is.
    #[error("{address} is not a loopback address: allow unauthenticated access to listen there")]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
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
