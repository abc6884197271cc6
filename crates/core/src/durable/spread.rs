//! How uploads are spread over the nodes: what each sends for those under way, where the bytes of
//! an order are, and what it costs that a node uploads them.
//!
//! A block that another node uploads leaves two nodes: its home, and then the one that uploads it.
//! The home sends it in any case. So another node uploads only what would wait for long at its
//! home, and the parts of an order are at one place, where that takes no more requests.

use std::collections::BTreeMap;

use sanderling_protocol::NodeId;
use sanderling_protocol::order::UploadPart;

use super::interface::DurableCall;
use crate::datanode::JOINED_BYTES_MAX;

/// As how many bytes to send each one counts that a node has to read from another one. Three: of
/// orders of one length, a home that has four, as many as it may have, leaves the next one to a
/// node that has none. With fewer, it keeps the next one itself. Chosen, not measured.
const FETCHED_WEIGHT: u64 = 3;

/// Bytes that nodes send for the orders under way, to a store or to the node that uploads.
#[derive(Debug, Default)]
pub(super) struct SendLoad {
    of_node: BTreeMap<NodeId, u64>,
    of_order: BTreeMap<DurableCall, Vec<(NodeId, u64)>>,
}

/// Where the bytes of an order's parts are.
#[derive(Debug, Clone, Default)]
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

    /// Returns what it costs that a node uploads these parts too: the bytes that it sends then,
    /// among which those count for more that it has to read from others first. Of equal sums that
    /// with fewer such bytes is less.
    pub(super) fn cost(&self, parts: &PartSources, by: NodeId) -> (u64, u64) {
        let fetched = parts.elsewhere(by);
        let weighed = fetched.saturating_mul(FETCHED_WEIGHT);
        (self.of(by).saturating_add(weighed), fetched)
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

/// Returns the first parts, for one order: a run of parts that one node has whole, or that no node
/// has whole, if one request takes no more than it; else all parts up to the next such run. With
/// them comes the offset behind them; that of all is `end`. A last part of one block goes with
/// them, wherever it is: an order of its own costs a request more.
///
/// Below a durable directory most runs are as long, so each goes by the node that has it. Objects
/// that were joined from short ones have a home for each part: orders of one part each would take
/// more requests than the bytes are worth that leave a node once more.
pub(super) fn of_one_home(mut parts: Vec<UploadPart>, end: u64) -> (Vec<UploadPart>, u64) {
    let Some(first) = parts.first() else { return (parts, end) };
    let whole = JOINED_BYTES_MAX / length_of(first).max(1);
    let mut count = 0;
    for run in parts.chunk_by(|part, next| home_of(part) == home_of(next)) {
        let is_whole = run.len() as u64 >= whole;
        if is_whole && count > 0 {
            break;
        }
        count += run.len();
        if is_whole {
            break;
        }
    }
    if count + 1 == parts.len() && parts[count].blocks.len() == 1 {
        count += 1;
    }
    let end = parts.get(count).map_or(end, |part| part.offset);
    parts.truncate(count);
    (parts, end)
}

fn length_of(part: &UploadPart) -> u64 {
    let blocks = part.blocks.iter().map(|block| u64::from(block.length));
    part.inline.len() as u64 + blocks.sum::<u64>()
}

/// Returns the node that has all blocks of a part; `None` if several have some, or none has any.
fn home_of(part: &UploadPart) -> Option<NodeId> {
    let first = part.blocks.first()?.node;
    part.blocks.iter().all(|block| block.node == first).then_some(first)
}

#[cfg(test)]
impl SendLoad {
    /// Returns whether no node sends anything.
    pub(super) fn is_empty(&self) -> bool {
        self.of_node.is_empty() && self.of_order.is_empty()
    }
}
