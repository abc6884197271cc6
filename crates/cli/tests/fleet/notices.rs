//! Notices as clouds give them: many at once, in waves, late, twice, taken back, to the manager's
//! own machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::cluster::model::{Losses, Model};
use crate::cluster::relay::Relay;
use crate::cluster::{
    Cluster, SOON, Shape, block_on, bytes_of, http, path, run, sanderling, until_drained,
    until_gone, until_node,
};
use crate::same_host::add_with_clock;
use crate::same_host::clock::Clock;
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{
    BlockId, EventKind, Header, Millis, NodeId, NodeSelector, Op, Policy, Refusal, Request,
};
use tokio_util::sync::CancellationToken;

/// A deadline that no drain of these tests meets, however busy the machine is.
const LONG: Duration = Duration::from_secs(100);

/// Flags of a namenode under which nothing moves without a notice: what a node holds before one is
/// what it holds then.
fn still() -> Vec<String> {
    ["--no-rebalance", "--no-precopy"].map(str::to_owned).to_vec()
}

fn node(name: &str) -> NodeSelector {
    NodeSelector(name.to_owned())
}

async fn notice(client: &Client, name: &str, deadline: Duration) {
    let millis = i64::try_from(deadline.as_millis()).expect("seconds");
    client.notice(&node(name), millis, "test").await.expect("taken");
}

async fn info(client: &Client, name: &str) -> NodeInfo {
    until_node(client, name, "known", |_| true).await
}

/// Clients at work: one reads everything again and again, one appends and flushes.
struct Work {
    stop: CancellationToken,
    reader: tokio::task::JoinHandle<u64>,
    writer: tokio::task::JoinHandle<u64>,
}

/// Bytes of one flushed write.
const PIECE_BYTES: usize = 100_000;

impl Work {
    async fn start(cluster: &Cluster, model: &Model) -> Self {
        let stop = CancellationToken::new();
        let (client, model, stopped) = (cluster.client().await, model.clone(), stop.clone());
        let reader = tokio::spawn(async move {
            let mut reads = 0;
            while !stopped.is_cancelled() {
                for (object, (_, bytes)) in &model.objects {
                    let read = client.get(object).await.expect("a reader goes on");
                    assert_eq!(read.len(), *bytes, "{object}");
                    reads += 1;
                }
            }
            reads
        });
        let (client, stopped) = (cluster.client().await, stop.clone());
        let writer = tokio::spawn(async move {
            let options = PutOptions::default();
            let mut writer = client.create(&path("/written"), &options).await.expect("created");
            let mut pieces = 0;
            while !stopped.is_cancelled() && pieces < 300 {
                let piece = bytes_of(10_000 + pieces, PIECE_BYTES);
                writer.write_bytes(piece).await.expect("a writer goes on");
                writer.flush().await.expect("a flush goes on");
                pieces += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            writer.close().await.expect("closed");
            pieces
        });
        Self { stop, reader, writer }
    }

    /// Ends the work: no call has failed, and what was written can be read.
    async fn end(self, client: &Client) {
        self.stop.cancel();
        let pieces = self.writer.await.expect("the writer did not fail");
        let reads = self.reader.await.expect("the reader did not fail");
        let whole: Vec<u8> =
            (0..pieces).flat_map(|at| bytes_of(10_000 + at, PIECE_BYTES)).collect();
        let read = client.get(&path("/written")).await.expect("readable");
        assert!(read == whole, "other bytes came back");
        client.delete(&path("/written"), false).await.expect("deleted");
        eprintln!("{reads} reads and {pieces} flushed writes, none failed");
    }
}

#[test]
fn half_of_the_fleet_noticed_at_once_loses_nothing_and_fails_no_call() {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    // What each of the noticed ones holds takes its link some seconds.
    for name in ["n0", "n1", "n2"] {
        cluster.add(name, &["--egress-limit", "4MB"]);
    }
    for name in ["n3", "n4", "n5"] {
        cluster.add(name, &[]);
    }
    block_on(async {
        let client = cluster.client().await;
        let model = Model::fill(&client, 72).await;
        let work = Work::start(&cluster, &model).await;
        let began = Instant::now();
        tokio::join!(
            notice(&client, "n0", LONG),
            notice(&client, "n1", LONG),
            notice(&client, "n2", LONG),
        );
        for name in ["n0", "n1", "n2"] {
            let drained = until_drained(&client, name).await;
            let drain = drained.drain.expect("it drained");
            assert!(drain.moved_blocks > 0, "{name} held nothing: the test shows nothing");
        }
        assert_noticed_before_a_drain_ended(&client, 3).await;
        println!("three nodes of six are empty after {:?}", began.elapsed());
        for name in ["n0", "n1", "n2"] {
            cluster.datanode(name).kill();
        }
        work.end(&client).await;
        model.check_whole(&cluster, &client).await;
        for name in ["n0", "n1", "n2"] {
            until_gone(&client, name).await;
        }
        model.check_once(&cluster);
    });
}

/// By the namenode's own order of them.
async fn assert_noticed_before_a_drain_ended(client: &Client, notices: usize) {
    let events = client.events(0, 1000, Millis(0)).await.expect("the namenode answers");
    let kinds = events.iter().map(|event| &event.kind);
    let before = kinds.take_while(|kind| !matches!(kind, EventKind::NodeDrained { .. }));
    let noticed = before.filter(|kind| matches!(kind, EventKind::NodeNoticed { .. })).count();
    assert_eq!(noticed, notices, "a drain is over before the last notice: {events:?}");
}

/// Returns how many of these blocks are on other nodes than these, by node.
async fn moved_to(
    client: &Client,
    model: &Model,
    blocks: &BTreeSet<BlockId>,
    from: &[NodeId],
) -> BTreeMap<NodeId, u64> {
    let mut moved = BTreeMap::new();
    for object in model.objects.keys() {
        for block in Model::blocks(client, object).await {
            if let Some(home) = block.home
                && blocks.contains(&block.block)
                && !from.contains(&home)
            {
                *moved.entry(home).or_default() += 1;
            }
        }
    }
    moved
}

/// Waits until blocks that were on these nodes are on two others, and returns those.
async fn two_targets(
    client: &Client,
    model: &Model,
    blocks: &BTreeSet<BlockId>,
    from: &[NodeId],
) -> Vec<NodeId> {
    let limit = Instant::now() + SOON;
    loop {
        let moved = moved_to(client, model, blocks, from).await;
        if moved.len() >= 2 {
            let mut targets: Vec<(u64, NodeId)> =
                moved.into_iter().map(|(to, blocks)| (blocks, to)).collect();
            targets.sort_unstable();
            return targets.into_iter().rev().take(2).map(|(_, to)| to).collect();
        }
        assert!(Instant::now() < limit, "the first wave moves nothing: {moved:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn second_wave_that_hits_the_targets_of_the_first_loses_nothing() {
    let shape = Shape { datanodes: 0, dram: "96MiB", ..Shape::default() };
    let mut cluster = Cluster::start(shape);
    // What each of them holds takes its link some seconds.
    for name in ["n0", "n1"] {
        cluster.add(name, &["--egress-limit", "2MB"]);
    }
    for name in ["n2", "n3", "n4", "n5"] {
        cluster.add(name, &[]);
    }
    block_on(async {
        let client = cluster.client().await;
        let model = Model::fill(&client, 60).await;
        let first = [cluster.datanode("n0").node, cluster.datanode("n1").node].map(NodeId);
        let mut blocks = BTreeSet::new();
        for node in first {
            let held = model.at_home(&client, node).await;
            assert!(held.bytes() >= 6 << 20, "{node} holds too little to be slow: {held:?}");
            blocks.extend(held.blocks);
        }
        let work = Work::start(&cluster, &model).await;
        for name in ["n0", "n1"] {
            notice(&client, name, LONG).await;
        }
        let targets = two_targets(&client, &model, &blocks, &first).await;
        let hit: Vec<String> = targets.iter().map(|to| cluster.name_of(*to)).collect();
        for name in &hit {
            notice(&client, name, LONG).await;
        }
        let left = info(&client, "n0").await.drain.map_or(0, |drain| drain.left_blocks);
        assert!(left > 0, "the first wave is over before the second comes");
        println!("the second wave hits {hit:?}, {left} blocks are left on n0");
        let noticed: Vec<&str> =
            ["n0", "n1"].into_iter().chain(hit.iter().map(String::as_str)).collect();
        for name in &noticed {
            until_drained(&client, name).await;
        }
        for name in &noticed {
            cluster.datanode(name).kill();
        }
        work.end(&client).await;
        model.check_whole(&cluster, &client).await;
        for name in &noticed {
            until_gone(&client, name).await;
        }
        model.check_once(&cluster);
    });
}

#[test]
fn manager_that_dies_with_its_own_noticed_machine_leaves_the_other_drain_to_the_next() {
    let mut cluster = Cluster::start(Shape {
        datanodes: 1,
        dram: "128MiB",
        namenode: vec!["--no-manager".to_owned()],
        ..Shape::default()
    });
    // What it holds takes its link about ten seconds.
    cluster.add("n1", &["--egress-limit", "1500kB"]);
    cluster.add("n2", &[]);
    cluster.add("n3", &[]);
    block_on(async {
        let client = cluster.client().await;
        let mut first = cluster.manager("first");
        let _second = cluster.manager("second");
        let model = Model::fill(&client, 48).await;
        notice(&client, "n0", LONG).await;
        until_drained(&client, "n0").await;
        notice(&client, "n1", LONG).await;
        let moving = |node: &NodeInfo| node.drain.is_some_and(|drain| drain.moved_blocks > 0);
        let left = until_node(&client, "n1", "moving", moving).await;
        // The machine of n0 and of the first manager goes.
        first.kill();
        cluster.datanode("n0").kill();
        let left = left.drain.map_or(0, |drain| drain.left_blocks);
        assert!(left > 0, "the other drain is over before the machine goes");
        println!("the machine goes, about {left} blocks are left on n1");
        until_drained(&client, "n1").await;
        cluster.datanode("n1").kill();
        model.check_whole(&cluster, &client).await;
        notice(&client, "n2", LONG).await;
        until_drained(&client, "n2").await;
        cluster.datanode("n2").kill();
        model.check_whole(&cluster, &client).await;
    });
}

#[test]
fn late_notice_saves_what_it_can_and_reports_the_rest() {
    let shape = Shape { datanodes: 0, dram: "96MiB", namenode: still(), ..Shape::default() };
    let mut cluster = Cluster::start(shape);
    cluster.add("n0", &["--egress-limit", "1200kB"]);
    cluster.add("n1", &[]);
    cluster.add("n2", &[]);
    block_on(async {
        let client = cluster.client().await;
        let model = Model::fill(&client, 90).await;
        let n0 = NodeId(cluster.datanode("n0").node);
        let before = model.at_home(&client, n0).await;
        assert!(before.bytes() > 16 << 20, "its link could send that in time: {before:?}");
        // However busy the machine is, some blocks leave in this time.
        notice(&client, "n0", Duration::from_secs(10)).await;
        let gone = until_gone(&client, "n0").await;
        cluster.datanode("n0").kill();
        let drain = gone.drain.expect("it drained");
        let lost = Losses::reported(&client).await;
        assert!(lost.blocks.is_subset(&before.blocks), "what was not there is lost: {lost:?}");
        assert!(drain.lost_blocks > 0, "everything was in time: the test shows nothing");
        assert!(drain.moved_blocks > 0, "nothing was in time: {drain:?}");
        let (moved, lost_blocks) = (drain.moved_blocks, lost.blocks.len() as u64);
        assert_eq!(drain.lost_blocks, lost_blocks);
        assert_eq!(moved + lost_blocks, before.blocks.len() as u64, "{drain:?}");
        println!("{moved} blocks were moved in 10 s, {lost_blocks} are lost");
        model.check(&client, &lost).await;
        let fsck = client.fsck().await.expect("the namenode answers");
        assert_eq!((fsck.lost_blocks, fsck.lost_bytes), (lost_blocks, lost.bytes()));
        assert!(fsck.problems.is_empty(), "{fsck:?}");
    });
}

#[test]
fn notice_that_comes_twice_can_only_bring_the_deadline_nearer() {
    let mut cluster = Cluster::of(3);
    block_on(async {
        let client = cluster.client().await;
        let model = Model::fill(&client, 12).await;
        notice(&client, "n0", Duration::from_secs(600)).await;
        let first = info(&client, "n0").await;
        assert!(first.deadline_in > Some(Millis(300_000)), "{first:?}");
        until_drained(&client, "n0").await;
        let (began, near) = (Instant::now(), Duration::from_secs(8));
        notice(&client, "n0", near).await;
        notice(&client, "n0", Duration::from_secs(900)).await;
        let nearer = info(&client, "n0").await;
        assert!(nearer.deadline_in <= Some(Millis::from(near)), "{nearer:?}");
        let gone = until_gone(&client, "n0").await;
        assert!(began.elapsed() >= near, "{:?}: {gone:?}", began.elapsed());
        assert_eq!(gone.drain.map(|drain| drain.lost_blocks), Some(0));
        assert_eq!(client.report().await.expect("the namenode answers").notices, 1);
        cluster.datanode("n0").kill();
        model.check_whole(&cluster, &client).await;
    });
}

#[test]
fn cancelled_notice_leaves_a_node_that_takes_blocks_and_writes_again() {
    let cluster = Cluster::start(Shape {
        datanodes: 2,
        datanode: vec!["--egress-limit", "8MB"],
        ..Shape::default()
    });
    block_on(async {
        let client = cluster.client().await;
        let model = Model::fill(&client, 40).await;
        let mut writers = Vec::new();
        for at in 0..4 {
            let to = path(&format!("/open-{at}"));
            let mut writer = client.create(&to, &PutOptions::default()).await.expect("created");
            writer.write_bytes(bytes_of(at, PIECE_BYTES)).await.expect("written");
            writer.flush().await.expect("flushed");
            writers.push((at, to, writer));
        }
        let deadline = Duration::from_secs(25);
        notice(&client, "n0", deadline).await;
        let noticed = Instant::now();
        let fenced = |node: &NodeInfo| node.drain.is_some_and(|drain| drain.is_fenced);
        until_node(&client, "n0", "fenced", fenced).await;
        for (at, to, writer) in &mut writers {
            writer.write_bytes(bytes_of(100 + *at, PIECE_BYTES)).await.expect("written elsewhere");
            writer.flush().await.expect("flushed elsewhere");
            let blocks = Model::blocks(&client, to).await;
            let last = blocks.last().expect("it has bytes").home;
            assert_ne!(last.map(|node| cluster.name_of(node)), Some("n0".to_owned()), "{to}");
        }
        let cancelled = client.cancel(&node("n0")).await.expect("taken back");
        assert_eq!((cancelled.policy, cancelled.deadline_in), (Policy::Active, None));
        // It takes blocks and writes again: objects whose only block is there can be flushed.
        let n0 = cancelled.id;
        let before = info(&client, "n0").await.blocks;
        for at in 0..12 {
            let to = path(&format!("/again-{at}"));
            let put = client.put(&to, bytes_of(500 + at, 300_000), &PutOptions::default()).await;
            put.expect("stored");
        }
        let after = info(&client, "n0").await;
        assert!(after.blocks > before, "{before} blocks before, {after:?}");
        for (at, to, mut writer) in writers {
            writer.write_bytes(bytes_of(200 + at, PIECE_BYTES)).await.expect("written");
            writer.close().await.expect("closed");
            let whole: Vec<u8> =
                [at, 100 + at, 200 + at].iter().flat_map(|at| bytes_of(*at, PIECE_BYTES)).collect();
            assert!(client.get(&to).await.expect("readable") == whole, "{to} has other bytes");
        }
        let after = deadline + Duration::from_millis(500);
        tokio::time::sleep(after.saturating_sub(noticed.elapsed())).await;
        let after = info(&client, "n0").await;
        assert_eq!((after.id, after.policy), (n0, Policy::Active), "its deadline was forgotten");
        model.check(&client, &Losses::default()).await;
        assert_eq!(Losses::reported(&client).await, Losses::default());
        model.check_once(&cluster);
    });
}

#[test]
fn node_killed_without_a_word_while_others_drain_costs_only_what_it_held() {
    let mut cluster = Cluster::start(Shape {
        datanodes: 5,
        dram: "96MiB",
        datanode: vec!["--egress-limit", "10MB"],
        ..Shape::default()
    });
    block_on(async {
        let client = cluster.client().await;
        let model = Model::fill(&client, 50).await;
        let n2 = NodeId(cluster.datanode("n2").node);
        for name in ["n0", "n1"] {
            notice(&client, name, LONG).await;
        }
        let moving = |node: &NodeInfo| node.drain.is_some_and(|drain| drain.moved_blocks > 0);
        until_node(&client, "n0", "moving", moving).await;
        cluster.datanode("n2").kill();
        let gone = until_gone(&client, "n2").await;
        assert_eq!(gone.deadline_in, None, "it never got a notice");
        for name in ["n0", "n1"] {
            let drained = until_drained(&client, name).await;
            assert_eq!(drained.drain.map(|drain| drain.lost_blocks), Some(0), "{drained:?}");
            cluster.datanode(name).kill();
        }
        let report = client.report().await.expect("the namenode answers");
        assert!(report.losses.iter().all(|loss| loss.node == n2), "{report:?}");
        let lost = Losses::reported(&client).await;
        assert!(!lost.blocks.is_empty(), "the node held nothing: the test shows nothing");
        model.check(&client, &lost).await;
        let fsck = client.fsck().await.expect("the namenode answers");
        assert_eq!((fsck.lost_blocks, fsck.lost_bytes), (lost.blocks.len() as u64, lost.bytes()));
        assert!(fsck.problems.is_empty(), "{fsck:?}");
    });
}

#[test]
fn notice_to_a_node_that_hangs_ends_at_its_deadline_and_hangs_no_caller() {
    let mut cluster = Cluster::start(Shape { namenode: still(), ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        let model = Model::fill(&client, 24).await;
        let n0 = NodeId(cluster.datanode("n0").node);
        let held = model.at_home(&client, n0).await;
        cluster.datanode("n0").pause();
        notice(&client, "n0", Duration::from_secs(2)).await;
        // Writers go on elsewhere at once: they do not wait for the fence of a node that hangs.
        for at in 0..6 {
            let to = path(&format!("/meanwhile-{at}"));
            let put = client.put(&to, bytes_of(at, PIECE_BYTES), &PutOptions::default()).await;
            put.expect("stored elsewhere");
        }
        until_gone(&client, "n0").await;
        let events = client.events(0, 1000, Millis(0)).await.expect("the namenode answers");
        let why = events.into_iter().find_map(|event| match event.kind {
            EventKind::NodeGone { node, why, .. } if node == n0 => Some(why),
            _ => None,
        });
        let why = why.expect("a reason");
        assert!(why.contains("deadline"), "it was not the deadline: {why}");
        assert_eq!(Losses::reported(&client).await, held);
        model.check(&client, &held).await;
        cluster.datanode("n0").resume();
        assert_eq!(Losses::reported(&client).await, held, "what is lost stays lost");
        model.check(&client, &held).await;
    });
}

/// The minute passes by the datanode's clock.
#[test]
fn node_that_runs_on_after_its_deadline_is_another_one_a_minute_later() {
    let Some(clock) = Clock::ahead_by_hours(0) else { return eprintln!("SKIPPED: no C compiler") };
    let mut cluster = Cluster::of(0);
    add_with_clock(&mut cluster, &clock);
    let address = cluster.datanodes[0].http_address.clone();
    block_on(async {
        let client = cluster.client().await;
        let mut model = Model::default();
        assert!(model.put(&client, "/old", PIECE_BYTES).await);
        notice(&client, "n0", Duration::from_secs(4)).await;
        let gone = until_gone(&client, "n0").await;
        // Much longer than a node that has no notice needs to join again.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(info(&client, "n0").await.id, gone.id, "it did not wait");
        clock.set_seconds(61);
        let limit = Instant::now() + SOON;
        let again = loop {
            // A request wakes it, so that it looks at its clock.
            http::page(&address, "/healthz").await;
            let node = info(&client, "n0").await;
            if node.id != gone.id {
                break node;
            }
            assert!(Instant::now() < limit, "it does not join again: {node:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!((again.policy, again.blocks), (Policy::Active, 0), "{again:?}");
        assert!(model.put(&client, "/new", PIECE_BYTES).await, "it has no room");
    });
}

/// Time in which a server does not answer is time that the machine has no more.
#[test]
fn deadline_of_a_notice_counts_from_the_start_of_its_command() {
    // Less than the 3 s that a command gives a namenode for its first answer.
    const PAUSED: Duration = Duration::from_millis(2_500);
    const GIVEN: Duration = Duration::from_secs(60);
    // The pause would come on top of it.
    const LATEST: Duration = Duration::from_secs(62);
    let cluster = Cluster::of(2);
    let [n0, n1] = [0, 1].map(|at| &cluster.datanodes[at]);
    let notice = ["node", "notice", &n0.name, "--deadline", "60s", "--yes"];
    let drain = ["datanode", "drain", "--http", &n1.http_address, "--deadline", "60s"];
    for (server, node, words) in [(&cluster.namenode, n0, &notice[..]), (n1, n1, &drain[..])] {
        server.pause();
        let began = Instant::now();
        let ran = std::thread::scope(|scope| {
            let given = scope.spawn(|| cluster.cli(words));
            std::thread::sleep(PAUSED);
            server.resume();
            given.join().expect("no panic")
        });
        assert_eq!(ran.code, 0, "{ran}");
        assert!(ran.took >= PAUSED / 2, "it waited for nothing: {ran}");
        block_on(async {
            let client = cluster.client().await;
            let passed = began.elapsed();
            let left = info(&client, &node.name).await.deadline_in.expect("it has a deadline");
            let at = passed + Duration::from(left);
            assert!(at <= LATEST, "{at:?} after the start for {GIVEN:?}: {ran}");
        });
    }
}

fn request_with_a_notice(header: &Header, body: &[u8]) -> Option<String> {
    if header.op != Op::Meta {
        return None;
    }
    let requests: Vec<Request> = decode_body(body).ok()?;
    // It may be a part of one that is made once.
    let has_one = requests.iter().any(|request| format!("{request:?}").contains("Notice {"));
    has_one.then(|| "a notice".to_owned())
}

/// It was sent with the time that was left then.
#[test]
fn notice_that_the_namenode_takes_late_is_given_again_with_less_time() {
    const HELD: Duration = Duration::from_secs(2);
    // The time for which it is held would come on top of the minute.
    const LATEST: Duration = Duration::from_millis(61_500);
    let cluster = Cluster::of(2);
    block_on(async {
        let relay = Relay::before(&cluster.namenode.address, request_with_a_notice).await;
        relay.close();
        let mut command = sanderling();
        command.args(["node", "notice", "n0", "--deadline", "60s", "--yes"]);
        command.args(["--namenode", &relay.address]);
        let began = Instant::now();
        let given = tokio::task::spawn_blocking(move || run(&mut command));
        relay.held().await;
        tokio::time::sleep(HELD).await;
        relay.open();
        let ran = given.await.expect("no panic");
        assert_eq!(ran.code, 0, "{ran}");
        let client = cluster.client().await;
        let passed = began.elapsed();
        let left = info(&client, "n0").await.deadline_in.expect("it has a deadline");
        let at = passed + Duration::from(left);
        assert!(at <= LATEST, "{at:?} after the start: {ran}");
    });
}

/// As from the leader of a group that does not find out whether the notice is agreed.
#[test]
fn notice_whose_outcome_is_not_known_gets_502_and_is_given_again() {
    let cluster = Cluster::of(1);
    block_on(async {
        let client = cluster.client().await;
        let undecided = Refusal::Undecided { why: "it leads no more".to_owned() };
        let namenode = &cluster.namenode.address;
        let relay = Relay::refusing(namenode, request_with_a_notice, undecided).await;
        let words = ["datanode", "--namenode", &relay.address, "--name", "noticed"];
        let noticed = cluster.serve("noticed", &[&words[..], &["--dram", "64MiB"]].concat());
        relay.close();
        let body = r#"{"deadline_seconds": 100, "reason": "test"}"#;
        let answer = http::post(&noticed.http_address, "/v1/notice", body).await;
        assert!(answer.contains(" 502 ") && answer.contains("\"Undecided\""), "{answer}");
        let health = http::get(&noticed.http_address, "/healthz").await;
        assert_eq!(health["is_fenced"], true, "it takes writes: {health}");
        assert_eq!(info(&client, "noticed").await.policy, Policy::Active, "the notice was taken");
        relay.open();
        until_drained(&client, "noticed").await;
    });
}

/// The refusal is final, so the process ends long before its deadline.
#[test]
fn sigterm_whose_notice_is_refused_for_good_ends_with_the_refusal() {
    let cluster = Cluster::of(1);
    block_on(async {
        let why = "a test refuses it".to_owned();
        let namenode = &cluster.namenode.address;
        let refusal = Refusal::BadRequest { why };
        let relay = Relay::refusing(namenode, request_with_a_notice, refusal).await;
        let words = ["datanode", "--namenode", &relay.address, "--name", "noticed"];
        let flags = ["--dram", "64MiB", "--sigterm-deadline", "200s"];
        let mut noticed = cluster.serve("noticed", &[&words[..], &flags].concat());
        relay.close();
        noticed.terminate();
        let status = tokio::task::block_in_place(|| noticed.wait(SOON));
        let log = noticed.log();
        assert_eq!(status.code(), Some(5), "{log}");
        assert!(log.contains("the namenode refused the notice: "), "{log}");
        assert!(log.contains("a test refuses it") && !log.contains("within 3m20s"), "{log}");
    });
}
