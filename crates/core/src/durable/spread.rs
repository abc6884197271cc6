//! How uploads are spread over the nodes: what each sends for those under way, and where the bytes
//! of an order are.
//!
//! A block that another node uploads leaves two nodes: its home, and then the one that uploads it.

use std::collections::BTreeMap;

use sanderling_protocol::NodeId;
use sanderling_protocol::order::UploadPart;

use super::interface::DurableCall;

/// Bytes that nodes send for the orders under way, to a store or to the node that uploads.
#[derive(Debug, Default)]
pub(super) struct SendLoad {
    of_node: BTreeMap<NodeId, u64>,
    of_order: BTreeMap<DurableCall, Vec<(NodeId, u64)>>,
}

/// Where the bytes of an order's parts are.
#[derive(Debug, Default)]
pub(super) struct PartSources {
    /// All of them, with those that live in the catalog.
    bytes: u64,
    at_homes: BTreeMap<NodeId, u64>,
}

impl SendLoad {
    /// Returns the bytes that a node sends.
    pub(super) fn of(&self, node: NodeId) -> u64 {
        self.of_node.get(&node).copied().unwrap_or_default()
    }

    /// Notes what nodes send for an order that begins.
    pub(super) fn begin(&mut self, order: DurableCall, sends: Vec<(NodeId, u64)>) {
        for (node, bytes) in &sends {
            *self.of_node.entry(*node).or_default() += bytes;
        }
        let before = self.of_order.insert(order, sends);
        assert!(before.is_none(), "each order has a call of its own");
    }

    /// Forgets an order that has ended, if it is under way.
    pub(super) fn end(&mut self, order: DurableCall) {
        for (node, bytes) in self.of_order.remove(&order).into_iter().flatten() {
            let left = self.of(node).checked_sub(bytes).expect("it was added when the order began");
            if left == 0 {
                self.of_node.remove(&node);
            } else {
                self.of_node.insert(node, left);
            }
        }
    }
}

impl PartSources {
    pub(super) fn of(parts: &[UploadPart]) -> Self {
        let mut sources = Self::default();
        for part in parts {
            sources.bytes += part.inline.len() as u64;
            for block in &part.blocks {
                sources.bytes += u64::from(block.length);
                *sources.at_homes.entry(block.node).or_default() += u64::from(block.length);
            }
        }
        sources
    }

    /// Returns the bytes that a node has to get from elsewhere to upload the parts.
    pub(super) fn elsewhere(&self, node: NodeId) -> u64 {
        self.bytes - self.at_homes.get(&node).copied().unwrap_or_default()
    }

    /// Returns the bytes that each node sends if this one uploads the parts.
    pub(super) fn sent(&self, by: NodeId) -> Vec<(NodeId, u64)> {
        let others = self.at_homes.iter().filter(|(node, _)| **node != by);
        let others = others.map(|(node, bytes)| (*node, *bytes));
        others.chain([(by, self.bytes)]).collect()
    }
}

#[cfg(test)]
impl SendLoad {
    /// Returns whether no node sends anything.
    pub(super) fn is_empty(&self) -> bool {
        self.of_node.is_empty() && self.of_order.is_empty()
    }
}
