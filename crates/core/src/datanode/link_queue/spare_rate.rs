//! What clients leave of a link, by what they took of it lately.
//!
//! A client that reads one range after the other leaves the link to others for a moment after each
//! answer, and waits behind what they send then. So the bytes that uploads may send are bounded by
//! more than what leaves at the moment: by what clients took, and by room for them to take more.

use sanderling_protocol::Instant;

use super::super::egress::Egress;

/// The part of the link that clients may take beyond what they took lately, and no more than that
/// again. A client that waits behind uploads takes more as soon as it waits less, so within a few
/// windows ([`ReadRate::WINDOW_MICROS`]) it has the link. Chosen, not measured: what clients do not
/// take of it is lost to uploads.
const HEADROOM_PART: u64 = 4;

/// What uploads may send beside clients.
#[derive(Debug, Clone)]
pub(super) struct SpareRate {
    link_bytes_per_second: u64,
    reads: ReadRate,
    /// Bytes that may be sent now; below zero, more than that was sent.
    bytes: i64,
    counted_at: Instant,
}

/// Bytes per second of answers to clients, over this window and the one before.
#[derive(Debug, Clone, Default)]
struct ReadRate {
    began: Instant,
    bytes: u64,
    /// Bytes and microseconds of the window before.
    before: (u64, u64),
}

impl SpareRate {
    pub(super) const fn new(link_bytes_per_second: u64) -> Self {
        let reads = ReadRate { began: Instant(0), bytes: 0, before: (0, 0) };
        Self { link_bytes_per_second, reads, bytes: 0, counted_at: Instant(0) }
    }

    /// Notes that so many bytes of an answer to a client leave.
    pub(super) fn count_read(&mut self, now: Instant, bytes: u64) {
        self.reads.count(now, bytes);
    }

    /// Notes that so many bytes of uploads leave.
    pub(super) const fn take(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub_unsigned(bytes);
    }

    /// Returns when uploads may send something, or are to be looked at again; `None` if that is
    /// now.
    pub(super) fn ready_at(&mut self, now: Instant) -> Option<Instant> {
        let rate = self.rate(now);
        self.fill(now, rate);
        if self.bytes > 0 {
            return None;
        }
        let missing = u128::from(self.bytes.unsigned_abs()) + 1;
        // Clients may take less by then.
        let look_in = u128::from(Egress::AHEAD.0) * 1000;
        let ready_in = match rate {
            0 => look_in,
            rate => (missing * 1_000_000).div_ceil(u128::from(rate)).min(look_in),
        };
        Some(Instant(now.0.saturating_add(u64::try_from(ready_in).unwrap_or(u64::MAX))))
    }

    /// Returns the bytes per second that clients leave.
    fn rate(&mut self, now: Instant) -> u64 {
        let reads = self.reads.bytes_per_second(now);
        let headroom = reads.min(self.link_bytes_per_second / HEADROOM_PART);
        self.link_bytes_per_second.saturating_sub(reads.saturating_add(headroom))
    }

    /// Adds what was left since the last time. What was not sent is kept for as long as a timer may
    /// be late.
    fn fill(&mut self, now: Instant, rate: u64) {
        let micros = now.0.saturating_sub(self.counted_at.0);
        let more = u128::from(rate) * u128::from(micros) / 1_000_000;
        // What rounding takes of a moment is counted with the next one.
        if more > 0 || rate == 0 {
            self.counted_at = now;
            self.bytes = self.bytes.saturating_add(i64::try_from(more).unwrap_or(i64::MAX));
        }
        let most = u128::from(rate) * u128::from(Egress::AHEAD.0) / 1000;
        self.bytes = self.bytes.min(i64::try_from(most).unwrap_or(i64::MAX));
    }
}

impl ReadRate {
    /// Length of a window: many answers of a usual client. Chosen, not measured.
    const WINDOW_MICROS: u64 = 250_000;

    /// The least time over which bytes are counted: one answer shows no rate.
    const MICROS_MIN: u64 = 50_000;

    fn count(&mut self, now: Instant, bytes: u64) {
        self.turn(now);
        if self.bytes == 0 && self.before.0 == 0 {
            // The time before the first one does not count.
            (self.began, self.before) = (now, (0, 0));
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn bytes_per_second(&mut self, now: Instant) -> u64 {
        self.turn(now);
        let micros = self.before.1.saturating_add(now.0.saturating_sub(self.began.0));
        let bytes = u128::from(self.before.0) + u128::from(self.bytes);
        let rate = bytes * 1_000_000 / u128::from(micros.max(Self::MICROS_MIN));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    fn turn(&mut self, now: Instant) {
        let micros = now.0.saturating_sub(self.began.0);
        if micros < Self::WINDOW_MICROS {
            return;
        }
        let is_recent = micros < 2 * Self::WINDOW_MICROS && self.bytes > 0;
        self.before = if is_recent { (self.bytes, micros) } else { (0, 0) };
        (self.began, self.bytes) = (now, 0);
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Millis;

    use super::*;

    const NOW: Instant = Instant(1_000_000);

    #[test]
    fn rate_of_reads_follows_what_is_read() {
        let (mut rate, mut now) = (ReadRate::default(), NOW);
        assert_eq!(rate.bytes_per_second(now), 0);
        rate.count(now, 1000);
        assert_eq!(rate.bytes_per_second(now), 20_000, "in 50 ms");
        for _ in 0..100 {
            now = now + Millis(10);
            rate.count(now, 1000);
        }
        let steady = rate.bytes_per_second(now);
        assert!((99_000..=104_000).contains(&steady), "{steady}");
        assert!(rate.bytes_per_second(now + Millis(240)) < steady);
        assert_eq!(rate.bytes_per_second(now + Millis(1000)), 0, "it is over");
    }

    #[test]
    fn uploads_have_what_clients_leave_and_leave_room_for_more() {
        let mut spare = SpareRate::new(1_000_000);
        assert_eq!(spare.rate(NOW), 1_000_000);
        let mut now = NOW;
        for (read, left) in [(1000, 800_000), (4000, 350_000), (8000, 0)] {
            for _ in 0..200 {
                now = now + Millis(10);
                spare.count_read(now, read);
            }
            let rate = spare.rate(now);
            assert!(rate.abs_diff(left) < 30_000, "{read}: {rate}");
        }
    }

    #[test]
    fn what_is_sent_is_waited_for_at_the_rate_that_is_left() {
        let mut spare = SpareRate::new(1_000_000);
        assert_eq!(spare.ready_at(NOW), None);
        spare.take(60_000);
        // 50 ms of it were saved.
        assert_eq!(spare.ready_at(NOW), Some(Instant(NOW.0 + 10_001)));
        assert_eq!(spare.ready_at(Instant(NOW.0 + 10_001)), None);
        spare.take(1_000_000);
        let again = Instant(NOW.0 + 10_001) + Egress::AHEAD;
        assert_eq!(spare.ready_at(Instant(NOW.0 + 10_001)), Some(again), "reads may end by then");
    }
}
