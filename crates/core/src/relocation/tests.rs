use std::collections::BTreeSet;

use sanderling_protocol::message::{Forecast, MoveCandidate, MoveCommit, MoveProposal};
use sanderling_protocol::node::{Availability, Load, TierUsage};
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{BlockId, Epoch, Millis, ObjectId, Policy, Refusal, Tier};

use super::*;

pub(crate) fn tier(tier: Tier, bytes: u64) -> TierUsage {
    TierUsage { tier, capacity_bytes: bytes, used_bytes: 0, copy_bytes: 0 }
}

pub(crate) fn node(id: u32, dram_bytes: u64) -> NodeInfo {
    NodeInfo {
        id: NodeId(id),
        name: format!("node-{id}"),
        address: format!("host-{id}:1"),
        http_address: String::new(),
        host: format!("host-{id}"),
        policy: Policy::Active,
        availability: Availability::Up,
        tiers: vec![tier(Tier::Dram, dram_bytes)],
        blocks: 0,
        home_bytes: 0,
        budget_bytes: 0,
        copy_bytes: 0,
        notice_min: Millis(30_000),
        egress_bytes_per_second: 0,
        is_at_risk: false,
        expected_life: None,
        exposure_bytes: 0,
        deadline_in: None,
        reason: String::new(),
        drain: None,
        load: Load::default(),
        heartbeat_age: Millis(0),
        age: Millis(0),
    }
}

pub(crate) fn candidate(block: u64, bytes: u32) -> MoveCandidate {
    MoveCandidate {
        block: BlockId(block),
        epoch: Epoch(1),
        length: bytes,
        reserve_bytes: bytes,
        tier: Tier::Dram,
        object: ObjectId(block),
        job: None,
        expires_in: None,
        recompute_millis_per_mib: 0,
        is_open: false,
        reserved_to: None,
        copy: None,
        expected_reads: 1,
        idle: Millis(0),
    }
}

/// A namenode and datanodes in a few lines: they do what they are asked, or fail as told.
struct World {
    now: Instant,
    relocator: Relocator,
    deadline: Option<Instant>,
    nodes: Vec<NodeInfo>,
    /// Blocks still on node 0.
    left: BTreeMap<BlockId, MoveCandidate>,
    moved: BTreeMap<BlockId, NodeId>,
    /// Blocks in the order in which they were pushed.
    pushed: Vec<u64>,
    /// Targets that refuse pushes.
    refusing: BTreeSet<NodeId>,
    /// Blocks whose first reservation is refused because their epoch is another.
    stale: BTreeSet<BlockId>,
    /// Calls that fail before one succeeds.
    failing: u32,
    /// Calls made.
    calls: u32,
    widest: usize,
    /// What was forecast, and when.
    forecasts: Vec<(Instant, Forecast)>,
}

impl World {
    fn new(blocks: impl IntoIterator<Item = MoveCandidate>, nodes: Vec<NodeInfo>) -> Self {
        let config = RelocatorConfig { page_blocks_max: 10, ..RelocatorConfig::default() };
        Self {
            now: Instant(1_000_000),
            relocator: Relocator::new(config),
            deadline: Some(Instant(1_000_000) + Millis(30_000)),
            nodes,
            left: blocks.into_iter().map(|block| (block.block, block)).collect(),
            moved: BTreeMap::new(),
            pushed: Vec::new(),
            refusing: BTreeSet::new(),
            stale: BTreeSet::new(),
            failing: 0,
            calls: 0,
            widest: 0,
            forecasts: Vec::new(),
        }
    }

    fn work(&self) -> DrainWork {
        DrainWork {
            node: NodeId(0),
            address: "source:1".to_owned(),
            deadline_in: self.deadline.map(|deadline| self.now.until(deadline)),
            left_blocks: self.left.len() as u64,
            left_bytes: self.left.values().map(|block| u64::from(block.length)).sum(),
        }
    }

    fn view(&mut self) {
        let drains = if self.left.is_empty() { Vec::new() } else { vec![self.work()] };
        self.relocator.handle(self.now, Input::Drains { drains, nodes: self.nodes.clone() });
    }

    /// Answers everything that is asked until nothing is asked any more, then lets time pass, for
    /// at most `millis`.
    fn run(&mut self, millis: u64) {
        let end = self.now + Millis(millis);
        self.view();
        while self.now <= end && !self.left.is_empty() {
            let mut answers = Vec::new();
            while let Some(output) = self.poll() {
                answers.push(self.answer(output));
            }
            self.widest = self.widest.max(self.relocator.batches.len());
            if answers.is_empty() {
                let due = self.relocator.deadline().unwrap_or(end);
                self.now = due.max(self.now + Millis(1)).min(self.now + Millis(50));
                self.view();
                self.relocator.handle_deadline(self.now);
            }
            for answer in answers {
                self.relocator.handle(self.now, answer);
            }
        }
        self.view();
    }

    /// Returns the next output that waits for an answer.
    fn poll(&mut self) -> Option<Output> {
        while let Some(output) = self.relocator.poll_output() {
            match output {
                Output::Forecast { forecast, .. } => self.forecasts.push((self.now, forecast)),
                output => return Some(output),
            }
        }
        None
    }

    fn answer(&mut self, output: Output) -> Input {
        self.calls += 1;
        let is_failing = self.failing > 0;
        self.failing = self.failing.saturating_sub(1);
        match output {
            Output::Fetch { node, after, limit } => {
                let page: Vec<MoveCandidate> =
                    self.left.values().filter(|block| block.block > after).cloned().collect();
                let is_more = page.len() > limit as usize;
                let page = page.into_iter().take(limit as usize).collect();
                Input::Candidates { node, page: (!is_failing).then_some((page, is_more)) }
            }
            Output::Reserve { call, moves } => {
                let reserve = |one: &MoveProposal| {
                    let (block, from, why) = (one.block, one.from_epoch, String::new());
                    let is_stale = self.stale.remove(&block);
                    if is_stale {
                        Err(Refusal::MoveVoid { block, from, why })
                    } else {
                        Ok(Epoch(2))
                    }
                };
                let epochs = moves.iter().map(reserve).collect();
                Input::Reserved { call, epochs: (!is_failing).then_some(epochs) }
            }
            Output::Push { call, moves, .. } => {
                let push = |one: &PushMove| {
                    if self.refusing.contains(&one.to) {
                        Err(Refusal::NodeFull { tier: "dram".to_owned(), bytes: 1 })
                    } else {
                        Ok(Pushed { length: self.left[&one.block].length })
                    }
                };
                let outcomes = moves.iter().map(push).collect();
                self.pushed.extend(moves.iter().map(|one| one.block.0));
                Input::Pushed { call, outcomes: (!is_failing).then_some(outcomes) }
            }
            Output::Commit { call, moves } => {
                if is_failing {
                    return Input::Committed { call, epochs: None };
                }
                let commit = |one: MoveCommit| {
                    let why = String::new();
                    let void = Refusal::MoveVoid { block: one.block, from: one.from_epoch, why };
                    self.left.remove(&one.block).ok_or(void)?;
                    if let Some(node) = self.nodes.iter_mut().find(|node| node.id == one.to) {
                        node.tiers[0].used_bytes += u64::from(one.length);
                    }
                    self.moved.insert(one.block, one.to);
                    Ok(Epoch(2))
                };
                let epochs = moves.into_iter().map(commit).collect();
                Input::Committed { call, epochs: Some(epochs) }
            }
            Output::Forecast { .. } => unreachable!("nobody waits for it"),
            Output::Page { .. } | Output::DropCopies { .. } => {
                unreachable!("a relocator does not ask this")
            }
            Output::Abandon { call, .. } => Input::Abandoned { call, is_done: !is_failing },
        }
    }
}

fn blocks(count: u64, bytes: u32) -> impl Iterator<Item = MoveCandidate> {
    (1..=count).map(move |block| candidate(block, bytes))
}

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

#[test]
fn forecast_is_given_at_the_start_and_not_too_often() {
    let mut world = World::new(blocks(500, 1 << 20), vec![node(1, 1 << 30)]);
    world.run(30_000);
    let (at, first) = world.forecasts[0];
    assert_eq!((at, first.left_bytes, first.targets), (Instant(1_000_000), 500 << 20, 1));
    assert_eq!((first.late_bytes, first.unplaced_bytes), (0, 0));
    for pair in world.forecasts.windows(2) {
        assert!(pair[0].0 + Millis(250) <= pair[1].0, "{pair:?}");
    }
}

#[test]
fn forecast_tells_of_bytes_without_room_and_of_bytes_that_expire() {
    let mut all: Vec<MoveCandidate> = blocks(10, 1000).collect();
    all[0].expires_in = Some(Millis(5_000));
    let mut world = World::new(all, vec![node(1, 4_000)]);
    world.run(2_000);
    let (_, last) = world.forecasts.last().unwrap();
    assert_eq!((last.left_bytes, last.unplaced_bytes, last.skipped_bytes), (5_000, 5_000, 1_000));
}
