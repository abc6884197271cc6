//! What moves without a notice: copies ahead of one, and bytes from fuller nodes to emptier ones.
//!
//! Every block takes the way of a relocation, through `moves` with another purpose. Nothing has
//! a deadline here, so little is under way at once, each node sends and stores at a bounded rate,
//! and less while clients keep it busy. The machine holds nothing that must survive: it plans anew
//! from every view, and reservations that are not renewed expire by themselves.
//!
//! The driver answers every output exactly once, with `None` when the call failed or its time was
//! over; an answer that comes twice is passed over.

mod bucket;
mod config;
mod fleet;
mod goal;
mod owner;
mod plan;
mod scan;

use std::collections::{BTreeMap, BTreeSet};

pub use config::{BackgroundConfig, PaceConfig};
use sanderling_protocol::message::{DrainWork, MoveCandidate};
use sanderling_protocol::{BlockId, Instant, NodeId, NodeInfo, Tier};

use crate::Machine;
use crate::moves::{self, Batch, CallId, Input, MoveOutput, Pipeline};
use fleet::NodeTable;
use goal::NodeGoal;
use scan::Scan;

/// Counts of what was done in the background, for logs and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackgroundCounts {
    /// Copies made.
    pub copied_blocks: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Blocks moved to emptier nodes.
    pub rebalanced_blocks: u64,
    /// Their bytes.
    pub rebalanced_bytes: u64,
    /// Copies dropped.
    pub dropped_copies: u64,
    /// Moves that were given up.
    pub failed_moves: u64,
    /// Bytes that should have a copy now and for which no node has room.
    pub unplaced_bytes: u64,
}

/// The background work of a manager, which copies blocks and rebalances: see the module's text.
#[derive(Debug)]
pub struct Background {
    config: BackgroundConfig,
    fleet: NodeTable,
    goals: BTreeMap<NodeId, NodeGoal>,
    /// Bytes that emptier nodes lack of their share.
    lack: BTreeMap<(NodeId, Tier), u64>,
    /// Bytes of copies that must leave a tier.
    scarce: BTreeMap<(NodeId, Tier), u64>,
    /// Tiers that are being made equally full.
    balancing: BTreeSet<Tier>,
    /// Whether drains with a deadline may need all the room that there is: whatever can wait,
    /// waits.
    is_waiting: bool,
    scans: BTreeMap<NodeId, Scan>,
    /// Pages under way.
    pages: BTreeMap<CallId, NodeId>,
    /// Copies being dropped.
    drops: BTreeMap<CallId, u64>,
    moves: Pipeline,
    /// How many batches each source has under way.
    busy: BTreeMap<NodeId, usize>,
    /// When something can be done for a source.
    due: BTreeMap<NodeId, Instant>,
    /// Bytes of each source that should have a copy and for which there is no room.
    unplaced: BTreeMap<NodeId, u64>,
    counts: BackgroundCounts,
}

impl Background {
    /// The first of the calls' ids. Those below belong to the relocator of the same manager.
    pub const CALLS_FROM: CallId = CallId(1 << 63);

    /// Returns a machine without any node.
    #[must_use]
    pub fn new(config: BackgroundConfig) -> Self {
        let moves = Pipeline::new(Self::CALLS_FROM, config.retry_wait, config.tries_max);
        Self {
            config,
            fleet: NodeTable::default(),
            goals: BTreeMap::new(),
            lack: BTreeMap::new(),
            scarce: BTreeMap::new(),
            balancing: BTreeSet::new(),
            is_waiting: false,
            scans: BTreeMap::new(),
            pages: BTreeMap::new(),
            drops: BTreeMap::new(),
            moves,
            busy: BTreeMap::new(),
            due: BTreeMap::new(),
            unplaced: BTreeMap::new(),
            counts: BackgroundCounts::default(),
        }
    }

    /// Notes which nodes drains with a deadline use now: what can wait keeps off them.
    pub fn engage(&mut self, nodes: BTreeSet<NodeId>) {
        self.fleet.engage(if self.config.pace.yields_to_drains { nodes } else { BTreeSet::new() });
    }

    /// Returns the counts of what the manager did in the background since it began.
    #[must_use]
    pub fn counts(&self) -> BackgroundCounts {
        BackgroundCounts { unplaced_bytes: self.unplaced.values().sum(), ..self.counts }
    }

    /// Returns whether nothing is under way and nothing is wished for.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.goals.is_empty() && self.moves.is_idle()
    }

    fn on_view(&mut self, now: Instant, drains: &[DrainWork], nodes: Vec<NodeInfo>) {
        let under_way = self.moves.batches().count();
        debug_assert_eq!(self.busy.values().sum::<usize>(), under_way, "each batch counts once");
        moves::leave_unfit(self, now, &nodes);
        self.fleet.replace(now, nodes, &self.moves.unseen());
        let leaving = drains.iter().filter(|drain| drain.deadline_in.is_some());
        let leaving: u64 = leaving.map(|drain| drain.left_bytes).sum();
        // A move takes its room twice until it is committed.
        self.is_waiting = leaving > 0 && self.fleet.free_bytes() / 2 < leaving;
        self.busy.retain(|_, batches| *batches > 0);
        self.set_goals();
        let goals = &self.goals;
        self.scans.retain(|node, scan| scan.is_reading() || goals.contains_key(node));
        self.unplaced.retain(|node, _| goals.get(node).is_some_and(|goal| goal.copy_bytes > 0));
        self.pump_all(now);
    }

    fn on_page(&mut self, now: Instant, call: CallId, page: Option<(Vec<MoveCandidate>, bool)>) {
        let Some(node) = self.pages.remove(&call) else { return };
        let Some(scan) = self.scans.get_mut(&node) else { return };
        let has_failed = page.is_none();
        // A page may be older than a reservation, or than its end.
        let of_node = self.moves.batches().filter(|batch| batch.source == node);
        let moving: BTreeSet<BlockId> = of_node.flat_map(Batch::blocks).collect();
        if let Some(after) = scan.page(page, &moving, &self.config)
            && self.goals.contains_key(&node)
        {
            self.fetch(node, after);
            return;
        }
        if has_failed {
            scan.try_again(now, &self.config);
        } else {
            let was_of_use = self.use_scan(node);
            if let Some(scan) = self.scans.get_mut(&node) {
                scan.rest(now, was_of_use, &self.config);
            }
        }
        self.pump_all(now);
    }

    fn fetch(&mut self, node: NodeId, after: BlockId) {
        debug_assert!(self.pages.len() < self.config.pages_max, "pages are bounded");
        let call = self.moves.call();
        self.pages.insert(call, node);
        let limit = self.config.page_blocks_max;
        self.moves.emit(MoveOutput::Page { call, node, after, limit });
    }
}

impl Machine for Background {
    type Input = Input;
    type Output = MoveOutput;

    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Drains { drains, nodes } => self.on_view(now, &drains, nodes),
            Input::Page { call, page } => self.on_page(now, call, page),
            Input::Dropped { call, is_done } => {
                let blocks = self.drops.remove(&call).unwrap_or(0);
                self.counts.dropped_copies += if is_done { blocks } else { 0 };
            }
            answer => moves::handle(self, now, answer),
        }
        self.handle_deadline(now);
    }

    fn deadline(&self) -> Option<Instant> {
        self.due.values().copied().chain(self.moves.deadline()).min()
    }

    fn handle_deadline(&mut self, now: Instant) {
        moves::wake(self, now);
        let due: Vec<NodeId> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(node, _)| *node).collect();
        for node in due {
            self.pump(now, node);
        }
    }

    fn poll_output(&mut self) -> Option<MoveOutput> {
        self.moves.poll_output()
    }
}

#[cfg(test)]
mod tests;
