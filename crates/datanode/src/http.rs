//! The HTTP door: health, metrics, and notices from whoever watches the machine.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use sanderling_protocol::limits::TEXT_BYTES_MAX;
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Millis, Reply};
use sanderling_transport::CallError;
use serde::Deserialize;
use serde_json::json;

use crate::node::Node;

/// The version of every JSON answer.
const SCHEMA_VERSION: u32 = 1;

/// Body of `POST /v1/notice`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Notice {
    deadline_seconds: f64,
    #[serde(default)]
    reason: String,
}

pub(crate) fn router(node: Arc<Node>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .route("/v1/notice", post(notice))
        .with_state(node)
}

async fn healthz(State(node): State<Arc<Node>>) -> Response {
    let standing = *node.standing().borrow();
    Json(json!({
        "schema_version": SCHEMA_VERSION,
        "status": "ok",
        "node": node.id(),
        "cluster": node.identity().cluster.map(|cluster| format!("{:016x}", cluster.0)),
        "policy": standing.policy,
        "is_fenced": node.store.is_fenced(),
    }))
    .into_response()
}

async fn metrics(State(node): State<Arc<Node>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], node.metrics_text()).into_response()
}

async fn notice(
    State(node): State<Arc<Node>>,
    body: Result<Json<Notice>, JsonRejection>,
) -> Response {
    let Json(notice) = match body {
        Ok(notice) => notice,
        Err(error) => return refused(error.status(), "BadRequest", &error.body_text()),
    };
    if notice.reason.len() > TEXT_BYTES_MAX {
        let why = format!("the reason is longer than {TEXT_BYTES_MAX} bytes");
        return refused(StatusCode::BAD_REQUEST, "BadRequest", &why);
    }
    let span = Duration::try_from_secs_f64(notice.deadline_seconds);
    let Some(left) = span.ok().map(Millis::from).filter(|left| left.0 > 0) else {
        let why = "deadline_seconds must be above zero";
        return refused(StatusCode::BAD_REQUEST, "DeadlinePassed", why);
    };
    match node.notice(left, &notice.reason).await {
        Ok(Reply::Node(info)) => {
            Json(json!({ "schema_version": SCHEMA_VERSION, "node": info })).into_response()
        }
        Ok(other) => failed(&node.bad_reply(&other)),
        Err(error) => failed(&error),
    }
}

fn failed(error: &CallError) -> Response {
    let (status, name) = match error {
        CallError::Refused(refusal) if error.recovery() == Recovery::Fix => {
            (StatusCode::BAD_REQUEST, refusal.name())
        }
        CallError::Refused(refusal) => (StatusCode::CONFLICT, refusal.name()),
        _ => (StatusCode::BAD_GATEWAY, "Unreachable"),
    };
    refused(status, name, &error.to_string())
}

fn refused(status: StatusCode, name: &str, message: &str) -> Response {
    let body = json!({
        "schema_version": SCHEMA_VERSION,
        "error": { "name": name, "message": message },
    });
    (status, Json(body)).into_response()
}
