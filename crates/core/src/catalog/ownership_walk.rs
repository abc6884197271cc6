//! How far a look at the owners of some blocks is.

use sanderling_protocol::message::BlockCount;
use sanderling_protocol::{NodeId, Reply};

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
    pub(super) answers: Vec<BlockCount>,
}

/// Returns the reply to a request for the owners of blocks alone.
pub(crate) fn within_reply(counts: &[BlockCount]) -> Reply {
    Reply::Within(counts.iter().map(|count| count.is_own()).collect())
}
