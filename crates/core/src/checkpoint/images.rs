//! Images whose bytes arrive at once and whose lengths are known at their ends, as one stream.
//!
//! The stream is the one that a directory with these files becomes. Whole chunks of large files
//! are stored while they arrive; what is left is small, and is put together at the end.

use std::collections::BTreeMap;

use super::chunk::{CHUNK_BYTES, ChunkName};
use super::framing::{EntryKind, StateEntry, StateLayout};
use super::packing::PACK_BYTES;

/// Permissions of images: they hold what the process held.
const IMAGE_MODE: u32 = 0o600;

/// Which part of the available memory images may take that wait to be packed, or packs that are
/// read or stored: the task and its machine need the rest. Chosen, not measured.
const WAITING_PART: u64 = 4;

/// Bytes of images that may wait to be packed, if nothing else is requested, and of packs that are
/// read, however much memory there is. Chosen, not measured.
const WAITING_BYTES_MAX: u64 = 1 << 30;

/// Bytes of images that may wait in any case: what keeps the packing at work. Chosen, not measured.
const WAITING_BYTES_MIN: u64 = 4 << 20;

/// Bytes of packs that a reader may hold in any case: four whole packs. Chosen, not measured.
const HELD_PACK_BYTES_MIN: u64 = 128 << 20;

/// How many times the bytes of its last state a dump may have in packs: a state may grow. Chosen,
/// not measured.
const STATE_GROWTH: u64 = 2;

/// Buffers that the images of a task may need beside those for its memory: the smallest image takes
/// a whole one while it is read. Chosen, not measured.
const BUFFERS_BESIDE: u64 = 64;

/// Processors of a machine, at most, on which images are not packed while the task stands still:
/// to pack one takes the processor that CRIU or a reader needs. Chosen, not measured.
const FEW_PROCESSORS: usize = 2;

/// Returns how many chunks of images may wait to be packed: as many bytes as are requested, or a
/// part of the memory that is available now, in bytes. What other dumps and reads have reserved is
/// not available. A task stands still until all of its images were read, so the more may wait, the
/// less it waits for the packing.
#[must_use]
pub fn waiting_chunks(
    available_bytes: Option<u64>,
    reserved_bytes: u64,
    requested_bytes: Option<u64>,
) -> usize {
    let available = available_bytes.map(|bytes| bytes.saturating_sub(reserved_bytes));
    let requested = requested_bytes.unwrap_or_else(|| memory_part(available));
    let bytes = requested.min(available.unwrap_or(WAITING_BYTES_MAX));
    (bytes.max(WAITING_BYTES_MIN) / CHUNK_BYTES as u64) as usize
}

/// Returns how many buffers of a chunk (64 KiB) are made before a task is stopped that has so many
/// bytes in memory: one for each chunk and 64 more for small images, and no more than may wait.
/// Made before the stop, they do not lengthen it.
#[must_use]
pub fn image_buffers(waiting: usize, resident_bytes: u64) -> usize {
    let needed = resident_bytes / CHUNK_BYTES as u64 + BUFFERS_BESIDE;
    waiting.min(usize::try_from(needed).unwrap_or(usize::MAX))
}

/// Returns whether the oldest of the pieces of images that are held is packed now. While the task
/// stands still, a machine with few processors only reads, until as many pieces are held as may
/// wait.
#[must_use]
pub const fn packs_image_now(
    is_frozen: bool,
    processors: usize,
    held: usize,
    waiting: usize,
) -> bool {
    !is_frozen || processors > FEW_PROCESSORS || held >= waiting
}

/// Returns how many bytes of packs may be held while a generation is read: a part of the memory
/// that is available now, in bytes. What dumps and other reads have reserved is not available.
#[must_use]
pub fn held_pack_bytes(available_bytes: Option<u64>, reserved_bytes: u64) -> u64 {
    let available = available_bytes.map(|bytes| bytes.saturating_sub(reserved_bytes));
    memory_part(available).max(HELD_PACK_BYTES_MIN)
}

/// Returns how many bytes of packs a dump may hold at once that has up to so many of them on their
/// way, of a state that had so many bytes before.
#[must_use]
pub fn dump_pack_bytes(packs: u64, state_bytes: u64) -> u64 {
    let whole = packs.saturating_mul(PACK_BYTES);
    whole.min(state_bytes.saturating_mul(STATE_GROWTH).max(CHUNK_BYTES as u64))
}

/// Returns whether a dump may begin that holds up to so many bytes of packs, beside others that
/// hold some: if they are no more than a part of the memory that is available now, in bytes, and
/// that no dump or read has reserved. One is always allowed.
#[must_use]
pub fn has_dump_memory(
    available_bytes: Option<u64>,
    reserved_bytes: u64,
    others: usize,
    pack_bytes: u64,
) -> bool {
    let available = available_bytes.map(|bytes| bytes.saturating_sub(reserved_bytes));
    others == 0 || pack_bytes <= memory_part(available)
}

/// Returns the part of the available memory that is used if nothing else is requested.
fn memory_part(available_bytes: Option<u64>) -> u64 {
    (available_bytes.unwrap_or(0) / WAITING_PART).min(WAITING_BYTES_MAX)
}

/// One file of a dump that CRIU has written to the end. Its chunks are stored or about to be; its
/// tail is still in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamedImage {
    /// Its whole chunks; `None` for those of zeros.
    pub chunks: Vec<Option<ChunkName>>,
    /// The bytes after them, fewer than a chunk has.
    pub tail: Vec<u8>,
}

/// The places of all images in the stream, and what of it is stored already. Positions count chunks
/// from the begin of the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JoinedImages {
    /// The length of the stream.
    pub bytes: u64,
    /// Chunks that are stored, with their positions.
    pub known: Vec<(u32, ChunkName)>,
    /// Chunks that are not, with their positions.
    pub rest: Vec<(u32, Vec<u8>)>,
}

impl StreamedImage {
    const fn bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK_BYTES + self.tail.len()) as u64
    }
}

/// Joins image files, by their names, to one stream with an index, by [`StateLayout`]. The same
/// files give the same stream.
#[must_use]
pub fn join_images(images: &BTreeMap<String, StreamedImage>) -> JoinedImages {
    let entry = |(name, image): (&String, &StreamedImage)| StateEntry {
        name: name.as_bytes().to_vec(),
        mode: IMAGE_MODE,
        kind: EntryKind::File { bytes: image.bytes() },
    };
    let layout = StateLayout::of(images.iter().map(entry).collect());
    let head = layout.head();
    let mut pieces: Vec<(u64, &[u8])> = vec![(0, &head)];
    let mut stored: BTreeMap<u64, Option<ChunkName>> = BTreeMap::new();
    for (number, start) in &layout.files {
        let name = String::from_utf8_lossy(&layout.entries[*number].name);
        let image = &images[name.as_ref()];
        let first = start / CHUNK_BYTES as u64;
        stored.extend((first..).zip(image.chunks.iter().copied()));
        pieces.push((start + (image.chunks.len() * CHUNK_BYTES) as u64, &image.tail));
    }
    let mut joined = JoinedImages { bytes: layout.bytes, ..JoinedImages::default() };
    for position in 0..layout.bytes.div_ceil(CHUNK_BYTES as u64) {
        let number = u32::try_from(position).expect("a stream is below 256 TiB");
        match stored.get(&position) {
            Some(Some(name)) => joined.known.push((number, *name)),
            Some(None) => {}
            None => joined.rest.push((number, assembled(position, layout.bytes, &pieces))),
        }
    }
    joined
}

/// Returns the bytes of one chunk.
fn assembled(position: u64, stream_bytes: u64, pieces: &[(u64, &[u8])]) -> Vec<u8> {
    let start = position * CHUNK_BYTES as u64;
    let end = stream_bytes.min(start + CHUNK_BYTES as u64);
    let mut chunk = vec![0; (end - start) as usize];
    for (at, piece) in pieces {
        let (from, to) = (start.max(*at), end.min(at + piece.len() as u64));
        if from < to {
            let bytes = &piece[(from - at) as usize..(to - at) as usize];
            chunk[(from - start) as usize..(to - start) as usize].copy_from_slice(bytes);
        }
    }
    chunk
}

#[cfg(test)]
mod tests {
    use super::super::chunk::ChunkKey;
    use super::*;

    /// Lays out the files as those of a directory.
    fn expected(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let entry = |(name, content): &(&str, Vec<u8>)| StateEntry {
            name: name.as_bytes().to_vec(),
            mode: IMAGE_MODE,
            kind: EntryKind::File { bytes: content.len() as u64 },
        };
        let layout = StateLayout::of(files.iter().map(entry).collect());
        let mut stream = vec![0; layout.bytes as usize];
        let head = layout.head();
        stream[..head.len()].copy_from_slice(&head);
        for (number, start) in &layout.files {
            let name = layout.entries[*number].name.clone();
            let (_, content) = files.iter().find(|it| it.0.as_bytes() == name).expect("a file");
            stream[*start as usize..][..content.len()].copy_from_slice(content);
        }
        stream
    }

    #[test]
    fn images_that_wait_take_a_part_of_the_memory_within_bounds() {
        let gibibytes = |number: u64| Some(number << 30);
        let waiting = |available, requested| waiting_chunks(available, 0, requested);
        assert_eq!(waiting(gibibytes(1), None), (256 << 20) / CHUNK_BYTES);
        assert_eq!(waiting(gibibytes(1), Some(16 << 20)), (16 << 20) / CHUNK_BYTES);
        assert_eq!(waiting(gibibytes(64), None), (1 << 30) / CHUNK_BYTES);
        assert_eq!(waiting(gibibytes(64), gibibytes(2)), (2 << 30) / CHUNK_BYTES);
        assert_eq!(waiting(gibibytes(2), gibibytes(64)), (2 << 30) / CHUNK_BYTES);
        let least = (4 << 20) / CHUNK_BYTES;
        assert_eq!(waiting(None, None), least);
        assert_eq!(waiting(None, gibibytes(64)), (1 << 30) / CHUNK_BYTES);
        assert_eq!(waiting(gibibytes(1), Some(0)), least);
    }

    #[test]
    fn what_other_dumps_have_reserved_is_not_available() {
        let gibibyte = 1 << 30;
        let waiting = |reserved| waiting_chunks(Some(2 * gibibyte), reserved, None);
        assert_eq!(waiting(0), (512 << 20) / CHUNK_BYTES);
        assert_eq!(waiting(gibibyte), (256 << 20) / CHUNK_BYTES);
        let least = (4 << 20) / CHUNK_BYTES;
        assert_eq!(waiting(2 * gibibyte), least);
        assert_eq!(waiting(u64::MAX), least);
        let requested = waiting_chunks(Some(2 * gibibyte), gibibyte, Some(2 * gibibyte));
        assert_eq!(requested, (1 << 30) / CHUNK_BYTES);
    }

    #[test]
    fn buffers_are_made_for_the_memory_of_the_task_and_no_more_than_may_wait() {
        assert_eq!(image_buffers(1000, 10 * CHUNK_BYTES as u64), 74);
        assert_eq!(image_buffers(1000, 0), 64);
        assert_eq!(image_buffers(64, 0), 64);
        assert_eq!(image_buffers(1000, 1 << 40), 1000);
        assert_eq!(image_buffers(1000, u64::MAX), 1000);
    }

    #[test]
    fn few_processors_pack_while_the_task_stands_still_only_if_no_more_may_wait() {
        for processors in [1, 2] {
            assert!(!packs_image_now(true, processors, 63, 64), "{processors}");
            assert!(packs_image_now(true, processors, 64, 64), "{processors}");
            assert!(packs_image_now(false, processors, 1, 64), "{processors}");
        }
        assert!(packs_image_now(true, 3, 1, 64));
    }

    #[test]
    fn packs_that_are_read_take_a_part_of_the_memory_within_bounds() {
        assert_eq!(held_pack_bytes(Some(2 << 30), 0), 512 << 20);
        assert_eq!(held_pack_bytes(Some(64 << 30), 0), 1 << 30);
        assert_eq!(held_pack_bytes(Some(1 << 20), 0), 128 << 20);
        assert_eq!(held_pack_bytes(None, 0), 128 << 20);
        assert_eq!(held_pack_bytes(Some(2 << 30), 1 << 30), 256 << 20, "others reserved a half");
        assert_eq!(held_pack_bytes(Some(2 << 30), u64::MAX), 128 << 20);
    }

    #[test]
    fn dumps_begin_beside_others_as_long_as_a_part_of_the_memory_is_left_for_each() {
        let (packs, bytes) = (6 * PACK_BYTES, Some(2 << 30));
        assert_eq!(dump_pack_bytes(6, u64::MAX), packs);
        assert_eq!(dump_pack_bytes(6, 10 << 20), 20 << 20, "it may grow");
        assert_eq!(dump_pack_bytes(6, 0), CHUNK_BYTES as u64);
        let begun = |at: &usize| has_dump_memory(bytes, *at as u64 * packs, *at, packs);
        assert_eq!((0..32).take_while(begun).count(), 7, "6 x 32 MiB each, of 2 GiB");
        assert!(has_dump_memory(Some(0), u64::MAX, 0, packs) && has_dump_memory(None, 0, 0, 1));
        assert!(!has_dump_memory(None, 0, 1, 1), "nothing is known");
        assert!(has_dump_memory(bytes, 31 * (20 << 20), 31, 20 << 20), "small states");
    }

    #[test]
    fn joined_images_are_the_stream_of_a_directory() {
        let chunk = CHUNK_BYTES;
        let files = [
            ("core", vec![1; 700]),
            ("empty", vec![]),
            ("pages-1.img", vec![2; 3 * chunk + 4096]),
            ("pages-2.img", [vec![0; chunk], vec![3; chunk]].concat()),
            ("z", vec![4; chunk - 1]),
        ];
        let key = ChunkKey::new([1; 32]);
        let mut contents = BTreeMap::new();
        let mut images = BTreeMap::new();
        for (name, bytes) in &files {
            let mut image = StreamedImage::default();
            for part in bytes.chunks(chunk) {
                if part.len() < chunk {
                    image.tail = part.to_vec();
                } else if part.iter().all(|byte| *byte == 0) {
                    image.chunks.push(None);
                } else {
                    contents.insert(key.name(part), part.to_vec());
                    image.chunks.push(Some(key.name(part)));
                }
            }
            images.insert((*name).to_owned(), image);
        }
        let joined = join_images(&images);
        let mut stream = vec![0; joined.bytes as usize];
        for (position, name) in &joined.known {
            stream[*position as usize * chunk..][..chunk].copy_from_slice(&contents[name]);
        }
        for (position, bytes) in &joined.rest {
            stream[*position as usize * chunk..][..bytes.len()].copy_from_slice(bytes);
        }
        assert_eq!(stream, expected(&files));
        assert_eq!(joined.known.len(), 4);
    }
}
