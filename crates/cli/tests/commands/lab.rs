//! The lab on a small fleet: namespaces, shaped links, preemptions under load, and what it leaves.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cluster::{Killed, sanderling, until};
use serde_json::Value;
use tempfile::TempDir;

/// How long a quick lab may take on a busy machine.
const QUICK_WITHIN: Duration = Duration::from_secs(240);

/// A lab that runs. It is killed with the test.
struct Lab {
    child: Killed,
    directory: TempDir,
}

impl Lab {
    fn start(words: &[&str]) -> Self {
        let directory = TempDir::new().expect("a directory for the test");
        let printed = std::fs::File::create(directory.path().join("printed")).expect("written");
        let child = sanderling()
            .arg("lab")
            .args(words)
            .args(["--quick", "--out"])
            .arg(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(printed)
            .spawn()
            .expect("the program can be started");
        Self { child: Killed(child), directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn printed(&self) -> String {
        std::fs::read_to_string(self.path().join("printed")).unwrap_or_default()
    }

    /// Waits for the switch, the four nodes, and a run that has begun.
    fn until_run_begins(&self) {
        let (pid, logs) = (self.child.id(), self.path().join("logs"));
        until("a run begins", QUICK_WITHIN, || {
            (namespaces(pid).len() == 5 && logs.exists()).then_some(())
        });
    }

    /// Interrupts it, and waits until it has ended.
    fn interrupt(&mut self) {
        self.child.signal(rustix::process::Signal::INT);
        let child = &mut self.child;
        let status = until("it ends", QUICK_WITHIN, || child.try_wait().expect("our child"));
        assert_eq!(status.code(), Some(130), "{}", self.printed());
    }

    /// Waits until it has ended well and returns its records.
    fn records(&mut self) -> Value {
        let child = &mut self.child;
        let status = until("the lab ends", QUICK_WITHIN, || child.try_wait().expect("our child"));
        assert!(status.success(), "{status}: {}", self.printed());
        let text = std::fs::read(self.path().join("lab.json")).expect("the records are there");
        serde_json::from_slice(&text).expect("the records are JSON")
    }
}

/// Returns the names of the namespaces that a process has made.
fn namespaces(pid: u32) -> Vec<String> {
    let prefix = format!("sanderling-lab-{pid}-");
    let listed = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = listed.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

/// Returns the processes that a process has started and that have not been waited for.
fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let lists: Vec<String> = lists.flatten().collect();
    let pids = lists.iter().flat_map(|pids| pids.split_whitespace());
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns whether a process has ended. One that was not waited for may still be listed.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z'))
}

/// Returns whether this test may make namespaces; prints where it may not.
fn may_make_namespaces() -> bool {
    let name = format!("sanderling-test-{}", std::process::id());
    let ip = |verb: &str| Command::new("ip").args(["netns", verb, &name]).output();
    let is_allowed = ip("add").is_ok_and(|ran| ran.status.success());
    if is_allowed {
        ip("del").expect("what was made can be removed");
    } else {
        eprintln!("SKIPPED: no network namespaces here; this needs root and iproute2");
    }
    is_allowed
}

#[test]
fn quick_lab_loses_nothing_and_leaves_nothing_behind() {
    if !may_make_namespaces() {
        return;
    }
    let mut lab = Lab::start(&["read", "--policy", "sanderling"]);
    let records = lab.records();
    assert_eq!(records["setup"]["isolation"], "namespaces", "{}", lab.printed());
    let runs = records["runs"].as_array().expect("a list");
    assert_eq!(runs.len(), 2, "one run with preemptions, one without");
    let preempted = runs.iter().find(|run| run["is_preempted"] == true).expect("it is there");
    let drains = preempted["drains"].as_array().expect("a list");
    assert!(!drains.is_empty(), "no node was preempted: {preempted}");
    assert!(drains.iter().any(|drain| drain["moved_bytes"].as_u64() > Some(0)), "{drains:?}");
    for run in runs {
        assert_eq!(run["lost_bytes"], 0, "{}", lab.printed());
        assert_eq!(run["client_errors"], 0, "{}: {}", run["first_error"], lab.printed());
        assert_eq!(run["work_bytes"], runs[0]["work_bytes"], "the work is fixed");
    }
    for name in ["lab.json", "runs.csv", "drains.csv", "bandwidth.csv", "lab.html"] {
        assert!(lab.path().join(name).exists(), "{name} is missing");
    }
    assert_eq!(namespaces(lab.child.id()), Vec::<String>::new());
}

#[test]
fn interrupted_lab_leaves_no_namespaces() {
    if !may_make_namespaces() {
        return;
    }
    let mut lab = Lab::start(&["write", "--policy", "sanderling"]);
    lab.until_run_begins();
    lab.interrupt();
    assert_eq!(namespaces(lab.child.id()), Vec::<String>::new());
}

#[test]
fn servers_of_a_killed_lab_end_and_the_next_lab_removes_its_namespaces() {
    if !may_make_namespaces() {
        return;
    }
    let words = ["write", "--policy", "sanderling"];
    let mut killed = Lab::start(&words);
    killed.until_run_begins();
    let pid = killed.child.id();
    let servers = until("it has a namenode and four datanodes", QUICK_WITHIN, || {
        Some(children(pid)).filter(|servers| servers.len() >= 5)
    });
    killed.child.kill().expect("our child");
    killed.child.wait().expect("our child");
    until("its servers end", QUICK_WITHIN, || {
        servers.iter().all(|server| has_ended(*server)).then_some(())
    });
    let mut next = Lab::start(&words);
    until("its namespaces are gone", QUICK_WITHIN, || namespaces(pid).is_empty().then_some(()));
    next.until_run_begins();
    next.interrupt();
}

#[test]
fn lab_on_loopback_paces_its_nodes() {
    let words = ["notice", "--policy", "sanderling", "--loopback", "--notice", "1500ms"];
    let mut lab = Lab::start(&words);
    let records = lab.records();
    assert_eq!(records["setup"]["isolation"], "loopback");
    let run = &records["runs"][0];
    assert_eq!(run["client_errors"], 0, "{}", run["first_error"]);
    let link = records["setup"]["link_bytes_per_second"].as_f64().expect("a number");
    let seconds = run["seconds"].as_f64().expect("a number");
    let read = run["work_bytes"].as_f64().expect("a number");
    assert!(read > 0.0, "nothing was read");
    assert!(read < 2.2 * link * seconds, "two nodes sent {read} bytes in {seconds} s");
}
