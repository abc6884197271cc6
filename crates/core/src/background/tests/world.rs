//! A namenode and datanodes in a few lines: they do what is requested, or fail as set.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::{DrainWork, MoveCandidate, MovePurpose};
use sanderling_protocol::node::Load;
use sanderling_protocol::order::Pushed;
use sanderling_protocol::{
    BlockId, Epoch, Instant, Millis, NodeId, NodeInfo, Policy, Refusal, Tier,
};

use super::super::{Background, BackgroundConfig};
use crate::Machine;
use crate::relocation::tests::{candidate, node};
use crate::relocation::{CallId, Input, MoveOutput};

/// The length of every block of a test.
pub(super) const BLOCK: u32 = 1 << 16;

/// The link of every node: 100 blocks a second.
pub(super) const EGRESS: u64 = 100 * BLOCK as u64;

/// One block of the world.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) home: NodeId,
    pub(super) candidate: MoveCandidate,
}

/// One push that was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) at: Instant,
    pub(super) source: NodeId,
    pub(super) target: NodeId,
    pub(super) tier: Tier,
    pub(super) block: BlockId,
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) machine: Background,
    pub(super) nodes: Vec<NodeInfo>,
    pub(super) blocks: BTreeMap<BlockId, Kept>,
    pub(super) drains: Vec<DrainWork>,
    pub(super) sent: Vec<Sent>,
    pub(super) dropped: Vec<BlockId>,
    /// Most blocks that a node had alone when a copy had just been dropped.
    pub(super) alone_max: u64,
    pub(super) abandoned: Vec<BlockId>,
    pub(super) reserved: BTreeMap<BlockId, (NodeId, Tier, MovePurpose)>,
    /// Targets that refuse pushes.
    pub(super) refusing: BTreeSet<NodeId>,
    /// Calls that fail before one succeeds.
    pub(super) failing: u32,
    /// Calls whose answers are lost, and those that were made.
    pub(super) is_lost: fn(&MoveOutput) -> bool,
    pub(super) lost: Vec<MoveOutput>,
    /// Every answer is given twice.
    pub(super) is_double: bool,
    pub(super) calls: u32,
}

impl World {
    /// Returns nodes of so many blocks' room each, the first with id 0, and nothing on them.
    pub(super) fn new(rooms: &[u64]) -> Self {
        let mut config = BackgroundConfig { page_blocks_max: 10, ..BackgroundConfig::default() };
        config.rebalance.excess_bytes_min = u64::from(BLOCK);
        let nodes = rooms.iter().enumerate().map(|(id, room)| NodeInfo {
            budget_bytes: 1 << 40,
            egress_bytes_per_second: EGRESS,
            age: Millis::from_secs(3600),
            ..node(u32::try_from(id).unwrap(), room * u64::from(BLOCK))
        });
        Self {
            now: Instant(1_000_000_000),
            machine: Background::new(config),
            nodes: nodes.collect(),
            blocks: BTreeMap::new(),
            drains: Vec::new(),
            sent: Vec::new(),
            dropped: Vec::new(),
            alone_max: 0,
            abandoned: Vec::new(),
            reserved: BTreeMap::new(),
            refusing: BTreeSet::new(),
            failing: 0,
            is_lost: |_| false,
            lost: Vec::new(),
            is_double: false,
            calls: 0,
        }
    }

    /// Puts so many blocks onto a node; the later ones are the older ones.
    pub(super) fn fill(&mut self, home: u32, count: u64) -> Vec<BlockId> {
        let first = self.blocks.len() as u64 + 1;
        (first..first + count).map(|id| self.put(home, id, |_| ())).collect()
    }

    pub(super) fn put(
        &mut self,
        home: u32,
        id: u64,
        change: impl FnOnce(&mut MoveCandidate),
    ) -> BlockId {
        let mut candidate = candidate(id, BLOCK);
        candidate.idle = Millis(10_000 + id * 1000);
        change(&mut candidate);
        self.blocks.insert(BlockId(id), Kept { home: NodeId(home), candidate });
        BlockId(id)
    }

    /// Returns the nodes' rows, with what is on them.
    pub(super) fn view(&self) -> Vec<NodeInfo> {
        let mut nodes = self.nodes.clone();
        for info in &mut nodes {
            (info.home_bytes, info.exposure_bytes) = (0, 0);
            for kept in self.blocks.values() {
                let bytes = u64::from(kept.candidate.length);
                let occupied = u64::from(kept.candidate.reserve_bytes);
                if kept.home == info.id {
                    info.home_bytes += bytes;
                    info.exposure_bytes += if kept.candidate.copy.is_none() { bytes } else { 0 };
                }
                for usage in &mut info.tiers {
                    let is_home = kept.home == info.id && kept.candidate.tier == usage.tier;
                    let is_copy = kept.candidate.copy == Some((info.id, usage.tier));
                    usage.used_bytes += if is_home || is_copy { occupied } else { 0 };
                    usage.copy_bytes += if is_copy { occupied } else { 0 };
                }
            }
            for (block, (to, tier, _)) in &self.reserved {
                let bytes = self.blocks.get(block).map_or(0, |kept| kept.candidate.reserve_bytes);
                for usage in info.tiers.iter_mut().filter(|usage| usage.tier == *tier) {
                    usage.used_bytes += if *to == info.id { u64::from(bytes) } else { 0 };
                }
            }
        }
        nodes
    }

    pub(super) fn info(&self, node: u32) -> NodeInfo {
        self.view().into_iter().find(|info| info.id == NodeId(node)).unwrap()
    }

    pub(super) fn exposed_blocks(&self, node: u32) -> u64 {
        self.info(node).exposure_bytes / u64::from(BLOCK)
    }

    pub(super) fn home_blocks(&self, node: u32) -> u64 {
        self.info(node).home_bytes / u64::from(BLOCK)
    }

    pub(super) fn config(&mut self, change: impl FnOnce(&mut BackgroundConfig)) {
        let mut config = BackgroundConfig { page_blocks_max: 10, ..BackgroundConfig::default() };
        config.rebalance.excess_bytes_min = u64::from(BLOCK);
        change(&mut config);
        self.machine = Background::new(config);
    }

    /// Shows the machine a view, and lets it act for so long with a view every second.
    pub(super) fn run(&mut self, span: Millis) {
        let end = self.now + span;
        while self.now < end {
            let (drains, nodes) = (self.drains.clone(), self.view());
            self.give(Input::Drains { drains, nodes });
            let next_view = (self.now + Millis(1000)).min(end);
            while let Some(due) = self.machine.deadline().filter(|due| *due < next_view) {
                self.now = self.now.max(due);
                self.machine.handle_deadline(self.now);
                self.serve();
            }
            self.now = next_view;
            for info in &mut self.nodes {
                info.age = Millis(info.age.0 + 1000);
            }
        }
    }

    pub(super) fn give(&mut self, input: Input) {
        self.machine.handle(self.now, input);
        self.serve();
    }

    /// Answers everything at once.
    pub(super) fn serve(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            self.calls += 1;
            assert!(self.calls < 200_000, "the machine goes round in circles");
            // A push takes a moment.
            let input = self.answer(output);
            if self.is_double {
                self.machine.handle(self.now, input.clone());
            }
            self.machine.handle(self.now, input);
        }
    }

    pub(super) fn answer(&mut self, output: MoveOutput) -> Input {
        let is_lost = (self.is_lost)(&output);
        let fails = self.failing > 0 || is_lost;
        self.failing = self.failing.saturating_sub(1);
        self.lost.extend(is_lost.then(|| output.clone()));
        match output {
            MoveOutput::Page { call, .. } if fails => Input::Page { call, page: None },
            MoveOutput::Page { call, node, after, limit } => {
                Input::Page { call, page: Some(self.page(node, after, limit)) }
            }
            MoveOutput::Reserve { call, moves } => {
                let epochs = moves.iter().map(|it| self.reserve(it)).collect();
                Input::Reserved { call, epochs: (!fails).then_some(epochs) }
            }
            MoveOutput::Push { call, source, moves, .. } => {
                assert!(!moves.is_empty());
                let outcomes = moves.iter().map(|one| {
                    let (at, target, tier, block) = (self.now, one.to, one.tier, one.block);
                    self.sent.push(Sent { at, source, target, tier, block });
                    match self.refusing.contains(&one.to) {
                        true => Err(Refusal::NodeGone { node: one.to }),
                        false => Ok(Pushed { length: self.blocks[&block].candidate.length }),
                    }
                });
                let outcomes = outcomes.collect();
                Input::Pushed { call, outcomes: (!fails).then_some(outcomes) }
            }
            MoveOutput::Commit { call, moves } => {
                let epochs = moves.iter().map(|it| self.commit(it.block, it.to)).collect();
                Input::Committed { call, epochs: (!fails).then_some(epochs) }
            }
            MoveOutput::Abandon { call, blocks } => {
                for block in &blocks {
                    self.reserved.remove(block);
                }
                self.abandoned.extend(blocks);
                Input::Abandoned { call, is_done: !fails }
            }
            MoveOutput::DropCopies { call, blocks } => {
                for block in &blocks {
                    self.blocks.get_mut(block).unwrap().candidate.copy = None;
                }
                let homes: Vec<u32> = blocks.iter().map(|it| self.blocks[it].home.0).collect();
                let alone = homes.into_iter().map(|home| self.exposed_blocks(home)).max();
                self.alone_max = self.alone_max.max(alone.unwrap_or(0));
                self.dropped.extend(blocks);
                Input::Dropped { call, is_done: true }
            }
            MoveOutput::Fetch { .. } | MoveOutput::Forecast { .. } => {
                unreachable!("the relocator requests these")
            }
        }
    }

    fn page(&self, node: NodeId, after: BlockId, limit: u32) -> (Vec<MoveCandidate>, bool) {
        let of_node = self.blocks.range(BlockId(after.0 + 1)..);
        let mut of_node = of_node.filter(|(_, kept)| kept.home == node);
        let page: Vec<MoveCandidate> = of_node
            .by_ref()
            .take(limit as usize)
            .map(|(block, kept)| MoveCandidate {
                reserved_to: self.reserved.get(block).map(|(to, tier, _)| (*to, *tier)),
                ..kept.candidate.clone()
            })
            .collect();
        (page, of_node.next().is_some())
    }

    fn reserve(
        &mut self,
        it: &sanderling_protocol::message::MoveProposal,
    ) -> Result<Epoch, Refusal> {
        let info = self.info(it.to.0);
        assert_eq!(info.policy, Policy::Active, "{it:?}");
        let kept = &self.blocks[&it.block];
        assert!(kept.home != it.to && !kept.candidate.is_open, "{it:?}");
        assert!(it.purpose != MovePurpose::Relocate);
        let usage = info.tiers.iter().find(|usage| usage.tier == it.tier).unwrap();
        let bytes = u64::from(kept.candidate.reserve_bytes);
        if usage.used_bytes + bytes > usage.capacity_bytes {
            return Err(Refusal::NodeFull { tier: it.tier.to_string(), bytes });
        }
        self.reserved.insert(it.block, (it.to, it.tier, it.purpose));
        Ok(Epoch(9))
    }

    fn commit(&mut self, block: BlockId, to: NodeId) -> Result<Epoch, Refusal> {
        let why = "the move was given up".to_owned();
        let kept = self.blocks.get_mut(&block).unwrap();
        let Some((planned, tier, purpose)) = self.reserved.remove(&block) else {
            // Sent again, because the answer was lost.
            let is_done = kept.home == to || kept.candidate.copy.is_some_and(|it| it.0 == to);
            return match is_done {
                true => Ok(Epoch(9)),
                false => Err(Refusal::MoveVoid { block, from: Epoch(1), why }),
            };
        };
        assert_eq!(planned, to);
        if purpose == MovePurpose::Precopy {
            kept.candidate.copy = Some((to, tier));
        } else {
            (kept.home, kept.candidate.tier, kept.candidate.copy) = (to, tier, None);
        }
        Ok(Epoch(9))
    }

    /// Lets a node's clients read so many bytes within each second from now on.
    pub(super) fn read(&mut self, node: u32, bytes: u64) {
        let info = self.nodes.iter_mut().find(|info| info.id == NodeId(node)).unwrap();
        info.load = Load { read_bytes_total: info.load.read_bytes_total + bytes, ..info.load };
    }

    /// Returns a call of the machine that is not answered.
    pub(super) fn unanswered(&mut self) -> Option<CallId> {
        match self.machine.poll_output()? {
            MoveOutput::Page { call, .. }
            | MoveOutput::Reserve { call, .. }
            | MoveOutput::Push { call, .. }
            | MoveOutput::Commit { call, .. } => Some(call),
            _ => None,
        }
    }
}
