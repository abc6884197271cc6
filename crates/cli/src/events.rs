//! `sanderling events`.

use clap::Args;
use sanderling_protocol::event::{Event, EventKind};
use sanderling_protocol::{Millis, Reply, Request};

use crate::failure::{Exit, Failure};
use crate::printable::printable;
use crate::session::Session;
use crate::units;

/// `sanderling events`.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Go on and wait for more
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Start after this event
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
    pub(crate) after: u64,
}

/// Most events in one answer.
const PAGE: u32 = 1000;

/// How long one question waits for an event.
const WAIT: Millis = Millis(5000);

/// Prints what happened, and with `--follow` what happens.
///
/// # Errors
/// Unavailable (4) when the namenode cannot be reached.
pub(crate) async fn run(session: Session, args: Events) -> Result<(), Failure> {
    let client = session.client().await?;
    let mut after = args.after;
    loop {
        let wait = if args.follow { WAIT } else { Millis(0) };
        let request = Request::Events { after, limit: PAGE, wait };
        let reply = tokio::select! {
            reply = session.call(&client, request) => reply?,
            () = session.ended.cancelled() => return Err(Failure::silent(Exit::Interrupted)),
        };
        let Reply::Events(events) = reply else { return Err(crate::node::unexpected(&reply)) };
        for event in &events {
            session
                .output
                .result(event, |writer| writeln!(writer, "{}", printable(&line(event))))?;
            after = event.sequence;
        }
        if events.is_empty() && !args.follow {
            return Ok(());
        }
    }
}

/// Writes an event for people.
fn line(event: &Event) -> String {
    format!("{:>6}  {}  {}", event.sequence, units::instant(event.at), text(&event.kind))
}

fn text(kind: &EventKind) -> String {
    let bytes = |value: &u64| units::bytes(*value);
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
        EventKind::NodeFenced { node } => format!("node {node} takes no more writes"),
        EventKind::NodeCancelled { node } => format!("node {node} takes blocks again"),
        EventKind::BlocksMoved { from, to, blocks, bytes: moved } => {
            format!("{blocks} blocks, {} moved from node {from} to node {to}", bytes(moved))
        }
        EventKind::BlocksPromoted { from, blocks, bytes: saved } => format!(
            "{blocks} blocks, {} of node {from} were copied before: no byte had to move",
            bytes(saved)
        ),
        EventKind::BlocksCopied { from, to, blocks, bytes: copied } => {
            format!("{blocks} blocks, {} of node {from} copied to node {to}", bytes(copied))
        }
        EventKind::BlocksRebalanced { from, to, blocks, bytes: moved } => format!(
            "{blocks} blocks, {} moved from node {from} to node {to} for balance",
            bytes(moved)
        ),
        EventKind::DrainForecast { node, forecast } => {
            format!("node {node} forecast: {}", crate::node::forecast(forecast))
        }
        EventKind::NodeAtRisk { node, name, reason } => {
            format!("node {node} ({name}) is likely to get its notice soon: {reason}")
        }
        EventKind::NodeDrained { node, moved_blocks, moved_bytes, elapsed } => format!(
            "node {node} is empty: {moved_blocks} blocks, {} moved in {}",
            bytes(moved_bytes),
            units::millis(*elapsed)
        ),
        EventKind::NodeGone { node, name, why } => format!("node {node} ({name}) is gone: {why}"),
        EventKind::BlocksLost { node, blocks, bytes: lost, objects, jobs } => {
            let of = match &jobs[..] {
                [] => String::new(),
                [job] => format!(" of job {job}"),
                jobs => format!(" of {} jobs", jobs.len()),
            };
            let lost = bytes(lost);
            format!("LOST {blocks} blocks, {lost} of {objects} objects{of} with node {node}")
        }
        EventKind::JobRegistered { job, path } => format!("job {job} began at {path}"),
        EventKind::JobEnded { job, path, is_expired, freed_bytes } => format!(
            "job {job} at {path} {}: {} freed",
            if *is_expired { "was not renewed" } else { "ended" },
            bytes(freed_bytes)
        ),
        EventKind::ManagerChanged { name } => format!("manager {name} acts from now on"),
        EventKind::NamenodeStarted { .. }
        | EventKind::NamenodeAbsent { .. }
        | EventKind::LogEndLost { .. }
        | EventKind::BlocksOrphaned { .. }
        | EventKind::ReserveShort { .. }
        | EventKind::ReserveRestored { .. }
        | EventKind::JournalCut { .. }
        | EventKind::SnapshotSkipped { .. }
        | EventKind::BlocksDamaged { .. } => of_the_log(kind),
    }
}

/// Describes what happened to the namenode, its log and its room, and to bytes at rest.
fn of_the_log(kind: &EventKind) -> String {
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
            "LOST {blocks} blocks, {} on node {node}: the log that named them has lost its end",
            bytes(lost)
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
            "node {node} found {blocks} blocks damaged or missing: of {saved} there is another copy"
        ),
        // The caller describes all others.
        other => format!("{other:?}"),
    }
}
