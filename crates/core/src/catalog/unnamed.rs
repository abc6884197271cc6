//! Objects that are written and get their name by their seal.
//!
//! No list of a container has them. So that they keep their directory, the catalog counts them by
//! container. The counts follow from the objects and are made anew when a snapshot is read.

use std::collections::BTreeMap;

use sanderling_protocol::ObjectId;

/// How many objects will be named in each container, where any will be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unnamed(BTreeMap<ObjectId, u64>);

impl Unnamed {
    /// Counts objects by the containers in which they will be named.
    pub(super) fn of(containers: impl Iterator<Item = ObjectId>) -> Self {
        let mut unnamed = Self::default();
        containers.for_each(|container| unnamed.add(container));
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

    /// Notes that such an object gets its name, or goes without one.
    pub(super) fn remove(&mut self, container: ObjectId) {
        let Some(count) = self.0.get_mut(&container) else { return };
        *count -= 1;
        if *count == 0 {
            self.0.remove(&container);
        }
    }
}
