//! The inputs and outputs of the machines that move blocks, and of the manager around them.

use sanderling_protocol::message::{DrainWork, Forecast, MoveCandidate, MoveCommit, MoveProposal};
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{BlockId, Epoch, Millis, NodeId, NodeInfo, Refusal};

/// Identifies one call that a relocator, or the background beside it, requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// An input of the relocator, or of the manager around it: what the shell has read, or the answers
/// to the calls that [`MoveOutput`] requests. Lists are in the order of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The namenode's view of the drains and of all nodes.
    Drains {
        /// The nodes to empty.
        drains: Vec<DrainWork>,
        /// All nodes.
        nodes: Vec<NodeInfo>,
    },
    /// A page of candidates, and whether there are more; `None` when it could not be read.
    Candidates {
        /// The node.
        node: NodeId,
        /// The page.
        page: Option<(Vec<MoveCandidate>, bool)>,
    },
    /// Answer to [`MoveOutput::Reserve`].
    Reserved {
        /// The call.
        call: CallId,
        /// The epoch of each copy, or why nothing is reserved for it; `None` if the call failed.
        epochs: Option<Vec<Result<Epoch, Refusal>>>,
    },
    /// Answer to [`MoveOutput::Push`].
    Pushed {
        /// The call.
        call: CallId,
        /// What became of each push; `None` if the call failed.
        outcomes: Option<Vec<Result<Pushed, Refusal>>>,
    },
    /// Answer to [`MoveOutput::Commit`].
    Committed {
        /// The call.
        call: CallId,
        /// The epoch of each committed move, or why it is not committed; `None` if the call failed:
        /// it may have been done.
        epochs: Option<Vec<Result<Epoch, Refusal>>>,
    },
    /// Answer to [`MoveOutput::Abandon`].
    Abandoned {
        /// The call.
        call: CallId,
        /// Whether it was done.
        is_done: bool,
    },
    /// Answer to [`MoveOutput::Page`], as [`Input::Candidates`].
    Page {
        /// The call.
        call: CallId,
        /// The page.
        page: Option<(Vec<MoveCandidate>, bool)>,
    },
    /// Answer to [`MoveOutput::DropCopies`].
    Dropped {
        /// The call.
        call: CallId,
        /// Whether it was done.
        is_done: bool,
    },
}

/// Names one call that the shell makes for the relocator, or for the manager around it. The shell
/// answers each but a forecast exactly once, by the [`Input`] that names it, also when the call
/// failed: the relocator waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveOutput {
    /// Read a page of candidates.
    Fetch {
        /// The node.
        node: NodeId,
        /// Start after this block.
        after: BlockId,
        /// At most this many.
        limit: u32,
    },
    /// Reserve future homes at the namenode.
    Reserve {
        /// The call.
        call: CallId,
        /// The moves.
        moves: Vec<MoveProposal>,
    },
    /// Order the source to push blocks.
    Push {
        /// The call.
        call: CallId,
        /// The draining node.
        source: NodeId,
        /// Where it takes orders.
        address: String,
        /// The moves, all to the same target.
        moves: Vec<PushMove>,
        /// Give the call up after this long.
        within: Millis,
    },
    /// Commit moves at the namenode.
    Commit {
        /// The call.
        call: CallId,
        /// The moves.
        moves: Vec<MoveCommit>,
    },
    /// Give reservations back at the namenode.
    Abandon {
        /// The call.
        call: CallId,
        /// The blocks.
        blocks: Vec<BlockId>,
    },
    /// Send the namenode the forecast. There is no answer.
    Forecast {
        /// The draining node.
        node: NodeId,
        /// What is expected.
        forecast: Forecast,
    },
    /// Read a page of the blocks of a node that stays. The background sends it, a relocator never.
    Page {
        /// The call.
        call: CallId,
        /// The node.
        node: NodeId,
        /// Start after this block.
        after: BlockId,
        /// At most this many.
        limit: u32,
    },
    /// Give copies beside the home up. The background sends it, a relocator never.
    DropCopies {
        /// The call.
        call: CallId,
        /// The blocks whose copies go.
        blocks: Vec<BlockId>,
    },
}
