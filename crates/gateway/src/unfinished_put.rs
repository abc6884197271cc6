//! Puts that are under way, and completions of uploads. One that ends without its object leaves
//! neither the object nor the directories that were made for it.
//!
//! Directories are made in the same step in which the object is created, before its bytes come. The
//! object of a put that fails never gets its name, but the directories would stay: as a prefix
//! without keys, which no key could have as its name. They are made for the object of a completion,
//! too, before the namenode looks whether the condition of the completion is met.

use bytes::Bytes;
use s3s::{S3Error, S3ErrorCode, S3Result};
use sanderling_client::{ClientError, PutOptions, Writer};
use sanderling_protocol::Path;
use sanderling_protocol::message::ObjectStat;
use sanderling_transport::trace::carried;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tokio::time::{Instant, timeout};

use crate::api::S3Api;
use crate::prune::{ANSWER_AFTER, CLEANUP_TIMEOUT, CleanupPauses, is_final};
use crate::writing::Begun;

/// A put or a completion that is under way. Dropped before it has its object, it is given up.
pub(crate) struct UnfinishedPut {
    api: S3Api,
    /// The bucket; `None` for parts of uploads, for which no directory is made.
    bucket: Option<Path>,
    path: Path,
    /// `None` when the put has ended.
    begun: Option<Begun>,
    /// Whether directories may have been made for it.
    has_made: bool,
    writer: Option<Writer>,
}

impl UnfinishedPut {
    /// Begins a put to a path.
    pub(crate) fn begin(api: &S3Api, bucket: Option<&Path>, path: &Path) -> Self {
        let begun = Some(api.writing.begin(path));
        let (api, bucket, path) = (api.clone(), bucket.cloned(), path.clone());
        Self { api, bucket, path, begun, has_made: false, writer: None }
    }

    /// Creates the object, and its directories if the options have that, in a task. It also ends
    /// when the client goes away meanwhile: only then it is clear what there is to remove.
    ///
    /// # Errors
    /// `InternalError` when the task panicked.
    pub(crate) async fn create(
        mut self,
        options: &PutOptions,
    ) -> S3Result<(Self, Result<(), ClientError>)> {
        self.has_made |= options.parents;
        let options = options.clone();
        let creating = tokio::spawn(carried(async move {
            let created = self.api.client.create(&self.path, &options).await;
            let created = created.map(|writer| self.writer = Some(writer));
            (self, created)
        }));
        creating.await.map_err(|error| unfinished(&error))
    }

    /// Stores all bytes of the object, and makes its directories, in a task as above.
    ///
    /// # Errors
    /// `InternalError` when the task panicked.
    pub(crate) async fn put(
        mut self,
        bytes: Bytes,
        options: &PutOptions,
    ) -> S3Result<(Self, Result<ObjectStat, ClientError>)> {
        self.has_made = true;
        let options = options.clone();
        let putting = tokio::spawn(carried(async move {
            let stored = self.api.client.put(&self.path, bytes, &options).await;
            if stored.is_ok() {
                self.begun = None;
            }
            (self, stored)
        }));
        putting.await.map_err(|error| unfinished(&error))
    }

    /// Makes the object of the blocks of parts, and its directories, in a task as above.
    ///
    /// # Errors
    /// `InternalError` when the task panicked.
    pub(crate) async fn concat(
        mut self,
        parts: Vec<Path>,
        options: &PutOptions,
    ) -> S3Result<(Self, Result<ObjectStat, ClientError>)> {
        self.has_made = true;
        let options = options.clone();
        let joining = tokio::spawn(carried(async move {
            let joined = self.api.client.concat(&parts, &self.path, &options).await;
            if joined.is_ok() {
                self.begun = None;
            }
            (self, joined)
        }));
        joining.await.map_err(|error| unfinished(&error))
    }

    /// Returns the writer of the object that was created.
    pub(crate) fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().expect("the object was created")
    }

    /// Seals the object.
    ///
    /// # Errors
    /// As [`Writer::close`].
    pub(crate) async fn close(&mut self) -> Result<ObjectStat, ClientError> {
        let writer = self.writer.take().expect("the object was created");
        let stat = writer.close().await?;
        self.begun = None;
        Ok(stat)
    }

    /// Ends the put, unless it has its object: returns when its object and its directories are
    /// gone, or after a while.
    pub(crate) async fn end(mut self) {
        if let Some(removed) = self.give_up() {
            let _is_late = timeout(ANSWER_AFTER, removed).await;
        }
    }

    /// Gives the put up, unless it has ended. Returns what resolves when its object and its
    /// directories are gone, or another task has a directory to remove.
    fn give_up(&mut self) -> Option<oneshot::Receiver<()>> {
        let failed = FailedPut {
            begun: self.begun.take()?,
            bucket: self.bucket.take(),
            directory: self.path.parent(),
            has_made: self.has_made,
            writer: self.writer.take(),
        };
        let (gone, removed) = oneshot::channel();
        let api = self.api.clone();
        self.api.cleanups.start(async move {
            failed.clean_up(&api).await;
            drop(gone);
        });
        Some(removed)
    }
}

impl Drop for UnfinishedPut {
    fn drop(&mut self) {
        drop(self.give_up());
    }
}

/// Logs why a task has ended without its result, and returns the error for the client.
fn unfinished(error: &JoinError) -> S3Error {
    tracing::error!(%error, "a put or a completion was not finished");
    S3ErrorCode::InternalError.into()
}

/// What is left of a put that has failed.
struct FailedPut {
    /// Kept until the namenode has got the end of the object, which keeps its directory until then:
    /// a deletion of the last key leaves the directory to this put.
    begun: Begun,
    bucket: Option<Path>,
    directory: Option<Path>,
    has_made: bool,
    writer: Option<Writer>,
}

impl FailedPut {
    /// Gives the object up, and removes the directories that are empty then if they may have been
    /// made for it, or were left to it.
    async fn clean_up(self, api: &S3Api) {
        if let Some(writer) = self.writer {
            abort(writer).await;
        }
        let is_left = self.begun.fail();
        if let (Some(bucket), Some(directory)) = (self.bucket, self.directory)
            && (self.has_made || is_left)
        {
            api.prune(&bucket, directory).await;
        }
    }
}

/// Gives an object up, and tries that again where the namenode does not answer. Its lease would end
/// by itself, but no sooner than 30 s after a start of the namenode.
async fn abort(mut writer: Writer) {
    let until = Instant::now() + CLEANUP_TIMEOUT;
    let mut pauses = CleanupPauses::new();
    while let Err(error) = writer.try_abort().await {
        if is_final(&error) || Instant::now() > until {
            return;
        }
        pauses.wait().await;
    }
}
