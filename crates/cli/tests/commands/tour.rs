//! `sanderling tour`: what a new user types first.

use crate::cluster::{Ran, run, sanderling};
use serde_json::Value;
use tempfile::TempDir;

/// A place for the tour's cluster, which is stopped even when the test fails.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    fn run(&self, words: &[&str]) -> Ran {
        run(sanderling().args(words).arg("--dir").arg(self.0.path().join("local")))
    }

    fn tour(&self, words: &[&str]) -> Ran {
        self.run(&[&["tour", "--port", "0"], words].concat())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.run(&["local", "stop"]);
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"))
}

#[test]
fn tour_moves_what_the_node_holds_and_loses_nothing() {
    let place = Place::new();
    let ran = place.tour(&["--data", "20MiB", "--rate", "8MiB", "--json"]);
    assert_eq!(ran.code, 0, "{ran}");
    let report = json(&ran);
    let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name}: {ran}"));
    assert_eq!((number("stored_bytes"), number("objects")), (20 << 20, 3), "{ran}");
    assert_eq!(number("equal_bytes"), 20 << 20, "{ran}");
    assert!(number("moved_bytes") >= 1 << 20 && number("moved_blocks") > 0, "{ran}");
    assert_eq!((number("lost_bytes"), number("failed")), (0, 0), "{ran}");
    assert!(number("reads") > 0 && number("writes") > 0, "{ran}");

    let stop = format!("sanderling local stop --dir {}/local", place.0.path().display());
    assert!(ran.stderr.contains(&stop), "{ran}");

    // The cluster goes on without the node that was killed, and its console has the drain.
    let status = place.run(&["local", "status", "--json"]);
    assert_eq!(status.code, 0, "{status}");
    assert_eq!(json(&status)["processes"].as_array().map(Vec::len), Some(3), "{status}");
    let namenode = report["namenode"].as_str().expect("an address");
    let events = run(sanderling().args(["--namenode", namenode, "events"]));
    assert!(events.stdout.contains("spot-0"), "{events}");
    let console = report["console"].as_str().expect("an address");
    assert!(console.starts_with("http://127.0.0.1:"), "{console}");

    let again = place.tour(&[]);
    assert_eq!(again.code, 1, "one runs already: {again}");
    assert!(again.stderr.contains("sanderling local stop --dir"), "{again}");
    assert_eq!(place.run(&["local", "status"]).code, 0, "the first one is left alone");
}

#[test]
fn tour_reports_what_a_slow_link_did_not_save() {
    let place = Place::new();
    let ran = place.tour(&["--data", "24MiB", "--rate", "256KiB", "--deadline", "2s"]);
    assert_eq!(ran.code, 5, "{ran}");
    let lost = ran.stdout.lines().find(|line| line.starts_with("lost")).expect("a line");
    assert!(lost.contains("MiB"), "{ran}");
    assert!(ran.stderr.contains("sanderling fsck"), "{ran}");
    assert_eq!(place.run(&["local", "status"]).code, 0, "it can be looked at");
}

#[test]
fn tour_that_is_interrupted_leaves_no_process() {
    let place = Place::new();
    let ran = place.tour(&["--data", "24MiB", "--rate", "256KiB", "--timeout", "15s"]);
    assert_eq!(ran.code, 124, "{ran}");
    assert_eq!(place.run(&["local", "status"]).code, 3, "nothing is on record");
    let port = ran.stderr.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let port = port.unwrap_or_else(|| panic!("no console: {ran}"));
    assert!(std::net::TcpStream::connect(port).is_err(), "{port} still listens");
}
