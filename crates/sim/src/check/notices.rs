//! Notices: which deadline holds.

use std::collections::BTreeMap;

use sanderling_core::catalog::{Action, Catalog, Command};
use sanderling_protocol::{Instant, NodeId, Policy, Refusal, Reply};

use super::Found;

/// The model: the earliest deadline of each noticed node.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    deadlines: BTreeMap<NodeId, Instant>,
}

impl Notices {
    pub(crate) fn apply(
        &mut self,
        command: &Command,
        result: &Result<Reply, Refusal>,
        catalog: &Catalog,
    ) -> Found {
        let node = match (&command.action, result) {
            (Action::Notice { node, deadline, .. }, Ok(_)) => {
                let earliest = self.deadlines.entry(*node).or_insert(*deadline);
                *earliest = (*earliest).min(*deadline);
                *node
            }
            (Action::Cancel { node }, Ok(_)) => {
                self.deadlines.remove(node);
                *node
            }
            _ => return Ok(()),
        };
        let (told, _) = catalog.node_deadline(node);
        let expected = self.deadlines.get(&node).copied();
        if told != expected {
            let text = format!("the deadline of node {node} is {told:?}, not {expected:?}");
            return Err(("deadline", text));
        }
        let policy = catalog.node_policy(node).map(|(policy, _)| policy);
        let is_right = match expected {
            Some(_) => matches!(policy, Some(Policy::Draining | Policy::Drained)),
            None => policy == Some(Policy::Active),
        };
        if is_right {
            return Ok(());
        }
        let text = format!("node {node} is {policy:?} with the deadline {expected:?}");
        Err(("deadline", text))
    }
}
