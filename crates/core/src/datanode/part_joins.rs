//! Which parts of an upload to the store of a durable directory a datanode sends as one.
//!
//! A bucket charges for requests, so fewer and longer parts cost less. A part is in memory until it
//! is sent, and one that takes longer than an operation may (`STORE_OPERATION_MAX`) was sent in
//! vain. So parts are joined only as far as the store has shown that it takes them in time.

use sanderling_protocol::Millis;

use crate::durable::{PART_BYTES_MIN, STORE_OPERATION_MAX};

/// Bytes of joined parts at most: a pack of a checkpoint, 32 MiB and a last chunk, goes as one.
pub const JOINED_BYTES_MAX: u64 = 33 << 20;

/// The shortest part whose time shows a store's rate rather than its latency. An eighth of the
/// shortest that is not the last.
const MEASURED_BYTES_MIN: u64 = PART_BYTES_MIN / 8;

/// Joined parts are to take this part of the longest time of an operation, at the rate of the part
/// before: the rate may be half of that by then.
const TIME_PART: u64 = 2;

/// How long the parts for one store may be, as it has taken the last one.
#[derive(Debug, Clone, Default)]
pub struct PartJoins {
    bytes_per_second: Option<u64>,
}

impl PartJoins {
    /// Notes that the store has taken a part of so many bytes in this time.
    pub fn sent(&mut self, bytes: u64, took: Millis) {
        if bytes >= MEASURED_BYTES_MIN {
            self.bytes_per_second = Some(bytes.saturating_mul(1000) / took.0.max(1));
        }
    }

    /// Notes that the store has not taken a part: the next ones are as short as they may be.
    pub const fn failed(&mut self) {
        self.bytes_per_second = None;
    }

    /// Returns how many of the first of these parts, by their bytes, go as one: the first alone, or
    /// with those after it.
    #[must_use]
    pub fn joined(&self, parts: &[u64]) -> usize {
        let rate = self.bytes_per_second.unwrap_or_default();
        let in_time = rate.saturating_mul(STORE_OPERATION_MAX.0) / 1000 / TIME_PART;
        let bytes_max = in_time.min(JOINED_BYTES_MAX);
        let mut sum: u64 = 0;
        let fits = |bytes: &&u64| {
            sum = sum.saturating_add(**bytes);
            sum <= bytes_max
        };
        parts.iter().take_while(fits).count().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACK: [u64; 5] =
        [PART_BYTES_MIN, PART_BYTES_MIN, PART_BYTES_MIN, PART_BYTES_MIN, 64 << 10];

    #[test]
    fn first_part_goes_alone_and_shows_how_fast_the_store_is() {
        let mut joins = PartJoins::default();
        assert_eq!(joins.joined(&PACK), 1);
        // 8 MiB/s: in 10 s it takes more than a pack.
        joins.sent(PART_BYTES_MIN, Millis(1000));
        assert_eq!(joins.joined(&PACK[1..]), 4);
        assert_eq!(joins.joined(&PACK), 5);
        assert_eq!(joins.joined(&[PACK, PACK].concat()), 5, "no more than a pack");
        assert_eq!(joins.joined(&[]), 1);
    }

    #[test]
    fn parts_for_a_slow_store_stay_short() {
        let mut joins = PartJoins::default();
        // Just above 16 MiB in 10 s, and just below.
        joins.sent(PART_BYTES_MIN, Millis(4990));
        assert_eq!(joins.joined(&PACK), 2);
        joins.sent(PART_BYTES_MIN, Millis(5001));
        assert_eq!(joins.joined(&PACK), 1);
        joins.sent(PART_BYTES_MIN, Millis(19_000));
        assert_eq!(joins.joined(&PACK), 1);
        // A part of few bytes takes as long as a request, whatever the rate.
        joins.sent(PART_BYTES_MIN, Millis(100));
        joins.sent(1000, Millis(100));
        assert_eq!(joins.joined(&PACK), 5);
    }

    #[test]
    fn store_that_fails_gets_short_parts_again() {
        let mut joins = PartJoins::default();
        joins.sent(PART_BYTES_MIN, Millis(0));
        assert_eq!(joins.joined(&PACK), 5);
        joins.failed();
        assert_eq!(joins.joined(&PACK), 1);
    }
}
