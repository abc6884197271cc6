//! The records of the log: every change of the catalog, with the choices already made.

use sanderling_protocol::message::{
    Attributes, BlockLength, ClientId, Concat, Create, DurableProgress, DurableRecord,
    DurableReport, Forecast, Join, MakeDurable, MoveCommit, MoveProposal, ObjectKind, Register,
    RegisterJob, RegisterLimitedJob,
};
use sanderling_protocol::order::{DamagedBlock, HeldBlock};
use sanderling_protocol::{
    BlockId, Epoch, EventKind, Instant, JobId, LeaseId, Millis, NodeId, Nonce, ObjectId, Path,
    Refusal, Term, Tier, TokenSelector,
};
use serde::{Deserialize, Serialize};

use super::clients::ChangeKey;
use crate::reserve::Departures;

/// One record of the log. Applying the same records in the same order gives the same catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// When the command was made, by the namenode's clock. Never smaller than the one before.
    pub at: Instant,
    /// What changes.
    pub action: Action,
}

/// The home that the namenode has chosen for one new block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The home.
    pub node: NodeId,
    /// Its tier.
    pub tier: Tier,
    /// Most bytes that the block may get.
    pub bytes_max: u32,
}

/// A change that a client may send again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedOnce {
    /// The client.
    pub client: ClientId,
    /// The change's number among the client's.
    pub sequence: u64,
    /// The client's changes with smaller numbers are never sent again.
    pub settled_below: u64,
    /// Distinguishes the client's request from others.
    pub fingerprint: u64,
    /// The change.
    pub action: Action,
}

impl LoggedOnce {
    pub(crate) const fn sent(&self) -> ChangeKey {
        let Self { client, sequence, settled_below, fingerprint, .. } = self;
        ChangeKey {
            client: *client,
            sequence: *sequence,
            settled_below: *settled_below,
            fingerprint: *fingerprint,
        }
    }
}

/// One change of the catalog.
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
    /// A namenode starts to serve on this log. Leases, times to live and deadlines of notices do
    /// not count the `absence` since the last command; `skip` numbers are never given out.
    BeginTerm {
        term: Term,
        absence: Millis,
        skip: u64,
    },
    /// The namenode did not serve for so long, without having ended.
    Absent {
        absence: Millis,
    },
    /// A datanode joins, and reports its last log position and what it has wiped since.
    Join(Box<Join>),
    /// A page of a block report with blocks that only a lost end of the log can have made.
    Orphans {
        node: NodeId,
        held: Vec<HeldBlock>,
    },
    /// A change that is made unless it has been made; its answer is kept.
    Once(Box<LoggedOnce>),
    /// A client that is going to change something.
    OpenClient {
        key: Nonce,
    },
    DeleteObject {
        path: Path,
        object: ObjectId,
        recursive: bool,
    },
    /// A client's change was refused before it became a command. It is in the log so that every
    /// repeat is refused alike.
    Refuse(Box<Refusal>),
    /// So many nodes must be able to leave from now on.
    Departures {
        departures: Departures,
    },
    /// A datanode repeats what was known of it at `known_at`.
    Repeat {
        node: NodeId,
        /// Of a notice; `None` for a recommendation.
        deadline: Option<Instant>,
        reason: String,
        known_at: Instant,
    },
    /// Commands that followed here are missing: of the segment that begins with the command
    /// `segment`, everything from `offset` on. An operator has accepted that, or a crash of the
    /// machine took what was acknowledged before the disk had it.
    JournalCut {
        segment: u64,
        offset: u64,
        bytes: u64,
        records: u64,
        is_accepted: bool,
        why: String,
    },
    /// A snapshot could not be read; an older one and the journal took its place.
    SnapshotSkipped {
        index: u64,
        why: String,
    },
    /// A datanode reported blocks as damaged or missing.
    Damaged {
        node: NodeId,
        blocks: Vec<DamagedBlock>,
    },
    /// Ends blocks of a writer that requests more where there is no room: what they give back may
    /// be what is missing. The writer is refused and retries.
    EndBlocks {
        object: ObjectId,
        lease: LeaseId,
        ended: Vec<BlockLength>,
    },
    /// Tokens are taken back, or hold again.
    RevokeTokens {
        tokens: TokenSelector,
        until: Option<u64>,
    },
    RegisterLimitedJob(Box<RegisterLimitedJob>),
    /// From here on commands are applied by these rules, see [`super::Catalog::RULES`], and so many
    /// entries of what is deleted are freed in a slice.
    Rules {
        rules: u32,
        slice: u32,
    },
    /// More of what is deleted is freed.
    Reap,
    /// What happened to the group of namenodes, as its leader has seen it.
    GroupEvent(Box<EventKind>),
    /// A directory becomes durable, or what is known about stores has changed.
    Durable(Box<DurableAction>),
    /// A datanode states what its sources of notices show.
    SourceNotice {
        node: NodeId,
        /// Of the process's statements. One that was overtaken changes nothing.
        number: u64,
        /// `None` only when no source shows a notice any more.
        deadline: Option<Instant>,
        reason: String,
        /// Whether this is what is left after a source withdrew its notice.
        is_withdrawn: bool,
    },
}

/// A change of durable directories, beside those of their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DurableAction {
    /// What is sealed below a directory is copied to a store.
    Make(MakeDurable),
    /// Which stores a datanode reaches.
    ServeStores {
        /// The node.
        node: NodeId,
        /// The names of its stores.
        stores: Vec<String>,
    },
    /// What a manager has done.
    Progress {
        /// The manager.
        holder: Nonce,
        /// What was done.
        progress: DurableProgress,
    },
    /// Objects are to be read back of which bytes are in their stores only.
    Want {
        /// The objects.
        objects: Vec<ObjectId>,
    },
    /// What a manager has done, and which objects stores lack by which names.
    Report {
        /// The manager.
        holder: Nonce,
        /// What was done, and what is missing.
        report: DurableReport,
    },
    /// What a manager has done, with what it takes for recorded.
    Record {
        /// The manager.
        holder: Nonce,
        /// What was done.
        record: DurableRecord,
    },
}

impl Action {
    /// Returns the action that changes the catalog: the one within [`Action::Once`], else this one.
    #[must_use]
    pub const fn inner(&self) -> &Self {
        match self {
            Self::Once(once) => &once.action,
            action => action,
        }
    }

    /// Returns a mutable reference to the action that changes the catalog: the one within
    /// [`Action::Once`], else this one.
    #[must_use]
    pub fn inner_mut(&mut self) -> &mut Self {
        match self {
            Self::Once(once) => &mut once.action,
            action => action,
        }
    }

    /// Returns whether it may change which nodes get blocks. A tick does so only when a node ends.
    #[must_use]
    pub const fn changes_nodes(&self) -> bool {
        matches!(
            self.inner(),
            Self::Register(_)
                | Self::Join(_)
                | Self::BeginTerm { .. }
                | Self::Notice { .. }
                | Self::Decommission { .. }
                | Self::Cancel { .. }
                | Self::Recommend { .. }
                | Self::NodeDead { .. }
                | Self::Departures { .. }
                | Self::Repeat { .. }
                | Self::SourceNotice { .. }
        )
    }
}
