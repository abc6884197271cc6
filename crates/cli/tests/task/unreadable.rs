//! Manifests that can be listed, and not be read for a while: no generation is taken for bad, and
//! no older one is restored.

use std::fs;
use std::path::PathBuf;

use crate::bag::Place;
use crate::cluster::tasks::{TaskPlace, library};
use crate::cluster::{SOON, run, until};
use tempfile::TempDir;

/// The source of the library that lets opens of files fail.
const FAIL: &str = include_str!("fail_reads.c");

#[test]
fn manifest_that_cannot_be_read_for_a_while_costs_no_generation() {
    let directory = TempDir::new().expect("a directory");
    let Some(library) = library(directory.path(), FAIL) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    let mut runner = place.runner("publish", &[], &["--keep", "3"]);
    place.until_after(2, &mut runner);
    runner.kill();
    let before = place.generations();
    assert!(before.len() >= 2, "an older one could be restored: {before:?}");
    let condition = directory.path().join("fails");
    fs::write(&condition, "").expect("written");
    let generations = "/count/generations";
    let manifest = format!("{generations}/{:010}", before[0]);
    let (to, started) = (place.path("to"), place.path("started"));
    // Neither opened, nor looked at while its directory is listed.
    for (fault, named) in [("FAIL_BELOW", manifest.as_str()), ("FAIL_LOOK", generations)] {
        let mut restore = place.task("restore");
        restore.arg("--state").arg(&to);
        let mut start = place.task("run");
        start.args(["--", "touch"]).arg(&started);
        let mut collection = place.task("gc");
        collection.args(["--keep", "1"]);
        for mut command in [restore, start, collection, place.task("verify")] {
            command.env("LD_PRELOAD", &library).env("FAIL_IF", &condition).env(fault, &manifest);
            let ran = run(&mut command);
            assert!(ran.code == 1 && ran.stderr.contains("Input/output error"), "{ran}");
            assert!(ran.stderr.contains(named), "it names what failed: {ran}");
            assert!(!ran.stderr.contains("restored generation"), "{ran}");
            assert!(!ran.stderr.contains("is refused"), "no generation is bad: {ran}");
        }
    }
    assert!(!started.exists(), "the task began anew");
    assert_eq!(place.generations(), before, "something was removed");
    fs::remove_file(&condition).expect("it was made");
    assert_eq!(place.restored().0, before[0]);
    let verified = place.verified();
    assert_eq!(verified.code, 0, "{verified}");
}

/// Files of other programs are no tasks.
#[test]
fn task_that_cannot_be_listed_is_named_and_hides_no_other_one() {
    let directory = TempDir::new().expect("a directory");
    let Some(library) = library(directory.path(), FAIL) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let backend = directory.path().join("backend");
    let place = TaskPlace::in_directory(&backend, 10_000);
    let mut runner = place.runner("publish", &[], &[]);
    place.until_after(0, &mut runner);
    runner.kill();
    for below in ["other/generations", "other/packs"] {
        fs::create_dir_all(backend.join(below)).expect("made");
    }
    fs::write(backend.join("other/generations/0000000007"), "").expect("written");
    fs::write(backend.join("readme"), "of another program").expect("written");
    let condition = directory.path().join("fails");
    fs::write(&condition, "").expect("written");
    let listed = |fails: &str| {
        let mut list = place.task("ls");
        list.env("LD_PRELOAD", &library).env("FAIL_IF", &condition).env("FAIL_LOOK", fails);
        run(&mut list)
    };
    let whole = listed("/nowhere/");
    assert_eq!(whole.code, 0, "{whole}");
    assert!(whole.stdout.contains("count") && whole.stdout.contains("other"), "{whole}");
    assert!(!whole.stdout.contains("readme") && !whole.stderr.contains("readme"), "{whole}");
    for directory in ["/count/generations", "/count/packs"] {
        let part = listed(&format!("{directory}/"));
        assert!(part.code == 5 && part.stderr.contains("1 task cannot be read"), "{part}");
        let named = format!("{directory}: Input/output error");
        assert!(part.stderr.contains(&named), "{part}");
        assert!(part.stdout.contains("other") && !part.stdout.contains("count"), "{part}");
    }
}

/// Returns how many tasks have a record of their end.
fn ended(place: &Place) -> usize {
    let names = ["000001", "000002"].map(|name| place.path("backend/@bag/ended").join(name));
    names.iter().filter(|name| name.exists()).count()
}

/// The key fits another task of the bag, so that it cannot be the reason.
#[test]
fn task_of_a_bag_whose_manifests_cannot_be_read_for_a_while_has_not_failed() {
    let mut place = Place::new();
    let Some(library) = library(&place.path(""), FAIL) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    place.two_checkpoints();
    let condition = place.path("fails");
    fs::write(&condition, "").expect("written");
    let below = "/bag.000001/generations/";
    place.variables = vec![
        ("LD_PRELOAD", library),
        ("FAIL_IF", condition.clone()),
        ("FAIL_BELOW", PathBuf::from(below)),
    ];
    let mut second = place.agent("spot", &["--at-once", "2", "--retries", "0"]);
    // An agent prints how a run has ended after it has recorded that.
    until("a manifest cannot be read", SOON, || {
        let log = fs::read_to_string(place.path("agents.log")).unwrap_or_default();
        let mut lines = log.lines();
        lines.any(|line| line.contains(below) && line.contains("Input/output")).then_some(())
    });
    assert_eq!(ended(&place), 0);
    fs::remove_file(&condition).expect("it is there");
    place.release();
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["failed"]), (0, &0.into()), "{view}");
    for task in 0..2_usize {
        assert_eq!(view["tasks"][task]["failures"], 0, "{view}");
    }
    assert!(second.wait().expect("waited for").success());
    let lines = place.lines();
    let ends = lines.iter().filter(|line| line.word == "end");
    assert!(ends.clone().count() == 2 && ends.clone().all(|it| it.is_restored), "{lines:?}");
}
