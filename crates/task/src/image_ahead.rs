//! The largest image of a restore, which is decoded before CRIU requests it: CRIU takes a while to
//! start, and has read other images by then.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_core::checkpoint::CheckpointManifest;
use tokio::runtime::Handle;

use crate::generation_reader::{
    BATCH_BYTES, DECODING_MAX, DecodedBatch, GenerationReader, PackSource,
};
use crate::reserved_memory::{RESERVED, ReservedMemory};
use crate::task_failure::TaskFailure;

/// Batches of the image that wait for CRIU, which are 64 MiB: a thread decodes no more while CRIU
/// starts. Chosen, not measured.
const WAITING_MAX: u64 = 64;

/// The image, as the thread has it that writes it into CRIU's pipe. When this is dropped, no more
/// is decoded.
pub(crate) struct AheadImage {
    name: String,
    bytes: u64,
    /// From then on CRIU waits for this image.
    is_requested: Arc<AtomicBool>,
    batches: Receiver<Result<DecodedBatch, Failure>>,
    _memory: ReservedMemory,
}

impl AheadImage {
    /// Begins to decode an image, on a thread of its own. Until it is requested, one processor is
    /// left to CRIU.
    pub(crate) fn begin<S: PackSource>(
        reader: &Arc<GenerationReader<S>>,
        manifest: &Arc<CheckpointManifest>,
        name: &str,
        range: Range<u64>,
    ) -> Self {
        let bytes = range.end.saturating_sub(range.start);
        let (sender, batches) = sync_channel(WAITING_MAX as usize);
        let memory = ReservedMemory::take(&RESERVED, bytes.min(WAITING_MAX * BATCH_BYTES));
        let is_requested = Arc::new(AtomicBool::new(false));
        let (reader, manifest) = (Arc::clone(reader), Arc::clone(manifest));
        let (runtime, requested) = (Handle::current(), Arc::clone(&is_requested));
        std::thread::spawn(move || {
            let beside = || if requested.load(Ordering::Relaxed) { DECODING_MAX } else { 0 };
            let send = |batch: DecodedBatch| sender.send(Ok(batch)).map_err(|_| not_read());
            let decoded = runtime.block_on(reader.decode_range(&manifest, range, beside, send));
            if let Err(failure) = decoded {
                // If it is not read any more, the failure is of no interest.
                let _ = sender.send(Err(failure));
            }
        });
        Self { name: name.to_owned(), bytes, is_requested, batches, _memory: memory }
    }

    /// Returns whether it is the image of that name.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.name == name
    }

    /// Reads the image, as [`GenerationReader::read_range`] does.
    ///
    /// # Errors
    /// As [`GenerationReader::read_range`].
    pub(crate) fn read<S: PackSource>(
        self,
        reader: &GenerationReader<S>,
        mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.is_requested.store(true, Ordering::Relaxed);
        let mut read = 0;
        for batch in &self.batches {
            let batch = batch?;
            each(batch.bytes())?;
            read += batch.bytes().len() as u64;
            reader.give_back(batch);
        }
        if read == self.bytes {
            return Ok(());
        }
        // An image that is cut must not seem to be whole.
        let cause = format!("the thread that decodes the image {} has ended early", self.name);
        Err(Failure::new(Exit::Failure, FailureKind::Bug, cause))
    }
}

fn not_read() -> Failure {
    TaskFailure::BrokenPipe.failure(Exit::Failure, "the image is not read any more")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Weak;
    use std::thread::sleep;
    use std::time::{Duration, Instant as Moment};

    use bytes::Bytes;
    use sanderling_core::checkpoint::{
        CHUNK_BYTES, ChunkCodec, DriverRecord, ManifestPack, PackId, StoredChunk, StoredContent,
    };
    use sanderling_protocol::Instant;

    use super::*;
    use crate::encryption::TaskKey;
    use crate::reserved_memory::PackMemory;

    /// Chunks of the image: more than wait for CRIU.
    const CHUNKS: u32 = (WAITING_MAX as u32 + 20) * (BATCH_BYTES as u32 / CHUNK_BYTES as u32);

    /// Packs in memory, of which one may be missing.
    struct HeldPacks(BTreeMap<PackId, Bytes>);

    impl PackSource for HeldPacks {
        async fn whole(&self, pack: ManifestPack) -> Result<Option<Vec<Bytes>>, Failure> {
            Ok(self.0.get(&pack.id).map(|bytes| vec![bytes.clone()]))
        }

        async fn range(&self, pack: PackId, range: Range<u64>) -> Result<Option<Bytes>, Failure> {
            let part = range.start as usize..range.end as usize;
            Ok(self.0.get(&pack).map(|bytes| bytes.slice(part)))
        }
    }

    /// Returns a reader of an image, its manifest, and its bytes. Its last pack may be missing.
    fn image(
        is_whole: bool,
    ) -> (Arc<GenerationReader<HeldPacks>>, Arc<CheckpointManifest>, Vec<u8>) {
        let key = TaskKey::of_nothing();
        let (mut stream, mut chunks) = (Vec::new(), Vec::new());
        let mut packs = BTreeMap::<PackId, Vec<u8>>::new();
        for position in 0..CHUNKS {
            let content = vec![position as u8 | 1; CHUNK_BYTES - 1000];
            let body = zstd::bulk::compress(&content, 1).unwrap();
            let pack = u32::from(position >= CHUNKS / 2);
            let bytes = packs.entry(PackId([pack as u8; 32])).or_default();
            let (offset, name) = (bytes.len() as u32, key.chunk_key().name(&content));
            key.pack_cipher(PackId([pack as u8; 32])).append(bytes, &name.0, &body);
            let (bytes, stored) = (content.len() as u32, body.len() as u32);
            let content_stored = StoredContent { bytes, stored, codec: ChunkCodec::Zstd };
            chunks.push(StoredChunk { position, name, pack, offset, content: content_stored });
            stream.extend(content);
            stream.resize((position as usize + 1) * CHUNK_BYTES, 0);
        }
        let pack =
            |(id, bytes): (&PackId, &Vec<u8>)| ManifestPack { id: *id, bytes: bytes.len() as u64 };
        let manifest = CheckpointManifest {
            task: "count".to_owned(),
            generation: 7,
            taken_at: Instant(0),
            lock: 0,
            driver: DriverRecord::Hook,
            stream_bytes: stream.len() as u64,
            added_bytes: 0,
            packs: packs.iter().map(pack).collect(),
            chunks,
        };
        let mut held: BTreeMap<PackId, Bytes> =
            packs.into_iter().map(|(id, bytes)| (id, bytes.into())).collect();
        if !is_whole {
            held.pop_last();
        }
        let whole = std::iter::once(0..manifest.stream_bytes);
        let memory = PackMemory::of(u64::MAX);
        let reader = GenerationReader::new(HeldPacks(held), &key, &manifest, whole, memory);
        (reader, Arc::new(manifest), stream)
    }

    fn begin(
        reader: &Arc<GenerationReader<HeldPacks>>,
        manifest: &Arc<CheckpointManifest>,
    ) -> AheadImage {
        AheadImage::begin(reader, manifest, "pages-1.img", 5..manifest.stream_bytes - 7)
    }

    /// Waits until the thread that decodes has ended: it holds the reader.
    fn wait_for_end(reader: &Weak<GenerationReader<HeldPacks>>) {
        let until = Moment::now() + Duration::from_secs(30);
        while reader.strong_count() > 0 {
            assert!(Moment::now() < until, "the thread goes on");
            sleep(Duration::from_millis(5));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn image_that_is_decoded_ahead_is_the_one_that_is_read() {
        let (reader, manifest, stream) = image(true);
        let ahead = begin(&reader, &manifest);
        assert!(ahead.has_name("pages-1.img") && !ahead.has_name("pages-2.img"));
        let mut read = Vec::new();
        let push = |bytes: &[u8]| {
            read.extend_from_slice(bytes);
            Ok(())
        };
        ahead.read(&reader, push).expect("it is whole");
        assert!(read == stream[5..stream.len() - 7]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn image_that_cannot_be_read_to_its_end_fails_for_its_reader() {
        let (reader, manifest, stream) = image(false);
        let mut bytes = 0;
        let count = |it: &[u8]| {
            bytes += it.len();
            Ok(())
        };
        let refused = begin(&reader, &manifest).read(&reader, count);
        let refused = refused.expect_err("a pack is missing");
        assert!(TaskFailure::BadGeneration.is(&refused), "{refused}");
        assert!(bytes < stream.len() - 12);
    }

    /// If CRIU has failed before it requested the image, or while it read it.
    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_decoded_any_more_when_the_image_is_not_read() {
        let (reader, manifest, _) = image(true);
        let unread = begin(&reader, &manifest);
        let broken = begin(&reader, &manifest).read(&reader, |_| Err(not_read()));
        assert!(TaskFailure::BrokenPipe.is(&broken.expect_err("the pipe is broken")));
        let held = Arc::downgrade(&reader);
        drop(reader);
        assert!(held.strong_count() > 0, "the thread of the other one waits");
        drop(unread);
        wait_for_end(&held);
    }
}
