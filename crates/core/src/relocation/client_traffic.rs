//! What clients do at the nodes, from two heartbeats.

use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis, NodeId, NodeInfo};

/// The traffic of clients at every node.
#[derive(Debug, Clone, Default)]
pub(super) struct TrafficByNode {
    nodes: BTreeMap<NodeId, TrafficSample>,
}

/// The contents of the last heartbeat, and what has changed since the one before.
#[derive(Debug, Clone, Copy)]
struct TrafficSample {
    at: Instant,
    read_bytes_total: u64,
    written_bytes_total: u64,
    traffic: ClientTraffic,
}

/// Bytes per second that clients read and write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ClientTraffic {
    pub(super) read: u64,
    pub(super) written: u64,
}

impl TrafficByNode {
    /// Shortest time between two heartbeats that are compared: a view's age is in milliseconds.
    /// Half of the 200 ms between those of a draining node.
    const APART: Millis = Millis(100);

    /// Takes the heartbeats of a view.
    pub(super) fn look(&mut self, now: Instant, nodes: &[NodeInfo]) {
        let mut seen = BTreeMap::new();
        for node in nodes {
            let before = self.nodes.get(&node.id);
            seen.insert(node.id, TrafficSample::after(before, now - node.heartbeat_age, node));
        }
        self.nodes = seen;
    }

    /// Returns the traffic at a node, by its last two heartbeats.
    pub(super) fn at(&self, node: NodeId) -> ClientTraffic {
        self.nodes.get(&node).map_or(ClientTraffic::default(), |seen| seen.traffic)
    }
}

impl TrafficSample {
    fn after(before: Option<&Self>, at: Instant, node: &NodeInfo) -> Self {
        let load = &node.load;
        let mut seen = Self {
            at,
            read_bytes_total: load.read_bytes_total,
            written_bytes_total: load.written_bytes_total,
            traffic: ClientTraffic::default(),
        };
        let Some(before) = before else { return seen };
        if at < before.at + TrafficByNode::APART {
            return *before;
        }
        let micros = at.0 - before.at.0;
        seen.traffic = ClientTraffic {
            read: rate(load.read_bytes_total.saturating_sub(before.read_bytes_total), micros),
            written: rate(
                load.written_bytes_total.saturating_sub(before.written_bytes_total),
                micros,
            ),
        };
        seen
    }
}

fn rate(bytes: u64, micros: u64) -> u64 {
    let rate = u128::from(bytes) * 1_000_000 / u128::from(micros.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::tests::node;
    use super::*;

    #[test]
    fn traffic_is_what_changed_between_two_heartbeats() {
        let (mut clients, now) = (TrafficByNode::default(), Instant(10_000_000));
        let mut one = node(1, 100);
        one.load.read_bytes_total = 5_000;
        clients.look(now, std::slice::from_ref(&one));
        assert_eq!(clients.at(NodeId(1)), ClientTraffic::default());
        one.load.read_bytes_total = 6_000;
        one.load.written_bytes_total = 100;
        one.heartbeat_age = Millis(10);
        let later = now + Millis(510);
        clients.look(later, std::slice::from_ref(&one));
        assert_eq!(clients.at(NodeId(1)), ClientTraffic { read: 2_000, written: 200 });
        one.heartbeat_age = Millis(60);
        clients.look(later + Millis(50), std::slice::from_ref(&one));
        assert_eq!(clients.at(NodeId(1)).read, 2_000, "the same heartbeat seen again");
        one.heartbeat_age = Millis(0);
        clients.look(later + Millis(490), &[one]);
        assert_eq!(clients.at(NodeId(1)), ClientTraffic::default(), "no client reads any more");
    }
}
