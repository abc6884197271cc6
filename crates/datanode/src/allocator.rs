//! Which parts of the arena are free: variable-length extents of allocation units.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::limits::ALLOCATION_UNIT_BYTES;

/// Bytes of one allocation unit.
pub(crate) const UNIT_BYTES: u32 = ALLOCATION_UNIT_BYTES;

/// An extent of allocation units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitExtent {
    /// First unit.
    pub(crate) start: u32,
    /// Number of units, never zero.
    pub(crate) units: u32,
}

impl UnitExtent {
    const fn end(self) -> u32 {
        self.start + self.units
    }
}

/// The free extents, by place and by size. Every operation takes logarithmic time in their number.
#[derive(Debug, Default)]
pub(crate) struct Allocator {
    by_start: BTreeMap<u32, u32>,
    by_size: BTreeSet<(u32, u32)>,
    free_units: u32,
}

impl Allocator {
    /// Begins with `units` free units.
    pub(crate) fn new(units: u32) -> Self {
        let mut allocator = Self::default();
        if units > 0 {
            allocator.insert(UnitExtent { start: 0, units });
            allocator.free_units = units;
        }
        allocator
    }

    pub(crate) const fn free_units(&self) -> u32 {
        self.free_units
    }

    /// Returns the number of free extents: one when nothing is fragmented.
    pub(crate) fn free_extents(&self) -> usize {
        self.by_start.len()
    }

    /// Takes `units` units: those right after `near` if they are free, else the smallest extent
    /// that holds them all, else several extents, the largest first. `None` when fewer units are
    /// free.
    pub(crate) fn take(&mut self, units: u32, near: Option<u32>) -> Option<Vec<UnitExtent>> {
        if units == 0 || units > self.free_units {
            return None;
        }
        if let Some(near) = near
            && self.by_start.get(&near).is_some_and(|free| *free >= units)
        {
            return Some(vec![self.cut(near, units)]);
        }
        if let Some(&(_, start)) = self.by_size.range((units, 0)..).next() {
            return Some(vec![self.cut(start, units)]);
        }
        let mut extents = Vec::new();
        let mut left = units;
        while left > 0 {
            let &(size, start) = self.by_size.last().expect("enough units are free");
            let extent = self.cut(start, size.min(left));
            left -= extent.units;
            extents.push(extent);
        }
        Some(extents)
    }

    /// Gives an extent back and joins it with its neighbours.
    ///
    /// # Panics
    /// When part of it is free already: two owners would write the same bytes.
    pub(crate) fn give_back(&mut self, extent: UnitExtent) {
        self.free_units += extent.units;
        let mut joined = extent;
        if let Some((&start, &units)) = self.by_start.range(..=extent.start).next_back() {
            let before = UnitExtent { start, units };
            assert!(before.end() <= extent.start, "units {extent:?} are given back twice");
            if before.end() == extent.start {
                self.remove(before);
                joined = UnitExtent { start, units: units + joined.units };
            }
        }
        if let Some((&start, &units)) = self.by_start.range(extent.start..).next() {
            assert!(extent.end() <= start, "units {extent:?} are given back twice");
            if extent.end() == start {
                self.remove(UnitExtent { start, units });
                joined.units += units;
            }
        }
        self.insert(joined);
    }

    /// Takes every free unit from `end` on out of use, for good. Returns how many those are.
    pub(crate) fn cut_off(&mut self, end: u32) -> u32 {
        let mut units = 0;
        while let Some((&start, &size)) = self.by_start.last_key_value() {
            let extent = UnitExtent { start, units: size };
            if extent.end() <= end {
                break;
            }
            self.remove(extent);
            let kept = end.saturating_sub(start);
            if kept > 0 {
                self.insert(UnitExtent { start, units: kept });
            }
            units += size - kept;
        }
        self.free_units -= units;
        units
    }

    /// Takes the first `units` units of the free extent that starts at `start`.
    fn cut(&mut self, start: u32, units: u32) -> UnitExtent {
        let size = *self.by_start.get(&start).expect("a free extent starts here");
        self.remove(UnitExtent { start, units: size });
        if size > units {
            self.insert(UnitExtent { start: start + units, units: size - units });
        }
        self.free_units -= units;
        UnitExtent { start, units }
    }

    fn insert(&mut self, extent: UnitExtent) {
        self.by_start.insert(extent.start, extent.units);
        self.by_size.insert((extent.units, extent.start));
    }

    fn remove(&mut self, extent: UnitExtent) {
        self.by_start.remove(&extent.start);
        self.by_size.remove(&(extent.units, extent.start));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn space_near_is_preferred_then_the_smallest_that_fits() {
        let mut allocator = Allocator::new(100);
        let first = allocator.take(10, None).unwrap()[0];
        assert_eq!(first, UnitExtent { start: 0, units: 10 });
        let next = allocator.take(5, Some(10)).unwrap()[0];
        assert_eq!(next, UnitExtent { start: 10, units: 5 });
        let _wall = allocator.take(5, None).unwrap();
        allocator.give_back(next);
        assert_eq!(allocator.take(4, None).unwrap(), [UnitExtent { start: 10, units: 4 }]);
    }

    #[test]
    fn fragmented_space_is_used_to_the_last_unit() {
        let mut allocator = Allocator::new(9);
        let extents: Vec<UnitExtent> =
            (0..9).map(|_| allocator.take(1, None).unwrap()[0]).collect();
        assert_eq!(allocator.take(1, None), None);
        for extent in extents.iter().step_by(2) {
            allocator.give_back(*extent);
        }
        assert_eq!(allocator.free_extents(), 5);
        assert_eq!(allocator.take(6, None), None);
        assert_eq!(allocator.take(5, None).unwrap().len(), 5);
        assert_eq!(allocator.free_units(), 0);
    }

    #[test]
    fn units_that_are_cut_off_are_never_taken() {
        let mut allocator = Allocator::new(10);
        let held = allocator.take(2, None).unwrap()[0];
        assert_eq!(allocator.cut_off(5), 5);
        assert_eq!(allocator.take(4, None), None);
        assert_eq!(allocator.take(3, None).unwrap(), [UnitExtent { start: 2, units: 3 }]);
        assert_eq!(allocator.cut_off(0), 0);
        allocator.give_back(held);
        assert_eq!(allocator.free_units(), 2);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn giving_back_twice_is_noticed() {
        let mut allocator = Allocator::new(4);
        let extent = allocator.take(2, None).unwrap()[0];
        allocator.give_back(extent);
        allocator.give_back(extent);
    }

    /// One step of the model: take that many units near the last extent, or give back the n-th
    /// taken.
    #[derive(Debug, Clone)]
    enum Step {
        Take(u32, bool),
        GiveBack(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1..40_u32, any::<bool>()).prop_map(|(units, near)| Step::Take(units, near)),
            any::<usize>().prop_map(Step::GiveBack),
        ];
        prop::collection::vec(step, 1..300)
    }

    proptest! {
        #[test]
        fn allocator_agrees_with_a_bitmap(steps in steps()) {
            const UNITS: u32 = 256;
            let mut allocator = Allocator::new(UNITS);
            let mut is_taken = [false; UNITS as usize];
            let mut taken: Vec<UnitExtent> = Vec::new();
            for step in steps {
                match step {
                    Step::Take(units, is_near) => {
                        let near = taken.last().filter(|_| is_near).map(|extent| extent.end());
                        let free = is_taken.iter().filter(|taken| !**taken).count();
                        let extents = allocator.take(units, near);
                        prop_assert_eq!(extents.is_some(), free >= units as usize);
                        for extent in extents.unwrap_or_default() {
                            for unit in extent.start..extent.end() {
                                prop_assert!(!is_taken[unit as usize]);
                                is_taken[unit as usize] = true;
                            }
                            taken.push(extent);
                        }
                    }
                    Step::GiveBack(which) => {
                        if taken.is_empty() {
                            continue;
                        }
                        let extent = taken.swap_remove(which % taken.len());
                        is_taken[extent.start as usize..extent.end() as usize].fill(false);
                        allocator.give_back(extent);
                    }
                }
                let free = is_taken.iter().filter(|taken| !**taken).count();
                prop_assert_eq!(allocator.free_units() as usize, free);
                let edges = is_taken.chunk_by(|a, b| a == b).filter(|extent| !extent[0]).count();
                prop_assert_eq!(allocator.free_extents(), edges);
            }
        }
    }
}
