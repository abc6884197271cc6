//! Where blocks go: the choice of targets.

use std::collections::BTreeMap;

use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::node::Availability;
use sanderling_protocol::{Instant, NodeId, NodeInfo, Tier};

/// The nodes that may take blocks, as the last view showed them, less what was planned since.
#[derive(Debug, Clone, Default)]
pub(super) struct Targets {
    nodes: BTreeMap<NodeId, Target>,
    /// Nodes that refused or could not be reached, and until when they are left alone.
    avoided: BTreeMap<NodeId, Instant>,
}

#[derive(Debug, Clone)]
struct Target {
    address: String,
    free_bytes: BTreeMap<Tier, u64>,
    requests_in_flight: u64,
    pushes: usize,
}

/// A chosen target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Choice {
    pub(super) node: NodeId,
    pub(super) tier: Tier,
}

/// What the search for a target found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The block may go there.
    Go(Choice),
    /// There is room, but every node that has it takes as many pushes as it may.
    Busy,
    /// No node has room.
    NoRoom,
}

impl Targets {
    /// Takes a new view. Only nodes that take blocks and whose heartbeats arrive are targets.
    ///
    /// `unseen` are bytes of moves whose reservation the view may not show yet, `pushes` the number
    /// of pushes under way to each node.
    pub(super) fn replace(
        &mut self,
        now: Instant,
        nodes: &[NodeInfo],
        unseen: &BTreeMap<Choice, u64>,
        pushes: &BTreeMap<NodeId, usize>,
    ) {
        self.avoided.retain(|_, until| *until > now);
        let eligible = nodes
            .iter()
            .filter(|node| node.policy.takes_blocks() && node.availability == Availability::Up);
        self.nodes = eligible
            .map(|node| {
                let free = |usage: &sanderling_protocol::node::TierUsage| {
                    let unseen = unseen.get(&Choice { node: node.id, tier: usage.tier });
                    let taken = usage.used_bytes + unseen.copied().unwrap_or(0);
                    (usage.tier, usage.capacity_bytes.saturating_sub(taken))
                };
                let target = Target {
                    address: node.address.clone(),
                    free_bytes: node.tiers.iter().map(free).collect(),
                    requests_in_flight: u64::from(node.load.requests_in_flight),
                    pushes: pushes.get(&node.id).copied().unwrap_or(0),
                };
                (node.id, target)
            })
            .collect();
    }

    /// Leaves a node alone until `until`: it refused, or could not be reached.
    pub(super) fn avoid(&mut self, node: NodeId, until: Instant) {
        self.avoided.insert(node, until);
    }

    /// Tells whether a node may take blocks now.
    pub(super) fn is_eligible(&self, now: Instant, node: NodeId) -> bool {
        self.nodes.contains_key(&node) && self.avoided.get(&node).is_none_or(|until| *until <= now)
    }

    /// Returns how many nodes may take blocks now, and the room that they have in all.
    pub(super) fn room(&self, now: Instant) -> (usize, u64) {
        let open = || self.nodes.iter().filter(|(node, _)| self.is_eligible(now, **node));
        let free = open().flat_map(|(_, target)| target.free_bytes.values()).sum();
        (open().count(), free)
    }

    /// Returns where a target serves blocks.
    pub(super) fn address(&self, node: NodeId) -> Option<&str> {
        self.nodes.get(&node).map(|target| target.address.as_str())
    }

    /// Returns the best target of a block: in its own tier, else in a slower one, else in a faster
    /// one, because a full tier is no reason to lose bytes. A busy tier is waited for, not left.
    pub(super) fn choose(
        &self,
        now: Instant,
        candidate: &MoveCandidate,
        pushes_max: usize,
    ) -> Answer {
        let slower = std::iter::successors(candidate.tier.slower(), |tier| tier.slower());
        let faster = Tier::ALL.into_iter().rev().filter(|tier| *tier < candidate.tier);
        std::iter::once(candidate.tier)
            .chain(slower)
            .chain(faster)
            .map(|tier| self.choose_in(now, tier, candidate.reserve_bytes, pushes_max))
            .find(|answer| *answer != Answer::NoRoom)
            .unwrap_or(Answer::NoRoom)
    }

    fn choose_in(&self, now: Instant, tier: Tier, bytes: u32, pushes_max: usize) -> Answer {
        let room = |target: &Target| {
            target.free_bytes.get(&tier).copied().filter(|free| *free >= u64::from(bytes))
        };
        let with_room = self
            .nodes
            .iter()
            .filter(|(node, _)| self.is_eligible(now, **node))
            .filter_map(|(node, target)| Some((*node, target, room(target)?)));
        let mut answer = Answer::NoRoom;
        let mut best = 0;
        for (node, target, free) in with_room {
            if target.pushes >= pushes_max {
                if answer == Answer::NoRoom {
                    answer = Answer::Busy;
                }
                continue;
            }
            // Shares grow with the room and shrink with what the node is busy with.
            let busy = 1 + target.pushes as u64 + target.requests_in_flight / 4;
            let weight = free / busy;
            if weight > best || !matches!(answer, Answer::Go(_)) {
                answer = Answer::Go(Choice { node, tier });
                best = weight;
            }
        }
        answer
    }

    /// Takes room for a move that was planned; tells whether there was enough.
    pub(super) fn take(&mut self, choice: Choice, bytes: u32) -> bool {
        let free = self
            .nodes
            .get_mut(&choice.node)
            .and_then(|target| target.free_bytes.get_mut(&choice.tier));
        match free {
            Some(free) if *free >= u64::from(bytes) => {
                *free -= u64::from(bytes);
                true
            }
            _ => false,
        }
    }

    /// Notes that a tier has no room until the next view.
    pub(super) fn fill(&mut self, choice: Choice) {
        let target = self.nodes.get_mut(&choice.node);
        if let Some(free) = target.and_then(|target| target.free_bytes.get_mut(&choice.tier)) {
            *free = 0;
        }
    }

    /// Gives room back for a move that was given up.
    pub(super) fn give_back(&mut self, choice: Choice, bytes: u64) {
        let target = self.nodes.get_mut(&choice.node);
        if let Some(free) = target.and_then(|target| target.free_bytes.get_mut(&choice.tier)) {
            *free += bytes;
        }
    }

    /// Counts a push that starts.
    pub(super) fn push_started(&mut self, node: NodeId) {
        if let Some(target) = self.nodes.get_mut(&node) {
            target.pushes += 1;
        }
    }

    /// Counts a push that ended.
    pub(super) fn push_ended(&mut self, node: NodeId) {
        if let Some(target) = self.nodes.get_mut(&node) {
            target.pushes = target.pushes.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Policy;

    use super::super::tests::{candidate, node, tier};
    use super::*;

    const NOW: Instant = Instant(1_000);

    fn targets(nodes: &[NodeInfo]) -> Targets {
        let mut targets = Targets::default();
        targets.replace(NOW, nodes, &BTreeMap::new(), &BTreeMap::new());
        targets
    }

    fn go(node: u32, tier: Tier) -> Answer {
        Answer::Go(Choice { node: NodeId(node), tier })
    }

    #[test]
    fn draining_suspect_and_gone_nodes_are_never_chosen() {
        let mut nodes = [node(1, 100), node(2, 900), node(3, 900), node(4, 900)];
        nodes[1].policy = Policy::Draining;
        nodes[2].availability = Availability::Suspect;
        nodes[3].policy = Policy::Gone;
        let targets = targets(&nodes);
        assert_eq!(targets.choose(NOW, &candidate(1, 50), 4), go(1, Tier::Dram));
        assert_eq!(targets.choose(NOW, &candidate(1, 101), 4), Answer::NoRoom);
    }

    #[test]
    fn full_tier_falls_to_the_slower_one_and_last_to_the_faster_one() {
        let mut small = node(1, 10);
        small.tiers.push(tier(Tier::Disk, 1000));
        let both = targets(&[small]);
        assert_eq!(both.choose(NOW, &candidate(1, 50), 4), go(1, Tier::Disk));
        let mut disk = candidate(2, 5);
        disk.tier = Tier::Disk;
        assert_eq!(both.choose(NOW, &disk, 4), go(1, Tier::Disk));
        let only_dram = targets(&[node(1, 100)]);
        assert_eq!(only_dram.choose(NOW, &disk, 4), go(1, Tier::Dram));
    }

    #[test]
    fn avoided_node_is_chosen_again_after_its_time() {
        let mut targets = targets(&[node(1, 100)]);
        targets.avoid(NodeId(1), Instant(2_000));
        assert_eq!(targets.choose(NOW, &candidate(1, 10), 4), Answer::NoRoom);
        assert_eq!(targets.choose(Instant(2_000), &candidate(1, 10), 4), go(1, Tier::Dram));
    }

    #[test]
    fn pushes_spread_over_equal_targets_and_wait_at_their_bound() {
        let mut targets = targets(&[node(1, 1000), node(2, 1000)]);
        let mut chosen = Vec::new();
        for _ in 0..4 {
            let Answer::Go(choice) = targets.choose(NOW, &candidate(1, 10), 2) else {
                panic!("there is room")
            };
            targets.push_started(choice.node);
            chosen.push(choice.node.0);
        }
        assert_eq!(chosen, [1, 2, 1, 2]);
        assert_eq!(targets.choose(NOW, &candidate(1, 10), 2), Answer::Busy);
    }
}
