//! Answers as S3 gives them: each has an id, and each error has a message and a resource.

use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::{Response, StatusCode, header};
use s3s::Body;

use crate::xml::{escaped, without_controls};

/// The header with an answer's id.
const REQUEST_ID: &str = "x-amz-request-id";

/// With what the body of an error begins, behind its declaration ("REST error responses" of the S3
/// API).
const ERROR: &[u8] = b"<Error>";
/// With what the body of an error ends.
const ERROR_END: &[u8] = b"</Error>";
/// Bytes in which the name of the root stands. The declaration of XML has 38 and the name 20; the
/// rest is for white space.
const ROOT_BYTES_MAX: usize = 80;

/// What ends the code in the body of an error.
const CODE_END: &[u8] = b"</Code>";

/// Draws the ids of answers: no client can choose or guess one.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    seed: RandomState,
    next: AtomicU64,
}

impl Ids {
    /// Returns the next id.
    pub(crate) fn draw(&self) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format!("{:016X}", self.seed.hash_one(number))
    }
}

/// Returns the message of an error that has only a code.
pub(crate) fn message_of(code: &str) -> &'static str {
    match code {
        "AccessDenied" => "the access key does not reach there",
        "BadDigest" => "the bytes do not have the digest that came with them",
        "BucketAlreadyOwnedByYou" => "the bucket is there already",
        "BucketNotEmpty" => "the bucket has keys",
        "EntityTooSmall" => "a part that is not the last has fewer than 5 MiB",
        "IncompleteBody" => "the body ended early, or does not end where it should",
        "InvalidAccessKeyId" => "there is no such access key",
        "InvalidArgument" => "an argument of the request is none",
        "InvalidBucketName" => "a bucket cannot have this name",
        "InvalidDigest" => "the digest that came with the bytes is none",
        "InvalidPart" => "there is no such part, or it has another tag",
        "InvalidPartOrder" => "the parts are not in the order of their numbers",
        "InvalidURI" => "the URI cannot be read",
        "KeyTooLongError" => "a key has at most 1024 bytes",
        "MalformedXML" => "the XML of the body is not that of the operation",
        "MethodNotAllowed" => "nothing here has this method",
        "MissingContentLength" => "the request does not state the length of its body",
        "NoSuchBucket" => "there is no such bucket",
        "NoSuchKey" => "there is no such key",
        "NoSuchUpload" => "there is no such upload: it was completed, given up, or is over",
        "NoSuchVersion" => "there is no such version: objects have the one, null",
        "NotImplemented" => "this store does not do that",
        "PreconditionFailed" => "a condition of the request does not hold",
        "RequestTimeout" => "the body came too slowly",
        "SignatureDoesNotMatch" => "the signature is not that of this request by this access key",
        "SlowDown" | "ServiceUnavailable" => "try again",
        _ => "the request was refused: its code has the reason",
    }
}

/// Gives an answer its id, an error what it lacks, and XML what it can hold.
pub(crate) fn finish(answer: Response<Body>, id: &str, resource: &str) -> Response<Body> {
    let (mut head, mut body) = answer.into_parts();
    let is_xml = head.headers.get(header::CONTENT_TYPE).is_some_and(|it| it == "application/xml");
    // What is streamed is an object's bytes: they are not looked at.
    if let Some(text) = body.bytes().filter(|text| is_xml && !text.is_empty()) {
        let is_error = head.status.is_client_error() || head.status.is_server_error();
        let completed =
            if is_error { completed(&text, id, resource) } else { without_quotes(&text) };
        let written = without_controls(completed.as_deref().unwrap_or(&text));
        match (written, &completed) {
            (Cow::Owned(text), _) => body = Body::from(text),
            (Cow::Borrowed(text), Some(_)) => body = Body::from(text.to_vec()),
            (Cow::Borrowed(_), None) => {}
        }
        head.headers.remove(header::CONTENT_LENGTH);
    }
    if head.status == StatusCode::NOT_MODIFIED {
        body = Body::empty();
    }
    let id = header::HeaderValue::from_str(id).expect("an id is hexadecimal");
    head.headers.insert(REQUEST_ID, id);
    Response::from_parts(head, body)
}

/// Returns the XML of an error with all fields of S3.
fn completed(text: &[u8], id: &str, resource: &str) -> Option<Vec<u8>> {
    let begin = find(text, ERROR)? + ERROR.len();
    let inside = text[begin..].strip_suffix(ERROR_END)?;
    let code_end = find(inside, CODE_END)? + CODE_END.len();
    let mut all = text[..begin + code_end].to_vec();
    if find(inside, b"<Message>").is_none() {
        let code = inside[..code_end - CODE_END.len()].strip_prefix(b"<Code>")?;
        let message = message_of(std::str::from_utf8(code).ok()?);
        all.extend_from_slice(format!("<Message>{message}</Message>").as_bytes());
    }
    all.extend_from_slice(&inside[code_end..]);
    let resource = escaped(resource);
    let rest = format!("<Resource>{resource}</Resource><RequestId>{id}</RequestId>");
    all.extend_from_slice(rest.as_bytes());
    all.extend_from_slice(ERROR_END);
    Some(all)
}

/// Takes the quotes off the tag in the answer of `GetObjectAttributes`: there alone S3 has none.
fn without_quotes(text: &[u8]) -> Option<Vec<u8>> {
    find(&text[..text.len().min(ROOT_BYTES_MAX)], b"<GetObjectAttributes")?;
    let begin = find(text, b"<ETag>\"")? + b"<ETag>".len();
    let end = find(text, b"\"</ETag>")?;
    Some([&text[..begin], &text[begin + 1..end], &text[end + 1..]].concat())
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|it| it == part)
}

#[cfg(test)]
mod tests {
    use s3s::{S3Error, S3ErrorCode};

    use super::*;

    fn body_of(error: S3Error) -> String {
        let answer = finish(error.to_http_response().unwrap(), "AB", "/b/<k>");
        assert_eq!(answer.headers()[REQUEST_ID], "AB");
        String::from_utf8(answer.body().bytes().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn error_names_its_code_and_resource() {
        let rest = "<Resource>/b/&lt;k&gt;</Resource><RequestId>AB</RequestId></Error>";
        let bare = body_of(S3ErrorCode::NoSuchKey.into());
        let message = "<Message>there is no such key</Message>";
        assert!(bare.ends_with(&format!("<Code>NoSuchKey</Code>{message}{rest}")), "{bare}");
        let hostile = "</Error><Message>\u{1}";
        let escaped = body_of(S3Error::with_message(S3ErrorCode::InvalidArgument, hostile));
        let message = "<Message>&lt;/Error&gt;&lt;Message&gt;&#x1;</Message>";
        let code = "<Error><Code>InvalidArgument</Code>";
        assert!(escaped.ends_with(&format!("{code}{message}{rest}")), "{escaped}");
    }

    #[test]
    fn tag_among_attributes_has_no_quotes() {
        let text = b"<?xml?><GetObjectAttributesResponse><ETag>\"ab\"</ETag><a/>";
        let bare = b"<?xml?><GetObjectAttributesResponse><ETag>ab</ETag><a/>";
        assert_eq!(without_quotes(text).unwrap(), bare);
        assert_eq!(without_quotes(b"<Other><ETag>\"ab\"</ETag>"), None);
    }

    #[test]
    fn ids_differ() {
        let ids = Ids::default();
        let (first, second) = (ids.draw(), ids.draw());
        assert_ne!(first, second);
        assert_eq!(first.len(), 16);
    }
}
