//! Buckets: the directories of the root.

use s3s::dto::{
    Bucket, CreateBucketInput, CreateBucketOutput, HeadBucketInput, HeadBucketOutput,
    ListBucketsInput, ListBucketsOutput,
};
use s3s::path::check_bucket_name;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::ClientError;
use sanderling_protocol::limits::LIST_PAGE_MAX;
use sanderling_protocol::message::{Entry, ObjectKind};
use sanderling_protocol::{ObjectId, Path, Refusal};

use crate::api::{S3Api, timestamp};
use crate::keys::grant_of;
use crate::name::ASIDE;
use crate::refused::{Missing, refused};
use crate::token;

/// Most buckets of one answer, and how many there are unless fewer are requested: as of S3.
const BUCKETS_MAX: i32 = 10_000;

/// Begins and ends of names that S3 keeps to itself, beyond what s3s checks.
const BEGINS: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];
const ENDS: [&str; 5] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"];

/// Returns whether a bucket may be made with a name (S3, "General purpose bucket naming rules").
fn is_name(name: &str) -> bool {
    check_bucket_name(name)
        && !BEGINS.iter().any(|begin| name.starts_with(begin))
        && !ENDS.iter().any(|end| name.ends_with(end))
}

impl S3Api {
    /// Returns the directory of a bucket.
    ///
    /// # Errors
    /// `InvalidBucketName`.
    pub(crate) fn bucket(&self, name: &str) -> S3Result<Path> {
        self.root.join(name).map_err(|_| S3ErrorCode::InvalidBucketName.into())
    }

    /// Makes sure that a bucket is there, and returns its id.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub(crate) async fn check_bucket(&self, bucket: &Path) -> S3Result<ObjectId> {
        match self.client.stat(bucket).await {
            Ok(stat) if stat.kind.is_container() => Ok(stat.object),
            Ok(_) => Err(S3ErrorCode::NoSuchBucket.into()),
            Err(error) => Err(refused(&error, Missing::Bucket)),
        }
    }

    /// Returns the error of a call about a key that may also be the bucket's.
    pub(crate) async fn missing_key(&self, bucket: &Path, error: &ClientError) -> S3Error {
        let is_missing = matches!(
            error,
            ClientError::Refused(
                Refusal::NotFound { .. }
                    | Refusal::NotADirectory { .. }
                    | Refusal::IsADirectory { .. }
            )
        );
        if !is_missing {
            return refused(error, Missing::Key);
        }
        match self.check_bucket(bucket).await {
            Ok(_) => S3ErrorCode::NoSuchKey.into(),
            Err(error) => error,
        }
    }

    pub(crate) async fn make_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let name = request.input.bucket;
        if !is_name(&name) {
            return Err(S3ErrorCode::InvalidBucketName.into());
        }
        let path = self.bucket(&name)?;
        let mut made = self.client.make_directory(&path, ObjectKind::Directory, false, true).await;
        if matches!(made, Err(ClientError::Refused(Refusal::NotFound { .. }))) {
            made = self.client.make_directory(&path, ObjectKind::Directory, true, true).await;
        }
        match made {
            Ok(_) => {
                let location = Some(format!("/{name}"));
                Ok(S3Response::new(CreateBucketOutput { location }))
            }
            Err(ClientError::Refused(Refusal::Exists { .. })) => {
                Err(S3ErrorCode::BucketAlreadyOwnedByYou.into())
            }
            Err(error) => Err(refused(&error, Missing::Bucket)),
        }
    }

    pub(crate) async fn look_at_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.check_bucket(&self.bucket(&request.input.bucket)?).await?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    pub(crate) async fn buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let grant = grant_of(&request.extensions);
        let input = request.input;
        let most = input.max_buckets.unwrap_or(BUCKETS_MAX).clamp(1, BUCKETS_MAX) as usize;
        let mut after = match &input.continuation_token {
            Some(given) => token::place(given).ok_or(S3ErrorCode::InvalidArgument)?,
            None => String::new(),
        };
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let is_shown = |entry: &Entry| {
            entry.kind.is_container()
                && entry.name.starts_with(prefix)
                && !entry.name.starts_with(ASIDE)
                && grant.as_ref().is_none_or(|grant| grant.has_bucket(&entry.name))
        };
        let (mut all, mut is_cut) = (Vec::new(), false);
        'pages: loop {
            let listed = self.client.list(&self.root, &after, LIST_PAGE_MAX as u32).await;
            let (entries, is_more) = match listed {
                Ok(listed) => listed,
                // No bucket has been made yet.
                Err(ClientError::Refused(Refusal::NotFound { .. })) => break,
                Err(error) => return Err(refused(&error, Missing::Bucket)),
            };
            for entry in entries {
                if is_shown(&entry) {
                    if all.len() == most {
                        is_cut = true;
                        break 'pages;
                    }
                    all.push(Bucket {
                        name: Some(entry.name.clone()),
                        creation_date: Some(timestamp(entry.modified_at)),
                        bucket_region: None,
                    });
                }
                after = entry.name;
            }
            if !is_more {
                break;
            }
        }
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(all),
            continuation_token: is_cut.then(|| token::of(&after)),
            prefix: input.prefix,
            owner: Some(crate::api::owner()),
        }))
    }
}
