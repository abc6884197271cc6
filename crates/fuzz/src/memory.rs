//! Counts memory: an allocator that keeps the number of bytes of each thread.
#![allow(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// No allocation is larger: the process ends there, as on a machine that has no more.
const ONE_BYTES_MAX: usize = 1 << 30;

/// The system's allocator, with a count of bytes for each thread.
#[derive(Debug)]
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    /// The bytes that the thread has now.
    static NOW: Cell<isize> = const { Cell::new(0) };

    /// The most that it has had.
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends frees memory after its counts are gone.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: all memory is the system allocator's, under the layouts that the caller gives.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > ONE_BYTES_MAX {
            return std::ptr::null_mut();
        }
        count(layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > ONE_BYTES_MAX {
            return std::ptr::null_mut();
        }
        count(layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if bytes > ONE_BYTES_MAX {
            return std::ptr::null_mut();
        }
        // Both may exist for a moment.
        count(bytes.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

/// Runs something and returns the most bytes of memory that it held at a time, on this thread and
/// beyond what the thread held before.
pub fn peak_of(run: impl FnOnce()) -> usize {
    let before = NOW.get();
    MOST.set(before);
    run();
    (MOST.get() - before).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_memory_at_a_time_is_counted() {
        let bytes = peak_of(|| {
            drop(vec![1_u8; 10_000]);
            drop(vec![1_u8; 20_000]);
        });
        assert!((20_000..21_000).contains(&bytes), "{bytes}");
        let kept: Vec<u8> = Vec::with_capacity(5_000);
        assert_eq!(peak_of(|| drop(kept)), 0);
    }
}
