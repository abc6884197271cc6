//! Attributes: texts by name that applications keep with objects.
//!
//! They are in a map of their own, so that an object without attributes costs nothing for them.

use sanderling_protocol::ObjectId;
use sanderling_protocol::message::Attributes;
use serde::{Deserialize, Serialize};

use super::id_map::IdMap;
use super::job_limits::attribute_bytes;
use super::memory::of_attributes;
use super::object::Objects;

/// The attributes of the objects that have any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ObjectAttributes(IdMap<ObjectId, Attributes>);

impl ObjectAttributes {
    /// Returns the attributes of an object; `None` if it has none.
    pub(super) fn get(&self, id: ObjectId) -> Option<&Attributes> {
        self.0.get(&id)
    }

    /// Returns the attributes of an object, also if it has none.
    pub(super) fn of(&self, id: ObjectId) -> Attributes {
        self.get(id).cloned().unwrap_or_default()
    }

    /// Returns the bytes of an object's attributes, as the limits of a job count them.
    pub(super) fn bytes_of(&self, id: ObjectId) -> u64 {
        self.get(id).map_or(0, attribute_bytes)
    }

    /// Returns the memory that the attributes of an object take.
    pub(super) fn memory_of(&self, id: ObjectId) -> u64 {
        self.get(id).map_or(0, of_attributes)
    }

    /// Returns the attributes of every object.
    pub(super) fn values(&self) -> impl Iterator<Item = &Attributes> {
        self.0.values()
    }

    /// Sets the attributes of an object in place of all that it had.
    pub(super) fn set(&mut self, id: ObjectId, attributes: &Attributes) {
        if attributes.is_empty() {
            self.0.remove(&id);
        } else {
            self.0.insert(id, attributes.clone());
        }
    }

    /// Forgets an object that is gone.
    pub(super) fn forget(&mut self, id: ObjectId) {
        self.0.remove(&id);
    }

    /// Adds which attributes have no object.
    pub(super) fn check(&self, objects: &Objects, problems: &mut Vec<String>) {
        for id in self.0.keys().filter(|id| !objects.contains_key(id)) {
            problems.push(format!("object {id} has attributes and does not exist"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_without_attributes_takes_no_entry() {
        let mut attributes = ObjectAttributes::default();
        attributes.set(ObjectId(7), &Attributes::none());
        assert_eq!(attributes, ObjectAttributes::default());
        assert_eq!(attributes.of(ObjectId(7)), Attributes::none());
        assert_eq!((attributes.bytes_of(ObjectId(7)), attributes.memory_of(ObjectId(7))), (0, 0));
    }
}
