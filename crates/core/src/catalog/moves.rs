//! Moves of blocks between nodes: reserve, commit, abandon.

use std::collections::BTreeMap;

use sanderling_protocol::limits::BACKGROUND_MOVE_MILLIS_MAX;
use sanderling_protocol::message::{MoveCommit, MoveProposal, MovePurpose};
use sanderling_protocol::node::Policy;
use sanderling_protocol::{BlockId, Epoch, Millis, NodeId, Refusal, Reply, Tier};

use super::block::Block;
use super::events::Gathered;
use super::fleet::Fleet;
use super::orders::Orders;
use super::room::uses_reserve;
use super::timers::Timer;

impl Fleet<'_> {
    pub(super) fn reserve_all(&mut self, moves: &[MoveProposal], orders: &mut Orders) -> Reply {
        Reply::Epochs(moves.iter().map(|proposal| self.reserve(proposal, orders)).collect())
    }

    /// Reserves one future home. The same proposal again gets the same answer; another target takes
    /// the place of the one before.
    fn reserve(&mut self, proposal: &MoveProposal, orders: &mut Orders) -> Result<Epoch, Refusal> {
        let MoveProposal { block: id, from_epoch, to, tier, purpose } = *proposal;
        let block = self.movable(id, from_epoch)?;
        self.check_purpose(&block, proposal)?;
        if let Some(planned) = block.moving
            && (planned.to, planned.tier) == (to, tier)
        {
            self.blocks.set_purpose(id, purpose);
            self.schedule_end(id, planned.to_epoch, purpose);
            return Ok(planned.to_epoch);
        }
        if self.nodes.get(to).is_none_or(|node| !node.policy.takes_blocks()) {
            let why = "it takes no blocks".to_owned();
            return Err(Refusal::WrongState { node: to, why });
        }
        let bytes = u64::from(block.reserve_bytes());
        if purpose == MovePurpose::Relocate {
            // A second copy of another block is worth less than the last one of this.
            self.make_room_on(to, tier, bytes, orders);
        }
        if self.nodes.get(to).is_none_or(|node| node.free_bytes(tier) < bytes) {
            return Err(Refusal::NodeFull { tier: tier.to_string(), bytes });
        }
        self.void_move(id, orders);
        let to_epoch = self.blocks.reserve(id, (to, tier), purpose, self.nodes);
        let to_epoch = to_epoch.expect("just found");
        self.schedule_end(id, to_epoch, purpose);
        Ok(to_epoch)
    }

    /// Refuses a move that its purpose does not allow, so that no reservation is left that would
    /// never be given back.
    fn check_purpose(&self, block: &Block, proposal: &MoveProposal) -> Result<(), Refusal> {
        let MoveProposal { block: id, from_epoch, to, purpose, .. } = *proposal;
        if block.home == Some(to) {
            return Err(void(id, from_epoch, "it is there already"));
        }
        let source = block.home.and_then(|home| self.nodes.get(home));
        let is_draining = source.is_some_and(|node| node.policy.is_draining());
        let why = match purpose {
            // It would be dropped there when the move is given up.
            _ if block.copy.is_some_and(|copy| copy.node == to) => "its copy is there",
            // A request that is late.
            MovePurpose::Relocate if !is_draining => "its home does not drain any more",
            MovePurpose::Relocate => return Ok(()),
            _ if source.is_none_or(|node| node.policy != Policy::Active) => "its home drains",
            _ if !block.is_ended() => "it is still written",
            MovePurpose::Rebalance if self.takes_reserve(block, proposal.tier) => {
                "the room is kept for nodes that leave"
            }
            MovePurpose::Precopy if block.copy.is_some() => "it has a copy",
            MovePurpose::Precopy if block.is_safe() => "it survives its home",
            _ => return Ok(()),
        };
        Err(void(id, from_epoch, why))
    }

    /// Returns whether a block that comes out of the object tier would use what is kept: in there
    /// it needs no room when nodes leave.
    fn takes_reserve(&self, block: &Block, tier: Tier) -> bool {
        let comes_out = block.tier == Tier::Object && tier != Tier::Object;
        comes_out
            && self.rules.keeps_room_from_moves()
            && uses_reserve(self.nodes, u64::from(block.reserve_bytes()))
    }

    /// Schedules the end of a reservation for a background move, which no drain renews.
    fn schedule_end(&mut self, id: BlockId, to_epoch: Epoch, purpose: MovePurpose) {
        if purpose != MovePurpose::Relocate {
            let until = self.now + Millis(BACKGROUND_MOVE_MILLIS_MAX);
            self.timers.schedule(until, Timer::Move(id, to_epoch));
        }
    }

    pub(super) fn expire_move(&mut self, id: BlockId, to_epoch: Epoch, orders: &mut Orders) {
        let Some(planned) = self.blocks.get(&id).and_then(|block| block.moving) else { return };
        if planned.to_epoch == to_epoch && planned.purpose != MovePurpose::Relocate {
            self.void_move(id, orders);
        }
    }

    fn movable(&self, id: BlockId, from_epoch: Epoch) -> Result<Block, Refusal> {
        let block = self.blocks.get(&id).ok_or_else(|| void(id, from_epoch, "it was deleted"))?;
        if block.is_lost() {
            return Err(void(id, from_epoch, "it was declared lost"));
        }
        if block.epoch != from_epoch {
            return Err(void(id, from_epoch, "it is at another epoch"));
        }
        Ok(*block)
    }

    /// Publishes new homes, and counts those that are new.
    pub(super) fn commit_each(
        &mut self,
        moves: &[MoveCommit],
        orders: &mut Orders,
    ) -> Vec<Result<Epoch, Refusal>> {
        let mut totals: BTreeMap<(NodeId, NodeId, MovePurpose), (u64, u64)> = BTreeMap::new();
        let mut results = Vec::with_capacity(moves.len());
        for commit in moves {
            // A commit that arrives again finds its block at the target already: it counts once.
            let before = self.blocks.get(&commit.block);
            let from = before.and_then(|block| Some((block.home?, block.moving?.purpose)));
            let result = self.commit(commit, orders);
            if let (Ok(_), Some((from, purpose))) = (&result, from) {
                let total = totals.entry((from, commit.to, purpose)).or_default();
                total.0 += 1;
                total.1 += u64::from(commit.length);
            }
            results.push(result);
        }
        for ((from, to, purpose), total) in totals {
            self.count_moves(from, to, purpose, total);
        }
        results
    }

    fn count_moves(
        &mut self,
        from: NodeId,
        to: NodeId,
        purpose: MovePurpose,
        (blocks, bytes): (u64, u64),
    ) {
        let drain = self.nodes.get_mut(from).and_then(|node| node.drain.as_mut());
        if let Some(drain) = drain {
            // Whatever the move was begun for, it has taken the blocks off a draining node.
            drain.moved_blocks += blocks;
            drain.moved_bytes += bytes;
            self.report.moved_bytes += bytes;
            self.gather(Gathered::Moved(from, to), (blocks, bytes));
            self.check_drained(from);
        } else if purpose == MovePurpose::Precopy {
            self.report.copied_bytes += bytes;
            self.gather(Gathered::Copied(from, to), (blocks, bytes));
        } else {
            self.report.rebalanced_bytes += bytes;
            self.gather(Gathered::Rebalanced(from, to), (blocks, bytes));
        }
    }

    /// Publishes one new home, if the block is still where and what it was when the move began.
    fn commit(&mut self, commit: &MoveCommit, orders: &mut Orders) -> Result<Epoch, Refusal> {
        let MoveCommit { block: id, from_epoch, to_epoch, to, length } = *commit;
        if let Some(block) = self.blocks.get(&id)
            && block.home == Some(to)
            && block.moving.is_none()
            && block.epoch > from_epoch
        {
            // The same commit again: its reply was lost.
            return Ok(block.epoch);
        }
        if let Some(copy) = self.blocks.get(&id).and_then(|block| block.copy)
            && (copy.node, copy.epoch) == (to, to_epoch)
        {
            return Ok(copy.epoch);
        }
        let block = self.movable(id, from_epoch)?;
        let planned = block
            .moving
            // The very reservation: the copy of an earlier one may have been dropped since.
            .filter(|planned| planned.to == to && planned.to_epoch == to_epoch)
            .ok_or_else(|| void(id, from_epoch, "the move was given up"))?;
        if length < block.length {
            self.void_move(id, orders);
            return Err(void(id, from_epoch, "the copy is shorter than what was published"));
        }
        let from = block.home.expect("a movable block has a home");
        let stays = self.nodes.get(from).is_some_and(|node| node.policy == Policy::Active);
        if planned.purpose == MovePurpose::Precopy && stays {
            self.blocks.commit_copy(id, self.nodes);
            return Ok(to_epoch);
        }
        // The copy is older than the new home will be.
        self.drop_copy(id, orders);
        self.blocks.commit_home(id, length, self.nodes, self.jobs);
        if self.nodes.get(from).is_some_and(|node| !node.policy.is_draining()) {
            orders.drop_block(from, id, from_epoch);
            self.nodes.forget_left(from, id);
        }
        Ok(planned.to_epoch)
    }

    pub(super) fn abandon(&mut self, blocks: &[BlockId], orders: &mut Orders) {
        for block in blocks {
            self.void_move(*block, orders);
        }
    }
}

fn void(block: BlockId, from: Epoch, why: &str) -> Refusal {
    Refusal::MoveVoid { block, from, why: why.to_owned() }
}
