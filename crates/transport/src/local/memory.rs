//! Memory that two processes of one machine have mapped.
//!
//! Another process may write it at any moment, so the only reference into it is through [`View`],
//! whose bytes the peer has promised not to change while it exists.
#![allow(unsafe_code, reason = "the kernel's mappings are raw memory")]

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::Advice;

/// A mapping of shared memory.
#[derive(Debug)]
pub struct SharedMemory {
    map: MmapRaw,
    is_writable: bool,
}

/// Bytes of a mapping, and what keeps them as they are: a lease, given back when it is dropped.
#[derive(Debug)]
pub struct View<K> {
    memory: Arc<SharedMemory>,
    place: usize,
    length: usize,
    _owner: K,
}

impl SharedMemory {
    /// Makes memory of that size and returns it with the descriptor that the peer maps it by.
    /// Neither of the two can change its size: its mapping never ends early.
    ///
    /// # Errors
    /// The kernel's error when it has no descriptor or no address space: the peer uses TCP.
    pub fn create(name: &str, bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create(name, flags)?);
        file.set_len(bytes as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = MmapOptions::new().len(bytes).map_raw(&file)?;
        Ok((Self { map, is_writable: true }, file.into()))
    }

    /// Maps a peer's memory to read it. A child that this process forks does not have the mapping.
    ///
    /// # Errors
    /// `InvalidData` when it is smaller than `bytes` or could become so, which would end this
    /// process at the first touch behind its end; else the kernel's error. Use TCP.
    pub fn read_only(file: OwnedFd, bytes: u64) -> io::Result<Self> {
        let (file, bytes) = checked(file, bytes)?;
        let map = MmapOptions::new().len(bytes).map_raw_read_only(&file)?;
        // Not inherited: a child process has no leases, and would still see blocks that this
        // process has released.
        // SAFETY: the range is the whole mapping; it changes no byte of it here.
        unsafe {
            rustix::mm::madvise(map.as_mut_ptr().cast(), bytes, Advice::LinuxDontFork)?;
        }
        Ok(Self { map, is_writable: false })
    }

    /// Maps a peer's memory to write it.
    ///
    /// # Errors
    /// As [`Self::read_only`].
    pub fn writable(file: OwnedFd, bytes: u64) -> io::Result<Self> {
        let (file, bytes) = checked(file, bytes)?;
        let map = MmapOptions::new().len(bytes).map_raw(&file)?;
        Ok(Self { map, is_writable: true })
    }

    /// Returns the size of the memory in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.len()
    }

    /// Copies `bytes` into the mapping, from `place` on, in bytes from its start.
    ///
    /// # Panics
    /// When they do not fit or the mapping is read-only: the caller's bookkeeping is wrong.
    pub fn put(&self, place: usize, bytes: &[u8]) {
        assert!(self.is_writable, "a mapping to read was written");
        assert!(self.has(place, bytes.len()), "written behind the end of a mapping");
        // SAFETY: the range is inside the mapping, which is writable and lives as long as `self`.
        // No reference into a writable mapping exists, so the source is elsewhere.
        unsafe {
            let to = self.map.as_mut_ptr().add(place);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Copies bytes out of the mapping, from `place` on. The peer may be writing them: then the
    /// copy is a mixture of old and new bytes.
    ///
    /// # Panics
    /// When they are not all there: the caller's bookkeeping is wrong.
    pub fn take(&self, place: usize, into: &mut [u8]) {
        assert!(self.has(place, into.len()), "read behind the end of a mapping");
        // SAFETY: the range is inside the mapping, which lives as long as `self`; the target is
        // borrowed by this call alone. The copy races with a peer that breaks the protocol, as a
        // copy by the kernel would; every value of a byte is one.
        unsafe {
            let from = self.map.as_ptr().add(place);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
    }

    /// Returns bytes that the peer keeps as they are while `owner` exists; `None` when they are
    /// not all there.
    #[must_use]
    pub fn view<K>(self: &Arc<Self>, place: u64, length: u32, owner: K) -> Option<View<K>> {
        let (place, length) = (usize::try_from(place).ok()?, length as usize);
        let memory = Arc::clone(self);
        self.has(place, length).then_some(View { memory, place, length, _owner: owner })
    }

    fn has(&self, place: usize, length: usize) -> bool {
        place.checked_add(length).is_some_and(|end| end <= self.map.len())
    }
}

impl<K> AsRef<[u8]> for View<K> {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range was found to be inside the mapping, which this view keeps. With the
        // lease the peer promised that no process writes there while `owner` exists, and its file
        // seals keep out writers other than itself; a peer that breaks this promise is as bad as
        // one that sends wrong bytes.
        unsafe { std::slice::from_raw_parts(self.memory.map.as_ptr().add(self.place), self.length) }
    }
}

fn checked(file: OwnedFd, bytes: u64) -> io::Result<(File, usize)> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    let file = File::from(file);
    let seals = rustix::fs::fcntl_get_seals(&file)?;
    if !seals.contains(SealFlags::SHRINK) || file.metadata()?.len() < bytes {
        return Err(refused("shared memory is smaller than announced, or may shrink"));
    }
    let bytes = usize::try_from(bytes).map_err(|_| refused("larger than the address space"))?;
    if bytes == 0 {
        return Err(refused("shared memory is empty"));
    }
    Ok((file, bytes))
}
