//! Whose objects, jobs and blocks are: for sessions that may touch a part of the namespace.

use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::message::BlockCount;
use sanderling_protocol::{BlockId, JobId, ObjectId, Path, Refusal, Reply};

use super::Catalog;
use super::object::{Object, ROOT};
use super::ownership_walk::{CountedAt, OwnershipWalk, within_reply};
use crate::access::PathLookup;

impl PathLookup for Catalog {
    fn path_of_object(&self, object: ObjectId) -> Option<Path> {
        self.path_of(object)
    }

    fn path_of_job(&self, job: JobId) -> Option<Path> {
        self.path_of(self.jobs.get(job)?.root)
    }
}

/// Where a subtree begins.
enum SubtreeTop<'a> {
    Root,
    /// The container that has it, and its name there. An object with that name may be another one
    /// than the name leads to: a writer replaces it.
    Named(ObjectId, &'a str),
    /// Nothing can be in it.
    Nowhere,
}

impl SubtreeTop<'_> {
    fn is(&self, object: &Object) -> bool {
        match self {
            Self::Named(parent, name) => object.parent == *parent && object.name.as_str() == *name,
            Self::Root | Self::Nowhere => false,
        }
    }
}

impl Catalog {
    /// Returns for each block whether its object is in a subtree; a block that is gone is not.
    pub(crate) fn within(&self, subtree: &Path, blocks: &[BlockId]) -> Result<Reply, Refusal> {
        Ok(within_reply(&self.counted(CountedAt::NOWHERE, subtree, blocks)?))
    }

    /// Returns for each block what is counted for it at a node, if its object is in a subtree.
    pub(crate) fn counted(
        &self,
        at: CountedAt,
        subtree: &Path,
        blocks: &[BlockId],
    ) -> Result<Vec<BlockCount>, Refusal> {
        let (mut walk, mut all) = (Self::ownership_walk(blocks)?, usize::MAX);
        let done = self.ownership_step(at, subtree, blocks, &mut walk, &mut all);
        Ok(done.expect("no page has so many entries"))
    }

    /// Begins to look at a page of blocks.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`]: request fewer at once.
    pub(crate) fn ownership_walk(blocks: &[BlockId]) -> Result<OwnershipWalk, Refusal> {
        if blocks.len() > BLOCKS_PER_PAGE_MAX {
            let (value, limit) = (blocks.len() as u64, BLOCKS_PER_PAGE_MAX as u64);
            return Err(Refusal::TooLarge { what: "number of blocks".to_owned(), value, limit });
        }
        Ok(OwnershipWalk { answers: Vec::with_capacity(blocks.len()) })
    }

    /// Goes on with the answers by about so many entries, one block at least; takes from `entries`
    /// what it visited: each block, and each container above it. Returns the answers when all
    /// blocks have theirs.
    pub(crate) fn ownership_step(
        &self,
        at: CountedAt,
        subtree: &Path,
        blocks: &[BlockId],
        walk: &mut OwnershipWalk,
        entries: &mut usize,
    ) -> Option<Vec<BlockCount>> {
        let (parent, name) = (subtree.parent(), subtree.name());
        let top = self.subtree_top(parent.as_ref(), name, entries);
        let mut last = None;
        for block in &blocks[walk.answers.len()..] {
            *entries = entries.saturating_sub(1);
            let count = match self.blocks.get(block) {
                Some(block) if self.is_object_within(block.object, &top, &mut last, entries) => {
                    block.count_at(at.node, at.may_take_ends_back)
                }
                _ => BlockCount::Foreign,
            };
            walk.answers.push(count);
            if *entries == 0 && walk.answers.len() < blocks.len() {
                return None;
            }
        }
        Some(std::mem::take(&mut walk.answers))
    }

    fn subtree_top<'a>(
        &self,
        parent: Option<&Path>,
        name: Option<&'a str>,
        entries: &mut usize,
    ) -> SubtreeTop<'a> {
        let (Some(parent), Some(name)) = (parent, name) else { return SubtreeTop::Root };
        *entries = entries.saturating_sub(parent.components().count());
        match self.resolve(parent) {
            Ok(parent) => SubtreeTop::Named(parent, name),
            Err(_) => SubtreeTop::Nowhere,
        }
    }

    /// Returns whether an object is in a subtree. `last` is the container of the object before and
    /// whether that is: many objects in a row share one.
    fn is_object_within(
        &self,
        object: ObjectId,
        top: &SubtreeTop<'_>,
        last: &mut Option<(ObjectId, bool)>,
        entries: &mut usize,
    ) -> bool {
        let Some(object) = self.objects.get(&object) else { return false };
        if top.is(object) {
            return true;
        }
        match *last {
            Some((container, is_within)) if container == object.parent => is_within,
            _ => {
                let is_within = self.is_container_within(object.parent, top, entries);
                *last = Some((object.parent, is_within));
                is_within
            }
        }
    }

    /// Returns whether a container is in a subtree; one that is gone, or is below one that is gone,
    /// is not.
    fn is_container_within(
        &self,
        container: ObjectId,
        top: &SubtreeTop<'_>,
        entries: &mut usize,
    ) -> bool {
        let mut at = container;
        while at != ROOT {
            *entries = entries.saturating_sub(1);
            let Some(object) = self.objects.get(&at) else { return false };
            if top.is(object) {
                return true;
            }
            at = object.parent;
        }
        matches!(top, SubtreeTop::Root)
    }
}
