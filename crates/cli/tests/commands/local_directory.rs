//! What `local` deletes: only what a local cluster made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cluster::{Server, run, sanderling, spawn_with};
use crate::local::{Local, START, json};

/// Returns all files below a directory with what they contain.
pub(crate) fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = std::fs::read(&path).expect("a file");
            found.insert(path, bytes);
        }
    }
    found
}

/// Starts a namenode by itself, beside the cluster of `local`.
fn namenode(local: &Local, catalog: &Path) -> Server {
    let catalog = catalog.to_str().expect("UTF-8");
    let words = ["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir", catalog];
    spawn_with(local.directory.path(), "alone", &words, &[]).serves()
}

fn names_of(namenode: &str) -> String {
    let ran = run(sanderling().args(["--namenode", namenode, "fs", "ls", "/"]));
    assert_eq!(ran.code, 0, "{ran}");
    ran.stdout
}

fn make(namenode: &str, path: &str) {
    let ran = run(sanderling().args(["--namenode", namenode, "fs", "mkdir", path]));
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn local_start_leaves_a_directory_alone_that_it_did_not_make() {
    let local = Local::new();
    let place = local.path();
    std::fs::create_dir(&place).expect("made");
    for (below, name) in [("disk", "keep"), ("keys", "mine"), ("logs", "mine.log"), ("data", "x")] {
        let below = place.join(below);
        std::fs::create_dir(&below).expect("made");
        std::fs::write(below.join(name), name).expect("written");
        let ran = local.run(&START);
        assert_eq!(ran.code, 1, "{ran}");
        let first = below.file_name().expect("a name").to_string_lossy();
        assert!(ran.stderr.contains(&format!("holds {first}, which no local")), "{ran}");
        assert!(ran.stderr.contains("--dir"), "{ran}");
        assert_eq!(local.run(&["tour", "--port", "0", "--yes"]).code, 1, "{first}");
        assert_eq!(files(&place).into_values().collect::<Vec<_>>(), [name.as_bytes()]);
        std::fs::remove_dir_all(&below).expect("deleted");
    }
    std::fs::write(place.join("lock"), "of another program").expect("written");
    let ran = local.run(&START);
    assert_eq!((ran.code, ran.stderr.contains("holds lock, ")), (1, true), "{ran}");
    std::fs::rename(place.join("lock"), place.join("cluster.json")).expect("renamed");
    let ran = local.run(&START);
    assert_eq!((ran.code, ran.stderr.contains("no cluster's record")), (1, true), "{ran}");
    assert_eq!(files(&place).len(), 1, "it has no mark");
    std::fs::remove_file(place.join("cluster.json")).expect("deleted");
    local.start();
}

#[test]
fn local_start_leaves_the_catalog_of_a_running_namenode_alone() {
    let local = Local::new();
    let catalog = local.path().join("namenode");
    let mut alone = namenode(&local, &catalog);
    make(&alone.address, "/before");
    let before = files(&local.path());
    let ran = local.run(&START);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("holds namenode, which no local cluster made"), "{ran}");
    assert_eq!(files(&local.path()), before);
    alone.kill();
    assert!(names_of(&namenode(&local, &catalog).address).contains("before"));
}

#[test]
fn local_start_and_stop_refuse_a_catalog_that_another_namenode_has_locked() {
    let local = Local::new();
    local.start();
    let catalog = local.path().join("namenode");
    let status = json(&local.run(&["local", "status", "--json"]));
    let pid = status["processes"][0]["pid"].as_i64().expect("a pid");
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    // As by hand, where the cluster's own namenode does not start.
    crate::cluster::until("the namenode is down", crate::cluster::SOON, || {
        (local.run(&["local", "status"]).code == 4).then_some(())
    });
    let mut alone = namenode(&local, &catalog);
    make(&alone.address, "/before");
    let stopped = local.run(&["local", "stop"]);
    assert_eq!(stopped.code, 1, "{stopped}");
    assert!(stopped.stderr.contains("a namenode that is not on record runs in"), "{stopped}");
    // The processes of the cluster have ended, and the directory is its.
    let started = local.run(&START);
    assert_eq!(started.code, 1, "{started}");
    assert!(started.stderr.contains("a namenode that is not on record runs in"), "{started}");
    alone.kill();
    let mut alone = namenode(&local, &catalog);
    assert!(names_of(&alone.address).contains("before"));
    alone.kill();
    assert_eq!(local.run(&["local", "stop"]).code, 0);
    assert!(!catalog.exists());
}

#[test]
fn local_stop_and_start_leave_files_of_others_and_the_reason_is_printed() {
    let local = Local::new();
    let words = ["--disk", "8MiB", "--secure"];
    let start = [&START[..], &words].concat();
    assert_eq!(local.run(&start).code, 0);
    let mine = ["namenode/notes", "namenode/mine/a", "disk/b", "disk/datanode-0/c", "ready/d"];
    let mine = mine.iter().chain(&["keys/e", "logs/f.log", "g"]);
    let mine: Vec<PathBuf> = mine.map(|name| local.path().join(name)).collect();
    for path in &mine {
        std::fs::create_dir_all(path.parent().expect("one")).expect("made");
        std::fs::write(path, "mine").expect("written");
    }
    let others = || {
        let is_ours = |path: &Path| {
            ["lock", "logs/datanode-0.log", "logs/namenode.log"]
                .iter()
                .any(|name| path == local.path().join(name))
        };
        let left = files(&local.path()).into_iter().filter(|(path, _)| !is_ours(path));
        let (left, bytes): (Vec<_>, Vec<_>) = left.unzip();
        assert!(bytes.iter().all(|bytes| bytes == b"mine"), "{left:?}");
        left
    };
    let mut expected = mine.clone();
    expected.sort();
    let stopped = local.run(&["local", "stop"]);
    assert_eq!(stopped.code, 0, "{stopped}");
    for (below, name) in [
        ("namenode", "mine and 1 other"),
        ("disk", "b"),
        ("disk/datanode-0", "c"),
        ("ready", "d"),
        ("keys", "e"),
    ] {
        let directory = local.path().join(below);
        let note = format!("left {}: it holds {name}, which no", directory.display());
        assert!(stopped.stderr.contains(&note), "{note}: {stopped}");
    }
    assert_eq!(others(), expected);
    // A datanode would empty its disk: it refuses one with files of others, and names the first.
    let refused = local.run(&start);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.stderr.contains("\"c\", which no datanode wrote"), "{refused}");
    assert_eq!(local.run(&["local", "status"]).code, 3);
    std::fs::remove_file(local.path().join("disk/datanode-0/c")).expect("deleted");
    expected.retain(|path| !path.ends_with("c"));
    assert_eq!(local.run(&start).code, 0);
    let stopped = json(&local.run(&["local", "stop", "--json"]));
    assert_eq!(stopped["left"].as_array().map(Vec::len), Some(5), "{stopped}");
    assert_eq!(others(), expected);
}

#[test]
fn local_start_takes_a_directory_that_a_local_cluster_left() {
    let local = Local::new();
    std::fs::create_dir(local.path()).expect("made");
    let lock = local.path().join("lock");
    // A start that was killed before it wrote the mark, or in the middle of it.
    for torn in ["", "a directory of"] {
        std::fs::write(&lock, torn).expect("written");
        local.start();
        std::fs::write(local.path().join("mine"), "kept").expect("written");
        assert_eq!(local.run(&["local", "stop"]).code, 0);
        let left: Vec<PathBuf> = files(&local.path()).into_keys().collect();
        let logs = ["logs/datanode-0.log", "logs/namenode.log", "mine"];
        let expected = ["lock"].iter().chain(&logs).map(|name| local.path().join(name));
        assert_eq!(left, expected.collect::<Vec<_>>());
        std::fs::remove_file(local.path().join("mine")).expect("deleted");
    }
    // A release before the mark has stopped its cluster.
    std::fs::write(&lock, "").expect("written");
    local.start();
    // A release before the mark has started one, which was killed.
    std::fs::write(&lock, "").expect("written");
    let status = json(&local.run(&["local", "status", "--json"]));
    for process in status["processes"].as_array().expect("a list") {
        let pid = process["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    }
    crate::cluster::until("it starts again", crate::cluster::SOON, || {
        (local.run(&[&START[..], &["--yes"]].concat()).code == 0).then_some(())
    });
}
