//! The names of the files in the directory of a disk tier. A local cluster deletes these files and
//! no others; a test there compares its names with these.

use sanderling_protocol::BlockId;

/// Marks the directory of a datanode, which locks it.
pub const MARKER: &str = "sanderling-datanode";

/// How the names of block files end.
pub(crate) const BLOCK_SUFFIX: &str = ".block";

/// Returns the name of a block's file, the one of this number since the start.
#[must_use]
pub fn block(block: BlockId, serial: u64) -> String {
    format!("{:016x}-{serial}{BLOCK_SUFFIX}", block.0)
}
