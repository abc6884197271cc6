//! What is known of one node that is being emptied.

use std::collections::BTreeSet;

use sanderling_protocol::message::{DrainWork, MoveCandidate};
use sanderling_protocol::{BlockId, Instant, Millis, NodeId};

use super::forecast::{Facts, Said};
use super::pace::Pace;
use super::queue::{self, Queue, Queued};
use super::rate::Rate;

/// One node that is being emptied.
#[derive(Debug, Clone)]
pub(super) struct Drain {
    pub(super) address: String,
    pub(super) deadline: Option<Instant>,
    /// Blocks that must still leave, by the last view less what was committed since.
    left_blocks: u64,
    /// Their bytes that are nowhere else.
    left_bytes: u64,
    /// Nodes that took blocks of it.
    targets: BTreeSet<NodeId>,
    /// The rate at which blocks left.
    rate: Rate,
    pub(super) said: Said,
    pub(super) queue: Queue,
    pub(super) pace: Pace,
    /// No moves are planned before this: there was no room anywhere.
    pub(super) stalled_until: Option<Instant>,
    /// The deadline has passed and what was queued is given up.
    is_ended: bool,
    scan: Scan,
}

/// Where the reading of the node's blocks is.
#[derive(Debug, Clone)]
struct Scan {
    /// The next page starts after this block; `None` between two scans.
    after: Option<BlockId>,
    is_fetching: bool,
    fetch_at: Instant,
    has_found: bool,
    wait: Millis,
    /// Bytes that the last whole scan left where they are, because they expire before the deadline.
    skipped_bytes: u64,
    /// The same of the scan under way.
    skipping_bytes: u64,
}

impl Drain {
    /// Wait between two scans that find something.
    const SCAN_WAIT_MIN: Millis = Millis(100);

    /// Longest wait between two scans: what is left then expires by itself or has no room.
    const SCAN_WAIT_MAX: Millis = Millis(2_000);

    pub(super) fn new(now: Instant, work: &DrainWork) -> Self {
        Self {
            address: work.address.clone(),
            deadline: work.deadline_in.map(|left| now + left),
            left_blocks: work.left_blocks,
            left_bytes: work.left_bytes,
            targets: BTreeSet::new(),
            rate: Rate::new(now),
            said: Said::default(),
            queue: Queue::default(),
            pace: Pace::new(),
            stalled_until: None,
            is_ended: false,
            scan: Scan {
                after: None,
                is_fetching: false,
                fetch_at: now,
                has_found: false,
                wait: Self::SCAN_WAIT_MIN,
                skipped_bytes: 0,
                skipping_bytes: 0,
            },
        }
    }

    /// Takes the view's word on the node. A deadline may move when a notice was taken back and
    /// given again.
    pub(super) fn update(&mut self, now: Instant, work: &DrainWork) {
        self.address.clone_from(&work.address);
        self.deadline = work.deadline_in.map(|left| now + left);
        self.left_blocks = work.left_blocks;
        self.left_bytes = work.left_bytes;
    }

    /// Takes the news that a block has left.
    pub(super) fn moved(&mut self, now: Instant, block: BlockId, bytes: u64, to: NodeId) {
        self.queue.forget(block);
        self.left_blocks = self.left_blocks.saturating_sub(1);
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
        self.rate.record(now, bytes);
        self.targets.insert(to);
    }

    /// Returns the bytes that are to be moved.
    pub(super) fn movable_bytes(&self) -> u64 {
        self.left_bytes.saturating_sub(self.scan.skipped_bytes)
    }

    /// Returns what a forecast is made of, but for the room that there is: of `open` nodes.
    pub(super) fn facts(&self, now: Instant, open: usize) -> Facts {
        let targets = if self.targets.is_empty() { open } else { self.targets.len() };
        Facts {
            left_bytes: self.movable_bytes(),
            skipped_bytes: self.scan.skipped_bytes.min(self.left_bytes),
            unplaced_bytes: 0,
            bytes_per_second: self.rate.bytes_per_second(now),
            link_bytes_per_second: 0,
            left: self.left(now),
            targets: u32::try_from(targets).unwrap_or(u32::MAX),
        }
    }

    /// Returns the time left; `None` without a deadline.
    pub(super) fn left(&self, now: Instant) -> Option<Millis> {
        self.deadline.map(|deadline| now.until(deadline))
    }

    /// Tells whether the deadline has passed: nothing is tried any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Does what is due; tells whether the drain goes on.
    pub(super) fn wake(&mut self, now: Instant) -> bool {
        self.is_ended = self.is_over(now);
        if self.is_ended {
            self.queue = Queue::default();
            return false;
        }
        let left = self.left(now);
        self.queue.wake(now, left);
        self.stalled_until = self.stalled_until.filter(|until| *until > now);
        true
    }

    /// Returns the page to ask for now, if any, and notes that it was asked for.
    pub(super) fn next_page(&mut self, now: Instant, known_max: usize) -> Option<BlockId> {
        if self.page_at(known_max)? > now {
            return None;
        }
        self.scan.is_fetching = true;
        Some(self.scan.after.unwrap_or_default())
    }

    /// Returns when the next page is to be asked for; `None` while there is enough to do.
    fn page_at(&self, known_max: usize) -> Option<Instant> {
        let is_wanted = match self.scan.after {
            Some(_) => self.queue.len() < known_max,
            // Blocks that were forgotten are found again, also while others wait for room.
            None => self.queue.peek().is_none() && self.left_blocks > self.queue.len() as u64,
        };
        (is_wanted && !self.scan.is_fetching).then_some(self.scan.fetch_at)
    }

    /// Takes a page, or the news that it could not be read.
    pub(super) fn page(
        &mut self,
        now: Instant,
        page: Option<(Vec<MoveCandidate>, bool)>,
        retry: Millis,
    ) {
        if !self.scan.is_fetching {
            return;
        }
        self.scan.is_fetching = false;
        let Some((candidates, is_more)) = page else {
            self.scan.fetch_at = now + retry;
            return;
        };
        let left = self.left(now);
        let last = candidates.last().map(|candidate| candidate.block);
        for candidate in candidates {
            if queue::expires_before(&candidate, left) {
                self.scan.skipping_bytes += u64::from(candidate.length);
            } else {
                self.scan.has_found |= self.queue.insert(candidate, left);
            }
        }
        self.scan.after = last.filter(|_| is_more);
        if self.scan.after.is_none() {
            self.end_scan(now);
        }
    }

    fn end_scan(&mut self, now: Instant) {
        let scan = &mut self.scan;
        scan.wait = if scan.has_found {
            Self::SCAN_WAIT_MIN
        } else {
            Millis(scan.wait.0 * 2).min(Self::SCAN_WAIT_MAX)
        };
        scan.has_found = false;
        scan.skipped_bytes = std::mem::take(&mut scan.skipping_bytes);
        scan.fetch_at = now + scan.wait;
    }

    /// Takes a block back whose move failed, to be tried again later and later.
    pub(super) fn retry(&mut self, now: Instant, mut queued: Queued, wait: Millis) {
        queued.attempts += 1;
        queued.candidate.reserved_to = None;
        let doublings = queued.attempts.min(4) - 1;
        self.queue.park(queued, now + Millis(wait.0 << doublings));
    }

    /// Returns when something is due here.
    pub(super) fn due(&self, known_max: usize) -> Option<Instant> {
        if self.is_ended {
            return None;
        }
        let fetch = self.page_at(known_max);
        [fetch, self.stalled_until, self.queue.wake_at(), self.deadline].into_iter().flatten().min()
    }
}
