//! The random manager: it copies, moves and gives up blocks without sense, and some of its calls
//! come late, twice or with other numbers than they should.
//!
//! It acts by the leadership lease of the manager whose process it is in, so the catalog must bear
//! it: nothing may be lost, copied wrongly or kept for ever, whatever a manager requests in
//! whatever order. It never reports bytes as arrived that did not arrive.

use std::collections::BTreeMap;

use sanderling_core::datanode::PUSH_TIMEOUT;
use sanderling_protocol::limits::BACKGROUND_MOVE_MILLIS_MAX;
use sanderling_protocol::message::{MoveCandidate, MoveCommit, MoveProposal, MovePurpose};
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{
    BlockId, Epoch, NodeId, NodeInfo, Nonce, Order, OrderReply, Refusal, Reply, Request,
};

use crate::context::Context;
use crate::event::{ManagerCall, Purpose, RandomCall, Timer};
use crate::plan::RunPlan;
use crate::random::Random;
use crate::wire::{DataAnswer, DataRequest, Host, RequestBody, Response, data, meta};

/// The random manager of one process.
#[derive(Debug)]
pub(crate) struct RandomManager {
    number: u8,
    /// The id of the process that has the leadership lease.
    holder: Nonce,
    /// All nodes, as the namenode last showed them.
    nodes: Vec<NodeInfo>,
    /// Commits that are made later.
    late: BTreeMap<u64, Vec<MoveCommit>>,
    next_late: u64,
    random: Random,
}

/// Candidates that are looked at together. So few that a node's candidates take several pages.
const PAGE_BLOCKS: u32 = 12;

/// Time of one order to push in milliseconds. Longer than a datanode's own push, so that its answer
/// arrives.
const PUSH_MILLIS: u64 = PUSH_TIMEOUT.0 + 1000;

impl RandomManager {
    pub(crate) fn new(plan: &RunPlan, number: u8) -> Self {
        let random = Random::new(plan.seed, 500 + u64::from(number));
        Self {
            number,
            holder: Nonce(0),
            nodes: Vec::new(),
            late: BTreeMap::new(),
            next_late: 0,
            random,
        }
    }

    /// Begins anew as the manager of another process.
    pub(crate) fn restart(&mut self, holder: Nonce) {
        self.holder = holder;
        self.nodes.clear();
        self.late.clear();
    }

    pub(crate) fn see(&mut self, nodes: &[NodeInfo]) {
        self.nodes = nodes.to_vec();
    }

    fn node(&mut self) -> Option<NodeId> {
        let nodes: Vec<NodeId> = self.nodes.iter().map(|node| node.id).collect();
        (!nodes.is_empty()).then(|| self.random.pick(&nodes))
    }

    /// Draws what is requested for one block.
    fn proposal(&mut self, candidate: &MoveCandidate, is_kind: bool) -> Option<MoveProposal> {
        let to = self.node()?;
        let random = &mut self.random;
        let tier = candidate.tier;
        let tier = if random.permille(800) { tier } else { tier.slower().unwrap_or(tier) };
        let purpose = match random.below(20) {
            0 if !is_kind => MovePurpose::Relocate,
            number if number < 7 => MovePurpose::Rebalance,
            _ => MovePurpose::Precopy,
        };
        let target = self.nodes.iter().find(|node| node.id == to)?;
        let room = target.tiers.iter().find(|usage| usage.tier == tier)?;
        // Where nothing may fail or be lost, the room that writers and drains need is left to them.
        if is_kind && room.used_bytes * 5 > room.capacity_bytes * 2 {
            return None;
        }
        let from_epoch = if random.permille(40) { candidate.epoch.next() } else { candidate.epoch };
        Some(MoveProposal { block: candidate.block, from_epoch, to, tier, purpose })
    }
}

impl RandomManager {
    const fn host(&self) -> Host {
        Host::Manager(self.number)
    }

    fn request(&mut self, context: &mut Context<'_>, request: Request, call: RandomCall) {
        let purpose = Purpose::Manager(self.number, ManagerCall::Random(call));
        context.runtime.call_namenode(self.host(), request, 1000, purpose);
    }

    /// Begins something, or not. Called as often as the manager looks at the drains.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) {
        let holder = self.holder;
        let share = context.runtime.plan().random_manager_permille;
        if share == 0 || context.runtime.is_calm() || !self.random.permille(share) {
            return;
        }
        let Some(node) = self.node() else { return };
        let after = BlockId(self.random.below(40));
        let request = Request::DrainBlocks { holder, node, after, limit: PAGE_BLOCKS };
        self.request(context, request, RandomCall::Page(node));
    }

    pub(crate) fn answered(
        &mut self,
        context: &mut Context<'_>,
        call: RandomCall,
        answer: Option<Response>,
    ) {
        match call {
            RandomCall::Page(node) => {
                if let Some(Ok(Reply::Candidates { candidates, .. })) = meta(answer) {
                    self.choose(context, node, &candidates);
                }
            }
            RandomCall::Reserve(source, moves) => {
                if let Some(Ok(Reply::Epochs(epochs))) = meta(answer) {
                    self.push(context, source, &moves, epochs);
                }
            }
            RandomCall::Push(moves) => {
                let reply = data(answer);
                if let Some(Ok(DataAnswer::Order(OrderReply::Pushed(outcomes)))) = reply {
                    self.commit(context, moves, outcomes);
                }
            }
            RandomCall::Other => {}
        }
    }

    fn choose(&mut self, context: &mut Context<'_>, source: NodeId, candidates: &[MoveCandidate]) {
        let holder = self.holder;
        let is_kind = context.checks.is_kind();
        let (mut moves, mut dropped, mut abandoned) = (Vec::new(), Vec::new(), Vec::new());
        for candidate in candidates {
            if candidate.copy.is_some() && self.random.permille(250) {
                dropped.push(candidate.block);
            } else if candidate.reserved_to.is_some() && self.random.permille(100) {
                abandoned.push(candidate.block);
            } else if self.random.permille(500) {
                moves.extend(self.proposal(candidate, is_kind));
            }
        }
        if !dropped.is_empty() {
            let request = Request::DropCopies { holder, blocks: dropped };
            self.request(context, request, RandomCall::Other);
        }
        if !abandoned.is_empty() {
            let request = Request::Abandon { holder, blocks: abandoned };
            self.request(context, request, RandomCall::Other);
        }
        if !moves.is_empty() {
            let request = Request::Reserve { holder, moves: moves.clone() };
            self.request(context, request, RandomCall::Reserve(source, moves));
        }
    }

    fn push(
        &mut self,
        context: &mut Context<'_>,
        source: NodeId,
        moves: &[MoveProposal],
        epochs: Vec<Result<Epoch, Refusal>>,
    ) {
        let (mut pushes, mut commits) = (Vec::new(), Vec::new());
        for (one, epoch) in moves.iter().zip(epochs) {
            let address = context.namenode.place_of(one.to).map(|place| place.to_string());
            let (Ok(to_epoch), Some(address)) = (epoch, address) else { continue };
            // Reserved, and then forgotten.
            if self.random.permille(60) {
                continue;
            }
            let MoveProposal { block, from_epoch, to, tier, .. } = *one;
            let bytes_max = u32::MAX;
            pushes.push(PushMove { block, from_epoch, to_epoch, to, address, tier, bytes_max });
            commits.push((*one, MoveCommit { block, from_epoch, to_epoch, to, length: 0 }));
        }
        let Some(place) = context.namenode.place_of(source).filter(|_| !pushes.is_empty()) else {
            return;
        };
        let body = RequestBody::Data(source, DataRequest::Order(Order::Push { moves: pushes }));
        let purpose = Purpose::Manager(self.number, ManagerCall::Random(RandomCall::Push(commits)));
        context.runtime.call(self.host(), place, body, PUSH_MILLIS, purpose);
    }

    fn commit(
        &mut self,
        context: &mut Context<'_>,
        moves: Vec<(MoveProposal, MoveCommit)>,
        outcomes: Vec<Result<Pushed, Refusal>>,
    ) {
        let holder = self.holder;
        let arrived = moves.into_iter().zip(outcomes).filter_map(|((asked, one), outcome)| {
            outcome.ok().map(|pushed| (asked, MoveCommit { length: pushed.length, ..one }))
        });
        let (asked, mut moves): (Vec<MoveProposal>, Vec<MoveCommit>) = arrived.unzip();
        if moves.is_empty() {
            return;
        }
        let random = &mut self.random;
        if random.permille(50) {
            // Shorter than what was published, or of an epoch that is over.
            let one = &mut moves[0];
            if random.permille(500) {
                one.length /= 2;
            } else {
                one.from_epoch = one.from_epoch.next();
            }
        }
        let is_late = random.permille(300);
        let is_twice = random.permille(150);
        let is_given_up = random.permille(150);
        let is_wanted_again = random.permille(500);
        if is_given_up {
            let blocks = moves.iter().map(|one| one.block).collect();
            self.request(context, Request::Abandon { holder, blocks }, RandomCall::Other);
            if is_wanted_again {
                // The commit that follows is of bytes that were dropped meanwhile.
                let request = Request::Reserve { holder, moves: asked };
                self.request(context, request, RandomCall::Other);
            }
        }
        if is_late || is_twice {
            self.later(context, moves.clone());
        }
        if !is_late {
            self.request(context, Request::Commit { holder, moves }, RandomCall::Other);
        }
    }

    fn later(&mut self, context: &mut Context<'_>, moves: Vec<MoveCommit>) {
        self.next_late += 1;
        let late = self.next_late;
        self.late.insert(late, moves);
        let longest = self.random.pick(&[300, 3000, BACKGROUND_MOVE_MILLIS_MAX + 2000]);
        let millis = self.random.below(longest);
        context.runtime.set_timer(self.host(), millis * 1000, Timer::Late(late));
    }

    pub(crate) fn late(&mut self, context: &mut Context<'_>, late: u64) {
        let holder = self.holder;
        let Some(moves) = self.late.remove(&late) else { return };
        self.request(context, Request::Commit { holder, moves }, RandomCall::Other);
    }
}
