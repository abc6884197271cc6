//! What must follow when the log has lost its end.

use std::collections::BTreeSet;

use sanderling_protocol::{BlockId, Event, EventKind, LogPosition, Refusal, Reply, Request, Term};

use super::numbers::Numbers;
use super::view::View;
use crate::runtime::CheckResult;
use crate::wire::Host;

/// How long after a start of the namenode datanodes keep what only a lost end can have made. It
/// does not use the catalog's `UNKNOWN_KEPT`, so that a change of it is found.
const KEPT_MICROS: u64 = 30_000_000;

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
    /// When the namenode started last.
    started_at: u64,
    /// Blocks of a lost end that datanodes were let drop: those are counted in the log, so that a
    /// later start has them dropped at once.
    dropped: BTreeSet<BlockId>,
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
        *self = Self { ahead, cut, after, ..before };
    }

    pub(super) const fn started(&mut self, now: u64) {
        self.started_at = now;
    }

    /// Checks that no datanode is let drop blocks of a lost end soon after a start: after one on an
    /// older copy of the log, an operator may end the namenode and start on a copy that has more.
    pub(super) fn answered(
        &mut self,
        numbers: &Numbers,
        now: u64,
        asked: &Request,
        answer: &Result<Reply, Refusal>,
    ) -> CheckResult {
        let (Request::BlockReport { .. }, Ok(Reply::Drop { blocks })) = (asked, answer) else {
            return Ok(());
        };
        for block in blocks.iter().filter(|block| numbers.is_lost_block(**block)) {
            let since = now - self.started_at;
            if self.dropped.insert(*block) && since < KEPT_MICROS {
                let millis = since / 1000;
                let text =
                    format!("block {block} of a lost end is dropped {millis} ms after a start");
                return Err(("orphans-kept", text));
            }
        }
        Ok(())
    }

    /// Checks that the namenode has noticed a lost end of which a datanode that still runs has a
    /// position.
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
