//! Departures: which blocks of a drain leave next, to where, and how many at once.

use sanderling_protocol::message::{MoveCandidate, MovePurpose};
use sanderling_protocol::{Instant, Millis, NodeId};

use super::config::RelocatorConfig;
use super::drain::Drain;
use super::pace::Force;
use super::queue::{self, Queued};
use super::targets::{MoveRequest, TargetSearch, Targets};
use crate::moves::{Batch, Choice, Move, Step};

/// What is under way from one source.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlightMoves {
    pub(super) batches: usize,
    /// Batches that may be under way.
    pub(super) batches_max: usize,
    /// Bytes that are not at their targets yet.
    pub(super) bytes: u64,
    /// Published bytes that have their place, there or reserved.
    pub(super) placed_bytes: u64,
}

impl InFlightMoves {
    /// Fewest batches that a source may have under way, however many others there are. The second
    /// hides the round trips of the first.
    const BATCHES_MIN: usize = 2;

    /// Returns nothing under way, of one of so many drains that share so many targets: none may
    /// take what all targets take together, because every source has a link of its own to fill.
    pub(super) fn none(drains: usize, targets: usize, config: &RelocatorConfig) -> Self {
        let share = (targets * config.target_batches_max).div_ceil(drains.max(1));
        let batches_max = share.max(Self::BATCHES_MIN).min(config.source_batches_max);
        Self { batches: 0, batches_max, bytes: 0, placed_bytes: 0 }
    }

    /// Counts a batch.
    pub(super) fn add(&mut self, batch: &Batch) {
        self.batches += 1;
        if matches!(batch.step, Step::Reserve | Step::Push) {
            self.bytes += push_bytes(batch);
        }
        if batch.step != Step::Abandon {
            self.placed_bytes += batch.bytes();
        }
    }
}

/// How large a batch may be.
#[derive(Debug, Clone, Copy)]
struct BatchSize {
    blocks_max: usize,
    /// Bytes to be aimed at.
    bytes: u64,
    /// Bytes that are done in time: no block is longer.
    bytes_max: u64,
}

/// Returns the bytes that the push of a batch may have to send.
fn push_bytes(batch: &Batch) -> u64 {
    batch.moves.iter().map(|one| u64::from(queue::bytes(&one.candidate))).sum()
}

/// Blocks without room that are passed over in one round before the drain pauses. As many as a
/// batch has blocks; each costs a look at all targets. Chosen, not measured.
const MISSES_MAX: usize = 64;

/// Takes the blocks from the head of the queue that leave now, together and for one target; `None`
/// when as much is under way as may be, or nothing can leave.
pub(super) fn depart(
    now: Instant,
    source: NodeId,
    drain: &mut Drain,
    targets: &mut Targets,
    under_way: InFlightMoves,
    config: &RelocatorConfig,
) -> Option<Batch> {
    let left = drain.left(now);
    let force = drain.force(now);
    let is_full = under_way.batches >= under_way.batches_max
        || !drain.pace.has_room(now, left, force, under_way.bytes);
    if is_full || drain.stalled_until.is_some() {
        return None;
    }
    let bytes_in_time = drain.pace.bytes_in_time(left, under_way.bytes);
    let pushes_max = match force {
        Force::Full => config.target_batches_max,
        Force::Yielding(_) => config.target_batches_max.div_ceil(2),
    };
    let choice = choose(now, source, drain, targets, pushes_max, bytes_in_time, config.retry_wait)?;
    let size = BatchSize {
        blocks_max: config.batch_blocks_max,
        bytes: drain
            .pace
            .push_bytes(left, config.batch_bytes_max)
            .min(targets.push_bytes_max(choice.node, left)),
        bytes_max: bytes_in_time,
    };
    let moves = take(drain, targets, choice, size);
    if moves.is_empty() {
        return None;
    }
    let batch = Batch::new(MovePurpose::Relocate, source, choice, moves);
    drain.push_begun(now, push_bytes(&batch), force);
    Some(batch)
}

/// Chooses the target of the head of the queue, or of the first block behind it that has one.
fn choose(
    now: Instant,
    source: NodeId,
    drain: &mut Drain,
    targets: &Targets,
    pushes_max: usize,
    bytes_max: u64,
    retry_wait: Millis,
) -> Option<Choice> {
    for _ in 0..MISSES_MAX {
        let head = &drain.queue.peek(bytes_max)?.candidate;
        if let Some((node, tier)) = head.reserved_to {
            if targets.is_eligible(now, source, node) {
                return Some(Choice { node, tier });
            }
            let queued = drain.queue.pop(bytes_max).expect("it was peeked at");
            drain.replan(queued);
            continue;
        }
        match targets.choose(now, MoveRequest::of(head, source, pushes_max)) {
            TargetSearch::Go(choice) => return Some(choice),
            TargetSearch::Busy => return None,
            TargetSearch::NoRoom => {
                let queued = drain.queue.pop(bytes_max).expect("it was peeked at");
                drain.retry(now, queued, retry_wait);
            }
        }
    }
    drain.stalled_until = Some(now + retry_wait);
    None
}

/// Takes the head of the queue, and what follows it as long as it fits into the same batch.
fn take(drain: &mut Drain, targets: &mut Targets, choice: Choice, size: BatchSize) -> Vec<Move> {
    let mut moves: Vec<Move> = Vec::new();
    let mut bytes = 0;
    while moves.len() < size.blocks_max
        && let Some(head) = drain.queue.peek(size.bytes_max.saturating_sub(bytes))
    {
        let candidate = &head.candidate;
        let reserved = candidate.reserved_to.map(|(node, tier)| Choice { node, tier });
        let length = u64::from(queue::bytes(candidate));
        let fits =
            moves.is_empty() || (bytes + length <= size.bytes && may_join(&moves, candidate));
        let has_room = match reserved {
            Some(reserved) => reserved == choice,
            None => fits && targets.take(choice, candidate.reserve_bytes),
        };
        if !fits || !has_room {
            break;
        }
        let bytes_max = size.bytes_max.saturating_sub(bytes);
        bytes += length;
        let Queued { candidate, attempts } = drain.queue.pop(bytes_max).expect("it was peeked at");
        moves.push(Move { attempts, ..Move::from(candidate) });
    }
    moves
}

/// Returns whether a block may follow the others of a batch: same tier, and reserved before or not
/// like them.
fn may_join(moves: &[Move], candidate: &MoveCandidate) -> bool {
    moves.first().is_some_and(|first| {
        let first = &first.candidate;
        first.tier == candidate.tier && first.reserved_to == candidate.reserved_to
    })
}
