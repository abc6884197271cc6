//! Checkpoints of processes that do not take part in them, by CRIU. Without root and CRIU (which
//! scripts/criu.sh unpacks) these tests are skipped.

#[path = "criu/bag.rs"]
mod bag;
mod cluster;
#[path = "criu/ends.rs"]
mod ends;
#[path = "criu/memory_group.rs"]
mod memory_group;
#[path = "criu/stopped.rs"]
mod stopped;
#[path = "criu/tree.rs"]
mod tree;

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path as LocalPath, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cluster::tasks::{Mounted, library, usable_criu};
use cluster::{Cluster, Killed, Ran, SOON, Server, Shape, program_at, run, sanderling, until};
use sanderling_transport::available_bytes;
use serde_json::Value;
use tempfile::TempDir;

/// Counts in memory, and appends each number to a file. Its argument is what else it has open.
/// It ends when there is a file `stop`, and prints the number.
const COUNTER: &str = r#"
import fcntl, os, socket, sys, time
here, what = sys.argv[1], sys.argv[2]
if what == "terminal":
    held = os.openpty()
elif what == "lock":
    held = open(os.path.join(here, "locked"), "a")
    fcntl.flock(held, fcntl.LOCK_EX)
elif what == "connection":
    listener = socket.create_server(("127.0.0.1", 0))
    held = socket.create_connection(listener.getsockname()), listener.accept()[0]
elif what == "device":
    held = open("/dev/fuse")
elif what == "memory":
    held = [os.urandom(1 << 20) for _ in range(48)]
elif what == "large":
    held = [os.urandom(1 << 20) for _ in range(256)]
elif what == "larger":
    held = [os.urandom(1 << 20) for _ in range(640)]
elif what == "unlinked":
    held = open(os.path.join(here, "unlinked"), "wb")
    os.unlink(held.name)
    held.write(os.urandom(2 << 20))
    held.flush()
    os.fsync(held.fileno())
log = open(os.path.join(here, "log"), "a")
count = total = 0
while not os.path.exists(os.path.join(here, "stop")):
    if what == "busy":
        for number in range(300000):
            total += number * number % 7
    else:
        time.sleep(0.01)
    count += 1
    print(count, file=log, flush=True)
if what == "connection":
    held[0].sendall(b"through")
    assert held[1].recv(10) == b"through"
print("ended at", count)
"#;

struct Place {
    directory: TempDir,
    criu: PathBuf,
}

impl Place {
    /// Returns a place with the counter; `None` where CRIU cannot be used.
    fn new(test: &str) -> Option<Self> {
        let Some(criu) = usable_criu() else {
            eprintln!("SKIPPED {test}: no root or no CRIU here: scripts/criu.sh");
            return None;
        };
        let directory = TempDir::new().expect("a directory");
        std::fs::write(directory.path().join("counter.py"), COUNTER).expect("written");
        Some(Self { directory, criu })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn task(&self, verb: &str) -> Command {
        let mut command = sanderling();
        let backend = format!("dir:{}", self.path("backend").display());
        command.args(["task", verb, "--backend", &backend, "--name", "count", "--key"]);
        command.arg(self.path("key"));
        command
    }

    fn runner(&self, what: &str, flags: &[&str]) -> Command {
        self.runner_with("criu", &self.criu, what, flags)
    }

    fn runner_with(&self, driver: &str, criu: &LocalPath, what: &str, flags: &[&str]) -> Command {
        let mut command = self.task("run");
        command.arg("--criu").arg(criu);
        command.args(["--driver", driver, "--interval", "200ms"]).args(flags);
        command.args(["--", "python3"]).arg(self.path("counter.py"));
        command.arg(self.directory.path()).arg(what);
        command
    }

    fn start(&self, what: &str, flags: &[&str]) -> Killed {
        let mut options = std::fs::OpenOptions::new();
        let log = options.create(true).append(true).open(self.path("runner.log"));
        let mut command = self.runner(what, flags);
        command.stdout(Stdio::null()).stderr(log.expect("a log"));
        Killed(command.spawn().expect("started"))
    }

    /// Runs the counter until it has so many generations since it began to count, and kills the
    /// runner.
    fn publish(&self, what: &str, flags: &[&str], generations: u64) {
        let mut runner = self.start(what, flags);
        let mut first = None;
        until("generations are published", SOON, || {
            assert!(!runner.has_ended(), "{}", self.text("runner.log"));
            if self.numbers().is_empty() {
                return None;
            }
            // One may have been begun before the first number.
            let first = *first.get_or_insert(self.newest().unwrap_or(0) + 1);
            (self.newest()? >= first + generations).then_some(())
        });
    }

    fn newest(&self) -> Option<u64> {
        let entries = std::fs::read_dir(self.path("backend/count/generations")).ok()?.flatten();
        entries.filter_map(|it| it.file_name().to_str()?.parse().ok()).max()
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn numbers(&self) -> Vec<u64> {
        self.text("log").lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Starts the runner again, lets the counter go on, and returns how it ended.
    fn finish(&self, flags: &[&str]) -> Ran {
        let before = self.numbers().len();
        let mut runner = self.start("none", flags);
        until("the counter goes on", SOON, || {
            assert!(!runner.has_ended(), "{}", self.text("runner.log"));
            (self.numbers().len() > before + 5).then_some(())
        });
        drop(runner);
        std::fs::write(self.path("stop"), "").expect("written");
        run(&mut self.runner("none", flags))
    }

    /// Asserts that the numbers of the log never begin again.
    fn assert_went_on(&self) {
        let numbers = self.numbers();
        assert_eq!(numbers.iter().filter(|number| **number == 1).count(), 1, "{numbers:?}");
        for pair in numbers.windows(2) {
            assert!(pair[1] <= pair[0] + 1, "{pair:?} in {numbers:?}");
        }
        let back = numbers.windows(2).filter(|pair| pair[1] <= pair[0]).count();
        assert!(back >= 1, "it was restored from a checkpoint: {numbers:?}");
    }
}

#[test]
fn killed_process_goes_on_from_the_number_in_its_memory() {
    let Some(place) = Place::new("killed_process_goes_on") else { return };
    place.publish("memory", &[], 2);
    let ran = place.finish(&[]);
    assert_eq!(ran.code, 0, "{ran}\n{}", place.text("runner.log"));
    assert!(ran.stdout.contains("ended at"), "the output of the task is copied: {ran}");
    assert!(ran.stderr.contains("restored generation"), "{ran}");
    place.assert_went_on();
    // What does not change is stored once: of 48 MiB, a second generation adds little.
    let verified = run(place.task("verify").arg("--json"));
    assert_eq!(verified.code, 0, "{verified}");
    let document: Value = serde_json::from_str(&verified.stdout).expect("JSON");
    let row = &document["generations"][0];
    assert!(row["state_bytes"].as_u64().expect("bytes") > 48 << 20, "{document}");
    assert!(row["added_bytes"].as_u64().expect("bytes") < 24 << 20, "{document}");
}

/// A task with 256 MiB or more whose store is behind a gateway, and a runner that takes no
/// checkpoint before a notice.
struct AwayStore {
    place: Place,
    runner: Killed,
    gateway: Server,
    _cluster: Cluster,
}

impl AwayStore {
    /// Starts them; `None` where CRIU cannot be used or memory is short.
    fn start(test: &str, flags: &[&str]) -> Option<Self> {
        Self::start_by(sanderling(), test, "large", flags)
    }

    /// The same with another task, by a command that becomes the program.
    fn start_by(mut command: Command, test: &str, what: &str, flags: &[&str]) -> Option<Self> {
        let place = Place::new(test)?;
        if available_bytes().is_some_and(|bytes| bytes < 4 << 30) {
            eprintln!("SKIPPED {test}: less than 4 GiB of memory are available");
            return None;
        }
        let cluster = Cluster::start(Shape { datanodes: 2, dram: "768MiB", ..Shape::default() });
        let made = cluster.cli(&["fs", "mkdir", "/checkpoints"]);
        assert_eq!(made.code, 0, "{made}");
        let address = cluster.namenode.address.clone();
        let words = ["gateway", "s3", "--namenode", &address, "--listen", "127.0.0.1:0"];
        let gateway = cluster.serve("gateway", &[&words[..], &["--http", "none"]].concat());
        std::fs::create_dir(place.path("temporary")).expect("made");
        let notices = format!("file:{}", place.path("notice").display());
        command.args(["task", "run", "--backend", "s3://checkpoints/task", "--name", "count"]);
        command.args(["--driver", "criu", "--interval", "1h", "--lock-age", "10m"]);
        command.arg("--key").arg(place.path("key"));
        command.args(["--on-notice", "--notice-source", &notices]).args(flags);
        command.arg("--criu").arg(&place.criu).arg("--record").arg(place.path("record"));
        command.arg("--").arg("python3").arg(place.path("counter.py"));
        command.arg(place.directory.path()).arg(what);
        command.env("TMPDIR", place.path("temporary"));
        command.env("AWS_ENDPOINT_URL", format!("http://{}", gateway.address));
        command.env("AWS_REGION", "us-east-1").env("AWS_ACCESS_KEY_ID", "sanderling");
        command.env("AWS_SECRET_ACCESS_KEY", "sanderling");
        let log = std::fs::File::create(place.path("runner.log")).expect("a log");
        let runner = command.stdout(Stdio::null()).stderr(log).spawn().expect("started");
        Some(Self { place, runner: Killed(runner), gateway, _cluster: cluster })
    }

    /// Lets the dump begin once the counter counts, and stops the gateway.
    fn dump_without_store(&mut self) {
        until("the counter counts", SOON, || {
            assert!(!self.runner.has_ended(), "{}", self.place.text("runner.log"));
            (!self.place.numbers().is_empty()).then_some(())
        });
        let notice = self.place.path("notice.new");
        std::fs::write(&notice, r#"{"deadline_seconds": 600}"#).expect("written");
        std::fs::rename(&notice, self.place.path("notice")).expect("renamed");
        until("a dump begins", SOON, || self.is_under_way().then_some(()));
        self.gateway.pause();
        let log = self.place.text("runner.log");
        assert_eq!(self.place.text("record"), "", "it was stored before the store was away: {log}");
    }

    /// Returns whether CRIU runs: it has a directory as long as it does.
    fn is_under_way(&self) -> bool {
        let entries = std::fs::read_dir(self.place.path("temporary")).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        names.into_iter().any(|name| name.to_string_lossy().starts_with("sanderling-criu-"))
    }

    /// Lets the gateway go on, and returns what was recorded of the dump that was under way; `None`
    /// if CRIU itself has failed, as it may on a busy machine.
    fn stored(&self) -> Option<Value> {
        self.gateway.resume();
        let record = until("the dump ends", 3 * SOON, || {
            let log = self.place.text("runner.log");
            if log.contains("no checkpoint") {
                assert!(log.contains("CRIU cannot dump the task"), "{log}");
                return Some(String::new());
            }
            Some(self.place.text("record")).filter(|record| !record.is_empty())
        });
        let line: Value = serde_json::from_str(record.lines().next()?).expect("JSON");
        assert_eq!(line["generation"], 1, "{}", self.place.text("runner.log"));
        Some(line)
    }
}

/// The store stops to answer when the dump begins. What was read waits in the runner's memory, so
/// CRIU ends and the task goes on. Without that, it would stand still until the dump fails: 256 MiB
/// are more than the packs that wait for the store.
#[test]
fn task_goes_on_before_its_images_are_stored() {
    for _ in 0..3 {
        let Some(mut store) = AwayStore::start("task_goes_on_before_its_images", &[]) else {
            return;
        };
        store.dump_without_store();
        until("CRIU lets the task go on", SOON, || (!store.is_under_way()).then_some(()));
        let before = store.place.numbers().len();
        until("the counter counts", SOON, || (store.place.numbers().len() > before).then_some(()));
        if let Some(line) = store.stored() {
            assert!(line["frozen_seconds"].as_f64() < line["dump_seconds"].as_f64(), "{line}");
            return;
        }
    }
    panic!("CRIU fails again and again");
}

/// With less memory for its images than they have, and under the policy of the baseline, the task
/// stands still while the store does not answer.
#[test]
fn task_whose_images_may_not_wait_stands_still() {
    for flags in [["--image-memory", "4MiB"], ["--policy", "baseline"]] {
        let Some(mut store) = AwayStore::start("task_whose_images_may_not_wait", &flags) else {
            return;
        };
        store.dump_without_store();
        let mut seen = (0, Instant::now());
        until("the counter stands still for two seconds", SOON, || {
            assert!(store.is_under_way(), "{flags:?}: {}", store.place.text("runner.log"));
            let count = store.place.numbers().len();
            if count != seen.0 {
                seen = (count, Instant::now());
            }
            (seen.1.elapsed() > Duration::from_secs(2)).then_some(())
        });
        store.gateway.resume();
        let goes_on = || (store.place.numbers().len() > seen.0).then_some(());
        until("the counter counts", 3 * SOON, goes_on);
    }
}

#[test]
fn process_that_computes_without_a_pause_is_restored_as_it_was() {
    // One that goes on before all of its pages are read changes its own checkpoint, its stack above
    // all, and one in four such processes ended by a signal soon after it was restored.
    for _ in 0..8 {
        let Some(place) = Place::new("process_that_computes_without_a_pause") else { return };
        place.publish("busy", &[], 1);
        let ran = place.finish(&[]);
        assert_eq!(ran.code, 0, "{ran}\n{}", place.text("runner.log"));
        place.assert_went_on();
    }
}

#[test]
fn slow_reader_gets_all_of_the_output() {
    let Some(place) = Place::new("slow_reader_gets_all") else { return };
    let mut command = place.task("run");
    command.arg("--criu").arg(&place.criu).args(["--driver", "criu", "--interval", "10m"]);
    let end = place.path("end");
    let words = format!("seq 1 20000; touch {}", end.display());
    command.args(["--", "sh", "-c", &words]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut runner = command.spawn().expect("started");
    let mut out = runner.stdout.take().expect("piped");
    // The pipes hold it all, so the task ends before the first byte is read: three seconds before.
    until("the task ends", SOON, || end.exists().then_some(()));
    std::thread::sleep(Duration::from_secs(3));
    let mut text = String::new();
    out.read_to_string(&mut text).expect("read");
    assert_eq!(text.lines().count(), 20_000, "{:?}", text.lines().last());
    assert!(runner.wait().expect("waited for").success());
}

#[test]
fn what_cannot_be_dumped_is_refused_by_its_descriptor_and_the_task_goes_on() {
    for (what, why) in [
        ("terminal", "a terminal"),
        ("lock", "a file lock"),
        ("connection", "a TCP connection"),
        ("device", "a device"),
    ] {
        let Some(place) = Place::new("what_cannot_be_dumped") else { return };
        if what == "device" && !LocalPath::new("/dev/fuse").exists() {
            continue;
        }
        let runner = place.start(what, &[]);
        let refusal = until("the dump is refused", SOON, || {
            let log = place.text("runner.log");
            log.lines().find(|line| line.contains("cannot be dumped")).map(str::to_owned)
        });
        assert!(refusal.contains("has descriptor ") && refusal.contains(why), "{refusal}");
        assert!(refusal.contains("(python3)"), "{refusal}");
        let (before, newest) = (place.numbers().len(), place.newest());
        until("the task goes on", SOON, || (place.numbers().len() > before + 5).then_some(()));
        drop(runner);
        assert_eq!(place.newest(), newest, "{what}");
    }
}

#[test]
fn large_file_that_is_open_and_was_unlinked_is_refused_and_the_task_goes_on() {
    let Some(place) = Place::new("large_file_that_is_open_and_was_unlinked") else { return };
    let mut runner = place.start("unlinked", &[]);
    // A checkpoint may have been taken before the file was opened.
    until("CRIU refuses the file", SOON, || {
        let log = place.text("runner.log");
        assert!(!runner.has_ended(), "{log}");
        let mut refusals = log.lines().filter(|line| line.contains("CRIU cannot dump the task"));
        refusals.any(|line| line.contains("ghost file")).then_some(())
    });
    let (before, newest) = (place.numbers().len(), place.newest());
    until("the task goes on", SOON, || (place.numbers().len() > before + 5).then_some(()));
    assert!(!runner.has_ended(), "{}", place.text("runner.log"));
    assert_eq!(place.newest(), newest);
}

#[test]
fn locks_and_connections_of_the_task_are_restored_on_request() {
    let Some(place) = Place::new("locks_and_connections") else { return };
    place.publish("lock", &["--file-locks"], 1);
    let ran = place.finish(&["--file-locks"]);
    assert_eq!(ran.code, 0, "{ran}\n{}", place.text("runner.log"));
    place.assert_went_on();
    let Some(place) = Place::new("locks_and_connections") else { return };
    place.publish("connection", &["--network", "own"], 1);
    let ran = place.finish(&["--network", "own"]);
    assert_eq!(ran.code, 0, "{ran}\n{}", place.text("runner.log"));
    place.assert_went_on();
}

#[test]
fn damaged_generation_of_criu_is_refused_for_the_one_before() {
    let Some(place) = Place::new("damaged_generation_of_criu") else { return };
    place.publish("memory", &[], 1);
    let packs = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(place.path("backend/count/packs")).expect("packs");
        entries.map(|it| it.expect("readable").path()).collect()
    };
    let first = packs();
    place.publish("memory", &[], 1);
    for pack in packs().into_iter().filter(|pack| !first.contains(pack)) {
        let mut bytes = std::fs::read(&pack).expect("readable");
        bytes.iter_mut().step_by(1000).for_each(|byte| *byte ^= 1);
        std::fs::write(&pack, bytes).expect("written");
    }
    std::fs::write(place.path("stop"), "").expect("written");
    let ran = run(&mut place.runner("memory", &[]));
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("is refused: its chunk"), "{ran}");
    assert!(ran.stderr.contains("restored generation"), "{ran}");
}

/// Reads an image as CRIU does, to the end of its pipe, and makes a file when it has come.
const READER: &str = r#"
import os, socket, sys
directory = sys.argv[sys.argv.index("-D") + 1]
name = b"pages-1.img"
server = socket.socket(socket.AF_UNIX)
server.connect(os.path.join(directory, "streamer-serve.sock"))
message = bytes([0x0A, len(name)]) + name
server.sendall(len(message).to_bytes(4, "little") + message)
assert server.recv(6, socket.MSG_WAITALL) == b"\x02\x00\x00\x00\x08\x01"
open(os.environ["BEGUN"], "w").close()
reader, writer = os.pipe()
socket.send_fds(server, [b"\0"], [writer])
os.close(writer)
total = 0
while part := os.read(reader, 1 << 20):
    total += len(part)
with open(os.environ["ENDED"], "w") as file:
    print(total, file=file)
sys.exit(1)
"#;

/// Flips one byte in each MiB of the first halves of large packs. These have pages of the task's
/// memory there: the index is at the end of the last pack of a dump.
fn damage_pages(place: &Place) {
    let entries = std::fs::read_dir(place.path("backend/count/packs")).expect("packs");
    for path in entries.map(|it| it.expect("readable").path()) {
        let mut bytes = std::fs::read(&path).expect("readable");
        if bytes.len() < 8 << 20 {
            continue;
        }
        let middle = bytes.len() / 2;
        bytes[..middle].iter_mut().step_by(1 << 20).skip(1).for_each(|byte| *byte ^= 1);
        std::fs::write(&path, bytes).expect("written");
    }
}

/// With CRIU, and with a reader that would notice an end.
#[test]
fn image_with_a_damaged_chunk_has_no_end_for_criu_and_its_task_never_runs() {
    let Some(place) = Place::new("image_with_a_damaged_chunk") else { return };
    // The two that are kept have all of the memory.
    place.publish("memory", &["--keep", "2"], 3);
    let (stub, begun, ended) = (place.path("stub"), place.path("begun"), place.path("ended"));
    let (reader, real) = (place.path("reader.py"), place.criu.display());
    std::fs::write(&reader, READER).expect("written");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = restore ] && exec python3 '{}' \"$@\"\nexec '{real}' \"$@\"\n",
        reader.display()
    );
    std::fs::write(&stub, script).expect("written");
    std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755)).expect("set");
    let restore = |criu: &LocalPath| {
        let mut runner = place.runner_with("criu", criu, "memory", &[]);
        run(runner.env("BEGUN", &begun).env("ENDED", &ended))
    };
    // The reader comes to the end of an image that is whole.
    let ran = restore(&stub);
    assert!(ran.code == 1 && ran.stderr.contains("CRIU cannot restore generation"), "{ran}");
    let total: u64 = place.text("ended").trim().parse().expect("bytes");
    assert!(total > 48 << 20, "{total} bytes");
    for made in [&begun, &ended] {
        std::fs::remove_file(made).expect("it was made");
    }
    damage_pages(&place);
    let before = place.numbers().len();
    for criu in [&stub, &place.criu] {
        let ran = restore(criu);
        assert_eq!(ran.code, 5, "{ran}");
        assert!(ran.stderr.contains("is refused: its chunk"), "{ran}");
        assert!(ran.stderr.contains("no generation of count can be restored"), "{ran}");
        assert!(!ran.stderr.contains("restored generation"), "{ran}");
        assert!(begun.exists() && !ended.exists(), "its bytes: {}", place.text("ended"));
        assert_eq!(place.numbers().len(), before, "the task went on");
    }
}

/// The packs can be listed, and not be read: from the start, and from when CRIU runs.
#[test]
fn backend_that_fails_during_a_restore_costs_no_generation() {
    let Some(place) = Place::new("backend_that_fails_during_a_restore") else { return };
    let Some(library) = library(place.directory.path(), include_str!("task/fail_reads.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    // More than is read before CRIU runs: 64 MiB of the largest image, and the packs beside it.
    place.publish("large", &[], 1);
    let entries = std::fs::read_dir(place.path("backend/count/generations")).expect("listed");
    assert!(entries.count() >= 2, "an older one could be restored");
    let newest = place.newest().expect("published");
    let (condition, criu) = (place.path("fails"), place.path("criu"));
    let (fails, real) = (condition.display(), place.criu.display());
    // CRIU may come with a C library of its own.
    let script = format!(
        "#!/bin/sh\nunset LD_PRELOAD\n\
         [ \"$1\" = restore ] && : >'{fails}'\nexec '{real}' \"$@\"\n"
    );
    std::fs::write(&criu, script).expect("written");
    std::fs::set_permissions(&criu, std::fs::Permissions::from_mode(0o755)).expect("set");
    for fails_at_once in [true, false] {
        if fails_at_once {
            std::fs::write(&condition, "").expect("written");
        }
        let mut runner = place.runner_with("criu", &criu, "memory", &[]);
        runner.env("LD_PRELOAD", &library).env("FAIL_IF", &condition);
        let ran = run(runner.env("FAIL_BELOW", "/count/packs/"));
        let failed = "Input/output error";
        assert!(ran.code == 1 && ran.stderr.contains(failed), "{fails_at_once}: {ran}");
        assert!(ran.stderr.contains("/backend/count/packs/"), "it names what failed: {ran}");
        assert!(!ran.stderr.contains("restored generation"), "{fails_at_once}: {ran}");
        assert!(!ran.stderr.contains("is refused"), "no generation is bad: {ran}");
        std::fs::remove_file(&condition).expect("it was made");
    }
    std::fs::write(place.path("stop"), "").expect("written");
    let ran = run(&mut place.runner("memory", &[]));
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains(&format!("restored generation {newest}\n")), "{ran}");
}

#[test]
fn machine_without_a_fitting_criu_is_refused_and_nothing_is_lost() {
    let Some(place) = Place::new("machine_without_a_fitting_criu") else { return };
    place.publish("none", &[], 1);
    let newest = place.newest();
    let stub = |name: &str, script: &str| {
        let path = place.path(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
        path
    };
    let old = stub("old", "echo Version: 3.17.1");
    let other = stub("other", "echo Version: 4.0.2");
    let broken = stub("broken", "echo Version: 4.2.1; [ \"$1\" = --version ]");
    let failing = stub("failing", "echo Version: 4.9; [ \"$1\" != restore ]");
    for (criu, driver, why) in [
        (place.path("absent"), "criu", "CRIU cannot be used"),
        (old, "criu", "it has version 3.17.1, and 4.0.0 is needed"),
        (broken, "criu", "`criu check` fails"),
        (other, "criu", "taken by CRIU 4.2"),
        (place.path("absent"), "auto", "and CRIU cannot be used here"),
        (place.path("absent"), "hook", "and CRIU cannot be used here"),
        (failing, "criu", "CRIU cannot restore generation"),
    ] {
        let ran = run(&mut place.runner_with(driver, &criu, "none", &[]));
        assert!(ran.code == 1 && ran.stderr.contains(why), "{why}: {ran}");
        assert_eq!(place.newest(), newest);
    }
    std::fs::write(place.path("stop"), "").expect("written");
    let ran = run(&mut place.runner("none", &[]));
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("restored generation"), "{ran}");
}

/// Returns what a machine shows of its CPU, without some features, and these in order. Of a CPU
/// without SSE4 they are all.
fn lesser_cpu() -> (String, String) {
    let shown = std::fs::read_to_string("/proc/cpuinfo").expect("readable");
    let is_features = |line: &str| line.starts_with("flags") || line.starts_with("Features");
    let line = shown.lines().find(|line| is_features(line)).expect("it has features");
    let (_, all) = line.split_once(':').expect("a list");
    let prefix = if all.contains(" sse4") { "sse4" } else { "" };
    let is_left = |word: &&str| !word.starts_with(prefix);
    let mut missing: Vec<&str> =
        all.split_ascii_whitespace().filter(|word| !is_left(word)).collect();
    missing.sort_unstable();
    missing.dedup();
    let lesser = |line: &str| match line.split_once(':').filter(|_| is_features(line)) {
        Some((name, all)) => {
            let left: Vec<&str> = all.split_ascii_whitespace().filter(is_left).collect();
            format!("{name}: {}\n", left.join(" "))
        }
        None => format!("{line}\n"),
    };
    (shown.lines().map(lesser).collect(), missing.join(", "))
}

#[test]
fn machine_whose_cpu_lacks_features_is_refused_by_their_names_and_nothing_is_lost() {
    let Some(place) = Place::new("machine_whose_cpu_lacks_features") else { return };
    place.publish("none", &[], 1);
    let newest = place.newest();
    let (shown, missing) = lesser_cpu();
    let cpu = place.path("cpuinfo");
    std::fs::write(&cpu, shown).expect("written");
    // In mount namespaces of its own the runner finds that file in place of the machine's.
    let runner = place.runner("none", &[]);
    let mut command = program_at(LocalPath::new("unshare"));
    let script = r#"mount --bind "$0" /proc/cpuinfo && exec "$@""#;
    command.args(["--mount", "sh", "-c", script]).arg(&cpu);
    command.arg(runner.get_program()).args(runner.get_args());
    let ran = run(&mut command);
    let why = format!("it was taken on a CPU with {missing}, which this one does not have");
    assert!(ran.code == 1 && ran.stderr.contains(&why), "{why}: {ran}");
    assert_eq!(place.newest(), newest);
    std::fs::write(place.path("stop"), "").expect("written");
    let ran = run(&mut place.runner("none", &[]));
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("restored generation"), "{ran}");
}

/// CRIU runs a script there, after which the task goes on: see `dump_gate.rs`.
#[test]
fn temporary_directory_without_programs_is_refused_before_the_task_starts() {
    let Some(place) = Place::new("temporary_directory_without_programs") else { return };
    let temporary = place.path("temporary");
    let _mounted = Mounted::memory(&temporary, "noexec");
    let ran = run(place.runner("none", &[]).env("TMPDIR", &temporary));
    assert!(ran.code == 1 && ran.stderr.contains("is mounted noexec: set TMPDIR"), "{ran}");
    assert!(place.numbers().is_empty(), "it ran");
}

#[test]
fn temporary_directory_may_have_any_name() {
    let Some(place) = Place::new("temporary_directory_may_have_any_name") else { return };
    let temporary = place.path("it's a \"name\" $HOME");
    std::fs::create_dir(&temporary).expect("made");
    let mut command = place.runner("memory", &[]);
    command.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::null());
    let mut runner = Killed(command.spawn().expect("started"));
    until("a generation", SOON, || {
        assert!(!runner.has_ended(), "the runner ended");
        place.newest()
    });
}
