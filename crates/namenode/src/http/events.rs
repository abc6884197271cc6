//! Events as a stream that a browser, or `curl`, can follow.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use sanderling_protocol::{Event, Millis, Reply, Request};
use sanderling_transport::{Document, HttpConnection, Pass};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::api::{HttpApi, bad};
use super::refusal::HttpRefusal;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    after: Option<u64>,
}

/// Events read at once. The stream's channel holds as many. Some tens of KiB, which leave together.
/// Chosen, not measured.
const PAGE: u32 = 256;

/// Longest wait for an event before the client's presence is checked again. A client that left
/// keeps one of 128 places of followers so much longer; each check wakes one task. Chosen, not
/// measured.
const WAIT: Millis = Millis(10_000);

/// Streams the events after `?after=N`, or after the header `Last-Event-ID`, which wins because
/// browsers send it when they come back; all kept ones without either.
///
/// # Errors
/// [`Refusal::RetryAfter`](sanderling_protocol::Refusal::RetryAfter) when as many follow as may be.
pub(super) async fn stream(
    State(api): State<HttpApi>,
    Extension(connection): Extension<HttpConnection>,
    Extension(pass): Extension<Option<Pass>>,
    headers: HeaderMap,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, HttpRefusal> {
    let Query(EventsQuery { after }) = query?;
    let last = match headers.get("last-event-id") {
        None => None,
        Some(value) => {
            let number = value.to_str().ok().and_then(|text| text.parse::<u64>().ok());
            Some(number.ok_or_else(|| bad("Last-Event-ID is no number"))?)
        }
    };
    let after = last.or(after).unwrap_or(0);
    connection.follow()?;
    let (events, receiver) = mpsc::channel(PAGE as usize);
    // It ends when the client goes, because the channel closes, or when the server stops.
    tokio::spawn(follow(api, pass, after, events));
    let keep_alive = KeepAlive::new().interval(Duration::from_secs(15));
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(keep_alive).into_response())
}

type EventItem = Result<sse::Event, Infallible>;

async fn follow(api: HttpApi, pass: Option<Pass>, mut after: u64, events: mpsc::Sender<EventItem>) {
    loop {
        let request = Request::Events { after, limit: PAGE, wait: WAIT };
        let answer = tokio::select! {
            answer = api.requests.one(request) => answer,
            () = api.stop.cancelled() => return,
            () = events.closed() => return,
        };
        let Ok(Reply::Events(page)) = answer else { return };
        // A stream goes on no longer than its token: that may have ended or been taken back.
        if pass.as_ref().is_some_and(|pass| pass.claims().is_err()) {
            return;
        }
        for event in page {
            after = event.sequence;
            if events.send(Ok(line(&event))).await.is_err() {
                return;
            }
        }
    }
}

fn line(event: &Event) -> sse::Event {
    let data = serde_json::to_string(&Document::new(event)).expect("an event has an encoding");
    sse::Event::default().id(event.sequence.to_string()).data(data)
}
