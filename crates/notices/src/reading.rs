//! What every source reads: notices by the server's clock, or an error.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, TryFromFloatSecsError};

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

/// Why a look brought nothing. It takes no notice back: look again after the time between two
/// polls.
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
    #[error("{path} answered with something else than documented: {fault}")]
    Garbled {
        /// The page that was requested.
        path: &'static str,
        /// What is wrong with it.
        #[source]
        fault: AnswerFault,
    },
    /// The file cannot be read.
    #[error("{}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// It is a directory, or a pipe.
    #[error("{} is no file", .path.display())]
    NoFile {
        /// What is there.
        path: PathBuf,
    },
    /// The file is longer than any notice.
    #[error("{} is too long", .path.display())]
    LongFile {
        /// The file.
        path: PathBuf,
    },
    /// The file is no notice: correct it.
    #[error("{} is no notice: {fault}", .path.display())]
    NoNotice {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        fault: NoticeFault,
    },
}

/// What is wrong with the answer of a metadata service.
#[derive(Debug, Error)]
pub enum AnswerFault {
    /// It is not the JSON that is documented.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A moment in it is none.
    #[error("{text:?} is no time")]
    NoTime {
        /// What is there.
        text: String,
    },
    /// It is no token.
    #[error("a token of printable characters was expected")]
    NoToken,
    /// It is another word than those that are documented.
    #[error("{text:?}")]
    UnknownWord {
        /// The word, or its beginning.
        text: String,
    },
}

/// What is wrong with a notice in a file.
#[derive(Debug, Error)]
pub enum NoticeFault {
    /// It is not the JSON of a notice.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// It names its deadline twice.
    #[error("it has deadline_seconds and deadline_at")]
    TwoDeadlines,
    /// Its seconds are negative, or no number.
    #[error("{0}")]
    NoSeconds(#[from] TryFromFloatSecsError),
    /// Its deadline is later than any moment.
    #[error("{seconds} s are too many")]
    TooLate {
        /// The seconds.
        seconds: f64,
    },
    /// Its moment is none.
    #[error("{text:?} is no time")]
    NoTime {
        /// What is there.
        text: String,
    },
}
