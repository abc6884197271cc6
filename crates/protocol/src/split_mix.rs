//! Numbers drawn from a seed, the same on every machine: SplitMix64 (Steele, Lea and Flood, "Fast
//! Splittable Pseudorandom Number Generators", OOPSLA 2014), with the constants of S. Vigna's
//! `splitmix64.c`. One number shows all that follow: none of them is a secret.

/// What each step adds to the state: 2^64 over the golden ratio, made odd (`GOLDEN_GAMMA` of the
/// paper).
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator of numbers of 64 bits. Its period is 2^64; each number costs some nanoseconds.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns the generator that starts with a seed. Any seed is as good as another one, and seeds
    /// that lie side by side give sequences that look unrelated.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number of the sequence, uniform over all values of 64 bits.
    pub const fn next(&mut self) -> u64 {
        let number = mixed(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        number
    }
}

/// Mixes the bits of a number: returns the first number of the generator that starts with it. No
/// two numbers give the same. Use it for a fixed order that has nothing to do with that of the
/// numbers.
#[must_use]
pub const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(GAMMA);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of `splitmix64.c` from the state 0.
    #[test]
    fn numbers_are_those_of_the_reference() {
        let mut draw = SplitMix64::new(0);
        let numbers = [draw.next(), draw.next(), draw.next()];
        let reference = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(numbers, reference);
        assert_eq!(mixed(0), numbers[0]);
    }
}
