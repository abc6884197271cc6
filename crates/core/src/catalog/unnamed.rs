//! Objects that are written and get their name by their seal.
//!
//! No list of a container has them. So that they keep their directory, the catalog counts them by
//! container. The counts follow from the objects and are made anew when a snapshot is read.

use std::collections::BTreeMap;

use sanderling_protocol::ObjectId;

use super::object::{NOWHERE, Object, Objects, ROOT};

/// How many objects will be named in each container, where any will be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unnamed(BTreeMap<ObjectId, u64>);

impl Unnamed {
    /// Returns the counts as they follow from the objects. Cost: linear in the objects.
    pub(super) fn of(objects: &Objects) -> Self {
        let mut unnamed = Self::default();
        let others = objects.iter().filter(|(id, _)| *id != ROOT);
        others.filter_map(|(_, object)| awaited_in(object)).for_each(|it| unnamed.add(it));
        unnamed
    }

    /// Returns whether an object will be named in a container.
    pub(super) fn has(&self, container: ObjectId) -> bool {
        self.0.contains_key(&container)
    }

    /// Notes that an object came that its seal will name.
    pub(super) fn add(&mut self, container: ObjectId) {
        *self.0.entry(container).or_default() += 1;
    }

    /// Notes that an object gets its name, or goes without one, if it was to get one.
    pub(super) fn remove(&mut self, object: &Object) {
        let Some(container) = awaited_in(object) else { return };
        let Some(count) = self.0.get_mut(&container) else { return };
        *count -= 1;
        if *count == 0 {
            self.0.remove(&container);
        }
    }

    /// Adds where the counts are not what follows from the objects.
    pub(super) fn check(&self, objects: &Objects, problems: &mut Vec<String>) {
        if *self != Self::of(objects) {
            problems.push("the counts of objects without a name are not what there is".to_owned());
        }
    }
}

/// Returns the container in which an object will be named; `None` if it is, or never will be.
fn awaited_in(object: &Object) -> Option<ObjectId> {
    let is_awaited = !object.is_bound && object.parent != NOWHERE && object.data().is_some();
    is_awaited.then_some(object.parent)
}
