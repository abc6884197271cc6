//! Where a store has renamed objects, until it has them by their new names.
//!
//! A rename is a copy to the new name and a removal of the old one. Until the copy is in the store,
//! the store still has the same bytes by the old name: what a node loses meanwhile is read back
//! from there.

use sanderling_protocol::ObjectId;

use super::Catalog;
use super::durable_queue::StoredName;

impl Catalog {
    /// Returns, of the objects at and below one that is going to be renamed, the names by which
    /// their store has them as they are. `replaces`: whether another object has the new name. Cost:
    /// the depth of each object.
    pub(super) fn stored_names(&self, id: ObjectId, replaces: bool) -> Vec<(ObjectId, StoredName)> {
        let is_named = |(_, key): (ObjectId, String)| !key.is_empty();
        if !self.reaping.rules.keeps_stored_names() || !self.durable_at(id).is_some_and(is_named) {
            return Vec::new();
        }
        let stored = self.subtree(id).into_iter().filter(|id| self.is_in_store(*id));
        let name = |id| {
            let (directory, key) = self.durable_at(id)?;
            Some((id, StoredName { directory, key, replaces }))
        };
        stored.filter_map(name).collect()
    }

    /// Keeps the old names of renamed objects that wait for the same store now.
    pub(super) fn keep_stored_names(&mut self, names: Vec<(ObjectId, StoredName)>) {
        for (id, stored) in names {
            let is_same = |(directory, _): (ObjectId, String)| directory == stored.directory;
            if self.durable_at(id).is_some_and(is_same) && !self.is_in_store(id) {
                self.renamed.keep(id, stored);
            }
        }
    }

    /// Passes from the old name of an object, by which its store lacks it, to the new one: the
    /// store may have it by that before this is reported. Returns whether that is so.
    pub(super) fn passes_to_new_name(&mut self, id: ObjectId) -> bool {
        if !self.renamed.may_have_arrived(id) {
            return false;
        }
        match self.durable_at(id) {
            Some((_, key)) if self.reaping.rules.keeps_new_names() => self.renamed.pass_to(id, key),
            _ => {
                self.renamed.forget(id);
                true
            }
        }
    }

    /// Adds where the old names are not those of objects that wait.
    pub(super) fn check_renamed(&self, problems: &mut Vec<String>) {
        for (id, stored) in self.renamed.iter().filter(|(id, _)| !self.is_deleted(**id)) {
            let durable = self.durable_at(*id);
            let waits = durable.is_some_and(|(directory, key)| {
                let durable = &self.durables[&directory];
                directory == stored.directory && durable.is_pending(&key)
            });
            if !waits {
                problems
                    .push(format!("object {id} has an old name in its store and does not wait"));
            }
        }
    }
}
