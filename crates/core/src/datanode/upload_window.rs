//! How many bytes of parts a datanode sends to the store of a durable directory at once.
//!
//! Where nothing limits the node's rate, every part under way is a connection that takes its share
//! of the link, beside one of a client that reads. So no more are under way than the store takes
//! in a second: on a slow link that is one part, on a fast one it is all that are ordered.

use sanderling_protocol::{Instant, Millis};

use crate::durable::PART_BYTES_MIN;

/// For how long the store takes what is under way, at the rate of the last part. Longer than a
/// bucket takes to begin with a part, so that one ends while others are sent. Chosen, not measured.
const QUEUE_MAX: Millis = Millis(1_000);

/// The shortest part whose time shows a rate rather than the store's latency, as for
/// [`super::PartJoins`].
const MEASURED_BYTES_MIN: u64 = PART_BYTES_MIN / 8;

/// The parts that are under way to one store.
#[derive(Debug, Clone, Default)]
pub struct UploadWindow {
    under_way: u64,
    /// Bytes that the store has taken.
    taken: u64,
    /// What it took while the last part was sent, of all parts.
    bytes_per_second: Option<u64>,
}

/// One part under way.
#[derive(Debug, Clone, Copy)]
pub struct WindowPart {
    bytes: u64,
    began: Instant,
    taken_before: u64,
}

impl UploadWindow {
    /// Begins with a part of so many bytes; `None` if others must end before. One part is always
    /// let begin.
    pub fn begin(&mut self, now: Instant, bytes: u64) -> Option<WindowPart> {
        let in_time = |rate: u64| rate.saturating_mul(QUEUE_MAX.0) / 1000;
        let most = self.bytes_per_second.map_or(u64::MAX, in_time);
        if self.under_way > 0 && self.under_way.saturating_add(bytes) > most {
            return None;
        }
        self.under_way += bytes;
        Some(WindowPart { bytes, began: now, taken_before: self.taken })
    }

    /// Notes the end of a part, and whether the store has taken it.
    pub fn end(&mut self, now: Instant, part: WindowPart, is_taken: bool) {
        let left = self.under_way.checked_sub(part.bytes);
        self.under_way = left.expect("the part was under way");
        if !is_taken {
            return;
        }
        self.taken += part.bytes;
        if part.bytes >= MEASURED_BYTES_MIN {
            let took = now.since(part.began).0.max(1);
            let taken = self.taken - part.taken_before;
            self.bytes_per_second = Some(taken.saturating_mul(1000) / took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000);
    const PART: u64 = PART_BYTES_MIN;

    /// Sends parts over a link, as many at once as may be, for a while. Returns how many there were
    /// at once in the end, and the bytes that arrived.
    fn send(link_bytes_per_second: u64, at_once_max: usize) -> (usize, u64) {
        let (mut window, mut now) = (UploadWindow::default(), NOW);
        // Of each part that is sent, what is left of it. They share the link.
        let mut sending: Vec<(WindowPart, u64)> = Vec::new();
        let mut arrived = 0;
        while now < NOW + Millis(60_000) {
            while sending.len() < at_once_max
                && let Some(part) = window.begin(now, PART)
            {
                sending.push((part, PART));
            }
            now = now + Millis(10);
            let each = link_bytes_per_second / 100 / sending.len() as u64;
            for (part, left) in &mut sending {
                *left = left.saturating_sub(each);
                if *left == 0 {
                    window.end(now, *part, true);
                    arrived += PART;
                }
            }
            sending.retain(|(_, left)| *left > 0);
        }
        (sending.len(), arrived)
    }

    #[test]
    fn slow_link_has_one_part_at_once_and_fast_one_has_all() {
        for (rate, at_once) in [(2 << 20, 1), (5 << 20, 1), (200 << 20, 4)] {
            let (under_way, arrived) = send(rate, 4);
            assert!(under_way <= at_once, "{under_way} at {rate}");
            assert!(arrived >= rate * 50, "{arrived} at {rate}: the link is not used");
        }
    }

    #[test]
    fn window_opens_again_when_the_store_is_faster() {
        let mut window = UploadWindow::default();
        let first = window.begin(NOW, PART).expect("nothing is under way");
        let later = NOW + Millis(8_000);
        window.end(later, first, true);
        let slow = window.begin(later, PART).expect("one is let begin");
        assert!(window.begin(later, PART).is_none(), "1 MiB/s");
        let later = later + Millis(100);
        window.end(later, slow, true);
        let parts = [(); 4].map(|()| window.begin(later, PART));
        assert!(parts.iter().all(Option::is_some), "80 MiB/s");
    }

    #[test]
    fn part_that_failed_or_is_short_shows_nothing() {
        let mut window = UploadWindow::default();
        let failed = window.begin(NOW, PART).expect("nothing is under way");
        let short = window.begin(NOW, 1000).expect("nothing is measured");
        window.end(NOW + Millis(20_000), failed, false);
        window.end(NOW + Millis(20_000), short, true);
        assert_eq!((window.under_way, window.bytes_per_second), (0, None));
    }
}
