//! How updates are encoded: server-sent events with JSON.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bytes::Bytes;
use sanderling_core::catalog::{Catalog, GONE_NODES_KEPT_MAX};
use sanderling_core::console::NodeRow;
use sanderling_core::namenode::Namenode;
use sanderling_protocol::message::{JobInfo, Room};
use sanderling_protocol::{Event, Instant, JobId, Millis, NodeId, Path, Policy, Reply, Request};
use serde::Serialize;

/// Most jobs that a follower gets. The largest; at 200 bytes each a page of 100 KB. Chosen, not
/// measured.
const JOBS_MAX: usize = 500;

/// Most names of nodes that are gone. Twice as many as the catalog lists as gone, so none is left
/// out.
const NAMES_MAX: usize = 2 * GONE_NODES_KEPT_MAX;

/// How exactly the end of a job's lease is shown, in microseconds. A job that renews its lease
/// would change its row with every update otherwise; a person does not see the difference. Chosen,
/// not measured.
const ENDS_MICROS: u64 = 2_000_000;

/// Figures of the whole cluster.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    room: Room,
    objects: u64,
    blocks: u64,
    notices: u64,
    moved_bytes: u64,
    promoted_bytes: u64,
    copied_bytes: u64,
    rebalanced_bytes: u64,
    lost_blocks: u64,
    lost_bytes: u64,
    lost_objects: u64,
}

impl Summary {
    pub(super) fn new(catalog: &Catalog) -> Self {
        let report = catalog.report();
        Self {
            room: catalog.room(),
            objects: catalog.object_count() as u64,
            blocks: catalog.block_count() as u64,
            notices: report.notices,
            moved_bytes: report.moved_bytes,
            promoted_bytes: report.promoted_bytes,
            copied_bytes: report.copied_bytes,
            rebalanced_bytes: report.rebalanced_bytes,
            lost_blocks: report.blocks,
            lost_bytes: report.bytes,
            lost_objects: report.objects,
        }
    }
}

/// What changed in the fleet.
#[derive(Debug, Serialize)]
pub(super) struct FleetUpdate<'a> {
    pub(super) now: Instant,
    pub(super) nodes: Vec<&'a NodeRow>,
    pub(super) removed: &'a [NodeId],
    pub(super) summary: &'a Summary,
    /// The newest sample of the history, when it is new.
    pub(super) sample: Option<&'a [u64]>,
}

/// The newest events of some.
#[derive(Debug, Serialize)]
pub(super) struct EventPage {
    events: Vec<Event>,
    /// Older ones that were left out.
    skipped: u64,
}

impl EventPage {
    pub(super) fn newest(mut events: Vec<Event>, max: usize) -> Self {
        let skipped = events.len().saturating_sub(max);
        events.drain(..skipped);
        Self { events, skipped: skipped as u64 }
    }
}

/// The events that a new follower gets, in the form of [`EventPage`].
#[derive(Debug, Serialize)]
pub(super) struct NewestEvents<'a> {
    pub(super) events: Vec<&'a Event>,
    pub(super) skipped: u64,
}

/// The largest jobs.
#[derive(Debug, Serialize)]
pub(super) struct JobPage<'a> {
    jobs: Vec<&'a JobRow>,
    /// All of them.
    total: u64,
}

/// One job. Instants take the place of spans, so that the row of an idle job stays the same.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct JobRow {
    job: JobId,
    pub(super) path: Path,
    created_at: Instant,
    lease: Millis,
    /// When its lease ends unless it is renewed, to two seconds.
    ends_at: Instant,
    quota_bytes: Option<u64>,
    used_bytes: u64,
    keep_after_job: bool,
}

impl JobRow {
    fn new(now: Instant, job: JobInfo) -> Self {
        let ends_at = now + job.remaining;
        Self {
            job: job.job,
            path: job.path,
            created_at: job.created_at,
            lease: job.lease,
            ends_at: Instant(ends_at.0 / ENDS_MICROS * ENDS_MICROS),
            quota_bytes: job.quota_bytes,
            used_bytes: job.used_bytes,
            keep_after_job: job.hints.keep_after_job,
        }
    }
}

impl<'a> JobPage<'a> {
    pub(super) fn largest(mut jobs: Vec<&'a JobRow>) -> Self {
        let total = jobs.len() as u64;
        jobs.sort_by_key(|job| (Reverse(job.used_bytes), job.job));
        jobs.truncate(JOBS_MAX);
        Self { jobs, total }
    }
}

/// Returns all jobs.
pub(super) fn jobs(namenode: &Namenode, now: Instant) -> Vec<JobRow> {
    match namenode.read(now, &Request::Jobs) {
        Some(Ok(Reply::Jobs(jobs))) => jobs.into_iter().map(|job| JobRow::new(now, job)).collect(),
        _ => Vec::new(),
    }
}

/// Returns the names of the nodes that went last: events name them by number.
pub(super) fn names_of_gone(namenode: &Namenode, now: Instant) -> BTreeMap<NodeId, String> {
    let nodes = match namenode.read(now, &Request::Nodes { all: true }) {
        Some(Ok(Reply::Nodes(nodes))) => nodes,
        _ => Vec::new(),
    };
    let gone = nodes.into_iter().rev().filter(|node| node.policy == Policy::Gone);
    gone.take(NAMES_MAX).map(|node| (node.id, node.name)).collect()
}

/// Encodes one server-sent event.
pub(super) fn frame(name: &str, body: &impl Serialize) -> Bytes {
    let mut text = format!("event: {name}\ndata: ").into_bytes();
    // JSON has no line breaks.
    serde_json::to_writer(&mut text, body).expect("it has an encoding");
    text.extend_from_slice(b"\n\n");
    Bytes::from(text)
}
