//! Notices: which deadline holds.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::catalog::{Action, Catalog, Command};
use sanderling_protocol::{Instant, Millis, NodeId, Policy, Refusal, Reply};

use super::view::View;
use crate::datanode::Datanode;
use crate::runtime::CheckResult;
use crate::wire::Host;

/// The model: the deadlines of each noticed node, those of an operator and of its own sources.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    operator: BTreeMap<NodeId, Instant>,
    sources: BTreeMap<NodeId, Instant>,
    /// The last statement about a node's sources.
    stated: BTreeMap<NodeId, u64>,
    decommissioned: BTreeSet<NodeId>,
}

/// By so much a deadline may be later because its statement was on its way. It does not use the
/// catalog's `ON_ITS_WAY_MAX`, so that a change of it is found.
const ON_ITS_WAY_MILLIS: u64 = 5000;

fn earliest(deadlines: &mut BTreeMap<NodeId, Instant>, node: NodeId, deadline: Instant) {
    let earliest = deadlines.entry(node).or_insert(deadline);
    *earliest = (*earliest).min(deadline);
}

impl Notices {
    /// A notice waits for a namenode that was away: as long as that was, from 2 to 10 s.
    fn grace(&mut self, now: Instant, absence: Millis) {
        if absence.0 > 0 {
            let soonest = now + absence.clamp(Millis(2_000), Millis(10_000));
            let all = self.operator.values_mut().chain(self.sources.values_mut());
            all.for_each(|deadline| *deadline = soonest.max(*deadline));
        }
    }

    /// Takes what a node's process states about its sources. What comes again changes nothing.
    fn state(&mut self, node: NodeId, number: u64, left: Option<Instant>, is_withdrawn: bool) {
        if self.stated.insert(node, number) == Some(number) {
            return;
        }
        match left {
            Some(deadline) if !is_withdrawn => earliest(&mut self.sources, node, deadline),
            Some(deadline) => {
                let before = self.sources.get(&node).copied();
                let is_same = |before: Instant| {
                    before <= deadline && deadline <= before + Millis(ON_ITS_WAY_MILLIS)
                };
                if !before.is_some_and(is_same) {
                    self.sources.insert(node, deadline);
                }
            }
            None => {
                self.sources.remove(&node);
            }
        }
    }

    pub(crate) fn apply(
        &mut self,
        command: &Command,
        result: &Result<Reply, Refusal>,
        catalog: &Catalog,
    ) -> CheckResult {
        let node = match (&command.action, result) {
            (Action::Notice { node, deadline, .. }, Ok(_)) => {
                earliest(&mut self.operator, *node, *deadline);
                *node
            }
            (Action::SourceNotice { node, number, deadline, is_withdrawn, .. }, Ok(_)) => {
                self.state(*node, *number, *deadline, *is_withdrawn);
                *node
            }
            (Action::Decommission { node, .. }, Ok(_)) => {
                self.decommissioned.insert(*node);
                return Ok(());
            }
            (Action::Cancel { node }, Ok(_)) => {
                self.decommissioned.remove(node);
                self.operator.remove(node);
                self.sources.remove(node);
                *node
            }
            // Whether it was forgotten or taken back is looked at by another checker.
            (Action::Repeat { node, deadline: Some(_), .. }, Ok(_)) => {
                if let Some(deadline) = catalog.node_deadline(*node).0 {
                    earliest(&mut self.sources, *node, deadline);
                }
                return Ok(());
            }
            (Action::BeginTerm { absence, .. } | Action::Absent { absence }, _) => {
                self.grace(catalog.now(), *absence);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let (actual, _) = catalog.node_deadline(node);
        let both = [self.operator.get(&node), self.sources.get(&node)];
        let expected = both.into_iter().flatten().min().copied();
        if actual != expected {
            let text = format!("the deadline of node {node} is {actual:?}, not {expected:?}");
            return Err(("deadline", text));
        }
        let policy = catalog.node_policy(node).map(|(policy, _)| policy);
        let is_right = match expected {
            Some(_) => matches!(policy, Some(Policy::Draining | Policy::Drained)),
            None if self.decommissioned.contains(&node) => {
                matches!(policy, Some(Policy::Decommissioning | Policy::Drained))
            }
            None => policy == Some(Policy::Active),
        };
        if is_right {
            return Ok(());
        }
        let text = format!("node {node} is {policy:?} with the deadline {expected:?}");
        Err(("deadline", text))
    }
}

/// Time in which a namenode that can be reached has received a notice: a few heartbeats, and a call
/// that was not answered.
const RECEIVED_MICROS: u64 = 4_000_000;

/// Checks that a machine that saw its own notice, and could send it all the while, does not end as
/// a node that the namenode takes for active.
pub(super) fn check_kept(view: View<'_>, datanode: &Datanode) -> CheckResult {
    let View { runtime, namenode, .. } = view;
    let policy = |node| namenode.catalog().node_policy(node);
    let found = datanode.node().and_then(|node| Some((node, policy(node)?.0)));
    let Some((node, Policy::Active)) = found else { return Ok(()) };
    let since = datanode.noticed_at().unwrap_or(runtime.now()).max(namenode.started_at());
    // While it is stopped it receives nothing.
    let since = since.max(runtime.stop_ends_at(Host::Namenode));
    let is_reachable = runtime.is_up(Host::Namenode) && runtime.plan().is_reachable();
    if is_reachable && runtime.now() >= since + RECEIVED_MICROS {
        return Err(("notice-kept", format!("node {node} ends by a notice and is active")));
    }
    Ok(())
}
