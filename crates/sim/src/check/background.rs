//! What the background must have brought about when the faults have stopped.

use sanderling_core::background::PaceConfig;
use sanderling_core::exposure::plan::copy_tiers;
use sanderling_core::rebalance::{self, Balance};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::node::Availability;
use sanderling_protocol::{NodeInfo, Policy, Reply, Request, Tier};

use super::view::View;

/// What the background has still to do.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// A checker, and a node that has more alone than it may or is too full.
    pub(crate) unsettled: Option<(&'static str, String)>,
    /// Most bytes that are to be copied and moved.
    pub(crate) bytes: u64,
    /// Bytes per second that the background sends over the slowest link.
    pub(crate) bytes_per_second: u64,
}

/// Returns what has to be done about nodes that have more alone than they may, or are too full.
pub(super) fn backlog(view: View<'_>) -> Backlog {
    let Ok(Reply::Nodes(nodes)) = view.peek(&Request::Nodes { all: false }) else {
        return Backlog::default();
    };
    let background = view.runtime.plan().background;
    let slowest = nodes.iter().map(|node| node.egress_bytes_per_second).min().unwrap_or(0);
    let share = u128::from(share_percent(&background.config().pace));
    let mut backlog = Backlog {
        bytes_per_second: u64::try_from(u128::from(slowest) * share / 100).unwrap_or(u64::MAX),
        ..Backlog::default()
    };
    for node in nodes.iter().filter(|_| background.has_copies) {
        let Some((over, budget)) = over_budget(view, node, &nodes) else { continue };
        let (id, exposed) = (node.id, node.exposure_bytes);
        let text = || format!("node {id} has {exposed} bytes alone and may have {budget}");
        backlog.unsettled.get_or_insert_with(|| ("exposure-bound", text()));
        backlog.bytes += over + u64::from(BLOCK_BYTES_MAX);
    }
    // Where budgets are scarce they decide how much a node may take.
    let total: u64 = nodes.iter().map(|node| node.home_bytes).sum();
    let has_budgets = nodes.iter().all(|node| node.budget_bytes >= total);
    for tier in [Tier::Dram, Tier::Disk] {
        let is_wanted = background.has_rebalancing && has_budgets;
        let Some(balance) = unbalanced(view, &nodes, tier).filter(|_| is_wanted) else { continue };
        let largest = balance.excess.values().max().copied().unwrap_or(0);
        let percent = balance.fullest_percent;
        let text = || {
            format!("{tier} of the fullest node is at {percent} % of the mean, by {largest} bytes")
        };
        backlog.unsettled.get_or_insert_with(|| ("balance", text()));
        // A block that moves leaves its copy behind, and is copied again.
        let moved: u64 = balance.excess.values().map(|it| it + u64::from(BLOCK_BYTES_MAX)).sum();
        backlog.bytes += 2 * moved;
    }
    backlog
}

/// Returns the share of a link that a source may use of it, or a target that has just joined, while
/// clients leave them alone.
fn share_percent(pace: &PaceConfig) -> u64 {
    let target = pace.target_percent * pace.ramp_percent / 100;
    pace.share_percent.min(pace.over_percent).min(target)
}

/// Returns the bytes that a node has alone beyond what it may have, and what it may have, if
/// anything can be done about it.
fn over_budget(view: View<'_>, node: &NodeInfo, nodes: &[NodeInfo]) -> Option<(u64, u64)> {
    let config = view.runtime.plan().background.config();
    let budget = config.exposure.budget_bytes(node);
    let may_hold = |other: &&NodeInfo| other.id != node.id && takes_part(other);
    let has_room = |tier: Tier| {
        nodes.iter().filter(may_hold).any(|other| {
            let usage = other.tiers.iter().find(|usage| usage.tier == tier);
            usage.is_some_and(|usage| {
                // It may hold more of a block than its writer ever published.
                let used = usage.used_bytes.max(held_bytes(view, other, tier));
                let bytes = config.exposure.room_bytes(tier, usage.capacity_bytes, used);
                bytes >= u64::from(BLOCK_BYTES_MAX)
            })
        })
    };
    // Copies go to the same tier or to a slower one.
    let homes = node.tiers.iter().filter(|usage| usage.used_bytes > usage.copy_bytes);
    let has_room = homes.map(|usage| usage.tier).all(|tier| copy_tiers(tier).any(&has_room));
    let over = node.exposure_bytes.saturating_sub(budget);
    (node.policy == Policy::Active && over > 0 && has_room).then_some((over, budget))
}

fn held_bytes(view: View<'_>, node: &NodeInfo, tier: Tier) -> u64 {
    view.running(node.id).map_or(0, |datanode| datanode.used_bytes(tier))
}

/// Returns how a tier stands if nodes are not equally full and a block can be moved.
fn unbalanced(view: View<'_>, nodes: &[NodeInfo], tier: Tier) -> Option<Balance> {
    let config = view.runtime.plan().background.config();
    let loads = nodes.iter().filter_map(|node| rebalance::home_load(node, tier));
    let balance = rebalance::balance(&loads.collect::<Vec<_>>());
    let largest = balance.excess.values().max().copied().unwrap_or(0);
    let lacking = balance.lack.values().max().copied().unwrap_or(0);
    // Then any block moves to where it brings both nodes nearer to their share.
    let is_movable = largest.min(lacking) > u64::from(BLOCK_BYTES_MAX);
    (balance.fullest_percent > config.rebalance.begin_percent && is_movable).then_some(balance)
}

/// Returns whether a node may be a target of what is moved without a notice.
fn takes_part(node: &NodeInfo) -> bool {
    node.policy == Policy::Active && node.availability == Availability::Up && !node.is_at_risk
}
