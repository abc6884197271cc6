//! Nodes that are to leave: notice, recommendation, decommission, cancellation, and the end of a
//! drain.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use sanderling_protocol::message::Forecast;
use sanderling_protocol::node::Policy;
use sanderling_protocol::{BlockId, Epoch, EventKind, Instant, Millis, NodeId, Refusal};

use super::claims::{NodeClaims, NoticeClaim, NoticeOrigin};
use super::fleet::Fleet;
use super::members::{DrainSummary, NodeRecord};
use super::orders::Orders;
use super::timers::Timer;

/// Pause after which a datanode states again what its sources show. A round trip or two: what it is
/// to overtake is on its way, or the namenode has just read again. Chosen, not measured.
const RESTATE_INTERVAL: Millis = Millis(10);

/// What a node's process states about the notices of its sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SourceStatement {
    /// One shows this notice.
    Shown(NoticeClaim),
    /// One has withdrawn its notice. `left`: the earliest of the others.
    Withdrawn { left: Option<NoticeClaim> },
}

impl Fleet<'_> {
    /// Starts a drain with a deadline. Given again, the earlier deadline holds.
    pub(super) fn notice(
        &mut self,
        id: NodeId,
        origin: NoticeOrigin,
        NoticeClaim { deadline, reason }: NoticeClaim,
        orders: &mut Orders,
    ) -> Result<(), Refusal> {
        self.claim(id, |claims| {
            claims.notice(origin, NoticeClaim { deadline, reason: reason.clone() });
        })?;
        let node = self.nodes.live_mut(id)?;
        let is_first = node.deadline.is_none();
        let deadline = node.deadline.map_or(deadline, |before| before.min(deadline));
        node.deadline = Some(deadline);
        node.reason.clone_from(&reason);
        if node.policy != Policy::Drained {
            node.policy = Policy::Draining;
        }
        let name = node.name.clone();
        if !self.rules.keeps_cancellations() {
            self.cancelled.forget(id);
        }
        self.timers.schedule(deadline, Timer::Node(id));
        let bytes = self.begin_drain(id, orders);
        if is_first {
            let deadline_in = self.now.until(deadline);
            self.report.notices += 1;
            self.emit(EventKind::NodeNoticed { node: id, name, deadline_in, reason, bytes });
        }
        self.promote_copies(id, orders);
        self.check_drained(id);
        Ok(())
    }

    /// Notes why a live node drains, by the seventh of the rules.
    fn claim(&mut self, id: NodeId, add: impl FnOnce(&mut NodeClaims)) -> Result<(), Refusal> {
        let node = self.nodes.live_mut(id)?;
        if self.rules.keeps_claims() {
            add(self.claims.of(id, node));
        }
        Ok(())
    }

    /// Takes what a node's process states about its sources: a notice that one shows, or, once one
    /// has withdrawn its notice, the earliest that the others still show. What an operator gave
    /// stays. A statement that comes again changes nothing.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`] for a statement that a later one has overtaken: the process states
    /// again what its sources show.
    pub(super) fn source_notice(
        &mut self,
        id: NodeId,
        number: u64,
        stated: SourceStatement,
        orders: &mut Orders,
    ) -> Result<(), Refusal> {
        // By earlier rules no numbers are kept.
        let mut order = Ordering::Greater;
        self.claim(id, |claims| order = claims.order(number))?;
        match order {
            Ordering::Less => {
                let why = "a later statement about the node's notices came first".to_owned();
                return Err(Refusal::RetryAfter { after: RESTATE_INTERVAL, why });
            }
            Ordering::Equal => return Ok(()),
            Ordering::Greater => {}
        }
        match stated {
            SourceStatement::Shown(notice) => {
                self.notice(id, NoticeOrigin::Sources, notice, orders)
            }
            SourceStatement::Withdrawn { left } => {
                self.claim(id, |claims| claims.withdraw(left))?;
                // A repetition of what is withdrawn may be on its way.
                self.cancelled.cancel(id, self.now);
                self.drain_for_claims(id, orders)
            }
        }
    }

    /// Lets a node drain for what is left of its claims, or not at all.
    fn drain_for_claims(&mut self, id: NodeId, orders: &mut Orders) -> Result<(), Refusal> {
        let (mut left, mut decommission) = (None, None);
        self.claim(id, |claims| {
            left = claims.earliest().cloned();
            decommission = claims.decommissioned().map(str::to_owned);
        })?;
        let node = self.nodes.live_mut(id)?;
        let bytes = node.exposure();
        let deadline = left.as_ref().map(|claim| claim.deadline);
        if node.policy == Policy::Active || node.deadline == deadline {
            return Ok(());
        }
        let name = node.name.clone();
        let Some(reason) = left.map(|claim| claim.reason).or(decommission) else {
            self.activate(id, orders);
            return Ok(());
        };
        node.deadline = deadline;
        node.reason.clone_from(&reason);
        if node.policy != Policy::Drained {
            let by_deadline = (Policy::Draining, Policy::Decommissioning);
            node.policy = if deadline.is_some() { by_deadline.0 } else { by_deadline.1 };
        }
        if let Some(drain) = &mut node.drain {
            // It was made for the other deadline.
            drain.forecast = None;
        }
        orders.lists().fence_nodes.insert(id);
        if let Some(deadline) = deadline {
            self.timers.schedule(deadline, Timer::Node(id));
            let deadline_in = self.now.until(deadline);
            self.emit(EventKind::NodeNoticed { node: id, name, deadline_in, reason, bytes });
        } else {
            self.emit(EventKind::NodeDecommissioning { node: id, name, reason, bytes });
        }
        Ok(())
    }

    /// Starts a drain without a deadline. A node that drains already goes on as it was, and does so
    /// for the decommission when its notice is withdrawn.
    pub(super) fn decommission(
        &mut self,
        id: NodeId,
        reason: String,
        orders: &mut Orders,
    ) -> Result<(), Refusal> {
        self.claim(id, |claims| claims.decommission(&reason))?;
        let node = self.nodes.live_mut(id)?;
        if node.policy != Policy::Active {
            return Ok(());
        }
        node.policy = Policy::Decommissioning;
        node.reason.clone_from(&reason);
        let name = node.name.clone();
        let bytes = self.begin_drain(id, orders);
        self.emit(EventKind::NodeDecommissioning { node: id, name, reason, bytes });
        self.promote_copies(id, orders);
        self.check_drained(id);
        Ok(())
    }

    /// Fences the node and gives up the moves that were to end on it. Returns its exposure.
    fn begin_drain(&mut self, id: NodeId, orders: &mut Orders) -> u64 {
        let Some(node) = self.nodes.get_mut(id) else { return 0 };
        node.drain.get_or_insert(DrainSummary::begin(self.now));
        let incoming: Vec<BlockId> = node.held().incoming.keys().copied().collect();
        orders.lists().fence_nodes.insert(id);
        for block in incoming {
            self.void_move(block, orders);
        }
        self.leave_copies(id, orders);
        self.nodes.exposure(id)
    }

    /// Notes that a node's cloud recommends to leave it. A node that drains already is left anyway.
    pub(super) fn recommend(&mut self, id: NodeId, reason: String) -> Result<(), Refusal> {
        let node = self.nodes.live_mut(id)?;
        if node.policy != Policy::Active || node.risk.is_some() {
            // It holds when the notice is withdrawn.
            if self.rules.keeps_claims() {
                node.risk.get_or_insert(reason);
            }
            return Ok(());
        }
        node.risk = Some(reason.clone());
        let name = node.name.clone();
        self.emit(EventKind::NodeAtRisk { node: id, name, reason });
        Ok(())
    }

    /// Takes a recommendation back. One with another reason has another source and stays.
    pub(super) fn withdraw(&mut self, id: NodeId, reason: &str) -> Result<(), Refusal> {
        let node = self.nodes.live_mut(id)?;
        if node.risk.take_if(|risk| risk == reason).is_some() && node.policy == Policy::Active {
            self.emit(EventKind::NodeCancelled { node: id });
        }
        Ok(())
    }

    /// Keeps the manager's forecast of a drain. Emits an event for the first one, and when bytes
    /// become late or unplaced or cease to be.
    pub(super) fn forecast(&mut self, id: NodeId, forecast: Forecast) -> Result<(), Refusal> {
        let node = self.nodes.live_mut(id)?;
        let Some(drain) = &mut node.drain else {
            return Err(Refusal::WrongState { node: id, why: "it is not draining".to_owned() });
        };
        let is_bad = |it: &Forecast| (it.late_bytes > 0, it.unplaced_bytes > 0);
        let is_new = drain.forecast.is_none_or(|before| is_bad(&before) != is_bad(&forecast));
        drain.forecast = Some(forecast);
        if is_new {
            self.emit(EventKind::DrainForecast { node: id, forecast });
        }
        Ok(())
    }

    /// Takes a notice or decommission back.
    pub(super) fn cancel(&mut self, id: NodeId, orders: &mut Orders) -> Result<(), Refusal> {
        let node = self.nodes.live_mut(id)?;
        if node.policy == Policy::Active && node.risk.take().is_some() {
            self.cancelled.cancel(id, self.now);
            self.emit(EventKind::NodeCancelled { node: id });
            return Ok(());
        }
        if node.policy == Policy::Active {
            return Err(Refusal::WrongState { node: id, why: "it is not draining".to_owned() });
        }
        node.risk = None;
        self.cancelled.cancel(id, self.now);
        self.claims.cancel(id);
        self.activate(id, orders);
        Ok(())
    }

    /// Takes a notice or a recommendation again that the log does not have any more.
    pub(super) fn repeat(
        &mut self,
        id: NodeId,
        deadline: Option<Instant>,
        reason: String,
        known_at: Instant,
        orders: &mut Orders,
    ) -> Result<(), Refusal> {
        let node = self.nodes.live_mut(id)?;
        if !self.cancelled.is_forgotten(id, node, deadline, known_at) {
            return Ok(());
        }
        match deadline {
            Some(deadline) => {
                let claim = NoticeClaim { deadline, reason };
                self.notice(id, NoticeOrigin::Sources, claim, orders)
            }
            None => self.recommend(id, reason),
        }
    }

    /// Ends a drain: the node takes blocks again.
    fn activate(&mut self, id: NodeId, orders: &mut Orders) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        node.policy = Policy::Active;
        node.deadline = None;
        node.drain = None;
        node.reason.clear();
        let homes: Vec<BlockId> = node.held().homes.iter().copied().collect();
        for block in self.nodes.take_left(id) {
            // Nothing of it is wanted here: neither an old home's bytes nor a copy's.
            let last = self.blocks.get(&block).map_or(Epoch(u32::MAX), |kept| kept.epoch_last);
            orders.drop_block(id, block, last);
        }
        for block in homes {
            self.void_move(block, orders);
        }
        orders.lists().unfence_nodes.insert(id);
        self.emit(EventKind::NodeCancelled { node: id });
        if self.rules.learns_moves_of_leaving() {
            self.save_by_copies_of(id, orders);
        }
    }

    /// Makes homes of the copies on a node that stays again, where their homes leave.
    fn save_by_copies_of(&mut self, id: NodeId, orders: &mut Orders) {
        let Some(node) = self.nodes.get(id) else { return };
        let copies = node.held().copies.keys();
        let homes = copies.filter_map(|block| self.blocks.get(block)?.home);
        let homes: BTreeSet<NodeId> = homes.collect();
        homes.into_iter().for_each(|home| self.promote_copies(home, orders));
    }

    pub(super) fn fenced(&mut self, id: NodeId) {
        let Some(drain) = self.nodes.get_mut(id).and_then(|node| node.drain.as_mut()) else {
            return;
        };
        if !std::mem::replace(&mut drain.is_fenced, true) {
            self.emit(EventKind::NodeFenced { node: id });
        }
    }

    /// Returns whether a node that leaves may still turn out to be the home of blocks: for a while
    /// after a start, or as long as it has what only a lost end of the log can have moved there.
    fn may_show_homes(&mut self, id: NodeId) -> bool {
        if self.keeps_shown_for().is_none() {
            return false;
        }
        if let Some(left) = self.settles_in() {
            self.timers.schedule(self.now + left, Timer::Promote(id));
            return true;
        }
        let is_shown = |node: &NodeRecord| {
            node.held().copies.keys().any(|block| self.shown_moves.contains(*block))
        };
        self.nodes.get(id).is_some_and(is_shown)
    }

    /// Ends a drain when nothing is left to move.
    pub(super) fn check_drained(&mut self, id: NodeId) {
        let is_empty = |it: &NodeRecord| it.policy.is_draining() && it.held().homes.is_empty();
        if !self.nodes.get(id).is_some_and(is_empty) || self.may_show_homes(id) {
            return;
        }
        self.nodes.mark_fleet_stale();
        let Some(node) = self.nodes.get_mut(id) else { return };
        node.policy = Policy::Drained;
        let Some(drain) = &mut node.drain else { return };
        drain.ended_at = Some(self.now);
        let kind = EventKind::NodeDrained {
            node: id,
            moved_blocks: drain.moved_blocks,
            moved_bytes: drain.moved_bytes,
            elapsed: self.now.since(drain.began_at),
        };
        self.emit(kind);
    }
}
