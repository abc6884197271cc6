//! Blocks that hold more than the namenode counts for them.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::path::Path;

use crate::harness::{Caller, Served, bytes, until_answer, write_header};
use sanderling_datanode::{DatanodeServer, DiskOptions, EncryptionKey};
use sanderling_protocol::message::BlockCount;
use sanderling_protocol::{BlockId, Op, Refusal, Tier};

/// Bytes that a writer puts into each block.
const WRITTEN: usize = 300_000;

async fn datanode(served: &Served, directory: &Path, key: Option<EncryptionKey>) -> DatanodeServer {
    let mut options = served.options();
    options.disk = Some(DiskOptions { directory: directory.to_owned(), bytes: 2 << 20 });
    options.encryption = key;
    DatanodeServer::start(options).await.unwrap()
}

async fn put(caller: &Caller, block: u64, tier: Tier, written: &[u8]) {
    let mut header = write_header(Op::Write, block, 1, 0, written);
    header.flags = tier as u16;
    caller.write_with(header, written).await.unwrap();
}

/// Waits until the blocks have these lengths, in the order of their ids.
async fn until_held(caller: &Caller, lengths: &[usize]) {
    until_answer("the blocks are trimmed", || async {
        let held = caller.held().await;
        held.iter().map(|held| held.length as usize).eq(lengths.iter().copied())
    })
    .await;
}

#[tokio::test]
async fn blocks_in_memory_and_on_disk_are_trimmed_to_what_counts() {
    let key = EncryptionKey::of([7; 32]);
    for key in [None, Some(key)] {
        let directory = tempfile::tempdir().unwrap();
        let served = Served::start().await;
        let server = datanode(&served, directory.path(), key).await;
        let caller = Caller::new(&server);
        let all = bytes(WRITTEN, 5);
        let lengths = [1, 5000, 8192, WRITTEN, 1, 5000, 8192, WRITTEN];
        for (block, tier) in (1..=8).zip([[Tier::Dram; 4], [Tier::Disk; 4]].concat()) {
            put(&caller, block, tier, &all).await;
        }
        {
            let mut state = served.namenode.state.lock();
            for (block, length) in (1..).zip(lengths) {
                let count = match block {
                    // It is still written, and holds more than it was granted.
                    2 => BlockCount::Open { bytes_max: length as u32, tier: Tier::Dram },
                    6 => BlockCount::Open { bytes_max: length as u32, tier: Tier::Disk },
                    _ => BlockCount::Ended { length: length as u32 },
                };
                state.counts.insert(BlockId(block), count);
            }
        }
        until_held(&caller, &lengths).await;
        for (block, length) in (1..).zip(lengths) {
            let read = caller.read(block, 1, 0, length as u32).await.unwrap();
            assert!(read == all[..length], "block {block}");
            let beyond = caller.read(block, 1, 0, length as u32 + 1).await;
            assert!(matches!(beyond, Err(Refusal::OutOfRange { .. })), "{block}: {beyond:?}");
            let more = write_header(Op::Write, block, 1, length as u64, b"more");
            let refused = caller.write_with(more, b"more").await;
            assert!(matches!(refused, Err(Refusal::Moved { .. })), "{block}: {refused:?}");
        }
        let used = lengths.iter().map(|length| length.next_multiple_of(4096) as u64).sum::<u64>();
        served.namenode.next_beat(server.node()).await;
        let load = served.namenode.state.lock().heartbeats[&server.node()].1;
        assert_eq!(load.dram_used_bytes, used / 2);
        until_answer("the longer files are deleted", || async {
            let load = served.namenode.state.lock().heartbeats[&server.node()].1;
            load.disk_used_bytes == used / 2
        })
        .await;
        server.stop().await;
    }
}

/// To trim a file is to write it anew, which would free nothing where its last unit stays.
#[tokio::test]
async fn file_is_written_anew_only_if_that_frees_a_unit() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, directory.path(), None).await;
    let caller = Caller::new(&server);
    let all = bytes(WRITTEN, 5);
    let whole_units = WRITTEN / 4096 * 4096;
    let counted = [whole_units + 1, whole_units + 1, whole_units];
    for (block, tier) in (1..).zip([Tier::Dram, Tier::Disk, Tier::Disk]) {
        put(&caller, block, tier, &all).await;
    }
    let ended = |(block, length): (u64, usize)| {
        (BlockId(block), BlockCount::Ended { length: length as u32 })
    };
    served.namenode.state.lock().counts.extend((1..).zip(counted).map(ended));
    // Files are trimmed in the order of their blocks.
    until_held(&caller, &[whole_units + 1, WRITTEN, whole_units]).await;
    for (block, length) in (1..).zip(counted) {
        let read = caller.read(block, 1, 0, length as u32).await.unwrap();
        assert!(read == all[..length], "block {block}");
    }
    let mut more = write_header(Op::Write, 2, 1, WRITTEN as u64, b"more");
    more.flags = Tier::Disk as u16;
    let refused = caller.write_with(more, b"more").await;
    assert!(matches!(refused, Err(Refusal::Moved { .. })), "{refused:?}");
    server.stop().await;
}

#[tokio::test]
async fn full_memory_is_free_again_when_blocks_end_with_less() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let whole = bytes(1 << 20, 3);
    // The memory of the node, to the last byte.
    for block in 1..=8 {
        put(&caller, block, Tier::Dram, &whole).await;
    }
    let refused = caller.write(9, 0, b"x").await;
    assert!(matches!(refused, Err(Refusal::NodeFull { .. })), "{refused:?}");
    let ended = (1..=8).map(|block| (BlockId(block), BlockCount::Ended { length: 1 }));
    served.namenode.state.lock().counts.extend(ended);
    until_held(&caller, &[1; 8]).await;
    put(&caller, 9, Tier::Dram, &whole).await;
    server.stop().await;
}

#[tokio::test]
async fn full_disk_is_free_again_when_blocks_end_with_less() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = datanode(&served, directory.path(), None).await;
    let caller = Caller::new(&server);
    let whole = bytes(1 << 20, 3);
    // The disk tier of the node, to the last byte.
    for block in 1..=2 {
        put(&caller, block, Tier::Disk, &whole).await;
    }
    let mut more = write_header(Op::Write, 3, 1, 0, b"x");
    more.flags = Tier::Disk as u16;
    let refused = caller.write_with(more, b"x").await;
    assert!(matches!(refused, Err(Refusal::NodeFull { .. })), "{refused:?}");
    let ended = (1..=2).map(|block| (BlockId(block), BlockCount::Ended { length: 1 }));
    served.namenode.state.lock().counts.extend(ended);
    until_held(&caller, &[1; 2]).await;
    until_answer("the longer files are deleted", || async {
        let load = served.namenode.state.lock().heartbeats[&server.node()].1;
        load.disk_used_bytes == 2 * 4096
    })
    .await;
    put(&caller, 3, Tier::Disk, &whole).await;
    server.stop().await;
}

/// As when the machine of the namenode crashes before its disk has the end of a block. The writer,
/// which was only cut off from the namenode, goes on and publishes what was acknowledged.
#[tokio::test]
async fn end_of_a_block_that_the_namenode_takes_back_costs_no_byte() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    let all = bytes(WRITTEN, 9);
    for block in 1..=2 {
        put(&caller, block, Tier::Dram, &all).await;
    }
    let ended = |length: usize| BlockCount::Ended { length: length as u32 };
    served.namenode.state.lock().counts_once.insert(BlockId(1), ended(1));
    until_answer("the first answer is applied", || async {
        let more = write_header(Op::Write, 1, 1, WRITTEN as u64, b"more");
        matches!(caller.write_with(more, b"more").await, Err(Refusal::Moved { .. }))
    })
    .await;
    let held = caller.held().await[0].length as usize;
    // This one stays as it is. When it is trimmed, the other one would be.
    served.namenode.state.lock().counts.insert(BlockId(2), ended(1));
    until_held(&caller, &[held, 1]).await;
    let read = caller.read(1, 1, 0, WRITTEN as u32).await.unwrap();
    assert!(read == all, "other bytes");
    served.namenode.state.lock().counts.insert(BlockId(1), ended(WRITTEN));
    until_held(&caller, &[WRITTEN, 1]).await;
    server.stop().await;
}

#[tokio::test]
async fn open_block_within_its_grant_is_written_on() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    caller.write(2, 0, b"abc").await.unwrap();
    let ended = BlockCount::Ended { length: 1 };
    served.namenode.state.lock().counts.insert(BlockId(2), ended);
    // Both were looked up then.
    until_held(&caller, &[3, 1]).await;
    assert_eq!(caller.write(1, 3, b"d").await, Ok(4));
    server.stop().await;
}
