//! `local status`.

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::output::{Align, Output, Table};
use sanderling_command::units;
use serde::Serialize;

use super::directory::{ClusterDirectory, directory};
use super::membership::{is_removed, rejoin};
use super::record::{Record, ServerRecord};

#[derive(Serialize)]
struct Status<'a> {
    directory: &'a std::path::Path,
    namenode: &'a str,
    http_address: &'a Option<String>,
    cluster: &'a Option<String>,
    processes: Vec<StatusLine<'a>>,
}

#[derive(Serialize)]
struct StatusLine<'a> {
    #[serde(flatten)]
    server: &'a ServerRecord,
    is_running: bool,
}

pub(super) fn run(output: Output, place: &ClusterDirectory) -> Result<(), Failure> {
    let record = Record::existing(&directory(place)?)?;
    let line = |server| StatusLine { server, is_running: server.process.is_running() };
    let status = Status {
        directory: &record.directory,
        namenode: &record.namenode,
        http_address: &record.http_address,
        cluster: &record.cluster,
        processes: record.processes.iter().map(line).collect(),
    };
    output.result(&status, |writer| {
        let mut table = Table::new(&[
            ("name", Align::Left),
            ("state", Align::Left),
            ("pid", Align::Right),
            ("address", Align::Left),
            ("log", Align::Left),
        ]);
        for line in &status.processes {
            let state = if line.is_running { "running" } else { "DOWN" };
            table.row([
                line.server.name.clone(),
                state.to_owned(),
                line.server.process.pid.to_string(),
                line.server.address.clone(),
                line.server.log.display().to_string(),
            ]);
        }
        table.write(writer)
    })?;
    record.must_be_started()?;
    let down: Vec<&StatusLine<'_>> =
        status.processes.iter().filter(|line| !line.is_running).collect();
    let Some(first) = down.first() else { return Ok(()) };
    let cause = format!(
        "{} of {} {} down",
        down.len(),
        units::count(status.processes.len() as u64, "process", "processes"),
        if down.len() == 1 { "is" } else { "are" }
    );
    // A removed namenode does not come back on its directory.
    let (cause, next) = match is_removed(&record, first.server)? {
        true => {
            let name = &first.server.name;
            let cause = format!("{cause}: {name} was removed from its group");
            (cause, rejoin(&record, first.server))
        }
        false => (cause, first.server.restart()),
    };
    Err(Failure::new(Exit::Unavailable, FailureKind::Down, cause)
        .tried(format_args!(
            "looked for process {}, {}",
            first.server.process.pid, first.server.name
        ))
        .next(next))
}
