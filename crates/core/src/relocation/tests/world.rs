//! A fleet without a network: calls are answered at once.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::{DrainWork, Forecast, MoveCandidate, MoveCommit, MoveProposal};
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{BlockId, Epoch, Instant, Millis, NodeId, NodeInfo, Refusal};

use super::super::*;

/// A namenode and datanodes in a few lines: they do what is requested, or fail as set.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) relocator: Relocator,
    pub(super) deadline: Option<Instant>,
    pub(super) nodes: Vec<NodeInfo>,
    /// Blocks still on node 0.
    pub(super) left: BTreeMap<BlockId, MoveCandidate>,
    pub(super) moved: BTreeMap<BlockId, NodeId>,
    /// Blocks in the order in which they were pushed.
    pub(super) pushed: Vec<u64>,
    /// Targets that refuse pushes.
    pub(super) refusing: BTreeSet<NodeId>,
    /// Blocks whose first reservation is refused because their epoch is another.
    pub(super) stale: BTreeSet<BlockId>,
    /// Calls that fail before one succeeds.
    pub(super) failing: u32,
    /// Calls made.
    pub(super) calls: u32,
    pub(super) widest: usize,
    /// What was forecast, and when.
    pub(super) forecasts: Vec<(Instant, Forecast)>,
}

impl World {
    pub(super) fn new(
        blocks: impl IntoIterator<Item = MoveCandidate>,
        nodes: Vec<NodeInfo>,
    ) -> Self {
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

    pub(super) fn work(&self) -> DrainWork {
        DrainWork {
            node: NodeId(0),
            address: "source:1".to_owned(),
            deadline_in: self.deadline.map(|deadline| self.now.until(deadline)),
            left_blocks: self.left.len() as u64,
            left_bytes: self.left.values().map(|block| u64::from(block.length)).sum(),
        }
    }

    pub(super) fn view(&mut self) {
        let drains = if self.left.is_empty() { Vec::new() } else { vec![self.work()] };
        self.relocator.handle(self.now, Input::Drains { drains, nodes: self.nodes.clone() });
    }

    /// Answers all requests until there are none any more, then lets time pass, for
    /// at most `millis`.
    pub(super) fn run(&mut self, millis: u64) {
        let end = self.now + Millis(millis);
        self.view();
        while self.now <= end && !self.left.is_empty() {
            let mut answers = Vec::new();
            while let Some(output) = self.poll() {
                answers.push(self.answer(output));
            }
            self.widest = self.widest.max(self.relocator.moves.batches().count());
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
    pub(super) fn poll(&mut self) -> Option<MoveOutput> {
        while let Some(output) = self.relocator.poll_output() {
            match output {
                MoveOutput::Forecast { forecast, .. } => self.forecasts.push((self.now, forecast)),
                output => return Some(output),
            }
        }
        None
    }

    pub(super) fn answer(&mut self, output: MoveOutput) -> Input {
        self.calls += 1;
        let is_failing = self.failing > 0;
        self.failing = self.failing.saturating_sub(1);
        match output {
            MoveOutput::Fetch { node, after, limit } => {
                let page: Vec<MoveCandidate> =
                    self.left.values().filter(|block| block.block > after).cloned().collect();
                let is_more = page.len() > limit as usize;
                let page = page.into_iter().take(limit as usize).collect();
                Input::Candidates { node, page: (!is_failing).then_some((page, is_more)) }
            }
            MoveOutput::Reserve { call, moves } => {
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
            MoveOutput::Push { call, moves, .. } => {
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
            MoveOutput::Commit { call, moves } => {
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
            MoveOutput::Forecast { .. } => unreachable!("it has no answer"),
            MoveOutput::Page { .. } | MoveOutput::DropCopies { .. } => {
                unreachable!("a relocator does not request this")
            }
            MoveOutput::Abandon { call, .. } => Input::Abandoned { call, is_done: !is_failing },
        }
    }
}
