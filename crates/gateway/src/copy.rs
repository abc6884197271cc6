//! Copies: the bytes go through the gateway, block by block.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, MetadataDirective,
    TaggingDirective,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::{ClientError, Reader};
use sanderling_protocol::Path;
use sanderling_protocol::message::ObjectStat;

use crate::api::{S3Api, check_version, timestamp, whole_second};
use crate::conditions::{Conditions, conditions_of};
use crate::digest::{Digests, Wanted};
use crate::get::Blocks;
use crate::keys::grant_of;
use crate::metadata::{self, Headers, headers_of, quoted};
use crate::object::replacing;
use crate::refused::{Missing, refused};
use crate::slow_copy::CopyStart;
use crate::store::PutTarget;
use crate::{etag, tagging};

/// An object that is copied from.
pub(crate) struct CopiedObject {
    pub(crate) path: Path,
    pub(crate) reader: Reader,
}

impl CopiedObject {
    /// Returns the object's metadata as of its last look-up.
    pub(crate) fn stat(&self) -> ObjectStat {
        self.reader.stat()
    }
}

impl S3Api {
    /// Opens what is to be copied from.
    ///
    /// # Errors
    /// `AccessDenied`, `NoSuchKey`, `PreconditionFailed`.
    pub(crate) async fn source(
        &self,
        source: &CopySource,
        extensions: &hyper::http::Extensions,
        conditions: &Conditions,
    ) -> S3Result<CopiedObject> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            let message = "only buckets are copied from";
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, message));
        };
        check_version(version_id.as_deref())?;
        if let Some(grant) = grant_of(extensions) {
            grant.check(bucket, key, false)?;
        }
        let (bucket, path) = self.path(bucket, key)?;
        let reader = match self.client.open(&path).await {
            Ok(reader) => reader,
            Err(error) => return Err(self.missing_key(&bucket, &error).await),
        };
        let stat = reader.stat();
        conditions.check_copy(&metadata::tag_of(&stat), &whole_second(stat.modified_at))?;
        Ok(CopiedObject { path, reader })
    }

    /// Returns the bytes of a range of what is copied from.
    pub(crate) async fn bytes_of(
        &self,
        source: &CopiedObject,
        range: Range<u64>,
    ) -> S3Result<impl Stream<Item = S3Result<Bytes>> + Unpin + use<>> {
        let failed = |error: ClientError| refused(&error, Missing::Key);
        let metrics = Arc::clone(&self.metrics);
        let blocks = Blocks::open(source.reader.clone(), range, metrics).await.map_err(failed)?;
        Ok(blocks.map(|piece| {
            piece.map_err(|error| match error.downcast::<ClientError>() {
                Ok(error) => refused(&error, Missing::Key),
                Err(error) => S3Error::with_source(S3ErrorCode::InternalError, error),
            })
        }))
    }

    pub(crate) async fn copy(
        &self,
        mut request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let conditions = conditions_of!(source of request.input);
        let source =
            self.source(&request.input.copy_source, &request.extensions, &conditions).await?;
        let input = &mut request.input;
        let (bucket, path) = self.path(&input.bucket, &input.key)?;
        let stat = source.stat();
        let replaces = |directive: Option<&str>, word| directive == Some(word);
        let is_described = replaces(
            input.metadata_directive.as_ref().map(MetadataDirective::as_str),
            MetadataDirective::REPLACE,
        );
        let is_tagged = replaces(
            input.tagging_directive.as_ref().map(TaggingDirective::as_str),
            TaggingDirective::REPLACE,
        );
        let requested = headers_of!(input);
        let headers = if is_described { requested } else { Headers::of(&stat.attributes) };
        let mut attributes = headers.attributes()?;
        let tags = if is_tagged {
            tagging::checked(input.tagging.as_deref())?
        } else {
            metadata::tagging_of(&stat.attributes).map(str::to_owned)
        };
        metadata::set_tagging(&mut attributes, tags);
        let tag = metadata::tag_of(&stat);
        if path == source.path {
            if !is_described && !is_tagged {
                let message = "an object is copied to itself only with other metadata or tags";
                return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
            }
            let (name, text) = metadata::tag_attribute(&tag, stat.bytes);
            attributes.set(name, text);
            metadata::keep_of_bytes(&mut attributes, &stat.attributes);
            let set = self.client.set_attributes(&path, Some(stat.object), attributes).await;
            let stat = set.map_err(|error| refused(&error, Missing::Key))?;
            return Ok(copied(stat, tag));
        }
        CopyStart::of(&request.extensions).begin();
        let bytes = self.bytes_of(&source, 0..stat.bytes).await?;
        let options = replacing(attributes, None);
        let is_kept = etag::digest_of(&tag).is_some();
        let tag = is_kept.then_some(tag);
        let target = PutTarget { bucket: Some(bucket), path, options, tag };
        let wanted = Wanted { bytes: Some(stat.bytes), ..Wanted::default() };
        let digests = Digests::new(wanted, &self.md5)?;
        // The same bytes have the same tag: it need not be reckoned again.
        let digests = if is_kept { digests.without_md5() } else { digests };
        let stored = self.store(target, bytes, digests).await?;
        Ok(copied(stored.stat, stored.tag))
    }
}

fn copied(stat: ObjectStat, tag: String) -> S3Response<CopyObjectOutput> {
    let result = CopyObjectResult {
        e_tag: Some(quoted(tag)),
        last_modified: Some(timestamp(stat.modified_at)),
        ..CopyObjectResult::default()
    };
    S3Response::new(CopyObjectOutput {
        copy_object_result: Some(result),
        ..CopyObjectOutput::default()
    })
}
