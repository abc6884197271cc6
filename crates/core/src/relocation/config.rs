//! The bounds of a relocator.

use sanderling_protocol::Millis;
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;

/// The limits within which a relocator empties nodes: batches under way, their sizes, and waits.
#[derive(Debug, Clone)]
pub struct RelocatorConfig {
    /// Batches under way from one source, the smallest of them included. The bytes under way are
    /// paced to the link; this bounds what is remembered and requested from the namenode at once.
    pub source_batches_max: usize,
    /// Batches under way to one target, from all sources, so that it can still serve its clients;
    /// half as many while clients go first.
    pub target_batches_max: usize,
    /// Most blocks in one batch: bounds one frame of the reservation and how late the first block
    /// is committed.
    pub batch_blocks_max: usize,
    /// Most bytes in one batch, unless its only block has more. One push sends them and they are
    /// committed together, so this bounds what a failed push costs.
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
