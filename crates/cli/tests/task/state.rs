//! State directories of tasks: what may be in them, where they may lie, and what a restore leaves.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path as LocalPath;
use std::process::{Command, Stdio};

use crate::cluster::tasks::{Mounted, TaskPlace, is_root};
use crate::cluster::{Killed, SOON, run, sanderling, until};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Writes directories that their owner may not write to, a file that is almost all holes, names
/// that are no text, and links that lead nowhere and out of the directory.
const TASK: &str = r#"
import os, signal, sys, time
state = os.environ["SANDERLING_TASK_STATE"]

def save(*_):
    closed = os.path.join(state, "closed")
    if not os.path.isdir(closed):
        os.makedirs(os.path.join(closed, "below"))
        open(os.path.join(closed, "below", "file"), "w").write("in a closed directory")
        os.chmod(os.path.join(closed, "below", "file"), 0o400)
        os.chmod(os.path.join(closed, "below"), 0o500)
        os.chmod(closed, 0o500)
        with open(os.path.join(state, "holes"), "wb") as file:
            file.seek(20 << 20)
            file.write(b"end")
        for name in (b"\xff\xfe", b"two\nlines", b"-rf", b"n" * 255):
            open(os.path.join(state.encode(), name), "wb").write(name)
        os.symlink("nowhere", os.path.join(state, "nowhere"))
        os.symlink("/", os.path.join(state, "out"))
    open(os.path.join(state, "done"), "w").close()

signal.signal(signal.SIGUSR1, save)
while True:
    time.sleep(0.01)
"#;

fn assert_whole(state: &LocalPath) {
    let file = state.join("closed/below/file");
    assert_eq!(fs::read_to_string(&file).expect("readable"), "in a closed directory");
    for (name, mode) in [("closed", 0o500), ("closed/below", 0o500), ("closed/below/file", 0o400)] {
        let found = fs::metadata(state.join(name)).expect("there").permissions().mode();
        assert_eq!(found & 0o777, mode, "{name}");
    }
    let holes = fs::metadata(state.join("holes")).expect("there");
    assert_eq!(holes.len(), (20 << 20) + 3);
    assert!(holes.blocks() * 512 < 1 << 20, "the holes take {} blocks", holes.blocks());
    assert!(fs::read(state.join("holes")).expect("readable").ends_with(b"\0end"));
    assert_eq!(fs::read_link(state.join("out")).expect("a link"), LocalPath::new("/"));
    assert_eq!(fs::read_dir(state).expect("readable").count(), 8);
}

#[test]
fn state_that_its_owner_may_not_write_to_is_restored_by_its_owner() {
    let place = TempDir::new().expect("a directory");
    let path = |name: &str| place.path().join(name);
    fs::write(path("task.py"), TASK).expect("written");
    fs::copy(sanderling().get_program(), path("sanderling")).expect("copied");
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o777)).expect("set");
    // The user root may write everywhere.
    let by_owner = |program: &LocalPath| match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
            command
        }
        false => Command::new(program),
    };
    let task = |words: &[&str]| {
        let mut command = by_owner(&path("sanderling"));
        command.args(["task", words[0], "--name", "t", "--key"]);
        command.arg(path("key")).arg("--backend").arg(format!("dir:{}", path("backend").display()));
        command.args(&words[1..]);
        command
    };
    let script = path("task.py").display().to_string();
    let words = ["run", "--interval", "200ms", "--", "python3", &script];
    let published = |least: usize| {
        let found = fs::read_dir(path("backend/t/generations"));
        let names = found.into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter(|name| !name.as_encoded_bytes().starts_with(b".")).count() >= least
    };
    let runs = |least: usize| {
        let log = fs::File::create(path("log")).expect("a log");
        let mut command = task(&words);
        let mut runner = command.stdout(Stdio::null()).stderr(log).spawn().expect("started");
        let published = until("a generation", SOON, || {
            let ended = runner.try_wait().expect("our own child");
            (ended.is_some() || published(least)).then_some(ended)
        });
        let log = fs::read_to_string(path("log")).expect("readable");
        assert_eq!(published, None, "the runner ended: {log}");
        runner.kill().expect("killed");
        runner.wait().expect("waited for");
        log
    };
    runs(1);
    let to = path("to").display().to_string();
    // The second time, what the first one left is replaced.
    for _ in 0..2 {
        let restored = run(&mut task(&["restore", "--state", &to]));
        assert_eq!(restored.code, 0, "{restored}");
        assert_whole(&path("to"));
    }
    // What a restore left that was killed is removed.
    let mut copy = by_owner(LocalPath::new("cp"));
    copy.arg("-a").arg(path("to/closed")).arg(path("to/.sanderling-restoring"));
    let copied = run(&mut copy);
    assert_eq!(copied.code, 0, "{copied}");
    let restored = run(&mut task(&["restore", "--state", &to]));
    assert_eq!(restored.code, 0, "{restored}");
    assert_whole(&path("to"));
    let log = runs(2);
    assert!(log.contains("restored generation"), "{log}");
}

#[test]
fn state_directory_that_has_the_checkpoints_or_their_key_is_refused() {
    let place = TempDir::new().expect("a directory");
    let path = |name: &str| place.path().join(name);
    fs::create_dir(path("state")).expect("made");
    std::os::unix::fs::symlink(path("state"), path("link")).expect("linked");
    let task = |verb: &str, [state, backend, key]: [&str; 3]| {
        let mut command = sanderling();
        command.current_dir(place.path()).args(["task", verb, "--name", "t", "--state", state]);
        command.args(["--backend", &format!("dir:{backend}"), "--key", key]);
        if verb == "run" {
            command.args(["--", "true"]);
        }
        run(&mut command)
    };
    for (places, what) in [
        ([".", "backend", "/nowhere/key"], "the checkpoints backend"),
        (["state", "state/below/backend", "key"], "the checkpoints state/below/backend"),
        (["link", "state", "key"], "the checkpoints state"),
        (["state", "link/backend", "key"], "the checkpoints link/backend"),
        (["state", "backend", "state/key"], "the key state/key"),
        (["backend/t", "backend", "key"], "lies in the checkpoints backend"),
        (["backend/t/packs", "backend", "key"], "lies in the checkpoints backend"),
        (["backend/@render", "backend", "key"], "lies in the checkpoints backend"),
        (["backend/@render/ended", "backend", "key"], "lies in the checkpoints backend"),
    ] {
        for verb in ["run", "restore"] {
            let refused = task(verb, places);
            assert!(refused.code == 2 && refused.stderr.contains(what), "{verb}: {refused}");
        }
    }
    assert_eq!(fs::read_dir(place.path()).expect("readable").count(), 2, "nothing was made");
    let ran = task("run", ["state", "state-backend", "key"]);
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn task_that_gives_no_state_gets_no_checkpoint_and_the_next_one_succeeds() {
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    let state = directory.path().join("state");
    let flags = ["--state", state.to_str().expect("UTF-8"), "--hook-timeout", "1s"];
    let mut runner = place.runner("runner", &[], &flags);
    place.until_after(0, &mut runner);
    // A pipe is never read: that could take for ever.
    let pipe = state.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    runner.until_logged("pipe is no file, directory or link", 2);
    let newest = place.newest();
    fs::remove_file(&pipe).expect("removed");
    place.until_after(newest, &mut runner);
    // A task that stands still answers no signal.
    let task = i32::try_from(runner.task()).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(task, Signal::STOP).expect("it runs");
    runner.until_logged("did not write", 2);
    let newest = place.newest();
    kill_process(task, Signal::CONT).expect("it stands still");
    place.until_after(newest, &mut runner);
    runner.kill();
    assert_eq!(place.restored().0, place.newest());
}

/// Writes one file of 24 MB at each signal. After the first ones it writes on into it, at equal
/// length, until the test makes `calm`.
const RESTLESS: &str = r#"
import os, signal, sys, time
state, calm, is_due, number = os.environ["SANDERLING_TASK_STATE"], sys.argv[1], False, 0

def due(*_):
    global is_due
    is_due = True

def write(file):
    global number
    number += 1
    for at in range(24):
        os.pwrite(file, bytes([number % 200 + 1]) * 1_000_000, at * 1_000_000)

signal.signal(signal.SIGUSR1, due)
file = os.open(os.path.join(state, "state"), os.O_RDWR | os.O_CREAT, 0o600)
while True:
    if is_due:
        is_due = False
        write(file)
        open(os.path.join(state, "done"), "w").close()
    elif number > 0 and not os.path.exists(calm):
        write(file)
    else:
        time.sleep(0.01)
"#;

/// A task with the hook whose runner takes checkpoints all the time, in a place of its own. Its
/// argument is the file `calm` there.
struct Restless {
    place: TempDir,
    runner: Killed,
}

impl Restless {
    fn run(script: &str) -> Self {
        let place = TempDir::new().expect("a directory");
        let path = |name: &str| place.path().join(name);
        fs::write(path("task.py"), script).expect("written");
        let mut runner = Self::task(place.path(), "run");
        runner.args(["--driver", "hook", "--interval", "100ms", "--", "python3"]);
        runner.arg(path("task.py")).arg(path("calm"));
        let log = fs::File::create(path("log")).expect("a log");
        let runner = Killed(runner.stderr(log).spawn().expect("started"));
        Self { place, runner }
    }

    fn task(place: &LocalPath, verb: &str) -> Command {
        let mut command = sanderling();
        command.args(["task", verb, "--name", "t", "--key"]).arg(place.join("key"));
        command.arg("--backend").arg(format!("dir:{}", place.join("backend").display()));
        command
    }

    fn log(&self) -> String {
        fs::read_to_string(self.place.path().join("log")).expect("readable")
    }

    /// Lets the task leave its state as it is, and waits for a generation. Restores the newest one
    /// into `to`, and returns the place.
    fn calmed(self) -> TempDir {
        let Self { place, runner } = self;
        fs::write(place.path().join("calm"), "").expect("written");
        until("a generation", SOON, || {
            let log = fs::read_to_string(place.path().join("log")).expect("readable");
            log.contains("taken by the hook").then_some(())
        });
        drop(runner);
        let to = place.path().join("to");
        let restored = run(Self::task(place.path(), "restore").arg("--state").arg(to));
        assert_eq!(restored.code, 0, "{restored}");
        place
    }
}

#[test]
fn state_that_changes_at_equal_length_is_not_stored() {
    let task = Restless::run(RESTLESS);
    until("it is refused twice, or stored", SOON, || {
        let log = task.log();
        let is_refused = log.matches("state changed while it was read").count() >= 2;
        (is_refused || log.contains("generation 1: ")).then_some(())
    });
    assert!(!task.log().contains("generation "), "{}", task.log());
    let place = task.calmed();
    let state = fs::read(place.path().join("to/state")).expect("restored");
    assert!(state.len() == 24_000_000 && state.iter().all(|byte| *byte == state[0]));
}

/// Adds a file to the directory `data` and then one of its name to `index` at each signal. After
/// the first one it goes on until the test makes `calm`. No file ever changes.
const GROWING: &str = r#"
import os, signal, sys, time
state, calm, is_due, number = os.environ["SANDERLING_TASK_STATE"], sys.argv[1], False, 0

def due(*_):
    global is_due
    is_due = True

def add():
    global number
    number += 1
    for name in ("data", "index"):
        open(os.path.join(state, name, str(number)), "w").close()

for name in ("data", "index"):
    os.mkdir(os.path.join(state, name))
with open(os.path.join(state, "large"), "wb") as file:
    file.write(os.urandom(8_000_000))
signal.signal(signal.SIGUSR1, due)
while True:
    if is_due:
        is_due = False
        add()
        open(os.path.join(state, "done"), "w").close()
    elif number > 0 and not os.path.exists(calm):
        add()
    time.sleep(0.001)
"#;

#[test]
fn state_to_which_files_are_added_while_it_is_read_is_not_stored() {
    let task = Restless::run(GROWING);
    until("it is refused", SOON, || task.log().contains("changed while it was read").then_some(()));
    let place = task.calmed();
    let names = |directory: &str| {
        let entries = fs::read_dir(place.path().join("to").join(directory)).expect("restored");
        entries.map(|entry| entry.expect("readable").file_name()).collect::<BTreeSet<_>>()
    };
    let (data, index) = (names("data"), names("index"));
    assert!(!index.is_empty() && index.is_subset(&data), "{index:?} of {data:?}");
}

/// As the guide has it. The first state cannot be written.
const FAILING: &str = r#"
n=0
save() {
    n=$((n + 1))
    [ "$n" -gt 1 ] && echo "$n" > "$SANDERLING_TASK_STATE/n" && touch "$SANDERLING_TASK_STATE/done"
}
trap 'save || ln -s failed "$SANDERLING_TASK_STATE/done"' USR1
while :; do sleep 0.01; done
"#;

/// The runner waits for no answer to the first signal when the notice comes.
#[test]
fn task_that_reports_a_failed_write_gets_the_next_signal_at_a_notice() {
    let place = TempDir::new().expect("a directory");
    let path = |name: &str| place.path().join(name);
    let mut runner = Restless::task(place.path(), "run");
    runner.args(["--driver", "hook", "--interval", "5s", "--hook-timeout", "1h"]);
    runner.args(["--on-notice", "--notice-deadline", "50s", "--", "sh", "-c", FAILING]);
    let log = fs::File::create(path("log")).expect("a log");
    let runner = runner.stdout(Stdio::null()).stderr(log).spawn();
    let mut runner = Killed(runner.expect("started"));
    let log = || fs::read_to_string(path("log")).expect("readable");
    until("the failed write is printed", SOON, || {
        log().contains("the task could not write its state").then_some(())
    });
    runner.signal(Signal::TERM);
    let ended = until("the runner ends", SOON, || runner.0.try_wait().expect("our own child"));
    assert_eq!(ended.code(), Some(130), "{}", log());
    assert!(log().contains("notice from SIGTERM"), "{}", log());
    let restored = run(Restless::task(place.path(), "restore").arg("--state").arg(path("to")));
    assert_eq!(restored.code, 0, "{restored}");
    let count = fs::read_to_string(path("to/n")).expect("restored");
    assert!(count.trim().parse::<u32>().is_ok_and(|count| count >= 2), "{count}");
}

#[test]
fn restore_over_a_directory_with_a_mount_below_it_leaves_what_was_there() {
    if !is_root("restore_over_a_directory_with_a_mount") {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(&directory.path().join("backend"), 0);
    let mut runner = place.runner("runner", &[], &[]);
    place.until_after(0, &mut runner);
    runner.kill();
    let to = place.path("restored");
    for point in ["mounted", "m/below/mounted"] {
        fs::create_dir_all(&to).expect("made");
        let names = ["a", "b", "y", "z"];
        for name in names {
            fs::write(to.join(name), name).expect("written");
        }
        let mounted = Mounted::memory(&to.join(point), "size=1m");
        let file = to.join(point).join("file");
        fs::write(&file, "file").expect("written");
        let before = fs::read_dir(&to).expect("readable").count();
        let restored = run(place.task("restore").arg("--state").arg(&to));
        assert_ne!(restored.code, 0, "{point}: {restored}");
        for name in names {
            assert_eq!(fs::read_to_string(to.join(name)).expect("it is there"), name);
        }
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "file");
        assert_eq!(fs::read_dir(&to).expect("readable").count(), before, "{point}");
        drop(mounted);
        place.restored();
    }
    // A file is no directory whose entries show that something is mounted there.
    let (from, point) = (place.path("bound"), to.join("m/file"));
    fs::write(&from, "bound").expect("written");
    fs::create_dir_all(to.join("m")).expect("made");
    fs::write(&point, "").expect("written");
    let mounted = Mounted::bound(&from, &point);
    let restored = run(place.task("restore").arg("--state").arg(&to));
    assert_ne!(restored.code, 0, "{restored}");
    assert_eq!(fs::read_to_string(&point).expect("it is there"), "bound");
    drop(mounted);
}
