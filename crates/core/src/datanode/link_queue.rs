//! What leaves next over a link whose rate is limited: pushes, answers to clients, or what goes to
//! the stores of durable directories.
//!
//! Uploads are copies in the background. They go behind clients: they get what clients leave of the
//! link, and a small part of what clients take, so that the copies come to an end. On a node that
//! leaves, what no store has may be lost at the deadline: there, clients go behind uploads, as they
//! go behind pushes. While that node pushes blocks, both wait for [`super::DrainThrottle`] before
//! they get here; what it lets go on is queued here in turn with pushes.

mod spare_rate;

use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis};

use super::egress::Egress;
use spare_rate::SpareRate;

/// Bytes to clients for one byte of uploads, at most: clients lose two percent. A link of 1 Gbit/s
/// that they fill sends what four orders for packs of checkpoints have, 132 MiB, in 54 s. The
/// manager waits 64 s for an order.
const CLIENTS_SHARE_MAX: u64 = 48;

/// The same on slow links, at the least: clients have half of the link.
const CLIENTS_SHARE_MIN: u64 = 1;

/// Bytes per second that uploads have in any case, if that is no more than half of the link. So a
/// part of 8 MiB takes 32 s at most, half of the time for which the manager waits for an order.
const UPLOADS_MIN: u64 = 256 << 10;

/// Bytes of uploads for one byte of reads on a node that leaves, as [`super::DrainThrottle`] has
/// them for pushes.
const UPLOADS_SHARE: u64 = 32;

/// Uploads are queued in pieces that take so long, and only while nothing else leaves: an answer to
/// a client waits no longer for them. A link of 10 MiB/s sends 40 KiB in this time. Chosen, not
/// measured: half of it would double the timers, and save a reader of blocks of 1 MiB two percent.
const SLICE: Millis = Millis(4);

/// The shortest and the longest of such pieces: a page, and a block.
const SLICE_BYTES: (u64, u64) = (4 << 10, 1 << 20);

/// Longest time that a read goes behind uploads on a node that leaves, unless several wait for so
/// long: within a client's timeout of one attempt, as [`super::DrainThrottle`] bounds it.
const READ_WAIT_MAX: Millis = Millis(1500);

/// What bytes leave a node for. The class decides which of those that wait is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkClass {
    /// A block moves to another node, or is copied there.
    Push,
    /// A client reads.
    Read,
    /// A datanode reads what it sends to the store of a durable directory.
    Upload,
}

/// What [`LinkQueue::next`] returns: which of those that wait leaves, or until when none may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTurn {
    /// What has this number leaves. Its last byte has left at this time; `None`: now.
    Leaves {
        /// As [`LinkQueue::add`] returned it.
        number: u64,
        /// When it may be handed over.
        left_at: Option<Instant>,
    },
    /// Nothing may be queued before this time, unless something is added.
    Wait(Instant),
    /// Nothing waits.
    Idle,
}

/// The pushes, reads and uploads that wait in front of a link whose rate is limited, in bytes per
/// second. It decides which of them leaves next.
#[derive(Debug, Clone)]
pub struct LinkQueue {
    egress: Egress,
    bytes_per_second: u64,
    /// Of each class, by the order in which they came.
    pushes: BTreeMap<u64, WaitingAnswer>,
    reads: BTreeMap<u64, WaitingAnswer>,
    uploads: BTreeMap<u64, WaitingAnswer>,
    next: u64,
    /// Whether the node is to leave: uploads go before reads then, and in turn with pushes.
    is_leaving: bool,
    /// The last one that left was a push.
    has_pushed: bool,
    /// Bytes that may leave although others go first.
    granted: u64,
    /// Something that goes first has left since a read went that had waited too long.
    has_sent_first: bool,
    spare: SpareRate,
    /// When something can be queued next, as was returned last: the timer may be late.
    wakes_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct WaitingAnswer {
    since: Instant,
    /// Bytes that are not queued yet.
    left: u64,
}

impl LinkQueue {
    /// Returns a queue in front of a link that takes so many bytes in a second.
    #[must_use]
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            egress: Egress::new(Some(bytes_per_second)),
            bytes_per_second,
            pushes: BTreeMap::new(),
            reads: BTreeMap::new(),
            uploads: BTreeMap::new(),
            next: 0,
            is_leaving: false,
            has_pushed: false,
            granted: 0,
            has_sent_first: false,
            spare: SpareRate::new(bytes_per_second),
            wakes_at: None,
        }
    }

    /// Adds bytes that are to leave; there must be some. [`Self::next`] is to be called then.
    /// Returns their number.
    pub fn add(&mut self, now: Instant, class: LinkClass, bytes: u64) -> u64 {
        assert!(bytes > 0, "what has no bytes takes nothing of a link");
        let number = self.next;
        self.next += 1;
        self.queue(class).insert(number, WaitingAnswer { since: now, left: bytes });
        number
    }

    /// Forgets what does not wait any more. What of it was queued counts as sent.
    pub fn give_up(&mut self, number: u64) {
        for queue in [&mut self.pushes, &mut self.reads, &mut self.uploads] {
            queue.remove(&number);
        }
    }

    /// Takes whether the node is to leave, because it has a notice or is decommissioned.
    pub const fn set_leaving(&mut self, is_leaving: bool) {
        if is_leaving != self.is_leaving {
            self.is_leaving = is_leaving;
            (self.granted, self.has_sent_first) = (0, false);
        }
    }

    /// Queues what is next, if the link can take it. It is to be called until it returns when to
    /// call again.
    pub fn next(&mut self, now: Instant) -> LinkTurn {
        let since = self.wakes_at.map_or(now, |at| at.min(now));
        loop {
            let (class, goes_behind) = match self.choose(now) {
                Ok(chosen) => chosen,
                Err(wait) => {
                    self.wakes_at = wait;
                    return wait.map_or(LinkTurn::Idle, LinkTurn::Wait);
                }
            };
            if let Some(turn) = self.send(now, since, class, goes_behind) {
                return turn;
            }
        }
    }

    /// Returns the class of what is queued next, and whether it goes behind others; else when that
    /// can be, `None` while nothing waits.
    fn choose(&mut self, now: Instant) -> Result<(LinkClass, bool), Option<Instant>> {
        let (first, behind) = self.classes();
        let is_granted = behind.is_some_and(|class| self.is_granted(now, class));
        let free_at = self.egress.free_at();
        match (first, behind) {
            (None, None) => Err(None),
            (Some(_), _) if free_at - Egress::AHEAD > now => Err(Some(free_at - Egress::AHEAD)),
            (Some(_), Some(behind)) if is_granted => Ok((behind, true)),
            (Some(first), _) => Ok((first, false)),
            // What goes first may come at any moment: the link is not filled ahead of it.
            (None, Some(_)) if free_at > now => Err(Some(free_at)),
            (None, Some(behind)) if is_granted => Ok((behind, true)),
            (None, Some(behind)) => match self.spare.ready_at(now) {
                Some(at) => Err(Some(at)),
                None => Ok((behind, true)),
            },
        }
    }

    /// Returns which class of those that wait goes first, and which goes behind it.
    fn classes(&self) -> (Option<LinkClass>, Option<LinkClass>) {
        let first = |queue: &BTreeMap<u64, WaitingAnswer>| queue.keys().next().copied();
        let (push, read) = (first(&self.pushes), first(&self.reads));
        let has_uploads = !self.uploads.is_empty();
        if self.is_leaving && has_uploads {
            let is_push = push.is_some() && !self.has_pushed;
            let first = if is_push { LinkClass::Push } else { LinkClass::Upload };
            return (Some(first), read.map(|_| LinkClass::Read));
        }
        let first = match (push, read) {
            (Some(push), Some(read)) if push < read => Some(LinkClass::Push),
            (Some(_), None) => Some(LinkClass::Push),
            (_, Some(_)) => Some(LinkClass::Read),
            (None, None) => None,
        };
        (first, has_uploads.then_some(LinkClass::Upload))
    }

    /// Returns whether what goes behind others has its part of what those sent, or has waited too
    /// long.
    fn is_granted(&self, now: Instant, class: LinkClass) -> bool {
        let queue = if class == LinkClass::Read { &self.reads } else { &self.uploads };
        let Some((_, answer)) = queue.first_key_value() else { return false };
        match class {
            LinkClass::Read => {
                let is_late = answer.since + READ_WAIT_MAX <= now;
                self.granted >= answer.left || (is_late && self.has_sent_first)
            }
            LinkClass::Push | LinkClass::Upload => {
                self.granted >= answer.left.min(self.slice_bytes())
            }
        }
    }

    /// Queues the first of a class, or a piece of it. Returns its end, if that was the last piece.
    fn send(
        &mut self,
        now: Instant,
        since: Instant,
        class: LinkClass,
        goes_behind: bool,
    ) -> Option<LinkTurn> {
        let is_cut = goes_behind && class == LinkClass::Upload;
        let bytes_max = if is_cut { self.slice_bytes() } else { u64::MAX };
        let first = self.queue(class).iter_mut().next();
        let (&number, answer) = first.expect("something of the class waits");
        let bytes = answer.left.min(bytes_max);
        answer.left -= bytes;
        let is_over = answer.left == 0;
        if is_over {
            self.queue(class).remove(&number);
        }
        self.has_pushed = class == LinkClass::Push;
        let left_at = self.egress.queue_since(now, since, bytes);
        if class == LinkClass::Read {
            self.spare.count_read(now, bytes);
        }
        if goes_behind {
            self.take(class, bytes);
        } else {
            self.grant(bytes);
        }
        is_over.then_some(LinkTurn::Leaves { number, left_at })
    }

    /// Notes that so many bytes left that go first: others get their part of it.
    fn grant(&mut self, bytes: u64) {
        let of_slow_link = (self.bytes_per_second / UPLOADS_MIN).saturating_sub(1);
        let share = match self.is_leaving {
            true => UPLOADS_SHARE,
            false => of_slow_link.clamp(CLIENTS_SHARE_MIN, CLIENTS_SHARE_MAX),
        };
        self.has_sent_first = true;
        // Beside this part, no more is kept than the next one needs.
        let part = bytes / share;
        let read = self.reads.values().next().filter(|_| self.is_leaving);
        let needed = read.map_or(0, |read| read.left).max(self.slice_bytes());
        self.granted = self.granted.saturating_add(part).min(needed.saturating_add(part));
    }

    /// Notes that so many bytes left that go behind others.
    const fn take(&mut self, class: LinkClass, bytes: u64) {
        if self.granted >= bytes {
            self.granted -= bytes;
        } else if matches!(class, LinkClass::Upload) {
            self.spare.take(bytes);
        } else {
            // It had waited too long. The next one goes behind something else.
            self.has_sent_first = false;
        }
    }

    /// Returns the bytes of a piece of an upload.
    fn slice_bytes(&self) -> u64 {
        let bytes = self.bytes_per_second.saturating_mul(SLICE.0) / 1000;
        bytes.clamp(SLICE_BYTES.0, SLICE_BYTES.1)
    }

    const fn queue(&mut self, class: LinkClass) -> &mut BTreeMap<u64, WaitingAnswer> {
        match class {
            LinkClass::Push => &mut self.pushes,
            LinkClass::Read => &mut self.reads,
            LinkClass::Upload => &mut self.uploads,
        }
    }
}

#[cfg(test)]
mod tests;
