//! A recorded trace: what happened to each machine of a fleet, in order of time.
//!
//! # Format
//! Text of comma-separated values with the header `node,seconds,event,notice_seconds`; lines that
//! begin with `#` are comments. `node` names a machine's slot in the fleet, `seconds` count from
//! the trace's start and may have decimals (milliseconds), rows come in any order. Events:
//!
//! | event | meaning |
//! | --- | --- |
//! | `start` | a machine comes up in the slot |
//! | `recommend` | its cloud recommends to leave it |
//! | `notice` | it will end `notice_seconds` from now; a second one may change when |
//! | `cancel` | its notice is withdrawn |
//! | `kill` | it ends now, without a word or before its deadline |
//! | `end` | the recording ends; the machine is still there |
//!
//! `notice_seconds` is empty but for `notice`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use sanderling_protocol::Millis;

use super::lifetimes::{Lifetimes, rows};
use super::{Model, ModelError, RowError};
use crate::placement::Draw;

const HEADER: &str = "node,seconds,event,notice_seconds";

/// The kind of an event of a machine in a trace: what happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceKind {
    /// It comes up.
    Start,
    /// Its cloud recommends to leave it.
    Recommend,
    /// It will end after this long.
    Notice(Millis),
    /// Its notice is withdrawn.
    Cancel,
    /// It ends now.
    Kill,
    /// The recording ends while it lives.
    End,
}

/// One row of a trace: what happened to a machine, and when.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceEvent {
    /// When, from the trace's start.
    pub at: Millis,
    /// The slot.
    pub node: String,
    /// What.
    pub kind: TraceKind,
}

/// A recorded or drawn trace: what happened to the machines of a fleet, in order of time. Its text
/// is CSV (docs/mechanisms/preemption.md).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Its rows in order of time.
    events: Vec<TraceEvent>,
}

/// The fleet for which [`Trace::draw`] draws a trace.
#[derive(Debug, Clone)]
pub struct FleetModel {
    /// Machines at the start, and slots for them: `slot-1` and so on.
    pub slots: u32,
    /// How long the trace is.
    pub horizon: Millis,
    /// Time from a notice to the machine's end; zero for machines that end without one.
    pub notice: Millis,
    /// Time from a machine's end to the start of the next in its slot.
    pub back_after: Millis,
}

impl Trace {
    /// Returns the trace of these events, given in any order. They are not checked: events may
    /// contradict each other.
    #[must_use]
    pub fn new(mut events: Vec<TraceEvent>) -> Self {
        events.sort();
        Self { events }
    }

    /// Draws what would happen to a fleet whose machines live by a model. The same seed gives the
    /// same trace.
    #[must_use]
    pub fn draw(model: &Model, fleet: &FleetModel, seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let mut events = Vec::new();
        for slot in 1..=fleet.slots {
            let mut at = Millis(0);
            while at < fleet.horizon {
                let life = model.sample(draw.next());
                let push = |at, kind| TraceEvent { at, node: format!("slot-{slot}"), kind };
                events.push(push(at, TraceKind::Start));
                let ends_at = Millis(at.0.saturating_add(life.0));
                if ends_at >= fleet.horizon {
                    events.push(push(fleet.horizon, TraceKind::End));
                    break;
                }
                // A machine that lives shorter than its notice is noticed as it starts.
                let notice = Millis(fleet.notice.0.min(life.0));
                if notice == Millis(0) {
                    events.push(push(ends_at, TraceKind::Kill));
                } else {
                    let noticed_at = Millis(ends_at.0 - notice.0);
                    events.push(push(noticed_at, TraceKind::Notice(notice)));
                }
                at = Millis(ends_at.0.saturating_add(fleet.back_after.0.max(1)));
            }
        }
        Self::new(events)
    }

    /// Returns the events in order of time, those of one time by the name of their slot.
    #[must_use]
    pub fn events(&self) -> &[TraceEvent] {
        &self.events
    }

    /// Returns the lifetimes in the trace. Machines that were there when the recording ended are
    /// known to live at least so long.
    ///
    /// # Errors
    /// [`ModelError::NoLifetimes`] when no machine ended: take a longer trace.
    pub fn lifetimes(&self) -> Result<Lifetimes, ModelError> {
        let mut slots: BTreeMap<&str, TraceSlot> = BTreeMap::new();
        let mut lives = Lives::default();
        let mut last = Millis(0);
        for event in &self.events {
            let slot = slots.entry(&event.node).or_default();
            slot.pass(event.at, &mut lives);
            slot.take(event, &mut lives);
            last = event.at;
        }
        for mut slot in slots.into_values() {
            slot.pass(Millis(u64::MAX), &mut lives);
            if let Some(started) = slot.started {
                lives.alive.push(Millis(last.0.saturating_sub(started.0)));
            }
        }
        lives.alive.retain(|age| age.0 > 0);
        Lifetimes::new(&lives.ended, &lives.alive)
            .map_err(|_| ModelError::NoLifetimes { filter: "any machine of the trace".to_owned() })
    }
}

#[derive(Default)]
struct Lives {
    ended: Vec<Millis>,
    alive: Vec<Millis>,
}

/// The machine in a slot, while a trace is read.
#[derive(Default)]
struct TraceSlot {
    started: Option<Millis>,
    deadline: Option<Millis>,
}

impl TraceSlot {
    /// Ends the machine if its deadline was before `now`.
    fn pass(&mut self, now: Millis, lives: &mut Lives) {
        if let Some(deadline) = self.deadline
            && deadline <= now
        {
            self.end(deadline, lives);
        }
    }

    fn end(&mut self, at: Millis, lives: &mut Lives) {
        if let Some(started) = self.started.take() {
            lives.ended.push(Millis(at.0 - started.0));
        }
        self.deadline = None;
    }

    fn take(&mut self, event: &TraceEvent, lives: &mut Lives) {
        match event.kind {
            TraceKind::Start => self.started = Some(event.at),
            TraceKind::Recommend => {}
            TraceKind::Notice(notice) => {
                self.deadline = Some(Millis(event.at.0.saturating_add(notice.0)));
            }
            TraceKind::Cancel => self.deadline = None,
            TraceKind::Kill => self.end(event.at, lives),
            TraceKind::End => {
                lives.alive.extend(self.started.take().map(|at| Millis(event.at.0 - at.0)));
                self.deadline = None;
            }
        }
    }
}

impl FromStr for Trace {
    type Err = ModelError;

    /// # Errors
    /// [`ModelError::BadRow`] when the header or a row is not of the format: correct it.
    fn from_str(text: &str) -> Result<Self, ModelError> {
        let mut rows = rows(text);
        let header = rows.next();
        if header.map(|(_, header)| header) != Some(HEADER) {
            let line = header.map_or(1, |(line, _)| line);
            let cause = RowError::NoTraceHeader { wanted: HEADER };
            return Err(ModelError::BadRow { line, cause });
        }
        let read = |(line, row): (usize, &str)| {
            event(row).map_err(|cause| ModelError::BadRow { line, cause })
        };
        Ok(Self::new(rows.map(read).collect::<Result<_, _>>()?))
    }
}

fn event(row: &str) -> Result<TraceEvent, RowError> {
    let fields: Vec<&str> = row.split(',').map(str::trim).collect();
    let [node, at, kind, notice] = fields[..] else {
        return Err(RowError::FieldCount { found: fields.len(), wanted: 4 });
    };
    if node.is_empty() {
        return Err(RowError::Nameless);
    }
    let kind = match (kind, notice) {
        ("notice", notice) => TraceKind::Notice(millis(notice)?),
        ("start", "") => TraceKind::Start,
        ("recommend", "") => TraceKind::Recommend,
        ("cancel", "") => TraceKind::Cancel,
        ("kill", "") => TraceKind::Kill,
        ("end", "") => TraceKind::End,
        (kind, "") => return Err(RowError::UnknownEvent { event: kind.to_owned() }),
        (kind, _) => return Err(RowError::ForeignNotice { event: kind.to_owned() }),
    };
    Ok(TraceEvent { at: millis(at)?, node: node.to_owned(), kind })
}

fn millis(field: &str) -> Result<Millis, RowError> {
    let seconds = field.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0);
    let seconds = seconds.ok_or_else(|| RowError::NoSeconds { field: field.to_owned() })?;
    Ok(Millis((seconds * 1000.0).round() as u64))
}

impl fmt::Display for Trace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{HEADER}")?;
        for TraceEvent { at, node, kind } in &self.events {
            let seconds = at.0 as f64 / 1000.0;
            let kind = match kind {
                TraceKind::Start => "start,",
                TraceKind::Recommend => "recommend,",
                TraceKind::Notice(notice) => &format!("notice,{}", notice.0 as f64 / 1000.0),
                TraceKind::Cancel => "cancel,",
                TraceKind::Kill => "kill,",
                TraceKind::End => "end,",
            };
            writeln!(formatter, "{node},{seconds},{kind}")?;
        }
        Ok(())
    }
}
