//! Upgrades of a fleet from an earlier program, which `make upgrade-test` builds and names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use sanderling_client::{Client, ClientConfig, PutOptions};
use tempfile::TempDir;

use crate::cluster::{
    Port, Ran, SOON, Server, Starting, block_on, path, previous_program, program_at, run,
    sanderling, until,
};

/// A fleet whose servers are of two programs.
struct Mixed {
    previous: PathBuf,
    directory: TempDir,
    port: Port,
}

impl Mixed {
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory for the test");
        Self { previous: previous_program(), directory, port: Port::new() }
    }

    fn serve(&self, program: Option<&Path>, name: &str, words: &[&str]) -> Server {
        let command = program.map_or_else(sanderling, program_at);
        Starting::by(command, self.directory.path(), name, words).serves()
    }

    /// Starts the namenode, each time on the same directory and port.
    fn namenode(&self, program: Option<&Path>) -> Server {
        let (at, there) = (self.port.address(), self.catalog());
        let there = there.to_str().expect("a path of text");
        let words = ["namenode", "--listen", &at, "--http", "127.0.0.1:0", "--dir", there];
        self.serve(program, "namenode", &words)
    }

    fn catalog(&self) -> PathBuf {
        self.directory.path().join("catalog")
    }

    fn datanode(&self, program: Option<&Path>, name: &str) -> Server {
        let at = self.port.address();
        let words = ["datanode", "--namenode", &at, "--name", name, "--dram", "64MiB"];
        self.serve(program, name, &words)
    }

    /// Runs a command of the present program.
    fn cli(&self, words: &[&str]) -> Ran {
        run(sanderling().args(words).env("SANDERLING_NAMENODE", self.port.address()))
    }

    async fn client(&self) -> Client {
        let config = ClientConfig { call_deadline: SOON, ..ClientConfig::default() };
        Client::connect(&self.port.address(), config).await.expect("the namenode serves")
    }
}

/// Half a block and more, other ones for each number.
fn value(number: u64) -> Bytes {
    let bytes = (0..300_000_u64).map(|at| ((at * 31 + number * 7919) % 251) as u8);
    bytes.collect()
}

/// Commands of the earlier program that put one object after the other, and fetch each.
struct EarlierClients {
    is_stopped: Arc<AtomicBool>,
    stored: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl EarlierClients {
    fn start(mixed: &Mixed) -> Self {
        let (is_stopped, stored) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count) = (Arc::clone(&is_stopped), Arc::clone(&stored));
        let (program, at) = (mixed.previous.clone(), mixed.port.address());
        let (there, back) = (mixed.directory.path().join("out"), mixed.directory.path().join("in"));
        let thread = std::thread::spawn(move || {
            let command = |words: &[&str]| loop {
                let ran = run(program_at(&program).args(words).args(["--namenode", &at]));
                // It began while no namenode listened: only a client that is connected waits.
                let is_between = ran.code == 4 && ran.stderr.contains("cannot be reached");
                if !is_between || stop.load(Ordering::Relaxed) {
                    assert_eq!(ran.code, 0, "{words:?}: {ran}");
                    break;
                }
            };
            let text = |path: &Path| path.to_str().expect("a path of text").to_owned();
            while !stop.load(Ordering::Relaxed) {
                let number = count.load(Ordering::Relaxed);
                std::fs::write(&there, value(number)).expect("written");
                let name = format!("/earlier-{number}");
                command(&["fs", "put", "--force", &text(&there), &name]);
                command(&["fs", "get", "--force", &name, &text(&back)]);
                let got = std::fs::read(&back).expect("fetched");
                assert!(got == value(number), "{name} has other bytes");
                count.store(number + 1, Ordering::Relaxed);
            }
        });
        let clients = Self { is_stopped, stored, thread: Some(thread) };
        clients.until_more(3);
        clients
    }

    /// Waits until so many more objects are stored and were fetched.
    fn until_more(&self, count: u64) {
        let goal = self.stored.load(Ordering::Relaxed) + count;
        let thread = self.thread.as_ref().expect("it runs");
        until("objects are stored by the earlier program", SOON, || {
            assert!(!thread.is_finished(), "a command of the earlier program failed");
            (self.stored.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    fn stop(mut self) -> u64 {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("each command succeeded");
        self.stored.load(Ordering::Relaxed)
    }
}

impl Drop for EarlierClients {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

fn put(mixed: &Mixed, name: &str, number: u64) {
    block_on(async {
        let client = mixed.client().await;
        client.put(&path(name), value(number), &PutOptions::default()).await.expect("stored");
    });
}

/// Reads objects by a client of the present program, and compares their bytes.
fn assert_whole(mixed: &Mixed, names: impl Iterator<Item = (String, u64)>) {
    block_on(async {
        let client = mixed.client().await;
        for (name, number) in names {
            let read = client.get(&path(&name)).await.expect("readable");
            assert!(read == value(number), "{name} has other bytes");
        }
        let fsck = client.fsck().await.expect("the namenode answers");
        assert_eq!((fsck.lost_blocks, fsck.problems.len()), (0, 0), "{fsck:?}");
    });
}

/// Returns the bytes of each file of a directory, without the lock that a start makes.
fn files_of(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).expect("listed").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| !path.ends_with("lock"));
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).expect("read"))).collect()
}

/// Returns how the newest segment of the journal begins: 8 bytes that name it, and its format.
fn format_of(directory: &Path) -> Vec<u8> {
    let mut files = files_of(directory);
    files.retain(|(path, _)| path.extension().is_some_and(|it| it == "log"));
    let (_, bytes) = files.pop().expect("there is a journal");
    bytes[..12].to_vec()
}

/// In the order of docs/UPGRADING.md: the namenode, the datanodes, the clients.
#[test]
#[ignore = "make upgrade-test: it needs the program of an earlier release"]
fn fleet_of_an_earlier_program_is_upgraded_while_its_clients_work() {
    let mixed = Mixed::new();
    let previous = Some(mixed.previous.as_path());
    let mut namenode = mixed.namenode(previous);
    let mut old: Vec<Server> =
        (0..3).map(|at| mixed.datanode(previous, &format!("old-{at}"))).collect();
    let clients = EarlierClients::start(&mixed);

    namenode.terminate();
    assert!(namenode.wait(SOON).success(), "{}", namenode.log());
    let earlier_format = format_of(&mixed.catalog());
    let mut namenode = mixed.namenode(None);
    clients.until_more(3);
    put(&mixed, "/present-0", 0);

    let mut present = Vec::new();
    for (at, server) in old.iter_mut().enumerate() {
        present.push(mixed.datanode(None, &format!("new-{at}")));
        let drained = mixed.cli(&["node", "decommission", &server.name, "--wait"]);
        assert_eq!(drained.code, 0, "{drained}");
        server.terminate();
        assert!(server.wait(SOON).success(), "{}", server.log());
        clients.until_more(3);
        put(&mixed, &format!("/present-{}", at + 1), at as u64 + 1);
    }

    let stored = clients.stop();
    let earlier = (0..stored).map(|number| (format!("/earlier-{number}"), number));
    let later = (0..=present.len() as u64).map(|number| (format!("/present-{number}"), number));
    assert_whole(&mixed, earlier.chain(later));

    // The way back is closed, and trying it changes nothing.
    namenode.terminate();
    assert!(namenode.wait(SOON).success(), "{}", namenode.log());
    if format_of(&mixed.catalog()) == earlier_format {
        eprintln!("SKIPPED: the earlier program writes the present format");
        return;
    }
    let before = files_of(&mixed.catalog());
    let there = mixed.catalog();
    let words = ["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir"];
    let refused = run(program_at(&mixed.previous).args(words).arg(&there));
    assert_ne!(refused.code, 0, "{refused}");
    assert!(files_of(&there) == before, "the earlier program has changed the directory: {refused}");
    let _namenode = mixed.namenode(None);
    assert_whole(&mixed, std::iter::once(("/present-0".to_owned(), 0)));
}

/// The other order: clients and datanodes first.
#[test]
#[ignore = "make upgrade-test: it needs the program of an earlier release"]
fn present_clients_and_datanodes_work_at_a_namenode_of_an_earlier_program() {
    let mixed = Mixed::new();
    let previous = Some(mixed.previous.as_path());
    let mut namenode = mixed.namenode(previous);
    let _old = mixed.datanode(previous, "old");
    let _new = mixed.datanode(None, "new");
    let clients = EarlierClients::start(&mixed);
    (0..8).for_each(|number| put(&mixed, &format!("/present-{number}"), number));
    let present = || (0..8).map(|number| (format!("/present-{number}"), number));
    assert_whole(&mixed, present());
    namenode.terminate();
    assert!(namenode.wait(SOON).success(), "{}", namenode.log());
    let _namenode = mixed.namenode(None);
    clients.until_more(3);
    let stored = clients.stop();
    let earlier = (0..stored).map(|number| (format!("/earlier-{number}"), number));
    assert_whole(&mixed, present().chain(earlier));
}
