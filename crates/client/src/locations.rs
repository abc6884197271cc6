//! The location cache as all readers of a client share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sanderling_core::location_cache::LocationCache;
use sanderling_protocol::message::Layout;
use sanderling_protocol::{NodeId, ObjectId};

/// The cache behind a lock, and a count of entries that were forgotten: with it a reader checks
/// without the lock that its layout is not disproved.
#[derive(Debug, Default)]
pub(crate) struct Locations {
    cache: Mutex<LocationCache>,
    forgotten: AtomicU64,
}

/// A layout, and the count from before it was requested.
#[derive(Debug, Clone)]
pub(crate) struct CachedLayout {
    pub(crate) layout: Arc<Layout>,
    forgotten: u64,
}

impl Locations {
    /// Keeps a layout of the namenode. `forgotten` is the count from before it was requested.
    pub(crate) fn insert(&self, forgotten: u64, layout: Layout) -> CachedLayout {
        let layout = Arc::new(layout);
        self.cache.lock().insert(Arc::clone(&layout));
        CachedLayout { layout, forgotten }
    }

    /// Returns the cached layout of an object; `None` if the cache has none.
    pub(crate) fn known(&self, object: ObjectId) -> Option<CachedLayout> {
        let forgotten = self.forgotten();
        let layout = self.cache.lock().layout(object)?;
        Some(CachedLayout { layout, forgotten })
    }

    /// Returns how often something was forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }

    /// Returns whether nothing was forgotten since a layout was requested.
    pub(crate) fn is_current(&self, known: &CachedLayout) -> bool {
        known.forgotten == self.forgotten()
    }

    /// Forgets an object whose locations were refused.
    pub(crate) fn forget(&self, object: ObjectId) {
        self.cache.lock().forget(object);
        self.forgotten.fetch_add(1, Ordering::Release);
    }

    /// Forgets every object with a block on a node that could not be reached.
    pub(crate) fn forget_node(&self, node: NodeId) {
        self.cache.lock().forget_node(node);
        self.forgotten.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetch::tests::layout;

    #[test]
    fn layout_from_before_something_was_forgotten_is_not_current() {
        let locations = Locations::default();
        let before = locations.forgotten();
        let known = locations.insert(before, layout(&[(10, Some(1))]));
        assert!(locations.is_current(&known));
        locations.forget(ObjectId(77));
        assert!(!locations.is_current(&known));
        let kept = locations.known(known.layout.stat.object).expect("another was forgotten");
        assert!(locations.is_current(&kept));
        // The request was in flight when another call found the node gone.
        let before = locations.forgotten();
        locations.forget_node(NodeId(1));
        assert!(!locations.is_current(&locations.insert(before, layout(&[(10, Some(1))]))));
    }
}
