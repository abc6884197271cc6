//! What is requested of the namenode for one frame.

use std::time::Duration;

use sanderling_protocol::Instant;
use sanderling_protocol::message::{JobInfo, Room};
use sanderling_protocol::node::NodeInfo;

use super::event_rows::EventRow;

/// The answers for one frame.
#[derive(Debug, Clone)]
pub(super) struct TopSample {
    /// Time since the command began; it never goes back.
    pub(super) at: Duration,
    /// The time of this machine's clock.
    pub(super) wall: Instant,
    /// The nodes.
    pub(super) nodes: Vec<NodeInfo>,
    /// The room; `None` from a namenode of the previous release.
    pub(super) room: Option<Room>,
    /// The jobs; `None` when they were not requested.
    pub(super) jobs: Option<Vec<JobInfo>>,
    /// Bytes lost since the cluster began.
    pub(super) lost_bytes: u64,
    /// The events since the sample before, the oldest first.
    pub(super) events: Vec<EventRow>,
    /// Whether another cluster answers than before: its events replace the others.
    pub(super) is_other_cluster: bool,
}

/// What the next samples must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampleRequest {
    /// Whether none is requested.
    pub(super) is_paused: bool,
    /// Whether jobs are.
    pub(super) has_jobs: bool,
    /// Whether nodes are that are gone.
    pub(super) has_gone: bool,
}
