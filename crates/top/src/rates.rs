//! Rates, from counters in two samples. Heartbeats carry the counters of nodes, so the time between
//! two heartbeats counts, not that between two samples.

use std::collections::BTreeMap;
use std::time::Duration;

use sanderling_protocol::message::JobInfo;
use sanderling_protocol::node::{Load, NodeInfo};
use sanderling_protocol::{JobId, NodeId};

/// Two heartbeats are at least so far apart; a smaller difference is the network's delay. A quarter
/// of the 200 ms between those of a draining node, the closest that there are.
const HEARTBEATS_APART: Duration = Duration::from_millis(50);

/// A node whose last heartbeat is older has no rate: it is dead after 6 s without one, by default.
/// Chosen, not measured.
const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(10);

/// What a node reads and writes, in bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct NodeTraffic {
    /// Read by clients.
    pub(super) read_bytes_per_second: u64,
    /// Written by clients.
    pub(super) written_bytes_per_second: u64,
    /// Sent to other nodes.
    pub(super) pushed_bytes_per_second: u64,
    /// Received from other nodes.
    pub(super) stored_bytes_per_second: u64,
}

impl NodeTraffic {
    /// Returns all of it.
    pub(super) const fn sum(&self) -> u64 {
        self.read_bytes_per_second
            .saturating_add(self.written_bytes_per_second)
            .saturating_add(self.pushed_bytes_per_second)
            .saturating_add(self.stored_bytes_per_second)
    }

    /// Returns the traffic of several nodes.
    pub(super) fn total(all: impl Iterator<Item = Self>) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            read_bytes_per_second: sum
                .read_bytes_per_second
                .saturating_add(one.read_bytes_per_second),
            written_bytes_per_second: sum
                .written_bytes_per_second
                .saturating_add(one.written_bytes_per_second),
            pushed_bytes_per_second: sum
                .pushed_bytes_per_second
                .saturating_add(one.pushed_bytes_per_second),
            stored_bytes_per_second: sum
                .stored_bytes_per_second
                .saturating_add(one.stored_bytes_per_second),
        })
    }

    /// Returns what happened between two loads; `None` when a counter went back.
    fn between(before: &Load, after: &Load, elapsed: Duration) -> Option<Self> {
        let rate = |before: u64, after: u64| {
            Some((after.checked_sub(before)? as f64 / elapsed.as_secs_f64()) as u64)
        };
        Some(Self {
            read_bytes_per_second: rate(before.read_bytes_total, after.read_bytes_total)?,
            written_bytes_per_second: rate(before.written_bytes_total, after.written_bytes_total)?,
            pushed_bytes_per_second: rate(before.pushed_bytes_total, after.pushed_bytes_total)?,
            stored_bytes_per_second: rate(before.stored_bytes_total, after.stored_bytes_total)?,
        })
    }
}

/// The last heartbeat of a node, and the rates up to it.
#[derive(Debug, Clone)]
struct LastBeat {
    at: Duration,
    load: Load,
    traffic: Option<NodeTraffic>,
}

/// A job's bytes in the last sample, and how fast they grow.
#[derive(Debug, Clone, Copy)]
struct LastUse {
    at: Duration,
    used_bytes: u64,
    growth: Option<i64>,
}

/// The rates of all nodes and jobs of the last sample.
#[derive(Debug, Clone, Default)]
pub(super) struct RateTable {
    nodes: BTreeMap<NodeId, LastBeat>,
    jobs: BTreeMap<JobId, LastUse>,
}

impl RateTable {
    /// Takes the nodes of a sample at a time that never goes back.
    pub(super) fn take_nodes(&mut self, now: Duration, nodes: &[NodeInfo]) {
        let mut beats = BTreeMap::new();
        for node in nodes {
            let age = Duration::from_millis(node.heartbeat_age.0);
            let mut beat = LastBeat { at: now.saturating_sub(age), load: node.load, traffic: None };
            if let Some(before) = self.nodes.get(&node.id) {
                let elapsed = beat.at.saturating_sub(before.at);
                if elapsed >= HEARTBEATS_APART {
                    beat.traffic = NodeTraffic::between(&before.load, &node.load, elapsed);
                } else {
                    beat = before.clone();
                }
            }
            if age > HEARTBEAT_AGE_MAX {
                beat.traffic = None;
            }
            beats.insert(node.id, beat);
        }
        self.nodes = beats;
    }

    /// Takes the jobs of a sample.
    pub(super) fn take_jobs(&mut self, now: Duration, jobs: &[JobInfo]) {
        let uses = jobs.iter().map(|job| {
            let before = self.jobs.get(&job.job);
            let growth = before.and_then(|before| {
                let elapsed = now.saturating_sub(before.at).as_secs_f64();
                let change = i128::from(job.used_bytes) - i128::from(before.used_bytes);
                (elapsed > 0.0).then(|| (change as f64 / elapsed) as i64)
            });
            (job.job, LastUse { at: now, used_bytes: job.used_bytes, growth })
        });
        self.jobs = uses.collect();
    }

    /// Returns a node's rates; `None` before its second heartbeat.
    pub(super) fn node(&self, node: NodeId) -> Option<NodeTraffic> {
        self.nodes.get(&node).and_then(|beat| beat.traffic)
    }

    /// Returns by how many bytes per second a job grows; negative when it shrinks.
    pub(super) fn job(&self, job: JobId) -> Option<i64> {
        self.jobs.get(&job).and_then(|one| one.growth)
    }

    /// Returns the rates of all nodes together; `None` before any has one.
    pub(super) fn fleet(&self) -> Option<NodeTraffic> {
        let rates = || self.nodes.values().filter_map(|beat| beat.traffic);
        rates().next().map(|_| NodeTraffic::total(rates()))
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Millis;

    use super::super::test_nodes::{job, node};
    use super::*;

    fn beat(age: u64, read_bytes_total: u64) -> NodeInfo {
        let load = Load { read_bytes_total, ..Load::default() };
        NodeInfo { heartbeat_age: Millis(age), load, ..node(1, "n1") }
    }

    fn rate(table: &RateTable) -> Option<u64> {
        table.node(NodeId(1)).map(|traffic| traffic.read_bytes_per_second)
    }

    #[test]
    fn rate_is_that_between_the_heartbeats() {
        let mut table = RateTable::default();
        table.take_nodes(Duration::from_secs(10), &[beat(500, 1000)]);
        assert_eq!(rate(&table), None, "one sample has no rate");
        // From the heartbeat at 9.5 s to that at 12 s.
        table.take_nodes(Duration::from_secs(12), &[beat(0, 6000)]);
        assert_eq!(rate(&table), Some(2000));
        // The same heartbeat, read again: what is known of it stays.
        table.take_nodes(Duration::from_millis(12_310), &[beat(300, 6000)]);
        assert_eq!(rate(&table), Some(2000));
        table.take_nodes(Duration::from_secs(14), &[beat(0, 6000)]);
        assert_eq!(rate(&table), Some(0));
        assert_eq!(table.fleet(), Some(NodeTraffic::default()));
    }

    #[test]
    fn counter_that_goes_back_and_a_silent_node_have_no_rate() {
        let mut table = RateTable::default();
        table.take_nodes(Duration::from_secs(10), &[beat(0, 9000)]);
        table.take_nodes(Duration::from_secs(12), &[beat(0, 10)]);
        assert_eq!(rate(&table), None);
        table.take_nodes(Duration::from_secs(14), &[beat(0, 2010)]);
        assert_eq!(rate(&table), Some(1000));
        table.take_nodes(Duration::from_secs(34), &[beat(20_000, 2010)]);
        assert_eq!(rate(&table), None);
        assert_eq!(table.fleet(), None);
    }

    #[test]
    fn job_grows_and_shrinks() {
        let mut table = RateTable::default();
        table.take_jobs(Duration::from_secs(1), &[job(7, "/a", 1000)]);
        assert_eq!(table.job(JobId(7)), None);
        table.take_jobs(Duration::from_secs(3), &[job(7, "/a", 5000)]);
        assert_eq!(table.job(JobId(7)), Some(2000));
        table.take_jobs(Duration::from_secs(5), &[job(7, "/a", 1000)]);
        assert_eq!(table.job(JobId(7)), Some(-2000));
    }
}
