//! Requests to the namenode and its replies.

mod attributes;
mod block_count;
mod cluster;
mod durable;
mod job;
mod kind;
mod lookups;
mod manage;
mod members;
mod namespace;
mod once;

use serde::{Deserialize, Serialize};

pub use attributes::{Attributes, Concat, Condition, RECOMPUTE_MILLIS};
pub use block_count::BlockCount;
pub use cluster::{
    Heartbeat, HeartbeatReply, Hello, HelloReply, Join, Joined, Register, Registered, Repeat, Role,
    SourceNotice, Wiped,
};
pub use durable::{
    Adopted, Adoption, AdoptionStep, Durability, DurableChange, DurableChangeKind, DurableLoss,
    DurableProgress, DurableRecord, DurableReply, DurableReport, DurableRequest, DurableState,
    DurableStatus, DurableWork, LostBlock, MadeChange, MakeDurable, MissingObject, RecordedUpload,
    RestoredBlock, STORE_OWN_NAME, StoreNode, StoreSlice, is_refused_name, refused_name,
};
pub use job::{JobAccount, JobHints, JobInfo, JobLimits, RegisterJob, RegisterLimitedJob};
pub use lookups::{Found, LookedUp, Lookups, Paths};
pub use manage::{
    DrainWork, Forecast, FsckReport, IN_STORE, MoveCandidate, MoveCommit, MoveProposal,
    MovePurpose, Room, Usage,
};
pub use members::{Member, MemberRole, Members};
pub use namespace::{
    Affinity, BlockLength, BlockLocation, Create, CreateKind, CreateMode, Entry, Grant,
    GrantedBlock, Layout, NodeAddress, ObjectKind, ObjectStat,
};
pub use once::{Change, ClientId, Once, Repetition};

use crate::event::{Event, LossReport};
use crate::ids::{BlockId, Epoch, JobId, LeaseId, LogPosition, NodeId, Nonce, ObjectId};
use crate::node::{NodeInfo, NodeSelector};
use crate::order::{DamagedBlock, HeldBlock};
use crate::path::Path;
use crate::refusal::Refusal;
use crate::time::Millis;
use crate::token::{MintToken, Revocation, Token, TokenSelector};

/// One request to the namenode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Creates a file or a key-value and reserves its first blocks. Reply: `Grant`, or `Stat` when
    /// the value was inline.
    Create(Create),
    /// Makes a directory, multifile or table. Reply: `Stat`.
    MakeDirectory {
        /// Its path.
        path: Path,
        /// `Directory`, `Multifile` or `Table`.
        kind: ObjectKind,
        /// Make missing directories above it, and accept that it exists already with this kind.
        parents: bool,
        /// Whether its parent's listing shows it.
        is_listed: bool,
    },
    /// Opens a sealed or abandoned file for more bytes at its end. Reply: `Grant`.
    Append {
        /// The file.
        path: Path,
        /// The writer's process.
        writer: Nonce,
    },
    /// Ends blocks and reserves more for the same writer. Reply: `Grant`.
    AddBlocks {
        /// The object.
        object: ObjectId,
        /// The writer's lease.
        lease: LeaseId,
        /// Final lengths of blocks, in the object's order, that are written no further. A block
        /// that was reserved, never written and is not needed has length 0 and goes back. At most
        /// `LENGTHS_PER_REQUEST_MAX`.
        ended: Vec<BlockLength>,
        /// The number of requested blocks. The grant has fewer, but one at least, where the room or
        /// the job's quota ends before.
        count: u32,
        /// Nodes that refused or could not be reached, not to be chosen if there are others. At
        /// most `AVOIDED_NODES_MAX`.
        avoid: Vec<NodeId>,
    },
    /// Makes what was acknowledged so far readable, without an end. Reply: `Done`.
    Publish {
        /// The object.
        object: ObjectId,
        /// The writer's lease.
        lease: LeaseId,
        /// Acknowledged lengths so far, at most `LENGTHS_PER_REQUEST_MAX`.
        lengths: Vec<BlockLength>,
    },
    /// Ends the object: publishes its lengths, binds its name when it replaces another, frees
    /// unused reservations and the lease. Reply: `Stat`.
    Seal {
        /// The object.
        object: ObjectId,
        /// The writer's lease.
        lease: LeaseId,
        /// Final lengths of the blocks not ended before, at most `LENGTHS_PER_REQUEST_MAX`.
        lengths: Vec<BlockLength>,
        /// What is kept beside the bytes, in place of what the create gave of the same names.
        attributes: Attributes,
    },
    /// Gives an unsealed object up: a new one vanishes, an appended one keeps what was published.
    /// Reply: `Done`.
    Abort {
        /// The object.
        object: ObjectId,
        /// The writer's lease.
        lease: LeaseId,
    },
    /// Renews the leases of a writer's objects. Reply: `Renewed`, the objects whose lease has
    /// ended.
    RenewLeases {
        /// Objects and leases, at most `LEASES_PER_RENEWAL_MAX`.
        leases: Vec<(ObjectId, LeaseId)>,
    },
    /// Finds an object and the places of a range of its bytes, or of the first of them: a huge file
    /// is returned page by page. Reply: `Layout`.
    Lookup {
        /// The object.
        path: Path,
        /// First byte of interest.
        offset: u64,
        /// Bytes of interest; `u64::MAX` for all.
        bytes: u64,
    },
    /// Finds an object by its id and the places of a range of its bytes, for a reader that goes on
    /// after a rename or a replacement. Reply: `Layout`.
    LookupObject {
        /// The object.
        object: ObjectId,
        /// First byte of interest.
        offset: u64,
        /// Bytes of interest; `u64::MAX` for all.
        bytes: u64,
    },
    /// Finds many objects and the places of all their bytes. Reply: `Found`.
    LookupMany {
        /// The objects, at most `LOOKUPS_MAX`.
        paths: Paths,
    },
    /// One page of a directory, multifile or table in the order of names. Reply: `Entries`.
    List {
        /// The directory.
        path: Path,
        /// Start after this name; empty for the start.
        after: String,
        /// At most this many, and never more than `LIST_PAGE_MAX`.
        limit: u32,
        /// Whether entries come with what is kept beside their bytes.
        with_attributes: bool,
    },
    /// Reply: `Stat`.
    Stat {
        /// The object.
        path: Path,
    },
    /// Moves an object, with everything in it, to another name at once. Reply: `Done`.
    Rename {
        /// The old name.
        from: Path,
        /// The new name.
        to: Path,
        /// Replace a file or key-value of that name. A directory is never replaced.
        replace: bool,
    },
    /// Deletes an object and frees its blocks. Reply: `Deleted`.
    Delete {
        /// The object.
        path: Path,
        /// Delete a directory with what is in it.
        recursive: bool,
    },
    /// Sets or clears the time an object has left. Reply: `Done`.
    SetTtl {
        /// The object.
        path: Path,
        /// Time from now on; `None` to keep it.
        ttl: Option<Millis>,
    },
    /// Sets what is kept beside an object's bytes, in place of all that was. Reply: `Stat`.
    SetAttributes {
        /// A file or key-value.
        path: Path,
        /// Refuse with `Changed` if another object has the name by now.
        expected: Option<ObjectId>,
        /// What is kept from now on.
        attributes: Attributes,
    },
    /// Makes one file of the blocks of others. Reply: `Stat`.
    Concat(Concat),
    /// What a subtree holds. Reply: `Usage`.
    Usage {
        /// The subtree's root.
        path: Path,
    },

    /// Makes a subtree that lives as long as its job. Reply: `Job`.
    RegisterJob(RegisterJob),
    /// Reply: `Done`.
    RenewJob {
        /// The job.
        job: JobId,
    },
    /// Ends the job and deletes its subtree, unless it was to be kept. Reply: `Done`.
    EndJob {
        /// The job.
        job: JobId,
    },
    /// Reply: `Jobs`.
    Jobs,

    /// A datanode joins, or comes back to a namenode that restarted. Reply: `Registered`.
    Register(Register),
    /// Reply: `Heartbeat`.
    Heartbeat(Heartbeat),
    /// What a datanode holds, page by page. Reply: `Drop`, the blocks that do not belong there.
    BlockReport {
        /// The node.
        node: NodeId,
        /// Blocks in the order of their ids.
        blocks: Vec<HeldBlock>,
    },
    /// A peer could not reach this node: have a look. Reply: `Done`.
    Suspect {
        /// The node.
        node: NodeId,
    },
    /// Reply: `Nodes`.
    Nodes {
        /// Also those that are gone.
        all: bool,
    },
    /// Gives a notice. Repeated, the earlier deadline holds. Reply: `Node`.
    Notice {
        /// The node.
        node: NodeSelector,
        /// Milliseconds left; refused unless positive.
        deadline_millis: i64,
        /// Why.
        reason: String,
    },
    /// Starts an orderly removal without a deadline. Reply: `Node`.
    Decommission {
        /// The node.
        node: NodeSelector,
        /// Why.
        reason: String,
    },
    /// Takes a notice or decommission back. Reply: `Node`.
    Cancel {
        /// The node.
        node: NodeSelector,
    },
    /// The node's fence is up. The namenode sends this to itself when the datanode has
    /// acknowledged.
    Fenced {
        /// The node.
        node: NodeId,
    },

    /// Requests the manager's leadership lease, or renews it. Reply: `ManagerGrant`.
    Manage {
        /// The manager's process.
        holder: Nonce,
        /// Its name, for events.
        name: String,
        /// For how long.
        lease: Millis,
    },
    /// The drains under way. Reply: `Drains`.
    Drains {
        /// The manager.
        holder: Nonce,
    },
    /// Blocks whose home a node is, in the order of their ids. Reply: `Candidates`.
    DrainBlocks {
        /// The manager.
        holder: Nonce,
        /// The node.
        node: NodeId,
        /// Start after this block.
        after: BlockId,
        /// At most this many, and never more than `BLOCKS_PER_PAGE_MAX`.
        limit: u32,
    },
    /// Blocks whose home a node is, in the order of their ids, for a caller that only reads, such
    /// as a plan that moves nothing. Reply: `Candidates`.
    NodeBlocks {
        /// The node.
        node: NodeSelector,
        /// Start after this block.
        after: BlockId,
        /// At most this many, and never more than `BLOCKS_PER_PAGE_MAX`.
        limit: u32,
    },
    /// Reserves future homes. Reply: `Epochs`: the epoch that each copy gets.
    Reserve {
        /// The manager.
        holder: Nonce,
        /// The moves.
        moves: Vec<MoveProposal>,
    },
    /// Publishes new homes, each by compare-and-set on the epoch. Reply: `Epochs`.
    Commit {
        /// The manager.
        holder: Nonce,
        /// The moves.
        moves: Vec<MoveCommit>,
    },
    /// Gives reservations back. Reply: `Done`.
    Abandon {
        /// The manager.
        holder: Nonce,
        /// Blocks whose reserved moves are given up.
        blocks: Vec<BlockId>,
    },

    /// Gives copies up that precopy made. Reply: `Done`.
    DropCopies {
        /// The manager.
        holder: Nonce,
        /// Blocks whose copy beside the home goes.
        blocks: Vec<BlockId>,
    },
    /// Reports what is to be expected of a drain. Reply: `Done`.
    Forecast {
        /// The manager.
        holder: Nonce,
        /// The draining node.
        node: NodeId,
        /// What is expected.
        forecast: Forecast,
    },
    /// Marks a node as likely to get its notice soon, by the cloud's rebalance recommendation: it
    /// gets no new blocks while others have room and what it holds is copied. Reply: `Node`.
    Recommend {
        /// The node.
        node: NodeSelector,
        /// Why.
        reason: String,
        /// Whether the recommendation with this reason is taken back; another one stays.
        is_withdrawn: bool,
    },

    /// Events after a sequence; waits for one if there is none. Reply: `Events`.
    Events {
        /// The last sequence seen; 0 for all that are kept.
        after: u64,
        /// At most this many.
        limit: u32,
        /// Wait at most this long for the first.
        wait: Millis,
    },
    /// Reply: `Report`.
    Report,
    /// Checks the catalog against itself. Reply: `Fsck`.
    Fsck,

    /// Requests a token that allows less than the caller's own. Reply: `Token`.
    MintToken(MintToken),
    /// A datanode requests which blocks belong to objects in a subtree, for a caller that may touch
    /// no others. Reply: `Within`, one word for each block.
    Within {
        /// The subtree's root.
        subtree: Path,
        /// The blocks, at most `BLOCKS_PER_PAGE_MAX`.
        blocks: Vec<BlockId>,
    },

    /// Registers a datanode that keeps count of the log, as `Register` does one that does not.
    /// Reply: `Joined`.
    Join(Box<Join>),
    /// Shows that a datanode that keeps count of the log is alive, as `Heartbeat` does for one that
    /// does not. Reply: `Beat`.
    Beat(Heartbeat),
    /// A change that is executed once, however often it arrives. Reply: that of the change.
    Once(Box<Once>),
    /// A client that is going to make changes requests its number. Reply: `Client`.
    OpenClient {
        /// Drawn by the client.
        key: Nonce,
    },
    /// Deletes an object if it still has that name. A durable directory, or the root of a job, is
    /// refused with `WrongKind` unless the deletion is recursive. Reply: `Deleted`.
    DeleteObject {
        /// The name.
        path: Path,
        /// The object: refused with `Changed` if another one has the name by now.
        object: ObjectId,
        /// Delete a directory with what is in it.
        recursive: bool,
    },
    /// What may still be written, and what is kept for nodes that leave. Reply: `Room`.
    Room,
    /// A datanode repeats a notice or a recommendation that the namenode had and seems to have
    /// lost. It changes nothing if the namenode still has it, or if it was withdrawn since. Reply:
    /// `Node`.
    Repeat(Repeat),
    /// A datanode reports blocks whose bytes it holds damaged, or not at all. Sent again until it
    /// is answered; a report that no longer holds changes nothing. Reply: `Done`.
    ReportDamage {
        /// The node.
        node: NodeId,
        /// Its process.
        nonce: Nonce,
        /// The blocks, at most `DAMAGED_PER_REPORT_MAX`.
        blocks: Vec<DamagedBlock>,
    },
    /// A datanode requests what it must hold: blocks whose home or copy it is and of which bytes
    /// are published, in the order of their ids. Reply: `Expected`.
    ExpectedBlocks {
        /// The node.
        node: NodeId,
        /// Its process.
        nonce: Nonce,
        /// Start after this block.
        after: BlockId,
        /// At most this many, and never more than `BLOCKS_PER_PAGE_MAX`.
        limit: u32,
    },
    /// Takes tokens back before they end, or lets them hold again. Reply: `Done`.
    RevokeTokens {
        /// Which.
        tokens: TokenSelector,
        /// When the last of them ends by itself, in seconds since 1970; `None` to let them hold
        /// again.
        until: Option<u64>,
    },
    /// Which tokens do not hold any more. Reply: `Revocations`.
    Revocations {
        /// The version that the caller has; 0 if it has none.
        known: u64,
    },
    /// Makes a job with limits beside its quota; `RegisterJob` makes one without. Reply: `Job`.
    RegisterLimitedJob(Box<RegisterLimitedJob>),
    /// What a job holds beside bytes. Reply: `JobAccount`.
    JobAccount {
        /// The job.
        job: JobId,
    },
    /// The namenodes of the group, in the view of the one that answers. Every member answers, the
    /// leader or not. Reply: `Members`.
    Members,
    /// About durable directories. Reply: see there.
    Durable(Box<DurableRequest>),
    /// A datanode gives a notice that one of its sources shows, or states what is left of its
    /// notices after one was withdrawn. What an operator gave is not changed by it. Reply: `Node`.
    SourceNotice(SourceNotice),
    /// A datanode requests what is counted for blocks at it, as far as they belong to objects in a
    /// subtree. Reply: `CountedBlocks`, one count for each block.
    CountedBlocks {
        /// The datanode.
        node: NodeId,
        /// The subtree's root.
        subtree: Path,
        /// The blocks, at most `BLOCKS_PER_PAGE_MAX`.
        blocks: Vec<BlockId>,
    },
}

/// One reply of the namenode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each variant answers the requests that name it")]
pub enum Reply {
    Done,
    Grant(Grant),
    Stat(ObjectStat),
    Layout(Layout),
    Found(Lookups),
    Entries { entries: Vec<Entry>, is_more: bool },
    Renewed { ended: Vec<ObjectId> },
    Deleted { objects: u64, freed_bytes: u64 },
    Usage(Usage),
    Job(JobInfo),
    Jobs(Vec<JobInfo>),
    Registered(Registered),
    Heartbeat(HeartbeatReply),
    Drop { blocks: Vec<BlockId> },
    Nodes(Vec<NodeInfo>),
    Node(Box<NodeInfo>),
    ManagerGrant { lease: Millis },
    Drains { drains: Vec<DrainWork>, nodes: Vec<NodeInfo> },
    Candidates { candidates: Vec<MoveCandidate>, is_more: bool },
    Epochs(Vec<Result<Epoch, Refusal>>),
    Events(Vec<Event>),
    Report(LossReport),
    Fsck(FsckReport),
    Token(Token),
    Within(Vec<bool>),
    Joined(Box<Joined>),
    Beat { heartbeat: HeartbeatReply, position: Option<LogPosition> },
    Client { number: u64 },
    Room(Room),
    Expected { blocks: Vec<HeldBlock>, is_more: bool },
    Revocations { version: u64, list: Option<Vec<Revocation>> },
    JobAccount(JobAccount),
    Members(Members),
    Durable(Box<DurableReply>),
    CountedBlocks(Vec<BlockCount>),
}
