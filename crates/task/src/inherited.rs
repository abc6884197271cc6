//! Descriptors that this process has inherited.
#![allow(unsafe_code, reason = "rustix has no close_range")]

use std::io;

/// Of the system call: they are closed at the next exec, not now.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;

/// The first descriptor after those of input and output.
const FIRST: libc::c_uint = 3;

/// Keeps all descriptors beside input and output from the programs that this process starts: CRIU
/// dumps none that comes from outside of the task.
///
/// # Errors
/// The system's error: kernels before Linux 5.11 cannot do this.
pub(crate) fn keep_from_children() -> io::Result<()> {
    // SAFETY: the call takes three numbers, and no descriptor is closed under its owner.
    let result = unsafe {
        libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
