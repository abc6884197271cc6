//! `local stop`.

use std::time::Duration;

use rustix::process::Signal;
use sanderling_cli_common::failure::{Exit, Failure, FailureKind};
use sanderling_cli_common::global::Global;
use sanderling_cli_common::output::Output;
use sanderling_cli_common::session::block_on;
use sanderling_cli_common::units;
use sanderling_protocol::message::Usage;
use sanderling_protocol::{Path, Reply, Request};

use super::directory::{CATALOGS, ClusterDirectory, DISKS, LOGS, directory};
use super::lock::Lock;
use super::ownership;
use super::record::{Record, ServerRole};

/// How long the servers may take to end by themselves.
const END_WITHIN: Duration = Duration::from_secs(5);

/// How long the namenode may take to report what the cluster holds.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

pub(super) fn run(
    global: &Global,
    output: Output,
    place: &ClusterDirectory,
) -> Result<(), Failure> {
    let directory = directory(place)?;
    Record::existing(&directory)?;
    let _lock = Lock::take(&directory)?;
    let record = Record::existing(&directory)?;
    let running = record.running().count();
    let held = held(&record);
    let killed = end(&record, global.timeout.map_or(END_WITHIN, |span| span.0));
    if let Some(name) = record.running().map(|server| server.name.clone()).next() {
        let cause = format!("{name} does not end, not even when it is killed");
        return Err(Failure::new(Exit::Failure, FailureKind::Process, cause)
            .next("sanderling local status"));
    }
    ownership::not_in_use(&directory, "sanderling local stop")?;
    // The datanodes' memory is gone: a catalog of it would only name what is lost.
    for name in [CATALOGS, DISKS, "ready", "keys"] {
        let _ = std::fs::remove_dir_all(directory.join(name));
    }
    record.delete()?;
    let logs = directory.join(LOGS);
    let processes = units::count(running as u64, "process", "processes");
    output.note(format_args!("stopped {processes}; logs: {}", logs.display()));
    output.note(match &held {
        Some(held) if held.files == 0 => "the cluster held no data".to_owned(),
        Some(held) => format!(
            "deleted with it: {}, {}",
            units::count(held.files, "object", "objects"),
            units::bytes(held.bytes)
        ),
        None => "deleted with it: all that it held; its namenode did not answer how much".into(),
    });
    let document = serde_json::json!({
        "stopped": running, "killed": killed, "logs": logs,
        "deleted_objects": held.as_ref().map(|held| held.files),
        "deleted_bytes": held.as_ref().map(|held| held.bytes),
    });
    output.result(&document, |_| Ok(()))
}

/// Returns what the cluster holds, if its namenode answers in time.
fn held(record: &Record) -> Option<Usage> {
    if record.namenode.is_empty() {
        return None;
    }
    let mut held = None;
    let asked = block_on(async {
        let client = record.client(ANSWER_WITHIN).await?;
        let request = Request::Usage { path: Path::root() };
        if let Ok(Reply::Usage(usage)) = client.request(request).await {
            held = Some(usage);
        }
        Ok(())
    });
    asked.ok().and(held)
}

/// Ends the processes on record: datanodes first and at once, since there is nowhere for their data
/// to go. Returns how many had to be killed.
pub(super) fn end(record: &Record, within: Duration) -> usize {
    let mut killed = 0;
    for role in [ServerRole::Datanode, ServerRole::Namenode] {
        let servers = || record.running().filter(|server| server.role == role);
        servers().for_each(|server| server.process.signal(Signal::INT));
        let until = std::time::Instant::now() + within;
        for server in servers() {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if !server.process.wait(left) {
                killed += 1;
                server.process.signal(Signal::KILL);
                let _ = server.process.wait(Duration::from_secs(2));
            }
        }
    }
    killed
}
