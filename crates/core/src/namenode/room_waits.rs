//! Changes that wait for room that is being freed.
//!
//! A change that finds no room is tried again while the deletions that were there when it first
//! came are being freed, and for no later ones: a tenant that deletes and creates without a pause
//! must not keep the refusals of others from them. The log has no part in this: such a change is no
//! command.

use std::collections::BTreeMap;

use crate::catalog::{Catalog, ChangeKey};

/// Most changes that wait. One more is refused as if nothing were being freed.
const WAITS_MAX: usize = 16_384;

/// How many deletions there were when a change first found no room, by its client and sequence.
#[derive(Debug, Default)]
pub(super) struct RoomWaits {
    waits: BTreeMap<(u64, u64), u64>,
    /// The present change; `None` for a request that comes once.
    present: Option<(u64, u64)>,
    /// Of a full table: how many deletions there were when it was last searched for ended waits.
    searched_at: u64,
}

impl RoomWaits {
    /// Notes which change is being prepared.
    pub(super) fn begin(&mut self, sent: &ChangeKey) {
        self.present = Some((sent.client.number, sent.sequence));
    }

    pub(super) const fn end(&mut self) {
        self.present = None;
    }

    /// Returns how many deletions the present change waits for, counted from the first one of the
    /// log; 0 if it waits no longer.
    pub(super) fn deletions(&mut self, catalog: &Catalog) -> u64 {
        let queued = catalog.deletions_queued();
        let Some(key) = self.present.filter(|_| catalog.reaping_count() > 0) else { return queued };
        if let Some(deletions) = self.waits.get(&key).copied() {
            if !catalog.is_freeing_one_of(deletions) {
                self.waits.remove(&key);
            }
            return deletions;
        }
        if self.waits.len() >= WAITS_MAX && self.searched_at != queued {
            self.searched_at = queued;
            self.waits.retain(|_, deletions| catalog.is_freeing_one_of(*deletions));
        }
        if self.waits.len() >= WAITS_MAX {
            return 0;
        }
        self.waits.insert(key, queued);
        queued
    }
}
