//! `node ls --watch`, over real servers.

use crate::cluster::pty::OnTerminal;
use crate::cluster::{Cluster, sanderling};

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
