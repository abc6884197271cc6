//! How long the kernel lets a thread run while others wait for a processor.
//!
//! The kernel's own slice is some milliseconds. A thread that wakes for a request then waits that
//! long for one that computes, although its own work takes microseconds. Since Linux 6.12 a thread
//! may have a slice of its own: one with a shorter slice than the one that runs goes first, within
//! its fair share of the processor. No privilege is needed. An older kernel ignores the slice.
#![allow(unsafe_code, reason = "no library has the call")]

use std::io;
use std::mem::zeroed;
use std::time::Duration;

use libc::sched_attr;

/// The time slice of threads that answer callers. The least that Linux takes. Beside frames of 512
/// stats it lowered a tenant's p99 from 48 to 27 ms, against the kernel's slice of 1.4 ms (two
/// cores, medians of four rounds, unoptimized build; `bench/slices.py` measures it again,
/// docs/BENCH.md has it of an optimized one).
pub const ANSWERS: Duration = Duration::from_micros(100);

/// The time slice of threads on which no caller waits for less than some milliseconds. About the
/// kernel's default with eight cores or more, 2.8 ms; with two it is 1.4 ms. Longer means fewer
/// switches, and a thread with [`ANSWERS`] goes first.
pub const BULK: Duration = Duration::from_millis(3);

/// Sets the slice of this thread, which the threads that it starts inherit. Whether the kernel
/// accepts it makes no difference but of time, so a refusal is only logged.
pub fn set(slice: Duration) {
    let nanos = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    match try_set(nanos) {
        Ok(accepted) if accepted == nanos => {}
        Ok(_) => tracing::debug!("the kernel has no time slices for single threads"),
        Err(error) => tracing::debug!(%error, "the kernel refuses a time slice for a thread"),
    }
}

/// Sets the time slice of this thread and returns the one that the kernel has now, in nanoseconds.
fn try_set(nanos: u64) -> io::Result<u64> {
    let mut attributes = read()?;
    // A policy that the operator has chosen for the process stays.
    if attributes.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    attributes.sched_runtime = nanos;
    let (this, no_flags) = (0, 0);
    // SAFETY: the kernel reads as many bytes as `size` states, and the value has as many.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setattr, this, &raw const attributes, no_flags) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    read().map(|attributes| attributes.sched_runtime)
}

fn read() -> io::Result<sched_attr> {
    // SAFETY: all of its fields are numbers.
    let mut attributes: sched_attr = unsafe { zeroed() };
    let (this, bytes, no_flags) = (0, size_of::<sched_attr>(), 0);
    // SAFETY: the kernel writes at most as many bytes as the value has, and all fields are numbers.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_getattr, this, &raw mut attributes, bytes, no_flags)
    };
    match result {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_has_its_own_slice_and_its_threads_inherit_it() {
        let of_this_thread = || {
            let read = read().unwrap();
            (read.sched_runtime, read.sched_policy, read.sched_nice)
        };
        let before = of_this_thread();
        let (own, inherited) = std::thread::spawn(move || {
            set(ANSWERS);
            (of_this_thread(), std::thread::spawn(of_this_thread).join().unwrap())
        })
        .join()
        .unwrap();
        assert_eq!(of_this_thread(), before, "other threads keep theirs");
        assert_eq!(inherited, own);
        assert_eq!((own.1, own.2), (before.1, before.2), "nothing else changes");
        // An older kernel has none.
        let slice = u64::try_from(ANSWERS.as_nanos()).unwrap();
        assert!(own.0 == slice || before.0 == 0, "{own:?}");
    }
}
