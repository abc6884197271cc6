//! How requests may be signed: what the library accepts beyond that is refused.

use std::borrow::Cow;

use hyper::header::AUTHORIZATION;
use hyper::{HeaderMap, Uri};
use s3s::{S3Error, S3ErrorCode, S3Result};

use crate::percent::decode;

/// The longest time for which a presigned URL holds, in seconds: a week, as of S3 ("Authenticating
/// requests: using query parameters").
const EXPIRES_SECONDS_MAX: u64 = 604_800;

/// Checks how a request is signed, whose signature is right: with version 4, and with the `Host`
/// among the headers that it signs, so that it is not sent to another server.
///
/// # Errors
/// `InvalidRequest` for version 2, `AccessDenied` without the host,
/// `AuthorizationQueryParametersError` for a URL that holds for more than a week.
pub(crate) fn check(uri: &Uri, headers: &HeaderMap) -> S3Result<()> {
    let fields: Vec<(Cow<'_, str>, &str)> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .map(|field| field.split_once('=').unwrap_or((field, "")))
        .map(|(name, value)| (decoded(name), value))
        .collect();
    // All fields of a name: which of them the library takes does not matter then.
    let query = |wanted: &'static str| {
        fields.iter().filter(move |(name, _)| name == wanted).map(|(_, value)| *value)
    };
    let authorization = headers.get(AUTHORIZATION).map(|it| it.to_str().unwrap_or_default());
    if authorization.is_some_and(|it| it.starts_with("AWS "))
        || query("AWSAccessKeyId").next().is_some()
    {
        let message = "signatures of version 2 are not accepted: use AWS4-HMAC-SHA256";
        return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message));
    }
    let of_header = authorization.and_then(|it| it.split_once("SignedHeaders="));
    let of_header = of_header.map(|(_, rest)| rest.split(',').next().unwrap_or_default().trim());
    let mut signed = query("X-Amz-SignedHeaders").map(decoded).chain(of_header.map(Cow::Borrowed));
    if signed.any(|names| !names.split(';').any(|name| name == "host")) {
        let message = "the signature does not cover the header host";
        return Err(S3Error::with_message(S3ErrorCode::AccessDenied, message));
    }
    let is_short = |seconds: &str| seconds.parse().is_ok_and(|it: u64| it <= EXPIRES_SECONDS_MAX);
    if !query("X-Amz-Expires").all(is_short) {
        let message = format!("X-Amz-Expires is at most {EXPIRES_SECONDS_MAX} seconds");
        let code = S3ErrorCode::from_bytes(b"AuthorizationQueryParametersError");
        return Err(S3Error::with_message(code.unwrap_or(S3ErrorCode::InvalidRequest), message));
    }
    Ok(())
}

/// Returns a field of a query with its escapes resolved.
fn decoded(text: &str) -> Cow<'_, str> {
    decode(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(query: &str, authorization: Option<&str>) -> bool {
        let uri: Uri = format!("/b/k?{query}").parse().unwrap();
        let mut headers = HeaderMap::new();
        if let Some(text) = authorization {
            headers.insert(AUTHORIZATION, text.parse().unwrap());
        }
        check(&uri, &headers).is_err()
    }

    #[test]
    fn only_version_four_with_the_host_and_for_a_week_is_accepted() {
        let of = |signed: &str| {
            format!("AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders={signed}, Signature=c")
        };
        assert!(!refused("", Some(&of("host;x-amz-date"))));
        assert!(refused("", Some(&of("x-amz-date"))));
        assert!(refused("", Some(&of("hosts;x-host"))));
        assert!(refused("X-Amz-SignedHeaders=host", Some(&of("x-amz-date"))));
        assert!(refused("", Some("AWS key:signature")));
        assert!(refused("AWSAccessKeyId=a&Signature=b&Expires=1", None));
        let url = |more: &str| format!("X-Amz-Signature=a&{more}");
        assert!(!refused(&url("X-Amz-SignedHeaders=host&X-Amz-Expires=604800"), None));
        assert!(!refused(&url("X-Amz-SignedHeaders=host%3Bx-amz-date&X-Amz-Expires=1"), None));
        assert!(refused(&url("X-Amz-SignedHeaders=x-amz-date&X-Amz-Expires=1"), None));
        assert!(refused(&url("X-Amz-SignedHeaders=host&X-Amz-Expires=604801"), None));
        assert!(refused(&url("X-Amz-SignedHeaders=host&X%2DAmz%2dExpires=9999999"), None));
        assert!(refused(&url("X-Amz-SignedHeaders=host&X-Amz-Expires=1e3"), None));
        assert!(refused(&url("X-Amz-Expires=1&X-Amz-Expires=9999999"), None));
    }
}
