//! The reserve: room that new blocks leave free, so that nodes can leave without a loss.
//!
//! When nodes leave, the relocator puts each of their blocks wherever one fits: in its own tier,
//! else in a slower one, else in a faster one, of any node that takes blocks; copies made ahead and
//! reservations without a drain give way to it. So what must fit into the tiers of the nodes that
//! stay is all that is stored, wherever it is now. Which of the nodes leave matters only by how
//! much capacity leaves with them, and the largest are the worst case.
//!
//! A block is never split. A tier that refuses a block has less room than the block is long, so at
//! most one block's bytes of each tier stay unused while anything is without a place.

use sanderling_protocol::Tier;
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use serde::{Deserialize, Serialize};

/// From how many nodes on one of them may leave, where none was configured. With fewer, half of
/// the room or all of it would have to stay free.
pub const NODES_MIN: usize = 3;

/// The number of nodes that must be able to leave at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Departures {
    /// Not configured: the log is older than the reserve. Nothing is kept.
    #[default]
    Unset,
    /// One from [`NODES_MIN`] nodes on, none before. What leaves already keeps its room.
    Default,
    /// So many. With 0 nothing is kept, not even for what leaves already.
    Fixed(u32),
}

/// What the reserve needs to know of a node that takes blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct SpaceTaker {
    /// Bytes of memory and disk that surely can be used.
    own: u64,
    /// Bytes of memory, disk and object tier that surely can be used.
    all: u64,
    /// The largest tier.
    tier: u64,
    /// Whether it has the object tier.
    is_adopter: bool,
}

/// The bytes that the fleet can hold, now and when its largest nodes have left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FleetCapacity {
    /// Nodes that must be able to leave.
    pub departures: u32,
    /// Size of all tiers of the nodes that take blocks.
    pub capacity: u64,
    /// Whether there is a bound at all.
    is_bound: bool,
    /// What memory and disks surely hold then.
    own: u64,
    /// What memory, disks and object tiers surely hold then.
    all: u64,
    /// The largest tier that is left then.
    tier: u64,
    /// Whether a node with the object tier is left then.
    has_adopter: bool,
}

impl FleetCapacity {
    /// Looks at the tiers of the nodes that take blocks. `is_leaving`: others drain and still hold
    /// something. Cost: linear in the nodes, but for a sort.
    pub fn of<T>(departures: Departures, is_leaving: bool, takers: T) -> Self
    where
        T: Iterator<Item: Iterator<Item = (Tier, u64)>>,
    {
        let mut capacity = 0_u64;
        let takers: Vec<SpaceTaker> = takers
            .map(|tiers| {
                let mut taker = SpaceTaker::default();
                for (tier, bytes) in tiers {
                    capacity = capacity.saturating_add(bytes);
                    taker.add(tier, bytes);
                }
                taker
            })
            .collect();
        let leave = match departures {
            Departures::Unset => 0,
            Departures::Default => u32::from(takers.len() >= NODES_MIN),
            Departures::Fixed(count) => count,
        };
        let is_bound = leave > 0 || (is_leaving && departures == Departures::Default);
        let leave_at_most = usize::try_from(leave).unwrap_or(usize::MAX);
        let tiers = largest_first(&takers, |taker| taker.tier);
        Self {
            departures: leave,
            capacity,
            is_bound,
            own: without_largest(&takers, leave_at_most, |taker| taker.own),
            all: without_largest(&takers, leave_at_most, |taker| taker.all),
            tier: tiers.get(leave_at_most).copied().unwrap_or(0),
            has_adopter: takers.iter().filter(|taker| taker.is_adopter).count() > leave_at_most,
        }
    }

    /// Returns how many bytes may be stored outside of the object tier, with `stored` in it; `None`
    /// without a bound.
    #[must_use]
    pub fn limit(&self, stored: u64) -> Option<u64> {
        // In turn: the object tier goes on with what is in it; everything shares all tiers; one
        // tier holds it all.
        debug_assert!(self.own <= self.all, "the object tier adds room");
        debug_assert!(self.all <= self.capacity, "what can surely be used is there");
        let apart = if self.has_adopter || stored == 0 { self.own } else { 0 };
        let together = self.all.max(self.tier).saturating_sub(stored);
        self.is_bound.then_some(apart.max(together))
    }
}

impl SpaceTaker {
    fn add(&mut self, tier: Tier, bytes: u64) {
        let usable = bytes.saturating_sub(u64::from(BLOCK_BYTES_MAX));
        self.all = self.all.saturating_add(usable);
        self.tier = self.tier.max(bytes);
        match tier {
            Tier::Object => self.is_adopter = true,
            Tier::Dram | Tier::Disk => self.own = self.own.saturating_add(usable),
        }
    }
}

fn largest_first(takers: &[SpaceTaker], of: impl Fn(&SpaceTaker) -> u64) -> Vec<u64> {
    let mut sizes: Vec<u64> = takers.iter().map(of).collect();
    sizes.sort_unstable_by(|first, second| second.cmp(first));
    sizes
}

fn without_largest(takers: &[SpaceTaker], leave: usize, of: impl Fn(&SpaceTaker) -> u64) -> u64 {
    largest_first(takers, of).into_iter().skip(leave).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn fleet(departures: Departures, memories: &[u64]) -> FleetCapacity {
        let tiers = memories.iter().map(|mib| std::iter::once((Tier::Dram, mib * MIB)));
        FleetCapacity::of(departures, false, tiers)
    }

    #[test]
    fn fewer_than_three_nodes_keep_nothing_by_default() {
        for count in 0..3 {
            let few = fleet(Departures::Default, &vec![16; count]);
            assert_eq!((few.departures, few.limit(0)), (0, None), "{count} nodes");
        }
        let three = fleet(Departures::Default, &[16; 3]);
        assert_eq!((three.departures, three.limit(0)), (1, Some(30 * MIB)));
        assert_eq!(fleet(Departures::Fixed(0), &[16; 9]).limit(0), None);
        assert_eq!(fleet(Departures::Unset, &[16; 9]).limit(0), None);
        assert_eq!(fleet(Departures::Fixed(2), &[16; 2]).limit(0), Some(0));
    }

    #[test]
    fn the_largest_nodes_are_those_that_leave() {
        let mixed = [16, 256, 16, 32, 16];
        assert_eq!(fleet(Departures::Fixed(1), &mixed).limit(0), Some((15 * 3 + 31) * MIB));
        assert_eq!(fleet(Departures::Fixed(2), &mixed).limit(0), Some(15 * 3 * MIB));
        assert_eq!(fleet(Departures::Fixed(5), &mixed).limit(0), Some(0));
    }

    #[test]
    fn tiers_shorter_than_a_block_hold_what_fits_into_one_of_them() {
        let small = std::iter::repeat_n(std::iter::once((Tier::Dram, MIB)), 4);
        let fleet = FleetCapacity::of(Departures::Fixed(1), false, small);
        assert_eq!(fleet.limit(0), Some(MIB));
    }

    #[test]
    fn slower_tiers_are_room_and_the_object_tier_goes_on_without_its_node() {
        let tiers = [(Tier::Dram, 11 * MIB), (Tier::Disk, 21 * MIB), (Tier::Object, 101 * MIB)];
        let nodes = std::iter::repeat_n(tiers.into_iter(), 3);
        let fleet = FleetCapacity::of(Departures::Default, false, nodes);
        assert_eq!(fleet.capacity, 3 * 133 * MIB);
        assert_eq!(fleet.limit(0), Some(2 * 130 * MIB));
        assert_eq!(fleet.limit(150 * MIB), Some(110 * MIB));
        assert_eq!(fleet.limit(900 * MIB), Some(60 * MIB), "it needs no room elsewhere");
        let alone = FleetCapacity::of(
            Departures::Fixed(3),
            false,
            std::iter::repeat_n(tiers.into_iter(), 3),
        );
        assert_eq!(alone.limit(9 * MIB), Some(0));
    }

    #[test]
    fn what_leaves_already_keeps_its_room_in_a_fleet_of_two() {
        let two = || std::iter::repeat_n(std::iter::once((Tier::Dram, 16 * MIB)), 2);
        assert_eq!(FleetCapacity::of(Departures::Default, true, two()).limit(0), Some(30 * MIB));
        assert_eq!(FleetCapacity::of(Departures::Fixed(0), true, two()).limit(0), None);
    }
}
