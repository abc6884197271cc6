//! Nodes, jobs and samples for the unit tests.

use std::time::Duration;

use sanderling_events::Severity;
use sanderling_protocol::message::{JobHints, JobInfo};
use sanderling_protocol::node::{DrainProgress, NodeInfo, TierUsage};
use sanderling_protocol::{Instant, JobId, Millis, NodeId, Policy, Tier};

use super::event_rows::EventRow;
use super::sample::TopSample;

/// Returns an idle node.
pub(crate) fn node(id: u32, name: &str) -> NodeInfo {
    let tier =
        |tier| TierUsage { tier, capacity_bytes: 64 << 20, used_bytes: 16 << 20, copy_bytes: 0 };
    NodeInfo {
        name: name.to_owned(),
        address: format!("10.0.0.{id}:7700"),
        host: format!("host-{id}"),
        tiers: vec![tier(Tier::Dram), tier(Tier::Disk)],
        blocks: 10,
        home_bytes: 16 << 20,
        exposure_bytes: 16 << 20,
        budget_bytes: 1 << 30,
        notice_min: Millis(120_000),
        egress_bytes_per_second: 100 << 20,
        heartbeat_age: Millis(200),
        age: Millis(60_000),
        ..NodeInfo::joined(NodeId(id))
    }
}

/// Returns a node that has a notice.
pub(super) fn draining(id: u32, name: &str) -> NodeInfo {
    let drain = DrainProgress {
        left_blocks: 5,
        left_bytes: 5 << 20,
        moved_blocks: 15,
        moved_bytes: 15 << 20,
        elapsed: Millis(2000),
        finish_in: Some(Millis(700)),
        is_fenced: true,
        ..DrainProgress::default()
    };
    NodeInfo {
        policy: Policy::Draining,
        deadline_in: Some(Millis(28_000)),
        reason: "spot reclaim".to_owned(),
        drain: Some(drain),
        ..node(id, name)
    }
}

/// Returns a job of so many bytes.
pub(super) fn job(id: u64, path: &str, used_bytes: u64) -> JobInfo {
    JobInfo {
        job: JobId(id),
        path: path.parse().expect("a path"),
        created_at: Instant(0),
        lease: Millis(600_000),
        remaining: Millis(540_000),
        quota_bytes: Some(1 << 30),
        used_bytes,
        hints: JobHints::default(),
    }
}

/// Returns an event's row.
pub(super) fn event(sequence: u64, severity: Severity, text: &str) -> EventRow {
    let at = Instant(1_709_208_000_000_000 + sequence * 1_000_000);
    EventRow { sequence, at, kind: "node_gone", severity, text: text.to_owned() }
}

/// Returns a sample of these nodes at so many seconds.
pub(super) fn sample(at: u64, nodes: Vec<NodeInfo>) -> TopSample {
    TopSample {
        at: Duration::from_secs(at),
        wall: Instant(1_709_208_000_000_000 + at * 1_000_000),
        nodes,
        room: None,
        jobs: Some(vec![job(1, "/jobs/etl", 5 << 20), job(2, "/jobs/ml", 900 << 20)]),
        lost_bytes: 0,
        events: vec![
            event(at * 10 + 1, Severity::Info, "node 1 (n1) joined at 10.0.0.1:7700"),
            event(at * 10 + 2, Severity::Warning, "node 2 (n2) got a notice"),
            event(at * 10 + 3, Severity::Error, "LOST 3 blocks with node 2 (n2)"),
        ],
        is_other_cluster: false,
    }
}
