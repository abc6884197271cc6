//! Membership: which nodes are there, by their heartbeats and by the reports of peers.
//!
//! Its state is not in the log: after a restart every known node is taken for alive and has the
//! whole time to show itself. Its verdict, that a node is dead, is.

use std::collections::BTreeMap;

use sanderling_protocol::node::{Availability, Load};
use sanderling_protocol::{Instant, Millis, NodeId, Refusal};

/// What came of dialling a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// It answered as itself.
    Alive,
    /// Its machine refused the connection, or another process answered: the incarnation has ended.
    Refused,
    /// Nothing was received.
    Timeout,
}

impl Probe {
    /// Returns how the refusal of a process at a node's address describes the node; `None` when the
    /// node itself has refused. A process that has no id yet, or an earlier one, is not another
    /// process: the answer that gives it this very id may still be on its way. A later id is that
    /// of a process that came after the node.
    #[must_use]
    pub fn refused_by(refusal: &Refusal) -> Option<Self> {
        match refusal {
            Refusal::WrongNode { here, asked } if here < asked => Some(Self::Timeout),
            Refusal::WrongNode { .. } | Refusal::WrongCluster { .. } => Some(Self::Refused),
            _ => None,
        }
    }
}

/// When a node is looked at twice, and when it is given up.
#[derive(Debug, Clone)]
pub struct MembershipConfig {
    /// Silence after which a node is dialled.
    pub suspect_after: Millis,
    /// Silence after which a node is dead. Longer makes partitions harmless, shorter reports losses
    /// to readers sooner.
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
struct MemberState {
    seen_at: Instant,
    is_suspected: bool,
    probe_at: Option<Instant>,
    /// When it was dialled last.
    dialled_at: Option<Instant>,
    load: Load,
    /// Silence since its last message that does not count: the namenode did not read meanwhile.
    grace: Millis,
}

impl MemberState {
    /// Returns when it is to be dialled or is dead.
    fn due(&self, config: &MembershipConfig) -> Instant {
        let silence = self.seen_at + config.suspect_after;
        self.probe_at.unwrap_or(silence).min(self.seen_at + config.dead_after)
    }
}

/// The nodes that the catalog contains and that are not gone.
#[derive(Debug, Clone, Default)]
pub struct Membership {
    config: MembershipConfig,
    members: BTreeMap<NodeId, MemberState>,
    /// Nothing is due before. Heartbeats only put things off, so this stays true without a look at
    /// every node for each of them; it is early at most, and made exact when it has come.
    due: Option<Instant>,
    /// Grows when the result of [`Membership::is_up`] may change for a node.
    version: u64,
}

impl Membership {
    /// Returns the membership without nodes.
    #[must_use]
    pub const fn new(config: MembershipConfig) -> Self {
        Self { config, members: BTreeMap::new(), due: None, version: 0 }
    }

    /// Returns a number that grows when the result of [`Membership::is_up`] may change for a node.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    fn bring_forward(&mut self, due: Instant) {
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Returns whether no member is due before `due`.
    fn is_early_enough(&self) -> bool {
        let is_late =
            |member: &MemberState| self.due.is_none_or(|due| due > member.due(&self.config));
        !self.members.values().any(is_late)
    }

    /// Adds a node, or notes that it is alive.
    pub fn joined(&mut self, now: Instant, node: NodeId) {
        let Some(member) = self.members.get_mut(&node) else {
            let load = Load::default();
            let (is_suspected, probe_at, excused) = (false, None, Millis(0));
            let dialled_at = None;
            let member = MemberState {
                seen_at: now,
                is_suspected,
                probe_at,
                dialled_at,
                load,
                grace: excused,
            };
            self.version += 1;
            self.bring_forward(member.due(&self.config));
            self.members.insert(node, member);
            debug_assert!(self.is_early_enough(), "a new node would not be dialled");
            return;
        };
        member.seen_at = member.seen_at.max(now);
        member.grace = Millis(0);
        self.version += u64::from(std::mem::take(&mut member.is_suspected));
    }

    /// Records a heartbeat of a node, with its load.
    pub fn heartbeat(&mut self, now: Instant, node: NodeId, load: Load) {
        self.joined(now, node);
        if let Some(member) = self.members.get_mut(&node) {
            member.load = load;
            member.probe_at = None;
        }
    }

    /// Excludes a time from silence in which the namenode did not read: it stood still, and what
    /// was sent meanwhile waits to be read. Once the time after which a node is dead has been
    /// excused, no more is excused before the node's next message.
    pub fn was_away(&mut self, now: Instant, away: Millis) {
        for member in self.members.values_mut() {
            if member.grace < self.config.dead_after {
                member.grace = Millis(member.grace.0.saturating_add(away.0));
                member.seen_at = (member.seen_at + away).min(now);
            }
        }
    }

    /// Forgets a node that is gone.
    pub fn left(&mut self, node: NodeId) {
        self.version += u64::from(self.members.remove(&node).is_some());
    }

    /// Takes a peer's report that a node could not be reached: it is dialled, once in
    /// [`MembershipConfig::probe_every`] however often it is reported. A report alone changes
    /// nothing: the node goes on getting blocks until it has not answered.
    pub fn suspected(&mut self, now: Instant, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node) {
            let soonest = member.dialled_at.map_or(now, |at| at + self.config.probe_every);
            member.probe_at.get_or_insert(soonest.max(now));
            let due = member.due(&self.config);
            self.bring_forward(due);
            debug_assert!(self.is_early_enough(), "a suspected node would not be dialled");
        }
    }

    /// Returns the nodes to dial now; each comes again after a pause while it stays silent. Cost:
    /// linear in the nodes, when something may be due.
    pub fn to_probe(&mut self, now: Instant) -> Vec<NodeId> {
        let mut probes = Vec::new();
        if self.due.is_none_or(|due| due > now) {
            return probes;
        }
        let mut next: Option<Instant> = None;
        for (node, member) in &mut self.members {
            if member.seen_at + self.config.suspect_after <= now {
                self.version += u64::from(!std::mem::replace(&mut member.is_suspected, true));
                member.probe_at.get_or_insert(now);
            }
            if let Some(at) = member.probe_at
                && at <= now
            {
                member.probe_at = Some(now + self.config.probe_every);
                member.dialled_at = Some(now);
                probes.push(*node);
            }
            let due = member.due(&self.config);
            next = Some(next.map_or(due, |before| before.min(due)));
        }
        self.due = next;
        debug_assert!(self.is_early_enough(), "a silent node would not be found");
        probes
    }

    /// Takes the outcome of a probe. Returns whether the node is dead: a refusal is no death while
    /// the node's heartbeats go on coming after it was dialled. Then only its address is wrong or
    /// overloaded: it stays suspected and is dialled again.
    pub fn probed(&mut self, now: Instant, node: NodeId, outcome: Probe) -> bool {
        let Some(member) = self.members.get_mut(&node) else { return false };
        match outcome {
            Probe::Alive => {
                member.seen_at = member.seen_at.max(now);
                member.grace = Millis(0);
                self.version += u64::from(std::mem::take(&mut member.is_suspected));
                member.probe_at = None;
                false
            }
            Probe::Refused if member.dialled_at.is_some_and(|at| member.seen_at > at) => {
                self.version += u64::from(!std::mem::replace(&mut member.is_suspected, true));
                member.probe_at = Some(now + self.config.probe_every);
                let due = member.due(&self.config);
                self.bring_forward(due);
                debug_assert!(self.is_early_enough(), "it would not be dialled again");
                false
            }
            Probe::Refused => true,
            Probe::Timeout => {
                // Unless it sent something since it was dialled: then only the way to it is slow.
                let is_silent = member.dialled_at.is_none_or(|at| member.seen_at <= at);
                self.version += u64::from(is_silent && !member.is_suspected);
                member.is_suspected |= is_silent;
                member.seen_at + self.config.dead_after <= now
            }
        }
    }

    /// Returns the nodes that were silent for too long.
    #[must_use]
    pub fn dead(&self, now: Instant) -> Vec<NodeId> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let is_dead = |member: &MemberState| member.seen_at + self.config.dead_after <= now;
        let members = self.members.iter().filter(|(_, member)| is_dead(member));
        members.map(|(node, _)| *node).collect()
    }

    /// Returns when [`Membership::to_probe`] or [`Membership::dead`] may return something, or
    /// a time before that.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Returns whether new blocks may be placed on a node.
    #[must_use]
    pub fn is_up(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|member| !member.is_suspected)
    }

    /// Returns a node's state, load and the time since its last heartbeat.
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
    use sanderling_protocol::ClusterId;

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
    fn silence_while_nobody_listened_is_excused_once() {
        let mut membership = with_node();
        membership.was_away(at(60_000), Millis(60_000));
        assert!(membership.dead(at(60_000)).is_empty(), "it had no chance to be heard");
        membership.was_away(at(66_000), Millis(6_000));
        assert_eq!(membership.dead(at(66_000)), [NodeId(1)], "it was not heard since either");
        membership.heartbeat(at(66_000), NodeId(1), Load::default());
        membership.was_away(at(71_000), Millis(5_000));
        assert!(membership.to_probe(at(72_499)).is_empty());
        assert_eq!(membership.to_probe(at(72_500)), [NodeId(1)]);
    }

    #[test]
    fn deadline_is_never_late_and_becomes_exact() {
        let mut membership = with_node();
        for second in 1..5 {
            membership.heartbeat(at(second * 1000), NodeId(1), Load::default());
            assert!(membership.deadline() <= Some(at(second * 1000 + 1500)));
        }
        assert!(membership.to_probe(at(4000)).is_empty());
        assert_eq!(membership.deadline(), Some(at(5500)));
        membership.suspected(at(4100), NodeId(1));
        assert_eq!(membership.deadline(), Some(at(4100)));
        membership.left(NodeId(1));
        assert!(membership.to_probe(at(9000)).is_empty());
        assert_eq!(membership.deadline(), None);
    }

    #[test]
    fn refused_connection_is_death_and_an_answer_is_life() {
        let mut membership = with_node();
        membership.suspected(at(100), NodeId(1));
        assert_eq!(membership.to_probe(at(100)), [NodeId(1)]);
        assert!(!membership.probed(at(110), NodeId(1), Probe::Alive));
        assert!(membership.is_up(NodeId(1)));
        membership.suspected(at(400), NodeId(1));
        assert_eq!(membership.to_probe(at(400)), [NodeId(1)]);
        assert!(membership.probed(at(410), NodeId(1), Probe::Refused));
    }

    #[test]
    fn process_that_has_not_heard_its_id_yet_is_not_taken_for_another() {
        let asked = NodeId(3);
        let by = |here| Probe::refused_by(&Refusal::WrongNode { here, asked });
        assert_eq!(by(NodeId(4)), Some(Probe::Refused));
        assert_eq!(by(NodeId::default()), Some(Probe::Timeout));
        assert_eq!(by(NodeId(2)), Some(Probe::Timeout), "what it was before");
        let (here, asked) = (ClusterId(1), ClusterId(2));
        let other = Probe::refused_by(&Refusal::WrongCluster { here, asked });
        assert_eq!(other, Some(Probe::Refused));
        assert_eq!(Probe::refused_by(&Refusal::NodeGone { node: NodeId(3) }), None);
    }

    #[test]
    fn answered_probe_is_a_sign_of_life_like_a_heartbeat() {
        let mut membership = with_node();
        for second in 1..=10 {
            let now = at(second * 1500);
            assert_eq!(membership.to_probe(now), [NodeId(1)]);
            assert!(!membership.probed(now, NodeId(1), Probe::Alive));
            assert!(membership.dead(now).is_empty());
            assert!(membership.is_up(NodeId(1)));
        }
    }

    #[test]
    fn word_of_somebody_who_cannot_reach_a_node_only_has_it_dialled_and_not_too_often() {
        let mut membership = with_node();
        let version = membership.version();
        for millis in 100..350 {
            membership.suspected(at(millis), NodeId(1));
            let dialled = membership.to_probe(at(millis));
            assert_eq!(dialled.len(), usize::from(millis == 100), "at {millis} ms");
            if millis == 110 {
                assert!(!membership.probed(at(millis), NodeId(1), Probe::Alive));
            }
            assert!(membership.is_up(NodeId(1)));
        }
        assert_eq!(membership.version(), version, "placement has nothing to look at again");
        membership.suspected(at(350), NodeId(1));
        assert_eq!(membership.to_probe(at(350)), [NodeId(1)]);
        // It does not answer, and was not heard either: it gets no new blocks.
        assert!(!membership.probed(at(850), NodeId(1), Probe::Timeout));
        assert!(!membership.is_up(NodeId(1)));
        membership.heartbeat(at(860), NodeId(1), Load::default());
        membership.suspected(at(900), NodeId(1));
        assert_eq!(membership.to_probe(at(900)), [NodeId(1)]);
        membership.heartbeat(at(1360), NodeId(1), Load::default());
        assert!(!membership.probed(at(1400), NodeId(1), Probe::Timeout));
        assert!(membership.is_up(NodeId(1)), "its heartbeats came meanwhile");
    }

    #[test]
    fn refused_probe_is_no_death_while_heartbeats_come() {
        let mut membership = with_node();
        membership.suspected(at(1000), NodeId(1));
        assert_eq!(membership.to_probe(at(1000)), [NodeId(1)]);
        membership.heartbeat(at(1005), NodeId(1), Load::default());
        assert!(!membership.probed(at(1010), NodeId(1), Probe::Refused));
        assert!(!membership.is_up(NodeId(1)), "clients cannot reach it either");
        assert_eq!(membership.to_probe(at(1260)), [NodeId(1)]);
        assert!(membership.probed(at(1270), NodeId(1), Probe::Refused), "it fell silent");
        // A heartbeat of the moment of the dial may be one of before.
        let mut membership = with_node();
        membership.heartbeat(at(1000), NodeId(1), Load::default());
        membership.suspected(at(1000), NodeId(1));
        assert_eq!(membership.to_probe(at(1000)), [NodeId(1)]);
        assert!(membership.probed(at(1010), NodeId(1), Probe::Refused));
    }
}
