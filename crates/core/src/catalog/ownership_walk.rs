//! How far a look at the owners of some blocks is.

use sanderling_protocol::Reply;
use sanderling_protocol::message::BlockCount;

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
