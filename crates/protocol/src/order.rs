//! Orders that the namenode and the manager give to datanodes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{BlockId, Epoch, NodeId, ObjectId};
use crate::message::{DurableLoss, StoreSlice};
use crate::refusal::Refusal;
use crate::tier::Tier;
use crate::time::Millis;

/// An order of the namenode or the manager to a datanode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Refuse every write from now on with `Moved`; serve reads and deletes.
    FenceNode {
        /// Time left until the node is expected to be killed; `None` for a decommission.
        deadline_in: Option<Millis>,
    },
    /// Take new blocks again: the notice was cancelled. Blocks that were fenced one by one stay so.
    UnfenceNode,
    /// Refuse writes to these blocks for good and record these epochs of them: a writer lost its
    /// lease.
    FenceBlocks {
        /// Each block with its raised epoch.
        blocks: Vec<(BlockId, Epoch)>,
    },
    /// Forget these blocks and free their space once no read of them is under way.
    Drop {
        /// Each block with the last epoch that is meant; unknown ones are passed over. A copy at a
        /// later epoch came after the order was given and stays.
        blocks: Vec<(BlockId, Epoch)>,
    },
    /// Serve these blocks from the object tier: the node that put them there is gone.
    Adopt {
        /// Each block with the epoch under which it is stored and its length.
        blocks: Vec<(BlockId, Epoch, u32)>,
    },
    /// Fence each block, then copy it to its target.
    Push {
        /// The copies to make, in this order.
        moves: Vec<PushMove>,
    },
    /// List the blocks held, in the order of their ids.
    ListBlocks {
        /// Start after this block.
        after: BlockId,
        /// At most this many, and never more than `BLOCKS_PER_PAGE_MAX`.
        limit: u32,
    },
    /// Look at the blocks held, in the order of their ids: whether the bytes are there, and on
    /// request whether they are those that were written. What is found is reported to the namenode
    /// as well.
    Verify {
        /// Start after this block.
        after: BlockId,
        /// At most this many, and never more than `VERIFIED_PER_ORDER_MAX`.
        limit: u32,
        /// Whether the bytes are read and compared with their checksums.
        with_checksums: bool,
    },
    /// Send parts of an object to a store, where they stay invisible until the upload is completed.
    Upload(Box<UploadOrder>),
    /// Change what is visible in a store, in this order, and stop at the first failure.
    ChangeStore {
        /// The durable directory.
        directory: ObjectId,
        /// The name of the store.
        store: String,
        /// The changes, at most `STORE_CHANGES_PER_ORDER_MAX`.
        changes: Vec<StoreChange>,
    },
    /// End uploads, so that they can never be completed; one that was completed stays so.
    AbortUploads {
        /// The durable directory.
        directory: ObjectId,
        /// The name of the store.
        store: String,
        /// Key and upload of each.
        uploads: Vec<(String, String)>,
    },
    /// Read lost blocks back from a store, and hold them.
    Restore(Box<DurableLoss>),
    /// Make a store that another directory had, or none, this directory's.
    TakeStore {
        /// The durable directory.
        directory: ObjectId,
        /// The name of the store.
        store: String,
    },
    /// List a part of what a store has.
    ListStore {
        /// The durable directory.
        directory: ObjectId,
        /// The name of the store.
        store: String,
        /// Begin after this name.
        after: String,
    },
}

/// Parts of an object that a datanode is to send to a store outside of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadOrder {
    /// The durable directory.
    pub directory: ObjectId,
    /// Whether an empty place may become the directory's store.
    pub may_claim: bool,
    /// The name of the store.
    pub store: String,
    /// The object's name there, relative to the store's URL.
    pub key: String,
    /// The upload to which the parts belong; `None` to begin one.
    pub upload: Option<String>,
    /// The parts.
    pub parts: Vec<UploadPart>,
}

/// One part of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadPart {
    /// Its number among the upload's parts, from 0.
    pub number: u32,
    /// The offset of its first byte in the object.
    pub offset: u64,
    /// Its first bytes: those that live in the catalog.
    #[serde(with = "crate::byte_vec")]
    pub inline: Vec<u8>,
    /// The blocks with the bytes that follow, in order.
    pub blocks: Vec<UploadBlock>,
}

/// A block of which all published bytes are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadBlock {
    /// The block.
    pub block: BlockId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its published bytes.
    pub length: u32,
    /// Its home.
    pub node: NodeId,
    /// The address at which that serves blocks: `host:port`.
    pub address: String,
}

/// A change of what is visible in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreChange {
    /// An upload becomes the object of this name, at once and in place of the one that it had.
    Complete {
        /// The name, relative to the store's URL.
        key: String,
        /// The upload.
        upload: String,
        /// What the store answered to each part, in their order.
        parts: Vec<String>,
        /// The object's bytes.
        bytes: u64,
    },
    /// The object of this name goes; it may be gone already.
    Remove {
        /// The number of the change in its directory.
        number: u64,
        /// The name, relative to the store's URL.
        key: String,
    },
    /// All objects whose names begin with this one and a slash go.
    RemoveTree {
        /// The number of the change in its directory.
        number: u64,
        /// The name, relative to the store's URL.
        key: String,
    },
}

/// The damage of a block's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// They do not have the checksum that they were written with.
    Checksum,
    /// There are fewer than were acknowledged.
    Short,
    /// There are none.
    Missing,
    /// The medium does not give them.
    Unreadable,
}

impl fmt::Display for Damage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Checksum => "its bytes do not have their checksum",
            Self::Short => "it is shorter than what was acknowledged",
            Self::Missing => "it is missing",
            Self::Unreadable => "its medium cannot be read",
        })
    }
}

/// A block that a datanode found damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedBlock {
    /// The block.
    pub block: BlockId,
    /// The epoch at which the node holds it, or should.
    pub epoch: Epoch,
    /// The kind of damage.
    pub damage: Damage,
}

/// One block to copy to one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushMove {
    /// The block.
    pub block: BlockId,
    /// The epoch at which this node holds it.
    pub from_epoch: Epoch,
    /// The epoch that the copy gets; it becomes the block's when the move is committed.
    pub to_epoch: Epoch,
    /// The target.
    pub to: NodeId,
    /// The address at which the target serves blocks: `host:port`.
    pub address: String,
    /// The target's tier.
    pub tier: Tier,
    /// The bytes to send at most: those that count, for a block that has ended. This node may hold
    /// more, which were never acknowledged and for which the target has no room.
    pub bytes_max: u32,
}

/// The result of pushing one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pushed {
    /// Bytes of the block. A block that was reserved and never written has 0 and is not copied.
    pub length: u32,
}

/// One block as a datanode holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBlock {
    /// The block.
    pub block: BlockId,
    /// The epoch at which it is held.
    pub epoch: Epoch,
    /// Its bytes.
    pub length: u32,
    /// Its tier.
    pub tier: Tier,
}

/// The answer of a datanode to an order of the namenode or the manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderReply {
    /// Done.
    Done,
    /// Answer to `FenceBlocks`: the acknowledged length of each block in order; 0 for one never
    /// written here.
    Fenced(Vec<u32>),
    /// Answer to `Push`, in order.
    Pushed(Vec<Result<Pushed, Refusal>>),
    /// Answer to `ListBlocks`: empty at the end.
    Blocks(Vec<HeldBlock>),
    /// The order was refused whole.
    Refused(Refusal),
    /// Answer to `Verify`, each block with what is wrong with it: empty at the end. It ends before
    /// the first object at which the store did not let look.
    Verified(Vec<(HeldBlock, Option<Damage>)>),
    /// Answer to `Upload`: the upload, and what the store answered to each part, in order.
    Uploaded {
        /// Names the upload in further orders.
        upload: String,
        /// One text for each part.
        parts: Vec<String>,
    },
    /// Answer to `ChangeStore`: how many changes were made, and why the next one was not.
    StoreChanged {
        /// Changes that are visible.
        done: u32,
        /// The failure of the one that follows, if there is one.
        failure: Option<Refusal>,
    },
    /// Answer to `Restore`: the tier of each block, in order.
    Restored(Vec<Tier>),
    /// Answer to `TakeStore`: how long the store's former owner may still change it.
    StoreTaken {
        /// 0 if it has none, or cannot.
        settles_in: Millis,
    },
    /// Answer to `ListStore`.
    StoreListed(StoreSlice),
}
