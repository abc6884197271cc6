//! Requests that reach a member of a group that does not lead: it passes them on to the leader.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sanderling_protocol::Refusal;
use sanderling_transport::{HttpConnection, pass_on as send};
use tracing::debug;

use super::api::HttpApi;
use super::refusal::HttpRefusal;
use super::{BODY_BYTES_MAX, console};

/// Longest time to the head of the leader's answer: a forecast takes longest.
const WITHIN: Duration = Duration::from_secs(30);

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

/// Returns whether each member answers a path by itself: it is about its process.
fn is_about_member(path: &str) -> bool {
    matches!(path, "/healthz" | "/metrics" | "/v1/group" | "/v1/log") || console::is_file(path)
}

/// Answers at the member that leads; elsewhere passes the request on to it.
pub(super) async fn to_leader(
    State(api): State<HttpApi>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let group = &api.requests.state.group;
    if group.standing().serves() || is_about_member(request.uri().path()) {
        return next.run(request).await;
    }
    let leader = group.leader_http().filter(|_| !request.headers().contains_key(&PASSED_ON));
    let Some(leader) = leader else { return HttpRefusal::from(group.refusal()).into_response() };
    match passed_on(&api, request, &leader).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

async fn passed_on(
    api: &HttpApi,
    request: HttpRequest,
    leader: &str,
) -> Result<Response, HttpRefusal> {
    let (head, body) = request.into_parts();
    if matches!(head.uri.path(), "/v1/stream" | "/v1/events")
        && let Some(connection) = head.extensions.get::<HttpConnection>()
    {
        connection.follow()?;
    }
    let body = to_bytes(body, BODY_BYTES_MAX)
        .await
        .map_err(|error| HttpRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, &error.to_string()))?;
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut sent = HttpRequest::builder()
        .method(head.method)
        .uri(target)
        .header(header::HOST, leader)
        .header(PASSED_ON, HeaderValue::from_static("1"))
        .body(Body::from(body))
        .map_err(|error| HttpRefusal::new(StatusCode::BAD_REQUEST, &error.to_string()))?;
    for name in SENT {
        if let Some(value) = head.headers.get(&name) {
            sent.headers_mut().insert(name, value.clone());
        }
    }
    let tls = api.leader_tls.as_ref();
    let mut response = send(sent, leader, tls, WITHIN).await.map_err(|error| {
        // The leader may just have ended: the next one is elected within a second.
        debug!(%error, "a request could not be passed on to the leader");
        HttpRefusal::from(Refusal::NotLeader { leader: None })
    })?;
    for name in KEPT {
        response.headers_mut().remove(name);
    }
    Ok(response.map(Body::new))
}
