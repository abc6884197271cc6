//! After nodes have come, the fleet is balanced again without a command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Shape, block_on, bytes_of, path, until_node};
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::node::NodeInfo;

/// How long balance may take on a busy machine before the test gives up.
const TIMEOUT: Duration = Duration::from_secs(150);

const OBJECTS: u64 = 60;

async fn fill(client: &Client) {
    client.make_directory(&path("/full"), ObjectKind::Directory, true, true).await.expect("made");
    for seed in 0..OBJECTS {
        let to = path(&format!("/full/{seed}"));
        client.put(&to, bytes_of(seed, 1 << 20), &PutOptions::default()).await.expect("stored");
    }
}

/// Reads all objects again and again, each with the locations it had at first, until the flag is
/// set. Returns how often it read one.
async fn read(client: Client, stop: Arc<AtomicBool>) -> u64 {
    let reads = AtomicU64::new(0);
    while !stop.load(Ordering::Relaxed) {
        for seed in 0..OBJECTS {
            let read = client.get(&path(&format!("/full/{seed}"))).await.expect("readable");
            assert!(read == bytes_of(seed, 1 << 20), "/full/{seed} has other bytes");
            reads.fetch_add(1, Ordering::Relaxed);
        }
    }
    reads.into_inner()
}

/// Returns how full the fullest node is against the mean, in percent.
fn imbalance(nodes: &[NodeInfo]) -> u64 {
    let fullest = nodes.iter().map(|node| node.home_bytes).max().unwrap_or(0);
    let all: u64 = nodes.iter().map(|node| node.home_bytes).sum();
    fullest * 100 * nodes.len() as u64 / all.max(1)
}

async fn until_balanced(client: &Client, nodes: usize) -> Vec<NodeInfo> {
    let limit = Instant::now() + TIMEOUT;
    loop {
        let all = client.nodes(false).await.expect("the namenode answers");
        if all.len() == nodes && imbalance(&all) <= 115 {
            return all;
        }
        let rows: Vec<_> = all.iter().map(|node| (&node.name, node.home_bytes)).collect();
        assert!(Instant::now() < limit, "not balanced: {rows:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn new_empty_node_gets_its_share_while_readers_go_on() {
    let mut cluster = Cluster::of(3);
    block_on(async {
        let client = cluster.client().await;
        fill(&client).await;
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = [cluster.client().await, cluster.client().await]
            .map(|client| tokio::spawn(read(client, Arc::clone(&stop))))
            .into();
        // A reader that has every location from before.
        let mut early = Vec::new();
        for seed in 0..OBJECTS {
            early.push(client.open(&path(&format!("/full/{seed}"))).await.expect("there"));
        }
        cluster.add("n3", &[]);
        let nodes = until_balanced(&client, 4).await;
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.await.expect("no read failed") > 0);
        }
        for (seed, object) in early.iter().enumerate() {
            let bytes = object.read_range(0, 1 << 20).await.expect("it looks the new place up");
            assert!(bytes == bytes_of(seed as u64, 1 << 20), "/full/{seed} has other bytes");
        }
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.blocks, report.moved_bytes), (0, 0), "{report:?}");
        // A node with 115 percent of the mean has 17 of the 60 objects, and three of them 51.
        assert!(report.rebalanced_bytes >= 9 << 20, "{report:?}");
        let listed = cluster.json(&["node", "ls"]);
        let rows = listed["nodes"].as_array().expect("a list");
        let listed: u64 = rows.iter().filter_map(|row| row["home_bytes"].as_u64()).sum();
        assert_eq!(listed, nodes.iter().map(|node| node.home_bytes).sum::<u64>());
    });
}

#[test]
fn nothing_moves_where_it_is_switched_off() {
    let flags = ["--no-rebalance", "--no-precopy"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start(Shape { namenode: flags, ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        fill(&client).await;
        cluster.add("n3", &["--notice-min", "300ms", "--egress", "1MB"]);
        // Some views of the manager, which looks once a second.
        until_node(&client, "n3", "seen for a while", |node| node.age.0 > 3000).await;
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.rebalanced_bytes, report.copied_bytes), (0, 0));
    });
}

#[test]
fn manager_that_takes_over_goes_on_balancing() {
    let flags = ["--no-manager"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start(Shape { namenode: flags, ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        fill(&client).await;
        cluster.add("n3", &[]);
        let mut first = cluster.manager("first");
        let limit = Instant::now() + TIMEOUT;
        while client.report().await.expect("it answers").rebalanced_bytes == 0 {
            assert!(Instant::now() < limit, "nothing moves");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        first.kill();
        let _second = cluster.manager("second");
        until_balanced(&client, 4).await;
    });
}
