//! The checksums of pages that were read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a page: what random reads of caches and indexes ask for.
const PAGE_BYTES: u32 = 4 << 10;

/// Checksums of single pages of a block's bytes, kept from the first read of each: a thousandth of
/// the block, and only of blocks that are read by the page.
///
/// A reader who gets a page's first checksum again notices bytes that changed since.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// By page; 0 where none is kept, and where it is 0.
    sums: OnceLock<Box<[AtomicU32]>>,
}

impl Pages {
    /// Returns the checksum of the bytes from `start` to `end`; `None` unless they are a page that
    /// was read before.
    pub(crate) fn checksum(&self, start: u32, end: u32) -> Option<u32> {
        let sum = self.sums.get()?.get(page(start, end)?)?.load(Ordering::Relaxed);
        Some(sum).filter(|sum| *sum != 0)
    }

    /// Keeps the checksum of a range of a block that is `length` bytes long, if it is a page.
    pub(crate) fn keep(&self, length: u32, start: u32, end: u32, checksum: u32) {
        let Some(page) = page(start, end) else { return };
        let none = || (0..length / PAGE_BYTES).map(|_| AtomicU32::new(0)).collect();
        if let Some(sum) = self.sums.get_or_init(none).get(page) {
            sum.store(checksum, Ordering::Relaxed);
        }
    }
}

fn page(start: u32, end: u32) -> Option<usize> {
    let is_page = start.is_multiple_of(PAGE_BYTES) && end.checked_sub(start) == Some(PAGE_BYTES);
    is_page.then_some((start / PAGE_BYTES) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pages_are_kept() {
        let pages = Pages::default();
        assert_eq!(pages.checksum(4096, 8192), None);
        for (start, end) in [(0, 8192), (1, 4097), (4096, 8000), (0, 0), (8192, 4096)] {
            pages.keep(10_000, start, end, 7);
            assert_eq!(pages.checksum(start, end), None);
        }
        pages.keep(10_000, 4096, 8192, 7);
        assert_eq!(pages.checksum(4096, 8192), Some(7));
        assert_eq!(pages.checksum(0, 4096), None);
        pages.keep(10_000, 8192, 12_288, 7);
        assert_eq!(pages.checksum(8192, 12_288), None, "past the end");
    }
}
