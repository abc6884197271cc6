//! Removing directories that have nothing in them any more.
//!
//! A directory goes with its last key: else it would be listed as a prefix without keys, and no key
//! could have its name. While a writer at another gateway or interface keeps it, it is tried again.
//! The namenode itself keeps a durable directory and the root of a job, which are more than what is
//! in them.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_client::ClientError;
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Path, Refusal};
use tokio::time::{Instant, sleep, timeout};

use crate::api::S3Api;
use crate::writing::KeptDirectory;

/// How long an answer waits for a removal: a few calls to the namenode, and a client does not wait
/// much longer where the namenode is away, or a store. Chosen, not measured.
pub(crate) const ANSWER_AFTER: Duration = Duration::from_secs(1);

/// How long what a failed put left is tried to be removed, and a directory that a writer keeps. The
/// lease of a writer whose end the namenode did not get lasts 10 s, and for 30 s after a start of
/// the namenode it does not end. So that leaves 80 s for an absence of the namenode.
pub(crate) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(120);

/// First pause before another attempt. The namenode gets the end of the object that keeps a
/// directory in about a round trip; each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// Longest such pause. Chosen, not measured.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pauses between the attempts of a cleanup.
#[derive(Debug)]
pub(crate) struct CleanupPauses(Duration);

impl CleanupPauses {
    pub(crate) const fn new() -> Self {
        Self(PAUSE_MIN)
    }

    /// Waits before the next attempt.
    pub(crate) async fn wait(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(PAUSE_MAX);
    }
}

/// Returns whether a call need not be tried again: it is refused for what it is about. Another
/// request has removed that, another object has its name, or the gateway's token does not allow it.
pub(crate) fn is_final(error: &ClientError) -> bool {
    error.refusal().is_some_and(|refusal| refusal.recovery() == Recovery::Fix)
}

impl S3Api {
    /// Deletes directories from the deepest up to the bucket, as far as they are empty. A task goes
    /// on with one that has to be tried again.
    pub(crate) async fn prune(&self, bucket: &Path, deepest: Path) {
        if let Some(directory) = self.prune_once(bucket, deepest).await {
            self.prune_later(bucket, &directory);
        }
    }

    /// Deletes directories, as far as that can be done now. Returns the one that has to be tried
    /// again: a writer keeps it that this gateway has no put for, or the namenode does not answer.
    async fn prune_once(&self, bucket: &Path, deepest: Path) -> Option<Path> {
        let mut next = Some(deepest);
        while let Some(directory) = next {
            if directory == *bucket || !bucket.contains(&directory) {
                return None;
            }
            let removed = match self.client.stat(&directory).await {
                Ok(stat) if stat.entries > 0 || stat.kind != ObjectKind::Directory => return None,
                Ok(_) if self.writing.leaves(&directory) => return None,
                // Between the look and the deletion a key may come: then the directory stays, as
                // does what took its name.
                Ok(stat) => self.client.delete_object(&directory, stat.object, false).await,
                Err(error) => Err(error),
            };
            match removed {
                // One that is gone may have left the one above it to this request.
                Ok(_) | Err(ClientError::Refused(Refusal::NotFound { .. })) => {}
                Err(ClientError::Refused(Refusal::NotEmpty { .. })) => return Some(directory),
                Err(error) => return (!is_final(&error)).then_some(directory),
            }
            next = directory.parent();
        }
        None
    }

    /// Starts a task that tries a directory again, unless there is one: then that one goes on for
    /// longer.
    fn prune_later(&self, bucket: &Path, directory: &Path) {
        let until = Instant::now() + CLEANUP_TIMEOUT;
        let Some(kept) = self.cleanups.try_until(directory, until) else { return };
        let (api, bucket) = (self.clone(), bucket.clone());
        self.cleanups.start(async move { api.prune_kept(&bucket, kept).await });
    }

    /// Tries a directory until it is removed, need not be any more, or the time is over.
    async fn prune_kept(&self, bucket: &Path, mut kept: KeptDirectory) {
        let mut pauses = CleanupPauses::new();
        loop {
            pauses.wait().await;
            let until = kept.until();
            let next = self.prune_once(bucket, kept.directory().clone()).await;
            let is_same = next.as_ref() == Some(kept.directory());
            if (is_same && Instant::now() < until) || !kept.end(until) {
                continue;
            }
            match next {
                Some(directory) if is_same => {
                    tracing::warn!(%directory, "an empty directory stays: a writer keeps it");
                }
                Some(above) => self.prune_later(bucket, &above),
                None => {}
            }
            return;
        }
    }
}

/// The directories in which a request deletes keys: those that are empty then are removed. A
/// request that is given up leaves that to a task.
pub(crate) struct LeftDirectories {
    api: S3Api,
    bucket: Path,
    directories: Mutex<BTreeSet<Path>>,
}

impl LeftDirectories {
    pub(crate) fn new(api: &S3Api, bucket: &Path) -> Self {
        let (api, bucket) = (api.clone(), bucket.clone());
        Self { api, bucket, directories: Mutex::default() }
    }

    /// Adds the directory of a key that is about to be deleted.
    pub(crate) fn add(&self, key: &Path) {
        self.directories.lock().extend(key.parent());
    }

    /// Removes the directories that are empty. What takes too long is left to a task.
    pub(crate) async fn prune(self) {
        let removing = async {
            while let Some(directory) = self.deepest() {
                self.api.prune(&self.bucket, directory.clone()).await;
                self.directories.lock().remove(&directory);
            }
        };
        let _is_late = timeout(ANSWER_AFTER, removing).await;
    }

    /// Returns the directory that comes first: what is above it may be empty then.
    fn deepest(&self) -> Option<Path> {
        self.directories.lock().last().cloned()
    }
}

impl Drop for LeftDirectories {
    fn drop(&mut self) {
        let directories = std::mem::take(self.directories.get_mut());
        if directories.is_empty() {
            return;
        }
        let (api, bucket) = (self.api.clone(), self.bucket.clone());
        self.api.cleanups.start(async move {
            for directory in directories.into_iter().rev() {
                api.prune(&bucket, directory).await;
            }
        });
    }
}
