//! `sanderling doctor` on running clusters: each condition is found, named, and gets a next step.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path as LocalPath;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::cluster::guarded::{Guarded, kept, text};
use crate::cluster::namenodes::Group;
use crate::cluster::stores::{fleet_with, make};
use crate::cluster::{
    Cluster, Ran, SOON, Shape, block_on, bytes_of, path, run, sanderling, until_gone, until_node,
};
use futures_util::StreamExt;
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::limits::{EVENTS_KEPT_MAX, MOVE_EVENTS_KEPT_MAX};
use sanderling_protocol::message::{JobHints, RegisterJob};
use sanderling_protocol::{Millis, NodeSelector, Policy, Request, Token};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What the doctor found, and how it ended.
struct Report {
    checks: Vec<Value>,
    ran: Ran,
}

impl Report {
    /// Returns the finding with an id, if there is one.
    fn find(&self, id: &str) -> Option<&Value> {
        self.checks.iter().find(|check| check["id"] == id)
    }

    /// Returns the finding with an id, which must have that level.
    #[track_caller]
    fn has(&self, id: &str, verdict: &str) -> &Value {
        let found = self.find(id).unwrap_or_else(|| panic!("no {id}: {}", self.ran));
        assert_eq!(found["verdict"], verdict, "{found}");
        if verdict != "ok" {
            assert!(found["mend"].as_str().is_some_and(|it| it.len() > 5), "{found}");
        }
        found
    }

    /// Returns the ids of the cluster's findings that are not in order.
    fn wrong(&self) -> Vec<&str> {
        let of_machine = ["files", "memory", "disk", "python", "clock", "port", "journal.disk"];
        let wrong = self.checks.iter().filter(|check| check["verdict"] != "ok");
        let ids = wrong.map(|check| check["id"].as_str().expect("an id"));
        ids.filter(|id| !of_machine.contains(id)).collect()
    }
}

/// Runs the doctor on a cluster with some flags.
fn examine(cluster: &Cluster, http: &str, flags: &[&str], token: Option<&Token>) -> Report {
    let mut command = sanderling();
    command.args(["doctor", "--dram", "1MiB", "--json", "--http", http, "--dir"]);
    command.arg(cluster.path("x")).args(flags).env("SANDERLING_PYTHON", "false");
    command.env("SANDERLING_NAMENODE", &cluster.namenode.address);
    // Not what this machine's user has started.
    command.env("SANDERLING_LOCAL_DIR", cluster.path("local"));
    if let Some(token) = token {
        command.env("SANDERLING_TOKEN", token.reveal());
    }
    report(&mut command)
}

fn report(command: &mut Command) -> Report {
    let ran = run(command);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran}"));
    let checks = document["checks"].as_array().expect("a list").clone();
    for check in &checks {
        assert!(check["id"].is_string() && check["found"].is_string(), "{check}");
    }
    Report { checks, ran }
}

fn doctor(cluster: &Cluster) -> Report {
    examine(cluster, &cluster.namenode.http_address, &[], None)
}

/// Examines a group, whose HTTP is where its leader has it.
fn doctor_of(group: &Group) -> Report {
    let mut command = sanderling();
    let members = group.addresses.join(",");
    command.args(["doctor", "--dram", "1MiB", "--json", "--namenode", &members, "--dir"]);
    report(command.arg(group.directory.path()).env("SANDERLING_PYTHON", "false"))
}

/// Examines until a finding is there.
fn until_found(look: impl Fn() -> Report, id: &str, verdict: &str) -> Report {
    let is_there = |report: &Report| report.find(id).is_some_and(|it| it["verdict"] == verdict);
    until_report(look, id, is_there)
}

/// Examines until a report is as it should be.
fn until_report(look: impl Fn() -> Report, what: &str, is_so: impl Fn(&Report) -> bool) -> Report {
    let limit = Instant::now() + SOON;
    loop {
        let report = look();
        if is_so(&report) {
            return report;
        }
        assert!(Instant::now() < limit, "no {what}: {}", report.ran);
    }
}

/// Pauses a datanode and examines before it is declared dead, which takes 6 s: if the doctor looked
/// later or another node was slow, once more.
fn with_hung_node(cluster: &mut Cluster, name: &str) -> Report {
    let limit = Instant::now() + SOON;
    loop {
        cluster.datanode(name).pause();
        let report = doctor(cluster);
        if report.find("nodes.unanswered").is_some_and(|it| it["nodes"] == json!([name])) {
            return report;
        }
        assert!(Instant::now() < limit, "{}", report.ran);
        cluster.datanode(name).resume();
        block_on(async {
            let client = cluster.client().await;
            until_node(&client, name, "back", |node| node.policy == Policy::Active).await;
        });
    }
}

async fn put(client: &Client, name: &str, bytes: usize) -> bool {
    client.put(&path(name), bytes_of(7, bytes), &PutOptions::default()).await.is_ok()
}

#[test]
fn healthy_cluster_has_nothing_to_mend() {
    let cluster = Cluster::of(3);
    block_on(async { assert!(put(&cluster.client().await, "/a", 1 << 20).await) });
    let report = until_found(|| doctor(&cluster), "manager", "ok");
    assert_eq!((report.wrong(), report.ran.code), (vec![], 0), "{}", report.ran);
    for id in [
        "losses",
        "notices",
        "nodes",
        "reserve",
        "exposure",
        "tiers",
        "manager",
        "journal",
        "catalog",
        "backup",
        "versions",
        "clocks",
        "addresses",
    ] {
        report.has(id, "ok");
    }
    assert!(report.find("journal.disk").is_some(), "{}", report.ran);
    let none = report.has("backup", "ok")["found"].as_str().expect("a text");
    assert!(none.contains("none since the namenode's start"), "{none}");
    let to = cluster.path("b").display().to_string();
    let http = &cluster.namenode.http_address;
    let taken = cluster.cli(&["namenode", "backup", "--to", &to, "--http", http]);
    assert_eq!(taken.code, 0, "{taken}");
    let report = doctor(&cluster);
    let found = report.has("backup", "ok")["found"].as_str().expect("a text");
    assert!(found.contains("was taken"), "{found}");
    // Without its HTTP the rest is seen, and what is missing is reported.
    let report = examine(&cluster, "127.0.0.1:1", &[], None);
    report.has("http.unseen", "warn");
    report.has("nodes", "ok");
    assert_eq!(report.ran.code, 0, "{}", report.ran);
}

#[test]
fn secured_local_cluster_is_examined_with_its_keys_and_gets_a_fitting_step_without() {
    let place = TempDir::new().expect("a directory");
    let local = |words: &[&str]| {
        let mut command = sanderling();
        command.args(words).env("SANDERLING_LOCAL_DIR", place.path().join("local"));
        command.env("SANDERLING_PYTHON", "false");
        command
    };
    let words = ["local", "start", "--secure", "--json", "--port", "0", "--dram", "8MiB"];
    let started = run(&mut local(&[&words[..], &["--datanodes", "1"]].concat()));
    assert_eq!(started.code, 0, "{started}");
    let started: Value = serde_json::from_str(&started.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let namenode = text(&started["namenode"]);
    let (ca, token) = (text(&started["keys"]["tls_ca"]), text(&started["keys"]["token_file"]));
    let words = ["doctor", "--dram", "1MiB", "--namenode", &namenode];
    let keys = ["--tls-ca", &ca, "--token-file", &token];
    let seen = report(&mut local(&[&words[..], &keys, &["--json"]].concat()));
    assert_eq!((seen.wrong(), seen.ran.code), (vec![], 0), "{}", seen.ran);
    for id in ["nodes", "token", "secrets", "revoked", "certs", "journal", "versions"] {
        seen.has(id, "ok");
    }
    for flags in [&[][..], &["--tls-ca", &ca]] {
        let ran = run(&mut local(&[&words[..], flags].concat()));
        assert_eq!(ran.code, 1, "{ran}");
        assert!(!ran.to_string().contains("local start"), "{ran}");
        assert!(ran.stderr.contains("--token-file") || ran.stderr.contains("--tls-ca"), "{ran}");
    }
    // Once it is stopped, too.
    let stopped = run(&mut local(&["local", "stop"]));
    assert_eq!(stopped.code, 0, "{stopped}");
    let mut after = sanderling();
    after.args(words).env("SANDERLING_TOKEN", "x.y.z").env("SANDERLING_PYTHON", "false");
    let seen = report(after.arg("--json"));
    assert_eq!(seen.ran.code, 1, "{}", seen.ran);
    // Another process may have one of the ports by now: that check has a step of its own.
    let namenode = seen.has("namenode", "fail");
    assert!(!namenode.to_string().contains("local start"), "{namenode}");
}

#[test]
fn silent_namenode_and_missing_spares_of_a_group_are_found() {
    let mut group = Group::start(3, &["--spares", "1"]);
    let report = until_found(|| doctor_of(&group), "group.spares", "warn");
    let found = report.has("group.spares", "warn")["found"].as_str().expect("a text");
    assert_eq!(found, "1 spare is missing", "{}", report.ran);
    // The figures are those of the leader: followers have none of the manager's.
    report.has("manager", "ok");
    let first = group.addresses[0].clone();
    group.add("127.0.0.1:0", Some(&first), &[]);
    let report = until_found(|| doctor_of(&group), "group", "ok");
    let found = report.has("group", "ok")["found"].as_str().expect("a text");
    assert!(found.starts_with("3 voters, 1 spare, ") && found.ends_with(" leads"), "{found}");
    let leader = group.leader();
    let silent = (0..3).find(|place| *place != leader).expect("a voter");
    group.members[silent].as_ref().expect("it runs").pause();
    let address = group.addresses[silent].clone();
    let report = until_found(|| doctor_of(&group), "group.silent", "warn");
    let found = report.has("group.silent", "warn");
    assert_eq!(found["nodes"], json!([address]), "{found}");
    // Two of three voters run: the next loss would stop them.
    until_found(|| doctor_of(&group), "group.at-risk", "warn");
}

#[test]
fn group_that_has_shrunk_to_one_namenode_is_found() {
    let group = Group::start(3, &[]);
    let leader = group.leader();
    for left in [2, 1] {
        let listed = group.cli(leader, &["group", "ls", "--json"]);
        let listed: Value = serde_json::from_str(&listed.stdout).expect("JSON");
        let mut members = listed["members"].as_array().expect("a list").iter();
        let other = members.find(|it| it["address"] != *group.addresses[leader]).expect("another");
        let removed = group.cli(leader, &["group", "remove", &other["id"].to_string()]);
        assert_eq!(removed.code, 0, "{removed}");
        group.until_voters(left);
    }
    let mut command = sanderling();
    command.args(["doctor", "--dram", "1MiB", "--json", "--namenode", &group.addresses[leader]]);
    command.arg("--dir").arg(group.directory.path()).env("SANDERLING_PYTHON", "false");
    let report = report(&mut command);
    report.has("group.at-risk", "warn");
    // Its HTTP is at any port: the list of members has it.
    assert!(report.find("http.unseen").is_none(), "{}", report.ran);
}

#[test]
fn archive_and_stores_that_fail_are_found() {
    let archive = TempDir::new().expect("a directory for the archive");
    let place = text(archive.path().join("a"));
    let (cluster, store) = fleet_with(2, &["--archive", &place]);
    make(&cluster, "/out");
    let put_one = |name: &str| block_on(async { put(&cluster.client().await, name, 5000).await });
    assert!(put_one("/out/one"));
    assert_eq!(cluster.cli(&["fs", "sync", "/out"]).code, 0);
    let report = until_found(|| doctor(&cluster), "archive", "ok");
    let found = report.has("durable", "ok")["found"].as_str().expect("a text");
    assert_eq!(found, "1 directory; all is in the stores");
    // Both places are away.
    let away = |place: &LocalPath| {
        let there = place.with_extension("away");
        fs::rename(place, &there).expect("moved");
        fs::write(place, "no directory").expect("written");
    };
    away(&archive.path().join("a"));
    away(&store);
    assert!(put_one("/out/two"));
    let report = until_found(|| doctor(&cluster), "durable.stalled", "warn");
    let found = report.has("durable.stalled", "warn")["found"].as_str().expect("a text");
    assert!(found.starts_with("1 directory stalls, 4.88 KiB wait") && found.contains("/out ("));
    until_found(|| doctor(&cluster), "archive.failing", "warn");
    assert_eq!(report.ran.code, 0, "nothing is lost yet: {}", report.ran);
}

#[test]
fn killed_node_and_its_losses_are_found() {
    let namenode = vec!["--no-precopy".to_owned()];
    let mut cluster = Cluster::start(Shape { namenode, ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        for at in 0..12 {
            assert!(put(&client, &format!("/lost-{at}"), 1 << 20).await);
        }
    });
    cluster.datanode("n1").kill();
    let report = until_found(|| doctor(&cluster), "nodes.gone", "warn");
    let gone = report.has("nodes.gone", "warn");
    assert_eq!(gone["nodes"], json!(["n1"]), "{gone}");
    let losses = report.has("losses.declared", "fail");
    assert!(losses["found"].as_str().is_some_and(|it| it.contains("/lost-")), "{losses}");
    assert!(losses["mend"].as_str().is_some_and(|it| it.contains("sanderling fsck")), "{losses}");
    assert_eq!(report.ran.code, 1, "{}", report.ran);
    assert!(report.ran.stderr.contains("sanderling fsck"), "{}", report.ran);
    // What is deleted is missing no more.
    block_on(async {
        let client = cluster.client().await;
        for at in 0..12 {
            client.delete(&path(&format!("/lost-{at}")), false).await.expect("deleted");
        }
    });
    let report = doctor(&cluster);
    report.has("losses.mended", "ok");
    assert_eq!(report.ran.code, 0, "{}", report.ran);
    // A start leaves out the numbers of many events.
    cluster.restart_namenode();
    for http in [cluster.namenode.http_address.clone(), "127.0.0.1:1".to_owned()] {
        let report = until_found(|| examine(&cluster, &http, &[], None), "nodes.gone", "warn");
        let gone = report.has("nodes.gone", "warn");
        assert_eq!(gone["nodes"], json!(["n1"]), "{gone}");
    }
}

/// One answer of a namenode has a thousand events.
#[test]
fn nodes_that_were_killed_before_and_after_a_thousand_other_events_are_found() {
    let mut cluster = Cluster::of(3);
    cluster.datanode("n1").kill();
    until_found(|| doctor(&cluster), "nodes.gone", "warn");
    block_on(async {
        let client = cluster.client().await;
        let n0 = NodeSelector("n0".to_owned());
        for _ in 0..510 {
            let (node, reason, is_withdrawn) = (n0.clone(), "test".to_owned(), false);
            let request = Request::Recommend { node, reason, is_withdrawn };
            client.request(request).await.expect("taken");
            client.cancel(&n0).await.expect("taken back");
        }
        let events = client.events(0, 1000, Millis(0)).await.expect("the namenode answers");
        assert_eq!(events.len(), 1000, "there are too few: the test shows nothing");
        cluster.datanode("n2").kill();
        until_gone(&client, "n2").await;
    });
    for http in [cluster.namenode.http_address.clone(), "127.0.0.1:1".to_owned()] {
        let report = examine(&cluster, &http, &[], None);
        let gone = report.has("nodes.gone", "warn");
        let mut names = gone["nodes"].as_array().expect("a list").clone();
        names.sort_by_key(Value::to_string);
        assert_eq!(names, [json!("n1"), json!("n2")], "{gone}");
    }
}

/// Registers jobs, of which each is one event.
async fn register_jobs(client: &Client, numbers: std::ops::Range<usize>) {
    let register = |number: usize| async move {
        let (lease, hints) = (Millis(3_600_000), JobHints::default());
        let job = path(&format!("/job-{number}"));
        let request = RegisterJob { path: job, lease, quota_bytes: None, hints };
        client.register_job(request).await.expect("a job")
    };
    let jobs = futures_util::stream::iter(numbers).map(register).buffer_unordered(128);
    jobs.for_each(async |_| {}).await;
}

#[test]
fn node_that_was_killed_before_all_events_that_are_kept_is_not_found() {
    /// Events that a namenode keeps, without those of moves.
    const KEPT: usize = EVENTS_KEPT_MAX - MOVE_EVENTS_KEPT_MAX;
    /// More than those of the start of the cluster.
    const OTHERS: usize = 50;
    let mut cluster = Cluster::of(2);
    cluster.datanode("n1").kill();
    until_found(|| doctor(&cluster), "nodes.gone", "warn");
    let register = |numbers| {
        block_on(async { register_jobs(&cluster.client().await, numbers).await });
    };
    register(0..KEPT - OTHERS);
    let report = until_found(|| doctor(&cluster), "nodes.gone", "warn");
    assert_eq!(report.has("nodes.gone", "warn")["nodes"], json!(["n1"]), "{}", report.ran);
    register(KEPT - OTHERS..KEPT + OTHERS);
    let report = doctor(&cluster);
    assert!(report.find("nodes.gone").is_none(), "{}", report.ran);
    assert_eq!(report.has("nodes", "ok")["found"], "1 node sends heartbeats", "{}", report.ran);
    let listed = cluster.json(&["node", "ls", "--all"]);
    let mut nodes = listed["nodes"].as_array().expect("a list").iter();
    assert!(nodes.any(|node| node["name"] == "n1" && node["policy"] == "gone"), "{listed}");
}

#[test]
fn late_drain_exposure_and_addresses_are_found() {
    let namenode = ["--no-precopy", "--no-rebalance"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start(Shape { datanodes: 0, namenode, ..Shape::default() });
    let slow = ["--egress", "64KiB", "--egress-limit", "64KiB", "--notice-min", "2s"];
    for name in ["n0", "n1", "n2"] {
        cluster.add(name, &[&slow[..], &["--host", kept(name)]].concat());
    }
    block_on(async {
        let client = cluster.client().await;
        for at in 0..12 {
            assert!(put(&client, &format!("/{at}"), 512 << 10).await);
        }
        let report = until_found(|| doctor(&cluster), "exposure.above", "warn");
        let above = report.has("exposure.above", "warn")["found"].as_str().expect("a text");
        assert!(above.contains("MiB alone"), "{above}");
        let loopback = report.has("addresses", "warn");
        assert_eq!(loopback["nodes"].as_array().map(Vec::len), Some(3), "{loopback}");
        assert_eq!(report.ran.code, 0, "{}", report.ran);
        let held = client.nodes(false).await.expect("answered").into_iter();
        let held = held.max_by_key(|node| node.home_bytes).expect("a node");
        let node = NodeSelector(held.name.clone());
        client.notice(&node, 15_000, "a test").await.expect("taken");
        let report = until_found(|| doctor(&cluster), "notices.late", "fail");
        let late = report.has("notices.late", "fail");
        assert_eq!(late["nodes"], json!([held.name]), "{late}");
        assert!(late["found"].as_str().is_some_and(|it| it.contains("B late, ")), "{late}");
        report.has("notices.under-way", "ok");
        assert_eq!(report.ran.code, 1, "{}", report.ran);
    });
}

#[test]
fn drain_without_a_manager_stands_still() {
    let namenode = ["--no-manager"].map(str::to_owned).to_vec();
    let cluster = Cluster::start(Shape { namenode, ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        for at in 0..6 {
            assert!(put(&client, &format!("/{at}"), 1 << 20).await);
        }
        let held = client.nodes(false).await.expect("answered").into_iter();
        let held = held.max_by_key(|node| node.home_bytes).expect("a node");
        client.decommission(&NodeSelector(held.name.clone()), "test").await.expect("taken");
        let report = until_found(|| doctor(&cluster), "notices.stuck", "fail");
        assert_eq!(report.has("notices.stuck", "fail")["nodes"], json!([held.name]));
        report.has("manager.none", "fail");
        assert_eq!(report.ran.code, 1, "{}", report.ran);
    });
}

#[test]
fn drain_whose_rest_expires_is_no_problem_and_empty_nodes_are_listed() {
    let namenode = ["--no-precopy", "--no-rebalance"].map(str::to_owned).to_vec();
    let cluster = Cluster::start(Shape { datanodes: 3, namenode, ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        let ttl = Some(Millis(60_000));
        let options = PutOptions { ttl, ..PutOptions::default() };
        client.put(&path("/short"), bytes_of(7, 1 << 20), &options).await.expect("stored");
        let nodes = client.nodes(false).await.expect("answered");
        let held = nodes.iter().max_by_key(|node| node.home_bytes).expect("a node");
        let empty = nodes.iter().find(|node| node.home_bytes == 0).expect("one has nothing");
        for node in [held, empty] {
            let selector = NodeSelector(node.name.clone());
            client.notice(&selector, 120_000, "a test").await.expect("taken");
        }
        // From then on a drain that moves nothing counts as stuck.
        let is_old = |drain: sanderling_protocol::node::DrainProgress| drain.elapsed.0 > 11_000;
        let limit = Instant::now() + SOON;
        loop {
            let nodes = client.nodes(false).await.expect("answered");
            let found = nodes.iter().find(|node| node.id == held.id).expect("it is there");
            assert!(Instant::now() < limit && found.policy == Policy::Draining, "{found:?}");
            if found.drain.is_some_and(is_old) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let report = doctor(&cluster);
        assert!(report.find("notices.stuck").is_none(), "{}", report.ran);
        let under_way = report.has("notices.under-way", "ok");
        let text = under_way["found"].as_str().expect("a text");
        assert!(text.contains("1.00 MiB left, of which 1.00 MiB expire by themselves"), "{text}");
        let drained = report.has("notices.drained", "ok");
        assert_eq!(drained["nodes"], json!([empty.name]), "{drained}");
        let text = drained["found"].as_str().expect("a text");
        assert!(text.contains("(empty, ") && text.contains(" to its deadline)"), "{text}");
    });
}

#[test]
fn fleet_over_its_reserve_is_found() {
    let namenode = ["--departures", "1"].map(str::to_owned).to_vec();
    let shape = Shape { datanodes: 4, dram: "16MiB", namenode, ..Shape::default() };
    let mut cluster = Cluster::start(shape);
    block_on(async {
        let client = cluster.client().await;
        let mut at = 0;
        while put(&client, &format!("/{at}"), 1 << 20).await {
            at += 1;
        }
        assert!(at > 20, "too little was stored: {at}");
        cluster.datanode("n3").kill();
        until_gone(&client, "n3").await;
        let report = until_found(|| doctor(&cluster), "reserve.missing", "warn");
        let found = report.has("reserve.missing", "warn")["found"].as_str().expect("a text");
        assert!(found.contains("would be lost") && found.contains("MiB"), "{found}");
        report.has("tiers.full", "fail");
    });
}

#[test]
fn certificates_near_their_end_are_found_on_every_datanode() {
    let place = TempDir::new().expect("a directory");
    let out = text(place.path().join("tls"));
    let made = run(sanderling().args(["tls", "new", "--out", &out, "--expires", "5h"]));
    assert_eq!(made.code, 0, "{made}");
    let flags: Vec<&'static str> =
        [("--tls-ca", "ca.pem"), ("--tls-cert", "node.pem"), ("--tls-key", "node.key")]
            .into_iter()
            .flat_map(|(flag, name)| [flag, kept(&format!("{out}/{name}"))])
            .collect();
    let namenode = flags.iter().map(|word| (*word).to_owned()).collect();
    let shape = Shape { datanodes: 2, namenode, datanode: flags.clone(), ..Shape::default() };
    let cluster = Cluster::start(shape);
    let report = examine(&cluster, &cluster.namenode.http_address, &flags[..2], None);
    let ending = report.has("certs.end", "warn");
    assert_eq!(ending["nodes"], json!(["n0", "n1"]), "{ending}");
    assert_eq!(report.ran.code, 0, "{}", report.ran);
}

#[test]
fn tokens_and_secrets_are_judged_by_what_they_allow() {
    let guarded = Guarded::start(1);
    let cluster = &guarded.cluster;
    let look = |token: &Token| examine(cluster, &cluster.namenode.http_address, &[], Some(token));
    let observer = guarded.token(&["--rights", "read"]);
    let report = until_found(|| look(&observer), "manager", "ok");
    let unseen = report.has("revoked.unseen", "ok")["found"].as_str().expect("a text");
    assert!(unseen.contains("needs the right to administer"), "{unseen}");
    assert_eq!((report.wrong(), report.ran.code), (vec![], 0), "{}", report.ran);
    report.has("nodes", "ok");
    let tenant = look(&guarded.token(&["--rights", "read", "--subtree", "/tenant"]));
    let unseen = tenant.has("nodes.unseen", "ok")["found"].as_str().expect("a text");
    assert!(unseen.contains("needs the right to read"), "{unseen}");
    assert_eq!((tenant.wrong(), tenant.ran.code), (vec![], 0), "{}", tenant.ran);
    let expired = guarded.token(&["--rights", "read", "--expires", "1s"]);
    until_found(|| look(&expired), "token.expired", "fail");
    // It may have ended between two looks of that one.
    let report = look(&expired);
    report.has("token.expired", "fail");
    report.has("namenode", "fail");
    assert_eq!(report.ran.code, 1, "{}", report.ran);
    assert!(!report.ran.to_string().contains("local start"), "{}", report.ran);
    let admin = guarded.token(&["--role", "admin", "--expires", "30m"]);
    let report = look(&admin);
    report.has("token.expires", "warn");
    report.has("revoked", "ok");
    report.has("secrets", "ok");
    // A second secret beside the first one: a rotation has begun.
    let both = guarded.place.path().join("both");
    let other = text(guarded.place.path().join("other"));
    let made = run(sanderling().args(["token", "secret", "--out", &other]));
    assert_eq!(made.code, 0, "{made}");
    fs::copy(&guarded.secret, &both).expect("copied with its mode");
    let mut file = fs::File::options().append(true).open(&both).expect("opened");
    let second = fs::read_to_string(&other).expect("read");
    file.write_all(format!("\n{second}\n").as_bytes()).expect("written");
    fs::rename(&both, &guarded.secret).expect("renamed");
    let report = until_found(|| look(&admin), "secrets.rotation", "ok");
    assert!(report.has("secrets.rotation", "ok")["mend"].is_string());
}

#[test]
fn hung_datanode_is_a_finding_and_hangs_nothing() {
    let mut cluster = Cluster::of(2);
    let report = with_hung_node(&mut cluster, "n1");
    report.has("nodes.unanswered", "fail");
    assert_eq!(report.ran.code, 1, "{}", report.ran);
    assert!(report.ran.took < Duration::from_secs(40), "{}", report.ran);
    // Then it is one that died, and no node that should answer.
    until_report(
        || doctor(&cluster),
        "node that died",
        |report| {
            let is_gone = report.find("nodes.gone").is_some_and(|it| it["verdict"] == "warn");
            is_gone && report.find("nodes.unanswered").is_none()
        },
    );
    cluster.datanode("n1").resume();
    // It finds out that it was given up, and joins again.
    let report = until_found(|| doctor(&cluster), "nodes.given-up", "warn");
    assert_eq!(report.has("nodes.given-up", "warn")["nodes"], json!(["n1"]));
    block_on(async {
        let client = cluster.client().await;
        until_node(&client, "n1", "back", |node| node.policy == Policy::Active).await;
    });
}

#[test]
fn machine_without_files_port_disk_or_python_is_found() {
    // A port that is taken, and at which no process listens.
    let (taken, port) = (1..)
        .find_map(|_| {
            let (domain, kind) =
                (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
            let socket = rustix::net::socket(domain, kind, None).expect("a socket");
            let any = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0);
            rustix::net::bind(&socket, &any).expect("bound");
            let name = rustix::net::getsockname(&socket).expect("a name");
            let port = std::net::SocketAddr::try_from(name).expect("an address").port();
            (port < u16::MAX).then_some((socket, port))
        })
        .expect("a port");
    for (files, level) in [("16383", "warn"), ("1000", "warn"), ("200", "fail")] {
        let mut shell = Command::new("sh");
        let doctor = "ulimit -n $FILES; exec $PROGRAM doctor --json --dram 1MiB --dir /proc/none";
        shell.args(["-c", doctor]).env("FILES", files);
        shell.env("PROGRAM", env!("CARGO_BIN_EXE_sanderling")).env("SANDERLING_PYTHON", "false");
        shell.env("SANDERLING_NAMENODE", format!("127.0.0.1:{port}"));
        let report = report(&mut shell);
        report.has("files", level);
        report.has("port", "warn");
        report.has("disk", "fail");
        report.has("python", "warn");
        report.has("namenode", "fail");
        assert_eq!(report.ran.code, 1, "{}", report.ran);
    }
    drop(taken);
}

#[test]
fn hung_namenode_is_a_finding_and_hangs_nothing() {
    let cluster = Cluster::of(0);
    cluster.namenode.pause();
    // A cluster is there, so starting another one is no next step.
    let mut list = sanderling();
    list.args(["fs", "ls", "/"]).env("SANDERLING_NAMENODE", &cluster.namenode.address);
    // A cluster that this machine's user has started would be the next step.
    let ran = run(list.env("SANDERLING_LOCAL_DIR", cluster.path("local")));
    assert!(ran.code == 4 && ran.stderr.contains("sanderling doctor"), "{ran}");
    assert!(!ran.stderr.contains("local start"), "{ran}");
    let report = examine(&cluster, &cluster.namenode.http_address, &[], None);
    cluster.namenode.resume();
    let silent = report.has("namenode", "fail");
    assert_eq!(silent["mend"], "its log, its load", "{silent}");
    assert!(report.ran.took < Duration::from_secs(40), "{}", report.ran);
    assert_eq!(report.ran.code, 1, "{}", report.ran);
}

#[test]
fn dead_namenode_is_a_failure_where_a_cluster_is_configured() {
    let mut cluster = Cluster::of(0);
    cluster.namenode.kill();
    let report = doctor(&cluster);
    let dead = report.has("namenode", "fail");
    assert!(!dead.to_string().contains("local start"), "{dead}");
    assert_eq!(report.ran.code, 1, "{}", report.ran);
}

#[test]
fn pages_are_cited_where_the_reader_has_them() {
    let built = LocalPath::new(env!("CARGO_BIN_EXE_sanderling"));
    // In the program's file system, so that a link is enough: it has a hundred megabytes.
    let place = TempDir::new_in(built.parent().expect("a directory")).expect("a directory");
    let prefix = place.path().canonicalize().expect("it is there");
    let program = prefix.join("bin/sanderling");
    fs::create_dir(prefix.join("bin")).expect("made");
    fs::hard_link(built, &program).expect("linked");
    let mend = |directory: &LocalPath| {
        let mut command = Command::new(&program);
        command.args(["doctor", "--dram", "1MiB", "--json", "--namenode", "127.0.0.1:1", "--dir"]);
        command.current_dir(directory);
        command.arg(&prefix).env("SANDERLING_LOCAL_DIR", prefix.join("local"));
        let report = report(command.env("SANDERLING_PYTHON", "false"));
        report.has("namenode", "fail")["mend"].as_str().expect("a text").to_owned()
    };
    let in_checkout = mend(&LocalPath::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    assert!(in_checkout.contains(": docs/DAY-TWO.md#"), "{in_checkout}");
    // As a wheel, which has no pages.
    let alone = mend(&prefix);
    assert!(alone.contains(": https://sanderling.example/docs/DAY-TWO.html#"), "{alone}");
    let pages = prefix.join("share/doc/sanderling/docs");
    fs::create_dir_all(&pages).expect("made");
    let installed = mend(&prefix);
    let page = format!(": {}/DAY-TWO.md#", pages.display());
    assert!(installed.contains(&page), "{installed}");
}

#[test]
fn wrong_clock_is_found() {
    let cluster = Cluster::of(1);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    // Answers as a namenode whose clock is an hour ahead, as often as it is called.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 4096]);
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time");
            let millis = since.as_millis() + 3_600_000;
            let body = format!("{{\"status\":\"ok\",\"unix_millis\":{millis}}}");
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n");
            let _ = write!(stream, "{head}connection: close\r\n\r\n{body}");
        }
    });
    let report = examine(&cluster, &address, &[], None);
    let wrong = report.has("clocks.skew", "fail");
    let found = wrong["found"].as_str().expect("a text");
    assert!(found.contains("namenode") && found.contains("ahead"), "{found}");
    assert_eq!(report.ran.code, 1, "{}", report.ran);
}
