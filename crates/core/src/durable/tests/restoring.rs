//! What becomes of lost blocks that a datanode does not read back, and when work is read again.

use sanderling_protocol::message::{DurableLoss, DurableWork, LostBlock, StoreNode};
use sanderling_protocol::{BlockId, Epoch};

use super::*;

const NOW: Instant = Instant(1_000_000);
const DIRECTORY: ObjectId = ObjectId(5);
const OBJECT: ObjectId = ObjectId(9);

/// Returns a view of a directory whose store two nodes reach. With `has_loss` an object of it has
/// lost a block.
fn view(has_loss: bool) -> DurableInput {
    let node = |id: u32| StoreNode {
        node: NodeId(id),
        address: format!("host-{id}:1"),
        stores: vec!["s".to_owned()],
    };
    let loss = DurableLoss {
        directory: DIRECTORY,
        store: "s".to_owned(),
        object: OBJECT,
        key: "a".to_owned(),
        bytes: 10,
        blocks: vec![LostBlock { block: BlockId(1), epoch: Epoch(2), offset: 0, length: 10 }],
    };
    let work = DurableWork {
        directory: DIRECTORY,
        store: "s".to_owned(),
        may_claim: false,
        adoption: None,
        changes: Vec::new(),
    };
    DurableInput::View {
        work: vec![work],
        nodes: vec![node(1), node(2)],
        losses: if has_loss { vec![loss] } else { Vec::new() },
    }
}

/// Returns the order to read a block back, and the node that got it.
fn ordered(drain: &mut DurableDrain) -> (DurableCall, NodeId) {
    match drain.poll_output() {
        Some(DurableOutput::Restore { call, node, .. }) => (call, node),
        other => panic!("a block is lost: {other:?}"),
    }
}

fn reported(drain: &mut DurableDrain) -> (DurableCall, DurableReport) {
    match drain.poll_output() {
        Some(DurableOutput::Report { call, record }) => {
            assert!(record.uploads.is_empty() && record.made.is_empty(), "{record:?}");
            (call, record.report)
        }
        other => panic!("a call has ended: {other:?}"),
    }
}

/// Answers that the store does not have what is to be read back. Returns the node of the order.
fn missed(drain: &mut DurableDrain, now: Instant) -> NodeId {
    let (call, node) = ordered(drain);
    let answer = Err(DurableCallError::Refused(Refusal::BlockDamaged { block: BlockId(1) }));
    drain.handle(now, DurableInput::Restored { call, answer });
    node
}

/// Returns the report that the store does not have the object by the name of [`view`].
fn missing() -> Vec<MissingObject> {
    let (key, why) = ("a".to_owned(), "the store s does not have it as it was".to_owned());
    vec![MissingObject { object: OBJECT, key, block: BlockId(1), epoch: Epoch(2), why }]
}

#[test]
fn object_is_missing_by_its_name_if_a_datanode_finds_another_one_in_the_store() {
    let mut drain = DurableDrain::default();
    drain.handle(NOW, view(true));
    missed(&mut drain, NOW);
    missed(&mut drain, NOW);
    // The store answers, so the directory is stalled no more.
    let stalled = vec![(DIRECTORY, String::new())];
    let progress = DurableProgress { stalled, ..DurableProgress::default() };
    assert_eq!(reported(&mut drain).1, DurableReport { progress, missing: missing() });
}

/// Another node looks at once, and a node alone after a pause.
#[test]
fn object_that_one_look_does_not_find_is_looked_for_once_more() {
    let mut drain = DurableDrain::default();
    drain.handle(NOW, view(true));
    let first = missed(&mut drain, NOW);
    let (call, second) = ordered(&mut drain);
    assert_ne!(first, second);
    drain.handle(NOW, DurableInput::Restored { call, answer: Ok(vec![Tier::Dram]) });
    let (_, report) = reported(&mut drain);
    assert_eq!((report.progress.restored.len(), report.missing), (1, Vec::new()));

    let DurableInput::View { work, mut nodes, losses } = view(true) else { panic!("a view") };
    nodes.truncate(1);
    let mut drain = DurableDrain::default();
    drain.handle(NOW, DurableInput::View { work, nodes, losses });
    let first = missed(&mut drain, NOW);
    let (call, report) = reported(&mut drain);
    let (directory, why) = &report.progress.stalled[0];
    assert_eq!((*directory, report.missing), (DIRECTORY, Vec::new()));
    assert!(why.contains("looked for once more"), "{why}");
    drain.handle(NOW, DurableInput::Reported { call, is_done: true });
    assert_eq!(drain.poll_output(), None, "it looks again after a pause");
    let later = NOW + RETRY_MAX;
    assert_eq!(drain.deadline(), Some(later));
    drain.handle_deadline(later);
    assert_eq!(missed(&mut drain, later), first);
    assert_eq!(reported(&mut drain).1.missing, missing());
}

/// A namenode that does not read what is missing refuses the whole report.
#[test]
fn object_whose_report_has_no_answer_is_read_again_and_the_rest_goes_before_it() {
    let mut drain = DurableDrain::default();
    drain.handle(NOW, view(true));
    missed(&mut drain, NOW);
    missed(&mut drain, NOW);
    let (call, report) = reported(&mut drain);
    drain.handle(NOW, DurableInput::Reported { call, is_done: false });
    // It was looked for twice.
    missed(&mut drain, NOW);
    assert_eq!(drain.poll_output(), None, "it is reported after a pause");
    let again = drain.deadline().expect("it is tried again");
    drain.handle_deadline(again);
    let (call, rest) = reported(&mut drain);
    assert_eq!(rest, DurableReport { missing: Vec::new(), ..report });
    let holder = Nonce(1);
    let request = rest.clone().into_request(holder);
    assert_eq!(request, DurableRequest::Progress { holder, progress: rest.progress });
    drain.handle(again, DurableInput::Reported { call, is_done: true });
    assert_eq!(reported(&mut drain).1.missing, missing());
}

#[test]
fn object_is_read_back_by_another_node_after_any_other_failure() {
    let (tier, why) = ("durable".to_owned(), "no answer within 20s".to_owned());
    let refused = DurableCallError::Refused(Refusal::TierFailed { tier, why });
    let reply = Box::new(sanderling_protocol::OrderReply::Done);
    let bad = DurableCallError::BadReply { node: NodeId(1), reply };
    for failure in [refused, bad, lost()] {
        let mut drain = DurableDrain::default();
        drain.handle(NOW, view(true));
        let (call, first) = ordered(&mut drain);
        let stalled = vec![(DIRECTORY, failure.to_string())];
        drain.handle(NOW, DurableInput::Restored { call, answer: Err(failure) });
        let (_, report) = reported(&mut drain);
        assert_eq!(report.progress, DurableProgress { stalled, ..DurableProgress::default() });
        assert!(report.missing.is_empty());
        let again = drain.deadline().expect("it is tried again");
        drain.handle_deadline(again);
        assert_ne!(ordered(&mut drain).1, first);
    }
}

#[test]
fn work_is_read_more_often_the_more_there_is() {
    let mut drain = DurableDrain::default();
    let none = drain.view_pause();
    drain.handle(NOW, view(false));
    let idle = drain.view_pause();
    drain.handle(NOW, view(true));
    let busy = drain.view_pause();
    assert_eq!((busy, idle, none), (Millis(50), Millis(100), Millis(1000)));
}
