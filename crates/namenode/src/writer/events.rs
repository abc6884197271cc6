//! Events as lines of the log.

use sanderling_protocol::{Event, EventKind};
use tracing::{error, info, warn};

/// Logs an event once, when it happens.
pub(super) fn log(event: &Event) {
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
        EventKind::BlocksLost { node, blocks, bytes, objects, jobs } => {
            let jobs = jobs.len();
            warn!(%node, blocks, bytes, objects, jobs, "bytes are lost");
        }
        EventKind::JobRegistered { job, path } => info!(%job, %path, "job registered"),
        EventKind::JobEnded { job, path, is_expired, freed_bytes } => {
            info!(%job, %path, is_expired, freed_bytes, "job ended");
        }
        // It may be the first one.
        EventKind::ManagerChanged { name } => info!(name, "a manager leads from now on"),
        EventKind::BlocksPromoted { from, blocks, bytes } => {
            info!(node = %from, blocks, bytes, "copies became homes");
        }
        EventKind::DrainForecast { node, forecast } => {
            let (left_bytes, finish_in) = (forecast.left_bytes, forecast.finish_in);
            let (late_bytes, unplaced_bytes) = (forecast.late_bytes, forecast.unplaced_bytes);
            info!(%node, left_bytes, ?finish_in, late_bytes, unplaced_bytes, "drain forecast");
        }
        EventKind::NodeAtRisk { node, name, reason } => {
            info!(%node, name, reason, "the cloud recommends to leave the node");
        }
        EventKind::NamenodeAbsent { .. }
        | EventKind::LogEndLost { .. }
        | EventKind::BlocksOrphaned { .. }
        | EventKind::ReserveShort { .. }
        | EventKind::ReserveRestored { .. }
        | EventKind::BlocksDamaged { .. } => log_of_safety(&event.kind),
        EventKind::DirectoryDurable { .. }
        | EventKind::DurableStalled { .. }
        | EventKind::DurableDropped { .. }
        | EventKind::StoreAdopted { .. } => log_of_stores(&event.kind),
        // One line per batch of moves would drown the others, and what a start or a leader found
        // was logged before.
        EventKind::BlocksMoved { .. }
        | EventKind::BlocksCopied { .. }
        | EventKind::BlocksRebalanced { .. }
        | EventKind::ObjectsDurable { .. }
        | EventKind::NamenodeStarted { .. }
        | EventKind::JournalCut { .. }
        | EventKind::SnapshotSkipped { .. }
        | EventKind::NamenodeLeads { .. }
        | EventKind::GroupChanged { .. }
        | EventKind::GroupAtRisk { .. }
        | EventKind::GroupRestored { .. } => {}
    }
}

/// Logs what happened to durable directories.
fn log_of_stores(kind: &EventKind) {
    match kind {
        EventKind::DirectoryDurable { path, store } => info!(%path, store, "directory is durable"),
        EventKind::DurableStalled { path, store, why } => {
            warn!(%path, store, why, "the store of a durable directory does not do what is needed");
        }
        EventKind::DurableDropped { path, store, changes, bytes } => {
            warn!(%path, store, changes, bytes, "a durable directory was deleted");
        }
        EventKind::StoreAdopted { path, store, objects, bytes, skipped } => {
            info!(%path, store, objects, bytes, skipped, "a store was adopted");
        }
        _ => {}
    }
}

/// Logs what is missing, or could be after one more failure.
fn log_of_safety(kind: &EventKind) {
    match kind {
        EventKind::NamenodeAbsent { millis } => {
            warn!(millis, "the namenode did not serve: leases, lifetimes and notices have waited");
        }
        EventKind::LogEndLost { name, address, commands } => {
            let missing = commands;
            error!(
                name,
                address,
                ?missing,
                "the end of the log is lost: a datanode is ahead of it"
            );
        }
        EventKind::BlocksOrphaned { node, blocks, bytes } => {
            error!(%node, blocks, bytes, "blocks of a lost end of the log are dropped");
        }
        EventKind::ReserveShort { departures, missing_bytes } => {
            warn!(departures, missing_bytes, "a notice could not be met: there is too little room");
        }
        EventKind::ReserveRestored { departures, room_bytes } => {
            info!(departures, room_bytes, "there is room again for nodes that leave");
        }
        EventKind::BlocksDamaged { node, blocks, saved } => {
            warn!(%node, blocks, saved, "a node found blocks damaged");
        }
        _ => {}
    }
}
