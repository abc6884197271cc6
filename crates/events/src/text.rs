//! What an event is for people, in one line.

use sanderling_command::units;
use sanderling_protocol::event::EventKind;
use sanderling_protocol::{JobId, MemberId, Millis, NodeId};

use super::names::NodeNames;

/// Describes an event. What others chose, as names and reasons, is in it as they chose it.
#[must_use]
pub fn text(kind: &EventKind, names: &NodeNames) -> String {
    let bytes = |value: &u64| units::bytes(*value);
    let title = |node: &NodeId| names.title(*node);
    match kind {
        EventKind::NodeRegistered { node, name, address } => {
            format!("node {node} ({name}) joined at {address}")
        }
        EventKind::NodeNoticed { node, name, deadline_in, reason, bytes: held } => format!(
            "node {node} ({name}) got a notice: {} to move within {}, because of {reason}",
            bytes(held),
            units::millis(*deadline_in)
        ),
        EventKind::NodeDecommissioning { node, name, reason, bytes: held } => format!(
            "node {node} ({name}) is decommissioned: {} to move, because of {reason}",
            bytes(held)
        ),
        EventKind::NodeFenced { node } => format!("{} takes no more writes", title(node)),
        EventKind::NodeCancelled { node } => format!("{} takes blocks again", title(node)),
        EventKind::BlocksMoved { .. }
        | EventKind::BlocksPromoted { .. }
        | EventKind::BlocksCopied { .. }
        | EventKind::BlocksRebalanced { .. }
        | EventKind::BlocksLost { .. } => of_moves(kind, names),
        EventKind::DrainForecast { node, forecast } => {
            format!("{} forecast: {}", title(node), sanderling_command::fleet::forecast(forecast))
        }
        EventKind::NodeAtRisk { node, name, reason } => {
            format!("node {node} ({name}) is likely to get its notice soon: {reason}")
        }
        EventKind::NodeDrained { node, moved_blocks, moved_bytes, elapsed } => format!(
            "{} is empty: {}, {} moved in {}",
            title(node),
            blocks_of(*moved_blocks),
            bytes(moved_bytes),
            units::millis(*elapsed)
        ),
        EventKind::NodeGone { node, name, why } => format!("node {node} ({name}) is gone: {why}"),
        EventKind::JobRegistered { job, path } => format!("job {job} began at {path}"),
        EventKind::JobEnded { job, path, is_expired, freed_bytes } => format!(
            "job {job} at {path} {}: {} freed",
            if *is_expired { "was not renewed" } else { "ended" },
            bytes(freed_bytes)
        ),
        EventKind::ManagerChanged { name } => format!("manager {name} leads from now on"),
        EventKind::NamenodeLeads { .. }
        | EventKind::GroupChanged { .. }
        | EventKind::GroupAtRisk { .. }
        | EventKind::GroupRestored { .. } => of_the_group(kind),
        EventKind::DirectoryDurable { .. }
        | EventKind::ObjectsDurable { .. }
        | EventKind::DurableStalled { .. }
        | EventKind::DurableDropped { .. }
        | EventKind::StoreAdopted { .. } => of_stores(kind),
        EventKind::NamenodeStarted { .. }
        | EventKind::NamenodeAbsent { .. }
        | EventKind::LogEndLost { .. }
        | EventKind::BlocksOrphaned { .. }
        | EventKind::ReserveShort { .. }
        | EventKind::ReserveRestored { .. }
        | EventKind::JournalCut { .. }
        | EventKind::SnapshotSkipped { .. }
        | EventKind::BlocksDamaged { .. } => of_the_log(kind, names),
    }
}

fn blocks_of(count: u64) -> String {
    units::count(count, "block", "blocks")
}

/// Describes blocks that have another home or another copy, or are lost.
fn of_moves(kind: &EventKind, names: &NodeNames) -> String {
    let bytes = |value: &u64| units::bytes(*value);
    let title = |node: &NodeId| names.title(*node);
    match kind {
        EventKind::BlocksMoved { from, to, blocks, bytes: moved } => {
            let (moved, from, to) = (bytes(moved), title(from), title(to));
            format!("{}, {moved} moved from {from} to {to}", blocks_of(*blocks))
        }
        EventKind::BlocksPromoted { from, blocks, bytes: saved } => format!(
            "{}, {} of {} were copied before: no byte had to move",
            blocks_of(*blocks),
            bytes(saved),
            title(from)
        ),
        EventKind::BlocksCopied { from, to, blocks, bytes: copied } => {
            let (copied, from, to) = (bytes(copied), title(from), title(to));
            format!("{}, {copied} of {from} copied to {to}", blocks_of(*blocks))
        }
        EventKind::BlocksRebalanced { from, to, blocks, bytes: moved } => format!(
            "{}, {} moved from {} to {} for balance",
            blocks_of(*blocks),
            bytes(moved),
            title(from),
            title(to)
        ),
        EventKind::BlocksLost { node, blocks, bytes: lost, objects, jobs } => {
            let (of, lost, title) = (of_jobs(jobs), bytes(lost), title(node));
            let (blocks, objects) =
                (blocks_of(*blocks), units::count(*objects, "object", "objects"));
            format!("LOST {blocks}, {lost} of {objects}{of} with {title}")
        }
        // The caller describes all others.
        other => format!("{other:?}"),
    }
}

/// Describes what happened to the group of namenodes.
fn of_the_group(kind: &EventKind) -> String {
    match kind {
        EventKind::NamenodeLeads { member, address } => {
            format!("namenode {member} ({address}) leads the group from now on")
        }
        EventKind::GroupChanged { joined, left } => {
            let list = |members: &[MemberId]| {
                let numbers: Vec<String> = members.iter().map(ToString::to_string).collect();
                numbers.join(", ")
            };
            let some = |members: &[MemberId], what: &str| match members {
                [] => None,
                [one] => Some(format!("namenode {one} {what}s")),
                _ => Some(format!("namenodes {} {what}", list(members))),
            };
            let parts = [some(joined, "vote"), some(left, "leave")];
            parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
        EventKind::GroupAtRisk { why } => format!("GROUP AT RISK: {why}"),
        EventKind::GroupRestored { voters } => {
            format!("the group survives the loss of a namenode again: {voters} vote")
        }
        // The caller describes all others.
        other => format!("{other:?}"),
    }
}

fn of_jobs(jobs: &[JobId]) -> String {
    match jobs {
        [] => String::new(),
        [job] => format!(" of job {job}"),
        jobs => format!(" of {} jobs", jobs.len()),
    }
}

/// Describes what happened to durable directories.
fn of_stores(kind: &EventKind) -> String {
    match kind {
        EventKind::DirectoryDurable { path, store } => {
            format!("{path} is durable: what is sealed below it is copied to the store {store}")
        }
        EventKind::ObjectsDurable { path, store, objects, bytes } => format!(
            "the store {store} has all of {path}: {objects} objects more, {}",
            units::bytes(*bytes)
        ),
        EventKind::DurableStalled { path, store, why } => {
            format!("STORE STALLED: the store {store} of {path} does not do what is needed: {why}")
        }
        EventKind::DurableDropped { path, store, changes, bytes } => format!(
            "{path} was deleted: the store {store} keeps what it has, {changes} changes with {} \
             never get there",
            units::bytes(*bytes)
        ),
        EventKind::StoreAdopted { path, store, objects, bytes, skipped } => {
            let left_out = match skipped {
                0 => String::new(),
                _ => format!("; {skipped} were left out: sanderling fs stat {path}"),
            };
            let bytes = units::bytes(*bytes);
            format!(
                "{path} has what was in the store {store}: {objects} objects, {bytes}{left_out}"
            )
        }
        // The caller describes all others.
        other => format!("{other:?}"),
    }
}

/// Describes what happened to the namenode, its log and its room, and to bytes at rest.
fn of_the_log(kind: &EventKind, names: &NodeNames) -> String {
    let bytes = |value: &u64| units::bytes(*value);
    match kind {
        EventKind::NamenodeStarted { commands, cut_bytes } => {
            let cut = if *cut_bytes == 0 {
                String::new()
            } else {
                format!(", {} of a torn journal tail cut", bytes(cut_bytes))
            };
            format!("namenode started with {commands} commands{cut}")
        }
        EventKind::NamenodeAbsent { millis } => format!(
            "no namenode served for {}: leases, lifetimes and notices have waited",
            units::millis(Millis(*millis))
        ),
        EventKind::LogEndLost { name, address, commands } => {
            let missing = match commands {
                Some(commands) => format!("at least {commands} changes are missing"),
                None => "an unknown number of changes is missing".to_owned(),
            };
            format!("LOST end of the namenode's log: {missing}, found by node {name} ({address})")
        }
        EventKind::BlocksOrphaned { node, blocks, bytes: lost } => format!(
            "LOST {}, {} on {}: the log that named them has lost its end",
            blocks_of(*blocks),
            bytes(lost),
            names.title(*node)
        ),
        EventKind::ReserveShort { departures, missing_bytes } => {
            let missing = bytes(missing_bytes);
            let whose = match departures {
                0 => "the departures under way".to_owned(),
                1 => "one more departure".to_owned(),
                departures => format!("{departures} more departures"),
            };
            format!("RESERVE SHORT: room for {missing} is missing for {whose}")
        }
        EventKind::ReserveRestored { departures, room_bytes } => {
            let room = bytes(room_bytes);
            let whose = match departures {
                0 => "those under way".to_owned(),
                1 => "one more node".to_owned(),
                departures => format!("{departures} more nodes"),
            };
            format!("reserve restored: {whose} may leave, {room} may be written")
        }
        EventKind::JournalCut { records, bytes: cut, is_accepted, why } => {
            let cause = if *is_accepted { "accepted damage" } else { "crash of the machine" };
            let cut = bytes(cut);
            format!("LOST {records} records of changes, {cut} of journal, {cause}: {why}")
        }
        EventKind::SnapshotSkipped { commands, why } => format!(
            "the snapshot after {commands} commands is damaged, an older one took its place: {why}"
        ),
        EventKind::BlocksDamaged { node, blocks, saved } => format!(
            "{} found {} damaged or missing: of {saved} there is another copy",
            names.title(*node),
            blocks_of(*blocks)
        ),
        // The caller describes all others.
        other => format!("{other:?}"),
    }
}
