//! Bodies on their way into the arena: received where they will stay.

use std::sync::Arc;

use bytes::Bytes;

use crate::arena::{Arena, Extent};
use crate::chunk_sums::{BodySums, Summing, sums_of};
use crate::dram::DramBytes;

/// Fresh extents that the body of one write fills in order. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Received {
    arena: Arc<Arena>,
    extents: Vec<Extent>,
    bytes: u32,
    /// How many extents are full, and how many bytes of the next one are there.
    full: usize,
    filled: u32,
}

/// The bytes of a write or of a block that is stored.
#[derive(Debug)]
pub(crate) enum BlockBody {
    /// In a buffer: to be copied.
    Bytes(Bytes),
    /// In the arena already.
    Received(Received),
}

impl Received {
    /// Takes room for a body; `None` when the arena has none.
    pub(crate) fn take(arena: &Arc<Arena>, bytes: u32) -> Option<Self> {
        let extents = arena.take(bytes, None)?;
        Some(Self { arena: Arc::clone(arena), extents, bytes, full: 0, filled: 0 })
    }

    /// Takes room for a body as [`Self::take`] does, if `may` allows it for so many free bytes, as
    /// [`Arena::take_if`] calls it.
    pub(crate) fn take_if(
        arena: &Arc<Arena>,
        bytes: u32,
        may: impl FnOnce(u64) -> bool,
    ) -> Option<Self> {
        let extents = arena.take_if(bytes, may)?;
        Some(Self { arena: Arc::clone(arena), extents, bytes, full: 0, filled: 0 })
    }

    /// Returns how many bytes of its arena are free.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.arena.free_bytes()
    }

    /// Returns memory for the next bytes.
    pub(crate) fn spare(&mut self) -> &mut [u8] {
        match self.extents.get_mut(self.full) {
            Some(extent) => &mut extent.fresh()[self.filled as usize..],
            None => &mut [],
        }
    }

    /// Notes that so many more bytes are there, no more than the spare memory holds.
    pub(crate) fn advance(&mut self, bytes: u32) {
        self.filled += bytes;
        if let Some(extent) = self.extents.get(self.full)
            && self.filled == extent.capacity()
        {
            self.full += 1;
            self.filled = 0;
        }
    }

    /// Returns the extents with how many of their bytes are meant.
    ///
    /// # Panics
    /// When the body is not complete: the transport hands over complete ones only.
    pub(crate) fn into_extents(mut self) -> Vec<(Extent, u32)> {
        let mut left = self.bytes;
        let mut take = |mut extent: Extent| {
            let bytes = left.min(extent.capacity());
            left -= bytes;
            extent.publish(bytes);
            (extent, bytes)
        };
        let before: u32 = self.extents[..self.full].iter().map(Extent::capacity).sum();
        assert_eq!(before + self.filled, self.bytes, "a body that is not complete was used");
        std::mem::take(&mut self.extents).into_iter().map(&mut take).collect()
    }

    fn sums(&mut self, offset: u64) -> BodySums {
        let mut left = self.bytes as usize;
        let mut summing = Summing::new(offset);
        for extent in &mut self.extents {
            let bytes = extent.fresh();
            let taken = bytes.len().min(left);
            summing.update(&bytes[..taken]);
            left -= taken;
        }
        summing.finish()
    }
}

impl From<Bytes> for BlockBody {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl BlockBody {
    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u32,
            Self::Received(received) => received.bytes,
        }
    }

    /// Returns the checksums of the bytes, which come to lie at `offset` of their block.
    pub(crate) fn sums(&mut self, offset: u64) -> BodySums {
        match self {
            Self::Bytes(bytes) => sums_of(offset, bytes),
            Self::Received(received) => received.sums(offset),
        }
    }

    /// Returns the bytes; they are copied only when the arena had no room for them in one piece.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Received(received) => {
                let (arena, bytes) = (Arc::clone(&received.arena), received.bytes);
                let block =
                    Arc::new(DramBytes::new(&arena).with_received(received, &BodySums::default()));
                let mut slices = block.borrow(0, bytes);
                match slices.pop() {
                    Some(slice) if slices.is_empty() => slice,
                    Some(last) => [slices.concat(), last.to_vec()].concat().into(),
                    None => Bytes::new(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::checksum::crc32c;

    use super::*;

    fn received(arena: &Arc<Arena>, bytes: &[u8], step: usize) -> Received {
        let mut received = Received::take(arena, bytes.len() as u32).unwrap();
        let mut rest = bytes;
        while !rest.is_empty() {
            let spare = received.spare();
            let taken = spare.len().min(rest.len()).min(step);
            spare[..taken].copy_from_slice(&rest[..taken]);
            received.advance(taken as u32);
            rest = &rest[taken..];
        }
        received
    }

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|at| (at * 31 % 251) as u8).collect()
    }

    /// An arena whose free room is in runs of one unit.
    fn fragmented() -> (Arc<Arena>, Vec<Extent>) {
        let arena = Arc::new(Arena::new(64 << 12).unwrap());
        let units: Vec<Extent> = (0..64).flat_map(|_| arena.take(1 << 12, None).unwrap()).collect();
        let kept = units.into_iter().enumerate().filter(|(index, _)| index % 2 == 0);
        (arena, kept.map(|(_, extent)| extent).collect())
    }

    #[test]
    fn body_is_the_block_without_a_copy_also_in_a_fragmented_arena() {
        let whole = Arc::new(Arena::new(1 << 20).unwrap());
        let (pieces, kept) = fragmented();
        for arena in [&whole, &pieces] {
            let before = arena.used_bytes();
            let bytes = bytes(50_001);
            let mut body = BlockBody::Received(received(arena, &bytes, 7000));
            let sums = body.sums(0);
            assert_eq!((body.len(), sums.whole), (50_001, crc32c(&bytes)));
            let BlockBody::Received(received) = body else { unreachable!() };
            let first = received.extents[0].address();
            let block = DramBytes::new(arena).with_received(received, &sums);
            let block = Arc::new(block);
            let borrowed = block.borrow(0, 50_001);
            assert_eq!(borrowed[0].as_ptr() as usize, first);
            assert_eq!(borrowed.concat(), bytes);
            let grown = Arc::new(block.with(b"more", &sums_of(50_001, b"more")).unwrap());
            assert_eq!(grown.borrow(49_999, 6).concat(), [&bytes[49_999..], b"more"].concat());
            drop((block, grown, borrowed));
            assert_eq!(arena.used_bytes(), before);
        }
        drop(kept);
    }

    #[test]
    fn body_that_is_not_complete_gives_its_room_back() {
        let arena = Arc::new(Arena::new(1 << 20).unwrap());
        let mut received = Received::take(&arena, 100_000).unwrap();
        received.spare()[..10].fill(7);
        received.advance(10);
        assert!(arena.used_bytes() >= 100_000);
        drop(received);
        assert_eq!(arena.used_bytes(), 0);
        assert!(Received::take(&arena, 2 << 20).is_none());
    }

    #[test]
    fn body_can_be_had_as_bytes() {
        let (arena, _kept) = fragmented();
        let bytes = bytes(30_000);
        assert_eq!(BlockBody::Received(received(&arena, &bytes, 4096)).into_bytes(), bytes);
    }
}
