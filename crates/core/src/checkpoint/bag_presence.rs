//! Whether a bag was removed, by looks of which some find none.

use sanderling_protocol::{Instant, Millis};

/// After so long a bag that is absent was removed: until then its backend may be away, as a file
/// system that is not mounted. Chosen, not measured.
const ABSENT_MAX: Millis = Millis(10_000);

/// What a look at the bag shows, together with those before: only a bag that stays absent counts as
/// removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BagSight {
    /// It is there.
    There,
    /// It is absent, and may be there again: nothing is done until the next look.
    Absent,
    /// It was removed.
    Removed,
}

/// The looks at a bag: since when it was not found.
#[derive(Debug, Clone, Copy, Default)]
pub struct BagPresence {
    absent_since: Option<Instant>,
}

impl BagPresence {
    /// Takes a look at `now`, by a clock that never steps: whether the bag was found.
    pub fn seen(&mut self, now: Instant, is_there: bool) -> BagSight {
        if is_there {
            self.absent_since = None;
            return BagSight::There;
        }
        let since = *self.absent_since.get_or_insert(now);
        if now.since(since) < ABSENT_MAX { BagSight::Absent } else { BagSight::Removed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bag_that_is_absent_for_ten_seconds_was_removed() {
        let (mut bag, at) = (BagPresence::default(), |millis| Instant(0) + Millis(millis));
        assert_eq!(bag.seen(at(0), true), BagSight::There);
        assert_eq!(bag.seen(at(60_000), false), BagSight::Absent);
        assert_eq!(bag.seen(at(69_999), false), BagSight::Absent);
        assert_eq!(bag.seen(at(70_000), false), BagSight::Removed);
        assert_eq!(bag.seen(at(71_000), true), BagSight::There, "its backend was away");
        assert_eq!(bag.seen(at(72_000), false), BagSight::Absent, "the time begins anew");
    }
}
