//! What copies leave of a node's link to clients, and what clients leave to copies on a node that
//! is to leave.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::http::page;
use crate::cluster::stores::{add_with, make, put};
use crate::cluster::{Cluster, SOON, Shape, block_on, path};
use sanderling_client::Client;
use sanderling_protocol::NodeSelector;

const MIB: u64 = 1 << 20;

/// Objects of 1 MiB that are copied, which takes 6 s.
const OBJECTS: u64 = 48;

/// Returns the bytes that wait for the store.
async fn backlog(client: &Client) -> u64 {
    let found = client.durability(&path("/out")).await.expect("the namenode answers");
    found.expect("it is durable").backlog_bytes
}

/// Waits until the backlog is so.
async fn until_backlog(client: &Client, what: &str, is_so: impl Fn(u64) -> bool) {
    let limit = Instant::now() + SOON;
    loop {
        let bytes = backlog(client).await;
        if is_so(bytes) {
            return;
        }
        assert!(Instant::now() < limit, "{bytes} bytes wait: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns a metric of the node.
async fn figure(cluster: &mut Cluster, name: &str) -> u64 {
    let http = cluster.datanode("d0").http_address.clone();
    let shown = page(&http, "/metrics").await;
    let value = shown.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name}: {shown}"))
}

/// Starts a node with a slow link, an object to read, and copies that have begun.
fn copying() -> Cluster {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let store = cluster.path("store");
    fs::create_dir(&store).expect("made");
    add_with(&mut cluster, "d0", &store, &["--egress-limit", "8MiB", "--http", "127.0.0.1:0"]);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/read", 1, MIB as usize).await;
        for number in 0..OBJECTS {
            put(&client, &format!("/in/{number}"), number, MIB as usize).await;
        }
        client.rename(&path("/in"), &path("/out/in"), false).await.expect("renamed");
        until_backlog(&client, "nothing is copied", |bytes| bytes < OBJECTS * MIB).await;
    });
    cluster
}

#[test]
fn readers_beside_copies_have_most_of_a_full_link() {
    const READERS: u64 = 8;
    const READ: u64 = 16 * MIB;
    let mut cluster = copying();
    block_on(async {
        let client = cluster.client().await;
        let before = backlog(&client).await;
        let readers = (0..READERS).map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let reader = client.open(&path("/read")).await.expect("it is there");
                for at in 0..READ / READERS / (64 << 10) {
                    let offset = (at % 16) * (64 << 10);
                    let bytes = reader.read_range(offset, 64 << 10).await.expect("read in time");
                    assert_eq!(bytes.len(), 64 << 10);
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        for reader in readers {
            reader.await.expect("all is read");
        }
        let after = backlog(&client).await;
        // In turn with four objects at once, all others would have been copied before.
        assert!(after > 0, "{before} bytes were copied while {READ} were read");
        let copied = before - after;
        assert!(copied <= 12 * MIB, "{copied} bytes were copied while {READ} were read");
        until_backlog(&client, "copies go on", |bytes| bytes == 0).await;
        let traffic = |direction: &str| {
            format!("sanderling_datanode_traffic_bytes_total{{direction=\"{direction}\"}}")
        };
        let uploaded = figure(&mut cluster, &traffic("uploaded")).await;
        assert!(uploaded >= OBJECTS * MIB, "{uploaded}");
        let read = figure(&mut cluster, &traffic("read")).await;
        assert!((READ..READ + 8 * MIB).contains(&read), "{read}: copies count as reads");
    });
}

#[test]
fn node_with_a_notice_copies_first_what_it_has_alone() {
    const READERS: usize = 16;
    const RANGE: u64 = 256 << 10;
    let mut cluster = copying();
    block_on(async {
        let client = cluster.client().await;
        let node = NodeSelector("d0".to_owned());
        client.notice(&node, 60_000, "test").await.expect("taken");
        let limit = Instant::now() + SOON;
        while figure(&mut cluster, "sanderling_datanode_fenced ").await == 0 {
            assert!(Instant::now() < limit, "the node gets no notice");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (read, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let readers = (0..READERS).map(|_| {
            let (client, read, is_over) = (client.clone(), Arc::clone(&read), Arc::clone(&is_over));
            tokio::spawn(async move {
                let reader = client.open(&path("/read")).await.expect("it is there");
                while !is_over.load(Ordering::Relaxed) {
                    match reader.read_range(0, RANGE).await {
                        Ok(_) => _ = read.fetch_add(RANGE, Ordering::Relaxed),
                        // They go behind the copies, so one may be late.
                        Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                }
            })
        });
        let before = backlog(&client).await;
        let readers: Vec<_> = readers.collect();
        assert!(before >= 16 * MIB, "{before} bytes are left: the notice took too long");
        until_backlog(&client, "copies stand still", |bytes| bytes == 0).await;
        let read = read.load(Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        // In turn, as many bytes would have been read as were copied.
        assert!(read * 2 <= before, "{read} bytes were read while {before} were copied");
        for reader in readers {
            reader.await.expect("it ends");
        }
    });
}
