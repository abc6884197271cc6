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
//!
//! Where to look: `queue` says which block leaves next, `targets` where to, `pace` how much at once
//! and whether clients go first, `departure` puts the three together into a `batch`, and `steps`
//! leads it through its calls. `drain` is what is known of one node, from its `scan`; `forecast`
//! says what is to be expected, by the `rate` so far; `clients` reads the heartbeats; `plan` plans
//! without moving anything.

mod batch;
mod clients;
mod departure;
mod drain;
mod forecast;
mod interface;
mod pace;
mod plan;
mod queue;
mod rate;
mod scan;
mod steps;
mod targets;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use interface::{CallId, Input, Output, RelocatorConfig};
pub use plan::{Plan, PlannedTarget, Planner};
use sanderling_protocol::message::DrainWork;
use sanderling_protocol::{Instant, NodeId, NodeInfo};

use crate::Machine;
use batch::{Batch, Step};
use clients::Clients;
use departure::UnderWay;
use drain::Drain;
use forecast::Facts;
use targets::{Choice, Targets};

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
    clients: Clients,
    /// Batches with a call under way.
    batches: BTreeMap<CallId, Batch>,
    /// Batches that call again at a time.
    waiting: BTreeMap<(Instant, CallId), Batch>,
    next_call: u64,
    outputs: VecDeque<Output>,
    counts: RelocatorCounts,
}

impl Relocator {
    /// Returns a relocator that knows of no drain.
    #[must_use]
    pub fn new(config: RelocatorConfig) -> Self {
        Self {
            config,
            drains: BTreeMap::new(),
            targets: Targets::default(),
            clients: Clients::default(),
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
        self.clients.look(now, nodes);
        self.drains.retain(|node, _| wanted.contains_key(node));
        for (node, work) in wanted {
            let clients = self.clients.at(node).read;
            let info = || nodes.iter().find(|info| info.id == node);
            let egress = || info().map_or(u64::MAX, |info| info.egress_bytes_per_second);
            let drain = self.drains.entry(node).or_insert_with(|| Drain::new(now, work, egress()));
            drain.update(now, work, clients);
        }
        self.leave_unfit(nodes);
        let mut unseen: BTreeMap<Choice, u64> = BTreeMap::new();
        let mut pushes: BTreeMap<NodeId, usize> = BTreeMap::new();
        for batch in self.under_way() {
            if batch.step == Step::Reserve {
                *unseen.entry(batch.choice).or_default() += batch.reserve_bytes();
            }
            *pushes.entry(batch.choice.node).or_default() += 1;
        }
        self.targets.replace(now, nodes, &self.clients, &unseen, &pushes);
    }

    /// Plans the moves again whose target is gone or got a notice itself, without waiting for their
    /// pushes to fail. The namenode has given their reservations up already.
    fn leave_unfit(&mut self, nodes: &[NodeInfo]) {
        let fit: BTreeSet<NodeId> =
            nodes.iter().filter(|node| node.policy.takes_blocks()).map(|node| node.id).collect();
        let is_unfit =
            |batch: &Batch| batch.step == Step::Push && !fit.contains(&batch.choice.node);
        let mut unfit: Vec<Batch> = self
            .batches
            .extract_if(.., |_, batch| is_unfit(batch))
            .map(|(_, batch)| batch)
            .collect();
        unfit.extend(
            self.waiting.extract_if(.., |_, batch| is_unfit(batch)).map(|(_, batch)| batch),
        );
        for batch in unfit {
            self.replan(batch);
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
        let order: Vec<NodeId> = order.into_iter().map(|(_, node)| node).collect();
        let (open, _) = self.targets.room(now);
        let none = UnderWay::none(order.len(), open, &self.config);
        let mut under_way: BTreeMap<NodeId, UnderWay> =
            order.iter().map(|node| (*node, none)).collect();
        for batch in self.under_way() {
            if let Some(under_way) = under_way.get_mut(&batch.source) {
                under_way.add(batch);
            }
        }
        for node in &order {
            let under_way = under_way.get_mut(node).expect("every drain has an entry");
            self.pump_drain(now, *node, under_way);
        }
        if self.drains.values().any(|drain| drain.said.may_say(now)) {
            self.forecast(now, &order, &under_way);
        }
    }

    /// Says what is to be expected of each drain, those with the nearest deadline first: they take
    /// the room that there is.
    fn forecast(&mut self, now: Instant, order: &[NodeId], under_way: &BTreeMap<NodeId, UnderWay>) {
        let (open, mut room) = self.targets.room(now);
        for node in order {
            let drain = self.drains.get_mut(node).expect("listed just now");
            let placed = under_way.get(node).map_or(0, |under_way| under_way.placed_bytes);
            let to_place = drain.movable_bytes().saturating_sub(placed);
            let unplaced_bytes = to_place.saturating_sub(room);
            debug_assert!(to_place - unplaced_bytes <= room, "no room is promised twice");
            room -= to_place - unplaced_bytes;
            if drain.is_over(now) || !drain.said.may_say(now) {
                continue;
            }
            let forecast = Facts { unplaced_bytes, ..drain.facts(now, open) }.forecast();
            if drain.said.say(now, forecast) {
                self.outputs.push_back(Output::Forecast { node: *node, forecast });
            }
        }
    }

    fn pump_drain(&mut self, now: Instant, node: NodeId, under_way: &mut UnderWay) {
        let known_max = self.config.known_blocks_max;
        let drain = self.drains.get_mut(&node).expect("listed just now");
        if !drain.wake(now) {
            return;
        }
        if let Some(after) = drain.next_page(now, known_max) {
            let limit = self.config.page_blocks_max;
            self.outputs.push_back(Output::Fetch { node, after, limit });
        }
        loop {
            let drain = self.drains.get_mut(&node).expect("it was there just now");
            let (targets, config) = (&mut self.targets, &self.config);
            let Some(batch) = departure::depart(now, node, drain, targets, *under_way, config)
            else {
                return;
            };
            debug_assert!(batch.step == Step::Reserve, "a move begins with its reservation");
            debug_assert!(!batch.moves.is_empty(), "a batch moves something");
            under_way.add(&batch);
            self.targets.push_started(batch.choice.node);
            self.go_on(now, batch);
        }
    }

    /// Returns the nodes whose links drains with a deadline use now: those that leave and have
    /// bytes left, and those that take blocks of them.
    #[must_use]
    pub fn engaged(&self) -> BTreeSet<NodeId> {
        let has_deadline =
            |node: &NodeId| self.drains.get(node).is_some_and(|drain| drain.deadline.is_some());
        let sources = self.drains.keys().copied().filter(|node| has_deadline(node));
        let moving = self.under_way().filter(|batch| has_deadline(&batch.source));
        sources.chain(moving.map(|batch| batch.choice.node)).collect()
    }

    /// Returns the batches with a call under way or about to be made again.
    fn under_way(&self) -> impl Iterator<Item = &Batch> {
        self.batches.values().chain(self.waiting.values())
    }
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
