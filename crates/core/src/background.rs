//! What moves without a notice: copies ahead of one, and bytes from fuller nodes to emptier ones.
//!
//! Every block takes the way of a relocation: reserve, push, commit, with another purpose. Nothing
//! is urgent here, so little is under way at once, each node sends and stores at a bounded rate,
//! and less while clients keep it busy. The machine holds nothing that must survive: it plans anew
//! from every view, and reservations that nobody asks for again end by themselves.
//!
//! The driver answers every output exactly once, with `None` when the call failed or its time was
//! over; an answer that comes twice is passed over.

mod batch;
mod bucket;
mod config;
mod fleet;
mod plan;
mod scan;
mod wish;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use config::{BackgroundConfig, PaceConfig};
use sanderling_protocol::message::{DrainWork, MoveCandidate, MovePurpose};
use sanderling_protocol::order::Pushed;
use sanderling_protocol::{Epoch, Instant, Millis, NodeId, NodeInfo, Refusal, Tier};

use crate::Machine;
use crate::relocation::{CallId, Input, Output};
use batch::{Batch, Move, Step};
use fleet::Fleet;
use scan::Scan;
use wish::Wish;

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

/// Copies and rebalances: see the module's text.
#[derive(Debug)]
pub struct Background {
    config: BackgroundConfig,
    fleet: Fleet,
    wishes: BTreeMap<NodeId, Wish>,
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
    /// Batches with a call under way.
    batches: BTreeMap<CallId, Batch>,
    /// Batches that call again at a time.
    waiting: BTreeMap<(Instant, CallId), Batch>,
    /// How many batches each source has under way.
    busy: BTreeMap<NodeId, usize>,
    /// When something can be done for a source.
    due: BTreeMap<NodeId, Instant>,
    /// Bytes of each source that should have a copy and for which there is no room.
    unplaced: BTreeMap<NodeId, u64>,
    next_call: u64,
    outputs: VecDeque<Output>,
    counts: BackgroundCounts,
}

impl Background {
    /// The first of the calls' ids. Those below belong to the relocator of the same manager.
    pub const CALLS_FROM: CallId = CallId(1 << 63);

    /// Returns a machine that knows of no node.
    #[must_use]
    pub fn new(config: BackgroundConfig) -> Self {
        Self {
            config,
            fleet: Fleet::default(),
            wishes: BTreeMap::new(),
            lack: BTreeMap::new(),
            scarce: BTreeMap::new(),
            balancing: BTreeSet::new(),
            is_waiting: false,
            scans: BTreeMap::new(),
            pages: BTreeMap::new(),
            drops: BTreeMap::new(),
            batches: BTreeMap::new(),
            waiting: BTreeMap::new(),
            busy: BTreeMap::new(),
            due: BTreeMap::new(),
            unplaced: BTreeMap::new(),
            next_call: Self::CALLS_FROM.0,
            outputs: VecDeque::new(),
            counts: BackgroundCounts::default(),
        }
    }

    /// Notes which nodes drains with a deadline use now: what can wait keeps off them.
    pub fn engage(&mut self, nodes: BTreeSet<NodeId>) {
        self.fleet.engage(if self.config.pace.yields_to_drains { nodes } else { BTreeSet::new() });
    }

    /// Returns what was done so far.
    #[must_use]
    pub fn counts(&self) -> BackgroundCounts {
        BackgroundCounts { unplaced_bytes: self.unplaced.values().sum(), ..self.counts }
    }

    /// Tells whether nothing is under way and nothing is wished for.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.wishes.is_empty() && self.batches.is_empty() && self.waiting.is_empty()
    }

    const fn call(&mut self) -> CallId {
        self.next_call += 1;
        CallId(self.next_call)
    }

    fn on_view(&mut self, now: Instant, drains: &[DrainWork], nodes: Vec<NodeInfo>) {
        let under_way = self.batches.len() + self.waiting.len();
        debug_assert_eq!(self.busy.values().sum::<usize>(), under_way, "each batch counts once");
        let mut unseen: BTreeMap<(NodeId, Tier), u64> = BTreeMap::new();
        for batch in self.batches.values().filter(|batch| batch.step == Step::Reserve) {
            *unseen.entry((batch.target, batch.tier)).or_default() += batch.reserve_bytes();
        }
        self.fleet.replace(now, nodes, &unseen);
        let leaving = drains.iter().filter(|drain| drain.deadline_in.is_some());
        let leaving: u64 = leaving.map(|drain| drain.left_bytes).sum();
        // A move takes its room twice until it is committed.
        self.is_waiting = leaving > 0 && self.fleet.free_bytes() / 2 < leaving;
        self.busy.retain(|_, batches| *batches > 0);
        self.wish();
        let wishes = &self.wishes;
        self.scans.retain(|node, scan| scan.is_reading() || wishes.contains_key(node));
        self.unplaced.retain(|node, _| wishes.get(node).is_some_and(|wish| wish.copy_bytes > 0));
        self.pump_all(now);
    }

    fn on_page(&mut self, now: Instant, call: CallId, page: Option<(Vec<MoveCandidate>, bool)>) {
        let Some(node) = self.pages.remove(&call) else { return };
        let Some(scan) = self.scans.get_mut(&node) else { return };
        let has_failed = page.is_none();
        if let Some(after) = scan.page(page, &self.config)
            && self.wishes.contains_key(&node)
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

    fn fetch(&mut self, node: NodeId, after: sanderling_protocol::BlockId) {
        debug_assert!(self.pages.len() < self.config.pages_max, "pages are bounded");
        let call = self.call();
        self.pages.insert(call, node);
        let limit = self.config.page_blocks_max;
        self.outputs.push_back(Output::Page { call, node, after, limit });
    }

    fn on_reserved(&mut self, now: Instant, batch: Batch, epochs: Vec<Result<Epoch, Refusal>>) {
        debug_assert_eq!(batch.moves.len(), epochs.len(), "an answer of another length is none");
        let mut reserved = Vec::new();
        for (mut one, epoch) in batch.moves.iter().cloned().zip(epochs) {
            match epoch {
                Ok(epoch) => {
                    one.to_epoch = epoch;
                    reserved.push(one);
                }
                Err(Refusal::NodeFull { .. }) => {
                    // Writers took the room since the view. The next view says how much is left.
                    self.fleet.fill(batch.target, batch.tier);
                    self.counts.failed_moves += 1;
                }
                Err(refusal) => self.refused(now, &batch, &refusal),
            }
        }
        self.go_on(now, batch.at(Step::Push, reserved));
    }

    fn on_pushed(&mut self, now: Instant, batch: Batch, outcomes: Vec<Result<Pushed, Refusal>>) {
        debug_assert_eq!(batch.moves.len(), outcomes.len(), "an answer of another length is none");
        let (mut pushed, mut failed) = (Vec::new(), Vec::new());
        for (mut one, outcome) in batch.moves.iter().cloned().zip(outcomes) {
            match outcome {
                Ok(Pushed { length }) => {
                    one.length = length;
                    pushed.push(one);
                }
                Err(refusal) => {
                    self.refused(now, &batch, &refusal);
                    failed.push(one);
                }
            }
        }
        self.abandon(&batch, failed);
        self.go_on(now, batch.at(Step::Commit, pushed));
    }

    fn on_committed(&mut self, now: Instant, batch: &Batch, epochs: Vec<Result<Epoch, Refusal>>) {
        debug_assert_eq!(batch.moves.len(), epochs.len(), "an answer of another length is none");
        let (mut blocks, mut bytes) = (0, 0);
        for (one, epoch) in batch.moves.iter().zip(epochs) {
            match epoch {
                Ok(_) => {
                    blocks += 1;
                    bytes += u64::from(one.length);
                }
                // The namenode has given the move up already.
                Err(refusal) => self.refused(now, batch, &refusal),
            }
        }
        if batch.purpose == MovePurpose::Precopy {
            self.counts.copied_blocks += blocks;
            self.counts.copied_bytes += bytes;
        } else {
            self.counts.rebalanced_blocks += blocks;
            self.counts.rebalanced_bytes += bytes;
        }
        self.end(now, batch);
    }

    /// Notes a move that was refused, and leaves the target alone if it is to blame.
    fn refused(&mut self, now: Instant, batch: &Batch, refusal: &Refusal) {
        self.counts.failed_moves += 1;
        let is_about_the_block = matches!(
            refusal,
            Refusal::MoveVoid { .. }
                | Refusal::UnknownBlock { .. }
                | Refusal::StaleEpoch { .. }
                | Refusal::ObjectGone { .. }
                | Refusal::Moved { .. }
                | Refusal::BlockDamaged { .. }
        );
        if !is_about_the_block {
            self.fleet.avoid(batch.target, now + self.config.avoid);
        }
    }

    /// A call failed: nobody knows whether it was done.
    fn on_failed(&mut self, now: Instant, mut batch: Batch) {
        batch.tries += 1;
        match batch.step {
            // Perhaps it is reserved, or waits for a target that does not answer.
            Step::Reserve | Step::Push => {
                if batch.step == Step::Push {
                    self.fleet.avoid(batch.target, now + self.config.avoid);
                }
                self.counts.failed_moves += batch.moves.len() as u64;
                let moves = std::mem::take(&mut batch.moves);
                self.abandon(&batch, moves);
                self.end(now, &batch);
            }
            _ if batch.tries >= self.config.tries_max => self.end(now, &batch),
            _ => {
                let doublings = batch.tries.min(4) - 1;
                let until = now + Millis(self.config.retry_wait.0 << doublings);
                let call = self.call();
                self.waiting.insert((until, call), batch);
            }
        }
    }

    /// Gives reservations back, once: they end by themselves as well. A relocation may have taken
    /// those of a node that leaves over; they are not ours any more.
    fn abandon(&mut self, batch: &Batch, moves: Vec<Move>) {
        if moves.is_empty() || !self.fleet.stays(batch.source) {
            return;
        }
        let call = self.call();
        let blocks = batch.at(Step::Commit, moves).blocks();
        self.outputs.push_back(Output::Abandon { call, blocks });
    }

    /// Makes the call of a batch's step; an empty batch ends.
    fn go_on(&mut self, now: Instant, mut batch: Batch) {
        if batch.moves.is_empty() {
            self.end(now, &batch);
            return;
        }
        let call = self.call();
        let output = match batch.step {
            Step::Reserve => Output::Reserve { call, moves: batch.proposals() },
            Step::Commit => Output::Commit { call, moves: batch.commits() },
            Step::Push => {
                let source =
                    self.fleet.get(batch.source).filter(|_| self.fleet.stays(batch.source));
                let (Some(source), Some(target)) = (source, self.fleet.get(batch.target)) else {
                    // What is to leave a node that drains is the relocator's from here on.
                    let moves = std::mem::take(&mut batch.moves);
                    self.abandon(&batch, moves);
                    self.end(now, &batch);
                    return;
                };
                Output::Push {
                    call,
                    source: batch.source,
                    address: source.info.address.clone(),
                    moves: batch.pushes(&target.info.address),
                    within: self.config.push_millis_max,
                }
            }
        };
        self.outputs.push_back(output);
        let before = self.batches.insert(call, batch);
        debug_assert!(before.is_none(), "no call's number is used twice");
    }

    /// Ends a batch, and does what can be done for its source since.
    fn end(&mut self, now: Instant, batch: &Batch) {
        self.fleet.ended(batch.target);
        if let Some(busy) = self.busy.get_mut(&batch.source) {
            debug_assert!(*busy > 0, "a batch ends once");
            *busy -= 1;
        }
        self.pump(now, batch.source);
    }

    /// Takes the answer of a call: a list of another length than asked for counts as no answer.
    fn answer<T>(
        &mut self,
        now: Instant,
        call: CallId,
        step: Step,
        results: Option<Vec<T>>,
        then: impl FnOnce(&mut Self, Instant, Batch, Vec<T>),
    ) {
        if self.batches.get(&call).is_none_or(|batch| batch.step != step) {
            return;
        }
        let batch = self.batches.remove(&call).expect("it was there just now");
        let wanted = batch.moves.len();
        match results.filter(|results| results.len() == wanted) {
            Some(results) => then(self, now, batch, results),
            None => self.on_failed(now, batch),
        }
    }
}

impl Machine for Background {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Drains { drains, nodes } => self.on_view(now, &drains, nodes),
            Input::Page { call, page } => self.on_page(now, call, page),
            Input::Reserved { call, epochs } => {
                self.answer(now, call, Step::Reserve, epochs, Self::on_reserved);
            }
            Input::Pushed { call, outcomes } => {
                self.answer(now, call, Step::Push, outcomes, Self::on_pushed);
            }
            Input::Committed { call, epochs } => {
                self.answer(now, call, Step::Commit, epochs, |this, now, batch, epochs| {
                    this.on_committed(now, &batch, epochs);
                });
            }
            Input::Dropped { call, is_done } => {
                let blocks = self.drops.remove(&call).unwrap_or(0);
                self.counts.dropped_copies += if is_done { blocks } else { 0 };
            }
            // What was not given back ends by itself. Candidates are the relocator's.
            Input::Abandoned { .. } | Input::Candidates { .. } => {}
        }
        self.handle_deadline(now);
    }

    fn deadline(&self) -> Option<Instant> {
        let waiting = self.waiting.first_key_value().map(|((until, _), _)| *until);
        self.due.values().copied().chain(waiting).min()
    }

    fn handle_deadline(&mut self, now: Instant) {
        while let Some(entry) = self.waiting.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let batch = entry.remove();
            self.go_on(now, batch);
        }
        let due: Vec<NodeId> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(node, _)| *node).collect();
        for node in due {
            self.pump(now, node);
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

#[cfg(test)]
mod tests;
