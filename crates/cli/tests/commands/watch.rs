//! `node ls` and `node ls --watch`, over real servers.

use crate::cluster::pty::OnTerminal;
use crate::cluster::{Cluster, run, sanderling};

#[test]
fn list_of_nodes_is_redrawn_on_a_terminal_and_repeated_without_one() {
    let cluster = Cluster::of(2);
    let ran = cluster.cli(&["node", "ls", "--watch", "200ms", "--timeout", "8s"]);
    assert_eq!(ran.code, 0, "the end of the time is no failure: {ran}");
    assert!(ran.stdout.matches("2 active of 2").count() >= 2, "{ran}");
    assert!(!ran.stdout.contains('\u{1b}'), "{ran}");
    let ran = cluster.cli(&["node", "ls", "--watch", "--json", "--timeout", "10s"]);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines.len() >= 2, "{ran}");
    for line in lines {
        let fleet: serde_json::Value = serde_json::from_str(line).expect("JSON lines");
        assert_eq!(fleet["nodes"].as_array().map(Vec::len), Some(2), "{fleet}");
    }
    assert_eq!(cluster.cli(&["node", "ls", "--watch", "1ms"]).code, 2);

    let words = ["node", "ls", "--watch", "100ms"];
    let mut command = sanderling();
    command.args(words).env("SANDERLING_NAMENODE", &cluster.namenode.address);
    let mut watch = OnTerminal::start(command, 120, 20);
    watch.until_line(&["n0", "active"]);
    let ran = cluster.cli(&["node", "notice", "n0", "--deadline", "100s", "--wait"]);
    assert_eq!(ran.code, 0, "{ran}");
    let screen = watch.until_line(&["n0", "drained"]);
    assert_eq!(screen.matches("every 100 ms").count(), 1, "in one place: {screen}");
    watch.keys("\u{3}");
    assert_eq!(watch.wait().code(), Some(130));
}

#[test]
fn list_of_nodes_is_no_wider_than_the_terminal() {
    let cluster = Cluster::of(2);
    let command = || {
        let mut command = sanderling();
        command.args(["node", "ls"]).env("SANDERLING_NAMENODE", &cluster.namenode.address);
        command
    };
    let screen = |columns: u16| {
        let list = OnTerminal::start(command(), columns, 40);
        list.until("the sums", |screen| screen.contains("2 active of 2"))
    };
    let narrow = screen(80);
    let lines: Vec<&str> = narrow.lines().collect();
    // A line that is broken in two counts as one.
    assert!(lines[..3].iter().all(|line| line.chars().count() <= 80), "{narrow}");
    for name in ["name", "state", "exposure", "budget", "dram"] {
        assert!(lines[0].contains(name) && !lines[0].contains("address"), "{name}: {narrow}");
    }
    for name in ["n0", "n1"] {
        assert!(lines[1..3].iter().any(|line| line.contains(name)), "{name}: {narrow}");
    }
    assert!(lines[3].starts_with("80 columns are too few for: address"), "{narrow}");
    assert_eq!(screen(20).lines().next(), Some("name  state"));
    let wide = screen(200);
    assert!(wide.contains("address") && !wide.contains("too few"), "{wide}");
    // What another program reads has all columns.
    let ran = run(command().env("COLUMNS", "20"));
    assert!(ran.code == 0 && ran.stdout.contains("address"), "{ran}");
}
