//! The processes.

use std::path::{Path as LocalPath, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use sanderling_client::{Client, ClientConfig};
use tempfile::TempDir;

use crate::cluster::{Ran, SOON, Server, Starting, run, sanderling, spawn_with};
use crate::disk::Disks;
use crate::load::DEADLINE;
use crate::model::{Promise, Violation};
use crate::proxy::Proxy;

/// Longest time in which a namenode that must not serve has to report it.
const REFUSES: Duration = Duration::from_secs(40);

/// One datanode, running or not.
pub(crate) struct Node {
    pub(crate) name: String,
    /// Its address, once it had one.
    address: String,
    pub(crate) server: Option<Server>,
    /// What others reach it through; only every second node has one.
    pub(crate) proxy: Option<Proxy>,
}

/// Where the proxies before datanodes listen, with the ports of their datanodes.
const PROXIES: &str = "127.0.0.2";

/// A namenode, datanodes, and perhaps a manager of its own.
pub(crate) struct Fleet {
    pub(crate) directory: TempDir,
    pub(crate) address: String,
    pub(crate) namenode: Option<Server>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) manager: Option<Server>,
    pub(crate) has_manager: bool,
    pub(crate) disks: Option<Disks>,
    pub(crate) sync: String,
}

impl Fleet {
    pub(crate) fn start(datanodes: usize, sync: &str, has_manager: bool) -> Self {
        let directory = tempfile::Builder::new().prefix("sanderling-chaos-").tempdir();
        let directory = directory.expect("a directory for the run");
        let disks = Disks::build(directory.path());
        let (address, sync) = ("127.0.0.1:0".to_owned(), sync.to_owned());
        let (namenode, manager, nodes) = (None, None, Vec::new());
        let mut fleet =
            Self { directory, address, namenode, nodes, manager, has_manager, disks, sync };
        fleet.start_namenode();
        for at in 0..datanodes {
            let (name, address) = (format!("d{at}"), "127.0.0.1:0".to_owned());
            fleet.nodes.push(Node { name, address, server: None, proxy: None });
        }
        fleet.start_nodes();
        if has_manager {
            fleet.start_manager();
        }
        fleet
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn spawn(&self, name: &str, data: &LocalPath, words: &[&str]) -> Starting {
        let disks = self.disks.as_ref();
        let variables = disks.map(|disks| disks.variables(name, data)).unwrap_or_default();
        let variables: Vec<_> = variables.iter().map(|(key, path)| (*key, &**path)).collect();
        spawn_with(self.directory.path(), name, words, &variables)
    }

    /// Starts the namenode on its directory and its address.
    pub(crate) fn start_namenode(&mut self) {
        let catalog = self.path("catalog");
        let text = catalog.to_str().expect("a name in UTF-8");
        let mut words = vec!["namenode", "--listen", &self.address, "--http", "127.0.0.1:0"];
        words.extend(["--dir", text, "--sync", &self.sync, "--ramp-up", "2s"]);
        if self.has_manager {
            words.push("--no-manager");
        }
        let server = self.spawn("namenode", &catalog, &words).serves();
        self.address.clone_from(&server.address);
        self.namenode = Some(server);
    }

    /// Starts the namenode on a directory that it must refuse.
    pub(crate) fn must_refuse(&self) -> Result<String, Violation> {
        let catalog = self.path("catalog");
        let mut command = sanderling();
        command.args(["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir"]);
        let ready = self.path("refused.ready");
        command.arg(catalog).args(["--exit-with-parent", "--ready-file"]).arg(&ready);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program can be started");
        let limit = Instant::now() + REFUSES;
        while Instant::now() < limit && !ready.exists() {
            if child.try_wait().expect("our own child").is_some() {
                let output = child.wait_with_output().expect("our own child");
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                if output.status.code() == Some(1) && text.contains("damaged at byte") {
                    return Ok(text);
                }
                let what = format!("refused with {}: {text}", output.status);
                return Err(Violation::new(Promise::Damage, what));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
        let what = "the namenode serves a damaged journal, or does not report it";
        Err(Violation::new(Promise::Damage, what))
    }

    pub(crate) fn kill_namenode(&mut self) {
        if let Some(mut server) = self.namenode.take() {
            server.kill();
        }
    }

    pub(crate) fn namenode(&mut self) -> &mut Server {
        self.namenode.as_mut().expect("the namenode runs")
    }

    pub(crate) fn start_manager(&mut self) {
        let words = ["manager", "--namenode", &self.address, "--name", "m", "--ramp-up", "2s"];
        self.manager = Some(spawn_with(self.directory.path(), "manager", &words, &[]).serves());
    }

    /// Starts every datanode that does not run, all at once.
    pub(crate) fn start_nodes(&mut self) {
        let mut starting = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if node.server.is_none() {
                starting.push((at, self.spawn_node(node, at % 2 == 0)));
            }
        }
        for (at, starting) in starting {
            let server = starting.serves();
            let node = &mut self.nodes[at];
            node.address.clone_from(&server.address);
            if at % 2 == 0 && node.proxy.is_none() {
                let (_, port) = node.address.rsplit_once(':').expect("an address has a port");
                node.proxy = Some(Proxy::start(&format!("{PROXIES}:{port}"), &node.address));
            }
            node.server = Some(server);
        }
    }

    fn spawn_node(&self, node: &Node, is_proxied: bool) -> Starting {
        let disk = self.disk(&node.name);
        let text = disk.to_str().expect("a name in UTF-8");
        let mut words = vec!["datanode", "--namenode", &self.address, "--name", &node.name];
        words.extend(["--listen", &node.address, "--host", &node.name, "--dram", "32MiB"]);
        words.extend(["--disk", "48MiB", "--disk-dir", text, "--notice-min", "15s"]);
        if is_proxied {
            words.extend(["--advertise", PROXIES]);
        }
        self.spawn(&node.name, &disk, &words)
    }

    /// Returns the directory of a datanode's disk tier.
    pub(crate) fn disk(&self, name: &str) -> PathBuf {
        self.path(&format!("disk-{name}"))
    }

    pub(crate) fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.iter_mut().find(|node| node.name == name).expect("one of ours")
    }

    pub(crate) fn server(&mut self, name: &str) -> &mut Server {
        self.node(name).server.as_mut().expect("it runs")
    }

    pub(crate) fn kill_node(&mut self, name: &str) {
        if let Some(mut server) = self.node(name).server.take() {
            server.kill();
        }
    }

    /// Returns the journal's segments, the oldest first.
    pub(crate) fn journals(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path("catalog")).expect("the directory is there");
        let files = entries.map(|entry| entry.expect("an entry").path());
        let is_journal = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("journal-")
        };
        let mut journals: Vec<PathBuf> = files.filter(is_journal).collect();
        journals.sort();
        journals
    }

    /// Returns a process that ended although the test did not end it.
    pub(crate) fn ended_by_itself(&mut self) -> Option<String> {
        let servers = self.nodes.iter_mut().filter_map(|node| node.server.as_mut());
        let servers = servers.chain(self.namenode.as_mut()).chain(self.manager.as_mut());
        servers.into_iter().find_map(|server| {
            let status = server.ended()?;
            let log = server.log();
            let end: Vec<&str> = log.lines().rev().take(8).collect();
            Some(format!("{} ended with {status}: {end:#?}", server.name))
        })
    }

    pub(crate) fn cli(&self, words: &[&str]) -> Ran {
        run(sanderling().args(words).env("SANDERLING_NAMENODE", &self.address))
    }

    /// Connects to the namenode, there or through a proxy.
    pub(crate) async fn client(&self, address: &str, same_host: bool) -> Client {
        let limit = Instant::now() + SOON;
        let config = ClientConfig { call_deadline: DEADLINE, same_host, ..ClientConfig::default() };
        loop {
            match Client::connect(address, config.clone()).await {
                Ok(client) => return client,
                Err(error) => assert!(Instant::now() < limit, "the namenode serves: {error}"),
            }
        }
    }
}
