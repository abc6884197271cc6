//! What servers report of themselves: log lines, health, metrics, targets.

mod cluster;
#[path = "watching/dashboards.rs"]
mod dashboards;
#[path = "watching/drains.rs"]
mod drains;
#[path = "watching/logs.rs"]
mod logs;
#[path = "watching/metrics.rs"]
mod metrics;
#[path = "watching/pages.rs"]
mod pages;
#[path = "watching/registry.rs"]
mod registry;
#[path = "watching/targets.rs"]
mod targets;

use std::time::{Duration, Instant};

use cluster::{Cluster, SOON, block_on, http, until, until_gone};

/// Lines that a datanode logs, each once for each time.
const GONE: &str = "the namenode does not answer";
const BACK: &str = "the namenode answers again";
const GIVEN_UP: &str = "the namenode gave this node up although it runs";

/// The line of a datanode that the namenode does not register, repeated every 10 s.
const REFUSED: &str = "the namenode refuses to register this node";

/// Returns the lines of a log that contain a text.
fn lines(log: &str, text: &str) -> Vec<String> {
    log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// Waits until a datanode's health page has what is looked for.
async fn until_health<T>(
    address: &str,
    what: &str,
    look: impl Fn(&serde_json::Value) -> Option<T>,
) -> T {
    let limit = Instant::now() + SOON;
    loop {
        let page = http::get(address, "/healthz").await;
        match look(&page) {
            Some(found) => return found,
            None => assert!(Instant::now() < limit, "not {what}: {page}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn datanode_reports_that_the_namenode_is_gone_and_back_once_each() {
    let mut cluster = Cluster::of(1);
    let address = cluster.datanodes[0].http_address.clone();
    let counted = |cluster: &Cluster| {
        let log = cluster.datanodes[0].log();
        (lines(&log, GONE).len(), lines(&log, BACK).len())
    };
    for round in 1..=2 {
        cluster.namenode.kill();
        block_on(async {
            let is_gone = |page: &serde_json::Value| {
                let is_reported = page["status"] == "no_namenode";
                let failed = page["namenode"]["failed_calls"].as_u64().expect("a number");
                (is_reported && failed >= 8).then_some(())
            };
            until_health(&address, "without its namenode for eight calls", is_gone).await;
        });
        // One for each absence: on a busy machine there are more of them than those of this test.
        let (gone, back) = counted(&cluster);
        assert!(gone >= round && gone == back + 1, "{}", cluster.datanodes[0].log());
        cluster.restart_namenode();
        block_on(async {
            let is_back = |page: &serde_json::Value| (page["status"] == "ok").then_some(());
            until_health(&address, "with its namenode", is_back).await;
        });
        until("the line", SOON, || {
            let (gone, back) = counted(&cluster);
            (gone == back && back >= round).then_some(())
        });
    }
    let gone = lines(&cluster.datanodes[0].log(), GONE);
    assert!(gone[0].contains("WARN") && gone[0].contains("sanderling doctor"), "{gone:?}");
}

#[test]
fn datanode_that_was_given_up_while_it_ran_reports_it_once_with_the_next_step() {
    let mut cluster = Cluster::of(1);
    block_on(async {
        let client = cluster.client().await;
        let address = cluster.datanodes[0].http_address.clone();
        assert_eq!(http::get(&address, "/healthz").await["given_up"], serde_json::Value::Null);
        let node = cluster.datanodes[0].node;
        let datanode = cluster.datanode("n0");
        datanode.pause();
        until_gone(&client, "n0").await;
        datanode.resume();
        let given_up = |page: &serde_json::Value| {
            let is_another = page["node"].as_u64()? > u64::from(node);
            is_another.then(|| page["given_up"].clone())
        };
        let given_up = until_health(&address, "another node", given_up).await;
        assert_eq!((&given_up["node"], &given_up["times"]), (&node.into(), &1.into()));
        assert_eq!(given_up["is_expected"], false);
        assert!(given_up["next"].as_str().expect("a text").contains("sanderling fsck"));
        let log = cluster.datanodes[0].log();
        let found = lines(&log, GIVEN_UP);
        assert_eq!(found.len(), 1, "{log}");
        assert!(found[0].contains("ERROR") && found[0].contains("sanderling fsck"), "{found:?}");
    });
}

#[test]
fn datanode_whose_name_another_has_reports_the_refusal_and_another_name() {
    let cluster = Cluster::of(1);
    let namenode = cluster.namenode.address.clone();
    let taken = format!("the name \"n0\" is in use by node {}", cluster.datanodes[0].node);
    // At once, while the start goes on.
    let began = Instant::now();
    let words = ["datanode", "--namenode", &namenode, "--name", "n0", "--dram", "64MiB"];
    let mut second = cluster.begin("second", &words);
    let first = until("a line about the refusal", SOON, || lines(&second.log(), REFUSED).pop());
    for part in ["WARN", &taken, &namenode, "--name OTHER"] {
        assert!(first.contains(part), "no {part} in: {first}");
    }
    second.terminate();
    assert_eq!(second.wait(SOON).code(), Some(130), "{}", second.log());
    let log = second.log();
    let next = format!("next:  sanderling datanode --namenode {namenode}");
    for part in ["stopped before it joined: ", &taken, &next, "--name OTHER"] {
        assert!(log.contains(part), "no {part} in: {log}");
    }
    assert!(!log.contains("stopped before the namenode"), "{log}");
    let most = 1 + began.elapsed().as_secs() / 10;
    assert!(lines(&log, REFUSED).len() as u64 <= most, "four attempts a second: {log}");
    // At the end of `--timeout`.
    let ran = cluster.cli(&[
        "datanode",
        "--name",
        "n0",
        "--dram",
        "64MiB",
        "--exit-with-parent",
        "--timeout",
        "3s",
    ]);
    assert_eq!(ran.code, 124, "{ran}");
    let next = "--exit-with-parent --timeout 3s --name OTHER";
    for part in ["does not serve within 3.00 s", &taken, "next:  sanderling datanode ", next] {
        assert!(ran.stderr.contains(part), "no {part} in: {ran}");
    }
}
