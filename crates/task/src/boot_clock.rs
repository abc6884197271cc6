//! The clock of the machine that goes on while processes are stopped and while it is suspended. All
//! processes of a machine read the same time.

use rustix::time::{ClockId, clock_gettime};
use sanderling_protocol::Instant;

/// Returns the time since the boot, suspensions included.
pub(crate) fn since_boot() -> Instant {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
    Instant(seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_the_boot_goes_on() {
        let now = since_boot();
        assert!(now > Instant(0) && since_boot() >= now);
    }
}
