//! Deleting keys, and the directories that held nothing else.

use futures_util::{StreamExt, stream};
use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ETagCondition, Error, ObjectIdentifier, Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::ClientError;
use sanderling_protocol::message::ObjectStat;
use sanderling_protocol::{Path, Refusal};

use crate::answer::message_of;
use crate::api::{S3Api, check_version, whole_second};
use crate::conditions::is_met;
use crate::keys::grant_of;
use crate::metadata;
use crate::prune::LeftDirectories;

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
        let left = LeftDirectories::new(self, &bucket);
        self.remove_key(&bucket, &path, &wanted, &left).await?;
        left.prune().await;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    /// Deletes a key, and adds its directory to those that may be empty then. What is looked at is
    /// what is deleted: a directory is no key, and stays also when another interface has just made
    /// it.
    async fn remove_key(
        &self,
        bucket: &Path,
        path: &Path,
        wanted: &Wanted,
        left: &LeftDirectories,
    ) -> S3Result<()> {
        for _ in 0..RETRIES_MAX {
            let stat = match self.object(bucket, path).await {
                Ok(stat) => stat,
                // What is not there is deleted, whatever it should have been: as of S3.
                Err(error) if error.code() == &S3ErrorCode::NoSuchKey => return Ok(()),
                Err(error) => return Err(error),
            };
            if !wanted.is_met(&stat) {
                return Err(S3ErrorCode::PreconditionFailed.into());
            }
            left.add(path);
            match self.client.delete_object(path, stat.object, false).await {
                Ok(_) | Err(ClientError::Refused(Refusal::NotFound { .. })) => return Ok(()),
                // Put again meanwhile.
                Err(ClientError::Refused(Refusal::Changed { .. })) if wanted.is_none() => {}
                Err(error) => return Err(self.missing_key(bucket, &error).await),
            }
        }
        Err(S3ErrorCode::SlowDown.into())
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
        let left = LeftDirectories::new(self, &bucket);
        let deletions = delete.objects.into_iter().map(async |object| {
            let is_allowed = grant.as_ref().map_or(Ok(()), |it| it.check(&name, &object.key, true));
            let removed = match is_allowed {
                Ok(()) => self.remove_one(&name, &object, &left).await,
                Err(error) => Err(error),
            };
            (object, removed)
        });
        // Made before the first of them is awaited: no task could wait for the whole otherwise.
        let deletions: Vec<_> = deletions.collect();
        let mut all = stream::iter(deletions).buffered(TOGETHER_MAX);
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        while let Some((object, removed)) = all.next().await {
            match removed {
                Ok(()) => {
                    let (key, version_id) = (Some(object.key), object.version_id);
                    deleted.push(DeletedObject { key, version_id, ..DeletedObject::default() });
                }
                Err(error) => errors.push(failed(object, &error)),
            }
        }
        drop(all);
        left.prune().await;
        let deleted = (!delete.quiet.unwrap_or(false)).then_some(deleted);
        let errors = (!errors.is_empty()).then_some(errors);
        let output = DeleteObjectsOutput { deleted, errors, ..DeleteObjectsOutput::default() };
        Ok(S3Response::new(output))
    }

    /// Deletes one key of many.
    async fn remove_one(
        &self,
        name: &str,
        object: &ObjectIdentifier,
        left: &LeftDirectories,
    ) -> S3Result<()> {
        check_version(object.version_id.as_deref())?;
        let (bucket, path) = self.path(name, &object.key)?;
        let wanted = Wanted {
            tag: object.e_tag.clone().map(ETagCondition::ETag),
            modified: object.last_modified_time.clone(),
            bytes: object.size,
        };
        self.remove_key(&bucket, &path, &wanted, left).await
    }
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
