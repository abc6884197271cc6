//! Memory that dumps and reads of this process are about to take. An agent runs several tasks at
//! once: what is reserved for one of them is not available to the others.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sanderling_core::checkpoint::{has_dump_memory, held_pack_bytes};

/// Bytes of buffers that dumps of this process are about to make, of packs that its dumps may have
/// on their way, and of packs that its reads may hold. Those of buffers that were made are not
/// available any more, so that they do not count here. Those of packs count until the dump or the
/// read ends, because packs come and go.
pub(crate) static RESERVED: Mutex<u64> = Mutex::new(0);

/// The packs of the dumps of this process.
pub(crate) static DUMP_MEMORY: DumpMemoryPool = DumpMemoryPool::new(&RESERVED);

/// A number of bytes that is reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct ReservedMemory {
    reserved: &'static Mutex<u64>,
    bytes: u64,
}

/// Memory for the packs of dumps: an agent may begin many at once.
#[derive(Debug)]
pub(crate) struct DumpMemoryPool {
    reserved: &'static Mutex<u64>,
    /// How many dumps hold some. It is locked before the bytes are.
    dumps: Mutex<usize>,
}

/// Memory for the packs of one dump, until this is dropped.
#[derive(Debug)]
pub(crate) struct DumpMemory {
    pool: &'static DumpMemoryPool,
    _reserved: ReservedMemory,
}

/// Memory for the packs that a read of a generation holds.
pub(crate) struct PackMemory {
    /// Bytes of all packs that may be held.
    pub(crate) bytes: u64,
    _reserved: Option<ReservedMemory>,
}

impl ReservedMemory {
    /// Reserves so many bytes, however many are available: a dump cannot do with fewer.
    pub(crate) fn take(reserved: &'static Mutex<u64>, bytes: u64) -> Self {
        *locked(reserved) += bytes;
        Self { reserved, bytes }
    }
}

impl DumpMemoryPool {
    pub(crate) const fn new(reserved: &'static Mutex<u64>) -> Self {
        Self { reserved, dumps: Mutex::new(0) }
    }

    /// Reserves so many bytes for a dump, if they are a part of what is available and not reserved,
    /// or if no other dump holds any.
    pub(crate) fn reserve(
        &'static self,
        available: impl FnOnce() -> Option<u64>,
        bytes: u64,
    ) -> Option<DumpMemory> {
        let (mut dumps, mut before) = (locked(&self.dumps), locked(self.reserved));
        has_dump_memory(available(), *before, *dumps, bytes).then(|| {
            *dumps += 1;
            *before += bytes;
            let reserved = ReservedMemory { reserved: self.reserved, bytes };
            DumpMemory { pool: self, _reserved: reserved }
        })
    }

    /// Reserves so many bytes for a dump, however many are available: it is not to wait.
    pub(crate) fn take(&'static self, bytes: u64) -> DumpMemory {
        *locked(&self.dumps) += 1;
        DumpMemory { pool: self, _reserved: ReservedMemory::take(self.reserved, bytes) }
    }
}

impl PackMemory {
    /// Reserves a part of what is available and not reserved for a read of packs that have so many
    /// bytes in all: it never holds more.
    pub(crate) fn reserve(
        reserved: &'static Mutex<u64>,
        available: impl FnOnce() -> Option<u64>,
        pack_bytes: u64,
    ) -> Self {
        let mut before = locked(reserved);
        let bytes = held_pack_bytes(available(), *before);
        let held = bytes.min(pack_bytes);
        *before += held;
        Self { bytes, _reserved: Some(ReservedMemory { reserved, bytes: held }) }
    }

    /// Returns so many bytes, which are reserved nowhere.
    #[cfg(test)]
    pub(crate) const fn of(bytes: u64) -> Self {
        Self { bytes, _reserved: None }
    }
}

impl Drop for DumpMemory {
    fn drop(&mut self) {
        *locked(&self.pool.dumps) -= 1;
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        *locked(self.reserved) -= self.bytes;
    }
}

/// Locks a number, which a thread that panicked has not changed by halves.
fn locked<T>(number: &Mutex<T>) -> MutexGuard<'_, T> {
    number.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_share_the_memory_that_is_available_and_that_no_dump_has_reserved() {
        static SHARED: Mutex<u64> = Mutex::new(0);
        let dump = ReservedMemory::take(&SHARED, 1 << 30);
        let reserve = |pack_bytes| PackMemory::reserve(&SHARED, || Some(3 << 30), pack_bytes);
        let first = reserve(u64::MAX);
        assert_eq!(first.bytes, 512 << 20);
        let second = reserve(u64::MAX);
        assert_eq!(second.bytes, 384 << 20);
        assert_eq!(*locked(&SHARED), (1 << 30) + first.bytes + second.bytes);
        drop(dump);
        drop(first);
        assert_eq!(*locked(&SHARED), second.bytes);
        drop(second);
        assert_eq!(*locked(&SHARED), 0);
    }

    #[test]
    fn dumps_reserve_memory_one_beside_the_other_until_a_part_of_the_rest_is_too_little() {
        static SHARED: Mutex<u64> = Mutex::new(0);
        static POOL: DumpMemoryPool = DumpMemoryPool::new(&SHARED);
        let reserve = |available| POOL.reserve(|| Some(available), 192 << 20);
        let first = reserve(0).expect("one is always allowed");
        assert!(reserve(512 << 20).is_none(), "what is left is 320 MiB");
        let second = reserve(1 << 30).expect("a quarter of 832 MiB is enough");
        assert!(reserve(1 << 30).is_none());
        let taken = POOL.take(192 << 20);
        assert_eq!((*locked(&SHARED), *locked(&POOL.dumps)), (576 << 20, 3));
        let read = PackMemory::reserve(&SHARED, || Some(2 << 30), u64::MAX);
        drop((first, second, taken));
        assert_eq!((*locked(&SHARED), *locked(&POOL.dumps)), (read.bytes, 0));
        assert!(reserve(0).is_some(), "reads hold no dump up for ever");
    }

    #[test]
    fn read_of_small_packs_reserves_no_more_than_they_have() {
        static SHARED: Mutex<u64> = Mutex::new(0);
        let small = PackMemory::reserve(&SHARED, || Some(4 << 30), 1000);
        assert_eq!((small.bytes, *locked(&SHARED)), (1 << 30, 1000));
        drop(small);
        assert_eq!(*locked(&SHARED), 0);
    }
}
