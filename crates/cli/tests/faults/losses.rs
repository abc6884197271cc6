//! Losses are exact: the report, the events, the readers and fsck are compared with a model of the
//! data that the test keeps by itself.

use crate::cluster;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::cluster::http::get;
use crate::cluster::model::{Losses, Model};
use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, path, until_gone};
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_protocol::message::{JobHints, RegisterJob};
use sanderling_protocol::{EventKind, JobId, Millis, NodeId, NodeSelector};
use serde_json::json;

const MIB: usize = 1 << 20;

/// Time from the notice to its deadline: short, as no node has room for anything.
const DEADLINE: Duration = Duration::from_millis(1500);

/// Parts of the multifile.
const PARTS: u64 = 20;

/// A fleet without room: every datanode is full of blocks as large as blocks get.
struct Full {
    cluster: Cluster,
    client: Client,
    model: Model,
    job: JobId,
}

impl Full {
    async fn fleet() -> Self {
        // What is counted before the notice must not move before it, and nothing finds room at it.
        let namenode = ["--no-rebalance", "--no-precopy", "--departures", "0"];
        let namenode = namenode.map(str::to_owned).to_vec();
        let shape = Shape { datanodes: 3, dram: "24MiB", namenode, ..Shape::default() };
        let cluster = Cluster::start(shape);
        let client = cluster.client().await;
        let lease = Millis(600_000);
        let request = RegisterJob {
            path: path("/job"),
            lease,
            quota_bytes: None,
            hints: JobHints::default(),
        };
        let job = client.register_job(request).await.expect("registered").job;
        client.make_multifile(&path("/job/multi")).await.expect("made");
        let mut model = Model::default();
        for part in 0..PARTS {
            let to = format!("/job/multi/part-{part:02}");
            assert!(model.put(&client, &to, MIB).await, "there is room for {to}");
        }
        for at in 0..8 {
            let to = format!("/job/of-three-blocks-{at}");
            assert!(model.put(&client, &to, 3 * MIB).await, "there is room for {to}");
        }
        let mut at = 0;
        while model.put(&client, &format!("/other/{at}"), MIB).await {
            at += 1;
        }
        assert!(at > 10, "the fleet is full after {at} more objects");
        Self { cluster, client, model, job }
    }

    /// Gives a notice and returns what must be lost by it, and when it was given.
    async fn notice(&self, name: &str) -> (Losses, Instant) {
        let info = cluster::until_node(&self.client, name, "known", |_| true).await;
        let expected = self.model.at_home(&self.client, info.id).await;
        assert!(expected.blocks.len() > 10, "{name} holds little: {expected:?}");
        let given = Instant::now();
        let millis = i64::try_from(DEADLINE.as_millis()).expect("short");
        let selector = NodeSelector(name.to_owned());
        client_notice(&self.client, &selector, millis).await;
        (expected, given)
    }
}

async fn client_notice(client: &Client, node: &NodeSelector, millis: i64) {
    client.notice(node, millis, "a test").await.expect("taken");
}

/// Waits until the report's page has a loss. Returns it, and when.
async fn reported(cluster: &Cluster) -> (serde_json::Value, Instant) {
    let limit = Instant::now() + SOON;
    loop {
        let report = get(&cluster.namenode.http_address, "/v1/report").await;
        if report["bytes"] != 0 {
            return (report, Instant::now());
        }
        assert!(Instant::now() < limit, "no loss is reported: {report}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn report_and_events_have_a_loss_at_the_deadline_and_not_before() {
    block_on(async {
        let mut full = Full::fleet().await;
        let n0 = NodeId(full.cluster.datanode("n0").node);
        let (expected, given) = full.notice("n0").await;
        let (page, reported_at) = reported(&full.cluster).await;
        let after = reported_at.duration_since(given);
        // The namenode counts whole milliseconds.
        let soonest = DEADLINE.saturating_sub(Duration::from_millis(1));
        assert!(after >= soonest, "lost before the deadline, after {after:?}");
        println!("reported {:?} after the deadline", after.saturating_sub(DEADLINE));
        full.cluster.datanode("n0").kill();

        let lost = Losses::reported(&full.client).await;
        assert_eq!(lost, expected);
        assert_eq!(page["blocks"], expected.blocks.len() as u64, "{page}");
        assert_eq!(page["bytes"], expected.bytes(), "{page}");
        assert_eq!(page["objects"], expected.ranges.len() as u64, "{page}");
        let losses = page["losses"].as_array().expect("a list");
        for loss in losses {
            let is_of_job = loss["path"].as_str().is_some_and(|path| path.starts_with("/job/"));
            let job = if is_of_job { json!(full.job) } else { json!(null) };
            assert_eq!((&loss["job"], &loss["node"]), (&job, &json!(n0)), "{loss}");
        }
        let blocks: BTreeSet<u64> = (losses.iter())
            .flat_map(|loss| loss["blocks"].as_array().expect("a list"))
            .map(|block| block.as_u64().expect("an id"))
            .collect();
        let wanted: BTreeSet<u64> = expected.blocks.iter().map(|block| block.0).collect();
        assert_eq!(blocks, wanted);
        assert_event(&full, n0, &expected).await;
    });
}

/// The event has the report's sums, and the command prints it.
async fn assert_event(full: &Full, from: NodeId, expected: &Losses) {
    let events = full.client.events(0, 1000, Millis(0)).await.expect("the namenode answers");
    let kinds: Vec<EventKind> = (events.into_iter().map(|event| event.kind))
        .filter(|kind| matches!(kind, EventKind::BlocksLost { .. }))
        .collect();
    let (blocks, objects) = (expected.blocks.len() as u64, expected.ranges.len() as u64);
    let (bytes, jobs) = (expected.bytes(), vec![full.job]);
    assert_eq!(kinds, [EventKind::BlocksLost { node: from, blocks, bytes, objects, jobs }]);
    let ran = full.cluster.cli(&["events"]);
    assert!(ran.stdout.contains(&format!("LOST {blocks} blocks")), "{ran}");
}

#[test]
fn readers_of_lost_blocks_get_an_error_and_others_go_on() {
    block_on(async {
        let mut full = Full::fleet().await;
        // One reader has read before and has the old locations, one is new.
        let known = full.client.clone();
        full.model.check(&known, &Losses::default()).await;
        let (expected, _) = full.notice("n0").await;
        until_gone(&full.client, "n0").await;
        full.cluster.datanode("n0").kill();
        let new = full.cluster.client().await;
        for client in [&known, &new] {
            for object in expected.ranges.keys() {
                let read = client.get(object).await;
                let Err(ClientError::DataUnavailable { path, ranges, .. }) = read else {
                    panic!("{object}: {read:?}");
                };
                assert_eq!((&path, &ranges[..]), (object, expected.of(object)));
            }
            full.model.check(client, &expected).await;
        }
        assert_rest_is_readable(&full, &expected).await;
        assert_multifile_goes_on(&full, &expected).await;
    });
}

/// What is left of an object with a lost block can be read.
async fn assert_rest_is_readable(full: &Full, lost: &Losses) {
    let mut partial = 0;
    for (object, (seed, bytes)) in &full.model.objects {
        let whole = bytes_of(*seed, *bytes);
        let gone = |at: u64| {
            lost.of(object).iter().any(|it| (it.offset..it.offset + it.bytes).contains(&at))
        };
        let blocks = (0..*bytes as u64).step_by(MIB);
        partial += usize::from(blocks.clone().any(gone) && !blocks.clone().all(gone));
        for at in blocks.filter(|at| !gone(*at)) {
            let from = usize::try_from(at).expect("small");
            let read = full.client.get_range(object, at, MIB as u64).await.expect("not lost");
            assert!(read[..] == whole[from..from + MIB], "{object} has other bytes at {at}");
        }
    }
    assert!(partial > 0, "no object lost a part only: the test shows nothing");
}

/// A multifile with a lost part gives an error for that part and the bytes of the others.
async fn assert_multifile_goes_on(full: &Full, lost: &Losses) {
    let multi = path("/job/multi");
    let (mut whole, mut lost_parts) = (Vec::new(), 0);
    for part in 0..PARTS {
        let object = multi.join(&format!("part-{part:02}")).expect("a path");
        let (seed, bytes) = full.model.objects[&object];
        match lost.of(&object) {
            [] => whole.extend_from_slice(&bytes_of(seed, bytes)),
            _ => lost_parts += 1,
        }
    }
    assert!(lost_parts > 0 && !whole.is_empty(), "{lost_parts} parts are lost: nothing is shown");
    let mut reader = full.client.open_multi(&multi).await.expect("it is there");
    let (mut read, mut refused) = (Vec::new(), 0);
    while let Some(next) = reader.next().await {
        match next {
            Ok(bytes) => read.extend_from_slice(&bytes),
            Err(ClientError::DataUnavailable { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(refused, lost_parts);
    assert!(read == whole, "the other parts have other bytes");
}

#[test]
fn fsck_agrees_with_the_report_until_the_lost_objects_are_deleted_or_stored_anew() {
    block_on(async {
        let mut full = Full::fleet().await;
        let (expected, _) = full.notice("n0").await;
        until_gone(&full.client, "n0").await;
        full.cluster.datanode("n0").kill();
        let ran = full.cluster.cli(&["fsck", "--deep", "--json"]);
        assert_eq!(ran.code, 5, "{ran}");
        let fsck: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!(fsck["lost_blocks"], expected.blocks.len() as u64, "{ran}");
        assert_eq!(fsck["lost_bytes"], expected.bytes(), "{ran}");
        let objects: BTreeSet<&str> = (fsck["lost_objects"].as_array().expect("a list").iter())
            .map(|path| path.as_str().expect("a path"))
            .collect();
        let wanted: BTreeSet<&str> = expected.ranges.keys().map(|path| path.as_str()).collect();
        assert_eq!(objects, wanted);
        assert_eq!(fsck["problems"], json!([]), "{ran}");
        assert_eq!(fsck["deep"]["problems"], json!([]), "{ran}");

        // What an application does that can compute its data again.
        full.cluster.add("n3", &[]);
        full.cluster.add("n4", &[]);
        for object in expected.ranges.keys() {
            full.client.delete(object, false).await.expect("deleted");
            let (seed, bytes) = full.model.objects[object];
            let put = full.client.put(object, bytes_of(seed, bytes), &PutOptions::default()).await;
            put.expect("stored anew");
        }
        full.model.check(&full.client, &Losses::default()).await;
        let fsck = full.cluster.json(&["fsck", "--deep"]);
        assert_eq!(fsck["lost_blocks"], 0, "{fsck}");
        assert_eq!(fsck["report"]["bytes"], expected.bytes(), "the report forgets nothing: {fsck}");
        assert_eq!(fsck["bytes"], full.model.bytes(), "{fsck}");
    });
}

#[test]
fn loss_is_reported_after_the_namenode_was_killed_across_the_deadline() {
    block_on(async {
        let mut full = Full::fleet().await;
        let (expected, given) = full.notice("n0").await;
        full.cluster.namenode.kill();
        full.cluster.datanode("n0").kill();
        tokio::time::sleep(DEADLINE.saturating_sub(given.elapsed())).await;
        full.cluster.restart_namenode();
        let (page, _) = reported(&full.cluster).await;
        assert_eq!(page["blocks"], expected.blocks.len() as u64, "{page}");
        assert_eq!(Losses::reported(&full.client).await, expected);
        full.model.check(&full.client, &expected).await;
    });
}

#[test]
fn loss_behind_a_small_value_is_reported_where_readers_miss_it() {
    let mut cluster = Cluster::of(1);
    block_on(async {
        let (client, small) = (cluster.client().await, path("/small"));
        // The first bytes live in the catalog, and only those behind them on a node.
        client.put(&small, bytes_of(1, 136), &PutOptions::default()).await.expect("stored");
        let mut writer = client.append(&small).await.expect("a writer");
        writer.write(&bytes_of(2, 70_000)).await.expect("room");
        writer.close().await.expect("closed");
        cluster.datanode("n0").kill();
        until_gone(&client, "n0").await;
        let read = client.get(&small).await;
        let Err(ClientError::DataUnavailable { ranges, .. }) = read else { panic!("{read:?}") };
        assert_eq!((ranges.len(), ranges[0].offset, ranges[0].bytes), (1, 136, 70_000));
        assert_eq!(Losses::reported(&client).await.of(&small), ranges);
        assert_eq!(client.get_range(&small, 0, 136).await.expect("kept"), bytes_of(1, 136));
    });
}

#[test]
fn next_flush_of_a_writer_fails_when_flushed_bytes_are_lost() {
    let mut cluster = Cluster::of(1);
    block_on(async {
        let (client, log) = (cluster.client().await, path("/log"));
        let mut writer = client.create(&log, &PutOptions::default()).await.expect("a writer");
        writer.write(&bytes_of(1, 70_000)).await.expect("room");
        writer.flush().await.expect("flushed");
        cluster.datanode("n0").kill();
        until_gone(&client, "n0").await;
        cluster.add("n1", &[]);
        writer.write(&bytes_of(2, 5_000)).await.expect("another node");
        let flushed = writer.flush().await;
        let Err(ClientError::DataUnavailable { ranges, .. }) = flushed else {
            panic!("{flushed:?}")
        };
        assert_eq!((ranges.len(), ranges[0].offset, ranges[0].bytes), (1, 0, 70_000));
        assert_eq!(Losses::reported(&client).await.of(&log), ranges);
        assert!(client.exists(&log).await.expect("answered"), "its writer has not left it");
        drop(writer);
        let limit = Instant::now() + SOON;
        while client.exists(&log).await.expect("answered") {
            assert!(Instant::now() < limit, "a file that its writer left stays");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}
