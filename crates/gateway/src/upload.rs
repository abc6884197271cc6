//! Uploads in parts: each part is an object of its own, out of sight; completing makes one object
//! of their blocks without moving a byte.
//!
//! An upload is a directory below [`UPLOADS`] in its bucket, with the parts by
//! [names](crate::part_name) that are never used again and an empty object that keeps the headers
//! with which it began. It expires when nothing is added to it for a while.

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, Checksum, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CompletedPart, CopyPartResult, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, ETagCondition, UploadPartCopyInput, UploadPartCopyOutput,
    UploadPartInput, UploadPartOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::{ClientError, PutOptions};
use sanderling_protocol::message::{Attributes, Entry, ObjectKind, ObjectStat};
use sanderling_protocol::{Millis, Path, Refusal};

use crate::api::{S3Api, timestamp};
use crate::conditions::conditions_of;
use crate::digest::{ALGORITHMS, Digests, Wanted, sum_of, wanted_of};
use crate::metadata::{self, headers_of, listed_tag_of, quoted, with_sums};
use crate::name::UPLOADS;
use crate::object::replacing;
use crate::refused::{Missing, refused};
use crate::slow_client::Lateness;
use crate::slow_copy::CopyStart;
use crate::store::{PutTarget, Stored, body};
use crate::{etag, joined, part_name, parts, tagging};

/// The object that keeps the headers with which an upload began.
pub(crate) const FIRST_WORDS: &str = "upload";

/// The attribute with the upload's key.
const KEY: &str = "s3-key";

/// Fewest bytes of a part that is not the last: as of S3.
const PART_BYTES_MIN: u64 = 5 << 20;

/// Uploads of one part that are looked at when another one is stored: each of them looks, so there
/// are hardly ever more than two.
const SAME_MAX: u32 = 16;

/// Times that an upload is looked at again whose parts are replaced while it is completed. Each
/// time a part was replaced between two steps, which clients that have begun to complete do not do.
/// Chosen, not measured.
const AGAIN_MAX: usize = 8;

/// Where an upload is kept.
pub(crate) struct Upload {
    pub(crate) bucket: Path,
    pub(crate) directory: Path,
}

/// What a client sends to complete an upload.
struct Completed {
    parts: Vec<CompletedPart>,
    /// Of all parts together.
    sums: Checksum,
    bytes: Option<i64>,
}

/// A completion that was decided about.
struct UploadJoin {
    /// Where the bytes are.
    parts: Vec<Path>,
    /// Of the object.
    options: PutOptions,
    /// The object's tag.
    tag: String,
}

/// Returns the key of an upload from the attributes with which it began.
pub(crate) fn key_of(attributes: &Attributes) -> Option<&str> {
    attributes.get(KEY)
}

fn no_upload() -> S3Error {
    S3ErrorCode::NoSuchUpload.into()
}

impl S3Api {
    /// Returns where an upload is kept.
    ///
    /// # Errors
    /// `NoSuchUpload` when no upload has such an id.
    pub(crate) fn upload(&self, bucket: &str, id: &str) -> S3Result<Upload> {
        let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id {
            return Err(no_upload());
        }
        let bucket = self.bucket(bucket)?;
        let directory = bucket.join(UPLOADS).and_then(|uploads| uploads.join(id));
        let directory = directory.map_err(|_| no_upload())?;
        Ok(Upload { bucket, directory })
    }

    /// Returns the attributes with which the upload of a key began.
    ///
    /// # Errors
    /// `NoSuchUpload` when there is none or it is of another key.
    pub(crate) async fn begun(&self, upload: &Upload, key: &str) -> S3Result<ObjectStat> {
        let words = upload.directory.join(FIRST_WORDS).map_err(|_| no_upload())?;
        let stat = self.client.stat(&words).await;
        let stat = stat.map_err(|error| refused(&error, Missing::Upload))?;
        if key_of(&stat.attributes) == Some(key) { Ok(stat) } else { Err(no_upload()) }
    }

    pub(crate) async fn begin_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let mut input = request.input;
        // A key that cannot be is refused now and not after all its bytes.
        let (bucket, _) = self.path(&input.bucket, &input.key)?;
        self.check_bucket(&bucket).await?;
        let mut attributes = headers_of!(input).attributes()?;
        metadata::set_tagging(&mut attributes, tagging::checked(input.tagging.as_deref())?);
        attributes.set(KEY, input.key.clone());
        let id = part_name::draw() + &part_name::draw();
        let upload = self.upload(&input.bucket, &id)?;
        self.make_upload(&upload, attributes)
            .await
            .map_err(|error| refused(&error, Missing::Bucket))?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    async fn make_upload(
        &self,
        upload: &Upload,
        attributes: Attributes,
    ) -> Result<(), ClientError> {
        let uploads = upload.bucket.join(UPLOADS)?;
        self.client.make_directory(&uploads, ObjectKind::Directory, true, false).await?;
        self.client.make_directory(&upload.directory, ObjectKind::Directory, false, true).await?;
        self.keep_upload(upload).await?;
        let words = upload.directory.join(FIRST_WORDS)?;
        let options = PutOptions { attributes, ..PutOptions::default() };
        self.client.put(&words, bytes::Bytes::new(), &options).await?;
        Ok(())
    }

    /// Gives an upload its time from now on.
    async fn keep_upload(&self, upload: &Upload) -> Result<(), ClientError> {
        self.client.set_ttl(&upload.directory, Some(Millis::from(self.upload_ttl))).await
    }

    fn part_target(&self, upload: &Upload, number: i32) -> S3Result<PutTarget> {
        let name = part_name::prefix(number)? + &part_name::draw();
        let path = upload.directory.join(&name).map_err(|_| no_upload())?;
        let options = replacing(Attributes::none(), None);
        let options = PutOptions { is_inline_allowed: false, ..options };
        Ok(PutTarget { bucket: None, path, options, tag: None })
    }

    pub(crate) async fn put_part(
        &self,
        mut request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let wanted = wanted_of!(request);
        if wanted.bytes.is_none() {
            return Err(S3ErrorCode::MissingContentLength.into());
        }
        let input = request.input;
        let upload = self.upload(&input.bucket, &input.upload_id)?;
        self.begun(&upload, &input.key).await?;
        let target = self.part_target(&upload, input.part_number)?;
        let bytes = body(input.body, Lateness::of(&request.extensions));
        let stored = self.store(target, bytes, Digests::new(wanted, &self.md5)?).await?;
        let Stored { tag, digested, .. } =
            self.part_stored(&upload, input.part_number, stored).await?;
        Ok(S3Response::new(with_sums!(
            digested.sums,
            UploadPartOutput { e_tag: Some(quoted(tag)), ..UploadPartOutput::default() }
        )))
    }

    async fn part_stored(&self, upload: &Upload, number: i32, stored: Stored) -> S3Result<Stored> {
        let failed = |error: ClientError| refused(&error, Missing::Upload);
        self.keep_upload(upload).await.map_err(failed)?;
        self.remove_replaced(upload, &part_name::prefix(number)?).await.map_err(failed)?;
        Ok(stored)
    }

    /// Deletes all uploads of a part but the newest.
    async fn remove_replaced(&self, upload: &Upload, prefix: &str) -> Result<(), ClientError> {
        let (mut same, _) = self.client.list(&upload.directory, prefix, SAME_MAX).await?;
        same.retain(|entry| entry.name.starts_with(prefix));
        let newest = same.iter().map(|entry| entry.object).max();
        for entry in same.iter().filter(|entry| Some(entry.object) != newest) {
            let path = upload.directory.join(&entry.name)?;
            match self.client.delete_object(&path, entry.object, false).await {
                // Deleted or joined meanwhile.
                Ok(_) | Err(ClientError::Refused(Refusal::NotFound { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(crate) async fn copy_part(
        &self,
        mut request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let conditions = conditions_of!(source of request.input);
        let source =
            self.source(&request.input.copy_source, &request.extensions, &conditions).await?;
        let input = request.input;
        let whole = source.stat().bytes;
        let range = match &input.copy_source_range {
            None => 0..whole,
            Some(text) => part_range(text, whole)?,
        };
        let upload = self.upload(&input.bucket, &input.upload_id)?;
        self.begun(&upload, &input.key).await?;
        let target = self.part_target(&upload, input.part_number)?;
        let wanted = Wanted { bytes: Some(range.end - range.start), ..Wanted::default() };
        CopyStart::of(&request.extensions).begin();
        let bytes = self.bytes_of(&source, range).await?;
        let stored = self.store(target, bytes, Digests::new(wanted, &self.md5)?).await?;
        let Stored { stat, tag, .. } = self.part_stored(&upload, input.part_number, stored).await?;
        let result = CopyPartResult {
            e_tag: Some(quoted(tag)),
            last_modified: Some(timestamp(stat.modified_at)),
            ..CopyPartResult::default()
        };
        let copy_part_result = Some(result);
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result,
            ..UploadPartCopyOutput::default()
        }))
    }

    pub(crate) async fn complete(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = request.input;
        let (bucket, path) = self.path(&input.bucket, &input.key)?;
        let upload = self.upload(&input.bucket, &input.upload_id)?;
        let parts = input.multipart_upload.and_then(|it| it.parts).unwrap_or_default();
        let sums = Checksum {
            checksum_crc32: input.checksum_crc32,
            checksum_crc32c: input.checksum_crc32c,
            checksum_crc64nvme: input.checksum_crc64nvme,
            checksum_sha1: input.checksum_sha1,
            checksum_sha256: input.checksum_sha256,
            ..Checksum::default()
        };
        let wanted = Completed { parts, sums, bytes: input.mpu_object_size };
        let conditions = (input.if_match, input.if_none_match);
        let (key, id) = (input.key.as_str(), input.upload_id.as_str());
        let at = (&bucket, &path);
        let completing = self.complete_once(&upload, (key, id), at, &wanted, conditions);
        let tag = match completing.await {
            Ok(tag) => tag,
            // The answer to the first time was lost: its parts are in the object.
            Err(error) => self.made_by(&upload, id, &path).await.ok_or(error)?,
        };
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(quoted(tag)),
            ..CompleteMultipartUploadOutput::default()
        }))
    }

    /// Completes an upload that was not completed before, and returns the tag of its object.
    async fn complete_once(
        &self,
        upload: &Upload,
        (key, id): (&str, &str),
        at: (&Path, &Path),
        wanted: &Completed,
        (if_match, if_none_match): (Option<ETagCondition>, Option<ETagCondition>),
    ) -> S3Result<String> {
        let words = self.begun(upload, key).await?;
        let condition = self.condition(at, if_match, if_none_match).await?;
        let mut attributes = words.attributes;
        attributes.remove(KEY);
        metadata::set_upload(&mut attributes, id);
        let options = PutOptions { parents: true, ..replacing(attributes, condition) };
        self.join(upload, wanted, at.1, options).await
    }

    /// Returns the tag of the object at `path` if this upload made it, and forgets the upload.
    async fn made_by(&self, upload: &Upload, id: &str, path: &Path) -> Option<String> {
        let made = self.client.stat(path).await.ok()?;
        if metadata::upload_of(&made.attributes) != Some(id) {
            return None;
        }
        // What is left expires by itself if this fails.
        drop(self.client.delete(&upload.directory, true).await);
        Some(metadata::tag_of(&made))
    }

    /// Makes one object of parts and forgets the upload. Returns the object's tag. The names of the
    /// parts stand for the bytes whose tags were checked: of a part that is uploaded again
    /// meanwhile nothing gets into the object.
    async fn join(
        &self,
        upload: &Upload,
        wanted: &Completed,
        to: &Path,
        options: PutOptions,
    ) -> S3Result<String> {
        for _ in 0..AGAIN_MAX {
            let there = self.client_parts(upload).await?;
            let joining = UploadJoin::of(upload, wanted, &there, options.clone())?;
            let joined = if joining.parts.is_empty() {
                self.client.put(to, bytes::Bytes::new(), &joining.options).await
            } else {
                self.client.concat(&joining.parts, to, &joining.options).await
            };
            match joined {
                Ok(_) => {}
                // A part was uploaded again and the one that was checked is deleted.
                Err(ClientError::Refused(Refusal::NotFound { path }))
                    if joining.parts.contains(&path) =>
                {
                    continue;
                }
                Err(error) => return Err(refused(&error, Missing::Upload)),
            }
            // What is left expires by itself if this fails.
            drop(self.client.delete(&upload.directory, true).await);
            return Ok(joining.tag);
        }
        Err(S3ErrorCode::SlowDown.into())
    }

    /// Returns the parts of an upload in the order of their numbers.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    pub(crate) async fn client_parts(&self, upload: &Upload) -> S3Result<Vec<Entry>> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let limit = sanderling_protocol::limits::LIST_PAGE_MAX as u32;
            let listed = self.client.list_with_attributes(&upload.directory, &after, limit).await;
            let (page, is_more) = listed.map_err(|error| refused(&error, Missing::Upload))?;
            after = page.last().map(|entry| entry.name.clone()).unwrap_or_default();
            all.extend(page.into_iter().filter(|entry| entry.name != FIRST_WORDS));
            if !is_more {
                return Ok(part_name::newest(all));
            }
        }
    }

    pub(crate) async fn abort_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let input = request.input;
        let upload = self.upload(&input.bucket, &input.upload_id)?;
        self.begun(&upload, &input.key).await?;
        let removed = self.client.delete(&upload.directory, true).await;
        removed.map_err(|error| refused(&error, Missing::Upload))?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }
}

impl UploadJoin {
    /// Decides about the completion of an upload that has these parts.
    ///
    /// # Errors
    /// Those of the parts that the client lists, of their sums, and of their bytes together.
    fn of(
        upload: &Upload,
        wanted: &Completed,
        there: &[Entry],
        mut options: PutOptions,
    ) -> S3Result<Self> {
        let chosen = chosen(&wanted.parts, there)?;
        let total: u64 = chosen.iter().map(|part| part.bytes).sum();
        if wanted.bytes.is_some_and(|bytes| u64::try_from(bytes) != Ok(total)) {
            let message = format!("the parts have {total} bytes together");
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
        }
        joined::check(&chosen, &wanted.sums)?;
        let digests: Option<Vec<[u8; 16]>> =
            chosen.iter().map(|part| etag::digest_of(&listed_tag_of(part))).collect();
        let tag = etag::of_parts(&digests.ok_or(S3ErrorCode::InvalidPart)?);
        let (name, text) = metadata::tag_attribute(&tag, total);
        options.attributes.set(name, text);
        let sizes: Vec<(i32, u64)> =
            chosen.iter().map(|part| (part_name::number(&part.name), part.bytes)).collect();
        parts::keep(&mut options.attributes, &sizes);
        // What is empty has no blocks to join.
        let full = chosen.iter().filter(|part| part.bytes > 0);
        let parts: Result<Vec<Path>, Refusal> =
            full.map(|part| upload.directory.join(&part.name)).collect();
        Ok(Self { parts: parts.map_err(|_| no_upload())?, options, tag })
    }
}

/// Returns the parts that a client lists, as they are there.
fn chosen<'a>(wanted: &[CompletedPart], there: &'a [Entry]) -> S3Result<Vec<&'a Entry>> {
    if wanted.is_empty() {
        return Err(S3ErrorCode::MalformedXML.into());
    }
    let numbers = wanted.iter().map(|part| part.part_number.unwrap_or(0));
    if !numbers.is_sorted_by(|a, b| a < b) {
        return Err(S3ErrorCode::InvalidPartOrder.into());
    }
    let mut chosen = Vec::with_capacity(wanted.len());
    for part in wanted {
        let number = part.part_number.unwrap_or(0);
        let found = there.binary_search_by_key(&number, |entry| part_name::number(&entry.name));
        let found = found.map(|at| &there[at]).map_err(|_| S3ErrorCode::InvalidPart)?;
        if part.e_tag.as_ref().is_some_and(|tag| tag.value() != listed_tag_of(found)) {
            return Err(S3ErrorCode::InvalidPart.into());
        }
        let sent = Checksum {
            checksum_crc32: part.checksum_crc32.clone(),
            checksum_crc32c: part.checksum_crc32c.clone(),
            checksum_crc64nvme: part.checksum_crc64nvme.clone(),
            checksum_sha1: part.checksum_sha1.clone(),
            checksum_sha256: part.checksum_sha256.clone(),
            ..Checksum::default()
        };
        let is_other = |algorithm: &&str| {
            let here = metadata::checksum_of(&found.attributes, algorithm, found.bytes);
            sum_of(&sent, algorithm).is_some_and(|sent| here.as_deref() != Some(sent))
        };
        if let Some(algorithm) = ALGORITHMS.into_iter().find(is_other) {
            let message = format!("part {number} was not stored with that checksum of {algorithm}");
            return Err(S3Error::with_message(S3ErrorCode::InvalidPart, message));
        }
        chosen.push(found);
    }
    let (_, all_but_last) = chosen.split_last().expect("there is one");
    if all_but_last.iter().any(|part| part.bytes < PART_BYTES_MIN) {
        return Err(S3ErrorCode::EntityTooSmall.into());
    }
    Ok(chosen)
}

/// Reads the range of a part that is copied: it must be inside the object.
fn part_range(text: &str, whole: u64) -> S3Result<std::ops::Range<u64>> {
    let invalid = |message: String| S3Error::with_message(S3ErrorCode::InvalidArgument, message);
    let numbers = text.strip_prefix("bytes=").and_then(|text| text.split_once('-'));
    let numbers = numbers.and_then(|(a, b)| Some((a.parse::<u64>().ok()?, b.parse::<u64>().ok()?)));
    match numbers {
        Some((first, last)) if first <= last && last < whole => Ok(first..last + 1),
        Some(_) => Err(S3Error::with_message(
            S3ErrorCode::InvalidRange,
            format!("{text} is not within the {whole} bytes of the source"),
        )),
        None => Err(invalid("x-amz-copy-source-range is bytes=first-last".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use s3s::dto::ETag;
    use sanderling_protocol::{Instant, ObjectId};

    use super::*;

    fn there(number: i32, bytes: u64) -> Entry {
        let (name, text) = metadata::tag_attribute(&format!("tag{number}"), bytes);
        Entry {
            name: part_name::prefix(number).unwrap() + &part_name::draw(),
            kind: ObjectKind::File,
            object: ObjectId(1),
            bytes,
            lost_bytes: 0,
            is_sealed: true,
            modified_at: Instant(0),
            attributes: [(name, text)].into_iter().collect(),
        }
    }

    fn wanted(number: i32, tag: &str) -> CompletedPart {
        let e_tag = Some(ETag::Strong(tag.to_owned()));
        CompletedPart { part_number: Some(number), e_tag, ..CompletedPart::default() }
    }

    fn code(wanted: &[CompletedPart], there: &[Entry]) -> S3ErrorCode {
        chosen(wanted, there).unwrap_err().code().clone()
    }

    #[test]
    fn parts_are_chosen_by_number_and_tag() {
        let parts = [there(1, PART_BYTES_MIN), there(3, 7), there(9, 0)];
        let chosen = chosen(&[wanted(1, "tag1"), wanted(3, "tag3")], &parts).unwrap();
        assert_eq!(chosen.len(), 2);
        assert_eq!(code(&[], &parts), S3ErrorCode::MalformedXML);
        let turned = [wanted(3, "tag3"), wanted(1, "tag1")];
        assert_eq!(code(&turned, &parts), S3ErrorCode::InvalidPartOrder);
        assert_eq!(code(&[wanted(2, "tag2")], &parts), S3ErrorCode::InvalidPart);
        assert_eq!(code(&[wanted(1, "tag3")], &parts), S3ErrorCode::InvalidPart);
        assert_eq!(code(&[wanted(0, "")], &parts), S3ErrorCode::InvalidPart);
        let small = [wanted(3, "tag3"), wanted(9, "tag9")];
        assert_eq!(code(&small, &parts), S3ErrorCode::EntityTooSmall);
    }

    #[test]
    fn copied_range_is_inside_the_source() {
        assert_eq!(part_range("bytes=0-4", 5).unwrap(), 0..5);
        for text in ["bytes=0-5", "bytes=3-2", "0-4", "bytes=-4", "bytes=0-", "bytes=x-y"] {
            assert!(part_range(text, 5).is_err(), "{text}");
        }
    }
}
