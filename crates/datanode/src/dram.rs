//! Blocks in memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::order::Damage;

use crate::arena::{Arena, Extent};
use crate::chunk_sums::{BodySums, CHUNK_BYTES, ChunkSums};
use crate::received::{BlockBody, Received};
use crate::tier::{ReadError, TierBytes, computed};

/// The bytes of a block as they were at one length. Appending makes another value that shares the
/// memory; the memory is free when the last value, and the last reader of it, is gone.
#[derive(Debug)]
pub(crate) struct DramBytes {
    arena: Arc<Arena>,
    pieces: Vec<ExtentSlice>,
    length: u32,
    sums: ChunkSums,
    /// When the bytes were last seen to have their checksums where they are now.
    verified: VerifiedAt,
}

/// A moment, in milliseconds of this process; 0 for never.
#[derive(Debug)]
struct VerifiedAt(AtomicU64);

/// Bytes of an extent that are bytes of the block.
#[derive(Debug, Clone)]
struct ExtentSlice {
    extent: Arc<Extent>,
    from: u32,
    bytes: u32,
}

/// Keeps a block's memory while its bytes are being sent.
#[derive(Debug)]
struct BorrowedBytes {
    block: Arc<DramBytes>,
    first: usize,
    count: usize,
    skip: u32,
    last_bytes: u32,
}

/// A run of pieces that touch in memory, with how many bytes of it are meant.
struct Stretch {
    first: usize,
    count: usize,
    skip: u32,
    last_bytes: u32,
}

impl DramBytes {
    /// Begins an empty block.
    pub(crate) fn new(arena: &Arc<Arena>) -> Self {
        let arena = Arc::clone(arena);
        let (sums, verified) = (ChunkSums::default(), VerifiedAt::never());
        Self { arena, pieces: Vec::new(), length: 0, sums, verified }
    }

    /// Returns the block with the body of a write added at its end; `None` when the arena has no
    /// room.
    pub(crate) fn with_body(&self, body: BlockBody, sums: &BodySums) -> Option<Self> {
        match body {
            BlockBody::Received(received) => Some(self.with_received(received, sums)),
            BlockBody::Bytes(bytes) => self.with(&bytes, sums),
        }
    }

    /// Returns the block with `bytes` after its end; `None` when the arena has no room.
    pub(crate) fn with(&self, bytes: &[u8], sums: &BodySums) -> Option<Self> {
        let mut rest = bytes;
        let filled = self.filled(u32::try_from(bytes.len()).ok()?, |to| {
            let (now, later) = rest.split_at(to.len());
            to.copy_from_slice(now);
            rest = later;
        });
        filled.map(|filled| filled.summed(sums))
    }

    /// Returns the block with `added` bytes after its end, that `fill` writes piece by piece;
    /// `None` when the arena has no room. [`Self::summed`] adds their checksums.
    ///
    /// The end of the last extent is used first. If another write used it, one that was then
    /// refused by a fence, the rest of that extent stays unused until the block goes.
    pub(crate) fn filled(&self, added: u32, mut fill: impl FnMut(&mut [u8])) -> Option<Self> {
        if added > BLOCK_BYTES_MAX {
            return None;
        }
        let mut pieces = self.pieces.clone();
        let mut left = added - pieces.last_mut().map_or(0, |last| last.grow(added, &mut fill));
        if left > 0 {
            let near = pieces.last().map(|piece| piece.extent.as_ref());
            for extent in self.arena.take(left, near)? {
                let bytes = left.min(extent.capacity());
                assert!(extent.append(0, bytes, &mut fill), "a fresh extent takes what fits");
                pieces.push(ExtentSlice { extent: Arc::new(extent), from: 0, bytes });
                left -= bytes;
            }
        }
        Some(Self {
            arena: Arc::clone(&self.arena),
            pieces,
            length: self.length + added,
            sums: self.sums.clone(),
            verified: VerifiedAt::never(),
        })
    }

    /// Returns the block with the checksums of the bytes that [`Self::filled`] has added.
    pub(crate) fn summed(mut self, sums: &BodySums) -> Self {
        self.sums = self.sums.with(sums);
        self
    }

    /// Returns the block with a body after its end that is in the arena already.
    pub(crate) fn with_received(&self, received: Received, sums: &BodySums) -> Self {
        let mut pieces = self.pieces.clone();
        let mut added = 0;
        for (extent, bytes) in received.into_extents() {
            pieces.push(ExtentSlice { extent: Arc::new(extent), from: 0, bytes });
            added += bytes;
        }
        Self {
            arena: Arc::clone(&self.arena),
            pieces,
            length: self.length + added,
            sums: self.sums.with(sums),
            verified: self.verified_before(),
        }
    }

    /// Gives back the memory behind the first `length` bytes, of which there is one at least.
    /// Returns whether it did: not while a reader has it, and not if the last bytes that stay are
    /// damaged. The block is as it was before then.
    pub(crate) fn truncate(&mut self, length: u32) -> bool {
        if length == 0 || length >= self.length {
            return false;
        }
        // The sum of the chunk that is cut is computed anew, so its bytes must be those that were
        // written.
        let (from, to) = self.sums.around(length - 1, length);
        let mut chunk = self.copied(from, to - from);
        if self.sums.checksum(from, to) != Some(crc32c(&chunk)) {
            return false;
        }
        let mut left = length;
        let holds_last = |piece: &ExtentSlice| {
            let is_last = left <= piece.bytes;
            left -= if is_last { 0 } else { piece.bytes };
            is_last
        };
        let last = self.pieces.iter().position(holds_last).expect("the block is longer");
        let piece = &mut self.pieces[last];
        let Some(extent) = Arc::get_mut(&mut piece.extent) else { return false };
        extent.shrink(piece.from + left);
        piece.bytes = left;
        self.pieces.truncate(last + 1);
        chunk.truncate((length % CHUNK_BYTES) as usize);
        self.sums = self.sums.cut(length, &chunk);
        self.length = length;
        true
    }

    /// Returns a copy of a range.
    fn copied(&self, offset: u32, bytes: u32) -> Vec<u8> {
        let mut copy = Vec::with_capacity(bytes as usize);
        let (mut skip, mut left) = (offset, bytes);
        for piece in &self.pieces {
            let skipped = skip.min(piece.bytes);
            let taken = left.min(piece.bytes - skipped);
            if taken > 0 {
                copy.extend_from_slice(piece.extent.slice(piece.from + skipped, taken));
            }
            skip -= skipped;
            left -= taken;
        }
        copy
    }

    /// Returns when all bytes were verified, once more of them were, where they are.
    fn verified_before(&self) -> VerifiedAt {
        match self.length {
            0 => VerifiedAt::now(),
            _ => VerifiedAt(AtomicU64::new(self.verified.0.load(Ordering::Relaxed))),
        }
    }

    /// Lends `bytes` bytes from `offset`, in as few slices as the memory allows.
    ///
    /// # Panics
    /// When the range passes the end: the table admits no such read.
    pub(crate) fn borrow(self: &Arc<Self>, offset: u32, bytes: u32) -> Vec<Bytes> {
        assert!(
            offset.checked_add(bytes).is_some_and(|end| end <= self.length),
            "read past the end"
        );
        let lend = |stretch: Stretch| {
            Bytes::from_owner(BorrowedBytes {
                block: Arc::clone(self),
                first: stretch.first,
                count: stretch.count,
                skip: stretch.skip,
                last_bytes: stretch.last_bytes,
            })
        };
        if self.pieces.len() == 1 && bytes > 0 {
            // Most blocks are in one piece.
            return vec![lend(Stretch { first: 0, count: 1, skip: offset, last_bytes: bytes })];
        }
        self.stretches(offset, bytes).into_iter().map(lend).collect()
    }

    /// Compares all bytes with their checksum.
    ///
    /// # Errors
    /// [`Damage::Checksum`]: they changed in this machine's memory.
    pub(crate) fn verify(self: &Arc<Self>) -> Result<(), ReadError> {
        if computed(&self.borrow(0, self.length)) != self.sums.whole() {
            return Err(ReadError::Damaged(Damage::Checksum));
        }
        self.verified.0.store(VerifiedAt::millis(), Ordering::Relaxed);
        Ok(())
    }

    /// Compares all bytes with their checksum, unless that was done within the last `age_max`.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub(crate) fn verify_within(self: &Arc<Self>, age_max: Duration) -> Result<(), ReadError> {
        if self.verified.is_within(age_max) { Ok(()) } else { self.verify() }
    }

    /// Notes that the bytes added last were verified where they are; those before keep their state.
    pub(crate) fn added_is_verified(&mut self, before: &Self) {
        self.verified = before.verified_before();
    }

    /// Returns whether it is the same block, at this length or another one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self.pieces.first(), other.pieces.first()) {
            (Some(here), Some(there)) => Arc::ptr_eq(&here.extent, &there.extent),
            _ => false,
        }
    }

    /// Returns the bytes of the arena that stay taken as long as this is held.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let mut last = None;
        let extents = self.pieces.iter().map(|piece| &piece.extent);
        let new = extents.filter(|extent| last.replace(extent.address()) != Some(extent.address()));
        new.map(|extent| u64::from(extent.capacity())).sum()
    }

    /// Returns where in the arena a range is; `None` when it is in more than one place.
    pub(crate) fn place(self: &Arc<Self>, offset: u32, bytes: u32) -> Option<u64> {
        match self.borrow(offset, bytes).as_slice() {
            [slice] => self.arena.place_of(slice),
            _ => None,
        }
    }

    fn stretches(&self, offset: u32, bytes: u32) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut end_address = None;
        let (mut skip, mut left) = (offset, bytes);
        for (index, piece) in self.pieces.iter().enumerate() {
            if left == 0 {
                break;
            }
            if skip >= piece.bytes {
                skip -= piece.bytes;
                continue;
            }
            let taken = left.min(piece.bytes - skip);
            let address = piece.address() + skip as usize;
            match stretches.last_mut() {
                Some(last) if end_address == Some(address) && piece.from == 0 => {
                    last.count += 1;
                    last.last_bytes = taken;
                }
                _ => stretches.push(Stretch { first: index, count: 1, skip, last_bytes: taken }),
            }
            end_address = Some(address + taken as usize);
            left -= taken;
            skip = 0;
        }
        stretches
    }
}

impl TierBytes for Arc<DramBytes> {
    fn sums(&self) -> Option<&ChunkSums> {
        Some(&self.sums)
    }

    fn raw(&self, offset: u32, bytes: u32) -> Result<Vec<Bytes>, ReadError> {
        Ok(self.borrow(offset, bytes))
    }

    fn inspect(&self, with_checksums: bool) -> Result<(), ReadError> {
        if with_checksums { self.verify() } else { Ok(()) }
    }

    fn has(&self, offset: u32, bytes: &[u8]) -> Result<bool, ReadError> {
        let mut rest = bytes;
        Ok(self.borrow(offset, bytes.len() as u32).iter().all(|slice| {
            let (now, later) = rest.split_at(slice.len());
            rest = later;
            slice == now
        }))
    }
}

impl VerifiedAt {
    const fn never() -> Self {
        Self(AtomicU64::new(0))
    }

    fn now() -> Self {
        Self(AtomicU64::new(Self::millis()))
    }

    fn millis() -> u64 {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        u64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn is_within(&self, age_max: Duration) -> bool {
        let age_max = u64::try_from(age_max.as_millis()).unwrap_or(u64::MAX);
        let at = self.0.load(Ordering::Relaxed);
        at > 0 && age_max > 0 && Self::millis() - at < age_max
    }
}

impl ExtentSlice {
    /// Takes as much of `added` bytes as the extent's end has room for; returns how much that was.
    fn grow(&mut self, added: u32, fill: impl FnOnce(&mut [u8])) -> u32 {
        let at = self.from + self.bytes;
        let taken = added.min(self.extent.capacity() - at);
        if taken == 0 || !self.extent.append(at, taken, fill) {
            return 0;
        }
        self.bytes += taken;
        taken
    }

    fn address(&self) -> usize {
        self.extent.address() + self.from as usize
    }
}

impl AsRef<[u8]> for BorrowedBytes {
    fn as_ref(&self) -> &[u8] {
        let pieces = &self.block.pieces[self.first..self.first + self.count];
        let first = &pieces[0];
        let from = first.from + self.skip;
        if self.count == 1 {
            return first.extent.slice(from, self.last_bytes);
        }
        let last = self.count - 1;
        let bytes =
            |index: usize| if index == last { self.last_bytes } else { pieces[index].bytes };
        let others: Vec<(&Extent, u32)> =
            (1..self.count).map(|index| (pieces[index].extent.as_ref(), bytes(index))).collect();
        first.extent.joined(from, first.bytes - self.skip, &others)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chunk_sums::sums_of;

    fn append(block: &DramBytes, bytes: &[u8]) -> Option<Arc<DramBytes>> {
        block.with(bytes, &sums_of(u64::from(block.length), bytes)).map(Arc::new)
    }

    fn all(block: &Arc<DramBytes>) -> Vec<u8> {
        block.borrow(0, block.length).concat()
    }

    #[test]
    fn appended_bytes_share_memory_with_what_was_there() {
        let arena = Arc::new(Arena::new(1 << 20).unwrap());
        let first = append(&DramBytes::new(&arena), &[1; 5000]).unwrap();
        let second = append(&first, &[2; 5000]).unwrap();
        assert_eq!(arena.used_bytes(), 12_288);
        assert_eq!(all(&first), [1; 5000]);
        assert_eq!(second.borrow(0, 10_000).len(), 1);
        assert_eq!(all(&second), [[1; 5000], [2; 5000]].concat());
        assert_eq!(second.has(4999, &[1, 2]), Ok(true));
        assert_eq!(second.has(4999, &[1, 1]), Ok(false));
    }

    #[test]
    fn refused_append_does_not_spoil_the_next() {
        let arena = Arc::new(Arena::new(1 << 20).unwrap());
        let block = append(&DramBytes::new(&arena), b"abc").unwrap();
        drop(append(&block, b"refused by a fence").unwrap());
        let block = append(&block, b"def").unwrap();
        assert_eq!(all(&block), b"abcdef");
    }

    #[test]
    fn memory_behind_the_bytes_that_stay_is_free_at_once_unless_a_reader_has_it() {
        let arena = Arc::new(Arena::new(1 << 20).unwrap());
        let bytes: Vec<u8> = (0..60_000_u32).map(|index| (index * 31 % 251) as u8).collect();
        for length in [1_usize, 4095, 4096, 4097, 20_000, 59_999] {
            let first = append(&DramBytes::new(&arena), &bytes[..10_000]).unwrap();
            let mut block = append(&first, &bytes[10_000..]).unwrap();
            assert!(length >= 10_000 || !truncate(&mut block, length), "an older value shares it");
            drop(first);
            let borrowed = block.borrow(59_000, 1000);
            assert!(!truncate(&mut block, length), "a reader has it");
            drop(borrowed);
            for refused in [0, 60_000, 60_001] {
                assert!(!truncate(&mut block, refused), "{refused}");
            }
            assert_eq!(all(&block), bytes);
            assert!(truncate(&mut block, length), "{length}");
            assert_eq!(arena.used_bytes(), (length as u64).next_multiple_of(4096));
            assert_eq!(all(&block), bytes[..length], "{length}");
            assert_eq!(block.verify(), Ok(()));
            assert_eq!(block.sums, ChunkSums::default().with(&sums_of(0, &bytes[..length])));
            drop(block);
            assert_eq!(arena.used_bytes(), 0);
        }
    }

    fn truncate(block: &mut Arc<DramBytes>, length: usize) -> bool {
        Arc::get_mut(block).is_some_and(|block| block.truncate(length as u32))
    }

    #[test]
    fn memory_stays_while_it_is_being_read() {
        let arena = Arc::new(Arena::new(1 << 20).unwrap());
        let block = append(&DramBytes::new(&arena), &[7; 9000]).unwrap();
        let borrowed = block.borrow(10, 8000);
        drop(block);
        assert_eq!(arena.used_bytes(), 12_288);
        assert_eq!(borrowed.concat(), [7; 8000]);
        drop(borrowed);
        assert_eq!(arena.used_bytes(), 0);
    }

    proptest! {
        /// Several blocks grow and go in one small arena; every range of every block is compared.
        #[test]
        fn blocks_keep_their_bytes_when_the_arena_is_fragmented(
            steps in prop::collection::vec((0..6_usize, 1..20_000_usize, any::<u8>()), 1..80),
            offset in any::<prop::sample::Index>(),
        ) {
            let arena = Arc::new(Arena::new(128 << 10).unwrap());
            let mut blocks: Vec<(Vec<u8>, Arc<DramBytes>)> =
                (0..6).map(|_| (Vec::new(), Arc::new(DramBytes::new(&arena)))).collect();
            for (which, bytes, fill) in steps {
                let (model, block) = &mut blocks[which];
                if fill < 40 {
                    (*model, *block) = (Vec::new(), Arc::new(DramBytes::new(&arena)));
                    continue;
                }
                let run: Vec<u8> = (0..bytes).map(|index| fill ^ index as u8).collect();
                match append(block, &run) {
                    Some(grown) => {
                        model.extend_from_slice(&run);
                        *block = grown;
                    }
                    // What is left of the last units was tried first, and may have been used.
                    None => prop_assert!(arena.bytes() - arena.used_bytes() < run.len() as u64),
                }
                for (model, block) in &blocks {
                    prop_assert_eq!(&all(block), model);
                    if !model.is_empty() {
                        let start = offset.index(model.len());
                        let borrowed = block.borrow(start as u32, (model.len() - start) as u32);
                        prop_assert_eq!(&borrowed.concat(), &model[start..]);
                    }
                }
            }
            drop(blocks);
            prop_assert_eq!(arena.used_bytes(), 0);
            prop_assert_eq!(arena.free_extents(), 1);
        }
    }
}
