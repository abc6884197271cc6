//! When a manager requests its view: the drains and the nodes, as the namenode has them.
//!
//! A view is requested often while nodes drain, seldom while none does, and soon when an event
//! reports a change. One request is under way at a time. An event that arrives meanwhile may not be
//! in that request's answer, so another request follows it. Requests begin at least 50 ms apart,
//! whatever events tenants cause: a view lists all nodes.

use sanderling_protocol::{EventKind, Instant, Millis};

/// Shortest time between the beginnings of two requests that events cause, and shortest pause after
/// a request that got no answer, so that a namenode that is away is not flooded. As long as its
/// pause between two views of drains by default (`ManagerOptions::poll`).
const PAUSE_MIN: Millis = Millis(50);

/// One request for a view, to distinguish its answer from answers to earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewRequest(u64);

/// Decides when a manager requests its view.
#[derive(Debug, Clone)]
pub struct ViewSchedule {
    /// Pause between two views while nodes drain.
    poll: Millis,
    /// Pause between two views while none does and no event comes.
    poll_idle: Millis,
    /// Requests so far. Only the last one can be under way.
    requests: u64,
    is_requested: bool,
    /// When the last request was sent; `None` before the first.
    requested_at: Option<Instant>,
    /// An event came while a request was under way.
    is_stale: bool,
    request_at: Instant,
}

impl ViewSchedule {
    /// Returns a schedule whose first request is due at once.
    #[must_use]
    pub const fn new(poll: Millis, poll_idle: Millis) -> Self {
        Self {
            poll,
            poll_idle,
            requests: 0,
            is_requested: false,
            requested_at: None,
            is_stale: false,
            request_at: Instant(0),
        }
    }

    /// Returns the request to send now, if one is due. The shell ends it with
    /// [`ViewSchedule::answered`] or [`ViewSchedule::failed`].
    pub fn poll_request(&mut self, now: Instant) -> Option<ViewRequest> {
        if self.is_requested || now < self.request_at {
            return None;
        }
        self.requests += 1;
        self.is_requested = true;
        self.requested_at = Some(now);
        self.is_stale = false;
        Some(ViewRequest(self.requests))
    }

    /// Notes that a view arrived, and whether nodes drain in it. Answers to requests that are not
    /// under way change nothing.
    pub fn answered(&mut self, now: Instant, request: ViewRequest, has_drains: bool) {
        let pause = if has_drains { self.poll } else { self.poll_idle };
        self.ended(now, request, pause);
    }

    /// Notes that a request got no view, so that the next one follows after a pause. A request that
    /// is not under way changes nothing.
    pub fn failed(&mut self, now: Instant, request: ViewRequest) {
        if self.ended(now, request, self.poll.max(PAUSE_MIN)) {
            // What an event reports is still to be seen, but not at the price of a busy loop.
            self.request_at = self.request_at.max(now + PAUSE_MIN);
        }
    }

    /// Takes the end of a request; returns whether that one was under way.
    fn ended(&mut self, now: Instant, request: ViewRequest, pause: Millis) -> bool {
        if request.0 != self.requests || !std::mem::take(&mut self.is_requested) {
            return false;
        }
        let is_stale = std::mem::take(&mut self.is_stale);
        self.request_at = if is_stale { self.soonest(now) } else { now + pause };
        true
    }

    /// Returns whether an event reports something about nodes that the manager does not have from
    /// its own calls. A view of all nodes after each of its moves would cost more than the moves,
    /// and one after each job would let any tenant cause views.
    #[must_use]
    pub const fn is_changed_by(event: &EventKind) -> bool {
        !matches!(
            event,
            EventKind::BlocksMoved { .. }
                | EventKind::BlocksCopied { .. }
                | EventKind::BlocksRebalanced { .. }
                | EventKind::JobRegistered { .. }
                | EventKind::JobEnded { .. }
        )
    }

    /// Takes that an event reports a change that a view may show, by
    /// [`ViewSchedule::is_changed_by`]: the next request is due as soon
    /// as the one under way has ended, 50 ms after that one's beginning at the earliest.
    pub fn changed(&mut self, now: Instant) {
        self.is_stale = self.is_requested;
        self.request_at = self.soonest(now);
    }

    /// Returns when the next request may begin.
    fn soonest(&self, now: Instant) -> Instant {
        self.requested_at.map_or(now, |at| now.max(at + PAUSE_MIN))
    }

    /// Returns when the next request is due; `None` while one is under way.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_requested).then_some(self.request_at)
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{JobId, NodeId, Path};

    use super::*;

    const NOW: Instant = Instant(1_000_000);
    const POLL: Millis = Millis(20);
    const IDLE: Millis = Millis(1000);

    fn requested() -> (ViewSchedule, ViewRequest) {
        let mut schedule = ViewSchedule::new(POLL, IDLE);
        let request = schedule.poll_request(NOW).expect("the first is due at once");
        (schedule, request)
    }

    #[test]
    fn view_is_requested_often_while_nodes_drain_and_seldom_otherwise() {
        for (has_drains, pause) in [(true, POLL), (false, IDLE)] {
            let (mut schedule, request) = requested();
            assert_eq!(schedule.poll_request(NOW + IDLE), None, "one request at a time");
            assert_eq!(schedule.deadline(), None);
            schedule.answered(NOW, request, has_drains);
            assert_eq!(schedule.deadline(), Some(NOW + pause));
            assert!(schedule.poll_request(NOW + pause).is_some());
        }
    }

    #[test]
    fn own_moves_and_jobs_call_for_no_view_and_other_events_do() {
        let (from, to, blocks, bytes) = (NodeId(1), NodeId(2), 1, 10);
        let (job, path) = (JobId(1), Path::root());
        let (is_expired, freed_bytes) = (false, 10);
        for own in [
            EventKind::BlocksMoved { from, to, blocks, bytes },
            EventKind::BlocksCopied { from, to, blocks, bytes },
            EventKind::BlocksRebalanced { from, to, blocks, bytes },
            EventKind::JobRegistered { job, path: path.clone() },
            EventKind::JobEnded { job, path, is_expired, freed_bytes },
        ] {
            assert!(!ViewSchedule::is_changed_by(&own), "{own:?}");
        }
        let promoted = EventKind::BlocksPromoted { from, blocks, bytes };
        for other in [EventKind::NodeCancelled { node: from }, promoted] {
            assert!(ViewSchedule::is_changed_by(&other), "{other:?}");
        }
    }

    #[test]
    fn event_makes_a_request_due_but_not_one_after_the_other() {
        let (mut schedule, request) = requested();
        schedule.answered(NOW, request, false);
        schedule.changed(NOW + Millis(5));
        assert_eq!(schedule.deadline(), Some(NOW + PAUSE_MIN));
        let late = NOW + Millis(400);
        schedule.changed(late);
        assert!(schedule.poll_request(late).is_some(), "the last one is long ago");
    }

    #[test]
    fn event_during_a_request_makes_another_one_follow() {
        let (mut schedule, request) = requested();
        schedule.changed(NOW + Millis(1));
        assert_eq!(schedule.poll_request(NOW + PAUSE_MIN), None);
        let end = NOW + PAUSE_MIN + Millis(2);
        schedule.answered(end, request, false);
        let next = schedule.poll_request(end).expect("the view may lack the event");
        schedule.answered(end, next, false);
        assert_eq!(schedule.deadline(), Some(end + IDLE), "it counts once");
    }

    #[test]
    fn failed_requests_are_repeated_after_a_pause_even_if_events_came() {
        for (has_event, end) in [(false, NOW), (true, NOW), (true, NOW + IDLE)] {
            let (mut schedule, request) = requested();
            if has_event {
                schedule.changed(NOW);
            }
            schedule.failed(end, request);
            assert_eq!(schedule.deadline(), Some(end + PAUSE_MIN));
        }
    }

    #[test]
    fn answer_to_an_earlier_request_changes_nothing() {
        let (mut schedule, first) = requested();
        schedule.failed(NOW, first);
        let second = schedule.poll_request(NOW + PAUSE_MIN).unwrap();
        schedule.answered(NOW + PAUSE_MIN, first, false);
        schedule.failed(NOW + IDLE, first);
        assert_eq!(schedule.deadline(), None, "the second is under way");
        schedule.answered(NOW + PAUSE_MIN, second, false);
        schedule.answered(NOW + IDLE, second, true);
        assert_eq!(schedule.deadline(), Some(NOW + PAUSE_MIN + IDLE), "an answer counts once");
    }
}
