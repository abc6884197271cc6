//! Reading ranges of an object: which request goes to which datanode, in how many frames, and what
//! follows from an attempt at them.
//!
//! A read is a loop: take the cached layout, or look it up; plan what is missing; request it; fill
//! in the replies. What was filled in stays filled over attempts: blocks that moved are requested
//! again, the others are not.

mod ahead;
mod attempt;
mod pages;

use std::collections::BTreeMap;

use sanderling_protocol::frame::RangeRequest;
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::{BlockLocation, Layout};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{Millis, NodeId, Refusal};

pub use self::ahead::ReadAhead;
pub use self::attempt::{FailedRead, ReadAttempt};
pub use self::pages::{AfterPage, LayoutPages};

/// Pause before a layout is looked up again that ends before the wanted range does: the namenode
/// has the length by the next look-up, or refuses the range. One unit of [`Millis`]; the pause of
/// the retry policy is longer and applies.
const SHORT_PAUSE: Millis = Millis(1);

/// Bytes in flight of a read into the caller's buffer: enough for every node to be busy, few enough
/// that received bytes are soon copied and their memory free.
const INTO_BYTES: u64 = 32 << 20;

/// A run of bytes of one block that belongs to one wanted range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPiece {
    /// What is requested from the datanode.
    pub range: RangeRequest,
    /// The block's home.
    pub node: NodeId,
    /// Index of the wanted range.
    pub wanted: usize,
    /// Offset in the wanted range, in bytes.
    pub offset: usize,
    /// Index of the object among those that are read together.
    pub object: usize,
}

/// The wanted ranges of one object while they are being filled with parts: bytes, or what stands
/// for them.
#[derive(Debug, Clone)]
pub struct Filling<P> {
    wanted: Vec<ByteRange>,
    /// The parts of each wanted range, by their offset in it.
    parts: Vec<BTreeMap<usize, P>>,
    /// Bytes of the parts of each wanted range.
    filled: Vec<u64>,
}

impl<P> Filling<P> {
    /// Returns the wanted ranges, of which no part has been read yet.
    #[must_use]
    pub fn new(wanted: &[ByteRange]) -> Self {
        let parts = wanted.iter().map(|_| BTreeMap::new()).collect();
        Self { wanted: wanted.to_vec(), parts, filled: vec![0; wanted.len()] }
    }

    /// Cuts what is still missing along the blocks of a layout. Bytes that live in the catalog are
    /// filled in at once; `inline` makes a part of them.
    ///
    /// # Errors
    /// The lost ranges of the object among what is missing, joined. The application computes them
    /// again: no later attempt can read them.
    pub fn plan(
        &mut self,
        layout: &Layout,
        inline: impl Fn(&[u8]) -> P,
    ) -> Result<Vec<ReadPiece>, Vec<ByteRange>> {
        let (mut pieces, mut lost) = (Vec::new(), Vec::new());
        for index in 0..self.wanted.len() {
            self.fill_inline(index, layout, &inline);
            self.cut(index, layout, &mut pieces, &mut lost);
        }
        if lost.is_empty() { Ok(pieces) } else { Err(joined(lost)) }
    }

    fn fill_inline(&mut self, index: usize, layout: &Layout, part: impl Fn(&[u8]) -> P) {
        let Some(inline) = &layout.inline else { return };
        let wanted = self.wanted[index];
        let end = (wanted.offset + wanted.bytes).min(inline.len() as u64);
        if wanted.offset < end && !self.parts[index].contains_key(&0) {
            let bytes = &inline[wanted.offset as usize..end as usize];
            self.put(index, 0, bytes.len() as u64, part(bytes));
        }
    }

    fn cut(
        &self,
        index: usize,
        layout: &Layout,
        pieces: &mut Vec<ReadPiece>,
        lost: &mut Vec<ByteRange>,
    ) {
        let wanted = self.wanted[index];
        let first = layout
            .blocks
            .partition_point(|block| block.offset + u64::from(block.length) <= wanted.offset);
        for block in &layout.blocks[first..] {
            if block.offset >= wanted.offset + wanted.bytes {
                break;
            }
            let Some((offset, length)) = overlap(block, wanted) else { continue };
            let start = block.offset + u64::from(offset);
            let place = (start - wanted.offset) as usize;
            if self.parts[index].contains_key(&place) {
                continue;
            }
            let Some(node) = block.home else {
                lost.push(ByteRange { offset: start, bytes: u64::from(length) });
                continue;
            };
            let range = RangeRequest { block: block.block, epoch: block.epoch, offset, length };
            pieces.push(ReadPiece { range, node, wanted: index, offset: place, object: 0 });
        }
    }

    /// Takes the bytes of a piece: as many as were requested. A piece that arrives twice counts
    /// once.
    pub fn fill(&mut self, piece: &ReadPiece, part: P) {
        self.put(piece.wanted, piece.offset, u64::from(piece.range.length), part);
    }

    fn put(&mut self, index: usize, offset: usize, bytes: u64, part: P) {
        if self.parts[index].insert(offset, part).is_none() {
            self.filled[index] += bytes;
        }
        debug_assert!(self.filled[index] <= self.wanted[index].bytes, "pieces do not overlap");
    }

    /// Returns whether every wanted byte is there. Not so if a layout ends before a range does.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.wanted.iter().zip(&self.filled).all(|(range, filled)| range.bytes == *filled)
    }

    /// Returns what is wrong with the layout after an attempt in which no piece failed; `None` if
    /// every wanted byte is there. [`ReadAttempt::end`] takes it.
    #[must_use]
    pub fn shortfall(&self) -> Option<Refusal> {
        let why = || "the layout ends before the range".to_owned();
        let is_short = !self.is_complete();
        is_short.then(|| Refusal::RetryAfter { after: SHORT_PAUSE, why: why() })
    }

    /// Returns the parts of each wanted range, by their offset in it.
    #[must_use]
    pub fn into_parts(self) -> Vec<BTreeMap<usize, P>> {
        self.parts
    }
}

/// Returns the piece of a range that lies within one block whose home is known, as most do: it
/// needs no plan. `None` for any other range.
#[must_use]
pub fn only_piece(layout: &Layout, wanted: ByteRange) -> Option<ReadPiece> {
    let ByteRange { offset, bytes } = wanted;
    let index = layout.blocks.partition_point(|block| block.offset <= offset).checked_sub(1)?;
    let block = &layout.blocks[index];
    let (offset, length) = overlap(block, wanted)?;
    let range = RangeRequest { block: block.block, epoch: block.epoch, offset, length };
    let piece = ReadPiece { range, node: block.home?, wanted: 0, offset: 0, object: 0 };
    (u64::from(length) == bytes).then_some(piece)
}

/// Returns the first part of a read into the caller's buffer: its bytes are copied there before the
/// next part is requested.
#[must_use]
pub fn first_step(wanted: ByteRange) -> ByteRange {
    ByteRange { offset: wanted.offset, bytes: wanted.bytes.min(INTO_BYTES) }
}

/// Returns whether a read goes into the caller's buffer piece by piece. A shorter one is received
/// whole and copied once.
#[must_use]
pub const fn is_scattered(wanted: ByteRange) -> bool {
    wanted.bytes > BLOCK_BYTES_MAX as u64
}

/// Returns whether a reader keeps a layout that another reader of the client has looked up. One of
/// an object that has grown serves the read at hand only: the reader sees the new length when it
/// looks the object up itself.
#[must_use]
pub const fn is_kept(own: &Layout, other: &Layout) -> bool {
    own.stat.bytes == other.stat.bytes
}

/// Returns the part of a block that is in a range of its object: offset in the block and length, in
/// bytes; `None` if there is none.
#[must_use]
pub fn overlap(block: &BlockLocation, range: ByteRange) -> Option<(u32, u32)> {
    let start = block.offset.max(range.offset);
    let end = (block.offset + u64::from(block.length)).min(range.offset + range.bytes);
    (start < end).then(|| ((start - block.offset) as u32, (end - start) as u32))
}

/// Groups pieces by node into frames of at most so many bytes and ranges. A piece that is longer
/// than a frame has one to itself.
#[must_use]
pub fn batches(
    pieces: Vec<ReadPiece>,
    bytes_max: u32,
    ranges_max: usize,
) -> Vec<(NodeId, Vec<ReadPiece>)> {
    let mut open: BTreeMap<NodeId, (Vec<ReadPiece>, u32)> = BTreeMap::new();
    let mut full = Vec::new();
    for piece in pieces {
        let (batch, bytes) = open.entry(piece.node).or_default();
        let is_full = !batch.is_empty()
            && (bytes.saturating_add(piece.range.length) > bytes_max || batch.len() >= ranges_max);
        if is_full {
            full.push((piece.node, std::mem::take(batch)));
            *bytes = 0;
        }
        batch.push(piece);
        *bytes += piece.range.length;
    }
    full.extend(open.into_iter().map(|(node, (batch, _))| (node, batch)));
    full
}

/// Joins adjacent and overlapping ranges, in order.
#[must_use]
pub fn joined(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.sort_unstable();
    let mut joined: Vec<ByteRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.offset <= last.offset + last.bytes => {
                last.bytes = last.bytes.max(range.offset + range.bytes - last.offset);
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Checks that each of the ranges ends inside the object, whose length the layout has.
///
/// # Errors
/// [`Refusal::OutOfRange`] for the first that does not. The application reads less, or looks the
/// object up again if it may have grown.
pub fn check_inside(layout: &Layout, ranges: &[ByteRange]) -> Result<(), Refusal> {
    let end = layout.stat.bytes;
    for ByteRange { offset, bytes } in ranges {
        if offset.checked_add(*bytes).is_none_or(|last| last > end) {
            return Err(Refusal::OutOfRange { offset: *offset, bytes: *bytes, end });
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use sanderling_protocol::message::{Attributes, ObjectKind, ObjectStat};
    use sanderling_protocol::refusal::Recovery;
    use sanderling_protocol::{BlockId, Epoch, Instant, ObjectId, Path, StorageClass, Tier};

    use super::*;

    /// A layout of blocks of those lengths; `None` at the home of a lost one.
    pub(crate) fn layout(blocks: &[(u32, Option<u32>)]) -> Layout {
        let mut offset = 0;
        let locate = |(index, (length, home)): (usize, &(u32, Option<u32>))| {
            let start = offset;
            offset += u64::from(*length);
            BlockLocation {
                block: BlockId(index as u64 + 1),
                epoch: Epoch(1),
                offset: start,
                length: *length,
                home: home.map(NodeId),
                tier: Tier::Dram,
            }
        };
        let blocks: Vec<BlockLocation> = blocks.iter().enumerate().map(locate).collect();
        let stat = ObjectStat {
            attributes: Attributes::none(),
            path: Path::root(),
            object: ObjectId(1),
            kind: ObjectKind::File,
            bytes: offset,
            lost_bytes: 0,
            is_sealed: true,
            is_listed: true,
            delete_after_read: false,
            class: StorageClass::default(),
            created_at: Instant(0),
            modified_at: Instant(0),
            expires_in: None,
            blocks: 0,
            entries: 0,
            job: None,
        };
        Layout { stat, inline: None, blocks, places: Vec::new(), next_offset: None }
    }

    const fn range(offset: u64, bytes: u64) -> ByteRange {
        ByteRange { offset, bytes }
    }

    fn plan(filling: &mut Filling<u32>, layout: &Layout) -> Result<Vec<ReadPiece>, Vec<ByteRange>> {
        filling.plan(layout, |inline| inline.len() as u32)
    }

    fn fill_all(filling: &mut Filling<u32>, layout: &Layout) {
        for piece in plan(filling, layout).expect("nothing is lost") {
            filling.fill(&piece, piece.range.length);
        }
    }

    #[test]
    fn layout_that_ends_before_the_range_leaves_it_incomplete() {
        let mut filling = Filling::new(&[range(50, 100)]);
        fill_all(&mut filling, &layout(&[(100, Some(1))]));
        let short = filling.shortfall().expect("fifty bytes are missing");
        assert_eq!(short.recovery(), Recovery::RetryAfter(Millis(1)));
        fill_all(&mut filling, &layout(&[(100, Some(1)), (0, Some(1)), (60, Some(2))]));
        assert_eq!(filling.shortfall(), None);
        let parts: Vec<(usize, u32)> = filling.into_parts().remove(0).into_iter().collect();
        assert_eq!(parts, [(0, 50), (50, 50)]);
    }

    #[test]
    fn only_lost_bytes_that_are_wanted_are_reported_joined() {
        let layout = layout(&[(100, Some(1)), (100, None), (100, None), (100, Some(2))]);
        let mut around = Filling::new(&[range(0, 100), range(300, 100)]);
        assert_eq!(plan(&mut around, &layout).expect("nothing wanted is lost").len(), 2);
        let mut across = Filling::new(&[range(150, 200)]);
        assert_eq!(plan(&mut across, &layout).expect_err("lost"), [range(150, 150)]);
    }

    #[test]
    fn bytes_that_arrived_are_not_requested_again_where_their_block_went() {
        let mut filling = Filling::new(&[range(0, 200)]);
        let pieces = plan(&mut filling, &layout(&[(100, Some(1)), (100, Some(2))])).unwrap();
        filling.fill(&pieces[0], 100);
        filling.fill(&pieces[0], 100);
        assert!(!filling.is_complete());
        let left = plan(&mut filling, &layout(&[(100, None), (100, Some(3))])).unwrap();
        assert_eq!((left.len(), left[0].node, left[0].offset), (1, NodeId(3), 100));
    }

    #[test]
    fn inline_bytes_are_filled_in_by_the_plan() {
        let mut small = layout(&[]);
        small.inline = Some(vec![1, 2, 3, 4]);
        let mut filling = Filling::new(&[range(1, 2), range(4, 0)]);
        assert_eq!(plan(&mut filling, &small), Ok(vec![]));
        assert!(filling.is_complete());
        assert_eq!(plan(&mut filling, &small), Ok(vec![]), "once");
        assert_eq!(filling.into_parts()[0][&0], 2);
    }

    #[test]
    fn pieces_of_one_node_share_frames_up_to_their_bound() {
        let layout = layout(&[(100, Some(1)), (100, Some(2)), (100, Some(1)), (100, Some(1))]);
        let mut filling = Filling::new(&[range(0, 400)]);
        let pieces = plan(&mut filling, &layout).expect("nothing is lost");
        let sizes = |bytes_max, ranges_max| -> Vec<(NodeId, usize)> {
            let frames = batches(pieces.clone(), bytes_max, ranges_max);
            frames.iter().map(|(node, batch)| (*node, batch.len())).collect()
        };
        assert_eq!(sizes(200, 100), [(NodeId(1), 2), (NodeId(1), 1), (NodeId(2), 1)]);
        assert_eq!(sizes(1000, 2), [(NodeId(1), 2), (NodeId(1), 1), (NodeId(2), 1)]);
        assert_eq!(sizes(50, 100).len(), 4, "a long piece has a frame to itself");
        assert_eq!(sizes(1000, 100), [(NodeId(1), 3), (NodeId(2), 1)]);
    }

    #[test]
    fn range_may_end_with_the_object_but_not_behind_it() {
        let layout = layout(&[(100, Some(1))]);
        assert_eq!(check_inside(&layout, &[range(0, 100), range(100, 0)]), Ok(()));
        let beyond = Refusal::OutOfRange { offset: 1, bytes: 100, end: 100 };
        assert_eq!(check_inside(&layout, &[range(0, 1), range(1, 100)]), Err(beyond));
        assert!(check_inside(&layout, &[range(u64::MAX, 2)]).is_err());
    }

    #[test]
    fn range_within_a_block_with_a_home_needs_no_plan() {
        let known = layout(&[(100, Some(1)), (0, Some(3)), (100, Some(2)), (100, None)]);
        let piece = only_piece(&known, range(100, 100)).expect("it is all of block 3");
        assert_eq!((piece.node, piece.range.block), (NodeId(2), BlockId(3)));
        assert_eq!((piece.range.offset, piece.range.length), (0, 100));
        assert_eq!(only_piece(&known, range(10, 20)).map(|it| it.range.offset), Some(10));
        for planned in [range(50, 51), range(100, 0), range(200, 10), range(300, 1)] {
            assert_eq!(only_piece(&known, planned), None, "{planned:?}");
        }
        assert_eq!(only_piece(&layout(&[]), range(0, 1)), None);
    }

    #[test]
    fn long_reads_into_a_buffer_go_step_by_step() {
        assert!(!is_scattered(range(0, 1 << 20)) && is_scattered(range(0, (1 << 20) + 1)));
        assert_eq!(first_step(range(7, 100)), range(7, 100));
        assert_eq!(first_step(range(7, u64::MAX)), range(7, 32 << 20));
    }

    #[test]
    fn layout_of_another_reader_is_kept_unless_the_object_has_grown() {
        let (own, moved) = (layout(&[(100, Some(1))]), layout(&[(100, Some(2))]));
        assert!(is_kept(&own, &moved));
        assert!(!is_kept(&own, &layout(&[(100, Some(1)), (1, Some(1))])));
    }
}
