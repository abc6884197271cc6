//! Bodies that are received straight into the arena: kept, refused, repeated, abandoned.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::time::Duration;

use crate::harness::{Caller, Served, bytes, until_answer, write_header};
use sanderling_protocol::frame::{HEADER_BYTES, encode_body};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{BlockId, Header, Op, Refusal, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Whole blocks that the arena of the harness holds.
const ARENA_BLOCKS: u64 = 8;

#[tokio::test]
async fn whole_blocks_are_kept_repeated_and_grown() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let all = bytes(BLOCK_BYTES_MAX as usize, 3);
    let (begin, end) = all.split_at(500_001);
    assert_eq!(caller.write(1, 0, &all).await, Ok(BLOCK_BYTES_MAX));
    assert_eq!(caller.read(1, 1, 0, BLOCK_BYTES_MAX).await.unwrap(), all);
    assert_eq!(caller.write(1, 0, &all).await, Ok(BLOCK_BYTES_MAX), "sent twice");
    assert_eq!(caller.write(2, 0, begin).await, Ok(500_001));
    assert_eq!(caller.write(2, 500_001, end).await, Ok(BLOCK_BYTES_MAX));
    assert_eq!(caller.read(2, 1, 0, BLOCK_BYTES_MAX).await.unwrap(), all);
    let other = bytes(100_000, 9);
    let refused = caller.write(1, 0, &other).await;
    assert!(matches!(refused, Err(Refusal::NotAtEnd { .. })), "{refused:?}");
    let store = write_header(Op::Store, 3, 1, 0, &all);
    caller.write_with(store, &all).await.unwrap();
    assert_eq!(caller.read(3, 1, 0, BLOCK_BYTES_MAX).await.unwrap(), all);
    server.stop().await;
}

#[tokio::test]
async fn damaged_body_leaves_nothing_behind() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let all = bytes(300_000, 3);
    for op in [Op::Write, Op::Store] {
        let mut header = write_header(op, 1, 1, 0, &all);
        header.checksum ^= 1;
        let refused = caller.write_with(header, &all).await;
        assert!(matches!(refused, Err(Refusal::ChecksumMismatch { .. })), "{refused:?}");
    }
    assert_eq!(caller.held().await.len(), 0);
    // All of the arena is free.
    for block in 1..=ARENA_BLOCKS {
        let all = bytes(BLOCK_BYTES_MAX as usize, block as u8);
        assert_eq!(caller.write(block, 0, &all).await, Ok(BLOCK_BYTES_MAX));
    }
    let refused = caller.write(ARENA_BLOCKS + 1, 0, &all).await;
    assert!(matches!(refused, Err(Refusal::NodeFull { .. })), "{refused:?}");
    server.stop().await;
}

/// Reads an answer; returns its status.
async fn answered(stream: &mut TcpStream) -> u16 {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).await.unwrap();
    let header = Header::decode(&head).unwrap();
    stream.read_exact(&mut vec![0; header.body_bytes as usize]).await.unwrap();
    header.status
}

/// Begins a write of a whole block over a connection of its own.
async fn half_a_write(address: std::net::SocketAddr, block: u64) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let greeting =
        encode_body(&Hello { role: Role::Client, cluster: None, node: None, token: None });
    let mut hello = Header { flags: version::greeting_flags(), ..Header::new(Op::Hello, 1) };
    hello.body_bytes = greeting.len() as u32;
    stream.write_all(&[&hello.encode()[..], &greeting].concat()).await.unwrap();
    assert_eq!(answered(&mut stream).await, 0);
    let all = bytes(BLOCK_BYTES_MAX as usize, 1);
    let mut header = write_header(Op::Write, block, 1, 0, &all);
    (header.request, header.body_bytes) = (2, BLOCK_BYTES_MAX);
    stream.write_all(&header.encode()).await.unwrap();
    stream.write_all(&all[..1000]).await.unwrap();
    stream
}

#[tokio::test]
async fn writers_that_stop_in_the_middle_of_a_body_leave_room_to_others_and_give_theirs_back() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let mut stopped = Vec::new();
    // Twice as many as have room.
    for block in 1..=2 * ARENA_BLOCKS {
        stopped.push(half_a_write(server.address(), block).await);
    }
    let whole = bytes(BLOCK_BYTES_MAX as usize, 5);
    for block in 101..101 + ARENA_BLOCKS - 1 {
        assert_eq!(caller.write(block, 0, &whole).await, Ok(BLOCK_BYTES_MAX), "one has an eighth");
    }
    drop(stopped);
    let (caller, whole, mut block) = (&caller, &whole, 200);
    until_answer("room again", || {
        block += 1;
        async move { caller.write(block, 0, whole).await.is_ok() }
    })
    .await;
    assert!(caller.held().await.iter().all(|held| held.block > BlockId(100)), "no half blocks");
    server.stop().await;
}

/// Longer than the 2 s that a silent body has which takes scarce room from others, with the second
/// until that is noticed.
const SCARCE_OVER: Duration = Duration::from_secs(4);

/// Its body has half of what bodies may have there, and more.
#[tokio::test]
async fn only_writer_of_a_small_node_is_not_given_up_as_if_others_lacked_room() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let mut stream = half_a_write(server.address(), 1).await;
    let closed = timeout(SCARCE_OVER, stream.read_u8()).await;
    assert!(closed.is_err(), "it was given up: {closed:?}");
    let all = bytes(BLOCK_BYTES_MAX as usize, 1);
    stream.write_all(&all[1000..]).await.unwrap();
    assert_eq!(answered(&mut stream).await, 0);
    assert_eq!(Caller::new(&server).read(1, 1, 0, BLOCK_BYTES_MAX).await.unwrap(), all);
    server.stop().await;
}
