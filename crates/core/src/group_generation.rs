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

/// Largest number of a generation: members refuse terms from 2^62 on (`NUMBER_MAX` of the replica's
/// `guard`).
const NUMBER_MAX: u64 = (1 << (62 - TERM_BITS)) - 1;

/// The beginning of 2020 in seconds since 1970, from which the numbers of restores are counted.
const EPOCH: u64 = 1_577_836_800;

/// Largest number that a clock gives, in the year 2053. A wrong clock may show any time: so many
/// recoveries and restores are left after it.
const CLOCK_MAX: u64 = NUMBER_MAX - (1 << 20);

/// One founding of a group: the first of a cluster, or a later one that continues from an archive,
/// from a surviving directory or from a backup after the majority was lost.
///
/// It is the first term of the group, so that every term of an older generation is below every term
/// of a later one: whoever compares terms refuses older generations, too. Two recoveries from the
/// same generation have the same number. Neither is the later one, and each refuses the other. A
/// restore skips numbers, because recoveries may have followed its backup.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct GroupGeneration(pub u64);

impl GroupGeneration {
    /// The largest number that a generation can follow: the one after it is the last.
    pub const NUMBER_FOLLOWED_MAX: u64 = NUMBER_MAX - 1;

    /// Returns the generation of a cluster's first group, founded so many seconds after 1970.
    #[must_use]
    pub fn first(unix_seconds: u64) -> Self {
        Self(unix_seconds.clamp(1, u64::from(u32::MAX)))
    }

    /// Returns the generation that follows this one. `draw` is random: two that follow the same
    /// one differ, but for one pair in 2^31.
    #[must_use]
    pub fn next(self, draw: u64) -> Self {
        Self::numbered(self.number() + 1, draw)
    }

    /// Returns the generation that follows this one and that of a number.
    #[must_use]
    pub fn next_after(self, number: u64, draw: u64) -> Self {
        Self::numbered(self.number().max(number) + 1, draw)
    }

    /// Returns the generation that a restore begins so many seconds after 1970 from a state of this
    /// one. It follows this one and those that have begun since: recoveries count up by one, and
    /// each earlier restore has the number of an earlier second.
    #[must_use]
    pub fn after_restore(self, unix_seconds: u64, draw: u64) -> Self {
        let by_clock = unix_seconds.saturating_sub(EPOCH).min(CLOCK_MAX);
        Self::numbered(by_clock.max(self.number() + 1), draw)
    }

    fn numbered(number: u64, draw: u64) -> Self {
        Self(number.min(NUMBER_MAX) << TERM_BITS | (draw % DRAW_MAX).max(1))
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

    /// Returns the number of this generation: how many of the group there were before it. From a
    /// restore on it is at least the seconds from 2020 until then.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 >> TERM_BITS
    }

    /// Returns the number of the generation to which a term belongs.
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

/// The generations that a restore of a backup finds. Each is the default if there was no group, and
/// `None` if there may have been one of any generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundGenerations {
    /// The generation of the namenode that the backup was taken of.
    pub backup: Option<GroupGeneration>,
    /// The generation of the directory into which it is restored.
    pub directory: Option<GroupGeneration>,
    /// The latest one that the directory is known to have begun, also where its own is not known.
    pub begun: GroupGeneration,
}

/// What a restored directory is: that of a namenode alone, or of a new generation of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredGeneration {
    /// That of a namenode alone, of no generation. A group that it founds follows this one: the
    /// cluster may have become a group after the backup.
    Alone(GroupGeneration),
    /// That of a namenode which begins this generation.
    Anew(GroupGeneration),
}

impl FoundGenerations {
    /// Decides what is restored so many seconds after 1970. Datanodes and clients that remember a
    /// group accept what is restored, and refuse older members as after a recovery. If neither the
    /// backup nor the directory is of a group, a namenode alone stays one: its archive is recovered
    /// without beginning a group.
    #[must_use]
    pub fn restored(self, unix_seconds: u64, draw: u64) -> RestoredGeneration {
        let none = GroupGeneration::default();
        let copy = self.backup.unwrap_or(none).max(self.directory.unwrap_or(none));
        let latest = copy.max(self.begun);
        let later = latest.after_restore(unix_seconds, draw);
        match (self.backup, self.directory) == (Some(none), Some(none)) {
            true => RestoredGeneration::Alone(later),
            false => RestoredGeneration::Anew(later),
        }
    }
}

impl RestoredGeneration {
    /// Returns the generation that begins; the default for a namenode alone.
    #[must_use]
    pub fn begun(self) -> GroupGeneration {
        match self {
            Self::Alone(_) => GroupGeneration::default(),
            Self::Anew(generation) => generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn restored_generation_follows_all_that_began_after_the_backup() {
        let first = GroupGeneration::first(NOW - 5000);
        let recovered = first.next(7);
        let later = recovered.next(8).next(9);
        let restored = first.after_restore(NOW, 3);
        for before in [GroupGeneration::default(), first, recovered, later] {
            assert_eq!(before.meets(restored), Ok(true), "{before}");
            assert!(before.first_term() + (1 << 31) < restored.first_term(), "{before}");
        }
        assert!(recovered.meets(restored).is_ok() && restored.meets(recovered).is_err());
        // The same backup once more, and a recovery after the restore.
        assert_eq!(restored.meets(first.after_restore(NOW + 1, 3)), Ok(true));
        assert_eq!(restored.meets(restored.next(1)), Ok(true));
        // The clock is behind: what the restore was given is left behind nevertheless.
        assert_eq!(restored.meets(restored.after_restore(5, 3)), Ok(true));
        // Another restore in the same second is another recovery.
        assert!(restored.meets(first.after_restore(NOW, 4)).is_err());
        // The clock is far ahead: there are generations left, and members take their terms.
        let ahead = first.after_restore(u64::MAX, 3);
        assert_eq!((ahead.meets(ahead.next(1)), ahead.is_after(restored)), (Ok(true), true));
        let last = GroupGeneration(NUMBER_MAX << TERM_BITS).next(1);
        assert_eq!(last.number(), NUMBER_MAX);
        assert!(last.first_term() + (1 << 31) < 1 << 62, "{last}");
    }

    #[test]
    fn restore_begins_a_generation_unless_there_was_never_a_group() {
        let (none, first) = (GroupGeneration::default(), GroupGeneration::first(NOW));
        let restored = |backup, directory| {
            FoundGenerations { backup, directory, begun: none }.restored(NOW, 3)
        };
        let alone = restored(Some(none), Some(none));
        assert_eq!(alone, RestoredGeneration::Alone(none.after_restore(NOW, 3)));
        assert_eq!(alone.begun(), none);
        let generations = [Some(none), Some(first), Some(first.next(5)), None];
        for backup in generations {
            for directory in generations {
                let found = FoundGenerations { backup, directory, begun: none };
                if (backup, directory) == (Some(none), Some(none)) {
                    continue;
                }
                let begun = found.restored(NOW, 3).begun();
                for before in [backup, directory].into_iter().flatten() {
                    assert_eq!(before.meets(begun), Ok(true), "{found:?}");
                }
                assert_eq!(begun.number(), NOW - EPOCH, "{found:?}");
            }
        }
        // A restore before has the latest number.
        let earlier = first.after_restore(NOW + 10, 3);
        assert_eq!(restored(Some(first), Some(earlier)).begun().number(), earlier.number() + 1);
        // It counts where the directory's own generation is not known.
        let unknown = FoundGenerations { backup: Some(first), directory: None, begun: earlier };
        assert_eq!(unknown.restored(NOW, 3).begun().number(), earlier.number() + 1);
    }

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
        assert_eq!((first.next_after(0, 7), first.next_after(40, 7).number()), (first.next(7), 41));
        assert_eq!(longest.next_after(0, 7).number(), 2);
        let most = GroupGeneration::NUMBER_FOLLOWED_MAX;
        assert_eq!(first.next_after(most, 7).number(), most + 1);
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
        // One that names none, and one that has none.
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
