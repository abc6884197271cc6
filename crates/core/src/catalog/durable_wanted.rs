//! Which objects are to be read back from their stores, by directory, and why each is.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::{Instant, Millis, ObjectId};

/// How long an object is read back after its last reader came, by the log's time. One that lost
/// bytes with a node is read back without a reader.
const READER_WAITS: Millis = Millis(60_000);

/// After this time a reader that still waits is logged again, so that it is not forgotten.
const READER_NOTED: Millis = Millis(20_000);

const _: () = assert!(READER_NOTED.0 < READER_WAITS.0);

/// The objects that are to be read back.
///
/// No part of a snapshot, and nothing that a command changes in the catalog depends on it: it
/// decides what a manager gets, and when a reader is logged again. When a snapshot is read it is
/// derived, and readers count as if they came then.
#[derive(Debug, Clone, Default)]
pub(super) struct WantedObjects {
    directories: BTreeMap<ObjectId, WantedOfDirectory>,
    purged_at: Instant,
}

/// The objects of one durable directory that are to be read back.
#[derive(Debug, Clone, Default)]
pub(super) struct WantedOfDirectory {
    /// Those that lost bytes with a node.
    lost: BTreeSet<ObjectId>,
    /// When their last readers came.
    readers: BTreeMap<ObjectId, Instant>,
}

impl WantedOfDirectory {
    /// Returns the objects that readers wait for.
    pub(super) fn read(&self, now: Instant) -> impl Iterator<Item = ObjectId> {
        let waits = move |it: &(&ObjectId, &Instant)| *it.1 + READER_WAITS > now;
        self.readers.iter().filter(waits).map(|(id, _)| *id)
    }

    /// Returns the objects that lost bytes with a node, and that no reader waits for.
    pub(super) fn lost(&self, now: Instant) -> impl Iterator<Item = ObjectId> {
        self.lost.iter().copied().filter(move |id| !self.has_reader(*id, now, READER_WAITS))
    }

    /// Returns all of them; those that lost bytes and had a reader, twice.
    pub(super) fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.lost.iter().chain(self.readers.keys()).copied()
    }

    fn has_reader(&self, id: ObjectId, now: Instant, span: Millis) -> bool {
        self.readers.get(&id).is_some_and(|at| *at + span > now)
    }

    fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.readers.is_empty()
    }
}

/// The times of readers are no state of the catalog: in one that was restored they differ.
impl PartialEq for WantedObjects {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for WantedObjects {}

impl WantedObjects {
    /// Notes that an object lost bytes with a node.
    pub(super) fn lost(&mut self, directory: ObjectId, id: ObjectId) {
        self.directories.entry(directory).or_default().lost.insert(id);
    }

    /// Notes that a reader of an object came.
    pub(super) fn read(&mut self, directory: ObjectId, id: ObjectId, now: Instant) {
        self.directories.entry(directory).or_default().readers.insert(id, now);
    }

    /// Returns whether a reader of an object was logged so recently that one that comes at `now`
    /// need not be.
    pub(super) fn is_noted(&self, id: ObjectId, now: Instant) -> bool {
        self.directories.values().any(|wanted| wanted.has_reader(id, now, READER_NOTED))
    }

    /// Returns the durable directories with what is wanted of each.
    pub(super) fn directories(&self) -> impl Iterator<Item = (&ObjectId, &WantedOfDirectory)> {
        self.directories.iter()
    }

    /// Forgets an object of which nothing is to be read back any more.
    pub(super) fn forget(&mut self, id: ObjectId) {
        for wanted in self.directories.values_mut() {
            wanted.lost.remove(&id);
            wanted.readers.remove(&id);
        }
        self.directories.retain(|_, wanted| !wanted.is_empty());
    }

    /// Forgets readers that are gone. Cost: linear in the objects that had one, once in
    /// [`READER_WAITS`].
    pub(super) fn purge(&mut self, now: Instant) {
        if self.purged_at + READER_WAITS > now {
            return;
        }
        self.purged_at = now;
        for wanted in self.directories.values_mut() {
            wanted.readers.retain(|_, at| *at + READER_WAITS > now);
        }
        self.directories.retain(|_, wanted| !wanted.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: ObjectId = ObjectId(2);
    const OBJECT: ObjectId = ObjectId(7);

    const LOST: ObjectId = ObjectId(8);

    /// Returns what readers wait for, and what else lost bytes.
    fn wanted_at(wanted: &WantedObjects, now: Instant) -> (Vec<ObjectId>, Vec<ObjectId>) {
        let found = wanted.directories().next().map(|(_, it)| it);
        let read = found.into_iter().flat_map(|it| it.read(now)).collect();
        (read, found.into_iter().flat_map(|it| it.lost(now)).collect())
    }

    #[test]
    fn reader_is_forgotten_and_a_loss_is_not() {
        let now = Instant(5_000_000);
        let mut wanted = WantedObjects::default();
        wanted.lost(DIRECTORY, LOST);
        assert_eq!(wanted_at(&wanted, now), (vec![], vec![LOST]));
        assert!(!wanted.is_noted(LOST, now));
        wanted.read(DIRECTORY, OBJECT, now);
        wanted.read(DIRECTORY, LOST, now);
        wanted.lost(DIRECTORY, LOST);
        assert_eq!(wanted_at(&wanted, now), (vec![OBJECT, LOST], vec![]));
        for id in [OBJECT, LOST] {
            assert!(wanted.is_noted(id, now) && !wanted.is_noted(id, now + READER_NOTED));
        }
        assert_eq!(wanted_at(&wanted, now + READER_NOTED), (vec![OBJECT, LOST], vec![]));
        let later = now + READER_WAITS;
        assert_eq!(wanted_at(&wanted, later), (vec![], vec![LOST]));
        wanted.purge(later);
        wanted.forget(LOST);
        assert_eq!(wanted.directories().count(), 0);
    }
}
