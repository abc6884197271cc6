//! The last hour of the fleet, one sample each five seconds.

use std::collections::{BTreeMap, VecDeque};

use sanderling_protocol::event::LossReport;
use sanderling_protocol::{Instant, Millis, NodeId, NodeInfo};
use serde::Serialize;

/// Values of one sample, in the order of [`FleetHistory::FIELDS`].
type Values = [u64; FleetHistory::FIELDS.len()];

/// Samples of the last hour: 720 of 88 bytes, and 72 bytes for each node.
#[derive(Debug, Default)]
pub struct FleetHistory {
    samples: VecDeque<Values>,
    nodes: BTreeMap<NodeId, NodeTraffic>,
    sampled_at: Option<Instant>,
}

/// Bytes per second that one node carried over the last interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NodeRates {
    /// Read by clients.
    pub read: u64,
    /// Written by clients.
    pub written: u64,
    /// Pushed to other nodes.
    pub pushed: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct NodeTraffic {
    /// Counters of the last sample.
    totals: NodeRates,
    rates: NodeRates,
}

impl FleetHistory {
    /// The time between two samples. Shorter ones would mostly show when heartbeats arrive, which
    /// come every 500 ms. Chosen, not measured.
    pub const STEP: Millis = Millis(5_000);

    /// Most samples that are kept: those of an hour, one every 5 s.
    pub const SAMPLES_MAX: usize = 720;

    /// What a sample has: the time in seconds since 1970, numbers of nodes, bytes, bytes per
    /// second, and bytes since the cluster began.
    pub const FIELDS: [&str; 11] = [
        "at_seconds",
        "nodes",
        "draining_nodes",
        "capacity_bytes",
        "used_bytes",
        "exposure_bytes",
        "read_bytes_per_second",
        "written_bytes_per_second",
        "pushed_bytes_per_second",
        "moved_bytes_total",
        "lost_bytes_total",
    ];

    /// Adds a sample of the nodes that are not gone.
    pub fn sample(&mut self, now: Instant, nodes: &[NodeInfo], report: &LossReport) {
        let span = self.sampled_at.replace(now).map(|before| now.since(before));
        let mut before = std::mem::take(&mut self.nodes);
        let mut sums = NodeRates::default();
        let [mut capacity, mut used, mut exposure, mut draining] = [0_u64; 4];
        for node in nodes {
            let load = &node.load;
            let totals = NodeRates {
                read: load.read_bytes_total,
                written: load.written_bytes_total,
                pushed: load.pushed_bytes_total,
            };
            // Of a node that is new, or was not sampled for long, only the totals are known.
            let last = before.remove(&node.id).zip(span);
            let rates = last
                .map_or_else(NodeRates::default, |(last, span)| totals.since(last.totals, span));
            self.nodes.insert(node.id, NodeTraffic { totals, rates });
            sums.add(rates);
            capacity += node.tiers.iter().map(|tier| tier.capacity_bytes).sum::<u64>();
            used += node.tiers.iter().map(|tier| tier.used_bytes).sum::<u64>();
            exposure += node.exposure_bytes;
            draining += u64::from(node.policy.is_draining());
        }
        if self.samples.len() == Self::SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back([
            now.0 / 1_000_000,
            nodes.len() as u64,
            draining,
            capacity,
            used,
            exposure,
            sums.read,
            sums.written,
            sums.pushed,
            report.moved_bytes,
            report.bytes,
        ]);
    }

    /// Returns what a node carried over the last interval.
    #[must_use]
    pub fn rates(&self, node: NodeId) -> NodeRates {
        self.nodes.get(&node).map(|traffic| traffic.rates).unwrap_or_default()
    }

    /// Returns the samples, the oldest first, with values in the order of [`Self::FIELDS`].
    pub fn samples(&self) -> impl Iterator<Item = &[u64]> {
        self.samples.iter().map(Values::as_slice)
    }
}

impl NodeRates {
    /// Returns the rates of counters that had other values a span ago. A counter that is smaller
    /// began anew.
    fn since(self, before: Self, span: Millis) -> Self {
        let rate = |now: u64, before: u64| {
            let bytes = u128::from(now.saturating_sub(before));
            u64::try_from(bytes * 1000 / u128::from(span.0.max(1))).unwrap_or(u64::MAX)
        };
        Self {
            read: rate(self.read, before.read),
            written: rate(self.written, before.written),
            pushed: rate(self.pushed, before.pushed),
        }
    }

    const fn add(&mut self, other: Self) {
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
        self.pushed = self.pushed.saturating_add(other.pushed);
    }
}
