//! The baseline of experiments, `--policy baseline`, as real processes.

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, path, until_drained};
use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::{NodeId, NodeSelector, Policy};

const BASELINE: [&str; 2] = ["--policy", "baseline"];

/// Objects of 2 MiB that every test stores.
const OBJECTS: u64 = 12;

/// A datanode that stores what the tests store and nothing else needs seconds to send it: its
/// relocation is still under way whenever a writer comes next.
const SLOW: [&str; 4] = ["--policy", "baseline", "--egress-limit", "5MB"];

/// The namenode alone.
fn baseline() -> Cluster {
    Cluster::start(Shape {
        datanodes: 0,
        dram: "128MiB",
        namenode: BASELINE.map(str::to_owned).to_vec(),
        ..Shape::default()
    })
}

async fn fill(client: &Client) {
    client.make_directory(&path("/full"), ObjectKind::Directory, true, true).await.expect("made");
    for seed in 0..OBJECTS {
        let to = path(&format!("/full/{seed}"));
        client.put(&to, bytes_of(seed, 2 << 20), &PutOptions::default()).await.expect("stored");
    }
}

async fn assert_full(client: &Client) {
    for seed in 0..OBJECTS {
        let read = client.get(&path(&format!("/full/{seed}"))).await.expect("readable");
        assert!(read == bytes_of(seed, 2 << 20), "/full/{seed} has other bytes");
    }
    let report = client.report().await.expect("the namenode answers");
    assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
    let fsck = client.fsck().await.expect("the namenode answers");
    assert_eq!((fsck.lost_blocks, fsck.problems.len()), (0, 0), "{fsck:?}");
}

#[test]
fn baseline_relocates_a_noticed_node_through_its_relocator() {
    let mut cluster = baseline();
    cluster.add("n0", &BASELINE);
    cluster.add("n1", &BASELINE);
    block_on(async {
        let client = cluster.client().await;
        fill(&client).await;
        client.notice(&NodeSelector("n0".to_owned()), 60_000, "test").await.expect("taken");
        let drained = until_drained(&client, "n0").await;
        let drain = drained.drain.expect("it drained");
        assert!(drain.moved_blocks > 0 && drain.lost_blocks == 0, "{drain:?}");
        assert!(!drain.is_fenced, "a fence was ordered: {drain:?}");
        let nodes = client.nodes(false).await.expect("the namenode answers");
        let pushed: u64 = nodes.iter().map(|node| node.load.pushed_bytes_total).sum();
        assert_eq!(pushed, 0, "bytes went from node to node");
        cluster.datanode("n0").kill();
        assert_full(&cluster.client().await).await;
    });
}

#[test]
fn baseline_keeps_a_writer_waiting_until_the_relocation_has_ended() {
    let mut cluster = baseline();
    cluster.add("n0", &SLOW);
    block_on(async {
        // No piece is given up while the relocation lasts.
        let config = ClientConfig { call_deadline: SOON, ..ClientConfig::default() };
        let address = &cluster.namenode.address;
        let client = Client::connect(address, config).await.expect("the namenode serves");
        // Its open block comes before all others in the map.
        let mut writer =
            client.create(&path("/written"), &PutOptions::default()).await.expect("created");
        let piece = |at: u64| bytes_of(at, 64);
        writer.write_bytes(piece(0)).await.expect("written");
        writer.flush().await.expect("published");
        fill(&client).await;
        cluster.add("n1", &BASELINE);

        let home = NodeSelector::from(NodeId(cluster.datanode("n0").node));
        client.notice(&home, 60_000, "test").await.expect("taken");
        let limit = Instant::now() + SOON;
        let mut pieces = 1;
        let moved = client.metrics().moved;
        while client.metrics().moved == moved {
            assert!(Instant::now() < limit, "the writer was never sent elsewhere");
            tokio::time::sleep(Duration::from_millis(5)).await;
            writer.write_bytes(piece(pieces)).await.expect("a writer goes on");
            writer.flush().await.expect("a flush goes on");
            pieces += 1;
        }
        let metrics = client.metrics();
        assert!(metrics.retries > 0, "the writer did not wait: {metrics:?}");
        // At least one pause that the datanode requested lies in it.
        assert!(metrics.longest_stall >= Duration::from_millis(20), "{metrics:?}");
        let nodes = client.nodes(true).await.expect("the namenode answers");
        let noticed = nodes.iter().find(|node| node.name == "n0");
        let policy = noticed.expect("it is listed").policy;
        assert_eq!(policy, Policy::Drained, "the writer went on before the relocation had ended");
        writer.close().await.expect("closed");
        let whole: Vec<u8> = (0..pieces).flat_map(piece).collect();
        assert!(client.get(&path("/written")).await.expect("readable") == whole);
        assert_full(&client).await;
    });
}
