//! Fences, pushes, drops and drains over real sockets.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::time::{Duration, Instant};

use crate::harness::{Caller, Served, bytes, refusal, until, until_answer, write_header};
use bytes::Bytes;
use sanderling_datanode::{DatanodeOptions, DatanodeServer, DrainEnd};
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{
    BlockId, Epoch, Header, NodeId, Op, Order, OrderReply, Policy, Refusal, Tier,
};
use sanderling_transport::CallError;

fn move_to(target: &DatanodeServer, block: u64, from: u32) -> PushMove {
    PushMove {
        block: BlockId(block),
        from_epoch: Epoch(from),
        to_epoch: Epoch(from + 1),
        to: target.node(),
        address: target.address().to_string(),
        tier: Tier::Dram,
        bytes_max: u32::MAX,
    }
}

async fn push(caller: &Caller, moves: Vec<PushMove>) -> Vec<Result<Pushed, Refusal>> {
    match caller.order(Order::Push { moves }).await {
        OrderReply::Pushed(pushed) => pushed,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn fenced_node_refuses_write_and_serves_read() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    // The order comes before the namenode's next answer to a heartbeat, as it does in a cluster.
    served.namenode.set_policy(server.node(), Policy::Draining);
    caller.order(Order::FenceNode { deadline_in: None }).await;
    let moved = Refusal::Moved { block: BlockId(1), length: 3 };
    assert_eq!(caller.write(1, 3, b"d").await, Err(moved));
    let moved = Refusal::Moved { block: BlockId(2), length: 0 };
    assert_eq!(caller.write(2, 0, b"d").await, Err(moved));
    let stored = caller.write_with(write_header(Op::Store, 3, 1, 0, b"x"), b"x").await;
    assert!(matches!(stored, Err(Refusal::Moved { .. })), "{stored:?}");
    assert_eq!(caller.read(1, 1, 0, 3).await.unwrap(), "abc");
    served.namenode.set_policy(server.node(), Policy::Active);
    caller.order(Order::UnfenceNode).await;
    until_answer("writes again", || async { caller.write(1, 3, b"d").await == Ok(4) }).await;
    server.stop().await;
}

#[tokio::test]
async fn heartbeats_answer_fences_and_lifts_the_fence() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"a").await.unwrap();
    served.namenode.set_policy(server.node(), Policy::Decommissioning);
    until_answer("the fence", || async {
        matches!(caller.write(2, 0, b"x").await, Err(Refusal::Moved { .. }))
    })
    .await;
    assert_eq!(caller.read(1, 1, 0, 1).await.unwrap(), "a");
    served.namenode.set_policy(server.node(), Policy::Active);
    until_answer("no fence", || async { caller.write(3, 0, b"x").await.is_ok() }).await;
    server.stop().await;
}

#[tokio::test]
async fn fence_of_blocks_answers_their_final_lengths() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    let blocks = vec![(BlockId(1), Epoch(2)), (BlockId(9), Epoch(2))];
    let reply = caller.order(Order::FenceBlocks { blocks }).await;
    assert_eq!(reply, OrderReply::Fenced(vec![3, 0]));
    assert!(matches!(caller.write(1, 3, b"d").await, Err(Refusal::StaleEpoch { .. })));
    assert!(matches!(caller.write(9, 0, b"d").await, Err(Refusal::StaleEpoch { .. })));
    assert_eq!(caller.read(1, 2, 0, 3).await.unwrap(), "abc");
    server.stop().await;
}

#[tokio::test]
async fn pushed_blocks_are_whole_at_the_target_and_readable_at_both() {
    let served = Served::start().await;
    let (source, target) = (served.datanode().await, served.datanode().await);
    let (from, to) = (Caller::new(&source), Caller::new(&target));
    for block in 1..=40 {
        from.write(block, 0, &bytes(5000 * block as usize, 1)).await.unwrap();
        from.write(block, 5000 * block, b"end").await.unwrap();
    }
    let mut moves: Vec<PushMove> = (1..=40).map(|block| move_to(&target, block, 1)).collect();
    moves.push(move_to(&target, 77, 1));
    moves.push(move_to(&target, 1, 9));
    moves.push(PushMove { to: source.node(), ..move_to(&source, 2, 1) });
    let pushed = push(&from, moves.clone()).await;
    for (block, pushed) in (1..=40_u64).zip(&pushed) {
        let mut all = bytes(5000 * block as usize, 1);
        all.extend_from_slice(b"end");
        let length = all.len() as u32;
        assert_eq!(pushed, &Ok(Pushed { length }));
        assert_eq!(from.read(block, 1, 0, length).await.unwrap(), all);
        assert_eq!(to.read(block, 2, 0, length).await.unwrap(), all);
    }
    assert_eq!(pushed[40], Ok(Pushed { length: 0 }));
    assert!(matches!(pushed[41], Err(Refusal::StaleEpoch { .. })), "{:?}", pushed[41]);
    assert!(matches!(pushed[42], Err(Refusal::WrongState { .. })), "{:?}", pushed[42]);
    assert_eq!(to.held().await.len(), 40);
    let total = (1..=40).map(|block| 5000 * block + 3).sum::<u64>();
    for server in [&source, &target] {
        served.namenode.next_beat(server.node()).await;
    }
    let load = |server: &DatanodeServer| served.namenode.state.lock().heartbeats[&server.node()].1;
    assert_eq!((load(&source).pushed_bytes_total, load(&source).stored_bytes_total), (total, 0));
    assert_eq!((load(&target).pushed_bytes_total, load(&target).stored_bytes_total), (0, total));
    assert!(matches!(from.write(1, 5003, b"x").await, Err(Refusal::Moved { length: 5003, .. })));
    let stale = to.read(1, 1, 0, 1).await;
    assert!(matches!(stale, Err(Refusal::StaleEpoch { .. })), "{stale:?}");
    let again = push(&from, moves[..40].to_vec()).await;
    assert!(again.iter().all(Result::is_ok), "a push is repeated by the next manager: {again:?}");
    source.stop().await;
    target.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_bytes_that_count_are_pushed() {
    let served = Served::start().await;
    let (source, target) = (served.datanode().await, served.datanode().await);
    let (from, to) = (Caller::new(&source), Caller::new(&target));
    from.write(1, 0, &bytes(70_000, 1)).await.unwrap();
    let pushed = push(&from, vec![PushMove { bytes_max: 66_000, ..move_to(&target, 1, 1) }]).await;
    assert_eq!(pushed, [Ok(Pushed { length: 66_000 })]);
    assert_eq!(to.held().await[0].length, 66_000);
    assert_eq!(to.read(1, 2, 0, 66_000).await.unwrap(), bytes(70_000, 1)[..66_000]);
    source.stop().await;
    target.stop().await;
}

/// Appends to a block until the fence, and returns what was acknowledged.
async fn append_until_moved(caller: Caller, block: u64) -> Vec<u8> {
    let mut acknowledged = Vec::new();
    for piece in 0..=u8::MAX {
        let run = bytes(1000 + 37 * usize::from(piece), piece);
        match caller.write(block, acknowledged.len() as u64, &run).await {
            Ok(length) => {
                acknowledged.extend_from_slice(&run);
                assert_eq!(length as usize, acknowledged.len());
            }
            Err(Refusal::Moved { length, .. }) => {
                assert!(length as usize >= acknowledged.len());
                return acknowledged;
            }
            Err(Refusal::TooLarge { .. }) => return acknowledged,
            Err(other) => panic!("{other}"),
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_acknowledged_byte_is_in_the_copy_when_a_push_meets_writers() {
    let served = Served::start().await;
    let (source, target) = (served.datanode().await, served.datanode().await);
    let (from, to) = (Caller::new(&source), Caller::new(&target));
    let writer = |block| tokio::spawn(append_until_moved(Caller::new(&source), block));
    let writers: Vec<_> = (1..=6).map(writer).collect();
    until_answer("some bytes of each", || async { from.held().await.len() == 6 }).await;
    for block in 1..=6 {
        let pushed = push(&from, vec![move_to(&target, block, 1)]).await;
        assert!(pushed[0].is_ok(), "{pushed:?}");
    }
    for (block, writer) in (1..=6).zip(writers) {
        let acknowledged = writer.await.unwrap();
        let length = acknowledged.len() as u32;
        assert_eq!(to.read(block, 2, 0, length).await.unwrap(), acknowledged);
        assert_eq!(from.read(block, 1, 0, length).await.unwrap(), acknowledged);
    }
    source.stop().await;
    target.stop().await;
}

#[tokio::test]
async fn push_to_a_target_that_is_not_there_fails_in_time() {
    let served = Served::start().await;
    let (source, target) = (served.datanode().await, served.datanode().await);
    let from = Caller::new(&source);
    from.write(1, 0, b"abc").await.unwrap();
    let mut wrong = move_to(&target, 1, 1);
    wrong.to = NodeId(99);
    let pushed = push(&from, vec![wrong]).await;
    assert!(matches!(pushed[0], Err(Refusal::WrongNode { .. })), "{pushed:?}");
    let gone = move_to(&target, 1, 1);
    target.stop().await;
    let pushed = push(&from, vec![gone]).await;
    assert!(matches!(pushed[0], Err(Refusal::RetryAfter { .. })), "{pushed:?}");
    let next = served.datanode().await;
    let pushed = push(&from, vec![move_to(&next, 1, 1)]).await;
    assert_eq!(pushed, [Ok(Pushed { length: 3 })]);
    source.stop().await;
    next.stop().await;
}

#[tokio::test]
async fn push_to_a_draining_target_is_refused() {
    let served = Served::start().await;
    let (source, target) = (served.datanode().await, served.datanode().await);
    let from = Caller::new(&source);
    from.write(1, 0, b"abc").await.unwrap();
    served.namenode.set_policy(target.node(), Policy::Draining);
    Caller::new(&target).order(Order::FenceNode { deadline_in: None }).await;
    let pushed = push(&from, vec![move_to(&target, 1, 1)]).await;
    assert!(matches!(pushed[0], Err(Refusal::Moved { .. })), "{pushed:?}");
    source.stop().await;
    target.stop().await;
}

/// Reads a whole block without taking the answer from the socket for a while.
async fn slow_read(caller: &Caller, block: u64, length: u32) -> tokio::task::JoinHandle<Bytes> {
    let caller = caller.clone();
    tokio::spawn(async move {
        let mut header = Header::new(Op::Read, 0);
        (header.block, header.epoch, header.length) = (BlockId(block), Epoch(1), length);
        refusal(caller.call(header, &[]).await).unwrap().body
    })
}

#[tokio::test]
async fn block_dropped_while_it_is_read_is_read_whole() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let all = bytes(1 << 20, 5);
    for round in 1..=20 {
        caller.write(round, 0, &all).await.unwrap();
        let reads = [slow_read(&caller, round, 1 << 20).await, slow_read(&caller, round, 9).await];
        let other = Caller::new(&server);
        let mut header = Header::new(Op::Read, 0);
        (header.block, header.epoch, header.length) = (BlockId(round), Epoch(1), 1 << 20);
        let (read, _) = tokio::join!(
            other.call(header, &[]),
            caller.order(Order::Drop { blocks: vec![(BlockId(round), Epoch(9))] })
        );
        if let Ok(frame) = read {
            assert!(frame.body == all, "a reader saw bytes of another block");
        }
        for read in reads {
            // The drop may have come first; every served reader got the right bytes.
            if let Ok(body) = read.await {
                assert!(all.starts_with(&body));
            }
        }
        caller.write(round + 1000, 0, &bytes(1 << 20, 6)).await.unwrap();
        caller.order(Order::Drop { blocks: vec![(BlockId(round + 1000), Epoch(9))] }).await;
    }
    served.namenode.next_beat(server.node()).await;
    until("the space to come back", || {
        served.namenode.state.lock().heartbeats[&server.node()].1.dram_used_bytes == 0
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn drain_ends_when_the_namenode_reports_drained() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let node = server.node();
    caller.write(1, 0, b"abc").await.unwrap();
    let namenode = std::sync::Arc::clone(&served.namenode);
    let mover = tokio::spawn(async move {
        until("the notice", || !namenode.state.lock().notices.is_empty()).await;
        namenode.next_beat(node).await;
        namenode.set_policy(node, Policy::Drained);
    });
    let end = server.drain(Duration::from_secs(90), "the cloud takes it back").await;
    assert_eq!(end, DrainEnd::Drained);
    mover.await.unwrap();
    let notices = served.namenode.state.lock().notices.clone();
    assert_eq!(notices.len(), 1);
    assert_eq!((notices[0].0.as_str(), notices[0].2.as_str()), ("1", "the cloud takes it back"));
    assert!((60_000..=90_000).contains(&notices[0].1), "{notices:?}");
    assert_eq!(caller.read(1, 1, 0, 3).await.unwrap(), "abc");
    assert!(matches!(caller.write(1, 3, b"d").await, Err(Refusal::Moved { .. })));
    server.stop().await;
}

#[tokio::test]
async fn drain_ends_at_the_deadline_and_reports_what_is_left() {
    let served = Served::start().await;
    let server = served.datanode().await;
    served.namenode.state.lock().homes.insert(server.node(), 7);
    served.namenode.next_beat(server.node()).await;
    let end = server.drain(Duration::from_millis(300), "no time").await;
    assert_eq!(end, DrainEnd::DeadlinePassed { home_blocks: Some(7) });
    let (_, namenode) = served.stop().await;
    namenode.set_policy(server.node(), Policy::Active);
    let end = server.drain(Duration::from_millis(300), "no answer").await;
    assert_eq!(end, DrainEnd::DeadlinePassed { home_blocks: None });
    server.stop().await;
}

#[tokio::test]
async fn node_that_leaves_stays_fenced_until_the_namenode_has_its_notice() {
    let served = Served::start().await;
    let server = std::sync::Arc::new(served.datanode().await);
    let caller = Caller::new(&server);
    let namenode = std::sync::Arc::clone(&served.namenode);
    namenode.state.lock().is_deaf = true;
    let leaving = std::sync::Arc::clone(&server);
    let drain =
        tokio::spawn(async move { leaving.drain(Duration::from_secs(90), "the cloud").await });
    until_answer("the fence", || async {
        matches!(caller.write(1, 0, b"x").await, Err(Refusal::Moved { .. }))
    })
    .await;
    for block in 2..10 {
        namenode.next_beat(server.node()).await;
        let refused = caller.write(block, 0, b"x").await;
        assert!(matches!(refused, Err(Refusal::Moved { .. })), "an answer lifted the fence");
    }
    namenode.state.lock().is_deaf = false;
    until("the notice", || !namenode.state.lock().notices.is_empty()).await;
    namenode.set_policy(server.node(), Policy::Drained);
    assert_eq!(drain.await.unwrap(), DrainEnd::Drained);
}

/// A group has no leader for longer than a call takes, or a namenode has lost the end of its log
/// and has the node under another number soon. The process has time left, and would end at once.
#[tokio::test]
async fn drain_goes_on_after_a_refusal_that_may_pass() {
    let call_time_max = Duration::from_millis(300);
    let refusals: [fn(NodeId) -> Refusal; 2] =
        [|_| Refusal::NotLeader { leader: None }, |node| Refusal::NodeGone { node }];
    for refusal in refusals {
        let served = Served::start().await;
        let options = DatanodeOptions { call_time_max, ..served.options() };
        let server = std::sync::Arc::new(DatanodeServer::start(options).await.unwrap());
        let (node, namenode) = (server.node(), std::sync::Arc::clone(&served.namenode));
        namenode.state.lock().notice_refusal = Some(refusal(node));
        let leaving = std::sync::Arc::clone(&server);
        let drain =
            tokio::spawn(async move { leaving.drain(Duration::from_secs(90), "the cloud").await });
        let began = Instant::now();
        // Later than the first call that gives the notice has failed.
        until("notices that are refused", || {
            let refused = namenode.state.lock().notices_refused;
            refused > 2 && began.elapsed() > 2 * call_time_max
        })
        .await;
        namenode.state.lock().notice_refusal = None;
        until("the notice", || !namenode.state.lock().notices.is_empty()).await;
        namenode.set_policy(node, Policy::Drained);
        assert_eq!(drain.await.unwrap(), DrainEnd::Drained, "{:?}", refusal(node));
    }
}

/// A leader that was stopped may have decided without what its successor has changed since.
#[tokio::test]
async fn order_of_a_leader_that_was_followed_by_another_is_refused() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    let drop = || Order::Drop { blocks: vec![(BlockId(1), Epoch(1))] };
    let list = || Order::ListBlocks { after: BlockId(0), limit: 10 };
    caller.order_in(7, list()).await.unwrap();
    let refused = caller.order_in(6, drop()).await;
    let is_refused = matches!(&refused, Err(CallError::Refused(Refusal::NotLeader { .. })));
    assert!(is_refused, "{refused:?}");
    assert_eq!(caller.read(1, 1, 0, 3).await.unwrap(), "abc");
    // A manager, or a namenode that is alone, names no term.
    caller.order_in(0, list()).await.unwrap();
    caller.order_in(7, drop()).await.unwrap();
    assert!(caller.read(1, 1, 0, 3).await.is_err());
    server.stop().await;
}
