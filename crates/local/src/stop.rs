//! `local stop`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::global::Global;
use sanderling_command::output::Output;
use sanderling_command::session::block_on;
use sanderling_command::units;
use sanderling_protocol::message::Usage;
use sanderling_protocol::{Path, Reply, Request};

use super::directory::{ClusterDirectory, LOGS, directory};
use super::lock::Lock;
use super::ownership;
use super::record::{Record, ServerRole};
use super::server_files::{Undeleted, delete_data};

/// How long the servers may take to end by themselves, without `--timeout`. A namenode syncs its
/// journal, which takes milliseconds; a hung disk is not waited for. Chosen, not measured.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the namenode may take to report what the cluster holds. It is on this machine; if it
/// does not answer, the command reports nothing of the bytes. Chosen, not measured.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

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
    let killed = end(&record, global.timeout.map_or(END_TIMEOUT, |span| span.0));
    if let Some(name) = record.running().map(|server| server.name.clone()).next() {
        let cause = format!("{name} does not end, not even when it is killed");
        return Err(Failure::new(Exit::Failure, FailureKind::Process, cause)
            .next("sanderling local status"));
    }
    ownership::not_in_use(&directory, "sanderling local stop")?;
    // The datanodes' memory is gone: a catalog of it would only name what is lost.
    let undeleted = delete_data(&directory);
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
    print_undeleted(output, &undeleted);
    let left: Vec<_> = undeleted.foreign.iter().map(|path| path.to_string_lossy()).collect();
    let document = serde_json::json!({
        "stopped": running, "killed": killed, "logs": logs,
        "deleted_objects": held.as_ref().map(|held| held.files),
        "deleted_bytes": held.as_ref().map(|held| held.bytes),
        "left": left,
    });
    output.result(&document, |_| Ok(()))
}

/// Prints which directories were left, and why.
fn print_undeleted(output: Output, undeleted: &Undeleted) {
    let mut directories: BTreeMap<&std::path::Path, Vec<&PathBuf>> = BTreeMap::new();
    for path in &undeleted.foreign {
        directories.entry(path.parent().unwrap_or(path)).or_default().push(path);
    }
    for (directory, paths) in directories {
        let name = paths[0].file_name().unwrap_or_default().to_string_lossy();
        let others = match paths.len() - 1 {
            0 => String::new(),
            count => format!(" and {}", units::count(count as u64, "other", "others")),
        };
        output.note(format_args!(
            "left {}: it holds {name}{others}, which no local cluster made",
            directory.display()
        ));
    }
    for failure in &undeleted.failed {
        output.note(format_args!("not deleted: {}", failure.cause));
    }
}

/// Returns what the cluster holds, if its namenode answers in time.
fn held(record: &Record) -> Option<Usage> {
    if record.namenode.is_empty() {
        return None;
    }
    let mut held = None;
    let asked = block_on(async {
        let client = record.client(ANSWER_TIMEOUT).await?;
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
