use sanderling_protocol::event::LossReport;
use sanderling_protocol::node::{Load, TierUsage};
use sanderling_protocol::{Instant, Millis, NodeInfo, Policy, Tier};

use super::*;

const MIB: u64 = 1 << 20;

fn at(seconds: u64) -> Instant {
    Instant(1_700_000_000_000_000 + seconds * 1_000_000)
}

fn node(id: u32, read_bytes_total: u64) -> NodeInfo {
    let tier = TierUsage { tier: Tier::Dram, capacity_bytes: MIB, used_bytes: 7, copy_bytes: 0 };
    let load = Load { read_bytes_total, ..Load::default() };
    let name = format!("node-{id}");
    let node = NodeInfo::joined(NodeId(id));
    NodeInfo { name, tiers: vec![tier], exposure_bytes: 1, load, ..node }
}

fn row(now: Instant, node: NodeInfo) -> NodeRow {
    NodeRow::new(now, node, false, NodeRates::default())
}

#[test]
fn row_of_an_idle_node_is_sent_once() {
    let mut view = FleetView::default();
    let aged = |seconds: u64| {
        let mut node = node(1, 0);
        node.age = Millis(seconds * 1000);
        node.heartbeat_age = Millis(seconds);
        node.deadline_in = Some(Millis(60_000 - seconds * 1000));
        row(at(seconds), node)
    };
    assert_eq!(view.update([aged(0)]).changed, [NodeId(1)]);
    assert_eq!(view.update([aged(9)]), FleetChanges::default());
}

#[test]
fn changes_are_new_nodes_other_rows_and_nodes_that_are_gone() {
    let mut view = FleetView::default();
    view.update([1, 2, 3].map(|id| row(at(0), node(id, 0))));
    let mut drains = node(2, 0);
    drains.policy = Policy::Draining;
    let changes = view.update([row(at(0), drains), row(at(0), node(3, 0)), row(at(0), node(4, 0))]);
    assert_eq!(changes.changed, [NodeId(2), NodeId(4)]);
    assert_eq!(changes.removed, [NodeId(1)]);
    assert_eq!(view.row(NodeId(2)).unwrap().policy, Policy::Draining);
    assert_eq!(view.rows().count(), 3);
}

#[test]
fn rates_are_differences_of_counters() {
    let mut history = FleetHistory::default();
    let report = LossReport { bytes: 3, moved_bytes: 4, ..LossReport::default() };
    history.sample(at(0), &[node(1, 100 * MIB)], &report);
    assert_eq!(history.rates(NodeId(1)).read, 0, "when those bytes were read is unknown");
    history.sample(at(5), &[node(1, 110 * MIB), node(2, 50 * MIB)], &report);
    assert_eq!(history.rates(NodeId(1)).read, 2 * MIB);
    assert_eq!(history.rates(NodeId(2)).read, 0);
    let last = history.samples().last().unwrap();
    let value = |name: &str| {
        let field = FleetHistory::FIELDS.iter().position(|field| *field == name).unwrap();
        last[field]
    };
    assert_eq!(value("at_seconds"), 1_700_000_005);
    assert_eq!((value("nodes"), value("draining_nodes")), (2, 0));
    assert_eq!((value("capacity_bytes"), value("used_bytes")), (2 * MIB, 14));
    assert_eq!((value("exposure_bytes"), value("read_bytes_per_second")), (2, 2 * MIB));
    assert_eq!((value("moved_bytes_total"), value("lost_bytes_total")), (4, 3));
    // A counter that began anew is no negative rate.
    history.sample(at(10), &[node(1, 0)], &report);
    assert_eq!(history.rates(NodeId(1)), NodeRates::default());
}

#[test]
fn history_ends_after_an_hour_and_forgets_nodes_that_are_gone() {
    let mut history = FleetHistory::default();
    for turn in 0..2 * FleetHistory::SAMPLES_MAX as u64 {
        let id = u32::try_from(turn).unwrap();
        history.sample(at(turn * 5), &[node(id, 1)], &LossReport::default());
    }
    assert_eq!(history.samples().count(), FleetHistory::SAMPLES_MAX);
    let first = history.samples().next().unwrap()[0];
    assert_eq!(first, 1_700_000_000 + 5 * FleetHistory::SAMPLES_MAX as u64);
    assert_eq!(history.rates(NodeId(0)), NodeRates::default());
}
