//! How fast a peer has to send or take what keeps memory.

use std::time::{Duration, Instant};

/// Bytes that pass at least in a second, on average and after some grace: memory is not kept for a
/// peer that moves a byte now and then. Chosen, not measured: half a megabit, far less than any
/// network in a cluster.
const RATE_MIN: usize = 64 << 10;

/// How long a peer may keep memory without moving any of it while memory is scarce. Lost packets
/// are sent again after 1 s at most, as a rule: twice that.
const SCARCE_GRACE: Duration = Duration::from_secs(2);

/// Within how long memory passes that is kept while memory is scarce: a peer that keeps more has to
/// be faster. Chosen, not measured: 16 MiB at 16 Mbit/s.
const SCARCE_TIMEOUT: Duration = Duration::from_secs(8);

/// Since when a peer is waited for.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    /// When bytes passed last.
    moved: Instant,
}

impl Pace {
    pub(crate) fn begin() -> Self {
        let now = Instant::now();
        Self { began: now, moved: now }
    }

    /// Notes that bytes passed.
    pub(crate) fn moved(&mut self) {
        self.moved = Instant::now();
    }

    /// Does not count some time.
    pub(crate) fn exclude(&mut self, time: Duration) {
        self.began += time;
        self.moved += time;
    }

    /// Returns whether the peer is too slow of which `passed` bytes came or went: none passed
    /// `within` this time, or less than 64 KiB a second beyond it. While memory is scarce, a peer
    /// that keeps `kept` bytes of it has 2 s and needs a rate by which these pass in 8 s.
    pub(crate) fn is_late(&self, passed: usize, within: Duration, kept: Option<usize>) -> bool {
        let (grace, rate) = match kept {
            None => (within, RATE_MIN),
            Some(kept) => {
                let rate = kept / SCARCE_TIMEOUT.as_secs() as usize;
                (within.min(SCARCE_GRACE), rate.max(RATE_MIN))
            }
        };
        let allowed = Duration::from_millis(passed as u64 * 1000 / rate as u64);
        self.moved.elapsed() > grace || self.began.elapsed() > grace + allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(30);

    fn since(seconds: u64) -> Pace {
        let began = Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        Pace { began, moved: Instant::now() }
    }

    #[test]
    fn peer_is_to_be_the_faster_the_more_scarce_memory_it_keeps() {
        let pace = since(60);
        assert!(!pace.is_late(31 * RATE_MIN, WITHIN, None));
        assert!(pace.is_late(29 * RATE_MIN, WITHIN, None));
        let pace = since(6);
        for (kept, passed, is_late) in [
            (16 << 20, 10 << 20, false),
            (16 << 20, 6 << 20, true),
            (1 << 20, 600 << 10, false),
            (1 << 20, 400 << 10, true),
            (1, 5 * RATE_MIN, false),
        ] {
            assert_eq!(pace.is_late(passed, WITHIN, Some(kept)), is_late, "{kept} {passed}");
        }
    }

    #[test]
    fn silent_peer_is_late_unless_no_caller_read() {
        let mut pace = since(3);
        pace.moved = pace.began;
        assert!(pace.is_late(16 << 20, WITHIN, Some(1)) && !pace.is_late(16 << 20, WITHIN, None));
        pace.exclude(Duration::from_secs(2));
        assert!(!pace.is_late(16 << 20, WITHIN, Some(1)));
    }
}
