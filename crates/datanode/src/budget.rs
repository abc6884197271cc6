//! How the memory that the process may take is shared out.

use sanderling_core::datanode::JOINED_BYTES_MAX;
use sanderling_core::durable::PART_BYTES_MIN;
use sanderling_protocol::limits::{ALLOCATION_UNIT_BYTES, BLOCK_BYTES_MAX};
use sanderling_protocol::{Refusal, Tier, amount};
use sanderling_transport::MEMORY_MAX;

use crate::error::DatanodeStartError;
use crate::options::DatanodeOptions;

/// What the process takes for itself: code, threads, short requests, buffers that are kept, the
/// last dropped blocks. An idle one has 15 MiB, connections add 6 KiB each at least, and what they
/// take beyond is counted with long requests. The blocks that callers were found to own take 8 MiB
/// (`REMEMBERED_BY_ALL_MAX` of the core) and 152 bytes for each connection.
const OWN_BYTES: u64 = 48 << 20;

/// Reads of the disk tier and the object tier that are under way, and the buffers kept for them.
/// 32 MiB are read from the disk at once (`ROOM_BYTES` of `disk_room`), and 32 MiB of blocks of the
/// object tier are kept (`KEPT_BYTES_MAX` of its reader). Blocks that are being fetched from the
/// object tier, and unused buffers of the disk, come on top for moments.
const READS_BYTES: u64 = 64 << 20;

/// The least for long requests: two of the longest, each in a buffer of a power of two.
const REQUESTS_BYTES_MIN: u64 = 64 << 20;

/// The most for joined parts of uploads to durable stores: of four uploads, as many as the manager
/// lets a node have under way. The shortest part of each comes out of [`OWN_BYTES`].
const JOINED_PARTS_BYTES_MAX: u64 = 4 * (JOINED_BYTES_MAX - PART_BYTES_MIN);

/// The least for the index, beside what the blocks of a full memory tier need. 6,500 blocks more
/// than that: small objects, or a disk tier that is not full.
const INDEX_BYTES_MIN: u64 = 4 << 20;

/// Memory that the index takes for a block: its entry, handles and checksums. Measured with blocks
/// of one byte: 442 from 7,107 to 13,251 blocks, with two lists of blocks whose end is looked up;
/// `crates/cli/tests/peers/memory.rs` holds 512. The third list has 50 for a block that has ended
/// with fewer bytes, computed from the nodes of its tree, half full.
const BLOCK_BYTES: u64 = 640;

/// Bytes of the smallest extent, of the run of a checksum and of an encrypted unit.
const UNIT_BYTES: u64 = ALLOCATION_UNIT_BYTES as u64;

/// Memory that the index takes for a unit of the memory tier: a checksum, and an extent if the
/// block was written in pieces of this size.
const DRAM_UNIT_BYTES: u64 = 100;

/// Memory that the index takes for a unit of the disk tier: a checksum, and which append wrote the
/// unit if it is encrypted.
const DISK_UNIT_BYTES: u64 = 24;

/// Bytes of memory for what a datanode keeps beside the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Long requests that are received.
    pub(crate) requests: usize,
    /// What is kept of each block that is not its bytes.
    pub(crate) index: u64,
    /// Parts of uploads beyond the shortest of each.
    pub(crate) joined_parts: u64,
}

impl Budget {
    /// Shares out what the options allow.
    ///
    /// # Errors
    /// [`DatanodeStartError::MemoryMax`]: that is less than the memory tier and the rest need.
    pub(crate) fn of(options: &DatanodeOptions) -> Result<Self, DatanodeStartError> {
        let joined_max = if options.durable.is_empty() { 0 } else { JOINED_PARTS_BYTES_MAX };
        let Some(max) = options.memory_max else {
            let (requests, index) = (MEMORY_MAX, u64::MAX);
            return Ok(Self { requests, index, joined_parts: joined_max });
        };
        let min = memory_min(options);
        let Some(left) = max.checked_sub(min) else {
            return Err(DatanodeStartError::MemoryMax { max, min, dram: options.dram_bytes });
        };
        // The index gets most: requests that find no memory are sent again, blocks go elsewhere,
        // and parts that find none are short.
        let more = (left / 4).min(MEMORY_MAX as u64 - REQUESTS_BYTES_MIN);
        let requests = usize::try_from(REQUESTS_BYTES_MIN + more).unwrap_or(usize::MAX);
        let joined_parts = (left / 8).min(joined_max);
        assert!(more + joined_parts <= left, "the index keeps what it needs at least");
        let index = index_min(options.dram_bytes) + left - more - joined_parts;
        Ok(Self { requests, index, joined_parts })
    }
}

/// Returns the least memory that a datanode with these options needs.
pub(crate) fn memory_min(options: &DatanodeOptions) -> u64 {
    let reads = if options.disk.is_some() || options.object.is_some() { READS_BYTES } else { 0 };
    let staging = options.local.as_ref().map_or(0, |local| local.staging_bytes_max);
    [options.dram_bytes, index_min(options.dram_bytes), OWN_BYTES, REQUESTS_BYTES_MIN]
        .into_iter()
        .chain([reads, staging])
        .fold(0, u64::saturating_add)
}

/// Returns what the index needs when the memory tier is full of whole blocks.
fn index_min(dram_bytes: u64) -> u64 {
    let blocks = dram_bytes / u64::from(BLOCK_BYTES_MAX);
    INDEX_BYTES_MIN + index_bytes(blocks, dram_bytes, 0)
}

/// Returns the memory that the index takes for so many blocks: for a memory tier of so many bytes,
/// full or not, and so many bytes on disk.
pub(crate) const fn index_bytes(blocks: u64, dram_bytes: u64, disk_bytes: u64) -> u64 {
    blocks * BLOCK_BYTES
        + dram_bytes / UNIT_BYTES * DRAM_UNIT_BYTES
        + disk_bytes / UNIT_BYTES * DISK_UNIT_BYTES
}

/// Returns why a block cannot begin or grow although its tier has room.
pub(crate) fn index_is_full(tier: Tier, max: u64) -> Refusal {
    let why = format!(
        "the index of this node's blocks has reached its {}: write to another node, delete \
         files, or raise the datanode's --memory-max",
        amount::bytes(max)
    );
    Refusal::TierFailed { tier: tier.to_string(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::DurableOptions;

    fn options(dram_bytes: u64, memory_max: Option<u64>) -> DatanodeOptions {
        DatanodeOptions { dram_bytes, memory_max, local: None, ..DatanodeOptions::default() }
    }

    fn with_store(options: DatanodeOptions) -> DatanodeOptions {
        let (name, url) = ("s".to_owned(), "s3://bucket".to_owned());
        let durable = vec![DurableOptions { name, url, settings: Vec::new() }];
        DatanodeOptions { durable, ..options }
    }

    #[test]
    fn parts_never_add_up_to_more_than_the_whole() {
        for dram in [4096, 64 << 20, 1 << 30, 300 << 30] {
            let min = memory_min(&options(dram, None));
            for max in [min, min + 1, min + (100 << 20), 2 * min, 1 << 40] {
                let budget = Budget::of(&with_store(options(dram, Some(max)))).unwrap();
                let Budget { requests, index, joined_parts } = budget;
                assert!(dram + index + requests as u64 + joined_parts + OWN_BYTES <= max);
                assert!((64 << 20..=512 << 20).contains(&requests), "{requests}");
                // A tier full of whole blocks has its index.
                assert!(index_bytes(dram >> 20, dram, 0) <= index, "{dram} {index}");
            }
        }
    }

    #[test]
    fn less_than_is_needed_is_refused_with_how_much_is() {
        let refused = Budget::of(&options(1 << 30, Some(1 << 30))).unwrap_err();
        let DatanodeStartError::MemoryMax { max, min, dram } = refused else { panic!("{refused}") };
        assert_eq!((max, dram), (1 << 30, 1 << 30));
        assert!(Budget::of(&options(dram, Some(min))).is_ok());
        assert!(Budget::of(&options(dram, Some(min - 1))).is_err());
    }

    #[test]
    fn without_a_bound_the_index_has_none() {
        let (requests, index, joined_parts) = (MEMORY_MAX, u64::MAX, 0);
        let unbounded = Budget { requests, index, joined_parts };
        assert_eq!(Budget::of(&options(1 << 30, None)).unwrap(), unbounded);
    }

    #[test]
    fn joined_parts_have_what_is_left_where_there_is_a_store() {
        let dram = 1 << 30;
        let joined = |options: DatanodeOptions| Budget::of(&options).unwrap().joined_parts;
        assert_eq!(joined(with_store(options(dram, None))), 100 << 20);
        let min = memory_min(&with_store(options(dram, None)));
        assert_eq!(min, memory_min(&options(dram, None)), "a store takes no more memory");
        assert_eq!(joined(with_store(options(dram, Some(min)))), 0);
        assert_eq!(joined(with_store(options(dram, Some(min + (80 << 20))))), 10 << 20);
        assert_eq!(joined(with_store(options(dram, Some(2 << 40)))), 100 << 20);
        assert_eq!(joined(options(dram, Some(2 << 40))), 0);
    }
}
