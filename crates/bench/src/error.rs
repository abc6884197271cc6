//! How a benchmark fails.

use sanderling_client::ClientError;
use sanderling_protocol::Refusal;
use thiserror::Error;

use crate::failure::{Exit, Failure, FailureKind};
use crate::refused;

/// Why an operation failed. The first one ends the run: what a store does that refuses is not what
/// was to be measured.
#[derive(Debug, Error)]
pub(super) enum BenchError {
    /// The store's answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A bare connection broke.
    #[error("a bare connection: {0}")]
    Io(#[from] std::io::Error),
    /// Other bytes came than were written.
    #[error("{what}: {found} where {expected} was written")]
    Wrong {
        /// What was read.
        what: &'static str,
        /// What came.
        found: u64,
        /// What was written.
        expected: u64,
    },
    /// Another thread failed, or the user had enough.
    #[error("another thread failed")]
    Stopped,
}

impl From<Refusal> for BenchError {
    fn from(refusal: Refusal) -> Self {
        Self::Client(ClientError::Refused(refusal))
    }
}

impl BenchError {
    /// Returns the failure of the command.
    pub(super) fn failure(&self, namenode: &str) -> Failure {
        match self {
            Self::Client(error) => refused::client(error, namenode),
            Self::Io(_) => Failure::new(Exit::Failure, FailureKind::Io, self),
            Self::Wrong { .. } => Failure::new(Exit::Failure, FailureKind::WrongBytes, self)
                .tried("read what was written before")
                .next("sanderling fsck"),
            Self::Stopped => Failure::silent(Exit::Interrupted),
        }
    }
}
