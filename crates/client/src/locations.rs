//! The location cache as all readers of a client share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sanderling_core::location_cache::LocationCache;
use sanderling_protocol::message::Layout;
use sanderling_protocol::{NodeId, ObjectId};

/// The cache behind a lock, and a count of what was forgotten: a reader that keeps a layout sees
/// without the lock that nothing was proved wrong since.
#[derive(Debug, Default)]
pub(crate) struct Locations {
    cache: Mutex<LocationCache>,
    forgotten: AtomicU64,
}

/// A layout and what the count was before it was heard.
#[derive(Debug, Clone)]
pub(crate) struct CachedLayout {
    pub(crate) layout: Arc<Layout>,
    forgotten: u64,
}

impl Locations {
    /// Keeps what the namenode said. `asked` is the count from before it was asked.
    pub(crate) fn insert(&self, asked: u64, layout: Layout) -> CachedLayout {
        let layout = Arc::new(layout);
        self.cache.lock().insert(Arc::clone(&layout));
        CachedLayout { layout, forgotten: asked }
    }

    /// Returns what is kept of an object.
    pub(crate) fn known(&self, object: ObjectId) -> Option<CachedLayout> {
        let forgotten = self.forgotten();
        let layout = self.cache.lock().layout(object)?;
        Some(CachedLayout { layout, forgotten })
    }

    /// Returns how often something was forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }

    /// Tells whether nothing was forgotten since a layout was heard.
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
    fn what_was_heard_before_something_was_forgotten_is_not_current() {
        let locations = Locations::default();
        let asked = locations.forgotten();
        let known = locations.insert(asked, layout(&[(10, Some(1))]));
        assert!(locations.is_current(&known));
        locations.forget(ObjectId(77));
        assert!(!locations.is_current(&known));
        let kept = locations.known(known.layout.stat.object).expect("another was forgotten");
        assert!(locations.is_current(&kept));
        // The question was on its way when somebody found the node gone.
        let asked = locations.forgotten();
        locations.forget_node(NodeId(1));
        assert!(!locations.is_current(&locations.insert(asked, layout(&[(10, Some(1))]))));
    }
}
