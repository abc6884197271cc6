//! Memory that files are read into, aligned as the kernel requires for reads past the page cache,
//! and used again: the first touch of fresh memory costs more than the read.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_protocol::limits::BLOCK_BYTES_MAX;

/// What starts and ends are aligned to: a multiple of the sectors of every disk.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A block that begins inside a page.
const PIECE_BYTES: usize = BLOCK_BYTES_MAX as usize + PAGE_BYTES;

/// Unused pieces that are kept: two for each of the reads that keep a disk busy.
const KEPT_MAX: usize = 16;

/// Pieces of memory, each large enough for a block.
#[derive(Debug, Default)]
pub(crate) struct DiskBuffers {
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// A piece of it. It goes back when the last reader of its bytes is gone.
#[derive(Debug)]
pub(crate) struct Pages {
    memory: Vec<u8>,
    first: usize,
    length: usize,
    free: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// Bytes of a piece.
struct Range {
    pages: Pages,
    from: usize,
    to: usize,
}

impl DiskBuffers {
    /// Takes whole pages for `bytes` bytes.
    pub(crate) fn take(&self, bytes: usize) -> Pages {
        let length = bytes.next_multiple_of(PAGE_BYTES);
        let kept = if length <= PIECE_BYTES { self.free.lock().pop() } else { None };
        let memory = kept.unwrap_or_else(|| vec![0; length.max(PIECE_BYTES) + PAGE_BYTES]);
        let first = memory.as_ptr().align_offset(PAGE_BYTES);
        Pages { memory, first, length, free: Arc::clone(&self.free) }
    }
}

impl Pages {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.first..self.first + self.length]
    }

    /// Returns `length` bytes from `from`; they are not written any more.
    pub(crate) fn freeze(self, from: usize, length: usize) -> Bytes {
        let from = self.first + from;
        Bytes::from_owner(Range { pages: self, from, to: from + length })
    }
}

impl AsRef<[u8]> for Range {
    fn as_ref(&self) -> &[u8] {
        &self.pages.memory[self.from..self.to]
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.memory);
        let mut free = self.free.lock();
        if memory.len() == PIECE_BYTES + PAGE_BYTES && free.len() < KEPT_MAX {
            free.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_used_again_once_they_have_no_reader() {
        let memory = DiskBuffers::default();
        let mut first = memory.take(1 << 20);
        let address = first.bytes_mut().as_ptr();
        assert!(address.addr().is_multiple_of(PAGE_BYTES));
        first.bytes_mut().fill(7);
        let bytes = first.freeze(5, 10);
        assert_ne!(memory.take(1).bytes_mut().as_ptr(), address);
        assert_eq!(bytes, [7; 10][..]);
        drop(bytes);
        let again = memory.take((1 << 20) + 1);
        assert_eq!(again.length, (1 << 20) + PAGE_BYTES);
        assert!(memory.free.lock().len() <= 1);
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let memory = DiskBuffers::default();
        let taken: Vec<Pages> = (0..2 * KEPT_MAX).map(|_| memory.take(9)).collect();
        drop(taken);
        drop(memory.take(2 * PIECE_BYTES));
        assert_eq!(memory.free.lock().len(), KEPT_MAX);
    }
}
