//! What becomes of moves, whatever fails.

use std::collections::BTreeMap;

use sanderling_protocol::message::{DrainWork, MoveCandidate};
use sanderling_protocol::order::Pushed;
use sanderling_protocol::{BlockId, Epoch, Instant, Millis, NodeId, Policy, Refusal, Tier};

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
    let Some(MoveOutput::Reserve { call, moves }) = world.poll() else { panic!() };
    assert_eq!(moves[0].to, NodeId(1));
    world.nodes[0].policy = Policy::Draining;
    world.view();
    let epochs = Some(vec![Ok(Epoch(2))]);
    world.relocator.handle(world.now, Input::Reserved { call, epochs });
    let Some(MoveOutput::Reserve { call, moves }) = world.poll() else { panic!() };
    assert_eq!(moves[0].to, NodeId(2), "at once");
    let epochs = Some(vec![Ok(Epoch(3))]);
    world.relocator.handle(world.now, Input::Reserved { call, epochs });
    let Some(MoveOutput::Push { moves, .. }) = world.poll() else { panic!() };
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
    let Some(MoveOutput::Push { call, moves, .. }) = world.poll() else { panic!() };
    assert_eq!(moves[0].to, NodeId(1));
    world.nodes.remove(0);
    world.run(5_000);
    assert_eq!(world.moved[&BlockId(1)], NodeId(2));
    let late = Input::Pushed { call, outcomes: Some(vec![Ok(Pushed { length: 1000 })]) };
    world.relocator.handle(world.now, late);
    assert_eq!(world.poll(), None);
}

#[test]
fn target_that_gets_a_notice_during_the_push_is_left_at_once() {
    let mut world = World::new(blocks(1, 1000), vec![node(1, 1 << 30), node(2, 1 << 20)]);
    world.view();
    for _ in 0..2 {
        let output = world.poll().unwrap();
        let answer = world.answer(output);
        world.relocator.handle(world.now, answer);
    }
    let Some(MoveOutput::Push { call, .. }) = world.poll() else { panic!() };
    world.nodes[0].policy = Policy::Draining;
    world.view();
    let Some(MoveOutput::Reserve { moves, .. }) = world.poll() else { panic!() };
    assert_eq!(moves[0].to, NodeId(2));
    let late = Input::Pushed { call, outcomes: Some(vec![Ok(Pushed { length: 1000 })]) };
    world.relocator.handle(world.now, late);
    assert_eq!(world.poll(), None, "its copy was given up with its reservation");
}

#[test]
fn commit_refused_because_its_target_drains_is_planned_again_at_once() {
    let mut world = World::new(blocks(1, 1000), vec![node(1, 1 << 30), node(2, 1 << 20)]);
    world.view();
    for _ in 0..3 {
        let output = world.poll().unwrap();
        let answer = world.answer(output);
        world.relocator.handle(world.now, answer);
    }
    let Some(MoveOutput::Commit { call, moves }) = world.poll() else { panic!() };
    world.nodes[0].policy = Policy::Draining;
    world.view();
    let (block, from) = (moves[0].block, moves[0].from_epoch);
    let void = Refusal::MoveVoid { block, from, why: "the move was given up".to_owned() };
    world.relocator.handle(world.now, Input::Committed { call, epochs: Some(vec![Err(void)]) });
    let output = world.poll().unwrap();
    let is_elsewhere =
        matches!(&output, MoveOutput::Reserve { moves, .. } if moves[0].to == NodeId(2));
    assert!(is_elsewhere, "the namenode gave the move up, nothing is left to abandon: {output:?}");
    let answer = world.answer(output);
    world.relocator.handle(world.now, answer);
    world.run(10);
    assert_eq!(world.moved[&BlockId(1)], NodeId(2));
}

#[test]
fn commit_without_an_answer_is_asked_about_longer_than_any_other_call() {
    let mut world = World::new(blocks(1, 1000), vec![node(1, 1 << 30)]);
    world.view();
    for _ in 0..3 {
        let output = world.poll().unwrap();
        let answer = world.answer(output);
        world.relocator.handle(world.now, answer);
    }
    let mut commits = 0;
    while commits <= RelocatorConfig::default().tries_max {
        match world.poll() {
            Some(MoveOutput::Commit { call, .. }) => {
                commits += 1;
                world.relocator.handle(world.now, Input::Committed { call, epochs: None });
            }
            Some(other) => panic!("{other:?} after {commits} commits without an answer"),
            None => {
                world.now = world.relocator.deadline().expect("it is tried again");
                world.relocator.handle_deadline(world.now);
            }
        }
    }
}

#[test]
fn push_without_an_answer_is_given_up_after_a_second_try_and_counts_as_failed() {
    let mut world = World::new(blocks(3, 1000), vec![node(1, 1 << 30)]);
    world.view();
    for _ in 0..2 {
        let output = world.poll().unwrap();
        let answer = world.answer(output);
        world.relocator.handle(world.now, answer);
    }
    let mut pushes = 0;
    let given_up = loop {
        match world.poll() {
            Some(MoveOutput::Push { call, .. }) => {
                pushes += 1;
                world.relocator.handle(world.now, Input::Pushed { call, outcomes: None });
            }
            Some(MoveOutput::Abandon { blocks, .. }) => break blocks,
            Some(other) => panic!("{other:?} after {pushes} pushes without an answer"),
            None => {
                world.now = world.relocator.deadline().expect("it is tried again");
                world.relocator.handle_deadline(world.now);
            }
        }
    };
    assert_eq!((pushes, given_up), (2, [1, 2, 3].map(BlockId).to_vec()));
    assert_eq!(world.relocator.counts().failed_moves, 3);
}

#[test]
fn drains_share_the_targets_that_there_are() {
    let mut relocator = Relocator::new(RelocatorConfig::default());
    let now = Instant(1_000_000);
    let work = |node| DrainWork {
        node: NodeId(node),
        address: format!("source-{node}:1"),
        deadline_in: Some(Millis(10_000)),
        left_blocks: 100,
        left_bytes: 100 << 20,
    };
    let drains = (10..14).map(work).collect();
    relocator.handle(now, Input::Drains { drains, nodes: vec![node(1, 1 << 40)] });
    for source in 10..14_u32 {
        let first = u64::from(source) * 100;
        let page = (first..first + 100).map(|block| candidate(block, 64 << 10)).collect();
        let page = Some((page, false));
        relocator.handle(now, Input::Candidates { node: NodeId(source), page });
    }
    let mut batches = BTreeMap::new();
    while let Some(output) = relocator.poll_output() {
        if let MoveOutput::Reserve { moves, .. } = output {
            *batches.entry(moves[0].block.0 / 100).or_insert(0) += 1;
        }
    }
    assert_eq!(batches, BTreeMap::from([(10, 2), (11, 2), (12, 2), (13, 2)]));
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
    assert_eq!(world.relocator.counts().failed_moves, 1, "the reservation that was refused");
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
        assert!(matches!(output, MoveOutput::Abandon { .. }), "{output:?}");
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
        assert!(!matches!(output, MoveOutput::Push { .. } | MoveOutput::Fetch { .. }));
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
