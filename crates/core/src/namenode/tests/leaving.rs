//! What a lost end of the log had moved to nodes that leave.

use sanderling_protocol::message::MovePurpose;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{BlockId, Epoch, Millis, Policy, Request};

use super::Rig;
use super::absence::{missing, moved_by_a_lost_end};
use super::cluster::MANAGER;

/// Its notice comes before it has reported what it holds, or after that.
#[test]
fn block_that_a_lost_log_end_had_moved_to_a_leaving_node_is_at_home_there() {
    for is_reported_first in [false, true] {
        let (mut rig, held, home, other) = moved_by_a_lost_end();
        let reason = "spot".to_owned();
        let notice = Request::Notice { node: other.into(), deadline_millis: 60_000, reason };
        let report = Request::BlockReport { node: other, blocks: vec![held] };
        let both = if is_reported_first { [report, notice] } else { [notice, report] };
        both.into_iter().for_each(|request| drop(rig.call(request).unwrap()));
        let policy = |rig: &Rig| rig.namenode.catalog().node_policy(other).unwrap().0;
        assert_eq!(policy(&rig), Policy::Draining, "it may have the only bytes");
        rig.pass(Millis(10_001));
        rig.call(missing(&rig, home, held.block)).unwrap();
        let layout = rig.layout("/file").unwrap();
        assert_eq!((layout.blocks[0].home, layout.blocks[0].epoch), (Some(other), Epoch(2)));
        rig.pass(Millis(30_000));
        assert_eq!(policy(&rig), Policy::Draining, "the block has not left");
    }
}

/// The home has the bytes all the same: what the other one shows is a copy that dies with it.
#[test]
fn leaving_node_is_drained_when_the_homes_of_what_it_shows_have_had_their_time() {
    let (mut rig, held, home, other) = moved_by_a_lost_end();
    let reason = "spot".to_owned();
    let notice = Request::Notice { node: other.into(), deadline_millis: 60_000, reason };
    rig.call(notice).unwrap();
    rig.call(Request::BlockReport { node: other, blocks: vec![held] }).unwrap();
    rig.pass(Millis(29_000));
    assert_eq!(rig.namenode.catalog().node_policy(other).unwrap().0, Policy::Draining);
    rig.pass(Millis(1_100));
    assert_eq!(rig.namenode.catalog().node_policy(other).unwrap().0, Policy::Drained);
    assert_eq!(rig.namenode.catalog().block_home(held.block).unwrap().0, Some(home));
}

/// What is gone with it is counted as lost when the home lacks it, too.
#[test]
fn copy_on_a_node_that_is_gone_saves_nothing() {
    let (mut rig, held, home, other) = moved_by_a_lost_end();
    rig.call(Request::BlockReport { node: other, blocks: vec![held] }).unwrap();
    let reason = "spot".to_owned();
    let notice = Request::Notice { node: other.into(), deadline_millis: 5_000, reason };
    rig.call(notice).unwrap();
    rig.pass(Millis(5_001));
    assert_eq!(rig.namenode.catalog().node_policy(other).unwrap().0, Policy::Gone);
    rig.pass(Millis(5_000));
    rig.call(missing(&rig, home, held.block)).unwrap();
    assert_eq!(rig.stat("/file").unwrap().lost_bytes, 1000);
}

/// It showed the copy while it drained for another reason, so no drain began after the start.
#[test]
fn node_that_drained_before_the_start_is_drained_without_another_notice() {
    let (mut rig, held, _, other) = moved_by_a_lost_end();
    let reason = "smaller".to_owned();
    rig.call(Request::Decommission { node: other.into(), reason }).unwrap();
    rig.start_again(Millis(10), 3);
    let held = HeldBlock { epoch: Epoch(3), ..held };
    rig.call(Request::BlockReport { node: other, blocks: vec![held] }).unwrap();
    rig.pass(Millis(31_000));
    assert_eq!(rig.namenode.catalog().node_policy(other).unwrap().0, Policy::Drained);
}

/// A manager that makes no copies drops what it does not need as soon as all nodes have reported.
#[test]
fn copy_of_a_lost_log_end_is_kept_until_its_home_has_been_believed() {
    let (mut rig, held, home, other) = moved_by_a_lost_end();
    let (holder, name, lease) = (MANAGER, "manager".to_owned(), Millis(600_000));
    rig.call(Request::Manage { holder, name, lease }).unwrap();
    rig.call(Request::BlockReport { node: other, blocks: vec![held] }).unwrap();
    for node in [home, other] {
        let nonce = rig.namenode.catalog().node_nonce(node).unwrap();
        let (after, limit) = (BlockId(0), 10);
        rig.call(Request::ExpectedBlocks { node, nonce, after, limit }).unwrap();
    }
    rig.pass(Millis(3_000));
    rig.call(Request::DropCopies { holder, blocks: vec![held.block] }).unwrap();
    rig.pass(Millis(7_001));
    rig.call(missing(&rig, home, held.block)).unwrap();
    assert_eq!(rig.layout("/file").unwrap().blocks[0].home, Some(other));
}

/// The second start, or another leader, loses nothing of the log, but the home was not believed
/// before it.
#[test]
fn copy_of_a_lost_log_end_is_kept_through_a_second_start_and_a_change_of_leader() {
    for is_leader in [false, true] {
        let (mut rig, held, home, other) = moved_by_a_lost_end();
        rig.call(Request::BlockReport { node: other, blocks: vec![held] }).unwrap();
        rig.pass(Millis(2_000));
        if is_leader {
            rig.take_over(3);
        } else {
            rig.start_again(Millis(10), 3);
        }
        let (holder, name, lease) = (MANAGER, "manager".to_owned(), Millis(600_000));
        rig.call(Request::Manage { holder, name, lease }).unwrap();
        for node in [home, other] {
            let nonce = rig.namenode.catalog().node_nonce(node).unwrap();
            let (after, limit) = (BlockId(0), 10);
            rig.call(Request::ExpectedBlocks { node, nonce, after, limit }).unwrap();
        }
        rig.pass(Millis(3_000));
        rig.call(Request::DropCopies { holder, blocks: vec![held.block] }).unwrap();
        rig.pass(Millis(7_001));
        rig.call(missing(&rig, home, held.block)).unwrap();
        assert_eq!(rig.layout("/file").unwrap().blocks[0].home, Some(other));
    }
}

/// Its node has not reported when the leader changes, and drains with nothing that the log has.
#[test]
fn leaving_node_shows_what_a_lost_log_end_had_moved_to_it_to_the_next_leader_too() {
    let (mut rig, held, home, other) = moved_by_a_lost_end();
    let reason = "smaller".to_owned();
    rig.call(Request::Decommission { node: other.into(), reason }).unwrap();
    rig.take_over(3);
    assert_eq!(rig.policy(other), Policy::Decommissioning, "it may have the only bytes");
    rig.call(Request::BlockReport { node: other, blocks: vec![held] }).unwrap();
    rig.pass(Millis(10_001));
    rig.call(missing(&rig, home, held.block)).unwrap();
    assert_eq!(rig.layout("/file").unwrap().blocks[0].home, Some(other));
}

/// A copy that is made later is one like all others, at the next start too.
#[test]
fn copies_of_a_lost_log_end_are_kept_for_a_while_and_no_later_ones() {
    let (mut rig, held, _, other) = moved_by_a_lost_end();
    rig.call(Request::BlockReport { node: other, blocks: vec![held] }).unwrap();
    rig.pass(Millis(31_000));
    rig.start_again(Millis(10), 3);
    let (holder, name, lease) = (MANAGER, "manager".to_owned(), Millis(600_000));
    rig.call(Request::Manage { holder, name, lease }).unwrap();
    let copy = |rig: &Rig| rig.namenode.catalog().block_view(held.block).unwrap().copy;
    assert!(copy(&rig).is_some());
    rig.pass(Millis(10_001));
    rig.call(Request::DropCopies { holder, blocks: vec![held.block] }).unwrap();
    assert!(copy(&rig).is_none(), "its home was believed before");
}

/// What was shown is the home by then: nothing may be missing where the later copy is made from.
#[test]
fn copy_that_is_made_after_a_shown_one_became_the_home_is_given_up_like_any_other() {
    let (mut rig, held, home, other) = moved_by_a_lost_end();
    rig.call(Request::BlockReport { node: other, blocks: vec![held] }).unwrap();
    rig.notice(home, 60_000).unwrap();
    assert_eq!(rig.namenode.catalog().block_home(held.block).unwrap().0, Some(other));
    rig.call(Request::Cancel { node: home.into() }).unwrap();
    rig.manage();
    for node in [home, other] {
        let nonce = rig.namenode.catalog().node_nonce(node).unwrap();
        let (after, limit) = (BlockId(0), 10);
        rig.call(Request::ExpectedBlocks { node, nonce, after, limit }).unwrap();
    }
    rig.pass(Millis(3_000));
    let epoch = rig.begin(held.block, held.epoch, home, MovePurpose::Precopy).unwrap();
    rig.end(held.block, (held.epoch, epoch), home, 1000).unwrap();
    let copy = |rig: &Rig| rig.namenode.catalog().block_view(held.block).unwrap().copy;
    assert!(copy(&rig).is_some());
    rig.call(Request::DropCopies { holder: MANAGER, blocks: vec![held.block] }).unwrap();
    assert_eq!(copy(&rig), None);
}

/// While both leave, the copy is no better off than the block.
#[test]
fn copy_on_a_node_that_stays_after_all_saves_the_block_of_a_node_that_leaves() {
    let (mut rig, held, home, other) = moved_by_a_lost_end();
    rig.call(Request::BlockReport { node: other, blocks: vec![held] }).unwrap();
    for node in [other, home] {
        let reason = "spot".to_owned();
        let notice = Request::Notice { node: node.into(), deadline_millis: 60_000, reason };
        rig.call(notice).unwrap();
    }
    assert_eq!(rig.namenode.catalog().block_home(held.block).unwrap().0, Some(home));
    rig.call(Request::Cancel { node: other.into() }).unwrap();
    assert_eq!(rig.namenode.catalog().block_home(held.block).unwrap().0, Some(other));
}
