//! Objects that are written and get their name by their seal.
//!
//! No list of a container has them. So that they keep their directory, the catalog counts them by
//! container. The counts follow from the objects and are made anew when a snapshot is read.

use std::collections::BTreeMap;

use sanderling_protocol::ObjectId;

use super::Catalog;
use super::object::{Object, ROOT};
use super::reap::NOWHERE;

impl Catalog {
    /// Tells whether a container holds nothing that its deletion would take from somebody.
    pub(super) fn is_empty_container(&self, id: ObjectId) -> bool {
        let is_awaited = self.keeps_open_directories() && self.unnamed.contains_key(&id);
        self.names.count(id) == 0 && !is_awaited
    }

    /// Notes that an object came that its seal will name.
    pub(super) fn awaits_name(&mut self, container: ObjectId) {
        *self.unnamed.entry(container).or_default() += 1;
    }

    /// Notes that an object gets its name, or goes without one.
    pub(super) fn awaits_no_name(&mut self, id: ObjectId) {
        let Some(container) = self.objects.get(&id).and_then(awaited_in) else { return };
        let Some(count) = self.unnamed.get_mut(&container) else { return };
        *count -= 1;
        if *count == 0 {
            self.unnamed.remove(&container);
        }
    }

    /// Returns the counts as they follow from the objects. Cost: linear in the objects.
    pub(super) fn derived_unnamed(&self) -> BTreeMap<ObjectId, u64> {
        let mut unnamed: BTreeMap<ObjectId, u64> = BTreeMap::new();
        let objects = self.objects.iter().filter(|(id, _)| *id != ROOT);
        for container in objects.filter_map(|(_, object)| awaited_in(object)) {
            *unnamed.entry(container).or_default() += 1;
        }
        unnamed
    }
}

/// Returns the container in which an object will be named; `None` if it is, or never will be.
fn awaited_in(object: &Object) -> Option<ObjectId> {
    let is_awaited = !object.is_bound && object.parent != NOWHERE && object.data().is_some();
    is_awaited.then_some(object.parent)
}
