//! Azure's scheduled events. The list also has events of other machines and of other kinds, and a
//! later one of the same machine.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::state::{MACHINE, Mock};

/// The number of an event that comes after the preemption of the same machine: higher than the
/// number of any notice.
const LATER_EVENT: u32 = 999_999;

/// How much later that event is, so that the earlier one must count.
const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) fn routes() -> Router<Arc<Mock>> {
    Router::new()
        .route("/metadata/scheduledevents", get(events).post(start))
        .route("/metadata/instance/compute/name", get(name))
}

#[derive(Debug, Deserialize)]
struct Version {
    #[serde(rename = "api-version")]
    version: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Started {
    #[serde(rename = "StartRequests")]
    requests: Vec<StartRequest>,
}

#[derive(Debug, Deserialize)]
struct StartRequest {
    #[serde(rename = "EventId")]
    id: String,
}

async fn events(
    State(mock): State<Arc<Mock>>,
    Query(version): Query<Version>,
    headers: HeaderMap,
) -> Response {
    if let Err(refused) = check(&headers, &version) {
        return refused;
    }
    let shown = mock.shown();
    let event = |id: &str, kind: &str, machine: &str, not_before: &str| {
        json!({
            "EventId": id,
            "EventStatus": "Scheduled",
            "EventType": kind,
            "ResourceType": "VirtualMachine",
            "Resources": [machine],
            "NotBefore": not_before,
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        })
    };
    let later = "Fri, 01 Jan 2100 00:00:00 GMT";
    let mut events: Vec<Value> = vec![
        event("00000000-0000-0000-0000-000000000001", "Freeze", MACHINE, later),
        event("00000000-0000-0000-0000-000000000002", "Preempt", "vm_0", later),
    ];
    if let Some(at) = shown.preempted_at {
        // Of several events of a machine the earliest counts, wherever it is listed.
        let day_later = httpdate::fmt_http_date(at + DAY);
        events.push(event(&id(LATER_EVENT), "Terminate", MACHINE, &day_later));
        events.push(event(&id(shown.notices), "Preempt", MACHINE, &httpdate::fmt_http_date(at)));
    }
    Json(json!({ "DocumentIncarnation": shown.notices, "Events": events })).into_response()
}

async fn start(
    State(mock): State<Arc<Mock>>,
    Query(version): Query<Version>,
    headers: HeaderMap,
    Json(started): Json<Started>,
) -> Response {
    if let Err(refused) = check(&headers, &version) {
        return refused;
    }
    let mut shown = mock.shown();
    let known = [id(shown.notices), id(LATER_EVENT)];
    if started.requests.iter().any(|request| !known.contains(&request.id)) {
        return (StatusCode::BAD_REQUEST, "no such event").into_response();
    }
    shown.acknowledged.extend(started.requests.into_iter().map(|request| request.id));
    StatusCode::OK.into_response()
}

async fn name(Query(version): Query<Version>, headers: HeaderMap) -> Response {
    match check(&headers, &version) {
        Ok(()) => MACHINE.into_response(),
        Err(refused) => refused,
    }
}

fn id(number: u32) -> String {
    format!("602d9444-d2cd-49c7-8624-{number:012}")
}

#[expect(clippy::result_large_err, reason = "the refusal is the answer")]
fn check(headers: &HeaderMap, version: &Version) -> Result<(), Response> {
    let has_header = headers.get("metadata").is_some_and(|value| value == "true");
    if has_header && version.version.is_some() {
        return Ok(());
    }
    let error = json!({ "error": "Bad request. Required metadata header not specified" });
    Err((StatusCode::BAD_REQUEST, Json(error)).into_response())
}
