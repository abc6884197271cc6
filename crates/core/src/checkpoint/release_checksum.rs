//! How a program distinguishes a stored manifest of a release that it does not read from one whose
//! version is damaged.
//!
//! The version of a stored manifest is before everything that its key authenticates. So a program
//! that does not support the version can verify nothing of the rest. Therefore each version of the
//! encryption after the first ends a stored manifest with a checksum that needs no key: at this
//! place, and of this kind, for ever. What names another version without it is damaged.

/// Bytes of the checksum. 128 bits of a hash, so damage is always found.
const CHECKSUM_BYTES: usize = 16;

/// Returns the checksum with which a version of the encryption after the first ends these bytes of
/// a stored manifest: the beginning of their BLAKE3 hash.
#[must_use]
pub fn release_checksum(stored: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let hash = blake3::hash(stored);
    std::array::from_fn(|at| hash.as_bytes()[at])
}

/// Returns whether a stored manifest ends with its checksum: then a release wrote what it names as
/// its version. Only for versions after the first.
#[must_use]
pub fn has_release_checksum(stored: &[u8]) -> bool {
    let Some((rest, checksum)) = stored.split_last_chunk::<CHECKSUM_BYTES>() else { return false };
    release_checksum(rest) == *checksum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_checksum(bytes: &[u8]) -> Vec<u8> {
        [bytes, &release_checksum(bytes)].concat()
    }

    #[test]
    fn checksum_is_the_one_that_all_releases_verify() {
        let stored = with_checksum(b"SNDLCKP\x02 of a later release");
        assert!(has_release_checksum(&stored));
        let hash = data_encoding::HEXLOWER.encode(&release_checksum(b""));
        // BLAKE3 of nothing, test vectors of its reference implementation.
        assert_eq!(hash, "af1349b9f5f9a1a6a0404dea36dcc949");
    }

    #[test]
    fn damage_of_any_byte_is_found() {
        let stored = with_checksum(b"SNDLCKP\x02 of a later release");
        for at in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[at] ^= 1;
            assert!(!has_release_checksum(&damaged), "{at}");
            assert!(!has_release_checksum(&stored[..at]), "cut at {at}");
        }
    }
}
