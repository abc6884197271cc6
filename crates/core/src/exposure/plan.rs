//! Which blocks get a copy ahead of a notice, where, and which copies go again.

use std::cmp::Reverse;

use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::{BlockId, Millis, NodeInfo, Tier};

use super::NOTICE_MIN;

/// The thresholds at which copies are made ahead of a notice, and dropped again.
#[derive(Debug, Clone)]
pub struct ExposureConfig {
    /// Whether copies are made. Those that are there are dropped where room is needed all the same.
    pub is_on: bool,
    /// Share of the budget at which copying begins: below one, because copying takes time and
    /// writers go on meanwhile.
    pub high_percent: u64,
    /// Share of the budget at which it ends.
    pub low_percent: u64,
    /// Share of the budget below which copies are not needed any more. Far below `low_percent`, so
    /// that nothing is dropped and copied again.
    pub needless_percent: u64,
    /// Share of the budget up to which needless copies are dropped.
    pub drop_percent: u64,
    /// Share of a tier that copies leave free for writers and drains.
    pub reserve_percent: u64,
    /// Free share of a tier below which copies on it are dropped.
    pub scarce_percent: u64,
    /// Free share up to which they are dropped. Below `reserve_percent`, so that no copy is made
    /// there at once again.
    pub relieved_percent: u64,
    /// Objects that expire sooner get no copy: they would outlive a notice that comes now.
    pub expires_soon: Millis,
    /// Expected life below which the budget shrinks.
    pub life_min: Millis,
    /// Share of the budget that is left when the expected life is over: the notice may be shorter
    /// than promised and others may come with it.
    pub dying_percent: u64,
}

impl Default for ExposureConfig {
    fn default() -> Self {
        Self {
            is_on: true,
            high_percent: 85,
            low_percent: 75,
            needless_percent: 30,
            drop_percent: 50,
            reserve_percent: 25,
            scarce_percent: 12,
            relieved_percent: 16,
            expires_soon: NOTICE_MIN,
            life_min: Millis::from_secs(30 * 60),
            dying_percent: 50,
        }
    }
}

/// The need of a node: whether copies of its blocks must be made or may be dropped, so that its
/// exposure is within the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It is well within the budget.
    Nothing,
    /// So many bytes need a copy.
    Copy {
        /// The bytes.
        bytes: u64,
        /// Whether a notice that came now could not be met.
        is_over: bool,
    },
    /// So many bytes have a copy that is not needed.
    Drop {
        /// The bytes.
        bytes: u64,
    },
}

impl ExposureConfig {
    /// Returns the bytes that may be on this node alone: less than the link allows when its end is
    /// near, and none when its cloud recommends to leave it.
    #[must_use]
    pub fn budget_bytes(&self, node: &NodeInfo) -> u64 {
        if node.is_at_risk {
            return 0;
        }
        let Some(life) = node.expected_life.filter(|life| *life < self.life_min) else {
            return node.budget_bytes;
        };
        let grown = (100 - self.dying_percent) * life.0 / self.life_min.0.max(1);
        percent(node.budget_bytes, self.dying_percent + grown)
    }

    /// Returns the exposure above which a node's blocks get copies. `is_copying`: they get them
    /// already.
    fn copies_from_bytes(&self, node: &NodeInfo, is_copying: bool) -> u64 {
        let share = if is_copying { self.low_percent } else { self.high_percent };
        percent(self.budget_bytes(node), share)
    }

    /// Returns how many bytes of copies may be dropped without the need to make them again at once.
    /// `is_copying`: whether the node required copies at the previous look.
    #[must_use]
    pub fn spare_bytes(&self, node: &NodeInfo, is_copying: bool) -> u64 {
        self.copies_from_bytes(node, is_copying).saturating_sub(node.exposure_bytes)
    }

    /// Returns whether a node needs more copies, may drop some, or neither. `is_copying`: whether
    /// it required copies at the previous look; copying ends at a lower exposure than it begins.
    #[must_use]
    pub fn need(&self, node: &NodeInfo, is_copying: bool) -> Need {
        let budget = self.budget_bytes(node);
        let exposure = node.exposure_bytes;
        let low = percent(budget, self.low_percent);
        debug_assert!(self.low_percent <= self.high_percent, "copying ends below its begin");
        debug_assert!(self.drop_percent <= self.low_percent, "what is dropped is not copied again");
        if exposure > self.copies_from_bytes(node, is_copying) {
            return match self.is_on {
                true => Need::Copy { bytes: exposure - low, is_over: exposure > budget },
                false => Need::Nothing,
            };
        }
        if exposure < percent(budget, self.needless_percent) && exposure < node.home_bytes {
            let bytes = percent(budget, self.drop_percent) - exposure;
            return Need::Drop { bytes: bytes.min(node.home_bytes - exposure) };
        }
        Need::Nothing
    }

    /// Returns whether a block may get a copy: it has ended, has none, and is worth one.
    #[must_use]
    pub fn may_copy(&self, candidate: &MoveCandidate) -> bool {
        !candidate.is_open
            && candidate.length > 0
            && candidate.copy.is_none()
            && candidate.reserved_to.is_none()
            && candidate.tier != Tier::Object
            && candidate.expires_in.is_none_or(|left| left > self.expires_soon)
    }

    /// Returns the bytes that copies may still take of a tier.
    #[must_use]
    pub fn room_bytes(&self, tier: Tier, capacity: u64, used: u64) -> u64 {
        let free = capacity.saturating_sub(used);
        // No reserve in a store outside of the fleet: writes and drains do not depend on its room.
        let kept = if tier == Tier::Object { 0 } else { percent(capacity, self.reserve_percent) };
        free.saturating_sub(kept)
    }

    /// Returns the bytes of copies that must leave a tier so that writers and drains find room.
    #[must_use]
    pub fn scarce_bytes(&self, tier: Tier, capacity: u64, used: u64, copies: u64) -> u64 {
        let free = capacity.saturating_sub(used);
        if tier == Tier::Object || free >= percent(capacity, self.scarce_percent) {
            return 0;
        }
        debug_assert!(self.relieved_percent >= self.scarce_percent, "dropping copies helps");
        debug_assert!(
            self.relieved_percent <= self.reserve_percent,
            "a copy that was dropped for its room is not made again there"
        );
        (percent(capacity, self.relieved_percent) - free).min(copies)
    }
}

/// A block's place in the order in which blocks get copies: the one that changed longest ago first,
/// because what is old is read and deleted later than what is new; of equal ones those with the
/// highest recompute cost, then the longest, then by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Coldness {
    idle: Reverse<Millis>,
    recompute_millis_per_mib: Reverse<u64>,
    length: Reverse<u32>,
    block: BlockId,
}

impl From<&MoveCandidate> for Coldness {
    fn from(candidate: &MoveCandidate) -> Self {
        Self {
            idle: Reverse(candidate.idle),
            recompute_millis_per_mib: Reverse(candidate.recompute_millis_per_mib),
            length: Reverse(candidate.length),
            block: candidate.block,
        }
    }
}

/// Returns the tiers that may hold a block's copy, in the order in which they are tried: its own
/// and the slower ones. A faster tier's room is for clients that requested it.
pub fn copy_tiers(tier: Tier) -> impl Iterator<Item = Tier> {
    std::iter::successors(Some(tier), |tier| tier.slower())
}

/// Returns `share` percent of `bytes`, rounded down.
#[must_use]
pub const fn percent(bytes: u64, share: u64) -> u64 {
    // Divided first: bytes may be a petabyte, and no share needs its last hundred.
    if bytes < 1 << 50 { bytes * share / 100 } else { bytes / 100 * share }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relocation::tests::{candidate, node};

    fn exposed(exposure: u64, budget: u64) -> NodeInfo {
        NodeInfo {
            exposure_bytes: exposure,
            home_bytes: exposure,
            budget_bytes: budget,
            ..node(1, 10_000)
        }
    }

    #[test]
    fn copying_begins_near_the_budget_and_ends_well_below_it() {
        let config = ExposureConfig::default();
        assert_eq!(config.need(&exposed(850, 1000), false), Need::Nothing);
        let begun = Need::Copy { bytes: 101, is_over: false };
        assert_eq!(config.need(&exposed(851, 1000), false), begun);
        assert_eq!(config.need(&exposed(760, 1000), false), Need::Nothing);
        let goes_on = Need::Copy { bytes: 10, is_over: false };
        assert_eq!(config.need(&exposed(760, 1000), true), goes_on);
        assert_eq!(config.need(&exposed(750, 1000), true), Need::Nothing);
        let over = Need::Copy { bytes: 2250, is_over: true };
        assert_eq!(config.need(&exposed(3000, 1000), false), over);
    }

    #[test]
    fn copies_that_may_go_are_not_made_again() {
        let config = ExposureConfig::default();
        for (exposure, is_copying) in [(0, false), (700, false), (700, true), (800, false)] {
            let node = exposed(exposure, 1000);
            let spare = config.spare_bytes(&node, is_copying);
            let without = exposed(exposure + spare, 1000);
            assert_eq!(config.need(&without, is_copying), Need::Nothing, "at {exposure}");
        }
        assert_eq!(config.spare_bytes(&exposed(800, 1000), true), 0);
        assert_eq!(config.spare_bytes(&exposed(900, 1000), false), 0);
    }

    #[test]
    fn node_at_risk_may_have_nothing_alone_and_a_short_life_shrinks_the_budget() {
        let config = ExposureConfig::default();
        let mut at_risk = exposed(10, 1000);
        at_risk.is_at_risk = true;
        assert_eq!(config.need(&at_risk, false), Need::Copy { bytes: 10, is_over: true });
        let mut dying = exposed(10, 1000);
        dying.expected_life = Some(Millis(0));
        assert_eq!(config.budget_bytes(&dying), 500);
        dying.expected_life = Some(Millis::from_secs(15 * 60));
        assert_eq!(config.budget_bytes(&dying), 750);
        dying.expected_life = Some(Millis::from_secs(3600));
        assert_eq!(config.budget_bytes(&dying), 1000);
    }

    #[test]
    fn copies_far_below_the_budget_go_and_are_not_made_again() {
        let config = ExposureConfig::default();
        let mut node = exposed(100, 1000);
        assert_eq!(config.need(&node, false), Need::Nothing, "it has no copies");
        node.home_bytes = 2000;
        assert_eq!(config.need(&node, false), Need::Drop { bytes: 400 });
        node.exposure_bytes = 500;
        assert_eq!(config.need(&node, false), Need::Nothing);
    }

    #[test]
    fn only_ended_lasting_blocks_without_copy_or_reservation_get_one() {
        let config = ExposureConfig::default();
        let block = candidate(1, 10);
        assert!(config.may_copy(&block));
        let not = |change: &dyn Fn(&mut MoveCandidate)| {
            let mut block = candidate(1, 10);
            change(&mut block);
            !config.may_copy(&block)
        };
        assert!(not(&|block| block.is_open = true));
        assert!(not(&|block| block.length = 0));
        assert!(not(&|block| block.tier = Tier::Object));
        assert!(not(&|block| block.copy = Some((node(2, 1).id, Tier::Dram))));
        assert!(not(&|block| block.reserved_to = Some((node(2, 1).id, Tier::Dram))));
        assert!(not(&|block| block.expires_in = Some(Millis(30_000))));
    }

    #[test]
    fn coldest_goes_first_then_dearest_then_longest() {
        let block = |id: u64, length: u32, idle: u64, recompute: u64| {
            let mut block = candidate(id, length);
            (block.idle, block.recompute_millis_per_mib) = (Millis(idle), recompute);
            block
        };
        let blocks =
            [block(1, 5, 10, 0), block(2, 5, 90, 0), block(3, 9, 90, 0), block(4, 1, 90, 7)];
        let mut order: Vec<Coldness> = blocks.iter().map(Coldness::from).collect();
        order.sort();
        assert_eq!(order.iter().map(|one| one.block.0).collect::<Vec<_>>(), [4, 3, 2, 1]);
    }

    #[test]
    fn copies_leave_room_for_writers_and_go_where_it_is_scarce() {
        let config = ExposureConfig::default();
        assert_eq!(config.room_bytes(Tier::Dram, 1000, 500), 250);
        assert_eq!(config.room_bytes(Tier::Dram, 1000, 800), 0);
        assert_eq!(config.room_bytes(Tier::Object, 1000, 800), 200);
        assert_eq!(config.scarce_bytes(Tier::Dram, 1000, 880, 500), 0);
        assert_eq!(config.scarce_bytes(Tier::Dram, 1000, 900, 500), 60);
        assert_eq!(config.scarce_bytes(Tier::Dram, 1000, 900, 20), 20);
        assert_eq!(config.scarce_bytes(Tier::Object, 1000, 1000, 20), 0);
        assert_eq!(copy_tiers(Tier::Disk).collect::<Vec<_>>(), [Tier::Disk, Tier::Object]);
    }
}
