//! `local` whose commands fail or are killed: every process stays on record, with its addresses.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::{Ran, SOON, run, sanderling, until};
use crate::local::{Local, START, json};
use crate::local_directory::files;

/// Returns the processes that have a path below the directory on their command line.
fn processes(directory: &Path) -> Vec<String> {
    let below = format!("{}/", directory.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("it is there") {
        let line = std::fs::read(entry.expect("an entry").path().join("cmdline"));
        let line = String::from_utf8_lossy(&line.unwrap_or_default()).replace('\0', " ");
        if line.contains(&below) {
            found.push(line);
        }
    }
    found
}

/// Returns the addresses of each process on record.
fn addresses(local: &Local) -> BTreeMap<String, [Value; 2]> {
    let status = json(&local.run(&["local", "status", "--json"]));
    let servers = status["processes"].as_array().expect("a list").iter();
    let row = |server: &Value| {
        let name = server["name"].as_str().expect("a name").to_owned();
        (name, [server["address"].clone(), server["http_address"].clone()])
    };
    servers.map(row).collect()
}

fn signal(pid: u64, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(pid, signal).expect("it runs");
}

/// When a command is interrupted.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// So long after it was started.
    After(Duration),
    /// As soon as it has so many processes of its own.
    Children(usize),
}

impl Moment {
    fn wait(self, child: &mut Child) {
        let count = match self {
            Self::After(after) => return std::thread::sleep(after),
            Self::Children(count) => count,
        };
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let limit = Instant::now() + SOON;
        // Without a pause: it puts them on record at once.
        while child.try_wait().expect("our own child").is_none() && Instant::now() < limit {
            let text = std::fs::read_to_string(&children).expect("the kernel lists them");
            if text.split_whitespace().count() >= count {
                return;
            }
        }
        panic!("it never had {count} processes");
    }
}

/// Starts a command, sends it a signal at some moment, and waits until it has ended.
fn interrupted(local: &Local, words: &[&str], moment: Moment, by: Signal) {
    let mut command = sanderling();
    command.args(words).arg("--dir").arg(local.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program can be started");
    moment.wait(&mut child);
    // Our own child has its id until it is waited for, also when it has ended.
    signal(child.id().into(), by);
    child.wait().expect("our own child");
}

/// Runs a command when the lock of one that was killed is free: a process that it was about to
/// start has the lock, too, until it becomes the server.
fn unlocked(local: &Local, words: &[&str]) -> Ran {
    until("the lock is free", SOON, || Some(local.run(words)).filter(|ran| ran.code != 4))
}

#[test]
fn local_start_that_is_killed_leaves_no_process_that_is_not_on_record() {
    let local = Local::new();
    let times = (0..=15).map(|round| Moment::After(Duration::from_millis(round * 10)));
    let spawns = [1, 1, 2, 2].map(Moment::Children);
    for (round, moment) in times.chain(spawns).enumerate() {
        let by = if round % 4 == 1 { Signal::INT } else { Signal::KILL };
        interrupted(&local, &START, moment, by);
        if round % 2 == 1 {
            let again = unlocked(&local, &START);
            // The one before has come to its end already.
            let is_started = again.code == 1 && again.stderr.contains("a cluster runs in");
            assert!(again.code == 0 || is_started, "{moment:?}: {again}");
            assert_eq!(local.run(&["local", "status"]).code, 0, "{moment:?}");
        }
        let stopped = unlocked(&local, &["local", "stop"]);
        assert!([0, 3].contains(&stopped.code), "{moment:?}: {stopped}");
        // One that was not on record yet ends by itself.
        let what = format!("all processes of a start that was killed ({moment:?}) have ended");
        until(&what, SOON, || processes(&local.path()).is_empty().then_some(()));
    }
}

#[test]
fn start_that_was_interrupted_is_reported_and_begins_anew() {
    let local = Local::new();
    local.start();
    let record = local.path().join("cluster.json");
    let text = std::fs::read_to_string(&record).expect("a record");
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["is_started"], true, "{text}");
    value["is_started"] = false.into();
    std::fs::write(&record, value.to_string()).expect("written");
    for words in [&["local", "status"][..], &["local", "add"], &["local", "restart", "namenode"]] {
        let ran = local.run(words);
        assert_eq!(ran.code, 4, "{ran}");
        assert!(ran.stderr.contains("has not come to its end"), "{ran}");
        assert!(ran.stderr.contains("sanderling local start"), "{ran}");
    }
    local.start();
    assert_eq!(processes(&local.path()).len(), 2, "the first two have ended");
}

#[test]
fn server_in_the_background_ends_if_it_is_not_released() {
    let local = Local::new();
    let catalog = local.path();
    let mut command = sanderling();
    command.args(["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--detach", "--dir"]);
    // Its standard input is at its end.
    let ran = run(command.arg(&catalog).args(["--timeout", "5s"]));
    assert_eq!(ran.code, 1, "{ran}");
    assert!(!catalog.exists(), "{ran}");
}

#[test]
fn restarted_namenodes_keep_their_addresses() {
    let local = Local::new();
    let words = ["local", "start", "--namenodes", "3", "--port", "0", "--datanodes", "1"];
    let started = local.run(&[&words[..], &["--dram", "8MiB"]].concat());
    assert_eq!(started.code, 0, "{started}");
    let namenodes = started.stdout.trim();
    let put = ["--namenode", namenodes, "fs", "put", "/proc/version", "/v"];
    assert_eq!(run(sanderling().args(put)).code, 0);
    let before = addresses(&local);
    for name in ["namenode-1", "namenode-1", "namenode-2", "namenode-2", "namenode-1"] {
        let ran = local.run(&["local", "restart", name]);
        assert_eq!(ran.code, 0, "{ran}");
        assert_eq!(addresses(&local), before, "{name}");
    }
    let read = run(sanderling().args(["--namenode", namenodes, "fs", "cat", "/v"]));
    assert_eq!(read.code, 0, "{read}");

    // As an earlier release left the record.
    let record = local.path().join("cluster.json");
    let text = std::fs::read_to_string(&record).expect("a record");
    let mut value: Value = serde_json::from_str(&text).expect("JSON");
    value["processes"][1]["address"] = "".into();
    value["processes"][1]["http_address"] = Value::Null;
    std::fs::write(&record, value.to_string()).expect("written");
    for _ in 0..2 {
        let ran = local.run(&["local", "restart", "namenode-1"]);
        assert_eq!(ran.code, 0, "{ran}");
    }
    let [address, http] = addresses(&local)["namenode-1"].clone();
    assert_eq!(address, before["namenode-1"][0]);
    assert!(http.is_string() && http != before["namenode-0"][1], "{http}");
}

#[test]
fn restart_after_one_that_failed_gets_the_same_addresses() {
    let local = Local::new();
    let namenode = local.start();
    let put = ["--namenode", &namenode, "fs", "put", "/proc/version", "/v"];
    assert_eq!(run(sanderling().args(put)).code, 0);
    let before = addresses(&local);
    let status = json(&local.run(&["local", "status", "--json"]));
    signal(status["processes"][0]["pid"].as_u64().expect("a pid"), Signal::KILL);
    // Another process takes the port meanwhile.
    let taken = until("the port is free", SOON, || TcpListener::bind(&namenode).ok());
    for _ in 0..2 {
        let ran = local.run(&["local", "restart", "namenode"]);
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains("in use"), "{ran}");
        assert!(!ran.stderr.contains("--port 0"), "it would be another cluster: {ran}");
        assert_eq!(addresses(&local), before);
    }
    drop(taken);
    let ran = local.run(&["local", "restart", "namenode"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(addresses(&local), before);
    let listed = run(sanderling().args(["--namenode", &namenode, "fs", "ls", "/"]));
    assert_eq!(listed.stdout, "v\n", "{listed}");
}

#[test]
fn restart_after_one_that_was_killed_gets_the_same_addresses() {
    let local = Local::new();
    let namenode = local.start();
    let before = addresses(&local);
    for round in 0..=13 {
        let after = Moment::After(Duration::from_millis(round * 10));
        let moment = if round < 12 { after } else { Moment::Children(1) };
        let by = if round % 2 == 0 { Signal::INT } else { Signal::KILL };
        interrupted(&local, &["local", "restart", "namenode"], moment, by);
        let ran = unlocked(&local, &["local", "restart", "namenode"]);
        assert_eq!(ran.code, 0, "{moment:?}: {ran}");
        assert_eq!(addresses(&local), before, "{moment:?}");
    }
    let listed = run(sanderling().args(["--namenode", &namenode, "fs", "ls", "/"]));
    assert_eq!(listed.code, 0, "{listed}");
    assert_eq!(local.run(&["local", "stop"]).code, 0);
    until("no process is left", SOON, || processes(&local.path()).is_empty().then_some(()));
}

/// Kills processes by their numbers on record, and waits until they have ended.
fn kill(local: &Local, places: &[usize]) {
    let status = json(&local.run(&["local", "status", "--json"]));
    for place in places {
        signal(status["processes"][place]["pid"].as_u64().expect("a pid"), Signal::KILL);
    }
    until("they are down", SOON, || {
        let status = json(&local.run(&["local", "status", "--json"]));
        let is_down = |place: &usize| status["processes"][place]["is_running"] == false;
        places.iter().all(is_down).then_some(())
    });
}

#[test]
fn next_command_without_a_namenode_starts_it_anew_and_keeps_its_catalog() {
    let local = Local::new();
    let namenode = local.start();
    let put = ["--namenode", &namenode, "fs", "put", "/proc/version", "/v"];
    assert_eq!(run(sanderling().args(put)).code, 0);
    let directory = local.path();
    let next = "next:  sanderling local restart namenode";
    let with_directory = format!("{next} --dir {}\n", directory.display());
    let is_right = |ran: &Ran, code: i32, next: &str| {
        let others = ["sanderling local start", "sanderling local stop"];
        let has_others = others.iter().any(|other| ran.stderr.contains(other));
        assert!(ran.code == code && ran.stderr.contains(next) && !has_others, "{ran}");
    };
    // First while the datanode runs, then when both have ended.
    for place in [0, 1] {
        kill(&local, &[place]);
        for words in [&["local", "restart", "datanode-0"][..], &["local", "add"]] {
            let ran = local.run(words);
            is_right(&ran, 4, &with_directory);
            assert!(ran.took < Duration::from_secs(20), "it waits for nothing: {ran}");
        }
        is_right(&local.run(&["local", "status"]), 4, &with_directory);
        // The second is no address of the cluster: `local start` would delete its catalog, too.
        for address in [namenode.as_str(), "127.0.0.1:1"] {
            let mut list = sanderling();
            list.args(["--namenode", address, "fs", "ls", "/"]);
            is_right(&run(list.env("SANDERLING_LOCAL_DIR", &directory)), 4, &format!("{next}\n"));
        }
        if place == 0 {
            is_right(&local.run(&START), 1, &with_directory);
        }
    }
    for name in ["namenode", "datanode-0"] {
        let ran = local.run(&["local", "restart", name]);
        assert_eq!(ran.code, 0, "{ran}");
    }
    assert_eq!(local.run(&["local", "status"]).code, 0);
    let listed = run(sanderling().args(["--namenode", &namenode, "fs", "ls", "/"]));
    assert_eq!(listed.stdout, "v\n", "{listed}");
}

/// Checks that a command changes nothing in the directory of a cluster that has ended, and prints
/// the commands that restart a namenode and that delete the catalog.
#[track_caller]
fn refuses_to_delete_the_catalog(local: &Local, words: &[&str], namenode: &str, deletion: &str) {
    let (directory, before) = (local.path(), files(&local.path()));
    let refused = local.run(words);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(files(&directory) == before, "{words:?} changed a file: {refused}");
    let directory = directory.display();
    let cause = format!("{directory} was not stopped: a new one would delete its catalog of ");
    let next = format!("next:  sanderling local restart {namenode} --dir {directory}, or");
    for part in [cause, format!("{next} {deletion}\n")] {
        assert!(refused.stderr.contains(&part), "{part}: {refused}");
    }
}

#[test]
fn catalog_of_a_cluster_that_has_ended_is_deleted_with_yes_alone() {
    let local = Local::new();
    let namenode = local.start();
    let put = ["--namenode", &namenode, "fs", "put", "/proc/version", "/v"];
    assert_eq!(run(sanderling().args(put)).code, 0);
    let listed = |namenode: &str| {
        let ran = run(sanderling().args(["--namenode", namenode, "fs", "ls", "/"]));
        assert_eq!(ran.code, 0, "{ran}");
        ran.stdout
    };
    kill(&local, &[0, 1]);
    let place = format!("--dir {}", local.path().display());
    let same = format!("sanderling {} {place} --yes", START.join(" "));
    refuses_to_delete_the_catalog(&local, &START, "namenode", &same);
    // `--yes` of the tour is for its notice.
    let stop = format!("sanderling local stop {place}");
    let tour = ["tour", "--port", "0", "--yes"];
    refuses_to_delete_the_catalog(&local, &tour, "namenode", &stop);
    assert_eq!(local.run(&["local", "restart", "namenode"]).code, 0);
    assert_eq!(listed(&namenode), "v\n");
    // Without an object it is a catalog, too.
    let ran = run(sanderling().args(["--namenode", &namenode, "fs", "rm", "/v"]));
    assert_eq!(ran.code, 0, "{ran}");
    kill(&local, &[0]);
    refuses_to_delete_the_catalog(&local, &START, "namenode", &same);
    assert_eq!(local.run(&["local", "restart", "namenode"]).code, 0);
    let ran = run(sanderling().args(["--namenode", &namenode, "fs", "mkdir", "/w"]));
    assert_eq!(ran.code, 0, "{ran}");
    kill(&local, &[0]);
    let again = local.run(&[&START[..], &["--yes"]].concat());
    assert_eq!(again.code, 0, "{again}");
    assert_eq!(listed(again.stdout.trim()), "");
}

/// Returns the next command that a failure prints.
#[track_caller]
fn next_of(ran: &Ran) -> String {
    let next = ran.stderr.lines().find_map(|line| line.strip_prefix("  next:  "));
    next.unwrap_or_else(|| panic!("no next command: {ran}")).to_owned()
}

/// Damages the record, and checks that each command of `local` prints the same next command, and
/// what was found. Runs that command.
#[track_caller]
fn deletes_a_torn_record(local: &Local, found: &[String], next: &str) {
    let record = local.path().join("cluster.json");
    std::fs::write(&record, "{").expect("written");
    let next = format!("{next}rm '{}'", record.display());
    for words in [
        &["local", "status"][..],
        &["local", "stop"],
        &["local", "add"],
        &["local", "restart", "namenode"],
        &["tour", "--port", "0", "--yes"],
        &START,
    ] {
        let refused = local.run(words);
        assert_eq!((refused.code, next_of(&refused)), (1, next.clone()), "{words:?}: {refused}");
        for part in found {
            assert!(refused.stderr.contains(part), "{part}: {refused}");
        }
    }
    let ran = run(Command::new("sh").args(["-c", &next]));
    assert!(ran.code == 0 && !record.exists(), "{ran}");
    until("no process is left", SOON, || processes(&local.path()).is_empty().then_some(()));
    // The catalog stays.
    let refused = local.run(&START);
    assert!(refused.code == 2 && refused.stderr.contains("delete its catalog of"), "{refused}");
}

#[test]
fn record_that_cannot_be_read_is_deleted_by_the_next_command() {
    let directory = tempfile::Builder::new().prefix("two words ").tempdir();
    let local = Local { directory: directory.expect("a directory") };
    local.start();
    let status = json(&local.run(&["local", "status", "--json"]));
    let servers = status["processes"].as_array().expect("a list");
    let found = servers.iter().map(|server| {
        let (name, pid) = (server["name"].as_str().expect("a name"), &server["pid"]);
        format!("{name} {pid}")
    });
    let mut pids: Vec<u64> = servers.iter().filter_map(|it| it["pid"].as_u64()).collect();
    pids.sort_unstable();
    let next = format!("kill -INT {} {} && ", pids[0], pids[1]);
    deletes_a_torn_record(&local, &found.collect::<Vec<_>>(), &next);
    assert_eq!(local.run(&[&START[..], &["--yes"]].concat()).code, 0);
    kill(&local, &[0, 1]);
    deletes_a_torn_record(&local, &["none was found".to_owned()], "");
}

#[test]
fn stop_without_a_namenode_does_not_claim_how_much_was_deleted() {
    for down in [&[0][..], &[0, 1]] {
        let local = Local::new();
        let namenode = local.start();
        let put = ["--namenode", &namenode, "fs", "put", "/proc/version", "/v"];
        assert_eq!(run(sanderling().args(put)).code, 0);
        kill(&local, down);
        let stopped = local.run(&["local", "stop", "--json"]);
        assert_eq!(stopped.code, 0, "{stopped}");
        let note = "deleted with it: all that it held; its namenode did not answer how much";
        assert!(stopped.stderr.contains(note), "{stopped}");
        let stopped = json(&stopped);
        assert_eq!(stopped["deleted_objects"], Value::Null, "{stopped}");
        assert_eq!(stopped["deleted_bytes"], Value::Null, "{stopped}");
    }
}

#[test]
fn copied_directory_is_refused_and_a_moved_one_goes_on() {
    let local = Local::new();
    let namenode = local.start();
    let listed = |namenode: &str| {
        let ran = run(sanderling().args(["--namenode", namenode, "fs", "ls", "/"]));
        assert_eq!(ran.code, 0, "{ran}");
        ran.stdout
    };
    let made = run(sanderling().args(["--namenode", &namenode, "fs", "mkdir", "/keep"]));
    assert_eq!(made.code, 0, "{made}");
    let copy = local.directory.path().join("copy");
    let copied = Command::new("cp").arg("-r").args([&local.path(), &copy]).status();
    assert!(copied.is_ok_and(|status| status.success()));
    let at_copy = |words: &[&str]| run(sanderling().args(words).arg("--dir").arg(&copy));
    for words in [
        &["local", "stop"][..],
        &["local", "restart", "namenode"],
        &["local", "status"],
        &["local", "add"],
        &[&START[..], &["--yes"]].concat(),
    ] {
        let refused = at_copy(words);
        assert_eq!(refused.code, 1, "{words:?}: {refused}");
        let cause = format!("is the record of the cluster in {}", local.path().display());
        assert!(refused.stderr.contains(&cause), "{words:?}: {refused}");
    }
    assert_eq!(listed(&namenode), "keep/\n");
    // Without a record the catalog is not deleted either.
    std::fs::remove_file(copy.join("cluster.json")).expect("removed");
    let refused = at_copy(&START);
    assert!(refused.code == 2 && refused.stderr.contains("delete its catalog"), "{refused}");
    assert!(refused.stderr.contains("there is none"), "{refused}");
    // With a port that another process has nothing is deleted.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let before = files(&copy);
    let start = ["local", "start", "--port", &port, "--http-port", "0", "--yes"];
    let refused = at_copy(&start);
    assert!(refused.code == 1 && refused.stderr.contains("nothing was deleted"), "{refused}");
    assert!(files(&copy) == before, "{refused}");
    kill(&local, &[0, 1]);
    let moved = Local { directory: TempDir::new().expect("a directory") };
    std::fs::rename(local.path(), moved.path()).expect("moved");
    // The path is in use again, by something that is no cluster.
    std::fs::create_dir_all(local.path()).expect("made");
    let again = moved.run(&["local", "restart", "namenode"]);
    assert_eq!(again.code, 0, "{again}");
    assert_eq!(listed(&namenode), "keep/\n");
    let status = moved.run(&["local", "status"]);
    assert!(status.stdout.contains("namenode"), "{status}");
}

#[test]
fn group_of_namenodes_that_has_ended_goes_on_with_its_catalog() {
    let local = Local::new();
    let words = ["local", "start", "--namenodes", "3", "--port", "0", "--datanodes", "1"];
    let words = [&words[..], &["--dram", "8MiB"]].concat();
    let started = local.run(&words);
    assert_eq!(started.code, 0, "{started}");
    let namenodes = started.stdout.trim();
    let made = run(sanderling().args(["--namenode", namenodes, "fs", "mkdir", "/v"]));
    assert_eq!(made.code, 0, "{made}");
    kill(&local, &[0, 1, 2, 3]);
    let same = format!("sanderling {} --dir {} --yes", words.join(" "), local.path().display());
    refuses_to_delete_the_catalog(&local, &words, "namenode-0", &same);
    // One of three has no majority.
    for name in ["namenode-0", "namenode-1"] {
        let ran = local.run(&["local", "restart", name]);
        assert_eq!(ran.code, 0, "{ran}");
    }
    let listed = run(sanderling().args(["--namenode", namenodes, "fs", "ls", "/"]));
    assert_eq!(listed.stdout, "v/\n", "{listed}");
}

#[test]
fn record_that_cannot_be_written_stays_as_it_was() {
    let local = Local::new();
    local.start();
    let before = addresses(&local);
    let record = local.path().join("cluster.json");
    let text = std::fs::read(&record).expect("a record");
    // The record cannot be written beside itself.
    let partial = local.path().join(".cluster.json.partial");
    std::fs::create_dir(&partial).expect("made");
    let mut other = std::fs::File::create(partial.join("x")).expect("made");
    other.write_all(b"x").expect("written");
    let added = local.run(&["local", "add"]);
    assert_eq!(added.code, 1, "{added}");
    let restarted = local.run(&["local", "restart", "namenode"]);
    assert_eq!(restarted.code, 1, "{restarted}");
    assert_eq!(std::fs::read(&record).expect("a record"), text);
    until("the namenode and the new datanode have ended", SOON, || {
        (processes(&local.path()).len() == 1).then_some(())
    });
    std::fs::remove_dir_all(&partial).expect("deleted");
    let restarted = local.run(&["local", "restart", "namenode"]);
    assert_eq!(restarted.code, 0, "{restarted}");
    assert_eq!(addresses(&local), before);
}
