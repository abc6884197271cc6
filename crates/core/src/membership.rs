//! Membership: which nodes are there, by their heartbeats and by the reports of peers.
//!
//! Its state is not in the log: after a restart every known node is taken for alive and has the
//! whole time to show itself. Its verdict, that a node is dead, is.
//!
//! A log that has lost its end has blocks at homes that they have left, and their machines may be
//! gone. So after a start no node is declared dead before the others have reported what they hold,
//! those that the log does not know among them, or before they had the time: a block that one of
//! them reports is not lost with its old home.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::node::{Availability, Load};
use sanderling_protocol::{Instant, Millis, NodeId, Refusal};

use crate::call_outcome::CallOutcome;

/// Time of one probe in milliseconds, short against the silence after which a node is dead. Twice
/// the pause between probes (250 ms), and a twelfth of that silence (6 s): nine can follow
/// suspicion before it. A refused connection comes back within microseconds; only a vanished
/// machine takes all of it. Chosen, not measured.
pub const PROBE_TIMEOUT: Millis = Millis(500);

/// The outcome of dialling a node whose process may have ended, as a probe.
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
    /// Returns how the outcome of dialling a node describes the node. A refusal that is not one of
    /// another process ([`Self::refused_by`]) shows as little as silence: dial the node again.
    #[must_use]
    pub fn of(dialled: CallOutcome<'_>) -> Self {
        match dialled {
            CallOutcome::Answered => Self::Alive,
            CallOutcome::Refused(refusal) => Self::refused_by(refusal).unwrap_or(Self::Timeout),
            CallOutcome::NoProcess => Self::Refused,
            CallOutcome::TimedOut | CallOutcome::Broken => Self::Timeout,
        }
    }

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

/// The times after which the namenode looks at a silent node twice, and gives it up.
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
struct NodeLiveness {
    seen_at: Instant,
    is_suspected: bool,
    probe_at: Option<Instant>,
    /// When it was dialled last.
    dialled_at: Option<Instant>,
    load: Load,
    /// Silence since its last message that does not count: the namenode did not read meanwhile.
    grace: Millis,
    /// Its machine has refused it, and nothing came of it since.
    has_ended: bool,
}

/// The nodes that a start found in the log, or that registered since, and that have not reported
/// yet.
#[derive(Debug, Clone)]
struct Unreported {
    nodes: BTreeSet<NodeId>,
    /// When those that the log does not know have registered.
    registered: Instant,
    /// When all have had the time.
    until: Instant,
}

impl NodeLiveness {
    /// Returns when it is to be dialled or is dead; it is not declared dead before `held_until`.
    fn due(&self, config: &MembershipConfig, held_until: Instant) -> Instant {
        let silence = self.seen_at + config.suspect_after;
        let dead = (self.seen_at + config.dead_after).max(held_until);
        self.probe_at.unwrap_or(silence).min(dead)
    }

    fn is_dead(&self, now: Instant, config: &MembershipConfig) -> bool {
        self.has_ended || self.seen_at + config.dead_after <= now
    }

    /// Notes that it is there.
    fn shows_up(&mut self, now: Instant) {
        self.seen_at = self.seen_at.max(now);
        self.grace = Millis(0);
        self.has_ended = false;
    }
}

/// The nodes that the catalog contains and that are not gone.
#[derive(Debug, Clone, Default)]
pub struct Membership {
    config: MembershipConfig,
    members: BTreeMap<NodeId, NodeLiveness>,
    /// Nothing is due before. Heartbeats only put things off, so this stays true without a look at
    /// every node for each of them; it is early at most, and made exact when it has come.
    due: Option<Instant>,
    /// `None` when all nodes have reported since the start, or had the time.
    unreported: Option<Unreported>,
    /// Grows when the result of [`Membership::is_up`] may change for a node.
    version: u64,
}

impl Membership {
    /// Returns the membership without nodes. [`Self::joined`] and heartbeats add them.
    #[must_use]
    pub const fn new(config: MembershipConfig) -> Self {
        let unreported = None;
        Self { config, members: BTreeMap::new(), due: None, unreported, version: 0 }
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
        let is_late = |member: &NodeLiveness| {
            self.due.is_none_or(|due| due > member.due(&self.config, self.held_until()))
        };
        !self.members.values().any(is_late)
    }

    /// Returns when a node may be declared dead at the latest, whatever the others have reported.
    fn held_until(&self) -> Instant {
        self.unreported.as_ref().map_or(Instant(0), |unreported| unreported.until)
    }

    /// Holds back every declaration of death after a start: until each node that is known, or that
    /// registers before `registered`, has reported what it holds, but no longer than to `until`.
    pub fn await_reports(&mut self, registered: Instant, until: Instant) {
        let nodes = self.members.keys().copied().collect();
        self.unreported = Some(Unreported { nodes, registered, until });
    }

    /// Returns whether a node has not reported yet what it holds, and that is waited for.
    #[must_use]
    pub fn awaits_report(&self, node: NodeId) -> bool {
        self.unreported.as_ref().is_some_and(|unreported| unreported.nodes.contains(&node))
    }

    /// Returns whether nodes still report what they hold after a start.
    #[must_use]
    pub fn awaits_reports(&self, now: Instant) -> bool {
        !self.have_reported(now)
    }

    /// Notes that a node has reported what it holds, or never will.
    pub fn reported(&mut self, now: Instant, node: NodeId) {
        if let Some(unreported) = &mut self.unreported {
            unreported.nodes.remove(&node);
            self.end_wait(now);
        }
    }

    /// Returns whether all nodes that are there have reported, or had the time.
    fn have_reported(&self, now: Instant) -> bool {
        self.unreported.as_ref().is_none_or(|unreported| {
            let has_ended = |node| {
                let member = self.members.get(node);
                member.is_none_or(|member| member.is_dead(now, &self.config))
            };
            let have_registered = unreported.registered <= now;
            unreported.until <= now || (have_registered && unreported.nodes.iter().all(has_ended))
        })
    }

    /// Waits for no more reports if all that can come have.
    fn end_wait(&mut self, now: Instant) {
        if self.unreported.is_some() && self.have_reported(now) {
            self.unreported = None;
            self.bring_forward(now);
        }
    }

    /// Adds a node, or notes that a known one is alive, so that it is no longer suspected.
    pub fn joined(&mut self, now: Instant, node: NodeId) {
        let Some(member) = self.members.get_mut(&node) else {
            let load = Load::default();
            let member = NodeLiveness {
                seen_at: now,
                is_suspected: false,
                probe_at: None,
                dialled_at: None,
                load,
                grace: Millis(0),
                has_ended: false,
            };
            self.version += 1;
            if let Some(unreported) = &mut self.unreported {
                unreported.nodes.insert(node);
            }
            self.bring_forward(member.due(&self.config, self.held_until()));
            self.members.insert(node, member);
            debug_assert!(self.is_early_enough(), "a new node would not be dialled");
            return;
        };
        member.shows_up(now);
        self.version += u64::from(std::mem::take(&mut member.is_suspected));
    }

    /// Records a heartbeat of a node: it is alive, and `load` replaces the load that it reported
    /// before.
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
        if let Some(unreported) = &mut self.unreported {
            unreported.registered = unreported.registered + away;
            unreported.until = unreported.until + away;
        }
        for member in self.members.values_mut() {
            if member.grace < self.config.dead_after {
                member.grace = Millis(member.grace.0.saturating_add(away.0));
                member.seen_at = (member.seen_at + away).min(now);
            }
        }
    }

    /// Removes a node that is gone: it is no longer expected to send heartbeats.
    pub fn left(&mut self, node: NodeId) {
        self.version += u64::from(self.members.remove(&node).is_some());
        if let Some(unreported) = &mut self.unreported {
            unreported.nodes.remove(&node);
        }
    }

    /// Takes a peer's report that a node could not be reached: it is dialled, once in
    /// [`MembershipConfig::probe_every`] however often it is reported. A report alone changes
    /// nothing: the node goes on getting blocks until it has not answered.
    pub fn suspected(&mut self, now: Instant, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node) {
            let soonest = member.dialled_at.map_or(now, |at| at + self.config.probe_every);
            member.probe_at.get_or_insert(soonest.max(now));
            let due = self.members[&node].due(&self.config, self.held_until());
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
        self.end_wait(now);
        let held_until = self.held_until();
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
            let due = member.due(&self.config, held_until);
            next = Some(next.map_or(due, |before| before.min(due)));
        }
        self.due = next;
        debug_assert!(self.is_early_enough(), "a silent node would not be found");
        probes
    }

    /// Takes the outcome of a probe. Returns whether the node is dead: a refusal is no death while
    /// the node's heartbeats go on coming after it was dialled. Then only its address is wrong or
    /// overloaded: it stays suspected and is dialled again. So it does while others have not
    /// reported.
    pub fn probed(&mut self, now: Instant, node: NodeId, outcome: Probe) -> bool {
        let Some(member) = self.members.get_mut(&node) else { return false };
        match outcome {
            Probe::Alive => {
                member.shows_up(now);
                self.version += u64::from(std::mem::take(&mut member.is_suspected));
                member.probe_at = None;
                false
            }
            Probe::Refused => {
                member.has_ended = member.dialled_at.is_none_or(|at| member.seen_at <= at);
                let has_ended = member.has_ended;
                if has_ended && self.have_reported(now) {
                    return true;
                }
                self.refused(now, node);
                false
            }
            Probe::Timeout => {
                // Unless it sent something since it was dialled: then only the way to it is slow.
                let is_silent = member.dialled_at.is_none_or(|at| member.seen_at <= at);
                self.version += u64::from(is_silent && !member.is_suspected);
                member.is_suspected |= is_silent;
                let is_dead = member.is_dead(now, &self.config);
                is_dead && self.have_reported(now)
            }
        }
    }

    /// Suspects a node whose address refuses it, and has it dialled again.
    fn refused(&mut self, now: Instant, node: NodeId) {
        let Some(member) = self.members.get_mut(&node) else { return };
        self.version += u64::from(!std::mem::replace(&mut member.is_suspected, true));
        member.probe_at = Some(now + self.config.probe_every);
        let due = self.members[&node].due(&self.config, self.held_until());
        self.bring_forward(due);
        debug_assert!(self.is_early_enough(), "it would not be dialled again");
    }

    /// Returns the nodes that were silent for too long at `now`: declare them dead.
    #[must_use]
    pub fn dead(&self, now: Instant) -> Vec<NodeId> {
        if self.due.is_none_or(|due| due > now) || !self.have_reported(now) {
            return Vec::new();
        }
        let is_dead = |member: &NodeLiveness| member.is_dead(now, &self.config);
        let members = self.members.iter().filter(|(_, member)| is_dead(member));
        members.map(|(node, _)| *node).collect()
    }

    /// Returns whether a node's machine has refused it and nothing came of it since: its process
    /// has ended.
    #[must_use]
    pub fn has_ended(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|member| member.has_ended)
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
    fn silence_during_an_absence_of_the_namenode_is_excused_once() {
        let mut membership = with_node();
        membership.was_away(at(60_000), Millis(60_000));
        assert!(membership.dead(at(60_000)).is_empty(), "it had no chance to send one");
        membership.was_away(at(66_000), Millis(6_000));
        assert_eq!(membership.dead(at(66_000)), [NodeId(1)], "it sent none since either");
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
    fn process_that_has_not_received_its_id_yet_is_not_taken_for_another() {
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
    fn only_a_refused_connection_or_another_process_shows_that_a_node_has_ended() {
        let other = Refusal::WrongNode { here: NodeId(4), asked: NodeId(3) };
        let ended = [CallOutcome::NoProcess, CallOutcome::Refused(&other)];
        assert_eq!(ended.map(Probe::of), [Probe::Refused; 2]);
        let earlier = Refusal::WrongNode { here: NodeId(2), asked: NodeId(3) };
        let own = Refusal::NodeGone { node: NodeId(3) };
        let refused = [CallOutcome::Refused(&earlier), CallOutcome::Refused(&own)];
        assert_eq!(refused.map(Probe::of), [Probe::Timeout; 2]);
        let silent = [CallOutcome::TimedOut, CallOutcome::Broken];
        assert_eq!(silent.map(Probe::of), [Probe::Timeout; 2]);
        assert_eq!(Probe::of(CallOutcome::Answered), Probe::Alive);
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
    fn suspicion_by_a_peer_only_has_the_node_dialled_and_not_too_often() {
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
        // It does not answer, and sent nothing either: it gets no new blocks.
        assert!(!membership.probed(at(850), NodeId(1), Probe::Timeout));
        assert!(!membership.is_up(NodeId(1)));
        membership.heartbeat(at(860), NodeId(1), Load::default());
        membership.suspected(at(900), NodeId(1));
        assert_eq!(membership.to_probe(at(900)), [NodeId(1)]);
        membership.heartbeat(at(1360), NodeId(1), Load::default());
        assert!(!membership.probed(at(1400), NodeId(1), Probe::Timeout));
        assert!(membership.is_up(NodeId(1)), "its heartbeats came meanwhile");
    }

    fn started_with(nodes: u32) -> Membership {
        let mut membership = Membership::new(MembershipConfig::default());
        (1..=nodes).for_each(|node| membership.joined(at(0), NodeId(node)));
        membership.await_reports(at(200), at(10_000));
        membership
    }

    #[test]
    fn node_that_ended_before_a_start_is_dead_once_the_others_have_reported() {
        let mut membership = started_with(3);
        membership.suspected(at(100), NodeId(1));
        assert_eq!(membership.to_probe(at(100)), [NodeId(1)]);
        assert!(!membership.probed(at(110), NodeId(1), Probe::Refused), "its blocks may be theirs");
        assert!(!membership.is_up(NodeId(1)));
        membership.reported(at(300), NodeId(2));
        assert_eq!(membership.to_probe(at(360)), [NodeId(1)]);
        assert!(!membership.probed(at(370), NodeId(1), Probe::Refused));
        assert!(membership.awaits_report(NodeId(3)) && membership.dead(at(370)).is_empty());
        membership.reported(at(500), NodeId(3));
        assert!(membership.deadline() <= Some(at(500)));
        assert_eq!(membership.dead(at(500)), [NodeId(1)]);
        assert!(membership.has_ended(NodeId(1)) && !membership.has_ended(NodeId(2)));
    }

    #[test]
    fn node_that_registers_after_a_start_is_waited_for_like_a_known_one() {
        let mut membership = started_with(1);
        membership.suspected(at(100), NodeId(1));
        assert_eq!(membership.to_probe(at(100)), [NodeId(1)]);
        assert!(!membership.probed(at(110), NodeId(1), Probe::Refused), "others may register");
        membership.joined(at(190), NodeId(7));
        membership.to_probe(at(350));
        assert!(!membership.probed(at(360), NodeId(1), Probe::Refused));
        membership.reported(at(400), NodeId(7));
        assert_eq!(membership.dead(at(400)), [NodeId(1)]);
    }

    #[test]
    fn nodes_that_all_ended_before_a_start_wait_for_none_of_each_other() {
        let mut membership = started_with(2);
        for node in [NodeId(1), NodeId(2)] {
            membership.suspected(at(100), node);
        }
        assert_eq!(membership.to_probe(at(200)).len(), 2);
        assert!(!membership.probed(at(210), NodeId(1), Probe::Refused));
        assert!(membership.probed(at(220), NodeId(2), Probe::Refused));
        membership.left(NodeId(2));
        assert_eq!(membership.dead(at(460)), [NodeId(1)]);
    }

    #[test]
    fn node_that_reports_late_holds_the_verdict_up_for_a_bounded_time() {
        let mut membership = started_with(2);
        let mut spins = 0;
        for millis in (0..12_000).step_by(10) {
            if millis % 500 == 0 {
                membership.heartbeat(at(millis), NodeId(2), Load::default());
            }
            spins += u64::from(membership.deadline().is_some_and(|due| due <= at(millis)));
            let dead = membership.dead(at(millis));
            assert_eq!(dead.contains(&NodeId(1)), millis >= 10_000, "at {millis} ms: {dead:?}");
            membership.to_probe(at(millis));
            if !dead.is_empty() {
                break;
            }
        }
        assert!(spins < 60, "it is looked at when it is dialled only: {spins}");
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
