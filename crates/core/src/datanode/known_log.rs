//! What a datanode has seen of the namenode's log. With it the two detect that the log has lost its
//! end.

use sanderling_protocol::LogPosition;
use sanderling_protocol::message::{Joined, Wiped};

/// The last log position that a datanode process received, through all its incarnations, and what
/// it dropped since its last registration.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownLog {
    seen: Option<LogPosition>,
    wiped: Option<Wiped>,
}

/// The finding that the log has lost its end: it lacks changes that were acknowledged. The datanode
/// cannot mend it; the shell logs an error, and the namenode emits the event `log_end_lost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostEnd {
    /// The last position that the process received before.
    pub seen: Option<LogPosition>,
    /// The position of the log now.
    pub position: Option<LogPosition>,
}

impl KnownLog {
    /// Returns the last position that an answer named; `None` before the first.
    #[must_use]
    pub const fn seen(&self) -> Option<LogPosition> {
        self.seen
    }

    /// Returns what was dropped and not yet reported by a registration; `None` if nothing was.
    #[must_use]
    pub const fn wiped(&self) -> Option<Wiped> {
        self.wiped
    }

    /// Handles the position that the answer to a heartbeat names. Returns whether the process must
    /// register before its next heartbeat: the term is another one, so the namenode has been
    /// restarted. The position of before is then kept, because the registration sends it and the
    /// namenode answers whether its log contains it. Answers may overtake each other: within a term
    /// the highest index counts.
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

    /// Records what the node drops because the namenode declared it dead or gave it another id.
    pub const fn drops(&mut self, wiped: Wiped) {
        self.wiped = Some(wiped);
    }

    /// Handles the answer to a registration, which has reported the last position and what was
    /// dropped. Returns what the log has lost; `None` if it contains the last position.
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
