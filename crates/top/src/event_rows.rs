//! The latest events as lines.

use std::collections::VecDeque;

use sanderling_command::printable::printable;
use sanderling_events::NodeNames;
use sanderling_events::text;
use sanderling_events::{Severity, kind_name, severity};
use sanderling_protocol::Instant;
use sanderling_protocol::event::Event;

/// The most events that are kept: as many as one answer of the namenode has
/// (`EVENTS_PER_REPLY_MAX`).
pub(super) const EVENT_ROWS_MAX: usize = 1000;

/// One event, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct EventRow {
    pub(super) sequence: u64,
    pub(super) at: Instant,
    pub(super) kind: &'static str,
    pub(super) severity: Severity,
    /// What it is for people, printable.
    pub(super) text: String,
}

impl EventRow {
    pub(super) fn new(event: &Event, names: &NodeNames) -> Self {
        Self {
            sequence: event.sequence,
            at: event.at,
            kind: kind_name(&event.kind),
            severity: severity(&event.kind),
            text: printable(&text(&event.kind, names)).into_owned(),
        }
    }
}

/// Adds events to those that are kept and drops the oldest beyond the limit.
pub(super) fn keep(kept: &mut VecDeque<EventRow>, more: Vec<EventRow>) {
    kept.extend(more);
    let excess = kept.len().saturating_sub(EVENT_ROWS_MAX);
    kept.drain(..excess);
}
