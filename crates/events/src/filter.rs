//! Which events are shown.

use sanderling_protocol::Instant;
use sanderling_protocol::event::{Event, EventKind};

use super::kind::{Severity, kind_name, nodes_of, severity};
use super::names::NodeNames;

/// What an event must be. Empty lists admit every node and every kind.
#[derive(Debug, Clone)]
pub(crate) struct EventFilter {
    /// The oldest.
    pub(crate) since: Option<Instant>,
    /// Ids, names or addresses, of which it must concern one.
    pub(crate) nodes: Vec<String>,
    /// Names of kinds, of which it must have one.
    pub(crate) kinds: Vec<String>,
    /// The least severity.
    pub(crate) severity: Severity,
}

impl EventFilter {
    /// Returns whether an event is shown.
    pub(crate) fn admits(&self, event: &Event, names: &NodeNames) -> bool {
        severity(&event.kind) >= self.severity
            && self.since.is_none_or(|since| event.at >= since)
            && (self.kinds.is_empty()
                || self.kinds.iter().any(|kind| kind == kind_name(&event.kind)))
            && (self.nodes.is_empty()
                || self.nodes.iter().any(|node| concerns(&event.kind, node, names)))
    }
}

fn concerns(kind: &EventKind, node: &str, names: &NodeNames) -> bool {
    // The one kind about a node that may have no id.
    if let EventKind::LogEndLost { name, address, .. } = kind {
        return name == node || address == node;
    }
    nodes_of(kind).into_iter().any(|id| names.is(id, node))
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::NodeId;

    use super::*;

    fn event(at: u64, kind: EventKind) -> Event {
        Event { sequence: at, at: Instant(at), kind }
    }

    fn all() -> EventFilter {
        EventFilter { since: None, nodes: vec![], kinds: vec![], severity: Severity::Info }
    }

    fn some_events() -> (Vec<Event>, NodeNames) {
        let (a, b) = (NodeId(1), NodeId(2));
        let registered = |node, name: &str, address: &str| EventKind::NodeRegistered {
            node,
            name: name.to_owned(),
            address: address.to_owned(),
        };
        let events = vec![
            event(1, registered(a, "n1", "h:1")),
            event(2, registered(b, "n2", "h:2")),
            event(3, EventKind::BlocksMoved { from: a, to: b, blocks: 1, bytes: 1 }),
            event(4, EventKind::NodeFenced { node: a }),
            event(5, EventKind::NodeGone { node: a, name: "n1".into(), why: "deadline".into() }),
        ];
        let mut names = NodeNames::default();
        names.learn_events(&events);
        (events, names)
    }

    fn shown(filter: &EventFilter) -> Vec<u64> {
        let (events, names) = some_events();
        let shown = events.iter().filter(|event| filter.admits(event, &names));
        shown.map(|event| event.sequence).collect()
    }

    #[test]
    fn node_is_found_by_id_name_and_address_also_where_events_have_only_the_id() {
        for node in ["2", "n2", "h:2"] {
            let filter = EventFilter { nodes: vec![node.to_owned()], ..all() };
            assert_eq!(shown(&filter), [2, 3], "{node}");
        }
        let filter = EventFilter { nodes: vec!["n".to_owned()], ..all() };
        assert_eq!(shown(&filter), [0_u64; 0]);
    }

    #[test]
    fn conditions_hold_together() {
        assert_eq!(shown(&all()), [1, 2, 3, 4, 5]);
        assert_eq!(shown(&EventFilter { since: Some(Instant(4)), ..all() }), [4, 5]);
        assert_eq!(shown(&EventFilter { severity: Severity::Warning, ..all() }), [5]);
        let kinds = vec!["node_fenced".to_owned(), "blocks_moved".to_owned()];
        assert_eq!(shown(&EventFilter { kinds: kinds.clone(), ..all() }), [3, 4]);
        let filter = EventFilter { kinds, nodes: vec!["n2".to_owned()], ..all() };
        assert_eq!(shown(&filter), [3]);
    }
}
