//! What the web console shows of the fleet: rows that are sent when they change, and the history of
//! the last hour. Both are bounded by the number of nodes.

mod history;
mod row;

use std::collections::BTreeMap;

pub use history::{FleetHistory, NodeRates};
pub use row::{DrainRow, NodeRow};
use sanderling_protocol::NodeId;

/// The rows of nodes, as the followers of the console have them.
#[derive(Debug, Default)]
pub struct FleetView {
    rows: BTreeMap<NodeId, NodeRow>,
}

/// The changes of the fleet since the last update.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FleetChanges {
    /// Nodes that are new, or whose row differs.
    pub changed: Vec<NodeId>,
    /// Nodes that are gone.
    pub removed: Vec<NodeId>,
}

impl FleetView {
    /// Takes the rows of all nodes that are not gone, and returns what followers must receive.
    pub fn update(&mut self, rows: impl IntoIterator<Item = NodeRow>) -> FleetChanges {
        let mut before = std::mem::take(&mut self.rows);
        let mut changes = FleetChanges::default();
        for row in rows {
            if before.remove(&row.id).as_ref() != Some(&row) {
                changes.changed.push(row.id);
            }
            self.rows.insert(row.id, row);
        }
        changes.removed = before.into_keys().collect();
        changes
    }

    /// Returns the row of a node; `None` if the last update had no such node.
    #[must_use]
    pub fn row(&self, node: NodeId) -> Option<&NodeRow> {
        self.rows.get(&node)
    }

    /// Returns the rows of the last update, in the order of the nodes' ids.
    pub fn rows(&self) -> impl Iterator<Item = &NodeRow> {
        self.rows.values()
    }
}

#[cfg(test)]
mod tests;
