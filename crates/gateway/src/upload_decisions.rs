//! Uploads in parts, as decisions: which objects of an upload's directory are its parts, which of
//! them its completion joins, and what follows from each answer. [`crate::upload_calls`] makes the
//! calls.
//!
//! An upload is a directory below [`UPLOADS`] in its bucket, with the parts by
//! [names](crate::part_name) that are never used again and an empty object that keeps the headers
//! with which it began. It expires when nothing is added to it for a while. Then, as after an abort
//! or a completion, that object is gone, and there is no such upload.

use std::ops::Range;

use s3s::dto::{Checksum, CompletedPart};
use s3s::{S3Error, S3ErrorCode, S3Result};
use sanderling_client::{ClientError, PutOptions};
use sanderling_protocol::message::{Attributes, Condition, Entry};
use sanderling_protocol::{Path, Refusal};

use crate::digest::{ALGORITHMS, sum_of};
use crate::metadata::{self, listed_tag_of};
use crate::name::UPLOADS;
use crate::object::replacing;
use crate::refused::{Missing, refused};
use crate::{etag, part_name, parts, upload_checksums};

/// The object that keeps the headers with which an upload began.
pub(crate) const FIRST_WORDS: &str = "upload";

/// The attribute with the upload's key.
const KEY: &str = "s3-key";

/// Digits of the id of an upload: 128 random bits, in hexadecimal.
const ID_DIGITS: usize = 32;

/// Fewest bytes of a part that is not the last: as of S3.
const PART_BYTES_MIN: u64 = 5 << 20;

/// Times that an upload is looked at again whose parts are replaced while it is completed. Each
/// time a part was replaced between two steps, which clients that have begun to complete do not do.
/// Chosen, not measured.
const RETRIES_MAX: usize = 8;

/// Where an upload is kept.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) bucket: Path,
    pub(crate) directory: Path,
}

/// What a client sends to complete an upload.
#[derive(Debug, Clone, Default)]
pub(crate) struct Completed {
    pub(crate) parts: Vec<CompletedPart>,
    /// Of all parts together.
    pub(crate) sums: Checksum,
    pub(crate) bytes: Option<i64>,
}

/// What is joined to complete an upload.
#[derive(Debug)]
pub(crate) struct UploadJoin {
    /// Where the bytes are, in their order. Of an object without any it is its empty part: the
    /// namenode joins that only while the upload is there.
    pub(crate) parts: Vec<Path>,
    /// Of the object.
    pub(crate) options: PutOptions,
    /// The object's tag.
    tag: String,
}

/// What follows from the answer to a join.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AfterJoin {
    /// The object with this tag is there, and the upload is to be forgotten.
    Made(String),
    /// A part was uploaded again, and the one that was checked is deleted: list the parts again.
    LookAgain,
}

/// The completion of an upload. The names of the parts stand for the bytes whose tags were checked:
/// of a part that is uploaded again meanwhile nothing gets into the object.
#[derive(Debug)]
pub(crate) struct UploadCompletion<'a> {
    upload: &'a Upload,
    wanted: Completed,
    /// Of the object, without what depends on its parts.
    options: PutOptions,
    /// Joins for which a part was missing.
    replaced: usize,
}

pub(crate) fn no_upload() -> S3Error {
    S3ErrorCode::NoSuchUpload.into()
}

/// Checks that a client's text may be the id of an upload.
///
/// # Errors
/// `NoSuchUpload`.
pub(crate) fn check_id(id: &str) -> S3Result<()> {
    let is_id = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { Ok(()) } else { Err(no_upload()) }
}

/// Keeps the key of an upload with the headers with which it begins.
pub(crate) fn set_key(attributes: &mut Attributes, key: &str) {
    attributes.set(KEY, key);
}

/// Returns the key of an upload from the attributes with which it began.
pub(crate) fn key_of(attributes: &Attributes) -> Option<&str> {
    attributes.get(KEY)
}

/// Checks that an upload began for a key, by the attributes with which it began.
///
/// # Errors
/// `NoSuchUpload`: it is of another key.
pub(crate) fn check_key(attributes: &Attributes, key: &str) -> S3Result<()> {
    if key_of(attributes) == Some(key) { Ok(()) } else { Err(no_upload()) }
}

/// Returns the parts among the entries of an upload's directory, in the order of their numbers: of
/// each number the one that was uploaded last.
pub(crate) fn parts_of(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| entry.name != FIRST_WORDS);
    part_name::newest(entries)
}

/// Returns the entries of a part that a later upload of it has replaced. `same` may have entries of
/// other parts, whose names do not begin with `prefix`.
pub(crate) fn replaced<'a>(same: &'a [Entry], prefix: &str) -> impl Iterator<Item = &'a Entry> {
    let of_part = same.iter().filter(move |entry| entry.name.starts_with(prefix));
    let newest = of_part.clone().map(|entry| entry.object).max();
    of_part.filter(move |entry| Some(entry.object) != newest)
}

/// Returns whether an upload made the object with these attributes: the answer to its completion
/// may have been lost.
pub(crate) fn is_made_by(attributes: &Attributes, id: &str) -> bool {
    metadata::upload_of(attributes) == Some(id)
}

impl Upload {
    /// Returns where the upload with an id is kept in a bucket.
    ///
    /// # Errors
    /// `NoSuchUpload`: it is too long a name.
    pub(crate) fn new(bucket: Path, id: &str) -> S3Result<Self> {
        let directory = bucket.join(UPLOADS).and_then(|uploads| uploads.join(id));
        let directory = directory.map_err(|_| no_upload())?;
        Ok(Self { bucket, directory })
    }
}

impl<'a> UploadCompletion<'a> {
    /// Returns the completion of the upload with an id, which began with these attributes. The
    /// object keeps them, and which upload has made it.
    pub(crate) fn new(
        (upload, id): (&'a Upload, &str),
        mut begun: Attributes,
        wanted: Completed,
        condition: Option<Condition>,
    ) -> Self {
        begun.remove(KEY);
        metadata::set_upload(&mut begun, id);
        let options = PutOptions { parents: true, ..replacing(begun, condition) };
        Self { upload, wanted, options, replaced: 0 }
    }

    /// Decides what is joined, of an upload that has these [parts](parts_of).
    ///
    /// # Errors
    /// Those of the parts that the client lists, of their sums, and of their bytes together.
    pub(crate) fn join(&self, there: &[Entry]) -> S3Result<UploadJoin> {
        let Self { upload, wanted, options, .. } = self;
        let mut options = options.clone();
        let chosen = chosen(&wanted.parts, there)?;
        let total: u64 = chosen.iter().map(|part| part.bytes).sum();
        if wanted.bytes.is_some_and(|bytes| u64::try_from(bytes) != Ok(total)) {
            let message = format!("the parts have {total} bytes together");
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
        }
        upload_checksums::check(&chosen, &wanted.sums)?;
        let digests: Option<Vec<[u8; 16]>> =
            chosen.iter().map(|part| etag::digest_of(&listed_tag_of(part))).collect();
        let tag = etag::of_parts(&digests.ok_or(S3ErrorCode::InvalidPart)?);
        let (name, text) = metadata::tag_attribute(&tag, total);
        options.attributes.set(name, text);
        let sizes: Vec<(i32, u64)> =
            chosen.iter().map(|part| (part_name::number(&part.name), part.bytes)).collect();
        parts::keep(&mut options.attributes, &sizes);
        // What is empty has no blocks to join beside others.
        let joined = chosen.iter().filter(|part| part.bytes > 0 || total == 0);
        let parts: Result<Vec<Path>, Refusal> =
            joined.map(|part| upload.directory.join(&part.name)).collect();
        Ok(UploadJoin { parts: parts.map_err(|_| no_upload())?, options, tag })
    }

    /// Decides what follows from the answer to a join.
    ///
    /// # Errors
    /// The client's, or `SlowDown` after [`RETRIES_MAX`] joins for which a part was missing.
    pub(crate) fn joined(
        &mut self,
        join: UploadJoin,
        answer: Result<(), ClientError>,
    ) -> S3Result<AfterJoin> {
        match answer {
            Ok(()) => Ok(AfterJoin::Made(join.tag)),
            Err(ClientError::Refused(Refusal::NotFound { path })) if join.parts.contains(&path) => {
                self.replaced += 1;
                let is_last = self.replaced == RETRIES_MAX;
                if is_last { Err(S3ErrorCode::SlowDown.into()) } else { Ok(AfterJoin::LookAgain) }
            }
            Err(error) => Err(refused(&error, Missing::Upload)),
        }
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

/// Reads the range of a part that is copied.
///
/// # Errors
/// `InvalidArgument` for another text, `InvalidRange` for one that is not inside the object.
pub(crate) fn part_range(text: &str, whole: u64) -> S3Result<Range<u64>> {
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
    use sanderling_protocol::message::ObjectKind;
    use sanderling_protocol::{Instant, Millis, ObjectId};

    use super::*;

    const ID: &str = "0123456789abcdef0123456789ABCDEF";

    fn upload() -> Upload {
        Upload::new("/bucket".parse().unwrap(), ID).unwrap()
    }

    /// The tag of the part with a number: an MD5.
    fn tag(number: i32) -> String {
        etag::of_digest([u8::try_from(number).unwrap(); 16])
    }

    fn entry(name: String, object: u64, bytes: u64, attributes: Attributes) -> Entry {
        Entry {
            name,
            kind: ObjectKind::File,
            object: ObjectId(object),
            bytes,
            lost_bytes: 0,
            is_sealed: true,
            modified_at: Instant(0),
            attributes,
        }
    }

    fn there(number: i32, bytes: u64) -> Entry {
        let (attribute, text) = metadata::tag_attribute(&tag(number), bytes);
        let name = part_name::prefix(number).unwrap() + &part_name::draw();
        entry(name, 1, bytes, [(attribute, text)].into_iter().collect())
    }

    fn wanted(number: i32, tag: &str) -> CompletedPart {
        let e_tag = Some(ETag::Strong(tag.to_owned()));
        CompletedPart { part_number: Some(number), e_tag, ..CompletedPart::default() }
    }

    fn all_of(numbers: &[i32]) -> Completed {
        let parts = numbers.iter().map(|number| wanted(*number, &tag(*number))).collect();
        Completed { parts, ..Completed::default() }
    }

    fn begun() -> Attributes {
        let mut attributes: Attributes = [("content-type", "text/plain")].into_iter().collect();
        set_key(&mut attributes, "a/key");
        attributes
    }

    fn completion(upload: &Upload, wanted: Completed) -> UploadCompletion<'_> {
        UploadCompletion::new((upload, ID), begun(), wanted, None)
    }

    fn refusal(wanted: Completed, there: &[Entry]) -> S3ErrorCode {
        completion(&upload(), wanted).join(there).unwrap_err().code().clone()
    }

    fn code(wanted: &[CompletedPart], there: &[Entry]) -> S3ErrorCode {
        refusal(Completed { parts: wanted.to_vec(), ..Completed::default() }, there)
    }

    fn not_found(path: &Path) -> Result<(), ClientError> {
        Err(ClientError::Refused(Refusal::NotFound { path: path.clone() }))
    }

    #[test]
    fn parts_are_chosen_by_number_and_tag() {
        let parts = [there(1, PART_BYTES_MIN), there(3, 7), there(9, 0)];
        let chosen = chosen(&[wanted(1, &tag(1)), wanted(3, &tag(3))], &parts).unwrap();
        assert_eq!(chosen.len(), 2);
        assert_eq!(code(&[], &parts), S3ErrorCode::MalformedXML);
        let turned = [wanted(3, &tag(3)), wanted(1, &tag(1))];
        assert_eq!(code(&turned, &parts), S3ErrorCode::InvalidPartOrder);
        let twice = [wanted(1, &tag(1)), wanted(1, &tag(1))];
        assert_eq!(code(&twice, &parts), S3ErrorCode::InvalidPartOrder);
        assert_eq!(code(&[wanted(2, &tag(2))], &parts), S3ErrorCode::InvalidPart);
        assert_eq!(code(&[wanted(1, &tag(3))], &parts), S3ErrorCode::InvalidPart);
        assert_eq!(code(&[wanted(0, "")], &parts), S3ErrorCode::InvalidPart);
    }

    #[test]
    fn every_part_but_the_last_has_five_mebibytes() {
        let parts = [there(1, PART_BYTES_MIN), there(2, PART_BYTES_MIN - 1), there(3, 7)];
        assert_eq!(refusal(all_of(&[1, 2, 3]), &parts), S3ErrorCode::EntityTooSmall);
        let upload = upload();
        for numbers in [&[1, 2][..], &[1, 3], &[2], &[3]] {
            assert!(completion(&upload, all_of(numbers)).join(&parts).is_ok(), "{numbers:?}");
        }
    }

    #[test]
    fn parts_that_are_not_listed_are_left_out_and_the_others_joined_in_their_order() {
        let parts = [there(1, PART_BYTES_MIN), there(2, PART_BYTES_MIN), there(7, 3)];
        let upload = upload();
        let join = completion(&upload, all_of(&[1, 7])).join(&parts).unwrap();
        let at = |part: &Entry| upload.directory.join(&part.name).unwrap();
        assert_eq!(join.parts, [at(&parts[0]), at(&parts[2])]);
        let tag = etag::of_parts(&[[1; 16], [7; 16]]);
        let (name, text) = metadata::tag_attribute(&tag, PART_BYTES_MIN + 3);
        assert_eq!(join.options.attributes.get(name), Some(text.as_str()));
        assert_eq!(join.tag, tag);
        assert!(join.tag.ends_with("-2"), "S3 shows how many parts there were");
    }

    #[test]
    fn object_has_the_headers_with_which_its_upload_began_and_the_upload_that_made_it() {
        let (upload, parts) = (upload(), [there(1, 5)]);
        let absent = Some(Condition::Absent);
        let completion = UploadCompletion::new((&upload, ID), begun(), all_of(&[1]), absent);
        let PutOptions { attributes, condition, parents, .. } =
            completion.join(&parts).unwrap().options;
        assert_eq!(attributes.get("content-type"), Some("text/plain"));
        assert_eq!(key_of(&attributes), None);
        assert!(is_made_by(&attributes, ID) && !is_made_by(&begun(), ID));
        assert!(!is_made_by(&attributes, &ID.replace('0', "1")), "of another upload");
        assert!(matches!(condition, Some(Condition::Absent)));
        assert!(parents, "the key's directories may have gone meanwhile");
    }

    #[test]
    fn upload_whose_part_is_empty_joins_it_and_otherwise_leaves_an_empty_last_part_out() {
        let upload = upload();
        let at = |part: &Entry| upload.directory.join(&part.name).unwrap();
        let parts = [there(1, PART_BYTES_MIN), there(4, 0)];
        let join = completion(&upload, all_of(&[4])).join(&parts).unwrap();
        // The namenode refuses it when the upload is gone.
        assert_eq!(join.parts, [at(&parts[1])]);
        assert_eq!(join.tag, etag::of_parts(&[[4; 16]]));
        let join = completion(&upload, all_of(&[1, 4])).join(&parts).unwrap();
        assert_eq!(join.parts, [at(&parts[0])]);
    }

    #[test]
    fn parts_have_the_bytes_and_checksums_that_the_client_sends() {
        let parts = [there(1, PART_BYTES_MIN), there(2, 7)];
        let bytes = i64::try_from(PART_BYTES_MIN + 7).unwrap();
        let of = |bytes| Completed { bytes: Some(bytes), ..all_of(&[1, 2]) };
        let upload = upload();
        assert!(completion(&upload, of(bytes)).join(&parts).is_ok());
        for wrong in [0, bytes - 1, bytes + 1, -1] {
            assert_eq!(refusal(of(wrong), &parts), S3ErrorCode::InvalidRequest, "{wrong}");
        }
        let sum = Some("AAAAAA==".to_owned());
        let sums = Checksum { checksum_crc32: sum.clone(), ..Checksum::default() };
        let whole = Completed { sums, ..all_of(&[1, 2]) };
        assert_eq!(refusal(whole, &parts), S3ErrorCode::InvalidRequest, "none was stored");
        let part = CompletedPart { checksum_crc32: sum, ..wanted(2, &tag(2)) };
        assert_eq!(code(&[part], &parts), S3ErrorCode::InvalidPart);
    }

    /// Objects are numbered in the order in which they begin.
    #[test]
    fn part_that_was_uploaded_again_is_the_later_one_and_the_others_are_removed() {
        let named = |name: &str, object| entry(name.to_owned(), object, 7, Attributes::none());
        let all = vec![
            named(FIRST_WORDS, 1),
            named("00001-late", 4),
            named("00001-newest", 6),
            named("00001-oldest", 2),
            named("00010-other", 3),
        ];
        let gone: Vec<u64> = replaced(&all, "00001-").map(|entry| entry.object.0).collect();
        assert_eq!(gone, [4, 2]);
        assert_eq!(replaced(&all, "00010-").count(), 0);
        assert_eq!(replaced(&all, "00002-").count(), 0);
        let names: Vec<String> = parts_of(all).into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["00001-newest", "00010-other"]);
    }

    #[test]
    fn part_that_is_replaced_between_its_check_and_the_join_is_looked_at_again() {
        let upload = upload();
        let mut completion = completion(&upload, all_of(&[1]));
        let first = completion.join(&[there(1, 5)]).unwrap();
        let path = first.parts[0].clone();
        let next = completion.joined(first, not_found(&path)).unwrap();
        assert_eq!(next, AfterJoin::LookAgain);
        // The new one has another tag than the client lists, or the same.
        let other = Entry { name: there(1, 5).name, ..there(2, 5) };
        let refused = completion.join(&[other]).unwrap_err();
        assert_eq!(refused.code(), &S3ErrorCode::InvalidPart);
        let second = completion.join(&[there(1, 5)]).unwrap();
        assert_ne!(second.parts[0], path, "a name is never used again");
        let tag = second.tag.clone();
        assert_eq!(completion.joined(second, Ok(())).unwrap(), AfterJoin::Made(tag));
    }

    #[test]
    fn upload_whose_parts_are_replaced_again_and_again_is_completed_later() {
        let upload = upload();
        let mut completion = completion(&upload, all_of(&[1]));
        for round in 1..=RETRIES_MAX {
            let join = completion.join(&[there(1, 5)]).unwrap();
            let missing = not_found(&join.parts[0]);
            match completion.joined(join, missing) {
                Ok(next) => assert!(next == AfterJoin::LookAgain && round < RETRIES_MAX, "{round}"),
                Err(error) => {
                    assert_eq!(error.code(), &S3ErrorCode::SlowDown);
                    assert_eq!(round, RETRIES_MAX);
                }
            }
        }
    }

    #[test]
    fn join_that_fails_for_another_reason_ends_the_completion() {
        let upload = upload();
        let failed = |answer: Result<(), ClientError>| {
            let mut completion = completion(&upload, all_of(&[1]));
            let join = completion.join(&[there(1, 5)]).unwrap();
            completion.joined(join, answer).unwrap_err().code().clone()
        };
        assert_eq!(failed(not_found(&upload.directory)), S3ErrorCode::NoSuchUpload);
        let busy = Refusal::RetryAfter { after: Millis(1), why: "busy".to_owned() };
        assert_eq!(failed(Err(ClientError::Refused(busy))), S3ErrorCode::SlowDown);
        let exists = Refusal::Exists { path: "/bucket/a/key".parse().unwrap() };
        let condition = failed(Err(ClientError::Refused(exists)));
        assert_eq!(condition, S3ErrorCode::PreconditionFailed);
    }

    #[test]
    fn upload_is_of_one_key_and_has_an_id_of_32_digits() {
        check_key(&begun(), "a/key").unwrap();
        for key in ["a/key/", "key", ""] {
            let refused = check_key(&begun(), key).unwrap_err();
            assert_eq!(refused.code(), &S3ErrorCode::NoSuchUpload, "{key}");
        }
        // What is no upload's directory has no key.
        assert!(check_key(&Attributes::none(), "").is_err());
        check_id(ID).unwrap();
        for id in ["", "0", &ID[1..], &format!("{ID}0"), &ID.replace('A', "/"), "../../0123456789"]
        {
            assert_eq!(check_id(id).unwrap_err().code(), &S3ErrorCode::NoSuchUpload, "{id}");
        }
        assert_eq!(upload().directory.to_string(), format!("/bucket/{UPLOADS}/{ID}"));
    }

    #[test]
    fn copied_range_is_inside_the_source() {
        assert_eq!(part_range("bytes=0-4", 5).unwrap(), 0..5);
        for text in ["bytes=0-5", "bytes=3-2", "0-4", "bytes=-4", "bytes=0-", "bytes=x-y"] {
            assert!(part_range(text, 5).is_err(), "{text}");
        }
    }
}
