//! Which of a task's generations is the newest.
//!
//! Numbers of generations rise, and a runner writes one only if its number is absent. But the
//! request of a runner that has lost the lock may be on its way still, and be served after the next
//! runner has stored a generation with a lower number. So the number of the lock, which is in each
//! manifest, goes before that of the generation.

use std::collections::{BTreeMap, BTreeSet};

/// The place of a generation among those of its task: the newest one has the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GenerationRank {
    lock: u64,
    number: u64,
}

impl GenerationRank {
    /// The highest rank.
    pub const MAX: Self = Self { lock: u64::MAX, number: u64::MAX };

    /// Ranks the generations of a task, each with its number and that of its lock. One whose
    /// manifest shows no lock, as it was written by an earlier release or cannot be read, counts as
    /// written under the highest lock of those with lower numbers.
    #[must_use]
    pub fn of_all(found: impl IntoIterator<Item = (u64, Option<u64>)>) -> BTreeMap<u64, Self> {
        let found: BTreeSet<(u64, Option<u64>)> = found.into_iter().collect();
        let mut highest = 0;
        let ranked = found.into_iter().map(|(number, shown)| {
            let lock = shown.unwrap_or(highest);
            highest = highest.max(lock);
            (number, Self { lock, number })
        });
        ranked.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of generations, the newest first.
    fn newest_first(found: &[(u64, Option<u64>)]) -> Vec<u64> {
        let ranks = GenerationRank::of_all(found.iter().copied());
        let mut ranked: Vec<(u64, GenerationRank)> = ranks.into_iter().collect();
        ranked.sort_unstable_by(|(_, one), (_, other)| other.cmp(one));
        ranked.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn lock_goes_before_the_number() {
        let found = [(4, Some(1)), (6, Some(1)), (5, Some(2)), (7, Some(2))];
        assert_eq!(newest_first(&found), [7, 5, 6, 4]);
        assert!(GenerationRank::of_all(found)[&7] < GenerationRank::MAX);
    }

    #[test]
    fn generation_without_a_lock_follows_those_with_lower_numbers() {
        assert_eq!(newest_first(&[(1, None), (2, None)]), [2, 1]);
        // One of an earlier release, or one that cannot be read, is not passed over for its number.
        assert_eq!(newest_first(&[(4, Some(2)), (5, Some(1)), (6, None)]), [6, 4, 5]);
        assert_eq!(newest_first(&[(1, None), (2, Some(3)), (3, None), (4, Some(4))]), [4, 3, 2, 1]);
    }
}
