//! The sources of notices, behind one interface.

use sanderling_core::datanode::SourceReading;
use tokio::time::Instant;

use crate::aws::Aws;
use crate::azure::Azure;
use crate::fetch::FetchError;
use crate::file::File;
use crate::gcp::Gcp;
use crate::options::{NoticeOptions, NoticeSource};
use crate::reading::{NoticeMaker, SourceError};

/// One source that is read.
#[derive(Debug)]
pub(crate) struct SourceReader(SourceKind);

#[derive(Debug)]
enum SourceKind {
    Aws(Aws),
    Gcp(Gcp),
    Azure(Azure),
    File(File),
}

impl SourceReader {
    /// Opens a source. Its deadlines are in microseconds after `since`.
    pub(crate) fn new(options: &NoticeOptions, since: Instant) -> Result<Self, FetchError> {
        let maker = NoticeMaker::new(&options.source, since);
        Ok(Self(match &options.source {
            NoticeSource::Aws => SourceKind::Aws(Aws::new(options, maker)?),
            NoticeSource::Gcp => SourceKind::Gcp(Gcp::new(options, maker)?),
            NoticeSource::Azure => SourceKind::Azure(Azure::new(options, maker)?),
            NoticeSource::File(path) => {
                SourceKind::File(File::new(path.clone(), options.deadline, maker))
            }
        }))
    }

    /// Reads what the source shows. Takes as long as its calls may take; Google's server answers
    /// when something changes. After an error nothing has changed: look again later.
    pub(crate) async fn look(&mut self) -> Result<SourceReading, SourceError> {
        match &mut self.0 {
            SourceKind::Aws(aws) => aws.look().await,
            SourceKind::Gcp(gcp) => gcp.look().await,
            SourceKind::Azure(azure) => azure.look().await,
            SourceKind::File(file) => file.look(),
        }
    }

    /// Returns whether the last look waited for a change, so that the next one need not wait.
    pub(crate) const fn has_waited(&self) -> bool {
        matches!(&self.0, SourceKind::Gcp(gcp) if gcp.has_waited())
    }

    /// Lets the next look wait for no change.
    pub(crate) fn skip_wait(&mut self) {
        if let SourceKind::Gcp(gcp) = &mut self.0 {
            gcp.skip_wait();
        }
    }

    /// Acknowledges to the source that the machine may be taken. Only Azure has that.
    pub(crate) async fn acknowledge(&mut self) -> Result<(), SourceError> {
        match &mut self.0 {
            SourceKind::Azure(azure) => azure.acknowledge().await,
            _ => Ok(()),
        }
    }
}
