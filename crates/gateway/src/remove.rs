//! Deleting keys, and the directories that held nothing else.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ETagCondition, Error, ObjectIdentifier, Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::ClientError;
use sanderling_protocol::message::{ObjectKind, ObjectStat};
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Path, Refusal};

use crate::answer::message_of;
use crate::api::{S3Api, check_version, whole_second};
use crate::conditions::is_met;
use crate::keys::grant_of;
use crate::metadata;

/// Most keys of one request: as of S3.
const KEYS_MAX: usize = 1000;

/// Keys that are deleted together. A request of 1,000 keys takes 63 rounds of a few round trips
/// each, and leaves the namenode's frames to others. Chosen, not measured.
const TOGETHER_MAX: usize = 16;

/// Times that a key is looked at again which others put while it is deleted. Each time another put
/// came between a look and the deletion. Chosen, not measured.
const RETRIES_MAX: usize = 8;

impl S3Api {
    pub(crate) async fn remove(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = request.input;
        check_version(input.version_id.as_deref())?;
        let (bucket, path) = self.path(&input.bucket, &input.key)?;
        let wanted = Wanted {
            tag: input.if_match,
            modified: input.if_match_last_modified_time,
            bytes: input.if_match_size,
        };
        if self.remove_key(&bucket, &path, &wanted).await? {
            self.prune(&bucket, path.parent()).await;
        }
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    /// Deletes a key; returns whether it was there. What is looked at is what is deleted: a
    /// directory is no key, and stays also when another interface has just made it.
    async fn remove_key(&self, bucket: &Path, path: &Path, wanted: &Wanted) -> S3Result<bool> {
        for _ in 0..RETRIES_MAX {
            let stat = match self.object(bucket, path).await {
                Ok(stat) => stat,
                // What is not there is deleted, whatever it should have been: as of S3.
                Err(error) if error.code() == &S3ErrorCode::NoSuchKey => return Ok(false),
                Err(error) => return Err(error),
            };
            if !wanted.is_met(&stat) {
                return Err(S3ErrorCode::PreconditionFailed.into());
            }
            match self.client.delete_object(path, stat.object, false).await {
                Ok(_) => return Ok(true),
                Err(ClientError::Refused(Refusal::NotFound { .. })) => return Ok(false),
                // Put again meanwhile.
                Err(ClientError::Refused(Refusal::Changed { .. })) if wanted.is_none() => {}
                Err(error) => return Err(self.missing_key(bucket, &error).await),
            }
        }
        Err(S3ErrorCode::SlowDown.into())
    }

    /// Deletes directories from the deepest up to the bucket, as far as they are empty. Returns
    /// whether nothing is left to do: not while a writer keeps an empty one that this gateway has
    /// no put in, or the namenode does not answer.
    pub(crate) async fn prune(&self, bucket: &Path, deepest: Option<Path>) -> bool {
        let mut next = deepest;
        while let Some(directory) = next {
            if directory == *bucket || !bucket.contains(&directory) {
                return true;
            }
            let stat = match self.client.stat(&directory).await {
                Ok(stat) => stat,
                Err(error) => return is_final(&error),
            };
            let is_needed = stat.entries > 0 || stat.kind != ObjectKind::Directory;
            if is_needed || self.writing.leaves(&directory) {
                return true;
            }
            // Between the look and the deletion a key may come: then the directory stays, as does
            // what took its name.
            match self.client.delete_object(&directory, stat.object, false).await {
                Ok(_) => {}
                Err(ClientError::Refused(Refusal::NotEmpty { .. })) => return false,
                Err(error) => return is_final(&error),
            }
            next = directory.parent();
        }
        true
    }

    pub(crate) async fn remove_many(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let grant = grant_of(&request.extensions);
        let DeleteObjectsInput { bucket: name, delete, .. } = request.input;
        if delete.objects.is_empty() || delete.objects.len() > KEYS_MAX {
            return Err(S3ErrorCode::MalformedXML.into());
        }
        let bucket = self.bucket(&name)?;
        self.check_bucket(&bucket).await?;
        let deletions = delete.objects.into_iter().map(async |object| {
            let is_allowed = grant.as_ref().map_or(Ok(()), |it| it.check(&name, &object.key, true));
            let removed = match is_allowed {
                Ok(()) => self.remove_one(&name, &object).await,
                Err(error) => Err(error),
            };
            (object, removed)
        });
        // Made before the first of them is awaited: no task could wait for the whole otherwise.
        let deletions: Vec<_> = deletions.collect();
        let mut all = stream::iter(deletions).buffered(TOGETHER_MAX);
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        let mut directories = BTreeSet::new();
        while let Some((object, removed)) = all.next().await {
            match removed {
                Ok(directory) => {
                    directories.extend(directory);
                    let (key, version_id) = (Some(object.key), object.version_id);
                    deleted.push(DeletedObject { key, version_id, ..DeletedObject::default() });
                }
                Err(error) => errors.push(failed(object, &error)),
            }
        }
        // The deepest first: what is above may be empty then.
        for directory in directories.into_iter().rev() {
            self.prune(&bucket, Some(directory)).await;
        }
        let deleted = (!delete.quiet.unwrap_or(false)).then_some(deleted);
        let errors = (!errors.is_empty()).then_some(errors);
        let output = DeleteObjectsOutput { deleted, errors, ..DeleteObjectsOutput::default() };
        Ok(S3Response::new(output))
    }

    /// Deletes one key of many. Returns the directory that it was in, if it was there.
    async fn remove_one(&self, name: &str, object: &ObjectIdentifier) -> S3Result<Option<Path>> {
        check_version(object.version_id.as_deref())?;
        let (bucket, path) = self.path(name, &object.key)?;
        let wanted = Wanted {
            tag: object.e_tag.clone().map(ETagCondition::ETag),
            modified: object.last_modified_time.clone(),
            bytes: object.size,
        };
        let is_removed = self.remove_key(&bucket, &path, &wanted).await?;
        Ok(if is_removed { path.parent() } else { None })
    }
}

/// Returns whether a directory need not be tried again: another request has removed it, another
/// object has its name, or the gateway's token does not allow it.
fn is_final(error: &ClientError) -> bool {
    let refusal = error.refusal();
    refusal.is_some_and(|refusal| !matches!(refusal.recovery(), Recovery::RetryAfter(_)))
}

/// What an object must be to be deleted.
#[derive(Debug, Default)]
struct Wanted {
    tag: Option<ETagCondition>,
    modified: Option<Timestamp>,
    bytes: Option<i64>,
}

impl Wanted {
    fn is_none(&self) -> bool {
        self.tag.is_none() && self.modified.is_none() && self.bytes.is_none()
    }

    fn is_met(&self, stat: &ObjectStat) -> bool {
        self.tag.as_ref().is_none_or(|tag| is_met(tag, &metadata::tag_of(stat)))
            && self.modified.as_ref().is_none_or(|it| *it == whole_second(stat.modified_at))
            && self.bytes.is_none_or(|bytes| u64::try_from(bytes) == Ok(stat.bytes))
    }
}

fn failed(object: ObjectIdentifier, error: &S3Error) -> Error {
    Error {
        code: Some(error.code().as_str().to_owned()),
        key: Some(object.key),
        message: Some(error.message().unwrap_or(message_of(error.code().as_str())).to_owned()),
        version_id: object.version_id,
    }
}
