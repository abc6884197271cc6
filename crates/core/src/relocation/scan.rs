//! The reading of a draining node's blocks, page by page and again while some are left.

use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::{BlockId, Instant, Millis};

use super::queue::{Enqueued, MoveQueue};
use crate::retry::doubled;

/// Where the reading of a node's blocks is.
#[derive(Debug, Clone)]
pub(super) struct DrainScan {
    /// The next page starts after this block; `None` between two scans.
    after: Option<BlockId>,
    is_fetching: bool,
    fetch_at: Instant,
    has_found: bool,
    wait: Millis,
    /// Bytes that the last whole scan left where they are, because they expire before the deadline.
    skipped_bytes: u64,
    /// Bytes that the scan under way has left where they are so far, because they expire before the
    /// deadline.
    skipping_bytes: u64,
    /// Whether blocks are taken that a store has: when a scan has found no others.
    takes_stored: bool,
    /// Whether the scan under way has found blocks that no store has.
    has_volatile: bool,
}

impl DrainScan {
    /// Wait between two scans that find something. Two views by default; blocks that writers ended
    /// meanwhile come with the next scan.
    const WAIT_MIN: Millis = Millis(100);

    /// Longest wait between two scans: what is left then expires by itself or has no room. A
    /// fifteenth of the shortest notices, so room that appears is found in time.
    const WAIT_MAX: Millis = Millis(2_000);

    pub(super) const fn new(now: Instant) -> Self {
        Self {
            after: None,
            is_fetching: false,
            fetch_at: now,
            has_found: false,
            wait: Self::WAIT_MIN,
            skipped_bytes: 0,
            skipping_bytes: 0,
            takes_stored: false,
            has_volatile: false,
        }
    }

    /// Returns the bytes that are left to expire by themselves.
    pub(super) const fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// Returns when the next page is to be requested, with `left_blocks` on the node; `None` while
    /// there is enough to do.
    pub(super) fn page_at(
        &self,
        queue: &MoveQueue,
        left_blocks: u64,
        known_max: usize,
    ) -> Option<Instant> {
        let is_wanted = match self.after {
            Some(_) => queue.len() < known_max,
            // Blocks that were forgotten are found again, also while others wait for room.
            None => !queue.is_ready() && left_blocks > queue.len() as u64,
        };
        (is_wanted && !self.is_fetching).then_some(self.fetch_at)
    }

    /// Notes that a page is requested; returns the block after which it starts.
    pub(super) fn fetch(&mut self) -> BlockId {
        self.is_fetching = true;
        self.after.unwrap_or_default()
    }

    /// Takes a page, or that it could not be read, which is tried again after `retry`.
    pub(super) fn page(
        &mut self,
        now: Instant,
        queue: &mut MoveQueue,
        page: Option<(Vec<MoveCandidate>, bool)>,
        left: Option<Millis>,
        retry: Millis,
    ) {
        if !std::mem::take(&mut self.is_fetching) {
            return;
        }
        let Some((candidates, is_more)) = page else {
            self.fetch_at = now + retry;
            return;
        };
        let last = candidates.last().map(|candidate| candidate.block);
        for candidate in candidates {
            let bytes = u64::from(candidate.length);
            if candidate.is_stored() && !self.takes_stored {
                continue;
            }
            let is_volatile = !candidate.is_stored();
            match queue.insert(candidate, left) {
                Enqueued::Taken => {
                    self.has_found = true;
                    self.has_volatile |= is_volatile;
                }
                Enqueued::Known => self.has_volatile |= is_volatile,
                // What its store has is in no count of what must leave.
                Enqueued::Expires if is_volatile => self.skipping_bytes += bytes,
                Enqueued::Expires | Enqueued::Safe => {}
            }
        }
        self.after = last.filter(|_| is_more);
        if self.after.is_none() {
            self.end(now);
        }
    }

    fn end(&mut self, now: Instant) {
        let takes_stored = !std::mem::take(&mut self.has_volatile);
        let is_turned = takes_stored && !std::mem::replace(&mut self.takes_stored, takes_stored);
        self.wait = if self.has_found || is_turned {
            Self::WAIT_MIN
        } else {
            doubled(self.wait, 1, Self::WAIT_MAX)
        };
        self.has_found = false;
        self.skipped_bytes = std::mem::take(&mut self.skipping_bytes);
        self.fetch_at = now + self.wait;
    }
}
