//! The bounds of the queues in which a namenode's frames wait, drawn small in some seeds: what a
//! server does with thousands of callers happens with a few then.

use sanderling_core::fair::Bounds;
use sanderling_core::namenode::{FrameRead, ReadLimits};

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
    /// Most frames of one connection that wait for answers which take long.
    pub(crate) long_waiting_max: usize,
    /// Requests that one request counts as where frames are put into batches, so that a few frames
    /// fill one.
    pub(crate) request_cost: u64,
    /// Whether small changes are made when they arrive, if the writer has nothing to do.
    pub(crate) makes_at_once: bool,
    /// Owners of the tokens of all clients; 0: no client has a token, each connection counts alone.
    pub(crate) owners: u8,
}

/// Frames of one connection that may wait for long answers. The server's: `LONG_WAITING_PLACES`, of
/// which a short frame takes a sixteenth.
const LONG_WAITING_MAX: usize = 16;

/// Frames and bytes of changes that may wait, and the divisor of a tenant's share of them. The
/// server's defaults (`waiting_frames_max`, `waiting_bytes_max`, `SHARE`).
const CHANGES: Bounds = Bounds { pieces_max: 8192, bytes_max: 256 << 20, share: 4 };

impl Default for QueuePlan {
    fn default() -> Self {
        Self {
            is_small: false,
            changes: CHANGES,
            reads: ReadLimits::default(),
            at_once_entries: FrameRead::AT_ONCE_ENTRIES,
            slice_entries: FrameRead::SLICE_ENTRIES,
            slice_micros_max: 0,
            long_waiting_max: LONG_WAITING_MAX,
            request_cost: 1,
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
        let changes = Bounds {
            pieces_max: random.pick(&[CHANGES.pieces_max, 12, 6, 3]),
            bytes_max: random.pick(&[CHANGES.bytes_max, CHANGES.bytes_max, 2000]),
            share: random.pick(&[1, 2, 4]),
        };
        let reads = ReadLimits {
            frames_max: random.pick(&[4096, 8, 3]),
            large_entries: random.pick(&[16 << 10, 1, 2, 4]),
            large_max: random.pick(&[1, 2]),
            parked_max: random.pick(&[16, 1, 2]),
            share: random.pick(&[1, 2, 4]),
        };
        Self {
            is_small: true,
            changes,
            reads,
            at_once_entries: random.pick(&[1, 2, 4]),
            slice_entries: random.pick(&[1, 2, 5]),
            slice_micros_max: random.pick(&[50, 1000, 5000]),
            long_waiting_max: random.pick(&[LONG_WAITING_MAX, 1, 2, 3]),
            // 15 requests share a batch, or four, or each frame has one of its own.
            request_cost: random.pick(&[1, 33, 64, 65]),
            makes_at_once: random.permille(500),
            owners: random.pick(&[0, 0, 2, 3]),
        }
    }
}
