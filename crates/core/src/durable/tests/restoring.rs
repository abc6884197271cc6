//! What becomes of lost blocks that a datanode does not read back, and when work is read again.

use sanderling_protocol::message::{DurableLoss, DurableWork, LostBlock, StoreNode};
use sanderling_protocol::{BlockId, Epoch};

use super::*;
use crate::group_view::Repeats;

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

fn reported(drain: &mut DurableDrain) -> DurableProgress {
    match drain.poll_output() {
        Some(DurableOutput::Report { progress, .. }) => progress,
        other => panic!("a call has ended: {other:?}"),
    }
}

#[test]
fn object_is_gone_if_a_datanode_finds_another_one_in_the_store() {
    let mut drain = DurableDrain::default();
    drain.handle(NOW, view(true));
    let (call, _) = ordered(&mut drain);
    let answer = Err(DurableCallError::Refused(Refusal::BlockDamaged { block: BlockId(1) }));
    drain.handle(NOW, DurableInput::Restored { call, answer });
    let why = "the store s does not have it as it was".to_owned();
    let gone = vec![(OBJECT, why)];
    // The store answers, so the directory is stalled no more.
    let stalled = vec![(DIRECTORY, String::new())];
    let expected = DurableProgress { gone, stalled, ..DurableProgress::default() };
    assert_eq!(reported(&mut drain), expected);
}

/// With the report the namenode may have passed from an old name of the object to its new one.
#[test]
fn object_that_was_perhaps_reported_as_gone_is_read_by_the_name_of_a_later_view() {
    let mut drain = DurableDrain::default();
    drain.handle(NOW, view(true));
    let (call, _) = ordered(&mut drain);
    let answer = Err(DurableCallError::Refused(Refusal::BlockDamaged { block: BlockId(1) }));
    drain.handle(NOW, DurableInput::Restored { call, answer });
    let Some(DurableOutput::Report { call, progress }) = drain.poll_output() else {
        panic!("it is gone by this name")
    };
    assert_eq!(progress.gone.len(), 1);
    assert_eq!(report_repeats(&progress), Repeats::Undone, "no other member gets it");
    drain.handle(NOW, DurableInput::Reported { call, is_done: false });
    // This view may have been read before the report.
    drain.handle(NOW, view(true));
    assert_eq!(drain.poll_output(), None);
    let mut later = view(true);
    if let DurableInput::View { losses, .. } = &mut later {
        losses[0].key = "b".to_owned();
    }
    drain.handle(NOW, later);
    let ordered = drain.poll_output();
    let Some(DurableOutput::Restore { loss, .. }) = ordered else { panic!("{ordered:?}") };
    assert_eq!(loss.key, "b");
    let again = drain.deadline().expect("the rest is reported again");
    drain.handle_deadline(again);
    let rest = reported(&mut drain);
    assert!(rest.gone.is_empty());
    assert_eq!(report_repeats(&rest), Repeats::Always);
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
        let report = reported(&mut drain);
        assert_eq!(report, DurableProgress { stalled, ..DurableProgress::default() });
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
