//! What the namenode counts for a block.

use serde::{Deserialize, Serialize};

use crate::Tier;

/// What is counted for a block at one node, for that node and the caller of which it requests this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockCount {
    /// The block is outside of the caller's subtree, or gone.
    Foreign,
    /// Nothing at this node: the block's home is another one, or its bytes are lost.
    Elsewhere,
    /// Its writer may still add bytes, or the namenode may still take its end back.
    Open {
        /// The bytes that it was granted: it holds no more.
        bytes_max: u32,
        /// The tier in which it was granted them.
        tier: Tier,
    },
    /// Its length is final.
    Ended {
        /// The bytes that were published.
        length: u32,
    },
}

impl BlockCount {
    /// Returns whether the block is in the caller's subtree.
    #[must_use]
    pub const fn is_own(self) -> bool {
        !matches!(self, Self::Foreign)
    }
}
