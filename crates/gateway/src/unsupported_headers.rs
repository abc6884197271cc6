//! Headers that request a promise. One that the gateway does not keep is refused: a client that
//! got 200 would rely on it.

use hyper::{HeaderMap, Uri};
use s3s::{S3Error, S3ErrorCode, S3Result};

use crate::api::OWNER;
use crate::percent::decode;

/// Begins of headers, and of fields of a presigned URL, for what is not supported: encryption
/// of what is stored, and locks against deletion. To pass locks by is no such promise: there are
/// none.
const NOT_KEPT: [&str; 4] = [
    "x-amz-server-side-encryption",
    "x-amz-copy-source-server-side-encryption",
    "x-amz-object-lock-",
    "x-amz-bucket-object-lock-enabled",
];

/// The owner that the caller expects.
const EXPECTED_OWNERS: [&str; 2] =
    ["x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"];

/// Refuses a request for what the gateway does not do, or that is meant for another
/// owner's bucket.
///
/// # Errors
/// `NotImplemented`, `AccessDenied`, `InvalidDigest`.
pub(crate) fn check(uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
    let of_headers = headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let fields = uri.query().unwrap_or_default().split('&').filter_map(|field| {
        let (name, value) = field.split_once('=').unwrap_or((field, ""));
        Some((decode(name)?.to_ascii_lowercase(), decode(value)?))
    });
    if headers.get("content-md5").is_some_and(|it| it.as_bytes().trim_ascii().is_empty()) {
        // The library takes it as if it were not there, and checks nothing.
        return Err(S3ErrorCode::InvalidDigest.into());
    }
    for (name, value) in of_headers.chain(fields) {
        if NOT_KEPT.iter().any(|begin| name.starts_with(begin)) && value != "false" {
            let message = format!("{name} requests what this store does not support");
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, message));
        }
        if EXPECTED_OWNERS.contains(&name.as_str()) && value != OWNER {
            let message = format!("the bucket belongs to {OWNER}, and {name} names another owner");
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, message));
        }
    }
    Ok(())
}

/// Conditions of requests.
const CONDITIONS: [&str; 8] = [
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "x-amz-if-match-initiated-time",
    "x-amz-if-match-last-modified-time",
    "x-amz-if-match-size",
];

/// Refuses a change with a condition that is not looked at: it would be done although the condition
/// does not hold. Reads of objects look at all that they can have.
///
/// # Errors
/// `NotImplemented`.
pub(crate) fn check_conditions(operation: &str, uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
    let known: &[&str] = match operation {
        _ if ["Get", "Head", "List"].iter().any(|verb| operation.starts_with(verb)) => {
            return Ok(());
        }
        "PutObject" | "CompleteMultipartUpload" => &["if-match", "if-none-match"],
        "DeleteObject" => &["if-match", "x-amz-if-match-last-modified-time", "x-amz-if-match-size"],
        _ => &[],
    };
    let of_headers = headers.keys().map(|name| (name.as_str().to_owned(), known));
    // Nothing reads them from there.
    let fields = uri.query().unwrap_or_default().split('&').filter_map(|field| {
        let name = decode(field.split('=').next().unwrap_or_default())?.to_ascii_lowercase();
        name.starts_with("x-amz-").then_some((name, &[][..]))
    });
    for (name, known) in of_headers.chain(fields) {
        let name = name.as_str();
        if CONDITIONS.contains(&name) && !known.contains(&name) {
            let message = format!("{operation} does not look at {name}");
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(query: &str, header: Option<(&'static str, &str)>) -> Option<S3ErrorCode> {
        let uri: Uri = format!("/b/k?{query}").parse().unwrap();
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().unwrap());
        }
        check(&uri, &headers).err().map(|error| error.code().clone())
    }

    #[test]
    fn promise_that_is_not_kept_is_not_given() {
        let none = Some(S3ErrorCode::NotImplemented);
        assert_eq!(code("", Some(("x-amz-server-side-encryption", "AES256"))), none);
        assert_eq!(code("", Some(("x-amz-server-side-encryption-customer-key", "a"))), none);
        assert_eq!(code("", Some(("x-amz-object-lock-legal-hold", "ON"))), none);
        assert_eq!(code("X-Amz-Object-Lock-Mode=COMPLIANCE", None), none);
        assert_eq!(code("", Some(("x-amz-bucket-object-lock-enabled", "true"))), none);
        assert_eq!(code("", Some(("x-amz-bucket-object-lock-enabled", "false"))), None);
        assert_eq!(code("", Some(("x-amz-bypass-governance-retention", "true"))), None);
        assert_eq!(code("", Some(("content-md5", ""))), Some(S3ErrorCode::InvalidDigest));
        assert_eq!(code("prefix=x-amz-object-lock-mode", Some(("x-amz-meta-a", "b"))), None);
    }

    #[test]
    fn condition_of_a_change_is_looked_at_or_refused() {
        let is_taken = |operation: &str, target: &str, name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, "x".parse().unwrap());
            check_conditions(operation, &target.parse().unwrap(), &headers).is_ok()
        };
        assert!(is_taken("GetObject", "/b/k", "if-range"));
        assert!(is_taken("PutObject", "/b/k", "if-none-match"));
        assert!(!is_taken("PutObject", "/b/k", "if-unmodified-since"));
        assert!(is_taken("DeleteObject", "/b/k", "if-match"));
        assert!(!is_taken("DeleteObject", "/b/k", "if-none-match"));
        assert!(!is_taken("DeleteBucket", "/b", "if-match"));
        assert!(!is_taken("DeleteObject", "/b/k?X-Amz-If-Match-Size=1", "host"));
        assert!(is_taken("CopyObject", "/b/k", "x-amz-copy-source-if-match"));
    }

    #[test]
    fn bucket_of_another_owner_is_not_served() {
        let denied = Some(S3ErrorCode::AccessDenied);
        assert_eq!(code("", Some(("x-amz-expected-bucket-owner", "111122223333"))), denied);
        assert_eq!(code("", Some(("x-amz-source-expected-bucket-owner", "a"))), denied);
        assert_eq!(code("", Some(("x-amz-expected-bucket-owner", OWNER))), None);
    }
}
