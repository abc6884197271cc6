//! What clients of the same machine hold of the arena.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::dram::DramBytes;

/// One connection may hold this part of the arena: a client that keeps all it ever read leaves room
/// for others. What is more is copied. Two such connections reach [`ALL_SHARE`] together. Chosen,
/// not measured.
const CONNECTION_SHARE: u64 = 4;

/// All of them together may hold this part: writers have the other, whatever has become of the
/// blocks that are held. Chosen, not measured.
const ALL_SHARE: u64 = 2;

/// What a connection may always hold, as a part of the arena. Beyond it, old leases count. A
/// quarter of what it may hold otherwise ([`CONNECTION_SHARE`]), so that a program that keeps a few
/// views is served as any other. Chosen, not measured.
const ALWAYS_SHARE: u64 = 16;

/// A connection that holds a lease for longer gets no more, beyond what it may always hold: it
/// keeps what it has read, and what it reads now is copied. Chosen, not measured: longer than a
/// task looks at one block.
const AGE_MAX: Duration = Duration::from_secs(300);

/// A range that a client looks at. The block's memory is free when the last of its leases, and the
/// block itself, is gone.
#[derive(Debug)]
struct RangeLease {
    block: Arc<DramBytes>,
    since: Instant,
}

/// A block that a connection looks at.
#[derive(Debug)]
struct LeasedBlock {
    leases: u32,
    /// What of the arena stays taken: all of the block, however little of it is looked at.
    bytes: u64,
}

/// The leases of all connections together.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    arena_bytes: u64,
    bytes: AtomicU64,
    count: AtomicU64,
    refused: AtomicU64,
    /// Those of connections that this side has ended: their holders may still look.
    parked: Mutex<Vec<BTreeMap<u64, RangeLease>>>,
}

/// The leases of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionLeases {
    all: Arc<Leases>,
    leases: BTreeMap<u64, RangeLease>,
    /// By the address of the block's table.
    blocks: BTreeMap<usize, LeasedBlock>,
    /// By when each was given: the client chooses the numbers.
    by_age: BTreeSet<(Instant, u64)>,
    bytes: u64,
    age_max: Duration,
}

impl Leases {
    pub(crate) fn new(arena_bytes: u64) -> Self {
        Self { arena_bytes, ..Self::default() }
    }

    /// Returns the bytes of the arena that are kept. A block counts once for each connection that
    /// looks at it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of leases.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns how many leases were not given because too much was held.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

impl ConnectionLeases {
    pub(crate) fn new(all: Arc<Leases>) -> Self {
        let (leases, blocks, by_age) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { all, leases, blocks, by_age, bytes: 0, age_max: AGE_MAX }
    }

    /// Gives a lease of a range of the block; returns whether it did: not when too much is held, or
    /// for too long, or the number is taken.
    pub(crate) fn give(&mut self, number: u64, block: Arc<DramBytes>) -> bool {
        let key = Arc::as_ptr(&block).addr();
        let bytes = if self.blocks.contains_key(&key) { 0 } else { block.kept_bytes() };
        let (held, arena) = (self.bytes + bytes, self.all.arena_bytes);
        let is_too_much =
            held > arena / CONNECTION_SHARE || self.all.bytes() + bytes > arena / ALL_SHARE;
        let is_too_old = held > arena / ALWAYS_SHARE && self.oldest() > self.age_max;
        if is_too_much || is_too_old || self.leases.contains_key(&number) {
            self.all.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let since = Instant::now();
        self.leases.insert(number, RangeLease { block, since });
        self.by_age.insert((since, number));
        self.blocks.entry(key).or_insert(LeasedBlock { leases: 0, bytes }).leases += 1;
        self.bytes += bytes;
        self.all.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.all.count.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Takes leases back. Numbers that are none are passed over.
    pub(crate) fn take_back(&mut self, numbers: &[u64]) {
        for number in numbers {
            let Some(lease) = self.leases.remove(number) else { continue };
            self.by_age.remove(&(lease.since, *number));
            let key = Arc::as_ptr(&lease.block).addr();
            let kept = self.blocks.get_mut(&key).expect("a lease counts for its block");
            kept.leases -= 1;
            if kept.leases == 0 {
                let bytes = kept.bytes;
                self.blocks.remove(&key);
                self.bytes -= bytes;
                self.all.bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
            self.all.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns how long the oldest is held; zero when there is none.
    pub(crate) fn oldest(&self) -> Duration {
        self.by_age.first().map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }

    /// Keeps the leases until the datanode drops all of them at its end: the client of a connection
    /// that this side has ended may still read the blocks in the shared memory.
    pub(crate) fn park(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        (self.bytes, self.blocks, self.by_age) = (0, BTreeMap::new(), BTreeSet::new());
        if !leases.is_empty() {
            self.all.parked.lock().push(leases);
        }
    }
}

impl Drop for ConnectionLeases {
    fn drop(&mut self) {
        let all: Vec<u64> = self.leases.keys().copied().collect();
        self.take_back(&all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::chunk_sums::BodySums;

    fn block(arena: &Arc<Arena>, bytes: usize) -> Arc<DramBytes> {
        Arc::new(DramBytes::new(arena).with(&vec![7; bytes], &BodySums::default()).unwrap())
    }

    #[test]
    fn leased_memory_is_free_after_block_and_lease_are_gone() {
        let arena = Arc::new(Arena::new(64 << 10).unwrap());
        let all = Arc::new(Leases::new(arena.bytes()));
        let mut held = ConnectionLeases::new(Arc::clone(&all));
        let block = block(&arena, 4096);
        assert!(held.give(1, Arc::clone(&block)));
        assert!(!held.give(1, Arc::clone(&block)), "a number stands for one lease");
        drop(block);
        assert_eq!((arena.used_bytes(), all.bytes(), all.count()), (4096, 4096, 1));
        held.take_back(&[7, 1]);
        assert_eq!((arena.used_bytes(), all.bytes(), all.count()), (0, 0, 0));
    }

    #[test]
    fn holder_that_died_gives_back_and_one_that_was_parted_from_does_not() {
        let arena = Arc::new(Arena::new(64 << 10).unwrap());
        let all = Arc::new(Leases::new(arena.bytes()));
        let mut dead = ConnectionLeases::new(Arc::clone(&all));
        assert!(dead.give(1, block(&arena, 4096)));
        drop(dead);
        assert_eq!(arena.used_bytes(), 0);
        let mut parted = ConnectionLeases::new(Arc::clone(&all));
        assert!(parted.give(1, block(&arena, 4096)));
        parted.park();
        drop(parted);
        assert_eq!((arena.used_bytes(), all.bytes()), (4096, 4096));
    }

    #[test]
    fn one_connection_keeps_a_quarter_and_all_keep_half() {
        let arena = Arc::new(Arena::new(64 << 10).unwrap());
        let all = Arc::new(Leases::new(arena.bytes()));
        let blocks: Vec<_> = (0..3).map(|_| block(&arena, 8192)).collect();
        let mut connections: Vec<ConnectionLeases> =
            (0..3).map(|_| ConnectionLeases::new(Arc::clone(&all))).collect();
        let mut give = |at: usize, number, block: usize| {
            connections[at].give(number, Arc::clone(&blocks[block]))
        };
        assert!(give(0, 1, 0) && give(0, 2, 1));
        assert!(!give(0, 3, 2), "two blocks are a quarter, however little is looked at");
        assert!(give(0, 4, 1), "a block is kept once");
        assert!(give(1, 1, 0) && give(1, 2, 1));
        assert!(!give(2, 1, 0));
        assert_eq!((all.refused(), all.bytes(), all.count()), (2, 32 << 10, 5));
        connections[0].take_back(&[2]);
        assert_eq!(all.bytes(), 32 << 10, "another lease keeps it");
        connections[0].take_back(&[4]);
        assert_eq!(all.bytes(), 24 << 10);
        drop(connections);
        assert_eq!((all.bytes(), all.count()), (0, 0));
    }

    #[test]
    fn holder_of_an_old_lease_keeps_it_and_gets_few_more() {
        let arena = Arc::new(Arena::new(256 << 10).unwrap());
        let all = Arc::new(Leases::new(arena.bytes()));
        let mut held = ConnectionLeases::new(Arc::clone(&all));
        held.age_max = Duration::ZERO;
        assert!(held.give(1, block(&arena, 8192)), "none is old");
        std::thread::sleep(Duration::from_millis(2));
        assert!(held.give(2, block(&arena, 8192)), "a sixteenth is always given");
        assert!(!held.give(3, block(&arena, 4096)));
        held.take_back(&[1, 2]);
        assert!(held.give(9, block(&arena, 8192)));
        std::thread::sleep(Duration::from_millis(2));
        // The client chooses the numbers: the newest may have the smallest.
        assert!(held.give(8, block(&arena, 8192)));
        assert!(held.oldest() >= Duration::from_millis(2));
        assert!(!held.give(7, block(&arena, 4096)));
        held.take_back(&[9, 8]);
        assert!(held.give(4, block(&arena, 32 << 10)));
    }
}
