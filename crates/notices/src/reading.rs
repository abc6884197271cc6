//! What every source reads: notices by the server's clock, or an error.

use std::time::Duration;

use sanderling_core::notices::Notice;
use sanderling_protocol::Instant;
use thiserror::Error;

use crate::fetch::FetchError;
use crate::options::NoticeSource;

/// Makes the notices of one source, by the server's clock.
#[derive(Debug, Clone)]
pub(crate) struct NoticeMaker {
    /// Zero of the clock.
    since: tokio::time::Instant,
    source: String,
}

impl NoticeMaker {
    pub(crate) fn new(source: &NoticeSource, since: tokio::time::Instant) -> Self {
        Self { since, source: source.name() }
    }

    /// Returns the notice of a machine that is to be taken in `left`.
    pub(crate) fn notice(&self, left: Duration, reason: String) -> Notice {
        let after = self.since.elapsed().saturating_add(left);
        let deadline = Instant(u64::try_from(after.as_micros()).unwrap_or(u64::MAX));
        Notice { source: self.source.clone(), deadline, reason }
    }
}

/// Why a look brought nothing.
#[derive(Debug, Error)]
pub enum SourceError {
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
