//! Which objects are to be read back from their stores, by directory, and why each is.

use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis, ObjectId};

/// How long an object is read back after its last reader came, by the log's time. One that lost
/// bytes with a node is read back without a reader.
const READER_WAITS: Millis = Millis(60_000);

/// After this time a reader that still waits is logged again, so that it is not forgotten.
const READER_NOTED: Millis = Millis(20_000);

const _: () = assert!(READER_NOTED.0 < READER_WAITS.0);

/// Why an object is read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WantedBy {
    /// A node was lost that had bytes of it.
    Loss,
    /// Its last reader came then.
    Reader(Instant),
}

impl WantedBy {
    /// Returns whether the object is still to be read back.
    pub(super) fn holds(self, now: Instant) -> bool {
        self.is_within(now, READER_WAITS)
    }

    /// Returns whether a reader that comes now need not be logged.
    pub(super) fn is_noted(self, now: Instant) -> bool {
        self.is_within(now, READER_NOTED)
    }

    fn is_within(self, now: Instant, span: Millis) -> bool {
        match self {
            Self::Loss => true,
            Self::Reader(at) => at + span > now,
        }
    }
}

/// The objects that are to be read back.
///
/// No part of a snapshot, and nothing that a command changes in the catalog depends on it: it
/// decides what a manager gets, and when a reader is logged again. When a snapshot is read it is
/// derived, and readers count as if they came then.
#[derive(Debug, Clone, Default)]
pub(super) struct WantedObjects {
    directories: BTreeMap<ObjectId, BTreeMap<ObjectId, WantedBy>>,
    purged_at: Instant,
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
        self.directories.entry(directory).or_default().insert(id, WantedBy::Loss);
    }

    /// Notes that a reader of an object came.
    pub(super) fn read(&mut self, directory: ObjectId, id: ObjectId, now: Instant) {
        let wanted = self.directories.entry(directory).or_default();
        let wanted = wanted.entry(id).or_insert(WantedBy::Reader(now));
        if *wanted != WantedBy::Loss {
            *wanted = WantedBy::Reader(now);
        }
    }

    pub(super) fn get(&self, id: ObjectId) -> Option<WantedBy> {
        self.directories.values().find_map(|wanted| wanted.get(&id)).copied()
    }

    /// Returns the durable directories with what is wanted of each.
    pub(super) fn directories(
        &self,
    ) -> impl Iterator<Item = (&ObjectId, &BTreeMap<ObjectId, WantedBy>)> {
        self.directories.iter()
    }

    /// Forgets an object of which nothing is to be read back any more.
    pub(super) fn forget(&mut self, id: ObjectId) {
        for wanted in self.directories.values_mut() {
            wanted.remove(&id);
        }
        self.directories.retain(|_, wanted| !wanted.is_empty());
    }

    /// Forgets objects whose readers are gone. Cost: linear in the objects, once in
    /// [`READER_WAITS`].
    pub(super) fn purge(&mut self, now: Instant) {
        if self.purged_at + READER_WAITS > now {
            return;
        }
        self.purged_at = now;
        for wanted in self.directories.values_mut() {
            wanted.retain(|_, wanted| wanted.holds(now));
        }
        self.directories.retain(|_, wanted| !wanted.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: ObjectId = ObjectId(2);
    const OBJECT: ObjectId = ObjectId(7);

    #[test]
    fn reader_is_forgotten_and_a_loss_is_not() {
        let now = Instant(5_000_000);
        let mut wanted = WantedObjects::default();
        wanted.read(DIRECTORY, OBJECT, now);
        wanted.lost(DIRECTORY, ObjectId(8));
        wanted.read(DIRECTORY, ObjectId(8), now);
        let [read, lost] = [OBJECT, ObjectId(8)].map(|id| wanted.get(id).expect("it is wanted"));
        assert_eq!((read, lost), (WantedBy::Reader(now), WantedBy::Loss));
        assert!(read.holds(now) && read.is_noted(now));
        assert!(read.holds(now + READER_NOTED) && !read.is_noted(now + READER_NOTED));
        let later = now + READER_WAITS;
        assert!(!read.holds(later) && lost.holds(later) && lost.is_noted(later));
        wanted.purge(later);
        assert_eq!((wanted.get(OBJECT), wanted.get(ObjectId(8))), (None, Some(WantedBy::Loss)));
        wanted.forget(ObjectId(8));
        assert_eq!(wanted.directories().count(), 0);
    }
}
