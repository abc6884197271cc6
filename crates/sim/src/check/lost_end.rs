//! What must follow when the log has lost its end.

use sanderling_protocol::{Event, EventKind, LogPosition, Term};

use super::view::View;
use crate::runtime::CheckResult;
use crate::wire::Host;

/// Which processes have more of the log than there is, since the last time that its end was lost.
#[derive(Debug, Default)]
pub(crate) struct LostEnd {
    /// Place and process of each datanode, and the position that was sent to it.
    ahead: Vec<(Host, u32, LogPosition)>,
    /// Terms that may have lost an end that time.
    cut: Vec<Term>,
    /// The last event that is left.
    after: u64,
    /// Terms of which the log has lost an end and reports it, each with the event that does.
    noticed: Vec<(u64, Term)>,
}

const fn is_log_end_lost(kind: &EventKind) -> bool {
    matches!(kind, EventKind::LogEndLost { .. })
}

impl LostEnd {
    /// Notes which datanodes have positions that the log has lost, once everything else has gone
    /// back to it.
    pub(super) fn rewound(&mut self, view: View<'_>) {
        let catalog = view.catalog();
        let mut ahead = Vec::new();
        for datanode in view.datanodes {
            let place = datanode.host();
            if let Some(seen) = datanode.log_position()
                && view.runtime.is_up(place)
                && !catalog.continues(seen)
            {
                ahead.push((place, view.runtime.life(place), seen));
            }
        }
        let events = view.namenode.events_after(0, usize::MAX);
        let after = events.last().map_or(0, |event| event.sequence);
        // What was noticed of an earlier lost end, and is still in the log, is not reported again:
        // a node that was away meanwhile may have less of the same term.
        let mut before = std::mem::take(self);
        before.noticed.retain(|(at, _)| events.iter().any(|event| event.sequence == *at));
        let is_new = |event: &&Event| event.sequence > before.after && is_log_end_lost(&event.kind);
        if let Some(event) = events.iter().find(is_new) {
            // A late answer may have had a position of the same end meanwhile.
            before.noticed.extend(before.cut.iter().map(|term| (event.sequence, *term)));
        }
        ahead.retain(|(.., seen)| !before.noticed.iter().any(|(_, term)| *term == seen.term));
        // An answer on its way may have the only position of the end: of the last term left.
        let left = catalog.position().map(|place| place.term);
        let cut = ahead.iter().map(|(.., seen)| seen.term).chain(left).collect();
        *self = Self { ahead, cut, after, noticed: before.noticed };
    }

    /// A lost end of which a datanode that still runs has a position was noticed.
    pub(super) fn check(&self, view: View<'_>) -> CheckResult {
        let Self { ahead, after, .. } = self;
        let is_there = |one: &&(Host, u32, LogPosition)| view.runtime.life(one.0) == one.1;
        let Some((host, _, seen)) = ahead.iter().find(is_there) else { return Ok(()) };
        let events = view.namenode.events_after(*after, usize::MAX);
        if events.iter().any(|event| is_log_end_lost(&event.kind)) {
            return Ok(());
        }
        let text = format!("{host} was sent {seen:?}, which the log has lost unnoticed");
        Err(("log-lost-told", text))
    }
}
