//! Hogs that send frames of requests, many in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use sanderling_protocol::Request;
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::limits::{LIST_PAGE_MAX, REQUESTS_PER_FRAME_MAX};
use sanderling_protocol::message::{Attributes, ObjectKind};
use sanderling_transport::Connection;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::noisy::stage::{HogContext, NotRun};
use crate::noisy::{fill, setting};

/// Requests of one frame: the most that a frame may have.
const PER_FRAME: u64 = REQUESTS_PER_FRAME_MAX as u64;

/// Pause after a connection broke. A server that closes each at once gets 20 attempts a second
/// instead of a busy loop. Chosen, not measured.
const RECONNECT_AFTER: Duration = Duration::from_millis(50);

/// Names that hog `create-frames` makes, for each entry of the directory that others list; then it
/// replaces them. Bounds what it leaves to delete: 200,000 names by default. Chosen, not measured.
const CREATED_PER_ENTRY: u64 = 10;

/// How many frames are under way.
#[derive(Debug, Clone, Copy)]
struct Load {
    connections: usize,
    /// Of each connection.
    in_flight: usize,
    /// Requests of one frame.
    requests: u64,
}

/// One connection with a pipeline.
const PIPELINE: Load = Load { connections: 1, in_flight: 16, requests: PER_FRAME };

/// The same with answers of megabytes: fewer, so that they fit into this process.
const LONG_ANSWERS: Load = Load { connections: 1, in_flight: 4, requests: PER_FRAME };

/// Four connections with a pipeline each.
const FOUR_PIPELINES: Load = Load { connections: 4, in_flight: 16, requests: PER_FRAME };

/// One request at a time.
const ONE: Load = Load { connections: 1, in_flight: 1, requests: 1 };

pub(super) async fn usage(stage: Arc<HogContext>) -> Result<(), NotRun> {
    let path = stage.setting.usage_of.clone();
    let body = same(&Request::Usage { path }, PIPELINE);
    run(stage, PIPELINE, move |_| body.clone()).await
}

pub(super) async fn list_attributes(stage: Arc<HogContext>) -> Result<(), NotRun> {
    let request = Request::List {
        path: stage.setting.big.clone(),
        after: String::new(),
        limit: LIST_PAGE_MAX as u32,
        with_attributes: true,
    };
    let body = same(&request, LONG_ANSWERS);
    run(stage, LONG_ANSWERS, move |_| body.clone()).await
}

pub(super) async fn stat(stage: Arc<HogContext>) -> Result<(), NotRun> {
    let (big, entries) = (stage.setting.big.clone(), stage.setting.entries);
    let one = |index: u64| {
        let path = big.join(&fill::name(index % entries)).expect("such a name is short");
        Request::Stat { path }
    };
    let frame = |start: u64| Bytes::from(encode_body(&list(start..start + PER_FRAME, one)));
    let bodies: Vec<Bytes> = (0..16).map(|at| frame(at * PER_FRAME)).collect();
    run(stage, FOUR_PIPELINES, move |turn| bodies[turn as usize % bodies.len()].clone()).await
}

pub(super) async fn fsck(stage: Arc<HogContext>) -> Result<(), NotRun> {
    let body = same(&Request::Fsck, ONE);
    run(stage, ONE, move |_| body.clone()).await
}

pub(super) async fn create(stage: Arc<HogContext>) -> Result<(), NotRun> {
    let directory = stage.setting.hog_path("created");
    let client = stage.setting.hog_client().await?;
    client.make_directory(&directory, ObjectKind::Directory, true, true).await?;
    let (path, names) = (directory.clone(), stage.setting.entries * CREATED_PER_ENTRY);
    let none = Attributes::none();
    let ended = run(stage, FOUR_PIPELINES, move |turn| {
        let start = turn * PER_FRAME;
        let one = |index: u64| fill::value(&path, index % names, &none);
        encode_body(&list(start..start + PER_FRAME, one)).into()
    })
    .await;
    setting::delete(&client, &directory).await?;
    ended
}

fn list(range: std::ops::Range<u64>, one: impl Fn(u64) -> Request) -> Vec<Request> {
    range.map(one).collect()
}

fn same(request: &Request, load: Load) -> Bytes {
    encode_body(&list(0..load.requests, |_| request.clone())).into()
}

/// Sends frames until it is stopped. `make` gets the number of the frame.
async fn run(
    stage: Arc<HogContext>,
    load: Load,
    make: impl Fn(u64) -> Bytes + Send + Sync + 'static,
) -> Result<(), NotRun> {
    let (make, turn) = (Arc::new(make), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..load.connections {
        let first = fill::connect(&stage.setting).await?;
        let (stage, make, turn) = (Arc::clone(&stage), Arc::clone(&make), Arc::clone(&turn));
        tasks.spawn(async move {
            let mut connected = Some(first);
            loop {
                if let Some(connection) = connected.take() {
                    let next = || make(turn.fetch_add(1, Ordering::Relaxed));
                    let one = || pipeline(&stage, &connection, load, &next);
                    join_all((0..load.in_flight).map(|_| one())).await;
                }
                sleep(RECONNECT_AFTER).await;
                match fill::connect(&stage.setting).await {
                    Ok(connection) => connected = Some(connection),
                    Err(error) => stage.failed(&error, load.requests),
                }
            }
        });
    }
    stage.begun.cancel();
    stage.until_stopped(tasks).await;
    Ok(())
}

/// Sends one frame after the other until the connection breaks.
async fn pipeline(
    stage: &HogContext,
    connection: &Connection,
    load: Load,
    next: &impl Fn() -> Bytes,
) {
    while !connection.is_broken() {
        match fill::send(connection, next()).await {
            Ok(answers) => {
                let refused = answers.iter().filter(|answer| answer.is_err()).count() as u64;
                stage.refused(refused);
                stage.done(answers.len() as u64 - refused);
            }
            Err(error) => stage.failed(&error, load.requests),
        }
    }
}
