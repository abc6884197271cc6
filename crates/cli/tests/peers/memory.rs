//! A server that may take so much memory takes no more, whatever tenants store and send, and goes
//! on.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::cluster::guarded::Guarded;
use crate::cluster::{
    Cluster, SOON, Shape, allow_open_files, block_on_within, path, run, sanderling, until,
};
use futures_util::future::join_all;
use rustix::net::sockopt;
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::frame::{HEADER_BYTES, RangeRequest, decode_body, encode_body};
use sanderling_protocol::limits::FRAME_BODY_BYTES_MAX;
use sanderling_protocol::message::{Attributes, Hello, Layout, Role};
use sanderling_protocol::{BlockId, Epoch, Header, Op, Refusal, Tier, Token};

/// Bytes that `--memory-max` gives to the namenode.
const MEMORY_MAX: u64 = 96 << 20;

/// The same of a datanode with a memory tier of 64 MiB.
const DATANODE_MEMORY_MAX: u64 = 198 << 20;

/// Pages of the released program's file that a server has mapped in, about. The program of the
/// tests is without optimization, and has more than twice as many.
const PROGRAM_BYTES: u64 = 16 << 20;

/// Returns the bytes of memory that a process has mapped in at most, were it the released program.
fn most_resident_bytes(pid: u32) -> u64 {
    memory(pid, "VmHWM:") - memory(pid, "RssFile:") + PROGRAM_BYTES
}

/// Returns the bytes that it has mapped in now.
fn resident_bytes(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("Linux has it");
    kib.parse::<u64>().expect("a number") << 10
}

/// Attributes as dear as may be: many names of few bytes.
fn dear() -> Attributes {
    (0..1200).map(|number| (format!("{number:04}"), "x")).collect()
}

/// Stores until the namenode takes no more; returns how much that was, and why.
async fn fill(client: &Client, place: &str) -> (usize, ClientError) {
    let options = PutOptions { attributes: dear(), parents: true, ..PutOptions::default() };
    for number in 0.. {
        let name = path(&format!("{place}/{number}"));
        if let Err(error) = client.put(&name, b"x".to_vec().into(), &options).await {
            return (number, error);
        }
    }
    unreachable!("memory ends")
}

#[test]
fn namenode_takes_no_more_memory_than_it_may_and_goes_on() {
    let namenode = vec!["--memory-max".to_owned(), MEMORY_MAX.to_string()];
    let cluster = Cluster::start(Shape { datanodes: 1, namenode, ..Shape::default() });
    block_on_within(Duration::from_secs(300), async {
        let client = cluster.client().await;
        client
            .put(&path("/before"), vec![7; 100_000].into(), &PutOptions::default())
            .await
            .expect("there is room");
        let config =
            ClientConfig { call_deadline: Duration::from_secs(10), ..ClientConfig::default() };
        let greedy = Client::connect(&cluster.namenode.address, config).await.expect("connected");
        let (stored, error) = fill(&greedy, "/greedy").await;
        assert!(error.to_string().contains("memory is full"), "{error}");
        assert!(stored > 100, "{stored} objects");
        let most = most_resident_bytes(cluster.namenode.pid());
        assert!(most < MEMORY_MAX + (64 << 20), "{most} bytes for {stored} objects");
        // What makes nothing larger goes on.
        assert_eq!(client.get(&path("/before")).await.expect("read").len(), 100_000);
        client.rename(&path("/before"), &path("/after"), false).await.expect("renamed");
        client.delete(&path("/greedy"), true).await.expect("deleted");
        let (again, _) = fill(&greedy, "/again").await;
        assert!(again >= stored - 5, "{again} objects, {stored} before");
        let most = most_resident_bytes(cluster.namenode.pid());
        assert!(most < MEMORY_MAX + (64 << 20), "{most} bytes for {again} objects");
        assert!(client.fsck().await.expect("checked").problems.is_empty());
    });
}

/// A connection to a server, by hand.
pub(crate) struct Peer(pub(crate) TcpStream);

impl Peer {
    fn greet(address: &str) -> Self {
        Self::greet_with(address, None)
    }

    pub(crate) fn greet_with(address: &str, token: Option<Token>) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(SOON)).expect("not zero");
        let mut peer = Self(stream);
        let hello = Hello { role: Role::Client, cluster: None, node: None, token };
        let greeting = encode_body(&hello);
        let mut header = Header::new(Op::Hello, 1);
        header.body_bytes = greeting.len() as u32;
        peer.send(&[&header.encode()[..], &greeting].concat());
        peer.answer().expect("let in");
        peer
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it is taken");
    }

    /// Reads an answer; fails with the reason if it is a refusal.
    fn answer(&mut self) -> Result<(), Refusal> {
        self.body().map(drop)
    }

    /// The same; returns its body.
    pub(crate) fn body(&mut self) -> Result<Vec<u8>, Refusal> {
        let mut head = [0; HEADER_BYTES];
        self.0.read_exact(&mut head).expect("an answer");
        let header = Header::decode(&head).expect("it is ours");
        let mut body = vec![0; header.body_bytes as usize];
        self.0.read_exact(&mut body).expect("all of it");
        if header.status == 0 { Ok(body) } else { Err(decode_body(&body).expect("a refusal")) }
    }

    /// Begins a request as long as may be, and sends all of it but its end.
    fn begin_long(&mut self) {
        let mut header = Header::new(Op::ReadMany, 2);
        header.body_bytes = FRAME_BODY_BYTES_MAX;
        self.send(&header.encode());
        self.send(&vec![7; FRAME_BODY_BYTES_MAX as usize - 1]);
    }
}

/// A number that the namenode gives to no block of these tests.
const FIRST_BLOCK: u64 = 1 << 40;

/// The first write of a block, of one byte.
fn first_write(block: u64) -> Vec<u8> {
    let mut header = Header::new(Op::Write, block);
    (header.block, header.epoch) = (BlockId(FIRST_BLOCK + block), Epoch(1));
    (header.body_bytes, header.checksum) = (1, crc32c(b"x"));
    header.flags = Tier::Dram as u16;
    [&header.encode()[..], b"x"].concat()
}

/// Writes blocks of one byte until there is no memory for another; returns how many there are.
fn fill_index(peer: &mut Peer) -> u64 {
    for batch in 0..1000 {
        let blocks = 100 * batch + 1..=100 * batch + 100;
        peer.send(&blocks.clone().flat_map(first_write).collect::<Vec<u8>>());
        let answers: Vec<_> = blocks.map(|_| peer.answer()).collect();
        let stored = answers.iter().take_while(|answer| answer.is_ok()).count() as u64;
        if let Some(refusal) = answers.into_iter().find_map(Result::err) {
            let why = refusal.to_string();
            let is_right = matches!(refusal, Refusal::TierFailed { .. });
            assert!(is_right && why.contains("--memory-max"), "{why}");
            return 100 * batch + stored;
        }
    }
    unreachable!("memory ends")
}

#[test]
fn datanode_takes_no_more_memory_than_it_may_and_goes_on() {
    let bound = DATANODE_MEMORY_MAX.to_string();
    let datanode = vec!["--memory-max", bound.leak()];
    let cluster = Cluster::start(Shape { datanodes: 1, datanode, ..Shape::default() });
    let (address, pid) = (&cluster.datanodes[0].address, cluster.datanodes[0].pid());
    // Many times what it has for long requests. Those for which there is nothing left are taken
    // and forgotten.
    let mut greedy: Vec<_> = (0..24).map(|_| Peer::greet(address)).collect();
    greedy.iter_mut().for_each(Peer::begin_long);
    let most = most_resident_bytes(pid);
    assert!(most < DATANODE_MEMORY_MAX, "{most} bytes for long requests");
    drop(greedy);
    block_on_within(Duration::from_secs(100), async {
        let client = cluster.client().await;
        let (file, data) = (path("/file"), vec![7; 3_000_000]);
        client
            .put(&file, data.clone().into(), &PutOptions::default())
            .await
            .expect("there is room");
        assert!(client.get(&file).await.expect("it is there") == data);
    });
    let most = most_resident_bytes(pid);
    assert!(most < DATANODE_MEMORY_MAX, "{most} bytes");
}

/// Connections whose buffers alone, were they not counted, take more than the datanode may.
const CONNECTIONS: usize = 3_000;

/// Requests that come together, longer than the first buffer of a connection.
const TOGETHER: u64 = 120;

/// A read of a block that is not there.
fn short_read(number: u64) -> Vec<u8> {
    let block = BlockId(FIRST_BLOCK + number);
    let mut body = Vec::new();
    RangeRequest { block, epoch: Epoch(1), offset: 0, length: 1 }.encode(&mut body);
    let mut header = Header::new(Op::ReadMany, number);
    header.body_bytes = body.len() as u32;
    [&header.encode()[..], &body].concat()
}

/// Tests that a datanode serves a client.
async fn serves(client: &Client) {
    let (file, data) = (path("/in_time"), vec![7; 3_000_000]);
    let options = PutOptions::default();
    client.put(&file, data.clone().into(), &options).await.expect("there is room");
    assert!(client.get(&file).await.expect("it is there") == data);
}

#[test]
fn buffers_of_thousands_of_connections_are_within_the_datanodes_memory() {
    allow_open_files(CONNECTIONS as u64 + 1_000);
    let datanode = vec!["--memory-max", DATANODE_MEMORY_MAX.to_string().leak()];
    let cluster = Cluster::start(Shape { datanodes: 1, datanode, ..Shape::default() });
    let (address, pid) = (&cluster.datanodes[0].address, cluster.datanodes[0].pid());
    let mut sent: Vec<u8> = (1..=TOGETHER).flat_map(short_read).collect();
    // And the beginning of one more, as long as what is received in the buffer.
    let mut header = Header::new(Op::ReadMany, TOGETHER + 1);
    header.body_bytes = 16 << 10;
    sent.extend_from_slice(&header.encode());
    sent.resize(sent.len() + (16 << 10) - 1, 7);
    let mut all: Vec<_> = (0..CONNECTIONS).map(|_| Peer::greet(address)).collect();
    all.iter_mut().for_each(|peer| peer.send(&sent));
    all.iter_mut().for_each(|peer| {
        (0..TOGETHER).for_each(|_| drop(peer.answer()));
    });
    let most = most_resident_bytes(pid);
    assert!(most < DATANODE_MEMORY_MAX, "{most} bytes for {CONNECTIONS} connections");
    block_on_within(Duration::from_secs(100), async { serves(&cluster.client().await).await });
    drop(all);
}

/// Ranges of a read whose request is short, and the length of each.
const RANGES: usize = 1000;
const RANGE_BYTES: u32 = 1 << 10;

/// Connections whose answers, were their parts not counted, take more than the datanode may.
const DEAF: usize = 300;

/// Bytes that the kernel takes for a peer that does not read.
const TAKEN_BYTES: usize = 4 << 10;

/// Reads whose answers are more than the kernel takes of the datanode and for the peer.
const UNREAD: u64 = 5;

/// A read of many short ranges of a block.
fn scattered_read(number: u64, range: RangeRequest) -> Vec<u8> {
    let mut body = Vec::new();
    (0..RANGES).for_each(|_| range.encode(&mut body));
    let mut header = Header::new(Op::ReadMany, number);
    header.body_bytes = body.len() as u32;
    [&header.encode()[..], &body].concat()
}

#[test]
fn unread_answers_of_many_short_ranges_are_within_the_datanodes_memory() {
    allow_open_files(DEAF as u64 + 1_000);
    let datanode = vec!["--memory-max", DATANODE_MEMORY_MAX.to_string().leak()];
    let cluster = Cluster::start(Shape { datanodes: 1, datanode, ..Shape::default() });
    let (address, pid) = (&cluster.datanodes[0].address, cluster.datanodes[0].pid());
    let block = block_on_within(SOON, async {
        let (client, file) = (cluster.client().await, path("/file"));
        let data = vec![7; 100_000].into();
        client.put(&file, data, &PutOptions::default()).await.expect("there is room");
        client.layout(&file, 0..100_000).await.expect("it is there").blocks[0]
    });
    let (block, epoch) = (block.block, block.epoch);
    let range = RangeRequest { block, epoch, offset: 0, length: RANGE_BYTES };
    let sent: Vec<u8> = (1..=UNREAD).flat_map(|number| scattered_read(number, range)).collect();
    let mut all: Vec<_> = (0..DEAF).map(|_| Peer::greet(address)).collect();
    for peer in &mut all {
        sockopt::set_socket_recv_buffer_size(&peer.0, TAKEN_BYTES).expect("a socket");
        peer.send(&sent);
    }
    // Each is answered until the kernel takes no more; those that keep memory which others need may
    // be given up.
    let answered = |peer: &Peer| match peer.0.peek(&mut [0]) {
        Ok(_) => (),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    };
    all.iter().for_each(answered);
    let mut before = 0;
    until("its memory no longer grows", Duration::from_secs(60), || {
        std::thread::sleep(Duration::from_secs(1));
        let now = most_resident_bytes(pid);
        (std::mem::replace(&mut before, now) == now).then_some(())
    });
    block_on_within(Duration::from_secs(100), async { serves(&cluster.client().await).await });
    let most = most_resident_bytes(pid);
    assert!(most < DATANODE_MEMORY_MAX, "{most} bytes for {DEAF} connections");
    drop(all);
}

#[test]
fn short_writes_that_wait_for_the_namenode_are_within_the_datanodes_memory() {
    let bound = DATANODE_MEMORY_MAX.to_string().leak();
    let guarded = Guarded::start_with(1, false, &["--memory-max", bound]);
    let cluster = &guarded.cluster;
    let (address, pid) = (&cluster.datanodes[0].address, cluster.datanodes[0].pid());
    let token = guarded.token(&["--subtree", "/a", "--rights", "read,write"]);
    let mut all: Vec<_> = (0..64).map(|_| Peer::greet_with(address, Some(token.clone()))).collect();
    // The namenode reports whether the blocks are the tenant's.
    cluster.namenode.pause();
    let body = vec![7; 16 << 10];
    let write = |number: u64| {
        let mut header = Header::new(Op::Write, number);
        (header.block, header.epoch) = (BlockId(FIRST_BLOCK + number), Epoch(1));
        (header.body_bytes, header.checksum) = (body.len() as u32, crc32c(&body));
        header.flags = Tier::Dram as u16;
        [&header.encode()[..], &body].concat()
    };
    let sent: Vec<u8> = (1..=250).flat_map(write).collect();
    all.iter_mut().for_each(|peer| peer.send(&sent));
    until("the last write is read", SOON, || {
        let waiting = sockets_with_bytes(address);
        (waiting == 0).then_some(())
    });
    let most = most_resident_bytes(pid);
    cluster.namenode.resume();
    assert!(most < DATANODE_MEMORY_MAX, "{most} bytes for {} connections", all.len());
    let refused = (0..250).filter_map(|_| all[0].answer().err()).last().expect("all are refused");
    assert!(matches!(refused, Refusal::RetryAfter { .. } | Refusal::Forbidden { .. }), "{refused}");
    drop(all);
    let options = ["--subject", "other"];
    block_on_within(Duration::from_secs(100), async {
        serves(&guarded.client(&options).await).await;
    });
}

/// Blocks of a tenant, each of more bytes than the catalog keeps itself.
const OWN: usize = 4_000;
const OWN_BYTES: usize = 600;

/// Connections of that tenant that read all of these blocks, and ranges of one request.
const READERS: usize = 600;
const OWN_RANGES: usize = 200;

/// What more the datanode may take for these readers: 8 MiB for blocks that they remember, and
/// their buffers. Were each to remember all of them, that would be 70 MB.
const READERS_BYTES_MAX: u64 = 36 << 20;

/// Stores a tenant's blocks; returns a range of each.
async fn store_own(client: &Client) -> Vec<RangeRequest> {
    let names: Vec<_> = (0..OWN).map(|number| path(&format!("/a/{number}"))).collect();
    let options = PutOptions { parents: true, ..PutOptions::default() };
    for some in names.chunks(50) {
        let puts = some.iter().map(|name| client.put(name, vec![7; OWN_BYTES].into(), &options));
        for put in join_all(puts).await {
            put.expect("there is room");
        }
    }
    let layouts = client.layout_many(&names).await;
    let range = |layout: Result<Layout, ClientError>| {
        let block = layout.expect("it is there").blocks[0];
        RangeRequest { block: block.block, epoch: block.epoch, offset: 0, length: 1 }
    };
    layouts.into_iter().map(range).collect()
}

#[test]
fn blocks_that_connections_remember_are_within_the_datanodes_memory() {
    allow_open_files(4 * (READERS as u64 + 400));
    let bound = DATANODE_MEMORY_MAX.to_string().leak();
    let guarded = Guarded::start_with(1, false, &["--memory-max", bound]);
    let server = &guarded.cluster.datanodes[0];
    until("the memory tier is taken", SOON, || server.log().contains("memory taken").then_some(()));
    let token = guarded.token(&["--subtree", "/a", "--rights", "read,write"]);
    let ranges = block_on_within(Duration::from_secs(200), async {
        store_own(&guarded.cluster.client_of(guarded.config(&token)).await).await
    });
    let requests: Vec<Vec<u8>> = ranges.chunks(OWN_RANGES).map(read_of).collect();
    let (address, pid) = (&server.address, server.pid());
    let greet = |_| Peer::greet_with(address, Some(token.clone()));
    let mut all: Vec<_> = (0..READERS).map(greet).collect();
    // Each has its buffers then.
    for peer in &mut all {
        peer.send(&requests[0]);
        peer.answer().expect("its own block");
    }
    let before = most_resident_bytes(pid);
    for request in &requests {
        // As many at once as the namenode is to look up.
        for some in all.chunks_mut(16) {
            some.iter_mut().for_each(|peer| peer.send(request));
            for peer in some {
                peer.answer().expect("its own block, remembered or not");
            }
        }
    }
    let most = most_resident_bytes(pid);
    let more = most.saturating_sub(before);
    assert!(more < READERS_BYTES_MAX, "{more} bytes for what {READERS} connections remember");
    assert!(most < DATANODE_MEMORY_MAX, "{most} bytes for {READERS} connections");
    block_on_within(Duration::from_secs(100), async {
        serves(&guarded.client(&["--subject", "other"]).await).await;
    });
    drop(all);
}

/// A read of several ranges.
fn read_of(ranges: &[RangeRequest]) -> Vec<u8> {
    let mut body = Vec::new();
    ranges.iter().for_each(|range| range.encode(&mut body));
    let mut header = Header::new(Op::ReadMany, 3);
    header.body_bytes = body.len() as u32;
    [&header.encode()[..], &body].concat()
}

/// Returns how many connections of a server have bytes that it has not read (`proc_net_tcp`).
fn sockets_with_bytes(address: &str) -> usize {
    let port: u16 = address.rsplit_once(':').expect("a port").1.parse().expect("a number");
    let local = format!("0100007F:{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux has it");
    let rows = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[1] == local && row[3] == "01" && !row[4].ends_with(":00000000")).count()
}

#[test]
fn writers_leave_a_datanode_whose_index_is_full() {
    let bound = DATANODE_MEMORY_MAX.to_string();
    let datanode = vec!["--memory-max", bound.leak()];
    let cluster = Cluster::start(Shape { datanodes: 2, datanode, ..Shape::default() });
    let (address, pid) = (&cluster.datanodes[0].address, cluster.datanodes[0].pid());
    let taken = || cluster.datanodes[0].log().contains("memory taken");
    until("the memory tier is taken", SOON, || taken().then_some(()));
    let before = resident_bytes(pid);
    let mut peer = Peer::greet(address);
    let blocks = fill_index(&mut peer);
    let index = resident_bytes(pid).saturating_sub(before);
    // Look-ups of what counts take pages beside the index, however many blocks there are.
    let pages = 2 << 20;
    assert!(blocks > 4000 && index < 512 * blocks + pages, "{index} bytes for {blocks} blocks");
    peer.send(&first_write(1));
    assert_eq!(peer.answer(), Ok(()), "what is there is acknowledged again");
    block_on_within(Duration::from_secs(200), async {
        let client = cluster.client().await;
        let options = PutOptions::default();
        for number in 0..20 {
            let (file, data) = (path(&format!("/{number}")), vec![7; 100_000]);
            client.put(&file, data.clone().into(), &options).await.expect("the other has room");
            assert!(client.get(&file).await.expect("it is there") == data);
        }
    });
}

#[test]
fn datanode_that_does_not_fit_reports_how_much_it_needs() {
    let words = ["datanode", "--dram", "1GiB", "--memory-max", "1GiB", "--exit-with-parent"];
    let ran = run(sanderling().args(words));
    assert_eq!(ran.code, 2, "{ran}");
    for part in ["--memory-max is 1.00 GiB", "memory tier takes 1.00 GiB", "--memory-max 11"] {
        assert!(ran.stderr.contains(part), "{part}: {ran}");
    }
    let by_environment = ["datanode", "--dram", "1GiB", "--exit-with-parent"];
    let again =
        run(sanderling().args(by_environment).env("SANDERLING_DATANODE_MEMORY_MAX", "1GiB"));
    assert_eq!(again.stderr, ran.stderr);
}
