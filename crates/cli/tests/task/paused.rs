//! A collection, or a runner, that is stopped between two removals, for longer than its lock is
//! waited for.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::cluster::tasks::{ELSEWHERE, TaskPlace, is_root, library};
use crate::cluster::{Killed, SOON, until};
use tempfile::TempDir;

const LOCK_AGE: [&str; 2] = ["--lock-age", "2s"];

/// The source of the library that stops a process.
const STOP: &str = include_str!("stop.c");

/// A task with generations in a directory, and a `task gc` that was stopped when it had removed the
/// oldest one. It is killed when its test is over.
struct StoppedCollection {
    process: Killed,
    directory: TempDir,
    place: TaskPlace,
    /// The generations that are left, the newest first. All but the first are to be removed.
    left: Vec<u64>,
}

impl StoppedCollection {
    /// Returns `None` where no C compiler is.
    fn new() -> Option<Self> {
        let directory = TempDir::new().expect("a directory");
        let library = library(directory.path(), STOP)?;
        let place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
        let mut runner = place.runner("first", &[], &["--keep", "4"]);
        place.until_after(3, &mut runner);
        runner.kill();
        let mut left = place.generations();
        let oldest = left.pop().expect("there are several");
        assert!(left.len() >= 2, "{left:?} {oldest}");
        let log = fs::File::create(directory.path().join("gc.log")).expect("a log");
        let mut collection = place.task("gc");
        collection.args(["--keep", "1"]).args(LOCK_AGE).env("LD_PRELOAD", library);
        collection.env("STOP_AFTER", format!("/generations/{oldest:010}"));
        let process = collection.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let stopped = Self { process: Killed(process.expect("started")), directory, place, left };
        let stat = format!("/proc/{}/stat", stopped.process.id());
        until("it is stopped", SOON, || {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
            state.starts_with('T').then_some(())
        });
        assert_eq!(stopped.place.generations(), stopped.left);
        Some(stopped)
    }

    /// Lets it go on. Returns its exit code and what it printed.
    fn finish(&mut self) -> (Option<i32>, String) {
        self.process.signal(Signal::CONT);
        let process = &mut self.process;
        let ended = until("it ends", SOON, || process.try_wait().expect("our own child"));
        let log = fs::read_to_string(self.directory.path().join("gc.log")).expect("a log");
        (ended.code(), log)
    }
}

#[test]
fn collection_that_lost_its_lock_while_it_was_stopped_removes_nothing_more() {
    if !is_root("collection_that_lost_its_lock") {
        return;
    }
    let Some(mut collection) = StoppedCollection::new() else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let flags = [&LOCK_AGE[..], &["--keep", "100"]].concat();
    let mut second = collection.place.runner("second", &ELSEWHERE, &flags);
    let newest = collection.place.until_after(collection.left[0], &mut second);
    let (code, log) = collection.finish();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("another runner of count has its lock"), "{log}");
    let newest = collection.place.until_after(newest, &mut second);
    second.kill();
    let there = collection.place.generations();
    assert!(collection.left.iter().all(|it| there.contains(it)), "{there:?}");
    let verified = collection.place.verified();
    assert_eq!(verified.code, 0, "{verified}");
    assert!(collection.place.restored().0 >= newest);
}

#[test]
fn collection_that_kept_its_lock_while_it_was_stopped_goes_on() {
    let Some(mut collection) = StoppedCollection::new() else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let stopped = Instant::now();
    until("its lock is as old as another runner waits for", SOON, || {
        (stopped.elapsed() > Duration::from_secs(2)).then_some(())
    });
    let (code, log) = collection.finish();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(collection.place.generations(), collection.left[..1]);
    assert_eq!(collection.place.restored().0, collection.left[0]);
}

/// It has taken a checkpoint, and removes what is older. The next one keeps all of that.
#[test]
fn runner_that_lost_its_lock_while_it_was_stopped_removes_nothing_more() {
    if !is_root("runner_that_lost_its_lock") {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let Some(library) = library(directory.path(), STOP) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let mut place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    let mut before = place.runner("before", &[], &["--keep", "4"]);
    place.until_after(3, &mut before);
    before.kill();
    let old = place.generations();
    let oldest = old.last().expect("there are several");
    let stop_after = PathBuf::from(format!("/generations/{oldest:010}"));
    place.variables = vec![("LD_PRELOAD", library), ("STOP_AFTER", stop_after)];
    let mut first = place.runner("first", &[], &[&LOCK_AGE[..], &["--keep", "1"]].concat());
    first.until_stopped();
    place.variables.clear();
    // One more than was there, and the oldest one less. All but the first were to be removed.
    let left = place.generations();
    assert!(left.len() >= 3 && left[0] > old[0] && !left.contains(oldest), "{left:?} {old:?}");
    let flags = [&LOCK_AGE[..], &["--keep", "100"]].concat();
    let mut second = place.runner("second", &ELSEWHERE, &flags);
    let newest = place.until_after(left[0], &mut second);
    first.resume();
    let code = until("the first one ends", SOON, || first.ended());
    let log = first.log();
    assert!(code == 1 && log.contains("another runner has taken"), "{code}: {log}");
    assert!(log.contains("old generations stay: "), "{log}");
    let newest = place.until_after(newest, &mut second);
    second.kill();
    let there = place.generations();
    assert!(left.iter().all(|it| there.contains(it)), "{left:?} {there:?}");
    let verified = place.verified();
    assert_eq!(verified.code, 0, "{verified}");
    assert!(place.restored().0 >= newest);
}
