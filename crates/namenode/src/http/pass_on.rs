//! Requests that reach a member of a group that does not lead: it passes them on to the leader.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use sanderling_protocol::Refusal;
use sanderling_transport::{HttpConnection, PageCallError, Pass, pass_on as send};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::debug;

use super::api::{HttpApi, HttpResult};
use super::durable::WAIT_MAX;
use super::refusal::HttpRefusal;
use super::{BODY_BYTES_MAX, console};
use crate::group::ServingState;
use crate::state::NamenodeState;

/// Longest time to the head of the leader's answer, of pages that need no other. Half of the time
/// that a server has for its answer by default (`HttpOptions::answer_within`).
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The same for a forecast, which reads all blocks of a node: nearly all of that time. What is left
/// is for a connection to a leader that does not answer, and for the refusal.
const FORECAST_TIMEOUT: Duration = Duration::from_secs(55);

/// The same for a backup, which the leader writes before it sends it. As long as
/// `sanderling namenode backup` waits.
const BACKUP_TIMEOUT: Duration = Duration::from_secs(600);

/// What a wait for a store may take beside its own time: the leader looks once more then, and may
/// have to confirm that it leads. Chosen, not measured.
const WAIT_REST: Duration = Duration::from_secs(5);

/// Pause between two looks at whether the writer of a leader that streams hangs: it reports no
/// change then. Half of the time after which it counts as hung.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A request that a member has passed on is passed on by no other: two members that take each other
/// for the leader would send it in a circle.
const PASSED_ON: HeaderName = HeaderName::from_static("sanderling-passed-on");

/// What of a request the leader receives. This member has checked what a browser states about the
/// page that sent it, and `Host` names this member.
const SENT: [HeaderName; 5] = [
    header::ACCEPT,
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    header::IF_NONE_MATCH,
    HeaderName::from_static("last-event-id"),
];

/// What of an answer the caller does not receive: it is about the connection.
const KEPT: [HeaderName; 3] = [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE];

/// The request whose answer waits for a store. It changes nothing, whatever its method.
const WAIT: &str = "/v1/durable/wait";

/// The page whose answer is a backup.
const BACKUP: &str = "/v1/backup";

/// Why an answer breaks off.
#[derive(Debug, thiserror::Error)]
#[error("another namenode leads")]
struct OtherLeader;

/// Why the leader did not answer a request that was passed on to it.
#[derive(Debug, thiserror::Error)]
enum PassOnError {
    /// The call failed.
    #[error("{0}")]
    Call(#[from] PageCallError),
    /// It leads no more.
    #[error("{0}")]
    OtherLeader(#[from] OtherLeader),
}

/// Returns whether each member answers a path by itself: it is about its process.
fn is_about_member(path: &str) -> bool {
    matches!(path, "/healthz" | "/metrics" | "/v1/group" | "/v1/log" | "/v1/notice")
        || console::is_file(path)
}

/// Returns whether the answer of a path has no end.
fn is_stream(path: &str) -> bool {
    matches!(path, "/v1/stream" | "/v1/events")
}

/// Returns whether the answer of a path may begin later than others: its connection takes a place
/// of those that wait, as it does at the leader.
fn is_late(path: &str) -> bool {
    is_stream(path) || matches!(path, WAIT | BACKUP)
}

/// Returns the longest time to the head of the leader's answer to a path.
fn head_within(path: &str) -> Duration {
    match path {
        WAIT => WAIT_MAX + WAIT_REST,
        BACKUP => BACKUP_TIMEOUT,
        path if path.starts_with("/v1/nodes/") && path.ends_with("/forecast") => FORECAST_TIMEOUT,
        _ => PAGE_TIMEOUT,
    }
}

/// Answers at the member that leads; elsewhere passes the request on to it. A stream breaks off
/// when another member leads: its follower comes back, and gets what that one has.
pub(super) async fn to_leader(
    State(api): State<HttpApi>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let group = &api.requests.state.group;
    let path = request.uri().path();
    if is_about_member(path) {
        // What the leader answers is checked there, by the newest list of revoked tokens.
        let pass = request.extensions().get::<Option<Pass>>().and_then(Option::as_ref);
        let checked = pass.map(|pass| group.check_fresh(pass.claims()?)).transpose();
        return match checked {
            Ok(_) => next.run(request).await,
            Err(refusal) => HttpRefusal::from(refusal).into_response(),
        };
    }
    if group.serving_state().serves() {
        let (is_stream, serving) = (is_stream(path), group.changes());
        // Pages read the catalog: one that was followed by another leader would show what it had.
        if request.method().is_safe()
            && let Err(refusal) = api.requests.may_show().await
        {
            return HttpRefusal::from(refusal).into_response();
        }
        let response = next.run(request).await;
        if !is_stream || !response.status().is_success() {
            return response;
        }
        let resigned = resigned(Arc::clone(&api.requests.state), serving);
        return response.map(|body| until(body, resigned));
    }
    let leader = group.leader_http();
    let address = leader.borrow().clone();
    let address = address.filter(|_| !request.headers().contains_key(&PASSED_ON));
    let Some(address) = address else { return HttpRefusal::from(group.refusal()).into_response() };
    let passed_on = passed_on(&api, request, &address, leader).await;
    passed_on.unwrap_or_else(IntoResponse::into_response)
}

/// Returns once this namenode serves no more.
async fn resigned(state: Arc<NamenodeState>, mut serving: watch::Receiver<ServingState>) {
    loop {
        let resigned = serving.wait_for(|serving| !serving.serves());
        if timeout(POLL_INTERVAL, resigned).await.is_ok() || !state.group.serving_state().serves() {
            return;
        }
    }
}

async fn passed_on(
    api: &HttpApi,
    request: HttpRequest,
    address: &str,
    mut leader: watch::Receiver<Option<String>>,
) -> HttpResult {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX)
        .await
        .map_err(|error| HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()))?;
    // While its body is still to come a connection cannot follow.
    let path = head.uri.path();
    if is_late(path)
        && let Some(connection) = head.extensions.get::<HttpConnection>()
    {
        connection.follow()?;
    }
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let (is_look, within) = (head.method.is_safe() || path == WAIT, head_within(path));
    let mut sent = HttpRequest::builder()
        .method(head.method)
        .uri(target)
        .header(header::HOST, address)
        .header(PASSED_ON, HeaderValue::from_static("1"))
        .body(Body::from(body))
        .map_err(|error| HttpRefusal::new(StatusCode::BAD_REQUEST, &error.to_string()))?;
    for name in SENT {
        if let Some(value) = head.headers.get(&name) {
            sent.headers_mut().insert(name, value.clone());
        }
    }
    let own = address.to_owned();
    let mut replaced = Box::pin(async move {
        let _ = leader.wait_for(|now| now.as_ref() != Some(&own)).await;
    });
    // A leader that has just ended, or is stopped, is followed by another one within a second.
    let answered = tokio::select! {
        answered = send(sent, address, api.leader_tls.as_ref(), within) => {
            answered.map_err(PassOnError::from)
        }
        () = &mut replaced => Err(PassOnError::from(OtherLeader)),
    };
    let mut response = answered.map_err(|why| {
        debug!(%why, "the leader did not answer a request that was passed on");
        if is_look { Refusal::NotLeader { leader: None }.into() } else { unanswered() }
    })?;
    for name in KEPT {
        response.headers_mut().remove(name);
    }
    Ok(response.map(|body| until(Body::new(body), replaced)))
}

/// Returns the answer to a change that was sent to the leader: whether it was made is not known.
fn unanswered() -> HttpRefusal {
    let why = "the leader did not answer: the change may have been made, so look before you repeat \
               it";
    HttpRefusal::new(StatusCode::BAD_GATEWAY, why)
}

/// Returns a body that breaks off when something has happened. It does not end: what is cut must
/// not look whole.
fn until(body: Body, happened: impl Future<Output = ()> + Send + 'static) -> Body {
    let pieces = body.into_data_stream();
    Body::from_stream(unfold(Some((pieces, Box::pin(happened))), async |state| {
        let (mut pieces, mut happened) = state?;
        tokio::select! {
            piece = pieces.next() => {
                piece.map(|piece| (piece, Some((pieces, happened))))
            }
            () = &mut happened => Some((Err(axum::Error::new(OtherLeader)), None)),
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use sanderling_transport::HttpOptions;

    use super::*;

    #[test]
    fn answer_is_awaited_for_as_long_as_its_page_may_take() {
        // A server cuts off what is not answered in time, unless it waits by its nature.
        let cut_off = HttpOptions::default().answer_within;
        for path in ["/v1/nodes", "/v1/nodes/d0/forecast", "/v1/nodes/d0/notice"] {
            assert!(head_within(path) < cut_off && !is_late(path), "{path}");
        }
        assert!(head_within("/v1/nodes/d0/forecast") > PAGE_TIMEOUT);
        for path in [WAIT, BACKUP] {
            assert!(head_within(path) > WAIT_MAX && is_late(path), "{path}");
        }
        assert!(head_within(BACKUP) > cut_off);
    }

    #[test]
    fn cause_of_an_unanswered_request_is_its_source() {
        let address = "h:1".to_owned();
        let late = PassOnError::from(PageCallError::TimedOut { address, within: PAGE_TIMEOUT });
        assert_eq!(late.to_string(), "h:1 did not answer within 30.0 s");
        assert!(late.source().is_some_and(|source| source.is::<PageCallError>()));
        let other = PassOnError::from(OtherLeader);
        assert_eq!(other.to_string(), "another namenode leads");
        assert!(other.source().is_some_and(|source| source.is::<OtherLeader>()));
    }
}
