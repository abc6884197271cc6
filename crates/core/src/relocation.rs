//! The relocator: empties nodes that got a notice, before their deadline.
//!
//! It only directs. Every block takes the same way: its future home is reserved at the namenode,
//! the draining node pushes the bytes to it, and the move is committed by compare-and-set on the
//! block's epoch. The machine holds nothing that must survive: reservations live in the catalog, so
//! another manager starts with an empty relocator and finds them in the candidates.
//!
//! The driver answers every output that carries a call, and every [`MoveOutput::Fetch`], exactly
//! once, with `None` when the call failed or its time was over; an answer that comes twice is
//! passed over.
//!
//! Where to look: `queue` chooses which block leaves next, `targets` where to, `pace` how much at
//! once and whether clients go first, and `departure` puts the three together into a batch. The
//! batch goes through `moves`; `owner` handles what becomes of its blocks. `drain` is the state of
//! one node's drain, from its `scan`; `forecast` predicts the outcome, by the `rate` so far;
//! `client_traffic` reads the heartbeats; `plan` plans without moving anything.

mod client_traffic;
mod config;
mod departure;
mod drain;
mod forecast;
mod owner;
mod pace;
mod plan;
mod queue;
mod rate;
mod scan;
mod targets;

use std::collections::{BTreeMap, BTreeSet};

pub use config::RelocatorConfig;
pub use forecast::forecast_of;
pub use plan::{DrainPlan, PlannedTarget, Planner};
use sanderling_protocol::message::DrainWork;
use sanderling_protocol::{Instant, NodeId, NodeInfo};

use crate::Machine;
use crate::moves::{self, Pipeline};
pub use crate::moves::{CallId, Input, MoveOutput};
use client_traffic::TrafficByNode;
use departure::InFlightMoves;
use drain::Drain;
use forecast::ForecastInput;
use targets::Targets;

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
    clients: TrafficByNode,
    moves: Pipeline,
    counts: RelocatorCounts,
}

impl Relocator {
    /// Returns a relocator without any drain. Its first view of the namenode brings the drains.
    #[must_use]
    pub fn new(config: RelocatorConfig) -> Self {
        let moves = Pipeline::new(CallId(0), config.retry_wait, config.tries_max);
        Self {
            config,
            drains: BTreeMap::new(),
            targets: Targets::default(),
            clients: TrafficByNode::default(),
            moves,
            counts: RelocatorCounts::default(),
        }
    }

    /// Returns what was done since it was made. Counts only rise.
    #[must_use]
    pub const fn counts(&self) -> RelocatorCounts {
        self.counts
    }

    /// Returns whether no drain and no move is under way, so that there is nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.drains.is_empty() && self.moves.is_idle()
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
        let mut pushes: BTreeMap<NodeId, usize> = BTreeMap::new();
        for batch in self.moves.batches() {
            *pushes.entry(batch.choice.node).or_default() += 1;
        }
        self.targets.replace(now, nodes, &self.clients, &self.moves.unseen(), &pushes);
        moves::leave_unfit(self, now, nodes);
    }

    /// Does everything that can be done now.
    fn pump(&mut self, now: Instant) {
        moves::wake(self, now);
        // The nearest deadline chooses first where targets are scarce.
        let mut order: Vec<(Option<Instant>, NodeId)> =
            self.drains.iter().map(|(node, drain)| (drain.deadline, *node)).collect();
        order.sort_by_key(|(deadline, node)| (deadline.unwrap_or(Instant(u64::MAX)), *node));
        let order: Vec<NodeId> = order.into_iter().map(|(_, node)| node).collect();
        let (open, _) = self.targets.room(now, &order);
        let none = InFlightMoves::none(order.len(), open, &self.config);
        let mut under_way: BTreeMap<NodeId, InFlightMoves> =
            order.iter().map(|node| (*node, none)).collect();
        for batch in self.moves.batches() {
            if let Some(under_way) = under_way.get_mut(&batch.source) {
                under_way.add(batch);
            }
        }
        for node in &order {
            let under_way = under_way.get_mut(node).expect("every drain has an entry");
            self.pump_drain(now, *node, under_way);
        }
        if self.drains.values().any(|drain| drain.last_forecast.is_due(now)) {
            self.forecast(now, &order, &under_way);
        }
    }

    /// Sends the forecast of each drain, those with the nearest deadline first: they take
    /// the room that there is.
    fn forecast(
        &mut self,
        now: Instant,
        order: &[NodeId],
        under_way: &BTreeMap<NodeId, InFlightMoves>,
    ) {
        let (open, mut room) = self.targets.room(now, order);
        for node in order {
            let drain = self.drains.get_mut(node).expect("listed just now");
            let placed = under_way.get(node).map_or(0, |under_way| under_way.placed_bytes);
            let to_place = drain.movable_bytes().saturating_sub(placed);
            let unplaced_bytes = to_place.saturating_sub(room);
            debug_assert!(to_place - unplaced_bytes <= room, "no room is promised twice");
            room -= to_place - unplaced_bytes;
            if drain.is_over(now) || !drain.last_forecast.is_due(now) {
                continue;
            }
            let forecast =
                ForecastInput { unplaced_bytes, ..drain.forecast_input(now, open) }.forecast();
            if drain.last_forecast.send(now, forecast) {
                self.moves.emit(MoveOutput::Forecast { node: *node, forecast });
            }
        }
    }

    fn pump_drain(&mut self, now: Instant, node: NodeId, under_way: &mut InFlightMoves) {
        let known_max = self.config.known_blocks_max;
        let drain = self.drains.get_mut(&node).expect("listed just now");
        if !drain.wake(now) {
            return;
        }
        if let Some(after) = drain.next_page(now, known_max) {
            let limit = self.config.page_blocks_max;
            self.moves.emit(MoveOutput::Fetch { node, after, limit });
        }
        loop {
            let drain = self.drains.get_mut(&node).expect("it was there just now");
            let (targets, config) = (&mut self.targets, &self.config);
            let Some(batch) = departure::depart(now, node, drain, targets, *under_way, config)
            else {
                return;
            };
            under_way.add(&batch);
            moves::begin(self, now, batch);
        }
    }

    /// Returns the nodes whose links drains with a deadline use now: those that leave and have
    /// bytes left, and those that take blocks of them.
    #[must_use]
    pub fn engaged(&self) -> BTreeSet<NodeId> {
        let has_deadline =
            |node: &NodeId| self.drains.get(node).is_some_and(|drain| drain.deadline.is_some());
        let sources = self.drains.keys().copied().filter(|node| has_deadline(node));
        let moving = self.moves.batches().filter(|batch| has_deadline(&batch.source));
        sources.chain(moving.map(|batch| batch.choice.node)).collect()
    }
}

impl Machine for Relocator {
    type Input = Input;
    type Output = MoveOutput;

    fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Drains { drains, nodes } => self.on_drains(now, &drains, &nodes),
            Input::Candidates { node, page } => {
                let retry = self.config.retry_wait;
                if let Some(drain) = self.drains.get_mut(&node) {
                    drain.page(now, page, retry);
                }
            }
            answer => moves::handle(self, now, answer),
        }
        self.pump(now);
    }

    fn deadline(&self) -> Option<Instant> {
        let known_max = self.config.known_blocks_max;
        let drains = self.drains.values().filter_map(|drain| drain.due(known_max));
        drains.chain(self.moves.deadline()).min()
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.pump(now);
    }

    fn poll_output(&mut self) -> Option<MoveOutput> {
        self.moves.poll_output()
    }
}

#[cfg(test)]
pub(crate) mod tests;
