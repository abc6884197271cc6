//! `local start`.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use super::directory::{ClusterDirectory, directory};
use super::keys::KeyFiles;
use super::launch::{READY_WITHIN, datanode_words, launch, namenode_words};
use super::lock::Lock;
use super::record::{DatanodeShape, Record};
use super::stop::end;
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output::Output;
use crate::refused::shell_word;
use crate::units;
use crate::units::Size;

/// `local start`.
#[derive(Debug, Args)]
pub(crate) struct LocalStart {
    /// Where it lives.
    #[command(flatten)]
    pub(crate) place: ClusterDirectory,
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
    /// The namenode's port; 0 for any free one
    #[arg(long, default_value_t = 7600)]
    pub(crate) port: u16,
    /// The port of the namenode's HTTP; 0 for any free one [default: the namenode's port + 1]
    #[arg(long)]
    pub(crate) http_port: Option<u16>,
    /// Make a secret, certificates and an admin's token, and require tokens and TLS
    #[arg(long)]
    pub(crate) secure: bool,
}

pub(super) fn run(global: &Global, output: Output, args: &LocalStart) -> Result<(), Failure> {
    let limit = Instant::now() + global.timeout.map_or(READY_WITHIN, |span| span.0);
    let record = started(args, limit, |_| Ok(()))?;
    print_started(output, &record, args)
}

/// Starts a cluster where none runs, then `more` of it; leaves no process behind when that fails.
pub(super) fn started(
    args: &LocalStart,
    limit: Instant,
    more: impl FnOnce(&mut Record) -> Result<(), Failure>,
) -> Result<Record, Failure> {
    let directory = directory(&args.place)?;
    let _lock = Lock::take(&directory)?;
    if let Some(record) = Record::read(&directory)?
        && record.running().next().is_some()
    {
        let cause = format!("a cluster runs in {} already", directory.display());
        return Err(Failure::new(Exit::Failure, "Exists", cause)
            .tried(format_args!("its namenode is {}", record.namenode))
            .next("sanderling local status, or sanderling local stop"));
    }
    let mut record = Record::new(&directory);
    match start(&mut record, args, limit).and_then(|()| more(&mut record)) {
        Ok(()) => Ok(record),
        Err(failure) => {
            // What was started is not left behind.
            end(&record, Duration::from_secs(2));
            let _ = record.delete();
            Err(failure)
        }
    }
}

fn start(record: &mut Record, args: &LocalStart, limit: Instant) -> Result<(), Failure> {
    prepare(&record.directory)?;
    let directory = record.directory.clone();
    if args.secure {
        record.keys = Some(KeyFiles::make(&directory.join("keys"))?);
    }
    let http_port = match (args.http_port, args.port) {
        (Some(port), _) => port,
        (None, 0) => 0,
        (None, port) => port.saturating_add(1),
    };
    let (listen, http) = (format!("127.0.0.1:{}", args.port), format!("127.0.0.1:{http_port}"));
    let words = namenode_words(&directory, &listen, &http);
    let namenode = launch(record, "namenode", "namenode", None, words)?;
    let ready = namenode.serves(limit)?;
    record.namenode = ready.address;
    record.http_address = ready.http_address;
    record.cluster = ready.cluster;
    if let Some(server) = record.processes.first_mut() {
        server.address.clone_from(&record.namenode);
    }
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
        datanodes.push(launch(record, "datanode", &name, Some(shape.clone()), words)?);
    }
    for datanode in datanodes {
        let name = datanode.server.name.clone();
        let ready = datanode.serves(limit)?;
        record.server_mut(&name)?.address = ready.address;
    }
    record.write()
}

/// Makes the directories and deletes what a cluster that was killed has left: its data is gone with
/// its datanodes, and a catalog without them would only name what is lost.
fn prepare(directory: &Path) -> Result<(), Failure> {
    for name in ["namenode", "disk", "ready", "logs", "keys"] {
        let path = directory.join(name);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::file(&path, &error));
            }
            _ => std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(|error| Failure::file(&path, &error))?,
        }
    }
    Ok(())
}

fn print_started(output: Output, record: &Record, args: &LocalStart) -> Result<(), Failure> {
    let dram = units::bytes(args.dram.0);
    let datanodes = units::count(args.datanodes.into(), "datanode", "datanodes");
    output.note(format_args!("1 namenode and {datanodes} of {dram} serve"));
    if let Some(console) = record.console() {
        output.note(format_args!("console: {console}"));
    }
    // Without it, commands would go to the cluster of the current context.
    if record.namenode != sanderling_context::DEFAULT_ADDRESS || crate::context::is_chosen() {
        output.note(format_args!("export SANDERLING_NAMENODE={}", record.namenode));
    }
    if let Some(keys) = &record.keys {
        let shown = |path: &Path| shell_word(&path.to_string_lossy());
        output.note(format_args!("export SANDERLING_TLS_CA={}", shown(&keys.tls_ca)));
        output.note(format_args!("export SANDERLING_TOKEN_FILE={}", shown(&keys.token_file)));
    }
    output.result(record, |writer| writeln!(writer, "{}", record.namenode))
}
