//! Sources that withdraw their notices, beside others that need the node to leave.

use std::path::PathBuf;

use sanderling_client::Client;
use sanderling_protocol::{NodeInfo, NodeSelector, Policy};

use crate::cluster::{Cluster, SOON, block_on, until, until_drained, until_node};

/// A fleet of two, of which the node `spot` has two files as sources of notices.
struct Rig {
    cluster: Cluster,
    files: [PathBuf; 2],
}

impl Rig {
    fn new() -> Self {
        let mut cluster = Cluster::of(1);
        let files = [cluster.path("one.json"), cluster.path("two.json")];
        let sources = files.each_ref().map(|file| format!("file:{}", file.display()));
        let words = ["--notice-source", &sources[0], "--notice-source", &sources[1]];
        cluster.add("spot", &[&words[..], &["--notice-poll", "20ms"]].concat());
        Self { cluster, files }
    }

    fn show(&self, file: usize, seconds: u64) {
        let notice = format!(r#"{{"deadline_seconds": {seconds}, "reason": "rack {file}"}}"#);
        let draft = self.files[file].with_extension("draft");
        std::fs::write(&draft, notice).expect("written");
        std::fs::rename(&draft, &self.files[file]).expect("renamed");
    }

    fn withdraw(&self, file: usize) {
        std::fs::remove_file(&self.files[file]).expect("removed");
    }
}

/// Waits until the deadline is at least so many seconds ahead, and the node still leaves.
async fn until_ahead(client: &Client, seconds: u64) -> NodeInfo {
    let is_ahead = |node: &NodeInfo| node.deadline_in.is_some_and(|it| it.0 > seconds * 1000);
    // It is empty a moment after a notice that comes when it was active again.
    let leaves = |node: &NodeInfo| is_ahead(node) && node.policy == Policy::Drained;
    until_node(client, "spot", "to leave by the later deadline", leaves).await
}

#[test]
fn withdrawn_notice_leaves_a_decommission_and_is_active_after_its_cancellation() {
    let rig = Rig::new();
    let spot = NodeSelector("spot".to_owned());
    block_on(async {
        let client = rig.cluster.client().await;
        client.decommission(&spot, "smaller").await.expect("it begins");
        until_drained(&client, "spot").await;
        rig.show(0, 200);
        until_ahead(&client, 100).await;
        rig.withdraw(0);
        let node =
            until_node(&client, "spot", "withdrawn", |node| node.deadline_in.is_none()).await;
        assert_eq!((node.policy, node.reason.as_str()), (Policy::Drained, "smaller"));
        client.cancel(&spot).await.expect("taken back");
        until_node(&client, "spot", "active", |node| node.policy == Policy::Active).await;
    });
}

#[test]
fn withdrawn_notice_leaves_the_later_deadline_of_another_source() {
    let rig = Rig::new();
    block_on(async {
        let client = rig.cluster.client().await;
        rig.show(0, 200);
        until_drained(&client, "spot").await;
        rig.show(1, 900);
        let log = || rig.cluster.datanodes[1].log();
        until("the second is seen", SOON, || log().contains("rack 1").then_some(()));
        rig.withdraw(0);
        assert_eq!(until_ahead(&client, 500).await.reason, "rack 1");
        rig.withdraw(1);
        until_node(&client, "spot", "active", |node| node.policy == Policy::Active).await;
    });
}

#[test]
fn withdrawn_notice_does_not_bring_a_cancelled_one_of_another_source_back() {
    let rig = Rig::new();
    let spot = NodeSelector("spot".to_owned());
    block_on(async {
        let client = rig.cluster.client().await;
        rig.show(1, 900);
        until_drained(&client, "spot").await;
        client.cancel(&spot).await.expect("taken back");
        until_node(&client, "spot", "active", |node| node.policy == Policy::Active).await;
        let log = || rig.cluster.datanodes[1].log();
        let is_over = || log().contains("is_fenced=false").then_some(());
        until("the datanode has the cancellation", SOON, is_over);
        rig.show(0, 200);
        until_drained(&client, "spot").await;
        rig.withdraw(0);
        let is_settled = |node: &NodeInfo| node.policy == Policy::Active || node.reason != "rack 0";
        let node = until_node(&client, "spot", "withdrawn", is_settled).await;
        assert_eq!(node.policy, Policy::Active, "{node:?}");
    });
}

#[test]
fn withdrawn_notice_leaves_what_an_operator_gives_at_the_same_moment() {
    let rig = Rig::new();
    let spot = NodeSelector("spot".to_owned());
    block_on(async {
        let client = rig.cluster.client().await;
        for _ in 0..8 {
            rig.show(0, 200);
            until_drained(&client, "spot").await;
            rig.withdraw(0);
            client.notice(&spot, 900_000, "operator").await.expect("it is taken");
            let node = until_ahead(&client, 500).await;
            assert_eq!(node.reason, "operator");
            client.cancel(&spot).await.expect("taken back");
            until_node(&client, "spot", "active", |node| node.policy == Policy::Active).await;
        }
    });
}
