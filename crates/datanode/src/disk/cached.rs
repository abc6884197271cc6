//! Whether a run of a file is in the page cache.
#![allow(unsafe_code, reason = "the C library has no wrapper of this system call")]

use std::fs::File;
use std::os::fd::AsRawFd;

/// The number of cachestat(2), the same on every architecture that Rust's Linux targets have.
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of `linux/mman.h`.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat` of `linux/mman.h`, in pages.
#[repr(C)]
#[derive(Default)]
struct CacheStat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Returns whether most of a run is in the page cache, or waits there to be written; `None` before
/// Linux 6.5, which has no such call. Never reads anything, as a read that does not wait would.
pub(crate) fn is_cached(file: &File, offset: u64, length: u64) -> Option<bool> {
    let (range, mut found) = (Range { offset, length }, CacheStat::default());
    // SAFETY: cachestat(2) reads the one structure and fills the other, both of the layout that it
    // requires and alive until it returns.
    let failed =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut found, 0) };
    if failed != 0 {
        return None;
    }
    let pages = length.div_ceil(super::memory::PAGE_BYTES as u64);
    Some(found.dirty > 0 || found.writeback > 0 || found.cached > pages / 2)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn written_bytes_are_cached_until_they_are_pushed_out() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(&[7; 200_000]).unwrap();
        let Some(is_there) = is_cached(&file, 0, 200_000) else { return };
        assert!(is_there);
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert_eq!(is_cached(&file, 0, 200_000), Some(false));
    }
}
