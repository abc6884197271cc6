//! What this process uses of its machine.

use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::time::{ClockId, clock_gettime};

/// Returns the CPU time of all threads since the process started, in user and system mode.
#[must_use]
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns when the process started, in Unix time: the start of the machine and field 22 of
/// `proc_pid_stat`. `None` where there is no `/proc`.
#[must_use]
pub fn start_time() -> Option<Duration> {
    let machine = std::fs::read_to_string("/proc/stat").ok()?;
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime "))?;
    let booted = Duration::from_secs(booted.trim().parse().ok()?);
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name stands in parentheses and may hold anything: fields are counted after the last one.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: u64 = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let per_second = clock_ticks_per_second().max(1);
    Some(booted + Duration::from_millis(ticks.saturating_mul(1000) / per_second))
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
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = start_time().map(|started| now.as_secs_f64() - started.as_secs_f64());
        assert!(age.is_some_and(|age| (-2.0..3600.0).contains(&age)), "{age:?}");
        assert!(resident_bytes().is_some_and(|bytes| bytes > 4096));
    }
}
