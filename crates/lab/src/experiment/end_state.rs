//! The state of the cluster after the work: drains, losses, balance.

use std::collections::BTreeMap;

use sanderling_client::{Client, ClientError};
use sanderling_protocol::event::LossReport;
use sanderling_protocol::limits::EVENTS_PER_REPLY_MAX;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{Event, EventKind, Millis, NodeId, Policy};
use tokio::time::{Instant, sleep_until};

use super::RunId;
use crate::failure::Failure;
use crate::fleet::LabFleet;
use crate::own_cluster;
use crate::plan::LabPlan;
use crate::record::{DrainRecord, ExperimentKind, NodeRecord};

/// What is left when the work is done and every node that was taken is replaced.
pub(super) struct Aftermath {
    pub(super) report: LossReport,
    pub(super) imbalance: Option<f64>,
    pub(super) drains: Vec<DrainRecord>,
}

impl Aftermath {
    /// Waits until loads have to be even, where that is measured, and reads them.
    pub(super) async fn look(
        plan: &LabPlan,
        which: RunId,
        fleet: &LabFleet<'_>,
        client: &Client,
        began: Instant,
    ) -> Result<Self, Failure> {
        let failed = |error: ClientError| own_cluster::failed(&error, client.namenode());
        let lives = fleet.lives();
        let last_change = lives.iter().filter_map(|life| life.served).max();
        let is_changed = lives.iter().any(|life| life.killed.is_some());
        let mut imbalance = None;
        if which.kind != ExperimentKind::Write {
            if let Some(at) = last_change.filter(|_| is_changed) {
                sleep_until(at + plan.even_within()).await;
            }
            imbalance = unevenness(&client.nodes(false).await.map_err(failed)?);
        }
        let events = events(client).await.map_err(failed)?;
        let report = client.report().await.map_err(failed)?;
        let mut drains = drains(&events, plan.link_bytes_per_second);
        for drain in &mut drains {
            let life = lives.iter().find(|life| life.name == drain.name);
            let noticed = life.and_then(|life| life.noticed);
            drain.noticed = noticed.map_or(0.0, |at| (at - began).as_secs_f64());
        }
        Ok(Self { report, imbalance, drains })
    }
}

impl Aftermath {
    /// Returns when a node held nothing any more or was killed.
    pub(super) fn gone(&self, node: &NodeRecord) -> Option<f64> {
        let drain = self.drains.iter().find(|drain| drain.name == node.name);
        let empty = drain.and_then(|drain| Some(drain.noticed + drain.seconds?));
        empty.into_iter().chain(node.killed).min_by(f64::total_cmp)
    }
}

/// Returns largest over mean bytes of the nodes that take blocks; `None` where there is no data.
fn unevenness(nodes: &[NodeInfo]) -> Option<f64> {
    let active = nodes.iter().filter(|node| node.policy == Policy::Active);
    let bytes: Vec<u64> = active.map(|node| node.home_bytes).collect();
    let mean = bytes.iter().sum::<u64>() as f64 / bytes.len() as f64;
    let max = *bytes.iter().max()? as f64;
    (mean > 0.0).then(|| max / mean)
}

async fn events(client: &Client) -> Result<Vec<Event>, ClientError> {
    let mut all: Vec<Event> = Vec::new();
    loop {
        let after = all.last().map_or(0, |event| event.sequence);
        let page = client.events(after, EVENTS_PER_REPLY_MAX, Millis(0)).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// Reads the drains off the events; `noticed` is left open.
fn drains(events: &[Event], link_bytes_per_second: u64) -> Vec<DrainRecord> {
    let mut order: Vec<NodeId> = Vec::new();
    let mut all: BTreeMap<NodeId, DrainRecord> = BTreeMap::new();
    for event in events {
        match &event.kind {
            EventKind::NodeNoticed { node, name, bytes, .. } => {
                order.push(*node);
                let (name, bytes) = (name.clone(), *bytes);
                all.entry(*node).or_insert_with(|| empty(name, bytes));
            }
            EventKind::BlocksPromoted { from, bytes, .. } => {
                if let Some(drain) = all.get_mut(from) {
                    drain.promoted_bytes += bytes;
                }
            }
            EventKind::BlocksMoved { from, bytes, .. } => {
                if let Some(drain) = all.get_mut(from) {
                    drain.moved_bytes += bytes;
                }
            }
            EventKind::BlocksLost { node, bytes, .. } => {
                if let Some(drain) = all.get_mut(node) {
                    drain.lost_bytes += bytes;
                }
            }
            EventKind::NodeDrained { node, elapsed, .. } => {
                if let Some(drain) = all.get_mut(node) {
                    drain.seconds.get_or_insert(to_seconds(*elapsed));
                }
            }
            _ => {}
        }
    }
    order.dedup();
    let mut drains: Vec<DrainRecord> = order.iter().filter_map(|node| all.remove(node)).collect();
    for drain in &mut drains {
        let on_link = drain.moved_bytes as f64 / link_bytes_per_second as f64;
        drain.over_link = drain.seconds.filter(|_| on_link > 0.0).map(|seconds| seconds / on_link);
    }
    drains
}

const fn empty(name: String, bytes: u64) -> DrainRecord {
    DrainRecord {
        name,
        noticed: 0.0,
        bytes,
        moved_bytes: 0,
        promoted_bytes: 0,
        lost_bytes: 0,
        seconds: None,
        over_link: None,
    }
}

fn to_seconds(span: Millis) -> f64 {
    span.0 as f64 / 1e3
}

/// Returns the links of living nodes over a run's time, as a part of the fleet's. `gone` is the
/// time until which a node counts.
pub(super) fn capacity(
    records: &[NodeRecord],
    nodes: u32,
    seconds: f64,
    gone: impl Fn(&NodeRecord) -> Option<f64>,
) -> f64 {
    let alive = |node: &NodeRecord| {
        let until = gone(node).unwrap_or(seconds).clamp(0.0, seconds);
        (until - node.served.clamp(0.0, seconds)).max(0.0)
    };
    records.iter().map(alive).sum::<f64>() / (f64::from(nodes) * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(served: f64, killed: Option<f64>) -> NodeRecord {
        NodeRecord { slot: 0, name: String::new(), served, noticed: None, killed }
    }

    #[test]
    fn capacity_counts_only_the_time_that_nodes_live() {
        let records = [node(-1.0, None), node(-1.0, Some(5.0)), node(7.5, Some(20.0))];
        let gone = |node: &NodeRecord| node.killed;
        assert!((capacity(&records, 2, 10.0, gone) - 0.875).abs() < 1e-9);
    }

    #[test]
    fn drain_is_read_off_the_events() {
        let at = sanderling_protocol::Instant(0);
        let event = |sequence, kind| Event { sequence, at, kind };
        let (node, name, reason) = (NodeId(3), "n3-0".to_owned(), String::new());
        let deadline_in = Millis(4000);
        let events = [
            event(1, EventKind::NodeNoticed { node, name, deadline_in, reason, bytes: 900 }),
            event(2, EventKind::BlocksMoved { from: node, to: NodeId(4), blocks: 1, bytes: 500 }),
            event(3, EventKind::BlocksPromoted { from: node, blocks: 1, bytes: 400 }),
            event(
                4,
                EventKind::NodeDrained {
                    node,
                    moved_blocks: 1,
                    moved_bytes: 500,
                    elapsed: Millis(1000),
                },
            ),
        ];
        let drains = drains(&events, 1000);
        let [drain] = &drains[..] else { panic!("{drains:?}") };
        assert_eq!((drain.moved_bytes, drain.promoted_bytes, drain.lost_bytes), (500, 400, 0));
        assert_eq!((drain.seconds, drain.over_link), (Some(1.0), Some(2.0)));
    }
}
