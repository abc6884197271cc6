//! The history of the log: which starts of a namenode wrote it, and which numbers none of them has
//! given out.
//!
//! A crash can take the end of the log with it (the journal is synced in the background by default,
//! and an operator can restore an older copy of the directory). What the lost part has told others
//! (ids of objects, blocks, leases, jobs and nodes) must never be told again with another meaning.
//! So each start skips more numbers than the lost part can have given out, and datanodes remember
//! the place in the log that they heard of last: a log without it is not a continuation.

use std::collections::BTreeSet;

use sanderling_protocol::message::{Join, Joined};
use sanderling_protocol::node::Policy;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{
    BlockId, Epoch, EventKind, Instant, LogPosition, Millis, NodeId, Refusal, Reply, Term, Tier,
};
use serde::{Deserialize, Serialize};

use super::Catalog;
use super::block::{BlockState, Copied};
use super::index::ID_BITS;
use super::orders::Orders;

/// Numbers skipped at every start: what a namenode gives out in a minute at a million a second,
/// several times what it was ever measured to give out. It covers a clock that was set back.
pub const SKIP_MIN: u64 = 1 << 26;

/// Numbers skipped for each second between the last command of the log and the start.
const SKIP_PER_SECOND: u64 = 1 << 20;

/// The longest time for which numbers are skipped: seven weeks. A clock that is wrong by years must
/// not use up the numbers.
const SKIPPED_SECONDS_MAX: u64 = 1 << 22;

/// How many starts begin apart that would take more than their share.
const STRIDES: u64 = 1024;

/// Nodes join less often than objects are made, and their ids have 32 bits: 4096 ids for every
/// start and 64 for each second, but never more than a million.
const NODE_SKIP_SHIFT: u32 = 14;
const NODE_SKIP_MAX: u64 = 1 << 20;

/// Beyond that, a start draws a part below 65,536 with its term: far fewer nodes join in a life of
/// a namenode, so two starts that skip equally many hardly give the same id to two nodes.
const NODE_DRAWN_BITS: u32 = 16;

/// A start takes no more than this share of the numbers that are left, so that no number of starts
/// with a wrong clock uses them up.
const SHARE: u64 = 64;

/// Events skipped at a start: who follows them asks for those after the last one that was heard.
const EVENT_SKIP: u64 = 1 << 20;

/// Most orphaned blocks that are remembered. Beyond it a page that is reported twice, because its
/// reply was lost, is counted twice.
const ORPHANS_KEPT_MAX: usize = 1 << 16;

/// The largest epoch of a block that a datanode is believed: half of those that there are.
const EPOCH_MAX: Epoch = Epoch(1 << 31);

/// Most starts that are remembered, the newest. A datanode that knows only an older one is told
/// that its log has not continued.
const STARTS_KEPT_MAX: usize = 1000;

/// Time after a start in which nodes report what they hold: several attempts to join.
const SETTLE: Millis = Millis(10_000);

/// The numbers that are given out next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// The next object.
    pub object: u64,
    /// The next block.
    pub block: u64,
    /// The next lease.
    pub lease: u64,
    /// The next job.
    pub job: u64,
    /// The next node.
    pub node: u32,
}

/// The starts of namenodes that wrote the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct History {
    starts: Vec<TermStart>,
    /// The term whose end was cut off last, and the commands up to there.
    cut: Option<LogPosition>,
    /// The furthest place that a node was told of and that this log does not contain.
    missing: Option<LogPosition>,
    /// Orphaned blocks that were counted, so that a repeated report does not count them again.
    orphans: BTreeSet<BlockId>,
}

/// One start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct TermStart {
    term: Term,
    /// Commands before its first.
    first: u64,
    /// The numbers that the log before it would have given out next: the first that were skipped.
    before: Numbers,
    /// The numbers that it began with.
    after: Numbers,
}

/// Returns how many numbers a start skips that comes that long after the last command of the log.
///
/// Two starts may read the same log within one second: an older copy of the directory is put back
/// twice, or a crash took the first start. So each adds a part of a second's numbers that it draws
/// with its term; a later second still begins above.
#[must_use]
pub const fn skip_after(absence: Millis, term: Term) -> u64 {
    let seconds = absence.0 / 1000;
    let seconds = if seconds < SKIPPED_SECONDS_MAX { seconds } else { SKIPPED_SECONDS_MAX };
    SKIP_MIN + seconds * SKIP_PER_SECOND + term.0 % SKIP_PER_SECOND
}

impl Numbers {
    /// Returns the numbers after those that a start skips.
    fn skip(self, skip: u64, term: Term) -> Self {
        if skip == 0 {
            return self;
        }
        let drawn = term.0 >> (u64::BITS - NODE_DRAWN_BITS);
        let nodes = (skip >> NODE_SKIP_SHIFT).min(NODE_SKIP_MAX) + drawn;
        let nodes = nodes.min(u64::from(u32::MAX - self.node) / SHARE) as u32;
        let left = (1_u64 << ID_BITS).saturating_sub(self.object.max(self.block));
        // Starts that would take more, by a wrong clock, must begin apart as well.
        let most = left / SHARE;
        let place = most / 2 + term.0 % STRIDES * (most / 2 / STRIDES);
        let skip = if skip > most { place } else { skip };
        Self {
            object: self.object.saturating_add(skip),
            block: self.block.saturating_add(skip),
            lease: self.lease.saturating_add(skip),
            job: self.job.saturating_add(skip),
            node: self.node.saturating_add(nodes),
        }
    }
}

impl Catalog {
    /// Returns the numbers that are given out next.
    #[must_use]
    pub const fn numbers(&self) -> Numbers {
        Numbers {
            object: self.next_object,
            block: self.next_block,
            lease: self.next_lease,
            job: self.next_job,
            node: self.nodes.next_id,
        }
    }

    /// Begins a term: everything that is given out from now on is new, whatever a lost end of the
    /// log had given out.
    pub(super) fn begin_term(&mut self, term: Term, skip: u64) {
        let before = self.numbers();
        let after = before.skip(skip, term);
        self.next_object = after.object;
        self.next_block = after.block;
        self.next_lease = after.lease;
        self.next_job = after.job;
        self.nodes.next_id = after.node;
        // A new cluster has told nobody anything.
        self.events.skip(if skip > 0 { EVENT_SKIP } else { 0 });
        let starts = &mut self.history.starts;
        starts.push(TermStart { term, first: self.index, before, after });
        if starts.len() > STARTS_KEPT_MAX {
            starts.remove(0);
        }
    }

    /// Returns the place in the log after the last command; `None` before the first start that
    /// named its term.
    #[must_use]
    pub fn position(&self) -> Option<LogPosition> {
        let last = self.history.starts.last()?;
        Some(LogPosition { term: last.term, index: self.index })
    }

    /// Tells whether this log goes on from a place: whether everything that its reader was told is
    /// in it.
    #[must_use]
    pub fn continues(&self, place: LogPosition) -> bool {
        self.end_of(place.term).is_some_and(|end| place.index <= end)
    }

    /// Returns how many commands the log has up to the end of a term; `None` for one that it does
    /// not know.
    fn end_of(&self, term: Term) -> Option<u64> {
        let starts = &self.history.starts;
        let at = starts.iter().position(|start| start.term == term)?;
        let end = starts.get(at + 1).map_or(self.index, |next| next.first.saturating_sub(1));
        let cut = self.history.cut.filter(|cut| cut.term == term);
        Some(cut.map_or(end, |cut| cut.index.min(end)))
    }

    /// Notes that what followed the command before this one is gone.
    pub(super) fn cut_here(&mut self) {
        let index = self.index.saturating_sub(1);
        let last = self.history.starts.last();
        self.history.cut = last.map(|start| LogPosition { term: start.term, index });
    }

    /// Tells whether a block's number was skipped: only a lost end of the log can have given it.
    pub(super) fn is_foreign_block(&self, block: BlockId) -> bool {
        let starts = self.history.starts.iter();
        let mut skipped = starts.map(|start| start.before.block..start.after.block);
        block.0 >= self.next_block || skipped.any(|skipped| skipped.contains(&block.0))
    }

    /// Tells whether a node's number was skipped.
    #[must_use]
    pub fn is_foreign_node(&self, node: NodeId) -> bool {
        let starts = self.history.starts.iter();
        let mut skipped = starts.map(|start| start.before.node..start.after.node);
        skipped.any(|skipped| skipped.contains(&node.0))
    }

    /// Returns the answer to a datanode that joins and whose node is known.
    pub(crate) fn joined(&self, welcome: Reply, seen: Option<LogPosition>) -> Reply {
        let Reply::Registered(registered) = welcome else { return welcome };
        let is_continuation = seen.is_none_or(|seen| self.continues(seen));
        let joined = Joined { registered, position: self.position(), is_continuation };
        Reply::Joined(Box::new(joined))
    }

    /// Tells whether it was noted already that this log does not contain a place, or one before it.
    pub(crate) fn is_known_missing(&self, place: LogPosition) -> bool {
        self.history.missing.is_some_and(|known| {
            known == place || (known.term == place.term && known.index >= place.index)
        })
    }

    /// Lets a datanode join that says what it was told of the log.
    pub(super) fn join(
        &mut self,
        join: &Join,
        heartbeat: Millis,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        let Join { register, seen, wiped } = join;
        let is_new = self.node_of(register.nonce).is_none();
        let welcome = self.register(register.clone(), heartbeat, orders)?;
        if let Some(place) = seen.filter(|place| !self.continues(*place)) {
            self.note_missing(place, &register.name, &register.address);
            let lost = wiped.filter(|wiped| is_new && self.nodes.get(wiped.node).is_none());
            if let Some(wiped) = lost {
                self.count_orphans(wiped.node, wiped.blocks, wiped.bytes);
            }
        }
        Ok(self.joined(welcome, *seen))
    }

    /// Reports that the log lacks what a node was told of.
    fn note_missing(&mut self, place: LogPosition, name: &str, address: &str) {
        if self.is_known_missing(place) {
            return;
        }
        self.history.missing = Some(place);
        let commands = self.end_of(place.term).map(|end| place.index.saturating_sub(end));
        let (name, address) = (name.to_owned(), address.to_owned());
        self.emit(EventKind::LogEndLost { name, address, commands });
    }

    /// Returns those blocks of a page that only a lost end of the log can have made and that were
    /// not counted yet.
    fn new_orphans<'a>(&'a self, held: &'a [HeldBlock]) -> impl Iterator<Item = &'a HeldBlock> {
        // The object tier's are asked about by whoever finds them there, deleted ones, too.
        let is_new = |block: &&'a HeldBlock| {
            block.tier != Tier::Object
                && self.is_foreign_block(block.block)
                && !self.history.orphans.contains(&block.block)
        };
        held.iter().filter(is_new)
    }

    /// Tells whether a page of a block report has blocks of a lost end of the log.
    pub(crate) fn has_orphans(&self, node: NodeId, held: &[HeldBlock]) -> bool {
        let is_there = self.nodes.get(node).is_some_and(|node| node.policy != Policy::Gone);
        let is_ahead = |block: &HeldBlock| self.is_ahead(node, block);
        is_there && (self.new_orphans(held).next().is_some() || held.iter().any(is_ahead))
    }

    /// Tells whether a node holds a block as only a lost end of the log can have moved it: at home
    /// at a later epoch than the home's, or elsewhere at an epoch that this log has not given out.
    fn is_ahead(&self, node: NodeId, held: &HeldBlock) -> bool {
        let Some(block) = self.blocks.get(&held.block).filter(|_| held.tier != Tier::Object) else {
            return false;
        };
        // What no log can have given out is a lie, and would use up the epochs.
        if held.epoch > EPOCH_MAX {
            return false;
        }
        if block.home == Some(node) {
            return held.epoch > block.epoch;
        }
        // Copies on a node that leaves save nothing.
        let stays = self.nodes.get(node).is_some_and(|node| node.policy == Policy::Active);
        stays && held.epoch > block.epoch_last
    }

    /// Takes over what the lost end of the log did to a block: its epoch is never given out again,
    /// the home goes on under it, and bytes elsewhere are a copy, which saves the block if the home
    /// has none any more, or leaves. Returns the home of a block that got a copy.
    fn take_ahead(
        &mut self,
        node: NodeId,
        held: &HeldBlock,
        orders: &mut Orders,
    ) -> Option<NodeId> {
        let block = self.blocks.get_mut(&held.block)?;
        block.epoch_last = held.epoch.max(block.epoch_last);
        let is_whole = held.length >= block.length && !block.is_lost();
        if !is_whole || self.nodes.get(node).is_none_or(|node| node.policy == Policy::Gone) {
            return None;
        }
        if block.home == Some(node) {
            block.epoch = held.epoch;
            // What was made or reserved before would carry the epoch back if it became the home.
            self.drop_copy(held.block, orders);
            self.void_move(held.block, orders);
            return None;
        }
        if block.state != BlockState::Ended {
            return None;
        }
        // A copy at an earlier epoch is one that the lost end had left behind, or dropped: a copy
        // never outlives a move of its home, and a node holds a block at one epoch. The same holds
        // of bytes that are on their way for a reservation.
        let home = block.home;
        self.drop_copy(held.block, orders);
        self.void_move(held.block, orders);
        self.add_copy(held.block, Copied { node, tier: held.tier, epoch: held.epoch });
        home
    }

    /// Returns for how long nodes may still have to say what a lost end of the log has made of
    /// blocks; `None` when that is over. A home that lacks a block is not believed before.
    pub(crate) fn settles_in(&self, now: Instant) -> Option<Millis> {
        let is_restart = self.history.starts.len() > 1;
        let (now, end) = (self.service.at(now), self.service.resumed_at() + SETTLE);
        (is_restart && now < end).then(|| now.until(end))
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
                homes.extend(self.take_ahead(node, held, orders));
            }
        }
        // What was moved off a node that leaves is saved there already.
        homes.into_iter().for_each(|home| self.promote_copies(home, orders));
        let answer = self.unwanted(node, held)?;
        let orphans: Vec<HeldBlock> = self.new_orphans(held).copied().collect();
        let bytes = orphans.iter().map(|block| u64::from(block.length)).sum();
        for block in &orphans {
            if self.history.orphans.len() < ORPHANS_KEPT_MAX {
                self.history.orphans.insert(block.block);
            }
        }
        if !orphans.is_empty() {
            self.count_orphans(node, orphans.len() as u64, bytes);
        }
        Ok(answer)
    }

    /// Counts blocks as lost whose objects nobody knows any more.
    fn count_orphans(&mut self, node: NodeId, blocks: u64, bytes: u64) {
        // A peer may say what it likes.
        self.report.blocks = self.report.blocks.saturating_add(blocks);
        self.report.bytes = self.report.bytes.saturating_add(bytes);
        self.emit(EventKind::BlocksOrphaned { node, blocks, bytes });
    }
}
