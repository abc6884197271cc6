//! All durable directories, which nodes reach their stores, and which bytes are in stores only.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;

use sanderling_protocol::{Instant, NodeId, ObjectId};
use serde::{Deserialize, Serialize};

use super::durable_queue::{DurableDirectory, StoreEntry};
use super::durable_wanted::{WantedObjects, WantedOfDirectory};

/// All durable directories, and which nodes reach which stores.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Durables {
    directories: BTreeMap<ObjectId, DurableDirectory>,
    stores: BTreeMap<NodeId, Vec<String>>,
    /// Objects of which bytes are in their stores only, and how many.
    restoring: BTreeMap<ObjectId, u64>,
    /// Those of them that are to be read back: a node was lost that had them, or a reader came.
    wanted: BTreeSet<ObjectId>,
    /// What lost its name in the present command, to be noted after what gets one.
    #[serde(skip)]
    deferred: Option<Vec<StoreEntry>>,
    /// Of those that are to be read back, the directories and why. Made anew when a snapshot is
    /// read.
    #[serde(skip)]
    by_directory: WantedObjects,
}

/// The directories.
impl Durables {
    /// Returns whether nothing is durable: then no object's way up has to be looked at.
    pub(super) fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }

    /// Returns how many directories are durable.
    pub(super) fn len(&self) -> usize {
        self.directories.len()
    }

    /// Returns whether a directory is durable.
    pub(super) fn contains(&self, id: ObjectId) -> bool {
        self.directories.contains_key(&id)
    }

    /// Returns a durable directory.
    pub(super) fn get(&self, id: ObjectId) -> Option<&DurableDirectory> {
        self.directories.get(&id)
    }

    /// Returns a durable directory, to be changed.
    pub(super) fn get_mut(&mut self, id: ObjectId) -> Option<&mut DurableDirectory> {
        self.directories.get_mut(&id)
    }

    /// Returns the durable directories, with their objects.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ObjectId, &DurableDirectory)> {
        self.directories.iter().map(|(id, durable)| (*id, durable))
    }

    /// Returns the directory that a store has, if it has one.
    pub(super) fn of_store(&self, store: &str) -> Option<ObjectId> {
        self.iter().find(|(_, durable)| durable.store == store).map(|(id, _)| id)
    }

    /// Makes a directory durable.
    pub(super) fn insert(&mut self, id: ObjectId, durable: DurableDirectory) {
        let before = self.directories.insert(id, durable);
        debug_assert!(before.is_none(), "a durable directory was made durable again");
    }

    /// Forgets a durable directory that is deleted. Returns what waited for its store.
    pub(super) fn remove(&mut self, id: ObjectId) -> Option<DurableDirectory> {
        self.directories.remove(&id)
    }

    /// Keeps what loses its name from now on, until [`Self::take_deferred`].
    pub(super) fn defer(&mut self) {
        self.deferred = Some(Vec::new());
    }

    /// Keeps what loses its name, if that is deferred; else returns it.
    pub(super) fn unless_deferred(&mut self, left: StoreEntry) -> Option<StoreEntry> {
        let Some(deferred) = &mut self.deferred else { return Some(left) };
        deferred.push(left);
        None
    }

    /// Returns what has lost its name since [`Self::defer`].
    pub(super) fn take_deferred(&mut self) -> Vec<StoreEntry> {
        self.deferred.take().unwrap_or_default()
    }

    /// Appends each contradiction between the directories and what is to be read back from their
    /// stores to `problems`.
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        self.directories.values().for_each(|durable| durable.check(problems));
        if self.wanted.iter().any(|id| !self.restoring.contains_key(id)) {
            problems.push("an object is to be read back of which all bytes are here".to_owned());
        }
        let mut wanted = self.by_directory.directories().flat_map(|(_, it)| it.objects());
        if wanted.any(|id| !self.wanted.contains(&id)) {
            problems.push("an object is read back for its directory only".to_owned());
        }
    }
}

/// The nodes that reach stores.
impl Durables {
    /// Notes which stores a datanode reaches.
    pub(super) fn set_stores(&mut self, node: NodeId, stores: &[String]) {
        if stores.is_empty() {
            self.stores.remove(&node);
        } else {
            self.stores.insert(node, stores.to_vec());
        }
    }

    /// Returns whether a node has reported these stores.
    pub(super) fn has_stores(&self, node: NodeId, stores: &[String]) -> bool {
        self.stores.get(&node).map_or(stores.is_empty(), |known| known == stores)
    }

    /// Forgets the stores of a node that is gone.
    pub(super) fn forget_stores(&mut self, node: NodeId) {
        self.stores.remove(&node);
    }

    /// Returns the nodes that reach any store, with their stores.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (NodeId, &[String])> {
        self.stores.iter().map(|(node, stores)| (*node, stores.as_slice()))
    }

    /// Returns whether a node that is present reaches a store of this name.
    pub(super) fn is_reached(&self, store: &str) -> bool {
        self.stores.values().flatten().any(|name| name == store)
    }
}

/// The objects of which bytes are in their stores only.
impl Durables {
    /// Returns whether any object has bytes in its store only.
    pub(super) fn is_restoring_any(&self) -> bool {
        !self.restoring.is_empty()
    }

    /// Returns whether bytes of an object are in its store only.
    pub(super) fn is_restoring(&self, id: ObjectId) -> bool {
        self.restoring.contains_key(&id)
    }

    /// Returns how many bytes of an object are in its store only.
    pub(super) fn restoring_bytes(&self, id: ObjectId) -> u64 {
        self.restoring.get(&id).copied().unwrap_or_default()
    }

    /// Returns the objects of which bytes are in their stores only, and how many.
    pub(super) fn restoring(&self) -> impl Iterator<Item = (ObjectId, u64)> {
        self.restoring.iter().map(|(id, bytes)| (*id, *bytes))
    }

    /// Notes that an object was adopted, whose bytes no node has had.
    pub(super) fn adopt(&mut self, id: ObjectId, bytes: u64) {
        self.restoring.insert(id, bytes);
    }

    /// Notes that an object in a directory has lost bytes with a node, which are read back.
    pub(super) fn lose(&mut self, directory: ObjectId, id: ObjectId, bytes: u64) {
        *self.restoring.entry(id).or_default() += bytes;
        self.wanted.insert(id);
        self.by_directory.lost(directory, id);
    }

    /// Notes that a reader came of an object in a directory, whose bytes are in its store only.
    pub(super) fn read(&mut self, directory: ObjectId, id: ObjectId, now: Instant) {
        debug_assert!(self.is_restoring(id), "what is here is not read back");
        self.wanted.insert(id);
        self.by_directory.read(directory, id, now);
    }

    /// Notes that bytes of an object were read back.
    pub(super) fn restored(&mut self, id: ObjectId, bytes: u64) {
        let Some(left) = self.restoring.get_mut(&id) else { return };
        *left -= bytes;
        if *left == 0 {
            self.forget_object(id);
        }
    }

    /// Notes that a lost block of an object is freed. Returns whether its bytes were in a store
    /// only: then they were not counted as lost.
    pub(super) fn free_stored(&mut self, id: ObjectId, bytes: u64) -> bool {
        let Some(left) = self.restoring.get_mut(&id) else { return false };
        *left -= bytes;
        true
    }

    /// Forgets an object that is deleted, or has no bytes in its store only any more.
    pub(super) fn forget_object(&mut self, id: ObjectId) {
        self.restoring.remove(&id);
        if self.wanted.remove(&id) {
            self.by_directory.forget(id);
        }
    }

    /// Returns the objects that are to be read back.
    pub(super) fn wanted(&self) -> impl Iterator<Item = ObjectId> {
        self.wanted.iter().copied()
    }

    /// Returns the directories with the objects that are read back of each now, and why.
    pub(super) fn wanted_by_directory(
        &self,
    ) -> impl Iterator<Item = (&ObjectId, &WantedOfDirectory)> {
        self.by_directory.directories()
    }

    /// Returns whether a reader of an object that comes now need not be logged.
    pub(super) fn is_noted(&self, id: ObjectId, now: Instant) -> bool {
        self.by_directory.is_noted(id, now)
    }

    /// Forgets readers that are gone: see [`WantedObjects::purge`].
    pub(super) fn purge_readers(&mut self, now: Instant) {
        self.by_directory.purge(now);
    }

    /// Sets what a snapshot leaves out.
    pub(super) fn restore(&mut self, by_directory: WantedObjects) {
        self.by_directory = by_directory;
    }
}

impl Index<&ObjectId> for Durables {
    type Output = DurableDirectory;

    fn index(&self, id: &ObjectId) -> &DurableDirectory {
        &self.directories[id]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: ObjectId = ObjectId(2);
    const OBJECT: ObjectId = ObjectId(7);

    fn problems(durables: &Durables) -> Vec<String> {
        let mut problems = Vec::new();
        durables.check(&mut problems);
        problems
    }

    #[test]
    fn object_is_forgotten_with_the_last_byte_that_was_read_back() {
        let mut durables = Durables::default();
        durables.lose(DIRECTORY, OBJECT, 100);
        durables.lose(DIRECTORY, OBJECT, 20);
        assert_eq!((durables.restoring_bytes(OBJECT), problems(&durables).len()), (120, 0));
        durables.restored(OBJECT, 100);
        assert!(durables.is_restoring(OBJECT) && !durables.is_noted(OBJECT, Instant(0)));
        durables.restored(OBJECT, 20);
        assert_eq!(durables, Durables::default());
        assert_eq!(durables.wanted_by_directory().count(), 0);
    }

    #[test]
    fn wanted_object_with_all_bytes_here_is_a_problem() {
        let mut durables = Durables::default();
        durables.lose(DIRECTORY, OBJECT, 100);
        durables.restoring.clear();
        assert_eq!(problems(&durables).len(), 1);
        durables.wanted.clear();
        assert_eq!(problems(&durables), ["an object is read back for its directory only"]);
    }

    #[test]
    fn name_that_goes_is_kept_only_while_that_is_deferred() {
        let left = StoreEntry { directory: DIRECTORY, key: "a".to_owned(), is_tree: false };
        let mut durables = Durables::default();
        assert_eq!(durables.unless_deferred(left.clone()), Some(left.clone()));
        durables.defer();
        assert_eq!(durables.unless_deferred(left.clone()), None);
        assert_eq!(durables.take_deferred(), std::slice::from_ref(&left));
        assert_eq!(durables.unless_deferred(left.clone()), Some(left));
    }
}
