//! Clients on the datanodes' machine, as real processes: what they look at never changes, whatever
//! becomes of the blocks, the nodes and the other clients meanwhile.

#[path = "../clock/mod.rs"]
pub(crate) mod clock;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path as LocalPath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{
    Cluster, SOON, Shape, block_on, block_on_within, path, spawn_with, until, until_gone,
};
use bytes::Bytes;
use clock::Clock;
use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_protocol::message::CreateMode;
use sanderling_protocol::{NodeSelector, Path};

/// Names of the objects that all clients write and read.
const OBJECTS: u64 = 24;

/// Views that one reader keeps.
const VIEWS_MAX: usize = 8;

/// Longest object: one block, so that what is read is a view.
const BYTES_MAX: u64 = 1 << 20;

/// Length of the objects of which a client keeps many views.
const SMALL_BYTES: u64 = 128 << 10;

/// Longer than a connection may hold a lease and get more than a sixteenth of the memory.
const LONG_HELD_SECONDS: i64 = 301;

/// A user that is not the servers'.
const OTHER_USER: u32 = 65_534;

/// Longer than the memory of a node that is gone stays mapped without a view of it.
const UNMAPPED_WITHIN: Duration = Duration::from_secs(3);

/// How long everything goes wrong at once.
const STORM: Duration = Duration::from_secs(12);

/// The word at an index of an object's version: different for all three.
const fn word(object: u64, version: u64, index: u64) -> u64 {
    (object << 56) | ((version & 0xff_ffff) << 32) | (index & 0xffff_ffff)
}

fn content(object: u64, version: u64, words: u64) -> Bytes {
    let words = (0..words).flat_map(|index| word(object, version, index).to_le_bytes());
    words.collect::<Vec<u8>>().into()
}

/// Finds the first word that is none of one version of the object.
fn wrong(object: u64, bytes: &[u8]) -> Option<String> {
    let read = |word: &[u8]| u64::from_le_bytes(word.try_into().expect("eight bytes"));
    let first = bytes.get(..8).map_or(0, read);
    if first >> 56 != object || !bytes.len().is_multiple_of(8) {
        return Some(format!("object {object} of {} bytes begins with {first:#x}", bytes.len()));
    }
    let version = (first >> 32) & 0xff_ffff;
    for (index, found) in bytes.chunks_exact(8).map(read).enumerate() {
        let expected = word(object, version, index as u64);
        if found != expected {
            return Some(format!("object {object}, word {index}: {found:#x}, not {expected:#x}"));
        }
    }
    None
}

/// A small generator: the same choices in every run.
struct Chance(u64);

impl Chance {
    const fn next(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn name(object: u64) -> Path {
    path(&format!("/object-{object}"))
}

/// Puts, gets and deletes at random until `end`, keeps what it got, and looks at it again and
/// again.
/// Returns how often it looked, and how many bytes it read without TCP.
async fn work(client: Client, seed: u64, end: Instant) -> (u64, u64) {
    let mut chance = Chance(seed | 1);
    let mut kept: VecDeque<(u64, Bytes)> = VecDeque::new();
    let mut looked = 0;
    let options = PutOptions { mode: CreateMode::Replace, ..PutOptions::default() };
    while Instant::now() < end {
        let object = chance.next(OBJECTS) + 1;
        match chance.next(8) {
            0 | 1 => {
                let words = 640 + chance.next(BYTES_MAX / 8 - 640);
                let version = seed * 10_000 + looked;
                // The node may be leaving, full or dead: what counts is what is read afterwards.
                let _ = client.put(&name(object), content(object, version, words), &options).await;
            }
            2 => {
                let _ = client.delete(&name(object), false).await;
            }
            _ => {
                if let Ok(bytes) = client.get(&name(object)).await {
                    assert_eq!(wrong(object, &bytes), None, "as read");
                    kept.push_back((object, bytes));
                }
            }
        }
        if kept.len() > VIEWS_MAX {
            let at = chance.next(kept.len() as u64) as usize;
            kept.remove(at);
        }
        for (object, bytes) in &kept {
            assert_eq!(wrong(*object, bytes), None, "while held");
            looked += 1;
        }
    }
    (looked, client.metrics().same_host_read_bytes)
}

/// What a child of this test does: reads, keeps, and waits to be killed.
#[test]
fn holder() {
    let Ok(namenode) = std::env::var("SANDERLING_TEST_HOLDER") else { return };
    block_on(async {
        let client = Client::connect(&namenode, ClientConfig::default()).await.expect("connected");
        let seed = u64::from(std::process::id());
        work(client, seed, Instant::now() + Duration::from_secs(30)).await;
    });
}

fn spawn_holder(namenode: &str) -> Child {
    let program = std::env::current_exe().expect("the test's own program");
    let mut command = Command::new(program);
    command.args(["--exact", "same_host::holder"]).env("SANDERLING_TEST_HOLDER", namenode);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a child")
}

/// Kills a holder in the middle of its work; it must not have found anything wrong before.
fn kill_holder(mut child: Child) {
    child.kill().expect("killed");
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("read");
    child.wait().expect("ended");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// Returns a figure of a datanode.
fn figure(http_address: &str, figure: &str) -> Option<u64> {
    let mut stream = TcpStream::connect(http_address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nhost: test\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let line = text.lines().find(|line| line.split(' ').next() == Some(figure))?;
    line.split(' ').nth(1)?.parse().ok()
}

fn leased_bytes(http_address: &str) -> Option<u64> {
    figure(http_address, "sanderling_datanode_leased_bytes")
}

/// Takes nodes away one after the other, with notices and without, and replaces them.
async fn take_nodes(cluster: &mut Cluster, client: &Client, end: Instant) {
    let mut round = 0;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let leaving = cluster.datanodes.remove(0);
        cluster.add(&format!("again{round}"), &[]);
        round += 1;
        let node = NodeSelector(leaving.name.clone());
        if client.notice(&node, 1500, "test").await.is_ok() {
            until_gone_or(client, &leaving.name, Duration::from_secs(3)).await;
        }
        // Dropped, it ends at once, whichever process looks at its memory.
        drop(leaving);
    }
}

async fn until_gone_or(client: &Client, name: &str, within: Duration) {
    let _ = tokio::time::timeout(within, until_gone(client, name)).await;
}

#[test]
fn views_stay_as_they_were_read_while_everything_else_changes() {
    let mut cluster = Cluster::start(Shape { dram: "24MiB", ..Shape::default() });
    block_on_within(Duration::from_secs(300), async {
        let client = cluster.client().await;
        let end = Instant::now() + STORM;
        let mut workers = Vec::new();
        for seed in 1..=3 {
            workers.push(tokio::spawn(work(cluster.client().await, seed, end)));
        }
        let namenode = cluster.namenode.address.clone();
        let killing = std::thread::spawn(move || {
            while Instant::now() < end {
                let holders = [spawn_holder(&namenode), spawn_holder(&namenode)];
                std::thread::sleep(Duration::from_millis(1700));
                holders.into_iter().for_each(kill_holder);
            }
        });
        take_nodes(&mut cluster, &client, end).await;
        let (mut looked, mut same_host_bytes) = (0, 0);
        for worker in workers {
            let (looks, bytes) = worker.await.expect("nothing was wrong");
            looked += looks;
            same_host_bytes += bytes;
        }
        assert!(same_host_bytes > 0, "nothing was leased");
        killing.join().expect("holders found nothing wrong");
        assert!(looked > 0, "nothing was looked at");
        drop(client);
        // The workers' views are gone and the holders are dead: so are all leases.
        for node in &cluster.datanodes {
            until("leases are given back", SOON, || {
                (leased_bytes(&node.http_address)? == 0).then_some(())
            });
        }
    });
}

#[test]
fn memory_of_a_killed_holder_comes_back() {
    let cluster = Cluster::start(Shape { datanodes: 1, dram: "24MiB", ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        for object in 1..=OBJECTS / 4 {
            let bytes = content(object, 1, BYTES_MAX / 8);
            client.put(&name(object), bytes, &PutOptions::default()).await.expect("put");
        }
        let http = cluster.datanodes[0].http_address.clone();
        let holder = spawn_holder(&cluster.namenode.address);
        until("the holder has leases", SOON, || (leased_bytes(&http)? > 0).then_some(()));
        kill_holder(holder);
        until("they are given back", SOON, || (leased_bytes(&http)? == 0).then_some(()));
        assert_eq!(figure(&http, "sanderling_datanode_leases"), Some(0));
    });
}

#[test]
fn small_views_of_many_blocks_leave_writers_their_room() {
    let cluster = Cluster::start(Shape { datanodes: 1, dram: "64MiB", ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        let options = PutOptions::default();
        for object in 1..=56 {
            let bytes = content(object, 1, BYTES_MAX / 8);
            client.put(&name(object), bytes, &options).await.expect("put");
        }
        assert!(reads_same_host(&client, &name(1), 400).await, "it reads over TCP only");
        let mut views = Vec::new();
        for object in 1..=56 {
            let view = client.get_range(&name(object), 0, 8192).await.expect("read");
            assert_eq!(wrong(object, &view), None);
            views.push(view);
        }
        let http = cluster.datanodes[0].http_address.clone();
        let leased = leased_bytes(&http).expect("a figure");
        assert!((1 << 20..=16 << 20).contains(&leased), "{leased} bytes are kept");
        for object in 1..=56 {
            client.delete(&name(object), false).await.expect("deleted");
        }
        // What is kept is not free, and no more.
        for object in 101..=140 {
            let bytes = content(object, 1, BYTES_MAX / 8);
            client.put(&name(object), bytes, &options).await.expect("there is room");
        }
        for (object, view) in (1..).zip(&views) {
            assert_eq!(wrong(object, view), None, "while held");
        }
    });
}

/// Reads until that was possible without TCP, or `reads` times.
async fn reads_same_host(client: &Client, object: &Path, reads: usize) -> bool {
    for _ in 0..reads {
        client.get(object).await.expect("read, whichever way");
        if client.metrics().same_host_read_bytes > 0 {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

#[test]
fn closed_ways_lead_to_tcp() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("endpoint.sock");
    let named = socket.to_str().expect("UTF-8").to_owned();
    for (flags, is_here, before) in [
        (vec!["--local-socket", "none"], false, None),
        (vec!["--egress-limit", "1GB"], false, None),
        (vec!["--local-socket", &named], true, None),
        (vec!["--local-socket", &named], false, Some("gone")),
        (vec!["--local-socket", &named], false, Some("another's")),
    ] {
        let mut cluster = Cluster::of(0);
        cluster.add("n0", &flags);
        let what = before.unwrap_or_default();
        if !what.is_empty() {
            std::fs::remove_file(&socket).expect("the socket was there");
        }
        // One that accepts and does not answer: no client may wait for it for long.
        let silent = (what == "another's")
            .then(|| sanderling_transport::local::PacketSocket::listen(&socket, 8).expect("there"));
        block_on(async {
            let client = cluster.client().await;
            let bytes = content(1, 1, BYTES_MAX / 8);
            client.put(&name(1), bytes, &PutOptions::default()).await.expect("put");
            let reads = if is_here { 4000 } else { 40 };
            assert_eq!(
                reads_same_host(&client, &name(1), reads).await,
                is_here,
                "{flags:?} {what}"
            );
        });
        drop(silent);
        // A socket left behind disturbs no process.
        drop(cluster);
        let _ = std::fs::remove_file(&socket);
    }
}

#[test]
fn node_that_hangs_holds_a_read_up_no_longer_than_over_tcp() {
    let mut cluster = Cluster::of(1);
    block_on(async {
        let client = cluster.client().await;
        let bytes = content(1, 1, BYTES_MAX / 8);
        client.put(&name(1), bytes.clone(), &PutOptions::default()).await.expect("put");
        assert!(reads_same_host(&client, &name(1), 4000).await, "the node is here");
        let view = client.get(&name(1)).await.expect("read");
        cluster.datanode("n0").pause();
        // Longer than it is waited for on this machine, shorter than a node may be silent.
        let hasty = client.with_deadline(Duration::from_millis(1500));
        let failed = hasty.get(&name(1)).await;
        assert!(failed.is_err(), "a node that hangs does not answer");
        assert_eq!(view, bytes, "what was leased is there all the same");
        cluster.datanode("n0").resume();
        assert_eq!(client.get(&name(1)).await.expect("read again"), bytes);
    });
}

/// Starts a datanode for which time passes with a clock.
pub(crate) fn add_with_clock(cluster: &mut Cluster, clock: &Clock) {
    let mut variables = clock.variables();
    variables.push(("WRONG_UPTIME", PathBuf::from("1")));
    let variables: Vec<(&str, &LocalPath)> =
        variables.iter().map(|(name, value)| (*name, value.as_path())).collect();
    let words = ["datanode", "--namenode", &cluster.namenode.address, "--name", "n0"];
    let words = [&words[..], &["--dram", "16MiB"]].concat();
    let node = spawn_with(&cluster.path(""), "n0", &words, &variables).serves();
    cluster.datanodes.push(node);
}

/// The minutes pass by the datanode's clock.
#[test]
fn connection_that_holds_a_lease_for_minutes_keeps_a_sixteenth_and_reads_the_rest_over_tcp() {
    let Some(clock) = Clock::ahead_by_hours(0) else { return eprintln!("SKIPPED: no C compiler") };
    let mut cluster = Cluster::of(0);
    add_with_clock(&mut cluster, &clock);
    let http = cluster.datanodes[0].http_address.clone();
    block_on(async {
        let client = cluster.client().await;
        for object in 1..=40 {
            let bytes = content(object, 1, SMALL_BYTES / 8);
            client.put(&name(object), bytes, &PutOptions::default()).await.expect("put");
        }
        assert!(reads_same_host(&client, &name(1), 4000).await, "it reads over TCP only");
        let mut views = vec![client.get(&name(1)).await.expect("read")];
        assert!(leased_bytes(&http).expect("a figure") >= SMALL_BYTES, "it is no view");
        clock.set_seconds(LONG_HELD_SECONDS);
        for object in 2..=40 {
            views.push(client.get(&name(object)).await.expect("read, whichever way"));
        }
        // All of them together are more than a quarter of the memory.
        let leased = leased_bytes(&http).expect("a figure");
        assert!((2 * SMALL_BYTES..=1 << 20).contains(&leased), "{leased} bytes are kept");
        for (object, view) in (1..).zip(&views) {
            assert_eq!(wrong(object, view), None, "while held");
        }
    });
}

/// Reads as another user until that was possible without TCP, or `reads` times. On a thread of its
/// own: to the kernel each thread has a user.
fn other_user_reads_same_host(namenode: String, reads: usize) -> bool {
    let reading = std::thread::spawn(move || {
        let user = rustix::thread::Uid::from_raw(OTHER_USER);
        rustix::thread::set_thread_uid(user).expect("root may be any user");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let config = ClientConfig::default();
            let client = Client::connect(&namenode, config).await.expect("connected");
            let bytes = content(1, 1, BYTES_MAX / 8);
            client.put(&name(1), bytes, &PutOptions::default()).await.expect("put");
            reads_same_host(&client, &name(1), reads).await
        })
    });
    reading.join().expect("it reads and writes")
}

#[test]
fn process_of_another_user_gets_the_memory_only_where_a_flag_admits_it() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can be another user");
    }
    for (flags, is_let_in) in [
        (vec![], false),
        (vec!["--local-uid", "65533"], false),
        (vec!["--local-uid", "65534"], true),
    ] {
        let mut cluster = Cluster::of(0);
        cluster.add("n0", &flags);
        let reads = if is_let_in { 4000 } else { 40 };
        let namenode = cluster.namenode.address.clone();
        assert_eq!(other_user_reads_same_host(namenode, reads), is_let_in, "{flags:?}");
    }
}

/// Returns the inode of the file that is mapped where these bytes are.
fn inode_of(bytes: &[u8]) -> String {
    let address = bytes.as_ptr().addr();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
    let is_there = |line: &&str| {
        let range = line.split(' ').next().and_then(|it| it.split_once('-'));
        let (start, end) = range.expect("a range");
        let number = |text| usize::from_str_radix(text, 16).expect("an address");
        (number(start)..number(end)).contains(&address)
    };
    let line = maps.lines().find(is_there).expect("the bytes are in memory");
    assert!(line.contains("/memfd:"), "a copy: {line}");
    line.split_whitespace().nth(4).expect("an inode").to_owned()
}

fn is_mapped(inode: &str) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has it");
    maps.lines().any(|line| line.split_whitespace().nth(4) == Some(inode))
}

#[test]
fn memory_of_a_killed_node_is_unmapped_without_a_call_and_with_the_last_view_of_it() {
    for is_held in [false, true] {
        let mut cluster = Cluster::of(1);
        block_on(async {
            let client = cluster.client().await;
            let bytes = content(1, 1, BYTES_MAX / 8);
            client.put(&name(1), bytes.clone(), &PutOptions::default()).await.expect("put");
            assert!(reads_same_host(&client, &name(1), 4000).await, "the node is here");
            let view = client.get(&name(1)).await.expect("read");
            let inode = inode_of(&view);
            let view = is_held.then_some(view);
            cluster.datanode("n0").kill();
            if let Some(view) = view {
                // So long it is not unmapped.
                tokio::time::sleep(UNMAPPED_WITHIN).await;
                assert!(is_mapped(&inode), "a view needs it");
                assert_eq!(view, bytes, "what was leased is there all the same");
            }
            let is_gone = || (!is_mapped(&inode)).then_some(());
            until("the memory is unmapped", UNMAPPED_WITHIN, is_gone);
        });
    }
}

#[test]
fn checker_notices_bytes_of_another_version_block_or_place() {
    let good = content(3, 7, 1000);
    assert_eq!(wrong(3, &good), None);
    assert!(wrong(4, &good).is_some());
    let other = content(3, 8, 1000);
    let mixed = [&good[..4096], &other[4096..]].concat();
    assert!(wrong(3, &mixed).is_some());
    let moved = [&good[..4096], &good[..4096]].concat();
    assert!(wrong(3, &moved).is_some());
    assert!(wrong(3, &[0; 64]).is_some());
}
