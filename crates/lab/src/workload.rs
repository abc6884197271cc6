//! What the clients do: a fixed amount of work, counted and timed.

pub(crate) mod meter;
mod probe;
mod read;
mod write;

use sanderling_client::Client;
use sanderling_protocol::Path;
use sanderling_protocol::message::ObjectKind;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure, FailureKind};
use crate::own_cluster;

pub(crate) use probe::probe;
pub(crate) use read::DataSet;
pub(crate) use write::write;

/// The directory in the store that the workloads fill.
const DIRECTORY: &str = "/lab";

/// Bytes of one call: an eighth of a block, so that a run has many calls on its slow links. Chosen,
/// not measured.
pub(crate) const PIECE_BYTES: u64 = 128 << 10;

/// Returns a path below the lab's directory.
fn path(name: &str) -> Path {
    format!("{DIRECTORY}/{name}").parse().expect("plain letters and digits")
}

/// Makes the lab's directory.
async fn make_directory(client: &Client) -> Result<(), Failure> {
    let directory = DIRECTORY.parse().expect("plain letters");
    let made = client.make_directory(&directory, ObjectKind::Directory, true, true).await;
    made.map(|_| ()).map_err(|error| own_cluster::failed(&error, client.namenode()))
}

/// Starts so many workers; returns what ends when all of them have, or when `ended` is cancelled.
fn spawn<W, F>(count: u32, ended: &CancellationToken, worker: W) -> JoinSet<()>
where
    W: Fn(u32) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut workers = JoinSet::new();
    for index in 0..count {
        let (work, ended) = (worker(index), ended.clone());
        workers.spawn(async move {
            tokio::select! {
                () = work => {}
                () = ended.cancelled() => {}
            }
        });
    }
    workers
}

/// Waits until all workers have ended.
///
/// # Errors
/// Failure (1) when one panicked.
pub(crate) async fn finish(mut workers: JoinSet<()>) -> Result<(), Failure> {
    while let Some(ended) = workers.join_next().await {
        ended.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Bug, error))?;
    }
    Ok(())
}
