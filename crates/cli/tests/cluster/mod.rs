//! A cluster of real processes on loopback for tests.
//!
//! Every server ends with the test: by its handle's `Drop`, and if the test's thread is killed, by
//! the kernel (`--exit-with-parent`). Every wait has a limit and reports what it waited for.
#![allow(dead_code, reason = "each test program uses its part of the harness")]

pub(crate) mod guarded;
pub(crate) mod http;
pub(crate) mod leased;
pub(crate) mod model;
pub(crate) mod namenodes;
mod process;
pub(crate) mod pty;
pub(crate) mod relay;
pub(crate) mod silent_writer;
pub(crate) mod stores;
pub(crate) mod stubs;
pub(crate) mod tasks;

use std::path::{Path as LocalPath, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use sanderling_client::{Client, ClientConfig};
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{NodeId, Path, Policy};
use tempfile::TempDir;

pub(crate) use process::{Killed, Ran, Server, Starting, program_at, run, sanderling, spawn_with};

/// How long a test waits for what must come, on a slow and busy machine, before it fails.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// How long a test's client waits for an answer: on such a machine an answer within ten seconds is
/// not certain.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How a cluster is started.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) datanodes: usize,
    pub(crate) dram: &'static str,
    /// Flags of the namenode beside the usual ones.
    pub(crate) namenode: Vec<String>,
    /// Flags of the first datanodes beside the usual ones.
    pub(crate) datanode: Vec<&'static str>,
}

impl Default for Shape {
    fn default() -> Self {
        Self { datanodes: 3, dram: "64MiB", namenode: Vec::new(), datanode: Vec::new() }
    }
}

/// A port that no other process of this machine gets while this lives, also between the end of a
/// server there and the start of the next one.
#[derive(Debug)]
pub(crate) struct Port(tokio::net::TcpSocket);

impl Port {
    pub(crate) fn new() -> Self {
        // A server sets that, too, and may listen there as long as this one does not.
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("a socket");
        let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(any).expect("a free port");
        Self(socket)
    }

    pub(crate) fn address(&self) -> String {
        self.0.local_addr().expect("it is bound").to_string()
    }
}

/// One namenode and its datanodes.
pub(crate) struct Cluster {
    pub(crate) namenode: Server,
    pub(crate) datanodes: Vec<Server>,
    shape: Shape,
    /// The namenode's, which starts there again.
    port: Port,
    directory: TempDir,
}

impl Cluster {
    /// Starts so many datanodes.
    pub(crate) fn of(datanodes: usize) -> Self {
        Self::start(Shape { datanodes, ..Shape::default() })
    }

    pub(crate) fn start(shape: Shape) -> Self {
        let directory = TempDir::new().expect("a directory for the test");
        let port = Port::new();
        let namenode = namenode(directory.path(), &port.address(), &shape, &[]);
        let mut cluster = Self { namenode, datanodes: Vec::new(), shape, port, directory };
        // All at once, then wait for all.
        let flags = cluster.shape.datanode.clone();
        let starting: Vec<_> = (0..cluster.shape.datanodes)
            .map(|at| cluster.spawn(&format!("n{at}"), &flags))
            .collect();
        cluster.datanodes = starting.into_iter().map(Starting::serves).collect();
        cluster
    }

    fn spawn(&self, name: &str, flags: &[&str]) -> Starting {
        let mut words = vec!["datanode", "--namenode", &self.namenode.address, "--name", name];
        if !flags.contains(&"--dram") {
            words.extend(["--dram", self.shape.dram]);
        }
        words.extend(flags);
        process::spawn(self.directory.path(), name, &words)
    }

    /// Starts one more datanode.
    pub(crate) fn add(&mut self, name: &str, flags: &[&str]) -> &Server {
        let server = self.spawn(name, flags).serves();
        self.datanodes.push(server);
        self.datanodes.last().expect("just added")
    }

    /// Starts a server that is none of the cluster's.
    pub(crate) fn serve(&self, name: &str, words: &[&str]) -> Server {
        process::spawn(self.directory.path(), name, words).serves()
    }

    /// Starts a server that is none of the cluster's and need not serve.
    pub(crate) fn begin(&self, name: &str, words: &[&str]) -> Server {
        process::spawn(self.directory.path(), name, words).unready()
    }

    /// Starts a manager on its own; it is not one of the cluster's.
    pub(crate) fn manager(&self, name: &str) -> Server {
        let words = ["manager", "--namenode", &self.namenode.address, "--name", name];
        process::spawn(self.directory.path(), name, &words).serves()
    }

    pub(crate) fn datanode(&mut self, name: &str) -> &mut Server {
        let found = self.datanodes.iter_mut().find(|server| server.name == name);
        found.expect("the datanode was started")
    }

    /// Returns the name of a datanode's incarnation.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        let found = self.datanodes.iter().find(|server| server.node == node.0);
        found.expect("the datanode was started").name.clone()
    }

    /// Starts the namenode again on the same directory and port.
    pub(crate) fn restart_namenode(&mut self) {
        self.restart_namenode_with(&[]);
    }

    /// The same with variables in its environment.
    pub(crate) fn restart_namenode_with(&mut self, variables: &[(&str, &LocalPath)]) {
        self.namenode.kill();
        let address = self.namenode.address.clone();
        self.namenode = namenode(self.directory.path(), &address, &self.shape, variables);
    }

    /// Starts a namenode that ended before again, with flags beside the usual ones from now on.
    pub(crate) fn start_namenode(&mut self, flags: &[&str]) {
        self.shape.namenode = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let address = self.namenode.address.clone();
        self.namenode = namenode(self.directory.path(), &address, &self.shape, &[]);
    }

    /// Starts a namenode that will not serve on the same directory and waits for its end.
    pub(crate) fn refused_namenode(&self, flags: &[&str]) -> Ran {
        let catalog = self.path("catalog");
        let mut command = sanderling();
        command.args(["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir"]);
        run(command.arg(catalog).args(["--exit-with-parent"]).args(flags))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a command on this cluster.
    pub(crate) fn cli(&self, words: &[&str]) -> Ran {
        let namenode = self.namenode.address.clone();
        run(sanderling().args(words).env("SANDERLING_NAMENODE", namenode))
    }

    /// Runs a command that must succeed and returns its JSON.
    pub(crate) fn json(&self, words: &[&str]) -> serde_json::Value {
        let ran = self.cli(&[words, &["--json"]].concat());
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        serde_json::from_str(&ran.stdout).expect("the output is JSON")
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_of(ClientConfig::default()).await
    }

    pub(crate) async fn client_of(&self, config: ClientConfig) -> Client {
        let limit = Instant::now() + SOON;
        let config = ClientConfig { call_deadline: TIMEOUT, ..config };
        loop {
            match Client::connect(&self.namenode.address, config.clone()).await {
                Ok(client) => return client,
                Err(error) => assert!(Instant::now() < limit, "the namenode serves: {error}"),
            }
        }
    }
}

fn namenode(
    directory: &LocalPath,
    listen: &str,
    shape: &Shape,
    variables: &[(&str, &LocalPath)],
) -> Server {
    let catalog = directory.join("catalog");
    let catalog = catalog.to_str().expect("a name in UTF-8");
    let mut words = vec!["namenode", "--listen", listen, "--http", "127.0.0.1:0", "--dir", catalog];
    words.extend(shape.namenode.iter().map(String::as_str));
    spawn_with(directory, "namenode", &words, variables).serves()
}

/// Waits until `look` finds something.
///
/// # Panics
/// After `within`, naming `what` was waited for.
pub(crate) fn until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let limit = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < limit, "waited {within:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Raises the limit of open files of the test and of the servers that it starts then: each
/// connection is one.
pub(crate) fn allow_open_files(count: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        limit.current = limit.maximum.map_or(Some(count), |maximum| Some(maximum.min(count)));
        setrlimit(Resource::Nofile, limit).expect("no more than the maximum is set");
    }
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    assert!(allowed >= count, "this test needs {count} open files: raise the hard limit");
}

/// Waits until a node is in a given state, by the namenode's list.
pub(crate) async fn until_node(
    client: &Client,
    name: &str,
    what: &str,
    is_so: impl Fn(&NodeInfo) -> bool,
) -> NodeInfo {
    let limit = Instant::now() + SOON;
    loop {
        let nodes = client.nodes(true).await.expect("the namenode answers");
        let found = nodes.into_iter().rev().find(|node| node.name == name);
        match found {
            Some(node) if is_so(&node) => return node,
            found => assert!(Instant::now() < limit, "{name} is not {what}: {found:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a node has been emptied.
pub(crate) async fn until_drained(client: &Client, name: &str) -> NodeInfo {
    until_node(client, name, "drained", |node| node.policy == Policy::Drained).await
}

/// Waits until a node has been declared dead.
pub(crate) async fn until_gone(client: &Client, name: &str) -> NodeInfo {
    until_node(client, name, "gone", |node| node.policy == Policy::Gone).await
}

/// Returns bytes that no other seed gives: one page of noise again and again, numbered. A debug
/// build takes a third of these tests' time to make each byte anew.
pub(crate) fn bytes_of(seed: u64, count: usize) -> bytes::Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let noise = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let page: Vec<u8> = (0..512.min(count.div_ceil(8))).flat_map(noise).collect();
    let mut bytes = Vec::with_capacity(count + page.len() + 8);
    for number in 0_u64.. {
        bytes.extend_from_slice(&page);
        if bytes.len() >= count {
            break;
        }
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.truncate(count);
    bytes.into()
}

/// Returns the program of an earlier release, for tests of upgrades that `make upgrade-test` runs.
pub(crate) fn previous_program() -> PathBuf {
    let at = std::env::var_os("SANDERLING_PREVIOUS_PROGRAM");
    at.map(PathBuf::from).expect("make upgrade-test names the program of the previous release")
}

pub(crate) fn path(text: &str) -> Path {
    text.parse().expect("a valid path")
}

/// Removes a directory into which a process may write meanwhile, in one step: `remove_dir_all`
/// fails if a file comes after it has listed the directory.
pub(crate) fn take_away(directory: impl AsRef<std::path::Path>) {
    let elsewhere = tempfile::tempdir().expect("made");
    std::fs::rename(directory, elsewhere.path().join("taken")).expect("moved");
}

/// Runs a future on threads enough for what it spawns. It is polled on the test's own thread, whose
/// end is the servers'.
pub(crate) fn block_on<F: Future>(work: F) -> F::Output {
    block_on_within(Duration::from_secs(240), work)
}

/// The same for a test that takes longer than four minutes.
pub(crate) fn block_on_within<F: Future>(limit: Duration, work: F) -> F::Output {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
    runtime
        .block_on(async { tokio::time::timeout(limit, work).await.expect("the test ends in time") })
}
