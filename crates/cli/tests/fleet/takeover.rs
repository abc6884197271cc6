//! Namenode and manager are killed in the middle of a drain: the next ones go on where it stood.

use crate::cluster::model::Model;
use crate::cluster::{Cluster, Server, Shape, block_on, until_drained, until_gone, until_node};
use sanderling_client::Client;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{EventKind, Millis, NodeId, NodeSelector};

/// A node whose drain lasts about twenty seconds and takes a move for every block.
const SLOW: [&str; 2] = ["--egress-limit", "1200kB"];

/// Flags under which nothing moves without a notice: what is counted before it is still there.
const STILL: [&str; 2] = ["--no-rebalance", "--no-precopy"];

/// Starts a manager with them.
fn manager(cluster: &Cluster, name: &str) -> Server {
    let words = ["manager", "--namenode", &cluster.namenode.address, "--name", name];
    cluster.serve(name, &[&words[..], &STILL].concat())
}

/// A fleet of one such node.
fn slow(namenode: &[&str]) -> Cluster {
    let namenode = namenode.iter().chain(&STILL).map(|flag| (*flag).to_owned()).collect();
    let shape = Shape { datanodes: 0, dram: "96MiB", namenode, ..Shape::default() };
    let mut cluster = Cluster::start(shape);
    cluster.add("n0", &SLOW);
    cluster
}

/// Stores everything on that node, then starts others.
async fn fill(cluster: &mut Cluster, client: &Client) -> Model {
    let model = Model::fill(client, 24).await;
    for name in ["n1", "n2", "n3"] {
        cluster.add(name, &[]);
    }
    model
}

async fn notice(client: &Client, name: &str) {
    client.notice(&NodeSelector(name.to_owned()), 200_000, "test").await.expect("taken");
}

fn moved(node: &NodeInfo) -> u64 {
    node.drain.map_or(0, |drain| drain.moved_blocks)
}

/// Waits until more than so many blocks were moved, and some are left. Returns how many.
async fn until_moved(client: &Client, name: &str, more_than: u64) -> u64 {
    let node = until_node(client, name, "moving", |node| moved(node) > more_than).await;
    assert!(node.blocks > 0, "the drain is over: the test shows nothing");
    moved(&node)
}

/// Every block of the node was moved once, and everything is there once.
async fn assert_moved_once(cluster: &mut Cluster, client: &Client, model: &Model, blocks: usize) {
    let drained = until_drained(client, "n0").await;
    let drain = drained.drain.expect("it drained");
    assert_eq!((drain.moved_blocks, drain.lost_blocks), (blocks as u64, 0), "{drain:?}");
    let events = client.events(0, 1000, Millis(0)).await.expect("the namenode answers");
    let reported: u64 = (events.iter())
        .map(|event| match event.kind {
            EventKind::BlocksMoved { from, blocks, .. } if from == drained.id => blocks,
            _ => 0,
        })
        .sum();
    assert_eq!(reported, drain.moved_blocks, "each move is reported once");
    cluster.datanode("n0").kill();
    until_gone(client, "n0").await;
    model.check_whole(cluster, client).await;
    model.check_once(cluster);
}

#[test]
fn namenode_killed_again_and_again_in_one_drain_moves_every_block_once() {
    let mut cluster = slow(&[]);
    block_on(async {
        let client = cluster.client().await;
        let model = fill(&mut cluster, &client).await;
        let n0 = NodeId(cluster.datanode("n0").node);
        let blocks = model.at_home(&client, n0).await.blocks.len();
        notice(&client, "n0").await;
        let mut stood = 0;
        for _ in 0..3 {
            stood = until_moved(&client, "n0", stood).await;
            cluster.restart_namenode();
            let again = until_node(&client, "n0", "known", |_| true).await;
            assert!(moved(&again) >= stood, "{stood} blocks were moved before: {again:?}");
            assert!(again.deadline_in.is_some(), "the deadline is forgotten: {again:?}");
        }
        assert_moved_once(&mut cluster, &client, &model, blocks).await;
    });
}

#[test]
fn manager_and_namenode_killed_together_leave_the_drain_to_the_next_ones() {
    let mut cluster = slow(&["--no-manager"]);
    block_on(async {
        let client = cluster.client().await;
        let mut first: Server = manager(&cluster, "first");
        let model = fill(&mut cluster, &client).await;
        let n0 = NodeId(cluster.datanode("n0").node);
        let blocks = model.at_home(&client, n0).await.blocks.len();
        notice(&client, "n0").await;
        let stood = until_moved(&client, "n0", 0).await;
        first.kill();
        cluster.restart_namenode();
        let _second = manager(&cluster, "second");
        until_moved(&client, "n0", stood).await;
        assert_moved_once(&mut cluster, &client, &model, blocks).await;
    });
}
