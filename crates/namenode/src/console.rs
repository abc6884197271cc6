//! What the consoles follow: one reader of the catalog for all of them, and the last hour.
//!
//! While none follows, the catalog is read once every [`FleetHistory::STEP`]. Each update is
//! encoded once, however many follow. Streams that are opened in a loop cause no more reads of the
//! catalog than a stream that stays open: one each [`TICK`]. The state is encoded once for all of
//! them.

mod update;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_core::access::Claims;
use sanderling_core::console::{FleetChanges, FleetHistory, FleetView, NodeRow};
use sanderling_core::namenode::Namenode;
use sanderling_protocol::limits::EVENTS_PER_REPLY_MAX;
use sanderling_protocol::{Event, EventKind, Instant, NodeInfo, Reply, Request};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::state::NamenodeState;
use update::{EventPage, FleetUpdate, JobPage, JobRow, NewestEvents, Summary, frame};

/// The time between two updates. A person follows it. Each update costs a look at all nodes and one
/// frame for all followers. Chosen, not measured.
const TICK: Duration = Duration::from_secs(1);

/// Updates between two samples: as many seconds as the history has between two
/// ([`FleetHistory::STEP`]).
const TICKS_PER_SAMPLE: u64 = FleetHistory::STEP.0 / 1000;

/// Updates that a slow follower may be behind; then it gets the whole state again. 16 s; they are
/// shared, so they take the memory of 16 updates however many follow. Chosen, not measured.
const UPDATES_BEHIND_MAX: usize = 16;

/// Most events in one update, and of those before a follower came. As many as one reply of the
/// protocol has: more than a page shows.
const EVENTS_MAX: usize = EVENTS_PER_REPLY_MAX as usize;

/// The source of what consoles follow.
#[derive(Debug)]
pub(crate) struct Console {
    state: Arc<NamenodeState>,
    shown: Mutex<Shown>,
    updates: broadcast::Sender<Arc<Update>>,
}

/// What the followers have.
#[derive(Debug, Default)]
struct Shown {
    view: FleetView,
    history: FleetHistory,
    summary: Summary,
    /// The newest sample was not sent.
    has_sample: bool,
    jobs: Arc<Vec<JobRow>>,
    /// The last event that they have, and the newest ones up to it.
    events_through: u64,
    newest: VecDeque<Event>,
    published: Option<std::time::Instant>,
    /// The frames of the whole state for callers that may read everything, until it changes.
    whole: Option<Vec<Bytes>>,
}

/// One update, encoded.
#[derive(Debug)]
pub(crate) struct Update {
    /// Frames for every follower.
    frames: Vec<Bytes>,
    /// All jobs and their frame, when they changed.
    jobs: Option<(Arc<Vec<JobRow>>, Bytes)>,
    /// The last event that a follower has then.
    pub(crate) events_through: u64,
}

impl Update {
    /// Returns the frames of a follower with these claims, `None` if it may read everything.
    pub(crate) fn frames(&self, claims: Option<&Claims>) -> Vec<Bytes> {
        let mut frames = self.frames.clone();
        match (&self.jobs, claims) {
            (Some((jobs, _)), Some(claims)) if !claims.is_everywhere() => {
                frames.push(jobs_frame(jobs, Some(claims)));
            }
            (Some((_, whole)), _) => frames.push(whole.clone()),
            (None, _) => {}
        }
        frames
    }
}

/// A follower: what it gets first, and its updates.
pub(crate) struct Followed {
    pub(crate) first: Vec<Bytes>,
    /// The last event in them.
    pub(crate) events_through: u64,
    pub(crate) updates: broadcast::Receiver<Arc<Update>>,
}

impl Console {
    pub(crate) fn new(state: Arc<NamenodeState>) -> Self {
        let updates = broadcast::Sender::new(UPDATES_BEHIND_MAX);
        Self { state, shown: Mutex::default(), updates }
    }

    /// Samples and publishes until `stop` is cancelled.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 0_u64.. {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => return,
            }
            let is_sampled = tick.is_multiple_of(TICKS_PER_SAMPLE);
            // What a leader without a lease has may be old: its followers get the next update.
            let is_followed = self.updates.receiver_count() > 0 && self.state.group.may_show();
            if is_sampled || is_followed {
                let mut shown = self.shown.lock();
                if is_sampled {
                    shown.sample(&self.state);
                }
                if is_followed {
                    self.publish(&mut shown, is_sampled);
                }
            }
        }
    }

    /// Returns the whole state, the events after `after`, and the updates that come.
    pub(crate) fn follow(&self, after: u64, claims: Option<&Claims>) -> Followed {
        let mut shown = self.shown.lock();
        // Followers before this one get what is found now, and this one gets it with the state.
        if shown.published.is_none_or(|published| published.elapsed() >= TICK) {
            self.publish(&mut shown, true);
        }
        let first = shown.whole(&self.state, after, claims);
        let (events_through, updates) = (shown.events_through, self.updates.subscribe());
        Followed { first, events_through, updates }
    }

    fn publish(&self, shown: &mut Shown, with_jobs: bool) {
        let update = shown.update(&self.state, with_jobs);
        shown.published = Some(std::time::Instant::now());
        shown.whole = None;
        // Without a follower nothing is lost.
        drop(self.updates.send(Arc::new(update)));
    }

    /// Returns the history of the last hour.
    pub(crate) fn history(&self) -> Value {
        let shown = self.shown.lock();
        let samples: Vec<&[u64]> = shown.history.samples().collect();
        json!({
            "step_millis": FleetHistory::STEP,
            "fields": FleetHistory::FIELDS,
            "samples": samples,
        })
    }
}

impl Shown {
    /// Adds a sample to the history.
    fn sample(&mut self, state: &NamenodeState) {
        let now = state.now();
        let namenode = state.namenode.read();
        self.history.sample(now, &nodes(&namenode, now), namenode.catalog().report());
        self.has_sample = true;
    }

    /// Reads the catalog, and returns what followers must get. Jobs are read when it is time, or
    /// when one has come or gone.
    fn update(&mut self, state: &NamenodeState, with_jobs: bool) -> Update {
        let now = state.now();
        let namenode = state.namenode.read();
        let catalog = namenode.catalog();
        let row = |node: NodeInfo| {
            let (is_spot, rates) = (catalog.is_spot(node.id), self.history.rates(node.id));
            NodeRow::new(now, node, is_spot, rates)
        };
        let changes = self.view.update(nodes(&namenode, now).into_iter().map(row));
        let summary = Summary::new(catalog);
        let events = namenode.events_after(self.events_through, usize::MAX);
        let concerns_jobs = events.iter().any(|event| is_of_jobs(&event.kind));
        let jobs = (with_jobs || concerns_jobs).then(|| update::jobs(&namenode, now));
        drop(namenode);

        let mut frames = Vec::new();
        let has_sample = std::mem::take(&mut self.has_sample);
        if has_sample || summary != self.summary || changes != FleetChanges::default() {
            let sample = self.history.samples().last().filter(|_| has_sample);
            let nodes = changes.changed.iter().filter_map(|node| self.view.row(*node)).collect();
            let (removed, summary) = (&changes.removed, &summary);
            frames.push(frame("delta", &FleetUpdate { now, nodes, removed, summary, sample }));
        }
        self.summary = summary;
        frames.extend(self.events_frame(events));
        let jobs = jobs.filter(|jobs| *jobs != *self.jobs).map(|jobs| {
            self.jobs = Arc::new(jobs);
            (Arc::clone(&self.jobs), jobs_frame(&self.jobs, None))
        });
        Update { frames, jobs, events_through: self.events_through }
    }

    fn events_frame(&mut self, events: Vec<Event>) -> Option<Bytes> {
        let last = events.last()?.sequence;
        self.events_through = last;
        let begin = events.len().saturating_sub(EVENTS_MAX);
        self.newest.extend(events[begin..].iter().cloned());
        let left_out = self.newest.len().saturating_sub(EVENTS_MAX);
        self.newest.drain(..left_out);
        Some(frame("events", &EventPage::newest(events, EVENTS_MAX)))
    }

    /// Returns everything that a new follower needs: the fleet, the events after `after`, the jobs.
    fn whole(&mut self, state: &NamenodeState, after: u64, claims: Option<&Claims>) -> Vec<Bytes> {
        let mut frames = match self.whole.take() {
            Some(frames) => frames,
            None => {
                vec![self.fleet_frame(state), self.newest_frame(0), jobs_frame(&self.jobs, None)]
            }
        };
        self.whole = Some(frames.clone());
        // What followed a lost end of the log has other numbers: all of it is new.
        if after > 0 && after <= self.events_through {
            frames[1] = self.newest_frame(after);
        }
        if claims.is_some_and(|claims| !claims.is_everywhere()) {
            frames[2] = jobs_frame(&self.jobs, claims);
        }
        frames
    }

    fn fleet_frame(&self, state: &NamenodeState) -> Bytes {
        let now = state.now();
        let names = update::names_of_gone(&state.namenode.read(), now);
        let rows: Vec<&NodeRow> = self.view.rows().collect();
        let fleet = json!({ "now": now, "nodes": rows, "names": names, "summary": self.summary });
        frame("fleet", &fleet)
    }

    fn newest_frame(&self, after: u64) -> Bytes {
        let oldest = self.newest.front().map_or(0, |event| event.sequence);
        let skipped = oldest.saturating_sub(after + 1);
        let events = self.newest.iter().filter(|event| event.sequence > after).collect();
        frame("events", &NewestEvents { events, skipped })
    }
}

/// Encodes what a follower learns first.
pub(crate) fn hello(body: &Value) -> Bytes {
    frame("hello", body)
}

fn jobs_frame(jobs: &[JobRow], claims: Option<&Claims>) -> Bytes {
    let is_seen = |job: &&JobRow| {
        claims.is_none_or(|claims| claims.is_everywhere() || claims.subtree.contains(&job.path))
    };
    frame("jobs", &JobPage::largest(jobs.iter().filter(is_seen).collect()))
}

fn nodes(namenode: &Namenode, now: Instant) -> Vec<NodeInfo> {
    match namenode.read(now, &Request::Nodes { all: false }) {
        Some(Ok(Reply::Nodes(nodes))) => nodes,
        _ => Vec::new(),
    }
}

const fn is_of_jobs(kind: &EventKind) -> bool {
    matches!(kind, EventKind::JobRegistered { .. } | EventKind::JobEnded { .. })
}
