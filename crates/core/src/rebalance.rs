//! Rebalancing: which bytes go from which node to which so that all are equally full.

use std::collections::BTreeMap;

use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::node::Availability;
use sanderling_protocol::split_mix::mixed;
use sanderling_protocol::{BlockId, Millis, NodeId, NodeInfo, Policy, Tier};

use crate::exposure::plan::percent;

/// The thresholds of rebalancing: when bytes of full nodes move to others, and how many.
#[derive(Debug, Clone)]
pub struct RebalanceConfig {
    /// Whether bytes are moved between nodes that stay.
    pub is_on: bool,
    /// How full the fullest node is against the mean, in percent, when moving begins.
    pub begin_percent: u64,
    /// And when it ends.
    pub end_percent: u64,
    /// Excess of the fullest node from which on a move is worth its messages. A fleet with little
    /// on each node stays uneven by as much.
    pub excess_bytes_min: u64,
    /// Share of a tier that moves leave free at their target.
    pub reserve_percent: u64,
    /// Share of a target's budget up to which its exposure may grow by moves: beyond where copying
    /// begins, so that its copies make room for more.
    pub exposure_percent: u64,
    /// How long a block must have been left as it is: most of what jobs write is gone by then, and
    /// need not have moved.
    pub idle_min: Millis,
}

impl Default for RebalanceConfig {
    fn default() -> Self {
        Self {
            is_on: true,
            begin_percent: 110,
            end_percent: 105,
            excess_bytes_min: 256 << 10,
            reserve_percent: 5,
            exposure_percent: 100,
            idle_min: Millis::from_secs(5),
        }
    }
}

/// A measure of how evenly the bytes of one tier are spread over the nodes of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Balance {
    /// Bytes that each of the fuller nodes has beyond its share.
    pub excess: BTreeMap<NodeId, u64>,
    /// Bytes that each of the emptier nodes lacks of its share.
    pub lack: BTreeMap<NodeId, u64>,
    /// How full the fullest is against the mean, in percent; 100 for a tier without bytes.
    pub fullest_percent: u64,
}

/// Returns whether a node takes part: it stays, is well, and is not expected to end.
fn takes_part(node: &NodeInfo) -> bool {
    node.policy == Policy::Active && node.availability == Availability::Up && !node.is_at_risk
}

/// Returns the size of a node's tier and the bytes on it whose home it is, with those that writers
/// and moves have reserved; `None` for a node that takes no part.
#[must_use]
pub fn home_load(node: &NodeInfo, tier: Tier) -> Option<(NodeId, u64, u64)> {
    let usage = node.tiers.iter().find(|usage| usage.tier == tier)?;
    let load = usage.used_bytes.saturating_sub(usage.copy_bytes);
    let has_part = usage.capacity_bytes > 0 && takes_part(node);
    has_part.then_some((node.id, usage.capacity_bytes, load))
}

/// Returns how evenly one tier is filled, from each node's id, size and load in bytes. A node's
/// fair share of the load grows with its size.
#[must_use]
pub fn balance(loads: &[(NodeId, u64, u64)]) -> Balance {
    let size: u128 = loads.iter().map(|(_, size, _)| u128::from(*size)).sum();
    let load: u128 = loads.iter().map(|(_, _, load)| u128::from(*load)).sum();
    let mut balance = Balance { fullest_percent: 100, ..Balance::default() };
    if load == 0 {
        return balance;
    }
    for &(node, node_size, node_load) in loads {
        let share = load * u128::from(node_size) / size;
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        if node_load > share {
            balance.excess.insert(node, node_load - share);
        } else if node_load < share {
            balance.lack.insert(node, share - node_load);
        }
        let percent = u128::from(node_load) * 100 / u128::from(share.max(1));
        balance.fullest_percent =
            balance.fullest_percent.max(u64::try_from(percent).unwrap_or(u64::MAX));
    }
    debug_assert!(is_even(&balance, loads.len()), "what some have too much is what others lack");
    balance
}

/// Returns whether excess and lack are the same but for what shares lose by rounding down.
fn is_even(balance: &Balance, nodes: usize) -> bool {
    let sum = |bytes: &BTreeMap<NodeId, u64>| bytes.values().map(|it| u128::from(*it)).sum();
    let (excess, lack): (u128, u128) = (sum(&balance.excess), sum(&balance.lack));
    excess >= lack && excess - lack <= nodes as u128
}

impl RebalanceConfig {
    /// Returns whether bytes are to be moved. `is_moving`: they were before.
    #[must_use]
    pub fn is_wanted(&self, balance: &Balance, is_moving: bool) -> bool {
        let largest = balance.excess.values().max().copied().unwrap_or(0);
        let limit = if is_moving { self.end_percent } else { self.begin_percent };
        self.is_on && balance.fullest_percent > limit && largest >= self.excess_bytes_min
    }

    /// Returns the bytes that a node may take: of its room, and of its budget for what is nowhere
    /// else.
    #[must_use]
    pub fn room_bytes(&self, node: &NodeInfo, tier: Tier) -> u64 {
        let Some(usage) = node.tiers.iter().find(|usage| usage.tier == tier) else { return 0 };
        let kept = percent(usage.capacity_bytes, self.reserve_percent);
        let free = usage.capacity_bytes.saturating_sub(usage.used_bytes.saturating_add(kept));
        let budget = percent(node.budget_bytes, self.exposure_percent);
        free.min(budget.saturating_sub(node.exposure_bytes))
    }
}

impl RebalanceConfig {
    /// Returns in how long a block may be moved if it is left as it is; `None` for one that may not
    /// for other reasons.
    #[must_use]
    pub fn moves_in(&self, candidate: &MoveCandidate) -> Option<Millis> {
        let is_movable = !candidate.is_open
            && candidate.length > 0
            && candidate.reserved_to.is_none()
            && candidate.tier != Tier::Object;
        is_movable.then(|| Millis(self.idle_min.0.saturating_sub(candidate.idle.0)))
    }
}

/// A block's place in the order in which blocks move: those without a copy first, whose copy would
/// have to be made again; of equal ones in an order that has nothing to do with their age or
/// object, so that what is read often moves in proportion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveRank {
    has_copy: bool,
    shuffled: u64,
    block: BlockId,
}

impl From<&MoveCandidate> for MoveRank {
    fn from(candidate: &MoveCandidate) -> Self {
        Self {
            has_copy: candidate.copy.is_some(),
            shuffled: mixed(candidate.block.0),
            block: candidate.block,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relocation::tests::{candidate, node};

    fn loaded(id: u32, size: u64, used: u64) -> NodeInfo {
        let mut node = node(id, size);
        node.tiers[0].used_bytes = used;
        node.budget_bytes = 1 << 40;
        node
    }

    fn dram(nodes: &[NodeInfo]) -> Balance {
        let loads = nodes.iter().filter_map(|node| home_load(node, Tier::Dram));
        balance(&loads.collect::<Vec<_>>())
    }

    const CONFIG: fn() -> RebalanceConfig =
        || RebalanceConfig { excess_bytes_min: 1, ..RebalanceConfig::default() };

    #[test]
    fn fleet_without_a_byte_is_even() {
        let balance = dram(&[loaded(1, 1000, 0), loaded(2, 500, 0)]);
        assert_eq!((balance.fullest_percent, balance.excess.len()), (100, 0));
    }

    #[test]
    fn empty_node_lacks_what_the_full_ones_have_too_much() {
        let nodes =
            [loaded(1, 1000, 400), loaded(2, 1000, 400), loaded(3, 1000, 400), loaded(4, 1000, 0)];
        let balance = dram(&nodes);
        assert_eq!(balance.fullest_percent, 133);
        assert_eq!(balance.excess.values().copied().collect::<Vec<_>>(), [100, 100, 100]);
        assert_eq!(balance.lack, BTreeMap::from([(NodeId(4), 300)]));
        assert!(CONFIG().is_wanted(&balance, false));
    }

    #[test]
    fn moving_begins_later_than_it_ends() {
        let at = |used: u64| {
            let nodes = [loaded(1, 10_000, used), loaded(2, 10_000, 2000 - used)];
            dram(&nodes)
        };
        assert!(!CONFIG().is_wanted(&at(1100), false));
        assert!(CONFIG().is_wanted(&at(1110), false));
        assert!(CONFIG().is_wanted(&at(1060), true));
        assert!(!CONFIG().is_wanted(&at(1050), true));
        let patient = RebalanceConfig::default();
        assert!(!patient.is_wanted(&at(1900), false), "a few bytes are not worth a move");
    }

    #[test]
    fn larger_node_has_a_larger_share_and_copies_do_not_count() {
        let mut holder = loaded(2, 1000, 900);
        holder.tiers[0].copy_bytes = 700;
        let nodes = [loaded(1, 3000, 600), holder];
        assert_eq!(dram(&nodes).fullest_percent, 100);
    }

    #[test]
    fn nodes_that_leave_are_silent_or_at_risk_take_no_part() {
        let mut nodes = [loaded(1, 1000, 400), loaded(2, 1000, 0), loaded(3, 1000, 0)];
        nodes[1].policy = Policy::Draining;
        nodes[2].is_at_risk = true;
        assert!(dram(&nodes).lack.is_empty());
        nodes[2].is_at_risk = false;
        nodes[2].availability = Availability::Suspect;
        assert!(dram(&nodes).lack.is_empty());
    }

    #[test]
    fn target_takes_no_more_than_its_room_and_its_budget() {
        let mut node = loaded(1, 1000, 200);
        assert_eq!(CONFIG().room_bytes(&node, Tier::Dram), 750);
        (node.budget_bytes, node.exposure_bytes) = (400, 200);
        assert_eq!(CONFIG().room_bytes(&node, Tier::Dram), 200);
        assert_eq!(CONFIG().room_bytes(&node, Tier::Disk), 0);
    }

    #[test]
    fn blocks_move_in_an_order_that_is_not_that_of_their_ids_and_copied_ones_last() {
        let mut copied = candidate(1, 10);
        copied.copy = Some((NodeId(7), Tier::Dram));
        let mut order: Vec<MoveRank> =
            (2..20).map(|id| MoveRank::from(&candidate(id, 10))).collect();
        order.push(MoveRank::from(&copied));
        order.sort();
        assert!(!order.is_sorted_by_key(|rank| rank.block));
        assert_eq!(order.last().unwrap().block, BlockId(1));
    }
}
