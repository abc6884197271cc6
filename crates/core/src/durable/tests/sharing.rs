//! What of the nodes' places reading back takes, and which node is tried after which.

use sanderling_protocol::message::{DurableLoss, DurableWork, LostBlock, StoreNode};
use sanderling_protocol::order::OrderReply;
use sanderling_protocol::{BlockId, Epoch};

use super::*;

const NOW: Instant = Instant(1_000_000);

/// An order to read back: the call, its object and its node.
type Ordered = (DurableCall, ObjectId, NodeId);

/// Returns an object of a directory that has lost two blocks.
fn loss(directory: u64, object: u64) -> DurableLoss {
    let block = |number: u64| LostBlock {
        block: BlockId(2 * object + number),
        epoch: Epoch(1),
        offset: 10 * number,
        length: 10,
    };
    DurableLoss {
        directory: ObjectId(directory),
        store: format!("s{directory}"),
        object: ObjectId(object),
        key: object.to_string(),
        bytes: 20,
        blocks: vec![block(0), block(1)],
    }
}

/// Returns a view of so many directories, whose stores so many nodes reach. Each directory has
/// these changes.
fn view(
    directories: u64,
    nodes: u32,
    losses: Vec<DurableLoss>,
    changes: &[DurableChange],
) -> DurableInput {
    let store = |directory: u64| format!("s{directory}");
    let node = |id: u32| StoreNode {
        node: NodeId(id),
        address: format!("host-{id}:1"),
        stores: (1..=directories).map(store).collect(),
    };
    let work = |directory: u64| DurableWork {
        directory: ObjectId(directory),
        store: store(directory),
        may_claim: false,
        adoption: None,
        changes: changes.to_vec(),
    };
    let work = (1..=directories).map(work).collect();
    DurableInput::View { work, nodes: (1..=nodes).map(node).collect(), losses }
}

/// Returns the orders to read back that were given; reports are acknowledged.
fn ordered(drain: &mut DurableDrain, now: Instant) -> Vec<Ordered> {
    let mut orders = Vec::new();
    while let Some(output) = drain.poll_output() {
        match output {
            DurableOutput::Restore { call, node, loss, .. } => {
                orders.push((call, loss.object, node));
            }
            DurableOutput::Report { call, .. } => {
                drain.handle(now, DurableInput::Reported { call, is_done: true });
            }
            _ => {}
        }
    }
    orders
}

fn answer(drain: &mut DurableDrain, now: Instant, call: DurableCall, blocks: usize) {
    let answer = Ok(vec![Tier::Dram; blocks]);
    drain.handle(now, DurableInput::Restored { call, answer });
}

fn fail(drain: &mut DurableDrain, now: Instant, call: DurableCall, refusal: Refusal) {
    let answer = Err(DurableCallError::Refused(refusal));
    drain.handle(now, DurableInput::Restored { call, answer });
}

fn no_answer() -> Refusal {
    Refusal::TierFailed { tier: "durable".to_owned(), why: "no answer within 20s".to_owned() }
}

/// Passes the pause before the next try. Returns the time.
fn wait(drain: &mut DurableDrain) -> Instant {
    let now = drain.deadline().expect("it is tried again");
    drain.handle_deadline(now);
    now
}

#[test]
fn reading_back_leaves_half_of_the_places_to_uploads() {
    let mut drain = DurableDrain::default();
    let losses = (10..20).map(|object| loss(1, object)).collect();
    let kind = DurableChangeKind::Put { object: ObjectId(90), bytes: 10 };
    let change = DurableChange { number: 100, key: "new".to_owned(), kind, upload: None };
    drain.handle(NOW, view(1, 1, losses, &[change]));
    let mut outputs = Vec::new();
    while let Some(output) = drain.poll_output() {
        outputs.push(output);
    }
    let is_restore = |it: &&DurableOutput| matches!(it, DurableOutput::Restore { .. });
    let is_layout = |it: &&DurableOutput| matches!(it, DurableOutput::Layout { .. });
    assert_eq!(outputs.iter().filter(is_restore).count(), 2);
    assert_eq!(outputs.iter().filter(is_layout).count(), 1, "an upload begins");
}

#[test]
fn store_that_does_not_answer_holds_up_no_other_one() {
    let mut drain = DurableDrain::default();
    let mut losses: Vec<DurableLoss> = (10..20).map(|object| loss(1, object)).collect();
    drain.handle(NOW, view(2, 1, losses.clone(), &[]));
    let hanging = ordered(&mut drain, NOW);
    assert_eq!(hanging.len(), 1, "a place is left for the other directory");
    for object in 30..40 {
        let mut both = losses.clone();
        both.push(loss(2, object));
        drain.handle(NOW, view(2, 1, both, &[]));
        let orders = ordered(&mut drain, NOW);
        let [(call, found, _)] = orders.as_slice() else { panic!("{orders:?}") };
        assert_eq!(*found, ObjectId(object));
        answer(&mut drain, NOW, *call, 2);
        assert!(ordered(&mut drain, NOW).is_empty());
    }
    // With a third one that does not answer, each gets the next place in turn.
    losses.extend((40..50).map(|object| loss(2, object)));
    losses.extend((50..60).map(|object| loss(3, object)));
    drain.handle(NOW, view(3, 1, losses, &[]));
    let mut last = ordered(&mut drain, NOW);
    assert_eq!(last.len(), 1);
    for _ in 0..6 {
        let (call, object, _) = last.pop().expect("a place is free");
        fail(&mut drain, NOW, call, no_answer());
        last = ordered(&mut drain, NOW);
        let next = last.first().expect("a place is free").1;
        assert_ne!(next.0 / 10 == 5, object.0 / 10 == 5, "{next} after {object}");
    }
}

/// Readers come for objects whose numbers are higher than those of others that were lost.
#[test]
fn what_a_view_has_first_is_read_back_first() {
    let mut drain = DurableDrain::default();
    let losses = |objects: &[u64]| objects.iter().map(|object| loss(1, *object)).collect();
    let objects = |orders: &[Ordered]| orders.iter().map(|it| it.1.0).collect::<Vec<u64>>();
    drain.handle(NOW, view(1, 1, losses(&[30, 10, 11, 12, 20]), &[]));
    let first = ordered(&mut drain, NOW);
    assert_eq!(objects(&first), [30, 10]);
    drain.handle(NOW, view(1, 1, losses(&[20, 10, 11, 12, 30]), &[]));
    answer(&mut drain, NOW, first[0].0, 2);
    assert_eq!(objects(&ordered(&mut drain, NOW)), [20]);
}

#[test]
fn slow_store_is_given_less_to_read() {
    let mut drain = DurableDrain::default();
    let losses: Vec<DurableLoss> = (10..20).map(|object| loss(1, object)).collect();
    let mut now = NOW;
    drain.handle(now, view(1, 10, losses.clone(), &[]));
    let first = ordered(&mut drain, now);
    assert_eq!(first.len(), WINDOW_MIN);
    for (call, ..) in first {
        fail(&mut drain, now, call, no_answer());
    }
    let mut orders = ordered(&mut drain, now);
    assert_eq!(orders.len(), 1, "one is tried");
    // Each that succeeds makes room for one more beside itself.
    for expected in [2, 3] {
        let (call, ..) = orders.pop().expect("it is tried");
        answer(&mut drain, now, call, 2);
        orders.extend(ordered(&mut drain, now));
        now = now + Millis(10_000);
        drain.handle_deadline(now);
        orders.extend(ordered(&mut drain, now));
        assert_eq!(orders.len(), expected);
    }
}

#[test]
fn all_nodes_are_tried_before_one_that_failed_is_tried_again() {
    let mut drain = DurableDrain::default();
    let mut now = NOW;
    drain.handle(now, view(1, 3, vec![loss(1, 10)], &[]));
    let full = || Refusal::NodeFull { tier: Tier::Dram.to_string(), bytes: 10 };
    let mut tried = Vec::new();
    for _ in 0..6 {
        let orders = ordered(&mut drain, now);
        let [(call, _, node)] = orders.as_slice() else { panic!("{orders:?}") };
        tried.push(*node);
        fail(&mut drain, now, *call, full());
        assert!(ordered(&mut drain, now).is_empty(), "there is a pause");
        now = wait(&mut drain);
    }
    let nodes = [1, 2, 3].map(NodeId);
    assert_eq!(tried, [nodes, nodes].concat());
    for _ in 0..3 {
        let (call, ..) = ordered(&mut drain, now)[0];
        fail(&mut drain, now, call, full());
        let next = wait(&mut drain);
        assert_eq!(now.until(next), RETRY_MAX);
        now = next;
    }
}

#[test]
fn blocks_that_found_room_are_reported_and_the_rest_goes_to_another_node() {
    let mut drain = DurableDrain::default();
    drain.handle(NOW, view(1, 2, vec![loss(1, 10)], &[]));
    let orders = ordered(&mut drain, NOW);
    let [(call, _, NodeId(1))] = orders.as_slice() else { panic!("{orders:?}") };
    answer(&mut drain, NOW, *call, 1);
    let Some(DurableOutput::Report { call, record }) = drain.poll_output() else {
        panic!("a block has a home again")
    };
    let restored = record.report.progress.restored.iter();
    let blocks: Vec<BlockId> = restored.map(|restored| restored.block).collect();
    assert_eq!(blocks, [BlockId(20)]);
    drain.handle(NOW, DurableInput::Reported { call, is_done: true });
    let mut left = loss(1, 10);
    left.blocks.remove(0);
    drain.handle(NOW, view(1, 2, vec![left], &[]));
    let orders = ordered(&mut drain, NOW);
    assert!(matches!(orders.as_slice(), [(_, _, NodeId(2))]), "{orders:?}");
}

#[test]
fn answer_without_a_block_is_a_failure() {
    let mut drain = DurableDrain::default();
    drain.handle(NOW, view(1, 1, vec![loss(1, 10)], &[]));
    let (call, ..) = ordered(&mut drain, NOW)[0];
    answer(&mut drain, NOW, call, 0);
    let Some(DurableOutput::Report { record, .. }) = drain.poll_output() else {
        panic!("it is stalled")
    };
    let reply = Box::new(OrderReply::Restored(Vec::new()));
    let why = DurableCallError::BadReply { node: NodeId(1), reply }.to_string();
    assert_eq!(record.report.progress.stalled, [(ObjectId(1), why)]);
    let now = wait(&mut drain);
    assert_eq!(ordered(&mut drain, now).len(), 1);
}

#[test]
fn fenced_node_is_passed_over_at_once_and_is_no_stall() {
    let mut drain = DurableDrain::default();
    drain.handle(NOW, view(1, 2, vec![loss(1, 10)], &[]));
    let (call, _, first) = ordered(&mut drain, NOW)[0];
    let fenced = || Refusal::Moved { block: BlockId(20), length: 0 };
    fail(&mut drain, NOW, call, fenced());
    let Some(DurableOutput::Restore { call, node, .. }) = drain.poll_output() else {
        panic!("another node is tried")
    };
    assert_ne!(node, first);
    // No node is left: that is a stall, and the nodes are tried again later.
    fail(&mut drain, NOW, call, fenced());
    let Some(DurableOutput::Report { record, .. }) = drain.poll_output() else {
        panic!("it is stalled")
    };
    let why = "all datanodes that reach the store are to leave".to_owned();
    assert_eq!(record.report.progress.stalled, [(ObjectId(1), why)]);
    let later = NOW + RETRY_MAX;
    drain.handle(later, view(1, 2, vec![loss(1, 10)], &[]));
    assert_eq!(ordered(&mut drain, later).len(), 1);
}
