//! What clients of the same machine hold of the arena.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::dram::DramBytes;

/// One connection may hold this part of the arena: a client that keeps all it ever read leaves room
/// for others. What is more is copied.
const CONNECTION_SHARE: u64 = 4;

/// All of them together may hold this part.
const ALL_SHARE: u64 = 2;

/// A range that a client looks at. The block's memory is free when the last of its leases, and the
/// block itself, is gone.
#[derive(Debug)]
struct Lease {
    _block: Arc<DramBytes>,
    bytes: u64,
    since: Instant,
}

/// The leases of all connections together.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    arena_bytes: u64,
    bytes: AtomicU64,
    count: AtomicU64,
    refused: AtomicU64,
    /// Those of connections that this side has ended: their holders may still look.
    parked: Mutex<Vec<BTreeMap<u64, Lease>>>,
}

/// The leases of one connection.
#[derive(Debug)]
pub(crate) struct Held {
    all: Arc<Leases>,
    leases: BTreeMap<u64, Lease>,
    bytes: u64,
}

impl Leases {
    pub(crate) fn new(arena_bytes: u64) -> Self {
        Self { arena_bytes, ..Self::default() }
    }

    /// Returns the bytes that are held. Overlapping leases count each.
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

impl Held {
    pub(crate) const fn new(all: Arc<Leases>) -> Self {
        Self { all, leases: BTreeMap::new(), bytes: 0 }
    }

    /// Gives a lease; returns whether it did: not when too much is held, or the number is taken.
    pub(crate) fn give(&mut self, number: u64, block: Arc<DramBytes>, bytes: u32) -> bool {
        let bytes = u64::from(bytes);
        let is_too_much = self.bytes + bytes > self.all.arena_bytes / CONNECTION_SHARE
            || self.all.bytes() + bytes > self.all.arena_bytes / ALL_SHARE;
        if is_too_much || self.leases.contains_key(&number) {
            self.all.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.leases.insert(number, Lease { _block: block, bytes, since: Instant::now() });
        self.bytes += bytes;
        self.all.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.all.count.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Takes leases back. Numbers that are none are passed over.
    pub(crate) fn take_back(&mut self, numbers: &[u64]) {
        for number in numbers {
            if let Some(lease) = self.leases.remove(number) {
                self.bytes -= lease.bytes;
                self.all.bytes.fetch_sub(lease.bytes, Ordering::Relaxed);
                self.all.count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns how long the oldest is held; zero when there is none.
    pub(crate) fn oldest(&self) -> Duration {
        self.leases.first_key_value().map_or(Duration::ZERO, |(_, lease)| lease.since.elapsed())
    }

    /// Keeps the leases until the node is no more: their holder may still look.
    pub(crate) fn park(&mut self) {
        let leases = std::mem::take(&mut self.leases);
        self.bytes = 0;
        if !leases.is_empty() {
            self.all.parked.lock().push(leases);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let all: Vec<u64> = self.leases.keys().copied().collect();
        self.take_back(&all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::runs::BodySums;

    fn block(arena: &Arc<Arena>, bytes: usize) -> Arc<DramBytes> {
        Arc::new(DramBytes::new(arena).with(&vec![7; bytes], &BodySums::default()).unwrap())
    }

    #[test]
    fn leased_memory_is_free_after_block_and_lease_are_gone() {
        let arena = Arc::new(Arena::new(64 << 10).unwrap());
        let all = Arc::new(Leases::new(arena.bytes()));
        let mut held = Held::new(Arc::clone(&all));
        let block = block(&arena, 4096);
        assert!(held.give(1, Arc::clone(&block), 4096));
        assert!(!held.give(1, Arc::clone(&block), 4096), "a number stands for one lease");
        drop(block);
        assert_eq!((arena.used_bytes(), all.bytes(), all.count()), (4096, 4096, 1));
        held.take_back(&[7, 1]);
        assert_eq!((arena.used_bytes(), all.bytes(), all.count()), (0, 0, 0));
    }

    #[test]
    fn holder_that_died_gives_back_and_one_that_was_parted_from_does_not() {
        let arena = Arc::new(Arena::new(64 << 10).unwrap());
        let all = Arc::new(Leases::new(arena.bytes()));
        let mut dead = Held::new(Arc::clone(&all));
        assert!(dead.give(1, block(&arena, 4096), 4096));
        drop(dead);
        assert_eq!(arena.used_bytes(), 0);
        let mut parted = Held::new(Arc::clone(&all));
        assert!(parted.give(1, block(&arena, 4096), 4096));
        parted.park();
        drop(parted);
        assert_eq!((arena.used_bytes(), all.bytes()), (4096, 4096));
    }

    #[test]
    fn one_connection_holds_a_quarter_and_all_hold_half() {
        let arena = Arc::new(Arena::new(64 << 10).unwrap());
        let all = Arc::new(Leases::new(arena.bytes()));
        let block = block(&arena, 8192);
        let mut connections: Vec<Held> = (0..3).map(|_| Held::new(Arc::clone(&all))).collect();
        let mut give = |at: usize, number| connections[at].give(number, Arc::clone(&block), 8192);
        assert!(give(0, 1) && give(0, 2));
        assert!(!give(0, 3));
        assert!(give(1, 1) && give(1, 2));
        assert!(!give(2, 1));
        assert_eq!(all.refused(), 2);
    }
}
