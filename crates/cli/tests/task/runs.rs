//! Checkpoints of tasks: what a killed runner had published restores byte-exact, and what cannot
//! be restored is refused by name.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path as LocalPath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::cluster::stores::{fleet, make};
use crate::cluster::{Cluster, Killed, Ran, SOON, run, sanderling, until};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use tempfile::TempDir;

/// Counts, and writes its count and bytes that follow from it when it gets SIGUSR1. It ends at the
/// count of its argument.
const COUNTER: &str = r#"
import os, random, signal, sys, time
state = os.environ.get("SANDERLING_TASK_STATE")
last, megabytes = int(sys.argv[1]), int(sys.argv[2])
count = 0
if os.environ.get("SANDERLING_TASK_RESTORED"):
    count = int(open(os.path.join(state, "count")).read())
    with open(sys.argv[3], "a") as log:
        log.write(f"restored {count}\n")

def content(count, part):
    # Half of it changes with every count.
    return random.Random(count if part % 2 else part).randbytes(1 << 20)

def save(*_):
    os.makedirs(os.path.join(state, "parts"), exist_ok=True)
    for part in range(megabytes):
        with open(os.path.join(state, "parts", str(part)), "wb") as file:
            file.write(content(count, part))
    with open(os.path.join(state, "count"), "w") as file:
        file.write(str(count))
    with open(os.path.join(state, "done"), "w"):
        pass

def verify(directory):
    count = int(open(os.path.join(directory, "count")).read())
    for part in range(megabytes):
        found = open(os.path.join(directory, "parts", str(part)), "rb").read()
        assert found == content(count, part), f"part {part} of {count}"
    assert sorted(os.listdir(directory)) == ["count", "parts"]
    print(count)

if len(sys.argv) > 4:
    verify(sys.argv[4])
    sys.exit()
# Memory that is in use, and no part of the state.
held = b"x" * (int(os.environ.get("HELD_MEGABYTES", 0)) << 20)
signal.signal(signal.SIGUSR1, save)
while count < last:
    time.sleep(0.01)
    count += 1
"#;

/// A place with the counter, a key and a backend.
struct Place {
    directory: TempDir,
    backend: String,
    namenode: Option<String>,
    /// The environment of an S3 client.
    s3: Vec<(&'static str, String)>,
    megabytes: u32,
}

impl Place {
    fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        std::fs::write(directory.path().join("counter.py"), COUNTER).expect("written");
        let backend = format!("dir:{}", directory.path().join("backend").display());
        Self { directory, backend, namenode: None, s3: Vec::new(), megabytes: 1 }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the command of a verb, with the key and the backend.
    fn task(&self, verb: &str) -> Command {
        let mut command = sanderling();
        command.args(["task", verb, "--backend", &self.backend]);
        if verb != "ls" {
            command.args(["--name", "count", "--key"]).arg(self.path("key"));
        }
        if let Some(namenode) = &self.namenode {
            command.env("SANDERLING_NAMENODE", namenode);
        }
        command.envs(self.s3.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Returns the runner of the counter.
    fn runner(&self, last: u32) -> Command {
        let mut command = self.task("run");
        command.args(["--interval", "50ms", "--state"]).arg(self.path("state"));
        self.counter(&mut command, last);
        command
    }

    fn counter(&self, command: &mut Command, last: u32) {
        command.args(["--", "python3"]).arg(self.path("counter.py"));
        command.args([last.to_string(), self.megabytes.to_string()]).arg(self.path("log"));
    }

    /// Starts a runner in the background.
    fn start(&self) -> Child {
        let mut options = std::fs::OpenOptions::new();
        let log = options.create(true).append(true).open(self.path("runner.log"));
        let mut command = self.runner(1_000_000);
        command.stdout(Stdio::null()).stderr(log.expect("a log")).spawn().expect("started")
    }

    /// Starts a runner, and kills it when it has published so many generations.
    fn publish(&self, generations: u64) {
        let mut runner = self.start();
        until("generations are published", SOON, || (self.newest()? >= generations).then_some(()));
        kill(&mut runner);
    }

    fn backend(&self, name: &str) -> PathBuf {
        self.path("backend").join("count").join(name)
    }

    /// Returns the newest generation that `task ls` shows.
    fn newest_listed(&self) -> Option<u64> {
        let document = run(self.task("ls").arg("--json"));
        let document: Value = serde_json::from_str(&document.stdout).ok()?;
        document["tasks"][0]["generations"][0].as_u64()
    }

    fn newest(&self) -> Option<u64> {
        self.generations().last().copied()
    }

    fn generations(&self) -> Vec<u64> {
        let entries = std::fs::read_dir(self.backend("generations")).into_iter().flatten();
        let names = entries.map(|it| it.expect("readable").file_name());
        let mut found: Vec<u64> =
            names.filter_map(|name| name.to_string_lossy().parse().ok()).collect();
        found.sort_unstable();
        found
    }

    fn manifest(&self, number: u64) -> PathBuf {
        self.backend("generations").join(format!("{number:010}"))
    }

    fn packs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.backend("packs")).expect("packs");
        entries.map(|it| it.expect("readable").path()).collect()
    }

    /// Unpacks the newest good generation, verifies every byte, and returns its count.
    fn restored(&self) -> (u64, u32, Ran) {
        let to = self.path("restored");
        let ran = run(self.task("restore").arg("--json").arg("--state").arg(&to));
        assert_eq!(ran.code, 0, "{ran}");
        let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let generation = document["restored"].as_u64().expect("a number");
        (generation, self.verified(&to), ran)
    }

    fn verified(&self, directory: &LocalPath) -> u32 {
        let mut command = Command::new("python3");
        command.arg(self.path("counter.py")).args(["0", &self.megabytes.to_string(), "-"]);
        let ran = run(command.arg(directory));
        assert_eq!(ran.code, 0, "{ran}");
        ran.stdout.trim().parse().expect("a count")
    }
}

fn kill(runner: &mut Child) {
    runner.kill().expect("our own child can be killed");
    runner.wait().expect("our own child can be waited for");
}

fn flip(path: &LocalPath) {
    let mut bytes = std::fs::read(path).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn killed_task_goes_on_from_its_newest_checkpoint() {
    let place = Place::new();
    place.publish(2);
    let ran = run(&mut place.runner(0));
    // The counter of the first run is above 0: the second one ends at once.
    assert_eq!(ran.code, 0, "{ran}");
    let log = std::fs::read_to_string(place.path("log")).expect("it was restored");
    let count: u32 = log.trim().strip_prefix("restored ").expect("a count").parse().expect("one");
    assert!(count > 0, "{log}");
    assert!(ran.stderr.contains("restored generation"), "{ran}");
}

#[test]
fn checkpoints_in_sanderling_are_listed_verified_and_restored() {
    let cluster = Cluster::of(2);
    let mut place = Place::new();
    place.backend = "/checkpoints".to_owned();
    place.namenode = Some(cluster.namenode.address.clone());
    place.megabytes = 3;
    let mut runner = place.start();
    until("two generations", SOON, || (place.newest_listed()? >= 2).then_some(()));
    kill(&mut runner);
    let verified = run(place.task("verify").arg("--json"));
    assert_eq!(verified.code, 0, "{verified}");
    let (generation, count, _) = place.restored();
    assert!(generation >= 2 && count > 0);
    let collected = run(place.task("gc").args(["--keep", "1", "--json"]));
    assert_eq!(collected.code, 0, "{collected}");
    let document: Value = serde_json::from_str(&collected.stdout).expect("JSON");
    assert_eq!(document["generations"], 1, "{document}");
    assert_eq!(place.restored().1, count);
}

#[test]
fn runner_killed_at_random_points_leaves_its_newest_generation_restorable() {
    let mut place = Place::new();
    place.megabytes = 2;
    let mut before = 0;
    for round in 0..20_u64 {
        let start = place.newest().unwrap_or(0);
        let mut runner = place.start();
        // At any moment of an interval and its dump, which take about 0.3 s together.
        until("a generation of this run", SOON, || {
            (place.newest().unwrap_or(0) > start).then_some(())
        });
        thread::sleep(Duration::from_millis(rand::random_range(0..400)));
        let published = place.newest().expect("there is one");
        kill(&mut runner);
        let (generation, count, ran) = place.restored();
        assert!(generation >= published, "round {round}: {generation} after {published}");
        assert!(!ran.stderr.contains("refused"), "round {round}: {ran}");
        assert!(count >= before, "round {round}: {count} after {before}");
        before = count;
    }
    let collected = run(&mut place.task("gc"));
    assert_eq!(collected.code, 0, "{collected}");
    let verified = run(&mut place.task("verify"));
    assert_eq!(verified.code, 0, "{verified}");
    assert!(place.generations().len() <= 3, "{:?}", place.generations());
}

#[test]
fn damaged_generations_are_refused_by_name_and_the_one_before_is_taken() {
    let place = Place::new();
    place.publish(4);
    let newest = place.newest().expect("generations");
    let refused = |why: &str, left: u64| {
        let (generation, _, ran) = place.restored();
        assert_eq!(generation, left, "{ran}");
        let sentence = format!("generation {} of count is refused: {why}", left + 1);
        assert!(ran.stderr.contains(&sentence), "{ran}");
    };
    // A manifest that is cut, then one that is damaged.
    let bytes = std::fs::read(place.manifest(newest)).expect("readable");
    std::fs::write(place.manifest(newest), &bytes[..40]).expect("written");
    refused("its manifest is cut", newest - 1);
    std::fs::write(place.manifest(newest), &bytes[..bytes.len() - 1]).expect("written");
    refused("its manifest is damaged", newest - 1);
    flip(&place.manifest(newest - 1));
    refused("its manifest is damaged", newest - 2);
    let verified = run(&mut place.task("verify"));
    assert_eq!(verified.code, 5, "{verified}");
    assert!(verified.stdout.contains("good") && verified.stdout.contains("damaged"), "{verified}");
}

/// What no runner has written: a directory that is named like the newest manifest, and a lock with
/// the highest number there is.
#[test]
fn strange_objects_in_a_backend_are_named() {
    let place = Place::new();
    place.publish(2);
    let newest = place.newest().expect("generations");
    std::fs::remove_file(place.manifest(newest)).expect("removed");
    std::fs::create_dir(place.manifest(newest)).expect("made");
    let (generation, _, ran) = place.restored();
    assert!(generation == newest - 1 && ran.stderr.contains("its manifest is gone"), "{ran}");
    std::fs::remove_dir(place.manifest(newest)).expect("removed");
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, place.manifest(newest), FileType::Fifo, mode, 0).expect("a pipe");
    let (generation, _, ran) = place.restored();
    assert!(generation == newest - 1 && ran.stderr.contains("its manifest is gone"), "{ran}");
    std::fs::remove_file(place.manifest(newest)).expect("removed");
    std::os::unix::fs::symlink(place.manifest(newest), place.manifest(newest)).expect("a circle");
    let (generation, _, ran) = place.restored();
    assert!(generation == newest - 1 && ran.stderr.contains("symbolic links"), "{ran}");
    let strange = place.backend(&format!("locks/{}", u64::MAX));
    std::fs::write(&strange, "{}").expect("written");
    let start = || {
        let mut command = place.task("run");
        command.args(["--lock-age", "1s"]);
        place.counter(&mut command, 0);
        run(&mut command)
    };
    let refused = start();
    assert!(refused.code == 1 && refused.stderr.contains("no number follows"), "{refused}");
    assert!(refused.stderr.contains("remove that object"), "{refused}");
    std::fs::remove_file(&strange).expect("removed");
    let ran = start();
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn damaged_chunk_and_missing_pack_are_refused() {
    let place = Place::new();
    place.publish(1);
    for pack in place.packs() {
        flip(&pack);
    }
    let into = place.path("restored");
    std::fs::create_dir_all(&into).expect("made");
    std::fs::write(into.join("mine"), "bytes").expect("written");
    let restore = || run(place.task("restore").arg("--state").arg(&into));
    let damaged = restore();
    assert_eq!(damaged.code, 5, "{damaged}");
    assert!(damaged.stderr.contains("is damaged"), "{damaged}");
    let next = "next:  sanderling task verify --name count";
    assert!(damaged.stderr.contains(next), "another name helps nothing: {damaged}");
    assert!(into.join("mine").exists(), "what was there is there");
    for pack in place.packs() {
        let bytes = std::fs::read(&pack).expect("readable");
        std::fs::write(&pack, &bytes[..bytes.len() / 2]).expect("written");
    }
    let cut = restore();
    assert!(cut.code == 5 && cut.stderr.contains("is cut"), "{cut}");
    for pack in place.packs() {
        std::fs::remove_file(pack).expect("removed");
    }
    let missing = restore();
    assert!(missing.code == 5 && missing.stderr.contains("is missing"), "{missing}");
    // A run does not begin again from nothing over them.
    let ran = run(&mut place.runner(1));
    assert!(ran.code == 5 && ran.stderr.contains("no generation of count"), "{ran}");
}

#[test]
fn wrong_missing_and_open_keys_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.publish(1);
    let key = place.path("key");
    let mode = std::fs::metadata(&key).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let digits = std::fs::read_to_string(&key).expect("readable");
    for file in place.packs().into_iter().chain([place.manifest(1)]) {
        let bytes = std::fs::read(&file).unwrap_or_default();
        let raw: Vec<u8> = (0..32)
            .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("a digit"))
            .collect();
        assert!(!bytes.windows(32).any(|part| part == raw), "the key is in {}", file.display());
    }
    std::fs::remove_file(&key).expect("removed");
    let ran = run(&mut place.runner(1));
    assert!(ran.code == 3 && ran.stderr.contains("need theirs"), "{ran}");
    assert!(!key.exists(), "no key is made where checkpoints need theirs");
    std::fs::write(&key, "ab".repeat(32)).expect("written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("set");
    let ran = run(&mut place.runner(1));
    assert!(ran.code == 5 && ran.stderr.contains("encrypted with another key"), "{ran}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("set");
    let ran = run(&mut place.runner(1));
    assert!(ran.code == 1 && ran.stderr.contains("chmod 600"), "{ran}");
}

#[test]
fn second_runner_of_a_name_is_refused() {
    let place = Place::new();
    let mut runner = place.start();
    until("a generation", SOON, || place.newest());
    let second = run(&mut place.runner(1));
    assert!(second.code == 4 && second.stderr.contains("another runner has the task"), "{second}");
    let collected = run(&mut place.task("gc"));
    assert_eq!(collected.code, 4, "{collected}");
    assert!(runner.try_wait().expect("our own child").is_none(), "the first one goes on");
    kill(&mut runner);
    // A runner of another machine: alive as long as it renews its lock, or did so lately.
    let locks = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(place.backend("locks")).expect("locks");
        let mut found: Vec<_> = entries.map(|it| it.expect("readable").path()).collect();
        found.sort();
        found
    };
    let lock = locks().pop().expect("a lock");
    let mut record: Value =
        serde_json::from_slice(&std::fs::read(&lock).expect("readable")).expect("JSON");
    record["machine"] = "elsewhere".into();
    std::fs::write(&lock, record.to_string()).expect("written");
    let mut command = place.task("run");
    command.args(["--lock-age", "1s"]);
    place.counter(&mut command, 0);
    let ran = run(&mut command);
    assert_eq!(ran.code, 0, "{ran}");
    let pid = runner.id();
    let waits = format!("waits up to 30.0 s for the lock of process {pid} on another machine");
    assert_eq!(ran.stderr.matches(&waits).count(), 1, "{ran}");
    let next = locks().pop().expect("a lock");
    assert!(next > lock, "it has another number");
}

#[test]
fn runner_that_lost_its_lock_ends_its_task() {
    let place = Place::new();
    let mut command = place.task("run");
    command.args(["--lock-age", "1s", "--interval", "50ms"]);
    place.counter(&mut command, 1_000_000);
    let mut runner = command.stderr(Stdio::piped()).spawn().expect("started");
    until("a generation", SOON, || place.newest());
    std::fs::write(place.backend("locks/0000000009"), "{}").expect("written");
    let status = until("the runner ends", SOON, || runner.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(1));
}

#[test]
fn backend_that_cannot_be_used_is_refused_before_the_task_starts() {
    let mut place = Place::new();
    std::fs::write(place.path("file"), "").expect("written");
    place.backend = format!("dir:{}", place.path("file").join("below").display());
    let ran = run(place.task("run").args(["--", "touch"]).arg(place.path("started")));
    assert!(ran.code != 0, "{ran}");
    assert!(!place.path("started").exists(), "the task was started");
}

#[test]
fn task_without_a_handler_is_not_signalled_and_its_code_is_reported() {
    let place = Place::new();
    let mut command = place.task("run");
    command.args(["--interval", "20ms", "--", "sh", "-c", "sleep 0.3; exit 7"]);
    let ran = run(&mut command);
    assert!(ran.code == 1 && ran.stderr.contains("ended with exit code 7"), "{ran}");
    assert_eq!(place.newest(), None);
}

#[test]
fn checkpoints_in_a_bucket_are_restored_and_have_one_runner() {
    let cluster = Cluster::of(2);
    let address = cluster.namenode.address.clone();
    let words = ["gateway", "s3", "--namenode", &address, "--listen", "127.0.0.1:0"];
    let gateway = cluster.serve("gateway", &[&words[..], &["--http", "none"]].concat());
    let mut place = Place::new();
    place.megabytes = 2;
    place.backend = "s3://checkpoints/some/prefix".to_owned();
    place.s3 = s3_at(&gateway.address);
    // Only `task run` creates the bucket.
    let listed = run(&mut place.task("ls"));
    assert!(listed.code == 4 && listed.stderr.contains("cannot be used"), "{listed}");
    let mut runner = place.start();
    until("two generations", SOON, || (place.newest_listed()? >= 2).then_some(()));
    let log = std::fs::read_to_string(place.path("runner.log")).expect("a log");
    assert!(log.contains("created the bucket checkpoints\n"), "{log}");
    let second = run(&mut place.runner(1));
    assert!(second.code == 4 && second.stderr.contains("another runner has the task"), "{second}");
    kill(&mut runner);
    let verified = run(place.task("verify").arg("--json"));
    assert_eq!(verified.code, 0, "{verified}");
    let (generation, count, _) = place.restored();
    assert!(generation >= 2 && count > 0);
    let collected = run(place.task("gc").args(["--keep", "1"]));
    assert_eq!(collected.code, 0, "{collected}");
    assert_eq!(place.restored().1, count);
}

#[test]
fn bucket_that_cannot_be_created_is_refused_with_the_answer_and_before_the_task_starts() {
    let cluster = Cluster::of(1);
    let keys = cluster.path("keys.json");
    // Its rights end at a prefix, and so do not suffice for a bucket.
    let text = r#"{"keys": [{"access_key": "sanderling", "secret_key": "sanderling",
                             "prefix": "some/"}]}"#;
    std::fs::write(&keys, text).expect("written");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&keys, mode).expect("set");
    let (address, keys) = (cluster.namenode.address.clone(), keys.display().to_string());
    let words = ["gateway", "s3", "--namenode", &address, "--listen", "127.0.0.1:0"];
    let words = [&words[..], &["--http", "none", "--keys", &keys]].concat();
    let gateway = cluster.serve("gateway", &words);
    let mut place = Place::new();
    place.backend = "s3://checkpoints/some/prefix".to_owned();
    place.s3 = s3_at(&gateway.address);
    let refused = run(place.task("run").args(["--", "touch"]).arg(place.path("started")));
    assert_eq!(refused.code, 4, "{refused}");
    for part in ["there is no bucket checkpoints", "403: ", "AccessDenied", "create the bucket"] {
        assert!(refused.stderr.contains(part), "{part}: {refused}");
    }
    assert!(!refused.stderr.contains("X-Amz-Signature"), "{refused}");
    assert!(!place.path("started").exists(), "the task was started");
}

#[test]
fn compressed_checkpoints_are_smaller_and_restore_alike() {
    let stored = |flag: &[&str]| {
        let place = Place::new();
        let script = "trap 'yes some text | head -c 4000000 > $SANDERLING_TASK_STATE/text; \
                      touch $SANDERLING_TASK_STATE/done' USR1; while :; do sleep 0.02; done";
        let mut command = place.task("run");
        command.args(["--interval", "50ms"]).args(flag).args(["--", "sh", "-c", script]);
        let mut runner = command.stderr(Stdio::null()).spawn().expect("started");
        until("a generation", SOON, || place.newest());
        kill(&mut runner);
        let restored = run(place.task("restore").arg("--state").arg(place.path("restored")));
        assert_eq!(restored.code, 0, "{restored}");
        let text = std::fs::read_to_string(place.path("restored/text")).expect("restored");
        assert!(text.len() == 4_000_000 && text.starts_with("some text\nsome text\n"));
        let bytes = |pack: &PathBuf| std::fs::metadata(pack).expect("a pack").len();
        place.packs().iter().map(bytes).sum::<u64>()
    };
    // Chunks of 64 KiB of ten repeated bytes differ in where they begin: five are distinct.
    let (plain, compressed) = (stored(&["--no-compression"]), stored(&[]));
    assert!(plain > 5 * 60_000, "{plain}");
    assert!(compressed < plain / 20, "{compressed} of {plain}");
}

#[test]
fn notice_triggers_a_checkpoint_only_if_it_ends_in_time() {
    let place = Place::new();
    let notice = place.path("notice");
    let give = |seconds: f64| {
        let text = format!("{{\"deadline_seconds\": {seconds}}}");
        std::fs::write(place.path("notice.new"), text).expect("written");
        std::fs::rename(place.path("notice.new"), &notice).expect("renamed");
    };
    let mut command = place.task("run");
    command.args(["--interval", "1h", "--on-notice", "--notice-deadline", "10m"]);
    command.arg("--notice-source").arg(format!("file:{}", notice.display()));
    command.arg("--state").arg(place.path("state"));
    // A notice has half a second left at least, and so much memory is not packed in that time.
    command.env("HELD_MEGABYTES", "500");
    place.counter(&mut command, 1_000_000);
    let log = std::fs::File::create(place.path("runner.log")).expect("a log");
    let mut runner = command.stderr(log).spawn().expect("started");
    let logged = |words: &str| {
        until(words, SOON, || {
            let log = std::fs::read_to_string(place.path("runner.log")).ok()?;
            log.contains(words).then_some(log)
        })
    };
    // The task handles the signal from its first line that counts on.
    let is_ready = || {
        let status = std::fs::read_dir(place.path("state")).ok().map(|_| ());
        status.and_then(|()| handles_signal(runner_child(runner.id())?).then_some(()))
    };
    until("the task handles the signal", SOON, is_ready);
    give(0.05);
    logged("none is begun, and there is no generation");
    assert_eq!(place.newest(), None);
    give(600.0);
    logged("it is taken now");
    until("the generation of the notice", SOON, || place.newest());
    // SIGTERM is a notice, too: the last state is stored before the task ends.
    let pid = rustix::process::Pid::from_child(&runner);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("sent");
    let status = until("the runner ends", SOON, || runner.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(130));
    let log = logged("notice from SIGTERM");
    assert_eq!(place.newest(), Some(2), "{log}");
}

/// An S3 server whose reply to the first manifest comes when the test lets it.
#[derive(Clone)]
struct SlowManifest {
    server: String,
    is_held: Arc<AtomicBool>,
    is_released: Arc<AtomicBool>,
}

impl SlowManifest {
    /// Returns it, and its address.
    fn before(server: &str) -> (Self, String) {
        let (server, is_held, is_released) = (server.to_owned(), Arc::default(), Arc::default());
        let slow = Self { server, is_held, is_released };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let taking = slow.clone();
        thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                taking.clone().pass(caller);
            }
        });
        (slow, address)
    }

    fn pass(self, mut caller: TcpStream) {
        let mut server = TcpStream::connect(&self.server).expect("it serves");
        let mut back = (server.try_clone().expect("a socket"), caller.try_clone().expect("one"));
        let is_this = Arc::new(AtomicBool::new(false));
        let waits = Arc::clone(&is_this);
        thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            while let Ok(read @ 1..) = caller.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..read]);
                let is_manifest = text.starts_with("PUT ") && text.contains("/generations/");
                if is_manifest && !self.is_held.swap(true, Ordering::SeqCst) {
                    is_this.store(true, Ordering::SeqCst);
                }
                if server.write_all(&buffer[..read]).is_err() {
                    return;
                }
            }
        });
        thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            while let Ok(read @ 1..) = back.0.read(&mut buffer) {
                while waits.load(Ordering::SeqCst) && !self.is_released.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(5));
                }
                if back.1.write_all(&buffer[..read]).is_err() {
                    return;
                }
            }
        });
    }
}

#[test]
fn notice_while_a_manifest_is_written_costs_neither_the_task_nor_its_last_checkpoint() {
    let cluster = Cluster::of(2);
    let address = cluster.namenode.address.clone();
    let words = ["gateway", "s3", "--namenode", &address, "--listen", "127.0.0.1:0"];
    let gateway = cluster.serve("gateway", &[&words[..], &["--http", "none"]].concat());
    let made = cluster.cli(&["fs", "mkdir", "/checkpoints"]);
    assert_eq!(made.code, 0, "{made}");
    let (slow, address) = SlowManifest::before(&gateway.address);
    let mut place = Place::new();
    place.backend = "s3://checkpoints/task".to_owned();
    place.s3 = s3_at(&address);
    let mut command = place.task("run");
    command.args(["--interval", "100ms", "--on-notice", "--notice-deadline", "10m"]);
    command.arg("--notice-source").arg(format!("file:{}", place.path("notice").display()));
    command.arg("--state").arg(place.path("state"));
    place.counter(&mut command, 1_000_000);
    let log = std::fs::File::create(place.path("runner.log")).expect("a log");
    let mut runner = Killed(command.stderr(log).spawn().expect("started"));
    until("the manifest is written", SOON, || slow.is_held.load(Ordering::SeqCst).then_some(()));
    std::fs::write(place.path("notice.new"), r#"{"deadline_seconds": 600}"#).expect("written");
    std::fs::rename(place.path("notice.new"), place.path("notice")).expect("renamed");
    let log = until("a checkpoint after the notice", SOON, || {
        let log = std::fs::read_to_string(place.path("runner.log")).ok()?;
        let (_, after) = log.split_once("it is taken now")?;
        let has_ended = after.contains("generation ") || after.contains("no checkpoint");
        has_ended.then_some(log)
    });
    assert!(!log.contains("no checkpoint"), "{log}");
    slow.is_released.store(true, Ordering::SeqCst);
    assert!(runner.0.try_wait().expect("our own child").is_none(), "the task goes on: {log}");
    drop(runner);
    let verified = run(place.task("verify").arg("--json"));
    assert_eq!(verified.code, 0, "{verified}");
}

/// Returns the environment of a client of an S3 server.
fn s3_at(address: &str) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ENDPOINT_URL", format!("http://{address}")),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", "sanderling".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "sanderling".to_owned()),
    ]
}

/// Returns the task's process: what the runner has started.
fn runner_child(runner: u32) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{runner}/task")).ok()?.flatten();
    let children = tasks.filter_map(|it| std::fs::read_to_string(it.path().join("children")).ok());
    children
        .flat_map(|it| it.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<_>>())
        .next()
}

fn handles_signal(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let bits = caught.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> 9 & 1 == 1)
}

#[test]
fn forecast_counts_with_given_rates_and_measures_a_backend() {
    let place = Place::new();
    let predict = |words: &[&str]| {
        let mut command = sanderling();
        command.args(["task", "predict", "--json", "--backend", &place.backend]).args(words);
        let ran = run(&mut command);
        assert_eq!(ran.code, 0, "{ran}");
        serde_json::from_str::<Value>(&ran.stdout).expect("JSON")
    };
    let rates = ["--put-rate", "36MB/s", "--pack-rate", "400MB/s"];
    let large = predict(&[&["--rss", "8GB", "--notice", "30s"][..], &rates].concat());
    assert_eq!(large["fits"], false, "{large}");
    assert!((222.0..224.0).contains(&large["seconds"].as_f64().expect("seconds")), "{large}");
    assert!((0.18..0.19).contains(&large["dollars_per_month"].as_f64().expect("dollars")));
    let edge = large["fits_up_to_bytes"].as_u64().expect("bytes");
    assert!((800_000_000..900_000_000).contains(&edge), "{large}");
    assert!(!place.path("backend").exists(), "nothing was measured");
    let small = predict(&["--rss", "1MiB", "--notice", "10m"]);
    assert_eq!(small["fits"], true, "{small}");
    assert!(small["put_bytes_per_second"].as_u64().expect("a rate") > 0, "{small}");
    let left = std::fs::read_dir(place.path("backend/@@predict/packs")).expect("packs").count();
    assert_eq!(left, 0, "what was measured is removed");
    let refused = run(sanderling().args(["task", "predict", "--rss", "1G", "--put-rate", "0"]));
    assert_eq!(refused.code, 2, "{refused}");
}

#[test]
fn forecast_for_a_durable_directory_counts_the_requests_that_copy_each_object() {
    let (cluster, _store) = fleet(4);
    make(&cluster, "/durable");
    let requests = |backend: &str| {
        let words = ["task", "predict", "--rss", "1MB", "--json", "--backend", backend];
        let ran = cluster.cli(&words);
        assert_eq!(ran.code, 0, "{ran}");
        serde_json::from_str::<Value>(&ran.stdout).expect("JSON")["requests"].clone()
    };
    // A pack, a manifest and the list of packs; or an upload of each object, in three requests.
    assert_eq!((requests("/elsewhere"), requests("/durable")), (3.into(), 6.into()));
}
