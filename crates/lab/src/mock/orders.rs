//! The orders to the mock: `POST /mock/preempt {"in_seconds": 30}`, `/mock/rebalance`,
//! `/mock/cancel`, `/mock/expire-tokens`, `/mock/fail {"mode": "500", "count": 3}`; `GET
//! /mock/state`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;

use super::state::{Failing, Mock};

pub(super) fn routes() -> Router<Arc<Mock>> {
    Router::new()
        .route("/mock/preempt", post(preempt))
        .route(
            "/mock/rebalance",
            post(|State(mock): State<Arc<Mock>>| async move { mock.recommend() }),
        )
        .route("/mock/cancel", post(|State(mock): State<Arc<Mock>>| async move { mock.cancel() }))
        .route(
            "/mock/expire-tokens",
            post(|State(mock): State<Arc<Mock>>| async move { mock.expire_tokens() }),
        )
        .route("/mock/fail", post(fail))
        .route(
            "/mock/state",
            get(|State(mock): State<Arc<Mock>>| async move { Json(mock.shown().clone()) }),
        )
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Preempt {
    in_seconds: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    /// A status such as `500`, `slow`, `garbage`, `hang` or `none`.
    mode: String,
    /// So many requests; without it all until the next order.
    count: Option<u32>,
}

async fn preempt(State(mock): State<Arc<Mock>>, Json(order): Json<Preempt>) -> Response {
    match Duration::try_from_secs_f64(order.in_seconds) {
        Ok(left) if left < Duration::from_secs(1_000_000_000) => {
            mock.preempt(left);
            StatusCode::OK.into_response()
        }
        _ => (StatusCode::BAD_REQUEST, "in_seconds is a time from now").into_response(),
    }
}

async fn fail(State(mock): State<Arc<Mock>>, Json(order): Json<Fail>) -> Response {
    let failing = match order.mode.as_str() {
        "none" => None,
        "slow" => Some(Failing::Slow(Duration::from_secs(3))),
        "garbage" => Some(Failing::Garbage),
        "hang" => Some(Failing::Hang),
        status => match status.parse() {
            Ok(status @ 400..=599) => Some(Failing::Status(status)),
            _ => {
                let why = "mode is a status from 400 to 599, slow, garbage, hang or none";
                return (StatusCode::BAD_REQUEST, why).into_response();
            }
        },
    };
    mock.fail(failing, order.count);
    StatusCode::OK.into_response()
}
