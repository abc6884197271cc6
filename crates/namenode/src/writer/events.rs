//! Events as lines of the log.

use sanderling_protocol::{Event, EventKind};
use tracing::{info, warn};

/// Logs an event once, when it happens.
pub(super) fn say(event: &Event) {
    match &event.kind {
        EventKind::NodeRegistered { node, name, address } => {
            info!(%node, name, address, "node registered");
        }
        EventKind::NodeNoticed { node, name, deadline_in, reason, bytes } => {
            info!(%node, name, %deadline_in, reason, bytes, "notice: the node drains");
        }
        EventKind::NodeDecommissioning { node, name, reason, bytes } => {
            info!(%node, name, reason, bytes, "decommission: the node drains");
        }
        EventKind::NodeFenced { node } => info!(%node, "node fenced"),
        EventKind::NodeCancelled { node } => info!(%node, "notice taken back"),
        EventKind::NodeDrained { node, moved_blocks, moved_bytes, elapsed } => {
            info!(%node, moved_blocks, moved_bytes, %elapsed, "node drained");
        }
        EventKind::NodeGone { node, name, why } => info!(%node, name, why, "node gone"),
        EventKind::BlocksLost { node, blocks, bytes, objects } => {
            warn!(%node, blocks, bytes, objects, "bytes are lost");
        }
        EventKind::JobRegistered { job, path } => info!(%job, %path, "job registered"),
        EventKind::JobEnded { job, path, is_expired, freed_bytes } => {
            info!(%job, %path, is_expired, freed_bytes, "job ended");
        }
        EventKind::ManagerChanged { name } => info!(name, "another manager acts"),
        // One line per batch of moves would drown the others, and the start was logged before.
        EventKind::BlocksMoved { .. } | EventKind::NamenodeStarted { .. } => {}
    }
}
