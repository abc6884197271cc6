//! Which founding of its group a member is of.

use std::fmt;

use sanderling_protocol::{Refusal, refusal::generation_name};
use serde::{Deserialize, Serialize};

/// Bits of a term that count within one generation: elections since the group was begun, on top of
/// what distinguishes it from another one that follows the same generation. Of the first it is
/// when it began, in seconds since 1970, of later ones a random number.
const TERM_BITS: u32 = 32;

/// Such a random number is below: as many elections are left.
const DRAW_MAX: u64 = 1 << 31;

/// One founding of a group: the first of a cluster, or a later one that continues from an archive
/// or from a surviving directory after the majority was lost.
///
/// It is the first term of the group, so that every term of an older generation is below every term
/// of a later one: whoever compares terms refuses older generations, too. Two recoveries from the
/// same generation have the same number. Neither is the later one, and each refuses the other.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct GroupGeneration(pub u64);

impl GroupGeneration {
    /// Returns the generation of a cluster's first group, founded so many seconds after 1970.
    #[must_use]
    pub fn first(unix_seconds: u64) -> Self {
        Self(unix_seconds.clamp(1, u64::from(u32::MAX)))
    }

    /// Returns the generation that follows this one. `draw` is random: two that follow the same
    /// one differ, but for one pair in 2^31.
    #[must_use]
    pub fn next(self, draw: u64) -> Self {
        Self((self.number() + 1) << TERM_BITS | (draw % DRAW_MAX).max(1))
    }

    /// Returns whether it follows another one. Two of the same number differ by accident: neither
    /// does. Of those without a recovery the one that began later does.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        match self.number() == 0 && other.number() == 0 {
            true => self.0 > other.0,
            false => self.number() > other.number(),
        }
    }

    /// Decides whether a process of this generation calls a namenode of another one, or is
    /// called by it. Returns whether that one is a later one. A process that has none takes any;
    /// a namenode that names none was never in a group, or is of the release before.
    ///
    /// # Errors
    /// [`Refusal::OtherGeneration`]: it was left behind, or another recovery has begun it. Call the
    /// other one no more, or refuse its call.
    pub fn meets(self, theirs: Self) -> Result<bool, Refusal> {
        if self.0 == 0 || theirs.0 == 0 || self == theirs {
            return Ok(theirs.0 > self.0);
        }
        match theirs.is_after(self) {
            true => Ok(true),
            false => Err(Refusal::OtherGeneration { here: self.0, asked: theirs.0 }),
        }
    }

    /// Returns how many generations of the group there were before this one.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 >> TERM_BITS
    }

    /// Returns how many generations of the group there were before the one to which a term belongs.
    #[must_use]
    pub const fn number_of_term(term: u64) -> u64 {
        Self(term).number()
    }

    /// Returns the term of this generation's first leader.
    #[must_use]
    pub const fn first_term(self) -> u64 {
        self.0
    }
}

impl fmt::Display for GroupGeneration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&generation_name(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_term_of_a_later_generation_is_above_those_of_an_older_one() {
        let first = GroupGeneration::first(1_800_000_000);
        // The clock of the machine that recovers may be wrong.
        let second = first.next(0);
        assert_eq!((first.number(), second.number()), (0, 1));
        let elections = 1 << 31;
        assert!(first.first_term() + elections < second.first_term());
        assert!(second < second.next(1) && first.next(5) != first.next(6));
        let longest = first.next(u64::MAX);
        assert!(longest.first_term() + elections < longest.next(0).first_term());
        assert_eq!(GroupGeneration::number_of_term(second.first_term() + elections), 1);
        assert_eq!(GroupGeneration::default().next(7).number(), 1);
    }

    #[test]
    fn two_recoveries_of_one_generation_refuse_each_other() {
        let first = GroupGeneration::first(1_800_000_000);
        let (one, other) = (first.next(5), first.next(6));
        for (known, theirs) in [(one, other), (other, one)] {
            assert!(!known.is_after(theirs));
            let refusal = known.meets(theirs).unwrap_err();
            assert!(refusal.to_string().contains(&theirs.to_string()), "{refusal}");
        }
        assert_eq!(one.meets(one), Ok(false));
        assert_eq!((first.meets(one), one.meets(first).is_err()), (Ok(true), true));
        assert_eq!((other.next(1).is_after(one), one.meets(other.next(1))), (true, Ok(true)));
        // One that names none, and one that knows none.
        let none = GroupGeneration::default();
        assert_eq!(
            (one.meets(none), none.meets(one), none.meets(none)),
            (Ok(false), Ok(true), Ok(false))
        );
        // A group that was founded again without a recovery: of a directory that was restored.
        let again = GroupGeneration::first(1_800_000_001);
        assert_eq!((first.meets(again), again.meets(first).is_err()), (Ok(true), true));
    }
}
