//! The web console: its files, the stream that it follows, the last hour, and jobs.

use std::convert::Infallible;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use sanderling_console::{Asset, CONTENT_SECURITY_POLICY, asset, assets, version};
use sanderling_core::access::Claims;
use sanderling_protocol::{JobId, Reply, Request};
use sanderling_transport::{HttpConnection, Pass};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::api::{HttpApi, HttpResult, page};
use super::refusal::HttpRefusal;
use crate::console::Followed;

/// Frames that wait for one console. The state at the beginning and some seconds of updates; a
/// console that is slower waits with the shared updates behind it (`UPDATES_BEHIND_MAX` of
/// `console`). Chosen, not measured.
const FRAMES_MAX: usize = 32;

/// Adds the console's paths.
pub(super) fn routes() -> Router<HttpApi> {
    let files = assets().iter().fold(Router::new(), |router, file| {
        router.route(file.path, get(async move |headers: HeaderMap| serve_file(file, &headers)))
    });
    files
        .route("/v1/stream", get(stream))
        .route("/v1/history", get(history))
        .route("/v1/jobs", get(jobs))
        .route("/v1/jobs/{job}/end", post(end_job))
}

/// Returns whether a path is one of the console's files, which anyone may read: they are the same
/// in every cluster.
pub(super) fn is_file(path: &str) -> bool {
    asset(path).is_some()
}

fn serve_file(file: &'static Asset, headers: &HeaderMap) -> Response {
    let is_known = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(|etag| etag.trim() == file.etag));
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => file.text.into_response(),
    };
    let headers = response.headers_mut();
    let etag = HeaderValue::from_str(&file.etag).expect("hexadecimal digits in quotes");
    headers.insert(header::ETAG, etag);
    for (name, value) in [
        (header::CONTENT_TYPE, file.media_type),
        // A browser requests it each time: an upgrade shows at once.
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamQuery {
    #[serde(default)]
    after: u64,
}

/// Streams the state of the cluster and its changes, as server-sent events: `hello`, `fleet`,
/// `events` and `jobs`, then `delta`, `events` and `jobs` as they change.
async fn stream(
    State(api): State<HttpApi>,
    Extension(connection): Extension<HttpConnection>,
    Extension(pass): Extension<Option<Pass>>,
    query: Result<Query<StreamQuery>, QueryRejection>,
) -> HttpResult {
    let Query(StreamQuery { after }) = query?;
    connection.follow()?;
    let (frames, receiver) = mpsc::channel(FRAMES_MAX);
    // It ends when the client goes, because the channel closes, or when the server stops.
    tokio::spawn(follow(api, pass, after, frames));
    let body = Body::from_stream(ReceiverStream::new(receiver));
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, body).into_response())
}

type FrameItem = Result<Bytes, Infallible>;

async fn follow(api: HttpApi, pass: Option<Pass>, after: u64, frames: mpsc::Sender<FrameItem>) {
    let claims = match pass.as_ref().map(Pass::claims).transpose() {
        Ok(claims) => claims.cloned(),
        Err(_) => return,
    };
    let claims = claims.as_deref();
    let mut followed = begin(&api, after, claims);
    let mut next = std::mem::take(&mut followed.first);
    let mut has_through = followed.events_through;
    loop {
        for frame in next {
            if frames.send(Ok(frame)).await.is_err() {
                return;
            }
        }
        let update = tokio::select! {
            update = followed.updates.recv() => update,
            () = api.stop.cancelled() => return,
            () = frames.closed() => return,
        };
        // A stream goes on no longer than its token: that may have ended or been taken back.
        if pass.as_ref().is_some_and(|pass| pass.claims().is_err()) {
            return;
        }
        next = match update {
            Ok(update) => {
                has_through = update.events_through;
                update.frames(claims)
            }
            // The client is slow: what it missed is in the whole state.
            Err(RecvError::Lagged(_)) => {
                followed = begin(&api, has_through, claims);
                has_through = followed.events_through;
                std::mem::take(&mut followed.first)
            }
            Err(RecvError::Closed) => return,
        };
    }
}

/// Begins to follow: the first frame is about the server and the caller's token.
fn begin(api: &HttpApi, after: u64, claims: Option<&Claims>) -> Followed {
    let mut followed = api.console.follow(after, claims);
    let hello = json!({
        "schema": 1,
        "version": version(),
        "cluster": format!("{:016x}", api.requests.state.cluster.0),
        "needs_token": claims.is_some(),
        "subject": claims.map(|claims| &claims.subject),
        "expires_at_seconds": claims.map(|claims| claims.expires_at),
        "may_administer": claims.is_none_or(Claims::may_administrate),
        "may_end_jobs": claims.is_none_or(may_end_jobs),
    });
    followed.first.insert(0, crate::console::hello(&hello));
    followed
}

async fn history(State(api): State<HttpApi>) -> Response {
    page(&api.console.history())
}

async fn jobs(State(api): State<HttpApi>, Extension(pass): Extension<Option<Pass>>) -> HttpResult {
    let mut reply = api.requests.one(Request::Jobs).await?;
    if let Some(pass) = pass {
        pass.claims()?.narrow(&mut reply);
    }
    match reply {
        Reply::Jobs(jobs) => Ok(page(&json!({ "jobs": jobs }))),
        _ => Err(HttpRefusal::unexpected()),
    }
}

/// Ends a job. Beside the right to administer, the token needs the one to write: what the job holds
/// is deleted.
async fn end_job(
    State(api): State<HttpApi>,
    Extension(pass): Extension<Option<Pass>>,
    job: Result<Path<u64>, PathRejection>,
) -> HttpResult {
    let Path(job) = job?;
    if let Some(pass) = pass {
        let claims = pass.claims()?;
        if !may_end_jobs(claims) {
            return Err(claims.forbidden("may not end jobs").into());
        }
    }
    match api.requests.one(Request::EndJob { job: JobId(job) }).await? {
        Reply::Done => Ok(page(&json!({ "ended": job }))),
        _ => Err(HttpRefusal::unexpected()),
    }
}

fn may_end_jobs(claims: &Claims) -> bool {
    claims.may_administrate() && claims.allows(sanderling_core::access::Rights::WRITE)
}
