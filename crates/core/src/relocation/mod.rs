//! The relocator: empties nodes that got a notice, before their deadline.
//!
//! It only directs. Every block takes the same way: its future home is reserved at the namenode,
//! the draining node pushes the bytes to it, and the move is committed by compare-and-set on the
//! block's epoch. The machine holds nothing that must survive: reservations live in the catalog, so
//! another manager starts with an empty relocator and finds them in the candidates.
//!
//! The driver answers every output that carries a call, and every [`Output::Fetch`], exactly once,
//! with `None` when the call failed or its time was over; an answer that comes twice is passed
//! over.

mod batch;
mod drain;
mod forecast;
mod interface;
mod pace;
mod plan;
mod queue;
mod rate;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use interface::{CallId, Input, Output, RelocatorConfig};
use sanderling_protocol::message::{DrainWork, MoveCandidate};
use sanderling_protocol::order::Pushed;
use sanderling_protocol::{Epoch, Instant, Millis, NodeId, NodeInfo, Refusal};

use crate::Machine;
use batch::{Batch, Fate, Move, Step};
use drain::Drain;
use forecast::Facts;
use plan::{Answer, Choice, Targets};

/// Counts of what a relocator did, for logs and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelocatorCounts {
    /// Moves committed.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Moves that were given up and tried again or forgotten.
    pub failed_moves: u64,
}

/// Empties draining nodes: see the module's text.
#[derive(Debug)]
pub struct Relocator {
    config: RelocatorConfig,
    drains: BTreeMap<NodeId, Drain>,
    targets: Targets,
    /// Batches with a call under way.
    batches: BTreeMap<CallId, Batch>,
    /// Batches that call again at a time.
    waiting: BTreeMap<(Instant, CallId), Batch>,
    next_call: u64,
    outputs: VecDeque<Output>,
    counts: RelocatorCounts,
}

impl Relocator {
    /// Blocks without room that are passed over in one round before the drain pauses.
    const MISSES_MAX: usize = 64;

    /// How many times more often than other calls a commit is repeated, so that a namenode may
    /// restart meanwhile.
    const COMMIT_PATIENCE: u32 = 4;

    /// Pushes of a batch without an answer before other targets are chosen.
    const PUSH_TRIES_MAX: u32 = 2;

    /// Returns a relocator that knows of no drain.
    #[must_use]
    pub fn new(config: RelocatorConfig) -> Self {
        Self {
            config,
            drains: BTreeMap::new(),
            targets: Targets::default(),
            batches: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_call: 0,
            outputs: VecDeque::new(),
            counts: RelocatorCounts::default(),
        }
    }

    /// Returns what was done so far.
    #[must_use]
    pub const fn counts(&self) -> RelocatorCounts {
        self.counts
    }

    /// Tells whether any drain is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.drains.is_empty() && self.batches.is_empty() && self.waiting.is_empty()
    }

    fn on_drains(&mut self, now: Instant, drains: &[DrainWork], nodes: &[NodeInfo]) {
        let wanted: BTreeMap<NodeId, &DrainWork> =
            drains.iter().map(|work| (work.node, work)).collect();
        self.drains.retain(|node, _| wanted.contains_key(node));
        for (node, work) in wanted {
            let drain = self.drains.entry(node).or_insert_with(|| Drain::new(now, work));
            drain.update(now, work);
        }
        let mut unseen: BTreeMap<Choice, u64> = BTreeMap::new();
        let mut pushes: BTreeMap<NodeId, usize> = BTreeMap::new();
        for batch in self.batches.values().chain(self.waiting.values()) {
            if batch.step == Step::Reserve {
                *unseen.entry(batch.choice).or_default() += batch.reserve_bytes();
            }
            *pushes.entry(batch.choice.node).or_default() += 1;
        }
        self.targets.replace(now, nodes, &unseen, &pushes);
        self.leave_gone(now, nodes);
    }

    /// Plans the moves again whose target is gone, without waiting for the pushes to fail.
    fn leave_gone(&mut self, now: Instant, nodes: &[NodeInfo]) {
        let present: BTreeSet<NodeId> = nodes.iter().map(|node| node.id).collect();
        let is_lost =
            |batch: &Batch| batch.step == Step::Push && !present.contains(&batch.choice.node);
        let calls: Vec<CallId> = self
            .batches
            .iter()
            .filter(|(_, batch)| is_lost(batch))
            .map(|(call, _)| *call)
            .collect();
        for call in calls {
            let mut batch = self.batches.remove(&call).expect("listed just now");
            let moves = std::mem::take(&mut batch.moves);
            self.counts.failed_moves += moves.len() as u64;
            self.go_on(now, batch.at(Step::Abandon, moves));
        }
    }

    fn on_reserved(&mut self, now: Instant, batch: Batch, epochs: Vec<Result<Epoch, Refusal>>) {
        let mut reserved = Vec::new();
        for (mut one, epoch) in batch.moves.iter().cloned().zip(epochs) {
            match epoch {
                Ok(epoch) => {
                    one.to_epoch = epoch;
                    reserved.push(one);
                }
                Err(refusal) => {
                    one.fate = self.not_reserved(now, batch.choice, &one, &refusal);
                    self.settle(now, batch.source, one);
                }
            }
        }
        let is_wanted = self.drains.get(&batch.source).is_some_and(|drain| !drain.is_over(now))
            && self.targets.address(batch.choice.node).is_some();
        let step = if is_wanted { Step::Push } else { Step::Abandon };
        self.go_on(now, batch.at(step, reserved));
    }

    fn on_pushed(&mut self, now: Instant, batch: Batch, outcomes: Vec<Result<Pushed, Refusal>>) {
        let (mut pushed, mut failed) = (Vec::new(), Vec::new());
        for (mut one, outcome) in batch.moves.iter().cloned().zip(outcomes) {
            match outcome {
                Ok(Pushed { length }) => {
                    one.length = length;
                    pushed.push(one);
                }
                Err(refusal) => {
                    one.fate = self.fate(now, &batch, &refusal);
                    failed.push(one);
                }
            }
        }
        let bytes = pushed.iter().map(|one| u64::from(one.length)).sum();
        if let Some(drain) = self.drains.get_mut(&batch.source) {
            drain.pace.record(bytes, now.since(batch.called_at));
        }
        let failed = batch.at(Step::Abandon, failed);
        if !failed.moves.is_empty() {
            // The two halves are two batches from here on, and each ends by itself.
            self.targets.push_started(batch.choice.node);
            self.go_on(now, failed);
        }
        self.go_on(now, batch.at(Step::Commit, pushed));
    }

    fn on_committed(&mut self, now: Instant, batch: Batch, epochs: Vec<Result<Epoch, Refusal>>) {
        let mut refused = Vec::new();
        for (mut one, epoch) in batch.moves.iter().cloned().zip(epochs) {
            match epoch {
                Ok(_) => {
                    self.counts.moved_blocks += 1;
                    self.counts.moved_bytes += u64::from(one.length);
                    if let Some(drain) = self.drains.get_mut(&batch.source) {
                        let to = batch.choice.node;
                        drain.moved(now, one.block(), u64::from(one.length), to);
                    }
                }
                Err(refusal) => {
                    one.fate = self.fate(now, &batch, &refusal);
                    refused.push(one);
                }
            }
        }
        self.go_on(now, batch.at(Step::Abandon, refused));
    }

    /// Says what becomes of a block whose future home was refused, and corrects the room.
    fn not_reserved(
        &mut self,
        now: Instant,
        choice: Choice,
        one: &Move,
        refusal: &Refusal,
    ) -> Fate {
        self.counts.failed_moves += 1;
        if batch::is_about_the_block(refusal) {
            self.targets.give_back(choice, u64::from(one.queued.candidate.reserve_bytes));
            return Fate::Forget;
        }
        if matches!(refusal, Refusal::NodeFull { .. }) {
            // Writers took the room since the view. The next view says how much is left.
            self.targets.fill(choice);
        } else {
            self.targets.avoid(choice.node, now + self.config.avoid);
        }
        Fate::Requeue
    }

    /// Says what becomes of a block after a refusal, and leaves the target alone if it is to blame.
    fn fate(&mut self, now: Instant, batch: &Batch, refusal: &Refusal) -> Fate {
        self.counts.failed_moves += 1;
        if batch::is_about_the_block(refusal) {
            return Fate::Forget;
        }
        if batch::is_about_the_target(refusal) {
            self.targets.avoid(batch.choice.node, now + self.config.avoid);
        }
        Fate::Requeue
    }

    /// A call failed: nobody knows whether it was done.
    fn on_failed(&mut self, now: Instant, mut batch: Batch) {
        batch.tries += 1;
        let is_wanted = self.drains.get(&batch.source).is_some_and(|drain| !drain.is_over(now));
        // A commit that may have been done is asked about longest: its bytes are there.
        let patience = if batch.step == Step::Commit { Self::COMMIT_PATIENCE } else { 1 };
        let is_last = batch.tries >= self.config.tries_max * patience || !is_wanted;
        match batch.step {
            Step::Reserve => {
                // Perhaps it is reserved: giving it back makes it certain.
                let moves = std::mem::take(&mut batch.moves);
                self.counts.failed_moves += moves.len() as u64;
                self.go_on(now, batch.at(Step::Abandon, moves));
            }
            Step::Push if is_last || batch.tries >= Self::PUSH_TRIES_MAX => {
                // The source could not be reached, or it waits for a target that does not answer.
                self.targets.avoid(batch.choice.node, now + self.config.avoid);
                let moves = std::mem::take(&mut batch.moves);
                self.counts.failed_moves += moves.len() as u64;
                self.go_on(now, batch.at(Step::Abandon, moves));
            }
            Step::Commit | Step::Abandon if is_last => self.end(now, batch),
            _ => {
                let doublings = batch.tries.min(4) - 1;
                let until = now + Millis(self.config.retry_wait.0 << doublings);
                let call = self.call();
                self.waiting.insert((until, call), batch);
            }
        }
    }

    /// Makes the call of a batch's step; an empty batch ends.
    fn go_on(&mut self, now: Instant, mut batch: Batch) {
        if batch.moves.is_empty() {
            self.targets.push_ended(batch.choice.node);
            return;
        }
        let call = self.call();
        let output = match batch.step {
            Step::Reserve => Output::Reserve { call, moves: batch.proposals() },
            Step::Commit => Output::Commit { call, moves: batch.commits() },
            Step::Abandon => Output::Abandon { call, blocks: batch.blocks() },
            Step::Push => {
                let (Some(drain), Some(target)) = (
                    self.drains.get(&batch.source).filter(|drain| !drain.is_over(now)),
                    self.targets.address(batch.choice.node),
                ) else {
                    let moves = std::mem::take(&mut batch.moves);
                    return self.go_on(now, batch.at(Step::Abandon, moves));
                };
                let left = drain.left(now).unwrap_or(self.config.push_millis_max);
                Output::Push {
                    call,
                    source: batch.source,
                    address: drain.address.clone(),
                    moves: batch.pushes(target),
                    within: left.min(self.config.push_millis_max),
                }
            }
        };
        batch.called_at = now;
        self.outputs.push_back(output);
        self.batches.insert(call, batch);
    }

    /// Ends a batch whose reservations are given back, or about which nothing can be done.
    fn end(&mut self, now: Instant, batch: Batch) {
        self.targets.push_ended(batch.choice.node);
        self.targets.give_back(batch.choice, batch.reserve_bytes());
        for one in batch.moves {
            self.settle(now, batch.source, one);
        }
    }

    fn settle(&mut self, now: Instant, source: NodeId, one: Move) {
        let wait = self.config.retry_wait;
        let Some(drain) = self.drains.get_mut(&source) else { return };
        match one.fate {
            Fate::Requeue => drain.retry(now, one.queued, wait),
            Fate::Forget => drain.queue.forget(one.block()),
        }
    }

    const fn call(&mut self) -> CallId {
        self.next_call += 1;
        CallId(self.next_call)
    }

    /// Does everything that can be done now.
    fn pump(&mut self, now: Instant) {
        while let Some(entry) = self.waiting.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let batch = entry.remove();
            self.go_on(now, batch);
        }
        // The nearest deadline chooses first where targets are scarce.
        let mut order: Vec<(Option<Instant>, NodeId)> =
            self.drains.iter().map(|(node, drain)| (drain.deadline, *node)).collect();
        order.sort_by_key(|(deadline, node)| (deadline.unwrap_or(Instant(u64::MAX)), *node));
        for (_, node) in &order {
            self.pump_drain(now, *node);
        }
        self.forecast(now, order.into_iter().map(|(_, node)| node));
    }

    /// Says what is to be expected of each drain, those with the nearest deadline first: they take
    /// the room that there is.
    fn forecast(&mut self, now: Instant, order: impl Iterator<Item = NodeId>) {
        let (open, mut room) = self.targets.room(now);
        for node in order {
            let drain = self.drains.get_mut(&node).expect("listed just now");
            let under_way = self.batches.values().chain(self.waiting.values());
            let placed: u64 = under_way
                .filter(|batch| batch.source == node && batch.step != Step::Abandon)
                .map(Batch::bytes)
                .sum();
            let to_place = drain.movable_bytes().saturating_sub(placed);
            let unplaced_bytes = to_place.saturating_sub(room);
            room -= to_place - unplaced_bytes;
            if drain.is_over(now) || !drain.said.may_say(now) {
                continue;
            }
            let forecast = Facts { unplaced_bytes, ..drain.facts(now, open) }.forecast();
            if drain.said.say(now, forecast) {
                self.outputs.push_back(Output::Forecast { node, forecast });
            }
        }
    }

    fn pump_drain(&mut self, now: Instant, node: NodeId) {
        let known_max = self.config.known_blocks_max;
        let drain = self.drains.get_mut(&node).expect("listed just now");
        if !drain.wake(now) {
            return;
        }
        if let Some(after) = drain.next_page(now, known_max) {
            let limit = self.config.page_blocks_max;
            self.outputs.push_back(Output::Fetch { node, after, limit });
        }
        let all = self.batches.values().chain(self.waiting.values());
        let mut under_way = all.filter(|batch| batch.source == node).count();
        while under_way < self.config.source_batches_max {
            let Some(batch) = self.plan_batch(now, node) else { break };
            self.targets.push_started(batch.choice.node);
            self.go_on(now, batch);
            under_way += 1;
        }
    }

    /// Takes blocks from the head of the queue that go to one target together.
    fn plan_batch(&mut self, now: Instant, source: NodeId) -> Option<Batch> {
        let drain = self.drains.get_mut(&source).expect("the caller has it");
        if drain.stalled_until.is_some() {
            return None;
        }
        let mut misses = 0;
        let (choice, step) = loop {
            let head = &drain.queue.peek()?.candidate;
            if let Some((node, tier)) = head.reserved_to {
                let is_eligible = self.targets.is_eligible(now, node);
                let step = if is_eligible { Step::Reserve } else { Step::Abandon };
                break (Choice { node, tier }, step);
            }
            match self.targets.choose(now, head, self.config.target_batches_max) {
                Answer::Go(choice) => break (choice, Step::Reserve),
                Answer::Busy => return None,
                Answer::NoRoom => {
                    misses += 1;
                    let queued = drain.queue.pop().expect("it was peeked at");
                    drain.retry(now, queued, self.config.retry_wait);
                    if misses == Self::MISSES_MAX {
                        drain.stalled_until = Some(now + self.config.retry_wait);
                        return None;
                    }
                }
            }
        };
        let bytes_max = drain.pace.push_bytes(drain.left(now), self.config.batch_bytes_max);
        let moves = take_for(&mut self.targets, drain, choice, &self.config, bytes_max);
        (!moves.is_empty()).then_some(Batch {
            source,
            choice,
            moves,
            step,
            tries: 0,
            called_at: now,
        })
    }
}

/// Takes the head of the queue, and what follows it as long as it fits into the same batch.
fn take_for(
    targets: &mut Targets,
    drain: &mut Drain,
    choice: Choice,
    config: &RelocatorConfig,
    bytes_max: u64,
) -> Vec<Move> {
    let mut moves: Vec<Move> = Vec::new();
    let mut bytes = 0;
    while let Some(head) = drain.queue.peek()
        && moves.len() < config.batch_blocks_max
    {
        let candidate = &head.candidate;
        let reserved = candidate.reserved_to.map(|(node, tier)| Choice { node, tier });
        let size = u64::from(queue::bytes(candidate));
        let fits = moves.is_empty() || (bytes + size <= bytes_max && may_join(&moves, candidate));
        let has_room = match reserved {
            Some(reserved) => reserved == choice,
            None => fits && targets.take(choice, candidate.reserve_bytes),
        };
        if !fits || !has_room {
            break;
        }
        bytes += size;
        moves.push(Move::new(drain.queue.pop().expect("it was peeked at")));
    }
    moves
}

/// Tells whether a block may follow the others of a batch: same tier, and reserved before or not
/// like them.
fn may_join(moves: &[Move], candidate: &MoveCandidate) -> bool {
    moves.first().is_some_and(|first| {
        let first = &first.queued.candidate;
        first.tier == candidate.tier && first.reserved_to == candidate.reserved_to
    })
}

impl Machine for Relocator {
    type Input = Input;
    type Output = Output;

    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Drains { drains, nodes } => self.on_drains(now, &drains, &nodes),
            Input::Candidates { node, page } => {
                let retry = self.config.retry_wait;
                if let Some(drain) = self.drains.get_mut(&node) {
                    drain.page(now, page, retry);
                }
            }
            Input::Reserved { call, epochs } => {
                self.answer(now, call, Step::Reserve, epochs, Self::on_reserved);
            }
            Input::Pushed { call, outcomes } => {
                self.answer(now, call, Step::Push, outcomes, Self::on_pushed);
            }
            Input::Committed { call, epochs } => {
                self.answer(now, call, Step::Commit, epochs, Self::on_committed);
            }
            Input::Abandoned { call, is_done } => {
                let done = is_done.then(Vec::<()>::new);
                self.answer(now, call, Step::Abandon, done, |this, now, batch, _| {
                    this.end(now, batch);
                });
            }
            // The background's, beside the relocator in one manager.
            Input::Page { .. } | Input::Dropped { .. } => {}
        }
        self.pump(now);
    }

    fn deadline(&self) -> Option<Instant> {
        let known_max = self.config.known_blocks_max;
        let drains = self.drains.values().filter_map(|drain| drain.due(known_max));
        let waiting = self.waiting.first_key_value().map(|((until, _), _)| *until);
        drains.chain(waiting).min()
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.pump(now);
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

impl Relocator {
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
        match results {
            Some(results) if step == Step::Abandon || results.len() == wanted => {
                then(self, now, batch, results);
            }
            _ => self.on_failed(now, batch),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
