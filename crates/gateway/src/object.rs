//! Objects: put, get, head.

use std::ops::Range as Bytes;
use std::sync::Arc;

use hyper::HeaderMap;
use s3s::dto::{
    Checksum, ChecksumMode, ETagCondition, GetObjectInput, GetObjectOutput, HeadObjectInput,
    HeadObjectOutput, PutObjectInput, PutObjectOutput, Range,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::{ClientError, PutOptions};
use sanderling_protocol::message::{Attributes, Condition, CreateMode, ObjectStat};
use sanderling_protocol::{Path, Refusal};

use crate::api::{S3Api, check_version, whole_second};
use crate::conditions::{conditions_of, is_met};
use crate::digest::{Digests, wanted_of};
use crate::get::Blocks;
use crate::metadata::{self, Headers, headers_of, quoted, with_sums};
use crate::name::path_of;
use crate::refused::{Missing, refused};
use crate::slow_client::Lateness;
use crate::store::{PutTarget, body};
use crate::{parts, ranges, tagging};

/// The content type of objects without one: as of S3.
const CONTENT_TYPE: &str = "binary/octet-stream";

/// Answers a read with an object's metadata; the two outputs have the same fields.
macro_rules! describe {
    ($output:ident, $metadata:expr, $($more:tt)*) => {{
        let ObjectMetadata { stat, tag, headers, sums, tags } = $metadata;
        let _ = tags;
        with_sums!(sums, $output {
            accept_ranges: Some("bytes".to_owned()),
            e_tag: Some(quoted(tag)),
            last_modified: Some(whole_second(stat.modified_at)),
            content_type: Some(headers.content_type.unwrap_or_else(|| CONTENT_TYPE.to_owned())),
            cache_control: headers.cache_control,
            content_disposition: headers.content_disposition,
            content_encoding: headers.content_encoding,
            content_language: headers.content_language,
            expires: headers.expires,
            metadata: headers.metadata,
            $($more)*
        })
    }};
}

/// What a read reports of an object.
struct ObjectMetadata {
    stat: ObjectStat,
    tag: String,
    headers: Headers,
    sums: Checksum,
    tags: Option<i32>,
}

impl ObjectMetadata {
    fn of(stat: ObjectStat, with_sums: bool) -> Self {
        let (tag, headers) = (metadata::tag_of(&stat), Headers::of(&stat.attributes));
        let sums = match with_sums {
            true => metadata::checksums_of(&stat.attributes, stat.bytes),
            false => Checksum::default(),
        };
        let tags = metadata::tagging_of(&stat.attributes).map(|it| it.split('&').count());
        let tags = tags.and_then(|it| i32::try_from(it).ok());
        Self { stat, tag, headers, sums, tags }
    }
}

/// Returns whether a client requests the checksums of what it reads.
fn is_checked(mode: Option<&ChecksumMode>) -> bool {
    mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED)
}

/// Refuses an encryption by the client's key: nothing would be encrypted.
fn check_encryption(algorithm: Option<&String>) -> S3Result<()> {
    match algorithm {
        None => Ok(()),
        Some(_) => Err(S3Error::with_message(
            S3ErrorCode::NotImplemented,
            "objects are not encrypted with keys of clients",
        )),
    }
}

impl S3Api {
    /// Returns the bucket's directory and the path of a key in it.
    ///
    /// # Errors
    /// `InvalidBucketName`, `KeyTooLongError`.
    pub(crate) fn path(&self, bucket: &str, key: &str) -> S3Result<(Path, Path)> {
        let bucket = self.bucket(bucket)?;
        let path = path_of(&bucket, key).map_err(|error| refused(&error.into(), Missing::Key))?;
        Ok((bucket, path))
    }

    /// Returns the metadata of an object.
    ///
    /// # Errors
    /// `NoSuchKey`, `NoSuchBucket`.
    pub(crate) async fn object(&self, bucket: &Path, path: &Path) -> S3Result<ObjectStat> {
        match self.client.stat(path).await {
            Ok(stat) if stat.kind.is_container() => Err(S3ErrorCode::NoSuchKey.into()),
            Ok(stat) => Ok(stat),
            Err(error) => Err(self.missing_key(bucket, &error).await),
        }
    }

    /// Returns what must be under a name so that a write is done, after looking whether it is.
    ///
    /// # Errors
    /// `PreconditionFailed`, `NoSuchKey`.
    pub(crate) async fn condition(
        &self,
        (bucket, path): (&Path, &Path),
        if_match: Option<ETagCondition>,
        if_none_match: Option<ETagCondition>,
    ) -> S3Result<Option<Condition>> {
        match (if_match, if_none_match) {
            (None, None) => Ok(None),
            (None, Some(ETagCondition::Any)) => Ok(Some(Condition::Absent)),
            (Some(wanted), None) => {
                let stat = self.object(bucket, path).await?;
                if !is_met(&wanted, &metadata::tag_of(&stat)) {
                    return Err(S3ErrorCode::PreconditionFailed.into());
                }
                Ok(Some(Condition::Is(stat.object)))
            }
            _ => Err(S3Error::with_message(
                S3ErrorCode::NotImplemented,
                "writes support If-Match with a tag and If-None-Match with *",
            )),
        }
    }

    pub(crate) async fn put(
        &self,
        mut request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let wanted = wanted_of!(request);
        if wanted.bytes.is_none() {
            return Err(S3ErrorCode::MissingContentLength.into());
        }
        let mut input = request.input;
        check_encryption(input.sse_customer_algorithm.as_ref())?;
        if input.write_offset_bytes.is_some() {
            let message = "objects are not appended to";
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, message));
        }
        let (bucket, path) = self.path(&input.bucket, &input.key)?;
        let at = (&bucket, &path);
        let condition = self.condition(at, input.if_match.take(), input.if_none_match.take());
        let condition = condition.await?;
        let mut attributes = headers_of!(input).attributes()?;
        metadata::set_tagging(&mut attributes, tagging::checked(input.tagging.as_deref())?);
        let options = replacing(attributes, condition);
        let target = PutTarget { bucket: Some(bucket), path, options, tag: None };
        let bytes = body(input.body, Lateness::of(&request.extensions));
        let stored = self.store(target, bytes, Digests::new(wanted, &self.md5)?).await?;
        Ok(S3Response::new(with_sums!(
            stored.digested.sums,
            PutObjectOutput { e_tag: Some(quoted(stored.tag)), ..PutObjectOutput::default() }
        )))
    }

    pub(crate) async fn get(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let mut input = request.input;
        check_version(input.version_id.as_deref())?;
        check_encryption(input.sse_customer_algorithm.as_ref())?;
        let (bucket, path) = self.path(&input.bucket, &input.key)?;
        let conditions = conditions_of!(input);
        let (metadata, range, blocks) = loop {
            let reader = match self.client.open(&path).await {
                Ok(reader) => reader,
                Err(error) => return Err(self.missing_key(&bucket, &error).await),
            };
            let stat = reader.stat();
            conditions.check(&metadata::tag_of(&stat), &whole_second(stat.modified_at))?;
            let asked = Selection::of(input.range, input.part_number, &request.headers)?;
            let range = asked.range(&stat)?;
            let bytes = range.clone().unwrap_or(0..stat.bytes);
            match Blocks::open(reader, bytes, Arc::clone(&self.metrics)).await {
                Ok(blocks) => {
                    let with_sums = range.is_none() && is_checked(input.checksum_mode.as_ref());
                    break (ObjectMetadata::of(stat, with_sums), range, blocks);
                }
                // Replaced since it was opened: the new one is read.
                Err(ClientError::Refused(Refusal::ObjectGone { .. })) => {}
                Err(error) => return Err(refused(&error, Missing::Key)),
            }
        };
        let (whole, tag_count) = (metadata.stat.bytes, metadata.tags);
        let parts_count = input.part_number.and_then(|_| parts::count(&metadata.stat));
        let length = range.as_ref().map_or(whole, |range| range.end - range.start);
        let content_range =
            range.map(|range| format!("bytes {}-{}/{whole}", range.start, range.end - 1));
        let is_part = content_range.is_some();
        let output = describe!(GetObjectOutput, metadata,
            body: Some(blocks.into_blob()),
            content_length: i64::try_from(length).ok(),
            content_range,
            parts_count,
            tag_count,
            ..GetObjectOutput::default()
        );
        let mut response = S3Response::new(output);
        if is_part {
            response.status = Some(hyper::StatusCode::PARTIAL_CONTENT);
        }
        Ok(response)
    }

    pub(crate) async fn head(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let mut input = request.input;
        check_version(input.version_id.as_deref())?;
        check_encryption(input.sse_customer_algorithm.as_ref())?;
        let (bucket, path) = self.path(&input.bucket, &input.key)?;
        let stat = self.object(&bucket, &path).await?;
        let conditions = conditions_of!(input);
        conditions.check(&metadata::tag_of(&stat), &whole_second(stat.modified_at))?;
        let range =
            Selection::of(input.range, input.part_number, &request.headers)?.range(&stat)?;
        let with_sums = range.is_none() && is_checked(input.checksum_mode.as_ref());
        let (whole, metadata) = (stat.bytes, ObjectMetadata::of(stat, with_sums));
        let parts_count = input.part_number.and_then(|_| parts::count(&metadata.stat));
        let tags = metadata.tags;
        let length = range.as_ref().map_or(whole, |range| range.end - range.start);
        let content_range =
            range.as_ref().map(|range| format!("bytes {}-{}/{whole}", range.start, range.end - 1));
        let output = describe!(HeadObjectOutput, metadata,
            content_length: i64::try_from(length).ok(),
            content_range,
            parts_count,
            ..HeadObjectOutput::default()
        );
        let mut response = S3Response::new(output);
        if let Some(tags) = tags {
            response.headers.insert("x-amz-tagging-count", tags.into());
        }
        if range.is_some() {
            response.status = Some(hyper::StatusCode::PARTIAL_CONTENT);
        }
        Ok(response)
    }
}

/// Returns how an object of the interface is created: it replaces what had the name once it is
/// whole.
pub(crate) fn replacing(attributes: Attributes, condition: Option<Condition>) -> PutOptions {
    let (mode, parents) = (CreateMode::Replace, false);
    PutOptions { mode, parents, attributes, condition, ..PutOptions::default() }
}

/// The part of an object that is requested.
enum Selection<'a> {
    All,
    /// A range, of the object that the headers may name.
    Range(Range, &'a HeaderMap),
    Part(i32),
}

impl<'a> Selection<'a> {
    fn of(range: Option<Range>, part: Option<i32>, headers: &'a HeaderMap) -> S3Result<Self> {
        match (range, part) {
            (None, None) => Ok(Self::All),
            (Some(range), None) => Ok(Self::Range(range, headers)),
            (None, Some(part)) => parts::check_number(part).map(|()| Self::Part(part)),
            (Some(_), Some(_)) => {
                let message = "a request has a range or a partNumber";
                Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message))
            }
        }
    }

    /// Returns the requested bytes, if they are not all.
    fn range(&self, stat: &ObjectStat) -> S3Result<Option<Bytes<u64>>> {
        let range = match *self {
            Self::All => return Ok(None),
            Self::Range(_, headers) if !ranges::is_of(headers, &metadata::tag_of(stat)) => {
                return Ok(None);
            }
            Self::Range(range, _) => range.check(stat.bytes).ok(),
            Self::Part(number) => match parts::range(stat, number)? {
                None => return Ok(None),
                range => range,
            },
        };
        match range.filter(|range| !range.is_empty()) {
            None => Err(ranges::behind(stat.bytes)),
            range => Ok(range),
        }
    }
}
