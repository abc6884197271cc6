//! Which parts of an upload to the store of a durable directory a datanode sends as one.
//!
//! A bucket charges for requests, so fewer and longer parts cost less. A part is in memory until it
//! is sent, and one that takes longer than an operation may (`STORE_OPERATION_MAX`) was sent in
//! vain. So parts are joined only as far as the store has shown that it takes them in time. A store
//! may also take no body above some length, as one behind a proxy with such a limit. So parts that
//! failed as one are sent again one by one, and the next ones are shorter, until many were taken.

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

/// So many of the longest parts that are allowed are taken before longer ones are tried. Twice as
/// many as an order has (`PARTS_PER_ORDER_MAX`), so one whose parts failed as one is sent whole
/// before the next try. A try that fails sends its bytes once more, so each one waits for twice as
/// many parts as the one before.
const RAISED_AFTER_MIN: u32 = 16;

/// Most of them: a store that never takes longer ones refuses one part in a thousand. Chosen, not
/// measured.
const RAISED_AFTER_MAX: u32 = 1024;

/// How long the parts for one store may be, as it has taken the last ones.
#[derive(Debug, Clone)]
pub struct PartJoins {
    bytes_per_second: Option<u64>,
    /// Bytes of joined parts at most, since one failed.
    bytes_max: u64,
    /// Parts of more than half of that which the store has taken since it changed.
    taken: u32,
    /// How many of them allow longer ones.
    raised_after: u32,
}

impl Default for PartJoins {
    fn default() -> Self {
        Self {
            bytes_per_second: None,
            bytes_max: JOINED_BYTES_MAX,
            taken: 0,
            raised_after: RAISED_AFTER_MIN,
        }
    }
}

impl PartJoins {
    /// Notes that the store has taken a part of so many bytes in this time.
    pub fn sent(&mut self, bytes: u64, took: Millis) {
        if bytes >= MEASURED_BYTES_MIN {
            self.bytes_per_second = Some(bytes.saturating_mul(1000) / took.0.max(1));
        }
        if bytes > self.bytes_max / 2 {
            self.taken += 1;
        }
        if self.taken < self.raised_after {
            return;
        }
        self.taken = 0;
        if self.bytes_max == JOINED_BYTES_MAX {
            self.raised_after = RAISED_AFTER_MIN;
        } else {
            self.bytes_max = (self.bytes_max * 2).min(JOINED_BYTES_MAX);
            self.raised_after = (self.raised_after * 2).min(RAISED_AFTER_MAX);
        }
    }

    /// Notes that the store has not taken a part of so many bytes. The next one is as short as it
    /// may be, and later ones have half of these bytes at most. The failure of a part that could
    /// not be shorter shows nothing about lengths.
    pub fn failed(&mut self, bytes: u64) {
        self.bytes_per_second = None;
        let shorter = (bytes / 2).max(PART_BYTES_MIN);
        if bytes > PART_BYTES_MIN && shorter < self.bytes_max {
            (self.bytes_max, self.taken) = (shorter, 0);
        }
    }

    /// Returns how many of the first of these parts, by their bytes, go as one: the first alone, or
    /// with those after it.
    #[must_use]
    pub fn joined(&self, parts: &[u64]) -> usize {
        let rate = self.bytes_per_second.unwrap_or_default();
        let in_time = rate.saturating_mul(STORE_OPERATION_MAX.0) / 1000 / TIME_PART;
        let bytes_max = in_time.min(self.bytes_max);
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
    fn store_that_fails_gets_short_parts_again_and_longer_ones_when_it_has_taken_many() {
        let mut joins = PartJoins::default();
        joins.sent(PART_BYTES_MIN, Millis(0));
        assert_eq!(joins.joined(&PACK), 5);
        let pack: u64 = PACK.iter().sum();
        // Those that were under way at once failed at once.
        for _ in 0..4 {
            joins.failed(pack);
        }
        assert_eq!(joins.joined(&PACK), 1);
        joins.sent(PART_BYTES_MIN, Millis(0));
        assert_eq!(joins.joined(&PACK), 2);
        for _ in 0..RAISED_AFTER_MIN {
            assert_eq!(joins.joined(&PACK), 2);
            joins.sent(2 * PART_BYTES_MIN, Millis(0));
        }
        assert_eq!(joins.joined(&PACK), 5);
    }

    #[test]
    fn short_part_that_fails_shows_nothing_about_lengths() {
        let mut joins = PartJoins::default();
        joins.failed(PART_BYTES_MIN);
        assert_eq!(joins.joined(&PACK), 1);
        joins.sent(PART_BYTES_MIN, Millis(0));
        assert_eq!(joins.joined(&PACK), 5);
    }

    /// Sends packs to a store that takes no part above so many bytes; returns how many parts were
    /// refused of the first 4,000. Those that were refused as one are sent again one by one.
    fn refused_of_4000(limit: u64) -> u32 {
        let (mut joins, mut at, mut refused) = (PartJoins::default(), 0, 0);
        for _ in 0..4000 {
            let count = joins.joined(&PACK[at..]);
            let parts = &PACK[at..][..count];
            let bytes: u64 = parts.iter().sum();
            if bytes > limit {
                assert!(count > 1, "a part alone is refused");
                joins.failed(bytes);
                refused += 1;
                parts.iter().for_each(|part| joins.sent(*part, Millis(0)));
            } else {
                joins.sent(bytes, Millis(0));
            }
            at = (at + count) % PACK.len();
        }
        refused
    }

    #[test]
    fn store_that_takes_no_long_parts_gets_each_pack_in_shorter_ones() {
        assert_eq!(refused_of_4000(JOINED_BYTES_MAX), 0);
        for limit in [PART_BYTES_MIN, PART_BYTES_MIN + 1, 10 << 20, 16 << 20, 24 << 20] {
            let refused = refused_of_4000(limit);
            assert!((2..=12).contains(&refused), "{limit}: {refused}");
        }
    }
}
