//! Ranges as S3 reads them: what is no range is ignored, and all of the object is the answer.

use s3s::dto::Range;
use s3s::{S3Error, S3ErrorCode};

use hyper::{HeaderMap, header};

/// An end that no object reaches, and that the library still reads: the largest signed number of 64
/// bits.
const FAR: u64 = i64::MAX as u64;

/// Reads the header `Range`. `None` when it is not that of one range of bytes: S3 answers several
/// ranges, another unit and what is not understood with the whole object (RFC 9110, section 14.2).
pub(crate) fn parse(text: &str) -> Option<Range> {
    let (unit, range) = text.trim().split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    if first.is_empty() {
        return Some(Range::Suffix { length: number(last)? });
    }
    let first = number(first)?;
    let last = if last.is_empty() { None } else { Some(number(last)?) };
    // Behind what can be counted nothing is before or after another.
    last.is_none_or(|last| first <= last).then_some(Range::Int { first, last })
}

fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(FAR).min(FAR))
}

/// Returns whether a range goes for the object that is there: one of another object would be put
/// together with bytes of this one (RFC 9110, section 13.1.5). A time never holds. It is a strong
/// validator only if the object did not change twice within that second (section 8.8.2.2), which
/// the store does not keep; and clients send the tag, which every answer has.
pub(crate) fn is_of(headers: &HeaderMap, tag: &str) -> bool {
    let mut given = headers.get_all(header::IF_RANGE).iter();
    let (Some(condition), None) = (given.next(), given.next()) else {
        return !headers.contains_key(header::IF_RANGE);
    };
    let Ok(condition) = condition.to_str() else { return false };
    let quoted = condition.trim().strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    quoted == Some(tag)
}

/// Returns the error of a range that has no byte of an object of so many.
pub(crate) fn behind(bytes: u64) -> S3Error {
    let message = format!("the range has none of the object's {bytes} bytes");
    let mut error = S3Error::with_message(S3ErrorCode::InvalidRange, message);
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/xml"));
    if let Ok(text) = format!("bytes */{bytes}").parse() {
        headers.insert(header::CONTENT_RANGE, text);
    }
    error.set_headers(headers);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_parsed_and_nothing_else() {
        let of = |first, last| Some(Range::Int { first, last });
        assert_eq!(parse("bytes=0-4"), of(0, Some(4)));
        assert_eq!(parse("BYTES = 7-"), of(7, None));
        assert_eq!(parse("bytes=-3"), Some(Range::Suffix { length: 3 }));
        let huge = "9".repeat(40);
        assert_eq!(parse(&format!("bytes=1-{huge}")), of(1, Some(FAR)));
        assert_eq!(parse(&format!("bytes={huge}-")), of(FAR, None));
        for text in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=2-1",
            "bytes=0-1,2-3",
            "bytes=a-b",
            "bits=0-1",
            "bytes=+1-2",
            "bytes=1 - 2",
            "bytes=--1",
            "bytes=1-2;",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in ["bytes=0-4", "bytes=7-", "bytes=-3"] {
            assert_eq!(parse(text), Range::parse(text).ok(), "{text}");
        }
    }

    #[test]
    fn range_is_cut_to_the_object_and_refused_behind_it() {
        let of = |text: &str, bytes| parse(text).unwrap().check(bytes).ok();
        assert_eq!(of("bytes=2-", 5), Some(2..5));
        assert_eq!(of("bytes=2-99", 5), Some(2..5));
        assert_eq!(of("bytes=-99", 5), Some(0..5));
        assert_eq!(of("bytes=-2", 5), Some(3..5));
        assert_eq!(of("bytes=5-", 5), None);
        assert_eq!(behind(5).headers().unwrap()["content-range"], "bytes */5");
    }

    #[test]
    fn range_of_another_object_is_not_taken() {
        let is = |conditions: &[&str]| {
            let mut headers = HeaderMap::new();
            for condition in conditions {
                headers.append(header::IF_RANGE, condition.parse().unwrap());
            }
            is_of(&headers, "a")
        };
        assert!(is(&[]) && is(&["\"a\""]));
        for other in ["\"b\"", "W/\"a\"", "\"a", "a", "Sun, 09 Sep 2001 01:46:40 GMT", ""] {
            assert!(!is(&[other]), "{other}");
        }
        assert!(!is(&["\"a\"", "\"a\""]));
    }
}
