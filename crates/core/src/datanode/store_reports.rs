//! When a datanode reports which stores of durable directories it reaches.

use sanderling_protocol::{Instant, Millis, NodeId};

/// Time after which the report is repeated, in milliseconds: the end of the namenode's log, which
/// had it, may have been lost.
const REPEAT_AFTER: Millis = Millis(10_000);

/// The last report about reachable stores that the namenode has accepted, of one datanode.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreReports {
    /// As which incarnation the node reported, and when.
    reported: Option<(NodeId, Instant)>,
}

impl StoreReports {
    /// Returns as which node the stores are to be reported at `now`; `None` if no report is due.
    /// `node` is the present incarnation, if it is registered. A new one has reported nothing. A
    /// report that failed stays due: the pause before the next attempt is the caller's.
    #[must_use]
    pub fn due(&self, now: Instant, node: Option<NodeId>) -> Option<NodeId> {
        let is_recent =
            |(reported, at): (NodeId, Instant)| Some(reported) == node && now < at + REPEAT_AFTER;
        node.filter(|_| !self.reported.is_some_and(is_recent))
    }

    /// Takes that the namenode accepted the report of `node` at `now`.
    pub const fn accepted(&mut self, now: Instant, node: NodeId) {
        self.reported = Some((node, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(5_000_000);

    #[test]
    fn stores_are_reported_by_each_incarnation_and_again_after_ten_seconds() {
        let node = |id| Some(NodeId(id));
        let mut reports = StoreReports::default();
        assert_eq!(reports.due(NOW, None), None, "it is not registered");
        assert_eq!(reports.due(NOW, node(1)), node(1));
        assert_eq!(reports.due(NOW, node(1)), node(1), "that one was not accepted");
        reports.accepted(NOW, NodeId(1));
        let again = NOW + Millis(10_000);
        let rows = [
            (NOW, node(1), None),
            (Instant(again.0 - 1), node(1), None),
            (again, node(1), node(1)),
            (NOW, node(2), node(2)),
            (again, None, None),
        ];
        for (now, present, due) in rows {
            assert_eq!(reports.due(now, present), due, "{now:?} {present:?}");
        }
    }
}
