//! Membership: which nodes are there, by their heartbeats and by what peers say.
//!
//! What it knows is not in the log: after a restart every known node is taken for alive and has the
//! whole time to show itself. Its verdict, that a node is dead, is.

use std::collections::BTreeMap;

use sanderling_protocol::node::{Availability, Load};
use sanderling_protocol::{Instant, Millis, NodeId};

/// What came of dialling a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// It answered as itself.
    Alive,
    /// Its machine refused the connection, or another process answered: the incarnation has ended.
    Refused,
    /// Nothing was heard.
    Timeout,
}

/// When a node is looked at twice, and when it is given up.
#[derive(Debug, Clone)]
pub struct MembershipConfig {
    /// Silence after which a node is dialled.
    pub suspect_after: Millis,
    /// Silence after which a node is dead. Longer makes partitions harmless, shorter tells readers
    /// sooner what is lost.
    pub dead_after: Millis,
    /// Pause between two probes of the same node.
    pub probe_every: Millis,
}

impl Default for MembershipConfig {
    fn default() -> Self {
        Self {
            // Three heartbeats of half a second.
            suspect_after: Millis(1500),
            // Below the default deadline of a client's call, so that a reader of a dead node's
            // blocks learns the truth instead of running into its deadline.
            dead_after: Millis(6000),
            probe_every: Millis(250),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Member {
    seen_at: Instant,
    is_suspected: bool,
    probe_at: Option<Instant>,
    load: Load,
}

/// The nodes that the catalog knows and that are not gone.
#[derive(Debug, Clone, Default)]
pub struct Membership {
    config: MembershipConfig,
    members: BTreeMap<NodeId, Member>,
}

impl Membership {
    /// Returns the membership without nodes.
    #[must_use]
    pub const fn new(config: MembershipConfig) -> Self {
        Self { config, members: BTreeMap::new() }
    }

    /// Takes a node in, or hears of it.
    pub fn joined(&mut self, now: Instant, node: NodeId) {
        let member =
            Member { seen_at: now, is_suspected: false, probe_at: None, load: Load::default() };
        let member = self.members.entry(node).or_insert(member);
        member.seen_at = member.seen_at.max(now);
        member.is_suspected = false;
    }

    /// Takes a heartbeat.
    pub fn heartbeat(&mut self, now: Instant, node: NodeId, load: Load) {
        self.joined(now, node);
        if let Some(member) = self.members.get_mut(&node) {
            member.load = load;
            member.probe_at = None;
        }
    }

    /// Forgets a node that is gone.
    pub fn left(&mut self, node: NodeId) {
        self.members.remove(&node);
    }

    /// Takes a peer's word that a node could not be reached: it is dialled at once.
    pub fn suspected(&mut self, now: Instant, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node) {
            member.is_suspected = true;
            member.probe_at.get_or_insert(now);
        }
    }

    /// Returns the nodes to dial now; each comes again after a pause while it stays silent.
    pub fn to_probe(&mut self, now: Instant) -> Vec<NodeId> {
        let mut probes = Vec::new();
        for (node, member) in &mut self.members {
            if member.seen_at + self.config.suspect_after <= now {
                member.is_suspected = true;
                member.probe_at.get_or_insert(now);
            }
            if let Some(at) = member.probe_at
                && at <= now
            {
                member.probe_at = Some(now + self.config.probe_every);
                probes.push(*node);
            }
        }
        probes
    }

    /// Takes the outcome of a probe. Returns whether the node is dead.
    pub fn probed(&mut self, now: Instant, node: NodeId, outcome: Probe) -> bool {
        let Some(member) = self.members.get_mut(&node) else { return false };
        match outcome {
            Probe::Alive => {
                member.seen_at = member.seen_at.max(now);
                member.is_suspected = false;
                member.probe_at = None;
                false
            }
            Probe::Refused => true,
            Probe::Timeout => member.seen_at + self.config.dead_after <= now,
        }
    }

    /// Returns the nodes that were silent for too long.
    #[must_use]
    pub fn dead(&self, now: Instant) -> Vec<NodeId> {
        let is_dead = |member: &Member| member.seen_at + self.config.dead_after <= now;
        let members = self.members.iter().filter(|(_, member)| is_dead(member));
        members.map(|(node, _)| *node).collect()
    }

    /// Returns when [`Membership::to_probe`] or [`Membership::dead`] has something to say.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let next = |member: &Member| {
            let silence = member.seen_at + self.config.suspect_after;
            let death = member.seen_at + self.config.dead_after;
            member.probe_at.unwrap_or(silence).min(death)
        };
        self.members.values().map(next).min()
    }

    /// Tells whether new blocks may be placed on a node.
    #[must_use]
    pub fn is_up(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|member| !member.is_suspected)
    }

    /// Returns what the heartbeats say of a node: its state, load, and the time since the last one.
    #[must_use]
    pub fn view(&self, now: Instant, node: NodeId) -> (Availability, Load, Millis) {
        match self.members.get(&node) {
            None => (Availability::Down, Load::default(), Millis(0)),
            Some(member) => {
                let suspect = member.is_suspected;
                let availability = if suspect { Availability::Suspect } else { Availability::Up };
                (availability, member.load, now.since(member.seen_at))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant(millis * 1000)
    }

    fn with_node() -> Membership {
        let mut membership = Membership::new(MembershipConfig::default());
        membership.joined(at(0), NodeId(1));
        membership
    }

    #[test]
    fn silent_node_is_suspected_then_dialled_then_dead() {
        let mut membership = with_node();
        assert!(membership.to_probe(at(1499)).is_empty());
        assert!(membership.is_up(NodeId(1)));
        assert_eq!(membership.to_probe(at(1500)), [NodeId(1)]);
        assert!(!membership.is_up(NodeId(1)));
        assert!(membership.to_probe(at(1501)).is_empty());
        assert_eq!(membership.to_probe(at(1750)), [NodeId(1)]);
        assert!(!membership.probed(at(1800), NodeId(1), Probe::Timeout));
        assert!(membership.dead(at(5999)).is_empty());
        assert_eq!(membership.dead(at(6000)), [NodeId(1)]);
    }

    #[test]
    fn refused_connection_is_death_and_an_answer_is_life() {
        let mut membership = with_node();
        membership.suspected(at(100), NodeId(1));
        assert_eq!(membership.to_probe(at(100)), [NodeId(1)]);
        assert!(!membership.probed(at(110), NodeId(1), Probe::Alive));
        assert!(membership.is_up(NodeId(1)));
        membership.suspected(at(200), NodeId(1));
        assert!(membership.probed(at(210), NodeId(1), Probe::Refused));
    }
}
