//! A task that changes its state here and there, so that chunks of many packs lie side by side in
//! the newest generation.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path as LocalPath, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::cluster::tasks::{ELSEWHERE, SmallDisk, TaskPlace, is_root, library, within};
use crate::cluster::{Killed, SOON, program_at, run, until};
use serde_json::Value;
use tempfile::TempDir;

/// Has a file of 256 chunks. It writes all of them at its first signal, and at each of seven
/// signals then every 32nd one, from another place each time. With an argument it verifies such a
/// directory.
const TASK: &str = r#"
import hashlib, os, signal, sys, time
CHUNK, CHUNKS, LAST = 65536, 256, 8
state = os.environ.get("SANDERLING_TASK_STATE")
saves = 0

def content(chunk, saves):
    version = chunk % 32 if 2 <= chunk % 32 <= saves else 0
    return hashlib.shake_128(f"{chunk} {version}".encode()).digest(CHUNK)

def save(*_):
    global saves
    saves = min(saves + 1, LAST)
    path = os.path.join(state, "bytes")
    with open(path, "r+b" if os.path.exists(path) else "wb") as file:
        for chunk in range(CHUNKS):
            if saves == 1 or chunk % 32 == saves:
                file.seek(chunk * CHUNK)
                file.write(content(chunk, saves))
    with open(os.path.join(state, "saves"), "w") as file:
        file.write(str(saves))
    open(os.path.join(state, "done"), "w").close()

if len(sys.argv) > 1:
    found = open(os.path.join(sys.argv[1], "bytes"), "rb").read()
    saves = int(open(os.path.join(sys.argv[1], "saves")).read())
    assert found == b"".join(content(chunk, saves) for chunk in range(CHUNKS)), saves
    print(saves)
    sys.exit()
signal.signal(signal.SIGUSR1, save)
while True:
    time.sleep(0.01)
"#;

/// Has a file of 256 chunks, and writes three of four anew at its second signal: then its first
/// pack is sparse. It reports that it cannot write its state from then on, so there are two
/// checkpoints. With an argument it verifies such a directory.
const TWICE: &str = r#"
import hashlib, os, signal, sys, time
CHUNK, CHUNKS = 65536, 256
state = os.environ.get("SANDERLING_TASK_STATE")
saves = 0

def content(saves):
    versions = ((chunk, saves if chunk % 4 else 1) for chunk in range(CHUNKS))
    texts = (f"{chunk} {version}".encode() for chunk, version in versions)
    return b"".join(hashlib.shake_128(text).digest(CHUNK) for text in texts)

def save(*_):
    global saves
    if saves == 2:
        os.symlink("failed", os.path.join(state, "done"))
        return
    saves += 1
    with open(os.path.join(state, "bytes"), "wb") as file:
        file.write(content(saves))
    open(os.path.join(state, "done"), "w").close()

if len(sys.argv) > 1:
    assert open(os.path.join(sys.argv[1], "bytes"), "rb").read() == content(2)
    sys.exit()
signal.signal(signal.SIGUSR1, save)
while True:
    time.sleep(0.01)
"#;

/// The source of the library that stops a process.
const STOP: &str = include_str!("stop.c");

/// Runs a command, writes the bytes that it has read into a file, and returns its exit code.
const COUNTED: &str = r#""$@"; code=$?; grep rchar "/proc/$$/io" >"$0"; exit $code"#;

/// Returns how many packs a backend has, and their bytes.
fn packs(backend: &LocalPath) -> (usize, u64) {
    let entries = fs::read_dir(backend.join("count/packs")).expect("readable");
    let bytes = entries.map(|entry| entry.expect("readable").metadata().expect("there").len());
    bytes.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes))
}

fn copy_files(from: &LocalPath, to: &LocalPath) {
    fs::create_dir_all(to).expect("made");
    for file in fs::read_dir(from).expect("readable").flatten() {
        fs::copy(file.path(), to.join(file.file_name())).expect("copied");
    }
}

#[test]
fn state_in_chunks_of_many_packs_is_restored_as_it_was_and_each_pack_is_read_once() {
    let directory = TempDir::new().expect("a directory");
    let backend = directory.path().join("backend");
    let place = TaskPlace::in_directory(&backend, 0);
    let task = place.path("task.py");
    fs::write(&task, TASK).expect("written");
    let mut command = place.task("run");
    command.args(["--interval", "50ms", "--state"]).arg(place.path("state"));
    command.args(["--", "python3"]).arg(&task);
    let log = fs::File::create(place.path("runner.log")).expect("a log");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut runner = Killed(command.spawn().expect("started"));
    // From the eighth on the state stays the same.
    until("ten generations", SOON, || {
        let ended = runner.0.try_wait().expect("our own child");
        let log = || fs::read_to_string(place.path("runner.log")).unwrap_or_default();
        assert_eq!(ended, None, "the runner ended: {}", log());
        (place.generations().first().copied().unwrap_or(0) >= 10).then_some(())
    });
    drop(runner);
    let (count, stored) = packs(&backend);
    assert!(count >= 8, "{count} packs");

    let (to, read) = (place.path("restored"), place.path("read"));
    let restore = place.task("restore");
    let mut counted = program_at(LocalPath::new("sh"));
    counted.args(["-c", COUNTED]).arg(&read);
    counted.arg(restore.get_program()).args(restore.get_args()).arg("--state").arg(&to);
    let ran = run(&mut counted);
    assert_eq!(ran.code, 0, "{ran}");
    let verified = run(Command::new("python3").arg(&task).arg(&to));
    assert_eq!((verified.code, verified.stdout.trim()), (0, "8"), "{verified}");
    let read = fs::read_to_string(read).unwrap_or_default();
    let read = read.split_whitespace().last().and_then(|bytes| bytes.parse::<u64>().ok());
    match read {
        Some(read) => assert!(read < 2 * stored, "{read} bytes were read, {stored} are stored"),
        None => eprintln!("SKIPPED: the system does not count the bytes that a process reads"),
    }
    let verified = place.verified();
    assert_eq!(verified.code, 0, "{verified}");
}

/// A task with two checkpoints, whose first pack is sparse in the second one, and no runner.
struct SparseTask {
    directory: TempDir,
    backend: PathBuf,
    place: TaskPlace,
    task: PathBuf,
}

impl SparseTask {
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let backend = directory.path().join("backend");
        Self::stored_in(directory, backend)
    }

    fn stored_in(directory: TempDir, backend: PathBuf) -> Self {
        let place = TaskPlace::in_directory(&backend, 0);
        let task = place.path("task.py");
        fs::write(&task, TWICE).expect("written");
        let stored = Self { directory, backend, place, task };
        let runner = stored.runner(&[]);
        until("two generations", SOON, || (stored.place.newest() == 2).then_some(()));
        drop(runner);
        stored
    }

    /// Makes one with the second checkpoint and a third one that has its state in other packs, as a
    /// collection leaves it that is killed before it removes the second one.
    fn stored_again() -> Self {
        let stored = Self::new();
        let (backend, kept) = (stored.backend.join("count"), stored.directory.path().join("kept"));
        for name in ["packs", "generations"] {
            copy_files(&backend.join(name), &kept.join(name));
        }
        fs::remove_file(kept.join("generations/0000000001")).expect("it is there");
        stored.collect(&["--keep", "1"]);
        for name in ["packs", "generations"] {
            copy_files(&kept.join(name), &backend.join(name));
        }
        assert_eq!((stored.packs(), stored.place.generations()), ((3, 33), vec![3, 2]));
        stored
    }

    fn runner(&self, flags: &[&str]) -> Killed {
        let mut command = self.place.task("run");
        command.args(["--interval", "50ms"]).args(flags).args(["--", "python3"]).arg(&self.task);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Killed(command.spawn().expect("started"))
    }

    /// Returns how many packs there are, and their megabytes.
    fn packs(&self) -> (usize, u64) {
        let (count, bytes) = packs(&self.backend);
        (count, bytes / 1_000_000)
    }

    /// Returns the names of the packs, without what is being written.
    fn pack_names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.backend.join("count/packs")).expect("readable");
        let names = entries.map(|entry| entry.expect("readable").file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        names.filter(|name| !name.starts_with('.')).collect()
    }

    /// Starts a collection, by a command around it and with variables in its environment.
    fn begin_to_collect(
        &self,
        name: &str,
        around: &[&str],
        variables: &[(&str, &LocalPath)],
    ) -> BegunCollection {
        let log = self.place.path(&format!("{name}.log"));
        let file = fs::File::create(&log).expect("a log");
        let mut task = self.place.task("gc");
        task.args(["--keep", "1", "--lock-age", "2s"]);
        let mut command = within(around, task);
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        BegunCollection { process: Killed(command.spawn().expect("started")), log }
    }

    fn collect(&self, flags: &[&str]) -> Value {
        let ran = run(self.place.task("gc").arg("--json").args(flags));
        assert_eq!(ran.code, 0, "{ran}");
        serde_json::from_str(&ran.stdout).expect("JSON")
    }

    /// Verifies all that is stored, and restores it.
    fn verify(&self) {
        let verified = self.place.verified();
        assert_eq!(verified.code, 0, "{verified}");
        let to = self.place.path("restored");
        let restored = run(self.place.task("restore").arg("--state").arg(&to));
        assert_eq!(restored.code, 0, "{restored}");
        let equal = run(Command::new("python3").arg(&self.task).arg(&to));
        assert_eq!(equal.code, 0, "{equal}");
    }
}

/// A collection that may be stopped.
struct BegunCollection {
    process: Killed,
    log: PathBuf,
}

impl BegunCollection {
    fn until_stopped(&self) {
        let stat = format!("/proc/{}/stat", self.process.0.id());
        until("it is stopped", SOON, || {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
            state.starts_with('T').then_some(())
        });
    }

    fn go_on(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Waits for its end. Returns its exit code and what it logged.
    fn end(mut self) -> (Option<i32>, String) {
        let process = &mut self.process.0;
        let ended = until("it ends", SOON, || process.try_wait().expect("our own child"));
        (ended.code(), fs::read_to_string(&self.log).expect("a log"))
    }
}

#[test]
fn collection_rewrites_the_sparse_packs_of_the_only_generation_that_is_left() {
    let stored = SparseTask::new();
    // All of the state, and three quarters of it again.
    assert_eq!(stored.packs(), (2, 29));
    // The first generation names all of the sparse pack.
    let kept = stored.collect(&[]);
    assert_eq!((&kept["rewritten_packs"], &kept["generations"]), (&0.into(), &2.into()), "{kept}");
    assert_eq!(stored.packs(), (2, 29));
    let rewritten = stored.collect(&["--keep", "1"]);
    assert_eq!(rewritten["rewritten_packs"], 1, "{rewritten}");
    assert_eq!(rewritten["removed_generations"], serde_json::json!([1, 2]), "{rewritten}");
    assert_eq!((&rewritten["removed_packs"], &rewritten["packs"]), (&1.into(), &2.into()));
    assert_eq!((stored.packs(), stored.place.generations()), ((2, 16), vec![3]));
    stored.verify();
    let again = stored.collect(&["--keep", "1"]);
    assert_eq!((&again["rewritten_packs"], &again["removed_packs"]), (&0.into(), &0.into()));
    assert_eq!((stored.packs(), stored.place.generations()), ((2, 16), vec![3]));
}

#[test]
fn collection_that_is_killed_when_it_has_rewritten_packs_leaves_the_state_to_the_next_one() {
    let stored = SparseTask::new();
    let Some(library) = library(stored.directory.path(), STOP) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let mut command = stored.place.task("gc");
    command.args(["--keep", "1"]).env("LD_PRELOAD", library);
    command.env("STOP_AFTER", "/generations/0000000002");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let collection = Killed(command.spawn().expect("started"));
    let stat = format!("/proc/{}/stat", collection.0.id());
    until("it is stopped", SOON, || {
        let stat = fs::read_to_string(&stat).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
        state.starts_with('T').then_some(())
    });
    drop(collection);
    assert_eq!((stored.packs(), stored.place.generations()), ((3, 33), vec![3]));
    stored.verify();
    let last = stored.collect(&["--keep", "1"]);
    assert_eq!((&last["rewritten_packs"], &last["removed_packs"]), (&0.into(), &1.into()));
    assert_eq!(stored.packs(), (2, 16));
    stored.verify();
}

/// When it is stopped it has stored its pack, which is in no manifest. The next one removes that,
/// and has stored its own when the first one goes on.
#[test]
fn collection_that_lost_its_lock_after_it_stored_a_pack_leaves_that_of_the_next_one() {
    if !is_root("collection_that_lost_its_lock_after_it_stored_a_pack") {
        return;
    }
    let stored = SparseTask::new();
    let Some(library) = library(stored.directory.path(), STOP) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let before = stored.pack_names();
    let stop = [("LD_PRELOAD", library.as_path()), ("STOP_LINKED", LocalPath::new("/packs/"))];
    let first = stored.begin_to_collect("first", &[], &stop);
    first.until_stopped();
    let of_first: BTreeSet<String> = stored.pack_names().difference(&before).cloned().collect();
    assert_eq!(of_first.len(), 1, "{of_first:?} {before:?}");
    let hold = stored.place.path("hold");
    fs::write(&hold, "").expect("written");
    let variables = [&stop[..], &[("HOLD_IF", hold.as_path())]].concat();
    let second = stored.begin_to_collect("second", &ELSEWHERE, &variables);
    let packs = until("the second one has stored its pack", SOON, || {
        let names = stored.pack_names();
        (names.len() == 3 && names.is_disjoint(&of_first)).then_some(names)
    });
    first.go_on();
    let (code, log) = first.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("another runner has the task count"), "{log}");
    assert!(!log.contains("sparse packs stay"), "{log}");
    assert_eq!((stored.pack_names(), stored.place.generations()), (packs, vec![2]));
    fs::remove_file(&hold).expect("it is there");
    let (code, log) = second.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!((stored.packs(), stored.place.generations()), ((2, 16), vec![3]));
    stored.verify();
}

/// The pack that it was about to read is gone when it goes on.
#[test]
fn collection_that_lost_its_lock_before_it_read_a_pack_ends_and_refuses_no_generation() {
    if !is_root("collection_that_lost_its_lock_before_it_read_a_pack") {
        return;
    }
    let stored = SparseTask::new();
    let Some(library) = library(stored.directory.path(), STOP) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let stop = [("LD_PRELOAD", library.as_path()), ("STOP_READ", LocalPath::new("/packs/"))];
    let first = stored.begin_to_collect("first", &[], &stop);
    first.until_stopped();
    assert_eq!(stored.place.generations(), [2]);
    let (code, log) = stored.begin_to_collect("second", &ELSEWHERE, &[]).end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!((stored.packs(), stored.place.generations()), ((2, 16), vec![3]));
    first.go_on();
    let (code, log) = first.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("another runner of count has its lock"), "{log}");
    assert_eq!((stored.packs(), stored.place.generations()), ((2, 16), vec![3]));
    stored.verify();
}

#[test]
fn generation_that_was_stored_again_goes_however_many_are_kept() {
    let stored = SparseTask::new();
    fs::remove_file(stored.backend.join("count/generations/0000000001")).expect("it is there");
    let rewritten = stored.collect(&[]);
    assert_eq!(rewritten["rewritten_packs"], 1, "{rewritten}");
    assert_eq!(rewritten["removed_generations"], serde_json::json!([2]), "{rewritten}");
    assert_eq!((stored.packs(), stored.place.generations()), ((2, 16), vec![3]));
    // The collection before was killed.
    let stored = SparseTask::stored_again();
    let last = stored.collect(&[]);
    assert_eq!(last["removed_generations"], serde_json::json!([2]), "{last}");
    assert_eq!((&last["rewritten_packs"], &last["removed_packs"]), (&0.into(), &1.into()));
    assert_eq!((stored.packs(), stored.place.generations()), ((2, 16), vec![3]));
    stored.verify();
    let stored = SparseTask::stored_again();
    let runner = stored.runner(&["--keep", "100"]);
    until("the next runner removes it", SOON, || {
        let there = stored.place.generations();
        (there.first() > Some(&3) && !there.contains(&2)).then_some(())
    });
    drop(runner);
    assert!(stored.place.generations().contains(&3), "another one went, too");
}

#[test]
fn collection_without_room_to_rewrite_packs_prints_what_it_removed_and_the_next_one_rewrites() {
    if !is_root("collection_without_room_to_rewrite_packs") {
        return;
    }
    let disk = SmallDisk::of(40);
    let directory = TempDir::new().expect("a directory");
    let stored = SparseTask::stored_in(directory, disk.path().to_owned());
    // Less than what is left of the sparse pack, and more than a manifest.
    disk.fill_but(1 << 20);
    let ran = run(stored.place.task("gc").args(["--json", "--keep", "1"]));
    assert!(ran.code == 0 && ran.stderr.contains("sparse packs stay: "), "{ran}");
    assert!(ran.stderr.contains("No space left on device"), "{ran}");
    let left: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(left["removed_generations"], serde_json::json!([1]), "{left}");
    assert_eq!((&left["rewritten_packs"], &left["generations"]), (&0.into(), &1.into()), "{left}");
    assert_eq!((stored.packs(), stored.place.generations()), ((2, 29), vec![2]));
    stored.verify();
    disk.empty();
    let rewritten = stored.collect(&["--keep", "1"]);
    assert_eq!(rewritten["rewritten_packs"], 1, "{rewritten}");
    assert_eq!((stored.packs(), stored.place.generations()), ((2, 16), vec![3]));
    stored.verify();
}

#[test]
fn collection_that_reads_a_damaged_chunk_prints_what_it_removed_and_refuses_the_generation() {
    let stored = SparseTask::new();
    let packs = fs::read_dir(stored.backend.join("count/packs")).expect("readable").flatten();
    let packs = packs.map(|entry| (entry.metadata().expect("there").len(), entry.path()));
    let (bytes, sparse) = packs.max().expect("a pack");
    fs::write(sparse, vec![7; bytes as usize]).expect("written");
    for removed in [serde_json::json!([1]), serde_json::json!([])] {
        let ran = run(stored.place.task("gc").args(["--json", "--keep", "1"]));
        assert!(ran.code == 5 && ran.stderr.contains("generation 2 of count is refused"), "{ran}");
        let left: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!(left["removed_generations"], removed, "{left}");
        assert_eq!(left["refused_generations"], serde_json::json!([2]), "{left}");
    }
    assert_eq!((stored.packs(), stored.place.generations()), ((2, 29), vec![2]));
}
