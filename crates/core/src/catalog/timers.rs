//! What becomes due by itself: lifetimes, leases, deadlines.

use std::collections::BTreeSet;

use sanderling_protocol::{BlockId, Epoch, Instant, JobId, NodeId, ObjectId};
use serde::{Deserialize, Serialize};

/// Something with a time. Ordered so that equal times are taken in the same order everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Timer {
    /// An object's time to live ends.
    Object(ObjectId),
    /// A writer's lease ends.
    Lease(ObjectId),
    /// A job's lease ends.
    Job(JobId),
    /// A noticed node's deadline passes.
    Node(NodeId),
    /// A reservation without a drain ends.
    Move(BlockId, Epoch),
    /// More copies of a draining node's blocks become homes.
    Promote(NodeId),
    /// Moves that were gathered get their events.
    Events,
}

/// What becomes due, by time. Entries may be early: what they name has the time that counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    pub(super) fn schedule(&mut self, at: Instant, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(super) fn cancel(&mut self, at: Instant, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    /// Returns when the first one is due.
    pub(super) fn first(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes the first one that is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        self.first().filter(|at| *at <= now)?;
        self.0.pop_first().map(|(_, timer)| timer)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
