//! Faults under load: notices one after the other, deaths, a namenode that restarts.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::cluster::{Cluster, MIB, path, pattern};
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_protocol::{NodeId, NodeSelector, Policy};

/// Readers and writers that check every byte and count what they did.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

const KEPT: u64 = 24;

async fn load(client: &Client) -> Load {
    for number in 0..KEPT {
        let name = path(&format!("/kept/{number}"));
        let options = PutOptions { parents: true, ..PutOptions::default() };
        client.put(&name, pattern(MIB + 12_345, number), &options).await.unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for worker in 0..4u64 {
        let (client, stop, done) = (client.clone(), Arc::clone(&stop), Arc::clone(&done));
        tasks.push(tokio::spawn(async move {
            let mut round = worker;
            while !stop.load(Ordering::Relaxed) {
                round += 1;
                if worker % 2 == 0 {
                    let number = round % KEPT;
                    let name = path(&format!("/kept/{number}"));
                    let read = client.get(&name).await.unwrap();
                    assert!(read == pattern(MIB + 12_345, number), "other bytes in {name}");
                } else {
                    write_and_delete(&client, worker, round).await;
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    Load { stop, done, tasks }
}

async fn write_and_delete(client: &Client, worker: u64, round: u64) {
    let name = path(&format!("/short/{worker}-{round}"));
    let options = PutOptions { parents: true, ..PutOptions::default() };
    let data = pattern(3 * MIB + 777, round);
    let mut writer = client.create(&name, &options).await.unwrap();
    for part in data.chunks(200_000) {
        writer.write(part).await.unwrap();
    }
    writer.close().await.unwrap();
    assert!(client.get(&name).await.unwrap() == data, "other bytes in {name}");
    client.delete(&name, false).await.unwrap();
}

impl Load {
    /// Waits until that many more operations are done, so that the fault has been lived through.
    async fn goes_on(&self, more: u64) {
        let target = self.done.load(Ordering::Relaxed) + more;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
        while self.done.load(Ordering::Relaxed) < target {
            assert!(tokio::time::Instant::now() < deadline, "the load stands still");
            assert!(!self.tasks.iter().any(|task| task.is_finished()), "a worker failed");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn notice_and_kill(cluster: &mut Cluster, client: &Client, victim: NodeId) {
    client.notice(&NodeSelector::from(victim), 200_000, "test").await.unwrap();
    let is_drained = |nodes: &[sanderling_protocol::NodeInfo]| {
        nodes.iter().any(|node| node.id == victim && node.policy == Policy::Drained)
    };
    cluster.wait_for(client, "drained", is_drained).await;
    cluster.kill(victim).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_is_replaced_under_load_and_no_call_fails() {
    let mut cluster = Cluster::start_with(4, 128 << 20).await;
    let client = cluster.client().await;
    let load = load(&client).await;
    load.goes_on(10).await;
    for round in 0..6 {
        let victim = cluster.datanodes[round].as_ref().unwrap().node();
        notice_and_kill(&mut cluster, &client, victim).await;
        cluster.add(128 << 20).await;
        load.goes_on(10).await;
    }
    load.end().await;
    for number in 0..KEPT {
        let read = client.get(&path(&format!("/kept/{number}"))).await.unwrap();
        assert!(read == pattern(MIB + 12_345, number));
    }
    assert_eq!(client.report().await.unwrap().bytes, 0);
    assert_eq!(client.metrics().failed, 0);
    assert!(client.fsck().await.unwrap().problems.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn restarted_namenode_goes_on_and_no_call_fails() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let load = load(&client).await;
    load.goes_on(5).await;
    for _ in 0..3 {
        cluster.restart_namenode().await;
        load.goes_on(10).await;
    }
    load.end().await;
    assert_eq!(client.report().await.unwrap().bytes, 0);
    assert!(client.fsck().await.unwrap().problems.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_goes_on_under_another_namenode() {
    let mut cluster = Cluster::start(4).await;
    let client = cluster.client().await;
    let load = load(&client).await;
    let victim = cluster.datanodes[0].as_ref().unwrap().node();
    client.notice(&NodeSelector::from(victim), 200_000, "test").await.unwrap();
    cluster.restart_namenode().await;
    let is_drained = |nodes: &[sanderling_protocol::NodeInfo]| {
        nodes.iter().any(|node| node.id == victim && node.policy == Policy::Drained)
    };
    cluster.wait_for(&client, "drained", is_drained).await;
    cluster.kill(victim).await;
    load.goes_on(5).await;
    load.end().await;
    assert_eq!(client.report().await.unwrap().bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_survive_a_death_without_notice() {
    let mut cluster = Cluster::start(4).await;
    let client = cluster.client().await;
    let mut writers = Vec::new();
    for number in 0..6u64 {
        let name = path(&format!("/file-{number}"));
        writers.push(client.create(&name, &PutOptions::default()).await.unwrap());
    }
    for writer in &mut writers {
        writer.write(&pattern(MIB / 2, 1)).await.unwrap();
    }
    let victim = cluster.datanodes[2].as_ref().unwrap().node();
    cluster.kill(victim).await;
    let mut lost = 0;
    for mut writer in writers {
        writer.write(&pattern(4 * MIB, 2)).await.unwrap();
        let name = writer.path().clone();
        match writer.close().await {
            Ok(stat) => {
                assert_eq!((stat.bytes, stat.lost_bytes), ((4 * MIB + MIB / 2) as u64, 0));
            }
            // What was acknowledged by the node that died: no reader takes the file for whole.
            Err(ClientError::DataUnavailable { ranges, .. }) => {
                lost += ranges.iter().map(|range| range.bytes).sum::<u64>();
                assert!(!client.exists(&name).await.unwrap());
            }
            Err(error) => panic!("{error}"),
        }
    }
    // Of blocks that were ended before the seal the report has these as well.
    let report = client.report().await.unwrap();
    assert!(report.bytes <= lost, "{} bytes reported, {lost} lost to writers", report.bytes);
    assert!(client.fsck().await.unwrap().problems.is_empty());
}
