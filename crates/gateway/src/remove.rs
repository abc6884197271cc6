//! Deleting keys, and the directories that held nothing else.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    Error, ObjectIdentifier,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::ClientError;
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::{ObjectId, Path, Refusal};

use crate::conditions::is_met;
use crate::door::{Door, grant_of};
use crate::facts;
use crate::object::check_version;
use crate::refused::{Missing, refused};

/// Most keys of one request: as of S3.
const KEYS_MAX: usize = 1000;

/// Keys that are deleted together.
const TOGETHER_MAX: usize = 16;

impl Door {
    pub(crate) async fn remove(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let input = request.input;
        check_version(input.version_id.as_deref())?;
        let (bucket, path) = self.path(&input.bucket, &input.key)?;
        let mut expected = None;
        if let Some(wanted) = input.if_match {
            let stat = self.object(&bucket, &path).await?;
            if !is_met(&wanted, &facts::tag_of(&stat)) {
                return Err(S3ErrorCode::PreconditionFailed.into());
            }
            expected = Some(stat.object);
        }
        match self.remove_key(&bucket, &path, expected).await? {
            true => self.prune(&bucket, path.parent()).await,
            // It may be the bucket that is missing.
            false => self.check_bucket(&bucket).await?,
        }
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    /// Deletes a key, of a condition only the object that met it.
    async fn delete(&self, path: &Path, expected: Option<ObjectId>) -> Result<(), ClientError> {
        match expected {
            Some(object) => self.client.delete_object(path, object, false).await?,
            None => self.client.delete(path, false).await?,
        };
        Ok(())
    }

    /// Deletes a key; tells whether it was there.
    async fn remove_key(
        &self,
        bucket: &Path,
        path: &Path,
        expected: Option<ObjectId>,
    ) -> S3Result<bool> {
        match self.delete(path, expected).await {
            Ok(_) => Ok(true),
            // A directory is no key.
            Err(ClientError::Refused(
                Refusal::NotFound { .. } | Refusal::NotADirectory { .. } | Refusal::NotEmpty { .. },
            )) => Ok(false),
            Err(error) => Err(self.missing_key(bucket, &error).await),
        }
    }

    /// Deletes directories from the deepest up to the bucket, as far as they are empty.
    async fn prune(&self, bucket: &Path, deepest: Option<Path>) {
        let mut next = deepest;
        while let Some(directory) = next {
            if directory == *bucket || !bucket.contains(&directory) {
                return;
            }
            let Ok(stat) = self.client.stat(&directory).await else { return };
            let is_needed = stat.entries > 0 || self.writing.is_in(&directory);
            // Between the look and the deletion a key may come: then the directory stays, as does
            // what took its name.
            if is_needed
                || stat.kind != ObjectKind::Directory
                || self.delete(&directory, Some(stat.object)).await.is_err()
            {
                return;
            }
            next = directory.parent();
        }
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
                Err(error) => errors.push(told(object, &error)),
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
        let mut expected = None;
        if let Some(wanted) = &object.e_tag {
            let stat = self.object(&bucket, &path).await?;
            if facts::tag_of(&stat) != wanted.value() {
                return Err(S3ErrorCode::PreconditionFailed.into());
            }
            expected = Some(stat.object);
        }
        let removed = self.delete(&path, expected).await;
        match removed {
            Ok(_) => Ok(path.parent()),
            Err(ClientError::Refused(
                Refusal::NotFound { .. } | Refusal::NotADirectory { .. } | Refusal::NotEmpty { .. },
            )) => Ok(None),
            Err(error) => Err(refused(&error, Missing::Key)),
        }
    }
}

fn told(object: ObjectIdentifier, error: &S3Error) -> Error {
    Error {
        code: Some(error.code().as_str().to_owned()),
        key: Some(object.key),
        message: error.message().map(str::to_owned),
        version_id: object.version_id,
    }
}
