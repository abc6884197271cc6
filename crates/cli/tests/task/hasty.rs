//! Tasks whose runner is in haste, dies at once, or is watched while it works.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::cluster::tasks::{SmallDisk, TaskPlace, is_root, library};
use crate::cluster::{SOON, run, sanderling, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Writes one number into two files, the second one much later, at each signal.
const SLOW: &str = r#"
import os, signal, time
state, is_due, number = os.environ["SANDERLING_TASK_STATE"], False, 0

def due(*_):
    global is_due
    is_due = True

signal.signal(signal.SIGUSR1, due)
while True:
    if not is_due:
        time.sleep(0.01)
    else:
        is_due, number = False, number + 1
        for name in ("first", "second"):
            with open(os.path.join(state, name), "w") as file:
                file.write(f"{number:08}")
            time.sleep(0.7)
        open(os.path.join(state, "done"), "w").close()
"#;

/// The task creates `done` for the first signal. A second one would let it write again meanwhile.
#[test]
fn task_that_writes_longer_than_it_may_gets_no_second_signal_meanwhile() {
    let place = TempDir::new().expect("a directory");
    let path = |name: &str| place.path().join(name);
    std::fs::write(path("slow.py"), SLOW).expect("written");
    let task = |verb: &str| {
        let mut command = sanderling();
        command.args(["task", verb, "--name", "slow", "--key"]).arg(path("key"));
        command.arg("--backend").arg(format!("dir:{}", path("backend").display()));
        command
    };
    let mut runner = task("run");
    runner.args(["--hook-timeout", "1s", "--interval", "100ms", "--", "python3"]);
    let runner = runner.arg(path("slow.py")).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut runner = runner.expect("started");
    let newest = || -> Option<PathBuf> {
        let entries = std::fs::read_dir(path("backend/slow/generations")).ok()?.flatten();
        let whole = entries.filter(|it| !it.file_name().as_encoded_bytes().starts_with(b"."));
        whole.map(|entry| entry.path()).max()
    };
    let mut before = None;
    for _ in 0..3 {
        until("a later generation", SOON, || newest().filter(|it| Some(it) > before.as_ref()));
        before = newest();
        let restored = run(task("restore").arg("--state").arg(path("restored")));
        assert_eq!(restored.code, 0, "{restored}");
        let read = |name: &str| std::fs::read_to_string(path("restored").join(name));
        let (first, second) = (read("first").expect("there"), read("second").expect("there"));
        assert_eq!(first, second, "a state of two times");
    }
    runner.kill().expect("our own child");
    runner.wait().expect("our own child");
}

#[test]
fn command_does_not_start_after_its_runner_has_died() {
    let place = TempDir::new().expect("a directory");
    let path = |name: &str| place.path().join(name);
    // A slow machine: the process that is to become the command takes its time.
    let program = sanderling().get_program().to_owned();
    let go = format!("while [ ! -e {} ]; do sleep 0.01; done", path("go").display());
    let script = format!(
        "#!/bin/sh\necho $$ > {}\n{go}\nexec {} \"$@\"\n",
        path("pid").display(),
        program.display()
    );
    std::fs::write(path("slow"), script).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path("slow"), mode).expect("set");
    let mut runner = sanderling();
    runner.env("SANDERLING_EXE", path("slow"));
    runner.args(["task", "run", "--name", "t", "--driver", "hook", "--key"]).arg(path("key"));
    runner.arg("--backend").arg(format!("dir:{}", path("backend").display()));
    runner.args(["--", "touch"]).arg(path("started")).stderr(Stdio::null());
    let mut runner = runner.spawn().expect("started");
    let pid = until("the child is there", SOON, || {
        std::fs::read_to_string(path("pid")).ok()?.trim().parse::<u32>().ok()
    });
    runner.kill().expect("our own child");
    runner.wait().expect("our own child");
    std::fs::write(path("go"), "").expect("written");
    let is_there = || std::path::Path::new(&format!("/proc/{pid}/exe")).exists();
    until("the child has ended", SOON, || (!is_there()).then_some(()));
    assert!(!path("started").exists(), "the command runs without a runner");
}

/// A runner publishes and removes generations while others read them.
#[test]
fn generations_of_a_runner_at_work_are_good_or_absent() {
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(directory.path(), 5_000_000);
    let mut runner = place.runner("runner", &[], &["--keep", "3"]);
    place.until_after(2, &mut runner);
    for _ in 0..8 {
        let verified = place.verified();
        assert_eq!(verified.code, 0, "{verified}");
    }
    runner.kill();
}

/// A restore has looked which generations there are, and is stopped before it reads one. Meanwhile
/// the runner replaces all of them.
#[test]
fn restore_before_which_a_runner_replaces_each_generation_looks_again() {
    let directory = TempDir::new().expect("a directory");
    let Some(library) = library(directory.path(), include_str!("stop.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let backend = directory.path().join("backend");
    let place = TaskPlace::in_directory(&backend, 10_000);
    let mut first = place.runner("first", &[], &["--keep", "1"]);
    let before = place.until_after(0, &mut first);
    first.kill();
    let before = before.max(place.newest());
    let packs = std::fs::read_dir(backend.join("count/packs")).expect("packs").flatten();
    let old: Vec<PathBuf> = packs.map(|entry| entry.path()).collect();
    assert!(!old.is_empty(), "the generation has a pack");
    // What an earlier restore left is removed after the look, and before the read.
    let (to, left) = (place.path("restored"), ".sanderling-restoring-left");
    std::fs::create_dir(&to).expect("made");
    std::fs::write(to.join(left), "").expect("written");
    let mut restore = place.task("restore");
    restore.arg("--json").arg("--state").arg(&to).env("LD_PRELOAD", library);
    restore.env("STOP_AFTER", format!("/{left}")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let restore = StoppedRestore(Some(restore.spawn().expect("started")));
    restore.until_stopped();
    let mut second = place.runner("second", &[], &["--keep", "1"]);
    place.until_after(before, &mut second);
    until("the old packs are removed", SOON, || {
        assert_eq!(second.ended(), None, "the runner ended: {}", second.log());
        old.iter().all(|pack| !pack.exists()).then_some(())
    });
    second.kill();
    let (code, printed, log) = restore.finish();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("is refused"), "a generation that was replaced is not bad: {log}");
    let newest = place.newest();
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(printed["restored"], newest, "{printed}");
    assert_eq!(place.restored().0, newest);
}

/// A restore that stops itself. It is killed when its test is over.
struct StoppedRestore(Option<Child>);

impl StoppedRestore {
    fn until_stopped(&self) {
        let stat = format!("/proc/{}/stat", self.0.as_ref().expect("it runs").id());
        until("it is stopped", SOON, || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
            state.starts_with('T').then_some(())
        });
    }

    /// Lets it go on, to its end. Returns its exit code, and what it printed to each output.
    fn finish(mut self) -> (Option<i32>, String, String) {
        let child = self.0.as_mut().expect("it runs");
        kill_process(Pid::from_child(child), Signal::CONT).expect("it is there");
        until("it ends", SOON, || child.try_wait().expect("our own child"));
        let output = self.0.take().expect("it has ended").wait_with_output().expect("read");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }
}

impl Drop for StoppedRestore {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The kernel takes the signal of the parent's death from a process that changes its user.
#[test]
fn command_that_changes_its_user_ends_with_its_killed_runner() {
    if !is_root("command_that_changes_its_user") {
        return;
    }
    let place = TempDir::new().expect("a directory");
    let path = |name: &str| place.path().join(name);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place.path(), mode).expect("set");
    // It ends at last, also where nothing ends it.
    let script = format!("echo $$ > {}; exec sleep 60", path("pid").display());
    let mut runner = sanderling();
    runner.args(["task", "run", "--name", "t", "--driver", "hook", "--key"]).arg(path("key"));
    runner.arg("--backend").arg(format!("dir:{}", path("backend").display()));
    runner.args(["--", "setpriv", "--reuid", "65534", "--clear-groups", "sh", "-c", &script]);
    let mut runner = runner.stderr(Stdio::null()).spawn().expect("started");
    let pid = until("the command runs", SOON, || {
        std::fs::read_to_string(path("pid")).ok()?.trim().parse::<u32>().ok()
    });
    // The arguments are empty for a moment while the shell becomes another program.
    let is_there = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
    };
    assert!(is_there());
    runner.kill().expect("our own child");
    runner.wait().expect("our own child");
    until("the command has ended", SOON, || (!is_there()).then_some(()));
}

#[test]
fn task_that_no_driver_can_dump_is_noted_once() {
    let place = TempDir::new().expect("a directory");
    let task = |flags: &[&str], seconds: &str| {
        let mut command = sanderling();
        command.current_dir(place.path());
        command.args(["task", "run", "--name", "t", "--driver", "hook", "--key", "key"]);
        command.args(["--backend", "dir:backend"]).args(flags).args(["--", "sleep", seconds]);
        let ran = run(&mut command);
        assert_eq!(ran.code, 0, "{ran}");
        ran.stderr.matches("checkpoints wait until the task handles SIGUSR1").count()
    };
    // On a busy machine it is seen some seconds late.
    assert_eq!(task(&["--interval", "100ms"], "10"), 1);
    // No checkpoint was due.
    assert_eq!(task(&["--interval", "1h"], "1.5"), 0);
}

/// The rates for a forecast are measured with 64 MiB.
#[test]
fn backend_with_little_room_is_not_measured_and_the_task_starts() {
    if !is_root("backend_with_little_room") {
        return;
    }
    let disk = SmallDisk::of(10);
    let place = TaskPlace::in_directory(disk.path(), 10_000);
    let mut runner = place.runner("runner", &[], &["--on-notice"]);
    place.until_after(0, &mut runner);
    let log = runner.log();
    assert!(log.contains("the backend is not measured") && log.contains("No space left"), "{log}");
    runner.terminate();
    until("it ends", SOON, || runner.ended());
    assert!(runner.log().contains("it is taken now"), "{}", runner.log());
    assert_eq!(place.verified().code, 0);
    let about = rustix::fs::statvfs(disk.path()).expect("mounted");
    assert!(about.f_bavail * about.f_frsize > 9 << 20, "what was measured stays");
}
