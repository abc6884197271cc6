//! Changes that wait for room that is being freed.
//!
//! A change that finds no room is tried again while the deletions that were there when it first
//! came are being freed, and for no later ones: a tenant that deletes and creates without a pause
//! must not keep the refusals of others from them. The log has no part in this: such a change is no
//! command.
//!
//! A client has a share of the table, and a full table takes the places of the client that has
//! most. So a tenant that fills it, even as many clients, leaves others their places.
//!
//! Two kinds of changes wait for later deletions as well, until nothing is being freed: one that
//! finds no place, and one without a client number and a sequence, because its repeat is not
//! recognized.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::{Instant, Millis};

use crate::catalog::{CLIENTS_MAX, Catalog, ChangeKey};

/// Most changes in the table: one at least of each client that the log has.
const WAITS_MAX: usize = CLIENTS_MAX;

/// Most changes of one client in the table: more than one process sends at a time (four connections
/// of 256 calls each by default).
const CLIENT_WAITS_MAX: usize = 1024;

/// Time between two searches of the table for ended waits: a search takes part of a millisecond,
/// and a change that waits is sent again after as long.
const SEARCH_INTERVAL: Millis = Millis(20);

/// How many deletions there were when a change first found no room.
#[derive(Debug, Default)]
pub(super) struct RoomWaits {
    /// By client and sequence.
    clients: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// The clients, by how many of their changes are in the table.
    by_count: BTreeSet<(usize, u64)>,
    count: usize,
    /// The present change; `None` for a request that comes once.
    present: Option<(u64, u64)>,
    /// When the table may be searched next.
    search_at: Instant,
}

impl RoomWaits {
    /// Notes which change is being prepared. What its client has settled waits no longer, and
    /// nothing waits if nothing is being freed.
    pub(super) fn begin(&mut self, sent: &ChangeKey, catalog: &Catalog) {
        self.present = Some((sent.client.number, sent.sequence));
        if catalog.reaping_count() == 0 {
            self.clients.clear();
            self.by_count.clear();
            self.count = 0;
        }
        self.update(sent.client.number, |waits| {
            while waits.first_entry().is_some_and(|first| *first.key() < sent.settled_below) {
                waits.pop_first();
            }
        });
    }

    pub(super) const fn end(&mut self) {
        self.present = None;
    }

    /// Forgets a change that was made or refused for good.
    pub(super) fn remove(&mut self, sent: &ChangeKey) {
        self.update(sent.client.number, |waits| waits.remove(&sent.sequence));
    }

    /// Returns how many deletions the present change waits for, counted from the first one of the
    /// log: all that have been queued, if the table does not have it.
    pub(super) fn deletions(&mut self, now: Instant, catalog: &Catalog) -> u64 {
        let queued = catalog.deletions_queued();
        let Some((client, sequence)) = self.present.filter(|_| catalog.reaping_count() > 0) else {
            return queued;
        };
        if let Some(deletions) = self.clients.get(&client).and_then(|it| it.get(&sequence)) {
            return *deletions;
        }
        if self.has_place(now, client, catalog) {
            self.clients.entry(client).or_default();
            self.update(client, |waits| waits.insert(sequence, queued));
        }
        queued
    }

    /// Returns whether there is a place for one more change of a client. Cost: logarithmic, beside
    /// a search of the table, at most once in [`SEARCH_INTERVAL`].
    fn has_place(&mut self, now: Instant, client: u64, catalog: &Catalog) -> bool {
        let is_full = self.count >= WAITS_MAX || self.count_of(client) >= CLIENT_WAITS_MAX;
        if is_full && now >= self.search_at {
            self.search_at = now + SEARCH_INTERVAL;
            for client in self.clients.keys().copied().collect::<Vec<_>>() {
                let waits = |it| catalog.has_client(client) && catalog.is_freeing_one_of(it);
                self.update(client, |of_client| of_client.retain(|_, it| waits(*it)));
            }
        }
        let own = self.count_of(client);
        if own >= CLIENT_WAITS_MAX || self.count < WAITS_MAX {
            return own < CLIENT_WAITS_MAX;
        }
        let Some((_, other)) = self.by_count.last().copied().filter(|it| it.0 > own + 1) else {
            return false;
        };
        // The latest one: if each gave its place up in turn, none would come to its end.
        self.update(other, |waits| waits.pop_last());
        true
    }

    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    fn count_of(&self, client: u64) -> usize {
        self.clients.get(&client).map_or(0, BTreeMap::len)
    }

    /// Changes what is in the table of a client, and counts it anew.
    fn update<T>(&mut self, client: u64, change: impl FnOnce(&mut BTreeMap<u64, u64>) -> T) {
        let Some(waits) = self.clients.get_mut(&client) else { return };
        let before = waits.len();
        change(waits);
        let after = waits.len();
        self.count = self.count + after - before;
        self.by_count.remove(&(before, client));
        if after == 0 {
            self.clients.remove(&client);
        } else {
            self.by_count.insert((after, client));
        }
    }
}
