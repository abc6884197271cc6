//! What the commands look up before they work: objects by their paths, and paths that are meant.

use sanderling_client::Client;
use sanderling_protocol::message::ObjectStat;
use sanderling_protocol::{Path, Reply, Request};

use crate::failure::{Exit, Failure};
use crate::node::unexpected;
use crate::refused;
use crate::session::Session;

/// Files transferred at once by a recursive put or get: enough to hide a round trip to the
/// namenode, few enough to keep memory small.
pub(super) const FILES_AT_ONCE_MAX: usize = 8;

/// Bytes read from or written to a local file at once.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// Returns `to/name` when `to` is a directory, else `to`.
pub(super) async fn into_directory(
    session: &Session,
    client: &Client,
    to: &Path,
    name: Option<&str>,
) -> Result<Path, Failure> {
    let kind = stat_of(session, client, to).await?.map(|stat| stat.kind);
    match (kind, name) {
        (Some(kind), Some(name)) if kind.is_container() => joined(to, name),
        _ => Ok(to.clone()),
    }
}

pub(super) fn joined(directory: &Path, name: &str) -> Result<Path, Failure> {
    directory.join(name).map_err(|refusal| refused::refusal_failure(&refusal))
}

/// Returns the facts about an object; `None` when it does not exist.
pub(super) async fn stat_of(
    session: &Session,
    client: &Client,
    path: &Path,
) -> Result<Option<ObjectStat>, Failure> {
    match session.call(client, Request::Stat { path: path.clone() }).await {
        Ok(Reply::Stat(stat)) => Ok(Some(stat)),
        Ok(reply) => Err(unexpected(&reply)),
        Err(failure) if failure.exit == Exit::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

pub(super) async fn existing(
    session: &Session,
    client: &Client,
    path: &Path,
) -> Result<ObjectStat, Failure> {
    match session.call(client, Request::Stat { path: path.clone() }).await? {
        Reply::Stat(stat) => Ok(stat),
        reply => Err(unexpected(&reply)),
    }
}
