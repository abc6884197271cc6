//! Random numbers: the same on every machine and with every version.

use sanderling_core::placement::Draw;

/// One stream of draws. Each part of a run has its own, so that leaving one fault out changes
/// as little as possible of the rest.
#[derive(Debug, Clone)]
pub(crate) struct Random(Draw);

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut draw = Draw::new(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        // Seeds and streams that lie side by side are apart after one draw.
        let mixed = draw.next();
        Self(Draw::new(mixed))
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Returns a number from 0 up to below `bound`; 0 for a bound of 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        let drawn = self.0.next();
        if bound == 0 { 0 } else { drawn % bound }
    }

    /// Returns a number from `low` to `high`, both among them.
    pub(crate) const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub(crate) const fn permille(&mut self, share: u32) -> bool {
        self.below(1000) < share as u64
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
