//! Events: what happened to the cluster, for clients that follow it.

use serde::{Deserialize, Serialize};

use crate::ids::{BlockId, JobId, MemberId, NodeId, ObjectId};
use crate::message::Forecast;
use crate::path::Path;
use crate::refusal::ByteRange;
use crate::time::{Instant, Millis};

/// One event. Sequences count upwards; a start of the namenode leaves a gap, so that none is given
/// out twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number: sequences increase.
    pub sequence: u64,
    /// The time of the event, by the namenode's clock.
    pub at: Instant,
    /// What happened.
    pub kind: EventKind,
}

/// The kinds of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields' names are the events' words")]
pub enum EventKind {
    /// A datanode joined.
    NodeRegistered { node: NodeId, name: String, address: String },
    /// A notice was given.
    NodeNoticed { node: NodeId, name: String, deadline_in: Millis, reason: String, bytes: u64 },
    /// A decommission began.
    NodeDecommissioning { node: NodeId, name: String, reason: String, bytes: u64 },
    /// The datanode acknowledged its fence.
    NodeFenced { node: NodeId },
    /// A notice or decommission was taken back.
    NodeCancelled { node: NodeId },
    /// Blocks got a new home.
    BlocksMoved { from: NodeId, to: NodeId, blocks: u64, bytes: u64 },
    /// Copies became homes because the old home drains or is gone. No byte moved.
    BlocksPromoted { from: NodeId, blocks: u64, bytes: u64 },
    /// Blocks got a copy beside their home.
    BlocksCopied { from: NodeId, to: NodeId, blocks: u64, bytes: u64 },
    /// Blocks got a new home so that loads are even.
    BlocksRebalanced { from: NodeId, to: NodeId, blocks: u64, bytes: u64 },
    /// What is expected of a drain: at its start, and when it turns for the better or the worse.
    DrainForecast { node: NodeId, forecast: Forecast },
    /// The cloud recommends to leave a node.
    NodeAtRisk { node: NodeId, name: String, reason: String },
    /// A draining node holds nothing more.
    NodeDrained { node: NodeId, moved_blocks: u64, moved_bytes: u64, elapsed: Millis },
    /// A node was declared dead, or its deadline passed.
    NodeGone { node: NodeId, name: String, why: String },
    /// Bytes were declared lost.
    BlocksLost { node: NodeId, blocks: u64, bytes: u64, objects: u64, jobs: Vec<JobId> },
    /// A job's lease began.
    JobRegistered { job: JobId, path: Path },
    /// A job ended, by its owner or because its lease ran out.
    JobEnded { job: JobId, path: Path, is_expired: bool, freed_bytes: u64 },
    /// The first manager, or another one than before, leads from now on.
    ManagerChanged { name: String },
    /// The namenode started and read its log up to here.
    NamenodeStarted { commands: u64, cut_bytes: u64 },
    /// No namenode served for that long: leases, times to live and notices waited.
    NamenodeAbsent { millis: u64 },
    /// A node had received changes that are missing from the namenode's log: its end was lost, or
    /// an older copy of it was put back. `commands` are missing at least; `None` when that is
    /// unknown.
    LogEndLost { name: String, address: String, commands: Option<u64> },
    /// A node held blocks that only a lost end of the log contained. They are dropped.
    BlocksOrphaned { node: NodeId, blocks: u64, bytes: u64 },
    /// So many nodes could not leave any more without a loss: their bytes would not fit elsewhere.
    ReserveShort { departures: u32, missing_bytes: u64 },
    /// So many nodes may leave again.
    ReserveRestored { departures: u32, room_bytes: u64 },
    /// Acknowledged changes are gone: whole records in bytes of journal that were given up.
    JournalCut { records: u64, bytes: u64, is_accepted: bool, why: String },
    /// A damaged snapshot was not used; nothing is lost by that.
    SnapshotSkipped { commands: u64, why: String },
    /// A datanode found blocks damaged or missing. Of `saved` of them there is another copy.
    BlocksDamaged { node: NodeId, blocks: u64, saved: u64 },
    /// Another namenode leads the group from now on.
    NamenodeLeads { member: MemberId, address: String },
    /// Namenodes vote from now on, or have left the group.
    GroupChanged { joined: Vec<MemberId>, left: Vec<MemberId> },
    /// One more loss of a namenode could stop the group.
    GroupAtRisk { why: String },
    /// The group survives a loss again, with so many voters.
    GroupRestored { voters: u64 },
    /// What is sealed below a directory is copied to a store from now on.
    DirectoryDurable { path: Path, store: String },
    /// A store has everything that was sealed below a durable directory: so many objects more.
    ObjectsDurable { path: Path, store: String, objects: u64, bytes: u64 },
    /// The oldest change of a durable directory cannot be made in its store; it is tried again.
    DurableStalled { path: Path, store: String, why: String },
    /// A durable directory was deleted. Its store keeps what it has, and never gets so many changes
    /// that waited.
    DurableDropped { path: Path, store: String, changes: u64, bytes: u64 },
    /// The objects that a store had became those of a durable directory. So many of them could not.
    StoreAdopted { path: Path, store: String, objects: u64, bytes: u64, skipped: u64 },
}

/// Lost bytes of one object, from one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// When they were declared lost.
    pub at: Instant,
    /// The node they were on.
    pub node: NodeId,
    /// The cause, such as the deadline of the node's notice.
    pub why: String,
    /// The object.
    pub object: ObjectId,
    /// Its path at that time.
    pub path: Path,
    /// Its job.
    pub job: Option<JobId>,
    /// Its blocks that are lost.
    pub blocks: Vec<BlockId>,
    /// The lost ranges of the object.
    pub ranges: Vec<ByteRange>,
}

/// Counts everything that was ever declared lost, and beside it what was moved and copied so that
/// it was not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossReport {
    /// The number of lost blocks since the cluster began.
    pub blocks: u64,
    /// The number of lost bytes since the cluster began.
    pub bytes: u64,
    /// Objects touched, counted once per cause.
    pub objects: u64,
    /// Bytes relocated by drains, in all.
    pub moved_bytes: u64,
    /// Bytes whose copy became their home, in all.
    pub promoted_bytes: u64,
    /// Bytes copied ahead of notices, in all.
    pub copied_bytes: u64,
    /// Bytes moved to make loads even, in all.
    pub rebalanced_bytes: u64,
    /// The number of notices since the cluster began.
    pub notices: u64,
    /// The losses by object, the newest last, up to `LOST_OBJECTS_KEPT_MAX`.
    pub losses: Vec<Loss>,
    /// Whether older losses were dropped from the list. The counts always cover all losses.
    pub is_truncated: bool,
}
