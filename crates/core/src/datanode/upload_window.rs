//! How many parts a datanode sends to the store of a durable directory at once.
//!
//! Where nothing limits the node's rate, every part under way is a connection that takes its share
//! of the link, beside one of a client that reads. So no more are under way than the store takes
//! in a second, or two: on a slow link these two, on a fast one all that are ordered. A store that
//! limits each connection takes long for a part, too, but more in total from more of them. So now
//! and then one part more is sent, or one less, and the total rate decides.

use sanderling_protocol::{Instant, Millis};

use crate::durable::PART_BYTES_MIN;

/// For how long the store takes what is under way, at the rate of the last part. Longer than a
/// bucket takes to begin with a part, so that one ends while others are sent. Chosen, not measured.
const QUEUE_MAX: Millis = Millis(1_000);

/// The shortest part whose time shows a rate rather than the store's latency, as for
/// [`super::PartJoins`].
const MEASURED_BYTES_MIN: u64 = PART_BYTES_MIN / 8;

/// Parts that may be under way however slow the store is: one is sent while another one is begun.
const AT_ONCE_MIN: u64 = 2;

/// Parts up to which more are tried: as many as a datanode has orders (`UPLOADS_PER_NODE_MAX`).
const AT_ONCE_MAX: u64 = 4;

/// Parts of a round for each one that may be under way: a round's rate is that of its bytes, and
/// those of parts that are under way at its ends are counted wrongly.
const PARTS_PER_ROUND: u64 = 3;

/// Rounds before another number is tried, after one that was not kept: a try takes a fourth of the
/// time or a little more. Chosen, not measured.
const SETTLED_ROUNDS: u32 = 3;

/// The larger number is kept if the total rate with it is so many percent of the other one. Four
/// connections of a store that limits each take 133 percent of what three take. Chosen between.
const GAIN_MIN: u64 = 120;

/// The parts that are under way to one store, and how many may be: a larger number is kept if the
/// store takes more bytes in a second with it.
#[derive(Debug, Clone)]
pub struct UploadWindow {
    parts: u64,
    under_way: u64,
    /// Bytes that the store has taken.
    taken: u64,
    /// What it took while the last part was sent, of all parts.
    bytes_per_second: Option<u64>,
    /// Parts that may be under way although the store does not take them in time.
    at_once: u64,
    /// The number and its rate that the present one is compared with.
    tried_from: Option<(u64, u64)>,
    goes_up: bool,
    settled_rounds: u32,
    round: WindowRound,
    /// For how long parts were under way, until there was none last.
    busy: Millis,
    busy_since: Instant,
}

/// What was sent with one number of parts.
#[derive(Debug, Clone, Copy, Default)]
struct WindowRound {
    parts: u64,
    bytes: u64,
    busy_before: Millis,
}

/// One part under way, as [`UploadWindow::begin`] counted it. Hand it back when the part has ended,
/// however it ended.
#[derive(Debug, Clone, Copy)]
pub struct WindowPart {
    bytes: u64,
    began: Instant,
    taken_before: u64,
}

impl Default for UploadWindow {
    fn default() -> Self {
        Self {
            parts: 0,
            under_way: 0,
            taken: 0,
            bytes_per_second: None,
            at_once: AT_ONCE_MIN,
            tried_from: None,
            goes_up: true,
            settled_rounds: 0,
            round: WindowRound::default(),
            busy: Millis(0),
            busy_since: Instant(0),
        }
    }
}

impl UploadWindow {
    /// Begins with a part of so many bytes; `None` if others must end before. Two parts are always
    /// let begin.
    pub fn begin(&mut self, now: Instant, bytes: u64) -> Option<WindowPart> {
        let most = self.bytes_per_second.map_or(u64::MAX, in_time);
        let is_in_time = self.under_way.saturating_add(bytes) <= most;
        if self.parts >= self.at_once && !is_in_time {
            return None;
        }
        if self.parts == 0 {
            self.busy_since = now;
        }
        self.parts += 1;
        self.under_way += bytes;
        Some(WindowPart { bytes, began: now, taken_before: self.taken })
    }

    /// Notes the end of a part, and whether the store has taken it.
    pub fn end(&mut self, now: Instant, part: WindowPart, is_taken: bool) {
        let left = self.under_way.checked_sub(part.bytes);
        self.under_way = left.expect("the part was under way");
        let busy = Millis(self.busy.0 + now.since(self.busy_since).0);
        self.parts -= 1;
        if self.parts == 0 {
            self.busy = busy;
        }
        if !is_taken {
            return;
        }
        self.taken += part.bytes;
        if part.bytes < MEASURED_BYTES_MIN {
            return;
        }
        let taken = self.taken - part.taken_before;
        self.bytes_per_second = Some(rate(taken, now.since(part.began)));
        self.round.parts += 1;
        self.round.bytes += part.bytes;
        if self.round.parts >= self.at_once * PARTS_PER_ROUND {
            self.end_round(busy);
        }
    }

    /// Decides about the next number of parts, when those of a round have ended.
    fn end_round(&mut self, busy: Millis) {
        let next = WindowRound { parts: 0, bytes: 0, busy_before: busy };
        let round = std::mem::replace(&mut self.round, next);
        let now = rate(round.bytes, Millis(busy.0.saturating_sub(round.busy_before.0)));
        let Some((from, before)) = self.tried_from.take() else {
            self.settled_rounds += 1;
            if self.settled_rounds > SETTLED_ROUNDS {
                self.try_another(round, now);
            }
            return;
        };
        let is_up = self.at_once > from;
        let (low, high) = if is_up { (before, now) } else { (now, before) };
        let gains = high.saturating_mul(100) >= low.saturating_mul(GAIN_MIN);
        if gains == is_up {
            // The number is kept, and soon the next one is tried.
            self.settled_rounds = SETTLED_ROUNDS;
        } else {
            (self.at_once, self.goes_up, self.settled_rounds) = (from, !is_up, 0);
        }
    }

    /// Tries one part more, or one less, than were sent with this rate in a round.
    fn try_another(&mut self, round: WindowRound, rate: u64) {
        let in_time = in_time(rate) / (round.bytes / round.parts);
        if in_time > self.at_once {
            // So many go in any case: the number is not what bounds them.
            self.at_once = in_time.min(AT_ONCE_MAX);
            return;
        }
        self.tried_from = Some((self.at_once, rate));
        let goes_up = self.at_once <= AT_ONCE_MIN || self.goes_up && self.at_once < AT_ONCE_MAX;
        self.goes_up = goes_up;
        self.at_once = if goes_up { self.at_once + 1 } else { self.at_once - 1 };
    }
}

const fn in_time(bytes_per_second: u64) -> u64 {
    bytes_per_second.saturating_mul(QUEUE_MAX.0) / 1000
}

fn rate(bytes: u64, took: Millis) -> u64 {
    bytes.saturating_mul(1000) / took.0.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000);
    const PART: u64 = PART_BYTES_MIN;
    const MIB: u64 = 1 << 20;

    /// A window, and parts that share a link to a store.
    struct Sender {
        window: UploadWindow,
        now: Instant,
        part_bytes: u64,
        /// Of each part that is sent, what is left of it.
        sending: Vec<(WindowPart, u64)>,
    }

    impl Sender {
        fn new(part_bytes: u64) -> Self {
            Self { window: UploadWindow::default(), now: NOW, part_bytes, sending: Vec::new() }
        }

        /// Sends parts, four at once at most, for so many seconds. The link takes so many bytes in
        /// a second, and of one connection at most so many. Returns the bytes that arrived, and
        /// how many parts there were at once, a thousand times the mean.
        fn send(&mut self, seconds: u64, link: u64, connection: u64) -> (u64, u64) {
            let (steps, mut arrived, mut at_once) = (seconds * 100, 0, 0);
            for _ in 0..steps {
                while self.sending.len() < 4
                    && let Some(part) = self.window.begin(self.now, self.part_bytes)
                {
                    self.sending.push((part, self.part_bytes));
                }
                at_once += self.sending.len() as u64;
                self.now = self.now + Millis(10);
                let each = (link / self.sending.len() as u64).min(connection) / 100;
                for (part, left) in &mut self.sending {
                    *left = left.saturating_sub(each);
                    if *left == 0 {
                        self.window.end(self.now, *part, true);
                        arrived += self.part_bytes;
                    }
                }
                self.sending.retain(|(_, left)| *left > 0);
            }
            (arrived, at_once * 1000 / steps)
        }
    }

    #[test]
    fn store_that_limits_each_connection_has_four() {
        for (part, connection) in [(32 * MIB, 30 * MIB), (PART, 2 * MIB), (32 * MIB, 40 * MIB)] {
            let mut sender = Sender::new(part);
            sender.send(300, u64::MAX, connection);
            let (arrived, at_once) = sender.send(600, u64::MAX, connection);
            assert!(at_once >= 3500, "{at_once} of 4000 at {connection}");
            assert!(arrived >= connection * 4 * 600 * 85 / 100, "{arrived} at {connection}");
        }
    }

    #[test]
    fn shared_slow_link_has_two_parts_and_fast_one_has_all() {
        for (link, least, most) in [(2, 1900, 2600), (5, 1900, 2600), (200, 3900, 4000)] {
            let mut sender = Sender::new(PART);
            let (arrived, at_once) = sender.send(600, link * MIB, u64::MAX);
            assert!((least..=most).contains(&at_once), "{at_once} at {link}");
            assert!(arrived >= link * MIB * 500, "{arrived} at {link}: the link is not used");
        }
    }

    #[test]
    fn number_falls_in_an_episode_and_rises_after_it() {
        let mut sender = Sender::new(32 * MIB);
        sender.send(300, u64::MAX, 30 * MIB);
        sender.send(3_000, 10 * MIB, 30 * MIB);
        let (_, at_once) = sender.send(600, 10 * MIB, 30 * MIB);
        assert!(at_once <= 2600, "{at_once} of 4000 in the episode");
        sender.send(300, u64::MAX, 30 * MIB);
        let (_, at_once) = sender.send(600, u64::MAX, 30 * MIB);
        assert!(at_once >= 3500, "{at_once} of 4000 after it");
    }

    #[test]
    fn window_opens_again_when_the_store_is_faster() {
        let mut window = UploadWindow::default();
        let first = window.begin(NOW, PART).expect("nothing is under way");
        let later = NOW + Millis(8_000);
        window.end(later, first, true);
        let slow = [(); 2].map(|()| window.begin(later, PART).expect("two are let begin"));
        assert!(window.begin(later, PART).is_none(), "1 MiB/s");
        let later = later + Millis(100);
        slow.into_iter().for_each(|part| window.end(later, part, true));
        let parts = [(); 4].map(|()| window.begin(later, PART));
        assert!(parts.iter().all(Option::is_some), "160 MiB/s");
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
