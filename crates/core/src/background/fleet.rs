//! The nodes as the last view showed them, less what was planned since.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::MovePurpose;
use sanderling_protocol::node::{Availability, TierUsage};
use sanderling_protocol::{Instant, NodeId, NodeInfo, Tier};

use super::bucket::Bucket;
use super::config::{BackgroundConfig, PaceConfig};
use crate::exposure::plan::percent;
use crate::moves::{Batch, Choice};

/// How much hurry a source's bytes are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hurry {
    /// They can wait for quiet times.
    None,
    /// A notice that came now could not be met.
    Over,
    /// A notice is to be expected.
    Risk,
}

/// What the search for a target found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BackgroundTarget {
    /// The bytes may go there.
    Go(NodeId),
    /// Every node with room takes as much as it may, some until this time at least; without one,
    /// until a push ends.
    Busy(Option<Instant>),
    /// No node has room.
    NoRoom,
}

/// One node.
#[derive(Debug, Clone)]
pub(super) struct FleetNode {
    pub(super) info: NodeInfo,
    pub(super) is_copying: bool,
    traffic: TrafficEstimate,
    sent: Bucket,
    /// What may be stored here, of any kind.
    stored: Bucket,
    /// What may move here, of it: little while the node is new.
    settled: Bucket,
    pushes: usize,
}

/// What clients read and write, learnt from the totals of two heartbeats.
#[derive(Debug, Clone, Copy)]
struct TrafficEstimate {
    at: Instant,
    total: u64,
    bytes_per_second: u64,
}

/// All nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeTable {
    members: BTreeMap<NodeId, FleetNode>,
    /// Nodes that refused or could not be reached, and until when they are left alone.
    avoided: BTreeMap<NodeId, Instant>,
    /// Nodes that drains use now: those that leave, and those that take their blocks.
    engaged: BTreeSet<NodeId>,
}

impl TrafficEstimate {
    /// Shortest time between two heartbeats that gives a usable rate, in microseconds. A fifth of
    /// the default period: heartbeats of a draining node come every 200 ms. Closer ones would
    /// divide by the error of a view's age, a millisecond.
    const MICROS_MIN: u64 = 100_000;

    fn begin(now: Instant, info: &NodeInfo) -> Self {
        Self { at: now - info.heartbeat_age, total: total(info), bytes_per_second: 0 }
    }

    /// Learns from a heartbeat: more traffic counts at once, less by halves.
    fn learn(&mut self, now: Instant, info: &NodeInfo) {
        let at = now - info.heartbeat_age;
        let micros = at.0.saturating_sub(self.at.0);
        if micros < Self::MICROS_MIN {
            return;
        }
        let bytes = u128::from(total(info).saturating_sub(self.total));
        let rate = u64::try_from(bytes * 1_000_000 / u128::from(micros)).unwrap_or(u64::MAX);
        self.bytes_per_second = rate.max(self.bytes_per_second.midpoint(rate));
        (self.at, self.total) = (at, total(info));
    }
}

const fn total(info: &NodeInfo) -> u64 {
    info.load.read_bytes_total.saturating_add(info.load.written_bytes_total)
}

impl FleetNode {
    fn new(now: Instant, info: NodeInfo) -> Self {
        let traffic = TrafficEstimate::begin(now, &info);
        let (sent, stored, settled) = (Bucket::new(now), Bucket::new(now), Bucket::new(now));
        Self { info, is_copying: false, traffic, sent, stored, settled, pushes: 0 }
    }

    /// Returns how much of the node its clients leave alone, in percent.
    fn quiet_percent(&self, pace: &PaceConfig) -> u64 {
        if self.info.load.requests_in_flight >= pace.busy_requests {
            return 0;
        }
        let busy_at = percent(self.info.egress_bytes_per_second, pace.busy_percent).max(1);
        let left = busy_at - self.traffic.bytes_per_second.min(busy_at);
        u64::try_from(u128::from(left) * 100 / u128::from(busy_at)).expect("a share")
    }

    /// Returns the bytes per second that it may send: see [`PaceConfig`].
    pub(super) fn send_rate(&self, hurry: Hurry, is_waiting: bool, pace: &PaceConfig) -> u64 {
        let quiet = pace.share_percent * self.quiet_percent(pace) / 100;
        let ease = if is_waiting { 0 } else { quiet.max(pace.trickle_percent) };
        let share = match hurry {
            Hurry::None => ease,
            // Using idle bandwidth shortens the time in which a notice could not be met.
            Hurry::Over => (2 * quiet).min(100).max(pace.over_percent),
            Hurry::Risk => ease.max(pace.risk_percent),
        };
        percent(self.info.egress_bytes_per_second, share)
    }

    /// Returns when it may store something of a kind: a busy node less, a new one fewer moves.
    /// Copies do not wait for it to grow up, because a notice does not either.
    fn stores_at(&mut self, now: Instant, purpose: MovePurpose, pace: &PaceConfig) -> Instant {
        let quiet = self.quiet_percent(pace).max(pace.busy_target_percent);
        let share = pace.target_percent * quiet / 100;
        let rate = percent(self.info.egress_bytes_per_second, share);
        let stored = self.stored.ready_at(now, rate).unwrap_or(now);
        if purpose != MovePurpose::Rebalance {
            return stored;
        }
        let (age, ramp) = (self.info.age.0, pace.ramp.0.max(1));
        let grown = pace.ramp_percent + (100 - pace.ramp_percent) * age.min(ramp) / ramp;
        self.settled.ready_at(now, percent(rate, grown)).map_or(stored, |at| at.max(stored))
    }

    /// Returns when it may send something; `None` when not for now.
    pub(super) fn sends_at(&mut self, now: Instant, rate: u64) -> Option<Instant> {
        self.sent.ready_at(now, rate)
    }

    fn usage(&self, tier: Tier) -> Option<(u64, u64)> {
        let usage = self.info.tiers.iter().find(|usage| usage.tier == tier)?;
        Some((usage.capacity_bytes, usage.used_bytes))
    }

    fn add_used(&mut self, tier: Tier, bytes: u64) {
        if let Some(usage) = self.info.tiers.iter_mut().find(|usage| usage.tier == tier) {
            usage.used_bytes = usage.used_bytes.saturating_add(bytes);
        }
    }
}

impl NodeTable {
    /// Takes a new view. `unseen` are bytes of reservations that the view may not show yet.
    pub(super) fn replace(
        &mut self,
        now: Instant,
        nodes: Vec<NodeInfo>,
        unseen: &BTreeMap<Choice, u64>,
    ) {
        self.avoided.retain(|_, until| *until > now);
        let mut before = std::mem::take(&mut self.members);
        for info in nodes {
            let id = info.id;
            let mut member = match before.remove(&id) {
                Some(mut member) => {
                    member.traffic.learn(now, &info);
                    FleetNode { info, ..member }
                }
                None => FleetNode::new(now, info),
            };
            let load = member.info.load;
            for usage in &mut member.info.tiers {
                // It may hold unpublished bytes: they are in no account.
                usage.used_bytes = usage.used_bytes.max(load.used_bytes(usage.tier));
                let choice = Choice { node: id, tier: usage.tier };
                let unseen = unseen.get(&choice).copied().unwrap_or(0);
                usage.used_bytes = usage.used_bytes.saturating_add(unseen);
            }
            self.members.insert(id, member);
        }
    }

    pub(super) fn engage(&mut self, nodes: BTreeSet<NodeId>) {
        self.engaged = nodes;
    }

    /// Returns whether a drain uses a node now.
    pub(super) fn is_engaged(&self, node: NodeId) -> bool {
        self.engaged.contains(&node)
    }

    /// Returns the free bytes of the nodes that take blocks.
    pub(super) fn free_bytes(&self) -> u64 {
        let tiers = self.infos().filter(|info| takes(info)).flat_map(|info| &info.tiers);
        let free = |usage: &TierUsage| usage.capacity_bytes.saturating_sub(usage.used_bytes);
        tiers.map(free).fold(0, u64::saturating_add)
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&FleetNode> {
        self.members.get(&node)
    }

    pub(super) fn get_mut(&mut self, node: NodeId) -> Option<&mut FleetNode> {
        self.members.get_mut(&node)
    }

    pub(super) fn ids(&self) -> Vec<NodeId> {
        self.members.keys().copied().collect()
    }

    pub(super) fn infos(&self) -> impl Iterator<Item = &NodeInfo> {
        self.members.values().map(|member| &member.info)
    }

    /// Returns whether a node stays, as far as is known: moves from it are the background's.
    pub(super) fn stays(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|member| member.info.policy.takes_blocks())
    }

    /// Leaves a node alone until `until`: it refused, or could not be reached.
    pub(super) fn avoid(&mut self, node: NodeId, until: Instant) {
        self.avoided.insert(node, until);
    }

    /// Notes that a tier has no room until the next view.
    pub(super) fn fill(&mut self, Choice { node, tier }: Choice) {
        let tiers = self.members.get_mut(&node).map(|member| &mut member.info.tiers);
        for usage in tiers.into_iter().flatten().filter(|usage| usage.tier == tier) {
            usage.used_bytes = usage.used_bytes.max(usage.capacity_bytes);
        }
    }

    /// Takes what a batch sends from the rates of its source and its target.
    pub(super) fn sends(&mut self, batch: &Batch) {
        let bytes = batch.bytes();
        if let Some(member) = self.members.get_mut(&batch.source) {
            member.sent.take(bytes);
        }
        if let Some(member) = self.members.get_mut(&batch.choice.node) {
            member.stored.take(bytes);
            if batch.purpose == MovePurpose::Rebalance {
                member.settled.take(bytes);
            }
        }
    }

    /// Counts a batch that began.
    pub(super) fn begun(&mut self, target: NodeId) {
        if let Some(member) = self.members.get_mut(&target) {
            member.pushes += 1;
        }
    }

    /// Counts a batch that ended.
    pub(super) fn ended(&mut self, target: NodeId) {
        if let Some(member) = self.members.get_mut(&target) {
            member.pushes = member.pushes.saturating_sub(1);
        }
    }

    /// Takes room for a move; returns whether there was enough.
    pub(super) fn take(
        &mut self,
        purpose: MovePurpose,
        node: NodeId,
        tier: Tier,
        bytes: u64,
        config: &BackgroundConfig,
    ) -> bool {
        let Some(member) = self.members.get_mut(&node) else { return false };
        if room(member, purpose, tier, config) < bytes {
            return false;
        }
        member.add_used(tier, bytes);
        if purpose == MovePurpose::Rebalance {
            member.info.exposure_bytes += bytes;
        }
        true
    }

    /// Returns whether a copy must go to another machine: there is one that takes blocks.
    fn has_other_host(&self, host: &str) -> bool {
        self.infos().any(|info| info.policy.takes_blocks() && info.host != host)
    }

    /// Returns the node that should hold a copy of `bytes` of a source's block in a tier: the one
    /// with most room for what it is busy with. One that can wait keeps off drains.
    pub(super) fn choose_copy(
        &mut self,
        now: Instant,
        source: NodeId,
        tier: Tier,
        (bytes, can_wait): (u64, bool),
        config: &BackgroundConfig,
    ) -> BackgroundTarget {
        let host = self.members.get(&source).map_or("", |member| &member.info.host).to_owned();
        let elsewhere = self.has_other_host(&host);
        let life_min = config.exposure.life_min;
        self.choose(now, MovePurpose::Precopy, tier, (bytes, can_wait), config, |member| {
            let is_apart = member.info.id != source && !(elsewhere && member.info.host == host);
            let is_dying = member.info.expected_life.is_some_and(|life| life < life_min);
            is_apart.then_some(if is_dying { 1 } else { 2 })
        })
    }

    /// Returns the node that should get a block of a tier so that all are equally full: the one
    /// that lacks most, if it lacks half of the block at least. The node that has the block's copy
    /// is taken only if there is no other, because the copy must go first.
    pub(super) fn choose_home(
        &mut self,
        now: Instant,
        tier: Tier,
        (bytes, copy): (u64, Option<NodeId>),
        lack: &BTreeMap<(NodeId, Tier), u64>,
        config: &BackgroundConfig,
    ) -> BackgroundTarget {
        let purpose = MovePurpose::Rebalance;
        let mut choose = |avoided: Option<NodeId>| {
            self.choose(now, purpose, tier, (bytes, true), config, |member| {
                let id = member.info.id;
                let lack = lack.get(&(id, tier)).copied().filter(|_| Some(id) != avoided);
                lack.filter(|lack| bytes < lack.saturating_mul(2))
            })
        };
        match choose(copy) {
            BackgroundTarget::NoRoom if copy.is_some() => choose(None),
            answer => answer,
        }
    }

    /// Returns the node with room that has the greatest weight: that of `weigh`, and for a copy the
    /// room, divided by what the node is busy with.
    fn choose(
        &mut self,
        now: Instant,
        purpose: MovePurpose,
        tier: Tier,
        (bytes, can_wait): (u64, bool),
        config: &BackgroundConfig,
        weigh: impl Fn(&FleetNode) -> Option<u64>,
    ) -> BackgroundTarget {
        let (mut answer, mut best) = (BackgroundTarget::NoRoom, 0);
        for (id, member) in &mut self.members {
            let is_avoided = self.avoided.get(id).is_some_and(|until| *until > now);
            let room = room(member, purpose, tier, config);
            if is_avoided || room < bytes || !takes(&member.info) {
                continue;
            }
            let Some(weight) = weigh(member) else { continue };
            let ready_at = member.stores_at(now, purpose, &config.pace);
            let is_engaged = can_wait && self.engaged.contains(id);
            if is_engaged || member.pushes >= config.target_batches_max || ready_at > now {
                let until = (ready_at > now).then_some(ready_at);
                answer = match answer {
                    BackgroundTarget::NoRoom => BackgroundTarget::Busy(until),
                    BackgroundTarget::Busy(before) => {
                        BackgroundTarget::Busy(before.into_iter().chain(until).min())
                    }
                    BackgroundTarget::Go(_) => answer,
                };
                continue;
            }
            let room = if purpose == MovePurpose::Precopy { room } else { 1 };
            let weight = weight.saturating_mul(room) / (1 + member.pushes as u64);
            if weight > best || !matches!(answer, BackgroundTarget::Go(_)) {
                (answer, best) = (BackgroundTarget::Go(*id), weight);
            }
        }
        answer
    }
}

fn takes(info: &NodeInfo) -> bool {
    info.policy.takes_blocks() && info.availability == Availability::Up && !info.is_at_risk
}

/// Returns the bytes that a node may take of this kind in a tier.
fn room(member: &FleetNode, purpose: MovePurpose, tier: Tier, config: &BackgroundConfig) -> u64 {
    if purpose == MovePurpose::Rebalance {
        return config.rebalance.room_bytes(&member.info, tier);
    }
    let room = |(capacity, used)| config.exposure.room_bytes(tier, capacity, used);
    member.usage(tier).map_or(0, room)
}
