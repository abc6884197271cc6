//! Checksums of payloads: CRC32C (Castagnoli), the one that storage systems use and processors
//! compute.

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the CRC32C (Castagnoli) of `bytes`. [`Running`] computes it from pieces.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Returns the CRC32C of two adjacent runs from the runs' own checksums, without reading them
/// again. Cost: one product of polynomials for each bit set in the second run's length.
#[must_use]
pub const fn combine(first: u32, second: u32, second_bytes: u64) -> u32 {
    multiply(power_of_bytes(second_bytes), first) ^ second
}

/// The polynomial of CRC32C with its bits reflected: 0x1edc6f41 (RFC 3720, section 12.1).
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x to the power of 2 to the power of the index, modulo the polynomial. 64 indices for the bits of
/// a length in bytes and 3 more, because a byte has 2^3 bits: enough for any length.
const POWERS: [u32; 67] = powers();

const fn powers() -> [u32; 67] {
    let mut powers = [1 << 30; 67];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = multiply(powers[at - 1], powers[at - 1]);
        at += 1;
    }
    powers
}

/// Multiplies two polynomials over GF(2) modulo the polynomial; the highest bit is x to the power
/// of 0. As in M. Adler's `crc32_combine` of zlib.
const fn multiply(first: u32, mut second: u32) -> u32 {
    let (mut bit, mut product) = (1_u32 << 31, 0);
    while bit != 0 && first & (bit | (bit - 1)) != 0 {
        if first & bit != 0 {
            product ^= second;
        }
        bit >>= 1;
        second = if second & 1 == 0 { second >> 1 } else { (second >> 1) ^ POLYNOMIAL };
    }
    product
}

/// Returns x to the power of so many bytes' bits.
const fn power_of_bytes(mut bytes: u64) -> u32 {
    let (mut power, mut product) = (3, 1 << 31);
    while bytes != 0 {
        if bytes & 1 != 0 {
            product = multiply(POWERS[power], product);
        }
        bytes >>= 1;
        power += 1;
    }
    product
}

/// Computes the CRC32C of a run that arrives in pieces.
#[derive(Debug)]
pub struct Running(Digest);

impl Default for Running {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Running {
    /// Adds the next piece of the run; pieces come in the order of their bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the CRC32C of all pieces so far, joined; more may be added.
    #[must_use]
    pub fn value(&self) -> u32 {
        u32::try_from(self.0.finalize()).expect("CRC32C has 32 bits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_of_the_standard_holds() {
        // The check value of CRC-32/ISCSI in the catalogue of parametrised CRC algorithms.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn pieces_and_combination_agree_with_the_whole() {
        let mut running = Running::default();
        running.update(b"12345");
        running.update(b"6789");
        assert_eq!(running.value(), crc32c(b"123456789"));
        assert_eq!(combine(crc32c(b"12345"), crc32c(b"6789"), 4), crc32c(b"123456789"));
        let bytes: Vec<u8> = (0..70_000_u32).map(|index| (index * 31 % 251) as u8).collect();
        for at in [0, 1, 4096, 8191, 65_536, 69_999, 70_000] {
            let (first, second) = bytes.split_at(at);
            let joined = combine(crc32c(first), crc32c(second), second.len() as u64);
            assert_eq!(joined, crc32c(&bytes), "{at}");
        }
    }

    #[test]
    fn lengths_beyond_any_run_combine_as_the_library_does() {
        let bytes = [1, 4096, (1 << 20) + 1, u64::from(u32::MAX), 1 << 40];
        for bytes in bytes {
            let algorithm = CrcAlgorithm::Crc32Iscsi;
            let library = crc_fast::checksum_combine(algorithm, 0x1234_5678, 0x9abc_def0, bytes);
            assert_eq!(u64::from(combine(0x1234_5678, 0x9abc_def0, bytes)), library, "{bytes}");
        }
    }
}
