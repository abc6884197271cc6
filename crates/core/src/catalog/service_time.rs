//! Service time: a clock that stands still while no namenode serves.
//!
//! Leases and times to live are promises of the form "renew within 10 s" and "keep for an hour". A
//! client cannot renew while nobody listens, so the time in which no namenode served does not
//! count: these durations run on service time, which is the log's time less all absences. Deadlines
//! of notices are points in time, set by the cloud, and stay on the log's time.

use std::collections::BTreeSet;

use sanderling_protocol::node::Policy;
use sanderling_protocol::{Instant, Millis, NodeId, ObjectId};
use serde::{Deserialize, Serialize};

use super::Catalog;
use super::timers::Timer;

/// Time that a noticed node has left at least after an absence: as long as the absence, within
/// these bounds. The namenode reads what has waited (commits of blocks that arrived meanwhile)
/// before it declares anything lost. A machine that is really gone is found out by its silence.
const AFTER_ABSENCE: (Millis, Millis) = (Millis(2_000), AFTER_ABSENCE_MAX);

/// The most time that a noticed node is left after an absence, if its deadline comes sooner.
pub(crate) const AFTER_ABSENCE_MAX: Millis = Millis(10_000);

/// What is known of service time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServiceTime {
    /// The sum of all absences.
    pub(super) absent: Millis,
    /// When, by service time, a namenode last started: every lease counts as renewed then.
    pub(super) resumed_at: Instant,
    /// What becomes due by service time. Entries of leases may be early, since renewals do not
    /// touch them; an object with a time to live has exactly one.
    pub(super) due: BTreeSet<(Instant, Timer)>,
}

impl Catalog {
    /// Returns the service time of the last command.
    pub(super) fn served(&self) -> Instant {
        self.served_at(self.now)
    }

    /// Returns the service time at a time of the log, if nobody is absent until then.
    pub(super) fn served_at(&self, now: Instant) -> Instant {
        now - self.service.absent
    }

    /// Returns when a lease ends that was last renewed to `until`, both in service time: a start of
    /// the namenode renews every lease.
    pub(super) fn lease_end(&self, until: Instant, lease: Millis) -> Instant {
        until.max(self.service.resumed_at + lease)
    }

    pub(super) fn schedule_served(&mut self, at: Instant, due: Timer) {
        self.service.due.insert((at, due));
    }

    /// Sets when an object's time to live ends, by service time; `None` to keep it for ever.
    pub(super) fn set_expiry(&mut self, id: ObjectId, at: Option<Instant>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut object.expires_at, at) {
            self.forget_expiry(id, before);
        }
        if let Some(at) = at {
            self.schedule_served(at, Timer::Object(id));
        }
    }

    /// Forgets when the time to live of an object ends that goes.
    pub(super) fn forget_expiry(&mut self, id: ObjectId, at: Instant) {
        self.service.due.remove(&(at, Timer::Object(id)));
    }

    /// Does not count a time in which no namenode served against leases, times to live and notices.
    pub(super) fn absent(&mut self, absence: Millis) {
        self.service.absent = Millis(self.service.absent.0.saturating_add(absence.0));
        let soonest = self.now + absence.clamp(AFTER_ABSENCE.0, AFTER_ABSENCE.1);
        let is_short = |deadline: Instant| deadline < soonest && absence.0 > 0;
        let short: Vec<NodeId> = self
            .nodes
            .by_id
            .iter()
            .filter(|(_, node)| node.policy != Policy::Gone && node.deadline.is_some_and(is_short))
            .map(|(id, _)| *id)
            .collect();
        for id in short {
            if let Some(node) = self.nodes.get_mut(id) {
                node.deadline = Some(soonest);
            }
            self.schedule(soonest, Timer::Node(id));
        }
    }

    /// Counts every lease as renewed now.
    pub(super) fn renew_all(&mut self) {
        self.service.resumed_at = self.served();
    }
}
