//! Signals that leave a process alone which has to outlive the others of its service.
#![allow(unsafe_code, reason = "rustix sets no handlers")]

/// Lets this process ignore the signals by which a supervisor or a terminal ends a whole service.
/// What it starts ignores them, too.
pub(crate) fn ignore_ends() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: no handler runs, and the number is one of a signal that can be ignored.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
