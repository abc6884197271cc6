//! Datanodes of the client's own machine: reads without a copy, and what they never show.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cluster;

use std::fmt::{Debug, Write as _};
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::time::Duration;

use cluster::{Cluster, MIB, path, pattern};
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_datanode::{DatanodeOptions, LocalOptions};
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::local::PACKET_BYTES_MAX;
use sanderling_protocol::message::CreateMode;
use sanderling_protocol::{Header, NodeInfo, Op, Path, Refusal};
use sanderling_transport::local::PacketSocket;
use tokio::time::{Instant, sleep};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Reads an object until that takes place in the datanode's memory.
async fn wait_for_leases(client: &Client, object: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while client.metrics().same_host_read_bytes == 0 {
        assert!(Instant::now() < deadline, "the datanode is not found on this machine");
        client.get(object).await.unwrap();
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn object_is_read_where_it_lies_and_written_through_shared_memory() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().await;
    let (first, bytes) = (path("/first"), pattern(MIB, 1));
    client.put(&first, bytes.clone(), &PutOptions::default()).await.unwrap();
    wait_for_leases(&client, &first).await;
    let read = client.get(&first).await.unwrap();
    let again = client.get(&first).await.unwrap();
    assert_eq!(read, bytes);
    assert_eq!(read.as_ptr(), again.as_ptr(), "both are views of the same memory");

    let before = client.metrics();
    let (second, bytes) = (path("/second"), pattern(3 * MIB + 12_345, 2));
    client.put(&second, bytes.clone(), &PutOptions::default()).await.unwrap();
    assert_eq!(client.get(&second).await.unwrap(), bytes);
    let after = client.metrics();
    let written = after.same_host_written_bytes - before.same_host_written_bytes;
    assert!(written >= 3 * MIB as u64, "{written} bytes were written through shared memory");
    assert_eq!(after.same_host_read_bytes - before.same_host_read_bytes, bytes.len() as u64);
    assert_eq!(after.retries, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn view_outlives_its_object_and_its_datanode() {
    let mut cluster = Cluster::start_with(1, 8 << 20).await;
    let client = cluster.client().await;
    let (object, bytes) = (path("/kept"), pattern(MIB, 1));
    client.put(&object, bytes.clone(), &PutOptions::default()).await.unwrap();
    wait_for_leases(&client, &object).await;
    let view = client.get(&object).await.unwrap();
    client.delete(&object, false).await.unwrap();
    for round in 0..40 {
        // More than the arena holds: every free byte of it is written anew.
        let (name, other) = (path("/other"), pattern(MIB, 100 + round));
        client.put(&name, other.clone(), &PutOptions::default()).await.unwrap();
        assert_eq!(client.get(&name).await.unwrap(), other);
        client.delete(&name, false).await.unwrap();
        assert_eq!(view, bytes, "round {round}");
    }
    let node = cluster.datanodes[0].as_ref().unwrap().node();
    cluster.kill(node).await;
    assert_eq!(view, bytes);
}

/// Returns the inode of the file that is mapped there.
fn inode_at(address: *const u8) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_there = |line: &&str| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&(address as usize))
    };
    let line = maps.lines().find(is_there).unwrap();
    line.split_whitespace().nth(4).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_a_datanode_that_is_gone_is_released_although_no_call_is_made() {
    let mut cluster = Cluster::start(1).await;
    let client = cluster.client().await;
    let (object, bytes) = (path("/object"), pattern(MIB, 1));
    client.put(&object, bytes.clone(), &PutOptions::default()).await.unwrap();
    wait_for_leases(&client, &object).await;
    let view = client.get(&object).await.unwrap();
    let inode = inode_at(view.as_ptr());
    let is_mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| line.split_whitespace().nth(4) == Some(&inode))
    };
    let node = cluster.datanodes[0].as_ref().unwrap().node();
    cluster.kill(node).await;
    cluster.add(64 << 20).await;
    assert!(is_mapped());
    assert_eq!(view, bytes);
    drop(view);
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_mapped() {
        assert!(Instant::now() < deadline, "the memory of a datanode that is gone is kept");
        sleep(Duration::from_millis(20)).await;
    }
    // Its replacement is found as well.
    let before = client.metrics().same_host_read_bytes;
    let other = path("/other");
    client.put(&other, bytes.clone(), &PutOptions::default()).await.unwrap();
    while client.metrics().same_host_read_bytes == before {
        assert!(Instant::now() < deadline, "the next datanode is not found on this machine");
        assert_eq!(client.get(&other).await.unwrap(), bytes);
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_without_same_host_reads_goes_by_tcp() {
    let cluster = Cluster::start(1).await;
    let config = ClientConfig { same_host: false, ..ClientConfig::default() };
    let client = cluster.client_with(config).await;
    let (object, bytes) = (path("/object"), pattern(MIB, 1));
    client.put(&object, bytes.clone(), &PutOptions::default()).await.unwrap();
    for _ in 0..20 {
        assert_eq!(client.get(&object).await.unwrap(), bytes);
    }
    let metrics = client.metrics();
    assert_eq!((metrics.same_host_read_bytes, metrics.same_host_written_bytes), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_use_tcp_while_staging_memory_is_used_up_and_reads_stay_in_place() {
    let mut cluster = Cluster::start(0).await;
    let local = Some(LocalOptions { staging_bytes_max: 0, ..LocalOptions::default() });
    let dram_bytes = 64 << 20;
    cluster.add_with(DatanodeOptions { dram_bytes, local, ..Default::default() }).await;
    let client = cluster.client().await;
    let first = path("/first");
    client.put(&first, pattern(MIB, 1), &PutOptions::default()).await.unwrap();
    wait_for_leases(&client, &first).await;
    for seed in 2..6 {
        let before = client.metrics();
        let (object, bytes) = (path(&format!("/object-{seed}")), pattern(MIB, seed));
        client.put(&object, bytes.clone(), &PutOptions::default()).await.unwrap();
        assert_eq!(client.get(&object).await.unwrap(), bytes);
        let after = client.metrics();
        assert_eq!((after.same_host_written_bytes, after.retries), (0, 0), "{after:?}");
        let read = after.same_host_read_bytes - before.same_host_read_bytes;
        assert_eq!(read, MIB as u64, "the connection stays: only writes need the memory");
    }
}

/// The warnings that this process has logged.
static WARNINGS: Mutex<String> = Mutex::new(String::new());

/// Keeps warnings.
struct Warnings;

/// Writes the fields of one event.
struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut warnings = WARNINGS.lock().unwrap();
        event.record(&mut Line(&mut warnings));
        warnings.push('\n');
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Hands packets between a client and a datanode until one of them is gone, but answers each
/// request for staging memory with `refusal` itself.
fn relay(client: &PacketSocket, node: &PacketSocket, refusal: &Refusal) {
    let mut packet = vec![0; PACKET_BYTES_MAX];
    loop {
        for (from, to) in [(client, node), (node, client)] {
            if !matches!(from.wait(Duration::from_millis(1)), Ok(true)) {
                continue;
            }
            let Ok(received) = from.receive_now(&mut packet) else { return };
            let Some((bytes, file)) = received else { continue };
            if bytes == 0 {
                return;
            }
            let header = Header::decode(packet.first_chunk().unwrap()).unwrap();
            let sent = if header.op == Op::Stage {
                let (mut reply, body) = (header.reply(), encode_body(refusal));
                (reply.status, reply.body_bytes) = (refusal.code(), body.len() as u32);
                from.send(&[IoSlice::new(&reply.encode()), IoSlice::new(&body)], None)
            } else {
                let file = file.as_ref().map(AsFd::as_fd);
                to.send(&[IoSlice::new(&packet[..bytes])], file)
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn breach_of_the_protocol_is_logged_and_the_bytes_go_over_tcp() {
    tracing::subscriber::set_global_default(Warnings).unwrap();
    let mut cluster = Cluster::start(0).await;
    let sockets = tempfile::tempdir().unwrap();
    let (socket, behind) = (sockets.path().join("a.sock"), sockets.path().join("b.sock"));
    let local = Some(LocalOptions { socket: Some(socket.clone()), ..LocalOptions::default() });
    let dram_bytes = 64 << 20;
    cluster.add_with(DatanodeOptions { dram_bytes, local, ..Default::default() }).await;
    std::fs::rename(&socket, &behind).unwrap();
    let listener = PacketSocket::listen(&socket, 8).unwrap();
    std::thread::spawn(move || {
        // Until the process ends: clients may connect at any time.
        while let Ok(is_there) = listener.wait(Duration::from_secs(1)) {
            if !is_there {
                continue;
            }
            let client = listener.accept().unwrap();
            let node = PacketSocket::connect(&behind).unwrap();
            let refusal = Refusal::BadRequest { why: "a test refuses this".to_owned() };
            std::thread::spawn(move || relay(&client, &node, &refusal));
        }
    });
    let client = cluster.client().await;
    let first = path("/first");
    client.put(&first, pattern(MIB, 1), &PutOptions::default()).await.unwrap();
    wait_for_leases(&client, &first).await;
    let replace = PutOptions { mode: CreateMode::Replace, ..PutOptions::default() };
    let is_logged = || {
        let warnings = WARNINGS.lock().unwrap();
        let has = |words: &str| warnings.contains(words);
        has("disagree on the protocol and use TCP") && has("a test refuses this")
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_logged() {
        assert!(Instant::now() < deadline, "not logged: {:?}", WARNINGS.lock());
        let (second, bytes) = (path("/second"), pattern(MIB, 2));
        client.put(&second, bytes.clone(), &replace).await.unwrap();
        assert_eq!(client.get(&second).await.unwrap(), bytes);
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(client.metrics().same_host_written_bytes, 0);
}

/// Flips a bit in the memory that a datanode of this process has for its blocks, where `bytes` are.
/// The datanode is the one with so much memory: other tests of this process map and unmap theirs.
fn flip(memory_bytes: u64, bytes: &[u8]) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut options = std::fs::OpenOptions::new();
    let memory = options.read(true).write(true).open("/proc/self/mem").unwrap();
    let is_written = |line: &&str| line.contains("/memfd:") && line.contains(" rw-s ");
    for line in maps.lines().filter(is_written) {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        if number(end) - number(start) != memory_bytes {
            continue;
        }
        let mut all = vec![0; memory_bytes as usize];
        memory.read_exact_at(&mut all, number(start)).unwrap();
        if let Some(at) = all.windows(bytes.len()).position(|window| window == bytes) {
            let address = number(start) + at as u64;
            return memory.write_all_at(&[bytes[0] ^ 8], address).unwrap();
        }
    }
    panic!("no datanode has these bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_memory_is_neither_leased_nor_copied_and_is_lost_at_once() {
    let mut cluster = Cluster::start(0).await;
    let local = LocalOptions { verified_for: Duration::ZERO, ..LocalOptions::default() };
    let scrub_bytes_per_second = None;
    // As much as no other test of this process has.
    let dram_bytes = 72 << 20;
    let options = DatanodeOptions {
        local: Some(local),
        scrub_bytes_per_second,
        dram_bytes,
        ..Default::default()
    };
    cluster.add_with(options).await;
    let client = cluster.client().await;
    let first = path("/first");
    client.put(&first, pattern(MIB, 1), &PutOptions::default()).await.unwrap();
    wait_for_leases(&client, &first).await;
    // A lease of the whole, a copy of whole runs, and a copy of a part of one.
    for (seed, offset, bytes) in [(72, 0, MIB as u64), (73, 409_600, 4096), (74, 410_000, 100)] {
        let (object, all) = (path(&format!("/damaged-{seed}")), pattern(MIB, seed));
        client.put(&object, all.clone(), &PutOptions::default()).await.unwrap();
        let reader = client.open(&object).await.unwrap();
        let before = client.metrics().same_host_read_bytes;
        assert_eq!(reader.read_range(offset, bytes).await.unwrap().len() as u64, bytes);
        assert_eq!(client.metrics().same_host_read_bytes, before + bytes);
        flip(dram_bytes, &all[410_005..410_040]);
        let began = Instant::now();
        let lost = reader.read_range(offset, bytes).await;
        assert!(matches!(lost, Err(ClientError::DataUnavailable { .. })), "{seed}: {lost:?}");
        // It is known before the deadline of the call, 10 s.
        assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
        assert_eq!(client.metrics().same_host_read_bytes, before + bytes);
    }
    assert_eq!(client.get(&first).await.unwrap(), pattern(MIB, 1));
    assert_eq!(client.report().await.unwrap().bytes, 3 * MIB as u64);
}

/// Waits until the one datanode reports that so much of its memory is in use.
async fn wait_for_used(cluster: &Cluster, client: &Client, bytes: u64) {
    let is_so = |nodes: &[NodeInfo]| nodes[0].load.dram_used_bytes == bytes;
    cluster.wait_for(client, &format!("{bytes} bytes in use"), is_so).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_is_staged_before_its_block_is_known_is_whole_or_leaves_nothing() {
    let cluster = Cluster::start_with(1, 16 << 20).await;
    let client = cluster.client().await;
    let (first, options) = (path("/first"), PutOptions::default());
    client.put(&first, pattern(MIB, 1), &options).await.unwrap();
    wait_for_leases(&client, &first).await;
    let before = client.metrics().same_host_written_bytes;
    let replace = PutOptions { mode: CreateMode::Replace, ..PutOptions::default() };
    let sizes = [MIB, 3 * MIB + 7, 65_536, MIB - 1, 70_001, MIB, 2 * MIB];
    for (seed, size) in (2..).zip(sizes) {
        let bytes = pattern(size, seed);
        client.put(&path("/other"), bytes.clone(), &replace).await.unwrap();
        assert_eq!(client.get(&path("/other")).await.unwrap(), bytes, "{size} bytes");
    }
    let written = client.metrics().same_host_written_bytes - before;
    assert!(written >= 5 * MIB as u64, "{written} bytes through shared memory");
    for _ in 0..3 {
        let refused = client.put(&first, pattern(MIB, 9), &options).await;
        assert!(matches!(refused, Err(ClientError::Refused(Refusal::Exists { .. }))));
    }
    assert_eq!(client.get(&first).await.unwrap(), pattern(MIB, 1));
    wait_for_used(&cluster, &client, 3 * MIB as u64).await;
    client.delete(&first, false).await.unwrap();
    client.delete(&path("/other"), false).await.unwrap();
    wait_for_used(&cluster, &client, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_that_are_cancelled_at_any_moment_leave_nothing() {
    // Room for all of them: what was granted to a writer is kept until its lease ends.
    let cluster = Cluster::start_with(1, 128 << 20).await;
    let client = cluster.client().await;
    let replace = PutOptions { mode: CreateMode::Replace, ..PutOptions::default() };
    let (kept, bytes) = (path("/kept"), pattern(MIB, 1));
    client.put(&kept, bytes.clone(), &replace).await.unwrap();
    wait_for_leases(&client, &kept).await;
    client.put(&kept, bytes.clone(), &replace).await.unwrap();
    for round in 0..60_u64 {
        let name = path(&format!("/cancelled-{}", round % 4));
        let put = client.put(&name, pattern(MIB, round), &replace);
        // However far it came: what counts is what is left in the end.
        let _ = tokio::time::timeout(Duration::from_micros(20 * round), put).await;
    }
    client.put(&kept, bytes.clone(), &replace).await.unwrap();
    assert_eq!(client.get(&kept).await.unwrap(), bytes);
    for name in client.list_all(&path("/")).await.unwrap() {
        client.delete(&path(&format!("/{}", name.name)), false).await.unwrap();
    }
    drop(client);
    // Writers that were cancelled lose their leases, and unfinished objects go with these.
    let client = cluster.client().await;
    let deadline = Instant::now() + Duration::from_secs(120);
    while client.nodes(true).await.unwrap()[0].load.dram_used_bytes > 0 {
        assert!(Instant::now() < deadline, "memory is not given back");
        sleep(Duration::from_millis(50)).await;
    }
}

/// A client of another user, on a thread of its own: the kernel has users by thread.
#[test]
fn client_of_another_user_is_refused_the_memory_and_goes_by_tcp() {
    if !rustix::process::geteuid().is_root() {
        // Not by a macro, whose words a test that passes keeps to itself.
        let why = "SKIPPED: only root can be another user\n";
        std::io::Write::write_all(&mut std::io::stderr(), why.as_bytes()).unwrap();
        return;
    }
    let uid = 65_534;
    let servers = tokio::runtime::Runtime::new().unwrap();
    for (uids, is_let_in) in [(vec![], false), (vec![uid - 1], false), (vec![uid], true)] {
        let cluster = servers.block_on(async {
            let mut cluster = Cluster::start(0).await;
            cluster.add_for(64 << 20, uids.clone()).await;
            cluster
        });
        let namenode = cluster.namenode.address().to_string();
        let other = std::thread::spawn(move || {
            rustix::thread::set_thread_uid(rustix::thread::Uid::from_raw(uid)).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(as_other_user(namenode, is_let_in))
        });
        assert_eq!(other.join().unwrap(), is_let_in, "let in for {uids:?}");
        drop(cluster);
    }
}

/// Reads and writes; returns whether any byte came through shared memory.
async fn as_other_user(namenode: String, is_let_in: bool) -> bool {
    let client = Client::connect(&namenode, ClientConfig::default()).await.unwrap();
    let (object, bytes) = (path("/object"), pattern(MIB, 1));
    client.put(&object, bytes.clone(), &PutOptions::default()).await.unwrap();
    if is_let_in {
        wait_for_leases(&client, &object).await;
    }
    for _ in 0..40 {
        assert_eq!(client.get(&object).await.unwrap(), bytes);
        sleep(Duration::from_millis(1)).await;
    }
    let metrics = client.metrics();
    metrics.same_host_read_bytes + metrics.same_host_written_bytes > 0
}
