//! What each node goals for, planned anew from every view.

use std::collections::BTreeMap;

use sanderling_protocol::message::MovePurpose;
use sanderling_protocol::node::Availability;
use sanderling_protocol::{NodeId, NodeInfo, Tier};

use super::Background;
use super::fleet::Hurry;
use crate::exposure::plan::Need;
use crate::moves::{Batch, Step};
use crate::rebalance;

/// What is to be done with a node's blocks, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeGoal {
    /// To be copied.
    pub(super) copy_bytes: u64,
    /// To be moved to emptier nodes.
    pub(super) move_bytes: BTreeMap<Tier, u64>,
    /// Copied, and so far below the budget that the copies may go.
    pub(super) needless_bytes: u64,
    /// Copied onto a tier that has little room left.
    pub(super) may_relieve: bool,
    pub(super) hurry: Option<Hurry>,
}

impl NodeGoal {
    /// Returns whether there is nothing to do.
    fn is_empty(&self) -> bool {
        self.copy_bytes == 0
            && self.move_bytes.is_empty()
            && self.needless_bytes == 0
            && !self.may_relieve
    }
}

impl Background {
    /// Plans what is to be done, from the last view less what is under way.
    pub(super) fn set_goals(&mut self) {
        self.goals.clear();
        self.set_copy_goals();
        self.set_room_goals();
        self.lack.clear();
        for tier in [Tier::Dram, Tier::Disk] {
            self.set_balance_goals(tier);
        }
        self.goals.retain(|_, goal| !goal.is_empty());
    }

    /// Returns what is under way from each node for a purpose, in bytes of its blocks.
    fn under_way(&self, purpose: MovePurpose, tier: Option<Tier>) -> BTreeMap<NodeId, u64> {
        let mut bytes = BTreeMap::new();
        let is_meant = |batch: &&Batch| batch.purpose == purpose && batch.step != Step::Abandon;
        for batch in self.moves.batches().filter(is_meant) {
            if tier.is_none_or(|tier| batch.choice.tier == tier) {
                *bytes.entry(batch.source).or_default() += batch.bytes();
            }
        }
        bytes
    }

    fn set_copy_goals(&mut self) {
        let under_way = self.under_way(MovePurpose::Precopy, None);
        for node in self.fleet.ids() {
            let Some(member) = self.fleet.get_mut(node) else { continue };
            // A node without heartbeats would not receive the orders to send.
            let is_up = member.info.availability == Availability::Up;
            if !member.info.policy.takes_blocks() || !is_up {
                continue;
            }
            let need = self.config.exposure.need(&member.info, member.is_copying);
            member.is_copying = matches!(need, Need::Copy { .. });
            let goal = self.goals.entry(node).or_default();
            match need {
                Need::Nothing => {}
                Need::Copy { bytes, is_over } => {
                    goal.copy_bytes =
                        bytes.saturating_sub(under_way.get(&node).copied().unwrap_or(0));
                    goal.hurry = Some(match (member.info.is_at_risk, is_over) {
                        (true, _) => Hurry::Risk,
                        (false, true) => Hurry::Over,
                        (false, false) => Hurry::None,
                    });
                }
                Need::Drop { bytes } => goal.needless_bytes = bytes,
            }
        }
    }

    /// Finds the tiers on which copies are in the way.
    fn set_room_goals(&mut self) {
        self.scarce.clear();
        for info in self.fleet.infos() {
            for usage in &info.tiers {
                let (capacity, used, copies) =
                    (usage.capacity_bytes, usage.used_bytes, usage.copy_bytes);
                let bytes = self.config.exposure.scarce_bytes(usage.tier, capacity, used, copies);
                if bytes > 0 {
                    self.scarce.insert((info.id, usage.tier), bytes);
                }
            }
        }
        if self.scarce.is_empty() {
            return;
        }
        // Whose copies they are is known from their homes only. A node that will soon get its
        // notice keeps its own.
        let may_relieve = |info: &&NodeInfo| {
            info.policy.takes_blocks() && !info.is_at_risk && info.exposure_bytes < info.home_bytes
        };
        for info in self.fleet.infos().filter(may_relieve) {
            self.goals.entry(info.id).or_default().may_relieve = true;
        }
    }

    fn set_balance_goals(&mut self, tier: Tier) {
        let leaving = self.under_way(MovePurpose::Rebalance, Some(tier));
        let loads = self.fleet.infos().filter_map(|info| {
            let (node, size, load) = rebalance::home_load(info, tier)?;
            Some((node, size, load.saturating_sub(leaving.get(&node).copied().unwrap_or(0))))
        });
        let balance = rebalance::balance(&loads.collect::<Vec<_>>());
        let was_moving = self.balancing.remove(&tier);
        if !self.config.rebalance.is_wanted(&balance, was_moving) {
            return;
        }
        self.balancing.insert(tier);
        if self.is_waiting {
            return;
        }
        for (node, bytes) in balance.excess {
            self.goals.entry(node).or_default().move_bytes.insert(tier, bytes);
        }
        self.lack.extend(balance.lack.into_iter().map(|(node, bytes)| ((node, tier), bytes)));
    }
}
