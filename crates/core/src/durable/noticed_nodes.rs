//! The nodes with a notice, for the choice of nodes and pauses.

use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis, NodeId};

/// The longest pause before a change is tried again while a node with a notice has bytes that are
/// nowhere else: the shortest notices are of 30 s, of which the usual pause would take a third
/// after a store is back. A store that is away gets at most 64 calls in that time for each
/// directory, one at once. Chosen, not measured.
pub(super) const RETRY_NOTICED_MAX: Millis = Millis(1_000);

/// The nodes that have a notice, as the last view of the nodes shows them.
#[derive(Debug, Default)]
pub(super) struct NoticedNodes {
    deadlines: BTreeMap<NodeId, Instant>,
    /// Whether one of them has bytes that are nowhere else.
    has_exposed: bool,
}

impl NoticedNodes {
    /// Keeps the nodes with a notice and their deadlines.
    pub(super) const fn new(deadlines: BTreeMap<NodeId, Instant>, has_exposed: bool) -> Self {
        Self { deadlines, has_exposed }
    }

    /// Returns the longest pause before a change is tried again, where it is otherwise `usual`.
    pub(super) const fn retry_max(&self, usual: Millis) -> Millis {
        if self.has_exposed { RETRY_NOTICED_MAX } else { usual }
    }

    /// Returns until when a node stays.
    pub(super) fn stays_until(&self, node: NodeId) -> Instant {
        self.deadlines.get(&node).copied().unwrap_or(Instant(u64::MAX))
    }
}
