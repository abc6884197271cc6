//! Notices of the clouds: a mock of their metadata services, a real fleet, real ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sanderling_client::PutOptions;
use sanderling_protocol::{NodeSelector, Policy};

use crate::cluster::{
    Cluster, SOON, Server, block_on, bytes_of, path, until, until_drained, until_node,
};

/// One request; returns status and body.
fn http(address: &str, method: &str, page: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a limit can be set");
    let length = body.len();
    let request = format!(
        "{method} {page} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.expect("a status line"), body.unwrap_or_default())
}

/// A notice that leaves time for everything on a slow machine.
const NOTICE: &str = r#"{"in_seconds": 200}"#;

/// A mock, and a fleet of two of which the node `spot` listens to it.
struct Rig {
    mock: Server,
    cluster: Cluster,
}

impl Rig {
    fn new(cloud: &str, flags: &[&str]) -> Self {
        let mut cluster = Cluster::of(1);
        let mock = cluster.serve("mock", &["mock-metadata", "--listen", "127.0.0.1:0"]);
        let url = format!("http://{}", mock.address);
        let mut words = vec!["--notice-source", cloud, "--notice-url", &url];
        words.extend(["--notice-poll", "50ms"]);
        if !flags.contains(&"--notice-call-within") {
            words.extend(["--notice-call-within", "30s"]);
        }
        words.extend(flags);
        cluster.add("spot", &words);
        Self { mock, cluster }
    }

    fn order(&self, order: &str, body: &str) {
        let (status, answer) = http(&self.mock.address, "POST", &format!("/mock/{order}"), body);
        assert_eq!(status, 200, "{order}: {answer}");
    }

    fn state(&self) -> serde_json::Value {
        let (_, body) = http(&self.mock.address, "GET", "/mock/state", "");
        serde_json::from_str(&body).expect("JSON")
    }

    /// Waits until the mock has failed so many requests.
    fn until_failed(&self, count: u64) {
        until("requests fail", SOON, || (self.state()["failed"].as_u64()? >= count).then_some(()));
    }

    fn put_all(&self) {
        block_on(async {
            let client = self.cluster.client().await;
            for number in 0..24_u64 {
                let name = path(&format!("/o/{number}"));
                let options = PutOptions { parents: true, ..PutOptions::default() };
                client
                    .put(&name, bytes_of(number, 100_000), &options)
                    .await
                    .expect("there is room");
            }
            let spot = until_node(&client, "spot", "in use", |node| node.home_bytes > 0).await;
            assert_eq!(spot.policy, Policy::Active);
        });
    }

    /// Waits for the drain, kills the node, and reads everything.
    fn end_well(&mut self) {
        block_on(async {
            let client = self.cluster.client().await;
            until_drained(&client, "spot").await;
        });
        self.cluster.datanode("spot").kill();
        block_on(async {
            let client = self.cluster.client().await;
            for number in 0..24_u64 {
                let read = client.get(&path(&format!("/o/{number}"))).await.expect("it moved");
                assert_eq!(read, bytes_of(number, 100_000), "object {number}");
            }
            let report = client.report().await.expect("the namenode answers");
            assert_eq!((report.notices, report.bytes), (1, 0));
        });
    }
}

#[test]
fn amazons_notice_empties_the_node_before_it_is_killed() {
    let mut rig = Rig::new("aws", &[]);
    rig.put_all();
    rig.order("preempt", NOTICE);
    rig.end_well();
}

#[test]
fn googles_notice_empties_the_node_before_it_is_killed() {
    let mut rig = Rig::new("gcp", &["--notice-deadline", "200s"]);
    rig.put_all();
    rig.order("preempt", NOTICE);
    rig.end_well();
}

#[test]
fn azures_notice_empties_the_node_and_is_acknowledged_then() {
    let mut rig = Rig::new("azure", &[]);
    rig.put_all();
    rig.order("preempt", NOTICE);
    // The list has a later event of the machine, too, and has it first.
    block_on(async {
        let node = until_drained(&rig.cluster.client().await, "spot").await;
        assert!(node.deadline_in.is_some_and(|left| left.0 <= 200_000), "{node:?}");
    });
    let acknowledged = until("the event is acknowledged", SOON, || {
        let events = rig.state()["acknowledged"].as_array().cloned().unwrap_or_default();
        (!events.is_empty()).then_some(events)
    });
    assert_eq!(acknowledged.len(), 2, "both would take the machine: {acknowledged:?}");
    rig.end_well();
}

#[test]
fn service_that_fails_gives_no_notice_and_gives_one_when_it_recovers() {
    for (cloud, modes) in [
        ("aws", ["500", "404", "garbage", "slow", "hang"].as_slice()),
        ("gcp", ["500", "404", "garbage", "hang"].as_slice()),
        ("azure", ["503", "garbage", "hang"].as_slice()),
    ] {
        // Two of its failures are that it does not answer.
        let flags = ["--notice-deadline", "200s", "--notice-call-within", "500ms"];
        let mut rig = Rig::new(cloud, &flags);
        rig.put_all();
        for mode in modes {
            let before = rig.state()["failed"].as_u64().expect("a number");
            rig.order("fail", &format!("{{\"mode\": \"{mode}\"}}"));
            rig.until_failed(before + 2);
            rig.order("fail", r#"{"mode": "none"}"#);
        }
        block_on(async {
            let client = rig.cluster.client().await;
            until_node(&client, "spot", "active", |node| node.policy == Policy::Active).await;
            assert_eq!(client.report().await.expect("the namenode answers").notices, 0);
        });
        let log = rig.cluster.datanode("spot").log();
        assert!(log.contains("the source of notices fails"), "{cloud}: {log}");
        rig.order("preempt", NOTICE);
        rig.end_well();
    }
}

#[test]
fn notice_stays_given_while_its_source_fails() {
    let rig = Rig::new("aws", &[]);
    rig.order("preempt", NOTICE);
    block_on(async {
        let client = rig.cluster.client().await;
        until_drained(&client, "spot").await;
        rig.order("fail", r#"{"mode": "500"}"#);
        rig.until_failed(3);
        until_drained(&client, "spot").await;
    });
}

#[test]
fn token_that_ends_early_is_fetched_again_in_the_same_look() {
    let mut rig = Rig::new("aws", &[]);
    rig.put_all();
    until("a token is in use", SOON, || (rig.state()["tokens"] == 1).then_some(()));
    rig.order("expire-tokens", "");
    until("another token is in use", SOON, || (rig.state()["tokens"] == 2).then_some(()));
    rig.order("preempt", NOTICE);
    rig.end_well();
    assert_eq!(rig.state()["failed"], 0);
}

#[test]
fn notice_that_its_cloud_takes_back_ends_the_drain() {
    for cloud in ["aws", "gcp", "azure"] {
        let rig = Rig::new(cloud, &["--azure-acknowledge", "never"]);
        rig.order("preempt", NOTICE);
        block_on(async {
            let client = rig.cluster.client().await;
            until_drained(&client, "spot").await;
            rig.order("cancel", "");
            until_node(&client, "spot", "active", |node| node.policy == Policy::Active).await;
        });
    }
}

#[test]
fn notice_of_an_operator_stays_when_a_source_takes_its_own_back() {
    let rig = Rig::new("aws", &[]);
    block_on(async {
        let client = rig.cluster.client().await;
        let spot = NodeSelector("spot".to_owned());
        client.notice(&spot, 100_000, "by hand").await.expect("taken");
        until_drained(&client, "spot").await;
        let log = || rig.cluster.datanodes[1].log();
        rig.order("preempt", NOTICE);
        until("the source is seen", SOON, || log().contains("AWS spot interruption").then_some(()));
        rig.order("cancel", "");
        until("that it shows nothing is seen", SOON, || {
            let is_seen = log().contains("another source still shows a notice");
            // What it must not contain.
            (is_seen || log().contains("the notice was taken back")).then_some(())
        });
        let node = until_drained(&client, "spot").await;
        assert!(node.deadline_in.is_some_and(|left| left.0 <= 100_000), "{node:?}");
    });
}

#[test]
fn recommendation_marks_the_node_and_is_no_notice() {
    let rig = Rig::new("aws", &[]);
    rig.order("rebalance", "");
    block_on(async {
        let client = rig.cluster.client().await;
        let node = until_node(&client, "spot", "at risk", |node| node.is_at_risk).await;
        assert_eq!((node.policy, node.deadline_in), (Policy::Active, None));
        // Amazon shows it no more.
        rig.order("cancel", "");
        until_node(&client, "spot", "not at risk", |node| !node.is_at_risk).await;
        rig.order("rebalance", "");
        until_node(&client, "spot", "at risk again", |node| node.is_at_risk).await;
    });
}

#[test]
fn notice_is_sent_to_a_namenode_that_was_away() {
    let mut rig = Rig::new("aws", &[]);
    rig.put_all();
    rig.cluster.namenode.kill();
    rig.order("preempt", NOTICE);
    until("the notice is seen", SOON, || {
        rig.cluster.datanode("spot").log().contains("did not receive the notice").then_some(())
    });
    rig.cluster.restart_namenode();
    rig.end_well();
}

/// Google's server answers a request that waits for a change when 20 s have passed without one.
#[test]
fn notice_of_google_is_repeated_without_waiting_for_its_next_change() {
    let mut rig = Rig::new("gcp", &["--notice-deadline", "200s"]);
    rig.put_all();
    rig.cluster.namenode.kill();
    rig.order("preempt", NOTICE);
    let attempts = |rig: &mut Rig| {
        rig.cluster.datanode("spot").log().matches("did not receive the notice").count()
    };
    until("the notice is seen", SOON, || (attempts(&mut rig) > 0).then_some(()));
    // Three waits last longer. An attempt is given up after 3 s at most.
    let within = Duration::from_secs(45);
    until("it is repeated", within, || (attempts(&mut rig) > 3).then_some(()));
    rig.cluster.restart_namenode();
    rig.end_well();
}

#[test]
fn file_gives_a_notice_and_takes_it_back() {
    let mut cluster = Cluster::of(1);
    let file = cluster.path("notice.json");
    let source = format!("file:{}", file.display());
    cluster.add("spot", &["--notice-source", &source, "--notice-poll", "20ms"]);
    block_on(async {
        let client = cluster.client().await;
        std::fs::write(&file, r#"{"deadline_seconds": "#).expect("half a file");
        until("the half is seen", SOON, || {
            let log = cluster.datanodes[1].log();
            log.contains("the source of notices fails").then_some(())
        });
        std::fs::write(&file, r#"{"deadline_seconds": 200, "reason": "rack"}"#).expect("written");
        let node = until_drained(&client, "spot").await;
        assert_eq!(node.reason, "rack");
        std::fs::remove_file(&file).expect("removed");
        until_node(&client, "spot", "active", |node| node.policy == Policy::Active).await;
    });
}

#[test]
fn file_that_is_absent_takes_no_notice_of_another_file_back() {
    let mut cluster = Cluster::of(1);
    let (shown, absent) = (cluster.path("shown"), cluster.path("absent"));
    let sources = [format!("file:{}", shown.display()), format!("file:{}", absent.display())];
    let words = ["--notice-source", &sources[0], "--notice-source", &sources[1]];
    cluster.add("spot", &[&words[..], &["--notice-poll", "50ms"]].concat());
    // A number that is no time ends no source.
    std::fs::write(&shown, r#"{"deadline_seconds": 1e19}"#).expect("written");
    let log = |cluster: &mut Cluster| cluster.datanode("spot").log();
    until("it is refused", SOON, || log(&mut cluster).contains("are too many").then_some(()));
    // One of years waits.
    std::fs::write(&shown, r#"{"deadline_at": "2099-01-01T00:00:00Z"}"#).expect("written");
    let waits = "the notice is given when so much time is left";
    until("it is logged", SOON, || log(&mut cluster).contains(waits).then_some(()));
    std::fs::write(&shown, r#"{"deadline_seconds": 200}"#).expect("written");
    block_on(async {
        let client = cluster.client().await;
        until_drained(&client, "spot").await;
    });
    // The other source was looked at since.
    std::fs::write(&absent, "garbage").expect("written");
    until("it is read", SOON, || log(&mut cluster).contains("absent is no notice").then_some(()));
    block_on(async {
        let client = cluster.client().await;
        let spot = until_node(&client, "spot", "known", |_| true).await;
        assert_eq!(spot.policy, Policy::Drained, "{spot:?}");
        let report = client.report().await.expect("the namenode answers");
        assert_eq!(report.notices, 1, "{report:?}");
    });
}

#[test]
fn termination_handlers_webhook_is_understood() {
    let cluster = Cluster::of(2);
    let endpoint = cluster.datanodes[1].http_address.clone();
    let text = |kind: &str, start: &str| {
        serde_json::json!({ "text": format!(
            "[NTH][Instance Interruption] EventID: e-1 - Kind: {kind} - Instance: i-1 - Node: n1 - \
             Description: received - Start Time: {start}"
        )})
        .to_string()
    };
    let (status, body) = http(&endpoint, "POST", "/v1/notice", &text("HEALTH", "soon"));
    assert_eq!((status, body.contains("passed_over")), (200, true), "{body}");
    let rebalance = text("REBALANCE_RECOMMENDATION", "2020-10-26 15:55:55 +0000 UTC");
    assert_eq!(http(&endpoint, "POST", "/v1/notice", &rebalance).0, 200);
    let (status, body) = http(&endpoint, "POST", "/v1/notice", r#"{"text": "hello"}"#);
    assert_eq!(status, 400, "{body}");
    block_on(async {
        let client = cluster.client().await;
        until_node(&client, "n1", "at risk", |node| node.is_at_risk).await;
        let start = humantime::format_rfc3339_seconds(
            std::time::SystemTime::now() + Duration::from_secs(200),
        );
        let start = start.to_string().replace('T', " ").replace('Z', " +0000 UTC");
        assert_eq!(http(&endpoint, "POST", "/v1/notice", &text("SPOT_ITN", &start)).0, 200);
        let node = until_drained(&client, "n1").await;
        let left = node.deadline_in.expect("a deadline").0;
        assert!((1..=200_000).contains(&left), "{left} ms");
    });
}
