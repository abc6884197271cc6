//! What the background must have brought about when the faults have stopped.

use sanderling_core::exposure::plan::copy_tiers;
use sanderling_core::rebalance;
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::node::Availability;
use sanderling_protocol::{NodeInfo, Policy, Reply, Request, Tier};

use super::view::View;

/// Returns a node that has more alone than it may, or one that is too full, if anything could
/// be done about it.
pub(super) fn unsettled(view: View<'_>) -> Option<(&'static str, String)> {
    let Ok(Reply::Nodes(nodes)) = view.peek(&Request::Nodes { all: false }) else {
        return None;
    };
    let background = view.runtime.plan().background;
    if background.has_copies {
        let over = nodes.iter().find_map(|node| over_budget(view, node, &nodes));
        if let Some(text) = over {
            return Some(("exposure-bound", text));
        }
    }
    // Where budgets are scarce they decide how much a node may take.
    let total: u64 = nodes.iter().map(|node| node.home_bytes).sum();
    let has_budgets = nodes.iter().all(|node| node.budget_bytes >= total);
    if background.has_rebalancing && has_budgets {
        let text =
            [Tier::Dram, Tier::Disk].into_iter().find_map(|tier| unbalanced(view, &nodes, tier));
        return text.map(|text| ("balance", text));
    }
    None
}

fn over_budget(view: View<'_>, node: &NodeInfo, nodes: &[NodeInfo]) -> Option<String> {
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
    if node.policy != Policy::Active || node.exposure_bytes <= budget || !has_room {
        return None;
    }
    let (id, exposed) = (node.id, node.exposure_bytes);
    Some(format!("node {id} has {exposed} bytes alone and may have {budget}"))
}

fn held_bytes(view: View<'_>, node: &NodeInfo, tier: Tier) -> u64 {
    view.running(node.id).map_or(0, |datanode| datanode.used_bytes(tier))
}

fn unbalanced(view: View<'_>, nodes: &[NodeInfo], tier: Tier) -> Option<String> {
    let config = view.runtime.plan().background.config();
    let loads = nodes.iter().filter_map(|node| rebalance::home_load(node, tier));
    let balance = rebalance::balance(&loads.collect::<Vec<_>>());
    let largest = balance.excess.values().max().copied().unwrap_or(0);
    let lacking = balance.lack.values().max().copied().unwrap_or(0);
    // Then any block moves to where it brings both nodes nearer to their share.
    let is_movable = largest.min(lacking) > u64::from(BLOCK_BYTES_MAX);
    if balance.fullest_percent <= config.rebalance.begin_percent || !is_movable {
        return None;
    }
    let percent = balance.fullest_percent;
    Some(format!("{tier} of the fullest node is at {percent} % of the mean, by {largest} bytes"))
}

/// Tells whether a node may be a target of what is moved without a notice.
fn takes_part(node: &NodeInfo) -> bool {
    node.policy == Policy::Active && node.availability == Availability::Up && !node.is_at_risk
}
