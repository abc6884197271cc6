//! Where blocks go: the choice of targets.

use std::collections::BTreeMap;

use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::node::{Availability, TierUsage};
use sanderling_protocol::{Instant, Millis, NodeId, NodeInfo, Tier};

use super::client_traffic::TrafficByNode;
use super::pace::{Pace, smooth};
use crate::moves::Choice;
use crate::retry::doubled;

/// The nodes that may take blocks, as the last view showed them, less what was planned since.
#[derive(Debug, Clone, Default)]
pub(super) struct Targets {
    nodes: BTreeMap<NodeId, TargetNode>,
    /// The machine of every node, of those that drain, too.
    hosts: BTreeMap<NodeId, String>,
    /// Bytes per second that one push to a node achieved.
    links: BTreeMap<NodeId, u64>,
    /// The largest of them.
    fastest_link: Option<u64>,
    /// Nodes that refused or could not be reached, and until when the node whose blocks were to go
    /// there leaves them alone.
    avoided: BTreeMap<NodeId, BTreeMap<NodeId, Pause>>,
    /// Tiers that refused what was reserved there, whatever room their nodes report.
    closed: BTreeMap<Choice, Pause>,
}

/// How long something is left alone that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    until: Instant,
    length: Millis,
}

impl Pause {
    /// The longest pause, in first ones: what has failed for long is tried again within seconds,
    /// out of a notice of half a minute.
    const GROWTH_MAX: u64 = 8;

    /// Returns the pause after a failure: twice as long as one that ended lately. What fails during
    /// a pause was under way before.
    fn after(before: Option<&Self>, now: Instant, first: Millis) -> Self {
        let length = match before {
            Some(pause) if pause.until > now => return *pause,
            Some(pause) => doubled(pause.length, 1, Millis(first.0 * Self::GROWTH_MAX)),
            None => first,
        };
        Self { until: now + length, length }
    }

    /// Returns whether a failure now would be the next one rather than a first one.
    fn is_remembered(&self, now: Instant) -> bool {
        self.until + Millis(self.length.0 * Self::GROWTH_MAX) > now
    }
}

#[derive(Debug, Clone)]
struct TargetNode {
    address: String,
    free_bytes: BTreeMap<Tier, u64>,
    /// Bytes of copies of other blocks, which go when a last copy needs their room.
    copy_bytes: BTreeMap<Tier, u64>,
    /// Bytes that it may hold beside those it has before its own notice would be too short.
    headroom_bytes: u64,
    /// Its declared send rate in bytes per second, taken for what it receives until that is known.
    egress_bytes_per_second: u64,
    written_bytes_per_second: u64,
    requests_in_flight: u64,
    expected_life: Option<Millis>,
    is_at_risk: bool,
    pushes: usize,
}

/// What the search for a target found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetSearch {
    /// The block may go there.
    Go(Choice),
    /// There is room, but every node that has it takes as many pushes as it may.
    Busy,
    /// No node has room.
    NoRoom,
}

/// What a block requires of its target.
#[derive(Debug, Clone, Copy)]
pub(super) struct MoveRequest {
    /// The node that it leaves: another machine is better.
    pub(super) from: NodeId,
    pub(super) tier: Tier,
    /// Bytes of room.
    pub(super) bytes: u32,
    /// Pushes under way to one target.
    pub(super) pushes_max: usize,
}

impl MoveRequest {
    pub(super) const fn of(candidate: &MoveCandidate, from: NodeId, pushes_max: usize) -> Self {
        Self { from, tier: candidate.tier, bytes: candidate.reserve_bytes, pushes_max }
    }
}

/// Which targets are looked at together.
#[derive(Debug, Clone, Copy)]
struct Pass {
    tier: Tier,
    /// Whether the room of copies is room.
    takes_copies: bool,
    is_at_risk: bool,
}

impl Targets {
    /// A target is worth half as much as one that lives for ever when it is expected to live so
    /// long: what goes to it will soon have to be moved again. Chosen, not measured: twenty notices
    /// of half a minute.
    const LIFE: Millis = Millis::from_secs(600);

    /// How long one push may take to a target that is slower than the source. Several of the
    /// source's own pushes (`PUSH` of `pace`, 40 ms), so that a slow target gets enough for its
    /// link and holds no batch for long. Chosen, not measured.
    const PUSH: Millis = Millis(150);

    /// Takes a new view. Only nodes that take blocks and whose heartbeats arrive are targets.
    ///
    /// `unseen` are bytes of moves whose reservation the view may not show yet, `pushes` the number
    /// of pushes under way to each node.
    pub(super) fn replace(
        &mut self,
        now: Instant,
        nodes: &[NodeInfo],
        clients: &TrafficByNode,
        unseen: &BTreeMap<Choice, u64>,
        pushes: &BTreeMap<NodeId, usize>,
    ) {
        self.avoided.retain(|_, sources| {
            sources.retain(|_, pause| pause.is_remembered(now));
            !sources.is_empty()
        });
        self.closed.retain(|_, pause| pause.is_remembered(now));
        self.hosts = nodes.iter().map(|node| (node.id, node.host.clone())).collect();
        self.links.retain(|node, _| self.hosts.contains_key(node));
        self.fastest_link = self.links.values().copied().max();
        let eligible = nodes
            .iter()
            .filter(|node| node.policy.takes_blocks() && node.availability == Availability::Up);
        self.nodes = eligible
            .map(|node| {
                let unseen = |tier| unseen.get(&Choice { node: node.id, tier }).copied();
                let mut target = TargetNode::of(node, |tier| unseen(tier).unwrap_or(0));
                target.written_bytes_per_second = clients.at(node.id).written;
                target.pushes = pushes.get(&node.id).copied().unwrap_or(0);
                (node.id, target)
            })
            .collect();
    }

    /// Leaves a node alone for a while: it refused blocks of `source`, or could not be reached from
    /// there. `first` is the pause after a first failure; each further one doubles it.
    pub(super) fn avoid(&mut self, now: Instant, source: NodeId, node: NodeId, first: Millis) {
        let sources = self.avoided.entry(node).or_default();
        let pause = Pause::after(sources.get(&source), now, first);
        sources.insert(source, pause);
    }

    /// Leaves a tier alone for a while that refused what was reserved there: its node reports more
    /// room than it has. Pauses grow as those of nodes.
    pub(super) fn close(&mut self, now: Instant, choice: Choice, first: Millis) {
        let pause = Pause::after(self.closed.get(&choice), now, first);
        self.closed.insert(choice, pause);
    }

    /// Notes that a tier took blocks of a source.
    pub(super) fn took(&mut self, source: NodeId, choice: Choice) {
        self.closed.remove(&choice);
        if let Some(sources) = self.avoided.get_mut(&choice.node) {
            sources.remove(&source);
        }
    }

    fn is_closed(&self, now: Instant, choice: Choice) -> bool {
        self.closed.get(&choice).is_some_and(|pause| pause.until > now)
    }

    /// Returns whether a node may take blocks of `source` now.
    ///
    /// One source that reaches nothing accuses all of its targets. So what it reports keeps other
    /// sources from a target only if another one has reported the same.
    pub(super) fn is_eligible(&self, now: Instant, source: NodeId, node: NodeId) -> bool {
        let accused = self.avoided.get(&node).into_iter().flatten();
        let mut accusers = accused.filter(|(_, it)| it.until > now).map(|(source, _)| *source);
        let is_avoided = match (accusers.next(), accusers.next()) {
            (None, _) => false,
            (Some(accuser), None) => accuser == source,
            (Some(_), Some(_)) => true,
        };
        self.nodes.contains_key(&node) && !is_avoided
    }

    /// Returns how many nodes may take blocks of one of the sources now, and the room that they
    /// have in all.
    pub(super) fn room(&self, now: Instant, sources: &[NodeId]) -> (usize, u64) {
        let is_open =
            |node: NodeId| sources.iter().any(|source| self.is_eligible(now, *source, node));
        let open = || self.nodes.iter().filter(|(node, _)| is_open(**node));
        let room = open().flat_map(|(node, target)| {
            let tiers = target.free_bytes.iter().chain(&target.copy_bytes);
            let is_open = move |tier: Tier| !self.is_closed(now, Choice { node: *node, tier });
            tiers.filter(move |(tier, _)| is_open(**tier)).map(|(_, bytes)| *bytes)
        });
        (open().count(), room.fold(0, u64::saturating_add))
    }

    /// Returns where a target serves blocks.
    pub(super) fn address(&self, node: NodeId) -> Option<&str> {
        self.nodes.get(&node).map(|target| target.address.as_str())
    }

    /// Learns from a push of `bytes` to a node that took `micros`.
    pub(super) fn record(&mut self, node: NodeId, bytes: u64, micros: u64) {
        if bytes < Pace::PUSH_BYTES_MIN || !self.hosts.contains_key(&node) {
            return;
        }
        let sample = u128::from(bytes) * 1_000_000 / u128::from(micros.max(1));
        let sample = u64::try_from(sample).unwrap_or(u64::MAX).max(1);
        self.links.entry(node).and_modify(|rate| *rate = smooth(*rate, sample)).or_insert(sample);
        self.fastest_link = self.links.values().copied().max();
    }

    /// Returns the bytes per second that one push to a node achieves.
    fn link(&self, node: NodeId) -> u64 {
        // A node that nothing was sent to yet is taken for no faster than the others were.
        let declared = || self.nodes.get(&node).map_or(0, |target| target.egress_bytes_per_second);
        let fastest = || self.fastest_link.unwrap_or(u64::MAX);
        self.links.get(&node).copied().unwrap_or_else(|| declared().min(fastest())).max(1)
    }

    /// Returns the most bytes that one push to a node should carry, with `left` until the deadline.
    pub(super) fn push_bytes_max(&self, node: NodeId, left: Option<Millis>) -> u64 {
        let millis = left.map_or(Self::PUSH, |left| Self::PUSH.min(Millis(left.0 / 4)));
        super::forecast::within(self.link(node), millis).max(Pace::PUSH_BYTES_MIN)
    }

    /// Returns the best target of a block: in its own tier, else in a slower one, else in a faster
    /// one, because a full tier is no reason to lose bytes. A busy tier is waited for, not left.
    /// Where there is no room at all, that of other blocks' copies is taken. A node whose cloud
    /// recommends to leave it is only chosen when no other has room.
    pub(super) fn choose(&self, now: Instant, request: MoveRequest) -> TargetSearch {
        let slower = std::iter::successors(request.tier.slower(), |tier| tier.slower());
        let faster = Tier::ALL.into_iter().rev().filter(|tier| *tier < request.tier);
        let tiers = || std::iter::once(request.tier).chain(slower.clone()).chain(faster.clone());
        let pass = |takes_copies, is_at_risk| {
            tiers().map(move |tier| Pass { tier, takes_copies, is_at_risk })
        };
        pass(false, false)
            .chain(pass(true, false))
            .chain(pass(false, true))
            .chain(pass(true, true))
            .map(|pass| self.choose_in(now, request, pass))
            .find(|answer| *answer != TargetSearch::NoRoom)
            .unwrap_or(TargetSearch::NoRoom)
    }

    fn choose_in(&self, now: Instant, request: MoveRequest, pass: Pass) -> TargetSearch {
        let (host, tier) = (self.hosts.get(&request.from), pass.tier);
        let with_room = self.nodes.iter().filter(|(node, target)| {
            let has_room = target.has_room(tier, u64::from(request.bytes), pass.takes_copies);
            let is_meant = target.is_at_risk == pass.is_at_risk;
            let is_open = !self.is_closed(now, Choice { node: **node, tier });
            has_room && is_open && is_meant && self.is_eligible(now, request.from, **node)
        });
        let mut answer = TargetSearch::NoRoom;
        let mut best = (false, 0);
        for (node, target) in with_room {
            if target.pushes >= request.pushes_max {
                if answer == TargetSearch::NoRoom {
                    answer = TargetSearch::Busy;
                }
                continue;
            }
            // What takes the machine away takes every node on it.
            let is_elsewhere = self.hosts.get(node) != host;
            let rank = (is_elsewhere, target.weight(tier, self.link(*node)));
            if rank > best || !matches!(answer, TargetSearch::Go(_)) {
                answer = TargetSearch::Go(Choice { node: *node, tier });
                best = rank;
            }
        }
        answer
    }

    /// Takes room for a move that was planned; returns whether there was enough.
    pub(super) fn take(&mut self, choice: Choice, bytes: u32) -> bool {
        let Some(target) = self.nodes.get_mut(&choice.node) else { return false };
        let bytes = u64::from(bytes);
        if !target.has_room(choice.tier, bytes, true) {
            return false;
        }
        let free = target.free_bytes.entry(choice.tier).or_default();
        let from_copies = bytes.saturating_sub(*free);
        *free -= bytes - from_copies;
        if let Some(copies) = target.copy_bytes.get_mut(&choice.tier) {
            *copies -= from_copies;
        }
        target.headroom_bytes = target.headroom_bytes.saturating_sub(bytes);
        true
    }

    /// Notes that a tier has no room until the next view.
    pub(super) fn fill(&mut self, choice: Choice) {
        let target = self.nodes.get_mut(&choice.node);
        if let Some(free) = target.and_then(|target| target.free_bytes.get_mut(&choice.tier)) {
            *free = 0;
        }
        if let Some(target) = self.nodes.get_mut(&choice.node) {
            target.copy_bytes.remove(&choice.tier);
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

impl TargetNode {
    fn of(node: &NodeInfo, unseen: impl Fn(Tier) -> u64) -> Self {
        let free = |usage: &TierUsage| {
            // It may hold unpublished bytes: they are in no account.
            let used = usage.used_bytes.max(node.load.used_bytes(usage.tier));
            let taken = used.saturating_add(unseen(usage.tier));
            (usage.tier, usage.capacity_bytes.saturating_sub(taken))
        };
        Self {
            address: node.address.clone(),
            free_bytes: node.tiers.iter().map(free).collect(),
            copy_bytes: node.tiers.iter().map(|usage| (usage.tier, usage.copy_bytes)).collect(),
            headroom_bytes: node.budget_bytes.saturating_sub(node.exposure_bytes),
            egress_bytes_per_second: node.egress_bytes_per_second,
            written_bytes_per_second: 0,
            requests_in_flight: u64::from(node.load.requests_in_flight),
            expected_life: node.expected_life,
            is_at_risk: node.is_at_risk,
            pushes: 0,
        }
    }

    fn has_room(&self, tier: Tier, bytes: u64, takes_copies: bool) -> bool {
        let Some(free) = self.free_bytes.get(&tier) else { return false };
        let copies = self.copy_bytes.get(&tier).filter(|_| takes_copies);
        free.saturating_add(copies.copied().unwrap_or(0)) >= bytes
    }

    /// Weighs a target against others. Shares of the pushes grow with what it has to give: room
    /// that its own notice would not be too short for, what its link achieves beside the clients'
    /// writes, and the time it will live; they shrink with what it is busy with.
    fn weight(&self, tier: Tier, link_bytes_per_second: u64) -> u128 {
        let free = self.free_bytes.get(&tier).copied().unwrap_or(0);
        // Without room of its own, its copies are what it has to give.
        let free = free.max(self.copy_bytes.get(&tier).copied().unwrap_or(0) / 8);
        // Beyond its budget it would have to make copies itself.
        let room =
            if tier == Tier::Object { free } else { free.min(self.headroom_bytes).max(free / 8) };
        let clients = self.written_bytes_per_second.min(link_bytes_per_second / 4 * 3);
        let link = (link_bytes_per_second - clients).max(1);
        let busy = 1 + self.pushes as u64 + self.requests_in_flight / 4;
        let weight = 1000 * (u128::from(room.max(1)) * u128::from(link) / u128::from(busy));
        let Some(Millis(life)) = self.expected_life else { return weight };
        let life = life.min(u64::MAX / 2000);
        weight / 1000 * u128::from(1000 * life / (life + Targets::LIFE.0))
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Policy;

    use super::super::tests::{candidate, node, tier};
    use super::*;

    const NOW: Instant = Instant(1_000);
    const FIRST: Millis = Millis(500);

    /// No node: the one that the blocks leave is on a machine of its own.
    const FROM: NodeId = NodeId(0);

    fn targets(nodes: &[NodeInfo]) -> Targets {
        let mut targets = Targets::default();
        let clients = TrafficByNode::default();
        targets.replace(NOW, nodes, &clients, &BTreeMap::new(), &BTreeMap::new());
        targets
    }

    fn request(bytes: u32) -> MoveRequest {
        MoveRequest::of(&candidate(1, bytes), FROM, 4)
    }

    fn go(node: u32, tier: Tier) -> TargetSearch {
        TargetSearch::Go(Choice { node: NodeId(node), tier })
    }

    #[test]
    fn draining_suspect_and_gone_nodes_are_never_chosen() {
        let mut nodes = [node(1, 100), node(2, 900), node(3, 900), node(4, 900)];
        nodes[1].policy = Policy::Draining;
        nodes[2].availability = Availability::Suspect;
        nodes[3].policy = Policy::Gone;
        let targets = targets(&nodes);
        assert_eq!(targets.choose(NOW, request(50)), go(1, Tier::Dram));
        assert_eq!(targets.choose(NOW, request(101)), TargetSearch::NoRoom);
    }

    #[test]
    fn what_a_node_holds_without_an_account_is_no_room() {
        let mut full = node(1, 900);
        full.load.dram_used_bytes = full.tiers[0].capacity_bytes - 40;
        let targets = targets(&[full, node(2, 100)]);
        assert_eq!(targets.choose(NOW, request(50)), go(2, Tier::Dram));
        assert_eq!(targets.choose(NOW, request(101)), TargetSearch::NoRoom);
    }

    #[test]
    fn full_tier_falls_to_the_slower_one_and_last_to_the_faster_one() {
        let mut small = node(1, 10);
        small.tiers.push(tier(Tier::Disk, 1000));
        let both = targets(&[small]);
        assert_eq!(both.choose(NOW, request(50)), go(1, Tier::Disk));
        let disk = MoveRequest { tier: Tier::Disk, ..request(5) };
        assert_eq!(both.choose(NOW, disk), go(1, Tier::Disk));
        let only_dram = targets(&[node(1, 100)]);
        assert_eq!(only_dram.choose(NOW, disk), go(1, Tier::Dram));
    }

    #[test]
    fn target_that_would_have_to_make_copies_itself_weighs_an_eighth() {
        let mut target = TargetNode::of(&node(1, 8_000_000), |_| 0);
        target.headroom_bytes = u64::MAX;
        let with_headroom = target.weight(Tier::Dram, 1000);
        target.headroom_bytes = 0;
        assert_eq!(target.weight(Tier::Dram, 1000) * 8, with_headroom);
    }

    #[test]
    fn avoided_node_is_chosen_again_after_its_time() {
        let mut targets = targets(&[node(1, 100)]);
        targets.avoid(NOW, FROM, NodeId(1), FIRST);
        assert_eq!(targets.choose(NOW, request(10)), TargetSearch::NoRoom);
        assert_eq!(targets.choose(NOW + FIRST, request(10)), go(1, Tier::Dram));
    }

    #[test]
    fn pause_grows_while_a_target_fails_and_begins_anew_when_it_took_blocks() {
        let mut targets = targets(&[node(1, 100)]);
        let is_open = |targets: &Targets, at| targets.is_eligible(at, FROM, NodeId(1));
        let mut now = NOW;
        for times in [1, 2, 4, 8, 8] {
            targets.avoid(now, FROM, NodeId(1), FIRST);
            // What was under way fails as well, and is no further failure.
            targets.avoid(now, FROM, NodeId(1), FIRST);
            let end = now + Millis(FIRST.0 * times);
            assert!(!is_open(&targets, Instant(end.0 - 1)) && is_open(&targets, end), "{times}");
            now = end;
        }
        targets.took(FROM, Choice { node: NodeId(1), tier: Tier::Dram });
        targets.avoid(now, FROM, NodeId(1), FIRST);
        assert!(is_open(&targets, now + FIRST), "it is a first failure");
    }

    #[test]
    fn tier_that_refuses_what_is_reserved_there_is_left_for_the_next_one() {
        let mut only = node(1, 100);
        only.tiers.push(tier(Tier::Disk, 300));
        let mut targets = targets(std::slice::from_ref(&only));
        let request = MoveRequest { tier: Tier::Disk, ..request(50) };
        let disk = Choice { node: NodeId(1), tier: Tier::Disk };
        assert_eq!(targets.choose(NOW, request), TargetSearch::Go(disk));
        targets.close(NOW, disk, FIRST);
        assert_eq!(targets.choose(NOW, request), go(1, Tier::Dram));
        assert_eq!(targets.room(NOW, &[FROM]), (1, 100));
        // A view, which shows the same room as before, changes nothing.
        let (none, pushes) = (BTreeMap::new(), BTreeMap::new());
        targets.replace(NOW, &[only], &TrafficByNode::default(), &none, &pushes);
        assert_eq!(targets.choose(NOW, request), go(1, Tier::Dram));
        assert_eq!(targets.choose(NOW + FIRST, request), TargetSearch::Go(disk));
    }

    #[test]
    fn source_that_reaches_no_target_keeps_no_other_source_from_them() {
        let mut targets = targets(&[node(1, 100), node(2, 50)]);
        let (lame, fine, third) = (NodeId(8), NodeId(9), NodeId(10));
        let of = |from| MoveRequest { from, ..request(10) };
        let until = NOW + FIRST;
        targets.avoid(NOW, lame, NodeId(1), FIRST);
        targets.avoid(NOW, lame, NodeId(2), FIRST);
        assert_eq!(targets.choose(NOW, of(lame)), TargetSearch::NoRoom);
        assert_eq!(targets.room(NOW, &[lame]), (0, 0));
        assert_eq!(targets.choose(NOW, of(fine)), go(1, Tier::Dram));
        assert_eq!(targets.room(NOW, &[lame, fine]), (2, 150));
        // A target that two sources do not reach is down.
        targets.avoid(NOW, fine, NodeId(1), FIRST);
        assert_eq!(targets.choose(NOW, of(third)), go(2, Tier::Dram));
        assert_eq!(targets.choose(until, of(third)), go(1, Tier::Dram));
    }

    #[test]
    fn pushes_spread_over_equal_targets_and_wait_at_their_bound() {
        let mut targets = targets(&[node(1, 1000), node(2, 1000)]);
        let request = MoveRequest { pushes_max: 2, ..request(10) };
        let mut chosen = Vec::new();
        for _ in 0..4 {
            let TargetSearch::Go(choice) = targets.choose(NOW, request) else {
                panic!("there is room")
            };
            targets.push_started(choice.node);
            chosen.push(choice.node.0);
        }
        assert_eq!(chosen, [1, 2, 1, 2]);
        assert_eq!(targets.choose(NOW, request), TargetSearch::Busy);
    }

    #[test]
    fn node_at_risk_is_chosen_only_when_no_other_has_room() {
        let mut nodes = [node(1, 900), node(2, 100)];
        nodes[0].is_at_risk = true;
        nodes[1].tiers.push(tier(Tier::Disk, 300));
        let mut targets = targets(&nodes);
        assert_eq!(targets.choose(NOW, request(50)), go(2, Tier::Dram));
        assert_eq!(targets.choose(NOW, request(200)), go(2, Tier::Disk));
        assert_eq!(targets.choose(NOW, request(400)), go(1, Tier::Dram));
        for _ in 0..4 {
            targets.push_started(NodeId(2));
        }
        assert_eq!(targets.choose(NOW, request(50)), TargetSearch::Busy, "it is waited for");
    }

    #[test]
    fn room_of_copies_is_taken_when_there_is_no_other() {
        let mut nodes = [node(1, 100), node(2, 100)];
        (nodes[0].tiers[0].used_bytes, nodes[0].tiers[0].copy_bytes) = (90, 80);
        nodes[1].tiers[0].used_bytes = 90;
        let mut targets = targets(&nodes);
        assert_eq!(targets.room(NOW, &[FROM]), (2, 100));
        assert_eq!(targets.choose(NOW, request(60)), go(1, Tier::Dram));
        let first = Choice { node: NodeId(1), tier: Tier::Dram };
        assert!(targets.take(first, 60) && !targets.take(first, 31) && targets.take(first, 30));
        assert_eq!(targets.room(NOW, &[FROM]), (2, 10));
        assert_eq!(targets.choose(NOW, request(5)), go(2, Tier::Dram));
        assert_eq!(targets.choose(NOW, request(11)), TargetSearch::NoRoom);
    }

    #[test]
    fn another_machine_goes_before_the_one_that_may_be_taken_away() {
        let mut nodes = [node(0, 0), node(1, 900), node(2, 100)];
        nodes[0].policy = Policy::Draining;
        nodes[1].host = nodes[0].host.clone();
        let mut targets = targets(&nodes);
        assert_eq!(targets.choose(NOW, request(50)), go(2, Tier::Dram));
        for _ in 0..4 {
            targets.push_started(NodeId(2));
        }
        assert_eq!(targets.choose(NOW, request(50)), go(1, Tier::Dram), "better than to wait");
    }

    #[test]
    fn longer_life_faster_link_fewer_clients_and_a_larger_budget_are_preferred() {
        let equal = || [node(1, 1 << 30), node(2, 1 << 30)];
        let worse: [fn(&mut NodeInfo); 4] = [
            |node| node.expected_life = Some(Millis::from_secs(60)),
            |node| node.egress_bytes_per_second /= 2,
            |node| node.load.requests_in_flight = 40,
            |node| node.exposure_bytes = node.budget_bytes,
        ];
        for (index, spoil) in worse.iter().enumerate() {
            let mut nodes = equal();
            for node in &mut nodes {
                node.egress_bytes_per_second = 100 << 20;
                node.budget_bytes = 1 << 30;
            }
            assert_eq!(targets(&nodes).choose(NOW, request(50)), go(1, Tier::Dram));
            spoil(&mut nodes[0]);
            assert_eq!(targets(&nodes).choose(NOW, request(50)), go(2, Tier::Dram), "case {index}");
        }
    }

    #[test]
    fn slow_target_is_learnt_from_its_pushes_and_gets_fewer_and_smaller_ones() {
        let mut nodes = [node(1, 1 << 30), node(2, 1 << 30), node(3, 1 << 30)];
        for node in &mut nodes {
            node.egress_bytes_per_second = 1 << 30;
        }
        let mut targets = targets(&nodes);
        targets.record(NodeId(1), 1 << 20, 1_000_000);
        targets.record(NodeId(2), 10 << 20, 1_000_000);
        let mut pushes: BTreeMap<u32, i32> = BTreeMap::new();
        for _ in 0..24 {
            let request = MoveRequest { pushes_max: 100, ..request(10) };
            let TargetSearch::Go(choice) = targets.choose(NOW, request) else {
                panic!("there is room")
            };
            targets.push_started(choice.node);
            *pushes.entry(choice.node.0).or_insert(0) += 1;
        }
        assert!(pushes[&1] <= 2 && pushes[&2] >= 10, "{pushes:?}");
        let apart = pushes[&2] - pushes[&3];
        assert!(apart <= 1, "unknown is taken for as fast as the others: {pushes:?}");
        assert!(targets.push_bytes_max(NodeId(1), None) < 160 << 10);
        assert!(targets.push_bytes_max(NodeId(2), None) > 1 << 20);
    }

    #[test]
    fn unknown_target_is_as_fast_as_the_fastest_that_is_still_there() {
        let mut nodes = [node(1, 100), node(2, 100), node(3, 100)];
        for node in &mut nodes {
            node.egress_bytes_per_second = 1 << 30;
        }
        let mut targets = targets(&nodes);
        assert_eq!(targets.link(NodeId(3)), 1 << 30, "nothing is known of any node");
        targets.record(NodeId(1), 4 << 20, 1_000_000);
        targets.record(NodeId(2), 16 << 20, 1_000_000);
        assert_eq!(targets.link(NodeId(3)), 16 << 20);
        targets.record(NodeId(2), 1 << 20, 1_000_000);
        assert_eq!(targets.link(NodeId(3)), targets.link(NodeId(2)), "it has become slower");
        let (clients, none) = (TrafficByNode::default(), BTreeMap::new());
        nodes[1].id = NodeId(4);
        targets.replace(NOW, &nodes, &clients, &none, &BTreeMap::new());
        assert_eq!(targets.link(NodeId(3)), 4 << 20, "the fastest has gone");
    }
}
