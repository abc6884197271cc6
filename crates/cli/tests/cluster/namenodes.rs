//! Namenodes of one group as real processes, and what tests store through them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_protocol::message::{Attributes, MemberRole};
use sanderling_protocol::node::{Availability, NodeInfo};
use sanderling_protocol::{Reply, Request};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::guarded::text;
use super::{
    Port, Ran, SOON, Server, Starting, block_on, path, program_at, run, sanderling, spawn_with,
    until,
};

/// Namenodes of one group. The first one founded it.
pub(crate) struct Group {
    pub(crate) members: Vec<Option<Server>>,
    pub(crate) addresses: Vec<String>,
    /// The members' own, where they start again.
    pub(crate) ports: Vec<Port>,
    pub(crate) directory: TempDir,
    /// What members find in their environment.
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
    /// What members are started with, if it is not the present program.
    pub(crate) program: Option<PathBuf>,
}

impl Group {
    pub(crate) fn start(count: usize, flags: &[&str]) -> Self {
        Self::start_with(None, count, flags)
    }

    /// The same with another program.
    pub(crate) fn start_with(program: Option<PathBuf>, count: usize, flags: &[&str]) -> Self {
        let directory = TempDir::new().expect("a directory for the test");
        let (members, addresses, ports) = (Vec::new(), Vec::new(), Vec::new());
        let variables = Vec::new();
        let mut group = Self { members, addresses, ports, directory, variables, program };
        for _ in 0..count {
            let first = group.addresses.first().cloned();
            group.add("127.0.0.1:0", first.as_deref(), flags);
        }
        if count > 1 {
            group.until_voters(count);
        }
        group
    }

    pub(crate) fn spawn(
        &self,
        place: usize,
        listen: &str,
        join: Option<&str>,
        flags: &[&str],
    ) -> Server {
        self.launch(place, listen, join, flags).serves()
    }

    fn launch(&self, place: usize, listen: &str, join: Option<&str>, flags: &[&str]) -> Starting {
        let name = format!("namenode-{place}");
        let catalog = text(self.catalog(place));
        let mut words =
            vec!["namenode", "--listen", listen, "--http", "127.0.0.1:0", "--dir", &catalog];
        words.extend(join.iter().flat_map(|address| ["--join", *address]));
        words.extend(flags);
        let mut program = self.program.as_deref().map_or_else(sanderling, program_at);
        program.envs(self.variables.iter().map(|(name, value)| (*name, value.as_path())));
        Starting::by(program, self.directory.path(), &name, &words)
    }

    pub(crate) fn add(&mut self, listen: &str, join: Option<&str>, flags: &[&str]) {
        let free = (listen == "127.0.0.1:0").then(Port::new);
        let listen = free.as_ref().map_or_else(|| listen.to_owned(), Port::address);
        let server = self.spawn(self.members.len(), &listen, join, flags);
        self.ports.extend(free);
        self.addresses.push(server.address.clone());
        self.members.push(Some(server));
    }

    /// Returns the directory of a member's catalog.
    pub(crate) fn catalog(&self, place: usize) -> PathBuf {
        self.directory.path().join(format!("catalog-{place}"))
    }

    /// Starts a datanode of the namenodes at these addresses, with further flags.
    pub(crate) fn datanode(&self, name: &str, addresses: &str, flags: &[&str]) -> Server {
        let words = ["datanode", "--namenode", addresses, "--name", name, "--dram", "64MiB"];
        let words = [&words[..], flags].concat();
        spawn_with(self.directory.path(), name, &words, &[]).serves()
    }

    pub(crate) fn kill(&mut self, place: usize) {
        self.members[place].take().expect("it runs").kill();
    }

    /// Starts a member that was killed again, on its directory and port.
    pub(crate) fn restart(&mut self, place: usize) {
        let address = self.addresses[place].clone();
        self.members[place] = Some(self.spawn(place, &address, None, &[]));
    }

    /// The same of a member that ends at once: it is returned before it serves.
    pub(crate) fn restarted_to_end(&self, place: usize) -> Server {
        self.launch(place, &self.addresses[place], None, &[]).unready()
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(|place| self.members[*place].is_some())
    }

    pub(crate) fn cli(&self, place: usize, words: &[&str]) -> Ran {
        let words = [words, &["--namenode", &self.addresses[place]]].concat();
        run(sanderling().args(words))
    }

    /// Returns the roles by address, as one member has them.
    pub(crate) fn roles(&self, place: usize) -> Vec<(String, String)> {
        let ran = self.cli(place, &["group", "ls", "--json"]);
        let Ok(value) = serde_json::from_str::<serde_json::Value>(&ran.stdout) else {
            return Vec::new();
        };
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let rows = value["members"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| (text(&row["address"]), text(&row["role"]))).collect()
    }

    pub(crate) fn until_voters(&self, count: usize) {
        let what = format!("{count} members vote");
        until(&what, SOON, || {
            let roles = self.roles(self.running().next().expect("one runs"));
            let votes = roles.iter().filter(|(_, role)| role != "Learner").count();
            (votes == count && roles.iter().any(|(_, role)| role == "Leader")).then_some(())
        });
    }

    /// Waits until a running member answers reads, and returns which.
    pub(crate) fn leader(&self) -> usize {
        let limit = Instant::now() + SOON;
        loop {
            for place in self.running() {
                let leader = self.leader_seen_by(place);
                if let Some(leader) = leader.filter(|leader| self.answers(*leader)) {
                    return leader;
                }
            }
            assert!(Instant::now() < limit, "no member leads");
        }
    }

    /// Returns which running member leads by what another one reports: a client follows the leader,
    /// so an answer does not show which member gave it.
    pub(crate) fn leader_seen_by(&self, place: usize) -> Option<usize> {
        let config = ClientConfig { call_deadline: Duration::from_millis(500), ..config() };
        let address = self.addresses[place].clone();
        let read = async move {
            let client = Client::connect(&address, config).await.ok()?;
            match client.request(Request::Members).await {
                Ok(Reply::Members(seen)) => Some(seen),
                _ => None,
            }
        };
        let seen = block_on(read)?;
        let leader = seen.members.into_iter().find(|it| it.role == MemberRole::Leader)?;
        self.running().find(|place| self.addresses[*place] == leader.address)
    }

    pub(crate) fn answers(&self, place: usize) -> bool {
        let config = ClientConfig { call_deadline: Duration::from_millis(500), ..config() };
        let address = self.addresses[place].clone();
        let read = async move {
            let client = Client::connect(&address, config).await.ok()?;
            let stat = Request::Stat { path: path("/") };
            matches!(client.request(stat).await, Ok(Reply::Stat(_))).then_some(())
        };
        block_on(read).is_some()
    }
}

pub(crate) fn config() -> ClientConfig {
    ClientConfig { call_deadline: Duration::from_secs(30), ..ClientConfig::default() }
}

pub(crate) async fn client(address: &str) -> Client {
    Client::connect(address, config()).await.expect("it leads")
}

/// Returns how many datanodes a namenode has heartbeats of.
pub(crate) fn up(address: &str) -> usize {
    block_on(async {
        let Ok(client) = Client::connect(address, config()).await else { return 0 };
        let nodes = client.nodes(true).await.unwrap_or_default();
        let is_up = |node: &&NodeInfo| node.availability == Availability::Up;
        nodes.iter().filter(is_up).count()
    })
}

/// Waits until a namenode has heartbeats of so many datanodes.
pub(crate) fn until_up(address: &str, count: usize) {
    until("the datanodes have registered", SOON, || (up(address) == count).then_some(()));
}

/// A client that stays open while namenodes come and go.
pub(crate) struct OpenClient {
    pub(crate) client: Client,
    /// What its tasks run on.
    runtime: Runtime,
}

impl OpenClient {
    pub(crate) fn connect(addresses: &str) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let config = ClientConfig { call_deadline: Duration::from_secs(90), ..config() };
        let connected = runtime.block_on(Client::connect(addresses, config));
        Self { client: connected.expect("one leads"), runtime }
    }

    pub(crate) fn block_on<F: Future>(&self, work: F) -> F::Output {
        self.runtime.block_on(work)
    }

    /// Checks that it stores nothing at a namenode of another beginning of the group, which would
    /// take it.
    pub(crate) fn assert_stores_nothing_at(&self, address: &str) {
        self.block_on(async {
            let hasty = self.client.with_deadline(Duration::from_secs(3));
            let to = path("/late");
            let late = hasty.put(&to, value(9), &PutOptions::default()).await;
            // Which of the addresses that it tried last is in the error depends on the time.
            late.expect_err("that namenode is none of its group");
            let there = client(address).await.stat(&to).await;
            assert!(there.is_err(), "{address} has it: {there:?}");
        });
    }
}

pub(crate) fn value(number: u64) -> Bytes {
    Bytes::from(format!("value {number}"))
}

pub(crate) async fn put(client: &Client, number: u64) {
    let to = path(&format!("/{number}"));
    client.put(&to, value(number), &PutOptions::default()).await.expect("stored");
}

/// Puts it with 7 KiB of attributes, which the log of changes has.
pub(crate) async fn put_large(client: &Client, number: u64) {
    let mut attributes = Attributes::none();
    attributes.set("filling", "x".repeat(7 << 10));
    let options = PutOptions { attributes, ..PutOptions::default() };
    client.put(&path(&format!("/{number}")), value(number), &options).await.expect("stored");
}

pub(crate) async fn assert_there(client: &Client, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let read = client.get(&path(&format!("/{number}"))).await.expect("readable");
        assert_eq!(read, value(number));
    }
}

/// A writer that puts one value after the other through a group, until it is stopped.
pub(crate) struct Load {
    is_stopped: Arc<AtomicBool>,
    stored: Arc<AtomicU64>,
    longest: Arc<Mutex<Duration>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(group: &Group) -> Self {
        let addresses = group.addresses.join(",");
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (stored, longest) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::default()));
        let (stop, count, stall) =
            (Arc::clone(&is_stopped), Arc::clone(&stored), Arc::clone(&longest));
        let thread = std::thread::spawn(move || {
            block_on(async {
                let client = Client::connect(&addresses, config()).await.expect("one leads");
                while !stop.load(Ordering::Relaxed) {
                    let number = count.load(Ordering::Relaxed);
                    let to = path(&format!("/{number}"));
                    let began = Instant::now();
                    let put = client.put(&to, value(number), &PutOptions::default()).await;
                    put.expect("no caller gets an error");
                    let mut longest = stall.lock().expect("no thread panicked");
                    *longest = began.elapsed().max(*longest);
                    count.store(number + 1, Ordering::Relaxed);
                }
            });
        });
        let load = Self { is_stopped, stored, longest, thread: Some(thread) };
        load.until_more(20);
        load
    }

    /// Waits until so many more values are stored.
    pub(crate) fn until_more(&self, count: u64) {
        let goal = self.stored.load(Ordering::Relaxed) + count;
        until("values are stored", SOON, || {
            (self.stored.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    /// Ends it, and returns how many values are stored.
    pub(crate) fn stop(mut self) -> u64 {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("no caller got an error");
        eprintln!("longest put: {:?}", *self.longest.lock().expect("it has ended"));
        self.stored.load(Ordering::Relaxed)
    }
}
