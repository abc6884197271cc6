//! Blocks that outlive their nodes: a fleet with little memory and a directory as object tier.

use std::path::{Path as LocalPath, PathBuf};
use std::time::Duration;

use crate::cluster::{
    Cluster, SOON, Shape, block_on, bytes_of, path, until, until_drained, until_gone,
};
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::{NodeInfo, NodeSelector, Tier};

const MIB: u64 = 1 << 20;

/// Starts `full` nodes with 8 MiB of memory each and nothing else, then two that have the object
/// tier and next to no memory.
fn fleet(full: usize) -> (Cluster, PathBuf) {
    let shape = Shape { datanodes: full, dram: "8MiB", ..Shape::default() };
    let mut cluster = Cluster::start(shape);
    let directory = cluster.path("objects");
    for name in ["o0", "o1"] {
        add_with_store(&mut cluster, name, &directory);
    }
    (cluster, directory)
}

fn add_with_store(cluster: &mut Cluster, name: &str, directory: &LocalPath) {
    let url = format!("file://{}", directory.display());
    // 64 KiB take no block.
    let flags = ["--object", &url, "--object-bytes", "64MiB", "--dram", "64KiB"];
    cluster.add(name, &flags);
}

/// Stores objects of 512 KiB until so many bytes are stored.
async fn fill(client: &Client, bytes: u64) -> u64 {
    client.make_directory(&path("/full"), ObjectKind::Directory, true, true).await.expect("made");
    let objects = bytes / (MIB / 2);
    for seed in 0..objects {
        let to = path(&format!("/full/{seed}"));
        let bytes = bytes_of(seed, 512 << 10);
        client.put(&to, bytes, &PutOptions::default()).await.expect("stored");
    }
    objects
}

async fn assert_full(client: &Client, objects: u64) {
    for seed in 0..objects {
        let read = client.get(&path(&format!("/full/{seed}"))).await.expect("readable");
        assert!(read == bytes_of(seed, 512 << 10), "/full/{seed} has other bytes");
    }
}

async fn assert_nothing_lost(client: &Client) {
    let report = client.report().await.expect("the namenode answers");
    assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
    let fsck = client.fsck().await.expect("the namenode answers");
    assert_eq!((fsck.lost_blocks, fsck.problems.len()), (0, 0), "{fsck:?}");
}

fn objects(directory: &LocalPath) -> Vec<PathBuf> {
    let entries = |at: &LocalPath| -> Vec<PathBuf> {
        let found = std::fs::read_dir(at).into_iter().flatten();
        found.map(|entry| entry.expect("readable").path()).collect()
    };
    entries(directory).iter().flat_map(|cluster| entries(cluster)).collect()
}

fn used(node: &NodeInfo, tier: Tier) -> u64 {
    node.tiers.iter().find(|usage| usage.tier == tier).map_or(0, |usage| usage.used_bytes)
}

async fn notice(client: &Client, name: &str) {
    let node = NodeSelector(name.to_owned());
    client.notice(&node, 200_000, "test").await.expect("taken");
}

#[test]
fn what_has_no_room_in_memory_goes_to_the_object_tier_and_outlives_its_nodes() {
    let (mut cluster, directory) = fleet(2);
    block_on(async {
        let client = cluster.client().await;
        let count = fill(&client, 12 * MIB).await;
        for name in ["n0", "n1"] {
            notice(&client, name).await;
            until_drained(&client, name).await;
            cluster.datanode(name).kill();
            until_gone(&client, name).await;
        }
        assert_full(&client, count).await;
        assert_eq!(objects(&directory).len() as u64, count);
        let nodes = client.nodes(false).await.expect("the namenode answers");
        let stored: u64 = nodes.iter().map(|node| used(node, Tier::Object)).sum();
        assert_eq!(stored, 12 * MIB);
        assert_eq!(nodes.iter().map(|node| node.exposure_bytes).sum::<u64>(), 0);

        let busier = nodes.iter().max_by_key(|node| node.blocks).expect("two nodes");
        let name = busier.name.clone();
        cluster.datanode(&name).kill();
        until_gone(&client, &name).await;
        assert_full(&client, count).await;
        assert_nothing_lost(&client).await;

        cluster.restart_namenode();
        add_with_store(&mut cluster, "o2", &directory);
        let last = if name == "o0" { "o1" } else { "o0" };
        cluster.datanode(last).kill();
        until_gone(&client, last).await;
        assert_full(&client, count).await;
        assert_nothing_lost(&client).await;

        client.delete(&path("/full"), true).await.expect("deleted");
        until("the objects are deleted", SOON, || objects(&directory).is_empty().then_some(()));
    });
}

#[test]
fn noticed_node_hands_its_objects_over_at_once() {
    let (mut cluster, directory) = fleet(1);
    block_on(async {
        let client = cluster.client().await;
        let count = fill(&client, 4 * MIB).await;
        notice(&client, "n0").await;
        until_drained(&client, "n0").await;
        cluster.datanode("n0").kill();
        until_gone(&client, "n0").await;

        notice(&client, "o0").await;
        let drained = until_drained(&client, "o0").await;
        let drain = drained.drain.expect("it drained");
        assert_eq!((drain.moved_bytes, drain.lost_bytes), (0, 0), "{drain:?}");
        assert_full(&client, count).await;
        // Taken back: its old list of these blocks must not cost the other one its objects.
        client.cancel(&NodeSelector("o0".to_owned())).await.expect("taken back");
        notice(&client, "o1").await;
        until_drained(&client, "o1").await;
        cluster.datanode("o1").kill();
        until_gone(&client, "o1").await;
        assert_full(&client, count).await;
        assert_nothing_lost(&client).await;
        assert_eq!(objects(&directory).len() as u64, count);
    });
}

#[test]
fn deep_check_finds_objects_that_are_gone_or_cut_before_they_are_read() {
    let (cluster, directory) = fleet(1);
    let fsck = || cluster.cli(&["fsck", "--deep"]);
    block_on(async {
        let client = cluster.client().await;
        fill(&client, 2 * MIB).await;
        notice(&client, "n0").await;
        until_drained(&client, "n0").await;
        let stored = objects(&directory);
        assert!(stored.len() >= 3, "{stored:?}");
        let clean = fsck();
        assert_eq!(clean.code, 0, "{clean}");
        // A store that is not there shows nothing of its objects: they are not lost.
        let away = directory.with_extension("away");
        std::fs::rename(&directory, &away).expect("renamed");
        let unseen = fsck();
        assert_eq!(unseen.code, 4, "{unseen}");
        assert!(unseen.stdout.contains("NOT LOOKED AT: "), "{unseen}");
        assert!(!unseen.stdout.contains("DAMAGED"), "{unseen}");
        std::fs::rename(&away, &directory).expect("renamed");
        std::fs::remove_file(&stored[0]).expect("removed");
        let cut = std::fs::File::options().write(true).open(&stored[1]).expect("there");
        cut.set_len(1000).expect("cut");
        let found = fsck();
        assert_eq!(found.code, 5, "{found}");
        assert_eq!(found.stdout.matches("DAMAGED").count(), 2, "{found}");
    });
}

#[test]
fn deep_check_finds_what_is_gone_from_a_disk_while_the_object_store_is_away() {
    let mut cluster = Cluster::start(Shape { datanodes: 1, dram: "8MiB", ..Shape::default() });
    let (directory, disk) = (cluster.path("objects"), cluster.path("disk"));
    let url = format!("file://{}", directory.display());
    let store = ["--object", &url, "--object-bytes", "64MiB", "--dram", "64KiB"];
    let disk_flags = ["--disk", "1MiB", "--disk-dir", disk.to_str().expect("UTF-8")];
    cluster.add("o0", &[&store[..], &disk_flags, &["--scrub-rate", "none"]].concat());
    block_on(async {
        let client = cluster.client().await;
        client.make_directory(&path("/d"), ObjectKind::Directory, true, true).await.expect("made");
        let class = "disk".parse().expect("a class");
        for seed in 0..2 {
            let options = PutOptions { class, ..PutOptions::default() };
            let to = path(&format!("/d/{seed}"));
            client.put(&to, bytes_of(seed, 512 << 10), &options).await.expect("stored");
        }
        fill(&client, 2 * MIB).await;
        notice(&client, "n0").await;
        until_drained(&client, "n0").await;
        assert_eq!(objects(&directory).len(), 4);
        std::fs::rename(&directory, directory.with_extension("away")).expect("renamed");
        let mut files = std::fs::read_dir(&disk).expect("the disk's directory");
        let is_block = |file: &std::fs::DirEntry| file.path().is_file();
        let block = files.find_map(|file| file.ok().filter(is_block)).expect("a block's file");
        std::fs::remove_file(block.path()).expect("removed");
        let found = cluster.cli(&["fsck", "--deep"]);
        assert_eq!(found.code, 5, "{found}");
        assert_eq!(found.stdout.matches("DAMAGED").count(), 1, "{found}");
        assert!(found.stdout.contains("NOT LOOKED AT: 4 blocks of 2.00 MiB on node"), "{found}");
    });
}

/// Reads an object that no datanode finds now; the attempt ends early, and not with a loss.
async fn assert_unfound(client: &Client, seed: u64) {
    let hasty = client.with_deadline(Duration::from_secs(1));
    match hasty.get(&path(&format!("/full/{seed}"))).await {
        Ok(_) => panic!("/full/{seed} is read from nowhere"),
        Err(ClientError::DataUnavailable { .. }) => panic!("/full/{seed} is declared lost"),
        Err(_) => {}
    }
}

#[test]
fn store_that_shows_nothing_is_absent_and_costs_no_object() {
    let (cluster, directory) = fleet(1);
    block_on(async {
        let client = cluster.client().await;
        let count = fill(&client, 2 * MIB).await;
        notice(&client, "n0").await;
        until_drained(&client, "n0").await;
        // As where the directory is not mounted: it is there, and nothing is in it.
        let away = directory.with_extension("away");
        std::fs::rename(&directory, &away).expect("renamed");
        std::fs::create_dir(&directory).expect("made");
        for seed in 0..count {
            assert_unfound(&client, seed).await;
        }
        assert_nothing_lost(&client).await;
        std::fs::rename(&away, &directory).expect("it replaces an empty directory");
        assert_full(&client, count).await;
        assert_nothing_lost(&client).await;
    });
}

async fn decommission(client: &Client, name: &str) {
    let node = NodeSelector(name.to_owned());
    client.decommission(&node, "a test").await.expect("taken");
}

#[test]
fn nodes_that_name_different_stores_lose_nothing_and_one_with_the_right_store_serves() {
    let mut cluster = Cluster::start(Shape { datanodes: 1, dram: "8MiB", ..Shape::default() });
    let (right, wrong) = (cluster.path("objects"), cluster.path("others"));
    add_with_store(&mut cluster, "o0", &right);
    block_on(async {
        let client = cluster.client().await;
        let count = fill(&client, 2 * MIB).await;
        notice(&client, "n0").await;
        until_drained(&client, "n0").await;
        add_with_store(&mut cluster, "w0", &wrong);
        decommission(&client, "o0").await;
        until_drained(&client, "o0").await;
        assert_unfound(&client, 0).await;
        assert_nothing_lost(&client).await;
        let reader = client.clone();
        let waiting = tokio::spawn(async move { reader.get(&path("/full/1")).await });
        add_with_store(&mut cluster, "o1", &right);
        decommission(&client, "w0").await;
        let read = waiting.await.expect("no panic").expect("it waits for the right store");
        assert!(read == bytes_of(1, 512 << 10), "/full/1 has other bytes");
        assert_full(&client, count).await;
        assert_nothing_lost(&client).await;
        assert_eq!(objects(&right).len() as u64, count);
        assert!(objects(&wrong).is_empty());
    });
}

#[test]
fn damaged_object_is_declared_lost_and_the_others_are_read() {
    let (mut cluster, directory) = fleet(1);
    block_on(async {
        let client = cluster.client().await;
        let count = fill(&client, 2 * MIB).await;
        notice(&client, "n0").await;
        until_drained(&client, "n0").await;
        cluster.datanode("n0").kill();
        until_gone(&client, "n0").await;
        let damaged = objects(&directory).into_iter().min().expect("there are objects");
        let mut other = std::fs::read(&damaged).expect("readable");
        other[1000] ^= 1;
        std::fs::write(&damaged, other).expect("written");
        let mut refused = 0;
        for seed in 0..count {
            match client.get(&path(&format!("/full/{seed}"))).await {
                Ok(read) => assert!(read == bytes_of(seed, 512 << 10), "/full/{seed} is wrong"),
                Err(ClientError::DataUnavailable { .. }) => refused += 1,
                Err(error) => panic!("/full/{seed}: {error}"),
            }
        }
        assert_eq!(refused, 1);
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.objects, report.bytes), (1, 512 << 10), "{report:?}");
    });
}
