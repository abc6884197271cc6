//! Numbers drawn from a seed.
#![allow(dead_code, reason = "each test program uses its part of it")]

use sanderling_protocol::split_mix::SplitMix64;

/// A generator of one stream.
#[derive(Debug, Clone)]
pub(crate) struct Lots(SplitMix64);

impl Lots {
    pub(crate) const fn new(seed: u64, stream: u64) -> Self {
        let seed = seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
        Self(SplitMix64::new(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0.next()
    }

    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).expect("an index")]
    }
}
