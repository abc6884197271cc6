//! When a client renews the leases of its jobs and writers, and which of its writers have lost
//! theirs.
//!
//! A lease is renewed when a third of it has passed since the last renewal that succeeded was sent.
//! A renewal without an answer within a sixth of the lease has failed, and is repeated after a
//! short pause. So two renewals in a row may fail: the third one is sent before the lease ends. The
//! namenode counts a lease from when the renewal arrives, which is later than the client does.
//!
//! Times are by a clock that does not step, such as the time since the client connected.

use std::collections::BTreeMap;
use std::ops::Bound;

use sanderling_protocol::limits::LEASES_PER_RENEWAL_MAX;
use sanderling_protocol::message::Grant;
use sanderling_protocol::{Instant, LeaseId, Millis, ObjectId};

use crate::retry::doubled;

/// Parts of a lease, after the first of which it is renewed. With four, a client that is not
/// disturbed would send a third more renewals.
const PAUSE_PARTS: u64 = 3;

/// Parts of a lease, in one of which a renewal must be answered: with the first one sent after two
/// of them, and the pauses, three renewals fit into the lease.
const WITHIN_PARTS: u64 = 6;

/// Longest pause between two renewals of writers' leases: a fifth of the lease that a namenode
/// gives by default.
const WRITER_PAUSE_MAX: Millis = Millis(2000);

/// Shortest pause between two renewals: a third of 30 ms, the shortest lease that is renewed in
/// time.
const PAUSE_MIN: Millis = Millis(10);

/// Shortest time for the answer to a renewal: half of [`PAUSE_MIN`], as with longer leases.
const WITHIN_MIN: Millis = Millis(5);

/// Parts of the pause between two renewals, one of which is the pause after the first one that
/// failed. This and its double, after the second one, are an eighth of the lease.
const RETRY_PARTS: u64 = 8;

/// Longest pause after the first renewal that failed. It doubles with each further one. As long as
/// a manager's after a request for its lease.
const RETRY_FIRST_MAX: Millis = Millis(50);

/// Longest pause after a renewal that failed, so that a job's lease of hours outlives any outage
/// that is shorter. As seldom as a writer's lease is renewed.
const RETRY_MAX: Millis = WRITER_PAUSE_MAX;

/// The times of a lease's renewals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RenewalPace {
    /// Between the beginnings of two that succeed.
    pause: Millis,
    /// For the answer to one.
    within: Millis,
}

impl RenewalPace {
    fn of_job(lease: Millis) -> Self {
        let pause = Millis(lease.0 / PAUSE_PARTS).max(PAUSE_MIN);
        let within = Millis(lease.0 / WITHIN_PARTS).max(WITHIN_MIN);
        assert!(within <= pause, "a renewal has failed before the next one is due");
        Self { pause, within }
    }

    fn of_writer(lease: Millis) -> Self {
        let pace = Self::of_job(lease);
        Self { pause: pace.pause.min(WRITER_PAUSE_MAX), ..pace }
    }

    /// Returns the pace that is fast enough for both.
    fn faster(self, other: Self) -> Self {
        Self { pause: self.pause.min(other.pause), within: self.within.min(other.within) }
    }

    /// Returns the pause after so many renewals that failed in a row, at least one.
    fn retry(self, failed: u32) -> Millis {
        let first = Millis(self.pause.0 / RETRY_PARTS).clamp(Millis(1), RETRY_FIRST_MAX);
        doubled(first, failed.saturating_sub(1), self.pause.min(RETRY_MAX))
    }
}

/// Decides when the lease of one job is renewed. Each renewal of a job is a command of the log, and
/// jobs have leases of hours, so the pauses between those that succeed have no bound.
#[derive(Debug, Clone)]
pub struct RenewalTimer {
    pace: RenewalPace,
    due: Instant,
    /// When the renewal was sent that is under way.
    sent_at: Option<Instant>,
    /// Renewals that failed since the last one that succeeded.
    failed: u32,
}

impl RenewalTimer {
    /// Returns the times of a job whose lease of so many milliseconds was granted or renewed `now`.
    #[must_use]
    pub fn of_job(now: Instant, lease: Millis) -> Self {
        let pace = RenewalPace::of_job(lease);
        Self { pace, due: now + pace.pause, sent_at: None, failed: 0 }
    }

    /// Begins a renewal if one is due. Returns the longest time for its answer, in milliseconds;
    /// the shell gives it up then. It ends with [`RenewalTimer::renewed`] or
    /// [`RenewalTimer::failed`].
    pub fn poll(&mut self, now: Instant) -> Option<Millis> {
        if self.sent_at.is_some() || now < self.due {
            return None;
        }
        self.sent_at = Some(now);
        Some(self.pace.within)
    }

    /// Notes that the renewal under way has succeeded.
    pub fn renewed(&mut self) {
        if let Some(sent_at) = self.sent_at.take() {
            self.due = sent_at + self.pace.pause;
            self.failed = 0;
        }
    }

    /// Notes that the renewal under way got no answer in time, or was refused although the job may
    /// have its lease. Returns whether the one before it had succeeded.
    pub fn failed(&mut self, now: Instant) -> bool {
        if self.sent_at.take().is_none() {
            return false;
        }
        self.failed = self.failed.saturating_add(1);
        self.due = now + self.pace.retry(self.failed);
        self.failed == 1
    }

    /// Returns when the next renewal is due; `None` while one is under way.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.sent_at.is_none().then_some(self.due)
    }
}

/// One request that renews leases of writers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalRequest {
    /// Its number, to distinguish its answer from answers to earlier ones.
    pub number: u64,
    /// The objects and their leases, at most 65,536 ([`LEASES_PER_RENEWAL_MAX`]).
    pub leases: Vec<(ObjectId, LeaseId)>,
    /// Longest time for its answer: the shell gives it up then.
    pub within: Millis,
}

/// The lease of an open writer.
#[derive(Debug)]
struct OpenLease<W> {
    lease: LeaseId,
    pace: RenewalPace,
    /// Number of the last request that named it; 0 before the first.
    request: u64,
    writer: W,
}

/// One renewal of all leases: one request after the other.
#[derive(Debug)]
struct RenewalRound {
    began: Instant,
    /// The last object that was open at its beginning; `None` if none was. Those that are opened
    /// later have the next round: else this one might never end.
    until: Option<ObjectId>,
    /// The last object that was named so far.
    last: Option<ObjectId>,
    /// Whether a request is under way.
    is_requested: bool,
    has_failed: bool,
}

/// Decides when a client renews the leases of its open writers, all together, and which of them
/// have ended. `W` is a writer, or what stands for it.
#[derive(Debug)]
pub struct LeaseRenewals<W> {
    open: BTreeMap<ObjectId, OpenLease<W>>,
    /// When the next round begins. In a round: when a lease is due that was opened meanwhile.
    due: Option<Instant>,
    round: Option<RenewalRound>,
    /// Requests so far. Only the last one can be under way.
    requests: u64,
    /// Rounds that failed since the last one that succeeded.
    failed: u32,
}

impl<W> Default for LeaseRenewals<W> {
    fn default() -> Self {
        Self { open: BTreeMap::new(), due: None, round: None, requests: 0, failed: 0 }
    }
}

impl<W> LeaseRenewals<W> {
    /// Renews the lease of a grant from now on. Returns whether [`LeaseRenewals::deadline`] is
    /// earlier than before.
    pub fn open(&mut self, now: Instant, grant: &Grant, writer: W) -> bool {
        let (lease, pace) = (grant.lease, RenewalPace::of_writer(grant.lease_millis));
        self.open.insert(grant.object, OpenLease { lease, pace, request: 0, writer });
        // The namenode has just answered.
        self.failed = 0;
        let due = now + pace.pause;
        let is_sooner = self.due.is_none_or(|before| due < before);
        if is_sooner {
            self.due = Some(due);
        }
        is_sooner && self.round.is_none()
    }

    /// Renews a lease no more: its writer is gone. A later lease on the same object stays.
    pub fn close(&mut self, object: ObjectId, lease: LeaseId) {
        if self.open.get(&object).is_some_and(|open| open.lease == lease) {
            self.open.remove(&object);
        }
    }

    /// Returns the request to send now, if one is due. The shell ends it with
    /// [`LeaseRenewals::answered`] or [`LeaseRenewals::failed`], and calls this again then, until
    /// it returns `None`.
    pub fn poll_request(&mut self, now: Instant) -> Option<RenewalRequest> {
        if self.round.is_none() {
            self.due.take_if(|due| *due <= now)?;
            let until = self.open.last_key_value().map(|(object, _)| *object);
            let (last, is_requested, has_failed) = (None, false, false);
            self.round = Some(RenewalRound { began: now, until, last, is_requested, has_failed });
        }
        let round = self.round.as_mut().filter(|round| !round.is_requested)?;
        let number = self.requests + 1;
        let behind = round.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut within = Millis(u64::MAX);
        let mut leases = Vec::new();
        let until = round.until;
        let left = self.open.range_mut((behind, Bound::Unbounded));
        let left = left.take_while(|(object, _)| Some(**object) <= until);
        for (object, open) in left.take(LEASES_PER_RENEWAL_MAX) {
            open.request = number;
            within = within.min(open.pace.within);
            leases.push((*object, open.lease));
        }
        let Some((last, _)) = leases.last() else {
            self.end_round(now);
            return None;
        };
        assert!(round.last < Some(*last), "a lease is in one request of a round");
        (round.last, round.is_requested) = (Some(*last), true);
        self.requests = number;
        Some(RenewalRequest { number, leases, within })
    }

    /// Sets when the next round begins.
    fn end_round(&mut self, now: Instant) {
        let Some(round) = self.round.take() else { return };
        assert!(!round.is_requested, "a round ends behind its last request");
        self.failed = if round.has_failed { self.failed.saturating_add(1) } else { 0 };
        let paces = self.open.values().map(|open| open.pace);
        let Some(pace) = paces.reduce(RenewalPace::faster) else {
            self.due = None;
            return;
        };
        let due = match self.failed {
            0 => round.began + pace.pause,
            failed => now + pace.retry(failed),
        };
        self.due = Some(self.due.map_or(due, |opened| opened.min(due)));
    }

    /// Takes the answer to a request: the objects on which a lease that it named has ended. Returns
    /// their writers, whose leases are renewed no more. An answer to an earlier request changes
    /// nothing, and neither does what it reports of an object that another writer has opened since.
    pub fn answered(&mut self, number: u64, ended: &[ObjectId]) -> Vec<W> {
        if !self.end_request(number, false) {
            return Vec::new();
        }
        let mut writers = Vec::new();
        for object in ended {
            let is_named = self.open.get(object).is_some_and(|open| open.request == number);
            if is_named && let Some(open) = self.open.remove(object) {
                writers.push(open.writer);
            }
        }
        writers
    }

    /// Notes that a request got no answer in time, or was refused.
    pub fn failed(&mut self, number: u64) {
        self.end_request(number, true);
    }

    /// Ends the request under way; returns whether it has that number.
    fn end_request(&mut self, number: u64, has_failed: bool) -> bool {
        let round = self.round.as_mut().filter(|round| round.is_requested);
        let Some(round) = round.filter(|_| number == self.requests) else { return false };
        round.is_requested = false;
        round.has_failed |= has_failed;
        true
    }

    /// Returns when the next request is due; `None` while one is under way, and if no writer is
    /// open.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.due.filter(|_| self.round.is_none())
    }
}

#[cfg(test)]
mod tests;
