//! What killed runners leave, what a backend has that no runner wrote, and what it shows.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path as LocalPath, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::cluster::tasks::{Mounted, SmallDisk, TaskPlace, is_root, library};
use crate::cluster::{Ran, SOON, run, sanderling, until};
use rustix::fs::{FlockOperation, flock};
use sanderling_core::checkpoint::MANIFEST_BYTES_MAX;
use tempfile::TempDir;

/// Makes a file that was written to two hours ago.
fn old(path: &LocalPath) -> File {
    let file = File::create(path).expect("made");
    let then = SystemTime::now() - Duration::from_secs(7200);
    file.set_times(fs::FileTimes::new().set_modified(then)).expect("set");
    file
}

/// Publishes a generation of the counter, and kills its runner.
fn publish(place: &TaskPlace) -> u64 {
    let mut runner = place.runner("publish", &[], &[]);
    place.until_after(0, &mut runner);
    runner.kill();
    place.newest()
}

/// Starts a command in place of the counter, which ends at once.
fn again(place: &TaskPlace) -> Ran {
    run(place.task("run").args(["--driver", "hook", "--", "true"]))
}

/// Returns the name of an object by which a process looks whether it can write, as it draws one.
fn check() -> String {
    format!("check-{}", "a".repeat(32))
}

/// Returns the name of a draft in a directory, as a writer draws one: with 32 digits.
fn draft(directory: &str, digit: &str) -> String {
    format!("{directory}.{}", digit.repeat(32))
}

#[test]
fn drafts_of_killed_writers_are_removed_and_those_at_work_stay() {
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(directory.path(), 10_000);
    publish(&place);
    let task = |name: &str| directory.path().join("count").join(name);
    let left = ["locks/", "packs/", "generations/"].map(|name| task(&draft(name, "a")));
    let left = [&left[..], &[task(&format!("locks/{}", check()))]].concat();
    let (young, locked) = (task(&draft("locks/", "b")), task(&draft("locks/", "c")));
    for path in &left {
        drop(old(path));
    }
    File::create(&young).expect("made");
    let writer = old(&locked);
    flock(&writer, FlockOperation::NonBlockingLockExclusive).expect("locked");
    let ran = again(&place);
    assert_eq!(ran.code, 0, "{ran}");
    for path in &left {
        assert!(!path.exists(), "{} stays", path.display());
    }
    assert!(young.exists() && locked.exists(), "a draft of a writer at work is removed");
}

#[test]
fn files_of_other_programs_whose_names_begin_with_a_dot_stay() {
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(directory.path(), 10_000);
    publish(&place);
    let digits = "0".repeat(32);
    let mut foreign = Vec::new();
    for below in ["locks", "packs", "generations"] {
        for name in [".keep", "check-list", &format!(".{digits}0"), &format!(".{digits}.swp")] {
            foreign.push(directory.path().join("count").join(below).join(name));
        }
    }
    for path in &foreign {
        drop(old(path));
    }
    let collected = run(place.task("gc").args(["--keep", "1"]));
    let ran = again(&place);
    assert!(collected.code == 0 && ran.code == 0, "{collected} {ran}");
    for path in &foreign {
        assert!(path.exists(), "{} is removed", path.display());
    }
}

/// A link leads from where a task has its packs, for example, to a directory of another program.
#[test]
fn directory_of_a_task_that_is_a_link_is_refused_and_nothing_is_removed_behind_it() {
    for name in ["locks", "packs", "generations"] {
        let directory = TempDir::new().expect("a directory");
        let place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
        publish(&place);
        let (own, foreign) =
            (directory.path().join("backend/count").join(name), directory.path().join("foreign"));
        fs::rename(&own, &foreign).expect("renamed");
        std::os::unix::fs::symlink(&foreign, &own).expect("linked");
        for file in [".bashrc", &draft("", "a"), &check(), "0000000000"] {
            drop(old(&foreign.join(file)));
        }
        let there = || {
            let entries = fs::read_dir(&foreign).expect("readable").flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
            names.sort();
            names
        };
        let before = there();
        let mut restore = place.task("restore");
        restore.arg("--state").arg(place.path("to"));
        let mut collection = place.task("gc");
        collection.args(["--keep", "1"]);
        let mut start = place.task("run");
        start.args(["--driver", "hook", "--", "true"]);
        for mut command in [start, collection, restore, place.task("verify")] {
            let ran = run(&mut command);
            assert_eq!(ran.code, 1, "{name}: {ran}");
            let refused = format!("{}: it is a symbolic link", own.display());
            assert!(ran.stderr.contains(&refused), "{name}: {ran}");
            assert_eq!(there(), before, "{name}: {ran}");
        }
    }
}

/// A bag of one task in a directory.
struct Bag(TempDir);

impl Bag {
    fn new() -> Self {
        let bag = Self(TempDir::new().expect("a directory"));
        bag.submitted();
        bag
    }

    fn submission(&self) -> Command {
        let words = ["submit", "--count", "1", "--time", "1s", "--deadline", "10m", "--"];
        let mut command = self.task(&words);
        command.arg("touch").arg(self.path("ran"));
        command
    }

    fn submitted(&self) {
        let submitted = run(&mut self.submission());
        assert_eq!(submitted.code, 0, "{submitted}");
    }

    /// Returns the objects by which submissions looked whether they can write, and which are left.
    fn checks(&self) -> Vec<PathBuf> {
        let agents = fs::read_dir(self.object("agents")).into_iter().flatten().flatten();
        let is_check = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("check-"))
        };
        agents.map(|entry| entry.path()).filter(is_check).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn task(&self, words: &[&str]) -> Command {
        let mut command = sanderling();
        command.args(["task", words[0], "--bag", "bag", "--backend"]);
        command.arg(format!("dir:{}", self.path("backend").display())).args(&words[1..]);
        command
    }

    fn agent(&self) -> Ran {
        run(self.task(&["agent", "--market", "spot", "--key"]).arg(self.path("key")))
    }

    fn shown(&self) -> Ran {
        run(&mut self.task(&["bag", "--json"]))
    }

    fn object(&self, name: &str) -> PathBuf {
        self.path("backend/@bag").join(name)
    }
}

#[test]
fn drafts_in_a_bag_are_removed_and_those_at_work_stay() {
    let bag = Bag::new();
    let left = ["", "ended/", "progress/", "agents/"].map(|name| draft(name, "a"));
    for name in &left {
        drop(old(&bag.object(name)));
    }
    let (young, locked) = (draft("agents/", "b"), draft("ended/", "c"));
    File::create(bag.object(&young)).expect("made");
    let writer = old(&bag.object(&locked));
    flock(&writer, FlockOperation::NonBlockingLockExclusive).expect("locked");
    let foreign = [".keep", "ended/.keep", "progress/.keep", "agents/.keep"];
    for name in foreign {
        drop(old(&bag.object(name)));
    }
    let ran = bag.agent();
    assert_eq!(ran.code, 0, "{ran}");
    for name in &left {
        assert!(!bag.object(name).exists(), "{name} stays");
    }
    for name in [&*young, &*locked].into_iter().chain(foreign) {
        assert!(bag.object(name).exists(), "{name}, of a writer at work or foreign, is removed");
    }
}

#[test]
fn directory_of_a_bag_that_is_a_link_is_refused_and_nothing_is_removed_behind_it() {
    for name in ["ended", "progress", "agents"] {
        let bag = Bag::new();
        let foreign = bag.path("foreign");
        fs::rename(bag.object(name), &foreign).expect("renamed");
        std::os::unix::fs::symlink(&foreign, bag.object(name)).expect("linked");
        let left = [draft("", "a"), check()].map(|name| foreign.join(name));
        left.iter().for_each(|path| drop(old(path)));
        let ran = bag.agent();
        let refused = format!("{}: it is a symbolic link", bag.object(name).display());
        assert!(ran.code == 1 && ran.stderr.contains(&refused), "{name}: {ran}");
        assert!(left.iter().all(|path| path.exists()), "{name}: {ran}");
        assert!(!bag.path("ran").exists(), "{name}: {ran}");
    }
}

/// Kills a submission when it has written the object by which it looks whether it can write.
fn kill_in_its_check(bag: &Bag, library: &LocalPath) {
    let mut submission = bag.submission();
    submission.env("LD_PRELOAD", library).env("STOP_LINKED", "/agents/check-");
    let submission = submission.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut submission = submission.expect("started");
    let stat = format!("/proc/{}/stat", submission.id());
    until("it is stopped", SOON, || {
        assert_eq!(submission.try_wait().expect("our own child"), None, "it ended");
        let stat = fs::read_to_string(&stat).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')).then_some(())
    });
    submission.kill().expect("our own child");
    submission.wait().expect("our own child");
}

/// The next submission of the bag and its agents remove it when no submission can be at work.
#[test]
fn check_of_a_killed_submission_is_removed_when_it_is_old() {
    let directory = TempDir::new().expect("a directory");
    let Some(library) = library(directory.path(), include_str!("stop.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    for is_by_agent in [false, true] {
        let bag = Bag(TempDir::new().expect("a directory"));
        kill_in_its_check(&bag, &library);
        let left = bag.checks();
        assert_eq!(left.len(), 1, "{left:?}");
        if is_by_agent {
            bag.submitted();
            assert_eq!(bag.checks(), left, "it may be of a submission at work");
        }
        drop(old(&left[0]));
        match is_by_agent {
            false => bag.submitted(),
            true => {
                let ran = bag.agent();
                assert!(ran.code == 0 && !ran.stderr.contains("no agent writes"), "{ran}");
            }
        }
        assert_eq!(bag.checks(), Vec::<PathBuf>::new());
    }
}

#[test]
fn objects_that_no_agent_writes_are_named_and_passed_over() {
    let bag = Bag::new();
    let strange = [
        "ended/999999",
        "ended/1",
        "ended/000000",
        "ended/+00001",
        "ended/readme",
        "progress/999999",
        "progress/000001.old",
        "agents/readme",
    ];
    for name in strange {
        fs::write(bag.object(name), "strange").expect("written");
    }
    // An agent's record that is none.
    fs::write(bag.object("agents/0123456789abcdef"), "strange").expect("written");
    let before = bag.shown();
    assert!(before.code == 0 && before.stdout.contains(r#""ended":0"#), "{before}");
    let ran = bag.agent();
    assert!(ran.code == 0 && bag.path("ran").exists(), "the task did not run: {ran}");
    let after = bag.shown();
    assert!(after.code == 0 && after.stdout.contains(r#""ended":1"#), "{after}");
    for name in strange {
        let sentence = format!("no agent writes {name}, and it is passed over");
        assert!(
            ran.stderr.contains(&sentence) && after.stderr.contains(&sentence),
            "{name}: {ran}"
        );
    }
    assert!(after.stderr.contains("agents/0123456789abcdef"), "{after}");
}

#[test]
fn objects_that_no_runner_writes_are_named_and_passed_over() {
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(directory.path(), 10_000);
    let newest = publish(&place);
    let strange = [
        "locks/readme",
        "locks/99",
        "locks/+000000099",
        "locks/99999999999999999999999",
        "generations/99",
        "generations/readme",
        "generations/0000000001.old",
        "packs/readme",
    ];
    for name in strange {
        fs::write(directory.path().join("count").join(name), "strange").expect("written");
    }
    let restored = run(place.task("restore").arg("--state").arg(place.path("to")));
    let ran = again(&place);
    assert!(restored.code == 0 && ran.code == 0, "{restored} {ran}");
    assert!(ran.stderr.contains(&format!("restored generation {newest}")), "{ran}");
    for name in strange {
        let sentence = format!("no runner writes {name}, and it is passed over");
        assert!(ran.stderr.contains(&sentence), "{name}: {ran}");
    }
    for name in &strange[4..] {
        assert!(restored.stderr.contains(name), "{name}: {restored}");
    }
    assert!(!ran.stderr.contains("is refused"), "{ran}");
    assert_eq!(place.verified().code, 0);
}

/// Restores with a limit of memory, so that what is read whole cannot take all of this machine's.
fn restored_in_4_gib(place: &TaskPlace) -> Ran {
    let restore = place.task("restore");
    let mut limited = Command::new("prlimit");
    limited.arg("--as=4294967296").arg(restore.get_program()).args(restore.get_args());
    run(limited.arg("--state").arg(place.path("to")))
}

/// A backend that is damaged or not trusted has an object of 64 GiB for a manifest. Without a limit
/// it would be read into memory, of which this command gets 4 GiB.
#[test]
fn manifest_that_is_longer_than_any_is_refused_unread() {
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(directory.path(), 10_000);
    let mut runner = place.runner("publish", &[], &[]);
    place.until_after(1, &mut runner);
    runner.kill();
    let newest = place.newest();
    let manifest = directory.path().join(format!("count/generations/{newest:010}"));
    let restore = |bytes: u64| {
        File::create(&manifest).and_then(|file| file.set_len(bytes)).expect("a hole");
        let ran = restored_in_4_gib(&place);
        assert_eq!(ran.code, 0, "{ran}");
        assert!(ran.stderr.contains(&format!("restored generation {}", newest - 1)), "{ran}");
        assert!(ran.stderr.contains(&format!("generation {newest} of count is refused")), "{ran}");
        ran
    };
    let ran = restore(64 << 30);
    let named = format!("generations/{newest:010} has 64.0 GiB, and ");
    assert!(ran.stderr.contains(&named), "{ran}");
    // The longest one is read.
    let ran = restore(MANIFEST_BYTES_MAX);
    assert!(!ran.stderr.contains("are most"), "{ran}");
}

#[test]
fn pack_that_is_longer_than_its_manifest_describes_is_refused_unread() {
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(directory.path(), 10_000);
    publish(&place);
    for pack in fs::read_dir(directory.path().join("count/packs")).expect("packs").flatten() {
        let file = fs::OpenOptions::new().write(true).open(pack.path()).expect("a pack");
        file.set_len(64 << 30).expect("a hole");
    }
    let ran = restored_in_4_gib(&place);
    assert!(ran.code == 5 && ran.stderr.contains("is refused: its pack"), "{ran}");
}

/// Returns the directories of runners below a temporary one, with a file in each.
fn directories(temporary: &LocalPath, file: &str) -> Vec<PathBuf> {
    let found = fs::read_dir(temporary).expect("readable").flatten().map(|entry| entry.path());
    let ours = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        name.starts_with("sanderling-count-") && path.join(file).exists()
    };
    found.filter(ours).collect()
}

#[test]
fn state_directories_of_killed_runners_are_removed_by_the_next_one() {
    let directory = TempDir::new().expect("a directory");
    let temporary = directory.path().join("tmp");
    fs::create_dir(&temporary).expect("made");
    let place = |backend: &str| {
        let mut place = TaskPlace::in_directory(&directory.path().join(backend), 10_000);
        place.variables.push(("TMPDIR", temporary.clone()));
        place
    };
    let (first, other) = (place("first"), place("other"));
    let mut killed = first.runner("killed", &[], &[]);
    first.until_after(0, &mut killed);
    let left = directories(&temporary, "count");
    let mode = fs::metadata(&left[0]).expect("there").permissions().mode();
    assert!(left.len() == 1 && mode & 0o777 == 0o700, "{left:?} {mode:o}");
    killed.kill();
    assert!(left[0].join("bytes").exists(), "what this test is about");
    let foreign = temporary.join("sanderling-count-of-another-program");
    fs::create_dir(&foreign).expect("made");
    let mut at_work = other.runner("at_work", &[], &[]);
    other.until_after(0, &mut at_work);
    assert!(!left[0].exists(), "the next `task run` of this user removes it");
    assert!(foreign.exists(), "it is none of a runner's");
    let own = directories(&temporary, "count");
    assert_eq!(own.len(), 1);
    let mut killed = first.runner("killed", &[], &[]);
    first.until_after(first.newest(), &mut killed);
    let both = directories(&temporary, "count");
    assert_eq!(both.len(), 2);
    killed.kill();
    let mut restore = first.task("restore");
    restore.env("TMPDIR", &temporary).arg("--state").arg(directory.path().join("to"));
    let restored = run(&mut restore);
    assert_eq!(restored.code, 0, "{restored}");
    assert_eq!(directories(&temporary, "count"), own, "what is left of the killed one alone goes");
    // The one at work has lost nothing.
    other.until_after(other.newest(), &mut at_work);
    at_work.kill();
    assert_eq!(other.restored().0, other.newest());
}

#[test]
fn runner_that_is_interrupted_removes_its_state_directory() {
    let directory = TempDir::new().expect("a directory");
    let mut place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    let temporary = directory.path().join("tmp");
    fs::create_dir(&temporary).expect("made");
    place.variables.push(("TMPDIR", temporary.clone()));
    let mut runner = place.runner("runner", &[], &[]);
    place.until_after(0, &mut runner);
    assert_eq!(directories(&temporary, "count").len(), 1);
    runner.terminate();
    assert_eq!(until("it ends", SOON, || runner.ended()), 130);
    assert_eq!(fs::read_dir(&temporary).expect("readable").count(), 0);
}

/// Writes a state whose names, sizes, links and contents are nowhere else.
const SECRET: &str = r#"
import os, signal, sys, time
state = os.environ["SANDERLING_TASK_STATE"]

def save(*_):
    os.makedirs(os.path.join(state, "secretdirectory"), exist_ok=True)
    with open(os.path.join(state, "secretdirectory", "secretname"), "wb") as file:
        file.write(b"secretcontent" * 100)
        file.truncate(2_234_567)
    with open(os.path.join(state, "secretsmall"), "w") as file:
        file.write("secretcontent")
    if not os.path.islink(os.path.join(state, "secretlink")):
        os.symlink("secrettarget", os.path.join(state, "secretlink"))
    open(os.path.join(state, "done"), "w").close()

signal.signal(signal.SIGUSR1, save)
while True:
    time.sleep(0.01)
"#;

/// Returns all files below a directory.
fn files(directory: &LocalPath) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("readable").flatten();
    let below = entries.flat_map(|entry| match entry.path().is_dir() {
        true => files(&entry.path()),
        false => vec![entry.path()],
    });
    below.collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|found| found == part)
}

#[test]
fn backend_shows_no_name_size_or_content_of_a_state() {
    for flags in [&[][..], &["--no-compression"]] {
        let place = TempDir::new().expect("a directory");
        let path = |name: &str| place.path().join(name);
        fs::write(path("task.py"), SECRET).expect("written");
        let task = |verb: &str| {
            let mut command = sanderling();
            command.args(["task", verb, "--name", "t", "--key"]).arg(path("key"));
            command.arg("--backend").arg(format!("dir:{}", path("backend").display()));
            command
        };
        let mut runner = task("run");
        runner.args(["--driver", "hook", "--interval", "100ms"]).args(flags);
        runner.args(["--", "python3"]).arg(path("task.py"));
        let runner = runner.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut runner = runner.expect("started");
        let generation = path("backend/t/generations/0000000002");
        until("two generations", SOON, || generation.exists().then_some(()));
        runner.kill().expect("our own child");
        runner.wait().expect("our own child");
        let stored = files(&path("backend"));
        assert!(stored.len() >= 4, "{stored:?}");
        let size = 2_234_567_u32;
        // As an index has it, 7 bits in a byte and the lowest first, and as a processor has it.
        let varint = [0, 7, 14, 21].map(|shift| {
            let more = if shift < 21 { 0x80 } else { 0 };
            (size >> shift & 0x7f) as u8 | more
        });
        for file in &stored {
            let (bytes, name) = (fs::read(file).expect("readable"), file.display().to_string());
            assert!(!name.contains("secret"), "{name}");
            assert!(!contains(&bytes, b"secret"), "{name} has a name or a content");
            for size in [varint, size.to_le_bytes(), size.to_be_bytes()] {
                assert!(!contains(&bytes, &size), "{name} has a size");
            }
        }
        // The state has all of that.
        let restored = run(task("restore").arg("--state").arg(path("to")));
        assert_eq!(restored.code, 0, "{restored}");
        let large = fs::read(path("to/secretdirectory/secretname")).expect("restored");
        assert!(large.len() == 2_234_567 && contains(&large, b"secretcontent"));
        assert_eq!(
            fs::read_link(path("to/secretlink")).expect("a link"),
            LocalPath::new("secrettarget")
        );
    }
}

/// Returns a command of the task `t` with a backend, and with a key of its own.
fn stored_in(verb: &str, backend: &str, key: &LocalPath) -> Command {
    let mut command = sanderling();
    command.args(["task", verb, "--backend", backend]);
    if !["ls", "predict"].contains(&verb) {
        command.args(["--name", "t", "--key"]).arg(key);
    }
    command
}

/// Verifies that each command refuses a directory as a mount point for this reason, and makes
/// nothing there.
fn expect_refused(directory: &LocalPath, why: &str) {
    let place = TempDir::new().expect("a directory");
    let (key, started) = (place.path().join("key"), place.path().join("started"));
    let directory = directory.display().to_string();
    let backend = format!("mount:{directory}");
    let mut start = stored_in("run", &backend, &key);
    start.args(["--", "touch"]).arg(&started);
    let mut restore = stored_in("restore", &backend, &key);
    restore.arg("--state").arg(place.path().join("to"));
    let mut predict = stored_in("predict", &backend, &key);
    predict.args(["--rss", "1MB"]);
    let others = ["ls", "verify", "gc"].map(|verb| stored_in(verb, &backend, &key));
    for mut command in [start, restore, predict].into_iter().chain(others) {
        let ran = run(&mut command);
        assert_eq!(ran.code, 4, "{ran}");
        assert!(ran.stderr.contains(&format!("{backend}: {why}")), "{ran}");
        let next = format!("name the mount point itself, or the same with dir:{directory} for");
        assert!(ran.stderr.contains(&next), "the next step: {ran}");
    }
    assert!(!started.exists(), "the task was started");
    assert!(!LocalPath::new(&directory).join("t").exists(), "something was made");
}

const NOTHING_MOUNTED: &str = "nothing is mounted there";

#[test]
fn directory_that_is_not_mounted_is_refused() {
    let place = TempDir::new().expect("a directory");
    let name = place.path().file_name().expect("a name").to_string_lossy().into_owned();
    // Neither does the root have such a directory, nor is /etc ever a file system of its own.
    for directory in [format!("/{name}/tasks"), format!("/etc/{name}")] {
        expect_refused(LocalPath::new(&directory), NOTHING_MOUNTED);
        assert!(!LocalPath::new(&directory).exists(), "it was made");
    }
    expect_refused(place.path(), NOTHING_MOUNTED);
    let wrong = run(&mut stored_in("ls", "mount:", &place.path().join("key")));
    assert!(wrong.code == 2 && wrong.stderr.contains("followed by a directory"), "{wrong}");
}

/// The empty directory is on another disk, as below a second one at `/mnt`; it is bound to itself,
/// as by `ReadWritePaths` of systemd, or to one of the file system of `/`.
#[test]
fn mount_point_of_another_disk_where_nothing_is_mounted_is_refused() {
    if !is_root("mount_point_of_another_disk_where_nothing_is_mounted") {
        return;
    }
    let disk = SmallDisk::of(16);
    let point = disk.path().join("efs");
    fs::create_dir(&point).expect("made");
    expect_refused(&point, NOTHING_MOUNTED);
    let own = on_root_mount();
    let own = own.as_ref().map(TempDir::path);
    for from in [Some(point.as_path()), own].into_iter().flatten() {
        let _bound = Mounted::bound(from, &point);
        expect_refused(&point, "what is mounted there is a directory of the file system above it");
    }
    assert_eq!(fs::read_dir(&point).expect("readable").count(), 0);
}

#[test]
fn task_in_a_directory_that_is_mounted_is_started() {
    if !is_root("task_in_a_directory_that_is_mounted_is_started") {
        return;
    }
    let (disk, place) = (SmallDisk::of(16), TempDir::new().expect("a directory"));
    let (point, link) = (disk.path().to_owned(), place.path().join("link"));
    std::os::unix::fs::symlink(&point, &link).expect("linked");
    let below = point.join("tasks");
    for (scheme, directory) in [("mount", &point), ("mount", &link), ("dir", &below)] {
        let backend = format!("{scheme}:{}", directory.display());
        let mut start = stored_in("run", &backend, &place.path().join("key"));
        let ran = run(start.args(["--driver", "hook", "--", "true"]));
        assert_eq!(ran.code, 0, "{ran}");
        assert!(!ran.stderr.contains("the file system of /"), "{ran}");
        assert!(directory.join("t/locks").is_dir(), "{ran}");
    }
    // Tasks are directly in the mount point.
    let other = point.join("other");
    fs::create_dir(&other).expect("made");
    expect_refused(&other, NOTHING_MOUNTED);
}

#[test]
fn task_whose_file_system_is_unmounted_stores_nothing_in_its_place() {
    if !is_root("task_whose_file_system_is_unmounted_stores_nothing_in_its_place") {
        return;
    }
    let disk = SmallDisk::of(64);
    let directory = disk.path().join("tasks");
    let place = TaskPlace::in_directory(&directory, 10_000);
    let mut runner = place.runner("first", &[], &[]);
    place.until_after(0, &mut runner);
    let unmounted = run(Command::new("umount").arg("-l").arg(disk.path()));
    assert_eq!(unmounted.code, 0, "{unmounted}");
    runner.until_logged("no checkpoint", 2);
    assert_eq!(runner.ended(), None, "the task goes on: {}", runner.log());
    assert!(!directory.exists(), "it was made where nothing is mounted");
    runner.kill();
}

#[test]
fn task_that_begins_on_the_disk_of_its_machine_is_noted_once() {
    let Some(directory) = on_root_mount() else {
        return eprintln!(
            "SKIPPED: no directory that can be written to is on the file system of /"
        );
    };
    let place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    let note = "is on the file system of /";
    let mut runner = place.runner("first", &[], &[]);
    place.until_after(0, &mut runner);
    let log = runner.log();
    assert!(log.matches(note).count() == 1 && log.contains("mount:D"), "{log}");
    runner.kill();
    let ran = again(&place);
    assert!(ran.code == 0 && !ran.stderr.contains(note), "{ran}");
}

/// Makes a directory on the file system of `/`; `None` where none can be written to.
fn on_root_mount() -> Option<TempDir> {
    let places = ["/tmp", "/var/tmp", "/root", "/opt"].map(LocalPath::new);
    let mut places = places.into_iter().filter(|place| is_on_root_mount(place));
    places.find_map(|place| TempDir::new_in(place).ok())
}

/// Returns whether no file system is mounted at a directory or above it but that of `/`, by the
/// kernel's list.
fn is_on_root_mount(directory: &LocalPath) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    directory.is_dir() && !places.any(|it| it != "/" && directory.starts_with(it))
}
