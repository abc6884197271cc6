//! Nodes that hold more than they can send within a notice lose nothing to one.

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Shape, block_on, block_on_within, bytes_of, path, until_gone};
use futures_util::StreamExt;
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{NodeSelector, Policy};

/// How long copying may take on a busy machine before the test gives up.
const TIMEOUT: Duration = Duration::from_secs(150);

const NODES: usize = 4;

/// Objects of one block each: 9 MiB on each node, three times its budget.
const OBJECTS: u64 = 72;

/// So short that even four behind each other on a slow link, with two copies before each, come
/// before any call ends.
const OBJECT_BYTES: usize = 512 << 10;

/// The shortest notice of the nodes' cloud. A drain that takes what budgets go by is over seconds
/// before its end.
const NOTICE: Duration = Duration::from_secs(6);

/// What their links send: 3 MiB within the notice, by the rule that budgets go by.
const LINK: &str = "0.75MiB";

/// Flags of a node whose link has this rate.
fn flags(host: &str) -> Vec<&str> {
    let link = ["--host", host, "--egress", LINK, "--egress-limit", LINK];
    [&link[..], &["--notice-min", "6s"]].concat()
}

/// Starts nodes on as many machines, with a manager that gives the links to copies.
fn start() -> Cluster {
    let share = ["--background-share", "100%"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start(Shape { datanodes: 0, namenode: share, ..Shape::default() });
    for number in 0..NODES {
        let name = format!("n{number}");
        cluster.add(&name, &flags(&name));
    }
    cluster
}

async fn fill(client: &Client) {
    client.make_directory(&path("/full"), ObjectKind::Directory, true, true).await.expect("made");
    for seed in 0..OBJECTS {
        let to = path(&format!("/full/{seed}"));
        client
            .put(&to, bytes_of(seed, OBJECT_BYTES), &PutOptions::default())
            .await
            .expect("stored");
    }
}

/// Returns how many of the objects are whole; the others must be lost. A few are read at once: the
/// links are slow, and copies are made beside.
async fn whole(client: &Client) -> u64 {
    let reading = futures_util::stream::iter(0..OBJECTS).map(|seed| async move {
        match client.get(&path(&format!("/full/{seed}"))).await {
            Ok(bytes) => {
                assert!(bytes == bytes_of(seed, OBJECT_BYTES), "/full/{seed} has other bytes");
                1
            }
            Err(error) => {
                assert!(error.to_string().contains("lost"), "{error}");
                0
            }
        }
    });
    reading.buffer_unordered(4).fold(0, async |whole, one| whole + one).await
}

/// Waits until no node holds more alone than it could send within a notice.
async fn until_bounded(client: &Client, nodes: usize) -> Vec<NodeInfo> {
    let limit = Instant::now() + TIMEOUT;
    loop {
        let all = client.nodes(false).await.expect("the namenode answers");
        let active = all.iter().filter(|node| node.policy == Policy::Active);
        let is_bounded = |node: &NodeInfo| node.exposure_bytes <= node.budget_bytes;
        let bounded = active.filter(|node| is_bounded(node)).count();
        if bounded == nodes && all.len() == nodes {
            return all;
        }
        let rows = all.iter().map(|it| (&it.name, it.policy, it.exposure_bytes, it.budget_bytes));
        assert!(Instant::now() < limit, "not bounded: {:?}", rows.collect::<Vec<_>>());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn copied_blocks_survive_a_kill_without_notice_and_the_rest_is_reported() {
    let mut cluster = start();
    block_on(async {
        let client = cluster.client().await;
        fill(&client).await;
        let nodes = until_bounded(&client, NODES).await;
        let held: u64 = nodes.iter().map(|node| node.home_bytes).sum();
        let budgets: u64 = nodes.iter().map(|node| node.budget_bytes).sum();
        assert!(held > budgets * 5 / 2, "{held} bytes do not need {budgets} thrice");
        let exposure = nodes.iter().find(|node| node.name == "n1").expect("n1").exposure_bytes;
        cluster.datanode("n1").kill();
        until_gone(&client, "n1").await;
        let report = client.report().await.expect("the namenode answers");
        assert!(report.bytes <= exposure, "{} lost, {exposure} exposed", report.bytes);
        assert!(report.promoted_bytes > 0);
        assert_eq!(whole(&client).await, OBJECTS - report.bytes / OBJECT_BYTES as u64);
        until_bounded(&client, NODES - 1).await;
    });
}

#[test]
fn node_that_its_cloud_recommends_to_leave_is_copied_whole() {
    let mut cluster = start();
    block_on(async {
        let client = cluster.client().await;
        fill(&client).await;
        let ran = cluster.cli(&["node", "recommend", "n2", "--reason", "test"]);
        assert_eq!(ran.code, 0, "{ran}");
        let limit = Instant::now() + TIMEOUT;
        loop {
            let nodes = client.nodes(false).await.expect("the namenode answers");
            let node = nodes.iter().find(|node| node.name == "n2").expect("n2");
            if node.is_at_risk && node.exposure_bytes == 0 {
                break;
            }
            assert!(Instant::now() < limit, "{node:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        cluster.datanode("n2").kill();
        until_gone(&client, "n2").await;
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
        assert_eq!(whole(&client).await, OBJECTS);
        until_bounded(&client, NODES - 1).await;
    });
}

#[test]
fn notice_as_short_as_the_cloud_gives_loses_nothing() {
    random_notices(2, 1);
}

/// The long one:
/// `SANDERLING_NOTICES=100 cargo test -p sanderling-cli --test fleet -- --ignored exposure::`.
#[test]
#[ignore = "minutes: as many notices as SANDERLING_NOTICES"]
fn many_notices_as_short_as_the_cloud_gives_lose_nothing() {
    let count = std::env::var("SANDERLING_NOTICES").ok().and_then(|text| text.parse().ok());
    random_notices(count.unwrap_or(100), 7);
}

/// Gives notices to nodes by lot, at moments by lot; kills each at its deadline and starts another
/// in its place.
fn random_notices(count: u64, seed: u64) {
    let mut cluster = start();
    let limit = TIMEOUT * u32::try_from(count + 1).expect("few");
    block_on_within(limit, async {
        let client = cluster.client().await;
        fill(&client).await;
        let reading = tokio::spawn(read_for_ever(cluster.client().await));
        let mut lots = seed;
        let mut lot = |below: u64| {
            lots = lots.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (lots >> 33) % below
        };
        for round in 0..count {
            let nodes = until_bounded(&client, NODES).await;
            tokio::time::sleep(Duration::from_millis(lot(2000))).await;
            let noticed = &nodes[usize::try_from(lot(NODES as u64)).expect("few")];
            let name = noticed.name.clone();
            let millis = i64::try_from(NOTICE.as_millis()).expect("short");
            let selector = NodeSelector(name.clone());
            client.notice(&selector, millis, "by lot").await.expect("taken");
            tokio::time::sleep(NOTICE).await;
            cluster.datanode(&name).kill();
            until_gone(&client, &name).await;
            let report = client.report().await.expect("the namenode answers");
            assert_eq!((report.blocks, report.bytes), (0, 0), "notice {round}, {name}: {report:?}");
            let host = format!("n{}", NODES as u64 + round);
            cluster.datanodes.retain(|server| server.name != name);
            cluster.add(&host, &flags(&host));
        }
        assert!(!reading.is_finished(), "a read failed: {:?}", reading.await);
        reading.abort();
        assert_eq!(whole(&client).await, OBJECTS);
        until_bounded(&client, NODES).await;
        let report = client.report().await.expect("the namenode answers");
        eprintln!(
            "{count} notices of {NOTICE:?}: {} B promoted, {} B relocated, {} B copied before, \
             {} B rebalanced, {} B lost",
            report.promoted_bytes,
            report.moved_bytes,
            report.copied_bytes,
            report.rebalanced_bytes,
            report.bytes
        );
    });
}

async fn read_for_ever(client: Client) {
    loop {
        for seed in 0..OBJECTS {
            let read = client.get(&path(&format!("/full/{seed}"))).await.expect("readable");
            assert!(read == bytes_of(seed, OBJECT_BYTES), "/full/{seed} has other bytes");
            // The links are slow: readers take a tenth of them.
            tokio::time::sleep(Duration::from_millis(1500)).await;
        }
    }
}

/// There is no room for a copy of each block.
#[test]
fn copies_leave_a_quarter_of_each_tier_free() {
    let namenode = vec!["--no-manager".to_owned()];
    let mut cluster = Cluster::start(Shape { datanodes: 0, namenode, ..Shape::default() });
    for number in 0..NODES {
        let name = format!("n{number}");
        cluster.add(&name, &["--host", &name, "--notice-min", "260ms", "--egress", "1Gbit"]);
    }
    block_on(async {
        let client = cluster.client().await;
        for seed in 0..120 {
            let to = path(&format!("/{seed}"));
            let put = client.put(&to, bytes_of(seed, 1 << 20), &PutOptions::default()).await;
            put.expect("stored");
        }
        // Blocks stay where they are, so only copies take room.
        let words = ["manager", "--namenode", &cluster.namenode.address, "--name", "m"];
        let flags = ["--no-rebalance", "--background-share", "100%"];
        let manager = cluster.serve("m", &[&words[..], &flags].concat());
        let limit = Instant::now() + TIMEOUT;
        let mut copied: u64 = 0;
        while copied < 60 << 20 || !manager.log().contains("no room for copies") {
            let nodes = client.nodes(false).await.expect("the namenode answers");
            for tier in nodes.iter().flat_map(|node| &node.tiers) {
                let is_left = tier.used_bytes <= tier.capacity_bytes / 4 * 3;
                assert!(is_left, "less than a quarter is free: {tier:?}");
            }
            copied = nodes.iter().map(|node| node.copy_bytes).sum();
            assert!(Instant::now() < limit, "{copied} bytes are copied: {}", manager.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

#[test]
fn writers_get_the_room_that_copies_took() {
    let share = ["--background-share", "100%"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start(Shape { datanodes: 0, namenode: share, ..Shape::default() });
    for number in 0..NODES {
        let name = format!("n{number}");
        cluster.add(&name, &["--host", &name, "--notice-min", "260ms", "--egress", "1Gbit"]);
    }
    block_on(async {
        let client = cluster.client().await;
        // 256 MiB in all, of which copies may take three quarters together with their blocks, and
        // blocks 189 MiB: what is kept for one node that leaves is where the copies are, too.
        let put = async |seed: u64| {
            let to = path(&format!("/{seed}"));
            client.put(&to, bytes_of(seed, 1 << 20), &PutOptions::default()).await
        };
        for seed in 0..100 {
            put(seed).await.expect("stored");
        }
        let limit = Instant::now() + TIMEOUT;
        loop {
            let nodes = client.nodes(false).await.expect("the namenode answers");
            if nodes.iter().map(|node| node.copy_bytes).sum::<u64>() > 80 << 20 {
                break;
            }
            assert!(Instant::now() < limit, "no copies: {nodes:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut longest = Duration::ZERO;
        for seed in 100..184 {
            let began = Instant::now();
            put(seed).await.unwrap_or_else(|error| panic!("/{seed}: {error}"));
            longest = longest.max(began.elapsed());
        }
        println!("longest put of 1 MiB while copies gave way: {longest:?}");
    });
}
