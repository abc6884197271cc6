//! Pieces that the node copies before it has their block: written, changed, given up, abandoned.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::io::IoSlice;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::harness::{Caller, Served, bytes, until, until_answer, write_header};
use sanderling_datanode::{DatanodeOptions, DatanodeServer, LocalOptions};
use sanderling_protocol::frame::{HEADER_BYTES, decode_body, encode_body};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::local::{LocalEndpoint, PACKET_BYTES_MAX};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{BlockId, Epoch, Header, Op, Order, Refusal, version};
use sanderling_transport::local::{PacketSocket, SharedMemory};

/// Whole blocks that the arena of the harness holds.
const ARENA_BLOCKS: u64 = 8;

/// How long an answer may take on a machine that does other things.
const SOON: Duration = Duration::from_secs(20);

/// A client of the same machine, step by step.
struct Writer {
    socket: PacketSocket,
    memory: SharedMemory,
}

/// Connects a client of the same machine that names its version in `flags`, and greets.
async fn greeted(server: &DatanodeServer, caller: &Caller, flags: u16) -> PacketSocket {
    let endpoint = caller.call(Header::new(Op::LocalEndpoint, 0), &[]).await.unwrap();
    let endpoint: Option<LocalEndpoint> = decode_body(&endpoint.body).unwrap();
    let socket = PacketSocket::connect(Path::new(&endpoint.unwrap().socket)).unwrap();
    let hello = Hello { role: Role::Client, cluster: None, node: Some(server.node()), token: None };
    let mut header = Header::new(Op::Hello, 0);
    header.flags = flags;
    call(&socket, header, &encode_body(&hello)).unwrap();
    socket
}

impl Writer {
    async fn new(server: &DatanodeServer, caller: &Caller) -> Self {
        let socket = greeted(server, caller, 0).await;
        let file = call(&socket, Header::new(Op::Stage, 0), &[]).unwrap();
        let memory = SharedMemory::writable(file.unwrap(), u64::from(BLOCK_BYTES_MAX)).unwrap();
        Self { socket, memory }
    }

    /// Puts bytes into the memory, and reports after each of the ends that they are there.
    fn fill(&self, number: u64, bytes: &[u8], ends: &[usize]) {
        self.memory.put(0, bytes);
        for end in ends {
            let mut header = Header::new(Op::Fill, number);
            (header.length, header.offset) = (bytes.len() as u32, *end as u64);
            self.socket.send(&[IoSlice::new(&header.encode())], None).unwrap();
        }
    }

    fn write(&self, number: u64, block: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let mut header = write_header(Op::Write, block, 1, 0, bytes);
        header.request = number;
        header.body_bytes = 0;
        call(&self.socket, header, &[]).map(drop)
    }

    /// Returns when the node has done everything that it was sent.
    fn settle(&self) {
        let refused = call(&self.socket, Header::new(Op::Stage, 0), &[]);
        assert!(matches!(refused, Err(Refusal::BadRequest { .. })), "there is memory already");
    }
}

/// Sends a request and waits for the answer; returns the descriptor that it brought.
fn call(
    socket: &PacketSocket,
    mut header: Header,
    body: &[u8],
) -> Result<Option<std::os::fd::OwnedFd>, Refusal> {
    header.body_bytes = body.len() as u32;
    socket.send(&[IoSlice::new(&header.encode()), IoSlice::new(body)], None).unwrap();
    assert!(socket.wait(SOON).unwrap(), "no answer");
    let mut packet = vec![0; PACKET_BYTES_MAX];
    let (bytes, file) = socket.receive_now(&mut packet).unwrap().unwrap();
    assert!(bytes >= HEADER_BYTES, "the node closed the connection");
    let answer = Header::decode(packet.first_chunk().unwrap()).unwrap();
    assert_eq!((answer.op, answer.request), (header.op, header.request));
    if answer.status == 0 {
        Ok(file)
    } else {
        Err(decode_body(&packet[HEADER_BYTES..bytes]).unwrap())
    }
}

async fn read(caller: &Caller, block: u64, bytes: usize) -> Vec<u8> {
    caller.read(block, 1, 0, bytes as u32).await.unwrap().to_vec()
}

async fn forget(caller: &Caller, blocks: impl Iterator<Item = u64>) {
    let blocks = blocks.map(|block| (BlockId(block), Epoch(1))).collect();
    caller.order(Order::Drop { blocks }).await;
}

/// Blocks that no test uses: one that was forgotten may not come back.
static NEXT: AtomicU64 = AtomicU64::new(1_000_000);

/// Waits until the whole arena can be written: nothing holds room in it.
async fn until_empty(caller: &Caller) {
    let all = bytes(BLOCK_BYTES_MAX as usize, 7);
    let all = &all;
    until_answer("room for whole blocks", || async move {
        let first = NEXT.fetch_add(ARENA_BLOCKS, Ordering::Relaxed);
        let mut is_empty = true;
        for block in first..first + ARENA_BLOCKS {
            is_empty &= caller.write(block, 0, all).await.is_ok();
        }
        forget(caller, first..first + ARENA_BLOCKS).await;
        is_empty
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn piece_is_written_whole_however_much_of_it_was_copied_before() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let writer = Writer::new(&server, &caller).await;
    let whole = BLOCK_BYTES_MAX as usize;
    let cases: [(usize, &[usize]); 6] = [
        (whole, &[300_000, 600_001, whole]),
        (whole, &[whole]),
        (700_001, &[5]),
        (700_001, &[]),
        (1, &[1]),
        (100_000, &[100_000, 50_000, 2_000_000]),
    ];
    for (block, (length, ends)) in (1..).zip(cases) {
        let all = bytes(length, block as u8);
        writer.fill(block, &all, ends);
        assert_eq!(writer.write(block, block, &all), Ok(()), "{ends:?}");
        writer.memory.put(0, &vec![0xee; length]);
        assert_eq!(read(&caller, block, length).await, all, "{ends:?}");
        forget(&caller, block..=block).await;
    }
    until_empty(&caller).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_changed_behind_the_copy_are_refused_and_leave_nothing() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let writer = Writer::new(&server, &caller).await;
    let (sent, changed) = (bytes(500_000, 1), bytes(500_000, 2));
    writer.fill(1, &sent, &[sent.len()]);
    writer.settle();
    writer.memory.put(0, &changed);
    let refused = writer.write(1, 1, &changed);
    assert!(matches!(refused, Err(Refusal::ChecksumMismatch { .. })), "{refused:?}");
    assert_eq!(caller.held().await.len(), 0);
    // The same memory under another number is another piece.
    assert_eq!(writer.write(2, 1, &changed), Ok(()));
    assert_eq!(read(&caller, 1, changed.len()).await, changed);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn piece_of_another_number_or_length_is_not_taken_for_this_one() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let writer = Writer::new(&server, &caller).await;
    let (first, second) = (bytes(500_000, 1), bytes(500_000, 2));
    writer.fill(1, &first, &[first.len()]);
    writer.settle();
    writer.memory.put(0, &second);
    assert_eq!(writer.write(2, 1, &second), Ok(()));
    writer.fill(3, &first, &[first.len()]);
    assert_eq!(writer.write(3, 2, &first[..400_000]), Ok(()));
    assert_eq!(read(&caller, 1, second.len()).await, second);
    assert_eq!(read(&caller, 2, 400_000).await, first[..400_000]);
    // Nor is what is added to a block, or sent again.
    writer.fill(4, &second[..100_000], &[100_000]);
    let mut header = write_header(Op::Write, 2, 1, 400_000, &second[..100_000]);
    (header.request, header.body_bytes) = (4, 0);
    call(&writer.socket, header, &[]).unwrap();
    writer.fill(5, &second, &[second.len()]);
    assert_eq!(writer.write(5, 1, &second), Ok(()), "the same bytes again");
    let grown = [&first[..400_000], &second[..100_000]].concat();
    assert_eq!(read(&caller, 2, 500_000).await, grown);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_goes_at_any_step_leaves_no_room_taken() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let all = bytes(BLOCK_BYTES_MAX as usize, 3);
    let half = all.len() / 2;
    for ends in [&[][..], &[5], &[half], &[half, all.len()]] {
        let writers = [Writer::new(&server, &caller).await, Writer::new(&server, &caller).await];
        for writer in &writers {
            writer.fill(1, &all, ends);
            writer.settle();
        }
        drop(writers);
        until_empty(&caller).await;
        assert_eq!(caller.held().await.len(), 0, "after {ends:?}");
    }
    // One that gives up and stays.
    let writer = Writer::new(&server, &caller).await;
    writer.fill(1, &all, &[half]);
    writer.fill(0, &[], &[0]);
    writer.settle();
    until_empty(&caller).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_arena_refuses_the_write_and_takes_it_when_there_is_room() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let all = bytes(BLOCK_BYTES_MAX as usize, 3);
    for block in 1..=ARENA_BLOCKS {
        assert_eq!(caller.write(block, 0, &all).await, Ok(BLOCK_BYTES_MAX));
    }
    let writer = Writer::new(&server, &caller).await;
    writer.fill(1, &all, &[300_000, all.len()]);
    let refused = writer.write(1, 100, &all);
    assert!(matches!(refused, Err(Refusal::NodeFull { .. })), "{refused:?}");
    writer.fill(2, &all, &[all.len()]);
    forget(&caller, 1..=1).await;
    assert_eq!(writer.write(2, 100, &all), Ok(()));
    assert_eq!(read(&caller, 100, all.len()).await, all);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_do_not_meet_and_a_fence_between_takes_the_room_back() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let writers = [Writer::new(&server, &caller).await, Writer::new(&server, &caller).await];
    let pieces = [bytes(600_000, 1), bytes(600_000, 2)];
    for end in [200_000, 400_000, 600_000] {
        for (writer, piece) in writers.iter().zip(&pieces) {
            writer.fill(1, piece, &[end]);
        }
    }
    for (block, (writer, piece)) in (1..).zip(writers.iter().zip(&pieces)) {
        assert_eq!(writer.write(1, block, piece), Ok(()));
        assert_eq!(&read(&caller, block, piece.len()).await, piece);
    }
    writers[0].fill(2, &pieces[1], &[400_000]);
    caller.order(Order::FenceBlocks { blocks: vec![(BlockId(3), Epoch(2))] }).await;
    let refused = writers[0].write(2, 3, &pieces[1]);
    assert!(refused.is_err(), "the block was fenced between the copy and the write");
    forget(&caller, 1..=2).await;
    until_empty(&caller).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_without_staging_memory_gets_a_refusal_that_its_version_has() {
    let served = Served::start().await;
    let one = LocalOptions { staging_bytes_max: BLOCK_BYTES_MAX.into(), ..LocalOptions::default() };
    let options = DatanodeOptions { local: Some(one), ..served.options() };
    let server = DatanodeServer::start(options).await.unwrap();
    let caller = Caller::new(&server);
    let stage = |socket: &PacketSocket| call(socket, Header::new(Op::Stage, 0), &[]).map(drop);
    let first = greeted(&server, &caller, version::local_flags()).await;
    let second = greeted(&server, &caller, version::local_flags()).await;
    let older = greeted(&server, &caller, 0).await;
    assert_eq!(stage(&first), Ok(()));
    assert!(matches!(stage(&second), Err(Refusal::RetryAfter { .. })), "it is used up");
    assert!(matches!(stage(&older), Err(Refusal::BadRequest { .. })), "as the older client needs");
    assert!(matches!(stage(&first), Err(Refusal::BadRequest { .. })), "it has it already");
    drop(first);
    until("the memory of a client that is gone", || stage(&second).is_ok()).await;
    server.stop().await;
}
