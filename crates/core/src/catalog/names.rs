//! The index of names, and the lists of the containers.
//!
//! Both follow from the objects, so a snapshot holds neither. The index finds an object by its
//! container and name in one step; it keeps ids alone and looks at the objects to compare. It is
//! never walked, so its order does not matter. What is walked is a sorted list per container.

use sanderling_protocol::ObjectId;

use super::id_map::IdMap;
use super::index::{Hash, Index};
use super::object::{Object, Objects, ROOT};

/// Ids of one run of a list: as many as are moved by an insertion in a fraction of a microsecond.
const RUN_IDS_MAX: usize = 256;

/// The names of all bound objects.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// Secret: a client that has it can choose names that collide.
    key: u64,
    index: Index,
    /// What is in the containers that are not empty.
    lists: IdMap<ObjectId, Children>,
}

/// What is in one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Children {
    listed: Sorted,
    unlisted: Sorted,
}

/// Ids in the order of their objects' names, in runs.
#[derive(Debug, Clone, Default)]
struct Sorted {
    runs: Vec<Vec<ObjectId>>,
    length: usize,
    /// Run of the last insertion that needed a search, and its place there; perhaps out of date.
    last: (usize, usize),
}

/// How far a walk over what a container holds has come. Names are kept, not places in lists: lists
/// change between the steps of a walk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WalkCursor {
    /// Whether what the container lists is behind.
    is_past_listed: bool,
    /// The last name; empty before the first.
    after: String,
}

impl WalkCursor {
    /// Returns the place behind an object, by whether its container lists it and by its name.
    pub(crate) fn after(is_listed: bool, name: &str) -> Self {
        Self { is_past_listed: !is_listed, after: name.to_owned() }
    }
}

impl Names {
    pub(crate) const fn new(key: u64) -> Self {
        Self { key, index: Index::new(), lists: IdMap::new() }
    }

    /// Makes the names of all bound objects anew. Cost: linear in the objects.
    pub(crate) fn of(key: u64, objects: &Objects) -> Self {
        let mut names = Self::new(key);
        let bound = objects.iter().filter(|(id, object)| object.is_bound && *id != ROOT);
        // The container that a damaged catalog names may have any number: its check finds that.
        let bound = bound.filter(|(_, object)| objects.reaches(object.parent));
        for (id, object) in bound {
            names.bind(objects, id, object);
        }
        names
    }

    /// Returns no names, with the same key.
    pub(crate) const fn emptied(&self) -> Self {
        Self::new(self.key)
    }

    /// Returns the names of other objects under the same key. Cost: linear in the objects.
    pub(crate) fn anew(&self, objects: &Objects) -> Self {
        Self::of(self.key, objects)
    }

    /// Finds an object by its container and name.
    pub(crate) fn find(
        &self,
        objects: &Objects,
        container: ObjectId,
        name: &[u8],
    ) -> Option<ObjectId> {
        self.find_hashed(objects, container, name, self.hash(container, name))
    }

    /// Hashes a name for [`Names::find_hashed`].
    pub(crate) fn hash(&self, container: ObjectId, name: &[u8]) -> Hash {
        Hash::of(self.key, container, name)
    }

    /// Finds an object whose name was hashed already.
    pub(crate) fn find_hashed(
        &self,
        objects: &Objects,
        container: ObjectId,
        name: &[u8],
        hash: Hash,
    ) -> Option<ObjectId> {
        self.index.find(hash, |id| {
            let object = &objects[&id];
            object.parent == container && object.name.as_bytes() == name
        })
    }

    /// Returns the object that most likely has a name, by its hash alone.
    pub(crate) fn guess(&self, hash: Hash) -> Option<ObjectId> {
        self.index.find(hash, |_| true)
    }

    /// Adds an object of the map under the name that it has there, which is free.
    pub(crate) fn bind(&mut self, objects: &Objects, id: ObjectId, object: &Object) {
        self.index.insert(self.hash(object.parent, object.name.as_bytes()), id);
        if !self.lists.contains_key(&object.parent) {
            self.lists.insert(object.parent, Children::default());
        }
        let children = self.lists.get_mut(&object.parent).expect("there is one now");
        children.of(object.is_listed).insert(objects, id);
    }

    /// Removes an object from its container and from the index. The object itself stays in
    /// `objects`, with the name that it had.
    pub(crate) fn unbind(&mut self, objects: &Objects, id: ObjectId, object: &Object) {
        self.forget(id, object);
        let Some(children) = self.lists.get_mut(&object.parent) else { return };
        children.of(object.is_listed).remove(objects, id);
        if children.len() == 0 {
            self.lists.remove(&object.parent);
        }
    }

    /// Takes an object out of the index, when its container goes with it.
    pub(crate) fn forget(&mut self, id: ObjectId, object: &Object) {
        self.index.remove(self.hash(object.parent, object.name.as_bytes()), id);
    }

    /// Forgets what a container that goes held.
    pub(crate) fn close(&mut self, container: ObjectId) {
        self.lists.remove(&container);
    }

    /// Returns how many objects a container holds.
    pub(crate) fn count(&self, container: ObjectId) -> usize {
        self.lists.get(&container).map_or(0, Children::len)
    }

    /// Returns what a container holds: what it lists in the order of the names, then the rest.
    pub(crate) fn children(&self, container: ObjectId) -> impl Iterator<Item = ObjectId> {
        let children = self.lists.get(&container).into_iter();
        children.flat_map(|it| it.listed.iter().chain(it.unlisted.iter()))
    }

    /// Returns something that a container holds: what costs least to take out of it.
    pub(crate) fn last_child(&self, container: ObjectId) -> Option<ObjectId> {
        let children = self.lists.get(&container)?;
        children.unlisted.last().or_else(|| children.listed.last())
    }

    /// Returns what a container lists after a name, in the order of the names.
    pub(crate) fn listed_after(
        &self,
        objects: &Objects,
        container: ObjectId,
        after: &str,
    ) -> impl Iterator<Item = ObjectId> {
        let children = self.lists.get(&container).into_iter();
        children.flat_map(move |it| it.listed.after(objects, after.as_bytes()))
    }

    /// Returns what a container holds from a place on: the rest of what it lists in the order of
    /// the names, then the rest of what it does not.
    pub(crate) fn children_from(
        &self,
        objects: &Objects,
        container: ObjectId,
        place: &WalkCursor,
    ) -> impl Iterator<Item = ObjectId> {
        let after = |is_here: bool| if is_here { place.after.as_bytes() } else { &[][..] };
        let unlisted = after(place.is_past_listed);
        let listed = (!place.is_past_listed).then(|| after(true));
        self.lists.get(&container).into_iter().flat_map(move |it| {
            let listed = listed.into_iter().flat_map(|after| it.listed.after(objects, after));
            listed.chain(it.unlisted.after(objects, unlisted))
        })
    }

    /// Adds where names and objects disagree. Cost: linear in the objects.
    pub(super) fn check(&self, objects: &Objects, problems: &mut Vec<String>) {
        let mut bound = 0;
        for (id, object) in objects.iter() {
            let named = self.find(objects, object.parent, object.name.as_bytes()) == Some(id);
            if id != ROOT && named != object.is_bound {
                problems.push(format!("object {id} and its container disagree about its name"));
            }
            bound += usize::from(id != ROOT && object.is_bound);
            for child in self.children(id) {
                if objects.get(&child).is_none_or(|child| child.parent != id) {
                    problems.push(format!("container {id} names object {child} of another one"));
                }
            }
        }
        let names = self.len();
        if bound != names {
            problems.push(format!("{bound} objects have a name, {names} names are known"));
        }
    }

    /// Returns how many names there are.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }
}

impl PartialEq for Names {
    /// The index contains nothing that does not follow from the lists and the objects.
    fn eq(&self, other: &Self) -> bool {
        self.lists == other.lists
    }
}

impl Eq for Names {}

impl Children {
    const fn of(&mut self, is_listed: bool) -> &mut Sorted {
        if is_listed { &mut self.listed } else { &mut self.unlisted }
    }

    const fn len(&self) -> usize {
        self.listed.length + self.unlisted.length
    }
}

impl Sorted {
    fn iter(&self) -> impl Iterator<Item = ObjectId> {
        self.runs.iter().flatten().copied()
    }

    fn last(&self) -> Option<ObjectId> {
        self.runs.last().and_then(|run| run.last()).copied()
    }

    /// Returns the run and the place in it before which names are smaller than, or up to, `name`.
    fn place(&self, objects: &Objects, name: &[u8], and_equal: bool) -> (usize, usize) {
        let is_before = |id: &ObjectId| {
            let other = objects[id].name.as_bytes();
            other < name || (and_equal && other == name)
        };
        let after = self.runs.partition_point(|run| run.first().is_some_and(is_before));
        let run = after.saturating_sub(1);
        let at = self.runs.get(run).map_or(0, |run| run.partition_point(is_before));
        (run, at)
    }

    /// Returns the place behind the last insertion, if a name belongs there: of numbered names each
    /// mostly does, and two looks cost less than a search.
    fn next_to_last(&self, objects: &Objects, name: &[u8]) -> Option<(usize, usize)> {
        let (run, at) = self.last;
        let ids = self.runs.get(run)?;
        let [before, after] = [ids.get(at)?, ids.get(at + 1)?].map(|id| &objects[id].name);
        (before.as_bytes() < name && name < after.as_bytes()).then_some((run, at + 1))
    }

    fn after(&self, objects: &Objects, name: &[u8]) -> impl Iterator<Item = ObjectId> {
        let (run, at) = self.place(objects, name, true);
        let rest = self.runs.get(run).map_or(&[][..], |run| &run[at..]);
        let later = self.runs.get(run + 1..).unwrap_or_default();
        rest.iter().chain(later.iter().flatten()).copied()
    }

    fn insert(&mut self, objects: &Objects, id: ObjectId) {
        self.length += 1;
        let name = objects[&id].name.as_bytes();
        let last = self.runs.last().and_then(|run| run.last());
        if last.is_none_or(|last| objects[last].name.as_bytes() < name) {
            // Names that come in their order fill every run.
            match self.runs.last_mut().filter(|run| run.len() < RUN_IDS_MAX) {
                Some(run) => run.push(id),
                None => self.runs.push(vec![id]),
            }
            return;
        }
        let next = self.next_to_last(objects, name);
        let (run, at) = next.unwrap_or_else(|| self.place(objects, name, false));
        self.runs[run].insert(at, id);
        self.last = (run, at);
        if self.runs[run].len() > RUN_IDS_MAX {
            let upper = self.runs[run].split_off(RUN_IDS_MAX / 2);
            self.runs[run].shrink_to_fit();
            self.runs.insert(run + 1, upper);
        }
    }

    fn remove(&mut self, objects: &Objects, id: ObjectId) {
        if self.last() == Some(id) {
            self.take(self.runs.len() - 1, self.runs.last().map_or(0, |run| run.len() - 1), id);
            return;
        }
        let (run, at) = self.place(objects, objects[&id].name.as_bytes(), false);
        // At the border of two runs the place is behind the first, not in front of the second.
        let (run, at) = match self.runs.get(run) {
            Some(ids) if at == ids.len() => (run + 1, 0),
            _ => (run, at),
        };
        self.take(run, at, id);
    }

    /// Removes an id from its place, if it is there.
    fn take(&mut self, run: usize, at: usize, id: ObjectId) {
        let Some(ids) = self.runs.get_mut(run).filter(|ids| ids.get(at) == Some(&id)) else {
            return;
        };
        ids.remove(at);
        self.length -= 1;
        if ids.is_empty() {
            self.runs.remove(run);
        } else if ids.len() * 4 <= ids.capacity() {
            ids.shrink_to(ids.len() * 2);
        }
    }
}

impl PartialEq for Sorted {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.iter().eq(other.iter())
    }
}

impl Eq for Sorted {}
