//! The parts that an object was made of: which numbers they had, and how many bytes.
//!
//! They are kept as runs of parts that follow each other with the same size, which all but the last
//! mostly have: `1*199:8388608,200*1:17`. What does not fit is not kept: the object is one part.

use std::ops::Range;

use s3s::dto::{
    Checksum, ChecksumType, GetObjectAttributesInput, GetObjectAttributesOutput,
    GetObjectAttributesParts, ObjectPart,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use sanderling_protocol::limits::CONCAT_PARTS_MAX;
use sanderling_protocol::message::{Attributes, ObjectStat};

use crate::api::{S3Api, check_version, whole_second};
use crate::digest::{ALGORITHMS, sum_of};
use crate::metadata::{self, PARTS, quoted};

/// Longest text of runs: an object has 8 KiB of attributes in all. User metadata have 2 KiB of them
/// at most and tags 3.8 KiB. Parts of equal length are one run of some fifteen bytes, so all but
/// uneven uploads fit; those are stored without it.
const TEXT_BYTES_MAX: usize = 2 << 10;

/// Most parts of one answer, and how many there are unless fewer are requested: as of S3.
const ITEMS_MAX: i32 = 1000;

/// What `GetObjectAttributes` can return.
const KNOWN: [&str; 5] = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];

/// Parts that follow each other, all of that many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EqualParts {
    first: i32,
    count: i32,
    bytes: u64,
}

/// Keeps the numbers and sizes of parts, in the order of their numbers, if there is room.
pub(crate) fn keep(attributes: &mut Attributes, parts: &[(i32, u64)]) {
    let mut runs: Vec<EqualParts> = Vec::new();
    for (number, bytes) in parts {
        match runs.last_mut() {
            Some(run) if run.first + run.count == *number && run.bytes == *bytes => run.count += 1,
            _ => runs.push(EqualParts { first: *number, count: 1, bytes: *bytes }),
        }
    }
    let texts = runs.iter().map(|run| format!("{}*{}:{}", run.first, run.count, run.bytes));
    let text = texts.collect::<Vec<_>>().join(",");
    if text.len() > TEXT_BYTES_MAX {
        return;
    }
    let total: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
    attributes.set(PARTS, format!("{text} {total}"));
    if attributes.check().is_err() {
        attributes.remove(PARTS);
    }
}

/// Reads the runs of parts from an object's attributes; `None` when they are not those of an object
/// of so many bytes. Other interfaces can write anything.
fn runs_of(attributes: &Attributes, bytes: u64) -> Option<Vec<EqualParts>> {
    let (text, total) = attributes.get(PARTS)?.split_once(' ')?;
    if total.parse() != Ok(bytes) {
        return None;
    }
    let runs = text.split(',').map(|run| {
        let (first, rest) = run.split_once('*')?;
        let (count, bytes) = rest.split_once(':')?;
        Some(EqualParts {
            first: first.parse().ok()?,
            count: count.parse().ok()?,
            bytes: bytes.parse().ok()?,
        })
    });
    let runs: Vec<EqualParts> = runs.collect::<Option<_>>()?;
    let (mut behind, mut sum) = (1, 0_u64);
    for run in &runs {
        if run.first < behind || run.count < 1 {
            return None;
        }
        behind = run.first.checked_add(run.count)?;
        sum = sum.checked_add(run.bytes.checked_mul(u64::try_from(run.count).ok()?)?)?;
    }
    let is_whole = sum == bytes && check_number(behind - 1).is_ok();
    is_whole.then_some(runs)
}

/// Refuses what is no number of a part.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn check_number(number: i32) -> S3Result<()> {
    let most = i32::try_from(CONCAT_PARTS_MAX).unwrap_or(i32::MAX);
    if (1..=most).contains(&number) {
        return Ok(());
    }
    let message = format!("a part's number is 1 to {most}");
    Err(S3Error::with_message(S3ErrorCode::InvalidArgument, message))
}

/// Returns how many parts an object was made of, if that is known.
pub(crate) fn count(stat: &ObjectStat) -> Option<i32> {
    let runs = runs_of(&stat.attributes, stat.bytes)?;
    Some(runs.iter().map(|run| run.count).sum())
}

/// Returns the bytes of a part; `None` when it is all of the object.
///
/// # Errors
/// `InvalidPart` when the object has no part of that number.
pub(crate) fn range(stat: &ObjectStat, number: i32) -> S3Result<Option<Range<u64>>> {
    let Some(runs) = runs_of(&stat.attributes, stat.bytes) else {
        return if number == 1 { Ok(None) } else { Err(S3ErrorCode::InvalidPart.into()) };
    };
    let mut start = 0;
    for run in runs {
        let before = number.checked_sub(run.first).unwrap_or(-1);
        if (0..run.count).contains(&before) {
            start += before as u64 * run.bytes;
            let is_all = stat.bytes == run.bytes;
            return Ok((!is_all).then_some(start..start + run.bytes));
        }
        start += run.count as u64 * run.bytes;
    }
    Err(S3ErrorCode::InvalidPart.into())
}

impl S3Api {
    pub(crate) async fn attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let input = request.input;
        check_version(input.version_id.as_deref())?;
        // One header may name several.
        let asked = input.object_attributes.iter().flat_map(|it| it.as_str().split(','));
        let asked: Vec<&str> = asked.map(str::trim).collect();
        if asked.is_empty() || asked.iter().any(|it| !KNOWN.contains(it)) {
            let message = format!("x-amz-object-attributes is some of {}", KNOWN.join(", "));
            return Err(S3Error::with_message(S3ErrorCode::InvalidArgument, message));
        }
        let most = input.max_parts.unwrap_or(ITEMS_MAX).min(ITEMS_MAX);
        let most = usize::try_from(most).map_err(|_| S3ErrorCode::InvalidArgument)?;
        let (bucket, path) = self.path(&input.bucket, &input.key)?;
        let stat = self.object(&bucket, &path).await?;
        let is_asked = |name: &str| asked.contains(&name);
        let marker = input.part_number_marker.unwrap_or_default();
        Ok(S3Response::new(GetObjectAttributesOutput {
            e_tag: is_asked("ETag").then(|| quoted(metadata::tag_of(&stat))),
            checksum: if is_asked("Checksum") { checksum(&stat) } else { None },
            object_parts: if is_asked("ObjectParts") { page(&stat, marker, most) } else { None },
            object_size: i64::try_from(stat.bytes).ok().filter(|_| is_asked("ObjectSize")),
            storage_class: is_asked("StorageClass").then(|| "STANDARD".to_owned().into()),
            last_modified: Some(whole_second(stat.modified_at)),
            ..GetObjectAttributesOutput::default()
        }))
    }
}

fn checksum(stat: &ObjectStat) -> Option<Checksum> {
    let sums = metadata::checksums_of(&stat.attributes, stat.bytes);
    let has_any = ALGORITHMS.into_iter().any(|it| sum_of(&sums, it).is_some());
    let checksum_type = Some(ChecksumType::from_static(ChecksumType::FULL_OBJECT));
    has_any.then_some(Checksum { checksum_type, ..sums })
}

/// Returns a page of an object's parts.
fn page(stat: &ObjectStat, marker: i32, most: usize) -> Option<GetObjectAttributesParts> {
    let runs = runs_of(&stat.attributes, stat.bytes)?;
    let total = runs.iter().map(|run| run.count).sum();
    let all = runs
        .iter()
        .flat_map(|run| (run.first..run.first + run.count).map(|number| (number, run.bytes)));
    let mut rest = all.filter(|(number, _)| *number > marker);
    let parts: Vec<ObjectPart> = rest
        .by_ref()
        .take(most)
        .map(|(number, bytes)| ObjectPart {
            part_number: Some(number),
            size: i64::try_from(bytes).ok(),
            ..ObjectPart::default()
        })
        .collect();
    let is_truncated = rest.next().is_some();
    let last = parts.last().and_then(|part| part.part_number);
    Some(GetObjectAttributesParts {
        is_truncated: Some(is_truncated),
        max_parts: i32::try_from(most).ok(),
        next_part_number_marker: last.or(Some(0)),
        part_number_marker: Some(marker),
        parts: Some(parts),
        total_parts_count: Some(total),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(parts: &[(i32, u64)]) -> Attributes {
        let mut attributes = Attributes::none();
        keep(&mut attributes, parts);
        attributes
    }

    #[test]
    fn parts_come_back_as_runs() {
        let mut parts: Vec<(i32, u64)> = (1..=9_999).map(|number| (number, 5 << 20)).collect();
        parts.push((10_000, 7));
        let attributes = kept(&parts);
        let total = 9_999 * (5 << 20) + 7;
        let text = format!("1*9999:5242880,10000*1:7 {total}");
        assert_eq!(attributes.get(PARTS), Some(text.as_str()));
        let runs = runs_of(&attributes, total).unwrap();
        assert_eq!(runs[1], EqualParts { first: 10_000, count: 1, bytes: 7 });
        // Another interface appended.
        assert_eq!(runs_of(&attributes, total + 1), None);
        // Too many sizes for the room that there is.
        let parts: Vec<(i32, u64)> = (1..=500).map(|number| (number, number as u64)).collect();
        assert_eq!(kept(&parts).get(PARTS), None);
    }

    #[test]
    fn text_of_another_endpoint_is_read_with_care() {
        for text in [
            "",
            "1*1:5",
            "1*2:5 5",
            "0*1:5 5",
            "1*0:5 5",
            "2*1:2,1*1:3 5",
            "10001*1:5 5",
            "1*2147483647:5 5",
            "2147483647*2:5 5",
            "1*2:18446744073709551615 5",
            "a*b:c 5",
            "-1*1:5 5",
            "1*1:2,1*1:3 5",
        ] {
            let attributes: Attributes = [(PARTS, text)].into_iter().collect();
            assert_eq!(runs_of(&attributes, 5), None, "{text}");
        }
    }
}
