//! What becomes of the data when a node is to go: notices, SIGTERM, decommission, takeover.

use std::time::Instant;

use crate::cluster::http::{get, post};
use crate::cluster::{
    Cluster, SOON, Shape, block_on, bytes_of, path, until, until_drained, until_node,
};
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::{EventKind, Millis, NodeSelector, Policy};

/// Milliseconds to a deadline that no drain of these tests meets, however busy the machine is.
const LONG: i64 = 200_000;

/// Stores objects of `mib` MiB in all and returns their number.
async fn fill(client: &Client, mib: u64) -> u64 {
    client.make_directory(&path("/full"), ObjectKind::Directory, true, true).await.expect("made");
    for seed in 0..mib / 2 {
        let bytes = bytes_of(seed, 2 << 20);
        let to = path(&format!("/full/{seed}"));
        client.put(&to, bytes, &PutOptions::default()).await.expect("stored");
    }
    mib / 2
}

async fn assert_full(client: &Client, objects: u64) {
    for seed in 0..objects {
        let read = client.get(&path(&format!("/full/{seed}"))).await.expect("readable");
        assert!(read == bytes_of(seed, 2 << 20), "/full/{seed} has other bytes");
    }
}

async fn assert_nothing_lost(client: &Client) {
    let report = client.report().await.expect("the namenode answers");
    assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
    let fsck = client.fsck().await.expect("the namenode answers");
    assert_eq!((fsck.lost_blocks, fsck.problems.len()), (0, 0), "{fsck:?}");
}

#[test]
fn noticed_datanode_that_is_killed_loses_nothing() {
    let mut cluster = Cluster::of(3);
    let local = cluster.path("local");
    std::fs::write(&local, bytes_of(1, 12 << 20)).expect("written");
    let local = local.to_str().expect("UTF-8").to_owned();
    assert_eq!(cluster.cli(&["fs", "put", &local, "/object"]).code, 0);

    let before = cluster.json(&["node", "ls"]);
    let nodes = before["nodes"].as_array().expect("a list");
    let noticed = nodes.iter().find(|node| node["name"] == "n0").expect("n0 is listed");
    let exposed = noticed["exposure_bytes"].as_u64().expect("a number");
    assert!(exposed > 0, "n0 holds nothing: {before}");
    let ran = cluster.cli(&["node", "notice", "n0", "--deadline", "200s", "--wait"]);
    assert_eq!(ran.code, 0, "{ran}");
    cluster.datanode("n0").kill();

    let back = cluster.path("back");
    let back_text = back.to_str().expect("UTF-8");
    let ran = cluster.cli(&["fs", "get", "/object", back_text]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(
        std::fs::read(&back).expect("fetched") == bytes_of(1, 12 << 20),
        "other bytes came back"
    );
    let fsck = cluster.json(&["fsck", "--deep"]);
    assert_eq!(fsck["lost_blocks"], 0, "{fsck}");
    assert_eq!(fsck["report"]["bytes"], 0, "{fsck}");
    assert_eq!(fsck["report"]["notices"], 1, "{fsck}");
    assert!(fsck["report"]["moved_bytes"].as_u64() >= Some(exposed), "{fsck}");
}

#[test]
fn writer_and_reader_go_on_through_a_notice_and_the_kill() {
    let mut cluster = Cluster::of(0);
    // What it holds takes its link some seconds.
    cluster.add("n0", &["--egress-limit", "2MB"]);
    block_on(async {
        let client = cluster.client().await;
        let objects = fill(&client, 12).await;
        let mut writer =
            client.create(&path("/written"), &PutOptions::default()).await.expect("created");
        let piece = |at: usize| bytes_of(1000 + at as u64, 200_000);
        let mut pieces = 0;
        let mut reading = None;
        for at in 0..60 {
            if at == 15 {
                cluster.add("n1", &[]);
                cluster.add("n2", &[]);
                reading = Some(tokio::spawn(read_until_lost(cluster.client().await, objects)));
                client.notice(&node("n0"), LONG, "test").await.expect("taken");
            }
            if at == 45 {
                until_drained(&client, "n0").await;
                cluster.datanode("n0").kill();
            }
            writer.write_bytes(piece(at)).await.expect("a writer goes on");
            writer.flush().await.expect("a flush goes on");
            pieces = at + 1;
            if at == 17 {
                let n0 = until_node(&client, "n0", "known", |_| true).await;
                assert_eq!(n0.policy, Policy::Draining, "the writer waited for the relocation");
            }
        }
        writer.close().await.expect("closed");
        let reading = reading.expect("it was begun");
        reading.abort();
        if let Ok(Err(error)) = reading.await {
            panic!("a read failed: {error}");
        }
        let whole: Vec<u8> = (0..pieces).flat_map(piece).collect();
        let read = client.get(&path("/written")).await.expect("readable");
        assert!(read == whole, "other bytes came back");
        assert_full(&client, objects).await;
        assert_nothing_lost(&client).await;
    });
}

/// Reads all objects again and again until it is aborted.
async fn read_until_lost(
    client: Client,
    objects: u64,
) -> Result<(), sanderling_client::ClientError> {
    loop {
        for seed in 0..objects {
            let read = client.get(&path(&format!("/full/{seed}"))).await?;
            assert_eq!(read.len(), 2 << 20);
        }
    }
}

fn node(name: &str) -> NodeSelector {
    NodeSelector(name.to_owned())
}

#[test]
fn sigterm_drains_a_datanode_and_it_exits_with_0() {
    let mut cluster = Cluster::of(1);
    cluster.add("n1", &["--sigterm-deadline", "200s"]);
    block_on(async {
        let client = cluster.client().await;
        let objects = fill(&client, 8).await;
        cluster.datanode("n1").terminate();
        let status = cluster.datanode("n1").wait(SOON);
        assert_eq!(status.code(), Some(0), "{}", cluster.datanode("n1").log());
        assert_full(&client, objects).await;
        assert_nothing_lost(&client).await;
    });
}

#[test]
fn sigterm_that_comes_twice_at_once_drains_all_the_same() {
    let mut cluster = Cluster::of(1);
    cluster.add("n1", &["--sigterm-deadline", "200s"]);
    block_on(async {
        let client = cluster.client().await;
        let objects = fill(&client, 8).await;
        cluster.datanode("n1").terminate();
        until("the drain", SOON, || {
            cluster.datanode("n1").log().contains("drain starts").then_some(())
        });
        // As coreutils' timeout sends it: to the process, then to its group.
        cluster.datanode("n1").terminate();
        let status = cluster.datanode("n1").wait(SOON);
        assert_eq!(status.code(), Some(0), "{}", cluster.datanode("n1").log());
        assert_full(&client, objects).await;
        assert_nothing_lost(&client).await;
    });
}

#[test]
fn sigterm_without_room_elsewhere_exits_with_5_at_its_deadline() {
    let mut cluster = Cluster::of(0);
    cluster.add("only", &["--sigterm-deadline", "700ms"]);
    block_on(async {
        let client = cluster.client().await;
        fill(&client, 2).await;
        cluster.datanode("only").terminate();
        let status = cluster.datanode("only").wait(SOON);
        assert_eq!(status.code(), Some(5), "{}", cluster.datanode("only").log());
    });
}

#[test]
fn decommission_empties_a_node_and_cancel_takes_it_back() {
    let cluster = Cluster::of(2);
    block_on(async {
        let client = cluster.client().await;
        let objects = fill(&client, 8).await;
        let ran = cluster.cli(&["node", "decommission", "n1", "--wait"]);
        assert_eq!(ran.code, 0, "{ran}");
        let drained = until_drained(&client, "n1").await;
        assert_eq!((drained.blocks, drained.deadline_in), (0, None));
        assert_full(&client, objects).await;

        let ran = cluster.cli(&["node", "cancel", "n1"]);
        assert_eq!(ran.code, 0, "{ran}");
        until_node(&client, "n1", "active", |node| node.policy == Policy::Active).await;
        let selector = node("n0");
        client.decommission(&selector, "the other way").await.expect("taken");
        until_drained(&client, "n0").await;
        assert_full(&client, objects).await;
        assert_nothing_lost(&client).await;
    });
}

#[test]
fn dry_run_moves_nothing() {
    let mut cluster = Cluster::of(2);
    let n1 = cluster.datanode("n1").node;
    block_on(async {
        let client = cluster.client().await;
        fill(&client, 4).await;
        let plan = cluster.json(&["node", "notice", "n0", "--deadline", "30s", "--dry-run"]);
        assert_eq!(plan["fits"], true, "{plan}");
        assert_eq!(plan["bytes"], plan["node"]["exposure_bytes"], "{plan}");
        let to: Vec<&serde_json::Value> =
            plan["targets"].as_array().expect("a list").iter().collect();
        assert!(!to.is_empty() && to.iter().all(|target| target["name"] == "n1"), "{plan}");
        let late = cluster.json(&["node", "notice", "n0", "--deadline", "1ms", "--dry-run"]);
        assert_eq!(late["fits"], false, "{late}");
        assert_eq!(late["forecast"]["late_bytes"], late["bytes"], "{late}");
        let ran = cluster.cli(&["node", "decommission", "n0", "--dry-run"]);
        assert!(ran.stdout.contains(&format!("to node {n1} (n1), dram:")), "{ran}");
        let nodes = client.nodes(false).await.expect("the namenode answers");
        assert!(nodes.iter().all(|node| node.policy == Policy::Active), "{nodes:?}");
    });
}

/// A namenode that has just started does not claim to have measured the links of its nodes.
#[test]
fn dry_run_claims_nothing_late_before_the_nodes_have_reported_to_a_new_namenode() {
    const ASSUMED_WITHIN_50_MS: u64 = 125_000_000 / 20;
    let mut cluster = Cluster::of(2);
    block_on(async {
        let client = cluster.client().await;
        fill(&client, 32).await;
        let exposed = |plan: &serde_json::Value| plan["node"]["exposure_bytes"].as_u64();
        for name in ["n0", "n1"] {
            cluster.datanode(name).pause();
        }
        cluster.restart_namenode();
        let words = ["node", "notice", "n0", "--deadline", "300ms", "--dry-run"];
        let plan = cluster.json(&words);
        assert!(exposed(&plan) > Some(ASSUMED_WITHIN_50_MS), "{plan}");
        assert_eq!(plan["forecast"]["late_bytes"], 0, "{plan}");
    });
}

#[test]
fn forecast_of_a_slow_drain_is_shown_while_it_runs() {
    let mut cluster = Cluster::of(0);
    cluster.add("slow", &["--egress-limit", "2MiB/s"]);
    block_on(async {
        let client = cluster.client().await;
        let objects = fill(&client, 32).await;
        cluster.add("n1", &[]);
        cluster.add("n2", &[]);
        client.notice(&node("slow"), LONG, "test").await.expect("taken");
        let seen = until_node(&client, "slow", "forecast", |node| {
            let forecast = node.drain.and_then(|drain| drain.forecast);
            forecast.is_some_and(|forecast| forecast.finish_in.is_some())
        })
        .await;
        let forecast = seen.drain.and_then(|drain| drain.forecast).expect("it was seen");
        assert!(forecast.left_bytes > 0 && forecast.bytes_per_second > 0, "{forecast:?}");
        assert_eq!((forecast.late_bytes, forecast.unplaced_bytes), (0, 0), "{forecast:?}");
        let ran = cluster.cli(&["node", "ls"]);
        assert!(ran.stdout.contains("forecast: "), "{ran}");
        let answer = get(&cluster.namenode.http_address, "/v1/nodes/slow").await;
        assert!(answer["drain"]["forecast"]["left_bytes"].is_u64(), "{answer}");
        let ran = cluster.cli(&["events"]);
        assert!(ran.stdout.contains("node 1 (slow) forecast: "), "{ran}");
        until_drained(&client, "slow").await;
        assert_full(&client, objects).await;
        assert_nothing_lost(&client).await;
    });
}

#[test]
fn recommended_node_is_marked_until_it_is_taken_back() {
    let cluster = Cluster::of(1);
    let ran = cluster.cli(&["node", "recommend", "n0", "--reason", "a test"]);
    assert_eq!(ran.code, 0, "{ran}");
    let ran = cluster.cli(&["node", "ls"]);
    assert!(ran.stdout.contains("active, at risk"), "{ran}");
    assert_eq!(cluster.cli(&["node", "cancel", "n0"]).code, 0);
    let nodes = cluster.json(&["node", "ls"]);
    assert_eq!(nodes["nodes"][0]["is_at_risk"], false, "{nodes}");
}

#[test]
fn notice_by_http_drains_the_node() {
    let cluster = Cluster::of(2);
    block_on(async {
        let client = cluster.client().await;
        let objects = fill(&client, 4).await;
        let body = r#"{"deadline_millis": 200000, "reason": "by HTTP"}"#;
        let http = &cluster.namenode.http_address;
        let answer = post(http, "/v1/nodes/n0/notice", body).await;
        assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
        let drained = until_drained(&client, "n0").await;
        assert_eq!(drained.reason, "by HTTP");
        assert_full(&client, objects).await;
        let answer = post(http, "/v1/nodes/nobody/notice", body).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    });
}

#[test]
fn another_manager_takes_over_in_the_middle_of_a_drain() {
    let cluster = Cluster::start(Shape {
        datanodes: 3,
        dram: "160MiB",
        namenode: vec!["--no-manager".to_owned()],
        ..Shape::default()
    });
    block_on(async {
        let client = cluster.client().await;
        let objects = fill(&client, 120).await;
        let mut first = cluster.manager("first");
        until_manager(&client, "first").await;
        let selector = node("n0");
        client.notice(&selector, LONG, "test").await.expect("taken");
        let left = until_node(&client, "n0", "moving", |node| {
            node.drain.is_some_and(|drain| drain.moved_blocks > 0)
        })
        .await;
        first.kill();
        let left = left.drain.map_or(0, |drain| drain.left_blocks);
        println!("the first manager was killed with about {left} blocks left");
        let _second = cluster.manager("second");
        until_manager(&client, "second").await;
        until_drained(&client, "n0").await;
        assert_full(&client, objects).await;
        assert_nothing_lost(&client).await;
    });
}

#[test]
fn namenode_that_is_killed_in_the_middle_of_a_drain_goes_on_with_it() {
    let mut cluster = Cluster::start(Shape { dram: "160MiB", ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        let objects = fill(&client, 120).await;
        client.notice(&node("n0"), LONG, "test").await.expect("taken");
        let left = until_node(&client, "n0", "moving", |node| {
            node.drain.is_some_and(|drain| drain.moved_blocks > 0)
        })
        .await;
        cluster.restart_namenode();
        let left = left.drain.map_or(0, |drain| drain.left_blocks);
        println!("the namenode was killed with about {left} blocks left");
        let drained = until_drained(&client, "n0").await;
        assert!(drained.deadline_in.is_some(), "the deadline is forgotten: {drained:?}");
        cluster.datanode("n0").kill();
        assert_full(&client, objects).await;
        assert_nothing_lost(&client).await;
    });
}

#[test]
fn target_that_is_killed_in_the_middle_of_a_drain_costs_only_what_was_its_own() {
    let mut cluster = Cluster::start(Shape { dram: "160MiB", ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        fill(&client, 90).await;
        client.notice(&node("n0"), LONG, "test").await.expect("taken");
        until_node(&client, "n0", "moving", |node| {
            node.drain.is_some_and(|drain| drain.moved_blocks > 0)
        })
        .await;
        cluster.datanode("n1").kill();
        let drained = until_drained(&client, "n0").await;
        let drain = drained.drain.expect("it drained");
        assert_eq!(drain.lost_blocks, 0, "n0 had room elsewhere and time: {drain:?}");
        let report = client.report().await.expect("the namenode answers");
        let n1 = cluster.datanode("n1").node;
        assert!(report.losses.iter().all(|loss| loss.node.0 == n1), "{report:?}");
        let fsck = client.fsck().await.expect("the namenode answers");
        assert!(fsck.problems.is_empty(), "{fsck:?}");
    });
}

#[test]
fn deadline_without_room_declares_the_loss_and_wait_ends_with_5() {
    let cluster = Cluster::of(1);
    block_on(async {
        let client = cluster.client().await;
        fill(&client, 2).await;
        let words = ["node", "notice", "n0", "--deadline", "1s", "--yes", "--wait", "--json"];
        let ran = cluster.cli(&words);
        assert_eq!(ran.code, 5, "{ran}");
        let report = client.report().await.expect("the namenode answers");
        assert_eq!(report.bytes, 2 << 20, "{report:?}");
        let ran = cluster.cli(&["fs", "get", "/full/0", "-"]);
        assert_eq!(ran.code, 5, "{ran}");
    });
}

/// Waits for the event that names the leading manager.
async fn until_manager(client: &Client, wanted: &str) {
    let limit = Instant::now() + SOON;
    let mut after = 0;
    while Instant::now() < limit {
        let events = client.events(after, 100, Millis(1000)).await.expect("the namenode answers");
        after = events.last().map_or(after, |event| event.sequence);
        let leads =
            |kind: &EventKind| matches!(kind, EventKind::ManagerChanged { name } if name == wanted);
        if events.iter().any(|event| leads(&event.kind)) {
            return;
        }
    }
    panic!("manager {wanted} does not lead");
}
