//! Where the blocks of objects are, as the namenode last reported it to a client.
//!
//! A location that is out of date does no harm: it names an incarnation and an epoch, and a
//! datanode refuses any other. The cache therefore never validates its entries; it forgets what
//! a refusal has disproved, for every reader of the object at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use sanderling_protocol::message::Layout;
use sanderling_protocol::{NodeId, ObjectId};

/// Most blocks in all kept layouts: about 64 MiB of memory, and the layouts of a terabyte. Chosen,
/// not measured.
pub const BLOCKS_KEPT_MAX: usize = 1 << 20;

#[derive(Debug)]
struct CacheEntry {
    layout: Arc<Layout>,
    used: u64,
}

/// The layouts of objects that were read lately, up to a number of blocks.
#[derive(Debug)]
pub struct LocationCache {
    blocks_max: usize,
    blocks: usize,
    clock: u64,
    by_object: BTreeMap<ObjectId, CacheEntry>,
    by_use: BTreeMap<u64, ObjectId>,
}

impl Default for LocationCache {
    fn default() -> Self {
        Self::new(BLOCKS_KEPT_MAX)
    }
}

/// What a layout weighs: the object takes room, too.
fn weight(layout: &Layout) -> usize {
    layout.blocks.len() + 1
}

impl LocationCache {
    /// Returns an empty cache that keeps layouts of `blocks_max` blocks in all.
    #[must_use]
    pub const fn new(blocks_max: usize) -> Self {
        Self {
            blocks_max,
            blocks: 0,
            clock: 0,
            by_object: BTreeMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// Keeps a layout that the namenode just sent, in place of the object's last one. The layouts
    /// used longest ago make room.
    pub fn insert(&mut self, layout: Arc<Layout>) {
        let object = layout.stat.object;
        if layout.blocks.is_empty() {
            // It has no location: a reader looks the object up when it has grown.
            return self.forget(object);
        }
        self.clock += 1;
        self.blocks += weight(&layout);
        self.by_use.insert(self.clock, object);
        if let Some(before) = self.by_object.insert(object, CacheEntry { layout, used: self.clock })
        {
            self.blocks -= weight(&before.layout);
            self.by_use.remove(&before.used);
        }
        while self.blocks > self.blocks_max && self.by_object.len() > 1 {
            let Some((_, oldest)) = self.by_use.first_key_value() else { return };
            self.forget(*oldest);
        }
    }

    /// Returns the cached layout of an object, which counts as used last from now on; `None` if it
    /// is not cached.
    pub fn layout(&mut self, object: ObjectId) -> Option<Arc<Layout>> {
        let kept = self.by_object.get_mut(&object)?;
        self.clock += 1;
        self.by_use.remove(&kept.used);
        kept.used = self.clock;
        self.by_use.insert(self.clock, object);
        Some(Arc::clone(&kept.layout))
    }

    /// Forgets the layout of an object whose locations were refused, if it is cached.
    pub fn forget(&mut self, object: ObjectId) {
        if let Some(kept) = self.by_object.remove(&object) {
            self.blocks -= weight(&kept.layout);
            self.by_use.remove(&kept.used);
        }
    }

    /// Forgets every object with a block on a node that could not be reached, so that other readers
    /// do not run into it one after the other.
    pub fn forget_node(&mut self, node: NodeId) {
        let on_node = |kept: &CacheEntry| kept.layout.places.iter().any(|place| place.node == node);
        let objects: Vec<ObjectId> = self
            .by_object
            .iter()
            .filter(|(_, kept)| on_node(kept))
            .map(|(object, _)| *object)
            .collect();
        for object in objects {
            self.forget(object);
        }
    }

    /// Returns the number of objects whose layout is cached.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_object.len()
    }

    /// Returns whether no object's layout is cached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_object.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::BlockId;
    use sanderling_protocol::message::NodeAddress;

    use super::*;
    use crate::read::tests::layout as layout_of;

    /// A layout of one block on each of those nodes, with the node's number as its id.
    fn layout(object: u64, nodes: &[u32]) -> Arc<Layout> {
        let blocks: Vec<_> = nodes.iter().map(|node| (1, Some(*node))).collect();
        let mut layout = layout_of(&blocks);
        layout.stat.object = ObjectId(object);
        for (block, node) in layout.blocks.iter_mut().zip(nodes) {
            block.block = BlockId(u64::from(*node));
            layout.places.push(NodeAddress {
                node: NodeId(*node),
                address: String::new(),
                host: String::new(),
            });
        }
        Arc::new(layout)
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let mut cache = LocationCache::new(9);
        for object in 1..=3 {
            cache.insert(layout(object, &[1, 2]));
        }
        assert!(cache.layout(ObjectId(1)).is_some());
        cache.insert(layout(4, &[1, 2]));
        assert!(cache.layout(ObjectId(2)).is_none());
        assert!(cache.layout(ObjectId(1)).is_some());
        assert_eq!(cache.len(), 3);
        cache.insert(layout(5, &[1; 20]));
        assert_eq!(cache.len(), 1, "one large object is kept alone");
    }

    #[test]
    fn later_layout_replaces_and_an_object_without_blocks_is_not_kept() {
        let mut cache = LocationCache::default();
        cache.insert(layout(1, &[1, 2]));
        cache.insert(layout(1, &[3]));
        assert_eq!(cache.layout(ObjectId(1)).unwrap().blocks.len(), 1);
        assert_eq!((cache.len(), cache.blocks, cache.by_use.len()), (1, 2, 1));
        cache.insert(layout(1, &[]));
        assert!(cache.is_empty() && cache.blocks == 0 && cache.by_use.is_empty());
    }

    #[test]
    fn node_out_of_reach_is_forgotten_for_every_reader() {
        let mut cache = LocationCache::default();
        cache.insert(layout(1, &[1, 2]));
        cache.insert(layout(2, &[2, 3]));
        cache.insert(layout(3, &[3]));
        cache.forget_node(NodeId(2));
        assert_eq!(cache.len(), 1);
        cache.forget(ObjectId(3));
        assert!(cache.is_empty());
        assert_eq!(cache.blocks, 0);
    }
}
