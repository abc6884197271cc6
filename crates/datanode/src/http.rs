//! The HTTP endpoint: health, metrics, and notices from programs that watch the machine. Its errors
//! have the form of the namenode's.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use sanderling_core::access::HttpResource;
use sanderling_core::notices::Notice;
use sanderling_protocol::limits::TEXT_BYTES_MAX;
use sanderling_protocol::{Millis, Refusal};
use sanderling_transport::{CallError, refused_site};
use serde_json::json;

use crate::agent::webhook::{self, Posted};
use crate::node::Node;

/// Longest body: a notice with the longest reason, however it is escaped.
const BODY_BYTES_MAX: usize = 8 * TEXT_BYTES_MAX;

pub(crate) fn router(node: Arc<Node>) -> Router {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/notice", post(notice))
        .fallback(async || HttpRefusal::new(StatusCode::NOT_FOUND, "no such page"))
        .method_not_allowed_fallback(async || {
            HttpRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "this page has no such method")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::clone(&node), check_token))
        .layer(from_fn_with_state(Arc::clone(&node), refuse_other_sites))
        .with_state(node)
}

/// Refuses requests without a token that allows the page.
async fn check_token(State(node): State<Arc<Node>>, request: Request, next: Next) -> Response {
    let page = match (request.uri().path(), request.method()) {
        ("/healthz", _) => HttpResource::Health,
        (_, &Method::GET | &Method::HEAD) => HttpResource::Look,
        _ => HttpResource::Change,
    };
    let shown = request.headers().get(header::AUTHORIZATION);
    let shown = shown.and_then(|value| value.to_str().ok());
    match node.membership.security().check_page(page, shown, node.membership.identity().cluster) {
        Ok(_) => next.run(request).await,
        Err(refusal) => HttpRefusal::from(refusal).into_response(),
    }
}

/// Refuses what a page of another site makes a browser send: a visit to that page would be enough
/// to give notices.
async fn refuse_other_sites(
    State(node): State<Arc<Node>>,
    request: Request,
    next: Next,
) -> Response {
    // Load balancers request health under any name.
    let is_open = node.membership.security().secret.is_none() && request.uri().path() != "/healthz";
    match refused_site(request.headers(), is_open) {
        Some(why) => HttpRefusal::new(StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    }
}

async fn health(State(node): State<Arc<Node>>) -> Json<serde_json::Value> {
    let policy = node.membership.registration().borrow().policy;
    Json(json!({
        "status": "ok",
        "role": "datanode",
        "node": node.membership.id(),
        "cluster": node.membership.identity().cluster.map(|cluster| format!("{:016x}", cluster.0)),
        "policy": policy,
        "is_fenced": node.store.is_fenced(),
    }))
}

async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], node.metrics_text()).into_response()
}

async fn notice(
    State(node): State<Arc<Node>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<serde_json::Value>, HttpRefusal> {
    let body = body.map_err(|error| HttpRefusal::new(error.status(), &error.body_text()))?;
    let info = match webhook::read(&body)? {
        Posted::Notice { left_millis, reason } => {
            let default = Millis::from(node.options.posted_notice);
            let left = match left_millis.map(u64::try_from) {
                Some(Ok(millis)) if millis > 0 => Millis(millis),
                None => default,
                Some(_) => {
                    let ago = Millis(left_millis.unwrap_or_default().unsigned_abs());
                    return Err(Refusal::DeadlinePassed { ago }.into());
                }
            };
            let deadline = node.membership.posted_deadline(left)?;
            node.counters.count_notice("webhook");
            let source = "webhook".to_owned();
            node.membership.give_notice(&Notice { source, deadline, reason }).await?
        }
        Posted::Recommendation { reason } => {
            node.membership.give_recommendation("webhook", &reason).await?
        }
        Posted::Nothing { what } => return Ok(Json(json!({ "passed_over": what }))),
    };
    Ok(Json(json!(info)))
}

/// An error page: `{"error": {"code", "name", "message"}}`.
#[derive(Debug)]
struct HttpRefusal {
    status: StatusCode,
    code: u16,
    name: &'static str,
    message: String,
}

impl HttpRefusal {
    /// Returns an error that the protocol has no number for.
    fn new(status: StatusCode, message: &str) -> Self {
        Self { status, code: 0, name: "Http", message: message.to_owned() }
    }
}

impl From<Refusal> for HttpRefusal {
    fn from(refusal: Refusal) -> Self {
        let status = match &refusal {
            Refusal::UnknownNode { .. } => StatusCode::NOT_FOUND,
            Refusal::Unauthenticated { .. } => StatusCode::UNAUTHORIZED,
            Refusal::Forbidden { .. } => StatusCode::FORBIDDEN,
            Refusal::WrongState { .. } | Refusal::NodeGone { .. } => StatusCode::CONFLICT,
            Refusal::RetryAfter { .. } | Refusal::JournalFull { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::BAD_REQUEST,
        };
        Self { status, code: refusal.code(), name: refusal.name(), message: refusal.to_string() }
    }
}

impl From<CallError> for HttpRefusal {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refusal) => refusal.into(),
            _ => Self::new(StatusCode::SERVICE_UNAVAILABLE, &format!("the namenode: {error}")),
        }
    }
}

impl IntoResponse for HttpRefusal {
    fn into_response(self) -> Response {
        let error = json!({ "code": self.code, "name": self.name, "message": self.message });
        let mut response = (self.status, Json(json!({ "error": error }))).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
