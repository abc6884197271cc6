//! Memory that large bodies are received into, used again and again: the first touch of fresh
//! memory costs many times a copy.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::memory::{Memory, Reserved};

/// Longer bodies are received in place, others copied out of the buffer. A copy of 16 KiB takes
/// about a microsecond; to receive in place costs a system call of its own. A body that stayed in
/// the buffer instead would keep all of a connection's buffer for its life. Chosen, not measured.
pub(crate) const COPIED_BYTES_MAX: usize = 16 << 10;

/// Smallest buffer. Shorter bodies have memory of their own, which the allocator keeps at hand.
/// Bodies above 16 KiB are received in place ([`COPIED_BYTES_MAX`]), so a body wastes at most half
/// of its buffer. No measurement has chosen it: a smaller one keeps more classes of buffers at
/// hand.
const BUFFER_BYTES_MIN: usize = 32 << 10;

/// Bytes of unused buffers that are kept for later: a read of 16 MiB ahead, twice.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Buffers for received bodies, whose sizes in bytes are powers of two. Clones share the unused
/// ones, up to a bound.
#[derive(Debug, Clone)]
pub struct Buffers {
    shared: Arc<BufferCache>,
    memory: Memory,
}

#[derive(Debug)]
struct BufferCache {
    kept_bytes_max: usize,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    bytes: usize,
    by_class: Vec<Vec<Vec<u8>>>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new(KEPT_BYTES_MAX)
    }
}

impl Buffers {
    /// Returns an empty set that keeps at most so many bytes that are not in use. Those in use have
    /// no bound.
    #[must_use]
    pub fn new(kept_bytes_max: usize) -> Self {
        Self::within(kept_bytes_max, Memory::unbounded())
    }

    /// Returns an empty set that keeps at most so many bytes that are not in use. `memory` counts
    /// the buffers in use.
    #[must_use]
    pub fn within(kept_bytes_max: usize, memory: Memory) -> Self {
        Self { shared: Arc::new(BufferCache { kept_bytes_max, free: Mutex::default() }), memory }
    }

    /// Returns the account that counts the bytes of the buffers in use.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the same buffers, used by another connection, of a tenant if that is known.
    pub(crate) fn of_connection(&self, tenant: Option<&str>) -> Self {
        let memory = self.memory.of_connection(tenant);
        Self { shared: Arc::clone(&self.shared), memory }
    }

    /// Takes a buffer for a body of `bytes` bytes; `None` if too much memory is in use. It goes
    /// back when the last reader of them is gone.
    pub(crate) fn take(&self, bytes: usize) -> Option<Buffer> {
        let class = class(bytes);
        let reserved = self.memory.receive(BUFFER_BYTES_MIN << class)?;
        let memory = self.shared.free.lock().take(class);
        let memory = memory.unwrap_or_else(|| vec![0; BUFFER_BYTES_MIN << class]);
        Some(Buffer { memory, bytes, shared: Arc::clone(&self.shared), reserved })
    }
}

impl Free {
    fn take(&mut self, class: usize) -> Option<Vec<u8>> {
        let memory = self.by_class.get_mut(class)?.pop()?;
        self.bytes -= memory.len();
        Some(memory)
    }

    fn give_back(&mut self, memory: Vec<u8>, kept_bytes_max: usize) -> Option<Vec<u8>> {
        if self.bytes + memory.len() > kept_bytes_max {
            return Some(memory);
        }
        let class = class(memory.len());
        if self.by_class.len() <= class {
            self.by_class.resize_with(class + 1, Vec::new);
        }
        self.bytes += memory.len();
        self.by_class[class].push(memory);
        None
    }
}

/// Returns the memory that a body of so many bytes takes once it is received.
#[must_use]
pub fn body_memory(bytes: usize) -> usize {
    if bytes > COPIED_BYTES_MAX { BUFFER_BYTES_MIN << class(bytes) } else { bytes }
}

fn class(bytes: usize) -> usize {
    let units = bytes.div_ceil(BUFFER_BYTES_MIN).max(1);
    units.next_power_of_two().trailing_zeros() as usize
}

/// Memory for one body.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    bytes: usize,
    shared: Arc<BufferCache>,
    reserved: Reserved,
}

impl Buffer {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.bytes]
    }

    /// Notes how many of the bytes have come.
    pub(crate) fn came(&self, bytes: usize) {
        self.reserved.came(bytes);
    }

    /// Returns the bytes to read; they are written no more.
    pub(crate) fn freeze(mut self) -> Bytes {
        self.reserved.arrived();
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.bytes]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        // Freed outside the lock.
        let _too_much = self.shared.free.lock().give_back(memory, self.shared.kept_bytes_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_it_has_no_reader() {
        let buffers = Buffers::default();
        let mut first = buffers.take(1 << 20).unwrap();
        first.bytes_mut().fill(7);
        let address = first.as_ref().as_ptr();
        let bytes = first.freeze();
        let part = bytes.slice(5..10);
        drop(bytes);
        assert_ne!(buffers.take(1 << 20).unwrap().as_ref().as_ptr(), address, "it has a reader");
        assert_eq!(part, [7; 5][..]);
        drop(part);
        let free = |buffers: &Buffers| buffers.shared.free.lock().bytes;
        assert_eq!(free(&buffers), 2 << 20);
        assert_eq!(buffers.take((1 << 20) - 1).unwrap().as_ref().len(), (1 << 20) - 1);
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let buffers = Buffers::new(100 << 10);
        let taken: Vec<Buffer> = (0..9).filter_map(|_| buffers.take(40_000)).collect();
        drop(taken);
        let free = buffers.shared.free.lock();
        assert_eq!((free.bytes, free.by_class[1].len()), (64 << 10, 1));
    }

    #[test]
    fn classes_hold_what_they_are_asked_for() {
        for bytes in [0, 1, 32 << 10, (32 << 10) + 1, 1 << 20, (16 << 20) + (64 << 10)] {
            let mut buffer = Buffers::default().take(bytes).unwrap();
            assert_eq!(buffer.bytes_mut().len(), bytes);
        }
    }

    #[test]
    fn memory_of_a_body_is_that_of_its_buffer() {
        for bytes in [COPIED_BYTES_MAX + 1, 32 << 10, (32 << 10) + 1, 513 << 10, 1 << 20] {
            let buffers = Buffers::within(0, Memory::new(4 << 20));
            let buffer = buffers.take(bytes);
            assert_eq!(body_memory(bytes), buffers.memory().used(), "{bytes}");
            drop(buffer);
        }
        assert_eq!(body_memory(513 << 10), 1 << 20);
        // What is copied has memory of its own.
        assert_eq!(body_memory(COPIED_BYTES_MAX), COPIED_BYTES_MAX);
    }

    #[test]
    fn no_more_memory_is_in_use_than_the_bound() {
        let buffers = Buffers::within(1 << 20, Memory::new(1 << 20));
        let first = buffers.take(600 << 10);
        assert_eq!(buffers.memory().used(), 1 << 20, "a power of two");
        assert!(first.is_some() && buffers.take(1).is_none() && buffers.memory().is_scarce());
        let bytes = first.unwrap().freeze();
        assert!(buffers.take(1).is_none(), "it has a reader");
        drop(bytes);
        assert_eq!(buffers.memory().used(), 0);
        let small = buffers.take(1);
        assert!(small.is_some() && !buffers.memory().is_scarce());
        assert!(Memory::unbounded().reserve(usize::MAX).is_some());
    }
}
