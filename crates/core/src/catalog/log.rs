//! The records of the log: every change of the catalog, with the choices already made.

use sanderling_protocol::message::{
    Attributes, BlockLength, Concat, Create, Forecast, MoveCommit, MoveProposal, ObjectKind,
    Register, RegisterJob,
};
use sanderling_protocol::{
    BlockId, Epoch, Instant, JobId, LeaseId, Millis, NodeId, Nonce, ObjectId, Path, Tier,
};
use serde::{Deserialize, Serialize};

/// One record of the log. Applying the same records in the same order gives the same catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// When the command was made, by the namenode's clock. Never smaller than the one before.
    pub at: Instant,
    /// What changes.
    pub action: Action,
}

/// Where one new block goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The home.
    pub node: NodeId,
    /// Its tier.
    pub tier: Tier,
    /// Most bytes that the block may get.
    pub bytes_max: u32,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each action is the request of the same name with its choices made")]
pub enum Action {
    Create {
        request: Create,
        placed: Vec<Placement>,
    },
    MakeDirectory {
        path: Path,
        kind: ObjectKind,
        parents: bool,
        is_listed: bool,
    },
    Append {
        path: Path,
        writer: Nonce,
        placed: Vec<Placement>,
    },
    AddBlocks {
        object: ObjectId,
        lease: LeaseId,
        ended: Vec<BlockLength>,
        placed: Vec<Placement>,
    },
    Publish {
        object: ObjectId,
        lease: LeaseId,
        lengths: Vec<BlockLength>,
    },
    Seal {
        object: ObjectId,
        lease: LeaseId,
        lengths: Vec<BlockLength>,
        attributes: Attributes,
    },
    Abort {
        object: ObjectId,
        lease: LeaseId,
    },
    RenewLeases {
        leases: Vec<(ObjectId, LeaseId)>,
    },
    Rename {
        from: Path,
        to: Path,
        replace: bool,
    },
    Delete {
        path: Path,
        recursive: bool,
    },
    SetTtl {
        path: Path,
        ttl: Option<Millis>,
    },
    SetAttributes {
        path: Path,
        expected: Option<ObjectId>,
        attributes: Attributes,
    },
    Concat(Concat),
    RegisterJob(RegisterJob),
    RenewJob {
        job: JobId,
    },
    EndJob {
        job: JobId,
    },
    Register(Register),
    Notice {
        node: NodeId,
        deadline: Instant,
        reason: String,
    },
    Decommission {
        node: NodeId,
        reason: String,
    },
    Cancel {
        node: NodeId,
    },
    Fenced {
        node: NodeId,
    },
    NodeDead {
        node: NodeId,
        why: String,
    },
    Manage {
        holder: Nonce,
        name: String,
        lease: Millis,
    },
    Reserve {
        holder: Nonce,
        moves: Vec<MoveProposal>,
    },
    Commit {
        holder: Nonce,
        moves: Vec<MoveCommit>,
    },
    Abandon {
        holder: Nonce,
        blocks: Vec<BlockId>,
    },
    DropCopies {
        holder: Nonce,
        blocks: Vec<BlockId>,
    },
    /// A writer needs the room that these blocks' copies take, and what is reserved for moves of
    /// those.
    MakeRoom {
        copies: Vec<BlockId>,
        moves: Vec<BlockId>,
    },
    Forecast {
        holder: Nonce,
        node: NodeId,
        forecast: Forecast,
    },
    Recommend {
        node: NodeId,
        reason: String,
        is_withdrawn: bool,
    },
    /// Lengths that a datanode acknowledged when it fenced blocks of a writer that is gone.
    Recovered {
        lengths: Vec<(BlockId, Epoch, u32)>,
    },
    /// A namenode started after reading `commands` records, having cut `cut_bytes` off the tail.
    Started {
        commands: u64,
        cut_bytes: u64,
    },
    /// Time passed: whatever is due is done.
    Tick,
}

impl Action {
    /// Tells whether it may change which nodes get blocks. A tick does so only by nodes that end.
    #[must_use]
    pub const fn changes_nodes(&self) -> bool {
        matches!(
            self,
            Self::Register(_)
                | Self::Notice { .. }
                | Self::Decommission { .. }
                | Self::Cancel { .. }
                | Self::Recommend { .. }
                | Self::NodeDead { .. }
        )
    }
}
