//! The baseline of experiments withholds writes until a relocation has ended.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use crate::harness::{Caller, Served, until_answer};
use sanderling_core::Mechanism;
use sanderling_datanode::{DatanodeOptions, DatanodeServer};
use sanderling_protocol::{BlockId, Epoch, Order, OrderReply, Policy, Refusal};

async fn baseline(served: &Served) -> DatanodeServer {
    let options = DatanodeOptions { mechanism: Mechanism::Baseline, ..served.options() };
    DatanodeServer::start(options).await.unwrap()
}

const fn is_withheld(answer: &Result<u32, Refusal>) -> bool {
    matches!(answer, Err(Refusal::RetryAfter { .. }))
}

#[tokio::test]
async fn write_to_a_block_fenced_before_the_heartbeat_is_answered_is_withheld() {
    let served = Served::start().await;
    let server = baseline(&served).await;
    let (caller, node) = (Caller::new(&server), server.node());
    caller.write(1, 0, b"abc").await.unwrap();
    // The answer to the heartbeat that reports the relocation is still on its way.
    let (address, namenode) = served.stop().await;
    let fence = Order::FenceBlocks { blocks: vec![(BlockId(1), Epoch(1))] };
    assert_eq!(caller.order(fence).await, OrderReply::Fenced(vec![3]));
    let early = caller.write(1, 3, b"d").await;
    assert!(is_withheld(&early), "{early:?}");
    namenode.set_policy(node, Policy::Draining);
    let served = Served::start_at(&address, namenode).await;
    served.namenode.next_beat(node).await;
    let during = caller.write(1, 3, b"d").await;
    assert!(is_withheld(&during), "{during:?}");
    served.namenode.set_policy(node, Policy::Drained);
    served.namenode.next_beat(node).await;
    let moved = Refusal::Moved { block: BlockId(1), length: 3 };
    assert_eq!(caller.write(1, 3, b"d").await, Err(moved));
    server.stop().await;
}

#[tokio::test]
async fn block_fenced_for_another_reason_sends_its_writer_elsewhere() {
    let served = Served::start().await;
    let server = baseline(&served).await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    caller.order(Order::FenceBlocks { blocks: vec![(BlockId(1), Epoch(1))] }).await;
    let moved = Refusal::Moved { block: BlockId(1), length: 3 };
    until_answer("the writer is sent on", || async {
        caller.write(1, 3, b"d").await == Err(moved.clone())
    })
    .await;
    assert_eq!(caller.write(2, 0, b"d").await, Ok(1));
    server.stop().await;
}
