//! Deleting a bucket: what it keeps beside its keys goes with it, or stays with it.
//!
//! Whether a bucket is empty only its deletion decides: another client may be writing a key that
//! no listing has yet. So the unfinished uploads and the rules for pages are not deleted first.
//! They are moved aside, and back when the bucket stays. Where the namenode does not answer, a task
//! moves them back later.

use std::time::Duration;

use s3s::dto::{DeleteBucketInput, DeleteBucketOutput};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::{Client, ClientError};
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::{Millis, ObjectId, Path, Refusal};
use tokio::time::Instant;

use crate::api::S3Api;
use crate::listing::{Query, page};
use crate::name::{ASIDE, RULES, UPLOADS};
use crate::part_name::draw;
use crate::prune::{CleanupPauses, is_final};
use crate::refused::{Missing, refused};

/// What a bucket keeps beside its keys.
const KEPT: [&str; 2] = [UPLOADS, RULES];

impl S3Api {
    /// Deletes a bucket without keys, with directories that hold none, with its unfinished uploads
    /// and its rules. A bucket that is not deleted keeps both.
    ///
    /// # Errors
    /// `BucketNotEmpty` when it has a key, a durable directory or the root of a job, or another
    /// client writes a key: delete that first.
    pub(crate) async fn remove_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let name = request.input.bucket;
        let bucket = self.bucket(&name)?;
        let object = self.check_bucket(&bucket).await?;
        let failed = |error: ClientError| refused(&error, Missing::Bucket);
        let one = Query { items_max: 1, ..Query::default() };
        if !page(&self.client, &bucket, &one).await.map_err(failed)?.items.is_empty()
            || !self.remove_empty(&bucket, object).await.map_err(failed)?
        {
            return Err(S3ErrorCode::BucketNotEmpty.into());
        }
        let aside = self.root.join(&format!("{ASIDE}{}", draw())).map_err(ClientError::Refused);
        let aside = Aside { bucket, object, directory: aside.map_err(failed)? };
        let api = self.clone();
        // In a task: a caller that goes away must not end it half-way.
        let deleting = tokio::spawn(async move { aside.delete_bucket(&api).await });
        let deleted = deleting.await.map_err(|_| S3ErrorCode::InternalError)?;
        self.cors.forget(&name);
        deleted.map(|()| S3Response::new(DeleteBucketOutput::default())).map_err(failed)
    }

    /// Deletes the directories in a directory that hold nothing but directories. Returns whether
    /// none is left: a durable one and the root of a job stay, as does what took the name of one.
    async fn remove_empty(&self, top: &Path, object: ObjectId) -> Result<bool, ClientError> {
        let mut found = vec![(top.clone(), object)];
        let mut at = 0;
        while let Some((directory, _)) = found.get(at).cloned() {
            at += 1;
            let inside = match self.client.list_all(&directory).await {
                Ok(inside) => inside,
                Err(ClientError::Refused(Refusal::NotFound { .. })) => continue,
                Err(error) => return Err(error),
            };
            for entry in inside.iter().filter(|entry| entry.kind.is_container()) {
                if at > 1 || entry.name != UPLOADS {
                    found.push((directory.join(&entry.name)?, entry.object));
                }
            }
        }
        let mut is_none_left = true;
        for (directory, object) in found.iter().skip(1).rev() {
            match self.client.delete_object(directory, *object, false).await {
                Ok(_) | Err(ClientError::Refused(Refusal::NotFound { .. })) => {}
                Err(ClientError::Refused(
                    Refusal::NotEmpty { .. } | Refusal::Changed { .. } | Refusal::WrongKind { .. },
                )) => is_none_left = false,
                Err(error) => return Err(error),
            }
        }
        Ok(is_none_left)
    }
}

/// A place outside a bucket for what it keeps beside its keys.
struct Aside {
    bucket: Path,
    /// The bucket's id: another one of its name gets nothing back.
    object: ObjectId,
    directory: Path,
}

impl Aside {
    /// Deletes the bucket, with what it keeps beside its keys or with nothing.
    async fn delete_bucket(self, api: &S3Api) -> Result<(), ClientError> {
        let client = &api.client;
        let deleted = match self.fill(client, api.upload_ttl).await {
            // A key that came meanwhile stays, and with it the bucket.
            Ok(()) => client.delete(&self.bucket, false).await.map(drop),
            Err(error) => Err(error),
        };
        if deleted.is_err() && self.put_back(client).await.is_err() {
            let later = api.clone();
            api.cleanups.start_always(async move { self.put_back_later(&later).await });
            return deleted;
        }
        // Else it expires.
        drop(client.delete(&self.directory, true).await);
        deleted
    }

    /// Moves there what the bucket keeps. It expires there like an unfinished upload, should the
    /// gateway die before it has gone on. What cannot be moved, because the bucket is a job of its
    /// own, the gateway's token ends with the bucket, or a durable directory has more objects than
    /// one rename takes, is deleted.
    async fn fill(&self, client: &Client, ttl: Duration) -> Result<(), ClientError> {
        let made = client.make_directory(&self.directory, ObjectKind::Directory, false, true).await;
        match made {
            Ok(_) => client.set_ttl(&self.directory, Some(Millis::from(ttl))).await?,
            Err(ClientError::Refused(Refusal::Forbidden { .. })) => {}
            Err(error) => return Err(error),
        }
        for name in KEPT {
            let from = self.bucket.join(name)?;
            let mut moved = client.rename(&from, &self.directory.join(name)?, false).await;
            if let Err(ClientError::Refused(
                Refusal::CrossesJob { .. } | Refusal::Forbidden { .. } | Refusal::TooLarge { .. },
            )) = moved
            {
                moved = client.delete(&from, true).await.map(drop);
            }
            match moved {
                Ok(()) | Err(ClientError::Refused(Refusal::NotFound { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Moves everything back as soon as the namenode answers, unless it has expired before.
    async fn put_back_later(self, api: &S3Api) {
        // Without an end if there is no such time.
        let until = Instant::now().checked_add(api.upload_ttl);
        let has_expired = || until.is_some_and(|until| Instant::now() > until);
        let mut pauses = CleanupPauses::new();
        loop {
            pauses.wait().await;
            match self.put_back(&api.client).await {
                Ok(()) => break,
                Err(error) if is_final(&error) || has_expired() => {
                    let (bucket, aside) = (&self.bucket, &self.directory);
                    tracing::warn!(%bucket, %aside, %error, "a bucket lacks uploads or rules");
                    return;
                }
                Err(_) => {}
            }
        }
        // Else it expires.
        drop(api.client.delete(&self.directory, true).await);
    }

    /// Moves everything back, unless the bucket is gone by another request, or by this one whose
    /// answer was lost. What cannot be moved leaves the rest.
    async fn put_back(&self, client: &Client) -> Result<(), ClientError> {
        match client.stat(&self.bucket).await {
            Ok(stat) if stat.object == self.object => {}
            Ok(_) | Err(ClientError::Refused(Refusal::NotFound { .. })) => return Ok(()),
            Err(error) => return Err(error),
        }
        let mut ended = Ok(());
        for name in KEPT {
            match self.put_one_back(client, name).await {
                Err(error) if is_final(&error) => ended = Err(error),
                moved => moved?,
            }
        }
        ended
    }

    /// Moves one thing back. What was made anew in the bucket meanwhile stays there: uploads are
    /// put beside each other, of rules the newer ones count.
    async fn put_one_back(&self, client: &Client, name: &str) -> Result<(), ClientError> {
        let (from, to) = (self.directory.join(name)?, self.bucket.join(name)?);
        let back = client.rename(&from, &to, false).await;
        let is_taken = matches!(back, Err(ClientError::Refused(Refusal::Exists { .. })));
        match back {
            Err(_) if is_taken && name == UPLOADS => {
                let mut ended = Ok(());
                for upload in client.list_all(&from).await? {
                    let (from, to) = (from.join(&upload.name)?, to.join(&upload.name)?);
                    // One that cannot be moved leaves the others.
                    ended = ended.and(client.rename(&from, &to, false).await);
                }
                ended
            }
            // Nothing was moved aside, or the bucket is gone by another request.
            Ok(()) | Err(ClientError::Refused(Refusal::NotFound { .. })) => Ok(()),
            Err(_) if is_taken => Ok(()),
            Err(error) => Err(error),
        }
    }
}
