//! A lost end of the log: what nodes hold of it, and what it has lost.

use std::collections::BTreeSet;

use sanderling_protocol::event::Loss;
use sanderling_protocol::message::{Join, Joined, MoveCommit};
use sanderling_protocol::node::Policy;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{
    BlockId, Epoch, EventKind, Instant, LogPosition, Millis, NodeId, Refusal, Reply, Term, Tier,
};

use super::Catalog;
use super::block::{Block, BlockState, Copied};
use super::fleet::Fleet;
use super::history::{JournalLoss, UNKNOWN_KEPT};
use super::ids::Numbers;
use super::log::Action;
use super::loss::push_loss;
use super::object::ROOT;
use super::orders::Orders;
use super::timers::Timer;

/// Events skipped at a start: a follower reads those after the last one that it has. A lost end is
/// some seconds long by default; with a million events it would have hundreds of thousands a
/// second.
const EVENT_SKIP: u64 = 1 << 20;

/// The largest epoch of a block that a datanode is believed: half of those that there are.
const EPOCH_MAX: Epoch = Epoch(1 << 31);

impl Catalog {
    /// Returns the numbers that the next object, block, lease, job and node get.
    #[must_use]
    pub const fn numbers(&self) -> Numbers {
        self.ids.numbers(self.nodes.next_id())
    }

    /// Begins a term: everything that is given out from now on is new, whatever a lost end of the
    /// log had given out.
    pub(super) fn begin_term(&mut self, term: Term, skip: u64) {
        let before = self.numbers();
        let after = before.skip(skip, term);
        self.ids.continue_at(&after);
        self.nodes.continue_at(after.node);
        // No event of a new cluster has been read.
        self.events.skip(if skip > 0 { EVENT_SKIP } else { 0 });
        self.history.begin_term(term, self.index, before, after);
    }

    /// Begins the time in which nodes show what a lost end of the log has moved to them: when the
    /// last start skipped numbers, and anew when another start or a change of leader falls into it.
    /// The homes of what was shown before have to be believed once more.
    pub(super) fn begin_to_show(&mut self) {
        let is_open = self.keeps_shown_for().is_some();
        if !is_open {
            self.shown_moves.clear();
        }
        if is_open || self.history.may_lack_end() {
            self.shown_moves.keep_until(self.service.at(self.now) + UNKNOWN_KEPT);
        }
    }

    /// Returns whether a node that leaves may have nothing left to move, and wait for what it may
    /// still be the home of.
    pub(super) fn may_wait_empty(&self) -> bool {
        self.reaping.rules.learns_moves_of_leaving() && self.shown_moves.has_begun()
    }

    /// Returns the place in the log after the last command; `None` before the first start that
    /// named its term.
    #[must_use]
    pub fn position(&self) -> Option<LogPosition> {
        self.history.position(self.index)
    }

    /// Returns whether this log goes on from a place: whether it contains everything up to there.
    #[must_use]
    pub fn continues(&self, place: LogPosition) -> bool {
        self.history.continues(self.index, place)
    }

    /// Returns whether a block's number was skipped: only a lost end of the log can have given it.
    pub(super) fn is_foreign_block(&self, block: BlockId) -> bool {
        self.ids.is_unused(block) || self.history.is_foreign_block(block)
    }

    /// Returns whether a node's number was skipped when a term began: only a lost end of the log
    /// can have given it.
    #[must_use]
    pub fn is_foreign_node(&self, node: NodeId) -> bool {
        self.history.is_foreign_node(node)
    }

    /// Returns whether the log has a record already that it does not contain a place, or one before
    /// it.
    pub(crate) fn is_known_missing(&self, place: LogPosition) -> bool {
        self.history.is_known_missing(place)
    }

    /// Returns the answer to a datanode that joins and whose node is known.
    pub(crate) fn joined(&self, welcome: Reply, seen: Option<LogPosition>) -> Reply {
        let Reply::Registered(registered) = welcome else { return welcome };
        let is_continuation = seen.is_none_or(|seen| self.continues(seen));
        let joined = Joined { registered, position: self.position(), is_continuation };
        Reply::Joined(Box::new(joined))
    }

    /// Registers a datanode. Compares the newest place of the log that it received with this log:
    /// if the log lacks that place, its end was lost, and the catalog notes how much.
    pub(super) fn join(
        &mut self,
        join: &Join,
        heartbeat: Millis,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        let Join { register, seen, wiped } = join;
        let is_new = self.node_of(register.nonce).is_none();
        let is_of_lost_end = seen.is_some_and(|place| !self.continues(place));
        let welcome = self.register(register.clone(), is_of_lost_end, heartbeat, orders)?;
        if let Some(place) = seen.filter(|place| !self.continues(*place)) {
            self.note_missing(place, &register.name, &register.address);
            let lost = wiped.filter(|wiped| is_new && self.nodes.get(wiped.node).is_none());
            if let Some(wiped) = lost {
                self.count_orphans(wiped.node, wiped.blocks, wiped.bytes);
            }
        }
        Ok(self.joined(welcome, *seen))
    }

    /// Reports that the log lacks a place that a node received.
    fn note_missing(&mut self, place: LogPosition, name: &str, address: &str) {
        if self.is_known_missing(place) {
            return;
        }
        self.history.note_missing(place);
        let commands =
            self.history.end_of(self.index, place.term).map(|end| place.index.saturating_sub(end));
        let (name, address) = (name.to_owned(), address.to_owned());
        self.emit(EventKind::LogEndLost { name, address, commands });
    }

    /// Returns those blocks of a page that only a lost end of the log can have made and that were
    /// not counted yet.
    fn new_orphans<'a>(&'a self, held: &'a [HeldBlock]) -> impl Iterator<Item = &'a HeldBlock> {
        // Every node that finds a block in the object tier reports it, also a deleted one.
        let is_new = |block: &&'a HeldBlock| {
            block.tier != Tier::Object
                && self.is_foreign_block(block.block)
                && !self.history.is_counted(block.block)
        };
        held.iter().filter(is_new)
    }

    /// Returns whether a page of a block report has blocks of a lost end of the log.
    pub(crate) fn has_orphans(&self, node: NodeId, held: &[HeldBlock]) -> bool {
        let is_there = self.nodes.get(node).is_some_and(|node| node.policy != Policy::Gone);
        let is_moved = |block: &HeldBlock| {
            self.is_ahead(node, block) || self.stored_move(node, block).is_some()
        };
        is_there && (self.new_orphans(held).next().is_some() || held.iter().any(is_moved))
    }

    /// Returns whether the namenode has started so recently that what the log does not know stays
    /// where it is.
    pub(crate) fn keeps_unknown(&self, now: Instant) -> bool {
        self.history.keeps_unknown(&self.service, now)
    }

    /// Returns whether a node keeps a block although only a lost end of the log can have made it.
    /// One that was counted as lost is not kept.
    pub(crate) fn keeps_orphan(&self, now: Instant, held: &HeldBlock) -> bool {
        let is_orphan =
            || self.is_foreign_block(held.block) && !self.history.is_counted(held.block);
        self.keeps_unknown(now) && is_orphan()
    }

    /// Returns whether a node keeps a block although it is unwanted there: only a lost end of the
    /// log can have made the block, or have moved it there.
    pub(super) fn keeps(&self, now: Instant, held: &HeldBlock) -> bool {
        let is_moved = || {
            let block = self.blocks.get(&held.block);
            held.epoch <= EPOCH_MAX && block.is_some_and(|block| held.epoch > block.epoch_last)
        };
        self.keeps_orphan(now, held) || (self.keeps_unknown(now) && is_moved())
    }

    /// Returns whether only a lost end of the log can have moved a block to where a node holds it:
    /// at home at a later epoch than the home's, elsewhere at an epoch that this log has not given
    /// out, or where the copy is, at a later epoch than the copy's. A node holds a block at one
    /// epoch, so what the log has there is gone, whether the later epoch was given out again or
    /// not.
    ///
    /// An object of the object tier shows that only at the node that serves it: others that find it
    /// name it without a length.
    fn is_ahead(&self, node: NodeId, held: &HeldBlock) -> bool {
        let Some(block) = self.blocks.get(&held.block) else { return false };
        // What no log can have given out is a lie, and would use up the epochs.
        if held.epoch > EPOCH_MAX {
            return false;
        }
        if held.tier == Tier::Object {
            let is_serving = held.length > 0 && held.length >= block.length;
            let is_elsewhere = block.home != Some(node) && self.nodes.is_active(node);
            return self.reaping.rules.learns_moves()
                && is_serving
                && is_elsewhere
                && held.epoch > block.epoch_last;
        }
        if block.home == Some(node) {
            return held.epoch > block.epoch;
        }
        let stays = self.may_have_saved(node);
        let is_copy = block
            .copy
            .is_some_and(|copy| copy.node == node && held.epoch > copy.epoch.max(block.epoch));
        // What is just moved there may be at its new epoch already.
        let is_target = block.moving.is_some_and(|planned| planned.to == node);
        stays && (held.epoch > block.epoch_last || (is_copy && !is_target))
    }

    /// Returns whether what a node holds counts although the log does not know it. A node that
    /// leaves may have the only bytes, and moves them before it goes.
    fn may_have_saved(&self, node: NodeId) -> bool {
        let learns = self.reaping.rules.learns_moves_of_leaving();
        let policy = self.nodes.get(node).map(|node| node.policy);
        policy.is_some_and(|it| it == Policy::Active || (learns && it != Policy::Gone))
    }

    /// Returns for how long copies stay that nodes have shown: see
    /// [`ShownMoves::kept_for`](super::shown_moves::ShownMoves::kept_for).
    pub(super) fn keeps_shown_for(&self) -> Option<Millis> {
        self.shown_moves.kept_for(self.service.at(self.now), self.reaping.rules)
    }

    /// Returns the commit of a move whose target has everything, if a start has found it reserved:
    /// a lost end of the log may have committed it, and the old home may be gone.
    fn stored_move(&self, node: NodeId, held: &HeldBlock) -> Option<MoveCommit> {
        let is_new = self.reaping.rules.learns_moves() && self.keeps_unknown(self.now);
        let is_ended = |block: &&Block| block.state == BlockState::Ended;
        let block = self.blocks.get(&held.block).filter(|block| is_new && is_ended(block))?;
        let planned = block.moving?;
        let is_it = (planned.to, planned.to_epoch, planned.tier) == (node, held.epoch, held.tier);
        (is_it && held.length >= block.length && held.length > 0).then_some(MoveCommit {
            block: held.block,
            from_epoch: block.epoch,
            to_epoch: planned.to_epoch,
            to: node,
            length: held.length,
        })
    }

    /// Counts blocks of a lost end of the log as lost, and lets the node drop them.
    pub(super) fn orphans(
        &mut self,
        node: NodeId,
        held: &[HeldBlock],
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        let mut homes = BTreeSet::new();
        for held in held {
            // A page may name a block twice: the second time it is not ahead any more.
            if self.is_ahead(node, held) {
                homes.extend(self.fleet().take_ahead(node, held, orders));
            }
        }
        let stored: Vec<MoveCommit> =
            held.iter().filter_map(|held| self.stored_move(node, held)).collect();
        // What is refused stays reserved: the manager repeats its commit.
        self.fleet().commit_each(&stored, orders);
        if self.reaping.rules.learns_moves_of_leaving() {
            // The lost end may have made it the home.
            let blocks = &self.blocks;
            let is_copy = |it: &&MoveCommit| {
                let copy = blocks.get(&it.block).and_then(|block| block.copy);
                copy.is_some_and(|copy| (copy.node, copy.epoch) == (node, it.to_epoch))
            };
            stored.iter().filter(is_copy).for_each(|it| self.shown_moves.insert(it.block));
        }
        // What was moved off a node that leaves is saved there already.
        homes.into_iter().for_each(|home| self.fleet().promote_copies(home, orders));
        let answer = self.unwanted(self.now, node, held)?;
        let orphans: Vec<HeldBlock> = self.new_orphans(held).copied().collect();
        let bytes = orphans.iter().map(|block| u64::from(block.length)).sum();
        for block in &orphans {
            self.history.count(block.block);
        }
        if !orphans.is_empty() {
            self.count_orphans(node, orphans.len() as u64, bytes);
        }
        Ok(answer)
    }

    /// Counts blocks as lost whose objects are not known any more.
    fn count_orphans(&mut self, node: NodeId, blocks: u64, bytes: u64) {
        // A peer may send any number.
        self.report.blocks = self.report.blocks.saturating_add(blocks);
        self.report.bytes = self.report.bytes.saturating_add(bytes);
        self.emit(EventKind::BlocksOrphaned { node, blocks, bytes });
    }

    /// Returns the sum of what starts of the namenode have found lost of its log.
    #[must_use]
    pub const fn journal_loss(&self) -> JournalLoss {
        self.journal_loss
    }

    /// Reports what a start has found wrong with the log or a snapshot.
    pub(super) fn journal_found(&mut self, action: &Action) {
        match action {
            Action::JournalCut { segment, offset, bytes, records, is_accepted, why } => {
                self.history.cut(self.index - 1);
                self.journal_loss.cuts += 1;
                self.journal_loss.records += records;
                self.journal_loss.bytes += bytes;
                let place = format!("segment {segment} at byte {offset}: {why}");
                let cause = match is_accepted {
                    true => "damage of the journal was accepted",
                    false => "the machine crashed before the disk had the journal",
                };
                let lost = format!(
                    "{cause}: {records} records of changes in {bytes} bytes are gone ({place})"
                );
                self.report_everything(lost);
                let (records, bytes, is_accepted) = (*records, *bytes, *is_accepted);
                self.emit(EventKind::JournalCut { records, bytes, is_accepted, why: place });
            }
            Action::SnapshotSkipped { index, why } => {
                let (commands, why) = (*index, why.clone());
                self.emit(EventKind::SnapshotSkipped { commands, why });
            }
            _ => {}
        }
    }

    /// Puts a loss into the report that may concern any object: it is the root's. Bytes and blocks
    /// are not known, so none are counted.
    fn report_everything(&mut self, why: String) {
        let (at, node, object, path) = (self.now, NodeId(0), ROOT, self.path_or_root(ROOT));
        let (job, blocks, ranges) = (None, Vec::new(), Vec::new());
        let loss = Loss { at, node, why, object, path, job, blocks, ranges };
        push_loss(&mut self.report, loss);
    }
}

impl Fleet<'_> {
    /// Takes over what the lost end of the log did to a block: its epoch is never given out again,
    /// the home goes on under it, and bytes elsewhere are a copy, which saves the block if the home
    /// has none any more, or leaves. Returns the home of a block that got a copy.
    fn take_ahead(
        &mut self,
        node: NodeId,
        held: &HeldBlock,
        orders: &mut Orders,
    ) -> Option<NodeId> {
        self.blocks.pass_epoch(held.block, held.epoch);
        let block = *self.blocks.get(&held.block)?;
        let is_whole = held.length >= block.length && !block.is_lost();
        if !is_whole || self.nodes.get(node).is_none_or(|node| node.policy == Policy::Gone) {
            // A node holds a block at one epoch: what the log has there is gone all the same.
            if block.copy.is_some_and(|copy| copy.node == node && held.epoch > copy.epoch) {
                self.drop_copy(held.block, orders);
            }
            return None;
        }
        if block.home == Some(node) {
            let shown = (held.epoch, held.tier);
            self.blocks.continue_at(held.block, shown, self.nodes);
            // What was made or reserved before would carry the epoch back if it became the home.
            self.drop_copy(held.block, orders);
            self.void_move(held.block, orders);
            return None;
        }
        if !block.is_ended() {
            return None;
        }
        // A copy at an earlier epoch is one that the lost end had left behind, or dropped: a copy
        // never outlives a move of its home, and a node holds a block at one epoch. The same holds
        // of bytes that are on their way for a reservation.
        self.drop_copy(held.block, orders);
        self.void_move(held.block, orders);
        let copy = Copied { node, tier: held.tier, epoch: held.epoch };
        self.blocks.add_copy(held.block, copy, self.nodes);
        if self.rules.learns_moves_of_leaving() {
            self.shown_moves.insert(held.block);
            if let Some(left) = self.keeps_shown_for() {
                self.timers.schedule(self.now + left, Timer::Promote(node));
            }
        }
        block.home
    }
}
