//! Chunks of a stream, and their names.

use serde::{Deserialize, Serialize};

/// Bytes of a chunk. Measured once with an image of 546 MB: half a second later 1.0 % of the bytes
/// were in changed chunks of 64 KiB, 3.6 % in those of 256 KiB.
pub const CHUNK_BYTES: usize = 64 << 10;

/// The key of the hash that names chunks. Without it a name shows nothing about the content.
#[derive(Clone)]
pub struct ChunkKey([u8; 32]);

/// The name of a chunk: the keyed BLAKE3 hash of its content, 32 bytes. Chunks with the same
/// content have the same name under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChunkName(pub [u8; 32]);

impl ChunkKey {
    /// Returns the key that consists of these 32 bytes. Keep them secret: only then a name shows
    /// nothing about the content.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the name of a chunk with this content: the content's BLAKE3 hash under the key.
    #[must_use]
    pub fn name(&self, content: &[u8]) -> ChunkName {
        ChunkName(*blake3::keyed_hash(&self.0, content).as_bytes())
    }
}

/// Returns what is stored of a chunk: its bytes without the zeros at its end; `None` if all are
/// zeros.
#[must_use]
pub fn content_of(chunk: &[u8]) -> Option<&[u8]> {
    assert!(chunk.len() <= CHUNK_BYTES, "a chunk is at most 64 KiB");
    let last = chunk.iter().rposition(|byte| *byte != 0)?;
    Some(&chunk[..=last])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_depends_on_key_and_content() {
        let (one, other) = (ChunkKey::new([1; 32]), ChunkKey::new([2; 32]));
        assert_eq!(one.name(b"a"), one.name(b"a"));
        assert_ne!(one.name(b"a"), one.name(b"b"));
        assert_ne!(one.name(b"a"), other.name(b"a"));
    }

    #[test]
    fn zeros_at_the_end_are_not_stored() {
        assert_eq!(content_of(&[0; 100]), None);
        assert_eq!(content_of(&[]), None);
        assert_eq!(content_of(&[0, 1, 0, 0]), Some(&[0, 1][..]));
        assert_eq!(content_of(&[5; CHUNK_BYTES]).map(<[u8]>::len), Some(CHUNK_BYTES));
    }
}
