//! Where the blocks of objects below a durable directory are.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_client::{Client, PutOptions};
use sanderling_protocol::NodeId;

use crate::cluster::stores::{files, fleet_with, make, put};
use crate::cluster::{SOON, block_on, bytes_of, path};

/// Bytes of a part of an upload, and of an object of eight parts, which are two runs.
const PART: usize = 8 << 20;
const BYTES: usize = 8 * PART;

/// How often an object is written before its parts are on one node each. A node whose heartbeat is
/// late on a busy machine gets no blocks meanwhile.
const TRIES: u64 = 5;

/// Returns which nodes have each part of an object.
async fn nodes_of_parts(client: &Client, name: &str) -> Vec<BTreeSet<NodeId>> {
    let layout = client.layout(&path(name), 0..u64::MAX).await.expect("it is there");
    let mut parts: BTreeMap<u64, BTreeSet<NodeId>> = BTreeMap::new();
    for block in &layout.blocks {
        let part = parts.entry(block.offset / PART as u64).or_default();
        part.insert(block.home.expect("it has one"));
    }
    assert_eq!(parts.len(), BYTES / PART, "{layout:?}");
    parts.into_values().collect()
}

/// Writes an object whose length is known before, or not.
async fn write(client: &Client, name: &str, seed: u64, is_length_known: bool) {
    if is_length_known {
        return put(client, name, seed, BYTES).await;
    }
    let options = PutOptions { parents: true, ..PutOptions::default() };
    let mut writer = client.create(&path(name), &options).await.expect("made");
    for piece in bytes_of(seed, BYTES).chunks(700_000) {
        writer.write(piece).await.expect("written");
    }
    writer.close().await.expect("sealed");
}

/// Writes objects until each part of one is on one node. Returns its name in the store, and its
/// seed.
async fn written_in_parts(client: &Client, is_length_known: bool) -> (String, u64) {
    let mut seen = Vec::new();
    for seed in 0..TRIES {
        let key = format!("{is_length_known}-{seed}");
        let name = format!("/out/{key}");
        write(client, &name, seed, is_length_known).await;
        let parts = nodes_of_parts(client, &name).await;
        let all: BTreeSet<NodeId> = parts.iter().flatten().copied().collect();
        if parts.iter().all(|nodes| nodes.len() == 1) && all.len() > 1 {
            return (key, seed);
        }
        seen.push(parts);
        assert_eq!(client.wait_durable(&path(&name), SOON).await.expect("durable"), None);
        client.delete(&path(&name), false).await.expect("deleted");
    }
    panic!("parts are on several nodes, or all on one: {seen:?}");
}

#[test]
fn each_part_of_an_object_in_a_durable_directory_is_on_one_node() {
    // No block moves after it was written.
    let (mut cluster, store) = fleet_with(0, &["--no-rebalance", "--no-precopy"]);
    let place = format!("archive=file://{}", store.display());
    for number in 0..4 {
        cluster.add(&format!("d{number}"), &["--durable", &place, "--dram", "160MiB"]);
    }
    make(&cluster, "/out");
    let written = block_on(async {
        let client = cluster.client().await;
        let known = written_in_parts(&client, true).await;
        let unknown = written_in_parts(&client, false).await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
        for is_length_known in [true, false] {
            let name = format!("/plain/{is_length_known}");
            write(&client, &name, 1, is_length_known).await;
            let parts = nodes_of_parts(&client, &name).await;
            assert!(parts.iter().any(|nodes| nodes.len() > 1), "{parts:?}");
        }
        [known, unknown]
    });
    let found = files(&store);
    for (key, seed) in written {
        assert!(found[&key] == bytes_of(seed, BYTES), "{key} has other bytes");
    }
}
