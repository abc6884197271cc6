//! Requests that s3s does not read as S3 does. One service checks their signature, over what came;
//! then they are mended, and a second service, which takes the first one's word, reads them.

use std::time::Duration;

use ::md5::{Digest, Md5};
use bytes::Bytes;
use futures_util::StreamExt;
use hyper::http::Extensions;
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method, Request, Uri, header};
use s3s::route::S3Route;
use s3s::service::S3Service;
use s3s::{Body, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::bucket_address::Domains;
use crate::digest::check_sums;
use crate::keys::{AccessKeys, Verified};
use crate::percent::decode;
use crate::refused::body_error;
use crate::slow_client::Lateness;
use crate::{ranges, xml};

/// Longest XML body in bytes: ten thousand parts, with checksums. A part with its checksums has
/// some 400 bytes, so they take half of it.
pub(crate) const XML_BYTES_MAX: usize = 8 << 20;

/// Most bytes of a longer one that are taken and thrown away: a client that still writes when the
/// connection ends does not see why. Eight times the longest body. Chosen, not measured.
const LEFT_BYTES_MAX: usize = 64 << 20;

/// How long that may take: 64 MiB at 256 Mbit/s, and a lost packet is sent again within it. Chosen,
/// not measured.
const LEFT_TIMEOUT: Duration = Duration::from_secs(2);

/// What of an object is written as XML.
const SUBRESOURCES: [&str; 5] = ["acl", "legal-hold", "retention", "tagging", "torrent"];

/// The fields of a URL that belong to its signature.
const SIGNING: [&str; 7] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
];

/// Mends requests and lets `reads` answer them.
pub(crate) struct Mending {
    pub(crate) reads: S3Service,
    pub(crate) keys: AccessKeys,
    pub(crate) domains: Domains,
}

#[async_trait::async_trait]
impl S3Route for Mending {
    fn is_match(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        _extensions: &mut Extensions,
    ) -> bool {
        has_other_range(method, headers) || self.has_xml(method, uri, headers)
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        let access_key = request.credentials.as_ref().map(|it| it.access_key.as_str());
        self.keys.grant(access_key, &request.uri, &request.headers).map(|_| ())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let has_xml = self.has_xml(&request.method, &request.uri, &request.headers);
        let access_key = request.credentials.map(|it| it.access_key).unwrap_or_default();
        let mut body = request.input;
        let mut headers = request.headers;
        if has_xml {
            let text = gathered(body, &headers, &Lateness::of(&request.extensions)).await?;
            check_md5(&headers, &text)?;
            if !is_completion(&request.method, &request.uri) {
                check_sums(&headers, request.trailing_headers, &text)?;
            }
            let text = mended(text)?;
            headers.insert(header::CONTENT_LENGTH, text.len().into());
            headers.remove(header::TRANSFER_ENCODING);
            body = Body::from(text);
        }
        mend_range(&request.method, &mut headers);
        for name in ["authorization", "x-amz-content-sha256", "x-amz-decoded-content-length"] {
            headers.remove(name);
        }
        let mut mended = Request::new(body);
        *mended.method_mut() = request.method;
        *mended.uri_mut() = unsigned(&request.uri);
        *mended.headers_mut() = headers;
        *mended.extensions_mut() = request.extensions;
        mended.extensions_mut().insert(Verified(access_key));
        let answer = self
            .reads
            .call(mended)
            .await
            .map_err(|error| S3Error::with_source(S3ErrorCode::InternalError, error.into()))?;
        let (head, body) = answer.into_parts();
        let mut answer = S3Response::with_status(body, head.status);
        (answer.headers, answer.extensions) = (head.headers, head.extensions);
        Ok(answer)
    }
}

impl Mending {
    fn has_xml(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        match *method {
            Method::POST => true,
            Method::PUT => {
                let is_object = self.domains.place(uri, headers).is_some_and(|it| it.has_key);
                !is_object || names_of(uri).any(|name| SUBRESOURCES.contains(&name.as_str()))
            }
            _ => false,
        }
    }
}

fn names_of(uri: &Uri) -> impl Iterator<Item = String> {
    let fields = uri.query().unwrap_or_default().split('&');
    fields.filter_map(|field| decode(field.split('=').next().unwrap_or_default()))
}

/// Returns whether a request completes an upload: the checksums in its headers are the object's.
fn is_completion(method: &Method, uri: &Uri) -> bool {
    method == Method::POST && names_of(uri).any(|name| name == "uploadId")
}

/// Returns a URI without the fields of a signature.
fn unsigned(uri: &Uri) -> Uri {
    let fields = uri.query().unwrap_or_default().split('&').filter(|field| {
        let name = decode(field.split('=').next().unwrap_or_default()).unwrap_or_default();
        !field.is_empty() && !SIGNING.contains(&name.as_str())
    });
    let fields: Vec<&str> = fields.collect();
    let path = match fields.as_slice() {
        [] => uri.path().to_owned(),
        fields => format!("{}?{}", uri.path(), fields.join("&")),
    };
    let mut parts = uri.clone().into_parts();
    let cut: Option<PathAndQuery> = path.parse().ok();
    parts.path_and_query = cut.or(parts.path_and_query);
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// Returns the text of the header `Range`, if there is one and it is not read alike by s3s.
fn other_range(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::RANGE)?.to_str().unwrap_or_default();
    (s3s::dto::Range::parse(text).ok() != ranges::parse(text) || ranges::parse(text).is_none())
        .then_some(text)
}

fn has_other_range(method: &Method, headers: &HeaderMap) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && other_range(headers).is_some()
}

/// Writes a range as s3s reads it, and takes away what is none.
fn mend_range(method: &Method, headers: &mut HeaderMap) {
    if !has_other_range(method, headers) {
        return;
    }
    let range = other_range(headers).and_then(ranges::parse);
    match range.and_then(|range| range.to_header_string().parse().ok()) {
        Some(text) => drop(headers.insert(header::RANGE, text)),
        None => drop(headers.remove(header::RANGE)),
    }
}

/// Takes all of a body that is XML.
async fn gathered(mut body: Body, headers: &HeaderMap, lateness: &Lateness) -> S3Result<Bytes> {
    let mut all = Vec::new();
    let mut is_long = is_announced_long(headers);
    while !is_long && let Some(piece) = body.next().await {
        let piece = piece.map_err(|error| body_error(&error.to_string(), lateness))?;
        is_long = all.len() + piece.len() > XML_BYTES_MAX;
        all.extend_from_slice(&piece);
    }
    if !is_long {
        return Ok(all.into());
    }
    drop(all);
    let _is_out_of_time = tokio::time::timeout(LEFT_TIMEOUT, leave(body)).await;
    Err(too_long())
}

/// Returns whether a request announces a longer body: as it is, or without the framing of its
/// chunks.
fn is_announced_long(headers: &HeaderMap) -> bool {
    let names = ["content-length", "x-amz-decoded-content-length"];
    let lengths = names.into_iter().filter_map(|name| headers.get(name)?.to_str().ok());
    let mut lengths = lengths.filter_map(|text| text.parse::<u64>().ok());
    lengths.any(|bytes| bytes > XML_BYTES_MAX as u64)
}

async fn leave(mut body: Body) {
    let mut left = LEFT_BYTES_MAX;
    while let Some(Ok(piece)) = body.next().await {
        match left.checked_sub(piece.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

fn too_long() -> S3Error {
    let message = format!("the body of such a request has at most {XML_BYTES_MAX} bytes");
    S3Error::with_message(S3ErrorCode::MaxMessageLengthExceeded, message)
}

fn check_md5(headers: &HeaderMap, text: &[u8]) -> S3Result<()> {
    let Some(sent) = headers.get("content-md5") else { return Ok(()) };
    match base64_simd::STANDARD.decode_to_vec(sent.as_bytes().trim_ascii()) {
        Ok(sent) if sent.as_slice() == Md5::digest(text).as_slice() => Ok(()),
        Ok(sent) if sent.len() == 16 => Err(S3ErrorCode::BadDigest.into()),
        _ => Err(S3ErrorCode::InvalidDigest.into()),
    }
}

fn mended(text: Bytes) -> S3Result<Bytes> {
    match xml::mended(&text) {
        std::borrow::Cow::Borrowed(_) => Ok(text),
        std::borrow::Cow::Owned(text) if text.len() > XML_BYTES_MAX => Err(too_long()),
        std::borrow::Cow::Owned(text) => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_signature_are_removed_from_a_url() {
        let of = |text: &str| unsigned(&text.parse().unwrap()).to_string();
        assert_eq!(of("/b/k"), "/b/k");
        assert_eq!(of("/b/k?tagging"), "/b/k?tagging");
        assert_eq!(of("/b/k?X-Amz-Signature=a&tagging=&X%2DAmz-Date=b"), "/b/k?tagging=");
        assert_eq!(of("/b/k?X-Amz-Signature=a"), "/b/k");
        assert_eq!(of("/b/k?prefix=X-Amz-Signature"), "/b/k?prefix=X-Amz-Signature");
    }

    #[test]
    fn checksums_of_a_completion_are_those_of_its_object() {
        let of = |method: Method, text: &str| is_completion(&method, &text.parse().unwrap());
        assert!(of(Method::POST, "/b/k?uploadId=1") && of(Method::POST, "/b/k?a&upload%49d=1"));
        assert!(!of(Method::POST, "/b?delete") && !of(Method::PUT, "/b/k?tagging&uploadId=1"));
    }

    #[test]
    fn long_body_is_refused_by_what_it_announces() {
        let of = |name: &'static str, bytes: usize| {
            let mut headers = HeaderMap::new();
            headers.insert(name, bytes.into());
            is_announced_long(&headers)
        };
        for name in ["content-length", "x-amz-decoded-content-length"] {
            assert!(of(name, XML_BYTES_MAX + 1) && !of(name, XML_BYTES_MAX), "{name}");
        }
        assert!(!is_announced_long(&HeaderMap::new()));
    }

    #[test]
    fn range_is_written_as_it_is_read() {
        let mend = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, text.parse().unwrap());
            mend_range(&Method::GET, &mut headers);
            headers.get(header::RANGE).map(|it| it.to_str().unwrap().to_owned())
        };
        assert_eq!(mend("bytes=1-2").as_deref(), Some("bytes=1-2"));
        assert_eq!(mend("Bytes= 1-2").as_deref(), Some("bytes=1-2"));
        assert_eq!(mend("bytes=0-1,3-4"), None);
        let far = "bytes=1-99999999999999999999";
        assert_eq!(mend(far).as_deref(), Some("bytes=1-9223372036854775807"));
    }
}
