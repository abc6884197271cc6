//! A task that changes its state here and there, so that chunks of many packs lie side by side in
//! the newest generation.

use std::fs;
use std::path::Path as LocalPath;
use std::process::{Child, Command, Stdio};

use crate::cluster::tasks::TaskPlace;
use crate::cluster::{SOON, program_at, run, until};
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

/// Runs a command, writes the bytes that it has read into a file, and returns its exit code.
const COUNTED: &str = r#""$@"; code=$?; grep rchar "/proc/$$/io" >"$0"; exit $code"#;

/// It is killed when its test is over.
struct SparseRunner(Child);

impl Drop for SparseRunner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns how many packs a backend has, and their bytes.
fn packs(backend: &LocalPath) -> (usize, u64) {
    let entries = fs::read_dir(backend.join("count/packs")).expect("readable");
    let bytes = entries.map(|entry| entry.expect("readable").metadata().expect("there").len());
    bytes.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes))
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
    let mut runner = SparseRunner(command.spawn().expect("started"));
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
