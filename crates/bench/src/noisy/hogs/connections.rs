//! Connections to the namenode that send nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::noisy::stage::{HogContext, NotRun};

/// Connections, if this process may have as many open files. More than twice the 4,096 admitted
/// connections of a server (`DescriptorShares` of the transport), so the bound is met.
const CONNECTIONS: u64 = 10_000;

/// Connections that are made at once: a sixteenth of what waits to be accepted (4,096). More would
/// find that queue full and try again after a second. Chosen, not measured.
const DIALLED: usize = 256;

/// Open files that the process needs for everything else: the tenant's connections, its own, and
/// files. Chosen, not measured.
const OTHER_FILES: u64 = 256;

pub(super) async fn run(stage: Arc<HogContext>) -> Result<(), NotRun> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let wanted = CONNECTIONS.min(limit.saturating_sub(OTHER_FILES));
    let (dialled, made) = (Arc::new(Semaphore::new(DIALLED)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..wanted {
        let (stage, dialled, made) = (Arc::clone(&stage), Arc::clone(&dialled), Arc::clone(&made));
        tasks.spawn(async move {
            let permit = dialled.acquire().await;
            let Ok(mut stream) = TcpStream::connect(&stage.setting.namenode).await else {
                stage.refused(1);
                return;
            };
            drop(permit);
            made.fetch_add(1, Ordering::Relaxed);
            stage.done(1);
            // Until the namenode closes it, with or without an answer.
            while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
            stage.broke();
        });
    }
    stage.begun.cancel();
    // Those that were closed are not replaced: their ports are not free again for a minute.
    stage.until_stopped(tasks).await;
    let made = made.load(Ordering::Relaxed);
    stage.note(format_args!("{made} of {wanted} connections made; ulimit -n is {limit}"));
    Ok(())
}
