//! The three ways in which S3 lists a bucket.

use s3s::dto::{
    CommonPrefix, EncodingType, ListObjectVersionsInput, ListObjectVersionsOutput,
    ListObjectsInput, ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output, Object,
    ObjectVersion,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_protocol::message::Entry;

use crate::api::{S3Api, VERSION, owner, timestamp};
use crate::keys::{Grant, grant_of};
use crate::listing::{Item, ListingPage, Query, page, start_behind};
use crate::metadata::{listed_tag_of, quoted};
use crate::percent::{PATH, encode};
use crate::refused::{Missing, refused};
use crate::token;

/// Most keys and common prefixes of one answer, and how many there are unless fewer are requested:
/// as of S3.
const KEYS_MAX: i32 = 1000;

/// The storage class of everything: one that clients accept.
const STORAGE_CLASS: &str = "STANDARD";

/// Texts in the encoding that the client requested.
struct Words {
    is_encoded: bool,
}

impl Words {
    fn of(encoding: Option<&EncodingType>) -> S3Result<Self> {
        match encoding.map(EncodingType::as_str) {
            None => Ok(Self { is_encoded: false }),
            Some(EncodingType::URL) => Ok(Self { is_encoded: true }),
            Some(_) => {
                let message = "encoding-type is url or nothing";
                Err(S3Error::with_message(S3ErrorCode::InvalidArgument, message))
            }
        }
    }

    fn encoded(&self, text: &str) -> String {
        if self.is_encoded { encode(text, PATH) } else { text.to_owned() }
    }

    fn encoded_some(&self, text: Option<&String>) -> Option<String> {
        text.map(|text| self.encoded(text))
    }

    /// Takes the common prefixes out of a page and leaves the keys.
    fn apart(&self, page: &mut ListingPage) -> (Vec<(String, Entry)>, Option<Vec<CommonPrefix>>) {
        let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
        for item in std::mem::take(&mut page.items) {
            match item {
                Item::Key(key, entry) => keys.push((self.encoded(&key), *entry)),
                Item::Prefix(prefix) => {
                    prefixes.push(CommonPrefix { prefix: Some(self.encoded(&prefix)) });
                }
            }
        }
        (keys, (!prefixes.is_empty()).then_some(prefixes))
    }
}

/// Returns how many items an answer may have.
fn items_max(asked: Option<i32>) -> S3Result<(i32, usize)> {
    let asked = asked.unwrap_or(KEYS_MAX);
    match usize::try_from(asked.min(KEYS_MAX)) {
        Ok(most) => Ok((asked, most)),
        Err(_) => {
            let message = "max-keys is not negative";
            Err(S3Error::with_message(S3ErrorCode::InvalidArgument, message))
        }
    }
}

/// A request for what lies behind a marker.
struct ListingRequest<'a> {
    bucket: &'a str,
    encoding: Option<&'a EncodingType>,
    max_keys: Option<i32>,
    prefix: &'a str,
    delimiter: Option<&'a str>,
    marker: Option<&'a str>,
}

/// Takes the fields of an input of s3s that request what lies behind a marker.
macro_rules! listing_request_of {
    ($input:expr, $marker:ident) => {
        ListingRequest {
            bucket: &$input.bucket,
            encoding: $input.encoding_type.as_ref(),
            max_keys: $input.max_keys,
            prefix: $input.prefix.as_deref().unwrap_or_default(),
            delimiter: $input.delimiter.as_deref(),
            marker: $input.$marker.as_deref(),
        }
    };
}

/// What is behind a marker.
struct Marked {
    words: Words,
    max_keys: i32,
    query: Query,
    keys: Vec<(String, Entry)>,
    common_prefixes: Option<Vec<CommonPrefix>>,
    /// The last key or common prefix of all.
    last: Option<String>,
    is_truncated: bool,
}

fn object(key: String, entry: &Entry, has_owner: bool) -> Object {
    Object {
        key: Some(key),
        e_tag: Some(quoted(listed_tag_of(entry))),
        last_modified: Some(timestamp(entry.modified_at)),
        size: i64::try_from(entry.bytes).ok(),
        storage_class: Some(STORAGE_CLASS.to_owned().into()),
        owner: has_owner.then(owner),
        ..Object::default()
    }
}

impl S3Api {
    async fn listed(
        &self,
        bucket: &str,
        grant: Option<&Grant>,
        query: &Query,
    ) -> S3Result<ListingPage> {
        if let Some(grant) = grant {
            grant.check(bucket, &query.prefix, false)?;
        }
        let bucket = self.bucket(bucket)?;
        let listed = page(&self.client, &bucket, query).await;
        let listed = listed.map_err(|error| refused(&error, Missing::Bucket))?;
        if listed.items.is_empty() {
            // Nothing in it, or no bucket.
            self.check_bucket(&bucket).await?;
        }
        Ok(listed)
    }

    /// Lists what is behind a marker, which is a key or a common prefix.
    async fn marked(&self, asked: &ListingRequest<'_>, grant: Option<&Grant>) -> S3Result<Marked> {
        let words = Words::of(asked.encoding)?;
        let (max_keys, items_max) = items_max(asked.max_keys)?;
        let delimiter = asked.delimiter.filter(|it| !it.is_empty());
        let marker = asked.marker.filter(|it| !it.is_empty());
        let from = marker.map_or_else(String::new, |it| start_behind(it, asked.prefix, delimiter));
        let (prefix, delimiter) = (asked.prefix.to_owned(), delimiter.map(str::to_owned));
        let query = Query { prefix, delimiter, from, items_max };
        let mut page = self.listed(asked.bucket, grant, &query).await?;
        let is_truncated = page.next.is_some();
        let last = page.items.last().map(|item| words.encoded(item.text()));
        let (keys, common_prefixes) = words.apart(&mut page);
        Ok(Marked { words, max_keys, query, keys, common_prefixes, last, is_truncated })
    }

    pub(crate) async fn list_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let grant = grant_of(&request.extensions);
        let input = request.input;
        let words = Words::of(input.encoding_type.as_ref())?;
        let (max_keys, items_max) = items_max(input.max_keys)?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let delimiter = input.delimiter.clone().filter(|it| !it.is_empty());
        let token = input.continuation_token.as_ref().filter(|it| !it.is_empty());
        let from = match (token, &input.start_after) {
            (Some(given), _) => token::place(given).ok_or_else(|| {
                let message = "the continuation token is none that a listing gave";
                S3Error::with_message(S3ErrorCode::InvalidArgument, message)
            })?,
            (None, Some(after)) => start_behind(after, &prefix, None),
            (None, None) => String::new(),
        };
        let query = Query { prefix, delimiter, from, items_max };
        let mut page = self.listed(&input.bucket, grant.as_deref(), &query).await?;
        let (count, next) = (page.items.len(), page.next.take());
        let (keys, common_prefixes) = words.apart(&mut page);
        let has_owner = input.fetch_owner.unwrap_or(false);
        let contents = keys.into_iter().map(|(key, entry)| object(key, &entry, has_owner));
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(words.encoded(&query.prefix)),
            max_keys: Some(max_keys),
            key_count: i32::try_from(count).ok(),
            is_truncated: Some(next.is_some()),
            next_continuation_token: next.as_deref().map(token::of),
            contents: Some(contents.collect()),
            common_prefixes,
            delimiter: words.encoded_some(input.delimiter.as_ref().filter(|it| !it.is_empty())),
            start_after: words.encoded_some(input.start_after.as_ref()),
            encoding_type: input.encoding_type,
            continuation_token: input.continuation_token,
            request_charged: None,
        }))
    }

    pub(crate) async fn list_v1(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let grant = grant_of(&request.extensions);
        let input = request.input;
        let asked = listing_request_of!(input, marker);
        let Marked { words, max_keys, query, keys, common_prefixes, last, is_truncated } =
            self.marked(&asked, grant.as_deref()).await?;
        let contents = keys.into_iter().map(|(key, entry)| object(key, &entry, true));
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(words.encoded(&query.prefix)),
            marker: Some(words.encoded(input.marker.as_deref().unwrap_or_default())),
            max_keys: Some(max_keys),
            is_truncated: Some(is_truncated),
            contents: Some(contents.collect()),
            common_prefixes,
            next_marker: last.filter(|_| is_truncated && query.delimiter.is_some()),
            delimiter: words.encoded_some(input.delimiter.as_ref().filter(|it| !it.is_empty())),
            encoding_type: input.encoding_type,
            request_charged: None,
        }))
    }

    pub(crate) async fn list_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let grant = grant_of(&request.extensions);
        let input = request.input;
        let asked = listing_request_of!(input, key_marker);
        let Marked { words, max_keys, query, keys, common_prefixes, last, is_truncated } =
            self.marked(&asked, grant.as_deref()).await?;
        let versions = keys.into_iter().map(|(key, entry)| ObjectVersion {
            key: Some(key),
            e_tag: Some(quoted(listed_tag_of(&entry))),
            is_latest: Some(true),
            last_modified: Some(timestamp(entry.modified_at)),
            owner: Some(owner()),
            size: i64::try_from(entry.bytes).ok(),
            storage_class: Some(STORAGE_CLASS.to_owned().into()),
            version_id: Some(VERSION.to_owned()),
            ..ObjectVersion::default()
        });
        Ok(S3Response::new(ListObjectVersionsOutput {
            name: Some(input.bucket),
            prefix: Some(words.encoded(&query.prefix)),
            key_marker: Some(words.encoded(input.key_marker.as_deref().unwrap_or_default())),
            version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
            max_keys: Some(max_keys),
            is_truncated: Some(is_truncated),
            versions: Some(versions.collect()),
            common_prefixes,
            next_version_id_marker: is_truncated.then(|| VERSION.to_owned()),
            next_key_marker: last.filter(|_| is_truncated),
            delimiter: words.encoded_some(input.delimiter.as_ref().filter(|it| !it.is_empty())),
            encoding_type: input.encoding_type,
            ..ListObjectVersionsOutput::default()
        }))
    }
}
