//! A namenode that comes back with an older log gets what it has lost from the datanodes.

use crate::cluster;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cluster::model::Model;
use crate::cluster::{Cluster, SOON, Shape, block_on, http, until_drained, until_node};
use sanderling_client::Client;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{NodeSelector, Policy};

/// A deadline that no drain of these tests meets, however busy the machine is.
const NOTICE: &str = r#"{"deadline_seconds": 200, "reason": "spot"}"#;

/// Three nodes without a manager, so that nothing moves before the log is lost.
struct Rig {
    cluster: Cluster,
    file: PathBuf,
}

impl Rig {
    /// Starts the node `spot`, which looks at a file for its notices, and two others.
    fn new() -> Self {
        let namenode = vec!["--no-manager".to_owned()];
        let mut cluster = Cluster::start(Shape { datanodes: 2, namenode, ..Shape::default() });
        let file = cluster.path("notice");
        let source = format!("file:{}", file.display());
        cluster.add("spot", &["--notice-source", &source, "--sigterm-deadline", "200s"]);
        Self { cluster, file }
    }

    /// Shows a notice, or something else, as a whole.
    fn show(&self, text: &str) {
        let next = self.cluster.path("notice.next");
        std::fs::write(&next, text).expect("written");
        std::fs::rename(next, &self.file).expect("renamed");
    }

    fn spot(&mut self) -> &mut cluster::Server {
        self.cluster.datanode("spot")
    }

    /// Loses what the log got since `copy`, as a machine's crash does, and starts again.
    fn lose_since(&mut self, copy: &Path) {
        self.cluster.namenode.kill();
        let catalog = self.cluster.path("catalog");
        std::fs::remove_dir_all(&catalog).expect("removed");
        copy_all(copy, &catalog);
        self.cluster.restart_namenode();
    }

    /// Copies the log as it is.
    fn copy(&self) -> PathBuf {
        let to = self.cluster.path("copy");
        copy_all(&self.cluster.path("catalog"), &to);
        to
    }
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("listed") {
        let entry = entry.expect("listed");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

async fn until_spot(client: &Client, what: &str, is_so: impl Fn(&NodeInfo) -> bool) -> NodeInfo {
    until_node(client, "spot", what, is_so).await
}

async fn until_draining(client: &Client) -> NodeInfo {
    until_spot(client, "draining", |node| node.policy == Policy::Draining).await
}

/// Waits until a field of the node's health page has the value.
async fn until_shows(address: &str, key: &str, value: serde_json::Value) {
    let limit = Instant::now() + SOON;
    loop {
        let page = http::get(address, "/healthz").await;
        if page[key] == value {
            return;
        }
        assert!(Instant::now() < limit, "{key} is not {value}: {page}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Gives a notice, loses it with the end of the log, and sees that it is there again, that the node
/// is fenced all the while, and that nothing is lost with the node.
fn forgotten_notice_is_given_again(give: impl AsyncFn(&mut Rig, &Client)) {
    let mut rig = Rig::new();
    block_on(async {
        let client = rig.cluster.client().await;
        let model = Model::fill(&client, 40).await;
        let copy = rig.copy();
        give(&mut rig, &client).await;
        let noticed = until_draining(&client).await;
        let address = rig.spot().http_address.clone();
        until_shows(&address, "policy", "draining".into()).await;
        rig.lose_since(&copy);
        let client = rig.cluster.client().await;
        assert_eq!(http::get(&address, "/healthz").await["is_fenced"], true);
        let again = until_draining(&client).await;
        assert_eq!(again.id, noticed.id, "it is another incarnation");
        assert!(again.deadline_in <= noticed.deadline_in, "{again:?}, {noticed:?}");
        let _manager = rig.cluster.manager("manager");
        until_drained(&client, "spot").await;
        rig.spot().kill();
        model.check_whole(&rig.cluster, &client).await;
    });
}

#[test]
fn notice_of_a_source_that_the_log_lost_is_given_again() {
    forgotten_notice_is_given_again(async |rig, _| rig.show(NOTICE));
}

#[test]
fn posted_notice_that_the_log_lost_is_given_again() {
    forgotten_notice_is_given_again(async |rig, _| {
        let address = rig.spot().http_address.clone();
        let answer = http::post(&address, "/v1/notice", NOTICE).await;
        assert!(answer.contains(" 200 "), "{answer}");
    });
}

#[test]
fn sigterm_that_the_log_lost_is_given_again() {
    forgotten_notice_is_given_again(async |rig, _| rig.spot().terminate());
}

/// Its process ends all the same, so nothing may be placed there again.
#[test]
fn cancelled_notice_of_sigterm_is_given_again_and_nothing_is_lost() {
    let mut rig = Rig::new();
    block_on(async {
        let client = rig.cluster.client().await;
        let model = Model::fill(&client, 40).await;
        rig.spot().terminate();
        until_draining(&client).await;
        client.cancel(&NodeSelector("spot".to_owned())).await.expect("taken back");
        until_draining(&client).await;
        let _manager = rig.cluster.manager("manager");
        let spot = rig.spot();
        let ended = tokio::task::block_in_place(|| spot.wait(SOON));
        assert_eq!(ended.code(), Some(0), "it was empty");
        model.check_whole(&rig.cluster, &client).await;
    });
}

#[test]
fn notice_of_an_operator_that_the_log_lost_is_given_again() {
    forgotten_notice_is_given_again(async |_, client| {
        let noticed = client.notice(&NodeSelector("spot".to_owned()), 200_000, "test").await;
        noticed.expect("taken");
    });
}

#[test]
fn earlier_of_two_notices_that_the_log_lost_is_given_again() {
    let mut rig = Rig::new();
    block_on(async {
        let client = rig.cluster.client().await;
        Model::fill(&client, 40).await;
        let spot = NodeSelector("spot".to_owned());
        client.notice(&spot, 2_000_000, "rack").await.expect("taken");
        until_draining(&client).await;
        let copy = rig.copy();
        rig.show(NOTICE);
        let is_sooner = |node: &NodeInfo| node.deadline_in.is_some_and(|left| left.0 <= 200_000);
        let sooner = until_spot(&client, "to leave sooner", is_sooner).await;
        // The datanode has the namenode's acknowledgement.
        let enough = heartbeats(&rig).await + 4;
        let limit = Instant::now() + SOON;
        while heartbeats(&rig).await < enough {
            assert!(Instant::now() < limit, "no heartbeats");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        rig.lose_since(&copy);
        let client = rig.cluster.client().await;
        let again = until_spot(&client, "to leave sooner again", is_sooner).await;
        assert_eq!((again.id, again.policy), (sooner.id, Policy::Draining));
    });
}

#[test]
fn posted_notice_after_a_cancelled_one_is_given_again_when_the_log_lost_it() {
    let mut rig = Rig::new();
    block_on(async {
        let client = rig.cluster.client().await;
        Model::fill(&client, 40).await;
        let address = rig.spot().http_address.clone();
        http::post(&address, "/v1/notice", NOTICE).await;
        until_draining(&client).await;
        client.cancel(&NodeSelector("spot".to_owned())).await.expect("taken back");
        until_shows(&address, "is_fenced", false.into()).await;
        // The cancellation is the last word on all that was known within 5 s after it. Three nodes
        // send six heartbeats a second.
        let enough = heartbeats(&rig).await + 45;
        let limit = Instant::now() + SOON;
        while heartbeats(&rig).await < enough {
            assert!(Instant::now() < limit, "no heartbeats");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let copy = rig.copy();
        http::post(&address, "/v1/notice", r#"{"deadline_seconds": 250, "reason": "new"}"#).await;
        until_draining(&client).await;
        rig.lose_since(&copy);
        let client = rig.cluster.client().await;
        assert_eq!(http::get(&address, "/healthz").await["is_fenced"], true);
        assert_eq!(until_draining(&client).await.reason, "new");
    });
}

#[test]
fn recommendation_that_the_log_lost_is_given_again() {
    let mut rig = Rig::new();
    block_on(async {
        let client = rig.cluster.client().await;
        let copy = rig.copy();
        rig.show(r#"{"recommendation": "leave soon"}"#);
        until_spot(&client, "at risk", |node| node.is_at_risk).await;
        rig.lose_since(&copy);
        let client = rig.cluster.client().await;
        until_spot(&client, "at risk again", |node| node.is_at_risk).await;
    });
}

/// Returns how many heartbeats the namenode has answered.
async fn heartbeats(rig: &Rig) -> u64 {
    let page = http::page(&rig.cluster.namenode.http_address, "/metrics").await;
    let line = page.lines().find(|line| line.contains("requests_total{kind=\"beat\"}"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn cancelled_notice_is_not_given_again_while_its_source_shows_it_but_an_earlier_one_is() {
    let mut rig = Rig::new();
    block_on(async {
        let client = rig.cluster.client().await;
        Model::fill(&client, 40).await;
        rig.show(NOTICE);
        until_draining(&client).await;
        let address = rig.spot().http_address.clone();
        until_shows(&address, "policy", "draining".into()).await;
        client.cancel(&NodeSelector("spot".to_owned())).await.expect("taken back");
        until_shows(&address, "is_fenced", false.into()).await;
        // Another process with the same log: everything is compared again.
        rig.cluster.restart_namenode();
        let client = rig.cluster.client().await;
        let (limit, enough) = (Instant::now() + SOON, heartbeats(&rig).await + 15);
        while heartbeats(&rig).await < enough {
            let spot = until_spot(&client, "there", |_| true).await;
            assert_eq!(spot.policy, Policy::Active, "it was overridden: {spot:?}");
            assert!(Instant::now() < limit, "no heartbeats");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        until_shows(&address, "is_fenced", false.into()).await;
        assert_eq!(client.report().await.expect("it answers").notices, 1);
        rig.show(r#"{"deadline_seconds": 100, "reason": "sooner"}"#);
        let again = until_draining(&client).await;
        assert_eq!(again.reason, "sooner");
    });
}
