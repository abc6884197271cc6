//! Amazon's instance metadata service, version 2.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use serde_json::json;

use super::state::Mock;

pub(super) fn routes() -> Router<Arc<Mock>> {
    Router::new()
        .route("/latest/api/token", put(token))
        .route("/latest/meta-data/spot/instance-action", get(action))
        .route("/latest/meta-data/events/recommendations/rebalance", get(rebalance))
}

async fn token(State(mock): State<Arc<Mock>>, headers: HeaderMap) -> Response {
    let seconds = headers.get("x-aws-ec2-metadata-token-ttl-seconds");
    let seconds = seconds.and_then(|text| text.to_str().ok()?.parse::<u32>().ok());
    match seconds {
        Some(1..=21_600) => mock.new_token().into_response(),
        _ => page(StatusCode::BAD_REQUEST, "400 - Bad Request"),
    }
}

async fn action(State(mock): State<Arc<Mock>>, headers: HeaderMap) -> Response {
    if let Err(refused) = check(&mock, &headers) {
        return refused;
    }
    match mock.shown().preempted_at {
        Some(at) => {
            let time = humantime::format_rfc3339_seconds(at).to_string();
            Json(json!({ "action": "terminate", "time": time })).into_response()
        }
        None => page(StatusCode::NOT_FOUND, "404 - Not Found"),
    }
}

async fn rebalance(State(mock): State<Arc<Mock>>, headers: HeaderMap) -> Response {
    if let Err(refused) = check(&mock, &headers) {
        return refused;
    }
    match mock.shown().rebalance_at {
        Some(at) => {
            let time = humantime::format_rfc3339_seconds(at).to_string();
            Json(json!({ "noticeTime": time })).into_response()
        }
        None => page(StatusCode::NOT_FOUND, "404 - Not Found"),
    }
}

#[expect(clippy::result_large_err, reason = "the refusal is the answer")]
fn check(mock: &Mock, headers: &HeaderMap) -> Result<(), Response> {
    let token = headers.get("x-aws-ec2-metadata-token").and_then(|token| token.to_str().ok());
    if token.is_some_and(|token| mock.is_valid(token)) {
        return Ok(());
    }
    Err(page(StatusCode::UNAUTHORIZED, "401 - Unauthorized"))
}

/// The service's errors are pages.
fn page(status: StatusCode, title: &str) -> Response {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<html><head><title>{title}</title>\
         </head><body><h1>{title}</h1></body></html>\n"
    );
    (status, [("content-type", "text/html")], body).into_response()
}
