//! What a subtree holds, counted a part at a time.

use sanderling_protocol::message::Usage;
use sanderling_protocol::{ObjectId, Path, Refusal};

use super::Catalog;
use super::names::WalkCursor;
use super::object::ObjectBody;

/// A walk over a subtree that is made in steps, between which the catalog may change. What is
/// created, deleted or moved meanwhile is counted or not; what is moved may be counted twice.
#[derive(Debug)]
pub(crate) struct UsageWalk {
    usage: Usage,
    /// Containers that are not walked to their end, and how far each is. The last one is next, so
    /// a step adds no more of them than it has entries.
    open: Vec<(ObjectId, WalkCursor)>,
}

impl Catalog {
    /// Sums up a subtree, its root among it. Cost: linear in what is in it.
    pub(crate) fn usage(&self, path: &Path) -> Result<Usage, Refusal> {
        let mut walk = self.usage_walk(path)?;
        let mut all = usize::MAX;
        Ok(self.usage_step(&mut walk, &mut all).expect("no walk has so many entries"))
    }

    /// Begins to sum up a subtree, its root among it.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] and [`Refusal::NotADirectory`], as any call that takes a path.
    pub(crate) fn usage_walk(&self, path: &Path) -> Result<UsageWalk, Refusal> {
        let root = self.resolve(path)?;
        let mut walk = UsageWalk { usage: Usage::default(), open: Vec::new() };
        self.count_in(root, &mut walk);
        Ok(walk)
    }

    /// Goes on with a walk by at most so many entries, one at least; takes from `entries` what it
    /// visited. Returns the sum when the walk is over.
    pub(crate) fn usage_step(&self, walk: &mut UsageWalk, entries: &mut usize) -> Option<Usage> {
        while let Some((container, mut place)) = walk.open.pop() {
            if *entries == 0 {
                walk.open.push((container, place));
                return None;
            }
            let most = *entries;
            let children = self.names.children_from(&self.objects, container, &place);
            let children: Vec<ObjectId> = children.take(most).collect();
            *entries -= children.len();
            if let Some(last) = children.last().filter(|_| children.len() == most) {
                let last = &self.objects[last];
                place = WalkCursor::after(last.is_listed, last.name.as_str());
                walk.open.push((container, place));
            }
            for child in children {
                self.count_in(child, walk);
            }
        }
        Some(walk.usage)
    }

    fn count_in(&self, id: ObjectId, walk: &mut UsageWalk) {
        match &self.objects[&id].body {
            ObjectBody::Container(_) => {
                walk.usage.directories += 1;
                if self.names.count(id) > 0 {
                    walk.open.push((id, WalkCursor::default()));
                }
            }
            ObjectBody::Data(data) => {
                walk.usage.files += 1;
                walk.usage.bytes += data.bytes;
                walk.usage.lost_bytes += data.lost_bytes;
            }
        }
    }
}
