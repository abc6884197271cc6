//! Files that are appended to.
//!
//! An append that ends with bytes missing refuses its own bytes only: what the file had before is
//! declared lost already.

use std::collections::BTreeMap;

use sanderling_protocol::ObjectId;
use serde::{Deserialize, Serialize};

use super::object::{Object, Objects};

/// The bytes that each file had before its present append.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Appends(BTreeMap<ObjectId, u64>);

impl Appends {
    /// Notes that an append to a file of so many bytes begins.
    pub(super) fn begin(&mut self, id: ObjectId, bytes: u64) {
        self.0.insert(id, bytes);
    }

    /// Returns where in an object the bytes of its writer begin: at 0 unless it is appended to.
    pub(super) fn begun_at(&self, id: ObjectId) -> u64 {
        self.0.get(&id).copied().unwrap_or_default()
    }

    /// Notes that an object is written no more.
    pub(super) fn end(&mut self, id: ObjectId) {
        self.0.remove(&id);
    }

    /// Adds which appends have no writer.
    pub(super) fn check(&self, objects: &Objects, problems: &mut Vec<String>) {
        for id in self.0.keys() {
            let data = objects.get(id).and_then(Object::data);
            if data.is_none_or(|data| data.lease.is_none()) {
                problems.push(format!("object {id} is appended to and has no writer"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_begins_behind_the_bytes_of_before_until_it_ends() {
        let (file, other) = (ObjectId(7), ObjectId(8));
        let mut appends = Appends::default();
        appends.begin(file, 4096);
        assert_eq!((appends.begun_at(file), appends.begun_at(other)), (4096, 0));
        let mut problems = Vec::new();
        appends.check(&Objects::new(), &mut problems);
        assert_eq!(problems, ["object 7 is appended to and has no writer"]);
        appends.end(file);
        assert_eq!(appends, Appends::default());
    }
}
