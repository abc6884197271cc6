//! The clock that shells give to machines.

use std::time::{SystemTime, UNIX_EPOCH};

use sanderling_protocol::Instant;

/// Returns the wall clock's time.
///
/// It may step; machines that keep a log take the larger of it and the last command's time.
#[must_use]
pub fn now() -> Instant {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Instant(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
