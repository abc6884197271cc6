//! `events`: what it shows of what happened, and to which node.

use std::time::{Duration, Instant};

use crate::cluster::pty::OnTerminal;
use crate::cluster::{Cluster, Ran, SOON, sanderling, until};
use serde_json::Value;

/// A cluster with a node that drained.
fn drained() -> Cluster {
    let cluster = Cluster::of(2);
    let ran = cluster.cli(&["node", "notice", "n0", "--deadline", "100s", "--wait"]);
    assert_eq!(ran.code, 0, "{ran}");
    // An empty node has drained before it has the order, on a busy machine.
    until("the node is fenced", SOON, || {
        cluster.cli(&["events"]).stdout.contains("takes no more writes").then_some(())
    });
    cluster
}

fn events(cluster: &Cluster, words: &[&str]) -> Vec<Value> {
    let words = [&["events", "--json"], words].concat();
    let ran = cluster.cli(&words);
    assert_eq!(ran.code, 0, "{ran}");
    ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON lines")).collect()
}

/// Returns the kinds of events, in their order.
fn kinds(events: &[Value]) -> Vec<&str> {
    fn kind(event: &Value) -> Option<&String> {
        event["kind"].as_object().and_then(|kind| kind.keys().next())
    }
    events.iter().map(|event| kind(event).expect("a kind").as_str()).collect()
}

#[test]
fn events_are_chosen_by_kind_severity_node_and_time() {
    let cluster = drained();
    let chosen = events(&cluster, &["--kind", "node_registered,node_drained"]);
    assert_eq!(kinds(&chosen), ["node_registered", "node_registered", "node_drained"]);
    let chosen = events(&cluster, &["--severity", "warning"]);
    assert_eq!(kinds(&chosen), ["node_noticed"]);
    assert_eq!(chosen[0]["severity"], "warning");
    assert_eq!(events(&cluster, &["--severity", "error"]).len(), 0);

    let address = &cluster.datanodes[0].address;
    let id = cluster.datanodes[0].node.to_string();
    let of_n0 = events(&cluster, &["--node", "n0"]);
    assert!(kinds(&of_n0).contains(&"node_fenced"), "{of_n0:?}");
    assert!(of_n0.iter().all(|event| event["nodes"][0]["name"] == "n0"), "{of_n0:?}");
    for node in [address.as_str(), &id] {
        assert_eq!(events(&cluster, &["--node", node]), of_n0, "{node}");
    }
    let both = events(&cluster, &["--node", "n0", "--node", "n1"]);
    assert_eq!(both.len(), of_n0.len() + 1, "n1 has joined");

    let started = ["--kind", "namenode_started"];
    assert_eq!(events(&cluster, &[&["--since", "1h"][..], &started].concat()).len(), 1);
    assert_eq!(events(&cluster, &[&["--since", "1ms"][..], &started].concat()).len(), 0);
}

#[test]
fn every_line_names_its_nodes() {
    let cluster = drained();
    let ran = cluster.cli(&["events"]);
    for text in ["(n0) got a notice", "(n0) takes no more writes", "(n0) is empty"] {
        assert!(ran.stdout.contains(text), "{text}: {ran}");
    }
}

#[test]
fn unknown_kinds_severities_and_nodes_are_refused() {
    let cluster = Cluster::of(0);
    let refused = |ran: Ran, code, text: &str| {
        assert_eq!(ran.code, code, "{ran}");
        assert!(ran.stderr.contains(text) && ran.stdout.is_empty(), "{ran}");
    };
    let ran = cluster.cli(&["events", "--kind", "node_vanished"]);
    refused(ran, 2, "node_registered, node_noticed");
    refused(cluster.cli(&["events", "--severity", "loud"]), 2, "info, warning, error");
    refused(cluster.cli(&["events", "--since", "yesterday"]), 2, "does not begin with a number");
    refused(cluster.cli(&["events", "--node", "n9"]), 3, "node ls --all");
}

#[test]
fn end_of_the_time_is_no_failure_of_what_follows() {
    let cluster = Cluster::of(0);
    let ran = cluster.cli(&["events", "--follow", "--timeout", "6s"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran}");
    assert!(ran.stdout.contains("namenode started"), "{ran}");
}

#[test]
fn following_goes_on_while_nothing_happens_and_while_the_namenode_is_away() {
    let mut cluster = Cluster::of(1);
    let mut command = sanderling();
    command.args(["events", "--follow"]).env("SANDERLING_NAMENODE", &cluster.namenode.address);
    let mut events = OnTerminal::start(command, 150, 24);
    events.until_line(&["(n0) joined"]);
    // Longer than any call may take.
    let quiet_until = Instant::now() + Duration::from_secs(11);
    until("the time has passed", SOON, || {
        assert!(events.is_running(), "it ended while nothing happened");
        (Instant::now() > quiet_until).then_some(())
    });
    cluster.restart_namenode();
    let ran = cluster.cli(&["node", "decommission", "n0", "--yes"]);
    assert_eq!(ran.code, 0, "{ran}");
    events.until_line(&["(n0)", "decommission"]);
}

#[test]
fn severities_are_coloured_on_a_terminal_unless_no_color_is_set() {
    let cluster = drained();
    for (no_color, expected) in [("", vt100::Color::Idx(3)), ("1", vt100::Color::Default)] {
        let mut command = sanderling();
        command.args(["events"]).env("SANDERLING_NAMENODE", &cluster.namenode.address);
        command.env("NO_COLOR", no_color);
        let mut events = OnTerminal::start(command, 150, 24);
        assert_eq!(events.wait().code(), Some(0));
        events.until_line(&["got a notice"]);
        assert_eq!(events.colour_of("got a notice"), Some(expected), "NO_COLOR={no_color}");
        assert_eq!(events.colour_of("takes no more"), Some(vt100::Color::Default));
    }
}
