//! Copies beside the home: made ahead of a notice, they become homes when it comes.

use sanderling_protocol::message::MovePurpose;
use sanderling_protocol::node::Policy;
use sanderling_protocol::{BlockId, Millis, NodeId, Refusal, Tier};

use super::block::InTheWay;
use super::block_map::BlockMap;
use super::events::Gathered;
use super::fleet::Fleet;
use super::members::{NodeRecord, Nodes};
use super::orders::Orders;
use super::shown_moves::ShownMoves;
use super::timers::Timer;

/// The part of a tier that is freed of copies at once when a writer finds no room. As a divisor,
/// 4 %: so that the next writers find room as well, and little is copied again later. Chosen, not
/// measured.
const ROOM_MADE_SHARE: u64 = 25;

/// The retry interval of a writer for which copies were dropped. Meanwhile their datanodes receive
/// the orders, which takes a round trip. Chosen, not measured: several round trips within a
/// cluster.
pub(super) const ROOM_IS_MADE: Millis = Millis(10);

/// What may be done without where others need the room.
pub(super) struct RoomForCopies<'a> {
    pub(super) blocks: &'a BlockMap,
    pub(super) nodes: &'a Nodes,
    /// The copies that stay although their homes stay: those may lack the bytes.
    pub(super) kept: Option<&'a ShownMoves>,
    /// Whether a node's bytes beyond its capacity count.
    pub(super) counts_excess: bool,
    /// Most copies and reservations that give way in one step.
    pub(super) most: usize,
}

impl RoomForCopies<'_> {
    /// Returns whether a copy may be done without: its home stays, and has the bytes. That of a
    /// draining node is about to become the home.
    fn has_copy(&self, id: BlockId) -> bool {
        if self.kept.is_some_and(|kept| kept.contains(id)) {
            return false;
        }
        let home = self.blocks.get(&id).and_then(|block| block.home);
        home.is_some_and(|home| self.nodes.is_active(home))
    }

    /// Returns whether a reservation may be done without: no block must leave its node by it.
    fn has_move(&self, id: BlockId) -> bool {
        let moving = self.blocks.get(&id).and_then(|block| block.moving);
        moving.is_some_and(|planned| planned.purpose != MovePurpose::Relocate) && self.has_copy(id)
    }

    /// Adds to `way` what is to go from a node so that so many bytes are free in a tier:
    /// reservations first, for which nothing was made yet, then the copies of the newest blocks,
    /// which are copied last. Returns the bytes that are free then.
    fn find_on(&self, node: &NodeRecord, tier: Tier, bytes: u64, way: &mut InTheWay) -> u64 {
        let excess = if self.counts_excess { node.excess_bytes(tier) } else { 0 };
        let bytes = bytes.saturating_add(excess);
        let mut made = node.free_bytes(tier);
        let moves = node.held().incoming.iter().filter(|(_, (of, _))| *of == tier);
        for (block, (_, taken)) in moves.filter(|(block, _)| self.has_move(**block)) {
            if made >= bytes || way.len() >= self.most {
                return made.saturating_sub(excess);
            }
            made += taken;
            way.moves.push(*block);
        }
        let copies = node.held().copies.iter().rev().filter(|(_, (of, _))| *of == tier);
        for (block, (_, taken)) in copies.filter(|(block, _)| self.has_copy(**block)) {
            if made >= bytes || way.len() >= self.most {
                return made.saturating_sub(excess);
            }
            made += taken;
            way.copies.push(*block);
        }
        made.saturating_sub(excess)
    }

    /// Returns the copies and reservations to drop so that blocks of so many bytes fit into a tier:
    /// a few of every node, so that the writer does not retry for every block.
    pub(super) fn in_the_way(&self, tier: Tier, bytes: u64) -> InTheWay {
        let mut way = InTheWay::default();
        for (_, node) in self.nodes.iter().filter(|(_, node)| node.policy.takes_blocks()) {
            let size = node.tiers().iter().find(|state| state.tier == tier);
            let wanted = bytes.max(size.map_or(0, |state| state.capacity / ROOM_MADE_SHARE));
            self.find_on(node, tier, wanted, &mut way);
        }
        way
    }
}

impl Fleet<'_> {
    fn spare(&self) -> RoomForCopies<'_> {
        RoomForCopies {
            blocks: self.blocks,
            nodes: self.nodes,
            kept: self.keeps_shown_for().is_some().then_some(&*self.shown_moves),
            counts_excess: self.rules.counts_excess(),
            most: self.limits.promoted_per_turn_max,
        }
    }

    /// Gives copies up, but for those whose home began to drain since that was decided.
    pub(super) fn drop_spare(&mut self, blocks: &[BlockId], orders: &mut Orders) {
        for block in blocks {
            if self.spare().has_copy(*block) {
                self.drop_copy(*block, orders);
            }
        }
    }

    /// Gives copies and reservations up for a writer. Returns a refusal that lets it retry when the
    /// datanodes have received the orders.
    pub(super) fn make_room(
        &mut self,
        copies: &[BlockId],
        moves: &[BlockId],
        orders: &mut Orders,
    ) -> Refusal {
        let way = InTheWay { copies: copies.to_vec(), moves: moves.to_vec() };
        self.give_way(&way, orders);
        let why = format!("{} copies and {} moves make room", copies.len(), moves.len());
        Refusal::RetryAfter { after: ROOM_IS_MADE, why }
    }

    fn give_way(&mut self, way: &InTheWay, orders: &mut Orders) {
        for block in &way.moves {
            if self.spare().has_move(*block) {
                self.void_move(*block, orders);
            }
        }
        self.drop_spare(&way.copies, orders);
    }

    /// Gives up as many copies and reservations on a node as a last copy of so many bytes needs
    /// room there. Copies whose home leaves are about to become homes and stay.
    pub(super) fn make_room_on(
        &mut self,
        node: NodeId,
        tier: Tier,
        bytes: u64,
        orders: &mut Orders,
    ) {
        let Some(held) = self.nodes.get(node) else { return };
        let mut way = InTheWay::default();
        if self.spare().find_on(held, tier, bytes, &mut way) >= bytes {
            self.give_way(&way, orders);
        }
    }

    /// Forgets the copies that a draining node holds of other nodes' blocks: they would die with
    /// it, except those in the object tier, which others go on serving. The node is ordered to drop
    /// them when the notice is taken back.
    ///
    /// For a while after a start those stay that only a lost end of the log can have moved there:
    /// their homes may lack the bytes.
    pub(super) fn leave_copies(&mut self, id: NodeId, orders: &mut Orders) {
        let Some(node) = self.nodes.get(id) else { return };
        let mut copies: Vec<BlockId> = node.held().copies.keys().copied().collect();
        let is_there = node.policy != Policy::Gone;
        if let Some(left) = self.keeps_shown_for().filter(|_| is_there) {
            copies.retain(|block| !self.shown_moves.contains(*block));
            self.timers.schedule(self.now + left, Timer::Promote(id));
        }
        let mut adopters = self.adopters(id);
        for block in copies {
            if let Some(copy) = self.blocks.take_copy(block, self.nodes) {
                self.adopt_copy(block, copy, &mut adopters, orders);
            }
            // What another node serves from now on is what was shown.
            if self.blocks.get(&block).is_none_or(|block| block.copy.is_none()) {
                self.shown_moves.remove(block);
            }
            self.nodes.keep_left(id, block);
        }
    }

    /// Makes homes of the copies of a draining node's blocks, and hands its blocks in the object
    /// tier to others, some at once and the others soon.
    pub(super) fn promote_copies(&mut self, id: NodeId, orders: &mut Orders) {
        let Some(node) = self.nodes.get(id).filter(|node| node.policy != Policy::Active) else {
            return;
        };
        // What a lost end had moved to a node that leaves, too, is no better off there.
        let is_saved = |block: &&BlockId| {
            let copy = self.blocks.get(block).and_then(|block| block.copy);
            !self.rules.learns_moves_of_leaving()
                || copy.is_some_and(|it| self.nodes.is_active(it.node))
        };
        let mut copied = node.held().copied.iter().filter(is_saved).copied();
        let blocks: Vec<BlockId> =
            copied.by_ref().take(self.limits.promoted_per_turn_max).collect();
        let is_more = copied.next().is_some();
        self.promote(id, &blocks, orders);
        let is_more = self.hand_over(id, self.limits.promoted_per_turn_max, orders) || is_more;
        if is_more {
            self.timers.schedule(self.now, Timer::Promote(id));
        }
        if self.rules.learns_moves_of_leaving() {
            self.leave_copies(id, orders);
            self.check_drained(id);
        }
    }

    pub(super) fn promote(&mut self, from: NodeId, blocks: &[BlockId], orders: &mut Orders) {
        let mut bytes = 0;
        for block in blocks {
            bytes += self.blocks.promote(*block, self.nodes, self.jobs, orders);
            self.shown_moves.remove(*block);
        }
        self.count_promoted(from, blocks.len() as u64, bytes);
        for block in blocks {
            let home = self.blocks.get(block).and_then(|block| block.home);
            home.into_iter().for_each(|home| self.drains_again(home));
        }
    }

    /// Lets a node that was drained drain again: it has become the home of a block that a lost end
    /// of the log had moved there.
    fn drains_again(&mut self, id: NodeId) {
        if !self.rules.learns_moves_of_leaving() {
            return;
        }
        let Some(node) = self.nodes.get_mut(id).filter(|it| it.policy == Policy::Drained) else {
            return;
        };
        node.policy = match node.deadline {
            Some(_) => Policy::Draining,
            None => Policy::Decommissioning,
        };
        if let Some(drain) = &mut node.drain {
            drain.ended_at = None;
        }
        self.nodes.mark_fleet_stale();
    }

    /// Counts blocks that got another home without being moved.
    pub(super) fn count_promoted(&mut self, from: NodeId, count: u64, bytes: u64) {
        if count == 0 {
            return;
        }
        if let Some(drain) = self.nodes.get_mut(from).and_then(|node| node.drain.as_mut()) {
            drain.promoted_blocks += count;
            drain.promoted_bytes += bytes;
        }
        self.report.promoted_bytes += bytes;
        self.gather(Gathered::Promoted(from), (count, bytes));
        self.check_drained(from);
    }
}
