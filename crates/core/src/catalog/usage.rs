//! What a subtree holds, counted a part at a time.

use sanderling_protocol::ObjectId;
use sanderling_protocol::message::Usage;

use super::names::{Names, WalkCursor};
use super::object::{ObjectBody, Objects};

/// A walk over a subtree that is made in steps, between which the catalog may change. What is
/// created, deleted or moved meanwhile is counted or not; what is moved may be counted twice.
#[derive(Debug)]
pub(crate) struct UsageWalk {
    usage: Usage,
    /// Containers that are not walked to their end, and how far each is. The last one is next, so
    /// a step adds no more of them than it has entries.
    open: Vec<(ObjectId, WalkCursor)>,
}

impl UsageWalk {
    /// Begins to sum up the subtree of an object, itself among it.
    pub(super) fn new(root: ObjectId, objects: &Objects, names: &Names) -> Self {
        let mut walk = Self { usage: Usage::default(), open: Vec::new() };
        walk.count(root, objects, names);
        walk
    }

    /// Goes on by at most so many entries, one at least; takes from `entries` what it visited.
    /// Returns the sum when the walk is over.
    pub(super) fn step(
        &mut self,
        objects: &Objects,
        names: &Names,
        entries: &mut usize,
    ) -> Option<Usage> {
        while let Some((container, mut place)) = self.open.pop() {
            if *entries == 0 {
                self.open.push((container, place));
                return None;
            }
            let most = *entries;
            let children = names.children_from(objects, container, &place);
            let children: Vec<ObjectId> = children.take(most).collect();
            *entries -= children.len();
            if let Some(last) = children.last().filter(|_| children.len() == most) {
                let last = &objects[last];
                place = WalkCursor::after(last.is_listed, last.name.as_str());
                self.open.push((container, place));
            }
            for child in children {
                self.count(child, objects, names);
            }
        }
        Some(self.usage)
    }

    fn count(&mut self, id: ObjectId, objects: &Objects, names: &Names) {
        match &objects[&id].body {
            ObjectBody::Container(_) => {
                self.usage.directories += 1;
                if names.count(id) > 0 {
                    self.open.push((id, WalkCursor::default()));
                }
            }
            ObjectBody::Data(data) => {
                self.usage.files += 1;
                self.usage.bytes += data.bytes;
                self.usage.lost_bytes += data.lost_bytes;
            }
        }
    }
}
