//! What is known of one node that is being emptied.

use std::collections::BTreeSet;

use sanderling_protocol::message::{DrainWork, MoveCandidate};
use sanderling_protocol::{BlockId, Instant, Millis, NodeId};

use super::forecast::{ForecastInput, LastForecast};
use super::pace::{Force, Pace};
use super::queue::{MoveQueue, Queued};
use super::rate::Rate;
use super::scan::DrainScan;
use crate::moves;

/// One node that is being emptied.
#[derive(Debug, Clone)]
pub(super) struct Drain {
    pub(super) address: String,
    pub(super) deadline: Option<Instant>,
    /// Blocks that must still leave, by the last view less what was committed since.
    left_blocks: u64,
    /// Their bytes that are nowhere else.
    left_bytes: u64,
    /// Bytes per second that clients read from the node.
    clients_bytes_per_second: u64,
    /// Nodes that took blocks of it.
    targets: BTreeSet<NodeId>,
    /// The rate at which blocks left.
    rate: Rate,
    pub(super) last_forecast: LastForecast,
    pub(super) queue: MoveQueue,
    pub(super) pace: Pace,
    /// No moves are planned before this: there was no room anywhere.
    pub(super) stalled_until: Option<Instant>,
    /// The deadline has passed and what was queued is given up.
    is_ended: bool,
    scan: DrainScan,
}

impl Drain {
    /// Returns the drain of a node with this declared send rate, in bytes per second.
    pub(super) fn new(now: Instant, work: &DrainWork, egress_bytes_per_second: u64) -> Self {
        Self {
            address: work.address.clone(),
            deadline: work.deadline_in.map(|left| now + left),
            left_blocks: work.left_blocks,
            left_bytes: work.left_bytes,
            clients_bytes_per_second: 0,
            targets: BTreeSet::new(),
            rate: Rate::default(),
            last_forecast: LastForecast::default(),
            queue: MoveQueue::default(),
            pace: Pace::new(egress_bytes_per_second),
            stalled_until: None,
            is_ended: false,
            scan: DrainScan::new(now),
        }
    }

    /// Takes the view's word on the node. A deadline may move when a notice was taken back and
    /// given again.
    pub(super) fn update(&mut self, now: Instant, work: &DrainWork, clients: u64) {
        self.address.clone_from(&work.address);
        self.deadline = work.deadline_in.map(|left| now + left);
        self.left_blocks = work.left_blocks;
        self.left_bytes = work.left_bytes;
        self.clients_bytes_per_second = clients;
    }

    /// Notes that a push of blocks begins.
    pub(super) fn push_begun(&mut self, now: Instant, bytes: u64, force: Force) {
        self.rate.begin(now);
        self.pace.begun(now, bytes, force);
    }

    /// Notes that the namenode has not taken a move.
    pub(super) fn held_up(&mut self, now: Instant) {
        self.rate.held_up(now);
    }

    /// Takes that a block has left.
    pub(super) fn moved(&mut self, now: Instant, moved: &MoveCandidate, bytes: u64, to: NodeId) {
        self.queue.forget(moved.block);
        self.left_blocks = self.left_blocks.saturating_sub(1);
        // What its store has was not counted.
        let counted = if moved.is_stored() { 0 } else { bytes };
        self.left_bytes = self.left_bytes.saturating_sub(counted);
        self.rate.record(now, bytes);
        self.targets.insert(to);
    }

    /// Returns the bytes that are to be moved.
    pub(super) fn movable_bytes(&self) -> u64 {
        self.left_bytes.saturating_sub(self.scan.skipped_bytes())
    }

    /// Returns what a forecast is made of, but for the room that there is: of `open` nodes.
    pub(super) fn forecast_input(&self, now: Instant, open: usize) -> ForecastInput {
        let targets = if self.targets.is_empty() { open } else { self.targets.len() };
        ForecastInput {
            left_bytes: self.movable_bytes(),
            skipped_bytes: self.scan.skipped_bytes().min(self.left_bytes),
            unplaced_bytes: 0,
            bytes_per_second: self.rate.bytes_per_second(now),
            link_bytes_per_second: match self.force(now) {
                // What is sent is what can be sent.
                Force::Full => 0,
                Force::Yielding(_) => self.pace.link_bytes_per_second(),
            },
            left: self.left(now),
            targets: u32::try_from(targets).unwrap_or(u32::MAX),
        }
    }

    /// Returns how much of the node's link its drain takes now.
    pub(super) fn force(&self, now: Instant) -> Force {
        let left = self.left(now);
        self.pace.force(self.movable_bytes(), left, self.clients_bytes_per_second)
    }

    /// Returns the time left; `None` without a deadline.
    pub(super) fn left(&self, now: Instant) -> Option<Millis> {
        self.deadline.map(|deadline| now.until(deadline))
    }

    /// Returns whether the deadline has passed: nothing is tried any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Does what is due; returns whether the drain goes on.
    pub(super) fn wake(&mut self, now: Instant) -> bool {
        self.is_ended = self.is_over(now);
        if self.is_ended {
            self.queue = MoveQueue::default();
            return false;
        }
        self.queue.wake(now);
        self.pace.wake(now, self.force(now));
        self.stalled_until = self.stalled_until.filter(|until| *until > now);
        true
    }

    /// Returns the page to request now, if any, and notes that it was requested.
    pub(super) fn next_page(&mut self, now: Instant, known_max: usize) -> Option<BlockId> {
        let at = self.scan.page_at(&self.queue, self.left_blocks, known_max)?;
        (at <= now).then(|| self.scan.fetch())
    }

    /// Takes a page, or that it could not be read.
    pub(super) fn page(
        &mut self,
        now: Instant,
        page: Option<(Vec<MoveCandidate>, bool)>,
        retry: Millis,
    ) {
        let left = self.left(now);
        self.scan.page(now, &mut self.queue, page, left, retry);
    }

    /// Takes a block back whose move failed, to be tried again later and later.
    pub(super) fn retry(&mut self, now: Instant, mut queued: Queued, wait: Millis) {
        queued.attempts += 1;
        queued.candidate.reserved_to = None;
        let until = now + moves::backoff(wait, queued.attempts);
        self.queue.park(queued, until);
    }

    /// Takes a block back whose target is none any more: another one is chosen at once.
    pub(super) fn replan(&mut self, mut queued: Queued) {
        queued.candidate.reserved_to = None;
        self.queue.push(queued);
    }

    /// Returns when something is due here.
    pub(super) fn due(&self, known_max: usize) -> Option<Instant> {
        if self.is_ended {
            return None;
        }
        let fetch = self.scan.page_at(&self.queue, self.left_blocks, known_max);
        let next = self.pace.next_at().filter(|_| self.queue.is_ready());
        let due = [fetch, next, self.stalled_until, self.queue.wake_at(), self.deadline];
        due.into_iter().flatten().min()
    }
}
