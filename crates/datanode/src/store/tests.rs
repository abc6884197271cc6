//! The bound of the index of blocks.

use bytes::Bytes;
use sanderling_protocol::checksum::crc32c;

use super::*;
use crate::arena::Arena;
use crate::disk::DiskTier;

/// Bytes of the memory tier, and what the index takes for it, full or not.
const ARENA: (u64, u64) = (1 << 20, 256 * 100);

/// What the index takes for a block.
const BLOCK: u64 = 640;

const BYTES: &[u8] = b"block";

fn store(index_bytes_max: u64) -> BlockStore {
    let arena = Arc::new(Arena::new(ARENA.0).unwrap());
    BlockStore::new(Tiers::new(arena, None, None), index_bytes_max)
}

/// Begins a block as a writer does.
fn write(store: &BlockStore, block: u64) -> Result<(), Refusal> {
    append(store, (block, Tier::Dram), 0, BYTES)
}

fn append(
    store: &BlockStore,
    (block, tier): (u64, Tier),
    offset: u64,
    written: &'static [u8],
) -> Result<(), Refusal> {
    let (block, bytes) = (BlockId(block), written.len() as u32);
    let request = WriteRequest { block, epoch: Epoch(1), tier, offset, bytes };
    let step = store.write(request, Bytes::from_static(written).into(), crc32c(written))?;
    store.finish(step).map(drop)
}

/// Takes a whole block as another datanode pushes it.
fn push(store: &BlockStore, block: u64) -> Result<(), Refusal> {
    let (block, bytes) = (BlockId(block), BYTES.len() as u32);
    let request = StoreRequest { block, epoch: Epoch(1), tier: Tier::Dram, bytes };
    store.store(&request, Bytes::from_static(BYTES).into(), crc32c(BYTES))
}

#[test]
fn index_takes_blocks_up_to_its_bound_written_or_pushed() {
    for begin in [write, push] {
        let full = store(ARENA.1 + 2 * BLOCK);
        for block in 1..=2 {
            begin(&full, block).unwrap();
        }
        assert_eq!(full.index_bytes(), full.index_bytes_max());
        let refused = begin(&full, 3);
        assert!(matches!(refused, Err(Refusal::TierFailed { .. })), "{refused:?}");
        assert_eq!(full.table().blocks(), 2);
        begin(&full, 2).expect("it repeats what is there");
        full.drop_blocks(&[(BlockId(1), Epoch(1))]);
        begin(&full, 3).unwrap();
        let smaller = store(ARENA.1 + 2 * BLOCK - 1);
        begin(&smaller, 1).unwrap();
        assert!(begin(&smaller, 2).is_err(), "a byte is missing");
    }
}

#[test]
fn full_index_takes_no_more_of_a_block_on_disk_but_of_one_in_memory() {
    const PAGE: &[u8] = &[7; 4096];
    let directory = tempfile::tempdir().unwrap();
    let disk = Arc::new(DiskTier::open(directory.path(), 1 << 20, None).unwrap());
    let arena = Arc::new(Arena::new(ARENA.0).unwrap());
    let full = BlockStore::new(Tiers::new(arena, Some(disk), None), ARENA.1 + 2 * BLOCK + 24);
    let (on_disk, in_memory) = ((1, Tier::Disk), (2, Tier::Dram));
    append(&full, on_disk, 0, PAGE).unwrap();
    append(&full, in_memory, 0, PAGE).unwrap();
    assert_eq!(full.index_bytes(), full.index_bytes_max());
    append(&full, on_disk, 4096, BYTES).unwrap();
    assert!(full.index_bytes() > full.index_bytes_max());
    let refused = append(&full, on_disk, 4096 + BYTES.len() as u64, BYTES);
    assert!(matches!(refused, Err(Refusal::TierFailed { .. })), "{refused:?}");
    append(&full, in_memory, 4096, BYTES).expect("the arena is counted as if it were full");
}
