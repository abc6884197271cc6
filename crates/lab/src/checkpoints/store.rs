//! An emulated storage service: an S3 server in memory whose writes and reads have a rate. Both
//! policies store into it with the product's own client.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::pace::StoreRate;
use crate::failure::{Exit, Failure, FailureKind};

/// The bucket, which exists.
pub(crate) const BUCKET: &str = "lab";

/// Bytes that pass at once when an object is read: at the slowest rate, 35.9 MB/s, 7 ms. Chosen,
/// not measured.
const PIECE_BYTES: usize = 256 << 10;

/// A running store. Dropping it ends it, and everything in it.
#[derive(Debug)]
pub(crate) struct EmulatedStore {
    /// Its address, for `AWS_ENDPOINT_URL`.
    pub(crate) endpoint: String,
    stored: Arc<LabBucket>,
    served: JoinHandle<()>,
}

/// What is stored.
#[derive(Debug)]
struct LabBucket {
    writes: StoreRate,
    reads: StoreRate,
    /// Requests that write or list, which cost most.
    requests: AtomicU64,
    state: Mutex<LabObjects>,
}

#[derive(Debug, Default)]
struct LabObjects {
    objects: BTreeMap<String, LabObject>,
    uploads: HashMap<String, BTreeMap<u32, LabObject>>,
    /// Counts versions and uploads.
    count: u64,
}

#[derive(Debug, Clone)]
struct LabObject {
    bytes: Bytes,
    e_tag: String,
}

type Parameters = HashMap<String, String>;

impl EmulatedStore {
    /// Starts a store that takes, and gives, so many bytes per second.
    ///
    /// # Errors
    /// There is no free port.
    pub(crate) async fn start(bytes_per_second: f64) -> Result<Self, Failure> {
        let failed = |error| Failure::caused(Exit::Failure, FailureKind::NotStarted, error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let stored = Arc::new(LabBucket {
            writes: StoreRate::new(bytes_per_second),
            reads: StoreRate::new(bytes_per_second),
            requests: AtomicU64::new(0),
            state: Mutex::default(),
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&stored));
        let served = tokio::spawn(async move {
            // It ends with the lab, which sees the failures of its clients.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { endpoint: format!("http://{address}"), stored, served })
    }

    /// Returns how many requests it got so far that write or list: what S3 charges most for. Others
    /// cost less than a tenth of that, and deletions nothing.
    pub(crate) fn requests(&self) -> u64 {
        self.stored.requests.load(Ordering::Relaxed)
    }
}

impl Drop for EmulatedStore {
    fn drop(&mut self) {
        self.served.abort();
    }
}

async fn answer(
    State(stored): State<Arc<LabBucket>>,
    method: Method,
    uri: Uri,
    Query(parameters): Query<Parameters>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let path = uri.path().trim_start_matches('/');
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    if bucket != BUCKET {
        return StatusCode::NOT_FOUND.into_response();
    }
    let key = decoded(key);
    if is_charged(&method, key.is_empty()) {
        stored.requests.fetch_add(1, Ordering::Relaxed);
    }
    let body = match stored.received(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    match (method, key.is_empty()) {
        (Method::GET, true) => stored.list(&parameters),
        (Method::POST, true) => stored.delete_many(&body),
        (Method::PUT, false) => stored.put(key, &parameters, &headers, body),
        (Method::POST, false) => stored.upload(key, &parameters),
        (Method::DELETE, false) => stored.delete(&key, &parameters),
        (Method::GET | Method::HEAD, false) => stored.get(&key, &headers),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}

impl LabBucket {
    fn objects(&self) -> std::sync::MutexGuard<'_, LabObjects> {
        self.state.lock().expect("no holder panics")
    }

    /// Takes a body at the store's rate: what waits stays in the sender's socket.
    async fn received(&self, body: Body) -> Result<Bytes, Response> {
        let mut stream = body.into_data_stream();
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(|_| StatusCode::BAD_REQUEST.into_response())?;
            self.writes.pass(piece.len()).await;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.into())
    }

    fn put(
        &self,
        key: String,
        parameters: &Parameters,
        headers: &HeaderMap,
        bytes: Bytes,
    ) -> Response {
        let mut state = self.objects();
        state.count += 1;
        let e_tag = format!("\"{}\"", state.count);
        let object = LabObject { bytes, e_tag: e_tag.clone() };
        if let Some(upload) = parameters.get("uploadId") {
            let number = parameters.get("partNumber").and_then(|it| it.parse().ok());
            let (Some(parts), Some(number)) = (state.uploads.get_mut(upload), number) else {
                return StatusCode::NOT_FOUND.into_response();
            };
            parts.insert(number, object);
            return [(header::ETAG, e_tag)].into_response();
        }
        let found = state.objects.get(&key).map(|it| it.e_tag.clone());
        let seen = headers.get(header::IF_MATCH).and_then(|it| it.to_str().ok());
        let is_refused = headers.contains_key(header::IF_NONE_MATCH) && found.is_some()
            || seen.is_some() && found.as_deref() != seen;
        if is_refused {
            return StatusCode::PRECONDITION_FAILED.into_response();
        }
        state.objects.insert(key, object);
        [(header::ETAG, e_tag)].into_response()
    }

    /// Begins or completes an upload in parts.
    fn upload(&self, key: String, parameters: &Parameters) -> Response {
        let mut state = self.objects();
        state.count += 1;
        let number = state.count;
        let Some(upload) = parameters.get("uploadId") else {
            state.uploads.insert(number.to_string(), BTreeMap::new());
            let id = format!("<UploadId>{number}</UploadId>");
            return xml("InitiateMultipartUploadResult", &id);
        };
        let Some(parts) = state.uploads.remove(upload) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let parts: Vec<Bytes> = parts.into_values().map(|part| part.bytes).collect();
        let e_tag = format!("\"{number}\"");
        state.objects.insert(key, LabObject { bytes: parts.concat().into(), e_tag: e_tag.clone() });
        xml("CompleteMultipartUploadResult", &format!("<ETag>{e_tag}</ETag>"))
    }

    fn delete(&self, key: &str, parameters: &Parameters) -> Response {
        let mut state = self.objects();
        match parameters.get("uploadId") {
            Some(upload) => state.uploads.remove(upload).is_some(),
            None => state.objects.remove(key).is_some(),
        };
        StatusCode::NO_CONTENT.into_response()
    }

    fn delete_many(&self, body: &[u8]) -> Response {
        let text = String::from_utf8_lossy(body);
        let mut state = self.objects();
        let mut deleted = String::new();
        for rest in text.split("<Key>").skip(1) {
            let key = rest.split("</Key>").next().unwrap_or_default();
            state.objects.remove(key);
            deleted += &format!("<Deleted><Key>{key}</Key></Deleted>");
        }
        xml("DeleteResult", &deleted)
    }

    fn list(&self, parameters: &Parameters) -> Response {
        let parameter = |name: &str| parameters.get(name).map_or("", String::as_str);
        let (prefix, delimiter) = (parameter("prefix"), parameter("delimiter"));
        let mut body = String::from("<IsTruncated>false</IsTruncated>");
        let mut directories = BTreeSet::new();
        for (key, object) in &self.objects().objects {
            let Some(rest) = key.strip_prefix(prefix) else { continue };
            if key.as_str() <= parameter("start-after") {
                continue;
            }
            if !delimiter.is_empty()
                && let Some((directory, _)) = rest.split_once(delimiter)
            {
                directories.insert(format!("{prefix}{directory}{delimiter}"));
                continue;
            }
            body += &format!(
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>{}</ETag><Size>{}</Size></Contents>",
                object.e_tag,
                object.bytes.len()
            );
        }
        for directory in directories {
            body += &format!("<CommonPrefixes><Prefix>{directory}</Prefix></CommonPrefixes>");
        }
        xml("ListBucketResult", &body)
    }

    fn get(self: &Arc<Self>, key: &str, headers: &HeaderMap) -> Response {
        let Some(object) = self.objects().objects.get(key).cloned() else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let all = object.bytes.len();
        let range = headers.get(header::RANGE).and_then(|it| range_of(it.to_str().ok()?, all));
        let (begin, end) = range.unwrap_or((0, all));
        let bytes = object.bytes.slice(begin..end);
        let response = Response::builder()
            .header(header::ETAG, object.e_tag)
            .header(header::LAST_MODIFIED, httpdate::fmt_http_date(SystemTime::now()))
            .header(header::CONTENT_LENGTH, bytes.len());
        let response = match range {
            Some(_) => response
                .status(StatusCode::PARTIAL_CONTENT)
                .header(header::CONTENT_RANGE, format!("bytes {begin}-{}/{all}", end - 1)),
            None => response,
        };
        response.body(self.paced(bytes)).expect("the headers are valid")
    }

    /// Gives bytes at the store's rate.
    fn paced(self: &Arc<Self>, bytes: Bytes) -> Body {
        let stored = Arc::clone(self);
        Body::from_stream(stream::unfold((stored, bytes), |(stored, mut bytes)| async move {
            if bytes.is_empty() {
                return None;
            }
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            stored.reads.pass(piece.len()).await;
            Some((Ok::<_, std::io::Error>(piece), (stored, bytes)))
        }))
    }
}

/// Returns whether S3 charges for a request as for one that writes ("Amazon S3 pricing": PUT, COPY,
/// POST and LIST). The deletion of several objects is a POST that is free.
fn is_charged(method: &Method, is_of_bucket: bool) -> bool {
    match *method {
        Method::PUT => true,
        Method::POST => !is_of_bucket,
        Method::GET => is_of_bucket,
        _ => false,
    }
}

fn xml(name: &str, body: &str) -> Response {
    let text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{name}>{body}</{name}>");
    ([(header::CONTENT_TYPE, "application/xml")], text).into_response()
}

/// Reads `bytes=BEGIN-END`, both included.
fn range_of(text: &str, all: usize) -> Option<(usize, usize)> {
    let (begin, end) = text.strip_prefix("bytes=")?.split_once('-')?;
    let begin = begin.parse().ok()?;
    let end = end.parse::<usize>().map_or(all, |last| (last + 1).min(all));
    (begin < end).then_some((begin, end))
}

/// Decodes the escapes of a path.
fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|it| std::str::from_utf8(it).ok());
        let escaped = digits.and_then(|it| u8::from_str_radix(it, 16).ok());
        match (byte, escaped) {
            (b'%', Some(escaped)) => {
                bytes.push(escaped);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_write_or_list_are_charged() {
        assert!(is_charged(&Method::PUT, false) && is_charged(&Method::POST, false));
        assert!(is_charged(&Method::GET, true) && !is_charged(&Method::GET, false));
        assert!(!is_charged(&Method::POST, true) && !is_charged(&Method::DELETE, false));
    }

    #[test]
    fn paths_and_ranges_are_read() {
        assert_eq!(decoded("a%20b/%2Fc%"), "a b//c%");
        assert_eq!(range_of("bytes=2-4", 10), Some((2, 5)));
        assert_eq!(range_of("bytes=2-", 10), Some((2, 10)));
        assert_eq!(range_of("bytes=8-20", 10), Some((8, 10)));
        assert_eq!(range_of("bytes=9-3", 10), None);
    }
}
