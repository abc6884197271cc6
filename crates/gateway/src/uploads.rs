//! Listing uploads in parts, and the parts of one.

use futures_util::{StreamExt, stream};
use s3s::dto::{
    CommonPrefix, EncodingType, ListMultipartUploadsInput, ListMultipartUploadsOutput,
    ListPartsInput, ListPartsOutput, MultipartUpload, Part,
};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::ClientError;
use sanderling_protocol::{Path, Refusal};

use crate::api::{S3Api, owner, timestamp};
use crate::keys::grant_of;
use crate::metadata::{checksums_of, listed_tag_of, quoted, with_sums};
use crate::multipart::{FIRST_WORDS, key_of};
use crate::name::UPLOADS;
use crate::part_name::number;
use crate::percent::{PATH, encode};
use crate::refused::{Missing, refused};

/// Most uploads or parts of one answer, and how many there are unless fewer are requested: as of
/// S3.
const ITEMS_MAX: i32 = 1000;

/// Uploads that are looked at together. Half of what the client sends in one frame to the namenode
/// (`BATCH_MAX` of the core's `client`), so that others' requests fit beside them. Chosen, not
/// measured.
const TOGETHER_MAX: usize = 64;

/// An upload that has not been completed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Open {
    key: String,
    id: String,
    begun: sanderling_protocol::Instant,
}

fn items_max(asked: Option<i32>) -> S3Result<usize> {
    usize::try_from(asked.unwrap_or(ITEMS_MAX).min(ITEMS_MAX))
        .map_err(|_| S3ErrorCode::InvalidArgument.into())
}

impl S3Api {
    pub(crate) async fn parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let input = request.input;
        let upload = self.upload(&input.bucket, &input.upload_id)?;
        self.begun(&upload, &input.key).await?;
        let most = items_max(input.max_parts)?;
        let marker = input.part_number_marker.unwrap_or(0);
        let there = self.client_parts(&upload).await?;
        let mut rest = there.iter().filter(|part| number(&part.name) > marker);
        let parts: Vec<Part> = rest
            .by_ref()
            .take(most)
            .map(|part| {
                with_sums!(
                    checksums_of(&part.attributes, part.bytes),
                    Part {
                        part_number: Some(number(&part.name)),
                        e_tag: Some(quoted(listed_tag_of(part))),
                        last_modified: Some(timestamp(part.modified_at)),
                        size: i64::try_from(part.bytes).ok(),
                    }
                )
            })
            .collect();
        let is_truncated = rest.next().is_some();
        let last = parts.last().and_then(|part| part.part_number);
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            max_parts: Some(input.max_parts.unwrap_or(ITEMS_MAX)),
            part_number_marker: Some(marker),
            next_part_number_marker: last.filter(|_| is_truncated),
            is_truncated: Some(is_truncated),
            parts: Some(parts),
            owner: Some(owner()),
            storage_class: Some("STANDARD".to_owned().into()),
            ..ListPartsOutput::default()
        }))
    }

    pub(crate) async fn uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let grant = grant_of(&request.extensions);
        let input = request.input;
        let prefix = input.prefix.clone().unwrap_or_default();
        if let Some(grant) = grant {
            grant.check(&input.bucket, &prefix, false)?;
        }
        let most = items_max(input.max_uploads)?;
        let bucket = self.bucket(&input.bucket)?;
        self.check_bucket(&bucket).await?;
        let open = self.open_uploads(&bucket).await;
        let mut open = open.map_err(|error| refused(&error, Missing::Bucket))?;
        open.retain(|upload| upload.key.starts_with(&prefix));
        open.sort_unstable();
        let (after_key, after_id) =
            (input.key_marker.as_deref(), input.upload_id_marker.as_deref());
        let is_behind = |upload: &Open| match (after_key, after_id) {
            (None | Some(""), _) => true,
            (Some(key), None | Some("")) => upload.key.as_str() > key,
            (Some(key), Some(id)) => (upload.key.as_str(), upload.id.as_str()) > (key, id),
        };
        open.retain(is_behind);
        let is_encoded =
            input.encoding_type.as_ref().is_some_and(|it| it.as_str() == EncodingType::URL);
        let encoded = |text: &str| if is_encoded { encode(text, PATH) } else { text.to_owned() };
        let delimiter = input.delimiter.as_deref().filter(|it| !it.is_empty());
        let UploadPage { uploads, prefixes, last, is_truncated } =
            upload_page(open, &prefix, delimiter, most, encoded);
        let (next_key, next_id) = last.filter(|_| is_truncated).unzip();
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            prefix: Some(encoded(&prefix)),
            key_marker: Some(encoded(input.key_marker.as_deref().unwrap_or_default())),
            upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
            next_key_marker: next_key.as_deref().map(encoded),
            next_upload_id_marker: next_id,
            max_uploads: Some(input.max_uploads.unwrap_or(ITEMS_MAX)),
            is_truncated: Some(is_truncated),
            uploads: Some(uploads),
            common_prefixes: (!prefixes.is_empty()).then_some(prefixes),
            delimiter: input.delimiter.as_deref().map(encoded),
            encoding_type: input.encoding_type,
            ..ListMultipartUploadsOutput::default()
        }))
    }

    async fn open_uploads(&self, bucket: &Path) -> Result<Vec<Open>, ClientError> {
        let directory = bucket.join(UPLOADS)?;
        let entries = match self.client.list_all(&directory).await {
            Ok(entries) => entries,
            Err(ClientError::Refused(Refusal::NotFound { .. })) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let looks = entries.into_iter().map(async |entry| {
            let words = directory.join(&entry.name)?.join(FIRST_WORDS)?;
            match self.client.stat(&words).await {
                Ok(stat) => Ok(key_of(&stat.attributes).map(|key| Open {
                    key: key.to_owned(),
                    id: entry.name,
                    begun: stat.created_at,
                })),
                // Completed or given up meanwhile.
                Err(ClientError::Refused(_)) => Ok(None),
                Err(error) => Err(error),
            }
        });
        // Made before the first of them is awaited: no task could wait for the whole otherwise.
        let looks: Vec<_> = looks.collect();
        let looked: Vec<Result<Option<Open>, ClientError>> =
            stream::iter(looks).buffered(TOGETHER_MAX).collect().await;
        looked.into_iter().filter_map(Result::transpose).collect()
    }
}

/// A page of uploads.
#[derive(Default)]
struct UploadPage {
    uploads: Vec<MultipartUpload>,
    prefixes: Vec<CommonPrefix>,
    /// Key and id of the last upload that is listed, by itself or in a common prefix.
    last: Option<(String, String)>,
    is_truncated: bool,
}

fn upload_page(
    open: Vec<Open>,
    prefix: &str,
    delimiter: Option<&str>,
    most: usize,
    encoded: impl Fn(&str) -> String,
) -> UploadPage {
    let mut page = UploadPage::default();
    for upload in open {
        let common = delimiter.and_then(|delimiter| {
            let cut = upload.key[prefix.len()..].find(delimiter)?;
            Some(encoded(&upload.key[..prefix.len() + cut + delimiter.len()]))
        });
        let is_listed = page.prefixes.last().is_some_and(|it| it.prefix == common);
        if common.is_some() && is_listed {
            page.last = Some((upload.key, upload.id));
            continue;
        }
        if page.uploads.len() + page.prefixes.len() == most {
            page.is_truncated = true;
            break;
        }
        page.last = Some((upload.key.clone(), upload.id.clone()));
        match common {
            Some(prefix) => page.prefixes.push(CommonPrefix { prefix: Some(prefix) }),
            None => page.uploads.push(MultipartUpload {
                key: Some(encoded(&upload.key)),
                upload_id: Some(upload.id),
                initiated: Some(timestamp(upload.begun)),
                owner: Some(owner()),
                storage_class: Some("STANDARD".to_owned().into()),
                ..MultipartUpload::default()
            }),
        }
    }
    page
}
