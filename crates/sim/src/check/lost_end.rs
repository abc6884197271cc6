//! What must follow when the log has lost its end.

use sanderling_protocol::{Event, EventKind, LogPosition, Term};

use super::view::View;
use crate::runtime::CheckResult;
use crate::wire::Host;

/// Who knows more than the log, since the last time that it has lost its end.
#[derive(Debug, Default)]
pub(crate) struct LostEnd {
    /// Place and process of each datanode, and what it was told.
    told: Vec<(Host, u32, LogPosition)>,
    /// The last event that is left.
    after: u64,
    /// Terms of which the log has lost an end and says so, each with the event that says it.
    noticed: Vec<(u64, Term)>,
}

const fn is_told(kind: &EventKind) -> bool {
    matches!(kind, EventKind::LogEndLost { .. })
}

impl LostEnd {
    /// Notes who was told of what the log has lost, once everything else has gone back to it.
    pub(super) fn rewound(&mut self, view: View<'_>) {
        let catalog = view.catalog();
        let mut told = Vec::new();
        for datanode in view.datanodes {
            let place = datanode.host();
            if let Some(seen) = datanode.log_position()
                && view.runtime.is_up(place)
                && !catalog.continues(seen)
            {
                told.push((place, view.runtime.life(place), seen));
            }
        }
        let events = view.namenode.events_after(0, usize::MAX);
        let after = events.last().map_or(0, |event| event.sequence);
        // What was noticed of an earlier lost end, and is still in the log, is not told of again:
        // a node that was away meanwhile may have been told less of the same term.
        let mut before = std::mem::take(self);
        before.noticed.retain(|(at, _)| events.iter().any(|event| event.sequence == *at));
        let is_new = |event: &&Event| event.sequence > before.after && is_told(&event.kind);
        if let Some(event) = events.iter().find(is_new) {
            // An answer that was late may have told of the same end meanwhile.
            let terms = before.told.iter().map(|(.., seen)| (event.sequence, seen.term));
            before.noticed.extend(terms);
        }
        told.retain(|(.., seen)| !before.noticed.iter().any(|(_, term)| *term == seen.term));
        *self = Self { told, after, noticed: before.noticed };
    }

    /// A lost end of which a datanode was told that is still there was noticed.
    pub(super) fn check(&self, view: View<'_>) -> CheckResult {
        let Self { told, after, .. } = self;
        let is_there = |told: &&(Host, u32, LogPosition)| view.runtime.life(told.0) == told.1;
        let Some((host, _, seen)) = told.iter().find(is_there) else { return Ok(()) };
        let events = view.namenode.events_after(*after, usize::MAX);
        if events.iter().any(|event| is_told(&event.kind)) {
            return Ok(());
        }
        let text = format!("{host} was sent {seen:?}, which the log has lost unnoticed");
        Err(("log-lost-told", text))
    }
}
