//! Names of the parts of an upload.
//!
//! Every upload of a part gets a name of its own: the part's number, then a number that is drawn.
//! No name is used twice, so a name stands for the same bytes from the check of a part's tag to
//! the end of the upload, whatever a late or repeated request stores under the same number.

use std::hash::{BuildHasher, RandomState};

use s3s::S3Result;
use sanderling_protocol::message::Entry;

use crate::parts;

/// What stands between the two numbers.
const SEPARATOR: char = '-';

/// Draws 16 hexadecimal digits. The standard library seeds every `RandomState` from the system's
/// entropy.
pub(crate) fn draw() -> String {
    format!("{:016x}", RandomState::new().hash_one(std::time::Instant::now()))
}

/// Returns what the names of a part begin with.
///
/// # Errors
/// `InvalidArgument` when it is no number of a part.
pub(crate) fn prefix(number: i32) -> S3Result<String> {
    parts::check_number(number)?;
    Ok(format!("{number:05}{SEPARATOR}"))
}

/// Returns the number of a part; 0 of what is no part. Earlier versions named a part by its number
/// alone.
pub(crate) fn number(name: &str) -> i32 {
    name.split(SEPARATOR).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Returns of each number the part whose upload began last, in the order of the numbers. Objects
/// are numbered in the order in which they begin, so a slow request that a client has given up and
/// repeated does not replace its repetition.
pub(crate) fn newest(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_unstable_by_key(|entry| (number(&entry.name), std::cmp::Reverse(entry.object)));
    entries.dedup_by_key(|entry| number(&entry.name));
    entries
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::{Attributes, ObjectKind};
    use sanderling_protocol::{Instant, ObjectId};

    use super::*;

    fn entry(name: &str, object: u64) -> Entry {
        Entry {
            name: name.to_owned(),
            kind: ObjectKind::File,
            object: ObjectId(object),
            bytes: 1,
            lost_bytes: 0,
            is_sealed: true,
            modified_at: Instant(0),
            attributes: Attributes::none(),
        }
    }

    #[test]
    fn newest_upload_of_each_number_is_the_part() {
        let all = [("00001-b", 7), ("00001-a", 9), ("00001", 3), ("00002-a", 4), ("10000-c", 5)];
        let all = all.map(|(name, object)| entry(name, object)).to_vec();
        let names: Vec<String> = newest(all).into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["00001-a", "00002-a", "10000-c"]);
    }

    #[test]
    fn names_begin_with_the_number_and_are_not_drawn_twice() {
        assert_eq!(prefix(10_000).unwrap(), "10000-");
        assert!(prefix(0).is_err() && prefix(10_001).is_err() && prefix(-1).is_err());
        assert_eq!((number("00017-0a"), number("00017"), number("upload")), (17, 17, 0));
        assert_ne!(draw(), draw());
    }
}
