//! What the checkers look at. They change nothing of it.

use sanderling_core::catalog::Catalog;
use sanderling_protocol::message::Layout;
use sanderling_protocol::{NodeId, ObjectId, Refusal, Reply, Request};

use crate::datanode::Datanode;
use crate::namenode::NamenodeHost;
use crate::runtime::Runtime;

/// The servers of a run at one moment.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) namenode: &'a NamenodeHost,
    pub(crate) datanodes: &'a [Datanode],
}

impl<'a> View<'a> {
    pub(super) fn catalog(self) -> &'a Catalog {
        self.namenode.catalog()
    }

    /// Returns what the namenode would answer now.
    pub(super) fn peek(self, request: &Request) -> Result<Reply, Refusal> {
        self.namenode.peek(self.runtime.now(), request)
    }

    /// Returns the whole layout of an object that exists.
    pub(super) fn layout(self, object: ObjectId) -> Option<Layout> {
        match self.peek(&Request::LookupObject { object, offset: 0, bytes: u64::MAX }) {
            Ok(Reply::Layout(layout)) => Some(layout),
            _ => None,
        }
    }

    /// Returns the process that is a node, whether or not it runs.
    pub(super) fn process(self, node: NodeId) -> Option<&'a Datanode> {
        self.datanodes.iter().find(|datanode| datanode.node() == Some(node))
    }

    /// Returns the process that is a node, if it runs.
    pub(super) fn running(self, node: NodeId) -> Option<&'a Datanode> {
        self.process(node).filter(|datanode| self.runtime.is_up(datanode.host()))
    }
}
