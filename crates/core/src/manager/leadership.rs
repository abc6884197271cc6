//! The leadership lease, as a manager that requests it sees it.
//!
//! One manager leads at a time: the one that the namenode has given the lease to. The namenode
//! counts the lease from when it decides, the manager from when it has sent the request, which is
//! earlier. So a manager ends by its own clock before another one can be given the lease, whether
//! or not it receives an answer. The clock must not step.

use sanderling_protocol::{Instant, Millis};

use crate::retry::doubled;

/// Pause before an unanswered request is sent again; it doubles up to [`RETRY_MAX`] while the
/// manager does not lead. As often as it views drains by default: a manager that leads must renew
/// within 3 s.
const RETRY_MIN: Millis = Millis(50);

/// Longest pause between two requests of a manager that waits. A third of the lease by default, so
/// a lease that has ended is taken within a second.
const RETRY_MAX: Millis = Millis(1000);

/// One request for the lease, to distinguish its answer from answers to earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeadershipRequest(u64);

/// Counts the times that a manager has led without a gap. All of its state and every call under way
/// ends with a term: another manager may have led before the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaderTerm(u64);

/// The outcome of a request for the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeadershipAnswer {
    /// The lease is given or renewed.
    Granted,
    /// Another manager has it, for this long at least.
    Taken(Millis),
    /// No answer came in time, or one without a decision: the lease may have been given.
    Unknown,
}

/// Decides when to request the lease, and until when the manager may lead.
#[derive(Debug, Clone)]
pub struct Leadership {
    lease: Millis,
    /// When the request was sent that is under way.
    requested_at: Option<Instant>,
    /// Requests so far. Only the last one is under way.
    requests: u64,
    request_at: Instant,
    /// End of the lease, counted from its last request that was granted.
    until: Option<Instant>,
    terms: u64,
    pause: Millis,
    may_hold: bool,
}

impl Leadership {
    /// Returns a manager that has not requested the lease yet.
    #[must_use]
    pub const fn new(lease: Millis) -> Self {
        Self {
            lease,
            requested_at: None,
            requests: 0,
            request_at: Instant(0),
            until: None,
            terms: 0,
            pause: RETRY_MIN,
            may_hold: false,
        }
    }

    /// Returns the request to send now, if one is due. The shell ends it with
    /// [`Leadership::answered`], or with [`Leadership::dropped`].
    pub fn poll_request(&mut self, now: Instant) -> Option<LeadershipRequest> {
        if self.requested_at.is_some() || now < self.request_at {
            return None;
        }
        self.requests += 1;
        self.requested_at = Some(now);
        // It may be given although the answer is never read.
        self.may_hold = true;
        Some(LeadershipRequest(self.requests))
    }

    /// Takes what came of a request. Answers to requests that are not under way change nothing.
    pub fn answered(&mut self, now: Instant, request: LeadershipRequest, answer: LeadershipAnswer) {
        if request.0 != self.requests {
            return;
        }
        let Some(requested_at) = self.requested_at.take() else { return };
        match answer {
            LeadershipAnswer::Granted => self.granted(now, requested_at),
            LeadershipAnswer::Taken(remaining) => {
                self.may_hold = false;
                self.refused(now, remaining);
            }
            LeadershipAnswer::Unknown => {
                let is_leader = self.term(now).is_some();
                self.pause = if is_leader { RETRY_MIN } else { doubled(self.pause, 1, RETRY_MAX) };
                self.request_at = now + self.pause;
            }
        }
    }

    fn granted(&mut self, now: Instant, requested_at: Instant) {
        let until = requested_at + self.lease;
        self.pause = RETRY_MIN;
        if until <= now {
            // The answer was late. The next request must not be as late, but need not wait.
            self.request_at = now + RETRY_MIN;
            return;
        }
        if self.term(now).is_none() {
            self.terms += 1;
        }
        self.until = Some(until);
        // Three tries in one lease.
        self.request_at = requested_at + Millis(self.lease.0 / 3);
    }

    /// Notes that the namenode has refused a call because this manager has not the lease: the term
    /// ends. A request under way may have been granted before that, so its answer counts no more.
    pub fn refused(&mut self, now: Instant, remaining: Millis) {
        self.requested_at = None;
        self.until = None;
        self.pause = RETRY_MIN;
        self.request_at = now + remaining.clamp(RETRY_MIN, RETRY_MAX);
    }

    /// Notes that the shell waits for no answer any more, because its calls end with the term.
    pub fn dropped(&mut self, now: Instant) {
        if self.requested_at.take().is_some() {
            self.request_at = now + RETRY_MIN;
        }
    }

    /// Ends the term, because the shell cannot go on with it; the manager requests the lease again.
    pub fn resign(&mut self, now: Instant) {
        self.refused(now, RETRY_MIN);
    }

    /// Returns the term in which the manager may act now; `None` while it may not. To be called
    /// before everything that it does: a process may have been stopped for any time.
    #[must_use]
    pub fn term(&self, now: Instant) -> Option<LeaderTerm> {
        self.until.filter(|until| now < *until).map(|_| LeaderTerm(self.terms))
    }

    /// Returns when the lease is to be requested or the term ends, whichever comes first; `None`
    /// while an answer is awaited and there is no term to end.
    #[must_use]
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let request_at = self.requested_at.is_none().then_some(self.request_at);
        let until = self.until.filter(|until| now < *until);
        request_at.into_iter().chain(until).min()
    }

    /// Returns whether the namenode may take this manager for the leader, so that one that ends
    /// should give the lease back.
    #[must_use]
    pub const fn may_hold(&self) -> bool {
        self.may_hold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000);
    const LEASE: Millis = Millis(3000);

    /// Returns a manager that was granted the lease at [`NOW`], at once.
    fn leader() -> Leadership {
        let mut leadership = Leadership::new(LEASE);
        let request = leadership.poll_request(NOW).expect("the first is due at once");
        leadership.answered(NOW, request, LeadershipAnswer::Granted);
        leadership
    }

    #[test]
    fn lease_counts_from_the_request_and_not_from_the_answer() {
        let mut leadership = Leadership::new(LEASE);
        let request = leadership.poll_request(NOW).unwrap();
        assert_eq!(leadership.poll_request(NOW + LEASE), None, "one request at a time");
        leadership.answered(NOW + Millis(2000), request, LeadershipAnswer::Granted);
        assert!(leadership.term(NOW + Millis(2999)).is_some());
        assert_eq!(leadership.term(NOW + LEASE), None);
    }

    #[test]
    fn grant_that_arrives_after_its_own_end_gives_nothing() {
        let mut leadership = Leadership::new(LEASE);
        let request = leadership.poll_request(NOW).unwrap();
        let late = NOW + LEASE;
        leadership.answered(late, request, LeadershipAnswer::Granted);
        assert_eq!(leadership.term(late), None);
        assert_eq!(leadership.poll_request(late), None);
        assert!(leadership.poll_request(late + RETRY_MIN).is_some());
        assert!(leadership.may_hold(), "the namenode may count it from later");
    }

    #[test]
    fn leader_renews_before_its_lease_ends_and_tries_again_soon() {
        let mut leadership = leader();
        let term = leadership.term(NOW);
        let due = NOW + Millis(1000);
        assert_eq!(leadership.deadline(NOW), Some(due));
        let request = leadership.poll_request(due).unwrap();
        assert_eq!(leadership.deadline(due), Some(NOW + LEASE), "then its end is next");
        let lost = due + Millis(700);
        leadership.answered(lost, request, LeadershipAnswer::Unknown);
        let request = leadership.poll_request(lost + RETRY_MIN).unwrap();
        leadership.answered(lost + Millis(60), request, LeadershipAnswer::Granted);
        assert_eq!(leadership.term(NOW + LEASE), term, "it is the same term");
        assert_eq!(leadership.term(lost + RETRY_MIN + LEASE), None);
    }

    #[test]
    fn leader_without_answers_ends_by_itself_and_leads_in_another_term() {
        let mut leadership = leader();
        let term = leadership.term(NOW);
        let request = leadership.poll_request(NOW + Millis(2900)).unwrap();
        assert_eq!(leadership.term(NOW + LEASE), None);
        // Another manager may have led in between.
        leadership.answered(NOW + Millis(3100), request, LeadershipAnswer::Granted);
        let next = leadership.term(NOW + Millis(3100));
        assert!(next.is_some() && next != term);
    }

    #[test]
    fn process_that_was_stopped_does_not_act_on_what_waited() {
        let mut leadership = leader();
        let request = leadership.poll_request(NOW + Millis(1000)).unwrap();
        let woken = NOW + Millis(9000);
        assert_eq!(leadership.term(woken), None);
        leadership.answered(woken, request, LeadershipAnswer::Granted);
        assert_eq!(leadership.term(woken), None);
    }

    #[test]
    fn refused_call_ends_the_term_and_a_grant_from_before_it_counts_no_more() {
        let mut leadership = leader();
        let request = leadership.poll_request(NOW + Millis(1000)).unwrap();
        let refused_at = NOW + Millis(1010);
        leadership.refused(refused_at, Millis(700));
        leadership.answered(refused_at, request, LeadershipAnswer::Granted);
        assert_eq!(leadership.term(refused_at), None);
        assert_eq!(leadership.deadline(refused_at), Some(refused_at + Millis(700)));
    }

    #[test]
    fn answer_to_an_earlier_request_changes_nothing() {
        let mut leadership = Leadership::new(LEASE);
        let first = leadership.poll_request(NOW).unwrap();
        leadership.dropped(NOW);
        let second = leadership.poll_request(NOW + RETRY_MIN).unwrap();
        leadership.answered(NOW + RETRY_MIN, first, LeadershipAnswer::Granted);
        assert_eq!(leadership.term(NOW + RETRY_MIN), None);
        leadership.answered(NOW + RETRY_MIN, second, LeadershipAnswer::Granted);
        leadership.answered(NOW + RETRY_MIN, second, LeadershipAnswer::Taken(RETRY_MAX));
        assert!(leadership.term(NOW + RETRY_MIN).is_some(), "an answer counts once");
    }

    #[test]
    fn manager_that_waits_polls_ever_less_often_and_a_refused_one_when_the_lease_ends() {
        let mut leadership = Leadership::new(LEASE);
        let mut now = NOW;
        for pause in [100, 200, 400, 800, 1000, 1000] {
            let request = leadership.poll_request(now).unwrap();
            leadership.answered(now, request, LeadershipAnswer::Unknown);
            now = now + Millis(pause);
            assert_eq!(leadership.deadline(now), Some(now));
        }
        for (remaining, pause) in [(0, 50), (300, 300), (60_000, 1000)] {
            let request = leadership.poll_request(now).unwrap();
            leadership.answered(now, request, LeadershipAnswer::Taken(Millis(remaining)));
            assert!(!leadership.may_hold());
            now = now + Millis(pause);
            assert_eq!(leadership.deadline(now), Some(now));
        }
    }
}
