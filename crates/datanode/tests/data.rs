//! Reads and writes over real sockets.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use crate::harness::{Caller, Served, bytes, refusal, until, write_header};
use sanderling_protocol::frame::{RangeReply, RangeRequest, decode_body};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::{BlockId, Epoch, Header, NodeId, Op, Order, Refusal};

#[tokio::test]
async fn bytes_are_read_as_they_were_written() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let all = bytes(300_000, 7);
    let mut length = 0;
    for piece in all.chunks(70_001) {
        let acknowledged = caller.write(1, length, piece).await.unwrap();
        length += piece.len() as u64;
        assert_eq!(u64::from(acknowledged), length);
    }
    assert_eq!(caller.read(1, 1, 0, 300_000).await.unwrap(), all);
    assert_eq!(caller.read(1, 1, 70_001, 70_001).await.unwrap(), all[70_001..140_002]);
    assert_eq!(caller.read(1, 1, 69_999, 1234).await.unwrap(), all[69_999..71_233]);
    assert_eq!(caller.read(1, 1, 300_000, 0).await.unwrap(), Vec::<u8>::new());
    server.stop().await;
}

#[tokio::test]
async fn write_with_a_wrong_checksum_leaves_the_block_unchanged() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"good").await.unwrap();
    let mut header = write_header(Op::Write, 1, 1, 4, b"evil");
    header.checksum ^= 1;
    let refused = caller.write_with(header, b"evil").await;
    assert!(matches!(refused, Err(Refusal::ChecksumMismatch { .. })), "{refused:?}");
    assert_eq!(caller.read(1, 1, 0, 4).await.unwrap(), "good");
    assert_eq!(caller.write(1, 4, b" too").await, Ok(8));
    header.op = Op::Store;
    (header.block, header.offset) = (BlockId(2), 0);
    let refused = caller.write_with(header, b"evil").await;
    assert!(matches!(refused, Err(Refusal::ChecksumMismatch { .. })), "{refused:?}");
    assert_eq!(caller.held().await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn write_is_taken_at_the_end_only_and_once() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    assert_eq!(caller.write(1, 0, b"abcdef").await, Ok(6));
    assert_eq!(caller.write(1, 0, b"abcdef").await, Ok(6));
    assert_eq!(caller.write(1, 2, b"cd").await, Ok(6));
    for (offset, piece) in [(0, &b"abcdeF"[..]), (2, b"XX"), (5, b"fg"), (7, b"x")] {
        let refused = caller.write(1, offset, piece).await;
        assert!(matches!(refused, Err(Refusal::NotAtEnd { length: 6, .. })), "{refused:?}");
    }
    assert_eq!(caller.read(1, 1, 0, 6).await.unwrap(), "abcdef");
    server.stop().await;
}

#[tokio::test]
async fn wrong_epochs_blocks_and_ranges_are_named() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    let fence = vec![(BlockId(1), Epoch(5))];
    caller.order(Order::FenceBlocks { blocks: fence }).await;
    let stale = Refusal::StaleEpoch { block: BlockId(1), here: Epoch(5), asked: Epoch(1) };
    assert_eq!(caller.read(1, 1, 0, 3).await, Err(stale.clone()));
    assert_eq!(caller.write(1, 3, b"d").await, Err(stale));
    let range = Refusal::OutOfRange { offset: 2, bytes: 2, end: 3 };
    assert_eq!(caller.read(1, 5, 2, 2).await, Err(range));
    assert!(matches!(caller.read(1, 5, u64::MAX, 2).await, Err(Refusal::OutOfRange { .. })));
    let unknown = Refusal::UnknownBlock { block: BlockId(9) };
    assert_eq!(caller.read(9, 1, 0, 1).await, Err(unknown));
    server.stop().await;
}

#[tokio::test]
async fn too_long_writes_are_refused_and_the_longest_is_taken() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let all = bytes(BLOCK_BYTES_MAX as usize + 1, 1);
    let refused = caller.write(1, 0, &all).await;
    assert!(matches!(refused, Err(Refusal::TooLarge { .. })), "{refused:?}");
    let longest = &all[..BLOCK_BYTES_MAX as usize];
    assert_eq!(caller.write(1, 0, longest).await, Ok(BLOCK_BYTES_MAX));
    let refused = caller.write(1, u64::from(BLOCK_BYTES_MAX), b"x").await;
    assert!(matches!(refused, Err(Refusal::TooLarge { .. })), "{refused:?}");
    let refused = caller.write(2, 1 << 32, b"x").await;
    assert!(matches!(refused, Err(Refusal::TooLarge { .. })), "{refused:?}");
    assert_eq!(caller.read(1, 1, 0, BLOCK_BYTES_MAX).await.unwrap(), longest);
    server.stop().await;
}

#[tokio::test]
async fn bad_frames_are_refused_and_disturb_no_other_connection() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    let mut no_tier = write_header(Op::Write, 2, 1, 0, b"abc");
    no_tier.flags = 9;
    let mut in_the_middle = write_header(Op::Store, 2, 1, 1, b"abc");
    in_the_middle.offset = 1;
    let cases: [(Header, &[u8]); 7] = [
        (no_tier, b"abc"),
        (in_the_middle, b"abc"),
        (write_header(Op::Write, 0, 1, 0, b"abc"), b"abc"),
        (write_header(Op::Write, 2, 1, 0, b""), b""),
        (Header::new(Op::Order, 0), b"\xff\xff\xff"),
        (Header::new(Op::ReadMany, 0), b"not ranges"),
        (Header::new(Op::Meta, 0), b""),
    ];
    for (header, body) in cases {
        let refused = refusal(caller.call(header, body).await);
        let is_clear =
            matches!(refused, Err(Refusal::BadFrame { .. } | Refusal::BadRequest { .. }));
        assert!(is_clear, "{header:?}: {refused:?}");
    }
    assert_eq!(caller.read(1, 1, 0, 3).await.unwrap(), "abc");
    assert_eq!(caller.held().await.len(), 1);
    server.stop().await;
}

fn many(ranges: &[(u64, u32, u32, u32)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (block, epoch, offset, length) in ranges.iter().copied() {
        let (block, epoch) = (BlockId(block), Epoch(epoch));
        RangeRequest { block, epoch, offset, length }.encode(&mut body);
    }
    body
}

#[tokio::test]
async fn vectored_read_answers_good_ranges_beside_refused_ones() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let all = bytes(20_000, 3);
    caller.write(1, 0, &all).await.unwrap();
    caller.write(2, 0, b"second").await.unwrap();
    let body = many(&[(1, 1, 5, 10_000), (9, 1, 0, 1), (2, 1, 0, 6), (2, 1, 3, 9), (2, 0, 0, 1)]);
    let frame = caller.call(Header::new(Op::ReadMany, 0), &body).await.unwrap();
    let heads = RangeReply::decode_all(&frame.body, 5).unwrap();
    let mut at = 5 * RangeReply::BYTES;
    let mut parts = Vec::new();
    for head in &heads {
        parts.push(frame.body.slice(at..at + head.length as usize));
        at += head.length as usize;
    }
    assert_eq!(parts[0], all[5..10_005]);
    assert_eq!(heads[0].checksum, sanderling_protocol::checksum::crc32c(&parts[0]));
    assert_eq!(parts[2], "second");
    let names: Vec<&str> = [1, 3, 4]
        .iter()
        .map(|index: &usize| {
            let refusal = decode_body::<Refusal>(&parts[*index]).unwrap();
            assert_eq!(refusal.code(), heads[*index].status);
            refusal.name()
        })
        .collect();
    assert_eq!(names, ["UnknownBlock", "OutOfRange", "StaleEpoch"]);
    server.stop().await;
}

#[tokio::test]
async fn vectored_read_is_bounded() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    for ranges in [vec![(1, 1, 0, 0); 1025], vec![(1, 1, 0, BLOCK_BYTES_MAX); 17]] {
        let refused = refusal(caller.call(Header::new(Op::ReadMany, 0), &many(&ranges)).await);
        assert!(matches!(refused, Err(Refusal::TooLarge { .. })), "{refused:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn full_arena_refuses_and_has_its_space_back_after_a_drop() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let all = bytes(BLOCK_BYTES_MAX as usize, 1);
    for block in 1..=8 {
        caller.write(block, 0, &all).await.unwrap();
    }
    let refused = caller.write(9, 0, b"one more").await;
    assert!(matches!(refused, Err(Refusal::NodeFull { .. })), "{refused:?}");
    caller
        .order(Order::Drop { blocks: vec![(BlockId(3), Epoch(9)), (BlockId(99), Epoch(9))] })
        .await;
    assert_eq!(caller.write(9, 0, &all).await, Ok(BLOCK_BYTES_MAX));
    let gone = caller.write(3, 0, b"too late").await;
    assert_eq!(gone, Err(Refusal::Moved { block: BlockId(3), length: 0 }));
    served.namenode.next_beat(server.node()).await;
    let load = served.namenode.state.lock().heartbeats[&server.node()].1;
    assert_eq!((load.blocks, load.dram_used_bytes), (8, 8 << 20));
    server.stop().await;
}

#[tokio::test]
async fn greeting_that_means_another_incarnation_is_refused() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let mut caller = Caller::new(&server);
    caller.node = NodeId(server.node().0 + 1);
    let refused = refusal(caller.call(write_header(Op::Write, 1, 1, 0, b"x"), b"x").await);
    let (here, asked) = (server.node(), caller.node);
    assert_eq!(refused, Err(Refusal::WrongNode { here, asked }));
    server.stop().await;
}

#[tokio::test]
async fn pipelined_writes_of_many_callers_all_arrive() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let mut writers = tokio::task::JoinSet::new();
    for block in 1..=16_u64 {
        let caller = caller.clone();
        writers.spawn(async move {
            let all = bytes(200_000, block as u8);
            for (index, piece) in all.chunks(10_000).enumerate() {
                caller.write(block, index as u64 * 10_000, piece).await.unwrap();
                let last = caller.read(block, 1, index as u64 * 10_000, 10_000).await.unwrap();
                assert_eq!(last, piece);
            }
            assert_eq!(caller.read(block, 1, 0, 200_000).await.unwrap(), all);
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    until("no requests in flight", || {
        served.namenode.state.lock().heartbeats[&server.node()].1.requests_in_flight == 0
    })
    .await;
    server.stop().await;
}

/// Writes as a client does: again for as long as the node answers `RetryAfter`.
async fn write_patiently(caller: &Caller, block: u64, run: &[u8]) -> Result<u32, Refusal> {
    loop {
        match caller.write(block, 0, run).await {
            Err(Refusal::RetryAfter { after, .. }) => tokio::time::sleep(after.into()).await,
            answer => return answer,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_writers_at_the_same_offset_one_wins() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let callers = [Caller::new(&server), Caller::new(&server)];
    for block in 1..=30 {
        let sums = [bytes(200_000, 1), bytes(200_000, 2)];
        let (first, second) = tokio::join!(
            write_patiently(&callers[0], block, &sums[0]),
            write_patiently(&callers[1], block, &sums[1])
        );
        let winner = match (&first, &second) {
            (Ok(200_000), Err(Refusal::NotAtEnd { .. })) => 0,
            (Err(Refusal::NotAtEnd { .. }), Ok(200_000)) => 1,
            other => panic!("{other:?}"),
        };
        assert_eq!(callers[0].read(block, 1, 0, 200_000).await.unwrap(), sums[winner]);
    }
    server.stop().await;
}
