//! The bounds of the queues in which a namenode's frames wait, drawn small in some seeds: what a
//! server does with thousands of callers happens with a few then.

use sanderling_core::fair::Bounds;
use sanderling_core::namenode::{
    CHANGES_WAITING, FrameRead, LONG_PLACES, REQUEST_COST, ReadLimits, long_places,
};

use crate::random::Random;

/// The queues of one seed; of most of them as large as a server's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuePlan {
    /// Whether the bounds are small. Then clients also list directories (`lister.rs`).
    pub(crate) is_small: bool,
    /// Bounds of the frames of changes that wait for the writer.
    pub(crate) changes: Bounds,
    /// Bounds of the frames of reads that take several slices.
    pub(crate) reads: ReadLimits,
    /// Entries that a frame of reads may visit when it arrives.
    pub(crate) at_once_entries: usize,
    /// Entries of one later slice.
    pub(crate) slice_entries: usize,
    /// Longest time between two slices, in microseconds.
    pub(crate) slice_micros_max: u64,
    /// Places for frames of one connection that take long.
    pub(crate) long_places: u32,
    /// Requests that one request counts as where frames are put into batches, so that a few frames
    /// fill one.
    pub(crate) request_cost: u64,
    /// Whether small changes are made when they arrive, if the writer has nothing to do. A server
    /// does that. In most seeds the writer counts as busy whenever a frame arrives, as under load:
    /// the few callers here would else seldom have changes of several frames in one batch.
    pub(crate) makes_at_once: bool,
    /// Owners of the tokens of all clients; 0: no client has a token, each connection counts alone.
    pub(crate) owners: u8,
}

/// Places of a short frame that takes long, as the namenode counts them.
const SHORT: u32 = long_places(0, LONG_PLACES);

impl Default for QueuePlan {
    fn default() -> Self {
        Self {
            is_small: false,
            changes: CHANGES_WAITING,
            reads: ReadLimits::default(),
            at_once_entries: FrameRead::AT_ONCE_ENTRIES,
            slice_entries: FrameRead::SLICE_ENTRIES,
            slice_micros_max: 0,
            long_places: LONG_PLACES,
            request_cost: REQUEST_COST,
            makes_at_once: false,
            owners: 0,
        }
    }
}

impl QueuePlan {
    /// Draws each bound apart from the others: together they hide each other.
    pub(crate) fn draw(random: &mut Random) -> Self {
        if !random.permille(250) {
            return Self::default();
        }
        let (changes, reads) = (CHANGES_WAITING, ReadLimits::default());
        let changes = Bounds {
            pieces_max: random.pick(&[changes.pieces_max, 12, 6, 3]),
            bytes_max: random.pick(&[changes.bytes_max, changes.bytes_max, 2000]),
            share: random.pick(&[1, 2, changes.share]),
        };
        let reads = ReadLimits {
            frames_max: random.pick(&[reads.frames_max, 8, 3]),
            large_entries: random.pick(&[reads.large_entries, 1, 2, 4]),
            large_max: random.pick(&[1, 2]),
            parked_max: random.pick(&[reads.parked_max, 1, 2]),
            share: random.pick(&[1, 2, reads.share]),
        };
        Self {
            is_small: true,
            changes,
            reads,
            at_once_entries: random.pick(&[1, 2, 4]),
            slice_entries: random.pick(&[1, 2, 5]),
            slice_micros_max: random.pick(&[50, 1000, 5000]),
            // As many short frames as at a server, or one, two or three.
            long_places: random.pick(&[LONG_PLACES, SHORT, 2 * SHORT, 3 * SHORT]),
            // 15 requests share a batch, or four, or each frame has one of its own.
            request_cost: random.pick(&[REQUEST_COST, 33, 64, 65]),
            makes_at_once: random.permille(500),
            owners: random.pick(&[0, 0, 2, 3]),
        }
    }
}
