//! A namenode that may take so much memory takes no more, whatever tenants store, and goes on.

mod cluster;

use std::time::Duration;

use cluster::{Cluster, Shape, block_on_within, path};
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_protocol::message::Attributes;

/// Bytes that `--memory-max` gives to the namenode.
const MEMORY_MAX: u64 = 96 << 20;

/// Returns the bytes of memory that a process has mapped in at most.
fn most_resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("Linux says it");
    kib.parse::<u64>().expect("a number") << 10
}

/// Attributes as dear as may be: many names of few bytes.
fn dear() -> Attributes {
    (0..1200).map(|number| (format!("{number:04}"), "x")).collect()
}

/// Stores until the namenode takes no more; returns how much that was, and why.
async fn fill(client: &Client, place: &str) -> (usize, ClientError) {
    let options = PutOptions { attributes: dear(), parents: true, ..PutOptions::default() };
    for number in 0.. {
        let name = path(&format!("{place}/{number}"));
        if let Err(error) = client.put(&name, b"x".to_vec().into(), &options).await {
            return (number, error);
        }
    }
    unreachable!("memory ends")
}

#[test]
fn namenode_takes_no_more_memory_than_it_may_and_goes_on() {
    let namenode = vec!["--memory-max".to_owned(), MEMORY_MAX.to_string()];
    let cluster = Cluster::start(Shape { datanodes: 1, namenode, ..Shape::default() });
    block_on_within(Duration::from_secs(300), async {
        let client = cluster.client().await;
        client
            .put(&path("/before"), vec![7; 100_000].into(), &PutOptions::default())
            .await
            .expect("there is room");
        let config =
            ClientConfig { call_deadline: Duration::from_secs(3), ..ClientConfig::default() };
        let greedy = Client::connect(&cluster.namenode.address, config).await.expect("connected");
        let (stored, error) = fill(&greedy, "/greedy").await;
        assert!(error.to_string().contains("memory is full"), "{error}");
        assert!(stored > 100, "{stored} objects");
        let most = most_resident_bytes(cluster.namenode.pid());
        assert!(most < MEMORY_MAX + (64 << 20), "{most} bytes for {stored} objects");
        // What makes nothing larger goes on.
        assert_eq!(client.get(&path("/before")).await.expect("read").len(), 100_000);
        client.rename(&path("/before"), &path("/after"), false).await.expect("renamed");
        client.delete(&path("/greedy"), true).await.expect("deleted");
        let (again, _) = fill(&greedy, "/again").await;
        assert!(again >= stored - 5, "{again} objects, {stored} before");
        let most = most_resident_bytes(cluster.namenode.pid());
        assert!(most < MEMORY_MAX + (64 << 20), "{most} bytes for {again} objects");
        assert!(client.fsck().await.expect("checked").problems.is_empty());
    });
}
