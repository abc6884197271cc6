//! What becomes of moves, whatever fails.

use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::order::Pushed;
use sanderling_protocol::{BlockId, Epoch, Millis, Policy, Tier};

use super::super::*;
use super::world::World;
use super::{blocks, candidate, node};

#[test]
fn every_block_moves_and_is_spread_over_many_targets() {
    let mut world = World::new(blocks(200, 1 << 20), vec![node(1, 1 << 30), node(2, 1 << 30)]);
    world.run(30_000);
    assert!(world.left.is_empty());
    let first = world.moved.values().filter(|node| **node == NodeId(1)).count();
    assert!((50..=150).contains(&first), "{first} of 200 went to one of two equal nodes");
    assert!(world.relocator.is_idle());
    assert_eq!(world.relocator.counts().moved_blocks, 200);
}

#[test]
fn pushes_under_way_keep_their_bounds() {
    let mut world = World::new(blocks(500, 1 << 20), vec![node(1, 1 << 30)]);
    world.run(30_000);
    assert!(world.left.is_empty());
    assert!(world.widest <= RelocatorConfig::default().target_batches_max, "{}", world.widest);
}

#[test]
fn dearest_block_is_pushed_first() {
    let mut all: Vec<MoveCandidate> = blocks(9, 100).collect();
    all[6].recompute_millis_per_mib = 1000;
    let mut world = World::new(all, vec![node(1, 1 << 30)]);
    world.run(30_000);
    assert_eq!(world.pushed[0], 7);
}

#[test]
fn refusing_target_is_left_for_another_one() {
    let mut world = World::new(blocks(20, 1000), vec![node(1, 1 << 30), node(2, 1 << 20)]);
    world.refusing.insert(NodeId(1));
    world.run(5_000);
    assert!(world.left.is_empty());
    assert!(world.moved.values().all(|node| *node == NodeId(2)));
}

#[test]
fn target_with_its_own_notice_gets_no_more_blocks() {
    let mut world = World::new(blocks(20, 1000), vec![node(1, 1 << 30), node(2, 1 << 20)]);
    world.nodes[0].policy = Policy::Draining;
    world.run(5_000);
    assert!(world.moved.values().all(|node| *node == NodeId(2)));
}

#[test]
fn target_that_got_a_notice_after_the_reservation_is_replanned() {
    let mut world = World::new(blocks(1, 1000), vec![node(1, 1 << 30), node(2, 1 << 20)]);
    world.view();
    let page = world.poll().unwrap();
    let page = world.answer(page);
    world.relocator.handle(world.now, page);
    let Some(Output::Reserve { call, moves }) = world.poll() else { panic!() };
    assert_eq!(moves[0].to, NodeId(1));
    world.nodes[0].policy = Policy::Draining;
    world.view();
    let epochs = Some(vec![Ok(Epoch(2))]);
    world.relocator.handle(world.now, Input::Reserved { call, epochs });
    let Some(Output::Reserve { call, moves }) = world.poll() else { panic!() };
    assert_eq!(moves[0].to, NodeId(2), "at once");
    let epochs = Some(vec![Ok(Epoch(3))]);
    world.relocator.handle(world.now, Input::Reserved { call, epochs });
    let Some(Output::Push { moves, .. }) = world.poll() else { panic!() };
    assert_eq!((moves[0].to, moves[0].to_epoch), (NodeId(2), Epoch(3)));
}

#[test]
fn target_that_dies_during_the_push_is_replanned_before_the_push_fails() {
    let mut world = World::new(blocks(1, 1000), vec![node(1, 1 << 30), node(2, 1 << 20)]);
    world.view();
    for _ in 0..2 {
        let output = world.poll().unwrap();
        let answer = world.answer(output);
        world.relocator.handle(world.now, answer);
    }
    let Some(Output::Push { call, moves, .. }) = world.poll() else { panic!() };
    assert_eq!(moves[0].to, NodeId(1));
    world.nodes.remove(0);
    world.run(5_000);
    assert_eq!(world.moved[&BlockId(1)], NodeId(2));
    let late = Input::Pushed { call, outcomes: Some(vec![Ok(Pushed { length: 1000 })]) };
    world.relocator.handle(world.now, late);
    assert_eq!(world.poll(), None);
}

#[test]
fn reserved_move_of_an_earlier_manager_is_pushed_to_the_same_target() {
    let mut one = candidate(1, 1000);
    one.reserved_to = Some((NodeId(1), Tier::Dram));
    let mut world = World::new([one], vec![node(1, 1000), node(2, 1 << 30)]);
    world.run(5_000);
    assert_eq!(world.moved[&BlockId(1)], NodeId(1));
}

#[test]
fn reserved_move_to_a_node_that_is_gone_is_given_up_and_planned_again() {
    let mut one = candidate(1, 1000);
    one.reserved_to = Some((NodeId(9), Tier::Dram));
    let mut world = World::new([one], vec![node(2, 1 << 30)]);
    world.run(5_000);
    assert_eq!(world.moved[&BlockId(1)], NodeId(2));
}

#[test]
fn failed_calls_are_repeated() {
    for failing in 1..12 {
        let mut world = World::new(blocks(30, 1000), vec![node(1, 1 << 30)]);
        world.failing = failing;
        world.run(20_000);
        assert!(world.left.is_empty(), "{failing} failures");
    }
}

#[test]
fn forgotten_block_is_found_again_while_another_one_waits_for_room() {
    let mut world = World::new([candidate(1, 1 << 20), candidate(2, 1000)], vec![node(1, 2000)]);
    world.stale.insert(BlockId(2));
    world.run(2_000);
    assert_eq!(world.moved.keys().copied().collect::<Vec<_>>(), [BlockId(2)]);
    assert!(world.calls < 200, "{} calls", world.calls);
}

#[test]
fn nothing_is_tried_after_the_deadline() {
    let mut world = World::new(blocks(30, 1000), vec![node(1, 1 << 30)]);
    world.deadline = Some(world.now + Millis(100));
    world.refusing.insert(NodeId(1));
    world.run(1_000);
    assert_eq!(world.left.len(), 30);
    let calls = world.calls;
    world.now = world.now + Millis(10_000);
    world.relocator.handle_deadline(world.now);
    while let Some(output) = world.poll() {
        assert!(matches!(output, Output::Abandon { .. }), "{output:?}");
    }
    assert!(calls < 500, "{calls} calls for thirty blocks that have nowhere to go");
}

#[test]
fn fleet_without_room_is_asked_again_when_there_is_room() {
    let mut world = World::new(blocks(300, 1000), vec![node(1, 10)]);
    world.run(300);
    assert_eq!(world.left.len(), 300);
    world.nodes.push(node(2, 1 << 30));
    world.run(5_000);
    assert!(world.left.is_empty());
}

#[test]
fn cancelled_drain_stops() {
    let mut world = World::new(blocks(100, 1 << 20), vec![node(1, 1 << 30)]);
    world.view();
    let page = world.poll().unwrap();
    let page = world.answer(page);
    world.relocator.handle(world.now, page);
    let reservation = world.poll().unwrap();
    let nodes = world.nodes.clone();
    world.relocator.handle(world.now, Input::Drains { drains: Vec::new(), nodes });
    let reserved = world.answer(reservation);
    world.relocator.handle(world.now, reserved);
    while let Some(output) = world.poll() {
        assert!(!matches!(output, Output::Push { .. } | Output::Fetch { .. }));
    }
}

#[test]
fn answer_that_comes_twice_is_passed_over() {
    let mut world = World::new(blocks(1, 1000), vec![node(1, 1 << 30)]);
    world.view();
    for _ in 0..4 {
        let Some(output) = world.poll() else { break };
        let answer = world.answer(output);
        world.relocator.handle(world.now, answer.clone());
        world.relocator.handle(world.now, answer);
    }
    assert_eq!(world.relocator.counts().moved_blocks, 1);
    assert_eq!(world.pushed, [1]);
}

#[test]
fn same_inputs_give_the_same_outputs() {
    let run = || {
        let mut world = World::new(blocks(100, 5000), vec![node(1, 1 << 20), node(2, 1 << 30)]);
        world.failing = 5;
        world.run(10_000);
        (world.pushed, world.moved, world.now)
    };
    assert_eq!(run(), run());
}
