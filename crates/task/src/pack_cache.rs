//! The packs of a generation that its readers share.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use sanderling_core::checkpoint::{ManifestPack, StoredChunk, TAG_BYTES};
use tokio::sync::OnceCell;

use crate::reserved_memory::PackMemory;

/// A pack is fetched whole only while at least this part of it is still to be read: of a small part
/// the ranges take less time than the rest. Chosen, not measured.
const WHOLE_PART: u64 = 4;

/// A pack that is held, once it was fetched. A reader that requires it meanwhile waits for the same
/// fetch, and fetches it itself if that has failed.
pub(crate) type PackSlot = Arc<OnceCell<PackBytes>>;

/// The bytes of a pack in the pieces in which they came, each with where it begins. Pieces can lie
/// in a datanode's memory, so they are copied only as chunks are opened.
#[derive(Debug, Clone)]
pub(crate) struct PackBytes(Arc<[(usize, Bytes)]>);

/// The packs that are held while a generation is read, by their numbers in its manifest. A pack is
/// held until the last of its chunks was read. None is dropped for another one: readers of a
/// generation whose chunks are spread over many packs would fetch a pack for nearly each chunk.
pub(crate) struct PackCache {
    /// Bytes of each pack.
    pack_bytes: Vec<u64>,
    memory: PackMemory,
    held: Mutex<HeldPacks>,
}

struct HeldPacks {
    /// Bytes of each pack that the planned reads have still to read.
    unread: Vec<u64>,
    slots: BTreeMap<u32, PackSlot>,
    /// Bytes of the packs that are held or are being fetched.
    bytes: u64,
}

impl PackBytes {
    /// Joins pieces that follow each other.
    pub(crate) fn new(pieces: Vec<Bytes>) -> Self {
        let mut end = 0;
        let placed = pieces.into_iter().map(|bytes| {
            let start = end;
            end += bytes.len();
            (start, bytes)
        });
        Self(placed.collect())
    }

    /// Returns a range of the bytes, in pieces; none if they end before the range does.
    pub(crate) fn part(&self, range: Range<usize>) -> Vec<Bytes> {
        let first = self.0.partition_point(|(start, bytes)| start + bytes.len() <= range.start);
        let (mut parts, mut at) = (Vec::new(), range.start);
        for (start, bytes) in &self.0[first..] {
            if at >= range.end {
                break;
            }
            let end = range.end.min(start + bytes.len());
            parts.push(bytes.slice(at - start..end - start));
            at = end;
        }
        if at < range.end {
            parts.clear();
        }
        parts
    }
}

impl PackCache {
    /// Makes a cache in this memory for reads of these chunks. A chunk that several reads share is
    /// given once for each.
    pub(crate) fn new<'a>(
        packs: &[ManifestPack],
        planned: impl Iterator<Item = &'a StoredChunk>,
        memory: PackMemory,
    ) -> Self {
        let pack_bytes: Vec<u64> = packs.iter().map(|pack| pack.bytes).collect();
        let mut unread = vec![0; packs.len()];
        for chunk in planned {
            unread[chunk.pack as usize] += stored_bytes(chunk);
        }
        let held = HeldPacks { unread, slots: BTreeMap::new(), bytes: 0 };
        Self { pack_bytes, memory, held: Mutex::new(held) }
    }

    /// Returns the slot of a pack that is held from now on; `None` if there is no room for it, or
    /// if little of it is still to be read, so that its chunks are to be read by their ranges.
    pub(crate) fn slot(&self, number: u32) -> Option<PackSlot> {
        let mut held = self.held();
        match held.slots.get(&number) {
            Some(slot) => Some(Arc::clone(slot)),
            None => self.admit(&mut held, number, self.memory.bytes),
        }
    }

    /// Returns the slot of a pack that is required later, if it is held only from now on. Such
    /// packs take half of the room: the rest is for those that are required now.
    pub(crate) fn slot_ahead(&self, number: u32) -> Option<PackSlot> {
        let mut held = self.held();
        match held.slots.contains_key(&number) {
            true => None,
            false => self.admit(&mut held, number, self.memory.bytes / 2),
        }
    }

    /// Notes that a planned read has read a chunk. With its last chunk a pack is dropped. A
    /// read that was not planned is harmless: later ones may have to read ranges.
    pub(crate) fn note_read(&self, chunk: &StoredChunk) {
        let mut held = self.held();
        let unread = &mut held.unread[chunk.pack as usize];
        *unread = unread.saturating_sub(stored_bytes(chunk));
        if *unread == 0 && held.slots.remove(&chunk.pack).is_some() {
            held.bytes -= self.pack_bytes[chunk.pack as usize];
        }
    }

    fn admit(&self, held: &mut HeldPacks, number: u32, bytes_max: u64) -> Option<PackSlot> {
        let bytes = self.pack_bytes[number as usize];
        let is_worth_it = held.unread[number as usize].saturating_mul(WHOLE_PART) >= bytes;
        if !is_worth_it || bytes > bytes_max.saturating_sub(held.bytes) {
            return None;
        }
        held.bytes += bytes;
        let slot = PackSlot::default();
        held.slots.insert(number, Arc::clone(&slot));
        Some(slot)
    }

    fn held(&self) -> MutexGuard<'_, HeldPacks> {
        // A reader that panicked has changed nothing by halves.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how many bytes a chunk has in its pack.
pub(crate) fn stored_bytes(chunk: &StoredChunk) -> u64 {
    u64::from(chunk.content.stored) + TAG_BYTES as u64
}

#[cfg(test)]
mod tests {
    use sanderling_core::checkpoint::{ChunkCodec, ChunkName, PackId, StoredContent};

    use super::*;

    /// Bytes of the content of a chunk that has 1,000 in its pack.
    const CONTENT_BYTES: u32 = 1000 - TAG_BYTES as u32;

    fn packs(number: u8, bytes: u64) -> Vec<ManifestPack> {
        (0..number).map(|id| ManifestPack { id: PackId([id; 32]), bytes }).collect()
    }

    fn chunk(pack: u32, offset: u32) -> StoredChunk {
        let (bytes, codec) = (CONTENT_BYTES, ChunkCodec::Plain);
        let content = StoredContent { bytes, stored: bytes, codec };
        StoredChunk { position: offset / 1000, name: ChunkName([0; 32]), pack, offset, content }
    }

    #[test]
    fn part_of_a_pack_has_the_bytes_of_all_pieces_that_it_crosses() {
        let all: Vec<u8> = (0..20).collect();
        for lengths in [&[20][..], &[1, 2, 0, 7, 10], &[0, 3, 17, 0], &[10, 10]] {
            let mut rest = Bytes::from(all.clone());
            let pieces = lengths.iter().map(|length| rest.split_to(*length)).collect();
            let bytes = PackBytes::new(pieces);
            for start in 0..20 {
                for end in start + 1..25 {
                    let expected = all.get(start..end).unwrap_or_default();
                    let parts = bytes.part(start..end);
                    let part: Vec<u8> = parts.iter().flat_map(|it| it.to_vec()).collect();
                    assert_eq!(part, expected, "{start} to {end} of {lengths:?}");
                }
            }
            assert!(bytes.part(30..31).is_empty(), "it begins behind the end");
        }
        assert!(PackBytes::new(Vec::new()).part(0..1).is_empty());
    }

    #[test]
    fn pack_is_held_until_its_last_chunk_was_read() {
        let chunks = [0, 1, 2].map(|number| chunk(number / 2, number * 1000));
        let cache = PackCache::new(&packs(2, 2000), chunks.iter(), PackMemory::of(2000));
        let slot = cache.slot(0).expect("there is room");
        assert!(Arc::ptr_eq(&slot, &cache.slot(0).expect("it is held")));
        cache.note_read(&chunks[0]);
        assert!(cache.slot(1).is_none(), "no pack is dropped for another one");
        assert!(Arc::ptr_eq(&slot, &cache.slot(0).expect("it is held")));
        cache.note_read(&chunks[1]);
        assert_eq!(Arc::strong_count(&slot), 1, "the cache has dropped it");
        assert!(cache.slot(0).is_none(), "nothing of it is still to be read");
        assert!(cache.slot(1).is_some(), "there is room for the next");
        cache.note_read(&chunks[1]);
        assert!(cache.slot(1).is_some(), "a read that was not planned changes no other pack");
    }

    #[test]
    fn pack_of_which_little_is_still_to_be_read_is_not_held() {
        let chunks = [0, 1].map(|number| chunk(0, number * 1000));
        let memory = || PackMemory::of(1 << 20);
        let cache = |bytes| PackCache::new(&packs(1, bytes), chunks.iter(), memory());
        assert!(cache(8000).slot(0).is_some());
        assert!(cache(8001).slot(0).is_none());
    }

    #[test]
    fn packs_that_are_required_later_take_half_of_the_room() {
        let chunks = [0, 1, 2, 3].map(|number| chunk(number, 0));
        let cache = PackCache::new(&packs(4, 1000), chunks.iter(), PackMemory::of(3000));
        assert!(cache.slot_ahead(0).is_some());
        assert!(cache.slot_ahead(0).is_none(), "it is held already");
        assert!(cache.slot_ahead(1).is_none());
        assert!(cache.slot(1).is_some() && cache.slot(2).is_some());
        assert!(cache.slot(3).is_none());
    }
}
