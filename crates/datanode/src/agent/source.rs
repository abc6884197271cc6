//! The sources of notices, behind one interface.

use sanderling_core::datanode::SourceReading;

use super::aws::Aws;
use super::azure::Azure;
use super::fetch::FetchError;
use super::file::File;
use super::gcp::Gcp;
use super::options::{NoticeOptions, NoticeSource};
use super::reading::{NoticeMaker, SourceError};
use crate::clock::ProcessClock;

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

    /// Reads what the source shows. Takes as long as its calls may take; Google's server answers
    /// when something changes.
    pub(super) async fn look(&mut self) -> Result<SourceReading, SourceError> {
        match self {
            Self::Aws(aws) => aws.look().await,
            Self::Gcp(gcp) => gcp.look().await,
            Self::Azure(azure) => azure.look().await,
            Self::File(file) => file.look(),
        }
    }

    /// Returns whether the last look waited for a change, so that the next one need not wait.
    pub(super) const fn has_waited(&self) -> bool {
        matches!(self, Self::Gcp(gcp) if gcp.has_waited())
    }

    /// Acknowledges to the source that the machine may be taken. Only Azure has that.
    pub(super) async fn acknowledge(&mut self) -> Result<(), SourceError> {
        match self {
            Self::Azure(azure) => azure.acknowledge().await,
            _ => Ok(()),
        }
    }
}
