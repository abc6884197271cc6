//! What the worlds of seeded tests draw.

use crate::placement::Draw;

impl Draw {
    /// Returns a number of a range.
    pub(super) const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// Returns whether something happens that happens so many times in a thousand.
    pub(super) const fn chance(&mut self, permille: u64) -> bool {
        self.next() % 1000 < permille
    }

    /// Returns one of some numbers.
    pub(super) const fn pick(&mut self, from: &[u64]) -> u64 {
        from[self.below(from.len())]
    }
}
