//! Google's metadata server.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use tokio::time::timeout;

use super::state::Mock;

pub(super) fn routes() -> Router<Arc<Mock>> {
    Router::new().route("/computeMetadata/v1/instance/preempted", get(preempted))
}

#[derive(Debug, Deserialize)]
struct Wait {
    #[serde(default)]
    wait_for_change: bool,
    timeout_sec: Option<u64>,
    last_etag: Option<String>,
}

async fn preempted(
    State(mock): State<Arc<Mock>>,
    Query(wait): Query<Wait>,
    headers: HeaderMap,
) -> Response {
    if headers.get("metadata-flavor").is_none_or(|flavor| flavor != "Google") {
        return (StatusCode::FORBIDDEN, "Missing Metadata-Flavor:Google header.").into_response();
    }
    let mut version = mock.version();
    let etag = |version: u64| format!("{version:016x}");
    if wait.wait_for_change {
        let last = wait.last_etag.unwrap_or_else(|| etag(*version.borrow()));
        let limit = Duration::from_secs(wait.timeout_sec.unwrap_or(3600).min(3600));
        // In time or not, what holds at the end is the answer.
        let _ = timeout(limit, version.wait_for(|version| etag(*version) != last)).await;
    }
    let now = etag(*version.borrow());
    let word = if mock.shown().is_preempted { "TRUE" } else { "FALSE" };
    ([("metadata-flavor", "Google".to_owned()), ("etag", now)], word).into_response()
}
