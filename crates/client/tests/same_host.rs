//! Datanodes of the client's own machine: reads without a copy, and what they never show.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cluster;

use std::time::Duration;

use cluster::{Cluster, MIB, path, pattern};
use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_protocol::Path;
use tokio::time::{Instant, sleep};

/// Reads an object until that takes place in the datanode's memory.
async fn wait_for_leases(client: &Client, object: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.metrics().same_host_read_bytes == 0 {
        assert!(Instant::now() < deadline, "the datanode is not found on this machine");
        client.get(object).await.unwrap();
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn object_is_read_where_it_lies_and_written_through_shared_memory() {
    let cluster = Cluster::start(1).await;
    let client = cluster.client().await;
    let (first, bytes) = (path("/first"), pattern(MIB, 1));
    client.put(&first, bytes.clone(), &PutOptions::default()).await.unwrap();
    wait_for_leases(&client, &first).await;
    let read = client.get(&first).await.unwrap();
    let again = client.get(&first).await.unwrap();
    assert_eq!(read, bytes);
    assert_eq!(read.as_ptr(), again.as_ptr(), "both are views of the same memory");

    let before = client.metrics();
    let (second, bytes) = (path("/second"), pattern(3 * MIB + 12_345, 2));
    client.put(&second, bytes.clone(), &PutOptions::default()).await.unwrap();
    assert_eq!(client.get(&second).await.unwrap(), bytes);
    let after = client.metrics();
    let written = after.same_host_written_bytes - before.same_host_written_bytes;
    assert!(written >= 3 * MIB as u64, "{written} bytes were written through shared memory");
    assert_eq!(after.same_host_read_bytes - before.same_host_read_bytes, bytes.len() as u64);
    assert_eq!(after.retries, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn view_outlives_its_object_and_its_datanode() {
    let mut cluster = Cluster::start_with(1, 8 << 20).await;
    let client = cluster.client().await;
    let (object, bytes) = (path("/kept"), pattern(MIB, 1));
    client.put(&object, bytes.clone(), &PutOptions::default()).await.unwrap();
    wait_for_leases(&client, &object).await;
    let view = client.get(&object).await.unwrap();
    client.delete(&object, false).await.unwrap();
    for round in 0..40 {
        // More than the arena holds: every free byte of it is written anew.
        let (name, other) = (path("/other"), pattern(MIB, 100 + round));
        client.put(&name, other.clone(), &PutOptions::default()).await.unwrap();
        assert_eq!(client.get(&name).await.unwrap(), other);
        client.delete(&name, false).await.unwrap();
        assert_eq!(view, bytes, "round {round}");
    }
    let node = cluster.datanodes[0].as_ref().unwrap().node();
    cluster.kill(node).await;
    assert_eq!(view, bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_does_not_want_it_goes_by_tcp() {
    let cluster = Cluster::start(1).await;
    let config = ClientConfig { same_host: false, ..ClientConfig::default() };
    let client = cluster.client_with(config).await;
    let (object, bytes) = (path("/object"), pattern(MIB, 1));
    client.put(&object, bytes.clone(), &PutOptions::default()).await.unwrap();
    for _ in 0..20 {
        assert_eq!(client.get(&object).await.unwrap(), bytes);
    }
    let metrics = client.metrics();
    assert_eq!((metrics.same_host_read_bytes, metrics.same_host_written_bytes), (0, 0));
}
