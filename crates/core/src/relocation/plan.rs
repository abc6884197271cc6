//! What a drain would do, reckoned without moving anything.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::{Forecast, MoveCandidate};
use sanderling_protocol::{Instant, Millis, NodeId, NodeInfo, Tier};

use super::client_traffic::TrafficByNode;
use super::forecast::{ForecastInput, known_egress};
use super::queue::{self, Enqueued};
use super::targets::{MoveRequest, TargetSearch, Targets};
use crate::exposure;
use crate::moves::Choice;

/// The plan of a drain of one node that has not begun.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrainPlan {
    /// Blocks that would be moved, or for which there is no room.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks whose bytes survive the node without a move.
    pub safe_blocks: u64,
    /// Their bytes.
    pub safe_bytes: u64,
    /// Where the blocks would go, the largest share first.
    pub targets: Vec<PlannedTarget>,
    /// What is to be expected at the rate that the node is reckoned to send.
    pub forecast: Forecast,
    /// Bytes per second that would be enough for the deadline; `None` without one.
    pub needed_bytes_per_second: Option<u64>,
}

/// The share of one node's tier in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedTarget {
    /// The node.
    pub node: NodeId,
    /// Its tier.
    pub tier: Tier,
    /// Blocks for it.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Plans a drain, block by block, by the rules that a relocator goes by.
#[derive(Debug, Clone)]
pub struct Planner {
    source: NodeId,
    left: Option<Millis>,
    /// What the link of the source carries, and its targets take; `None` if it is unknown.
    bytes_per_second: Option<u64>,
    targets: Targets,
    /// Where the blocks of this tier go now, and how many bytes more before others get a share.
    going: BTreeMap<Tier, (Choice, u64)>,
    shares: BTreeMap<Choice, (u64, u64)>,
    unplaced_bytes: u64,
    skipped_bytes: u64,
    plan: DrainPlan,
}

impl Planner {
    /// Bytes that go to one target together. About what the relocator sends in one push over
    /// 100 Mbit/s (`PUSH` of `pace`). Chosen, not measured.
    const PUSH_BYTES: u64 = 512 << 10;

    /// Any instant: a plan contains spans only.
    const NOW: Instant = Instant(0);

    /// Returns the planner of a drain of `source` that begins now and has the time `left`; `None`
    /// for one without a deadline.
    #[must_use]
    pub fn new(source: NodeId, nodes: &[NodeInfo], left: Option<Millis>) -> Self {
        let others: Vec<NodeInfo> = nodes
            .iter()
            .cloned()
            .map(|mut node| {
                if node.id == source {
                    node.policy = sanderling_protocol::Policy::Draining;
                }
                node
            })
            .collect();
        let mut targets = Targets::default();
        let nothing = BTreeMap::new();
        targets.replace(Self::NOW, &others, &TrafficByNode::default(), &nothing, &BTreeMap::new());
        let sends = others.iter().find(|node| node.id == source).and_then(known_egress);
        let open = others.iter().filter(|node| targets.is_eligible(Self::NOW, source, node.id));
        // A target whose link is unknown limits nothing.
        let takes = open.map(|node| known_egress(node).unwrap_or(u64::MAX));
        let receive = takes.fold(0, u64::saturating_add);
        Self {
            source,
            left,
            bytes_per_second: sends.map(|rate| rate.min(receive)),
            targets,
            going: BTreeMap::new(),
            shares: BTreeMap::new(),
            unplaced_bytes: 0,
            skipped_bytes: 0,
            plan: DrainPlan::default(),
        }
    }

    /// Counts one block of the draining node: as one that moves and where to, as one that is safe
    /// already, or as one that expires before it would be lost.
    pub fn add(&mut self, candidate: &MoveCandidate) {
        let bytes = u64::from(candidate.length);
        match queue::look(candidate, self.left) {
            // It leaves last, and is read back from its store if it does not make it.
            Enqueued::Taken | Enqueued::Known if candidate.is_stored() && self.left.is_some() => {
                self.plan.safe_blocks += 1;
                self.plan.safe_bytes += bytes;
            }
            Enqueued::Expires => self.skipped_bytes += bytes,
            Enqueued::Safe => {
                self.plan.safe_blocks += 1;
                self.plan.safe_bytes += bytes;
            }
            Enqueued::Taken | Enqueued::Known => {
                self.plan.blocks += 1;
                self.plan.bytes += bytes;
                match self.place(candidate) {
                    Some(choice) => {
                        let share = self.shares.entry(choice).or_default();
                        *share = (share.0 + 1, share.1 + bytes);
                    }
                    None => self.unplaced_bytes += bytes,
                }
            }
        }
    }

    fn place(&mut self, candidate: &MoveCandidate) -> Option<Choice> {
        let bytes = u64::from(candidate.reserve_bytes);
        if let Some((choice, left)) = self.going.get_mut(&candidate.tier)
            && *left > 0
            && self.targets.take(*choice, candidate.reserve_bytes)
        {
            *left = left.saturating_sub(bytes);
            return Some(*choice);
        }
        let request = MoveRequest::of(candidate, self.source, usize::MAX);
        let TargetSearch::Go(choice) = self.targets.choose(Self::NOW, request) else { return None };
        self.targets.push_started(choice.node);
        let left = Self::PUSH_BYTES.saturating_sub(bytes);
        self.going.insert(candidate.tier, (choice, left));
        self.targets.take(choice, candidate.reserve_bytes).then_some(choice)
    }

    /// Returns the plan of the blocks that were taken into account.
    #[must_use]
    pub fn finish(self) -> DrainPlan {
        let mut plan = self.plan;
        plan.targets = self
            .shares
            .into_iter()
            .map(|(Choice { node, tier }, (blocks, bytes))| PlannedTarget {
                node,
                tier,
                blocks,
                bytes,
            })
            .collect();
        plan.targets.sort_by_key(|target| std::cmp::Reverse(target.bytes));
        let nodes: BTreeSet<NodeId> = plan.targets.iter().map(|target| target.node).collect();
        // Before bytes flow the node is fenced and the first moves are reserved.
        let sending = self.left.map(|left| Millis(left.0.saturating_sub(exposure::REACTION.0)));
        // Over no link anything leaves when there is no time for it.
        let none = (sending == Some(Millis(0))).then_some(0);
        let input = ForecastInput {
            left_bytes: plan.bytes,
            skipped_bytes: self.skipped_bytes,
            unplaced_bytes: self.unplaced_bytes,
            bytes_per_second: self.bytes_per_second.or(none),
            link_bytes_per_second: 0,
            left: sending,
            targets: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
        };
        plan.forecast = input.forecast();
        plan.needed_bytes_per_second = sending.map(|sending| {
            let rate = u128::from(plan.bytes) * 1000 / u128::from(sending.0.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        });
        plan
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::IN_STORE;

    use super::super::tests::{candidate, node, tier};
    use super::*;

    const SOURCE: NodeId = NodeId(0);
    const MIB: u64 = 1 << 20;

    /// Returns a source and two targets of so many MiB that send 100 MiB/s.
    fn fleet(mib: u64) -> Vec<NodeInfo> {
        let mut nodes = [node(0, 0), node(1, mib * MIB), node(2, mib * MIB)];
        for node in &mut nodes {
            node.egress_bytes_per_second = 100 * MIB;
            node.budget_bytes = 1 << 40;
        }
        nodes.to_vec()
    }

    fn plan(nodes: &[NodeInfo], left: Option<Millis>, blocks: &[MoveCandidate]) -> DrainPlan {
        let mut planner = Planner::new(SOURCE, nodes, left);
        for block in blocks {
            planner.add(block);
        }
        planner.finish()
    }

    fn blocks(count: u64) -> Vec<MoveCandidate> {
        (1..=count).map(|block| candidate(block, 1 << 20)).collect()
    }

    #[test]
    fn blocks_are_spread_and_end_in_time() {
        let plan = plan(&fleet(1000), Some(Millis(30_250)), &blocks(300));
        assert_eq!((plan.blocks, plan.bytes, plan.targets.len()), (300, 300 * MIB, 2));
        assert!(plan.targets.iter().all(|target| target.blocks >= 140), "{:?}", plan.targets);
        assert_eq!(plan.forecast.targets, 2);
        let forecast = plan.forecast;
        assert_eq!((forecast.late_bytes, forecast.unplaced_bytes), (0, 0));
        assert_eq!(forecast.finish_in, Some(Millis(3_000)));
        assert_eq!(plan.needed_bytes_per_second, Some(10 * MIB));
    }

    #[test]
    fn node_with_two_tiers_counts_as_one_target() {
        let mut nodes = fleet(100);
        for node in &mut nodes[1..] {
            node.tiers.push(tier(Tier::Disk, 100 * MIB));
        }
        let mut blocks = blocks(40);
        for block in &mut blocks[..20] {
            block.tier = Tier::Disk;
        }
        let plan = plan(&nodes, None, &blocks);
        assert_eq!((plan.targets.len(), plan.forecast.targets), (4, 2), "{:?}", plan.targets);
    }

    #[test]
    fn late_and_unplaced_bytes_are_forecast_before_anything_moves() {
        let late = plan(&fleet(1000), Some(Millis(1_250)), &blocks(300));
        assert_eq!(late.forecast.late_bytes, 200 * MIB);
        let full = plan(&fleet(100), None, &blocks(300));
        assert_eq!((full.forecast.unplaced_bytes, full.forecast.late_bytes), (100 * MIB, 0));
        assert_eq!(full.needed_bytes_per_second, None);
    }

    #[test]
    fn nothing_is_late_before_the_node_has_reported_on_its_link() {
        let mut nodes = fleet(1000);
        nodes[0].egress_bytes_per_second = exposure::EGRESS_BYTES_PER_SECOND;
        let early = plan(&nodes, Some(Millis(1_250)), &blocks(300)).forecast;
        assert_eq!((early.late_bytes, early.finish_in), (0, None));
        assert_eq!(early.left_bytes, 300 * MIB);
        let over = plan(&nodes, Some(Millis(1)), &blocks(300)).forecast;
        assert_eq!(over.late_bytes, 300 * MIB, "no link is that fast");
        nodes[0].load.blocks = 300;
        let late = plan(&nodes, Some(Millis(1_250)), &blocks(300)).forecast;
        assert_eq!(late.late_bytes, 300 * MIB - exposure::EGRESS_BYTES_PER_SECOND);
    }

    #[test]
    fn what_needs_no_move_is_counted_apart() {
        let mut blocks = blocks(4);
        blocks[0].copy = Some((NodeId(2), Tier::Dram));
        blocks[1].expires_in = Some(Millis(10));
        blocks[2].copy = Some(IN_STORE);
        let plan_within = |left| plan(&fleet(100), left, &blocks);
        let with_deadline = plan_within(Some(Millis(1_000)));
        let counts = |plan: &DrainPlan| (plan.blocks, plan.safe_blocks, plan.safe_bytes);
        assert_eq!(counts(&with_deadline), (1, 2, 2 * MIB));
        assert_eq!(with_deadline.forecast.skipped_bytes, MIB);
        assert_eq!(counts(&plan_within(None)), (3, 1, MIB), "the node is to be emptied");
    }
}
