//! Reads the stream of a generation from its packs.
//!
//! A stream is read in batches of chunks. The bytes of a batch come from packs that are held, or
//! from ranges of those that are not. While a batch is delivered, those after it are decrypted and
//! expanded on other threads, and the pack that follows is fetched. The memory of a batch that was
//! delivered is used for one of those that follow.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use futures_util::future::try_join_all;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_core::checkpoint::{
    CHUNK_BYTES, CheckpointManifest, ChunkCodec, ChunkKey, ManifestPack, PackId, StoredChunk,
};
use tokio::task::{JoinHandle, spawn_blocking};
use zstd::bulk::Decompressor;

use crate::encryption::{PackCipher, TaskKey};
use crate::pack_cache::{PackBytes, PackCache, stored_bytes};
use crate::reserved_memory::PackMemory;
use crate::task_failure::TaskFailure;

/// Bytes of the stream that are decoded at once, a whole number of chunks. Chunks that follow each
/// other are read with one range of up to so many bytes. Chosen, not measured.
pub(crate) const BATCH_BYTES: u64 = 16 * CHUNK_BYTES as u64;

/// Batches that are decoded while another one is delivered: two processors are at work then, and a
/// read holds 3 MiB in all. CRIU reads many images at once. Chosen, not measured.
pub(crate) const DECODING_MAX: usize = 2;

/// Rooms that wait for a batch, as many as one read uses. Those of more reads at once are freed.
const SPARE_MAX: usize = DECODING_MAX + 1;

/// Chunks after a batch among which the next pack is looked for: 32 MiB of the stream, as much as a
/// pack has. Chosen, not measured.
const AHEAD_CHUNKS: usize = 512;

/// Where the packs of a generation are stored.
pub(crate) trait PackSource: Send + Sync + 'static {
    /// Returns a whole pack in pieces that follow each other; `None` if there is none of that name.
    ///
    /// # Errors
    /// [`TaskFailure::TooLong`]: it is longer. The backend cannot be read.
    fn whole(
        &self,
        pack: ManifestPack,
    ) -> impl Future<Output = Result<Option<Vec<Bytes>>, Failure>> + Send;

    /// Returns a range of a pack's bytes, or as many of them as there are; `None` if there is no
    /// pack of that name.
    ///
    /// # Errors
    /// The backend cannot be read.
    fn range(
        &self,
        pack: PackId,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Option<Bytes>, Failure>> + Send;
}

/// Reads ranges of one generation's stream. Its reads share packs.
pub(crate) struct GenerationReader<S> {
    source: S,
    key: TaskKey,
    chunk_key: ChunkKey,
    task: String,
    generation: u64,
    packs: Vec<ManifestPack>,
    /// The key of each pack, once it was derived.
    ciphers: Vec<OnceLock<PackCipher>>,
    cache: PackCache,
    spare: Mutex<UsedBatches>,
}

/// What batches do not need any more, for those that follow.
#[derive(Default)]
struct UsedBatches {
    /// Each has the bytes of the batch before.
    rooms: Vec<Vec<u8>>,
    openers: Vec<ChunkOpener>,
}

/// A batch that is being decoded.
struct DecodingBatch<'a> {
    chunks: &'a [StoredChunk],
    /// Which of its bytes are to be delivered.
    wanted: Range<usize>,
    room: JoinHandle<Result<Vec<u8>, Failure>>,
}

/// A batch that was decoded.
pub(crate) struct DecodedBatch {
    room: Vec<u8>,
    wanted: Range<usize>,
}

impl DecodedBatch {
    /// Returns the bytes that were requested.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.room[self.wanted.clone()]
    }
}

/// What a thread needs to open chunks, one after the other.
struct ChunkOpener {
    decompressor: Decompressor<'static>,
    /// The bytes of one chunk, encrypted and then decrypted.
    body: Vec<u8>,
}

impl<S: PackSource> GenerationReader<S> {
    /// Makes a reader for these ranges of the stream of a generation, each of which is read once.
    /// It holds packs in this memory. Other ranges can be read, too: nothing is held for them.
    pub(crate) fn new(
        source: S,
        key: &TaskKey,
        manifest: &CheckpointManifest,
        ranges: impl Iterator<Item = Range<u64>>,
        memory: PackMemory,
    ) -> Arc<Self> {
        let ranges = ranges.filter(|range| !range.is_empty());
        let planned = ranges.flat_map(|range| chunks_within(manifest, &range));
        Arc::new(Self {
            source,
            key: key.clone(),
            chunk_key: key.chunk_key(),
            task: manifest.task.clone(),
            generation: manifest.generation,
            packs: manifest.packs.clone(),
            ciphers: manifest.packs.iter().map(|_| OnceLock::new()).collect(),
            cache: PackCache::new(&manifest.packs, planned, memory),
            spare: Mutex::default(),
        })
    }

    /// Reads a range of the stream, which is that of this manifest, and verifies each chunk of it.
    ///
    /// # Errors
    /// A pack is missing or a chunk damaged: the generation is of no use. Also what `each` returns
    /// ends the read.
    pub(crate) async fn read_range(
        self: &Arc<Self>,
        manifest: &CheckpointManifest,
        range: Range<u64>,
        mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let pass = |batch: DecodedBatch| -> Result<(), Failure> {
            each(batch.bytes())?;
            self.give_back(batch);
            Ok(())
        };
        self.decode_range(manifest, range, || DECODING_MAX, pass).await
    }

    /// Reads a range as [`Self::read_range`] does, and passes on its batches, which are to be given
    /// back. So many as `beside` returns are decoded while one is delivered.
    ///
    /// # Errors
    /// As [`Self::read_range`].
    pub(crate) async fn decode_range(
        self: &Arc<Self>,
        manifest: &CheckpointManifest,
        range: Range<u64>,
        beside: impl Fn() -> usize,
        mut each: impl FnMut(DecodedBatch) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if range.is_empty() {
            return Ok(());
        }
        let chunk_bytes = CHUNK_BYTES as u64;
        let last = range.end.next_multiple_of(chunk_bytes).min(manifest.stream_bytes);
        let mut start = range.start / chunk_bytes * chunk_bytes;
        let mut chunks = chunks_within(manifest, &range);
        let mut decoding = VecDeque::new();
        while start < last {
            let place = start..last.min(start + BATCH_BYTES);
            let here = chunks.partition_point(|it| start_of(it) < place.end);
            let (present, later) = chunks.split_at(here);
            self.fetch_ahead(present, later);
            let encrypted = self.encrypted(present).await?;
            let from = range.start.max(start) - start;
            let wanted = from as usize..(range.end.min(place.end) - start) as usize;
            (chunks, start) = (later, place.end);
            let room = self.decode(present.to_vec(), encrypted, place);
            decoding.push_back(DecodingBatch { chunks: present, wanted, room });
            while decoding.len() > beside()
                && let Some(batch) = decoding.pop_front()
            {
                self.deliver(batch, &mut each).await?;
            }
        }
        for batch in decoding {
            self.deliver(batch, &mut each).await?;
        }
        Ok(())
    }

    /// Waits for a batch, and passes it on.
    async fn deliver(
        &self,
        batch: DecodingBatch<'_>,
        each: &mut impl FnMut(DecodedBatch) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let DecodingBatch { chunks, wanted, room } = batch;
        let room = room.await;
        let room =
            room.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Bug, error))??;
        for chunk in chunks {
            self.cache.note_read(chunk);
        }
        each(DecodedBatch { room, wanted })
    }

    /// Takes the room of a batch that was delivered, for one that follows.
    pub(crate) fn give_back(&self, batch: DecodedBatch) {
        let mut spare = self.spare();
        if spare.rooms.len() < SPARE_MAX {
            spare.rooms.push(batch.room);
        }
    }

    /// Begins to fetch the first pack of a range that is read later, if there is room for it.
    pub(crate) fn fetch_first(self: &Arc<Self>, manifest: &CheckpointManifest, range: &Range<u64>) {
        if !range.is_empty()
            && let Some(first) = chunks_within(manifest, range).first()
        {
            self.begin_fetch(first.pack);
        }
    }

    /// Begins to fetch the pack that is required after those of a batch, if there is room for it.
    fn fetch_ahead(self: &Arc<Self>, present: &[StoredChunk], later: &[StoredChunk]) {
        let Some(last) = present.last() else { return };
        let next = later.iter().take(AHEAD_CHUNKS).find(|it| it.pack != last.pack);
        if let Some(next) = next {
            self.begin_fetch(next.pack);
        }
    }

    /// Begins to fetch a pack that is required later, if there is room for it.
    fn begin_fetch(self: &Arc<Self>, number: u32) {
        let Some(slot) = self.cache.slot_ahead(number) else { return };
        let reader = Arc::clone(self);
        tokio::spawn(async move {
            // If this fails, the read that requires the pack fetches it again, and reports why.
            let _ = slot.get_or_try_init(|| reader.whole(number)).await;
        });
    }

    /// Returns the encrypted bytes of chunks; none of those that lie beyond the end of their pack.
    async fn encrypted(&self, chunks: &[StoredChunk]) -> Result<Vec<Vec<Bytes>>, Failure> {
        let mut runs = Vec::new();
        let mut rest = chunks;
        while !rest.is_empty() {
            let (run, after) = rest.split_at(run_length(rest));
            runs.push(self.encrypted_run(run));
            rest = after;
        }
        Ok(try_join_all(runs).await?.into_iter().flatten().collect())
    }

    /// Returns the same of chunks that follow each other in one pack.
    async fn encrypted_run(&self, run: &[StoredChunk]) -> Result<Vec<Vec<Bytes>>, Failure> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(Vec::new()) };
        let number = first.pack;
        let (bytes, start) = match self.cache.slot(number) {
            Some(slot) => (slot.get_or_try_init(|| self.whole(number)).await?.clone(), 0),
            None => {
                let range = u64::from(first.offset)..end_of(last);
                (PackBytes::new(vec![self.ranged(number, range).await?]), first.offset)
            }
        };
        let part = |chunk: &StoredChunk| {
            let at = (chunk.offset - start) as usize;
            bytes.part(at..at + stored_bytes(chunk) as usize)
        };
        Ok(run.iter().map(part).collect())
    }

    async fn whole(&self, number: u32) -> Result<PackBytes, Failure> {
        let pack = self.packs[number as usize];
        match self.source.whole(pack).await {
            Ok(Some(pieces)) => Ok(PackBytes::new(pieces)),
            Ok(None) => Err(self.missing(pack.id)),
            Err(failure) if TaskFailure::TooLong.is(&failure) => Err(self.bad(failure.cause)),
            Err(failure) => Err(failure),
        }
    }

    async fn ranged(&self, number: u32, range: Range<u64>) -> Result<Bytes, Failure> {
        let id = self.packs[number as usize].id;
        let found = self.source.range(id, range).await?;
        found.ok_or_else(|| self.missing(id))
    }

    /// Begins to decode the chunks at a place of the stream, on a thread that may block.
    fn decode(
        self: &Arc<Self>,
        chunks: Vec<StoredChunk>,
        encrypted: Vec<Vec<Bytes>>,
        place: Range<u64>,
    ) -> JoinHandle<Result<Vec<u8>, Failure>> {
        let reader = Arc::clone(self);
        spawn_blocking(move || reader.decoded(&chunks, &encrypted, &place))
    }

    /// Returns the bytes at a place of the stream: those of its chunks, and zeros. The positions of
    /// chunks rise. A room that was used has the bytes of another place, so that zeros are written
    /// to whatever no chunk fills.
    fn decoded(
        &self,
        chunks: &[StoredChunk],
        encrypted: &[Vec<Bytes>],
        place: &Range<u64>,
    ) -> Result<Vec<u8>, Failure> {
        let mut room = self.spare().rooms.pop().unwrap_or_default();
        room.resize((place.end - place.start) as usize, 0);
        let spare = self.spare().openers.pop();
        let mut opener = spare.map_or_else(ChunkOpener::new, Ok)?;
        let mut filled = 0;
        for (chunk, encrypted) in chunks.iter().zip(encrypted) {
            let start = (start_of(chunk) - place.start) as usize;
            let end = room.len().min(start + CHUNK_BYTES);
            room[filled..start].fill(0);
            let opened = self.decrypt(chunk, encrypted, &mut opener, &mut room[start..end]);
            let bytes = opened.ok_or_else(|| {
                let (position, id) = (chunk.position, self.packs[chunk.pack as usize].id);
                self.bad(format_args!("its chunk {position} in pack {id} is damaged"))
            })?;
            filled = start + bytes;
        }
        room[filled..].fill(0);
        let mut spare = self.spare();
        if spare.openers.len() < SPARE_MAX {
            spare.openers.push(opener);
        }
        drop(spare);
        Ok(room)
    }

    /// Writes the content of a chunk to the begin of a place, and returns its length; `None` if the
    /// chunk is damaged. It is copied before it is authenticated: its pieces may lie in memory that
    /// another process writes to.
    fn decrypt(
        &self,
        chunk: &StoredChunk,
        encrypted: &[Bytes],
        opener: &mut ChunkOpener,
        place: &mut [u8],
    ) -> Option<usize> {
        let number = chunk.pack as usize;
        let cipher =
            self.ciphers[number].get_or_init(|| self.key.pack_cipher(self.packs[number].id));
        opener.body.clear();
        for piece in encrypted {
            opener.body.extend_from_slice(piece);
        }
        let stored = cipher.decrypt(u64::from(chunk.offset), &chunk.name.0, &mut opener.body)?;
        let content = place.get_mut(..chunk.content.bytes as usize)?;
        expand(stored, chunk.content.codec, &mut opener.decompressor, content)?;
        (self.chunk_key.name(content) == chunk.name).then_some(content.len())
    }

    fn spare(&self) -> MutexGuard<'_, UsedBatches> {
        // A thread that panicked has changed nothing by halves.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn missing(&self, id: PackId) -> Failure {
        self.bad(format_args!("its pack {id} is missing"))
    }

    fn bad(&self, why: impl std::fmt::Display) -> Failure {
        TaskFailure::BadGeneration.of_generation(&self.task, self.generation, why)
    }
}

impl ChunkOpener {
    fn new() -> Result<Self, Failure> {
        let decompressor = Decompressor::new();
        let decompressor = decompressor
            .map_err(|error| Failure::caused(Exit::Failure, FailureKind::Bug, error))?;
        Ok(Self { decompressor, body: Vec::new() })
    }
}

/// Returns the chunks that a range of the stream overlaps, which is not empty.
fn chunks_within<'a>(manifest: &'a CheckpointManifest, range: &Range<u64>) -> &'a [StoredChunk] {
    let chunks = &manifest.chunks[..];
    let start = chunks.partition_point(|it| start_of(it) + CHUNK_BYTES as u64 <= range.start);
    let end = chunks.partition_point(|it| start_of(it) < range.end);
    chunks.get(start..end).unwrap_or_default()
}

/// Returns where in the stream a chunk begins.
fn start_of(chunk: &StoredChunk) -> u64 {
    u64::from(chunk.position) * CHUNK_BYTES as u64
}

/// Returns where in its pack a chunk ends.
fn end_of(chunk: &StoredChunk) -> u64 {
    u64::from(chunk.offset) + stored_bytes(chunk)
}

/// Returns how many of some chunks follow each other in the pack of the first one.
fn run_length(chunks: &[StoredChunk]) -> usize {
    let pairs = chunks.iter().zip(chunks.iter().skip(1));
    let follow = pairs.take_while(|(one, other)| {
        one.pack == other.pack && end_of(one) == u64::from(other.offset)
    });
    chunks.len().min(1 + follow.count())
}

/// Writes a content from how it is stored; `None` if it is another one than was described, of
/// another length.
fn expand(
    stored: &[u8],
    codec: ChunkCodec,
    decompressor: &mut Decompressor<'_>,
    content: &mut [u8],
) -> Option<()> {
    let bytes = match codec {
        ChunkCodec::Plain => {
            content.get_mut(..stored.len())?.copy_from_slice(stored);
            stored.len()
        }
        ChunkCodec::Zstd => decompressor.decompress_to_buffer(stored, content).ok()?,
    };
    (bytes == content.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use sanderling_core::checkpoint::{DriverRecord, StoredContent};
    use sanderling_protocol::Instant;

    use super::*;
    use crate::backend::TaskBackend;

    /// A generation whose stream ends with zeros, its stream and its packs.
    struct Sample {
        manifest: CheckpointManifest,
        stream: Vec<u8>,
        packs: BTreeMap<PackId, Vec<u8>>,
    }

    impl Sample {
        /// Makes one of so many chunks; `pack_of` returns in which pack each is stored. Every other
        /// row of `turn` chunks is compressed.
        fn new(chunks: u32, turn: u32, pack_of: impl Fn(u32) -> u32) -> Self {
            Self::with(chunks, turn, |_| CHUNK_BYTES, pack_of)
        }

        /// The same with so many bytes before the zeros of each chunk. One of zeros is not stored.
        fn with(
            chunks: u32,
            turn: u32,
            bytes_of: impl Fn(u32) -> usize,
            pack_of: impl Fn(u32) -> u32,
        ) -> Self {
            let key = TaskKey::of_nothing();
            let (mut stream, mut stored, mut packs) = (Vec::new(), Vec::new(), BTreeMap::new());
            for position in 0..chunks {
                let mut content = vec![position as u8 | 1; CHUNK_BYTES];
                content[..4].copy_from_slice(&position.to_le_bytes());
                content.truncate(bytes_of(position));
                stream.extend_from_slice(&content);
                stream.resize((position as usize + 1) * CHUNK_BYTES, 0);
                if content.is_empty() {
                    continue;
                }
                let (body, codec) = match position / turn % 2 {
                    0 => (content.clone(), ChunkCodec::Plain),
                    _ => (zstd::bulk::compress(&content, 1).unwrap(), ChunkCodec::Zstd),
                };
                let pack = pack_of(position);
                let bytes: &mut Vec<u8> = packs.entry(pack_id(pack)).or_default();
                let (offset, name) = (bytes.len() as u32, key.chunk_key().name(&content));
                key.pack_cipher(pack_id(pack)).append(bytes, &name.0, &body);
                let content_bytes = content.len() as u32;
                let content_stored = body.len() as u32;
                let described =
                    StoredContent { bytes: content_bytes, stored: content_stored, codec };
                stored.push(StoredChunk { position, name, pack, offset, content: described });
            }
            stream.resize(stream.len() + CHUNK_BYTES + 100, 0);
            let pack = |(id, bytes): (&PackId, &Vec<u8>)| ManifestPack {
                id: *id,
                bytes: bytes.len() as u64,
            };
            let manifest = CheckpointManifest {
                task: "count".to_owned(),
                generation: 7,
                taken_at: Instant(0),
                driver: DriverRecord::Hook,
                stream_bytes: stream.len() as u64,
                added_bytes: 0,
                packs: packs.iter().map(pack).collect(),
                chunks: stored,
                lock: 0,
            };
            Self { manifest, stream, packs }
        }

        /// Returns a reader of the whole stream.
        fn reader<S: PackSource>(&self, source: S, held_bytes: u64) -> Arc<GenerationReader<S>> {
            let (key, manifest) = (TaskKey::of_nothing(), &self.manifest);
            let ranges = std::iter::once(0..manifest.stream_bytes);
            GenerationReader::new(source, &key, manifest, ranges, PackMemory::of(held_bytes))
        }

        fn counted(&self, held_bytes: u64) -> Arc<GenerationReader<CountedPacks>> {
            let packs = self.packs.clone();
            self.reader(CountedPacks { packs, fetched: Mutex::default() }, held_bytes)
        }

        async fn read<S: PackSource>(
            &self,
            reader: &Arc<GenerationReader<S>>,
            range: Range<u64>,
        ) -> Result<Vec<u8>, Failure> {
            let mut read = Vec::new();
            let push = |bytes: &[u8]| {
                read.extend_from_slice(bytes);
                Ok(())
            };
            reader.read_range(&self.manifest, range, push).await?;
            Ok(read)
        }

        fn longest_pack(&self) -> u64 {
            self.packs.values().map(|bytes| bytes.len() as u64).max().expect("there are packs")
        }
    }

    /// Bytes of the pieces of a pack: no chunk has as many, and some chunks cross two pieces.
    const PIECE_BYTES: usize = 100_000;

    /// Packs in memory that note what was fetched of them.
    struct CountedPacks {
        packs: BTreeMap<PackId, Vec<u8>>,
        fetched: Mutex<Vec<(PackId, Range<u64>)>>,
    }

    impl CountedPacks {
        /// Returns which packs were fetched whole, and how many bytes were fetched in all.
        fn fetched(&self) -> (Vec<PackId>, u64) {
            let fetched = self.fetched.lock().unwrap();
            let whole = |(id, range): &(PackId, Range<u64>)| {
                (*range == (0..self.packs[id].len() as u64)).then_some(*id)
            };
            let bytes = fetched.iter().map(|(_, range)| range.end - range.start).sum();
            (fetched.iter().filter_map(whole).collect(), bytes)
        }
    }

    impl PackSource for CountedPacks {
        async fn whole(&self, pack: ManifestPack) -> Result<Option<Vec<Bytes>>, Failure> {
            let found = self.range(pack.id, 0..pack.bytes).await?;
            let pieces = |bytes: Bytes| {
                let starts = (0..bytes.len()).step_by(PIECE_BYTES);
                let end = |start: usize| bytes.len().min(start + PIECE_BYTES);
                starts.map(|start| bytes.slice(start..end(start))).collect()
            };
            Ok(found.map(pieces))
        }

        async fn range(&self, pack: PackId, range: Range<u64>) -> Result<Option<Bytes>, Failure> {
            self.fetched.lock().unwrap().push((pack, range.clone()));
            tokio::task::yield_now().await;
            let bytes = &self.packs[&pack][range.start as usize..range.end as usize];
            Ok(Some(Bytes::copy_from_slice(bytes)))
        }
    }

    fn pack_id(number: u32) -> PackId {
        PackId([number as u8; 32])
    }

    #[tokio::test]
    async fn packs_of_interleaved_chunks_are_fetched_once_within_the_room_and_others_by_ranges() {
        let sample = Sample::new(96, 12, |position| position % 12);
        let reader = sample.counted(3 * sample.longest_pack());
        let read = sample.read(&reader, 0..sample.manifest.stream_bytes).await.expect("whole");
        assert!(read == sample.stream);
        let (whole, bytes) = reader.source.fetched();
        assert_eq!(whole.len(), 3, "as many as there is room for");
        assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), 3, "each once");
        let stored: usize = sample.packs.values().map(Vec::len).sum();
        assert_eq!(bytes, stored as u64, "no chunk is fetched twice");
    }

    #[tokio::test]
    async fn packs_that_follow_each_other_are_fetched_whole_and_once() {
        let sample = Sample::new(192, 16, |position| position / 64);
        let reader = sample.counted(2 * sample.longest_pack());
        let read = sample.read(&reader, 0..sample.manifest.stream_bytes).await.expect("whole");
        assert!(read == sample.stream);
        let (whole, bytes) = reader.source.fetched();
        assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), 3);
        let stored: usize = sample.packs.values().map(Vec::len).sum();
        assert_eq!((whole.len(), bytes), (3, stored as u64));
    }

    #[tokio::test]
    async fn chunks_that_follow_each_other_are_fetched_with_one_range() {
        let sample = Sample::new(32, 4, |_| 0);
        let reader = sample.counted(0);
        let read = sample.read(&reader, 0..sample.manifest.stream_bytes).await.expect("whole");
        assert!(read == sample.stream);
        assert_eq!(reader.source.fetched.lock().unwrap().len(), 2, "one for each batch");
    }

    #[tokio::test]
    async fn ranges_are_read_again_and_begin_and_end_anywhere() {
        let sample = Sample::new(40, 3, |position| position % 4);
        let (chunk, end) = (CHUNK_BYTES as u64, sample.manifest.stream_bytes);
        for held_bytes in [0, sample.longest_pack(), u64::MAX] {
            let reader = sample.counted(held_bytes);
            let whole = 0..end;
            let ranges = [
                0..1,
                whole.clone(),
                100..chunk + 7,
                chunk - 1..20 * chunk + 1,
                5 * chunk..6 * chunk,
                40 * chunk..end,
                chunk..chunk,
                whole,
            ];
            for range in ranges {
                let read = sample.read(&reader, range.clone()).await.expect("it is whole");
                let expected = &sample.stream[range.start as usize..range.end as usize];
                assert!(read == expected, "{range:?} with {held_bytes}");
            }
        }
    }

    /// Otherwise bytes of one part of a task's memory would appear in another one.
    #[tokio::test]
    async fn memory_of_a_batch_is_zero_wherever_the_next_one_has_no_bytes() {
        // Full batches come first. After them each has zeros at its begin, between chunks, after
        // the bytes of a chunk, and at its end.
        let bytes_of = |position: u32| match position % 4 {
            _ if position < 64 => CHUNK_BYTES,
            1 => 1000,
            2 => CHUNK_BYTES,
            _ => 0,
        };
        let sample = Sample::with(160, 3, bytes_of, |position| position % 3);
        for held_bytes in [0, u64::MAX] {
            let reader = sample.counted(held_bytes);
            for _ in 0..3 {
                let whole = 0..sample.manifest.stream_bytes;
                let read = sample.read(&reader, whole).await.expect("it is whole");
                assert!(read == sample.stream, "with {held_bytes}");
                let spare = reader.spare();
                assert!(!spare.rooms.is_empty() && !spare.openers.is_empty());
            }
        }
    }

    #[tokio::test]
    async fn missing_cut_or_damaged_pack_is_refused_by_name() {
        let sample = Sample::new(40, 3, |position| position / 20);
        let name = |place: &Path| place.join("packs").join(pack_id(1).to_string());
        let remove: fn(&Path) = |path| std::fs::remove_file(path).unwrap();
        let cut: fn(&Path) = |path| {
            let bytes = std::fs::read(path).unwrap();
            std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        };
        let flip: fn(&Path) = |path| {
            let mut bytes = std::fs::read(path).unwrap();
            bytes[100] ^= 1;
            std::fs::write(path, bytes).unwrap();
        };
        for (change, why) in [(remove, "missing"), (cut, "damaged"), (flip, "damaged")] {
            for held_bytes in [0, u64::MAX] {
                let place = tempfile::tempdir().unwrap();
                std::fs::create_dir(place.path().join("packs")).unwrap();
                for (id, bytes) in &sample.packs {
                    let path = place.path().join("packs").join(id.to_string());
                    std::fs::write(path, bytes).unwrap();
                }
                let backend = TaskBackend::Directory(place.path().to_owned());
                let whole = 0..sample.manifest.stream_bytes;
                let reader = sample.reader(backend.clone(), held_bytes);
                let read = sample.read(&reader, whole.clone()).await.expect("it is whole");
                assert!(read == sample.stream);
                change(&name(place.path()));
                let reader = sample.reader(backend, held_bytes);
                let refused = sample.read(&reader, whole).await.expect_err("it is not");
                assert!(TaskFailure::BadGeneration.is(&refused), "{refused}");
                let named = format!("in pack {} is {why}", pack_id(1));
                let missing = format!("its pack {} is {why}", pack_id(1));
                let is_named = refused.cause.contains(&named) || refused.cause.contains(&missing);
                assert!(is_named, "{why}, {held_bytes}: {refused}");
            }
        }
    }

    #[test]
    fn wrong_frames_expand_to_nothing() {
        let frame = zstd::bulk::compress(&[7; 1000], 1).unwrap();
        let expanded = |stored: &[u8], codec, bytes| {
            let mut content = vec![0; bytes];
            let mut decompressor = Decompressor::new().unwrap();
            expand(stored, codec, &mut decompressor, &mut content).map(|()| content)
        };
        assert_eq!(expanded(&frame, ChunkCodec::Zstd, 1000), Some(vec![7; 1000]));
        assert_eq!(expanded(&frame, ChunkCodec::Zstd, 999), None);
        assert_eq!(expanded(&frame, ChunkCodec::Zstd, 1001), None);
        assert_eq!(expanded(&frame[1..], ChunkCodec::Zstd, 1000), None);
        assert_eq!(expanded(&[7; 10], ChunkCodec::Plain, 10), Some(vec![7; 10]));
        assert_eq!(expanded(&[7; 10], ChunkCodec::Plain, 11), None);
        assert_eq!(expanded(&[7; 10], ChunkCodec::Plain, 9), None);
    }
}
