//! Copies that take long. As S3 does, the gateway then begins the answer with status 200 before the
//! copy ends, and sends white space, so that a client which gives up after seconds of silence stays
//! (S3, `CopyObject`: "a 200 OK response can contain either a success or an error"). s3s does this
//! for `CompleteMultipartUpload` alone.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::CatchUnwind;
use futures_util::{FutureExt, stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::Extensions;
use hyper::{HeaderMap, Response};
use s3s::{Body, HttpError, S3Error, S3ErrorCode, StdError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::request_record::RequestRecord;

/// How long a copy may take before its answer begins. The AWS SDK for C++, which pyarrow uses,
/// gives a connection up after 3 s of silence: a third of it leaves time for a busy machine.
const BEGIN_AFTER: Duration = Duration::from_secs(1);

/// Time between two pieces of white space, for the same reason: as long as [`BEGIN_AFTER`].
const WHITE_SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// A piece of white space. That SDK counts less than 1 byte/s, averaged over some seconds and
/// rounded down, as silence (`CURLOPT_LOW_SPEED_LIMIT` of libcurl): one byte would be just too few.
const WHITE_SPACE: &[u8] = &[b' '; 64];

/// What each document of s3s begins with. White space may not be in front of it, so it is sent
/// first, and left out of the document that follows.
const DECLARATION: &[u8] = br#"<?xml version="1.0" encoding="UTF-8"?>"#;

/// What answers a request in the end.
type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, HttpError>> + Send>>;

/// A piece of a body.
type Piece = Result<Frame<Bytes>, StdError>;

/// The moment from which the answer to a copy may begin; among the extensions of its request.
/// Before, the request may still be refused for what it is, with the status of the refusal.
#[derive(Debug, Clone, Default)]
pub(crate) struct CopyStart(Arc<CopyStartState>);

#[derive(Debug, Default)]
struct CopyStartState {
    begun: Notify,
    headers: OnceLock<HeaderMap>,
}

impl CopyStart {
    /// Returns that of a request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    /// Sets headers that an answer has which begins early: those for pages of other origins.
    pub(crate) fn set_headers(&self, headers: &HeaderMap) {
        self.0.headers.get_or_init(|| headers.clone());
    }

    /// Notes that the signature, the rights and the source are checked: bytes are copied now.
    pub(crate) fn begin(&self) {
        self.0.begun.notify_one();
    }
}

/// An answer, complete or begun.
pub(crate) enum CopyAnswer {
    /// The copy has ended, or was refused.
    Complete(Response<Body>),
    /// The copy goes on while the body is sent, and is given up when the body is dropped.
    Begun(Response<Body>),
}

/// Answers a copy: with the status of its end if it ends soon, else with an answer that begins
/// before. One that takes longer than `within` is given up.
///
/// # Errors
/// [`HttpError`] of `answering`: hyper closes the connection.
pub(crate) async fn answer(
    record: RequestRecord,
    start: &CopyStart,
    within: Duration,
    mut answering: Answering,
) -> Result<CopyAnswer, HttpError> {
    let may_begin = async {
        sleep_until(record.began() + BEGIN_AFTER).await;
        start.0.begun.notified().await;
    };
    tokio::select! {
        biased;
        answer = &mut answering => return Ok(CopyAnswer::Complete(record.complete(answer?))),
        () = may_begin => {}
    }
    let give_up_at = record.began() + within;
    let answering = AssertUnwindSafe(answering).catch_unwind();
    let copy = SlowCopy { answering, give_up_at, record };
    Ok(CopyAnswer::Begun(begun(copy, start)))
}

/// Returns the answer to a copy that goes on.
fn begun(copy: SlowCopy, start: &CopyStart) -> Response<Body> {
    let mut answer = copy.record.finish_head(Response::new(Body::empty()));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    headers.extend(start.0.headers.get().cloned().unwrap_or_default());
    let pieces = stream::unfold(CopyBody::Declaration(copy), CopyBody::next_piece);
    *answer.body_mut() = Body::http_body_unsync(StreamBody::new(pieces));
    answer
}

/// A copy whose answer has begun.
struct SlowCopy {
    answering: CatchUnwind<AssertUnwindSafe<Answering>>,
    give_up_at: Instant,
    record: RequestRecord,
}

/// What is to be sent of the answer to a copy.
enum CopyBody {
    Declaration(SlowCopy),
    Document(SlowCopy),
    Nothing,
}

impl CopyBody {
    /// Returns the next piece, and what comes after it.
    async fn next_piece(self) -> Option<(Piece, Self)> {
        let (piece, rest) = match self {
            Self::Declaration(copy) => (Bytes::from_static(DECLARATION), Self::Document(copy)),
            Self::Document(mut copy) => match copy.document().await {
                Some(document) => (document, Self::Nothing),
                None => (Bytes::from_static(WHITE_SPACE), Self::Document(copy)),
            },
            Self::Nothing => return None,
        };
        Some((Ok(Frame::data(piece)), rest))
    }
}

impl SlowCopy {
    /// Waits for the end of the copy. Returns its document without a declaration, or `None` when it
    /// is time for white space.
    async fn document(&mut self) -> Option<Bytes> {
        let answered = tokio::select! {
            biased;
            answered = &mut self.answering => answered,
            () = sleep_until(self.give_up_at) => {
                let message = "the copy takes too long and is given up: copy the object in parts";
                return Some(self.document_of(failure(S3ErrorCode::SlowDown, message)));
            }
            () = sleep(WHITE_SPACE_INTERVAL) => return None,
        };
        let message = "the copy failed inside the gateway: send the request again";
        Some(self.document_of(match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::warn!(request_id = self.record.id(), ?error, "a copy has no answer");
                failure(S3ErrorCode::InternalError, message)
            }
            Err(_) => {
                tracing::error!(request_id = self.record.id(), "a copy panicked");
                failure(S3ErrorCode::InternalError, message)
            }
        }))
    }

    /// Returns the document of an answer. The metrics and the log have its status, which the client
    /// does not get any more.
    fn document_of(&self, answer: Response<Body>) -> Bytes {
        let text = self.record.complete(answer).body().bytes().unwrap_or_default();
        if text.starts_with(DECLARATION) { text.slice(DECLARATION.len()..) } else { text }
    }
}

fn failure(code: S3ErrorCode, message: &'static str) -> Response<Body> {
    let answer = S3Error::with_message(code, message).to_http_response();
    answer.expect("a code and a message are written as XML")
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use hyper::{Method, StatusCode};
    use tokio::sync::oneshot::{self, Receiver, Sender};

    use super::*;
    use crate::metrics::GatewayMetrics;

    const LONG: Duration = Duration::from_secs(3600);

    fn record() -> RequestRecord {
        let metrics = Arc::new(GatewayMetrics::new());
        RequestRecord::begin("AB".to_owned(), Method::PUT, "/b/k".to_owned(), metrics)
    }

    fn refusal(code: S3ErrorCode) -> Response<Body> {
        S3Error::from(code).to_http_response().unwrap()
    }

    async fn answered(end: Receiver<()>) -> Result<Response<Body>, HttpError> {
        drop(end.await);
        let text = [DECLARATION, b"<CopyObjectResult></CopyObjectResult>"].concat();
        let mut answer = Response::new(Body::from(text));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        Ok(answer)
    }

    async fn refused(end: Receiver<()>) -> Result<Response<Body>, HttpError> {
        drop(end.await);
        Ok(refusal(S3ErrorCode::NoSuchBucket))
    }

    async fn failed(end: Receiver<()>) -> Result<Response<Body>, HttpError> {
        drop(end.await);
        Err(HttpError::new("no answer".into()))
    }

    async fn panicked(end: Receiver<()>) -> Result<Response<Body>, HttpError> {
        drop(end.await);
        panic!("on purpose")
    }

    /// Begins the answer to a copy that goes on until the first of these is sent.
    async fn begin(
        within: Duration,
        copy: impl FnOnce(Receiver<()>) -> Answering,
    ) -> (Sender<()>, Response<Body>) {
        let start = CopyStart::default();
        start.begin();
        let (end, ended) = oneshot::channel();
        match answer(record(), &start, within, copy(ended)).await.unwrap() {
            CopyAnswer::Begun(answer) => (end, answer),
            CopyAnswer::Complete(answer) => panic!("{} too early", answer.status()),
        }
    }

    /// Ends a copy after the first white space, and returns the document behind it.
    async fn document(copy: impl FnOnce(Receiver<()>) -> Answering) -> String {
        let (end, mut answer) = begin(LONG, copy).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["x-amz-request-id"], "AB");
        assert_eq!(answer.headers()[CONTENT_TYPE], "application/xml");
        for expected in [DECLARATION, WHITE_SPACE] {
            let frame = answer.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), expected);
        }
        end.send(()).unwrap();
        let rest = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(rest.to_vec()).unwrap().trim_start().to_owned()
    }

    #[tokio::test]
    async fn copy_that_takes_long_is_answered_after_white_space() {
        let text = document(|end| Box::pin(answered(end))).await;
        assert_eq!(text, "<CopyObjectResult></CopyObjectResult>");
    }

    #[tokio::test]
    async fn error_that_comes_late_is_the_document() {
        let rest = "<Resource>/b/k</Resource><RequestId>AB</RequestId></Error>";
        let text = document(|end| Box::pin(refused(end))).await;
        let error = "<Error><Code>NoSuchBucket</Code><Message>there is no such bucket</Message>";
        assert_eq!(text, format!("{error}{rest}"));
        for text in [
            document(|end| Box::pin(failed(end))).await,
            document(|end| Box::pin(panicked(end))).await,
        ] {
            assert!(text.starts_with("<Error><Code>InternalError</Code><Message>"), "{text}");
            assert!(text.ends_with(rest), "{text}");
        }
    }

    #[tokio::test]
    async fn copy_that_takes_too_long_is_given_up() {
        let (end, answer) = begin(Duration::ZERO, |end| Box::pin(answered(end))).await;
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(text.starts_with(&[DECLARATION, b"<Error><Code>SlowDown</Code>"].concat()));
        assert!(end.is_closed());
    }

    #[tokio::test]
    async fn copy_of_a_client_that_has_gone_is_given_up() {
        let (end, answer) = begin(LONG, |end| Box::pin(answered(end))).await;
        assert!(!end.is_closed());
        drop(answer);
        assert!(end.is_closed());
    }

    #[tokio::test]
    async fn request_that_copies_nothing_yet_keeps_its_status() {
        let start = CopyStart::default();
        let record = record();
        let refused_at = record.began() + 2 * BEGIN_AFTER;
        let answering = Box::pin(async move {
            sleep_until(refused_at).await;
            Ok(refusal(S3ErrorCode::AccessDenied))
        });
        match answer(record, &start, LONG, answering).await.unwrap() {
            CopyAnswer::Complete(answer) => assert_eq!(answer.status(), StatusCode::FORBIDDEN),
            CopyAnswer::Begun(_) => panic!("it was refused"),
        }
    }
}
