//! State directories that several commands are given at once, and restores that do not end.

use std::fs;
use std::path::Path as LocalPath;
use std::process::Stdio;

use crate::cluster::tasks::{SmallDisk, TaskPlace, is_root};
use crate::cluster::{Killed, Ran, SOON, run, until};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Enough to meet a restore before its end.
const STATE_BYTES: usize = 20_000_000;

fn assert_taken(ran: &Ran) {
    let is_named = ran.stderr.contains("uses the state directory");
    assert!(ran.code == 4 && is_named && ran.stderr.contains("another --state DIR"), "{ran}");
}

fn published(backend: &LocalPath, bytes: usize) -> TaskPlace {
    let place = TaskPlace::in_directory(backend, bytes);
    let mut runner = place.runner("publish", &[], &[]);
    place.until_after(0, &mut runner);
    runner.kill();
    place
}

/// Restores, as a child that is killed in the end.
struct Restoring(Killed);

impl Restoring {
    /// Begins a restore and stops it while it unpacks. One that is too fast is begun again.
    fn stopped(place: &TaskPlace, state: &LocalPath) -> Self {
        until("a restore is stopped", SOON, || {
            let mut restore = place.task("restore");
            restore.arg("--state").arg(state).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = Self(Killed(restore.spawn().expect("started")));
            while unpacked(state) == 0 && !child.0.has_ended() {}
            child.signal(Signal::STOP);
            (unpacked(state) > 0).then_some(child)
        })
    }

    fn signal(&self, signal: Signal) {
        // It may have ended.
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }
}

/// Returns how many states are being unpacked, or were until the restore ended.
fn unpacked(state: &LocalPath) -> usize {
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    names.filter(|name| name.as_encoded_bytes().starts_with(b".sanderling-restoring")).count()
}

#[test]
fn state_directory_of_a_runner_is_refused_to_others() {
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    let state = place.path("state");
    let flags = ["--state", state.to_str().expect("UTF-8")];
    let mut runner = place.runner("runner", &[], &flags);
    place.until_after(0, &mut runner);
    fs::write(state.join("later"), "than the checkpoint").expect("written");
    assert_taken(&run(place.task("restore").args(flags)));
    // A task of another name.
    let other = TaskPlace::in_directory(&directory.path().join("other"), 10_000);
    let refused = run(other.task("run").args(flags).args(["--", "true"]));
    assert_taken(&refused);
    assert!(state.join("later").exists(), "the runner's state was replaced");
    place.until_after(place.newest(), &mut runner);
    runner.kill();
    let restored = run(place.task("restore").args(flags));
    assert_eq!(restored.code, 0, "{restored}");
}

#[test]
fn what_has_the_name_of_an_unpacked_state_is_left_out_and_named_once() {
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    let state = place.path("state");
    fs::create_dir(&state).expect("made");
    fs::write(state.join(".sanderling-restoring-mine"), "x").expect("written");
    let flags = ["--state", state.to_str().expect("UTF-8")];
    let mut runner = place.runner("runner", &[], &flags);
    place.until_after(1, &mut runner);
    let named = ".sanderling-restoring-mine is left out of checkpoints";
    assert_eq!(runner.log().matches(named).count(), 1, "{}", runner.log());
    runner.kill();
    place.restored();
    assert!(!place.path("restored/.sanderling-restoring-mine").exists());
}

#[test]
fn restore_into_a_directory_that_is_restored_is_refused() {
    let directory = TempDir::new().expect("a directory");
    let place = published(&directory.path().join("backend"), STATE_BYTES);
    let state = place.path("restored");
    let mut first = Restoring::stopped(&place, &state);
    assert_taken(&run(place.task("restore").arg("--state").arg(&state)));
    first.signal(Signal::CONT);
    assert!(first.0.wait().expect("our own child").success());
    assert_eq!((unpacked(&state), fs::read_dir(&state).expect("there").count()), (0, 2));
    assert_eq!(place.restored().0, place.newest());
}

#[test]
fn next_restore_removes_what_a_killed_one_left() {
    let directory = TempDir::new().expect("a directory");
    let place = published(&directory.path().join("backend"), STATE_BYTES);
    let state = place.path("restored");
    drop(Restoring::stopped(&place, &state));
    assert_eq!(unpacked(&state), 1, "what this test is about");
    assert_eq!(place.restored().0, place.newest());
    assert_eq!((unpacked(&state), fs::read_dir(&state).expect("there").count()), (0, 2));
}

#[test]
fn restore_without_room_leaves_what_was_there_and_nothing_else() {
    if !is_root("restore_without_room") {
        return;
    }
    let (directory, disk) = (TempDir::new().expect("a directory"), SmallDisk::of(4));
    let place = published(&directory.path().join("backend"), STATE_BYTES);
    let state = disk.path().join("state");
    fs::create_dir(&state).expect("made");
    fs::write(state.join("old"), "old").expect("there is room");
    let refused = run(place.task("restore").arg("--state").arg(&state));
    assert!(refused.code != 0 && refused.stderr.contains("No space left"), "{refused}");
    assert_eq!(fs::read(state.join("old")).expect("there"), b"old");
    until("the room is free again", SOON, || (unpacked(&state) == 0).then_some(()));
    assert_eq!(fs::read_dir(&state).expect("there").count(), 1);
}
