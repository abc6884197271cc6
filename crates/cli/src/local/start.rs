//! `local start`.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use clap::Args;

use super::keys::KeyFiles;
use super::lock::Lock;
use super::record::{Record, ServerRecord};
use super::stop::end;
use super::{ClusterDirectory, directory};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output::Output;
use crate::process::{LOOK_EVERY, RecordedProcess, spawn};
use crate::ready::Ready;
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

/// How long the servers may take to serve.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Lines of a failed server's log that are shown.
const LOG_LINES: usize = 8;

/// A server that was spawned and does not serve yet.
struct Starting {
    child: Child,
    ready_file: PathBuf,
    server: ServerRecord,
}

pub(super) fn run(global: &Global, output: Output, args: &LocalStart) -> Result<(), Failure> {
    let directory = directory(&args.place)?;
    let _lock = Lock::take(&directory)?;
    if let Some(record) = Record::read(&directory)?
        && record.running().next().is_some()
    {
        let cause = format!("a cluster runs in {} already", directory.display());
        return Err(Failure::new(Exit::Failure, "Exists", cause)
            .tried(format_args!("its namenode is {}", record.namenode))
            .next("sanderling local stop, or local start with another --dir and --port"));
    }
    let limit = Instant::now() + global.timeout.map_or(READY_WITHIN, |span| span.0);
    let mut record = Record::new(&directory);
    match start(&mut record, args, limit) {
        Ok(()) => print_started(output, &record, args),
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
    let namenode = launch(record, "namenode", "namenode", namenode_words(&directory, args))?;
    let ready = namenode.serves(limit)?;
    record.namenode = ready.address;
    record.http_address = ready.http_address;
    record.cluster = ready.cluster;
    if let Some(server) = record.processes.first_mut() {
        server.address.clone_from(&record.namenode);
    }
    let mut datanodes = Vec::new();
    for at in 0..args.datanodes {
        let name = format!("datanode-{at}");
        let words = datanode_words(&directory, args, &record.namenode, &name);
        datanodes.push(launch(record, "datanode", &name, words)?);
    }
    for datanode in datanodes {
        let (pid, ready) = (datanode.server.process.pid, datanode.serves(limit)?);
        let server = record.processes.iter_mut().find(|server| server.process.pid == pid);
        server.expect("every launched server is on record").address = ready.address;
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

fn words(list: &[&str]) -> Vec<OsString> {
    list.iter().map(OsString::from).collect()
}

fn namenode_words(directory: &Path, args: &LocalStart) -> Vec<OsString> {
    let http_port = match (args.http_port, args.port) {
        (Some(port), _) => port,
        (None, 0) => 0,
        (None, port) => port.saturating_add(1),
    };
    let (listen, http) = (format!("127.0.0.1:{}", args.port), format!("127.0.0.1:{http_port}"));
    let mut list = words(&["namenode", "--listen", &listen, "--http", &http, "--dir"]);
    list.push(directory.join("namenode").into());
    list
}

fn datanode_words(
    directory: &Path,
    args: &LocalStart,
    namenode: &str,
    name: &str,
) -> Vec<OsString> {
    let dram = args.dram.0.to_string();
    let mut list = words(&["datanode", "--namenode", namenode, "--name", name, "--dram", &dram]);
    // Their metrics; the namenode's list of nodes contains the port.
    list.extend(words(&["--http", "127.0.0.1:0"]));
    if let Some(disk) = args.disk {
        list.extend(words(&["--disk", &disk.0.to_string(), "--disk-dir"]));
        list.push(directory.join("disk").join(name).into());
    }
    if let Some(key) = &args.encrypt {
        list.extend(["--encrypt".into(), key.into()]);
    }
    list
}

/// Spawns one server and puts it on record before anything else can fail.
fn launch(
    record: &mut Record,
    role: &str,
    name: &str,
    mut words: Vec<OsString>,
) -> Result<Starting, Failure> {
    let ready_file = record.directory.join("ready").join(name);
    let log = record.directory.join("logs").join(format!("{name}.log"));
    words.extend(record.keys.iter().flat_map(KeyFiles::words));
    words.extend(["--detach".into(), "--ready-file".into(), ready_file.clone().into()]);
    let child = spawn(&words, &log)?;
    let pid = child.id();
    let process = RecordedProcess::of(pid).unwrap_or(RecordedProcess { pid, start_time: 0 });
    let (role, name) = (role.to_owned(), name.to_owned());
    let server = ServerRecord { role, name, process, address: String::new(), log };
    record.processes.push(server.clone());
    record.write()?;
    Ok(Starting { child, ready_file, server })
}

impl Starting {
    /// Waits until the server serves.
    fn serves(mut self, limit: Instant) -> Result<Ready, Failure> {
        let name = &self.server.name;
        loop {
            if let Some(ready) = Ready::read(&self.ready_file) {
                return Ok(ready);
            }
            let ended = self.child.try_wait();
            if let Ok(Some(status)) = ended {
                let cause = format!("{name} ended at its start ({status}): {}", self.last_words());
                return Err(self.failed(Exit::Failure, "NotStarted", &cause));
            }
            if Instant::now() >= limit {
                let cause = format!("{name} does not serve in time: {}", self.last_words());
                return Err(self.failed(Exit::Deadline, "Deadline", &cause));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn failed(&self, exit: Exit, kind: &str, cause: &str) -> Failure {
        let next = if cause.contains("in use") {
            "sanderling local start --port 0, or sanderling local stop".to_owned()
        } else {
            format!("cat {}", shell_word(&self.server.log.to_string_lossy()))
        };
        Failure::new(exit, kind, cause).tried("started the server and waited for it").next(next)
    }

    /// The end of its log, which has the reason.
    fn last_words(&self) -> String {
        let log = std::fs::read(&self.server.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES)..];
        match shown.iter().find_map(|line| line.strip_prefix("error: ")) {
            Some(error) => error.to_owned(),
            None => shown.join("\n  "),
        }
    }
}

fn print_started(output: Output, record: &Record, args: &LocalStart) -> Result<(), Failure> {
    let dram = units::bytes(args.dram.0);
    output.note(format_args!("1 namenode and {} datanodes of {dram} serve", args.datanodes));
    if record.namenode != "127.0.0.1:7600" {
        output.note(format_args!("export SANDERLING_NAMENODE={}", record.namenode));
    }
    if let Some(keys) = &record.keys {
        let shown = |path: &Path| shell_word(&path.to_string_lossy());
        output.note(format_args!("export SANDERLING_TLS_CA={}", shown(&keys.tls_ca)));
        output.note(format_args!("export SANDERLING_TOKEN_FILE={}", shown(&keys.token_file)));
    }
    output.result(record, |writer| writeln!(writer, "{}", record.namenode))
}
