//! What must follow when the log has lost its end.

use sanderling_protocol::{Event, EventKind, LogPosition, Term};

use crate::runtime::CheckResult;
use crate::wire::Host;
use crate::world::World;

/// Who knows more than the log, since the last time that it has lost its end.
#[derive(Debug, Default)]
pub(crate) struct LostEnd {
    /// Place and process of each datanode, and what it was told.
    told: Vec<(u8, u32, LogPosition)>,
    /// The last event that is left.
    after: u64,
    /// Terms of which the log has lost an end and says so, each with the event that says it.
    noticed: Vec<(u64, Term)>,
}

const fn is_told(kind: &EventKind) -> bool {
    matches!(kind, EventKind::LogEndLost { .. })
}

impl World {
    /// Notes who was told of what the log has lost, once everything else has gone back to it.
    pub(crate) fn check_rewound(&mut self) {
        let catalog = self.namenode.catalog();
        let mut told = Vec::new();
        for (datanode, slot) in self.datanodes.iter().zip(0_u8..) {
            let place = Host::Datanode(slot);
            if let Some(seen) = datanode.log_position()
                && self.runtime.is_up(place)
                && !catalog.continues(seen)
            {
                told.push((slot, self.runtime.life(place), seen));
            }
        }
        let events = self.namenode.machine.events_after(0, usize::MAX);
        let after = events.last().map_or(0, |event| event.sequence);
        // What was noticed of an earlier lost end, and is still in the log, is not told of again:
        // a node that was away meanwhile may have been told less of the same term.
        let mut before = std::mem::take(&mut self.checks.lost_end);
        before.noticed.retain(|(at, _)| events.iter().any(|event| event.sequence == *at));
        let is_new = |event: &&Event| event.sequence > before.after && is_told(&event.kind);
        if let Some(event) = events.iter().find(is_new) {
            // An answer that was late may have told of the same end meanwhile.
            let terms = before.told.iter().map(|(.., seen)| (event.sequence, seen.term));
            before.noticed.extend(terms);
        }
        told.retain(|(.., seen)| !before.noticed.iter().any(|(_, term)| *term == seen.term));
        self.checks.lost_end = LostEnd { told, after, noticed: before.noticed };
        let objects: Vec<_> = self.checks.bytes.objects().collect();
        for object in objects {
            let bytes = self.layout(object).map_or(0, |layout| layout.stat.bytes);
            self.checks.bytes.cut(object, bytes);
        }
    }

    /// A lost end of which a datanode was told that is still there was noticed.
    pub(crate) fn check_lost_end(&self) -> CheckResult {
        let LostEnd { told, after, .. } = &self.checks.lost_end;
        let is_there =
            |told: &&(u8, u32, LogPosition)| self.runtime.life(Host::Datanode(told.0)) == told.1;
        let Some((slot, _, seen)) = told.iter().find(is_there) else { return Ok(()) };
        let events = self.namenode.machine.events_after(*after, usize::MAX);
        if events.iter().any(|event| is_told(&event.kind)) {
            return Ok(());
        }
        let text = format!("host{slot} was told of {seen:?}, which the log has lost unnoticed");
        Err(("log-lost-told", text))
    }
}
