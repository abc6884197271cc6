//! Stores what is left of sparse packs again, for a task that takes no more dumps.

use std::ops::Range;
use std::sync::Arc;

use sanderling_command::failure::Failure;
use sanderling_core::checkpoint::{
    CHUNK_BYTES, CheckpointManifest, ChunkCodec, PackCompaction, Packing, StoredChunk,
};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::backend::TaskBackend;
use crate::driver::{CapturedState, ReadState};
use crate::generation_reader::GenerationReader;
use crate::generations::{Generations, StoredGeneration};
use crate::lock::TaskLock;
use crate::pack_writer::PackWriter;
use crate::reserved_memory::DUMP_MEMORY;

/// Chunks that are read at once: 32 MiB, as much as a pack has. Chosen, not measured.
const CHUNKS_MAX: u32 = 512;

/// What was rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CompactedPacks {
    /// The generation that has the state now.
    pub(crate) generation: u64,
    /// How many packs it does not name any more.
    pub(crate) packs: usize,
    /// Bytes that were stored in their place.
    pub(crate) stored_bytes: u64,
}

/// The state of a generation, for one that names other packs.
struct StoredState {
    manifest: Arc<CheckpointManifest>,
    compaction: PackCompaction,
    reader: Arc<GenerationReader<TaskBackend>>,
    runtime: Handle,
}

impl Generations {
    /// Rewrites the sparse packs of the only generation that is left: stores its state under the
    /// next number. Only for the holder of the lock. `None` if nothing would get free. The
    /// generation that was left, and its packs, are still there then.
    ///
    /// # Errors
    /// The backend cannot be read or written, a chunk is damaged, or another runner has the lock.
    pub(crate) async fn compact(
        &self,
        left: &[StoredGeneration],
        lock: &TaskLock,
    ) -> Result<Option<CompactedPacks>, Failure> {
        let [only] = left else { return Ok(None) };
        let manifest = Arc::new(self.manifest(only.number).await?);
        let only: &CheckpointManifest = &manifest;
        let Some(compaction) = PackCompaction::of(&[only], CHUNKS_MAX) else { return Ok(None) };
        let newest = Self::numbers(&self.backend).await?.first().copied().unwrap_or_default();
        let number = self.backend.number_after("generations", newest)?;
        let packing = Packing::new(Some(only), &compaction.packs);
        let ranges = compaction.positions.iter().map(|it| bytes_at(it, only.stream_bytes));
        let (reader, packs) = (self.reader(only, ranges), compaction.packs.len());
        let (stored, runtime) = (Arc::clone(&manifest), Handle::current());
        let state = StoredState { manifest: stored, compaction, reader, runtime };
        // Without compression the lengths of packs show nothing about the state: as before.
        let is_compressed = |chunk: &StoredChunk| chunk.content.codec == ChunkCodec::Zstd;
        let compresses = only.chunks.iter().any(is_compressed);
        let writing = Self { compresses, ..self.clone() };
        let memory = DUMP_MEMORY.take(self.pack_bytes(only.stream_bytes));
        let head = (number, only.taken_at);
        let (written, _) = writing.dump(state, packing, head, lock, memory).await?;
        let stored_bytes = written.added_bytes;
        Ok(Some(CompactedPacks { generation: number, packs, stored_bytes }))
    }
}

impl CapturedState for StoredState {
    fn read(self, writer: &mut PackWriter) -> Result<ReadState, Failure> {
        let Self { manifest, compaction, reader, runtime } = self;
        for chunk in &manifest.chunks {
            let pack = manifest.packs[chunk.pack as usize].id;
            if !compaction.packs.contains(&pack) {
                writer.note(chunk.position, chunk.name);
            }
        }
        for positions in compaction.positions {
            let mut bytes = Vec::new();
            let push = |part: &[u8]| {
                bytes.extend_from_slice(part);
                Ok(())
            };
            let range = bytes_at(&positions, manifest.stream_bytes);
            runtime.block_on(reader.read_range(&manifest, range, push))?;
            for (position, chunk) in positions.zip(bytes.chunks(CHUNK_BYTES)) {
                if let Some(name) = writer.store(chunk)? {
                    writer.note(position, name);
                }
            }
        }
        writer.set_stream_bytes(manifest.stream_bytes);
        Ok(ReadState { driver: manifest.driver.clone(), free_at: Instant::now() })
    }
}

/// Returns where in a stream of so many bytes the chunks at these positions are.
fn bytes_at(positions: &Range<u32>, stream_bytes: u64) -> Range<u64> {
    let place = |position: u32| u64::from(position) * CHUNK_BYTES as u64;
    place(positions.start)..place(positions.end).min(stream_bytes)
}
