//! What a store has needs no copy and no move: at a notice the rest leaves first, and what does not
//! make it is read back.

use crate::cluster::stores::{add, add_with, make, put};
use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, path, until};
use sanderling_protocol::node::NodeSelector;

const MIB: u64 = 1 << 20;

/// Bytes of the first test that no store has.
const VOLATILE: u64 = 3 * (256 << 10);

/// Returns the bytes that only one node has, as the namenode counts them.
fn exposed(cluster: &Cluster, name: &str) -> u64 {
    let nodes = cluster.json(&["node", "ls"]);
    let nodes = nodes["nodes"].as_array().expect("a list");
    let node = nodes.iter().find(|node| node["name"] == name).expect("it is listed");
    node["exposure_bytes"].as_u64().expect("a number")
}

#[test]
fn notice_too_short_for_all_bytes_moves_the_volatile_ones_and_loses_nothing() {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let store = cluster.path("store");
    std::fs::create_dir(&store).expect("made");
    // Its link takes more than two seconds longer for everything than the notice. What is volatile
    // needs a twentieth of the notice, so that a busy processor makes none of it late.
    add_with(&mut cluster, "slow", &store, &["--egress-limit", "2MiB/s"]);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        for number in 0..10 {
            put(&client, &format!("/out/{number}"), number, 2 << 20).await;
        }
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    assert_eq!(exposed(&cluster, "slow"), 0, "what the store has counts as exposed");
    block_on(async {
        let client = cluster.client().await;
        for number in 0..3 {
            put(&client, &format!("/volatile/{number}"), 100 + number, 256 << 10).await;
        }
    });
    assert_eq!(exposed(&cluster, "slow"), VOLATILE);
    for name in ["n1", "n2"] {
        add(&mut cluster, name, &store);
    }
    let planned = cluster.json(&["node", "notice", "slow", "--deadline", "8s", "--dry-run"]);
    let forecast = &planned["forecast"];
    assert_eq!(forecast["late_bytes"], 0, "{planned}");
    assert_eq!(forecast["left_bytes"], VOLATILE, "{planned}");
    block_on(async {
        let client = cluster.client().await;
        let node = NodeSelector("slow".to_owned());
        client.notice(&node, 8_000, "test").await.expect("taken");
    });
    until("its deadline passes or it is empty", SOON, || {
        let nodes = cluster.json(&["node", "ls", "--all"]);
        let nodes = nodes["nodes"].as_array().expect("a list");
        let slow = nodes.iter().find(|node| node["name"] == "slow").expect("it is listed");
        let forecast = &slow["drain"]["forecast"];
        if !forecast.is_null() {
            assert_eq!(forecast["late_bytes"], 0, "{slow}");
            assert!(forecast["left_bytes"].as_u64().expect("a number") <= VOLATILE, "{slow}");
        }
        (slow["policy"] == "gone").then_some(())
    });
    cluster.datanode("slow").kill();
    block_on(async {
        let client = cluster.client().await;
        for number in 0..3 {
            let read =
                client.get(&path(&format!("/volatile/{number}"))).await.expect("it has left");
            assert!(
                read == bytes_of(100 + number, 256 << 10),
                "/volatile/{number} has other bytes"
            );
        }
        for number in 0..10 {
            let read = client.get(&path(&format!("/out/{number}"))).await.expect("it is read back");
            assert!(read == bytes_of(number, 2 << 20), "/out/{number} has other bytes");
        }
    });
    let fsck = cluster.json(&["fsck"]);
    assert_eq!(fsck["problems"].as_array().map(Vec::len), Some(0), "{fsck}");
    assert_eq!(fsck["lost_blocks"], 0, "{fsck}");
    assert_eq!(fsck["report"]["bytes"], 0, "{fsck}");
}

#[test]
fn decommissioned_node_is_emptied_of_what_the_store_has_too() {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let store = cluster.path("store");
    std::fs::create_dir(&store).expect("made");
    add(&mut cluster, "d0", &store);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/out/one", 1, 3 << 20).await;
        put(&client, "/volatile", 2, 3 << 20).await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    add(&mut cluster, "d1", &store);
    let words = ["node", "decommission", "d0", "--wait", "--yes"];
    let emptied = cluster.cli(&words);
    assert_eq!(emptied.code, 0, "{emptied}");
    // The store is away: nothing has to be read back.
    std::fs::rename(&store, cluster.path("away")).expect("moved");
    block_on(async {
        let client = cluster.client().await;
        let read = client.get(&path("/out/one")).await.expect("it was moved");
        assert!(read == bytes_of(1, 3 << 20));
    });
    // An object that is appended to is in no store as it is.
    assert_eq!(exposed(&cluster, "d1"), 3 * MIB);
    block_on(async {
        let client = cluster.client().await;
        let mut writer = client.append(&path("/out/one")).await.expect("open");
        writer.write(&bytes_of(3, 4096)).await.expect("written");
        writer.close().await.expect("sealed");
    });
    assert_eq!(exposed(&cluster, "d1"), 6 * MIB + 4096);
}
