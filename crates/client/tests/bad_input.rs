//! Bytes that no client of ours would send, thrown at real servers: they refuse, and go on serving.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use crate::cluster::{Cluster, MIB, path, pattern};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sanderling_client::PutOptions;
use sanderling_protocol::frame::{HEADER_BYTES, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{BlockId, ClusterId, Epoch, Header, NodeId, Op, Order, Refusal, Request};
use sanderling_transport::{CallError, Connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

fn hello() -> Vec<u8> {
    let body = encode_body(&Hello { role: Role::Client, cluster: None, node: None, token: None });
    let mut header = Header::new(Op::Hello, 1);
    header.body_bytes = body.len() as u32;
    [header.encode().to_vec(), body].concat()
}

/// A frame whose header is right and whose body is noise, or a right one with flipped bytes.
fn odd_frame(noise: &mut StdRng) -> Vec<u8> {
    let ops = [Op::Hello, Op::Meta, Op::Order, Op::Read, Op::ReadMany, Op::Write, Op::Store];
    let op = ops[noise.random_range(0..ops.len())];
    let body = match noise.random_range(0..4) {
        0 => encode_body(&vec![Request::Report, Request::Nodes { all: true }]),
        1 => encode_body(&Order::ListBlocks { after: BlockId(0), limit: u32::MAX }),
        2 => Vec::new(),
        _ => (0..noise.random_range(0..5000)).map(|_| noise.random()).collect(),
    };
    let mut header = Header::new(op, noise.random());
    header.flags = noise.random();
    header.block = BlockId(noise.random_range(0..10));
    header.epoch = Epoch(noise.random_range(0..3));
    header.length = [0, 1, body.len() as u32, u32::MAX][noise.random_range(0..4)];
    header.offset = [0, 1, u64::MAX][noise.random_range(0..3)];
    header.checksum = noise.random();
    header.body_bytes = body.len() as u32;
    let mut frame = [header.encode().to_vec(), body].concat();
    for _ in 0..noise.random_range(0..3) {
        let at = noise.random_range(0..frame.len().min(HEADER_BYTES + 20));
        frame[at] ^= noise.random::<u8>();
    }
    frame
}

async fn throw(address: &str, noise: &mut StdRng) {
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
async fn noise_is_refused_and_disturbs_no_other_caller() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let data = pattern(3 * MIB, 1);
    client.put(&path("/file"), data.clone(), &PutOptions::default()).await.unwrap();
    let addresses: Vec<String> = std::iter::once(cluster.namenode.address().to_string())
        .chain(cluster.datanodes.iter().flatten().map(|node| node.address().to_string()))
        .collect();
    for seed in 1..=300u64 {
        let mut noise = StdRng::seed_from_u64(seed);
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
