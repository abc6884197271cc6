//! Starts one server of the cluster in the background, and waits until it serves.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::process::{POLL_INTERVAL, RELEASE, RecordedProcess, spawn};
use sanderling_command::ready::{NotReady, Ready};
use sanderling_command::refused::shell_word;

use super::directory::{CATALOGS, DISKS, LOGS, READY};
use super::keys::KeyFiles;
use super::record::{DatanodeShape, Record, ServerRecord, ServerRole};

/// How long the servers may take to serve on a busy machine; on an idle one they take well under a
/// second. Chosen, not measured: `--timeout` gives another.
pub(super) const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The name of a namenode that is the only one.
pub(super) const ALONE: &str = "namenode";

/// Lines of a failed server's log that are shown: the error and what led to it, on a small
/// terminal. Chosen, not measured.
const LOG_LINES: usize = 8;

/// A server that was spawned and does not serve yet.
pub(super) struct Starting {
    /// While it is not released, its end of a pipe is here: it ends when this process does.
    child: Child,
    ready_file: PathBuf,
    pub(super) server: ServerRecord,
}

fn words(list: &[&str]) -> Vec<OsString> {
    list.iter().map(OsString::from).collect()
}

/// Returns the words that start a namenode at these addresses. One that joins another has its
/// address.
pub(super) fn namenode_words(
    directory: &Path,
    name: &str,
    listen: &str,
    http: &str,
    (voters, join): (usize, Option<&str>),
) -> Vec<OsString> {
    let mut list = words(&["namenode", "--listen", listen, "--http", http, "--dir"]);
    list.push(catalog_of(directory, name).into());
    // To one that is alone others may be added.
    list.extend(words(&["--voters", &voters.max(3).to_string()]));
    list.extend(join.iter().flat_map(|address| words(&["--join", address])));
    list
}

/// Returns where a namenode has its catalog: one that is alone in the directory itself.
pub(super) fn catalog_of(directory: &Path, name: &str) -> PathBuf {
    let all = directory.join(CATALOGS);
    if name == ALONE { all } else { all.join(name) }
}

/// Returns whether the cluster was started with several namenodes.
pub(super) fn is_of_group(record: &Record) -> bool {
    record.processes.iter().filter(|it| it.role == ServerRole::Namenode).count() > 1
}

/// Returns the words that start a datanode.
pub(super) fn datanode_words(record: &Record, shape: &DatanodeShape, name: &str) -> Vec<OsString> {
    let (directory, namenode) = (&record.directory, &record.namenode);
    let dram = shape.dram_bytes.to_string();
    let mut list = words(&["datanode", "--namenode", namenode, "--name", name, "--dram", &dram]);
    if let Some(console) = record.console() {
        list.extend(["--console".into(), console.into()]);
    }
    // Their metrics; the namenode's list of nodes contains the port.
    list.extend(words(&["--http", "127.0.0.1:0"]));
    if let Some(disk) = shape.disk_bytes {
        list.extend(words(&["--disk", &disk.to_string(), "--disk-dir"]));
        list.push(directory.join(DISKS).join(name).into());
    }
    if let Some(limit) = shape.egress_limit {
        list.extend(words(&["--egress-limit", &limit.to_string()]));
    }
    if let Some(key) = &shape.encrypt {
        list.extend(["--encrypt".into(), key.into()]);
    }
    list
}

/// Spawns one server and puts it on record, in place of one of its name. It does nothing before it
/// is on record: it waits until it is released, and ends if this process ends before, however it
/// does.
///
/// The addresses of one of its name stay: the next attempt needs them if this one fails.
pub(super) fn launch(
    record: &mut Record,
    role: ServerRole,
    name: &str,
    shape: Option<DatanodeShape>,
    mut words: Vec<OsString>,
) -> Result<Starting, Failure> {
    let ready_file = record.directory.join(READY).join(name);
    let log = record.directory.join(LOGS).join(format!("{name}.log"));
    words.extend(record.keys.iter().flat_map(KeyFiles::words));
    words.extend(["--detach".into(), "--ready-file".into(), ready_file.clone().into()]);
    // A ready file of an earlier process would be taken for this one's.
    let _ = std::fs::remove_file(&ready_file);
    let mut child = spawn(&words, &log)?;
    let pid = child.id();
    let process = RecordedProcess::of(pid).unwrap_or(RecordedProcess { pid, start_time: 0 });
    let (name, address) = (name.to_owned(), String::new());
    let mut server = ServerRecord { role, name, process, address, http_address: None, log, shape };
    match record.processes.iter_mut().find(|known| known.name == server.name) {
        Some(known) => {
            server.address.clone_from(&known.address);
            server.http_address.clone_from(&known.http_address);
            *known = server.clone();
        }
        None => record.processes.push(server.clone()),
    }
    record.write()?;
    // One that has ended already is noticed by the caller, which waits for it.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(RELEASE));
    Ok(Starting { child, ready_file, server })
}

impl Starting {
    /// Waits until the server serves.
    pub(super) fn serves(&mut self, limit: Instant) -> Result<Ready, Failure> {
        loop {
            // Before the process is looked at: it may write the file and end at once.
            let ready = Ready::read(&self.ready_file);
            self.runs()?;
            if let Some(ready) = ready {
                return Ok(ready);
            }
            if Instant::now() >= limit {
                let name = &self.server.name;
                let cause = format!("{name} does not serve in time: {}", self.last_words());
                return Err(self.failed(Exit::Deadline, FailureKind::Deadline, &cause));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns whether the process has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Checks that the process still runs.
    ///
    /// # Errors
    /// Failure (1) with the end of its log when it has ended.
    pub(super) fn runs(&mut self) -> Result<(), Failure> {
        let Ok(Some(status)) = self.child.try_wait() else { return Ok(()) };
        let (name, words) = (&self.server.name, self.last_words());
        let cause = format!("{name} ended at its start ({status}): {words}");
        Err(self.failed(Exit::Failure, FailureKind::NotStarted, &cause))
    }

    fn failed(&self, exit: Exit, kind: FailureKind, cause: &str) -> Failure {
        let is_new = self.server.address.is_empty();
        let is_in_use = NotReady::read(&self.ready_file) == Some(NotReady::InUse);
        let next = if is_in_use && self.server.role == ServerRole::Namenode && is_new {
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
