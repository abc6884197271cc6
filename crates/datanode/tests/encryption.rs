//! Encrypted disk and object tiers, over real sockets: what is in the files, and what becomes of
//! changed ones and of other keys.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::{CLUSTER, Caller, Served, refusal, soon, until, write_header};
use sanderling_datanode::{
    DatanodeServer, DatanodeStartError, DiskOptions, EncryptionKey, ObjectOptions,
};
use sanderling_protocol::order::Damage;
use sanderling_protocol::{BlockId, Epoch, Op, Order, Refusal, Tier};

/// A unit of a file: 4 KiB and its tag.
const UNIT: usize = 4096 + 16;

const PATTERN: &[u8] = b"no others may see this. ";

fn pattern(bytes: usize) -> Vec<u8> {
    PATTERN.iter().copied().cycle().take(bytes).collect()
}

fn key(byte: u8) -> Option<EncryptionKey> {
    Some(EncryptionKey::of([byte; 32]))
}

async fn start(
    served: &Served,
    directory: &Path,
    encryption: Option<EncryptionKey>,
    scrub_bytes_per_second: Option<u64>,
) -> Result<DatanodeServer, DatanodeStartError> {
    let [disk, objects] = ["disk", "objects"].map(|name| directory.join(name));
    [&disk, &objects].into_iter().for_each(|it| std::fs::create_dir_all(it).unwrap());
    let mut options = served.options();
    options.disk = Some(DiskOptions { directory: disk, bytes: 8 << 20 });
    options.object = Some(ObjectOptions {
        url: format!("file://{}", objects.display()),
        bytes: 8 << 20,
        time_max: Duration::from_secs(20),
        sweep_every: Duration::from_millis(50),
        sweep_age_min: Duration::ZERO,
        ..ObjectOptions::default()
    });
    options.encryption = encryption;
    options.scrub_bytes_per_second = scrub_bytes_per_second;
    DatanodeServer::start(options).await
}

/// Puts a block into a tier: by a writer into the disk, by another node into the store.
async fn put(caller: &Caller, block: u64, tier: Tier, all: &[u8]) {
    let op = if tier == Tier::Disk { Op::Write } else { Op::Store };
    let mut header = write_header(op, block, 1, 0, all);
    header.flags = tier as u16;
    caller.write_with(header, all).await.unwrap();
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    found.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn block_file(directory: &Path, block: u64) -> PathBuf {
    let begins = format!("{block:016x}-");
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&begins);
    files(&directory.join("disk")).into_iter().find(is_it).unwrap()
}

fn object(directory: &Path, block: u64) -> PathBuf {
    directory.join("objects").join(CLUSTER.to_string()).join(format!("{block:016x}-1"))
}

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 1;
    std::fs::write(file, bytes).unwrap();
}

fn reported(served: &Served) -> Vec<(BlockId, Damage)> {
    let damaged = served.namenode.state.lock().damaged.clone();
    let mut damaged: Vec<_> = damaged.into_iter().map(|(_, it)| (it.block, it.damage)).collect();
    damaged.sort_by_key(|it| it.0);
    damaged
}

fn shows_pattern(directory: &Path) -> bool {
    files(directory).iter().any(|file| {
        let bytes = std::fs::read(file).unwrap();
        bytes.windows(PATTERN.len()).any(|window| window == PATTERN)
    })
}

#[tokio::test]
async fn files_and_objects_show_nothing_of_what_was_written() {
    let served = Served::start().await;
    for encryption in [None, key(1)] {
        let directory = tempfile::tempdir().unwrap();
        let is_encrypted = encryption.is_some();
        let server = start(&served, directory.path(), encryption, None).await.unwrap();
        let caller = Caller::new(&server);
        let all = pattern(300_000);
        put(&caller, 1, Tier::Disk, &all[..5000]).await;
        let mut more = write_header(Op::Write, 1, 1, 5000, &all[5000..]);
        more.flags = Tier::Disk as u16;
        caller.write_with(more, &all[5000..]).await.unwrap();
        put(&caller, 2, Tier::Object, &all).await;
        for tier in ["disk", "objects"] {
            assert_eq!(shows_pattern(&directory.path().join(tier)), !is_encrypted, "{tier}");
        }
        for block in [1, 2] {
            assert_eq!(caller.read(block, 1, 0, 300_000).await.unwrap(), all);
            assert_eq!(caller.read(block, 1, 4095, 2).await.unwrap(), all[4095..4097]);
            assert_eq!(caller.read(block, 1, 8192, 4096).await.unwrap(), all[8192..12_288]);
        }
        assert_eq!(reported(&served), []);
        server.stop().await;
    }
}

#[tokio::test]
async fn flipped_bits_and_swapped_units_are_found_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = start(&served, directory.path(), key(1), None).await.unwrap();
    let caller = Caller::new(&server);
    let all = pattern(20_000);
    for block in 1..=4 {
        put(&caller, block, Tier::Disk, &all).await;
    }
    for block in 5..=7 {
        put(&caller, block, Tier::Object, &all).await;
    }
    flip(&block_file(directory.path(), 1), 2 * UNIT + 7);
    // Blocks with the same bytes: their checksums could not differ.
    let [third, fourth] = [3, 4].map(|block| block_file(directory.path(), block));
    let mut bytes = [&third, &fourth].map(|file| std::fs::read(file).unwrap());
    let [here, there] = &mut bytes;
    here[UNIT..2 * UNIT].swap_with_slice(&mut there[UNIT..2 * UNIT]);
    std::fs::write(&third, &bytes[0]).unwrap();
    std::fs::write(&fourth, &bytes[1]).unwrap();
    flip(&object(directory.path(), 5), 10_000);
    std::fs::copy(object(directory.path(), 7), object(directory.path(), 6)).unwrap();
    for block in [1, 3, 4, 5, 6] {
        let read = caller.read(block, 1, 0, 20_000).await;
        assert_eq!(read, Err(Refusal::BlockDamaged { block: BlockId(block) }), "{block}");
    }
    for block in [2, 7] {
        assert_eq!(caller.read(block, 1, 0, 20_000).await.unwrap(), all);
    }
    until("all are reported", || reported(&served).len() == 5).await;
    let wanted = [1, 3, 4, 5, 6].map(|block| (BlockId(block), Damage::Checksum));
    assert_eq!(reported(&served), wanted);
    server.stop().await;
}

#[tokio::test]
async fn scrub_compares_encrypted_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let server = start(&served, directory.path(), key(1), Some(64 << 20)).await.unwrap();
    let caller = Caller::new(&server);
    for block in 1..=3 {
        put(&caller, block, Tier::Disk, &pattern(300_000)).await;
    }
    // The tag of a unit.
    flip(&block_file(directory.path(), 2), 4 * UNIT - 1);
    until("it is reported", || !reported(&served).is_empty()).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(reported(&served), [(BlockId(2), Damage::Checksum)]);
    server.stop().await;
}

#[tokio::test]
async fn disk_of_another_key_or_none_is_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let mut left = None;
    for encryption in [None, key(1), key(2), None, key(1)] {
        let server = start(&served, directory.path(), encryption, None).await.unwrap();
        let caller = Caller::new(&server);
        assert!(caller.held().await.is_empty());
        if let Some(left) = left {
            assert!(!Path::exists(left), "what the process before left is deleted");
        }
        put(&caller, 1, Tier::Disk, &pattern(9000)).await;
        let aside = directory.path().join("aside");
        std::fs::copy(block_file(directory.path(), 1), &aside).unwrap();
        server.stop().await;
        // As a process that was killed leaves it.
        let file = directory.path().join("disk").join("0000000000000001-9.block");
        std::fs::copy(aside, &file).unwrap();
        left = Some(Box::leak(file.into_boxed_path()));
    }
}

#[tokio::test]
async fn node_with_another_key_refuses_to_start_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    let all = pattern(9000);
    let first = start(&served, directory.path(), key(1), None).await.unwrap();
    put(&Caller::new(&first), 1, Tier::Object, &all).await;
    first.stop().await;
    let joined = served.namenode.state.lock().registers.len();
    for (other, expected) in [(None, "has no key"), (key(2), "another key than this node's")] {
        let refused = start(&served, directory.path(), other, None).await.unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
        assert!(refused.to_string().contains("start it with"), "{refused}");
    }
    assert_eq!(served.namenode.state.lock().registers.len(), joined, "it has not joined");
    let second = start(&served, directory.path(), key(1), None).await.unwrap();
    assert_eq!(Caller::new(&second).read(1, 1, 0, 9000).await.unwrap(), all);
    second.stop().await;
    // And the other way round.
    let plain = tempfile::tempdir().unwrap();
    let third = start(&served, plain.path(), None, None).await.unwrap();
    put(&Caller::new(&third), 1, Tier::Object, &all).await;
    third.stop().await;
    let refused = start(&served, plain.path(), key(1), None).await.unwrap_err();
    assert!(refused.to_string().contains("is not encrypted"), "{refused}");
    assert!(object(plain.path(), 1).exists());
}

#[tokio::test]
async fn running_node_with_another_key_reports_no_damage_and_deletes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start().await;
    // The store is empty: there is nothing to compare keys with.
    let mut readers = Vec::new();
    for (number, encryption) in [None, key(2), key(1)].into_iter().enumerate() {
        let own = directory.path().join(number.to_string());
        std::fs::create_dir_all(&own).unwrap();
        std::fs::create_dir_all(directory.path().join("objects")).unwrap();
        std::os::unix::fs::symlink(directory.path().join("objects"), own.join("objects")).unwrap();
        readers.push(start(&served, &own, encryption, None).await.unwrap());
    }
    let all = pattern(9000);
    let [with_none, with_other, writer] = [0, 1, 2].map(|index| Caller::new(&readers[index]));
    put(&writer, 1, Tier::Object, &all).await;
    put(&writer, 2, Tier::Object, &all).await;
    for (caller, expected) in [(&with_none, "has no key"), (&with_other, "another key")] {
        let blocks = vec![(BlockId(2), Epoch(1), 9000)];
        let order = Order::Adopt { blocks };
        let adopted = caller.pool.order(caller.node, &caller.address, order, soon()).await;
        let adopted = refusal(adopted);
        let Err(Refusal::TierFailed { why, .. }) = adopted else { panic!("{adopted:?}") };
        assert!(why.contains(expected), "{why}");
        let read = caller.read(1, 1, 0, 9000).await;
        let Err(Refusal::TierFailed { why, .. }) = read else { panic!("{read:?}") };
        assert!(why.contains(expected), "{why}");
        assert!(caller.held().await.is_empty());
    }
    // Several searches for garbage later.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(reported(&served), []);
    assert!([1, 2].iter().all(|block| object(directory.path(), *block).exists()));
    assert_eq!(writer.read(1, 1, 0, 9000).await.unwrap(), all);
    for server in readers {
        server.stop().await;
    }
}
