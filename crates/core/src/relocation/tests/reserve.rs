//! Whatever was accepted, any so many nodes can leave by the relocator's own choice of targets.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sanderling_protocol::message::{
    Attributes, BlockLength, Create, Grant, MoveCandidate, MoveCommit, MoveProposal, MovePurpose,
    Register,
};
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::{
    BlockId, ClusterId, Instant, Millis, NodeId, NodeInfo, Nonce, Refusal, Reply, Request, Tier,
};

use super::super::client_traffic::TrafficByNode;
use super::super::targets::{MoveRequest, TargetSearch, Targets};
use crate::catalog::{Action, Catalog, Command};
use crate::moves::Choice;
use crate::namenode::{Namenode, NamenodeConfig, Prepared};
use crate::reserve::Departures;

const NOW: Instant = Instant(1_000_000);
const HOLDER: Nonce = Nonce(99);
const KIB: u64 = 1 << 10;

/// What clients and the manager do.
#[derive(Debug, Clone)]
enum Step {
    /// Begin an object of so many bytes; leave it open with so many in each block, or end it so.
    Write { bytes: u64, length: u32, is_sealed: bool },
    /// Delete one of the objects.
    Delete(usize),
    /// Copy or move one of the blocks to one of the nodes.
    Move { block: u64, node: usize, tier: Tier, is_copy: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let write = (1..3 * 1024_u64, 0..1024_u32, any::<bool>());
    let write = write.prop_map(|(bytes, length, is_sealed)| {
        let (bytes, length) = (bytes * KIB + 77, length * 1024 + 1);
        Step::Write { bytes, length, is_sealed }
    });
    let tier = prop_oneof![Just(Tier::Dram), Just(Tier::Disk), Just(Tier::Object)];
    let moved = (0..60_u64, 0..6_usize, tier, any::<bool>());
    let moved =
        moved.prop_map(|(block, node, tier, is_copy)| Step::Move { block, node, tier, is_copy });
    prop_oneof![8 => write, 1 => (0..40_usize).prop_map(Step::Delete), 5 => moved]
}

/// Sizes of a node's tiers in KiB: memory, and perhaps a disk and a share of the object tier.
fn tiers() -> impl Strategy<Value = Vec<TierCapacity>> {
    let optional = || prop_oneof![2 => Just(0_u64), 1 => 512..6 * 1024_u64];
    (700..6 * 1024_u64, optional(), optional()).prop_map(|(dram, disk, object)| {
        let tiers = [(Tier::Dram, dram), (Tier::Disk, disk), (Tier::Object, object)];
        let present = tiers.into_iter().filter(|(_, kib)| *kib > 0);
        present.map(|(tier, kib)| TierCapacity { tier, bytes: kib * KIB + 100 }).collect()
    })
}

struct Fleet {
    namenode: Namenode,
    nodes: Vec<NodeId>,
    objects: Vec<String>,
    refused: usize,
}

/// Lets the catalog follow the newest rules, as a start does.
fn apply_rules(namenode: &mut Namenode) {
    let action = Action::Rules { rules: Catalog::RULES, slice: 16 };
    namenode.apply(&Command { at: NOW, action }).result.unwrap();
}

impl Fleet {
    fn new(nodes: Vec<Vec<TierCapacity>>, departures: u32) -> Self {
        let departures = Departures::Fixed(departures);
        let config = NamenodeConfig { departures, ..NamenodeConfig::default() };
        let namenode = Namenode::new(config, ClusterId(7));
        let (nodes_joined, objects) = (Vec::new(), Vec::new());
        let mut fleet = Self { namenode, nodes: nodes_joined, objects, refused: 0 };
        let configure = fleet.namenode.configure(NOW).unwrap();
        fleet.namenode.apply(&configure).result.unwrap();
        apply_rules(&mut fleet.namenode);
        fleet
            .call(Request::Manage {
                holder: HOLDER,
                name: "test".to_owned(),
                lease: Millis::from_secs(1000),
            })
            .unwrap();
        for (at, tiers) in nodes.into_iter().enumerate() {
            let register = Register {
                cluster: None,
                nonce: Nonce(at as u64 + 1),
                name: format!("n{at}"),
                address: format!("n{at}:1"),
                http_address: String::new(),
                host: format!("n{at}"),
                tiers,
                notice_min: None,
                egress_bytes_per_second: None,
            };
            let Ok(Reply::Registered(joined)) = fleet.call(Request::Register(register)) else {
                panic!("not taken")
            };
            fleet.nodes.push(joined.node);
        }
        fleet
    }

    /// Calls as a client does: again, as long as the answer requires.
    fn call(&mut self, request: Request) -> Result<Reply, Refusal> {
        for _ in 0..8 {
            let answer = match self.namenode.prepare(NOW, request.clone()) {
                Prepared::Answer(answer) => answer,
                Prepared::Log(command) => self.namenode.apply(&command).result,
            };
            if !matches!(answer, Err(Refusal::RetryAfter { .. })) {
                return answer;
            }
        }
        Err(Refusal::RetryAfter { after: Millis(1), why: "for ever".to_owned() })
    }

    fn write(&mut self, bytes: u64, length: u32, is_sealed: bool) {
        let path = format!("/o{}", self.objects.len());
        let create =
            Create { expected_bytes: Some(bytes), ..Create::new(path.parse().unwrap(), Nonce(5)) };
        let grant = match self.call(Request::Create(create)) {
            Ok(Reply::Grant(grant)) => grant,
            Ok(other) => panic!("{other:?}"),
            Err(_) => return self.refused += 1,
        };
        self.objects.push(path);
        let Grant { object, lease, blocks, .. } = grant;
        let length = |max: u32| length.min(max);
        let lengths =
            blocks.iter().map(|it| BlockLength { block: it.block, length: length(it.bytes_max) });
        if is_sealed {
            let (lengths, attributes) = (lengths.collect(), Attributes::none());
            self.call(Request::Seal { object, lease, lengths, attributes }).unwrap();
        }
    }

    fn move_block(&mut self, block: u64, node: usize, tier: Tier, is_copy: bool) {
        let (block, to) = (BlockId(block), self.nodes[node % self.nodes.len()]);
        let Some((_, from_epoch)) = self.namenode.catalog().block_home(block) else { return };
        let purpose = if is_copy { MovePurpose::Precopy } else { MovePurpose::Rebalance };
        let moves = vec![MoveProposal { block, from_epoch, to, tier, purpose }];
        let reserved = self.call(Request::Reserve { holder: HOLDER, moves });
        let Ok(Reply::Epochs(epochs)) = reserved else { return };
        let Ok(to_epoch) = epochs[0] else { return };
        if block.0 % 3 == 0 {
            // It stays under way.
            return;
        }
        let length = self.candidates_of(block);
        let moves = vec![MoveCommit { block, from_epoch, to_epoch, to, length }];
        self.call(Request::Commit { holder: HOLDER, moves }).unwrap();
    }

    fn candidates_of(&self, block: BlockId) -> u32 {
        let (home, _) = self.namenode.catalog().block_home(block).unwrap();
        let found = candidates(self.namenode.catalog(), home.unwrap());
        found.iter().find(|it| it.block == block).unwrap().length
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write { bytes, length, is_sealed } => self.write(bytes, length, is_sealed),
            Step::Delete(at) if !self.objects.is_empty() => {
                let path = self.objects[at % self.objects.len()].parse().unwrap();
                let _ = self.call(Request::Delete { path, recursive: false });
            }
            Step::Delete(_) => {}
            Step::Move { block, node, tier, is_copy } => {
                self.move_block(block, node, tier, is_copy);
            }
        }
    }
}

fn candidates(catalog: &Catalog, node: NodeId) -> Vec<MoveCandidate> {
    match catalog.candidates(node, BlockId(0), 4096, NOW) {
        Ok(Reply::Candidates { candidates, .. }) => candidates,
        other => panic!("{other:?}"),
    }
}

fn apply(catalog: &mut Catalog, action: Action) -> Result<Reply, Refusal> {
    catalog.apply(&Command { at: NOW, action }, Millis(500)).result
}

fn view(catalog: &Catalog) -> Targets {
    let ids = catalog.node_ids(false);
    let infos: Vec<NodeInfo> =
        ids.into_iter().filter_map(|id| catalog.node_info(id, NOW)).collect();
    let mut targets = Targets::default();
    targets.replace(NOW, &infos, &TrafficByNode::default(), &BTreeMap::new(), &BTreeMap::new());
    targets
}

/// Moves a block as the relocator does: to where room is reserved for it already, or else what a
/// target refuses is tried elsewhere, and once more with another view. Returns whether it found a
/// place.
fn relocate(catalog: &mut Catalog, from: NodeId, candidate: &MoveCandidate) -> bool {
    let reserved = candidate.reserved_to.map(|(node, tier)| Choice { node, tier });
    if reserved.is_some_and(|choice| move_to(catalog, candidate, choice)) {
        return true;
    }
    for _ in 0..2 {
        let mut targets = view(catalog);
        while let TargetSearch::Go(choice) =
            targets.choose(NOW, MoveRequest::of(candidate, from, usize::MAX))
        {
            if move_to(catalog, candidate, choice) {
                return true;
            }
            targets.fill(choice);
        }
    }
    false
}

fn move_to(catalog: &mut Catalog, candidate: &MoveCandidate, to: Choice) -> bool {
    let (block, from_epoch, purpose) = (candidate.block, candidate.epoch, MovePurpose::Relocate);
    let proposal = MoveProposal { block, from_epoch, to: to.node, tier: to.tier, purpose };
    let reserved = apply(catalog, Action::Reserve { holder: HOLDER, moves: vec![proposal] });
    let Ok(Reply::Epochs(epochs)) = reserved else { panic!("{reserved:?}") };
    let Ok(to_epoch) = epochs[0] else { return false };
    let length = candidate.length;
    let commit = MoveCommit { block, from_epoch, to_epoch, to: to.node, length };
    apply(catalog, Action::Commit { holder: HOLDER, moves: vec![commit] }).unwrap();
    true
}

fn leave(catalog: &mut Catalog, nodes: &[NodeId]) -> Result<(), TestCaseError> {
    for node in nodes {
        let (deadline, reason) = (NOW + Millis::from_secs(900), "spot".to_owned());
        apply(catalog, Action::Notice { node: *node, deadline, reason }).unwrap();
    }
    apply(catalog, Action::Tick).unwrap();
    for node in nodes {
        for candidate in candidates(catalog, *node) {
            let is_placed = relocate(catalog, *node, &candidate);
            prop_assert!(is_placed, "{candidate:?} of {node} has no place in {:?}", catalog.room());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn any_nodes_may_leave_after_whatever_was_accepted(
        nodes in prop::collection::vec(tiers(), 3..6),
        departures in 1..3_u32,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut fleet = Fleet::new(nodes, departures);
        for step in steps {
            fleet.step(step);
        }
        let catalog = fleet.namenode.catalog();
        prop_assert_eq!(catalog.fsck().problems, Vec::<String>::new());
        prop_assert!(catalog.room().fits());
        for (at, first) in fleet.nodes.iter().enumerate() {
            if departures == 1 {
                leave(&mut catalog.clone(), &[*first])?;
                continue;
            }
            for second in &fleet.nodes[at + 1..] {
                leave(&mut catalog.clone(), &[*first, *second])?;
            }
        }
    }
}

#[test]
fn block_whose_room_is_reserved_already_is_moved_there() {
    let dram = |bytes| TierCapacity { tier: Tier::Dram, bytes };
    let object = TierCapacity { tier: Tier::Object, bytes: 2_285_668 };
    let nodes = vec![vec![dram(2_285_668)], vec![dram(2_285_668)], vec![dram(876_644), object]];
    let mut fleet = Fleet::new(nodes, 2);
    let write = |bytes, length, is_sealed| Step::Write { bytes, length, is_sealed };
    for step in [
        write(1101, 1, false),
        Step::Delete(0),
        write(376_909, 1, false),
        write(950_349, 950_273, true),
        Step::Move { block: 3, node: 4, tier: Tier::Dram, is_copy: false },
    ] {
        fleet.step(step);
    }
    let catalog = fleet.namenode.catalog();
    assert!(catalog.room().fits(), "{:?}", catalog.room());
    leave(&mut catalog.clone(), &[fleet.nodes[0], fleet.nodes[2]]).expect("all of it has a place");
}
