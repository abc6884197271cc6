//! Uploads in parts: each part is an object of its own, out of sight; completing makes one object
//! of their blocks without moving a byte. Here are the calls; [`crate::upload_decisions`] decides.

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, Checksum, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CopyPartResult, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, ETagCondition, UploadPartCopyInput, UploadPartCopyOutput,
    UploadPartInput, UploadPartOutput,
};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::{ClientError, PutOptions};
use sanderling_protocol::message::{Attributes, Entry, ObjectKind, ObjectStat};
use sanderling_protocol::{Millis, Path, Refusal};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::api::{S3Api, timestamp};
use crate::conditions::conditions_of;
use crate::digest::{Digests, Wanted, wanted_of};
use crate::metadata::{self, headers_of, quoted, with_sums};
use crate::name::UPLOADS;
use crate::object::replacing;
use crate::prune::ANSWER_AFTER;
use crate::refused::{Missing, refused};
use crate::slow_client::Lateness;
use crate::slow_copy::CopyStart;
use crate::store::{PutTarget, Stored, body};
use crate::unfinished_put::UnfinishedPut;
use crate::upload_decisions::{
    self, AfterJoin, Completed, FIRST_WORDS, Upload, UploadCompletion, no_upload, part_range,
};
use crate::{part_name, tagging};

/// Uploads of one part that are looked at when another one is stored: each of them looks, so there
/// are hardly ever more than two. Chosen, not measured.
const SAME_MAX: u32 = 16;

impl S3Api {
    /// Returns where an upload is kept.
    ///
    /// # Errors
    /// `NoSuchUpload` when no upload has such an id.
    pub(crate) fn upload(&self, bucket: &str, id: &str) -> S3Result<Upload> {
        upload_decisions::check_id(id)?;
        Upload::new(self.bucket(bucket)?, id)
    }

    /// Returns the attributes with which the upload of a key began.
    ///
    /// # Errors
    /// `NoSuchUpload` when there is none or it is of another key.
    pub(crate) async fn begun(&self, upload: &Upload, key: &str) -> S3Result<ObjectStat> {
        let words = upload.directory.join(FIRST_WORDS).map_err(|_| no_upload())?;
        let stat = self.client.stat(&words).await;
        let stat = stat.map_err(|error| refused(&error, Missing::Upload))?;
        upload_decisions::check_key(&stat.attributes, key)?;
        Ok(stat)
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
        upload_decisions::set_key(&mut attributes, &input.key);
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

    /// Keeps the upload of a part that is stored, and has a task delete what it replaces. That is
    /// mostly done before the answer. Below a durable directory it waits until the store has what
    /// is replaced, and the answer does not.
    async fn part_stored(&self, upload: &Upload, number: i32, stored: Stored) -> S3Result<Stored> {
        let prefix = part_name::prefix(number)?;
        let kept = self.keep_upload(upload).await;
        kept.map_err(|error| refused(&error, Missing::Upload))?;
        let (api, directory) = (self.clone(), upload.directory.clone());
        let (gone, removed) = oneshot::channel::<()>();
        // A part that stays goes with the upload.
        self.cleanups.start_minor(async move {
            if let Err(error) = api.remove_replaced(&directory, &prefix).await {
                tracing::warn!(%directory, part = number, %error, "a part that was replaced stays");
            }
            drop(gone);
        });
        let _is_late = timeout(ANSWER_AFTER, removed).await;
        Ok(stored)
    }

    /// Deletes all uploads of a part but the newest. What stays goes with the upload.
    async fn remove_replaced(&self, upload: &Path, prefix: &str) -> Result<(), ClientError> {
        let (same, _) = match self.client.list(upload, prefix, SAME_MAX).await {
            // Completed or aborted meanwhile.
            Err(ClientError::Refused(Refusal::NotFound { .. })) => return Ok(()),
            listed => listed?,
        };
        for entry in upload_decisions::replaced(&same, prefix) {
            let path = upload.join(&entry.name)?;
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
        let completing = self.complete_once(&upload, (key, id), at, wanted, conditions);
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
        wanted: Completed,
        (if_match, if_none_match): (Option<ETagCondition>, Option<ETagCondition>),
    ) -> S3Result<String> {
        let words = self.begun(upload, key).await?;
        let condition = self.condition(at, if_match, if_none_match).await?;
        let completion = UploadCompletion::new((upload, id), words.attributes, wanted, condition);
        self.join(upload, completion, at.1).await
    }

    /// Returns the tag of the object at `path` if this upload made it, and forgets the upload.
    async fn made_by(&self, upload: &Upload, id: &str, path: &Path) -> Option<String> {
        let made = self.client.stat(path).await.ok()?;
        if !upload_decisions::is_made_by(&made.attributes, id) {
            return None;
        }
        // What is left expires by itself if this fails.
        drop(self.client.delete(&upload.directory, true).await);
        Some(metadata::tag_of(&made))
    }

    /// Makes one object of parts and forgets the upload. Returns the object's tag.
    async fn join(
        &self,
        upload: &Upload,
        mut completion: UploadCompletion<'_>,
        to: &Path,
    ) -> S3Result<String> {
        let mut unfinished = None;
        loop {
            let there = self.client_parts(upload).await?;
            let join = completion.join(&there)?;
            let begin = || UnfinishedPut::begin(self, Some(&upload.bucket), to);
            let put: UnfinishedPut = unfinished.take().unwrap_or_else(begin);
            let (put, answer) = put.concat(join.parts.clone(), &join.options).await?;
            match completion.joined(join, answer.map(drop)) {
                Ok(AfterJoin::Made(tag)) => {
                    // What is left expires by itself if this fails.
                    drop(self.client.delete(&upload.directory, true).await);
                    return Ok(tag);
                }
                Ok(AfterJoin::LookAgain) => unfinished = Some(put),
                Err(error) => {
                    put.end().await;
                    return Err(error);
                }
            }
        }
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
            all.extend(page);
            if !is_more {
                return Ok(upload_decisions::parts_of(all));
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
