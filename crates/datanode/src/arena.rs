//! The memory of the DRAM tier: one mapping, sized at start, faulted in the background and never
//! given back to the kernel while the node runs, since the first touch of fresh memory costs
//! many times a copy.
//!
//! The only unsafe code that touches blocks. Its safe surface is [`Extent`]: bytes of an extent are
//! claimed once, written by their claimer, then published, and never written again, so readers
//! and the writer never meet at the same byte.
#![allow(unsafe_code, reason = "the mapping is shared between a writer and readers of other bytes")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::Advice;

use crate::allocator::{Allocator, UNIT_BYTES, UnitExtent};

/// Bytes faulted at once, four thousand pages: short enough to stop between two, long enough that
/// the call is cheap. Chosen, not measured.
const FAULT_BYTES: usize = 16 << 20;

/// The memory of the DRAM tier.
#[derive(Debug)]
pub(crate) struct Arena {
    map: MmapRaw,
    file: File,
    has_file_seals: bool,
    allocator: Mutex<Allocator>,
    bytes: u64,
    faulted_bytes: AtomicU64,
    /// Bytes that the kernel did not give.
    cut_off_bytes: AtomicU64,
    is_stopping: AtomicBool,
}

/// An extent of units of the arena with one owner; the space is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Extent {
    arena: Arc<Arena>,
    extent: UnitExtent,
    /// Bytes that are claimed by a writer, or written.
    claimed: AtomicU32,
    /// Bytes that are there for readers.
    published: AtomicU32,
}

impl Arena {
    /// Maps an arena of `bytes`, rounded down to whole units. No memory is taken yet.
    ///
    /// # Errors
    /// The error of the kernel when it has no file descriptor or no address space.
    pub(crate) fn new(bytes: u64) -> io::Result<Self> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "larger than 16 TiB");
        let units = u32::try_from(bytes / u64::from(UNIT_BYTES)).map_err(|_| too_large())?;
        let bytes = u64::from(units) * u64::from(UNIT_BYTES);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("sanderling-arena", flags)?);
        file.set_len(bytes)?;
        let length = usize::try_from(bytes).map_err(|_| too_large())?;
        let map = MmapOptions::new().len(length).map_raw(&file)?;
        // From here on no process can map it to write, not even this one: a client that gets
        // the descriptor can only read. Linux has the last of these file seals since 5.1.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        let has_file_seals = rustix::fs::fcntl_add_seals(&file, seals).is_ok();
        Ok(Self {
            map,
            file,
            has_file_seals,
            allocator: Mutex::new(Allocator::new(units)),
            bytes,
            faulted_bytes: AtomicU64::new(0),
            cut_off_bytes: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Returns the arena's size in bytes, without what the kernel did not give.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes - self.cut_off_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of units that have an owner.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.bytes().saturating_sub(self.free_bytes())
    }

    /// Returns the bytes of units that have no owner.
    pub(crate) fn free_bytes(&self) -> u64 {
        free_bytes(&self.allocator.lock())
    }

    /// Returns the number of free extents.
    pub(crate) fn free_extents(&self) -> usize {
        self.allocator.lock().free_extents()
    }

    /// Returns the bytes that were faulted so far.
    pub(crate) fn faulted_bytes(&self) -> u64 {
        self.faulted_bytes.load(Ordering::Relaxed)
    }

    /// Returns what others map the arena by, to read it; `None` where the kernel cannot keep them
    /// from writing.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.has_file_seals.then(|| self.file.as_fd())
    }

    /// Returns the size of the mapping.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Returns where in the arena bytes of it are; `None` when they are elsewhere.
    pub(crate) fn place_of(&self, bytes: &[u8]) -> Option<u64> {
        let place = (bytes.as_ptr() as usize).checked_sub(self.map.as_ptr() as usize)?;
        let end = place.checked_add(bytes.len())?;
        (end <= self.map.len()).then_some(place as u64)
    }

    /// Takes the whole memory from the kernel, piece by piece, until done or stopped.
    ///
    /// # Errors
    /// The error of the kernel when there is not that much memory. What was taken so far stays, and
    /// the rest is not used: touching it would end the process.
    pub(crate) fn fault(&self) -> io::Result<()> {
        let done = self.fault_all();
        if done.is_err() {
            let end = self.faulted_bytes() / u64::from(UNIT_BYTES);
            let units = self.allocator.lock().cut_off(end as u32);
            self.cut_off_bytes.store(u64::from(units) * u64::from(UNIT_BYTES), Ordering::Relaxed);
        }
        done
    }

    fn fault_all(&self) -> io::Result<()> {
        let length = self.map.len();
        let mut at = 0;
        while at < length && !self.is_stopping.load(Ordering::Relaxed) {
            let bytes = FAULT_BYTES.min(length - at);
            // Allocating through the file reports a lack of memory where a touch would be a signal.
            rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, at as u64, bytes as u64)?;
            // SAFETY: the range is inside the mapping, which lives as long as `self`; populating
            // changes no byte. A kernel without it faults at the first touch instead.
            let populated = unsafe {
                let start = self.map.as_mut_ptr().add(at);
                rustix::mm::madvise(start.cast(), bytes, Advice::LinuxPopulateWrite)
            };
            if let Err(error) = populated {
                tracing::debug!(%error, "the kernel does not populate mappings");
            }
            at += bytes;
            self.faulted_bytes.store(at as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Ends [`Self::fault`] soon.
    pub(crate) fn stop_faulting(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Takes extents for `bytes`, one if possible, right after `near` if possible. `None` when the
    /// arena has no room.
    pub(crate) fn take(self: &Arc<Self>, bytes: u32, near: Option<&Extent>) -> Option<Vec<Extent>> {
        let near = near.map(|extent| extent.extent.start + extent.extent.units);
        let extents = self.allocator.lock().take(bytes.div_ceil(UNIT_BYTES), near)?;
        Some(self.owned(extents))
    }

    /// Takes extents for `bytes` as [`Self::take`] does, if `may` allows it. It is called with how
    /// many bytes are free, and must take no lock.
    pub(crate) fn take_if(
        self: &Arc<Self>,
        bytes: u32,
        may: impl FnOnce(u64) -> bool,
    ) -> Option<Vec<Extent>> {
        let extents = {
            let mut allocator = self.allocator.lock();
            if !may(free_bytes(&allocator)) {
                return None;
            }
            allocator.take(bytes.div_ceil(UNIT_BYTES), None)?
        };
        Some(self.owned(extents))
    }

    fn owned(self: &Arc<Self>, extents: Vec<UnitExtent>) -> Vec<Extent> {
        let extent = |extent| Extent {
            arena: Arc::clone(self),
            extent,
            claimed: AtomicU32::new(0),
            published: AtomicU32::new(0),
        };
        extents.into_iter().map(extent).collect()
    }
}

fn free_bytes(allocator: &Allocator) -> u64 {
    u64::from(allocator.free_units()) * u64::from(UNIT_BYTES)
}

impl Extent {
    /// Returns the bytes that it can hold.
    pub(crate) const fn capacity(&self) -> u32 {
        self.extent.units * UNIT_BYTES
    }

    /// Returns the first address, to see whether two extents touch.
    pub(crate) fn address(&self) -> usize {
        self.start() as usize
    }

    /// Lets `fill` write `length` bytes at `at` and publishes them. Returns whether it did: not if
    /// they do not fit, or if these bytes were claimed before; `fill` is not called then.
    pub(crate) fn append(&self, at: u32, length: u32, fill: impl FnOnce(&mut [u8])) -> bool {
        let Some(end) = at.checked_add(length).filter(|end| *end <= self.capacity()) else {
            return false;
        };
        let claim = self.claimed.compare_exchange(at, end, Ordering::AcqRel, Ordering::Acquire);
        if claim.is_err() {
            return false;
        }
        // SAFETY: `at..end` is inside the extent, and the extent inside the mapping. The exchange
        // above gave the bytes from `at` to `end` to this call alone, once; readers see only bytes
        // below `published`, which is `at` or less until the store below.
        let target = unsafe {
            std::slice::from_raw_parts_mut(self.start().add(at as usize), length as usize)
        };
        fill(target);
        self.published.store(end, Ordering::Release);
        true
    }

    /// Returns the memory of an extent that was not written to, to be written in place.
    ///
    /// # Panics
    /// When it was written to.
    pub(crate) fn fresh(&mut self) -> &mut [u8] {
        assert_eq!(*self.claimed.get_mut(), 0, "bytes of an extent are written once");
        // SAFETY: the range is inside the mapping. Nothing was published, so there is no reference
        // to these bytes, and the exclusive borrow keeps it so. The kernel gives zeroed memory:
        // every byte has a value.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.capacity() as usize) }
    }

    /// Publishes the first `bytes` bytes, which were written in place.
    ///
    /// # Panics
    /// When it is not as large, or was published before.
    pub(crate) fn publish(&mut self, bytes: u32) {
        assert!(bytes <= self.capacity(), "more bytes were published than there are");
        assert_eq!(*self.claimed.get_mut(), 0, "bytes of an extent are written once");
        *self.claimed.get_mut() = bytes;
        *self.published.get_mut() = bytes;
    }

    /// Gives back the units behind the first `bytes` bytes, which were published. No reader has
    /// them, because the extent has one owner. Nothing is written behind these bytes any more.
    ///
    /// # Panics
    /// When there are no such bytes: the caller's bookkeeping is wrong.
    pub(crate) fn shrink(&mut self, bytes: u32) {
        let UnitExtent { start, units } = self.extent;
        let kept = bytes.div_ceil(UNIT_BYTES);
        assert!(kept > 0 && bytes <= *self.published.get_mut(), "an extent keeps what it has");
        self.extent.units = kept;
        *self.claimed.get_mut() = kept * UNIT_BYTES;
        *self.published.get_mut() = bytes;
        if units > kept {
            let behind = UnitExtent { start: start + kept, units: units - kept };
            self.arena.allocator.lock().give_back(behind);
        }
    }

    /// Returns published bytes.
    ///
    /// # Panics
    /// When the range was not published: the caller's bookkeeping is wrong.
    pub(crate) fn slice(&self, from: u32, bytes: u32) -> &[u8] {
        self.joined(from, bytes, &[])
    }

    /// Returns published bytes of this extent together with all published bytes of `others`, which
    /// follow it in memory without a gap.
    ///
    /// # Panics
    /// When something was not published or there is a gap: the caller's bookkeeping is wrong.
    pub(crate) fn joined<'a>(
        &'a self,
        from: u32,
        bytes: u32,
        others: &[(&'a Self, u32)],
    ) -> &'a [u8] {
        let is_published =
            |extent: &Self, end: u32| end <= extent.published.load(Ordering::Acquire);
        assert!(is_published(self, from + bytes), "bytes of an extent were read before their time");
        let mut end = self.address() + from as usize + bytes as usize;
        for (extent, bytes) in others {
            assert!(is_published(extent, *bytes), "bytes of an extent were read before their time");
            assert_eq!(extent.address(), end, "extents that do not touch were joined");
            assert!(Arc::ptr_eq(&extent.arena, &self.arena), "extents of two arenas were joined");
            end += *bytes as usize;
        }
        let length = end - self.address() - from as usize;
        // SAFETY: every byte of the range belongs to one of these extents, which are borrowed for
        // 'a and touch, so the range is inside the one mapping that they keep alive. All of it was
        // published, so it was written before (acquired above) and is never written again.
        unsafe { std::slice::from_raw_parts(self.start().add(from as usize), length) }
    }

    fn start(&self) -> *mut u8 {
        let offset = self.extent.start as usize * UNIT_BYTES as usize;
        // SAFETY: the allocator gives out only units inside the mapping.
        unsafe { self.arena.map.as_mut_ptr().add(offset) }
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.arena.allocator.lock().give_back(self.extent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(units: u32) -> Arc<Arena> {
        Arc::new(Arena::new(u64::from(units * UNIT_BYTES)).unwrap())
    }

    fn append(extent: &Extent, at: u32, bytes: &[u8]) -> bool {
        extent.append(at, bytes.len() as u32, |to| to.copy_from_slice(bytes))
    }

    #[test]
    fn bytes_are_written_once_and_read_as_written() {
        let arena = arena(4);
        let extent = arena.take(5000, None).unwrap().remove(0);
        assert!(append(&extent, 0, b"abc"));
        assert!(!append(&extent, 0, b"xyz"));
        assert!(!append(&extent, 4, b"xyz"));
        assert!(append(&extent, 3, b"de"));
        assert_eq!(extent.slice(1, 4), b"bcde");
        assert!(!append(&extent, 5, &[0; 2 * UNIT_BYTES as usize]));
    }

    #[test]
    #[should_panic(expected = "before their time")]
    fn unpublished_bytes_are_never_seen() {
        let arena = arena(4);
        let extent = arena.take(10, None).unwrap().remove(0);
        append(&extent, 0, b"abc");
        extent.slice(0, 4);
    }

    #[test]
    fn space_is_free_when_the_last_owner_goes() {
        let arena = arena(4);
        let extents = arena.take(4 * UNIT_BYTES, None).unwrap();
        assert!(arena.take(1, None).is_none());
        assert_eq!(arena.used_bytes(), arena.bytes());
        drop(extents);
        assert_eq!(arena.used_bytes(), 0);
        assert_eq!(arena.free_extents(), 1);
    }

    #[test]
    fn units_behind_the_bytes_that_are_kept_are_free_at_once() {
        let arena = arena(4);
        let mut extent = arena.take(4 * UNIT_BYTES, None).unwrap().remove(0);
        assert!(append(&extent, 0, &[7; 3 * UNIT_BYTES as usize]));
        extent.shrink(UNIT_BYTES + 1);
        assert_eq!(arena.used_bytes(), 2 * u64::from(UNIT_BYTES));
        assert_eq!(extent.slice(0, UNIT_BYTES + 1), [7; UNIT_BYTES as usize + 1]);
        assert!(!append(&extent, UNIT_BYTES + 1, b"x"), "it is written no further");
        let behind = arena.take(2 * UNIT_BYTES, Some(&extent)).unwrap().remove(0);
        assert_eq!(behind.address(), extent.address() + extent.capacity() as usize);
        drop((extent, behind));
        assert_eq!((arena.used_bytes(), arena.free_extents()), (0, 1));
    }

    #[test]
    fn touching_extents_are_read_as_one() {
        let arena = arena(4);
        let first = arena.take(UNIT_BYTES, None).unwrap().remove(0);
        let second = arena.take(UNIT_BYTES, Some(&first)).unwrap().remove(0);
        assert!(append(&first, 0, &[1; UNIT_BYTES as usize]));
        assert!(append(&second, 0, b"23"));
        let joined = first.joined(UNIT_BYTES - 1, 1, &[(&second, 2)]);
        assert_eq!(joined, [1, b'2', b'3']);
    }

    #[test]
    fn extent_is_taken_right_after_another_although_a_smaller_hole_fits() {
        let arena = arena(64);
        let take = |units: u32, near| arena.take(units * UNIT_BYTES, near).unwrap().remove(0);
        let hole = take(2, None);
        let wall = take(2, None);
        let first = take(3, None);
        drop(hole);
        let second = take(1, Some(&first));
        assert_eq!(second.address(), first.address() + first.capacity() as usize);
        assert_eq!(take(1, None).address(), wall.address() - wall.capacity() as usize);
    }

    #[test]
    fn no_other_process_can_write_the_arena() {
        let arena = arena(4);
        let extent = arena.take(10, None).unwrap().remove(0);
        append(&extent, 0, b"abc");
        let file = File::from(arena.descriptor().unwrap().try_clone_to_owned().unwrap());
        assert!(MmapOptions::new().map_raw(&file).is_err());
        assert!(rustix::io::pwrite(&file, b"xyz", 0).is_err());
        assert!(file.set_len(0).is_err());
        assert!(MmapOptions::new().map_raw_read_only(&file).is_ok());
        assert_eq!(extent.slice(0, 3), b"abc");
        assert_eq!(arena.place_of(extent.slice(1, 2)), Some(1));
        assert_eq!(arena.place_of(b"elsewhere"), None);
        arena.fault().unwrap();
    }

    #[test]
    fn memory_that_the_kernel_did_not_give_is_never_taken() {
        let given = FAULT_BYTES as u32;
        let mut arena = Arena::new(40 << 20).unwrap();
        // The file seals make the kernel refuse whatever lies behind its end.
        arena.file = Arena::new(given.into()).unwrap().file;
        let arena = Arc::new(arena);
        arena.fault().unwrap_err();
        assert_eq!((arena.bytes(), arena.used_bytes()), (given.into(), 0));
        let all = arena.take(given, None).unwrap();
        assert!(arena.take(1, None).is_none());
        assert_eq!((all.len(), arena.used_bytes()), (1, given.into()));
    }

    #[test]
    fn faulting_reaches_the_end_and_changes_nothing() {
        let arena = Arc::new(Arena::new(40 << 20).unwrap());
        let extent = arena.take(UNIT_BYTES, None).unwrap().remove(0);
        append(&extent, 0, b"abc");
        arena.fault().unwrap();
        assert_eq!(arena.faulted_bytes(), 40 << 20);
        assert_eq!(extent.slice(0, 3), b"abc");
    }
}
