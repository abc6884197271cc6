//! Deleting a bucket: what it keeps beside its keys goes with it, or stays with it.
//!
//! Whether a bucket is empty only its deletion decides: another client may be writing a key that
//! no listing has yet. So the unfinished uploads and the rules for pages are not deleted first.
//! They are moved aside, and back when the bucket stays.

use s3s::dto::{DeleteBucketInput, DeleteBucketOutput};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::{Client, ClientError};
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::{Millis, Path, Refusal};

use crate::api::S3Api;
use crate::listing::{Query, page};
use crate::name::{ASIDE, RULES, UPLOADS};
use crate::part_name::draw;
use crate::refused::{Missing, refused};

/// What a bucket keeps beside its keys.
const KEPT: [&str; 2] = [UPLOADS, RULES];

impl S3Api {
    /// Deletes a bucket without keys, with directories that hold none, with its unfinished uploads
    /// and its rules. A bucket that is not deleted keeps both.
    ///
    /// # Errors
    /// `BucketNotEmpty` when it has a key or another client writes one: delete that first.
    pub(crate) async fn remove_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let name = request.input.bucket;
        let bucket = self.bucket(&name)?;
        self.check_bucket(&bucket).await?;
        let failed = |error: ClientError| refused(&error, Missing::Bucket);
        let one = Query { items_max: 1, ..Query::default() };
        if !page(&self.client, &bucket, &one).await.map_err(failed)?.items.is_empty()
            || !self.remove_empty(&bucket).await.map_err(failed)?
        {
            return Err(S3ErrorCode::BucketNotEmpty.into());
        }
        let aside = self.root.join(&format!("{ASIDE}{}", draw())).map_err(ClientError::Refused);
        let aside = Aside { bucket, directory: aside.map_err(failed)? };
        let (client, ttl) = (self.client.clone(), Millis::from(self.upload_ttl));
        // In a task: a caller that goes away must not end it half-way.
        let deleting = tokio::spawn(async move { aside.delete_bucket(&client, ttl).await });
        let deleted = deleting.await.map_err(|_| S3ErrorCode::InternalError)?;
        self.cors.forget(&name);
        deleted.map(|()| S3Response::new(DeleteBucketOutput::default())).map_err(failed)
    }

    /// Deletes the directories in a directory that hold nothing but directories. Returns whether
    /// none is left.
    async fn remove_empty(&self, top: &Path) -> Result<bool, ClientError> {
        let mut found = vec![top.clone()];
        let mut at = 0;
        while let Some(directory) = found.get(at).cloned() {
            at += 1;
            let inside = match self.client.list_all(&directory).await {
                Ok(inside) => inside,
                Err(ClientError::Refused(Refusal::NotFound { .. })) => continue,
                Err(error) => return Err(error),
            };
            for entry in inside.iter().filter(|entry| entry.kind.is_container()) {
                if at > 1 || entry.name != UPLOADS {
                    found.push(directory.join(&entry.name)?);
                }
            }
        }
        let mut is_none_left = true;
        for directory in found.iter().skip(1).rev() {
            match self.client.delete(directory, false).await {
                Ok(_) | Err(ClientError::Refused(Refusal::NotFound { .. })) => {}
                Err(ClientError::Refused(Refusal::NotEmpty { .. })) => is_none_left = false,
                Err(error) => return Err(error),
            }
        }
        Ok(is_none_left)
    }
}

/// A place outside a bucket for what it keeps beside its keys.
struct Aside {
    bucket: Path,
    directory: Path,
}

impl Aside {
    /// Deletes the bucket, with what it keeps beside its keys or with nothing.
    async fn delete_bucket(&self, client: &Client, ttl: Millis) -> Result<(), ClientError> {
        let deleted = match self.fill(client, ttl).await {
            // A key that came meanwhile stays, and with it the bucket.
            Ok(()) => client.delete(&self.bucket, false).await.map(drop),
            Err(error) => Err(error),
        };
        if deleted.is_err() {
            self.put_back(client).await?;
        }
        // Else it expires.
        drop(client.delete(&self.directory, true).await);
        deleted
    }

    /// Moves there what the bucket keeps. It expires there like an unfinished upload, should the
    /// gateway die before it has gone on. What cannot be moved, because the bucket is a job of its
    /// own or the gateway's token ends with the bucket, is deleted.
    async fn fill(&self, client: &Client, ttl: Millis) -> Result<(), ClientError> {
        let made = client.make_directory(&self.directory, ObjectKind::Directory, false, true).await;
        match made {
            Ok(_) => client.set_ttl(&self.directory, Some(ttl)).await?,
            Err(ClientError::Refused(Refusal::Forbidden { .. })) => {}
            Err(error) => return Err(error),
        }
        for name in KEPT {
            let from = self.bucket.join(name)?;
            let mut moved = client.rename(&from, &self.directory.join(name)?, false).await;
            if let Err(ClientError::Refused(
                Refusal::CrossesJob { .. } | Refusal::Forbidden { .. },
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

    /// Moves everything back. What was made anew in the bucket meanwhile stays there: uploads are
    /// put beside each other, of rules the newer ones count.
    async fn put_back(&self, client: &Client) -> Result<(), ClientError> {
        for name in KEPT {
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
                    ended?;
                }
                // Nothing was moved aside, or the bucket is gone by another request.
                Ok(()) | Err(ClientError::Refused(Refusal::NotFound { .. })) => {}
                Err(_) if is_taken => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
