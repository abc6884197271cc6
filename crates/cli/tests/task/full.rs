//! A task whose store has no room: it goes on, what was stored stays and restores, and checkpoints
//! succeed again as soon as there is room.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path as LocalPath, PathBuf};

use crate::cluster::stores::{add, fleet, make};
use crate::cluster::tasks::{SmallDisk, TaskPlace, is_root, library};
use crate::cluster::{Cluster, SOON, Shape, run, sanderling, until};
use serde_json::Value;

/// What one generation adds.
const STATE_BYTES: usize = 2 << 20;

fn packs(backend: &LocalPath) -> Vec<PathBuf> {
    let entries = fs::read_dir(backend.join("count/packs")).expect("packs");
    let packs = entries.map(|entry| entry.expect("readable").path());
    // What is not finished begins with a dot.
    let is_hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    packs.filter(|it| !it.file_name().is_some_and(is_hidden)).collect()
}

#[test]
fn full_directory_takes_no_checkpoint_and_keeps_the_last_one() {
    if !is_root("full_directory") {
        return;
    }
    let disk = SmallDisk::of(9);
    let place = TaskPlace::in_directory(disk.path(), STATE_BYTES);
    let mut runner = place.runner("first", &[], &["--keep", "1"]);
    place.until_after(1, &mut runner);
    // Less than another generation, and more than its manifest.
    disk.fill_but(1 << 20);
    // The one that was under way may have ended.
    runner.until_logged("no checkpoint", 2);
    let (kept, count) = place.restored();
    let refused = runner.log().matches("no checkpoint").count();
    runner.until_logged("no checkpoint", refused + 3);
    assert!(runner.log().contains("No space left on device"), "{}", runner.log());
    assert_eq!(runner.ended(), None, "the task goes on");
    assert_eq!(place.restored(), (kept, count), "what was there stays");
    assert_eq!(packs(disk.path()).len(), 1, "{:?}", packs(disk.path()));
    disk.empty();
    place.until_after(kept, &mut runner);
    runner.kill();
    assert_eq!(place.verified().code, 0);
    assert!(place.restored().1 > count);
}

/// A runner that was killed leaves packs which no manifest names. Where they take the room that the
/// next generation needs, they are removed before one has succeeded.
#[test]
fn packs_of_a_killed_runner_do_not_keep_the_store_full() {
    if !is_root("packs_of_a_killed_runner") {
        return;
    }
    let disk = SmallDisk::of(6);
    let place = TaskPlace::in_directory(disk.path(), STATE_BYTES);
    let mut runner = place.runner("first", &[], &["--keep", "1"]);
    let kept = place.until_after(0, &mut runner);
    runner.kill();
    let (_, count) = place.restored();
    let mut kept = place.newest().max(kept);
    let was_full = (0..10).any(|round| {
        // As a runner leaves them that is killed after its packs and before its manifest.
        while packs(disk.path()).len() < 2 {
            let left = packs(disk.path()).pop().expect("a pack");
            fs::copy(&left, left.with_file_name("ab".repeat(32))).expect("there is room");
        }
        let mut runner = place.runner(&format!("next{round}"), &[], &["--keep", "1"]);
        kept = place.until_after(kept, &mut runner);
        // A state that has not changed yet is checkpointed without another pack.
        let was_full = runner.log().contains("No space left on device");
        runner.kill();
        kept = place.newest().max(kept);
        was_full
    });
    assert!(was_full, "no checkpoint met the full disk");
    assert!(place.restored().1 > count);
    assert_eq!(place.verified().code, 0);
}

/// The dump of a generation fails although all of it is stored, and those after it leave nothing.
#[test]
fn generation_that_is_stored_stays_whole_although_its_dump_failed() {
    let backend = tempfile::TempDir::new().expect("a directory");
    let mut place = TaskPlace::in_directory(backend.path(), STATE_BYTES / 16);
    let Some(library) = library(&place.path(""), include_str!("lost_manifest.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let condition = place.path("fails");
    place.variables = vec![("LD_PRELOAD", library), ("FAIL_IF", condition.clone())];
    let mut runner = place.runner("first", &[], &["--keep", "2"]);
    place.until_after(2, &mut runner);
    fs::write(&condition, "").expect("written");
    runner.until_logged("no checkpoint", 3);
    let (newest, log) = (place.newest(), runner.log());
    assert!(!log.contains(&format!("generation {newest}: ")), "its dump was stored: {log}");
    let (restored, count) = place.restored();
    assert_eq!(restored, newest, "{log}");
    assert_eq!(place.verified().code, 0);
    // The next one is on top of it.
    fs::remove_file(&condition).expect("it was made");
    place.until_after(newest, &mut runner);
    runner.kill();
    assert!(place.restored().1 > count);
    assert_eq!(place.verified().code, 0);
}

/// As [`packs_of_a_killed_runner_do_not_keep_the_store_full`], before there is a first generation.
#[test]
fn packs_without_any_generation_do_not_keep_the_store_full() {
    if !is_root("packs_without_any_generation") {
        return;
    }
    let disk = SmallDisk::of(4);
    let place = TaskPlace::in_directory(disk.path(), STATE_BYTES);
    let left = disk.path().join("count/packs");
    fs::create_dir_all(&left).expect("made");
    fs::write(left.join("ab".repeat(32)), vec![7; 3 << 20]).expect("there is room");
    let mut runner = place.runner("first", &[], &["--keep", "1"]);
    place.until_after(0, &mut runner);
    runner.kill();
    assert_eq!(place.verified().code, 0);
}

/// The record of the lock has no room, either: the command is stopped, and no dump begins.
#[test]
fn packs_without_a_name_that_fill_the_disk_do_not_keep_a_command_stopped() {
    if !is_root("packs_without_a_name_that_fill_the_disk") {
        return;
    }
    let disk = SmallDisk::of(8);
    let mut place = TaskPlace::in_directory(disk.path(), 10_000);
    place.interval = "5s";
    let mut runner = place.runner("first", &[], &["--keep", "1", "--lock-age", "2s"]);
    place.until_after(0, &mut runner);
    let mut names = (0_u64..).map(|number| format!("{number:064x}"));
    let mut write = |bytes: usize| {
        let name = names.next().expect("it has no end");
        fs::write(disk.path().join("count/packs").join(name), vec![7; bytes]).is_ok()
    };
    // A dump that has begun before removes them again.
    until("the command is stopped", SOON, || {
        for bytes in [1 << 20, 4096] {
            while write(bytes) {}
        }
        runner.log().contains("the command is stopped until it is").then_some(())
    });
    let kept = place.newest();
    place.until_after(kept, &mut runner);
    runner.kill();
    assert_eq!(place.verified().code, 0);
}

#[test]
fn key_that_a_full_disk_did_not_take_is_made_when_there_is_room() {
    if !is_root("key_that_a_full_disk") {
        return;
    }
    let (disk, place) = (SmallDisk::of(1), tempfile::TempDir::new().expect("a directory"));
    let key = disk.path().join("key");
    let task = || {
        let mut command = sanderling();
        command.args(["task", "run", "--name", "t", "--key"]).arg(&key);
        command.arg("--backend").arg(format!("dir:{}", place.path().display()));
        run(command.args(["--", "true"]))
    };
    disk.fill_but(0);
    let refused = task();
    assert!(refused.code != 0 && refused.stderr.contains("No space left"), "{refused}");
    assert!(!key.exists(), "half a key stays");
    disk.empty();
    let ran = task();
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(fs::read_to_string(&key).expect("made").trim().len(), 64);
    // No draft of it is left.
    assert_eq!(fs::read_dir(disk.path()).expect("readable").count(), 1);
}

#[test]
fn full_cluster_takes_no_checkpoint_and_keeps_the_last_one() {
    let cluster = Cluster::start(Shape { datanodes: 1, dram: "24MiB", ..Shape::default() });
    let place = TaskPlace::in_cluster(&cluster.namenode.address, STATE_BYTES);
    let mut runner = place.runner("first", &[], &["--keep", "1"]);
    place.until_after(1, &mut runner);
    let filler = place.path("filler");
    fs::write(&filler, vec![7; 1 << 20]).expect("written");
    let filler = filler.to_str().expect("a name in UTF-8");
    // A checkpoint takes the room of the one before at any time, so more than once. What a put has
    // stored whose time was over stays, too: each has a name of its own.
    let mut names = (0..).map(|number| format!("/fill/{number}"));
    until("there is no room", SOON, || {
        let name = names.next().expect("it has no end");
        cluster.cli(&["--timeout", "2s", "fs", "put", "-p", filler, &name]);
        (runner.log().matches("no checkpoint").count() >= 2).then_some(())
    });
    let (kept, count) = place.restored();
    let refused = runner.log().matches("no checkpoint").count();
    runner.until_logged("no checkpoint", refused + 2);
    assert!(runner.log().contains("no room for"), "{}", runner.log());
    assert_eq!(runner.ended(), None, "the task goes on");
    assert_eq!(place.restored(), (kept, count), "what was there stays");
    let removed = cluster.cli(&["fs", "rm", "-r", "-f", "/fill"]);
    assert_eq!(removed.code, 0, "{removed}");
    place.until_after(kept, &mut runner);
    runner.kill();
    assert!(place.restored().1 > count);
    assert_eq!(place.verified().code, 0);
}

/// Nothing reaches the store, and what is old cannot be removed; both goes on when there is room.
#[test]
fn full_store_of_a_durable_directory_holds_no_checkpoint_up() {
    if !is_root("full_store_of_a_durable_directory") {
        return;
    }
    let disk = SmallDisk::of(12);
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let store = disk.path().join("store");
    fs::create_dir(&store).expect("made");
    add(&mut cluster, "d0", &store);
    make(&cluster, "/tasks");
    let place = TaskPlace::in_cluster(&cluster.namenode.address, STATE_BYTES);
    let mut runner = place.runner("first", &[], &["--keep", "1"]);
    place.until_after(1, &mut runner);
    disk.fill_but(0);
    let stalled = || {
        let shown = cluster.json(&["fs", "stat", "/tasks"]);
        let durability: &Value = &shown["objects"][0]["durability"];
        let why = durability["stalled"].as_str().unwrap_or_default().to_owned();
        why.contains("has no room for").then_some(why)
    };
    until("the reason is shown", SOON, stalled);
    let before = place.newest();
    let newest = place.until_after(before + 2, &mut runner);
    assert!(place.restored().0 >= newest);
    disk.empty();
    runner.kill();
    let synced = cluster.cli(&["fs", "sync", "/tasks", "--timeout", "60s"]);
    assert_eq!(synced.code, 0, "{synced}");
    let newest = place.newest();
    // The store alone has it now.
    cluster.datanodes.clear();
    add(&mut cluster, "d1", &store);
    assert_eq!(place.restored().0, newest);
}

/// While the store is away it gets none of the later generations, and those end with the machines.
#[test]
fn newest_durable_generation_is_there_after_all_machines_however_far_the_store_is_behind() {
    let (mut cluster, store) = fleet(2);
    make(&cluster, "/tasks");
    let place = TaskPlace::in_cluster(&cluster.namenode.address, STATE_BYTES / 16);
    let mut runner = place.runner("first", &[], &["--keep", "1", "--lock-age", "10m"]);
    place.until_after(1, &mut runner);
    let synced = cluster.cli(&["fs", "sync", "/tasks", "--timeout", "60s"]);
    assert_eq!(synced.code, 0, "{synced}");
    let away = store.with_extension("away");
    fs::rename(&store, &away).expect("away");
    let before = place.newest();
    place.until_after(before + 3, &mut runner);
    runner.kill();
    let kept = place.generations();
    cluster.datanodes.clear();
    let _ = fs::remove_dir_all(&store);
    fs::rename(&away, &store).expect("back");
    add(&mut cluster, "next", &store);
    let (restored, _) = until("one restores", SOON, || place.try_restored().ok());
    assert!(kept.contains(&restored), "{restored} {kept:?}");
    // The next runner goes on from it, and removes what is older once the store has more.
    let mut runner = place.runner("next", &[], &["--keep", "1"]);
    place.until_after(before + 5, &mut runner);
    until("the old ones go", SOON, || (!place.generations().contains(&restored)).then_some(()));
    runner.kill();
}

/// What is newer than the newest durable generation stays while the store is away, until nothing
/// has room. When the store has it, only a removal makes room for the next one.
#[test]
fn cluster_that_is_full_of_what_waits_for_the_store_takes_checkpoints_again_when_it_is_back() {
    let (cluster, store) = fleet(1);
    make(&cluster, "/tasks");
    let place = TaskPlace::in_cluster(&cluster.namenode.address, 4 * STATE_BYTES);
    let mut runner = place.runner("first", &[], &["--keep", "1", "--lock-age", "10m"]);
    place.until_after(1, &mut runner);
    let away = store.with_extension("away");
    fs::rename(&store, &away).expect("away");
    runner.until_logged("no checkpoint", 2);
    assert!(runner.log().contains("no room for"), "{}", runner.log());
    let kept = place.newest();
    let _ = fs::remove_dir_all(&store);
    fs::rename(&away, &store).expect("back");
    place.until_after(kept, &mut runner);
    until("the old ones go", SOON, || (place.generations().len() <= 2).then_some(()));
    runner.kill();
    assert_eq!(place.verified().code, 0);
}
