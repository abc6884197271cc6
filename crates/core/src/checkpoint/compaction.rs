//! Which packs a collection rewrites, and what it reads for that.
//!
//! A dump empties sparse packs, but a task that has ended takes none. So a collection stores what
//! is left of such packs again, as a generation with the same state and the next number. No
//! manifest is changed. By the same state a later collection finds which generation it replaces.

use std::collections::BTreeSet;
use std::ops::Range;

use super::manifest::{CheckpointManifest, PackId};
use super::retention::sparse_packs;

/// The packs of a generation that are emptied, and where their chunks are in its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackCompaction {
    /// The packs.
    pub packs: BTreeSet<PackId>,
    /// The positions of their chunks, in order. Each range has a chunk of them at every position,
    /// and at most as many as are to be read at once.
    pub positions: Vec<Range<u32>>,
}

impl PackCompaction {
    /// Returns what to rewrite of the generations that are left; `None` if nothing would get free.
    /// That is so while several are left: older ones name the sparse packs of the newest. At most
    /// `chunks_max` chunks are read at once.
    #[must_use]
    pub fn of(left: &[&CheckpointManifest], chunks_max: u32) -> Option<Self> {
        assert!(chunks_max > 0, "each range has a chunk");
        let &[only] = left else { return None };
        let packs = sparse_packs(only);
        if packs.is_empty() {
            return None;
        }
        let is_in_them = |pack: u32| packs.contains(&only.packs[pack as usize].id);
        let mut positions: Vec<Range<u32>> = Vec::new();
        for chunk in only.chunks.iter().filter(|chunk| is_in_them(chunk.pack)) {
            let next = chunk.position..chunk.position.saturating_add(1);
            match positions.last_mut() {
                Some(last) if last.end == next.start && last.len() < chunks_max as usize => {
                    last.end = next.end;
                }
                _ => positions.push(next),
            }
        }
        Some(Self { packs, positions })
    }
}

/// A digest of the state of a generation, whatever packs it is in. Two generations have the same
/// one if a collection has made one of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateDigest([u8; 32]);

impl CheckpointManifest {
    /// Returns the digest of its state, and of the moment of that. Cost: a hash of 36 bytes for
    /// each chunk.
    #[must_use]
    pub fn state_digest(&self) -> StateDigest {
        let mut hasher = blake3::Hasher::new();
        let head = (self.taken_at, self.stream_bytes, &self.driver);
        hasher.update(&postcard::to_stdvec(&head).expect("a head can be encoded"));
        for chunk in &self.chunks {
            hasher.update(&chunk.position.to_le_bytes());
            hasher.update(&chunk.name.0);
        }
        StateDigest(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Instant;

    use super::super::chunk::ChunkName;
    use super::super::driver::DriverRecord;
    use super::super::manifest::{ChunkCodec, ManifestPack, StoredChunk, StoredContent};
    use super::*;

    const fn id(number: u8) -> PackId {
        PackId([number; 32])
    }

    /// A generation with chunks of 1000 bytes at these positions of these packs, each of which has
    /// so many bytes.
    fn generation(packs: &[(u8, u64)], chunks: &[(u32, u32)]) -> CheckpointManifest {
        let pack = |(number, bytes): &(u8, u64)| ManifestPack { id: id(*number), bytes: *bytes };
        let chunk = |(position, pack): &(u32, u32)| {
            let (name, offset) = (ChunkName([0; 32]), position * 1016);
            let content = StoredContent { bytes: 1000, stored: 1000, codec: ChunkCodec::Plain };
            StoredChunk { position: *position, name, pack: *pack, offset, content }
        };
        CheckpointManifest {
            task: "t".to_owned(),
            generation: 7,
            taken_at: Instant(0),
            driver: DriverRecord::Hook,
            stream_bytes: 1 << 20,
            added_bytes: 0,
            packs: packs.iter().map(pack).collect(),
            chunks: chunks.iter().map(chunk).collect(),
            lock: 0,
        }
    }

    #[test]
    fn sparse_packs_of_the_only_generation_are_rewritten() {
        let sparse = [(1, 100_000), (2, 4064)];
        let chunks = [(0, 0), (1, 0), (2, 1), (3, 0), (5, 0), (6, 1), (7, 0), (8, 0), (9, 0)];
        let only = generation(&sparse, &chunks);
        let compaction = PackCompaction::of(&[&only], 2).expect("one pack is sparse");
        assert_eq!(compaction.packs, BTreeSet::from([id(1)]));
        assert_eq!(compaction.positions, [0..2, 3..4, 5..6, 7..9, 9..10]);
        assert_eq!(PackCompaction::of(&[], 2), None);
    }

    #[test]
    fn nothing_is_rewritten_while_another_generation_names_the_packs() {
        let sparse = generation(&[(1, 100_000)], &[(0, 0)]);
        let older = generation(&[(1, 100_000)], &[(0, 0)]);
        assert_eq!(PackCompaction::of(&[&sparse, &older], 2), None);
        let full = generation(&[(1, 1016)], &[(0, 0)]);
        assert_eq!(PackCompaction::of(&[&full], 2), None);
    }

    #[test]
    fn generation_in_other_packs_has_the_state_of_the_one_before() {
        let before = generation(&[(1, 100_000)], &[(0, 0), (3, 0)]);
        let state = before.state_digest();
        let mut after = generation(&[(2, 2032)], &[(0, 0), (3, 0)]);
        (after.generation, after.lock) = (8, 9);
        assert_eq!(after.state_digest(), state);
        let mut later = after.clone();
        later.taken_at = Instant(1);
        assert_ne!(later.state_digest(), state, "a dump of a state that has not changed");
        let mut other = after.clone();
        other.chunks[1].name = ChunkName([1; 32]);
        assert_ne!(other.state_digest(), state);
        other.chunks = before.chunks.clone();
        other.chunks[1].position = 4;
        assert_ne!(other.state_digest(), state);
        after.chunks.pop();
        assert_ne!(after.state_digest(), state);
    }
}
