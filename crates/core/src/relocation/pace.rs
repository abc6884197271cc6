//! How much is sent at once: enough to keep the link busy, little enough to be done in time.

use sanderling_protocol::Millis;

/// The pace of one drain, learnt from the pushes that came back.
///
/// A push is committed as a whole when it returns. What is still under way at the deadline was sent
/// for nothing, so a push is sized to end within [`Pace::PUSH_MILLIS`] and within an eighth of the
/// time that is left.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    bytes_per_second: u64,
}

impl Pace {
    /// Bytes per second assumed before anything was measured: a slow network card's share for one
    /// of several pushes under way. The first answer corrects it.
    const START_BYTES_PER_SECOND: u64 = 16 << 20;

    /// Milliseconds that one push should take: long against a round trip, short against a notice.
    const PUSH_MILLIS: u64 = 150;

    /// Fewest bytes of one push, so that round trips never dominate.
    const PUSH_BYTES_MIN: u64 = 64 << 10;

    pub(super) const fn new() -> Self {
        Self { bytes_per_second: Self::START_BYTES_PER_SECOND }
    }

    /// Learns from one push of `bytes` that took `elapsed`.
    pub(super) fn record(&mut self, bytes: u64, elapsed: Millis) {
        if bytes < Self::PUSH_BYTES_MIN {
            return;
        }
        let measured = bytes.saturating_mul(1000) / elapsed.0.max(1);
        self.bytes_per_second = (self.bytes_per_second.saturating_mul(3) + measured) / 4;
    }

    /// Returns the bytes that the next push should carry with `left` until the deadline, at most
    /// `bytes_max`.
    pub(super) fn push_bytes(&self, left: Option<Millis>, bytes_max: u64) -> u64 {
        let millis = left.map_or(Self::PUSH_MILLIS, |left| Self::PUSH_MILLIS.min(left.0 / 8));
        let bytes = self.bytes_per_second.saturating_mul(millis) / 1000;
        bytes.clamp(Self::PUSH_BYTES_MIN.min(bytes_max), bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_grow_on_a_fast_link_and_shrink_before_the_deadline() {
        let mut pace = Pace::new();
        let first = pace.push_bytes(None, 8 << 20);
        for _ in 0..10 {
            pace.record(8 << 20, Millis(10));
        }
        assert!(pace.push_bytes(None, 8 << 20) > first);
        assert!(pace.push_bytes(Some(Millis(80)), 8 << 20) >= 1 << 20);
        assert_eq!(pace.push_bytes(Some(Millis(0)), 8 << 20), 64 << 10);
    }

    #[test]
    fn tiny_pushes_teach_nothing_about_the_link() {
        let mut pace = Pace::new();
        let before = pace.push_bytes(None, 8 << 20);
        pace.record(10, Millis(500));
        assert_eq!(pace.push_bytes(None, 8 << 20), before);
    }
}
