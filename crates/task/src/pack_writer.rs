//! Chunks on their way into packs: named, compressed and encrypted.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_core::checkpoint::{
    CHUNK_BYTES, ChunkCodec, ChunkKey, ChunkName, ChunkView, PackId, Packing, StoredContent,
};
use serde::Serialize;
use tokio::sync::mpsc;
use zstd::bulk::Compressor;

use crate::encryption::{TaskKey, drawn};
use crate::state::ChunkSink;

/// The fastest level of Zstandard's usual ones: a task is frozen or slowed while its state is
/// packed. docs/LAB.md has the seconds of a processor for 1 GiB.
const LEVEL: i32 = 1;

/// A pack on its way to the backend.
pub(crate) type FullPack = (PackId, Vec<u8>);

/// What packing one state took of a processor, in seconds, and what it was about, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct PackCost {
    /// Bytes of chunks that were not stored before, without the zeros at their ends.
    pub(crate) new_bytes: u64,
    /// Bytes that were hashed.
    pub(crate) hashed_bytes: u64,
    /// For names of chunks, and the search for zeros at their ends.
    pub(crate) hash_cpu_seconds: f64,
    /// For the compression of new chunks.
    pub(crate) compress_cpu_seconds: f64,
    /// For the encryption of new chunks.
    pub(crate) encrypt_cpu_seconds: f64,
}

/// Takes the chunks of one dump, and sends full packs. It belongs to a thread that may block.
pub(crate) struct PackWriter {
    packing: Packing,
    key: TaskKey,
    chunk_key: ChunkKey,
    compressor: Option<Compressor<'static>>,
    compressed: Vec<u8>,
    open: Option<FullPack>,
    sender: mpsc::Sender<FullPack>,
    position: u32,
    stream_bytes: u64,
    cost: PackCost,
}

impl PackWriter {
    pub(crate) fn new(
        packing: Packing,
        key: TaskKey,
        compresses: bool,
        sender: mpsc::Sender<FullPack>,
    ) -> Result<Self, Failure> {
        let compressor = compresses.then(|| Compressor::new(LEVEL)).transpose();
        let bug = |error| Failure::caused(Exit::Failure, FailureKind::Bug, error);
        Ok(Self {
            packing,
            chunk_key: key.chunk_key(),
            key,
            compressor: compressor.map_err(bug)?,
            compressed: Vec::with_capacity(CHUNK_BYTES),
            open: None,
            sender,
            position: 0,
            stream_bytes: 0,
            cost: PackCost::default(),
        })
    }

    /// Stores a chunk whose position is not known yet; `None` if it is all zeros.
    ///
    /// # Errors
    /// The dump was given up.
    pub(crate) fn store(&mut self, chunk: &[u8]) -> Result<Option<ChunkName>, Failure> {
        if self.sender.is_closed() {
            return Err(given_up());
        }
        let begun = thread_cpu();
        let view = self.packing.view(&self.chunk_key, chunk);
        let hashed = thread_cpu();
        self.cost.hashed_bytes += chunk.len() as u64;
        self.cost.hash_cpu_seconds += seconds(begun, hashed);
        let (name, bytes) = match view {
            ChunkView::Zero => return Ok(None),
            ChunkView::Present(name) => return Ok(Some(name)),
            ChunkView::New(name, bytes) => (name, bytes),
        };
        if self.packing.open_pack().is_none() {
            self.packing.open(PackId(drawn()));
        }
        let content = &chunk[..bytes as usize];
        self.cost.new_bytes += u64::from(bytes);
        let (stored, codec) = match self.is_compressed(content) {
            true => (&self.compressed[..], ChunkCodec::Zstd),
            false => (content, ChunkCodec::Plain),
        };
        let compressed = thread_cpu();
        self.cost.compress_cpu_seconds += seconds(hashed, compressed);
        let content = StoredContent { bytes, stored: stored.len() as u32, codec };
        let (pack, offset) = self.packing.append(name, content);
        let (_, buffer) = self.open.get_or_insert_with(|| (pack, Vec::new()));
        assert_eq!(buffer.len(), offset as usize, "chunks follow each other");
        self.key.pack_cipher(pack).append(buffer, &name.0, stored);
        self.cost.encrypt_cpu_seconds += seconds(compressed, thread_cpu());
        if self.packing.open_pack().is_none() {
            self.send()?;
        }
        Ok(Some(name))
    }

    /// Puts a chunk that was stored, or that is stored now, at its position.
    pub(crate) fn note(&mut self, position: u32, name: ChunkName) {
        self.packing.note(position, name);
    }

    /// Sets the length of a stream whose chunks were not added in order.
    pub(crate) const fn set_stream_bytes(&mut self, bytes: u64) {
        self.stream_bytes = bytes;
    }

    /// Sends the last pack; returns the dump, the length of its stream, and what packing it took.
    ///
    /// # Errors
    /// The dump was given up.
    pub(crate) fn finish(mut self) -> Result<(Packing, u64, PackCost), Failure> {
        self.send()?;
        Ok((self.packing, self.stream_bytes, self.cost))
    }

    /// Compresses a content into the buffer; returns whether that is worth it.
    fn is_compressed(&mut self, content: &[u8]) -> bool {
        let Some(compressor) = &mut self.compressor else { return false };
        self.compressed.clear();
        // A buffer as long as the content: what does not get shorter fails.
        let worth = content.len() - content.len() / 16;
        self.compressed.reserve(CHUNK_BYTES);
        match compressor.compress_to_buffer(content, &mut self.compressed) {
            Ok(bytes) => bytes < worth,
            Err(_) => false,
        }
    }

    fn send(&mut self) -> Result<(), Failure> {
        let Some(full) = self.open.take() else { return Ok(()) };
        self.sender.blocking_send(full).map_err(|_| given_up())
    }
}

impl ChunkSink for PackWriter {
    /// Takes the next chunk of the stream; only the last one is shorter than [`CHUNK_BYTES`].
    fn add(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        if let Some(name) = self.store(chunk)? {
            self.packing.note(self.position, name);
        }
        self.position += 1;
        self.stream_bytes += chunk.len() as u64;
        Ok(())
    }

    /// What was packed so far stays in its packs: most of it is in the next stream, too.
    fn begin_again(&mut self) {
        self.packing.begin_again();
        (self.position, self.stream_bytes) = (0, 0);
    }
}

fn given_up() -> Failure {
    Failure::new(Exit::Failure, FailureKind::TaskBackend, "the dump has ended")
}

/// Returns the time that this thread had a processor.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn seconds(begun: Duration, ended: Duration) -> f64 {
    ended.saturating_sub(begun).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn writer(compresses: bool) -> (PackWriter, mpsc::Receiver<FullPack>) {
        let directory = tempfile::tempdir().unwrap();
        let key = TaskKey::create(&directory.path().join("key")).unwrap();
        let (sender, packs) = mpsc::channel(1);
        let packing = Packing::new(None, &BTreeSet::new());
        (PackWriter::new(packing, key, compresses, sender).unwrap(), packs)
    }

    fn stored(chunk: &[u8], compresses: bool) -> u64 {
        let (mut writer, mut packs) = writer(compresses);
        writer.add(chunk).unwrap();
        writer.finish().unwrap();
        packs.try_recv().unwrap().1.len() as u64
    }

    #[test]
    fn what_gets_shorter_is_compressed() {
        let text = b"some text ".repeat(6000);
        assert!(stored(&text, true) < 1000);
        assert_eq!(stored(&text, false), 60_016);
        let random: Vec<u8> = (0..100).flat_map(|_| drawn::<64>()).collect();
        assert_eq!(stored(&random, true), 6416);
    }

    #[test]
    fn dump_that_was_given_up_packs_no_more() {
        let (mut writer, packs) = writer(true);
        writer.add(&[1; CHUNK_BYTES]).unwrap();
        let hashed = writer.cost.hashed_bytes;
        drop(packs);
        let refused = writer.add(&[2; CHUNK_BYTES]).unwrap_err();
        assert_eq!(refused.kind, FailureKind::TaskBackend);
        assert_eq!(writer.cost.hashed_bytes, hashed);
    }
}
