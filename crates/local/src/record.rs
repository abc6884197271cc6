//! `cluster.json`: which processes make up the cluster.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sanderling_client::{Client, ClientConfig};
use sanderling_command::failure::{Exit, Failure, FailureKind, RefusalKind};
use sanderling_command::output::SCHEMA;
use sanderling_command::process::RecordedProcess;
use sanderling_command::refused::{self, shell_word};
use sanderling_transport::Credentials;
use serde::{Deserialize, Serialize};

use super::keys::KeyFiles;
use super::unrecorded;

const RECORD: &str = "cluster.json";

/// The record while it is written; the lock lets only one process write it.
const PARTIAL: &str = ".cluster.json.partial";

/// The cluster as it was started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) schema: u32,
    pub(super) directory: PathBuf,
    /// Where the namenode serves; several are separated by commas.
    pub(super) namenode: String,
    /// Where the first one serves HTTP.
    pub(super) http_address: Option<String>,
    pub(super) cluster: Option<String>,
    /// Whether its start has come to its end.
    #[serde(default = "of_earlier_release")]
    pub(super) is_started: bool,
    /// What it takes to be let in, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) keys: Option<KeyFiles>,
    pub(super) processes: Vec<ServerRecord>,
}

/// What a process of it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ServerRole {
    Namenode,
    Datanode,
}

/// One process of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ServerRecord {
    pub(super) role: ServerRole,
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) process: RecordedProcess,
    pub(super) address: String,
    /// Where a namenode serves HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) http_address: Option<String>,
    pub(super) log: PathBuf,
    /// What a datanode was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shape: Option<DatanodeShape>,
}

/// What a datanode offers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct DatanodeShape {
    pub(super) dram_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) disk_bytes: Option<u64>,
    /// The file with the key that its disk is encrypted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) encrypt: Option<PathBuf>,
    /// Bytes per second that it sends at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) egress_limit: Option<u64>,
}

impl Record {
    /// Returns the address of the web console.
    pub(super) fn console(&self) -> Option<String> {
        let scheme = if self.keys.is_some() { "https" } else { "http" };
        self.http_address.as_ref().map(|address| format!("{scheme}://{address}/"))
    }

    pub(super) fn new(directory: &Path) -> Self {
        Self {
            schema: SCHEMA,
            directory: directory.to_owned(),
            namenode: String::new(),
            http_address: None,
            cluster: None,
            is_started: false,
            keys: None,
            processes: Vec::new(),
        }
    }

    /// Reads the record; `None` when no cluster was started in the directory.
    pub(super) fn read(directory: &Path) -> Result<Option<Self>, Failure> {
        let path = directory.join(RECORD);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| Failure::file(&path, error))?,
        };
        let record: Self = serde_json::from_slice(&text).map_err(|error| {
            let cause = format!("{} is no cluster's record: {error}", path.display());
            let failure = Failure::new(Exit::Failure, FailureKind::LocalFile, cause);
            unrecorded::with_servers(failure, directory, &path)
        })?;
        record.placed_in(directory).map(Some)
    }

    /// Returns the record with the paths of a directory that was moved since. A copy is another
    /// cluster's: what is done with it would be done to that one.
    ///
    /// # Errors
    /// Failure (1): use the directory of the cluster, or delete the copy's record.
    fn placed_in(mut self, directory: &Path) -> Result<Self, Failure> {
        let real = |path: &Path| path.canonicalize().ok();
        if real(&self.directory) == real(directory) {
            return Ok(self);
        }
        if self.directory.join(RECORD).exists() || self.running().next().is_some() {
            let (own, copy) = (self.directory.display(), directory.join(RECORD));
            let cause = format!("{} is the record of the cluster in {own}", copy.display());
            let own = shell_word(&self.directory.to_string_lossy());
            return Err(Failure::new(Exit::Failure, FailureKind::LocalFile, cause)
                .tried("compared both directories; nothing was changed")
                .next(format_args!("sanderling local status --dir {own}")));
        }
        let before = std::mem::replace(&mut self.directory, directory.to_owned());
        let moved = |path: &mut PathBuf| {
            if let Ok(rest) = path.strip_prefix(&before) {
                *path = directory.join(rest);
            }
        };
        self.processes.iter_mut().for_each(|server| moved(&mut server.log));
        self.keys.iter_mut().flat_map(KeyFiles::paths_mut).for_each(moved);
        Ok(self)
    }

    /// Reads the record of a cluster that must have been started.
    pub(super) fn existing(directory: &Path) -> Result<Self, Failure> {
        Self::read(directory)?.ok_or_else(|| {
            let cause = format!("no cluster was started in {}", directory.display());
            Failure::new(Exit::NotFound, RefusalKind::NotFound, cause)
                .tried(format_args!("looked for {}", directory.join(RECORD).display()))
                .next("sanderling local start")
        })
    }

    /// Writes the record whole or not at all, and durably, so that no process is ever forgotten.
    pub(super) fn write(&self) -> Result<(), Failure> {
        let [path, partial] = [RECORD, PARTIAL].map(|name| self.directory.join(name));
        let text = serde_json::to_string_pretty(self).expect("plain fields");
        let written = File::create(&partial).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&partial, &path)?;
            File::open(&self.directory)?.sync_all()
        });
        written.map_err(|error| {
            let _ = std::fs::remove_file(&partial);
            Failure::file(&path, error)
        })
    }

    /// Refuses a cluster whose start was interrupted, or has not come to its end yet.
    ///
    /// # Errors
    /// Unavailable (4): start it again, or stop it.
    pub(super) fn must_be_started(&self) -> Result<(), Failure> {
        if self.is_started {
            return Ok(());
        }
        let cause = "the start of the cluster has not come to its end in";
        let cause = format!("{cause} {}", self.directory.display());
        Err(Failure::new(Exit::Unavailable, FailureKind::Down, cause)
            .next("sanderling local start, or sanderling local stop"))
    }

    /// Refuses while no namenode of the cluster runs: a datanode would wait for one in vain.
    ///
    /// # Errors
    /// Unavailable (4): start the namenode anew; its catalog stays.
    pub(super) fn must_have_namenode(&self) -> Result<(), Failure> {
        let mut namenodes = self.processes.iter().filter(|it| it.role == ServerRole::Namenode);
        let Some(first) = namenodes.next() else { return Ok(()) };
        if first.process.is_running() || namenodes.any(|it| it.process.is_running()) {
            return Ok(());
        }
        let cause = format!("no namenode of the cluster in {} runs", self.directory.display());
        Err(Failure::new(Exit::Unavailable, FailureKind::Down, cause)
            .tried(format_args!("looked for process {}, {}", first.process.pid, first.name))
            .next(first.restart()))
    }

    /// Returns the failure of something for which the namenode is needed. Where one has ended, the
    /// next command starts it anew.
    pub(super) fn mended(&self, failure: Failure) -> Failure {
        let Some(server) = self.down().find(|it| it.role == ServerRole::Namenode) else {
            return failure;
        };
        let is_late = matches!(failure.kind, FailureKind::Deadline | FailureKind::TimedOut);
        let is_broken = matches!(failure.kind, FailureKind::Unreachable | FailureKind::Closed);
        if is_broken {
            // The command line adds no advice of its own, which is of another cluster.
            return Failure { kind: FailureKind::Down, ..failure.instead(server.restart()) };
        }
        if is_late { failure.instead(server.restart()) } else { failure }
    }

    /// Returns where a namenode serves and where it serves HTTP. An earlier release lost them when
    /// it started a namenode anew: the first is then that of the list.
    pub(super) fn addresses_of(&self, server: &ServerRecord) -> [String; 2] {
        let mut namenodes = self.processes.iter().filter(|it| it.role == ServerRole::Namenode);
        let place = namenodes.position(|it| it.name == server.name).unwrap_or(0);
        let listed = self.namenode.split(',').nth(place).unwrap_or_default();
        let address = if server.address.is_empty() { listed } else { &server.address };
        let first = self.http_address.as_ref().filter(|_| place == 0);
        let http = server.http_address.as_ref().or(first);
        [address, http.map_or("127.0.0.1:0", String::as_str)].map(str::to_owned)
    }

    /// Returns what it takes to be let in.
    pub(super) fn credentials(&self) -> Result<Credentials, Failure> {
        self.keys.as_ref().map_or(Ok(Credentials::default()), KeyFiles::shown)
    }

    /// Connects to the namenode, with what it takes to be let in.
    pub(super) async fn client(&self, within: Duration) -> Result<Client, Failure> {
        let credentials = self.credentials()?;
        let config = ClientConfig { credentials, call_deadline: within, ..ClientConfig::default() };
        let connecting = Client::connect(&self.namenode, config);
        match tokio::time::timeout(within, connecting).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(refused::client(&error, &self.namenode)),
            Err(_) => {
                Err(Failure::new(Exit::Deadline, FailureKind::Deadline, "the namenode is silent"))
            }
        }
    }

    pub(super) fn delete(&self) -> Result<(), Failure> {
        let path = self.directory.join(RECORD);
        std::fs::remove_file(&path).map_err(|error| Failure::file(&path, error))
    }

    /// Returns one process of the cluster.
    pub(super) fn server(&self, name: &str) -> Result<&ServerRecord, Failure> {
        let found = self.processes.iter().find(|server| server.name == name);
        found.ok_or_else(|| no_process(&self.directory, name))
    }

    /// Returns one process of the cluster, to change its record.
    pub(super) fn server_mut(&mut self, name: &str) -> Result<&mut ServerRecord, Failure> {
        let mut servers = self.processes.iter_mut();
        let found = servers.find(|server| server.name == name);
        found.ok_or_else(|| no_process(&self.directory, name))
    }

    /// Returns whether one of these addresses, which are separated by commas, is a namenode of the
    /// cluster.
    pub(super) fn has_namenode(&self, addresses: &str) -> bool {
        let own: Vec<&str> = self.namenode.split(',').collect();
        addresses.split(',').any(|address| own.contains(&address.trim()))
    }

    /// Returns what the cluster's first datanode was started with.
    pub(super) fn shape(&self) -> Option<DatanodeShape> {
        self.processes.iter().find_map(|server| server.shape.clone())
    }

    /// Returns the processes that have ended.
    pub(super) fn down(&self) -> impl Iterator<Item = &ServerRecord> {
        self.processes.iter().filter(|server| !server.process.is_running())
    }

    /// Returns the processes that still run.
    pub(super) fn running(&self) -> impl Iterator<Item = &ServerRecord> {
        self.processes.iter().filter(|server| server.process.is_running())
    }
}

impl ServerRecord {
    /// Returns the command that starts the process anew.
    pub(super) fn restart(&self) -> String {
        format!("sanderling local restart {}", shell_word(&self.name))
    }
}

const fn of_earlier_release() -> bool {
    true
}

fn no_process(directory: &Path, name: &str) -> Failure {
    let cause = format!("the cluster has no process {name}");
    Failure::new(Exit::NotFound, RefusalKind::NotFound, cause)
        .tried(format_args!("read the names in {}", directory.join(RECORD).display()))
        .next("sanderling local status")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_keep_the_names_that_earlier_releases_wrote() {
        for (role, name) in [(ServerRole::Namenode, "namenode"), (ServerRole::Datanode, "datanode")]
        {
            assert_eq!(serde_json::to_value(role).expect("a text"), name);
            let read: ServerRole = serde_json::from_value(name.into()).expect("a role");
            assert_eq!(read, role);
        }
    }
}
