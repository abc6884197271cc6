//! Orders that the namenode and the manager give to datanodes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{BlockId, Epoch, NodeId};
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

/// The answer to an order.
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
    /// Answer to `Verify`, each block with what is wrong with it: empty at the end.
    Verified(Vec<(HeldBlock, Option<Damage>)>),
}
