//! The object tier over real sockets.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::harness::{CLUSTER, Caller, Served, bytes, refusal, until, until_answer, write_header};
use sanderling_datanode::{DatanodeOptions, DatanodeServer, DiskOptions, ObjectOptions};
use sanderling_protocol::frame::{HEADER_BYTES, RangeReply, RangeRequest, encode_body};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::order::PushMove;
use sanderling_protocol::{BlockId, Epoch, Header, Op, Order, OrderReply, Refusal, Tier, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn datanode(served: &Served, directory: &Path) -> DatanodeServer {
    with_store(served, directory, 8 << 20).await
}

async fn with_store(served: &Served, directory: &Path, bytes: u64) -> DatanodeServer {
    with_search(served, directory, bytes, Duration::from_millis(50)).await
}

async fn with_search(
    served: &Served,
    directory: &Path,
    bytes: u64,
    sweep_every: Duration,
) -> DatanodeServer {
    DatanodeServer::start(options(served, directory, bytes, sweep_every)).await.unwrap()
}

fn options(
    served: &Served,
    directory: &Path,
    bytes: u64,
    sweep_every: Duration,
) -> DatanodeOptions {
    let url = format!("file://{}", directory.display());
    let mut options = served.options();
    options.object = Some(ObjectOptions {
        url,
        bytes,
        // The shortest that a busy machine does not reach by itself.
        time_max: Duration::from_secs(8),
        sweep_every,
        sweep_age_min: Duration::ZERO,
        ..ObjectOptions::default()
    });
    options
}

async fn store(caller: &Caller, block: u64, epoch: u32, bytes: &[u8]) -> Result<u32, Refusal> {
    let mut header = write_header(Op::Store, block, epoch, 0, bytes);
    header.flags = Tier::Object as u16;
    caller.write_with(header, bytes).await
}

fn object(directory: &Path, block: u64, epoch: u32) -> PathBuf {
    directory.join(CLUSTER.to_string()).join(format!("{block:016x}-{epoch}"))
}

/// What the fake namenode reports of it.
fn unwanted(served: &Served, block: u64) {
    served.namenode.state.lock().unwanted.insert(BlockId(block));
}

#[tokio::test]
async fn block_is_there_when_it_is_acknowledged_and_is_read_in_ranges() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, directory.path()).await;
    let caller = Caller::new(&server);
    let all = bytes(100_000, 9);
    assert_eq!(store(&caller, 1, 4, &all).await, Ok(100_000));
    assert!(object(directory.path(), 1, 4).exists());
    assert_eq!(store(&caller, 1, 4, &all).await, Ok(100_000), "a push that is repeated");
    let other = store(&caller, 1, 4, &bytes(100_000, 8)).await;
    assert!(matches!(other, Err(Refusal::ChecksumMismatch { .. })), "{other:?}");
    assert_eq!(caller.read(1, 4, 0, 100_000).await.unwrap(), all);
    assert_eq!(caller.read(1, 4, 24_999, 2).await.unwrap(), all[24_999..25_001]);
    assert_eq!(caller.read(1, 4, 7, 0).await.unwrap(), Vec::<u8>::new());
    let past = caller.read(1, 4, 99_999, 2).await;
    assert!(matches!(past, Err(Refusal::OutOfRange { .. })), "{past:?}");
    assert_eq!(caller.held().await[0].tier, Tier::Object);
    let mut damaged = write_header(Op::Store, 2, 1, 0, b"bytes");
    (damaged.flags, damaged.checksum) = (Tier::Object as u16, 1);
    let refused = caller.write_with(damaged, b"bytes").await;
    assert!(matches!(refused, Err(Refusal::ChecksumMismatch { .. })), "{refused:?}");
    assert!(!object(directory.path(), 2, 1).exists());
    server.stop().await;
}

#[tokio::test]
async fn writers_do_not_append_to_the_object_tier() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, directory.path()).await;
    let caller = Caller::new(&server);
    let mut header = write_header(Op::Write, 1, 1, 0, b"bytes");
    header.flags = Tier::Object as u16;
    let refused = caller.write_with(header, b"bytes").await;
    assert!(matches!(refused, Err(Refusal::BadRequest { .. })), "{refused:?}");
    store(&caller, 2, 3, b"bytes").await.unwrap();
    let refused = caller.write_with(write_header(Op::Write, 2, 3, 5, b"more"), b"more").await;
    assert!(matches!(refused, Err(Refusal::Moved { .. })), "{refused:?}");
    server.stop().await;
}

#[tokio::test]
async fn another_node_serves_a_block_that_was_never_reported_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let first = datanode(&served, directory.path()).await;
    let all = bytes(50_000, 3);
    store(&Caller::new(&first), 1, 2, &all).await.unwrap();
    first.stop().await;
    let second = datanode(&served, directory.path()).await;
    let caller = Caller::new(&second);
    let absent = caller.read(2, 2, 0, 10).await;
    assert_eq!(absent, Err(Refusal::UnknownBlock { block: BlockId(2) }));
    let later = caller.read(1, 3, 0, 10).await;
    assert_eq!(later, Err(Refusal::UnknownBlock { block: BlockId(1) }), "never put at this epoch");
    let ranges = [(1, 10, 20), (2, 0, 5), (1, 49_990, 10)].map(|(block, offset, length)| {
        let (block, epoch) = (BlockId(block), Epoch(2));
        RangeRequest { block, epoch, offset, length }
    });
    let mut body = Vec::new();
    ranges.iter().for_each(|range| range.encode(&mut body));
    let mut header = Header::new(Op::ReadMany, 0);
    header.length = body.len() as u32;
    let frame = refusal(caller.call(header, &body).await).unwrap();
    let heads = RangeReply::decode_all(&frame.body, 3).unwrap();
    let unknown = Refusal::UnknownBlock { block: BlockId(2) }.code();
    assert_eq!(heads.iter().map(|head| head.status).collect::<Vec<_>>(), [0, unknown, 0]);
    let bodies = &frame.body[3 * RangeReply::BYTES..];
    assert_eq!(bodies[..20], all[10..30]);
    assert_eq!(bodies[bodies.len() - 10..], all[49_990..]);
    assert_eq!(caller.held().await.len(), 1);
    second.stop().await;
}

#[tokio::test]
async fn orders_to_adopt_fence_and_push_find_what_another_node_put_there() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let first = datanode(&served, directory.path()).await;
    let all = bytes(5000, 3);
    for block in 1..=3 {
        store(&Caller::new(&first), block, 2, &all).await.unwrap();
    }
    first.stop().await;
    let second = datanode(&served, directory.path()).await;
    let caller = Caller::new(&second);
    // The length that the namenode has may be shorter than what is there.
    let blocks = vec![(BlockId(1), Epoch(2), 4000), (BlockId(9), Epoch(2), 1)];
    assert_eq!(caller.order(Order::Adopt { blocks }).await, OrderReply::Done);
    let held = caller.held().await;
    assert_eq!((held.len(), held[0].length), (1, 5000));
    let blocks = vec![(BlockId(2), Epoch(2)), (BlockId(8), Epoch(2))];
    let fenced = caller.order(Order::FenceBlocks { blocks }).await;
    assert_eq!(fenced, OrderReply::Fenced(vec![5000, 0]), "a length that was acknowledged");
    let third = served.datanode().await;
    let moves = vec![PushMove {
        block: BlockId(3),
        from_epoch: Epoch(2),
        to_epoch: Epoch(5),
        to: third.node(),
        address: third.address().to_string(),
        tier: Tier::Dram,
        bytes_max: u32::MAX,
    }];
    let pushed = caller.order(Order::Push { moves }).await;
    assert!(matches!(&pushed, OrderReply::Pushed(all) if all[0].is_ok()), "{pushed:?}");
    assert_eq!(Caller::new(&third).read(3, 5, 0, 5000).await.unwrap(), all);
    third.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn object_goes_only_when_the_namenode_reports_that_it_is_not_needed() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    // The order names what to request: no search finds it in this time.
    let hour = Duration::from_secs(3600);
    let server = with_search(&served, directory.path(), 8 << 20, hour).await;
    let caller = Caller::new(&server);
    for block in [1, 2] {
        store(&caller, block, 2, &bytes(5000, 3)).await.unwrap();
    }
    let asked = || {
        let state = served.namenode.state.lock();
        state.reported.iter().filter(|held| held.length == 0).map(|held| held.block).collect()
    };
    let blocks = vec![(BlockId(1), Epoch(2)), (BlockId(2), Epoch(2))];
    unwanted(&served, 2);
    caller.order(Order::Drop { blocks }).await;
    let gone = || async { !object(directory.path(), 2, 2).exists() };
    until_answer("the unwanted object to go", gone).await;
    until_answer("the request to the namenode", || async {
        let asked: Vec<BlockId> = asked();
        asked.contains(&BlockId(1))
    })
    .await;
    assert!(caller.held().await.is_empty());
    assert!(object(directory.path(), 1, 2).exists(), "another node serves it");
    assert_eq!(caller.read(1, 2, 0, 5000).await.unwrap(), bytes(5000, 3));
    server.stop().await;
}

#[tokio::test]
async fn search_finds_what_dead_nodes_left_and_touches_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let first = datanode(&served, directory.path()).await;
    for block in [1, 2] {
        store(&Caller::new(&first), block, 2, &bytes(5000, 3)).await.unwrap();
    }
    first.stop().await;
    let foreign = directory.path().join(CLUSTER.to_string()).join("thesis");
    std::fs::write(&foreign, b"years of work").unwrap();
    let elsewhere = directory.path().join("00000000000000c2");
    std::fs::create_dir(&elsewhere).unwrap();
    let elsewhere = elsewhere.join("0000000000000002-2");
    std::fs::write(&elsewhere, b"another cluster's").unwrap();
    unwanted(&served, 2);
    let second = datanode(&served, directory.path()).await;
    let gone = || async { !object(directory.path(), 2, 2).exists() };
    until_answer("the search to find it", gone).await;
    assert!(object(directory.path(), 1, 2).exists());
    assert!(foreign.exists() && elsewhere.exists());
    second.stop().await;
}

#[tokio::test]
async fn store_that_fails_or_is_full_refuses_and_the_node_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = with_store(&served, directory.path(), 16 << 10).await;
    let caller = Caller::new(&server);
    store(&caller, 1, 2, &bytes(5000, 3)).await.unwrap();
    let full = store(&caller, 2, 2, &bytes(9000, 3)).await;
    assert!(matches!(full, Err(Refusal::NodeFull { .. })), "{full:?}");
    // Root may write everywhere, but not into a file as if it were a directory.
    let ours = directory.path().join(CLUSTER.to_string());
    std::fs::rename(&ours, directory.path().join("aside")).unwrap();
    std::fs::write(&ours, b"in the way").unwrap();
    let failed = store(&caller, 2, 2, &bytes(5000, 3)).await;
    assert!(matches!(failed, Err(Refusal::TierFailed { .. })), "{failed:?}");
    let failed = caller.read(1, 2, 0, 5000).await;
    assert!(matches!(failed, Err(Refusal::TierFailed { .. })), "{failed:?}");
    caller.write(7, 0, b"in memory").await.unwrap();
    assert_eq!(caller.read(7, 1, 0, 9).await.unwrap(), b"in memory"[..]);
    std::fs::remove_file(&ours).unwrap();
    std::fs::rename(directory.path().join("aside"), &ours).unwrap();
    store(&caller, 2, 2, &bytes(5000, 3)).await.unwrap();
    assert_eq!(caller.read(1, 2, 0, 5000).await.unwrap(), bytes(5000, 3));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn store_that_hangs_is_given_up_and_delays_no_caller() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let first = datanode(&served, directory.path()).await;
    store(&Caller::new(&first), 1, 2, &bytes(5000, 3)).await.unwrap();
    first.stop().await;
    let second = datanode(&served, directory.path()).await;
    let caller = Caller::new(&second);
    // Opening a pipe to read waits for a writer.
    let pipe = object(directory.path(), 1, 2);
    std::fs::remove_file(&pipe).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let reading = {
        let caller = caller.clone();
        tokio::spawn(async move { caller.read(1, 2, 0, 100).await })
    };
    caller.write(7, 0, b"in memory").await.unwrap();
    assert_eq!(caller.read(7, 1, 0, 9).await.unwrap(), b"in memory"[..]);
    assert!(!reading.is_finished(), "served before the store answered");
    let given_up = reading.await.unwrap();
    assert!(matches!(given_up, Err(Refusal::TierFailed { .. })), "{given_up:?}");
    drop(std::fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    second.stop().await;
}

/// Returns a connection on which no answer is read.
async fn greeted(server: &DatanodeServer) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let greeting =
        encode_body(&Hello { role: Role::Client, cluster: None, node: None, token: None });
    let mut hello = Header { flags: version::greeting_flags(), ..Header::new(Op::Hello, 1) };
    hello.body_bytes = greeting.len() as u32;
    stream.write_all(&[&hello.encode()[..], &greeting].concat()).await.unwrap();
    stream.read_exact(&mut [0; HEADER_BYTES]).await.unwrap();
    stream
}

/// Sends a read of ranges over a connection of its own, and does not read its answer.
async fn unread(server: &DatanodeServer, ranges: &[RangeRequest]) -> TcpStream {
    let mut stream = greeted(server).await;
    request_ranges(&mut stream, ranges).await;
    stream
}

async fn request_ranges(stream: &mut TcpStream, ranges: &[RangeRequest]) {
    let mut body = Vec::new();
    ranges.iter().for_each(|range| range.encode(&mut body));
    let mut header = Header::new(Op::ReadMany, 2);
    header.body_bytes = body.len() as u32;
    stream.write_all(&[&header.encode()[..], &body].concat()).await.unwrap();
}

/// Answers of 16 MiB, of which the kernel takes a part, are half of what may be read and not sent.
#[tokio::test]
async fn ranges_on_disk_beside_objects_take_part_in_the_bound_of_reads_from_the_disk() {
    let (disk, objects) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let served = Served::start().await;
    let mut options = options(&served, objects.path(), 8 << 20, Duration::from_millis(50));
    options.disk = Some(DiskOptions { directory: disk.path().to_owned(), bytes: 4 << 20 });
    let server = DatanodeServer::start(options).await.unwrap();
    let caller = Caller::new(&server);
    store(&caller, 1, 1, b"in a store").await.unwrap();
    let all = bytes(BLOCK_BYTES_MAX as usize, 4);
    let mut on_disk = write_header(Op::Store, 2, 1, 0, &all);
    on_disk.flags = Tier::Disk as u16;
    caller.write_with(on_disk, &all).await.unwrap();
    let range = |block, length| {
        let (block, epoch) = (BlockId(block), Epoch(1));
        RangeRequest { block, epoch, offset: 0, length }
    };
    let mut ranges = vec![range(2, BLOCK_BYTES_MAX); 16];
    ranges.push(range(1, 1));
    let mut slow = [unread(&server, &ranges).await, unread(&server, &ranges).await];
    let began = Instant::now();
    // The other one waits for the room of one of them, which is given up long before the half
    // minute for which a peer may take nothing otherwise.
    let [first, second] = &mut slow;
    while first.write_all(&[0]).await.is_ok() && second.write_all(&[0]).await.is_ok() {
        assert!(began.elapsed() < Duration::from_secs(20), "both keep their room");
        // Short ones do not wait meanwhile.
        assert_eq!(caller.read(2, 1, 0, 1).await.unwrap(), all[..1]);
        assert_eq!(caller.read(1, 1, 0, 10).await.unwrap(), "in a store", "an object needs none");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(slow);
    server.stop().await;
}

/// Objects that hang: opening a pipe to read waits for a process that writes.
struct Pipes(Vec<PathBuf>);

impl Pipes {
    fn at(places: Vec<PathBuf>) -> Self {
        let made = std::process::Command::new("mkfifo").args(&places).status().unwrap();
        assert!(made.success());
        Self(places)
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        // Those that are being opened end, and later ones find nothing.
        for pipe in &self.0 {
            let opened = std::fs::OpenOptions::new().read(true).write(true).open(pipe);
            let _ = std::fs::remove_file(pipe);
            drop(opened);
        }
    }
}

/// Waits until a node serves so many requests.
async fn in_flight(served: &Served, server: &DatanodeServer, requests: u64) {
    until("all of them are under way", || {
        let state = served.namenode.state.lock();
        let load = state.heartbeats.get(&server.node()).map(|(_, load)| *load);
        load.is_some_and(|load| u64::from(load.requests_in_flight) >= requests)
    })
    .await;
}

/// The tier has 64 operations under way at most.
#[tokio::test(flavor = "multi_thread")]
async fn reads_of_objects_that_hang_leave_operations_to_other_connections() {
    const HANGING: u64 = 80;
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let sweep_every = Duration::from_secs(3600);
    let server = with_search(&served, directory.path(), 8 << 20, sweep_every).await;
    let (greedy, other) = (Caller::new(&server), Caller::new(&server));
    store(&other, 1, 2, &bytes(5000, 3)).await.unwrap();
    let pipes = (100..100 + HANGING).map(|block| object(directory.path(), block, 1));
    let _pipes = Pipes::at(pipes.collect());
    let hanging: Vec<_> = (100..100 + HANGING)
        .map(|block| {
            let greedy = greedy.clone();
            tokio::spawn(async move { greedy.read(block, 1, 0, 1).await })
        })
        .collect();
    in_flight(&served, &server, HANGING).await;
    assert_eq!(other.read(1, 2, 0, 5000).await.unwrap(), bytes(5000, 3));
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
    drop(greedy);
    server.stop().await;
}

/// Their connections take all places, and then no answer, so that nothing polls what they wait for.
#[tokio::test(flavor = "multi_thread")]
async fn reads_that_have_ended_keep_no_place_while_their_peers_take_no_answers() {
    const READS: [u64; 5] = [32, 8, 8, 8, 8];
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let sweep_every = Duration::from_secs(3600);
    let server = with_search(&served, directory.path(), 8 << 20, sweep_every).await;
    let other = Caller::new(&server);
    store(&other, 1, 2, &bytes(5000, 3)).await.unwrap();
    other.write(7, 0, &bytes(BLOCK_BYTES_MAX as usize, 4)).await.unwrap();
    let all = READS.iter().sum::<u64>();
    let pipes = (100..100 + all).map(|block| object(directory.path(), block, 1));
    let pipes = Pipes::at(pipes.collect());
    let (mut streams, mut begun) = (Vec::new(), 0);
    for reads in READS {
        let mut stream = greeted(&server).await;
        for block in 100 + begun..100 + begun + reads {
            let mut header = Header::new(Op::Read, block);
            (header.block, header.epoch, header.length) = (BlockId(block), Epoch(1), 1);
            stream.write_all(&header.encode()).await.unwrap();
        }
        begun += reads;
        in_flight(&served, &server, begun).await;
        streams.push(stream);
    }
    let whole =
        RangeRequest { block: BlockId(7), epoch: Epoch(1), offset: 0, length: BLOCK_BYTES_MAX };
    // More than the kernel takes.
    for stream in &mut streams {
        request_ranges(stream, &[whole; 15]).await;
        // The rest of the greeting, and the beginning of the answer.
        stream.read_exact(&mut vec![0; 64 << 10]).await.unwrap();
    }
    drop(pipes);
    assert_eq!(other.read(1, 2, 0, 5000).await.unwrap(), bytes(5000, 3));
    drop(streams);
    server.stop().await;
}
