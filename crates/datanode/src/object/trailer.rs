//! The end of an object: which block it holds.

use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::{BlockId, Epoch};
use thiserror::Error;

/// One object of the tier: a block at one epoch.
pub(crate) type TierKey = (BlockId, Epoch);

/// Which block an object holds. Little endian: magic 8, block 8, epoch 4, length 4, CRC32C of the
/// block 4, CRC32C of the trailer before it 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) block: BlockId,
    pub(crate) epoch: Epoch,
    pub(crate) length: u32,
    pub(crate) checksum: u32,
}

/// An object of the tier is too short or too long to hold a block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("an object of {object_bytes} bytes is no block")]
pub(crate) struct NoBlock {
    object_bytes: u64,
}

/// Marks a block of ours, and the layout of the trailer.
const MAGIC: [u8; 8] = *b"sndrlng1";

impl Trailer {
    /// Bytes of a trailer: the sum of the fields in the text of [`Trailer`].
    pub(crate) const BYTES: usize = 32;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.block.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.length.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.checksum.to_le_bytes());
        let own = crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// Reads the trailer of a whole object and splits the block off; `None` when these bytes are no
    /// object of ours or are not all of one.
    pub(crate) fn decode(object: &[u8]) -> Option<(Self, usize)> {
        let length = object.len().checked_sub(Self::BYTES)?;
        let trailer = &object[length..];
        let four = |at: usize| {
            let bytes = trailer[at..at + 4].try_into().expect("four bytes are four bytes");
            u32::from_le_bytes(bytes)
        };
        let block = trailer[8..16].try_into().expect("eight bytes are eight bytes");
        let decoded = Self {
            block: BlockId(u64::from_le_bytes(block)),
            epoch: Epoch(four(16)),
            length: four(20),
            checksum: four(24),
        };
        let is_whole = trailer[..8] == MAGIC
            && four(28) == crc32c(&trailer[..28])
            && decoded.length as usize == length;
        is_whole.then_some((decoded, length))
    }

    /// Returns whether these bytes end with a trailer, of whatever block.
    pub(crate) fn is_at_end_of(object: &[u8]) -> bool {
        let trailer = object.len().checked_sub(Self::BYTES).map(|at| &object[at..]);
        trailer.is_some_and(|it| it[..8] == MAGIC && it[28..] == crc32c(&it[..28]).to_le_bytes())
    }

    /// Returns the length of the block in an object of this size, which is longer by `extra` bytes.
    pub(crate) fn length_within(object_bytes: u64, extra: usize) -> Result<u32, NoBlock> {
        let length = object_bytes.checked_sub(extra as u64);
        length
            .and_then(|length| u32::try_from(length).ok())
            .filter(|length| (1..=BLOCK_BYTES_MAX).contains(length))
            .ok_or(NoBlock { object_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailer_is_read_as_written_and_every_damage_is_noticed() {
        let trailer =
            Trailer { block: BlockId(7), epoch: Epoch(3), length: 5, checksum: 0x1234_5678 };
        let mut object = b"bytes".to_vec();
        object.extend(trailer.encode());
        assert_eq!(Trailer::decode(&object), Some((trailer, 5)));
        assert!(Trailer::is_at_end_of(&object) && !Trailer::is_at_end_of(&object[..20]));
        assert_eq!(Trailer::length_within(object.len() as u64, Trailer::BYTES), Ok(5));
        for at in 5..object.len() {
            let mut damaged = object.clone();
            damaged[at] ^= 1;
            assert_eq!(Trailer::decode(&damaged), None, "damaged at {at}");
            assert!(!Trailer::is_at_end_of(&damaged), "damaged at {at}");
        }
        assert_eq!(Trailer::decode(&object[1..]), None);
        assert_eq!(Trailer::decode(&object[..20]), None);
        assert!(Trailer::length_within(32, Trailer::BYTES).is_err());
        assert!(Trailer::length_within(u64::MAX, Trailer::BYTES).is_err());
    }
}
