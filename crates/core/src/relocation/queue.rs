//! The order in which blocks leave a node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::{BlockId, Instant, Millis};

/// A block that waits for its move.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) candidate: MoveCandidate,
    /// Moves of it that failed.
    pub(super) attempts: u32,
}

/// Its place: what would cost most to lose goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    recompute_millis_per_mib: Reverse<u64>,
    expires_soon: bool,
    bytes: Reverse<u32>,
    block: BlockId,
}

/// The blocks of one draining node that wait for their move.
///
/// Dearest to compute again first; of equal ones those that would soon expire by themselves last;
/// of those the longest first, because a block costs a round trip whatever its length, so most
/// bytes make it; then by id.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    ready: BTreeMap<Rank, Queued>,
    parked: BTreeMap<(Instant, BlockId), Queued>,
    /// Blocks that wait here or are on their way.
    known: BTreeSet<BlockId>,
}

impl Queue {
    /// Spans shorter than this many times what is left count as soon.
    const SOON_FACTOR: u64 = 4;

    /// What counts as soon when there is no deadline.
    const SOON_WITHOUT_DEADLINE: Millis = Millis::from_secs(60);

    /// Takes a candidate, unless it is known or expires before the deadline; tells whether it did.
    pub(super) fn insert(&mut self, candidate: MoveCandidate, left: Option<Millis>) -> bool {
        if expires_before(&candidate, left) || !self.known.insert(candidate.block) {
            return false;
        }
        self.push(Queued { candidate, attempts: 0 }, left);
        true
    }

    /// Takes a known block back, at once.
    pub(super) fn push(&mut self, queued: Queued, left: Option<Millis>) {
        self.ready.insert(rank(&queued.candidate, left), queued);
    }

    /// Takes a known block back, to be tried again at `until`.
    pub(super) fn park(&mut self, queued: Queued, until: Instant) {
        self.parked.insert((until, queued.candidate.block), queued);
    }

    /// Makes the parked blocks ready whose time has come.
    pub(super) fn wake(&mut self, now: Instant, left: Option<Millis>) {
        while let Some(entry) = self.parked.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let queued = entry.remove();
            self.push(queued, left);
        }
    }

    /// Returns the next block without taking it.
    pub(super) fn peek(&self) -> Option<&Queued> {
        self.ready.first_key_value().map(|(_, queued)| queued)
    }

    /// Takes the next block; it stays known until [`Queue::forget`].
    pub(super) fn pop(&mut self) -> Option<Queued> {
        self.ready.pop_first().map(|(_, queued)| queued)
    }

    /// Ends what is known of a block: it was moved, or is no longer on the node.
    pub(super) fn forget(&mut self, block: BlockId) {
        self.known.remove(&block);
    }

    /// Returns when the first parked block is to be tried again.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.parked.first_key_value().map(|((until, _), _)| *until)
    }

    /// Returns how many blocks are known: waiting or on their way.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

/// Returns the bytes that a block may have on its node.
pub(super) fn bytes(candidate: &MoveCandidate) -> u32 {
    // Of an open block, acknowledged bytes may not be published yet.
    if candidate.is_open { candidate.length.max(candidate.reserve_bytes) } else { candidate.length }
}

/// Tells whether a block goes by itself before the deadline.
pub(super) fn expires_before(candidate: &MoveCandidate, left: Option<Millis>) -> bool {
    match (candidate.expires_in, left) {
        (Some(expires_in), Some(left)) => expires_in <= left,
        _ => false,
    }
}

fn rank(candidate: &MoveCandidate, left: Option<Millis>) -> Rank {
    let soon = left.map_or(Queue::SOON_WITHOUT_DEADLINE, |left| {
        Millis(left.0.saturating_mul(Queue::SOON_FACTOR))
    });
    Rank {
        recompute_millis_per_mib: Reverse(candidate.recompute_millis_per_mib),
        expires_soon: candidate.expires_in.is_some_and(|expires_in| expires_in < soon),
        bytes: Reverse(bytes(candidate)),
        block: candidate.block,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::candidate;
    use super::*;

    const LEFT: Option<Millis> = Some(Millis(10_000));

    fn order(candidates: Vec<MoveCandidate>, left: Option<Millis>) -> Vec<u64> {
        let mut queue = Queue::default();
        for candidate in candidates {
            queue.insert(candidate, left);
        }
        std::iter::from_fn(|| queue.pop()).map(|queued| queued.candidate.block.0).collect()
    }

    #[test]
    fn dearest_goes_first_then_longest_then_lowest_id() {
        let mut dear = candidate(9, 10);
        dear.recompute_millis_per_mib = 500;
        let blocks = vec![candidate(3, 100), candidate(2, 100), candidate(1, 50), dear];
        assert_eq!(order(blocks, LEFT), [9, 2, 3, 1]);
    }

    #[test]
    fn block_that_expires_before_the_deadline_is_skipped_and_soon_after_it_is_last() {
        let mut gone = candidate(1, 100);
        gone.expires_in = Some(Millis(9_000));
        let mut soon = candidate(2, 100);
        soon.expires_in = Some(Millis(11_000));
        let blocks = vec![gone.clone(), soon.clone(), candidate(3, 1)];
        assert_eq!(order(blocks.clone(), LEFT), [3, 2]);
        assert_eq!(order(blocks, None).len(), 3, "without a deadline nothing is skipped");
    }

    #[test]
    fn known_block_is_not_taken_twice_until_forgotten() {
        let mut queue = Queue::default();
        assert!(queue.insert(candidate(1, 1), LEFT));
        assert!(!queue.insert(candidate(1, 1), LEFT));
        queue.pop().unwrap();
        assert!(!queue.insert(candidate(1, 1), LEFT));
        queue.forget(BlockId(1));
        assert!(queue.insert(candidate(1, 1), LEFT));
    }

    #[test]
    fn parked_block_comes_back_at_its_time() {
        let mut queue = Queue::default();
        queue.insert(candidate(1, 1), LEFT);
        let queued = queue.pop().unwrap();
        queue.park(queued, Instant(50));
        queue.wake(Instant(49), LEFT);
        assert!(queue.peek().is_none());
        assert_eq!(queue.wake_at(), Some(Instant(50)));
        queue.wake(Instant(50), LEFT);
        assert_eq!(queue.peek().unwrap().candidate.block, BlockId(1));
    }
}
