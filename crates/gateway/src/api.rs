//! What the interface can do: each operation of S3 and the function that does it. What is not here
//! answers `NotImplemented`.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use s3s::dto::*;
use s3s::{S3, S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::Client;
use sanderling_protocol::{Instant, Path};

use crate::cors::Rules;
use crate::md5::Threads;
use crate::metrics::GatewayMetrics;
use crate::upload_keys::UploadKeys;
use crate::writing::{ActiveWrites, Cleanups};

/// The region that everything is in: where a client names none.
pub(crate) const REGION: &str = "us-east-1";

/// The only version that there is of each object.
pub(crate) const VERSION: &str = "null";

/// What the operations share.
#[derive(Clone)]
pub(crate) struct S3Api {
    pub(crate) client: Client,
    pub(crate) root: Path,
    pub(crate) upload_ttl: Duration,
    pub(crate) writing: ActiveWrites,
    pub(crate) cleanups: Cleanups,
    pub(crate) metrics: Arc<GatewayMetrics>,
    pub(crate) md5: Threads,
    pub(crate) cors: Rules,
    pub(crate) upload_keys: UploadKeys,
}

/// Returns an instant as S3 has it.
pub(crate) fn timestamp(at: Instant) -> Timestamp {
    Timestamp::from(
        UNIX_EPOCH.checked_add(Duration::from_micros(at.0)).unwrap_or(SystemTime::UNIX_EPOCH),
    )
}

/// Returns an instant in whole seconds, as the headers of HTTP have it.
pub(crate) fn whole_second(at: Instant) -> Timestamp {
    timestamp(Instant(at.0 / 1_000_000 * 1_000_000))
}

/// The owner of everything.
pub(crate) const OWNER: &str = "sanderling";

/// Returns the owner of everything.
pub(crate) fn owner() -> Owner {
    let name = OWNER.to_owned();
    Owner { display_name: Some(name.clone()), id: Some(name) }
}

/// Refuses a version that is none.
pub(crate) fn check_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some(VERSION) => Ok(()),
        Some(_) => Err(S3ErrorCode::NoSuchVersion.into()),
    }
}

/// Writes the operations and the functions that do them.
macro_rules! operations {
    ($($operation:ident($input:ident) -> $output:ident => $function:ident,)*) => {
        #[async_trait::async_trait]
        impl S3 for S3Api {
            $(
                async fn $operation(
                    &self,
                    request: S3Request<$input>,
                ) -> S3Result<S3Response<$output>> {
                    self.$function(request).await
                }
            )*
        }
    };
}

operations! {
    list_buckets(ListBucketsInput) -> ListBucketsOutput => buckets,
    create_bucket(CreateBucketInput) -> CreateBucketOutput => make_bucket,
    delete_bucket(DeleteBucketInput) -> DeleteBucketOutput => remove_bucket,
    head_bucket(HeadBucketInput) -> HeadBucketOutput => look_at_bucket,
    get_bucket_location(GetBucketLocationInput) -> GetBucketLocationOutput => location,
    get_bucket_versioning(GetBucketVersioningInput) -> GetBucketVersioningOutput => versioning,
    get_bucket_cors(GetBucketCorsInput) -> GetBucketCorsOutput => cors,
    put_bucket_cors(PutBucketCorsInput) -> PutBucketCorsOutput => set_cors,
    delete_bucket_cors(DeleteBucketCorsInput) -> DeleteBucketCorsOutput => remove_cors,
    put_object(PutObjectInput) -> PutObjectOutput => put,
    get_object(GetObjectInput) -> GetObjectOutput => get,
    head_object(HeadObjectInput) -> HeadObjectOutput => head,
    get_object_attributes(GetObjectAttributesInput) -> GetObjectAttributesOutput => attributes,
    copy_object(CopyObjectInput) -> CopyObjectOutput => copy,
    delete_object(DeleteObjectInput) -> DeleteObjectOutput => remove,
    delete_objects(DeleteObjectsInput) -> DeleteObjectsOutput => remove_many,
    list_objects(ListObjectsInput) -> ListObjectsOutput => list_v1,
    list_objects_v2(ListObjectsV2Input) -> ListObjectsV2Output => list_v2,
    list_object_versions(ListObjectVersionsInput) -> ListObjectVersionsOutput => list_versions,
    get_object_tagging(GetObjectTaggingInput) -> GetObjectTaggingOutput => tagging,
    put_object_tagging(PutObjectTaggingInput) -> PutObjectTaggingOutput => set_tagging,
    delete_object_tagging(DeleteObjectTaggingInput) -> DeleteObjectTaggingOutput => remove_tagging,
    create_multipart_upload(CreateMultipartUploadInput) -> CreateMultipartUploadOutput
        => begin_upload,
    upload_part(UploadPartInput) -> UploadPartOutput => put_part,
    upload_part_copy(UploadPartCopyInput) -> UploadPartCopyOutput => copy_part,
    complete_multipart_upload(CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput
        => complete,
    abort_multipart_upload(AbortMultipartUploadInput) -> AbortMultipartUploadOutput => abort_upload,
    list_parts(ListPartsInput) -> ListPartsOutput => parts,
    list_multipart_uploads(ListMultipartUploadsInput) -> ListMultipartUploadsOutput => uploads,
}

impl S3Api {
    async fn location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.check_bucket(&self.bucket(&request.input.bucket)?).await?;
        // Nothing stands for the first region.
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    async fn versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        self.check_bucket(&self.bucket(&request.input.bucket)?).await?;
        Ok(S3Response::new(GetBucketVersioningOutput::default()))
    }
}
