//! A task of several processes, which a pipe joins.

use std::process::{Command, Stdio};

use super::cluster::{SOON, run, until};
use super::{Killed, Place};

/// Reads numbers from a file that stays open, and has two children: one writes numbers into a pipe
/// as fast as that takes them, so it is always full; the other one reads one in 10 ms. Each process
/// that reads ends with an error if a number is not the next one. With each number it appends its
/// process id and the number to a file of its name. When there is a file `stop`, the writer ends,
/// and the reader reads what is left; both write how many numbers there were.
const TREE: &str = r#"
import os, sys, time
here = sys.argv[1]

def place(name):
    return os.path.join(here, name)

def is_over():
    return os.path.exists(place("stop"))

def note(name, count):
    with open(place(name), "a") as file:
        print(os.getpid(), count, file=file)

def write(pipe):
    count = 0
    while not is_over():
        count += 1
        os.write(pipe, b"%8d" % count)
    note("written", count)

def read(pipe):
    count = 0
    while record := os.read(pipe, 8):
        count += 1
        assert int(record) == count, (record, count)
        if not is_over():
            note("reader", count)
            time.sleep(0.01)
    note("read", count)

numbers = os.open(place("numbers"), os.O_RDONLY)
ends, children = os.pipe(), []
for end, work in enumerate([read, write]):
    child = os.fork()
    if child == 0:
        os.close(ends[1 - end])
        work(ends[end])
        sys.exit()
    children.append(child)
for end in ends:
    os.close(end)
count = 0
while not is_over():
    count += 1
    record = os.read(numbers, 8)
    assert int(record) == count, (record, count)
    note("parent", count)
    time.sleep(0.01)
statuses = [os.waitpid(child, 0)[1] for child in children]
assert statuses == [0, 0], statuses
print("ended at", count)
"#;

/// The processes that write down each number.
const READERS: [&str; 2] = ["parent", "reader"];

/// More numbers than are read in [`SOON`].
const NUMBERS: u64 = 100_000;

fn tree(place: &Place) -> Command {
    let mut command = place.task("run");
    command.arg("--criu").arg(&place.criu).args(["--driver", "criu", "--interval", "200ms"]);
    command.args(["--", "python3"]).arg(place.path("tree.py")).arg(place.directory.path());
    command
}

/// Returns the process ids and numbers of a file.
fn steps(place: &Place, name: &str) -> Vec<(u32, u64)> {
    let text = place.text(name);
    let step = |line: &str| {
        let (pid, count) = line.split_once(' ')?;
        Some((pid.parse().ok()?, count.parse().ok()?))
    };
    text.lines().filter_map(step).collect()
}

/// Starts or restores the tree, and kills its runner when both readers went on and a generation has
/// that.
fn run_for_a_while(place: &Place) {
    let mut options = std::fs::OpenOptions::new();
    let log = options.create(true).append(true).open(place.path("runner.log"));
    let mut command = tree(place);
    command.stdout(Stdio::null()).stderr(log.expect("a log"));
    let mut runner = Killed(command.spawn().expect("started"));
    let before = READERS.map(|name| steps(place, name).len());
    let mut first = None;
    until("a generation of processes that went on", SOON, || {
        assert!(!runner.has_ended(), "{}", place.text("runner.log"));
        let goes_on = |(name, before): (&&str, usize)| steps(place, name).len() > before + 5;
        if !READERS.iter().zip(before).all(goes_on) {
            return None;
        }
        // One may have been begun before.
        let first = *first.get_or_insert(place.newest().unwrap_or(0) + 1);
        (place.newest()? > first).then_some(())
    });
    drop(runner);
    until("the processes of the killed runner have ended", SOON, || {
        (!is_any_running(place)).then_some(())
    });
}

/// Returns whether a process of the tree runs, also one whose runner has ended.
fn is_any_running(place: &Place) -> bool {
    let script = place.path("tree.py").into_os_string().into_encoded_bytes();
    let processes = std::fs::read_dir("/proc").expect("it is mounted").flatten();
    let mut words = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
    words.any(|words| words.split(|byte| *byte == 0).any(|word| word == script))
}

#[test]
fn tree_of_processes_is_restored_with_its_pipes() {
    let Some(place) = Place::new("tree_of_processes_is_restored") else { return };
    let numbers: String = (1..=NUMBERS).map(|number| format!("{number:8}")).collect();
    std::fs::write(place.path("numbers"), numbers).expect("written");
    std::fs::write(place.path("tree.py"), TREE).expect("written");
    // The second time it is restored.
    run_for_a_while(&place);
    run_for_a_while(&place);
    std::fs::write(place.path("stop"), "").expect("written");
    let ran = run(&mut tree(&place));
    assert_eq!(ran.code, 0, "{ran}\n{}", place.text("runner.log"));
    assert!(ran.stderr.contains("restored generation"), "{ran}");
    assert!(ran.stdout.contains("ended at"), "{ran}");
    let pids = READERS.map(|name| {
        let steps = steps(&place, name);
        let pid = steps[0].0;
        assert!(steps.iter().all(|step| step.0 == pid), "{name} has another id: {steps:?}");
        assert_eq!(steps.iter().filter(|step| step.1 == 1).count(), 1, "{name}: {steps:?}");
        let mut pairs = steps.windows(2);
        assert!(pairs.all(|pair| pair[1].1 <= pair[0].1 + 1), "{name} has a gap: {steps:?}");
        let back = steps.windows(2).filter(|pair| pair[1].1 <= pair[0].1).count();
        assert!(back >= 1, "{name} was restored: {steps:?}");
        pid
    });
    // What was in the pipe came out of it, also of the one that was restored.
    let (written, read) = (steps(&place, "written"), steps(&place, "read"));
    let ([(writer, written)], [(reader, read)]) = (&written[..], &read[..]) else {
        panic!("both end once: {written:?} {read:?}")
    };
    assert!(written == read && *read > 8000, "{written} written, {read} read");
    assert!(*reader == pids[1] && *writer != *reader && *writer != pids[0], "{writer} {pids:?}");
}
