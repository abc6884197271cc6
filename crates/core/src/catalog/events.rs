//! The event log: what happened, kept for its followers.
//!
//! Moves come in batches, hundreds a second in a busy fleet. Those from one node to another share
//! an event, so that they do not push out of the list what an operator looks for: notices, losses,
//! deaths. Each move is in one event, so sums over the events are right.

use std::collections::{BTreeMap, VecDeque};

use sanderling_protocol::limits::{EVENTS_KEPT_MAX, MOVE_EVENTS_KEPT_MAX};
use sanderling_protocol::{Event, EventKind, Instant, Millis, NodeId};
use serde::{Deserialize, Serialize};

use super::timers::{Timer, Timers};

/// How long moves off a draining node are gathered into one event: people watch a drain. A drain
/// within a notice of 30 s has 30 such events to each target.
const DRAIN_GATHERED: Millis = Millis(1000);

/// How long copies and moves for balance are gathered: they go on for hours. The 2,500 kept events
/// of moves (`MOVE_EVENTS_KEPT_MAX`) of one way so reach back for seven hours.
const BACKGROUND_GATHERED: Millis = Millis(10_000);

/// Most sums that are gathered at once; beyond that their events come sooner. 64 nodes each of
/// which moves to all others. A snapshot has them, too. Chosen, not measured.
const GATHERED_MAX: usize = 4096;

/// The kept events, and the moves without an event so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Events {
    last: u64,
    /// All but the moves.
    kept: VecDeque<Event>,
    /// Moves, apart so that they push out nothing but each other.
    moves: VecDeque<Event>,
    /// Blocks and bytes that share an event.
    gathered: BTreeMap<Gathered, (u64, u64)>,
    /// When they get one.
    drains_due: Option<Instant>,
    background_due: Option<Instant>,
}

/// What shares an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Gathered {
    Promoted(NodeId),
    Moved(NodeId, NodeId),
    Copied(NodeId, NodeId),
    Rebalanced(NodeId, NodeId),
}

impl Gathered {
    const fn from(self) -> NodeId {
        match self {
            Self::Promoted(from)
            | Self::Moved(from, _)
            | Self::Copied(from, _)
            | Self::Rebalanced(from, _) => from,
        }
    }

    const fn is_of_a_drain(self) -> bool {
        matches!(self, Self::Promoted(_) | Self::Moved(..))
    }

    const fn event(self, blocks: u64, bytes: u64) -> EventKind {
        match self {
            Self::Promoted(from) => EventKind::BlocksPromoted { from, blocks, bytes },
            Self::Moved(from, to) => EventKind::BlocksMoved { from, to, blocks, bytes },
            Self::Copied(from, to) => EventKind::BlocksCopied { from, to, blocks, bytes },
            Self::Rebalanced(from, to) => EventKind::BlocksRebalanced { from, to, blocks, bytes },
        }
    }
}

impl Events {
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// Returns the kept events after a sequence, the oldest first.
    pub(super) fn after(&self, sequence: u64, limit: usize) -> Vec<Event> {
        let rest = |list: &VecDeque<Event>| list.partition_point(|it| it.sequence <= sequence);
        let mut others = self.kept.range(rest(&self.kept)..).peekable();
        let mut moves = self.moves.range(rest(&self.moves)..).peekable();
        let mut events = Vec::new();
        while events.len() < limit {
            let is_other = match (others.peek(), moves.peek()) {
                (Some(other), Some(one)) => other.sequence < one.sequence,
                (other, _) => other.is_some(),
            };
            let next = if is_other { others.next() } else { moves.next() };
            let Some(event) = next else { break };
            events.push(event.clone());
        }
        events
    }

    /// Leaves sequences out.
    pub(super) const fn skip(&mut self, sequences: u64) {
        self.last += sequences;
    }

    fn push(&mut self, at: Instant, kind: EventKind) {
        self.last += 1;
        let is_move = matches!(
            kind,
            EventKind::BlocksMoved { .. }
                | EventKind::BlocksCopied { .. }
                | EventKind::BlocksRebalanced { .. }
        );
        let (list, max) = match is_move {
            true => (&mut self.moves, MOVE_EVENTS_KEPT_MAX),
            false => (&mut self.kept, EVENTS_KEPT_MAX - MOVE_EVENTS_KEPT_MAX),
        };
        list.push_back(Event { sequence: self.last, at, kind });
        if list.len() > max {
            list.pop_front();
        }
    }

    /// Adds one event for each sum of gathered moves that `is_meant` selects, in the order of kinds
    /// and nodes.
    fn add_gathered(&mut self, at: Instant, is_meant: impl Fn(Gathered) -> bool) {
        let taken: Vec<(Gathered, (u64, u64))> =
            self.gathered.extract_if(.., |gathered, _| is_meant(*gathered)).collect();
        for (gathered, (blocks, bytes)) in taken {
            self.push(at, gathered.event(blocks, bytes));
        }
    }
    /// Adds an event, after the moves of its node if it is the last one about them.
    pub(super) fn emit(&mut self, now: Instant, kind: EventKind) {
        if let EventKind::NodeDrained { node, .. }
        | EventKind::NodeCancelled { node }
        | EventKind::NodeGone { node, .. }
        | EventKind::BlocksLost { node, .. } = kind
        {
            self.add_gathered(now, |gathered| gathered.from() == node);
        }
        self.push(now, kind);
    }

    /// Counts blocks that have moved; one event has them together with others of the same way.
    pub(super) fn gather(
        &mut self,
        now: Instant,
        moved: Gathered,
        (blocks, bytes): (u64, u64),
        timers: &mut Timers,
    ) {
        let sum = self.gathered.entry(moved).or_default();
        *sum = (sum.0 + blocks, sum.1 + bytes);
        let (due, span) = match moved.is_of_a_drain() {
            true => (&mut self.drains_due, DRAIN_GATHERED),
            false => (&mut self.background_due, BACKGROUND_GATHERED),
        };
        if due.is_none() {
            let at = now + span;
            *due = Some(at);
            timers.schedule(at, Timer::Events);
        }
        if self.gathered.len() > GATHERED_MAX {
            self.add_gathered(now, |_| true);
        }
    }

    /// Adds the events of the moves whose time of gathering is over.
    pub(super) fn add_due(&mut self, now: Instant) {
        let is_due = |due: &mut Option<Instant>| due.take_if(|at| *at <= now).is_some();
        let (drains, background) = (is_due(&mut self.drains_due), is_due(&mut self.background_due));
        let is_meant = |it: Gathered| if it.is_of_a_drain() { drains } else { background };
        self.add_gathered(now, is_meant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_push_out_each_other_and_nothing_else() {
        let (mut events, mut timers) = (Events::default(), Timers::default());
        let mut now = Instant(0);
        events.emit(now, EventKind::ManagerChanged { name: "first".to_owned() });
        for turn in 0..EVENTS_KEPT_MAX as u64 {
            now = now + BACKGROUND_GATHERED;
            events.add_due(now);
            events.gather(now, Gathered::Copied(NodeId(1), NodeId(2)), (1, turn), &mut timers);
        }
        events.emit(now, EventKind::ManagerChanged { name: "last".to_owned() });
        let all = events.after(0, usize::MAX);
        assert_eq!(all.len(), MOVE_EVENTS_KEPT_MAX + 2);
        assert_eq!(all[0].sequence, 1);
        assert!(all.is_sorted_by_key(|event| event.sequence));
        assert_eq!(events.after(all[7].sequence, 5), all[8..13]);
        assert_eq!(events.last(), EVENTS_KEPT_MAX as u64 + 1);
        assert!(events.after(events.last(), 5).is_empty());
    }

    #[test]
    fn too_many_ways_at_once_get_their_events_sooner() {
        let (mut events, mut timers) = (Events::default(), Timers::default());
        for number in 0..=GATHERED_MAX as u32 {
            let way = Gathered::Moved(NodeId(number), NodeId(0));
            events.gather(Instant(0), way, (1, 10), &mut timers);
        }
        assert_eq!(events.last(), GATHERED_MAX as u64 + 1);
        assert!(events.gathered.is_empty());
    }
}
