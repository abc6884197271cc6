//! `local restart` of a datanode that holds data: it is emptied first, or nothing changes.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::{Ran, SOON, bytes_of, run, sanderling, until};
use crate::local::{Local, json};

const RESTART: [&str; 3] = ["local", "restart", "datanode-0"];

/// Bytes per second that the slow datanode sends.
const RATE: u64 = 256 << 10;

/// What takes it 36 s to send, longer than the time in which SIGTERM lets it empty itself.
const BYTES: usize = 9 << 20;

/// What takes it 12 s to send.
const FEW_BYTES: usize = 3 << 20;

/// The time after SIGTERM.
const AFTER_SIGTERM: Duration = Duration::from_secs(25);

/// Starts a namenode and a datanode, and returns the namenode's address.
fn start(local: &Local) -> String {
    let words = ["local", "start", "--port", "0", "--datanodes", "1", "--dram", "64MiB"];
    let started = local.run(&words);
    assert_eq!(started.code, 0, "{started}");
    started.stdout.trim().to_owned()
}

/// Sets what `datanode-0`, and datanodes that are added, send at most when they are started.
fn set_rate(local: &Local, rate: Option<u64>) {
    let record = local.path().join("cluster.json");
    let text = std::fs::read_to_string(&record).expect("a record");
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    value["processes"][1]["shape"]["egress_limit"] = rate.into();
    std::fs::write(&record, value.to_string()).expect("written");
}

fn pid(local: &Local) -> Value {
    json(&local.run(&["local", "status", "--json"]))["processes"][1]["pid"].clone()
}

fn put(local: &Local, namenode: &str, bytes: usize) {
    let from = local.directory.path().join("from");
    std::fs::write(&from, bytes_of(1, bytes)).expect("written");
    let ran = run(sanderling().args(["--namenode", namenode, "fs", "put"]).arg(from).arg("/file"));
    assert_eq!(ran.code, 0, "{ran}");
}

/// Fetches what was stored; returns whether it is whole.
fn get(local: &Local, namenode: &str, bytes: usize) -> (Ran, bool) {
    let to = local.directory.path().join("to");
    let _ = std::fs::remove_file(&to);
    let ran = run(sanderling().args(["--namenode", namenode, "fs", "get", "/file"]).arg(&to));
    let is_whole = std::fs::read(&to).is_ok_and(|read| read == bytes_of(1, bytes));
    (ran, is_whole)
}

/// Starts a slow datanode, stores a file there, and adds another datanode. Returns the namenode's
/// address.
fn start_slow(local: &Local, bytes: usize) -> String {
    let namenode = start(local);
    set_rate(local, Some(RATE));
    let limited = local.run(&RESTART);
    assert_eq!(limited.code, 0, "{limited}");
    // Those that are started from now on send as fast as they can.
    set_rate(local, None);
    put(local, &namenode, bytes);
    let added = local.run(&["local", "add"]);
    assert_eq!(added.code, 0, "{added}");
    namenode
}

/// Returns the policy of `datanode-0`, by the namenode's list.
fn policy(namenode: &str) -> Value {
    let listed = json(&run(sanderling().args(["--namenode", namenode, "node", "ls", "--json"])));
    let mut nodes = listed["nodes"].as_array().expect("a list").iter();
    let node = nodes.find(|node| node["name"] == "datanode-0").expect("it is listed");
    node["policy"].clone()
}

/// Begins to restart `datanode-0`, and presses Ctrl-C while that is emptied. Returns the command's
/// exit code.
fn interrupted(local: &Local, namenode: &str) -> Option<i32> {
    let mut command = sanderling();
    command.args(RESTART).arg("--dir").arg(local.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program can be started");
    until("it is emptied", SOON, || (policy(namenode) == "decommissioning").then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).expect("our own child");
    until("the command ends", SOON, || child.try_wait().expect("our own child")).code()
}

#[test]
fn restarted_datanode_is_emptied_first_however_long_that_takes() {
    let local = Local::new();
    let namenode = start_slow(&local, BYTES);
    let before = pid(&local);
    let late = local.run(&[&RESTART[..], &["--timeout", "3s"]].concat());
    assert!(late.code == 124 && late.stderr.contains("to be empty: "), "{late}");
    assert_eq!(pid(&local), before, "it goes on");
    let restarted = std::thread::scope(|scope| {
        let restarted = scope.spawn(|| local.run(&RESTART));
        // The cluster may be changed meanwhile.
        let added = local.run(&["local", "add"]);
        assert_eq!(added.code, 0, "{added}");
        restarted.join().expect("no panic")
    });
    assert_eq!(restarted.code, 0, "{restarted}");
    let took = late.took + restarted.took;
    assert!(took > AFTER_SIGTERM, "{took:?}: the test shows nothing");
    assert_ne!(pid(&local), before);
    let (got, is_whole) = get(&local, &namenode, BYTES);
    assert!(got.code == 0 && is_whole, "{got}");
    let fsck = run(sanderling().args(["--namenode", &namenode, "fsck"]));
    assert_eq!(fsck.code, 0, "{fsck}");
}

#[test]
fn interrupted_restart_leaves_a_datanode_that_empties_itself_until_that_is_taken_back() {
    let local = Local::new();
    let namenode = start_slow(&local, FEW_BYTES);
    let before = pid(&local);
    assert_eq!(interrupted(&local, &namenode), Some(130));
    assert_eq!(policy(&namenode), "decommissioning", "it goes on to empty itself");
    assert_eq!(pid(&local), before, "it still runs");
    let cancel = ["--namenode", &namenode, "node", "cancel", "datanode-0"];
    let cancelled = run(sanderling().args(cancel));
    assert_eq!(cancelled.code, 0, "{cancelled}");
    assert_eq!(policy(&namenode), "active", "it is taken back");
    assert_eq!(interrupted(&local, &namenode), Some(130));
    until("it has emptied itself", SOON, || (policy(&namenode) == "drained").then_some(()));
    assert_eq!(pid(&local), before, "it still runs");
    assert_eq!(local.run(&["local", "status"]).code, 0);
    let again = local.run(&RESTART);
    assert_eq!(again.code, 0, "{again}");
    assert_ne!(pid(&local), before);
    let (got, is_whole) = get(&local, &namenode, FEW_BYTES);
    assert!(got.code == 0 && is_whole, "{got}");
}

#[test]
fn datanode_without_room_elsewhere_is_restarted_with_yes_alone_and_its_loss_is_reported() {
    let local = Local::new();
    let namenode = start(&local);
    put(&local, &namenode, BYTES);
    let before = pid(&local);
    let refused = local.run(&RESTART);
    assert_eq!(refused.code, 2, "{refused}");
    for part in ["have no room", "nothing was changed", "sanderling local add", "--yes"] {
        assert!(refused.stderr.contains(part), "{part}: {refused}");
    }
    assert_eq!(pid(&local), before, "nothing was changed");
    let (got, is_whole) = get(&local, &namenode, BYTES);
    assert!(got.code == 0 && is_whole, "{got}");
    let confirmed = local.run(&[&RESTART[..], &["--yes"]].concat());
    assert_eq!(confirmed.code, 5, "{confirmed}");
    for part in ["datanode-0 serves again", " blocks lost with node", "fsck"] {
        assert!(confirmed.stderr.contains(part), "{part}: {confirmed}");
    }
    assert_ne!(pid(&local), before);
    assert_eq!(local.run(&["local", "status"]).code, 0);
    assert_eq!(get(&local, &namenode, BYTES).0.code, 5);
}
