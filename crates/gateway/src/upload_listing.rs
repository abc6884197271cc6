//! Listing uploads in parts, and the parts of one.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use s3s::dto::{
    CommonPrefix, EncodingType, ListMultipartUploadsInput, ListMultipartUploadsOutput,
    ListPartsInput, ListPartsOutput, MultipartUpload, Part,
};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_client::ClientError;
use sanderling_protocol::limits::LIST_PAGE_MAX;
use sanderling_protocol::message::Entry;
use sanderling_protocol::{Instant, Path, Refusal};

use crate::api::{S3Api, owner, timestamp};
use crate::keys::grant_of;
use crate::metadata::{checksums_of, listed_tag_of, quoted, with_sums};
use crate::name::UPLOADS;
use crate::part_name::number;
use crate::percent::{PATH, encode};
use crate::refused::{Missing, refused};
use crate::upload_decisions::{FIRST_WORDS, key_of};
use crate::upload_keys::UploadKey;

/// Most uploads or parts of one answer, and how many there are unless fewer are requested: as of
/// S3.
const ITEMS_MAX: i32 = 1000;

/// Uploads that are looked at together. Half of what the client sends in one frame to the namenode
/// (`BATCH_MAX` of the core's `client`), so that others' requests fit beside them. Chosen, not
/// measured.
const TOGETHER_MAX: usize = 64;

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
        let is_encoded =
            input.encoding_type.as_ref().is_some_and(|it| it.as_str() == EncodingType::URL);
        let encoded = |text: &str| if is_encoded { encode(text, PATH) } else { text.to_owned() };
        let delimiter = input.delimiter.clone().filter(|it| !it.is_empty());
        let after = (input.key_marker.clone(), input.upload_id_marker.clone());
        let first = FirstUploads::new(prefix.clone(), delimiter, after, most);
        let first = self.first_uploads(&bucket, first).await;
        let first = first.map_err(|error| refused(&error, Missing::Bucket))?;
        let UploadPage { uploads, prefixes, last, is_truncated } = first.page(encoded);
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

    /// Looks at all uploads of a bucket, some at a time.
    async fn first_uploads(
        &self,
        bucket: &Path,
        mut first: FirstUploads,
    ) -> Result<FirstUploads, ClientError> {
        let directory = bucket.join(UPLOADS)?;
        let mut after = String::new();
        loop {
            let listed = self.client.list(&directory, &after, LIST_PAGE_MAX as u32).await;
            let (entries, is_more) = match listed {
                Ok(listed) => listed,
                Err(ClientError::Refused(Refusal::NotFound { .. })) => return Ok(first),
                Err(error) => return Err(error),
            };
            after = entries.last().map(|entry| entry.name.clone()).unwrap_or_default();
            for together in entries.chunks(TOGETHER_MAX) {
                let looks: Vec<_> =
                    together.iter().map(|entry| self.upload_key(&directory, entry)).collect();
                let looked_up = join_all(looks).await;
                for (entry, found) in together.iter().zip(looked_up) {
                    if let Some(found) = found? {
                        first.take(&entry.name, found);
                    }
                }
            }
            if !is_more {
                return Ok(first);
            }
        }
    }

    /// Returns the key of an upload; `None` when it was completed or given up meanwhile.
    async fn upload_key(
        &self,
        directory: &Path,
        entry: &Entry,
    ) -> Result<Option<UploadKey>, ClientError> {
        if let Some(found) = self.upload_keys.find(entry.object) {
            return Ok(Some(found));
        }
        let words = directory.join(&entry.name)?.join(FIRST_WORDS)?;
        let stat = match self.client.stat(&words).await {
            Ok(stat) => stat,
            Err(ClientError::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(key) = key_of(&stat.attributes) else { return Ok(None) };
        let found = UploadKey { key: key.into(), begun: stat.created_at };
        self.upload_keys.keep(entry.object, found.clone());
        Ok(Some(found))
    }
}

/// The first uploads and common prefixes behind a marker: those of one page, and the next one.
struct FirstUploads {
    prefix: String,
    delimiter: Option<String>,
    /// The marker: a key, and the id of one of its uploads.
    after: (Option<String>, Option<String>),
    /// Most uploads and common prefixes of the page.
    most: usize,
    /// In S3's order: by the key, then the id. A common prefix has no id, and all keys that begin
    /// with it are in it.
    items: BTreeMap<(String, String), UploadItem>,
}

/// What is listed.
enum UploadItem {
    Upload(Instant),
    /// The last upload of a common prefix.
    Prefix(String, String),
}

impl FirstUploads {
    fn new(
        prefix: String,
        delimiter: Option<String>,
        after: (Option<String>, Option<String>),
        most: usize,
    ) -> Self {
        Self { prefix, delimiter, after, most, items: BTreeMap::new() }
    }

    /// Takes one more upload into account. Of those seen so far no more stay than are listed, so
    /// what is pushed out never comes back.
    fn take(&mut self, id: &str, found: UploadKey) {
        let key: &str = &found.key;
        if !key.starts_with(&self.prefix) || !self.is_behind(key, id) {
            return;
        }
        match self.common_prefix(key) {
            None => {
                let item = (key.to_owned(), id.to_owned());
                self.items.insert(item, UploadItem::Upload(found.begun));
            }
            Some(common) => {
                let first = UploadItem::Prefix(key.to_owned(), id.to_owned());
                let item = self.items.entry((common, String::new())).or_insert(first);
                if let UploadItem::Prefix(last_key, last_id) = item
                    && (key, id) > (last_key.as_str(), last_id.as_str())
                {
                    (*last_key, *last_id) = (key.to_owned(), id.to_owned());
                }
            }
        }
        if self.items.len() > self.most + 1 {
            self.items.pop_last();
        }
    }

    fn is_behind(&self, key: &str, id: &str) -> bool {
        match (self.after.0.as_deref(), self.after.1.as_deref()) {
            (None | Some(""), _) => true,
            (Some(after), None | Some("")) => key > after,
            (Some(after), Some(after_id)) => (key, id) > (after, after_id),
        }
    }

    fn common_prefix(&self, key: &str) -> Option<String> {
        let delimiter = self.delimiter.as_deref()?;
        let cut = key[self.prefix.len()..].find(delimiter)?;
        Some(key[..self.prefix.len() + cut + delimiter.len()].to_owned())
    }

    /// Returns the page.
    fn page(self, encoded: impl Fn(&str) -> String) -> UploadPage {
        let is_truncated = self.items.len() > self.most;
        let mut page = UploadPage { is_truncated, ..UploadPage::default() };
        for ((text, id), item) in self.items.into_iter().take(self.most) {
            match item {
                UploadItem::Prefix(key, id) => {
                    page.prefixes.push(CommonPrefix { prefix: Some(encoded(&text)) });
                    page.last = Some((key, id));
                }
                UploadItem::Upload(begun) => {
                    page.uploads.push(MultipartUpload {
                        key: Some(encoded(&text)),
                        upload_id: Some(id.clone()),
                        initiated: Some(timestamp(begun)),
                        owner: Some(owner()),
                        storage_class: Some("STANDARD".to_owned().into()),
                        ..MultipartUpload::default()
                    });
                    page.last = Some((text, id));
                }
            }
        }
        page
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

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [&str; 3] = ["1", "2", "3"];

    /// Lists uploads in pages of so many items. Returns keys with ids, and common prefixes.
    fn pages(keys: &[&str], prefix: &str, delimiter: Option<&str>, most: usize) -> Vec<String> {
        let (mut found, mut after) = (Vec::new(), (None, None));
        loop {
            let delimiter = delimiter.map(str::to_owned);
            let mut first = FirstUploads::new(prefix.to_owned(), delimiter, after, most);
            for (key, id) in keys.iter().flat_map(|key| IDS.map(|id| (*key, id))) {
                first.take(id, UploadKey { key: key.into(), begun: Instant(0) });
                assert!(first.items.len() <= most + 1);
            }
            let page = first.page(str::to_owned);
            let uploads = page.uploads.into_iter();
            let uploads = uploads.map(|it| it.key.unwrap() + " " + &it.upload_id.unwrap());
            let prefixes = page.prefixes.into_iter().map(|it| it.prefix.unwrap());
            let mut items: Vec<String> = uploads.chain(prefixes).collect();
            assert!(items.len() == most || !page.is_truncated);
            items.sort_unstable();
            found.extend(items);
            if !page.is_truncated {
                return found;
            }
            after = page.last.unzip();
        }
    }

    #[test]
    fn pages_have_all_uploads_in_the_order_of_keys_and_ids() {
        let keys = ["b", "a/z", "a", "a/b/c", "c", "a/b", "a!"];
        let of = |keys: &[&str]| -> Vec<String> {
            keys.iter().flat_map(|key| IDS.map(|id| format!("{key} {id}"))).collect()
        };
        for most in [1, 2, 3, 7, 100] {
            let all = ["a", "a!", "a/b", "a/b/c", "a/z", "b", "c"];
            assert_eq!(pages(&keys, "", None, most), of(&all), "{most}");
            let rolled = [of(&["a", "a!"]), vec!["a/".to_owned()], of(&["b", "c"])].concat();
            assert_eq!(pages(&keys, "", Some("/"), most), rolled, "{most}");
            let below = [of(&["a/b"]), vec!["a/b/".to_owned()], of(&["a/z"])].concat();
            assert_eq!(pages(&keys, "a/", Some("/"), most), below, "{most}");
        }
    }

    #[test]
    fn page_of_nothing_has_nothing_and_goes_on() {
        let mut first = FirstUploads::new(String::new(), None, (None, None), 0);
        first.take("1", UploadKey { key: "k".into(), begun: Instant(0) });
        let page = first.page(str::to_owned);
        assert!(page.is_truncated && page.uploads.is_empty() && page.last.is_none());
    }
}
