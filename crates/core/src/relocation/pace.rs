//! How much is sent at once: enough to keep the link full, little enough to be done in time, and
//! less while clients can be let go first.

use sanderling_protocol::{Instant, Millis};

use super::forecast::{time_for, within};
use crate::moves::Mark;

/// What one drain's link carries, learnt from the pushes that came back, and how much of it is
/// taken.
///
/// Every push that comes back is a sample of the rate at which bytes were delivered while it was
/// under way, by it and by the others (Cardwell et al., "BBR: Congestion-Based Congestion Control",
/// ACM Queue 2016, takes the same sample of a connection). The bytes under way are held at what the
/// link carries in [`Pace::PIPE`]: on a link that is not full they come back sooner, the next
/// sample is higher and more are sent; on a full one the queue is never longer than that.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    bytes_per_second: u64,
    is_measured: bool,
    /// Bytes of the pushes that came back.
    delivered: u64,
    /// What a call to the namenode takes.
    round_micros: u64,
    /// No push begins before this, so that clients go first.
    next_at: Option<Instant>,
}

/// How much of the link a drain takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Force {
    /// All of it.
    Full,
    /// So many bytes per second: there is time, and clients use the link.
    Yielding(u64),
}

impl Pace {
    /// Most bytes per second assumed before anything was measured: a slow network card's. The first
    /// answer corrects it. 67 Mbit/s: 2 MiB are under way at first ([`Self::PIPE`]).
    const START_BYTES_PER_SECOND: u64 = 8 << 20;

    /// What a call to the namenode is taken for before one was made. Several times a round trip
    /// within a cluster; the first call corrects it. Chosen, not measured.
    const START_ROUND_MICROS: u64 = 5_000;

    /// Bytes are under way for this long on a full link: some pushes of a block on a slow one, and
    /// many round trips, so that it never idles; and no queue of seconds. With it a drain of
    /// 199 MiB over 20 MiB/s took 10.2 s, of which the link needs 9.95 s (debug build).
    const PIPE: Millis = Millis(250);

    /// One push carries this part of the link's time: several are under way, so that the round
    /// trips to the namenode of one are hidden behind the others. A sixth of [`Self::PIPE`].
    const PUSH: Millis = Millis(40);

    /// Fewest bytes of one push, so that round trips never dominate; a smaller push does not
    /// measure a link. At 1 Gbit/s it takes 0.5 ms, about what the calls of a move take. Chosen,
    /// not measured.
    pub(super) const PUSH_BYTES_MIN: u64 = 64 << 10;

    /// Full force is used unless the drain would end in this part of the time left. The rest is for
    /// a link that gets slower and a node that dies early.
    const SAFETY: u64 = 3;

    /// Returns the pace of a node with this declared send rate, in bytes per second; 0 if none is
    /// declared.
    pub(super) fn new(egress_bytes_per_second: u64) -> Self {
        let declared =
            if egress_bytes_per_second == 0 { u64::MAX } else { egress_bytes_per_second };
        Self {
            bytes_per_second: declared.min(Self::START_BYTES_PER_SECOND),
            is_measured: false,
            delivered: 0,
            round_micros: Self::START_ROUND_MICROS,
            next_at: None,
        }
    }

    /// Returns what the link carries; zero before anything was measured.
    pub(super) const fn link_bytes_per_second(&self) -> u64 {
        if self.is_measured { self.bytes_per_second } else { 0 }
    }

    /// Notes that a push begins.
    pub(super) const fn mark(&self) -> Mark {
        Mark(self.delivered)
    }

    /// Learns from a push of `bytes` that began at `mark` and took `micros`.
    pub(super) fn record(&mut self, bytes: u64, mark: Mark, micros: u64) {
        self.delivered += bytes;
        // A push that began in an earlier drain of the node, taken back since, teaches nothing.
        let delivered = self.delivered.saturating_sub(mark.0);
        if delivered < Self::PUSH_BYTES_MIN {
            return;
        }
        let sample = u128::from(delivered) * 1_000_000 / u128::from(micros.max(1));
        let sample = u64::try_from(sample).unwrap_or(u64::MAX).max(1);
        let before = self.bytes_per_second;
        self.bytes_per_second = if !self.is_measured {
            sample
        } else if sample > before {
            // One answer that came in a bunch with others must not open the window at once.
            sample.min(before.saturating_mul(2))
        } else {
            smooth(before, sample)
        };
        self.is_measured = true;
    }

    /// Learns from a call to the namenode that took `micros`.
    pub(super) const fn record_round(&mut self, micros: u64) {
        self.round_micros = smooth(self.round_micros, micros);
    }

    /// Decides how much of the link to take, with `bytes` still to move and clients reading so many
    /// bytes per second from the node.
    ///
    /// Clients get what they use and a quarter more, up to half of the link. Without clients, or
    /// when the time may not suffice, the drain takes all.
    pub(super) fn force(
        &self,
        bytes: u64,
        left: Option<Millis>,
        clients_bytes_per_second: u64,
    ) -> Force {
        if !self.is_measured || clients_bytes_per_second == 0 {
            return Force::Full;
        }
        let link = self.bytes_per_second;
        let mut needed = 0;
        if let Some(left) = left {
            let safe = Millis(left.0 / Self::SAFETY);
            if time_for(bytes, link).is_none_or(|finish| finish > safe) {
                return Force::Full;
            }
            needed = u128::from(bytes) * 1000 / u128::from(safe.0.max(1));
        }
        let clients = clients_bytes_per_second.saturating_add(clients_bytes_per_second / 4);
        let share = link.saturating_sub(clients).max(link / 2);
        Force::Yielding(share.max(u64::try_from(needed).unwrap_or(u64::MAX)).min(link).max(1))
    }

    /// Returns whether another push may begin with so many bytes under way.
    pub(super) fn has_room(
        &self,
        now: Instant,
        left: Option<Millis>,
        force: Force,
        bytes: u64,
    ) -> bool {
        if self.next_at.is_some_and(|at| at > now) {
            return false;
        }
        let (pipe, rate) = match force {
            Force::Full => (Self::PIPE, self.bytes_per_second),
            // Their answers queue up behind the pushes.
            Force::Yielding(rate) => (Millis(Self::PIPE.0 / 2), rate),
        };
        let pipe = left.map_or(pipe, |left| pipe.min(Millis(left.0 / 4)));
        bytes == 0 || bytes < within(rate, pipe)
    }

    /// Returns the bytes that one push should carry, at most `bytes_max`.
    pub(super) fn push_bytes(&self, left: Option<Millis>, bytes_max: u64) -> u64 {
        // It is committed as a whole when it returns: near the deadline less is at stake at once.
        let millis = left.map_or(Self::PUSH, |left| Self::PUSH.min(Millis(left.0 / 8)));
        let bytes = within(self.bytes_per_second, millis);
        bytes.clamp(Self::PUSH_BYTES_MIN.min(bytes_max), bytes_max)
    }

    /// Returns the most bytes with which a push that begins now is committed before the deadline,
    /// with so many bytes before it on the link. What is still under way then was sent for nothing,
    /// and at the cost of others.
    pub(super) fn bytes_in_time(&self, left: Option<Millis>, bytes: u64) -> u64 {
        let Some(left) = left else { return u64::MAX };
        // It is reserved before and committed after.
        let calls = Millis((2 * self.round_micros).div_ceil(1000));
        let sendable = within(self.bytes_per_second, Millis(left.0.saturating_sub(calls.0)));
        if bytes == 0 {
            // Nothing else is slowed down: the link may turn out to be faster than thought.
            return sendable.saturating_add(sendable / 4);
        }
        sendable.saturating_sub(bytes)
    }

    /// Notes that a push of `bytes` begins, and when the next one may.
    pub(super) fn begun(&mut self, now: Instant, bytes: u64, force: Force) {
        self.next_at = match force {
            Force::Full => None,
            Force::Yielding(rate) => {
                let micros = u128::from(bytes) * 1_000_000 / u128::from(rate.max(1));
                let from = self.next_at.unwrap_or(now).max(now);
                Some(Instant(from.0.saturating_add(u64::try_from(micros).unwrap_or(u64::MAX))))
            }
        };
    }

    /// Returns when the next push may begin, unless it may now.
    pub(super) const fn next_at(&self) -> Option<Instant> {
        self.next_at
    }

    /// Forgets a pause that is over, or that there is no time for any more.
    pub(super) fn wake(&mut self, now: Instant, force: Force) {
        self.next_at = self.next_at.filter(|at| force != Force::Full && *at > now);
    }
}

/// Returns a value that follows the samples and is not led astray by a single one.
pub(super) const fn smooth(before: u64, sample: u64) -> u64 {
    before - before / 4 + sample / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000);
    const MIB: u64 = 1 << 20;

    /// Returns a pace that was measured at so many bytes per second.
    fn measured(bytes_per_second: u64) -> Pace {
        let mut pace = Pace::new(u64::MAX);
        pace.record(bytes_per_second, pace.mark(), 1_000_000);
        pace
    }

    #[test]
    fn pushes_grow_on_a_fast_link_and_shrink_before_the_deadline() {
        let mut pace = Pace::new(u64::MAX);
        let first = pace.push_bytes(None, 8 * MIB);
        for _ in 0..10 {
            pace.record(8 * MIB, pace.mark(), 10_000);
        }
        assert!(pace.push_bytes(None, 8 * MIB) > first);
        assert!(pace.push_bytes(Some(Millis(80)), 8 * MIB) >= MIB);
        assert_eq!(pace.push_bytes(Some(Millis(0)), 8 * MIB), 64 << 10);
    }

    #[test]
    fn push_that_began_in_an_earlier_drain_teaches_nothing() {
        let mark = measured(100 * MIB).mark();
        let mut pace = Pace::new(u64::MAX);
        pace.record(8 * MIB, mark, 1);
        assert_eq!(pace.link_bytes_per_second(), 0);
    }

    #[test]
    fn tiny_pushes_teach_nothing_about_the_link() {
        let mut pace = Pace::new(u64::MAX);
        let before = pace.push_bytes(None, 8 * MIB);
        pace.record(10, pace.mark(), 500_000);
        assert_eq!(pace.push_bytes(None, 8 * MIB), before);
    }

    #[test]
    fn pushes_under_way_together_are_measured_together() {
        let mut pace = Pace::new(u64::MAX);
        let mark = pace.mark();
        for _ in 0..4 {
            pace.record(MIB, mark, 100_000);
        }
        assert!(pace.link_bytes_per_second() > 30 * MIB, "{}", pace.link_bytes_per_second());
    }

    /// Plays pushes over a link that carries so many bytes per second, one after the other on the
    /// wire, and returns the bytes delivered in a second and the longest that one push took.
    fn play(link: u64) -> (u64, u64) {
        let mut pace = Pace::new(u64::MAX);
        let mut under_way: std::collections::VecDeque<(u64, u64, Mark, u64)> = Default::default();
        let (mut now, mut free_at, mut sent, mut longest) = (0, 0, 0, 0);
        while now < 4_000_000 {
            let bytes: u64 = under_way.iter().map(|(_, bytes, _, _)| bytes).sum();
            if under_way.len() < 32 && pace.has_room(Instant(now), None, Force::Full, bytes) {
                let size = pace.push_bytes(None, 8 * MIB);
                free_at = now.max(free_at) + size * 1_000_000 / link;
                under_way.push_back((free_at + 500, size, pace.mark(), now));
                continue;
            }
            let (at, size, mark, began) = under_way.pop_front().unwrap();
            now = at;
            pace.record(size, mark, now - began);
            if now > 3_000_000 {
                sent += size;
                longest = longest.max(now - began);
            }
        }
        (sent, longest)
    }

    #[test]
    fn link_is_kept_full_and_no_queue_builds_up() {
        for link in [2 * MIB, 20 * MIB, 125_000_000, 1_250_000_000] {
            let (sent, longest) = play(link);
            assert!(sent > link - link / 10, "{sent} of {link} were sent in a second");
            assert!(longest < 600_000, "a push waited {longest} us on a link of {link}");
        }
    }

    #[test]
    fn drain_yields_to_clients_while_there_is_time() {
        let pace = measured(100 * MIB);
        let left = Some(Millis(30_000));
        assert_eq!(pace.force(100 * MIB, left, 0), Force::Full);
        assert_eq!(pace.force(100 * MIB, left, 8 * MIB), Force::Yielding(90 * MIB));
        assert_eq!(pace.force(100 * MIB, left, 500 * MIB), Force::Yielding(50 * MIB));
        assert_eq!(pace.force(100 * MIB, None, 500 * MIB), Force::Yielding(50 * MIB));
        let unknown = Pace::new(u64::MAX);
        assert_eq!(unknown.force(1, left, 500 * MIB), Force::Full, "before it is measured");
    }

    #[test]
    fn drain_that_yields_ends_in_time_and_takes_all_when_the_link_gets_slower() {
        let mut pace = measured(100 * MIB);
        let bytes = 900 * MIB;
        assert_eq!(pace.force(bytes, Some(Millis(26_990)), MIB), Force::Full);
        let Force::Yielding(rate) = pace.force(bytes, Some(Millis(30_000)), 500 * MIB) else {
            panic!("there is time")
        };
        assert!(time_for(bytes, rate).unwrap() <= Millis(10_001), "{rate}");
        pace.record(MIB, pace.mark(), 100_000);
        assert_eq!(pace.force(bytes, Some(Millis(30_000)), 500 * MIB), Force::Full);
    }

    #[test]
    fn pushes_of_a_drain_that_yields_begin_at_its_rate() {
        let mut pace = measured(100 * MIB);
        let force = Force::Yielding(10 * MIB);
        assert!(pace.has_room(NOW, None, force, 0));
        pace.begun(NOW, MIB, force);
        assert_eq!(pace.next_at(), Some(NOW + Millis(100)));
        assert!(!pace.has_room(NOW + Millis(99), None, force, 0));
        assert!(pace.has_room(NOW + Millis(100), None, force, 0));
        pace.wake(NOW, Force::Full);
        assert!(pace.has_room(NOW, None, force, 0), "nothing is waited for when time is short");
    }

    #[test]
    fn push_that_cannot_be_done_in_time_is_not_begun() {
        let pace = measured(10 * MIB);
        assert_eq!(pace.bytes_in_time(None, 1 << 40), u64::MAX);
        let left = Some(Millis(110));
        assert_eq!(pace.bytes_in_time(left, MIB / 2), MIB / 2);
        assert_eq!(pace.bytes_in_time(left, 2 * MIB), 0);
        assert_eq!(pace.bytes_in_time(left, 0), MIB + MIB / 4);
        assert_eq!(pace.bytes_in_time(Some(Millis(5)), 0), 0);
    }
}
