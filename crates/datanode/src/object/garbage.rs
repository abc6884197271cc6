//! Objects that may be of no use any more, each with the time to check it with the namenode.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::block_table::TOMBSTONES_MAX;
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::{BlockId, Epoch};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::trailer::TierKey;

/// Most objects waiting for their end. Others are found by the search. Some megabytes of memory,
/// and as many as dropped blocks are remembered. The search runs every six hours by default.
const GARBAGE_MAX: usize = TOMBSTONES_MAX;

/// How long a move that failed may still be repeated: the namenode gives a move up sooner. Its
/// reservations end after 20 s (`BACKGROUND_MOVE_MILLIS_MAX`), those of a drain with its notice;
/// thrice that leaves time for a stopped namenode. The namenode is called before anything is
/// deleted, so a short one is only work in vain.
const REPEATED_FOR: Duration = Duration::from_secs(60);

/// Objects that may be of no use any more, each with the time of its check.
#[derive(Debug, Default)]
pub(crate) struct Garbage {
    due: Mutex<BTreeMap<TierKey, Instant>>,
    changed: Notify,
}

impl Garbage {
    /// Adds an object that was dropped.
    pub(crate) fn add_now(&self, key: TierKey) {
        self.add(key, Instant::now());
    }

    /// Adds an object that a move may have left, which may still be repeated.
    pub(crate) fn add_later(&self, key: TierKey) {
        self.add(key, Instant::now() + REPEATED_FOR);
    }

    /// Adds an object to check at a moment; passed over when there are too many.
    pub(super) fn add(&self, key: TierKey, at: Instant) {
        let mut due = self.due.lock();
        if due.len() < GARBAGE_MAX {
            due.insert(key, at);
            self.changed.notify_one();
        }
    }

    /// Takes a page of what is due; no block is twice in it, because the answer names blocks only.
    pub(super) fn take_page(&self, now: Instant) -> Vec<TierKey> {
        let mut due = self.due.lock();
        let mut page: BTreeMap<BlockId, Epoch> = BTreeMap::new();
        for ((block, epoch), at) in due.iter() {
            if *at <= now && page.len() < BLOCKS_PER_PAGE_MAX {
                page.entry(*block).or_insert(*epoch);
            }
        }
        due.retain(|(block, epoch), _| page.get(block) != Some(epoch));
        page.into_iter().collect()
    }

    /// Returns when the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.lock().values().min().copied()
    }

    /// Waits until an object is added.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Returns the number of objects that wait.
    pub(crate) fn len(&self) -> usize {
        self.due.lock().len()
    }
}
