//! The HTTP endpoint: health, metrics, and notices from programs that watch the machine. Its errors
//! have the form of the namenode's.

mod log;
mod notice;
mod refusal;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use sanderling_core::access::HttpResource;
use sanderling_protocol::Policy;
use sanderling_protocol::limits::TEXT_BYTES_MAX;
use sanderling_transport::{Document, OPEN_METRICS, front_page, refused_site, unix_millis};
use serde_json::{Value, json};

use crate::node::Node;
use refusal::HttpRefusal;

/// Longest body: a notice with the longest reason, however it is escaped.
const BODY_BYTES_MAX: usize = 8 * TEXT_BYTES_MAX;

pub(crate) fn router(node: Arc<Node>) -> Router {
    Router::new()
        .route("/", get(front))
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/log", get(log::show).put(log::change))
        .route("/v1/notice", post(notice::post))
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
        ("/" | "/healthz", _) => HttpResource::Health,
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
/// to give notices, or to take the places of all followers.
async fn refuse_other_sites(
    State(node): State<Arc<Node>>,
    request: Request,
    next: Next,
) -> Response {
    // Load balancers request health under any name.
    let is_open = node.membership.security().secret.is_none() && request.uri().path() != "/healthz";
    match refused_site(request.method(), request.headers(), is_open) {
        Some(site) => HttpRefusal::new(StatusCode::FORBIDDEN, site.why()).into_response(),
        None => next.run(request).await,
    }
}

/// A page of JSON.
type Page = Json<Document<Value>>;

fn page(fields: Value) -> Page {
    Json(Document::new(fields))
}

/// Links to the console: a browser has no token when it opens a page.
async fn front(State(node): State<Arc<Node>>) -> Response {
    front_page("datanode", &node.options.console).into_response()
}

async fn health(State(node): State<Arc<Node>>) -> Page {
    let policy = node.membership.registration().borrow().policy;
    let contact = node.membership.contact();
    let status = match policy {
        Policy::Gone => "given_up",
        _ if !contact.is_namenode_up() => "no_namenode",
        _ => "ok",
    };
    let (namenode, given_up) = contact.health(node.membership.clock().now());
    page(json!({
        "status": status,
        "role": "datanode",
        "node": node.membership.id(),
        "cluster": node.membership.identity().cluster.map(|cluster| format!("{:016x}", cluster.0)),
        "policy": policy,
        "is_fenced": node.store.is_fenced(),
        "unix_millis": unix_millis(),
        "namenode": namenode,
        "given_up": given_up,
    }))
}

async fn metrics(State(node): State<Arc<Node>>) -> Response {
    ([(header::CONTENT_TYPE, OPEN_METRICS)], node.metrics_text()).into_response()
}
