//! What every source reads: notices by the datanode's clock, or an error.

use std::time::Duration;

use sanderling_core::notices::Notice;
use thiserror::Error;

use super::fetch::FetchError;
use super::options::NoticeSource;
use crate::clock::ProcessClock;

/// Makes the notices of one source, by the datanode's clock.
#[derive(Debug, Clone)]
pub(super) struct NoticeMaker {
    clock: ProcessClock,
    source: String,
}

impl NoticeMaker {
    pub(super) fn new(source: &NoticeSource, clock: ProcessClock) -> Self {
        Self { clock, source: source.to_string() }
    }

    /// Returns the notice of a machine that is to be taken in `left`.
    pub(super) fn notice(&self, left: Duration, reason: String) -> Notice {
        Notice { source: self.source.clone(), deadline: self.clock.after(left), reason }
    }
}

/// Why a look brought nothing.
#[derive(Debug, Error)]
pub(crate) enum SourceError {
    /// The call failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The service answered with a status that it has no reason for.
    #[error("{path} answered with status {status}")]
    Status {
        /// The page that was requested.
        path: &'static str,
        /// The status.
        status: u16,
    },
    /// The answer is not what the service documents.
    #[error("{path} answered with something else than documented: {why}")]
    Garbled {
        /// The page that was requested.
        path: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The file cannot be read.
    #[error("{0}")]
    File(String),
}
