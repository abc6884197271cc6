//! What a datanode knows of the namenode's log, so that it notices when the log has lost its end.

use sanderling_protocol::LogPosition;
use sanderling_protocol::message::{Joined, Wiped};

/// What a process was told of the log, across all nodes that it was.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownLog {
    seen: Option<LogPosition>,
    wiped: Option<Wiped>,
}

/// The log has lost its end: it lacks changes that this process was told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostEnd {
    /// The last place in the log that the process was told of.
    pub seen: Option<LogPosition>,
    /// Where the log is now.
    pub position: Option<LogPosition>,
}

impl KnownLog {
    /// Returns the last place in the log that an answer named.
    #[must_use]
    pub const fn seen(&self) -> Option<LogPosition> {
        self.seen
    }

    /// Returns what was dropped and not yet reported.
    #[must_use]
    pub const fn wiped(&self) -> Option<Wiped> {
        self.wiped
    }

    /// Takes the place in the log that the answer to a heartbeat names. Returns whether the process
    /// must register first: another term has begun, and only a namenode that is told of the place
    /// before can tell whether its log goes on from there.
    pub fn saw(&mut self, position: Option<LogPosition>) -> bool {
        let Some(position) = position else { return false };
        if self.seen.is_some_and(|seen| seen.term != position.term) {
            return true;
        }
        // Answers may overtake each other.
        let index = self.seen.map_or(0, |seen| seen.index).max(position.index);
        self.seen = Some(LogPosition { index, ..position });
        false
    }

    /// Notes what is dropped because the namenode no longer knows the node.
    pub const fn drops(&mut self, wiped: Wiped) {
        self.wiped = Some(wiped);
    }

    /// Takes a welcome, before which everything was reported. Returns what the log has lost.
    pub fn joined(&mut self, joined: &Joined) -> Option<LostEnd> {
        let lost = LostEnd { seen: self.seen, position: joined.position };
        self.wiped = None;
        self.seen = joined.position.or(self.seen);
        (!joined.is_continuation).then_some(lost)
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::Registered;
    use sanderling_protocol::{ClusterId, Millis, NodeId, Policy, Term};

    use super::*;

    const fn at(index: u64) -> Option<LogPosition> {
        Some(LogPosition { term: Term(3), index })
    }

    fn welcome(position: Option<LogPosition>, is_continuation: bool) -> Joined {
        let (cluster, node, heartbeat) = (ClusterId(1), NodeId(1), Millis(500));
        let registered = Registered { cluster, node, heartbeat, policy: Policy::Active };
        Joined { registered, position, is_continuation }
    }

    #[test]
    fn last_place_is_remembered_and_what_was_dropped_is_reported_once() {
        let mut log = KnownLog::default();
        assert_eq!((log.seen(), log.wiped()), (None, None));
        assert!(!log.saw(at(7)) && !log.saw(None));
        let wiped = Wiped { node: NodeId(1), blocks: 2, bytes: 3 };
        log.drops(wiped);
        assert_eq!((log.seen(), log.wiped()), (at(7), Some(wiped)));
        assert_eq!(log.joined(&welcome(at(9), true)), None);
        assert_eq!((log.seen(), log.wiped()), (at(9), None));
    }

    #[test]
    fn log_that_goes_back_has_lost_its_end_and_its_place_counts_from_then_on() {
        let mut log = KnownLog::default();
        assert!(!log.saw(at(70)));
        let lost = LostEnd { seen: at(70), position: at(50) };
        assert_eq!(log.joined(&welcome(at(50), false)), Some(lost));
        assert_eq!(log.joined(&welcome(at(50), true)), None, "it is noticed once");
        assert_eq!(log.seen(), at(50));
    }

    #[test]
    fn place_in_another_term_does_not_hide_what_was_seen_before() {
        let mut log = KnownLog::default();
        log.saw(at(70));
        assert!(!log.saw(at(60)), "a late answer");
        assert_eq!(log.seen(), at(70));
        // The namenode was another process by the time it answered.
        let other = Some(LogPosition { term: Term(4), index: 50 });
        assert!(log.saw(other));
        assert_eq!(log.seen(), at(70));
        log.joined(&welcome(other, false));
        assert!(!log.saw(other));
    }
}
