//! The relocator against the real namenode machine, with calls that fail in every way, by seed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::Machine;
use sanderling_core::catalog::{Command, DatanodeOrder};
use sanderling_core::namenode::{Namenode, NamenodeConfig, Prepared};
use sanderling_core::relocation::{Input, MoveOutput, Relocator, RelocatorConfig};
use sanderling_protocol::message::{Attributes, BlockLength, Create, Heartbeat, Register};
use sanderling_protocol::node::{Load, TierCapacity};
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{
    BlockId, ClusterId, Epoch, Instant, Millis, NodeId, Nonce, Order, OrderReply, Policy, Refusal,
    Reply, Request, Tier,
};

const MANAGER: Nonce = Nonce(99);

/// A small generator; its quality does not matter, its repeatability does.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % bound
    }

    fn hits(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

struct World {
    now: Instant,
    dice: Dice,
    /// Percent of calls that fail, half of them after they were done.
    faults: u64,
    namenode: Namenode,
    relocator: Relocator,
    /// What datanodes hold.
    held: BTreeMap<(NodeId, BlockId), (Epoch, u32)>,
    alive: BTreeSet<NodeId>,
    /// Answers on their way, by when they arrive.
    answers: BTreeMap<(Instant, u64), Input>,
    sent: u64,
    look_at: Instant,
    beat_at: Instant,
    /// Calls of any kind, so that a storm is seen.
    calls: u64,
}

impl World {
    fn new(seed: u64, faults: u64) -> Self {
        let now = Instant(1_000_000);
        let mut world = Self {
            now,
            dice: Dice(seed),
            faults,
            namenode: Namenode::new(NamenodeConfig::default(), ClusterId(1)),
            relocator: Relocator::new(RelocatorConfig::default()),
            held: BTreeMap::new(),
            alive: BTreeSet::new(),
            answers: BTreeMap::new(),
            sent: 0,
            look_at: now,
            beat_at: now,
            calls: 0,
        };
        let lease = Millis(1_000_000);
        world.call(Request::Manage { holder: MANAGER, name: "m".into(), lease }).unwrap();
        world
    }

    fn call(&mut self, request: Request) -> Result<Reply, Refusal> {
        match self.namenode.prepare(self.now, request) {
            Prepared::Answer(answer) => answer,
            Prepared::Log(command) => {
                let applied = self.namenode.apply(&command);
                self.obey(applied.orders);
                applied.result
            }
        }
    }

    /// Carries out the orders to datanodes.
    fn obey(&mut self, orders: Vec<DatanodeOrder>) {
        for order in orders {
            let reply = match &order.order {
                Order::Drop { blocks } => {
                    for (block, epoch) in blocks {
                        let key = (order.node, *block);
                        if self.held.get(&key).is_some_and(|(held, _)| held <= epoch) {
                            self.held.remove(&key);
                        }
                    }
                    OrderReply::Done
                }
                Order::FenceBlocks { blocks } => {
                    let fence = |(block, epoch): &(BlockId, Epoch)| {
                        let held = self.held.get_mut(&(order.node, *block));
                        held.map_or(0, |held| {
                            held.0 = held.0.max(*epoch);
                            held.1
                        })
                    };
                    OrderReply::Fenced(blocks.iter().map(fence).collect())
                }
                _ => OrderReply::Done,
            };
            for command in self.namenode.ordered(self.now, &order, Some(reply)) {
                self.apply(&command);
            }
        }
    }

    fn apply(&mut self, command: &Command) {
        let applied = self.namenode.apply(command);
        self.obey(applied.orders);
    }

    fn join(&mut self, nonce: u64, bytes: u64) -> NodeId {
        let register = Register {
            cluster: None,
            nonce: Nonce(nonce),
            name: format!("n{nonce}"),
            address: format!("a:{nonce}"),
            http_address: String::new(),
            host: String::new(),
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes }],
            notice_min: None,
            egress_bytes_per_second: None,
        };
        let Reply::Registered(registered) = self.call(Request::Register(register)).unwrap() else {
            panic!()
        };
        self.alive.insert(registered.node);
        registered.node
    }

    /// Writes a file of one to four blocks of any length, sealed or left open.
    fn write(&mut self, name: u64) {
        let count = 1 + self.dice.below(4);
        let path = format!("/{name}").parse().unwrap();
        let expected_bytes = Some(count << 20);
        let create = Create { expected_bytes, ..Create::new(path, Nonce(name)) };
        let Ok(Reply::Grant(grant)) = self.call(Request::Create(create)) else { return };
        let mut lengths = Vec::new();
        for granted in grant.blocks {
            let length = 1 + self.dice.below(1 << 20) as u32;
            self.held.insert((granted.node, granted.block), (granted.epoch, length));
            lengths.push(BlockLength { block: granted.block, length });
        }
        let (object, lease) = (grant.object, grant.lease);
        let request = if self.dice.hits(80) {
            let attributes = Attributes::none();
            Request::Seal { object, lease, lengths, attributes }
        } else {
            Request::Publish { object, lease, lengths }
        };
        self.call(request).unwrap();
    }

    fn push(&mut self, source: NodeId, one: &PushMove) -> Result<Pushed, Refusal> {
        let Some((_, length)) = self.held.get(&(source, one.block)).copied() else {
            return Err(Refusal::UnknownBlock { block: one.block });
        };
        if !self.alive.contains(&one.to) || self.dice.hits(self.faults) {
            return Err(Refusal::RetryAfter { after: Millis(10), why: "target".into() });
        }
        self.held.insert((one.to, one.block), (one.to_epoch, length));
        Ok(Pushed { length })
    }

    /// Does one call and sends its answer on its way, late, or only that it failed.
    fn perform(&mut self, output: MoveOutput) {
        self.calls += 1;
        let fails = self.dice.hits(self.faults);
        let is_done = !fails || self.dice.hits(50);
        let holder = MANAGER;
        let epochs = |answer: Option<Result<Reply, Refusal>>| match answer {
            Some(Ok(Reply::Epochs(epochs))) if !fails => Some(epochs),
            _ => None,
        };
        let input = match output {
            MoveOutput::Fetch { node, after, limit } => {
                let page = match self.call(Request::DrainBlocks { holder, node, after, limit }) {
                    Ok(Reply::Candidates { candidates, is_more }) if !fails => {
                        Some((candidates, is_more))
                    }
                    _ => None,
                };
                Input::Candidates { node, page }
            }
            MoveOutput::Reserve { call, moves } => {
                let done = is_done.then(|| self.call(Request::Reserve { holder, moves }));
                Input::Reserved { call, epochs: epochs(done) }
            }
            MoveOutput::Commit { call, moves } => {
                let done = is_done.then(|| self.call(Request::Commit { holder, moves }));
                Input::Committed { call, epochs: epochs(done) }
            }
            MoveOutput::Page { .. } | MoveOutput::DropCopies { .. } => {
                unreachable!("a relocator does not request this")
            }
            MoveOutput::Abandon { call, blocks } => {
                if is_done {
                    self.call(Request::Abandon { holder, blocks }).unwrap();
                }
                Input::Abandoned { call, is_done: !fails }
            }
            MoveOutput::Push { call, source, moves, .. } => {
                let can = is_done && self.alive.contains(&source);
                let outcomes: Vec<Result<Pushed, Refusal>> = if can {
                    moves.iter().map(|one| self.push(source, one)).collect()
                } else {
                    Vec::new()
                };
                Input::Pushed { call, outcomes: (can && !fails).then_some(outcomes) }
            }
            MoveOutput::Forecast { node, forecast } => {
                let _ = self.call(Request::Forecast { holder, node, forecast });
                return;
            }
        };
        let delay = if fails { 100 } else { 1 + self.dice.below(20) };
        self.sent += 1;
        self.answers.insert((self.now + Millis(delay), self.sent), input);
    }

    /// Lets time pass until something happens.
    fn step(&mut self) {
        while let Some(output) = self.relocator.poll_output() {
            self.perform(output);
        }
        let next = [
            self.answers.first_key_value().map(|((at, _), _)| *at),
            self.relocator.deadline(),
            self.namenode.deadline(),
            Some(self.look_at),
            Some(self.beat_at),
        ];
        let next = next.into_iter().flatten().min().unwrap();
        self.now = next.max(self.now + Millis(1));
        if self.beat_at <= self.now {
            self.beat_at = self.now + Millis(500);
            for node in self.alive.clone() {
                let nonce = Nonce(u64::from(node.0));
                let beat = Heartbeat { node, nonce, load: Load::default() };
                let _ = self.call(Request::Heartbeat(beat));
            }
        }
        for command in self.namenode.tick(self.now) {
            self.apply(&command);
        }
        self.namenode.to_probe(self.now);
        if self.look_at <= self.now {
            self.look_at = self.now + Millis(50);
            let view = self.call(Request::Drains { holder: MANAGER });
            if let Ok(Reply::Drains { drains, nodes }) = view {
                self.relocator.handle(self.now, Input::Drains { drains, nodes });
            }
        }
        while let Some(entry) = self.answers.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let input = entry.remove();
            self.relocator.handle(self.now, input);
        }
        if self.relocator.deadline().is_some_and(|due| due <= self.now) {
            self.relocator.handle_deadline(self.now);
        }
    }

    fn policy(&self, node: NodeId) -> Policy {
        self.namenode.node_info(node, self.now).unwrap().policy
    }

    /// Every block that has a home is there, at the epoch that the catalog names.
    fn check(&self) {
        for ((node, block), (epoch, _)) in &self.held {
            if let Some((Some(home), at)) = self.namenode.catalog().block_home(*block)
                && home == *node
            {
                assert_eq!(at, *epoch, "block {block} on its home {node}");
            }
        }
        let fsck = self.namenode.catalog().fsck();
        assert!(fsck.problems.is_empty(), "{:?}", fsck.problems);
    }
}

fn fleet(seed: u64, faults: u64) -> (World, Vec<NodeId>) {
    fleet_of(seed, faults, 400 << 20)
}

fn fleet_of(seed: u64, faults: u64, bytes: u64) -> (World, Vec<NodeId>) {
    let mut world = World::new(seed, faults);
    let nodes: Vec<NodeId> = (1..=5).map(|nonce| world.join(nonce, bytes)).collect();
    for name in 0..100 {
        world.write(name);
    }
    (world, nodes)
}

fn notice(world: &mut World, node: NodeId, deadline_millis: i64) {
    let reason = "spot".to_owned();
    world.call(Request::Notice { node: node.into(), deadline_millis, reason }).unwrap();
}

#[test]
fn noticed_node_is_drained_whatever_calls_fail() {
    for seed in 0..200 {
        let (mut world, nodes) = fleet(seed, seed % 40);
        notice(&mut world, nodes[0], 30_000);
        let began = world.now;
        while world.policy(nodes[0]) == Policy::Draining {
            world.step();
        }
        assert_eq!(world.policy(nodes[0]), Policy::Drained, "seed {seed}");
        assert_eq!(world.namenode.catalog().report().bytes, 0, "seed {seed}");
        world.check();
        let took = world.now.since(began);
        assert!(took.0 < 500 || seed % 40 > 0, "seed {seed}: {took} without a fault");
        assert!(world.calls < 3_000, "seed {seed}: {} calls", world.calls);
    }
}

#[test]
fn nearly_full_fleet_still_takes_everything() {
    for seed in 0..100 {
        let (mut world, nodes) = fleet_of(seed, seed % 20, 40 << 20);
        notice(&mut world, nodes[0], 30_000);
        while world.policy(nodes[0]) == Policy::Draining {
            world.step();
        }
        let room: u64 = nodes[1..]
            .iter()
            .map(|node| world.namenode.catalog().node_room(*node, Tier::Dram).0)
            .sum();
        assert_eq!(world.policy(nodes[0]), Policy::Drained, "seed {seed}: {room} left");
        world.check();
    }
}

#[test]
fn notices_that_follow_each_other_lose_nothing_while_there_is_room() {
    for seed in 0..100 {
        let (mut world, nodes) = fleet(seed, seed % 20);
        let end = world.now + Millis(60_000);
        notice(&mut world, nodes[0], 60_000);
        for (turn, node) in nodes[1..3].iter().enumerate() {
            for _ in 0..20 * (turn + 1) {
                world.step();
            }
            notice(&mut world, *node, 59_000);
        }
        let is_draining =
            |world: &World| nodes.iter().any(|node| world.policy(*node) == Policy::Draining);
        while is_draining(&world) && world.now < end {
            world.step();
        }
        for node in &nodes[..3] {
            assert_eq!(world.policy(*node), Policy::Drained, "seed {seed}, node {node}");
        }
        assert_eq!(world.namenode.catalog().report().bytes, 0, "seed {seed}");
        world.check();
    }
}

#[test]
fn targets_that_die_cost_no_block_that_was_still_on_its_source() {
    for seed in 0..100 {
        let (mut world, nodes) = fleet(seed, seed % 20);
        notice(&mut world, nodes[0], 30_000);
        for _ in 0..5 + seed % 30 {
            world.step();
        }
        world.alive.remove(&nodes[1]);
        let end = world.now + Millis(30_000);
        while world.policy(nodes[0]) == Policy::Draining && world.now < end {
            world.step();
        }
        assert_eq!(world.policy(nodes[0]), Policy::Drained, "seed {seed}");
        let report = world.namenode.catalog().report();
        assert!(report.losses.iter().all(|loss| loss.node == nodes[1]), "seed {seed}");
        world.check();
    }
}

#[test]
fn another_manager_ends_what_the_first_one_began() {
    for seed in 0..100 {
        let (mut world, nodes) = fleet(seed, seed % 20);
        notice(&mut world, nodes[0], 30_000);
        let end = world.now + Millis(30_000);
        let mut steps = 0;
        while world.policy(nodes[0]) == Policy::Draining && world.now < end {
            world.step();
            steps += 1;
            if steps % 25 == 0 && steps < 200 {
                world.relocator = Relocator::new(RelocatorConfig::default());
                world.answers.clear();
            }
        }
        assert_eq!(world.policy(nodes[0]), Policy::Drained, "seed {seed}");
        assert_eq!(world.namenode.catalog().report().bytes, 0, "seed {seed}");
        world.check();
    }
}
