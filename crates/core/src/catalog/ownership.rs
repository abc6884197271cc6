//! Whose blocks are: for sessions that may touch a part of the namespace.

use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::message::BlockCount;
use sanderling_protocol::{BlockId, NodeId, ObjectId, Refusal, Reply};

use super::block_map::BlockMap;
use super::object::{Object, Objects, ROOT};

/// For which node blocks are counted, and as what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedAt {
    pub(crate) node: NodeId,
    /// Whether the ends of blocks may still be taken back.
    pub(crate) may_take_ends_back: bool,
}

impl CountedAt {
    /// At no node: none has the number 0.
    pub(crate) const NOWHERE: Self = Self { node: NodeId(0), may_take_ends_back: false };
}

/// The answers for the first of some blocks, made in steps between which the catalog may change:
/// each is as it was in its step.
#[derive(Debug, Default)]
pub(crate) struct OwnershipWalk {
    answers: Vec<BlockCount>,
}

impl OwnershipWalk {
    /// Begins to look at a page of blocks.
    ///
    /// # Errors
    /// [`Refusal::TooLarge`]: request fewer at once.
    pub(crate) fn new(blocks: &[BlockId]) -> Result<Self, Refusal> {
        if blocks.len() > BLOCKS_PER_PAGE_MAX {
            let (value, limit) = (blocks.len() as u64, BLOCKS_PER_PAGE_MAX as u64);
            return Err(Refusal::TooLarge { what: "number of blocks".to_owned(), value, limit });
        }
        Ok(Self { answers: Vec::with_capacity(blocks.len()) })
    }

    /// Counts further blocks of the page, one at least, until `entries` visits are used up. Takes
    /// from `entries` what it visited: each block, and each container above it. Returns the counts
    /// of the whole page once it has all of them.
    pub(super) fn step(
        &mut self,
        at: CountedAt,
        top: &SubtreeTop<'_>,
        page: &[BlockId],
        (objects, blocks): (&Objects, &BlockMap),
        entries: &mut usize,
    ) -> Option<Vec<BlockCount>> {
        let mut last = None;
        for block in &page[self.answers.len()..] {
            *entries = entries.saturating_sub(1);
            let count = match blocks.get(block) {
                Some(block) if top.has_object(objects, block.object, &mut last, entries) => {
                    block.count_at(at.node, at.may_take_ends_back)
                }
                _ => BlockCount::Foreign,
            };
            self.answers.push(count);
            if *entries == 0 && self.answers.len() < page.len() {
                return None;
            }
        }
        Some(std::mem::take(&mut self.answers))
    }
}

/// Where a subtree begins.
pub(super) enum SubtreeTop<'a> {
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

    /// Returns whether an object is in the subtree. `last` is the container of the object before
    /// and whether that is: many objects in a row share one.
    fn has_object(
        &self,
        objects: &Objects,
        object: ObjectId,
        last: &mut Option<(ObjectId, bool)>,
        entries: &mut usize,
    ) -> bool {
        let Some(object) = objects.get(&object) else { return false };
        if self.is(object) {
            return true;
        }
        match *last {
            Some((container, is_within)) if container == object.parent => is_within,
            _ => {
                let is_within = self.has_container(objects, object.parent, entries);
                *last = Some((object.parent, is_within));
                is_within
            }
        }
    }

    /// Returns whether a container is in the subtree; one that is gone, or is below one that is
    /// gone, is not.
    fn has_container(&self, objects: &Objects, container: ObjectId, entries: &mut usize) -> bool {
        let mut at = container;
        while at != ROOT {
            *entries = entries.saturating_sub(1);
            let Some(object) = objects.get(&at) else { return false };
            if self.is(object) {
                return true;
            }
            at = object.parent;
        }
        matches!(self, Self::Root)
    }
}

/// Returns the reply to a request for the owners of blocks alone.
pub(crate) fn within_reply(counts: &[BlockCount]) -> Reply {
    Reply::Within(counts.iter().map(|count| count.is_own()).collect())
}
