//! `sanderling bench`: one table of types, one way to run and to report them.

mod report;
pub(crate) mod scale;
mod scenario;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use sanderling_client::ClientError;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::args::bench::Bench;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::refused;
use crate::session::Session;

pub(crate) use scenario::{Kind, TYPES};
use scenario::{State, Work};

/// Describes every type, for the help text.
#[must_use]
pub(crate) fn types_help() -> String {
    let line = |kind: &Kind| format!("  {:<20} {}", kind.name, kind.about);
    let lines: Vec<String> = TYPES.iter().map(line).collect();
    format!("Types:\n{}", lines.join("\n"))
}

/// What one thread measured.
struct Measured {
    latency: Histogram<u64>,
    bytes: u64,
    operations: u64,
    /// When its first measured operation began and its last one ended.
    span: (Instant, Instant),
}

/// Fills the store, measures, reports, and deletes what it wrote.
///
/// # Errors
/// The first operation that failed.
pub(crate) async fn run(session: Session, args: Bench) -> Result<(), Failure> {
    let kind = TYPES.iter().find(|kind| kind.name == args.kind);
    let kind = kind.ok_or_else(|| Failure::usage(format_args!("no type {}", args.kind)))?;
    let client = session.client().await?;
    let failed = |error: ClientError| refused::client(&error, &session.namenode);
    let directory = args.path.clone();
    let made = client
        .make_directory(&directory, sanderling_protocol::message::ObjectKind::Directory, true, true)
        .await;
    made.map_err(failed)?;
    // Two runs at once, or one that was killed, must not meet in one directory.
    let own = directory.join(&format!("{}-{}", kind.name, std::process::id()));
    let own = own.map_err(|refusal| refused::refusal_failure(&refusal))?;
    let done = Arc::new(AtomicU64::new(0));
    let measured = tokio::select! {
        measured = all_threads(kind, &client, &own, &args, &done) => measured.map_err(failed),
        () = session.ended.cancelled() => Err(Failure::silent(Exit::Interrupted)),
        () = tell(&session, kind, &args, &done) => unreachable!("it tells for ever"),
    };
    if !args.keep
        && let Err(error) = client.delete(&own, true).await
        && error.name() != "NotFound"
    {
        session.output.note(format_args!("{own} is left behind: {error}"));
    }
    report::print(&session, kind, &args, &measured?, &client.metrics())
}

/// Shows how many operations are done, until it is dropped.
async fn tell(session: &Session, kind: &Kind, args: &Bench, done: &AtomicU64) {
    let total = u64::from(args.threads) * (args.warmup + args.count);
    let mut progress = Progress::steps(session.output, kind.name, total);
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        progress.set(done.load(Ordering::Relaxed));
    }
}

async fn all_threads(
    kind: &'static Kind,
    client: &sanderling_client::Client,
    own: &sanderling_protocol::Path,
    args: &Bench,
    done: &Arc<AtomicU64>,
) -> Result<Vec<Measured>, ClientError> {
    let directory = sanderling_protocol::message::ObjectKind::Directory;
    client.make_directory(own, directory, true, true).await?;
    let start = Arc::new(Barrier::new(args.threads as usize));
    let mut threads = JoinSet::new();
    for thread in 0..args.threads {
        let directory = own.join(&format!("thread-{thread}")).map_err(ClientError::Refused)?;
        let (client, args, done) = (client.clone(), args.clone(), Arc::clone(done));
        let work = Work { client, directory, args, done };
        threads.spawn(one_thread(kind, work, Arc::clone(&start)));
    }
    let mut all = Vec::new();
    while let Some(ended) = threads.join_next().await {
        all.push(ended.expect("a benchmark's thread does not panic")?);
    }
    Ok(all)
}

async fn one_thread(
    kind: &'static Kind,
    work: Work,
    start: Arc<Barrier>,
) -> Result<Measured, ClientError> {
    let (warmup, count) = (work.args.warmup, work.args.count);
    let depth = if kind.is_deep { work.args.depth as usize } else { 1 };
    let prepared = (kind.prepare)(work).await;
    // Whoever failed must not leave the others waiting.
    start.wait().await;
    let state = Arc::new(prepared?);
    operations(kind, &state, 0..warmup, depth).await?;
    start.wait().await;
    let measured = operations(kind, &state, warmup..warmup + count, depth).await?;
    state.finish().await?;
    Ok(Measured { span: (measured.span.0, Instant::now()), ..measured })
}

async fn operations(
    kind: &'static Kind,
    state: &Arc<State>,
    indices: std::ops::Range<u64>,
    depth: usize,
) -> Result<Measured, ClientError> {
    let mut latency = Histogram::new(3).expect("three digits are allowed");
    let (mut bytes, mut done) = (0, 0);
    let began = Instant::now();
    let mut running = JoinSet::new();
    let mut note = |(spent, moved): (Duration, u64)| {
        let nanos = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        latency.record(nanos).expect("the histogram resizes itself");
        bytes += moved;
        done += 1;
    };
    for index in indices {
        if depth == 1 {
            // No task of its own: the latency is that of the call alone.
            note(timed(kind, Arc::clone(state), index).await?);
            continue;
        }
        while running.len() >= depth {
            let ended = running.join_next().await.expect("some are running");
            note(ended.expect("an operation does not panic")?);
        }
        running.spawn(timed(kind, Arc::clone(state), index));
    }
    while let Some(ended) = running.join_next().await {
        note(ended.expect("an operation does not panic")?);
    }
    Ok(Measured { latency, bytes, operations: done, span: (began, Instant::now()) })
}

async fn timed(
    kind: &'static Kind,
    state: Arc<State>,
    index: u64,
) -> Result<(Duration, u64), ClientError> {
    let began = Instant::now();
    let bytes = (kind.operation)(Arc::clone(&state), index).await?;
    state.count();
    Ok((began.elapsed(), bytes))
}
