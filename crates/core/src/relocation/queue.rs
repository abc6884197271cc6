//! The order in which blocks leave a node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::{BlockId, Instant, Millis, Tier};

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
    /// What its store has can be read back.
    is_stored: bool,
    recompute_millis_per_mib: Reverse<u64>,
    expected_reads: Reverse<u32>,
    /// Doublings of a millisecond until it expires by itself.
    life: Reverse<u32>,
    bytes: Reverse<u32>,
    block: BlockId,
}

/// The blocks of one draining node that wait for their move, all of them last copies: what has a
/// copy elsewhere needs no move.
///
/// What a store has comes last: it is read back from there if it does not make it. Of the others
/// those with the highest recompute cost come first; of equal ones those that will be read most
/// often; of those the ones that would live longest, compared by the doublings of their time; of
/// those the longest, because a block costs a round trip whatever its length, so most bytes make
/// it; then by id.
#[derive(Debug, Clone, Default)]
pub(super) struct MoveQueue {
    ready: BTreeMap<Rank, Queued>,
    parked: BTreeMap<(Instant, BlockId), Queued>,
    /// Blocks that wait here or are on their way.
    known: BTreeSet<BlockId>,
}

/// The outcome of a look at a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enqueued {
    /// It waits for its move from now on.
    Taken,
    /// It waits already or is on its way.
    Known,
    /// It goes by itself before the deadline.
    Expires,
    /// Its bytes survive the node: they are elsewhere, too, or in the object tier.
    Safe,
}

impl MoveQueue {
    /// Blocks looked at for one that is short enough. As many as a batch has blocks
    /// (`RelocatorConfig::batch_blocks_max`).
    const SEARCH_MAX: usize = 64;

    /// Takes a candidate, unless it needs no move; it is looked at again at the next scan.
    pub(super) fn insert(&mut self, candidate: MoveCandidate, left: Option<Millis>) -> Enqueued {
        let seen = look(&candidate, left);
        if seen != Enqueued::Taken {
            return seen;
        }
        if !self.known.insert(candidate.block) {
            return Enqueued::Known;
        }
        self.push(Queued { candidate, attempts: 0 });
        Enqueued::Taken
    }

    /// Takes a known block back, at once.
    pub(super) fn push(&mut self, queued: Queued) {
        self.ready.insert(rank(&queued.candidate), queued);
    }

    /// Takes a known block back, to be tried again at `until`.
    pub(super) fn park(&mut self, queued: Queued, until: Instant) {
        self.parked.insert((until, queued.candidate.block), queued);
    }

    /// Makes the parked blocks ready whose time has come.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some(entry) = self.parked.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let queued = entry.remove();
            self.push(queued);
        }
    }

    /// Returns whether a block waits for its move now.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the first of the next blocks that has at most `bytes_max` bytes, without removing
    /// it.
    pub(super) fn peek(&self, bytes_max: u64) -> Option<&Queued> {
        self.next(bytes_max).map(|(_, queued)| queued)
    }

    /// Removes and returns the first of the next blocks that has at most `bytes_max` bytes; it
    /// stays known until [`MoveQueue::forget`].
    pub(super) fn pop(&mut self, bytes_max: u64) -> Option<Queued> {
        let rank = *self.next(bytes_max)?.0;
        self.ready.remove(&rank)
    }

    fn next(&self, bytes_max: u64) -> Option<(&Rank, &Queued)> {
        let fits = |queued: &Queued| u64::from(bytes(&queued.candidate)) <= bytes_max;
        self.ready.iter().take(Self::SEARCH_MAX).find(|(_, queued)| fits(queued))
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

/// Returns what a candidate is to a drain with so much time left.
pub(super) fn look(candidate: &MoveCandidate, left: Option<Millis>) -> Enqueued {
    // Without a deadline nothing declares the node gone: it is emptied to the last block.
    let survives = candidate.tier == Tier::Object && left.is_some();
    if (candidate.copy.is_some() && !candidate.is_stored()) || survives {
        return Enqueued::Safe;
    }
    match (candidate.expires_in, left) {
        (Some(expires_in), Some(left)) if expires_in <= left => Enqueued::Expires,
        _ => Enqueued::Taken,
    }
}

fn rank(candidate: &MoveCandidate) -> Rank {
    let doublings = |left: Millis| left.0.checked_ilog2().map_or(0, |log| log + 1);
    Rank {
        is_stored: candidate.is_stored(),
        recompute_millis_per_mib: Reverse(candidate.recompute_millis_per_mib),
        expected_reads: Reverse(candidate.expected_reads),
        life: Reverse(candidate.expires_in.map_or(u32::MAX, doublings)),
        bytes: Reverse(bytes(candidate)),
        block: candidate.block,
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::NodeId;
    use sanderling_protocol::message::IN_STORE;

    use super::super::tests::candidate;
    use super::*;

    const LEFT: Option<Millis> = Some(Millis(10_000));

    fn order(candidates: Vec<MoveCandidate>, left: Option<Millis>) -> Vec<u64> {
        let mut queue = MoveQueue::default();
        for candidate in candidates {
            queue.insert(candidate, left);
        }
        std::iter::from_fn(|| queue.pop(u64::MAX)).map(|queued| queued.candidate.block.0).collect()
    }

    #[test]
    fn dearest_goes_first_then_most_read_then_longest_then_lowest_id() {
        let mut dear = candidate(9, 10);
        dear.recompute_millis_per_mib = 500;
        let mut read = candidate(8, 10);
        read.expected_reads = 7;
        let mut cheap = candidate(7, 10);
        (cheap.recompute_millis_per_mib, cheap.expected_reads) = (499, 100);
        let blocks =
            vec![candidate(3, 100), candidate(2, 100), candidate(1, 50), read, dear, cheap];
        assert_eq!(order(blocks, LEFT), [9, 7, 8, 2, 3, 1]);
    }

    #[test]
    fn block_that_expires_before_the_deadline_is_skipped_and_what_lives_longest_is_first() {
        let expiring = |block, millis| MoveCandidate {
            expires_in: Some(Millis(millis)),
            ..candidate(block, 100)
        };
        let mut short = expiring(4, 70_000);
        (short.length, short.reserve_bytes) = (50, 50);
        let blocks = vec![
            expiring(1, 9_000),
            expiring(2, 11_000),
            candidate(3, 1),
            short,
            expiring(5, 66_000),
        ];
        assert_eq!(order(blocks.clone(), LEFT), [3, 5, 4, 2]);
        assert_eq!(order(blocks, None).len(), 5, "without a deadline nothing is skipped");
    }

    #[test]
    fn what_survives_the_node_is_skipped() {
        let mut copied = candidate(1, 100);
        copied.copy = Some((NodeId(3), Tier::Dram));
        let mut stored = candidate(2, 100);
        stored.tier = Tier::Object;
        let mut queue = MoveQueue::default();
        assert_eq!(queue.insert(copied.clone(), LEFT), Enqueued::Safe);
        assert_eq!(queue.insert(stored.clone(), LEFT), Enqueued::Safe);
        assert_eq!(queue.insert(stored, None), Enqueued::Taken, "its node is to be emptied");
        copied.copy = None;
        assert_eq!(queue.insert(copied, LEFT), Enqueued::Taken, "its copy went with another node");
    }

    #[test]
    fn what_a_store_has_leaves_last() {
        let mut stored = candidate(1, 1000);
        (stored.copy, stored.recompute_millis_per_mib) = (Some(IN_STORE), 9000);
        let blocks = vec![stored, candidate(2, 10), candidate(3, 20)];
        assert_eq!(order(blocks, LEFT), [3, 2, 1]);
    }

    #[test]
    fn block_that_is_too_long_is_passed_over() {
        let mut queue = MoveQueue::default();
        queue.insert(candidate(1, 500), LEFT);
        queue.insert(candidate(2, 90), LEFT);
        assert_eq!(queue.peek(100).unwrap().candidate.block, BlockId(2));
        assert_eq!(queue.pop(100).unwrap().candidate.block, BlockId(2));
        assert!(queue.pop(100).is_none() && queue.is_ready());
    }

    #[test]
    fn known_block_is_not_taken_twice_until_forgotten() {
        let mut queue = MoveQueue::default();
        assert_eq!(queue.insert(candidate(1, 1), LEFT), Enqueued::Taken);
        assert_eq!(queue.insert(candidate(1, 1), LEFT), Enqueued::Known);
        queue.pop(1).unwrap();
        assert_eq!(queue.insert(candidate(1, 1), LEFT), Enqueued::Known);
        queue.forget(BlockId(1));
        assert_eq!(queue.insert(candidate(1, 1), LEFT), Enqueued::Taken);
    }

    #[test]
    fn parked_block_comes_back_at_its_time() {
        let mut queue = MoveQueue::default();
        queue.insert(candidate(1, 1), LEFT);
        let queued = queue.pop(1).unwrap();
        queue.park(queued, Instant(50));
        queue.wake(Instant(49));
        assert!(!queue.is_ready());
        assert_eq!(queue.wake_at(), Some(Instant(50)));
        queue.wake(Instant(50));
        assert_eq!(queue.peek(1).unwrap().candidate.block, BlockId(1));
    }
}
