//! What every source has in common.

use std::time::Duration;

use sanderling_core::datanode::SourceReading;
use sanderling_core::notices::Notice;
use thiserror::Error;

use super::aws::Aws;
use super::azure::Azure;
use super::fetch::FetchError;
use super::file::File;
use super::gcp::Gcp;
use super::options::{NoticeOptions, NoticeSource};
use crate::notices::ProcessClock;

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
        /// What was asked for.
        path: &'static str,
        /// The status.
        status: u16,
    },
    /// The answer is not what the service documents.
    #[error("{path} answered with something else than documented: {why}")]
    Garbled {
        /// What was asked for.
        path: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The file cannot be read.
    #[error("{0}")]
    File(String),
}

/// One source.
#[derive(Debug)]
pub(super) enum SourceKind {
    Aws(Aws),
    Gcp(Gcp),
    Azure(Azure),
    File(File),
}

impl SourceKind {
    pub(super) fn new(options: &NoticeOptions, clock: ProcessClock) -> Result<Self, FetchError> {
        let maker = NoticeMaker::new(&options.source, clock);
        Ok(match &options.source {
            NoticeSource::Aws => Self::Aws(Aws::new(options, maker)?),
            NoticeSource::Gcp => Self::Gcp(Gcp::new(options, maker)?),
            NoticeSource::Azure => Self::Azure(Azure::new(options, maker)?),
            NoticeSource::File(path) => {
                Self::File(File::new(path.clone(), options.deadline, maker))
            }
        })
    }

    /// Asks the source what it shows. Takes as long as its calls may take; Google's answer is
    /// waited for until something changes.
    pub(super) async fn look(&mut self) -> Result<SourceReading, SourceError> {
        match self {
            Self::Aws(aws) => aws.look().await,
            Self::Gcp(gcp) => gcp.look().await,
            Self::Azure(azure) => azure.look().await,
            Self::File(file) => file.look(),
        }
    }

    /// Tells whether the last look waited for a change, so that the next one need not wait.
    pub(super) const fn has_waited(&self) -> bool {
        matches!(self, Self::Gcp(gcp) if gcp.has_waited())
    }

    /// Tells the source that the machine may be taken. Only Azure listens.
    pub(super) async fn acknowledge(&mut self) -> Result<(), SourceError> {
        match self {
            Self::Azure(azure) => azure.acknowledge().await,
            _ => Ok(()),
        }
    }
}
