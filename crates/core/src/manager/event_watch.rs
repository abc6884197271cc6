//! When a manager that leads requests the cluster's events, and which of them bring its next view
//! forward.
//!
//! One request is under way at a time, which the namenode answers when an event comes, or after a
//! while with none. The next one follows at once, so that an event is read when it happens.

use sanderling_protocol::{Event, Instant, Millis};

use super::ViewSchedule;

/// Pause before events are requested again from a namenode that did not answer. The manager views
/// the drains without them, by default as often (`ManagerOptions::poll_idle`).
const RETRY_PAUSE: Millis = Millis(1000);

/// Follows the events of the cluster.
#[derive(Debug, Clone, Default)]
pub struct EventWatch {
    /// Sequence of the last event so far.
    last: u64,
    is_requested: bool,
    request_at: Instant,
}

impl EventWatch {
    /// Begins the request for events that is due, if one is. Returns the sequence after which they
    /// are requested. The shell ends it with [`EventWatch::answered`] or [`EventWatch::failed`].
    pub fn poll_request(&mut self, now: Instant) -> Option<u64> {
        if self.is_requested || now < self.request_at {
            return None;
        }
        self.is_requested = true;
        Some(self.last)
    }

    /// Takes the events of the answer, in their order; none if none came in time. Returns whether
    /// one of them reports something that the manager has not done itself, by
    /// [`ViewSchedule::is_changed_by`].
    pub fn answered(&mut self, now: Instant, events: &[Event]) -> bool {
        if !std::mem::take(&mut self.is_requested) {
            return false;
        }
        self.request_at = now;
        self.last = events.last().map_or(self.last, |event| event.sequence);
        events.iter().any(|event| ViewSchedule::is_changed_by(&event.kind))
    }

    /// Notes that no answer came to the request.
    pub fn failed(&mut self, now: Instant) {
        self.is_requested = false;
        self.request_at = now + RETRY_PAUSE;
    }

    /// Returns when the next request is due; `None` while one is under way.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_requested).then_some(self.request_at)
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{EventKind, JobId, NodeId, Path};

    use super::*;

    const NOW: Instant = Instant(1_000_000);

    fn cancelled(sequence: u64) -> Event {
        Event { sequence, at: NOW, kind: EventKind::NodeCancelled { node: NodeId(1) } }
    }

    fn registered(sequence: u64) -> Event {
        let kind = EventKind::JobRegistered { job: JobId(1), path: Path::root() };
        Event { sequence, at: NOW, kind }
    }

    #[test]
    fn events_are_requested_one_after_the_other_from_the_last_one_on() {
        let mut watch = EventWatch::default();
        assert_eq!(watch.poll_request(NOW), Some(0));
        assert_eq!((watch.poll_request(NOW + RETRY_PAUSE), watch.deadline()), (None, None));
        watch.answered(NOW, &[cancelled(3), registered(5)]);
        assert_eq!(watch.deadline(), Some(NOW));
        assert_eq!(watch.poll_request(NOW), Some(5));
        assert!(!watch.answered(NOW, &[]), "none came in time");
        assert_eq!(watch.poll_request(NOW), Some(5));
    }

    #[test]
    fn one_event_that_the_manager_did_not_cause_is_enough_wherever_it_is() {
        for (events, is_changed) in [
            (vec![], false),
            (vec![registered(1), registered(2)], false),
            (vec![registered(1), cancelled(2)], true),
            (vec![cancelled(1), registered(2)], true),
        ] {
            let mut watch = EventWatch::default();
            assert!(!watch.answered(NOW, &events), "nothing is under way");
            watch.poll_request(NOW).expect("the first is due at once");
            assert_eq!(watch.answered(NOW, &events), is_changed, "{events:?}");
        }
    }

    #[test]
    fn request_without_an_answer_is_repeated_after_a_second_with_the_same_sequence() {
        let mut watch = EventWatch::default();
        watch.poll_request(NOW).expect("the first is due at once");
        watch.answered(NOW, &[cancelled(3)]);
        watch.poll_request(NOW).expect("the next follows");
        watch.failed(NOW);
        assert_eq!(watch.poll_request(NOW + Millis(999)), None);
        assert_eq!(watch.deadline(), Some(NOW + Millis(1000)));
        assert_eq!(watch.poll_request(NOW + Millis(1000)), Some(3));
    }
}
