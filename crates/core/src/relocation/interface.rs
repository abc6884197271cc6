//! What goes into a relocator, or into the manager around it, and what comes out.

use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::message::{DrainWork, Forecast, MoveCandidate, MoveCommit, MoveProposal};
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{BlockId, Epoch, Millis, NodeId, NodeInfo, Refusal};

/// The bounds of a relocator.
#[derive(Debug, Clone)]
pub struct RelocatorConfig {
    /// Batches under way from one source, the smallest of them included. The bytes under way are
    /// paced to the link; this bounds what is remembered and asked of the namenode at once.
    pub source_batches_max: usize,
    /// Batches under way to one target, from all sources, so that it can still serve its clients;
    /// half as many while clients go first.
    pub target_batches_max: usize,
    /// Blocks in one batch: bounds one frame of the reservation and how late the first commits.
    pub batch_blocks_max: usize,
    /// Bytes in one batch.
    pub batch_bytes_max: u64,
    /// Blocks of one node that are known at once, about 200 bytes each. Beyond that the order is
    /// kept only within what is known.
    pub known_blocks_max: usize,
    /// Blocks in one page of candidates.
    pub page_blocks_max: u32,
    /// First wait after a failure; doubled up to eight times as long.
    pub retry_wait: Millis,
    /// How long a target that refused is left alone.
    pub avoid: Millis,
    /// Time of one push call, shortened by the deadline.
    pub push_millis_max: Millis,
    /// Calls of one step of a batch before it is given up.
    pub tries_max: u32,
}

impl Default for RelocatorConfig {
    fn default() -> Self {
        Self {
            source_batches_max: 32,
            target_batches_max: 8,
            batch_blocks_max: 64,
            batch_bytes_max: 8 << 20,
            known_blocks_max: 100_000,
            page_blocks_max: BLOCKS_PER_PAGE_MAX as u32,
            retry_wait: Millis(50),
            avoid: Millis(500),
            push_millis_max: Millis(5_000),
            tries_max: 5,
        }
    }
}

/// One call that the relocator asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// What happens to the relocator.
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
    /// Answer to [`Output::Reserve`].
    Reserved {
        /// The call.
        call: CallId,
        /// The epoch of each copy.
        epochs: Option<Vec<Result<Epoch, Refusal>>>,
    },
    /// Answer to [`Output::Push`].
    Pushed {
        /// The call.
        call: CallId,
        /// What became of each push.
        outcomes: Option<Vec<Result<Pushed, Refusal>>>,
    },
    /// Answer to [`Output::Commit`].
    Committed {
        /// The call.
        call: CallId,
        /// What became of each commit.
        epochs: Option<Vec<Result<Epoch, Refusal>>>,
    },
    /// Answer to [`Output::Abandon`].
    Abandoned {
        /// The call.
        call: CallId,
        /// Whether it was done.
        is_done: bool,
    },
    /// Answer to [`Output::Page`], as [`Input::Candidates`].
    Page {
        /// The call.
        call: CallId,
        /// The page.
        page: Option<(Vec<MoveCandidate>, bool)>,
    },
    /// Answer to [`Output::DropCopies`].
    Dropped {
        /// The call.
        call: CallId,
        /// Whether it was done.
        is_done: bool,
    },
}

/// What the relocator, or the manager around it, wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
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
    /// Tell the namenode what is to be expected. Nothing is answered.
    Forecast {
        /// The draining node.
        node: NodeId,
        /// What is expected.
        forecast: Forecast,
    },
    /// Read a page of the blocks of a node that stays. The background asks it, never a relocator.
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
    /// Give copies beside the home up. The background asks it, never a relocator.
    DropCopies {
        /// The call.
        call: CallId,
        /// The blocks whose copies go.
        blocks: Vec<BlockId>,
    },
}
