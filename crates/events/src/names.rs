//! The names of nodes, for events that have only ids.

use std::collections::BTreeMap;

use sanderling_protocol::NodeId;
use sanderling_protocol::event::{Event, EventKind};
use sanderling_protocol::node::NodeInfo;

use super::kind::nodes_of;

/// The name and address of each incarnation that the catalog or an event names.
#[derive(Debug, Clone, Default)]
pub struct NodeNames {
    known: BTreeMap<NodeId, NameAndAddress>,
}

#[derive(Debug, Clone, Default)]
struct NameAndAddress {
    name: String,
    address: String,
}

impl NodeNames {
    /// Adds the nodes of the catalog.
    pub fn learn_nodes(&mut self, nodes: &[NodeInfo]) {
        for node in nodes {
            self.learn(node.id, &node.name, Some(&node.address));
        }
    }

    /// Adds the nodes that events name.
    pub fn learn_events(&mut self, events: &[Event]) {
        for event in events {
            match &event.kind {
                EventKind::NodeRegistered { node, name, address } => {
                    self.learn(*node, name, Some(address));
                }
                EventKind::NodeNoticed { node, name, .. }
                | EventKind::NodeDecommissioning { node, name, .. }
                | EventKind::NodeAtRisk { node, name, .. }
                | EventKind::NodeGone { node, name, .. } => self.learn(*node, name, None),
                _ => {}
            }
        }
    }

    /// Returns whether an event concerns a node that has no name here yet. The caller then lists
    /// the nodes of the catalog, and calls [`Self::give_up`] for those that are not listed either.
    #[must_use]
    pub fn is_missing(&self, events: &[Event]) -> bool {
        let mut nodes = events.iter().flat_map(|event| nodes_of(&event.kind));
        nodes.any(|node| !self.known.contains_key(&node))
    }

    /// Ends the search for the names of nodes that these events concern: the catalog no longer has
    /// them, and they are shown by their ids.
    pub fn give_up(&mut self, events: &[Event]) {
        for node in events.iter().flat_map(|event| nodes_of(&event.kind)) {
            self.known.entry(node).or_default();
        }
    }

    fn learn(&mut self, node: NodeId, name: &str, address: Option<&str>) {
        let entry = self.known.entry(node).or_default();
        if entry.name != name {
            name.clone_into(&mut entry.name);
        }
        if let Some(address) = address.filter(|address| entry.address != *address) {
            address.clone_into(&mut entry.address);
        }
    }

    /// Returns the name of a node, if it has one.
    pub(crate) fn name(&self, node: NodeId) -> Option<&str> {
        self.known.get(&node).map(|entry| entry.name.as_str()).filter(|name| !name.is_empty())
    }

    /// Names a node for people: its id, and its name if that is known.
    #[must_use]
    pub fn title(&self, node: NodeId) -> String {
        match self.name(node) {
            Some(name) => format!("node {node} ({name})"),
            None => format!("node {node}"),
        }
    }

    /// Returns whether a text is the id, name or address of this node.
    pub(crate) fn is(&self, node: NodeId, text: &str) -> bool {
        let is_named = |entry: &NameAndAddress| entry.name == text || entry.address == text;
        node.to_string() == text || self.known.get(&node).is_some_and(is_named)
    }

    /// Returns whether a text is the id, name or address of any node.
    pub(crate) fn contains(&self, text: &str) -> bool {
        !text.is_empty() && self.known.keys().any(|node| self.is(*node, text))
    }
}
