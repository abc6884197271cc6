//! The fleet: the parts of the catalog that have to do with nodes, and with where blocks are.
//!
//! What drains nodes, moves blocks and makes copies borrows these parts alone, and so changes no
//! name, no object and nothing of a client. What ends a node for good loses bytes of objects: that
//! is for the catalog.

use sanderling_protocol::event::LossReport;
use sanderling_protocol::{BlockId, EventKind, Instant, Millis};

use super::block_map::BlockMap;
use super::claims::{Cancellations, DrainClaims};
use super::events::{Events, Gathered};
use super::history::History;
use super::job_table::Jobs;
use super::limits::CatalogLimits;
use super::members::Nodes;
use super::orders::Orders;
use super::rules::Rules;
use super::service_time::ServiceTime;
use super::shown_moves::ShownMoves;
use super::timers::Timers;

/// Nodes, the blocks on them, and what follows from a change of either.
pub(super) struct Fleet<'a> {
    /// The time of the present command.
    pub(super) now: Instant,
    pub(super) rules: Rules,
    pub(super) limits: CatalogLimits,
    pub(super) service: &'a ServiceTime,
    pub(super) history: &'a History,
    pub(super) blocks: &'a mut BlockMap,
    pub(super) nodes: &'a mut Nodes,
    /// Blocks count in the quotas of their jobs.
    pub(super) jobs: &'a mut Jobs,
    pub(super) claims: &'a mut DrainClaims,
    pub(super) cancelled: &'a mut Cancellations,
    pub(super) shown_moves: &'a mut ShownMoves,
    pub(super) timers: &'a mut Timers,
    pub(super) events: &'a mut Events,
    pub(super) report: &'a mut LossReport,
}

impl Fleet<'_> {
    /// Adds an event at the log's time.
    pub(super) fn emit(&mut self, kind: EventKind) {
        self.events.emit(self.now, kind);
    }

    /// Counts blocks and bytes that have moved.
    pub(super) fn gather(&mut self, moved: Gathered, sum: (u64, u64)) {
        self.events.gather(self.now, moved, sum, self.timers);
    }

    /// Gives a reserved move up; its target forgets what it may have stored.
    pub(super) fn void_move(&mut self, id: BlockId, orders: &mut Orders) {
        self.blocks.void_move(id, self.nodes, orders);
    }

    /// Gives a block's copy beside the home up.
    pub(super) fn drop_copy(&mut self, id: BlockId, orders: &mut Orders) {
        self.blocks.drop_copy(id, self.nodes, orders);
        self.shown_moves.remove(id);
    }

    /// Returns for how long nodes that leave keep what a lost end of the log had moved to them:
    /// see [`ShownMoves::kept_for`].
    pub(super) fn keeps_shown_for(&self) -> Option<Millis> {
        self.shown_moves.kept_for(self.service.at(self.now), self.rules)
    }

    /// Returns for how long nodes may still have to report what a lost end of the log has made of
    /// blocks: see [`History::settles_in`].
    pub(super) fn settles_in(&self) -> Option<Millis> {
        self.history.settles_in(self.service, self.now)
    }
}
