//! Service time: a clock that stands still while no namenode serves.
//!
//! Leases and times to live are promises of the form "renew within 10 s" and "keep for an hour". A
//! client cannot renew while no namenode listens, so the time in which no namenode served does not
//! count: these durations run on service time, which is the log's time less all absences. Deadlines
//! of notices are points in time, set by the cloud, and stay on the log's time.

use sanderling_protocol::{Instant, Millis};
use serde::{Deserialize, Serialize};

use super::timers::{Timer, Timers};

/// Time that a noticed node has left at least after an absence: as long as the absence, within
/// these bounds. The namenode reads what has waited (commits of blocks that arrived meanwhile)
/// before it declares anything lost. A machine that is really gone is found out by its silence.
const AFTER_ABSENCE: (Millis, Millis) = (Millis(2_000), AFTER_ABSENCE_MAX);

/// The most time that a noticed node is left after an absence, if its deadline comes sooner: the
/// default deadline of a call, within which what has waited arrives.
pub(crate) const AFTER_ABSENCE_MAX: Millis = Millis(10_000);

/// What is known of service time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServiceTime {
    /// The sum of all absences.
    absent: Millis,
    /// When, by service time, a namenode last started: every lease counts as renewed then.
    resumed_at: Instant,
    /// What becomes due by service time. Entries of leases may be early, since renewals do not
    /// touch them; an object with a time to live has exactly one.
    timers: Timers,
}

impl ServiceTime {
    /// Returns the service time at a time of the log, if there is no absence until then.
    pub(super) fn at(&self, now: Instant) -> Instant {
        now - self.absent
    }

    /// Returns when a lease ends that was last renewed to `until`, both in service time: a start of
    /// the namenode renews every lease.
    pub(super) fn lease_end(&self, until: Instant, lease: Millis) -> Instant {
        until.max(self.resumed_at + lease)
    }

    /// Returns when a namenode last started.
    pub(super) const fn resumed_at(&self) -> Instant {
        self.resumed_at
    }

    /// Does not count an absence against leases and times to live. Returns the time that a noticed
    /// node has left after it at least.
    pub(super) fn add_absence(&mut self, absence: Millis) -> Millis {
        self.absent = Millis(self.absent.0.saturating_add(absence.0));
        absence.clamp(AFTER_ABSENCE.0, AFTER_ABSENCE.1)
    }

    /// Counts every lease as renewed now.
    pub(super) fn renew_all(&mut self, now: Instant) {
        self.resumed_at = self.at(now);
    }

    /// Schedules what becomes due by service time.
    pub(super) fn schedule(&mut self, at: Instant, timer: Timer) {
        self.timers.schedule(at, timer);
    }

    pub(super) fn cancel(&mut self, at: Instant, timer: Timer) {
        self.timers.cancel(at, timer);
    }

    /// Returns the time of the log at which the first timer is due, without another absence.
    pub(super) fn first(&self) -> Option<Instant> {
        self.timers.first().map(|at| at + self.absent)
    }

    /// Takes the first timer that is due at a time of the log.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        self.timers.take_due(self.at(now))
    }

    pub(super) fn timer_count(&self) -> usize {
        self.timers.len()
    }

    /// Asserts what must hold after every command.
    pub(super) fn assert(&self, now: Instant) {
        assert!(self.absent.0 <= now.0 / 1000, "absent for longer than there is time");
    }
}
