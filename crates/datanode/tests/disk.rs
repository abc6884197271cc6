//! The disk tier over real sockets.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::path::Path;

use crate::harness::{Caller, Served, bytes, refusal, until, until_answer, write_header};
use sanderling_datanode::{DatanodeOptions, DatanodeServer, DiskOptions};
use sanderling_protocol::frame::{IS_COMPLAINT, RangeReply, RangeRequest};
use sanderling_protocol::order::PushMove;
use sanderling_protocol::{BlockId, Epoch, Header, Op, Order, OrderReply, Refusal, Tier};

async fn datanode(served: &Served, directory: &Path, bytes: u64) -> DatanodeServer {
    let mut options = served.options();
    options.disk = Some(DiskOptions { directory: directory.to_owned(), bytes });
    DatanodeServer::start(options).await.unwrap()
}

fn on_disk(op: Op, block: u64, offset: u64, bytes: &[u8]) -> Header {
    let mut header = write_header(op, block, 1, offset, bytes);
    header.flags = Tier::Disk as u16;
    header
}

fn block_files(directory: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|it| it == "block")).collect()
}

fn block_file(directory: &Path, block: u64) -> std::path::PathBuf {
    let begins = format!("{block:016x}-");
    let is_it = |path: &std::path::PathBuf| {
        path.file_name().unwrap().to_string_lossy().starts_with(&begins)
    };
    block_files(directory).into_iter().find(is_it).unwrap()
}

const fn damaged_block(block: u64) -> Refusal {
    Refusal::BlockDamaged { block: BlockId(block) }
}

#[tokio::test]
async fn blocks_on_disk_are_written_read_repeated_and_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, directory.path(), 1 << 20).await;
    let caller = Caller::new(&server);
    let all = bytes(100_000, 9);
    for (index, piece) in all.chunks(25_000).enumerate() {
        let header = on_disk(Op::Write, 1, index as u64 * 25_000, piece);
        caller.write_with(header, piece).await.unwrap();
    }
    let header = on_disk(Op::Write, 1, 25_000, &all[25_000..50_000]);
    assert_eq!(caller.write_with(header, &all[25_000..50_000]).await, Ok(100_000));
    let differs = caller.write_with(on_disk(Op::Write, 1, 5, b"other"), b"other").await;
    assert!(matches!(differs, Err(Refusal::NotAtEnd { .. })), "{differs:?}");
    assert_eq!(caller.read(1, 1, 0, 100_000).await.unwrap(), all);
    assert_eq!(caller.read(1, 1, 24_999, 2).await.unwrap(), all[24_999..25_001]);
    assert_eq!(caller.held().await[0].tier, Tier::Disk);
    assert_eq!(block_files(directory.path()).len(), 1);
    caller.order(Order::Drop { blocks: vec![(BlockId(1), Epoch(9))] }).await;
    until_answer("the file to go", || async { block_files(directory.path()).is_empty() }).await;
    server.stop().await;
}

#[tokio::test]
async fn pipelined_writes_to_disk_take_their_turns() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, directory.path(), 4 << 20).await;
    let caller = Caller::new(&server);
    let all = bytes(320_000, 9);
    let mut writes = Vec::new();
    for (index, piece) in all.chunks(20_000).enumerate() {
        let header = on_disk(Op::Write, 1, index as u64 * 20_000, piece);
        writes.push(caller.write_with(header, piece));
    }
    let lengths = futures_util::future::join_all(writes).await;
    for (index, length) in lengths.into_iter().enumerate() {
        assert_eq!(length, Ok(20_000 * (index as u32 + 1)));
    }
    assert_eq!(caller.read(1, 1, 0, 320_000).await.unwrap(), all);
    server.stop().await;
}

#[tokio::test]
async fn full_disk_tier_refuses_and_has_its_space_back() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, directory.path(), 1 << 16).await;
    let caller = Caller::new(&server);
    let all = bytes(50_000, 1);
    caller.write_with(on_disk(Op::Write, 1, 0, &all), &all).await.unwrap();
    let refused = caller.write_with(on_disk(Op::Write, 2, 0, &all), &all).await;
    assert!(
        matches!(&refused, Err(Refusal::NodeFull { tier, .. }) if tier == "disk"),
        "{refused:?}"
    );
    caller.order(Order::Drop { blocks: vec![(BlockId(1), Epoch(9))] }).await;
    // The space is free once no reader has the block: the report probes files meanwhile.
    let write = || async { caller.write_with(on_disk(Op::Write, 2, 0, &all), &all).await };
    until_answer("the block's space", || async { write().await == Ok(50_000) }).await;
    server.stop().await;
}

#[tokio::test]
async fn node_without_a_disk_tier_refuses_disk_blocks() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let refused = caller.write_with(on_disk(Op::Write, 1, 0, b"x"), b"x").await;
    assert!(
        matches!(&refused, Err(Refusal::NodeFull { tier, .. }) if tier == "disk"),
        "{refused:?}"
    );
    assert_eq!(caller.held().await, []);
    server.stop().await;
}

#[tokio::test]
async fn damage_on_disk_reaches_neither_reader_nor_target_unnoticed() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let source = datanode(&served, directory.path(), 1 << 20).await;
    let target = served.datanode().await;
    let caller = Caller::new(&source);
    let all = bytes(10_000, 1);
    caller.write_with(on_disk(Op::Write, 1, 0, &all), &all).await.unwrap();
    let file = block_files(directory.path()).remove(0);
    let mut damaged = all.clone();
    damaged[5000] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    let mut header = Header::new(Op::Read, 0);
    (header.block, header.epoch, header.length) = (BlockId(1), Epoch(1), 10_000);
    // What was kept from the write: the reader sees that the bytes are others.
    let frame = caller.call(header, &[]).await.unwrap();
    assert_ne!(frame.header.checksum, sanderling_protocol::checksum::crc32c(&frame.body));
    assert_eq!(caller.read(1, 1, 100, 100).await.unwrap(), all[100..200], "in another run");
    let push = PushMove {
        block: BlockId(1),
        from_epoch: Epoch(1),
        to_epoch: Epoch(2),
        to: target.node(),
        address: target.address().to_string(),
        tier: Tier::Dram,
        bytes_max: u32::MAX,
    };
    let OrderReply::Pushed(pushed) = caller.order(Order::Push { moves: vec![push] }).await else {
        panic!("a push is answered as such");
    };
    assert_eq!(pushed, [Err(Refusal::BlockDamaged { block: BlockId(1) })]);
    let refused = refusal(caller.call(header, &[]).await).map(|frame| frame.body);
    assert_eq!(refused, Err(damaged_block(1)));
    // The others are found by the first reader that touches what was damaged.
    for (block, offset, length) in [(2, 0, 1), (3, 4999, 3), (4, 5001, 100), (5, 9000, 10)] {
        caller.write_with(on_disk(Op::Write, block, 0, &all), &all).await.unwrap();
        let file = block_file(directory.path(), block);
        match block {
            2 => std::fs::remove_file(&file).unwrap(),
            5 => std::fs::write(&file, &all[..9005]).unwrap(),
            _ => std::fs::write(&file, &damaged).unwrap(),
        }
        assert_eq!(caller.read(block, 1, offset, length).await, Err(damaged_block(block)));
        assert_eq!(caller.read(block, 1, 0, 10_000).await, Err(damaged_block(block)));
    }
    // A reader that gets whole runs complains.
    caller.write_with(on_disk(Op::Write, 6, 0, &all), &all).await.unwrap();
    std::fs::write(block_file(directory.path(), 6), &damaged).unwrap();
    (header.block, header.flags) = (BlockId(6), IS_COMPLAINT);
    let refused = refusal(caller.call(header, &[]).await).map(|frame| frame.body);
    assert_eq!(refused, Err(damaged_block(6)));
    let node = source.node();
    let seen = || served.namenode.state.lock().damaged.clone();
    until("all are reported", || seen().len() == 6).await;
    let wanted: Vec<_> = (1..=6).map(|block| (node, BlockId(block), Epoch(1))).collect();
    let mut seen: Vec<_> = seen().iter().map(|(node, it)| (*node, it.block, it.epoch)).collect();
    seen.sort_unstable();
    assert_eq!(seen, wanted);
    source.stop().await;
    target.stop().await;
}

#[tokio::test]
async fn blocks_move_from_memory_to_disk_and_are_read_with_others() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let source = served.datanode().await;
    let target = datanode(&served, directory.path(), 1 << 20).await;
    let (from, to) = (Caller::new(&source), Caller::new(&target));
    let all = bytes(30_000, 4);
    from.write(1, 0, &all).await.unwrap();
    to.write(2, 0, b"in memory").await.unwrap();
    let push = PushMove {
        block: BlockId(1),
        from_epoch: Epoch(1),
        to_epoch: Epoch(2),
        to: target.node(),
        address: target.address().to_string(),
        tier: Tier::Disk,
        bytes_max: u32::MAX,
    };
    from.order(Order::Push { moves: vec![push] }).await;
    let mut body = Vec::new();
    for (block, epoch, length) in [(1, 2, 30_000), (2, 1, 9)] {
        let (block, epoch) = (BlockId(block), Epoch(epoch));
        RangeRequest { block, epoch, offset: 0, length }.encode(&mut body);
    }
    let frame = to.call(Header::new(Op::ReadMany, 0), &body).await.unwrap();
    let heads = RangeReply::decode_all(&frame.body, 2).unwrap();
    assert_eq!(heads.iter().map(|head| head.status).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(frame.body[32..30_032], all);
    assert_eq!(&frame.body[30_032..], b"in memory");
    source.stop().await;
    target.stop().await;
}

#[tokio::test]
async fn writer_whose_connection_broke_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, directory.path(), 4 << 20).await;
    let all = bytes(400_000, 9);
    for round in 1..=20 {
        let caller = Caller::new(&server);
        let first = on_disk(Op::Write, round, 0, &all[..200_000]);
        let second = on_disk(Op::Write, round, 200_000, &all[200_000..]);
        let breaking = async { caller.pool.forget(&caller.address) };
        let (_, _, ()) = tokio::join!(
            caller.write_with_any(first, &all[..200_000]),
            caller.write_with_any(second, &all[200_000..]),
            breaking
        );
        let again = Caller::new(&server);
        until_answer("the first half", || async {
            again.write_with(first, &all[..200_000]).await.is_ok()
        })
        .await;
        until_answer("the second half", || async {
            again.write_with(second, &all[200_000..]).await.is_ok()
        })
        .await;
        assert_eq!(again.read(round, 1, 0, 400_000).await.unwrap(), all);
        again.order(Order::Drop { blocks: vec![(BlockId(round), Epoch(9))] }).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn node_that_stopped_leaves_its_directory_to_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    for round in 1..=10 {
        let server = datanode(&served, directory.path(), 1 << 20).await;
        let caller = Caller::new(&server);
        caller.write_with(on_disk(Op::Write, round, 0, b"abc"), b"abc").await.unwrap();
        let second = served.options();
        let disk = DiskOptions { directory: directory.path().to_owned(), bytes: 1 << 20 };
        let refused = DatanodeServer::start(DatanodeOptions { disk: Some(disk), ..second }).await;
        assert!(refused.unwrap_err().to_string().contains("in use by another datanode"));
        assert_eq!(caller.read(round, 1, 0, 3).await.unwrap(), "abc");
        server.stop().await;
    }
}
