//! A server that may take so much memory takes no more, whatever tenants store and send, and goes
//! on.

mod cluster;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use cluster::{Cluster, SOON, Shape, block_on_within, path, run, sanderling, until};
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::frame::{HEADER_BYTES, decode_body, encode_body};
use sanderling_protocol::limits::FRAME_BODY_BYTES_MAX;
use sanderling_protocol::message::{Attributes, Hello, Role};
use sanderling_protocol::{BlockId, Epoch, Header, Op, Refusal, Tier};

/// Bytes that `--memory-max` gives to the namenode.
const MEMORY_MAX: u64 = 96 << 20;

/// The same of a datanode with a memory tier of 64 MiB.
const DATANODE_MEMORY_MAX: u64 = 198 << 20;

/// Returns the bytes of memory that a process has mapped in at most.
fn most_resident_bytes(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

/// Returns the bytes that it has mapped in now.
fn resident_bytes(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("Linux says it");
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
            ClientConfig { call_deadline: Duration::from_secs(3), ..ClientConfig::default() };
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
struct Peer(TcpStream);

impl Peer {
    fn greet(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(SOON)).expect("not zero");
        let mut peer = Self(stream);
        let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
        let greeting = encode_body(&hello);
        let mut header = Header::new(Op::Hello, 1);
        header.body_bytes = greeting.len() as u32;
        peer.send(&[&header.encode()[..], &greeting].concat());
        peer.answer().expect("let in");
        peer
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it is taken");
    }

    /// Reads an answer; fails with the reason if it is a refusal.
    fn answer(&mut self) -> Result<(), Refusal> {
        let mut head = [0; HEADER_BYTES];
        self.0.read_exact(&mut head).expect("an answer");
        let header = Header::decode(&head).expect("it is ours");
        let mut body = vec![0; header.body_bytes as usize];
        self.0.read_exact(&mut body).expect("all of it");
        if header.status == 0 { Ok(()) } else { Err(decode_body(&body).expect("a refusal")) }
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
    assert!(blocks > 4000 && index < 640 * blocks, "{index} bytes for {blocks} blocks");
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
fn datanode_that_does_not_fit_says_how_much_it_needs() {
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
