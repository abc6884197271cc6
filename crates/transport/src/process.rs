//! What this process uses of its machine.

use std::time::Duration;

use rustix::param::page_size;
use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time of all threads since the process started, in user and system mode.
#[must_use]
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns the bytes of memory that are mapped in, those shared with others included: the second
/// field of `proc_pid_statm`. `None` where there is no `/proc`.
#[must_use]
pub fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_seen() {
        let before = cpu_time();
        let mut sum = 0_u64;
        while cpu_time() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(cpu_time() > before);
        assert!(resident_bytes().is_some_and(|bytes| bytes > 4096));
    }
}
