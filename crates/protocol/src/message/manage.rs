//! Requests of the manager and of the operator's tools.

use serde::{Deserialize, Serialize};

use crate::ids::{BlockId, Epoch, JobId, NodeId, ObjectId};
use crate::path::Path;
use crate::tier::Tier;
use crate::time::Millis;

/// One node that must be emptied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainWork {
    /// The node.
    pub node: NodeId,
    /// The address at which it accepts orders: `host:port`.
    pub address: String,
    /// Time left; `None` for a decommission.
    pub deadline_in: Option<Millis>,
    /// Blocks whose home it still is.
    pub left_blocks: u64,
    /// Their bytes.
    pub left_bytes: u64,
}

/// One block that must leave a node, with what its place in the queue depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveCandidate {
    /// The block.
    pub block: BlockId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its bytes as last published. Of an open block the datanode may hold more.
    pub length: u32,
    /// Bytes that the move reserves: `length` of a sealed block, the reservation of an open one.
    pub reserve_bytes: u32,
    /// Its tier.
    pub tier: Tier,
    /// Its object.
    pub object: ObjectId,
    /// The object's job.
    pub job: Option<JobId>,
    /// Time until the object expires by its TTL.
    pub expires_in: Option<Millis>,
    /// The job's hint: milliseconds of work per MiB to compute it again.
    pub recompute_millis_per_mib: u64,
    /// The job's hint: how often it will be read; 1 without one.
    pub expected_reads: u32,
    /// Milliseconds since its object last changed, by which cold blocks are found.
    pub idle: Millis,
    /// Whether a writer still has it.
    pub is_open: bool,
    /// The target of a move already reserved for it, which survives a change of managers.
    pub reserved_to: Option<(NodeId, Tier)>,
    /// The node and tier of its copy: the block needs no other copy, and no push when its home
    /// leaves. [`IN_STORE`] if the store of its durable directory has it.
    pub copy: Option<(NodeId, Tier)>,
}

/// In place of the node and tier of a copy: the store of a durable directory has the block's bytes,
/// from where they are read back if the home ends. No node has the number 0.
pub const IN_STORE: (NodeId, Tier) = (NodeId(0), Tier::Object);

impl MoveCandidate {
    /// Returns whether the store of its durable directory has it.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.copy == Some(IN_STORE)
    }

    /// Returns the most bytes of it that may count: all that its datanode holds while a writer may
    /// still report how many do, those that were published afterwards.
    #[must_use]
    pub const fn counted_bytes(&self) -> u32 {
        if self.is_open { u32::MAX } else { self.length }
    }
}

/// The purpose of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MovePurpose {
    /// The home drains: the commit changes it. Reserved until the drain ends.
    Relocate,
    /// The home stays and the target gets a copy, for the notice that may come. Reserved for
    /// `BACKGROUND_MOVE_MILLIS_MAX`.
    Precopy,
    /// The commit changes the home and the old copy goes, so that loads are even. Reserved for
    /// `BACKGROUND_MOVE_MILLIS_MAX`.
    Rebalance,
}

/// The forecast of a drain by the manager that runs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// Bytes that are to be moved and have not been.
    pub left_bytes: u64,
    /// Bytes per second at which they leave, over the last seconds.
    pub bytes_per_second: u64,
    /// Time until the last of them has left; `None` before anything was measured.
    pub finish_in: Option<Millis>,
    /// Bytes that stay because they expire by themselves before the deadline.
    pub skipped_bytes: u64,
    /// Bytes that will not have left by the deadline at this rate.
    pub late_bytes: u64,
    /// Bytes for which no node has room.
    pub unplaced_bytes: u64,
    /// The number of nodes that receive them.
    pub targets: u32,
}

impl Forecast {
    /// Returns whether everything has left by the deadline, and has a place.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.late_bytes == 0 && self.unplaced_bytes == 0
    }
}

/// A move to reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveProposal {
    /// The block.
    pub block: BlockId,
    /// The epoch at which the manager read it.
    pub from_epoch: Epoch,
    /// The future home.
    pub to: NodeId,
    /// Its tier.
    pub tier: Tier,
    /// The purpose.
    pub purpose: MovePurpose,
}

/// A move to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveCommit {
    /// The block.
    pub block: BlockId,
    /// The epoch at which it was pushed.
    pub from_epoch: Epoch,
    /// The epoch of the copy: that of the reservation for which it was made.
    pub to_epoch: Epoch,
    /// The new home.
    pub to: NodeId,
    /// Bytes that the target holds.
    pub length: u32,
}

/// The objects and bytes of a subtree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Files and key-values.
    pub files: u64,
    /// Directories, multifiles and tables.
    pub directories: u64,
    /// Bytes of published data.
    pub bytes: u64,
    /// Bytes of it that are lost.
    pub lost_bytes: u64,
}

/// The result of a check of the catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckReport {
    /// Files and key-values.
    pub files: u64,
    /// Directories, multifiles and tables.
    pub directories: u64,
    /// Blocks with a home.
    pub blocks: u64,
    /// Their published bytes.
    pub bytes: u64,
    /// Blocks that a writer still has.
    pub open_blocks: u64,
    /// Blocks declared lost that an object still names.
    pub lost_blocks: u64,
    /// Their bytes.
    pub lost_bytes: u64,
    /// Blocks of which there is a copy beside the home.
    pub copied_blocks: u64,
    /// Objects with lost bytes, up to `LOST_OBJECTS_KEPT_MAX`.
    pub lost_objects: Vec<Path>,
    /// Contradictions inside the catalog: each is a bug.
    pub problems: Vec<String>,
}

/// The room for writers, and the room that is kept for nodes that leave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Nodes that must be able to leave at once, beside those that are leaving.
    pub departures: u32,
    /// Whether that number follows from the number of nodes: no operator set it.
    pub is_default: bool,
    /// Size of all tiers of the nodes that take blocks.
    pub capacity_bytes: u64,
    /// Bytes of all homes, on nodes that leave, too, and bytes reserved by writers. Copies made
    /// ahead do not count: they give way.
    pub stored_bytes: u64,
    /// Bytes of the capacity that new blocks must not use.
    pub reserve_bytes: u64,
    /// Bytes that may still be written in memory and on disks.
    pub room_bytes: u64,
    /// Bytes that would find no place if so many nodes left now; 0 when all would.
    pub missing_bytes: u64,
}

impl Room {
    /// Returns whether so many nodes may leave now without a loss for want of room.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.missing_bytes == 0
    }
}
