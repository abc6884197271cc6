//! What a command has datanodes do.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::{BlockId, Epoch, NodeId, Order, Refusal, Reply};

/// The outcome of a command that was applied to the catalog: the reply to its sender, and what
/// follows for datanodes.
#[derive(Debug)]
pub struct Applied {
    /// The answer to the request.
    pub result: Result<Reply, Refusal>,
    /// What datanodes are to do. Orders may get lost with the namenode: each of them reaches its
    /// node in another way as well (block reports, heartbeats, lease recovery).
    pub orders: Vec<DatanodeOrder>,
    /// Nodes that have ended by it.
    pub gone: Vec<NodeId>,
}

/// An order to a datanode, with the node and the address to which it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatanodeOrder {
    /// The incarnation that it is for.
    pub node: NodeId,
    /// Where it takes orders.
    pub address: String,
    /// What it is to do.
    pub order: Order,
}

/// What datanodes are to do after a command. Most commands of clients have them do nothing: then
/// there are no lists.
#[derive(Debug, Default)]
pub(crate) struct Orders(Option<Box<OrderLists>>);

/// What datanodes are to do, by kind.
#[derive(Debug, Default)]
pub(crate) struct OrderLists {
    pub(crate) drops: BTreeMap<NodeId, Vec<(BlockId, Epoch)>>,
    pub(crate) fences: BTreeMap<NodeId, Vec<(BlockId, Epoch)>>,
    pub(crate) fence_nodes: BTreeSet<NodeId>,
    pub(crate) unfence_nodes: BTreeSet<NodeId>,
    pub(crate) adopts: BTreeMap<NodeId, Vec<(BlockId, Epoch, u32)>>,
    /// Nodes that ended: they get no order, but the membership forgets them.
    pub(crate) gone: Vec<NodeId>,
}

impl Orders {
    /// Returns the lists to add to.
    pub(crate) fn lists(&mut self) -> &mut OrderLists {
        self.0.get_or_insert_default()
    }

    /// Returns the lists; `None` if nothing was added.
    pub(crate) fn into_lists(self) -> Option<Box<OrderLists>> {
        self.0
    }

    /// Returns the nodes that have something to forget.
    pub(crate) fn dropping_nodes(&self) -> Vec<NodeId> {
        self.0.as_ref().map_or_else(Vec::new, |lists| lists.drops.keys().copied().collect())
    }

    /// Takes the nodes that have ended out.
    pub(crate) fn take_gone(&mut self) -> Vec<NodeId> {
        self.0.as_mut().map_or_else(Vec::new, |lists| std::mem::take(&mut lists.gone))
    }

    /// Has a node forget its copy of a block at `last` or an earlier epoch.
    pub(crate) fn drop_block(&mut self, node: NodeId, block: BlockId, last: Epoch) {
        self.lists().drops.entry(node).or_default().push((block, last));
    }
}
