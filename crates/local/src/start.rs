//! `local start`.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use sanderling_command::failure::{Exit, Failure, FailureKind, RefusalKind};
use sanderling_command::global::Global;
use sanderling_command::output::Output;
use sanderling_command::process::POLL_INTERVAL;
use sanderling_command::refused::shell_word;
use sanderling_command::session::block_on;
use sanderling_command::units;
use sanderling_command::units::Size;
use sanderling_protocol::message::MemberRole;
use sanderling_protocol::ports::{NAMENODE_ADDRESS, NAMENODE_PORT};
use sanderling_protocol::{Reply, Request};
use thiserror::Error;

use super::directory::{CATALOGS, ClusterDirectory, DISKS, KEYS, LOGS, READY, directory};
use super::keys::KeyFiles;
use super::launch::{ALONE, READY_TIMEOUT, catalog_of, datanode_words, launch, namenode_words};
use super::lock::Lock;
use super::ownership;
use super::record::{DatanodeShape, Record, ServerRecord, ServerRole};
use super::server_files::{catalog_bytes, delete_data, delete_logs};
use super::stop::end;

/// How long the processes of a start that failed may take to end by themselves; they hold no data,
/// so they are killed then. Chosen, not measured.
const LEFT_TIMEOUT: Duration = Duration::from_secs(2);

/// `local start`.
#[derive(Debug, Args)]
pub struct LocalStart {
    /// Where it lives.
    #[command(flatten)]
    pub(crate) place: ClusterDirectory,
    /// How many namenodes: one, or a group of which any minority may die
    #[arg(long, value_name = "N", default_value = "1", value_parser = namenodes)]
    pub(crate) namenodes: u16,
    /// How many datanodes
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) datanodes: u16,
    /// Memory of each datanode
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) dram: Size,
    /// Disk of each datanode; none by default
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Size>,
    /// Encrypt the disks with the key in this file, as `sanderling datanode --encrypt`
    #[arg(long, value_name = "KEYFILE", requires = "disk")]
    pub(crate) encrypt: Option<PathBuf>,
    /// The namenode's port; 0 for any free one. The second of several has this port + 2, the third
    /// this port + 4
    #[arg(long, default_value_t = NAMENODE_PORT)]
    pub(crate) port: u16,
    /// The port of the first namenode's HTTP; 0 for any free one [default: the namenode's port + 1]
    #[arg(long)]
    pub(crate) http_port: Option<u16>,
    /// Make a secret, certificates and an admin's token, and require tokens and TLS
    #[arg(long)]
    pub(crate) secure: bool,
    /// Confirm deleting the catalog of an earlier cluster that was not stopped; without it the
    /// command stops with exit code 2
    #[arg(long)]
    pub(crate) yes: bool,
}

pub(super) fn run(global: &Global, output: Output, args: &LocalStart) -> Result<(), Failure> {
    let limit = Instant::now() + global.timeout.map_or(READY_TIMEOUT, |span| span.0);
    let record = started(args, "the same with --yes", limit, |_| Ok(()))?;
    print_started(output, &record, args)
}

/// Starts a cluster where none runs, then `more` of it; leaves no process behind when that fails.
/// The catalog of an earlier one is not deleted without `--yes`: `deletion` is the command that
/// deletes it.
pub(super) fn started(
    args: &LocalStart,
    deletion: &str,
    limit: Instant,
    more: impl FnOnce(&mut Record) -> Result<(), Failure>,
) -> Result<Record, Failure> {
    let directory = directory(&args.place)?;
    let _lock = Lock::claim(&directory)?;
    let before = Record::read(&directory)?;
    if let Some(record) = &before
        && record.is_started
        && record.running().next().is_some()
    {
        let cause = format!("a cluster runs in {} already", directory.display());
        let failure = Failure::new(Exit::Failure, RefusalKind::Exists, cause)
            .tried(format_args!("its namenode is {}", record.namenode));
        let namenode = record.down().find(|server| server.role == ServerRole::Namenode);
        return Err(match namenode {
            Some(server) => failure.next(server.restart()),
            None => failure.next("sanderling local status, or sanderling local stop"),
        });
    }
    // What a start that was interrupted has left: nothing was stored in it.
    if let Some(record) = &before {
        end(record, LEFT_TIMEOUT);
    }
    ownership::not_in_use(&directory, "the same with another --dir")?;
    if before.as_ref().is_none_or(|record| record.is_started) {
        match args.yes {
            false => must_have_no_catalog(before.as_ref(), &directory, deletion)?,
            // A start that cannot succeed deletes nothing.
            true => must_have_ports(args)?,
        }
    }
    let mut record = Record::new(&directory);
    let started = start(&mut record, args, limit).and_then(|()| more(&mut record)).and_then(|()| {
        record.is_started = true;
        record.write()
    });
    match started {
        Ok(()) => Ok(record),
        Err(failure) => {
            // What was started is not left behind, nor is the catalog, in which nothing was stored.
            end(&record, LEFT_TIMEOUT);
            delete_data(&directory);
            let _ = record.delete();
            Err(failure)
        }
    }
}

/// Refuses to delete the catalog of a cluster that was not stopped and whose processes have all
/// ended: a namenode that is started anew continues with it. Its size does not show whether it has
/// objects, since it has the datanodes, too: it is not deleted in either case, nor is one without a
/// record.
///
/// # Errors
/// Usage (2): start the namenode anew, or `deletion`.
fn must_have_no_catalog(
    record: Option<&Record>,
    directory: &Path,
    deletion: &str,
) -> Result<(), Failure> {
    let bytes = catalog_bytes(directory);
    if bytes == 0 {
        return Ok(());
    }
    let cause = format!(
        "the cluster in {} was not stopped: a new one would delete its catalog of {}",
        directory.display(),
        units::bytes(bytes)
    );
    let goes_on = |server: &&ServerRecord| {
        server.role == ServerRole::Namenode && catalog_of(directory, &server.name).exists()
    };
    let next = match record.and_then(|record| record.down().find(goes_on)) {
        Some(server) => format!("{}, or {deletion}", server.restart()),
        None => deletion.to_owned(),
    };
    let looked = match record {
        Some(_) => "looked for its processes: all have ended; nothing was changed",
        None => "looked for its record: there is none; nothing was changed",
    };
    Err(Failure::new(Exit::Usage, FailureKind::NotConfirmed, cause).tried(looked).next(next))
}

/// Refuses ports that another process has.
///
/// # Errors
/// Failure (1): free the port, or take another one.
fn must_have_ports(args: &LocalStart) -> Result<(), Failure> {
    let all = (0..args.namenodes).flat_map(|place| ports(args, place));
    for port in all.filter(|port| *port != 0) {
        if let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            let cause = format!("127.0.0.1:{port} cannot be used: {error}; nothing was deleted");
            return Err(Failure::new(Exit::Failure, FailureKind::LocalFile, cause)
                .next("the same with --port 0 --http-port 0"));
        }
    }
    Ok(())
}

fn start(record: &mut Record, args: &LocalStart, limit: Instant) -> Result<(), Failure> {
    record.write()?;
    prepare(&record.directory)?;
    let directory = record.directory.clone();
    if args.secure {
        record.keys = Some(KeyFiles::make(&directory.join(KEYS))?);
    }
    start_namenodes(record, args, limit)?;
    let shape = DatanodeShape {
        dram_bytes: args.dram.0,
        disk_bytes: args.disk.map(|disk| disk.0),
        encrypt: args.encrypt.clone(),
        egress_limit: None,
    };
    let mut datanodes = Vec::new();
    for at in 0..args.datanodes {
        let name = format!("datanode-{at}");
        let words = datanode_words(record, &shape, &name);
        datanodes.push(launch(record, ServerRole::Datanode, &name, Some(shape.clone()), words)?);
    }
    for mut datanode in datanodes {
        let name = datanode.server.name.clone();
        let ready = datanode.serves(limit)?;
        record.server_mut(&name)?.address = ready.address;
    }
    record.write()
}

/// Starts the namenodes: the first, then those that join it, until all vote.
fn start_namenodes(record: &mut Record, args: &LocalStart, limit: Instant) -> Result<(), Failure> {
    let directory = record.directory.clone();
    let mut addresses: Vec<String> = Vec::new();
    for place in 0..args.namenodes {
        let [listen, http] = ports(args, place).map(|port| format!("127.0.0.1:{port}"));
        let name = if args.namenodes == 1 { ALONE.to_owned() } else { format!("namenode-{place}") };
        let first = addresses.first().map(String::as_str);
        let words =
            namenode_words(&directory, &name, &listen, &http, (args.namenodes.into(), first));
        let ready = launch(record, ServerRole::Namenode, &name, None, words)?.serves(limit)?;
        let server = record.server_mut(&name)?;
        server.address.clone_from(&ready.address);
        server.http_address.clone_from(&ready.http_address);
        if addresses.is_empty() {
            record.http_address = ready.http_address;
            record.cluster = ready.cluster;
        }
        addresses.push(ready.address);
        record.namenode = addresses.join(",");
    }
    if addresses.len() > 1 { until_all_vote(record, addresses.len(), limit) } else { Ok(()) }
}

/// Returns the ports of a namenode: of the protocol and of HTTP.
fn ports(args: &LocalStart, place: u16) -> [u16; 2] {
    let beside = |port: u16, by: u16| if port == 0 { 0 } else { port.saturating_add(by) };
    let http = args.http_port.unwrap_or_else(|| beside(args.port, 1));
    [args.port, http].map(|port| beside(port, 2 * place))
}

/// A text is no number of namenodes that a group may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a group has 1, 3 or 5 namenodes")]
struct NamenodeCountError;

/// Reads a number of namenodes: half of an even number is no majority, so one more carries no
/// further loss.
fn namenodes(text: &str) -> Result<u16, NamenodeCountError> {
    match text.parse() {
        Ok(count @ (1 | 3 | 5)) => Ok(count),
        _ => Err(NamenodeCountError),
    }
}

/// Waits until a leader is elected and as many namenodes vote.
fn until_all_vote(record: &Record, count: usize, limit: Instant) -> Result<(), Failure> {
    block_on(async {
        let left = limit.saturating_duration_since(Instant::now());
        let client = record.client(left).await?;
        loop {
            if let Ok(Reply::Members(seen)) = client.request(Request::Members).await {
                let has = |role| seen.members.iter().filter(|it| it.role == role).count();
                let (leaders, voters) = (has(MemberRole::Leader), has(MemberRole::Voter));
                if leaders == 1 && leaders + voters == count {
                    return Ok(());
                }
            }
            if Instant::now() >= limit {
                let cause = format!("not all of {count} namenodes vote in time");
                return Err(Failure::new(Exit::Deadline, FailureKind::Deadline, cause)
                    .next("the same with a longer --timeout"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
}

/// Makes the directories and deletes what an earlier cluster has left. Files of others stay.
fn prepare(directory: &Path) -> Result<(), Failure> {
    let undeleted = [delete_data(directory), delete_logs(directory)];
    if let Some(failure) = undeleted.into_iter().find_map(|it| it.failed.into_iter().next()) {
        return Err(failure);
    }
    for name in [CATALOGS, DISKS, READY, LOGS, KEYS] {
        let path = directory.join(name);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|error| Failure::file(&path, error))?;
    }
    Ok(())
}

fn print_started(output: Output, record: &Record, args: &LocalStart) -> Result<(), Failure> {
    let dram = units::bytes(args.dram.0);
    let namenodes = units::count(args.namenodes.into(), "namenode", "namenodes");
    let datanodes = units::count(args.datanodes.into(), "datanode", "datanodes");
    output.note(format_args!("{namenodes} and {datanodes} of {dram} serve"));
    if let Some(console) = record.console() {
        output.note(format_args!("console: {console}"));
    }
    // Without it, commands would go to the cluster of the current context.
    if record.namenode != NAMENODE_ADDRESS || sanderling_command::cluster::is_chosen() {
        output.note(format_args!("export SANDERLING_NAMENODE={}", record.namenode));
    }
    if let Some(keys) = &record.keys {
        let shown = |path: &Path| shell_word(&path.to_string_lossy());
        output.note(format_args!("export SANDERLING_TLS_CA={}", shown(&keys.tls_ca)));
        output.note(format_args!("export SANDERLING_TOKEN_FILE={}", shown(&keys.token_file)));
    }
    output.result(record, |writer| writeln!(writer, "{}", record.namenode))
}
