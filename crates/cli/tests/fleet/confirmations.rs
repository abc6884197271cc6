//! Commands that lose data require `--yes`, and what is lost is reported loudly.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Instant;

use crate::cluster::{
    Cluster, Ran, SOON, Shape, block_on, bytes_of, sanderling, until, until_gone,
};

fn full(datanodes: usize) -> Cluster {
    let cluster = Cluster::start(Shape {
        datanodes,
        dram: "8MiB",
        namenode: vec!["--departures".to_owned(), "0".to_owned()],
        ..Shape::default()
    });
    let local = cluster.path("local");
    std::fs::write(&local, bytes_of(1, 2 << 20)).expect("written");
    let local = local.to_str().expect("UTF-8");
    for at in 0.. {
        if cluster.cli(&["fs", "put", local, &format!("/{at}")]).code != 0 {
            break;
        }
    }
    cluster
}

fn state(cluster: &Cluster, name: &str) -> String {
    let fleet = cluster.json(&["node", "ls", "--all"]);
    let nodes = fleet["nodes"].as_array().expect("a list");
    let node = nodes.iter().find(|node| node["name"] == name).expect("it is listed");
    node["policy"].as_str().expect("a word").to_owned()
}

#[track_caller]
fn assert_prints(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, code, "{ran}");
    for word in words {
        assert!(ran.stderr.contains(word), "no {word:?} in {ran}");
    }
}

/// Runs a command that drains `n0` and does not end by itself, until it has printed a sentence on
/// stderr and the node drains.
#[track_caller]
fn assert_prints_while_it_drains(cluster: &Cluster, words: &[&str], sentence: &str) {
    let mut command = sanderling();
    command.args(words).env("SANDERLING_NAMENODE", &cluster.namenode.address);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program can be started");
    let (sender, lines) = std::sync::mpsc::channel();
    let stderr = child.stderr.take().expect("it is piped");
    std::thread::spawn(move || {
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        lines.for_each(|line| drop(sender.send(line)));
    });
    let (limit, mut seen) = (Instant::now() + SOON, Vec::new());
    while let Ok(line) = lines.recv_timeout(limit.saturating_duration_since(Instant::now())) {
        let is_it = line.contains(sentence);
        seen.push(line);
        if is_it {
            break;
        }
    }
    until("the node drains", SOON, || (state(cluster, "n0") != "active").then_some(()));
    let ended = child.try_wait().expect("our own child");
    child.kill().expect("our own child can be killed");
    child.wait().expect("our own child can be waited for");
    assert!(seen.last().is_some_and(|line| line.contains(sentence)), "no {sentence:?}: {seen:?}");
    assert_eq!(ended, None, "{seen:?}");
}

#[test]
fn notice_that_loses_bytes_needs_a_yes_and_changes_nothing_without() {
    let cluster = full(2);
    let notice = ["node", "notice", "n0", "--deadline", "60s"];
    let ran = cluster.cli(&notice);
    let yes = "sanderling node notice n0 --deadline 60s --yes";
    assert_prints(
        &ran,
        2,
        &["forecast:", "HAVE NO ROOM", "have no room", "nothing", "--dry-run", yes],
    );
    assert_eq!(state(&cluster, "n0"), "active");
    assert_prints(&cluster.cli(&["node", "decommission", "n0"]), 2, &["forecast:", "--yes"]);
    assert_eq!(state(&cluster, "n0"), "active");

    let wait = ["node", "decommission", "n0", "--yes", "--wait"];
    assert_prints_while_it_drains(&cluster, &wait, "HAVE NO ROOM");
    assert_eq!(cluster.cli(&["node", "cancel", "n0"]).code, 0);
    assert_eq!(state(&cluster, "n0"), "active");
    // More time does not help.
    let ran = cluster.cli(&[&wait[..], &["--timeout", "3s"]].concat());
    let next = "next:  start another datanode, or sanderling node cancel n0";
    assert_prints(&ran, 124, &["HAVE NO ROOM", "waited for node", next]);
    assert_eq!(cluster.cli(&["node", "cancel", "n0"]).code, 0);
    assert_eq!(state(&cluster, "n0"), "active");
    assert_eq!(cluster.cli(&[&notice[..], &["--yes"]].concat()).code, 0);
    assert_eq!(state(&cluster, "n0"), "draining");
}

#[test]
fn notice_has_no_deadline_of_its_own_and_prints_what_to_expect() {
    let cluster = Cluster::of(2);
    let ran = cluster.cli(&["node", "notice", "n0"]);
    assert_prints(&ran, 2, &["--deadline", "next:  sanderling node notice n0 --deadline 30s"]);
    assert_eq!(state(&cluster, "n0"), "active");
    let ran = cluster.cli(&["node", "notice", "n0", "--deadline", "30s"]);
    assert_prints(&ran, 0, &["forecast: nothing left to move"]);
    let ran = cluster.cli(&["node", "notice", "n1", "--deadline", "30d"]);
    assert_prints(&ran, 1, &["deadline is too large: 30d, the limit is 7d"]);
}

#[test]
fn datanode_that_was_given_up_while_alive_reports_that_loudly() {
    let mut cluster = Cluster::start(Shape { datanodes: 2, ..Shape::default() });
    let local = cluster.path("local");
    std::fs::write(&local, bytes_of(1, 9 << 20)).expect("written");
    assert_eq!(cluster.cli(&["fs", "put", local.to_str().expect("UTF-8"), "/a"]).code, 0);
    cluster.datanode("n0").pause();
    block_on(async {
        let client = cluster.client().await;
        until_gone(&client, "n0").await;
    });
    cluster.datanode("n0").resume();
    let node = cluster.datanode("n0");
    until("the log has it", SOON, || {
        let log = node.log();
        (log.contains("ERROR") && log.contains("although it runs")).then_some(())
    });
}
