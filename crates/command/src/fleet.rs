//! The nodes of the cluster, as commands request and name them, and what is expected of a drain.

use sanderling_client::Client;
use sanderling_protocol::message::Forecast;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{Reply, Request};

use crate::failure::{Exit, Failure, RefusalKind};
use crate::refused::unexpected;
use crate::session::Session;
use crate::units;

/// Returns the nodes, on request also those that are gone.
///
/// # Errors
/// As [`Session::call`].
pub async fn nodes(
    session: &Session,
    client: &Client,
    all: bool,
) -> Result<Vec<NodeInfo>, Failure> {
    match session.call(client, Request::Nodes { all }).await? {
        Reply::Nodes(nodes) => Ok(nodes),
        reply => Err(unexpected(&reply)),
    }
}

/// Names a node for people: its id and its name.
#[must_use]
pub fn title(info: &NodeInfo) -> String {
    format!("node {} ({})", info.id, info.name)
}

/// Returns the failure of a command after which data was lost with a node; `None` if none was.
#[must_use]
pub fn lost_with(info: &NodeInfo) -> Option<Failure> {
    let drain = info.drain.filter(|drain| drain.lost_blocks > 0)?;
    let cause = format!(
        "{} in {} lost with {}",
        units::bytes(drain.lost_bytes),
        units::count(drain.lost_blocks, "block", "blocks"),
        title(info)
    );
    Some(Failure::new(Exit::Partial, RefusalKind::DataUnavailable, cause))
}

/// Describes what is expected of a drain, in one line for people: bytes, targets, rate, time, and
/// in capitals what will not be saved.
#[must_use]
pub fn forecast(forecast: &Forecast) -> String {
    if forecast.left_bytes == 0 && forecast.skipped_bytes == 0 {
        return "nothing left to move".to_owned();
    }
    let mut parts = vec![format!(
        "{} to {}",
        units::bytes(forecast.left_bytes),
        units::count(forecast.targets.into(), "node", "nodes")
    )];
    if forecast.bytes_per_second > 0 {
        parts.push(format!("{}/s", units::bytes(forecast.bytes_per_second)));
    }
    if let Some(left) = forecast.finish_in {
        parts.push(format!("done in {}", units::millis(left)));
    }
    for (bytes, what) in [
        (forecast.skipped_bytes, "expire by themselves"),
        (forecast.late_bytes, "WILL NOT MAKE IT"),
        (forecast.unplaced_bytes, "HAVE NO ROOM"),
    ] {
        if bytes > 0 {
            parts.push(format!("{} {what}", units::bytes(bytes)));
        }
    }
    parts.join(", ")
}
