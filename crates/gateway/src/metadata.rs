//! What the interface keeps beside an object's bytes: its entity tag, its headers, its
//! user metadata.

use s3s::dto::{Checksum, ETag, Metadata, Timestamp, TimestampFormat};
use s3s::{S3Error, S3ErrorCode, S3Result};
use sanderling_protocol::attribute::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, TAGGING,
    USER_METADATA_BEGIN,
};
use sanderling_protocol::message::{Attributes, Entry, ObjectStat};

use crate::etag;

/// Its text is the tag, a space, and the bytes that it is the tag of: another interface may append.
const ETAG: &str = "etag";
const EXPIRES: &str = "expires";
pub(crate) const CHECKSUM: &str = "x-amz-checksum-";
/// The upload that made the object: completing it again is answered as the first time.
const UPLOAD: &str = "s3-upload";

/// The attribute with the runs. Its text ends with a space and the bytes of the object: another
/// interface may append.
pub(crate) const PARTS: &str = "s3-parts";

/// Most bytes of user metadata, names and values: S3's own limit.
const USER_BYTES_MAX: usize = 2 << 10;

/// The headers of a request that describe an object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Headers {
    pub(crate) content_type: Option<String>,
    pub(crate) cache_control: Option<String>,
    pub(crate) content_disposition: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) content_language: Option<String>,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) metadata: Option<Metadata>,
}

/// Takes the fields of an input of s3s that describe the object.
macro_rules! headers_of {
    ($input:expr) => {
        $crate::metadata::Headers {
            content_type: $input.content_type.take(),
            cache_control: $input.cache_control.take(),
            content_disposition: $input.content_disposition.take(),
            content_encoding: $input.content_encoding.take(),
            content_language: $input.content_language.take(),
            expires: $input.expires.take(),
            metadata: $input.metadata.take(),
        }
    };
}
pub(crate) use headers_of;

impl Headers {
    /// Returns the headers as attributes of an object.
    ///
    /// # Errors
    /// `MetadataTooLarge`.
    pub(crate) fn attributes(self) -> S3Result<Attributes> {
        let mut attributes = Attributes::none();
        let texts = [
            (CONTENT_TYPE, self.content_type),
            (CACHE_CONTROL, self.cache_control),
            (CONTENT_DISPOSITION, self.content_disposition),
            (CONTENT_ENCODING, self.content_encoding.and_then(without_chunks)),
            (CONTENT_LANGUAGE, self.content_language),
            (EXPIRES, self.expires.as_ref().and_then(http_date)),
        ];
        for (name, text) in texts {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                attributes.set(name, text);
            }
        }
        let metadata = self.metadata.unwrap_or_default();
        let bytes: usize = metadata.iter().map(|(name, text)| name.len() + text.len()).sum();
        if bytes > USER_BYTES_MAX {
            return Err(S3Error::with_message(
                S3ErrorCode::MetadataTooLarge,
                format!("user metadata has {bytes} bytes, the limit is {USER_BYTES_MAX}"),
            ));
        }
        for (name, text) in metadata {
            let name = name.to_ascii_lowercase();
            attributes.set(format!("{USER_METADATA_BEGIN}{name}"), text);
        }
        Ok(attributes)
    }

    /// Returns the headers that an object's attributes contain.
    pub(crate) fn of(attributes: &Attributes) -> Self {
        let text = |name: &str| attributes.get(name).map(str::to_owned);
        let user = attributes.iter().filter_map(|(name, text)| {
            Some((name.strip_prefix(USER_METADATA_BEGIN)?.to_owned(), text.to_owned()))
        });
        let metadata: Metadata = user.collect();
        Self {
            content_type: text(CONTENT_TYPE),
            cache_control: text(CACHE_CONTROL),
            content_disposition: text(CONTENT_DISPOSITION),
            content_encoding: text(CONTENT_ENCODING),
            content_language: text(CONTENT_LANGUAGE),
            expires: attributes
                .get(EXPIRES)
                .and_then(|text| Timestamp::parse(TimestampFormat::HttpDate, text).ok()),
            metadata: (!metadata.is_empty()).then_some(metadata),
        }
    }
}

/// `aws-chunked` is how the body travelled, and no part of what it is.
fn without_chunks(encoding: String) -> Option<String> {
    if !encoding.contains("aws-chunked") {
        return Some(encoding);
    }
    let kept: Vec<&str> =
        encoding.split(',').map(str::trim).filter(|it| *it != "aws-chunked").collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

fn http_date(time: &Timestamp) -> Option<String> {
    let mut text = Vec::new();
    time.format(TimestampFormat::HttpDate, &mut text).ok()?;
    String::from_utf8(text).ok()
}

/// Returns the attribute that holds an entity tag of so many bytes.
pub(crate) fn tag_attribute(tag: &str, bytes: u64) -> (&'static str, String) {
    (ETAG, format!("{tag} {bytes}"))
}

/// Returns an object's entity tag.
pub(crate) fn tag_of(stat: &ObjectStat) -> String {
    kept_tag(&stat.attributes, stat.bytes)
        .map_or_else(|| etag::of_object(stat.object, stat.bytes), str::to_owned)
}

/// Returns a listed object's entity tag.
pub(crate) fn listed_tag_of(entry: &Entry) -> String {
    kept_tag(&entry.attributes, entry.bytes)
        .map_or_else(|| etag::of_object(entry.object, entry.bytes), str::to_owned)
}

fn kept_tag(attributes: &Attributes, bytes: u64) -> Option<&str> {
    let (tag, of_bytes) = attributes.get(ETAG)?.split_once(' ')?;
    (of_bytes.parse() == Ok(bytes)).then_some(tag)
}

/// Returns a tag as S3's answers have it.
pub(crate) const fn quoted(tag: String) -> ETag {
    ETag::Strong(tag)
}

/// Returns the tags that users gave an object, as a query.
pub(crate) fn tagging_of(attributes: &Attributes) -> Option<&str> {
    attributes.get(TAGGING)
}

/// Sets the tags of an object, given as a query; without any it removes those that it has.
pub(crate) fn set_tagging(attributes: &mut Attributes, tagging: Option<String>) {
    match tagging.filter(|it| !it.is_empty()) {
        Some(tagging) => attributes.set(TAGGING, tagging),
        None => drop(attributes.remove(TAGGING)),
    }
}

/// Sets the upload that made an object.
pub(crate) fn set_upload(attributes: &mut Attributes, upload: &str) {
    attributes.set(UPLOAD, upload);
}

/// Returns the upload that made an object.
pub(crate) fn upload_of(attributes: &Attributes) -> Option<&str> {
    attributes.get(UPLOAD)
}

/// Keeps the attributes of an object's bytes, and of what made them, when the bytes stay and the
/// other attributes are replaced.
pub(crate) fn keep_of_bytes(attributes: &mut Attributes, of: &Attributes) {
    let is_kept = |name: &str| [PARTS, UPLOAD].contains(&name) || name.starts_with(CHECKSUM);
    for (name, text) in of.iter().filter(|(name, _)| is_kept(name)) {
        attributes.set(name, text);
    }
}

/// Sets a checksum that the client gave and the bytes have.
pub(crate) fn set_checksum(attributes: &mut Attributes, algorithm: &str, text: &str, bytes: u64) {
    attributes.set(format!("{CHECKSUM}{algorithm}"), format!("{text} {bytes}"));
}

/// Returns a checksum of an object of so many bytes.
pub(crate) fn checksum_of(attributes: &Attributes, algorithm: &str, bytes: u64) -> Option<String> {
    let (sum, of_bytes) = attributes.get(&format!("{CHECKSUM}{algorithm}"))?.split_once(' ')?;
    (of_bytes.parse() == Ok(bytes)).then(|| sum.to_owned())
}

/// Returns all of them.
pub(crate) fn checksums_of(attributes: &Attributes, bytes: u64) -> Checksum {
    all_sums(|algorithm| checksum_of(attributes, algorithm, bytes))
}

/// Returns the checksums of all algorithms, from the one of each.
pub(crate) fn all_sums(sum: impl Fn(&str) -> Option<String>) -> Checksum {
    Checksum {
        checksum_crc32: sum("crc32"),
        checksum_crc32c: sum("crc32c"),
        checksum_crc64nvme: sum("crc64nvme"),
        checksum_sha1: sum("sha1"),
        checksum_sha256: sum("sha256"),
        ..Checksum::default()
    }
}

/// Makes an output of s3s with the fields of a [`Checksum`].
macro_rules! with_sums {
    ($sums:expr, $output:ident { $($fields:tt)* }) => {{
        let sums = $sums;
        $output {
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            $($fields)*
        }
    }};
}
pub(crate) use with_sums;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        let mut metadata = Metadata::default();
        metadata.insert("Owner".to_owned(), "me".to_owned());
        let headers = Headers {
            content_type: Some("text/plain".to_owned()),
            content_encoding: Some("aws-chunked,gzip".to_owned()),
            metadata: Some(metadata),
            ..Headers::default()
        };
        let back = Headers::of(&headers.attributes().unwrap());
        assert_eq!(back.content_type.as_deref(), Some("text/plain"));
        assert_eq!(back.content_encoding.as_deref(), Some("gzip"));
        assert_eq!(back.metadata.unwrap().get("owner").map(String::as_str), Some("me"));
    }

    #[test]
    fn too_much_metadata_is_refused() {
        let mut metadata = Metadata::default();
        metadata.insert("a".to_owned(), "x".repeat(USER_BYTES_MAX));
        let headers = Headers { metadata: Some(metadata), ..Headers::default() };
        assert_eq!(headers.attributes().unwrap_err().code(), &S3ErrorCode::MetadataTooLarge);
    }

    #[test]
    fn bytes_that_stay_keep_their_checksums_and_the_upload_that_made_them() {
        let of: Attributes = [
            ("s3-parts", "1x5 5"),
            ("s3-upload", "0123"),
            ("x-amz-checksum-crc32", "AAAAAA== 5"),
            ("x-amz-meta-a", "b"),
        ]
        .into_iter()
        .collect();
        let mut attributes = Attributes::none();
        keep_of_bytes(&mut attributes, &of);
        let names: Vec<&str> = attributes.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["s3-parts", "s3-upload", "x-amz-checksum-crc32"]);
        assert_eq!(upload_of(&attributes), Some("0123"));
    }

    #[test]
    fn tag_of_fewer_bytes_is_no_tag_of_more() {
        let (name, text) = tag_attribute("abc", 3);
        let attributes: Attributes = [(name, text)].into_iter().collect();
        assert_eq!(kept_tag(&attributes, 3), Some("abc"));
        assert_eq!(kept_tag(&attributes, 4), None);
    }
}
