//! Bytes that no client of ours would send, thrown at real servers: they refuse, and go on serving.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cluster;

use std::time::Duration;

use bytes::Bytes;
use cluster::{Cluster, MIB, path, pattern};
use sanderling_client::PutOptions;
use sanderling_protocol::frame::{HEADER_BYTES, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{BlockId, ClusterId, Epoch, Header, NodeId, Op, Order, Refusal, Request};
use sanderling_transport::{CallError, Connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// A small generator: the same noise in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

fn hello() -> Vec<u8> {
    let body = encode_body(&Hello { role: Role::Client, cluster: None, node: None, token: None });
    let mut header = Header::new(Op::Hello, 1);
    header.body_bytes = body.len() as u32;
    [header.encode().to_vec(), body].concat()
}

/// A frame whose header is right and whose body is noise, or a right one with flipped bytes.
fn odd_frame(noise: &mut Noise) -> Vec<u8> {
    let ops = [Op::Hello, Op::Meta, Op::Order, Op::Read, Op::ReadMany, Op::Write, Op::Store];
    let op = ops[noise.below(ops.len())];
    let body = match noise.below(4) {
        0 => encode_body(&vec![Request::Report, Request::Nodes { all: true }]),
        1 => encode_body(&Order::ListBlocks { after: BlockId(0), limit: u32::MAX }),
        2 => Vec::new(),
        _ => (0..noise.below(5000)).map(|_| noise.next() as u8).collect(),
    };
    let mut header = Header::new(op, noise.next());
    header.flags = noise.next() as u16;
    header.block = BlockId(noise.next() % 10);
    header.epoch = Epoch((noise.next() % 3) as u32);
    header.length = [0, 1, body.len() as u32, u32::MAX][noise.below(4)];
    header.offset = [0, 1, u64::MAX][noise.below(3)];
    header.checksum = noise.next() as u32;
    header.body_bytes = body.len() as u32;
    let mut frame = [header.encode().to_vec(), body].concat();
    for _ in 0..noise.below(3) {
        let at = noise.below(frame.len().min(HEADER_BYTES + 20));
        frame[at] ^= noise.next() as u8;
    }
    frame
}

async fn throw(address: &str, noise: &mut Noise) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&hello()).await.unwrap();
    for _ in 0..8 {
        // The server may close at any time.
        let _ = stream.write_all(&odd_frame(noise)).await;
    }
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let read = tokio::time::timeout(Duration::from_secs(60), read).await;
    assert!(read.is_ok(), "the server neither answers nor closes");
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_is_refused_and_nobody_else_is_disturbed() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let data = pattern(3 * MIB, 1);
    client.put(&path("/file"), data.clone(), &PutOptions::default()).await.unwrap();
    let addresses: Vec<String> = std::iter::once(cluster.namenode.address().to_string())
        .chain(cluster.datanodes.iter().flatten().map(|node| node.address().to_string()))
        .collect();
    for seed in 1..=300u64 {
        let mut noise = Noise(seed * 0x9e37_79b9);
        throw(&addresses[seed as usize % addresses.len()], &mut noise).await;
    }
    assert!(client.get(&path("/file")).await.unwrap() == data);
    assert!(client.fsck().await.unwrap().problems.is_empty());
    assert_eq!(client.nodes(false).await.unwrap().len(), 2);
    assert_eq!(client.report().await.unwrap().bytes, 0);
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

async fn refusal(address: &str, hello: Hello) -> Refusal {
    match Connection::connect(address, hello, soon()).await {
        Err(CallError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn greetings_to_another_cluster_or_incarnation_are_refused() {
    let cluster = Cluster::start(1).await;
    let namenode = cluster.namenode.address().to_string();
    let datanode = cluster.datanodes[0].as_ref().unwrap().address().to_string();
    let hello = |cluster, node| Hello { role: Role::Client, cluster, node, token: None };
    let other = Some(ClusterId(12345));
    assert!(matches!(refusal(&namenode, hello(other, None)).await, Refusal::WrongCluster { .. }));
    assert!(matches!(refusal(&datanode, hello(other, None)).await, Refusal::WrongCluster { .. }));
    let stale = hello(None, Some(NodeId(99)));
    assert!(matches!(refusal(&datanode, stale).await, Refusal::WrongNode { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_for_the_other_kind_of_server_are_refused() {
    let cluster = Cluster::start(1).await;
    let namenode = cluster.namenode.address().to_string();
    let datanode = cluster.datanodes[0].as_ref().unwrap().address().to_string();
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let (to_namenode, _) = Connection::connect(&namenode, hello.clone(), soon()).await.unwrap();
    let (to_datanode, _) = Connection::connect(&datanode, hello, soon()).await.unwrap();
    for op in [Op::Read, Op::Write, Op::Order] {
        let answer = to_namenode.call(Header::new(op, 0), vec![Bytes::from("x")], soon()).await;
        assert!(matches!(answer, Err(CallError::Refused(_))), "{op:?}: {answer:?}");
    }
    let body = vec![Bytes::from(encode_body(&vec![Request::Report]))];
    let answer = to_datanode.call(Header::new(Op::Meta, 0), body, soon()).await;
    assert!(matches!(answer, Err(CallError::Refused(_))), "{answer:?}");
    let many: Vec<Request> = vec![Request::Report; 513];
    let body = vec![Bytes::from(encode_body(&many))];
    let answer = to_namenode.call(Header::new(Op::Meta, 0), body, soon()).await;
    assert!(matches!(answer, Err(CallError::Refused(Refusal::TooLarge { .. }))), "{answer:?}");
}
