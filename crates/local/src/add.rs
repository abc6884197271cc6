//! `local add`.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use sanderling_command::failure::{Exit, Failure, RefusalKind};
use sanderling_command::global::Global;
use sanderling_command::output::Output;
use sanderling_command::refused::shell_word;
use sanderling_command::units::{self, Size};

use super::directory::{ClusterDirectory, directory};
use super::launch::{READY_TIMEOUT, datanode_words, launch};
use super::lock::Lock;
use super::record::{DatanodeShape, Record, ServerRole};

/// `local add`.
#[derive(Debug, Args)]
pub struct LocalAdd {
    /// Where the cluster lives.
    #[command(flatten)]
    pub(crate) place: ClusterDirectory,
    /// The datanode's name [default: datanode-N, the first that is free]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Its memory [default: as the first datanode's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) dram: Option<Size>,
    /// Its disk [default: as the first datanode's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Size>,
    /// Encrypt its disk with the key in this file [default: as the first datanode's]
    #[arg(long, value_name = "KEYFILE")]
    pub(crate) encrypt: Option<PathBuf>,
}

pub(super) fn run(global: &Global, output: Output, args: &LocalAdd) -> Result<(), Failure> {
    let directory = directory(&args.place)?;
    Record::existing(&directory)?;
    let _lock = Lock::take(&directory)?;
    let mut record = Record::existing(&directory)?;
    record.must_be_started()?;
    let is_free = |name: &String| record.processes.iter().all(|server| server.name != *name);
    let name = match &args.name {
        Some(name) if name.is_empty() || name.contains(['/', '\n']) => {
            return Err(Failure::usage(
                "the name of a datanode here has no slash and is not empty",
            ));
        }
        Some(name) if !is_free(name) => {
            let cause = format!("the cluster has a process {name} already");
            return Err(Failure::new(Exit::Failure, RefusalKind::Exists, cause)
                .tried(format_args!("read the names of the cluster in {}", directory.display()))
                .next(format_args!(
                    "sanderling local restart {}, or sanderling local status",
                    shell_word(name)
                )));
        }
        Some(name) => name.clone(),
        None => (0..).map(|at| format!("datanode-{at}")).find(is_free).expect("some number is"),
    };
    record.must_have_namenode()?;
    let shape = shape(&record, args);
    let words = datanode_words(&record, &shape, &name);
    let limit = Instant::now() + global.timeout.map_or(READY_TIMEOUT, |span| span.0);
    let dram = units::bytes(shape.dram_bytes);
    let started = launch(&mut record, ServerRole::Datanode, &name, Some(shape), words)
        .and_then(|mut starting| starting.serves(limit));
    match started {
        Ok(ready) => record.server_mut(&name)?.address = ready.address,
        Err(failure) => {
            // What was started is not left behind.
            if let Ok(server) = record.server(&name) {
                server.process.signal(rustix::process::Signal::KILL);
            }
            record.processes.retain(|server| server.name != name);
            // Where that fails, it is on record as one that is down.
            let _ = record.write();
            return Err(record.mended(failure));
        }
    }
    record.write()?;
    output.note(format_args!("{name} with {dram} serves"));
    output.result(record.server(&name)?, |writer| writeln!(writer, "{name}"))
}

fn shape(record: &Record, args: &LocalAdd) -> DatanodeShape {
    /// Memory of a datanode in bytes where no other datanode shows a size: the default of `local
    /// start --dram`.
    const DRAM: u64 = 256 << 20;
    let first = record.shape();
    let first = first.unwrap_or(DatanodeShape {
        dram_bytes: DRAM,
        disk_bytes: None,
        encrypt: None,
        egress_limit: None,
    });
    DatanodeShape {
        dram_bytes: args.dram.map_or(first.dram_bytes, |size| size.0),
        disk_bytes: args.disk.map(|size| size.0).or(first.disk_bytes),
        encrypt: args.encrypt.clone().or(first.encrypt),
        egress_limit: first.egress_limit,
    }
}
