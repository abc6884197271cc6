//! Calls that measure: how many are answered, and how long each takes.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use sanderling_protocol::message::{ObjectKind, Role};
use sanderling_protocol::{Path, Reply, Request};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::work::scattered;

use super::fill::{FilledObject, path};
use super::fleet::{micros, take};
use super::requests::{Meta, failed, unexpected};

/// Lookups of one frame where many travel together: as many as the client sends in one (`BATCH_MAX`
/// of the core's `client`).
const BATCH: u64 = 128;

/// Frames in flight together, each on a connection of its own: the namenode always has the next
/// one. Chosen, not measured.
const FRAMES: u64 = 8;

/// Pause between two changes: they are there to notice stalls, not to load the journal. Stalls of
/// this length and more are seen. Chosen, not measured.
const CHANGE_INTERVAL: Duration = Duration::from_millis(2);

/// Microseconds of calls that were made one after the other.
pub(super) struct Probed {
    pub(super) lookups: Histogram<u64>,
    pub(super) changes: Histogram<u64>,
}

/// Does work while one connection looks objects up and another makes changes, one call after the
/// other each. Returns what the work returned and how long the calls took.
pub(super) async fn during<T>(
    address: &str,
    files: u64,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<(T, Probed), Failure> {
    let stop = CancellationToken::new();
    let lookups = tokio::spawn(look(address.to_owned(), files, stop.clone()));
    let changes = tokio::spawn(change(address.to_owned(), stop.clone()));
    let done = work.await;
    stop.cancel();
    let lookups = lookups.await.expect("a probe does not panic")?;
    let changes = changes.await.expect("a probe does not panic")?;
    Ok((done?, Probed { lookups, changes }))
}

async fn look(
    address: String,
    files: u64,
    stop: CancellationToken,
) -> Result<Histogram<u64>, Failure> {
    let meta = Meta::connect(&address, Role::Client).await.map_err(failed)?;
    let mut taken = micros();
    let mut index = 0;
    while !stop.is_cancelled() {
        index += 1;
        let request = lookup(index, files);
        let began = Instant::now();
        match meta.one(request).await.map_err(failed)? {
            Reply::Layout(_) => take(&mut taken, began.elapsed()),
            other => return Err(unexpected(&other)),
        }
    }
    Ok(taken)
}

async fn change(address: String, stop: CancellationToken) -> Result<Histogram<u64>, Failure> {
    let meta = Meta::connect(&address, Role::Client).await.map_err(failed)?;
    let mut taken = micros();
    let path: Path = "/probe".parse().expect("letters");
    while !stop.is_cancelled() {
        // It goes through the journal and changes nothing.
        let (path, kind) = (path.clone(), ObjectKind::Directory);
        let request = Request::MakeDirectory { path, kind, parents: true, is_listed: true };
        let began = Instant::now();
        meta.one(request).await.map_err(failed)?;
        take(&mut taken, began.elapsed());
        tokio::time::sleep(CHANGE_INTERVAL).await;
    }
    Ok(taken)
}

/// Looks files up in frames of many, several frames at once. Returns how many were answered.
pub(super) async fn many(address: &str, files: u64, phase: Duration) -> Result<u64, Failure> {
    let next = Arc::new(AtomicU64::new(0));
    let until = Instant::now() + phase;
    let mut frames: JoinSet<Result<(), Failure>> = JoinSet::new();
    for _ in 0..FRAMES {
        let meta = Meta::connect(address, Role::Client).await.map_err(failed)?;
        let next = Arc::clone(&next);
        frames.spawn(async move {
            while Instant::now() < until {
                let first = next.fetch_add(BATCH, Ordering::Relaxed);
                let requests = (first..first + BATCH).map(|index| lookup(index, files)).collect();
                for answer in meta.all(&requests).await.map_err(failed)? {
                    answer.map_err(failed)?;
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = frames.join_next().await {
        ended.expect("a probe does not panic")?;
    }
    Ok(next.load(Ordering::Relaxed))
}

fn lookup(index: u64, files: u64) -> Request {
    let path = path(FilledObject::File, scattered(index) % files);
    Request::Lookup { path, offset: 0, bytes: u64::MAX }
}
