//! When the parts of uploads give way to what clients read, on a node whose link's rate is not
//! known.
//!
//! Connections share a link: one client that reads beside one part has half of it. A node sees how
//! fast its clients read beside parts, and between them. Where that differs much, it sends one part
//! at a time, and rests after each for so long that clients lose little on average. Where it does
//! not, the link has room for both, and no part waits. Now and then a rest shows again how fast
//! clients read without parts.
//!
//! Orders end in their time, whatever clients lose by that. The orders under way take turns, one
//! part after the other. So a part has for its turn what the orders have, divided by their number
//! and by the parts of the longest. Then the next one begins, while this one is still being sent,
//! too.

use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis};

use crate::durable::{PART_BYTES_MIN, UPLOAD_ENDS_WITHIN};

/// Thousandths of what clients read without parts that they may lose on average. The goal is 50; a
/// fifth of that is left for what is measured wrongly.
const LOSS_MAX: u64 = 40;

/// Shorter parts begin at once, and do not count: they take little of the link.
const COUNTED_BYTES_MIN: u64 = PART_BYTES_MIN / 8;

/// Time after a client's read for which more reads are expected. A client that reads a large object
/// from several nodes is at the others for less: four blocks of 1 MiB leave a link of 5 MiB/s in
/// less than a second. A part of 8 MiB that begins meanwhile has such a link for two seconds.
const READS_WITHIN: Millis = Millis(5_000);

/// A rest that shows how fast clients read without parts. A few answers of 1 MiB leave a link of 10
/// MiB/s in this time. Chosen, not measured.
const LOOK: Millis = Millis(500);

/// After this time what such a rest has shown may not hold any more: looks take a twentieth of it.
const LOOK_EVERY: Millis = Millis(10_000);

/// How long a part waits before it looks again whether clients still read.
const LOOK_AGAIN: Millis = Millis(250);

/// Time without a look after which the reads since the last one show nothing: between orders, no
/// part looks.
const GAP_MAX: Millis = Millis(2_000);

/// Time over which rates are means, at most. Chosen, not measured.
const MEAN_OF_MAX: Millis = Millis(4_000);

/// And at least. Chosen, not measured.
const MEAN_OF_MIN: Millis = Millis(100);

/// Clients that read less than this part of what is sent beside them have less than their share of
/// a link with four parts: it is not the link that limits them.
const FEW: u64 = 16;

/// Time of parts after which that is decided anew. Chosen, not measured.
const FEW_WITHIN: Millis = Millis(1_000);

/// Time in which the parts of an order are sent. A sixth of what orders have is left for reading
/// the blocks.
const SENT_WITHIN: Millis = Millis(UPLOAD_ENDS_WITHIN.0 * 5 / 6);

/// How the uploads of a node give way to its clients: see the module's text.
#[derive(Debug, Clone, Default)]
pub struct UploadYield {
    /// The orders under way, by the numbers that they got.
    orders: BTreeMap<u64, OrderTurns>,
    next_order: u64,
    /// Parts that are being sent.
    under_way: u64,
    /// Since when there are some.
    busy_since: Instant,
    /// When the last one began, and its bytes.
    last_part: (Instant, u64),
    /// When it was looked last how much clients have read, and how much that was.
    looked: Option<(Instant, u64)>,
    /// When they had read more since the look before.
    read_at: Option<Instant>,
    /// How fast they read beside parts, and between them.
    beside: MeanRate,
    alone: MeanRate,
    /// When a rest has shown that last.
    rested_at: Option<Instant>,
    rest: Option<PartRest>,
    /// What clients have read beside parts, the bytes of these parts, and the time for which some
    /// were under way, since it was decided whether reads are few.
    compared_read: u64,
    compared_sent: u64,
    compared_micros: u64,
    /// Whether clients read so little that they lose nothing.
    reads_are_few: bool,
}

/// An order under way.
#[derive(Debug, Clone, Copy)]
struct OrderTurns {
    /// Its bytes, in shortest parts.
    units: u64,
    /// Turns in which it has all of its own. They do not become fewer when other orders end: it has
    /// waited for these.
    turns: u64,
}

/// A rest after parts.
#[derive(Debug, Clone, Copy)]
struct PartRest {
    /// Until when clients need it, unless orders need the link sooner.
    wanted_until: Instant,
    /// Until when it lasts in any case.
    least_until: Instant,
}

/// A mean rate over the last seconds.
#[derive(Debug, Clone, Copy, Default)]
struct MeanRate {
    bytes: u64,
    micros: u64,
}

impl MeanRate {
    fn add(&mut self, bytes: u64, micros: u64) {
        self.bytes += bytes;
        self.micros += micros;
        while self.micros > MEAN_OF_MAX.0 * 1000 {
            self.bytes /= 2;
            self.micros /= 2;
        }
    }

    /// Returns the bytes of a second; `None` before there is a mean.
    fn per_second(self) -> Option<u64> {
        let is_measured = self.micros >= MEAN_OF_MIN.0 * 1000;
        is_measured.then(|| self.bytes.saturating_mul(1_000_000) / self.micros)
    }
}

impl UploadYield {
    /// Returns whether a part of `bytes` bytes may have to wait: shorter ones begin at once.
    #[must_use]
    pub const fn is_counted(bytes: u64) -> bool {
        bytes >= COUNTED_BYTES_MIN
    }

    /// Notes that an order of so many bytes is under way. Returns the number by which it ends.
    pub fn order_begins(&mut self, bytes: u64) -> u64 {
        let number = self.next_order;
        self.next_order += 1;
        // A shorter one takes no turn.
        if Self::is_counted(bytes) {
            self.orders.insert(number, OrderTurns { units: units(bytes), turns: 0 });
            let longest = self.orders.values().map(|order| order.units).max().unwrap_or_default();
            let turns = longest * self.orders.len() as u64;
            for order in self.orders.values_mut() {
                order.turns = order.turns.max(turns);
            }
        }
        number
    }

    /// Notes that the order with this number has ended, however it ended.
    pub fn order_ends(&mut self, number: u64) {
        self.orders.remove(&number);
    }

    /// Decides whether a part of so many bytes may begin, when clients have read so many bytes in
    /// all.
    ///
    /// # Errors
    /// Until when it waits before this is called again, unless a part ends before.
    pub fn may_begin(&mut self, now: Instant, read_bytes: u64, bytes: u64) -> Result<(), Instant> {
        if !Self::is_counted(bytes) {
            return Ok(());
        }
        self.look(now, read_bytes);
        if !self.is_read(now) {
            return Ok(());
        }
        if self.under_way > 0 {
            let goes_alone = self.is_look_due(now) || self.loss().is_none_or(|it| it > LOSS_MAX);
            let at_latest = self.next_at_latest();
            let waits = goes_alone && now < at_latest;
            return if waits { Err(at_latest.min(now + LOOK_AGAIN)) } else { Ok(()) };
        }
        if self.rest.is_none() && self.is_look_due(now) {
            self.rest = Some(PartRest { wanted_until: now, least_until: now + LOOK });
        }
        let Some(rest) = self.rest else { return Ok(()) };
        let until = self.rests_until(rest);
        if until > now {
            return Err(until.min(now + LOOK_AGAIN));
        }
        self.rest = None;
        self.rested_at = self.alone.per_second().map(|_| now);
        Ok(())
    }

    /// Notes that a part of `bytes` bytes has begun at `now`, after [`Self::may_begin`] let it.
    pub const fn began(&mut self, now: Instant, bytes: u64) {
        if !Self::is_counted(bytes) {
            return;
        }
        if self.under_way == 0 {
            self.busy_since = now;
        }
        self.under_way += 1;
        self.last_part = (now, bytes);
    }

    /// Notes that it has ended, when clients have read so many bytes in all.
    pub fn ended(&mut self, now: Instant, read_bytes: u64, bytes: u64) {
        if !Self::is_counted(bytes) {
            return;
        }
        self.look(now, read_bytes);
        debug_assert!(self.under_way > 0, "what ends has begun");
        self.under_way -= 1;
        self.compared_sent += bytes;
        if self.compared_micros >= FEW_WITHIN.0 * 1000 {
            let read = self.compared_read;
            self.reads_are_few = read > 0 && read.saturating_mul(FEW) < self.compared_sent;
            (self.compared_read, self.compared_sent, self.compared_micros) = (0, 0, 0);
        }
        if self.under_way == 0 {
            let rest = self.is_read(now).then(|| self.rest_after(now));
            self.rest = rest.filter(|rest| self.rests_until(*rest) > now);
        }
    }

    /// Takes how much clients have read in all.
    fn look(&mut self, now: Instant, read_bytes: u64) {
        let Some((since, before)) = self.looked.replace((now, read_bytes)) else { return };
        let (read, micros) = (read_bytes.saturating_sub(before), now.0.saturating_sub(since.0));
        let is_busy = self.under_way > 0;
        let shows_nothing = !is_busy && micros > GAP_MAX.0 * 1000;
        if read > 0 && !shows_nothing {
            self.read_at = Some(now);
        }
        if is_busy {
            self.compared_read += read;
            self.compared_micros += micros;
        }
        if !self.is_read(now) {
            (self.beside, self.alone) = (MeanRate::default(), MeanRate::default());
            (self.rested_at, self.rest) = (None, None);
        } else if !shows_nothing {
            let rate = if is_busy { &mut self.beside } else { &mut self.alone };
            rate.add(read, micros);
        }
    }

    /// Returns whether clients read, and enough to lose something.
    fn is_read(&self, now: Instant) -> bool {
        !self.reads_are_few && self.read_at.is_some_and(|at| now < at + READS_WITHIN)
    }

    fn is_look_due(&self, now: Instant) -> bool {
        self.rested_at.is_none_or(|at| now >= at + LOOK_EVERY)
    }

    /// Returns how many thousandths of what they read alone clients lose beside a part; `None`
    /// while that is not measured.
    fn loss(&self) -> Option<u64> {
        let (alone, beside) = (self.alone.per_second()?, self.beside.per_second()?);
        let lost = alone.saturating_sub(beside).saturating_mul(1000);
        Some(lost.checked_div(alone).unwrap_or_default())
    }

    /// Returns the rest after parts that have just ended.
    fn rest_after(&self, now: Instant) -> PartRest {
        let took = now.since(self.busy_since);
        let loss = self.loss().unwrap_or_default();
        let wanted = took.0.saturating_mul(loss.saturating_sub(LOSS_MAX)) / LOSS_MAX;
        let least = if self.is_look_due(now) { LOOK } else { Millis(0) };
        PartRest { wanted_until: now + Millis(wanted), least_until: now + least }
    }

    /// Returns until when a rest lasts, by the orders that are under way now.
    fn rests_until(&self, rest: PartRest) -> Instant {
        rest.wanted_until.min(self.next_at_latest()).max(rest.least_until)
    }

    /// Returns when the next part begins at the latest: at the end of the turn of the last one.
    fn next_at_latest(&self) -> Instant {
        let turns = self.orders.values().map(|order| order.turns).max().unwrap_or_default();
        let turn = SENT_WITHIN.0 / turns.max(1);
        let (began, bytes) = self.last_part;
        began + Millis(turn * units(bytes))
    }
}

/// Returns how many shortest parts so many bytes are.
fn units(bytes: u64) -> u64 {
    bytes.div_ceil(PART_BYTES_MIN).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const MIB: u64 = 1 << 20;
    const STEP: Millis = Millis(10);

    /// A link that a client and parts share, in virtual time.
    struct SharedLink {
        yields: UploadYield,
        now: Instant,
        bytes_per_second: u64,
        read: u64,
        sent: u64,
        part_bytes: u64,
        /// What is left of each part that is sent.
        sending: Vec<u64>,
    }

    impl SharedLink {
        /// A link of so many MiB a second, an order of so many shortest parts, and parts of so
        /// many MiB.
        fn new(rate: u64, parts: u64, part: u64) -> Self {
            let mut yields = UploadYield::default();
            yields.order_begins(parts * PART_BYTES_MIN);
            Self {
                yields,
                now: Instant(1_000_000),
                bytes_per_second: rate * MIB,
                read: 0,
                sent: 0,
                part_bytes: part * MIB,
                sending: Vec::new(),
            }
        }

        /// Sends parts, two at once at most, beside a client that reads so many MiB a second at
        /// most. Returns the MiB that are read and sent.
        fn run(&mut self, seconds: u64, reader: u64) -> (u64, u64) {
            let (read, sent) = (self.read, self.sent);
            for _ in 0..seconds * 1000 / STEP.0 {
                while self.sending.len() < 2
                    && self.yields.may_begin(self.now, self.read, self.part_bytes).is_ok()
                {
                    self.yields.began(self.now, self.part_bytes);
                    self.sending.push(self.part_bytes);
                }
                let link = self.bytes_per_second * STEP.0 / 1000;
                let parts = self.sending.len() as u64;
                let share = (reader * MIB * STEP.0 / 1000).min(link / (parts + 1));
                self.read += share;
                self.now = self.now + STEP;
                let each = (link - share) / parts.max(1);
                for left in &mut self.sending {
                    *left = left.saturating_sub(each);
                }
                let before = self.sending.len();
                self.sending.retain(|left| *left > 0);
                for _ in self.sending.len()..before {
                    self.yields.ended(self.now, self.read, self.part_bytes);
                    self.sent += self.part_bytes;
                }
            }
            ((self.read - read) / MIB, (self.sent - sent) / MIB)
        }
    }

    #[test]
    fn reader_of_a_full_link_loses_less_than_a_twentieth_and_copies_go_on() {
        for part in [8, 32] {
            let mut link = SharedLink::new(120, 16, part);
            assert!(link.run(10, 0).1 >= 1050, "nothing is read");
            let (read, _) = link.run(3, 1000);
            assert!(read >= 180, "{read} of 360 in the first seconds");
            link.run(7, 1000);
            let (read, sent) = link.run(100, 1000);
            assert!(read >= 11_400, "{read} of 12000 beside parts of {part} MiB");
            assert!(sent >= 300, "{sent} are sent");
            link.run(6, 0);
            assert!(link.run(10, 0).1 >= 1050, "nothing is read any more");
        }
    }

    #[test]
    fn link_with_room_for_both_is_used_by_both() {
        for reader in [1, 4, 20] {
            let mut link = SharedLink::new(120, 16, 8);
            let (read, sent) = link.run(60, reader);
            assert!(read >= reader * 60 - 1, "{read} at {reader} a second");
            assert!(sent >= (120 - reader) * 60 * 85 / 100, "{sent} beside {reader} a second");
        }
    }

    #[test]
    fn all_that_is_ordered_is_sent_in_time() {
        // Four orders of eight parts of 8 MiB: that needs half of the link.
        let mut link = SharedLink::new(10, 32, 8);
        let (_, sent) = link.run(60, 1000);
        assert!(sent >= 256, "{sent}");
        // Four orders of one part.
        let mut link = SharedLink::new(10, 4, 8);
        link.run(20, 1000);
        let (read, sent) = link.run(600, 1000);
        assert!(read >= 5400 && sent >= 320, "{read} of 6000 are read, {sent} are sent");
    }

    /// An order under way, and how many of its parts are not sent yet.
    struct TimedOrder {
        number: u64,
        began: Instant,
        parts: u64,
        left: u64,
    }

    impl TimedOrder {
        fn begin(yields: &mut UploadYield, began: Instant, parts: u64) -> Self {
            let number = yields.order_begins(parts * PART_BYTES_MIN);
            Self { number, began, parts, left: parts }
        }
    }

    /// Runs orders of so many shortest parts each on a link of so many MiB a second, all of which a
    /// client reads. Each sends its parts one after the other, in turns with the others, four at
    /// once at most. For five minutes, another one like it follows each. Returns the time of the
    /// longest.
    fn longest_order(rate: u64, lengths: &[u64]) -> Millis {
        let (mut yields, start) = (UploadYield::default(), Instant(1_000_000));
        let (mut now, mut read, mut looks_at, mut longest) = (start, 0, start, Millis(0));
        let begin = |parts: &u64| TimedOrder::begin(&mut yields, start, *parts);
        let mut waiting: VecDeque<TimedOrder> = lengths.iter().map(begin).collect();
        let mut sending: Vec<(TimedOrder, u64)> = Vec::new();
        while !waiting.is_empty() || !sending.is_empty() {
            while sending.len() < 4
                && looks_at <= now
                && let Some(order) = waiting.pop_front()
            {
                match yields.may_begin(now, read, PART_BYTES_MIN) {
                    Ok(()) => {
                        yields.began(now, PART_BYTES_MIN);
                        sending.push((order, PART_BYTES_MIN));
                    }
                    Err(at) => {
                        looks_at = at;
                        waiting.push_front(order);
                    }
                }
            }
            let share = rate * MIB * STEP.0 / 1000 / (sending.len() as u64 + 1);
            read += share;
            now = now + STEP;
            for (_, left) in &mut sending {
                *left = left.saturating_sub(share);
            }
            let (sent, rest): (Vec<_>, Vec<_>) =
                sending.into_iter().partition(|(_, left)| *left == 0);
            sending = rest;
            for (mut order, _) in sent {
                yields.ended(now, read, PART_BYTES_MIN);
                looks_at = now;
                order.left -= 1;
                if order.left > 0 {
                    waiting.push_back(order);
                    continue;
                }
                yields.order_ends(order.number);
                longest = longest.max(now.since(order.began));
                if now.since(start) < Millis(300_000) {
                    waiting.push_back(TimedOrder::begin(&mut yields, now, order.parts));
                }
            }
        }
        longest
    }

    #[test]
    fn orders_that_take_turns_end_in_their_time() {
        let lengths: [&[u64]; 8] =
            [&[1], &[4], &[8], &[1; 4], &[4; 4], &[8; 4], &[8, 1, 1, 1], &[8, 4, 1]];
        for rate in [10, 20, 40, 60, 100] {
            for lengths in lengths {
                let longest = longest_order(rate, lengths);
                assert!(longest <= Millis(52_000), "{longest:?} at {rate} for {lengths:?}");
            }
        }
    }

    #[test]
    fn rest_is_shorter_when_more_is_ordered() {
        let mut link = SharedLink::new(10, 1, 8);
        link.run(20, 1000);
        // It rests for 18 s after each part.
        while link.run(1, 1000).1 == 0 {}
        for _ in 0..3 {
            link.yields.order_begins(64 * MIB);
        }
        let (_, sent) = link.run(5, 1000);
        assert!(sent >= 8, "{sent} are sent");
    }

    #[test]
    fn part_waits_until_the_next_look_at_most_and_a_short_one_not_at_all() {
        let mut link = SharedLink::new(120, 4, 8);
        link.run(20, 1000);
        let waits = (0..100).find_map(|_| {
            link.run(1, 1000);
            link.yields.may_begin(link.now, link.read, 8 * MIB).err()
        });
        let until = waits.expect("it rests most of the time");
        assert!(link.now < until && until <= link.now + LOOK_AGAIN);
        assert_eq!(link.yields.may_begin(link.now, link.read, MIB - 1), Ok(()));
        // Clients have stopped.
        let later = link.now + READS_WITHIN;
        assert_eq!(link.yields.may_begin(later, link.read, 8 * MIB), Ok(()));
    }

    #[test]
    fn reads_of_long_ago_hold_nothing_up() {
        let mut yields = UploadYield::default();
        let order = yields.order_begins(8 * MIB);
        let now = Instant(1_000_000);
        assert_eq!(yields.may_begin(now, 0, 8 * MIB), Ok(()));
        yields.began(now, 8 * MIB);
        yields.ended(now + Millis(100), 0, 8 * MIB);
        yields.order_ends(order);
        let later = now + Millis(60_000);
        assert_eq!(yields.may_begin(later, 100 * MIB, 8 * MIB), Ok(()));
    }
}
