//! Which parts of the arena are free: variable-length runs of allocation units.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes of one allocation unit: a page, so that a block's tail wastes at most one.
pub(crate) const UNIT_BYTES: u32 = 4096;

/// A run of allocation units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// First unit.
    pub(crate) start: u32,
    /// Number of units, never zero.
    pub(crate) units: u32,
}

impl Run {
    const fn end(self) -> u32 {
        self.start + self.units
    }
}

/// The free runs, by place and by size. Every operation takes logarithmic time in their number.
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
            allocator.insert(Run { start: 0, units });
            allocator.free_units = units;
        }
        allocator
    }

    pub(crate) const fn free_units(&self) -> u32 {
        self.free_units
    }

    /// Returns the number of free runs: one when nothing is fragmented.
    pub(crate) fn free_runs(&self) -> usize {
        self.by_start.len()
    }

    /// Takes `units` units: those right after `near` if they are free, else the smallest run that
    /// holds them all, else several runs, the largest first. `None` when fewer units are free.
    pub(crate) fn take(&mut self, units: u32, near: Option<u32>) -> Option<Vec<Run>> {
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
        let mut runs = Vec::new();
        let mut left = units;
        while left > 0 {
            let &(size, start) = self.by_size.last().expect("enough units are free");
            let run = self.cut(start, size.min(left));
            left -= run.units;
            runs.push(run);
        }
        Some(runs)
    }

    /// Gives a run back and joins it with its neighbours.
    ///
    /// # Panics
    /// When part of it is free already: two owners would write the same bytes.
    pub(crate) fn give_back(&mut self, run: Run) {
        self.free_units += run.units;
        let mut joined = run;
        if let Some((&start, &units)) = self.by_start.range(..=run.start).next_back() {
            let before = Run { start, units };
            assert!(before.end() <= run.start, "units {run:?} are given back twice");
            if before.end() == run.start {
                self.remove(before);
                joined = Run { start, units: units + joined.units };
            }
        }
        if let Some((&start, &units)) = self.by_start.range(run.start..).next() {
            assert!(run.end() <= start, "units {run:?} are given back twice");
            if run.end() == start {
                self.remove(Run { start, units });
                joined.units += units;
            }
        }
        self.insert(joined);
    }

    /// Takes every free unit from `end` on out of use, for good. Returns how many those are.
    pub(crate) fn cut_off(&mut self, end: u32) -> u32 {
        let mut units = 0;
        while let Some((&start, &size)) = self.by_start.last_key_value() {
            let run = Run { start, units: size };
            if run.end() <= end {
                break;
            }
            self.remove(run);
            let kept = end.saturating_sub(start);
            if kept > 0 {
                self.insert(Run { start, units: kept });
            }
            units += size - kept;
        }
        self.free_units -= units;
        units
    }

    /// Takes the first `units` units of the free run that starts at `start`.
    fn cut(&mut self, start: u32, units: u32) -> Run {
        let size = *self.by_start.get(&start).expect("a free run starts here");
        self.remove(Run { start, units: size });
        if size > units {
            self.insert(Run { start: start + units, units: size - units });
        }
        self.free_units -= units;
        Run { start, units }
    }

    fn insert(&mut self, run: Run) {
        self.by_start.insert(run.start, run.units);
        self.by_size.insert((run.units, run.start));
    }

    fn remove(&mut self, run: Run) {
        self.by_start.remove(&run.start);
        self.by_size.remove(&(run.units, run.start));
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
        assert_eq!(first, Run { start: 0, units: 10 });
        let next = allocator.take(5, Some(10)).unwrap()[0];
        assert_eq!(next, Run { start: 10, units: 5 });
        let _wall = allocator.take(5, None).unwrap();
        allocator.give_back(next);
        assert_eq!(allocator.take(4, None).unwrap(), [Run { start: 10, units: 4 }]);
    }

    #[test]
    fn fragmented_space_is_used_to_the_last_unit() {
        let mut allocator = Allocator::new(9);
        let runs: Vec<Run> = (0..9).map(|_| allocator.take(1, None).unwrap()[0]).collect();
        assert_eq!(allocator.take(1, None), None);
        for run in runs.iter().step_by(2) {
            allocator.give_back(*run);
        }
        assert_eq!(allocator.free_runs(), 5);
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
        assert_eq!(allocator.take(3, None).unwrap(), [Run { start: 2, units: 3 }]);
        assert_eq!(allocator.cut_off(0), 0);
        allocator.give_back(held);
        assert_eq!(allocator.free_units(), 2);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn giving_back_twice_is_noticed() {
        let mut allocator = Allocator::new(4);
        let run = allocator.take(2, None).unwrap()[0];
        allocator.give_back(run);
        allocator.give_back(run);
    }

    /// One step of the model: take that many units near the last run, or give back the n-th taken.
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
            let mut taken: Vec<Run> = Vec::new();
            for step in steps {
                match step {
                    Step::Take(units, is_near) => {
                        let near = taken.last().filter(|_| is_near).map(|run| run.end());
                        let free = is_taken.iter().filter(|taken| !**taken).count();
                        let runs = allocator.take(units, near);
                        prop_assert_eq!(runs.is_some(), free >= units as usize);
                        for run in runs.unwrap_or_default() {
                            for unit in run.start..run.end() {
                                prop_assert!(!is_taken[unit as usize]);
                                is_taken[unit as usize] = true;
                            }
                            taken.push(run);
                        }
                    }
                    Step::GiveBack(which) => {
                        if taken.is_empty() {
                            continue;
                        }
                        let run = taken.swap_remove(which % taken.len());
                        is_taken[run.start as usize..run.end() as usize].fill(false);
                        allocator.give_back(run);
                    }
                }
                let free = is_taken.iter().filter(|taken| !**taken).count();
                prop_assert_eq!(allocator.free_units() as usize, free);
                let edges = is_taken.chunk_by(|a, b| a == b).filter(|run| !run[0]).count();
                prop_assert_eq!(allocator.free_runs(), edges);
            }
        }
    }
}
