//! How many bytes of a state are stored, with compression and without.

use std::fs;
use std::process::Stdio;

use crate::cluster::tasks::TaskPlace;
use crate::cluster::{Killed, SOON, run, until};
use tempfile::TempDir;

/// Bytes of each state, beside the list of its files.
const STATE_BYTES: u64 = 2_000_000;

/// Two chunks: that of the list of files, and the one that a state ends in.
const REST_BYTES: u64 = 2 * (64 << 10);

/// Writes a state of a kind, its first argument, when it gets SIGUSR1. Before that it writes the
/// same bytes into a file, its second argument.
const TASK: &str = r#"
import os, random, signal, sys, time
state, kind = os.environ["SANDERLING_TASK_STATE"], sys.argv[1]
if kind == "text":
    content = "".join(f"{number:09d}\n" for number in range(200_000)).encode()
elif kind == "noise":
    content = random.Random(1).randbytes(2_000_000).replace(b"\0", b"\1")
else:
    content = bytes(2_000_000)
with open(sys.argv[2], "wb") as file:
    file.write(content)

def save(*_):
    with open(os.path.join(state, "bytes"), "wb") as file:
        file.write(content)
    open(os.path.join(state, "done"), "w").close()

signal.signal(signal.SIGUSR1, save)
while True:
    time.sleep(0.01)
"#;

/// Takes a checkpoint of a state of that kind, restores it, and compares its bytes. Returns how
/// many bytes the packs have.
fn stored(kind: &str, flags: &[&str]) -> u64 {
    let directory = TempDir::new().expect("a directory");
    let backend = directory.path().join("backend");
    let place = TaskPlace::in_directory(&backend, 0);
    let (task, expected) = (place.path("task.py"), place.path("expected"));
    fs::write(&task, TASK).expect("written");
    let mut command = place.task("run");
    command.args(["--driver", "hook", "--interval", "50ms"]).args(flags);
    command.args(["--", "python3"]).arg(&task).arg(kind).arg(&expected);
    let log = fs::File::create(place.path("runner.log")).expect("a log");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut runner = Killed(command.spawn().expect("started"));
    until("a generation", SOON, || {
        let ended = runner.0.try_wait().expect("our own child");
        let log = || fs::read_to_string(place.path("runner.log")).unwrap_or_default();
        assert_eq!(ended, None, "the runner ended: {}", log());
        (place.newest() > 0).then_some(())
    });
    drop(runner);
    let to = place.path("restored");
    let ran = run(place.task("restore").arg("--state").arg(&to));
    assert_eq!(ran.code, 0, "{ran}");
    let restored = fs::read(to.join("bytes")).expect("restored");
    let same = restored == fs::read(&expected).expect("the task has written it");
    assert!(same, "{kind} {flags:?}: {} bytes, other ones", restored.len());
    assert_eq!(restored.len() as u64, STATE_BYTES);
    // Nothing changes from one generation to the next, so nothing is added to the packs of the
    // first one.
    let packs = fs::read_dir(backend.join("count/packs")).expect("readable");
    packs.map(|pack| pack.expect("readable").metadata().expect("there").len()).sum()
}

#[test]
fn stored_length_does_not_depend_on_what_can_be_compressed_without_compression() {
    let plain = ["--no-compression"];
    let (text, noise) = (stored("text", &plain), stored("noise", &plain));
    assert_eq!(text, noise, "the length shows how well a state can be compressed");
    assert!((STATE_BYTES..STATE_BYTES + REST_BYTES).contains(&text), "{text}");
    let compressed = stored("text", &[]);
    assert!(compressed < text / 2, "{compressed} of {text}");
    // Zeros at the end of a chunk are never stored.
    let zeros = stored("zeros", &plain);
    assert!(zeros < REST_BYTES, "{zeros}");
}
