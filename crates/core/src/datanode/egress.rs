//! Paces what a node sends, where the network itself does not.

use sanderling_protocol::{Instant, Millis};

/// A token bucket over the bytes of blocks that a node sends: reads and pushes, first come first
/// served, as one queue in front of one link. [`super::LinkQueue`] decides what is queued next.
#[derive(Debug, Clone)]
pub struct Egress {
    bytes_per_second: Option<u64>,
    /// When the last byte that was promised has left, in nanoseconds: a frame takes a few
    /// microseconds on a fast link.
    free_at_nanos: u64,
}

impl Egress {
    /// How many pushes a node queues at once; the others wait. A read has at most so many blocks
    /// before it. With all that were prepared, copies made in the background held a read back for
    /// longer than a client waits. Two: the link goes on with the second until the shell has
    /// queued the next one.
    pub const PUSHES_QUEUED_MAX: usize = 2;

    /// How long before the last byte of an answer has left the next one is queued: longer than
    /// timers of a busy machine are late. Chosen, not measured.
    pub const AHEAD: Millis = Millis(50);

    /// What may be sent at once after a pause: a token bucket's depth in time. Timers of shells
    /// fire at whole milliseconds; a depth of a few of them keeps the rate whole.
    const BURST: Millis = Millis(4);

    /// Returns a pacer that lets so many bytes pass in a second; with `None` it lets all pass at
    /// once.
    #[must_use]
    pub const fn new(bytes_per_second: Option<u64>) -> Self {
        Self { bytes_per_second, free_at_nanos: 0 }
    }

    /// Queues so many bytes; returns when they have left, or `None` when that is now.
    pub fn queue(&mut self, now: Instant, bytes: u64) -> Option<Instant> {
        self.queue_since(now, now, bytes)
    }

    /// The same for bytes that could have been queued since then, had the timer not been late: a
    /// timer that is late by up to [`Self::AHEAD`] takes nothing of the rate.
    pub fn queue_since(&mut self, now: Instant, since: Instant, bytes: u64) -> Option<Instant> {
        let rate = self.bytes_per_second.filter(|_| bytes > 0)?.max(1);
        let takes = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let takes = u64::try_from(takes).unwrap_or(u64::MAX);
        let earliest = since.max(now - Self::AHEAD).min(now - Self::BURST);
        let earliest = earliest.0.saturating_mul(1000);
        self.free_at_nanos = self.free_at_nanos.max(earliest).saturating_add(takes);
        Some(self.free_at()).filter(|at| *at > now)
    }

    /// Returns when the last byte that was queued has left, rounded up to a microsecond. It may be
    /// in the past.
    #[must_use]
    pub const fn free_at(&self) -> Instant {
        Instant(self.free_at_nanos.div_ceil(1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000);

    #[test]
    fn bytes_leave_at_the_rate_and_in_their_order() {
        let mut egress = Egress::new(Some(1_000_000));
        assert_eq!(egress.queue(NOW, 1_000_000), Some(NOW + Millis(1000 - 4)));
        assert_eq!(egress.queue(NOW, 500_000), Some(NOW + Millis(1500 - 4)));
        let later = NOW + Millis(9000);
        assert_eq!(egress.queue(later, 1000), None, "what was saved goes at once");
        assert!(egress.queue(later, 1_000_000).is_some(), "a pause saves no more than the burst");
    }

    #[test]
    fn small_frames_on_a_fast_link_take_their_time_together() {
        let mut egress = Egress::new(Some(3_000_000_000));
        for _ in 0..1_000_000 {
            egress.queue(NOW, 4096);
        }
        let at = egress.queue(NOW, 4096).expect("four gigabytes take a while");
        assert!((1_361..=1_362).contains(&(at.since(NOW).0)), "{at:?}");
    }

    #[test]
    fn timer_that_is_late_takes_nothing_of_the_rate() {
        let mut egress = Egress::new(Some(1_000_000));
        let at = egress.queue(NOW, 100_000).expect("it takes 96 ms");
        let late = at + Millis(30);
        assert_eq!(egress.queue_since(late, at, 100_000), Some(at + Millis(100)));
        let late = egress.free_at() + Millis(500);
        let left_at = egress.queue_since(late, egress.free_at(), 100_000);
        assert_eq!(left_at, Some(late + Millis(50)), "a pause saves no more than that");
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        assert_eq!(Egress::new(None).queue(NOW, u64::MAX), None);
    }
}
