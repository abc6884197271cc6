//! The clock of elections and leases.

use rustix::time::{ClockId, clock_gettime};
use sanderling_protocol::Instant;

/// Returns the time since the machine was booted, suspensions included, in microseconds: the clock
/// of elections and leases.
pub(crate) fn boot_time() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Instant(seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000))
}
