//! The nodes that failed with a store, for the choice of the next one.

use std::collections::BTreeSet;

use sanderling_protocol::NodeId;

/// The nodes that failed with the store of one directory. A node may name a store that it cannot
/// use, as with wrong credentials, while others can.
#[derive(Debug)]
pub(super) struct FailedNodes {
    /// Those that have sent nothing since they failed.
    uploads: BTreeSet<NodeId>,
    /// Those that have changed nothing since they failed, and ended no upload.
    changes: BTreeSet<NodeId>,
}

impl FailedNodes {
    pub(super) const fn new() -> Self {
        Self { uploads: BTreeSet::new(), changes: BTreeSet::new() }
    }

    /// Notes that an order for the store failed at a node.
    pub(super) fn add(&mut self, node: NodeId) {
        self.uploads.insert(node);
        self.changes.insert(node);
    }

    /// Notes that a node has sent parts to the store. It may be unable to change it all the same.
    pub(super) fn sent(&mut self, node: NodeId) {
        self.uploads.remove(&node);
    }

    /// Notes that a node has changed the store, or ended an upload.
    pub(super) fn changed(&mut self, node: NodeId) {
        self.changes.remove(&node);
    }

    /// Returns whether a node uploads only while all others are busy.
    pub(super) fn uploads_last(&self, node: NodeId) -> bool {
        self.uploads.contains(&node)
    }

    /// Returns whether a node may change the store. A change that fails costs the upload, so one
    /// that failed does not stand in for others that are busy.
    pub(super) fn may_change(&self, node: NodeId) -> bool {
        !self.changes.contains(&node)
    }

    /// Takes which nodes reach the store. Once all of them have failed, each is tried again.
    pub(super) fn see(&mut self, reaching: impl Iterator<Item = NodeId>) {
        if self.uploads.is_empty() && self.changes.is_empty() {
            return;
        }
        let reaching: BTreeSet<NodeId> = reaching.collect();
        for failed in [&mut self.uploads, &mut self.changes] {
            failed.retain(|node| reaching.contains(node));
            if failed.len() == reaching.len() {
                failed.clear();
            }
        }
    }
}
