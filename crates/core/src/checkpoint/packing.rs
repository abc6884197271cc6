//! Which chunks a generation adds, and which pack each goes into.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::Instant;

use super::chunk::{ChunkKey, ChunkName, content_of};
use super::driver::DriverRecord;
use super::manifest::{CheckpointManifest, ManifestPack, PackId, StoredChunk, StoredContent};

/// Bytes of a tag behind each encrypted chunk. The longest of GCM (NIST SP 800-38D, section
/// 5.2.1.2).
pub const TAG_BYTES: usize = 16;

/// A pack takes no more chunks when it has so many bytes. Few requests per byte, and a few packs
/// fit into the memory of the one that writes them. Chosen, not measured.
pub const PACK_BYTES: u64 = 32 << 20;

/// Bytes of a pack of the baseline: few, so that hardly any of the state is between the task and
/// the backend while the task waits. Chosen, not measured.
const BASELINE_PACK_BYTES: u64 = 2 << 20;

/// Collects one dump: which of its chunks are new, and in which pack and at which byte each is
/// stored.
#[derive(Debug)]
pub struct Packing {
    /// Places of chunks that are stored already, or were added before.
    places: BTreeMap<ChunkName, ChunkPlace>,
    /// Lengths of packs, also of those that nothing of this dump is in.
    lengths: BTreeMap<PackId, u64>,
    /// Numbers of packs in the manifest.
    numbers: BTreeMap<PackId, u32>,
    packs: Vec<PackId>,
    chunks: Vec<StoredChunk>,
    open: Option<PackId>,
    /// Bytes with which a pack is complete.
    pack_bytes: u64,
    added_bytes: u64,
}

/// Where the content of a chunk is stored.
#[derive(Debug, Clone, Copy)]
struct ChunkPlace {
    pack: PackId,
    offset: u32,
    content: StoredContent,
}

/// A view of a chunk: whether a dump has to store it, and under which name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkView {
    /// It is all zeros: nothing is stored of it.
    Zero,
    /// Its content is stored already.
    Present(ChunkName),
    /// Its content, so many of its bytes, is to be appended to the open pack.
    New(ChunkName, u32),
}

/// The part of a generation's description that is not its chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationHead {
    /// The name of the task.
    pub task: String,
    /// The number of the generation.
    pub generation: u64,
    /// When it was taken, by the clock of its machine.
    pub taken_at: Instant,
    /// What took it.
    pub driver: DriverRecord,
    /// The number of the lock under which it is written.
    pub lock: u64,
}

impl Packing {
    /// Begins a dump on top of the newest generation. Chunks in packs of `rewritten` count as
    /// absent, so that no generation from this one on needs those packs.
    #[must_use]
    pub fn new(base: Option<&CheckpointManifest>, rewritten: &BTreeSet<PackId>) -> Self {
        let mut packing = Self {
            places: BTreeMap::new(),
            lengths: BTreeMap::new(),
            numbers: BTreeMap::new(),
            packs: Vec::new(),
            chunks: Vec::new(),
            open: None,
            pack_bytes: PACK_BYTES,
            added_bytes: 0,
        };
        let Some(base) = base else { return packing };
        for chunk in &base.chunks {
            let pack = base.packs[chunk.pack as usize];
            if !rewritten.contains(&pack.id) {
                packing.lengths.insert(pack.id, pack.bytes);
                let (offset, content) = (chunk.offset, chunk.content);
                packing.places.insert(chunk.name, ChunkPlace { pack: pack.id, offset, content });
            }
        }
        packing
    }

    /// Begins a dump of the baseline: all of the state is new, whatever is stored.
    #[must_use]
    pub fn baseline() -> Self {
        Self { pack_bytes: BASELINE_PACK_BYTES, ..Self::new(None, &BTreeSet::new()) }
    }

    /// Returns the pack that takes new chunks; `None` if one has to be opened first.
    #[must_use]
    pub const fn open_pack(&self) -> Option<PackId> {
        self.open
    }

    /// Opens an empty pack for the chunks that are new from now on. The pack before it is complete.
    pub fn open(&mut self, pack: PackId) {
        assert!(!self.lengths.contains_key(&pack), "the names of packs are drawn");
        self.lengths.insert(pack, 0);
        self.open = Some(pack);
    }

    /// Returns whether a chunk is all zeros, is stored already, or is new, so that the caller must
    /// append its content.
    #[must_use]
    pub fn view(&self, key: &ChunkKey, chunk: &[u8]) -> ChunkView {
        let Some(content) = content_of(chunk) else { return ChunkView::Zero };
        let name = key.name(content);
        match self.places.get(&name) {
            Some(_) => ChunkView::Present(name),
            None => ChunkView::New(name, content.len() as u32),
        }
    }

    /// Appends a new content to the open pack; returns where it begins there.
    pub fn append(&mut self, name: ChunkName, content: StoredContent) -> (PackId, u32) {
        let pack = self.open.expect("a pack is open");
        let length = self.lengths.entry(pack).or_default();
        let offset = u32::try_from(*length).expect("packs are small");
        let stored = u64::from(content.stored) + TAG_BYTES as u64;
        *length += stored;
        self.added_bytes += stored;
        if *length >= self.pack_bytes {
            self.open = None;
        }
        let before = self.places.insert(name, ChunkPlace { pack, offset, content });
        assert!(before.is_none(), "only new contents are appended");
        (pack, offset)
    }

    /// Puts a content that is stored already at a position of the stream, counted in chunks.
    ///
    /// # Panics
    /// If no content of this name is stored: append it first.
    pub fn note(&mut self, position: u32, name: ChunkName) {
        let ChunkPlace { pack: id, offset, content } = self.places[&name];
        let next = self.packs.len() as u32;
        let pack = *self.numbers.entry(id).or_insert(next);
        if pack == next {
            self.packs.push(id);
        }
        self.chunks.push(StoredChunk { position, name, pack, offset, content });
    }

    /// Takes all contents from their positions, for a stream that is read again. They stay stored.
    pub fn begin_again(&mut self) {
        self.chunks.clear();
        self.packs.clear();
        self.numbers.clear();
    }

    /// Ends the dump of a stream: returns what the generation consists of.
    #[must_use]
    pub fn finish(mut self, head: GenerationHead, stream_bytes: u64) -> CheckpointManifest {
        let pack = |id: &PackId| ManifestPack { id: *id, bytes: self.lengths[id] };
        let packs = self.packs.iter().map(pack).collect();
        self.chunks.sort_by_key(|chunk| chunk.position);
        let GenerationHead { task, generation, taken_at, driver, lock } = head;
        let (added_bytes, chunks) = (self.added_bytes, self.chunks);
        CheckpointManifest {
            task,
            generation,
            taken_at,
            driver,
            stream_bytes,
            added_bytes,
            packs,
            chunks,
            lock,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunk::CHUNK_BYTES;
    use super::super::manifest::ChunkCodec;
    use super::*;

    const KEY: [u8; 32] = [3; 32];

    fn head() -> GenerationHead {
        let (task, driver) = ("t".to_owned(), DriverRecord::Hook);
        GenerationHead { task, generation: 1, taken_at: Instant(0), driver, lock: 4 }
    }

    fn dump(
        base: Option<&CheckpointManifest>,
        rewritten: &[PackId],
        first_pack: u8,
        stream: &[u8],
    ) -> CheckpointManifest {
        let key = ChunkKey::new(KEY);
        let mut packing = Packing::new(base, &rewritten.iter().copied().collect());
        let mut next = first_pack;
        for (position, chunk) in stream.chunks(CHUNK_BYTES).enumerate() {
            if packing.open_pack().is_none() {
                packing.open(PackId([next; 32]));
                next += 1;
            }
            add(&mut packing, position as u32, chunk);
        }
        let manifest = packing.finish(head(), stream.len() as u64);
        let decoded = CheckpointManifest::decode(&key, &manifest.encode(&key));
        assert_eq!(decoded.as_ref(), Ok(&manifest));
        manifest
    }

    fn add(packing: &mut Packing, position: u32, chunk: &[u8]) {
        let name = match packing.view(&ChunkKey::new(KEY), chunk) {
            ChunkView::Zero => return,
            ChunkView::Present(name) => name,
            ChunkView::New(name, bytes) => {
                let codec = ChunkCodec::Plain;
                packing.append(name, StoredContent { bytes, stored: bytes, codec });
                name
            }
        };
        packing.note(position, name);
    }

    fn stream(chunks: &[u8]) -> Vec<u8> {
        chunks.iter().flat_map(|byte| vec![*byte; CHUNK_BYTES]).collect()
    }

    #[test]
    fn zeros_and_repeats_are_stored_once_or_not_at_all() {
        let manifest = dump(None, &[], 1, &stream(&[1, 0, 1, 2]));
        assert_eq!(manifest.added_bytes, 2 * (CHUNK_BYTES + TAG_BYTES) as u64);
        let positions: Vec<u32> = manifest.chunks.iter().map(|it| it.position).collect();
        assert_eq!(positions, [0, 2, 3]);
        assert_eq!(manifest.chunks[0].offset, manifest.chunks[1].offset);
        assert_eq!(manifest.packs.len(), 1);
    }

    #[test]
    fn next_generation_adds_what_changed() {
        let first = dump(None, &[], 1, &stream(&[1, 2, 3]));
        let second = dump(Some(&first), &[], 9, &stream(&[1, 4, 3]));
        assert_eq!(second.added_bytes, (CHUNK_BYTES + TAG_BYTES) as u64);
        assert_eq!(second.packs.len(), 2);
        let same = dump(Some(&first), &[], 9, &stream(&[1, 2, 3]));
        assert_eq!((same.added_bytes, same.packs), (0, first.packs));
    }

    #[test]
    fn chunks_of_rewritten_packs_are_stored_again() {
        let first = dump(None, &[], 1, &stream(&[1, 2]));
        let second = dump(Some(&first), &[PackId([1; 32])], 9, &stream(&[1, 2]));
        assert_eq!(second.packs, [ManifestPack { id: PackId([9; 32]), ..first.packs[0] }]);
    }

    #[test]
    fn packs_are_closed_between_8_and_64_mib() {
        let mut packing = Packing::new(None, &BTreeSet::new());
        packing.open(PackId([1; 32]));
        let mut chunk = vec![1; CHUNK_BYTES];
        let mut number = 0_u32;
        while packing.open_pack().is_some() {
            chunk[..4].copy_from_slice(&number.to_le_bytes());
            add(&mut packing, number, &chunk);
            number += 1;
        }
        let bytes = packing.lengths[&PackId([1; 32])];
        assert!((8 << 20..=64 << 20).contains(&bytes), "{bytes}");
    }

    #[test]
    fn stream_that_is_read_again_names_what_it_has_alone() {
        let mut packing = Packing::new(None, &BTreeSet::new());
        packing.open(PackId([1; 32]));
        add(&mut packing, 0, &[1; CHUNK_BYTES]);
        add(&mut packing, 1, &[2; CHUNK_BYTES]);
        packing.begin_again();
        packing.open(PackId([2; 32]));
        add(&mut packing, 0, &[3; CHUNK_BYTES]);
        add(&mut packing, 1, &[2; CHUNK_BYTES]);
        let manifest = packing.finish(head(), 2 * CHUNK_BYTES as u64);
        let packs: Vec<u8> = manifest.packs.iter().map(|pack| pack.id.0[0]).collect();
        assert_eq!(packs, [2, 1]);
        let places: Vec<_> = manifest.chunks.iter().map(|it| (it.position, it.pack)).collect();
        assert_eq!(places, [(0, 0), (1, 1)]);
        assert_eq!(manifest.chunks[1].offset as usize, CHUNK_BYTES + TAG_BYTES);
    }

    #[test]
    fn empty_stream_is_a_generation() {
        let manifest = dump(None, &[], 1, &[]);
        assert!(manifest.packs.is_empty() && manifest.chunk_count() == 0);
    }
}
