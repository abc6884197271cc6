//! Puts that are under way, and completions of uploads. One that ends without its object leaves
//! neither the object nor the directories that were made for it.
//!
//! Directories are made in the same step in which the object is created, before its bytes come. The
//! object of a put that fails never gets its name, but the directories would stay: as a prefix
//! without keys, which no key could have as its name. They are made for the object of a completion,
//! too, before the namenode looks whether the condition of the completion is met.

use std::time::Duration;

use bytes::Bytes;
use s3s::{S3ErrorCode, S3Result};
use sanderling_client::{ClientError, PutOptions, Writer};
use sanderling_protocol::Path;
use sanderling_protocol::message::ObjectStat;
use sanderling_transport::trace::carried;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::api::S3Api;
use crate::writing::Begun;

/// How long the answer to a put that failed waits for the removal of its directories: a few calls
/// to the namenode, and a client does not wait much longer where the namenode is away. Chosen, not
/// measured.
const ANSWER_AFTER: Duration = Duration::from_secs(1);

/// First pause before another attempt. The namenode gets the end of the object that keeps a
/// directory in about a round trip; each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// Longest such pause: thirty attempts in the 30 s for which a directory is tried
/// ([`CLEANUP_TIMEOUT`]). Chosen, not measured.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long a directory is tried that a writer keeps. Three times the lease of a writer whose end
/// the namenode did not get (10 s by default).
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(30);

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

    /// Creates the object. If directories are made for it, a task does so, which also ends when the
    /// client goes away meanwhile: only then it is clear what there is to remove.
    ///
    /// # Errors
    /// `InternalError` when the task panicked.
    pub(crate) async fn create(
        mut self,
        options: &PutOptions,
    ) -> S3Result<(Self, Result<(), ClientError>)> {
        if !options.parents {
            let created = self.api.client.create(&self.path, options).await;
            let created = created.map(|writer| self.writer = Some(writer));
            return Ok((self, created));
        }
        self.has_made = true;
        let options = options.clone();
        let creating = tokio::spawn(carried(async move {
            let created = self.api.client.create(&self.path, &options).await;
            let created = created.map(|writer| self.writer = Some(writer));
            (self, created)
        }));
        creating.await.map_err(|_| S3ErrorCode::InternalError.into())
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
        putting.await.map_err(|_| S3ErrorCode::InternalError.into())
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
        joining.await.map_err(|_| S3ErrorCode::InternalError.into())
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

    /// Ends the put, unless it has its object: returns when its directories are gone, or after a
    /// while.
    pub(crate) async fn end(mut self) {
        if let Some(removed) = self.give_up() {
            let _is_late = timeout(ANSWER_AFTER, removed).await;
        }
    }

    /// Gives the put up, unless it has ended. Returns what resolves when its directories are gone,
    /// if there may be any.
    fn give_up(&mut self) -> Option<oneshot::Receiver<()>> {
        let is_left = self.begun.take()?.fail();
        // Dropped, it gives the object up.
        let writer = self.writer.take();
        let bucket = self.bucket.take().filter(|_| self.has_made || is_left)?;
        let (gone, removed) = oneshot::channel();
        let (api, directory) = (self.api.clone(), self.path.parent());
        self.api.cleanups.start(async move {
            if let Some(writer) = writer {
                // Without an answer the lease ends by itself.
                drop(writer.abort().await);
            }
            remove(&api, &bucket, directory).await;
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

/// Deletes empty directories up to the bucket. An object that is written keeps its directory until
/// the namenode has got its end.
async fn remove(api: &S3Api, bucket: &Path, deepest: Option<Path>) {
    let until = Instant::now() + CLEANUP_TIMEOUT;
    let mut pause = PAUSE_MIN;
    while !api.prune(bucket, deepest.clone()).await {
        if Instant::now() + pause > until {
            let directory = deepest.as_ref().map(Path::as_str).unwrap_or_default();
            tracing::warn!(directory, "the directory of a failed put stays: a writer keeps it");
            return;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
