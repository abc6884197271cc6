//! Checksums of payloads: CRC32C (Castagnoli), the one that storage systems use and processors
//! compute.

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Returns the CRC32C of two adjacent runs from the runs' own checksums, without reading them
/// again.
#[must_use]
pub fn combine(first: u32, second: u32, second_bytes: u64) -> u32 {
    let joined = crc_fast::checksum_combine(
        CrcAlgorithm::Crc32Iscsi,
        u64::from(first),
        u64::from(second),
        second_bytes,
    );
    u32::try_from(joined).expect("a 32-bit checksum combines to a 32-bit checksum")
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
    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of all pieces so far.
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
    }
}
