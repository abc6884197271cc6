//! Looking many names up at once.
//!
//! A look-up in a large tree is little work and several waits for memory. Here each wait is done
//! for all names before the next one, in loops so short that the processor is on several names at
//! the same time.

use sanderling_protocol::ObjectId;
use sanderling_protocol::limits::BLOCKS_PER_LAYOUT_MAX;
use sanderling_protocol::message::{BlockLocation, Found, Lookups, Paths};

use super::block_map::BlockMap;
use super::index::Hash;
use super::names::Names;
use super::object::{Data, ObjectBody, Objects, ROOT};

/// A path on its way down the tree.
struct PathWalk<'a> {
    /// Where it is; `None` when it leads nowhere.
    at: Option<ObjectId>,
    /// The next name.
    name: &'a str,
    /// What follows that name.
    rest: Option<&'a str>,
    /// Of the next name.
    hash: Hash,
    /// The object that most likely has the name, by its hash.
    guess: Option<ObjectId>,
}

/// Returns how many bytes all paths begin with, the last of them a slash: a batch is mostly about
/// the files of one job.
fn shared_bytes(paths: &Paths) -> usize {
    let mut paths = paths.iter();
    let upto_slash = |text: &str| text.rfind('/').map_or(0, |slash| slash + 1);
    let Some(first) = paths.next() else { return 0 };
    let mut shared = &first[..upto_slash(first)];
    for path in paths {
        while !path.starts_with(shared) {
            shared = &shared[..upto_slash(&shared[..shared.len() - 1])];
        }
    }
    shared.len()
}

/// Begins behind the first `shared` bytes, which lead to `base`.
fn begin(path: &str, shared: usize, base: Option<ObjectId>) -> PathWalk<'_> {
    let (at, rest) = match shared {
        0 => (path.strip_prefix('/').map(|_| ROOT), path.strip_prefix('/')),
        _ => (base, Some(&path[shared..])),
    };
    // Only the root's path ends with a slash.
    let is_whole = rest.is_none_or(str::is_empty);
    let at = at.filter(|_| !is_whole || path.len() == 1);
    let rest = rest.filter(|rest| !rest.is_empty());
    PathWalk { at, name: "", rest, hash: Hash::default(), guess: None }
}

/// What a look-up of many names reads.
pub(super) struct ManyNames<'a> {
    pub(super) objects: &'a Objects,
    pub(super) names: &'a Names,
    pub(super) blocks: &'a BlockMap,
}

impl ManyNames<'_> {
    /// Walks all paths down together, one component of each at a time.
    pub(super) fn resolve(&self, paths: &Paths) -> Vec<Option<ObjectId>> {
        let shared = shared_bytes(paths);
        let base = paths.iter().next().and_then(|first| self.directory(&first[..shared]));
        let mut walks: Vec<PathWalk<'_>> =
            paths.iter().map(|path| begin(path, shared, base)).collect();
        while walks.iter().any(|walk| walk.rest.is_some()) {
            self.step(&mut walks);
        }
        walks.into_iter().map(|walk| walk.at).collect()
    }

    /// Finds the directory of a path that ends with a slash: a batch walks there once.
    fn directory(&self, path: &str) -> Option<ObjectId> {
        let mut names = path.strip_prefix('/')?.split_terminator('/');
        names.try_fold(ROOT, |at, name| self.names.find(self.objects, at, name.as_bytes()))
    }

    fn step(&self, walks: &mut [PathWalk<'_>]) {
        for walk in walks.iter_mut() {
            let (Some(at), Some(rest)) = (walk.at, walk.rest) else {
                walk.rest = None;
                walk.guess = None;
                walk.name = "";
                continue;
            };
            (walk.name, walk.rest) = match rest.split_once('/') {
                Some((name, rest)) => (name, Some(rest)),
                None => (rest, None),
            };
            walk.hash = self.names.hash(at, walk.name.as_bytes());
            // No object has an empty name, so an empty one marks a walk that is over.
            if walk.name.is_empty() {
                walk.at = None;
                walk.rest = None;
            }
        }
        for walk in walks.iter_mut().filter(|walk| !walk.name.is_empty()) {
            walk.guess = self.names.guess(walk.hash);
        }
        for walk in walks.iter_mut().filter(|walk| !walk.name.is_empty()) {
            let (Some(at), name) = (walk.at, walk.name.as_bytes()) else { continue };
            let is_it = |id: &ObjectId| {
                let object = self.objects.get(id);
                object.is_some_and(|it| it.parent == at && it.name.as_bytes() == name)
            };
            let found = walk.guess.filter(is_it);
            walk.at = match (found, walk.guess) {
                (None, Some(_)) => self.names.find_hashed(self.objects, at, name, walk.hash),
                (found, _) => found,
            };
        }
    }

    /// Looks at the first of each object's bytes, or at its first block: the waits for them overlap
    /// here, and later they are at hand. Returns how many bytes live in the catalog.
    pub(super) fn touch(&self, ids: &[Option<ObjectId>]) -> usize {
        let (mut sum, mut bytes) = (0_u64, 0);
        for data in ids.iter().flatten().filter_map(|id| self.objects[id].data()) {
            if let Some(inline) = &data.inline {
                sum += inline.first().map_or(0, |first| u64::from(*first));
                bytes += inline.len();
            }
            if let Some(block) = data.blocks.as_slice().first() {
                sum += u64::from(self.blocks[block].length);
            }
        }
        std::hint::black_box(sum);
        bytes
    }

    pub(super) fn add_found(&self, id: ObjectId, lookups: &mut Lookups) {
        let object = &self.objects[&id];
        let mut found =
            Found { object: id, kind: object.kind(), is_sealed: true, ..Found::nothing() };
        if let ObjectBody::Data(data) = &object.body {
            self.add_data(data, &mut found, lookups);
        }
        lookups.found.push(found);
    }

    fn add_data(&self, data: &Data, found: &mut Found, lookups: &mut Lookups) {
        found.is_sealed = data.is_sealed;
        found.delete_after_read = data.delete_after_read;
        found.bytes = data.bytes;
        found.lost_bytes = data.lost_bytes;
        let mut offset = 0;
        if let Some(inline) = &data.inline {
            lookups.inline.extend_from_slice(inline);
            found.inline_bytes = inline.len() as u32;
            offset = inline.len() as u64;
        }
        for id in data.blocks.iter() {
            let block = &self.blocks[id];
            if block.length == 0 {
                continue;
            }
            if lookups.blocks.len() == BLOCKS_PER_LAYOUT_MAX {
                found.is_whole = false;
                break;
            }
            let (epoch, length, home, tier) = (block.epoch, block.length, block.home, block.tier);
            lookups.blocks.push(BlockLocation { block: *id, epoch, offset, length, home, tier });
            offset += u64::from(length);
            found.blocks += 1;
        }
    }
}
