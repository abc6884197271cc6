//! What a node on its way out puts first: its blocks, then the reads of them.
//!
//! While the blocks of a noticed node leave, every read of one of them takes its link from the
//! blocks that would be lost. No lower layer prevents that: TCP gives a connection that is always
//! busy with reads most of a link that pushes of single blocks share with it. So reads are let
//! through by what the pushes get: one byte for every [`PUSH_SHARE`] bytes that have arrived
//! elsewhere. That needs no knowledge of the link's rate.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::{BlockId, Instant, Millis};

/// Bytes of pushes for one byte of reads: a node that leaves at full rate while clients read needs
/// a thirty-second part longer. More was too much where a drain may take a fifth longer in all, and
/// reads were no faster for it: what they want is soon elsewhere.
const PUSH_SHARE: u64 = 32;

/// Bytes that may be left over: reads that come in a bunch do not take the link from the pushes.
/// What 8 MiB of pushes leave for them. It lets one read of up to that length through at once.
/// Chosen, not measured.
const SAVED_BYTES_MAX: u64 = 256 << 10;

/// Pushes that follow each other this closely are one departure. Two views of the manager by
/// default, which orders the next ones. Chosen, not measured.
const PAUSE_MAX: Millis = Millis(100);

/// Longest time that a read is held back: within a client's timeout of one attempt. That is 3 s by
/// default, so the bytes have as long again for their way.
const READ_WAIT_MAX: Millis = Millis(1500);

/// Smaller answers, such as refusals, are not worth waiting for. A frame with a refusal has some
/// hundred bytes.
const READ_BYTES_MIN: u64 = 1 << 10;

/// Blocks that are remembered as pushed: some tens of megabytes. Beyond it, all are forgotten, and
/// readers learn where those are when the node is gone.
const PUSHED_MAX: usize = 1 << 20;

/// The number of a read that [`DrainThrottle`] delays, in the order in which reads came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldRead(u64);

/// A throttle of reads on a node that leaves: it lets them through by what the node's pushes have
/// sent.
#[derive(Debug, Clone, Default)]
pub struct DrainThrottle {
    pushing: u32,
    last_push: Option<Instant>,
    /// Bytes that reads may have.
    granted: u64,
    /// Reads that are held back, the oldest first: that is also the first to have waited too long.
    waiting: BTreeMap<HeldRead, ThrottledRead>,
    reads: u64,
    /// Blocks that are also elsewhere, where their home may be by now.
    pushed: BTreeSet<BlockId>,
    /// Reads that [`DrainThrottle::release`] has looked at so far.
    #[cfg(test)]
    looked_at: u64,
}

#[derive(Debug, Clone, Copy)]
struct ThrottledRead {
    bytes: u64,
    until: Instant,
}

impl DrainThrottle {
    /// Notes that a push of a block begins, for which reads are held back.
    pub const fn began(&mut self) {
        self.pushing += 1;
    }

    /// Notes that a block has arrived at its target, which lets some of the reads through that are
    /// held back.
    pub fn arrived(&mut self, block: BlockId, bytes: u32) {
        if self.pushed.len() >= PUSHED_MAX {
            self.pushed.clear();
        }
        self.pushed.insert(block);
        self.granted += (u64::from(bytes) / PUSH_SHARE).min(SAVED_BYTES_MAX);
        self.keep_some();
    }

    /// Notes that a push has ended, whether it succeeded or failed.
    pub fn ended(&mut self, now: Instant) {
        self.last_push = Some(now);
        self.pushing = self.pushing.saturating_sub(1);
    }

    /// Returns whether a push is under way, or ended so recently that another one may follow it.
    #[must_use]
    pub fn is_busy(&self, now: Instant) -> bool {
        self.pushing > 0 || self.last_push.is_some_and(|last| now < last + PAUSE_MAX)
    }

    /// Returns whether an answer of so many bytes is held back on a node that refuses writes.
    #[must_use]
    pub fn holds(&self, now: Instant, bytes: u64) -> bool {
        bytes >= READ_BYTES_MIN && self.is_busy(now)
    }

    /// Holds a read of so many bytes back until [`DrainThrottle::release`] returns it. Cost: the
    /// logarithm of the reads that are held back.
    pub fn hold(&mut self, now: Instant, bytes: u64) -> HeldRead {
        self.reads += 1;
        let (read, until) = (HeldRead(self.reads), now + READ_WAIT_MAX);
        let last = self.waiting.last_key_value();
        debug_assert!(last.is_none_or(|(_, it)| it.until <= until), "the time went back");
        self.waiting.insert(read, ThrottledRead { bytes, until });
        read
    }

    /// Returns the reads that are held back no more: those that have waited too long, those that
    /// have got their part, in the order in which they came, and all when the pushes are over.
    /// Cost: the logarithm of the reads that are held back, for each that is returned. It does not
    /// look at the others: each push calls this, and thousands of reads may wait.
    pub fn release(&mut self, now: Instant) -> Vec<HeldRead> {
        let (mut released, is_over) = (Vec::new(), !self.is_busy(now));
        while let Some(first) = self.waiting.first_entry() {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let ThrottledRead { bytes, until } = *first.get();
            // Whatever waited so long is answered in any case, and takes no part of a later one.
            if now < until {
                if !is_over && bytes > self.granted {
                    break;
                }
                self.granted = self.granted.saturating_sub(bytes);
            }
            released.push(first.remove_entry().0);
        }
        self.keep_some();
        released
    }

    /// Forgets a read whose client does not wait any more. [`DrainThrottle::release`] may return
    /// reads that came after it.
    pub fn give_up(&mut self, read: HeldRead) {
        self.waiting.remove(&read);
        self.keep_some();
    }

    /// Returns when [`DrainThrottle::release`] is to be called if no push arrives or ends before;
    /// `None` while nothing is held back.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let (_, ThrottledRead { until, .. }) = self.waiting.first_key_value()?;
        let over = if self.pushing > 0 { None } else { self.last_push };
        Some(over.map_or(*until, |last| (*until).min(last + PAUSE_MAX)))
    }

    /// Returns whether one of these blocks is also elsewhere, so that its reader should look it up.
    pub fn is_pushed(&self, mut blocks: impl Iterator<Item = BlockId>) -> bool {
        !self.pushed.is_empty() && blocks.any(|block| self.pushed.contains(&block))
    }

    /// Forgets that these blocks were pushed, as the node holds them no longer.
    pub fn dropped(&mut self, blocks: impl Iterator<Item = BlockId>) {
        blocks.for_each(|block| _ = self.pushed.remove(&block));
    }

    /// Forgets which blocks were pushed, as the node begins again.
    pub fn forget(&mut self) {
        self.pushed.clear();
    }

    /// Bounds what is granted and not taken; a larger read gathers its grants.
    fn keep_some(&mut self) {
        let wanted = self.waiting.first_key_value().map_or(0, |(_, first)| first.bytes);
        self.granted = self.granted.min(wanted.max(SAVED_BYTES_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Draw;

    const NOW: Instant = Instant(1_000_000);

    /// The rule of [`DrainThrottle::release`] as a look at every read that is held back.
    fn released_by_the_rule(throttle: &DrainThrottle, now: Instant) -> Vec<HeldRead> {
        let is_late = |it: &ThrottledRead| now >= it.until;
        let (late, others): (Vec<_>, Vec<_>) =
            throttle.waiting.iter().partition(|(_, it)| is_late(it));
        let (mut granted, is_over) = (throttle.granted, !throttle.is_busy(now));
        let have_their_part = others.into_iter().take_while(|(_, it)| {
            let is_released = is_over || it.bytes <= granted;
            granted = granted.saturating_sub(it.bytes);
            is_released
        });
        late.into_iter().chain(have_their_part).map(|(read, _)| *read).collect()
    }

    #[test]
    fn reads_that_go_on_are_those_of_the_rule_whatever_happened() {
        for seed in 0..200 {
            let (mut draw, mut now) = (Draw::new(seed), NOW);
            let (mut throttle, mut held) = (DrainThrottle::default(), Vec::new());
            for _ in 0..300 {
                now = now + Millis(draw.next() % 40);
                match draw.below(8) {
                    0 => throttle.began(),
                    1 => throttle.ended(now),
                    2 => throttle.arrived(BlockId(1), 1 << draw.below(21)),
                    3 if !held.is_empty() => throttle.give_up(held[draw.below(held.len())]),
                    _ => held.push(throttle.hold(now, 1 << (10 + draw.below(9)))),
                }
                let expected = released_by_the_rule(&throttle, now);
                assert_eq!(throttle.release(now), expected, "seed {seed}");
                let earliest = throttle.waiting.values().map(|it| it.until).min();
                assert!(throttle.deadline() <= earliest, "seed {seed}: one would wait too long");
                assert_eq!(throttle.deadline().is_some(), earliest.is_some(), "seed {seed}");
            }
        }
    }

    #[test]
    fn each_of_many_held_reads_is_looked_at_when_it_goes_on_and_once_for_each_push() {
        const READS: u64 = 10_240;
        let mut throttle = DrainThrottle::default();
        throttle.began();
        let (mut calls, mut released) = (0, 0);
        let mut release = |throttle: &mut DrainThrottle| {
            calls += 1;
            released += throttle.release(NOW).len() as u64;
        };
        for _ in 0..READS {
            let given_up = throttle.hold(NOW, 1 << 20);
            throttle.hold(NOW, 1 << 10);
            release(&mut throttle);
            throttle.give_up(given_up);
        }
        // Each of them lets 32 reads through.
        for block in 0..READS / 32 {
            throttle.arrived(BlockId(block), 1 << 20);
            release(&mut throttle);
        }
        throttle.ended(NOW);
        release(&mut throttle);
        assert_eq!((released, throttle.deadline()), (READS, None));
        assert!(throttle.looked_at <= READS + calls, "{} steps", throttle.looked_at);
    }

    #[test]
    fn reads_get_their_part_of_what_was_pushed_and_all_of_it_afterwards() {
        let mut throttle = DrainThrottle::default();
        assert!(!throttle.holds(NOW, 1 << 20));
        throttle.began();
        assert!(throttle.holds(NOW, 1 << 20) && !throttle.holds(NOW, 100));
        let first = throttle.hold(NOW, 1 << 10);
        assert_eq!(throttle.release(NOW), [], "nothing was pushed yet");
        throttle.arrived(BlockId(7), 32 << 10);
        assert_eq!(throttle.release(NOW), [first]);
        let second = throttle.hold(NOW, 1 << 10);
        assert_eq!(throttle.release(NOW), []);
        throttle.ended(NOW);
        assert_eq!(throttle.deadline(), Some(NOW + PAUSE_MAX));
        assert_eq!(throttle.release(NOW + Millis(99)), [], "another push may follow");
        assert_eq!(throttle.release(NOW + PAUSE_MAX), [second]);
        assert_eq!(throttle.deadline(), None);
    }

    #[test]
    fn reads_go_in_their_order_and_none_waits_too_long() {
        let mut throttle = DrainThrottle::default();
        throttle.began();
        let large = throttle.hold(NOW, 1 << 20);
        let small = throttle.hold(NOW + Millis(10), 1 << 10);
        throttle.arrived(BlockId(7), 1 << 20);
        assert_eq!(throttle.release(NOW + Millis(20)), [], "the small one waits for the large one");
        assert_eq!(throttle.deadline(), Some(NOW + READ_WAIT_MAX));
        let released = throttle.release(NOW + READ_WAIT_MAX);
        assert_eq!(released, [large, small], "what was granted is left for the small one");
    }

    #[test]
    fn large_read_gathers_more_than_is_saved_for_a_bunch_of_small_ones() {
        let mut throttle = DrainThrottle::default();
        throttle.began();
        for block in 0..100 {
            throttle.arrived(BlockId(block), 8 << 20);
        }
        assert_eq!(throttle.granted, SAVED_BYTES_MAX);
        let large = throttle.hold(NOW, 3 * SAVED_BYTES_MAX);
        throttle.arrived(BlockId(100), 8 << 20);
        assert_eq!(throttle.release(NOW), []);
        throttle.arrived(BlockId(101), 8 << 20);
        assert_eq!(throttle.release(NOW), [large]);
        let gone = throttle.hold(NOW, 1 << 20);
        throttle.give_up(gone);
        assert_eq!(throttle.deadline(), None);
        assert_eq!(throttle.release(NOW + READ_WAIT_MAX), []);
    }

    #[test]
    fn reads_of_pushed_blocks_are_distinguished() {
        let mut throttle = DrainThrottle::default();
        throttle.began();
        throttle.arrived(BlockId(7), 1);
        assert!(throttle.is_pushed([BlockId(6), BlockId(7)].into_iter()));
        assert!(!throttle.is_pushed([BlockId(6)].into_iter()));
        throttle.dropped([BlockId(7)].into_iter());
        assert!(!throttle.is_pushed([BlockId(7)].into_iter()));
    }
}
