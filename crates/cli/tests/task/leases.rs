//! Runners that hang, or do not reach their backend, for longer than their lock is waited for:
//! their commands are stopped before another runner starts the task, and go on if none did.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::bag::send;
use crate::cluster::relay::Relay;
use crate::cluster::tasks::{ELSEWHERE, TaskPlace, TaskRunner, is_root, library};
use crate::cluster::{Cluster, SOON, block_on, take_away, until};
use rustix::process::Signal;
use sanderling_protocol::Header;
use tempfile::TempDir;

const LOCK_AGE: [&str; 2] = ["--lock-age", "3s"];

/// A lock whose last tenth is longer than what stops a command waits for a busy machine.
const LONG_LOCK_AGE: [&str; 2] = ["--lock-age", "15s"];

/// Counts in two processes, of which the second one is below the first one, and appends a line for
/// each count: which start of the command it is of, the process, the count, and a time that all
/// processes of the machine read. It writes the count of the first process when it gets SIGUSR1.
const TICKER: &str = r#"
import os, signal, sys, time
state, run, count = os.environ["SANDERLING_TASK_STATE"], os.urandom(4).hex(), 0
if "SANDERLING_TASK_RESTORED" in os.environ:
    count = int(open(os.path.join(state, "count")).read())

def save(*_):
    with open(os.path.join(state, "count"), "w") as file:
        file.write(str(count))
    with open(os.path.join(state, "done"), "w"):
        pass

first = os.getpid()
child = os.fork()
if child:
    signal.signal(signal.SIGUSR1, save)
name = "parent" if child else "child"
with open(sys.argv[1], "a") as file:
    while child or os.getppid() == first:
        count += 1
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        print(run, name, os.getpid(), count, now, file=file, flush=True)
        time.sleep(0.01)
"#;

/// One count of a process.
#[derive(Debug, Clone)]
struct Tick {
    run: String,
    is_parent: bool,
    pid: u32,
    count: u64,
    at: u64,
}

/// A task that counts, and what it has written.
struct Ticking(TaskPlace);

impl Ticking {
    fn new(place: TaskPlace) -> Self {
        std::fs::write(place.path("ticker.py"), TICKER).expect("written");
        Self(place)
    }

    fn start(&self, name: &str, around: &[&str], flags: &[&str]) -> TaskRunner {
        let [ticker, log] = ["ticker.py", "ticks"].map(|name| self.0.path(name).into_os_string());
        self.0.runner_of(name, around, flags, &["python3".into(), ticker, log])
    }

    fn ticks(&self) -> Vec<Tick> {
        let text = std::fs::read_to_string(self.0.path("ticks")).unwrap_or_default();
        let tick = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let [run, name, pid, count, at] = words[..] else { return None };
            let (run, is_parent) = (run.to_owned(), name == "parent");
            let (pid, count) = (pid.parse().ok()?, count.parse().ok()?);
            Some(Tick { run, is_parent, pid, count, at: at.parse().ok()? })
        };
        // The last line may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().filter_map(tick).collect()
    }

    /// Returns what one start of the command has written.
    fn of(&self, run: &str) -> Vec<Tick> {
        self.ticks().into_iter().filter(|tick| tick.run == run).collect()
    }

    /// Waits until both processes of another start of the command than that one have counted, and
    /// returns which start it is.
    fn until_run(&self, before: Option<&str>) -> String {
        until("both processes of a command count", SOON, || {
            let mut ticks = self.ticks();
            ticks.retain(|tick| Some(tick.run.as_str()) != before);
            let run = ticks.first()?.run.clone();
            let is_of_run = |is_parent: bool| ticks.iter().any(|it| it.is_parent == is_parent);
            (is_of_run(true) && is_of_run(false)).then_some(run)
        })
    }

    /// Waits until one start of the command has counted further by both processes.
    fn until_more(&self, run: &str) {
        let counts =
            |is_parent: bool| self.of(run).iter().filter(|it| it.is_parent == is_parent).count();
        let before = [counts(true), counts(false)];
        until("both processes count on", SOON, || {
            (counts(true) > before[0] + 20 && counts(false) > before[1] + 20).then_some(())
        });
    }

    /// Returns the process ids of one start of the command, in this test's namespace.
    fn pids(&self, run: &str) -> BTreeSet<u32> {
        self.of(run).iter().map(|tick| tick.pid).collect()
    }

    /// Waits until both processes of a start of the command are stopped, and returns how many
    /// counts there are then.
    fn until_stopped(&self, run: &str) -> usize {
        let pids = self.pids(run);
        assert_eq!(pids.len(), 2, "a process and its child");
        until("both processes are stopped", SOON, || {
            pids.iter().all(|pid| state_of(*pid) == Some('T')).then_some(())
        });
        self.of(run).len()
    }

    /// Waits until the processes have ended.
    fn until_ended(pids: &BTreeSet<u32>) {
        until("the processes of the command have ended", SOON, || {
            pids.iter().all(|pid| matches!(state_of(*pid), None | Some('Z'))).then_some(())
        });
    }

    /// Asserts that no process of one start of the command has counted since another one began.
    fn assert_apart(&self, one: &str, other: &str) {
        let first = self.of(other).iter().map(|tick| tick.at).min().expect("it counted");
        let mut beside = self.of(one);
        beside.retain(|tick| tick.at >= first);
        assert!(beside.is_empty(), "it counted beside the other one since {first}: {beside:?}");
    }

    /// Asserts that one start of the command has counted without a gap, and is the only one.
    fn assert_alone(&self, run: &str) {
        let ticks = self.ticks();
        assert!(ticks.iter().all(|tick| tick.run == run), "the command was started anew");
        for is_parent in [true, false] {
            let counts = ticks.iter().filter(|it| it.is_parent == is_parent).map(|it| it.count);
            let counts: Vec<u64> = counts.collect();
            assert!(counts.windows(2).all(|pair| pair[1] == pair[0] + 1), "{counts:?}");
        }
    }
}

/// Returns the letter of a process's state; `None` if there is none.
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn pass(span: Duration) {
    let began = Instant::now();
    until("time passes", SOON, || (began.elapsed() > span).then_some(()));
}

/// The first runner is stopped, and its command goes on until its lease ends. The second one starts
/// the command later than that.
#[test]
fn command_of_a_stopped_runner_stops_before_another_one_starts_it() {
    if !is_root("command_of_a_stopped_runner_stops_before") {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let place = Ticking::new(TaskPlace::in_directory(&directory.path().join("backend"), 0));
    let mut first = place.start("first", &[], &LONG_LOCK_AGE);
    let of_first = place.until_run(None);
    place.0.until_after(0, &mut first);
    first.pause();
    let pids = place.pids(&of_first);
    let mut second = place.start("second", &ELSEWHERE, &LONG_LOCK_AGE);
    let of_second = place.until_run(Some(&of_first));
    place.until_more(&of_second);
    place.assert_apart(&of_first, &of_second);
    first.resume();
    let code = until("the first one ends", SOON, || first.ended());
    assert!(code == 1 && first.log().contains("another runner has taken"), "{}", first.log());
    // Also the child, which no signal to its parent reaches.
    Ticking::until_ended(&pids);
    let newest = place.0.newest();
    place.0.until_after(newest, &mut second);
    place.assert_apart(&of_first, &of_second);
}

fn all(_: &Header, _: &[u8]) -> Option<String> {
    Some("a request".to_owned())
}

/// No request of the first runner reaches the namenode, and none is refused.
#[test]
fn command_of_a_runner_that_is_cut_off_stops_before_another_one_starts_it() {
    if !is_root("command_of_a_runner_that_is_cut_off") {
        return;
    }
    let cluster = Cluster::of(1);
    let mut place = Ticking::new(TaskPlace::in_cluster(&cluster.namenode.address, 0));
    block_on(async {
        let relay = Relay::before(&cluster.namenode.address, all).await;
        place.0.variables = vec![("SANDERLING_NAMENODE", PathBuf::from(&relay.address))];
        let mut first = place.start("first", &[], &LONG_LOCK_AGE);
        let of_first = place.until_run(None);
        place.0.until_after(0, &mut first);
        relay.close();
        place.0.variables.clear();
        let mut second = place.start("second", &ELSEWHERE, &LONG_LOCK_AGE);
        let of_second = place.until_run(Some(&of_first));
        place.until_more(&of_second);
        place.assert_apart(&of_first, &of_second);
        first.until_logged("the command is stopped", 1);
        let pids = place.pids(&of_first);
        // What was held back of the first one comes late, a renewal of its lock among it.
        relay.open();
        let code = until("the first one ends", SOON, || first.ended());
        assert!(code == 1 && first.log().contains("another runner has taken"), "{}", first.log());
        Ticking::until_ended(&pids);
        let newest = place.0.newest();
        place.0.until_after(newest, &mut second);
        place.assert_apart(&of_first, &of_second);
    });
}

#[test]
fn command_goes_on_while_its_runner_is_stopped_for_less_than_the_age() {
    let directory = TempDir::new().expect("a directory");
    let place = Ticking::new(TaskPlace::in_directory(&directory.path().join("backend"), 0));
    let mut runner = place.start("runner", &[], &["--lock-age", "10m"]);
    let run = place.until_run(None);
    let newest = place.0.until_after(0, &mut runner);
    runner.pause();
    place.until_more(&run);
    pass(Duration::from_secs(1));
    place.until_more(&run);
    runner.resume();
    place.0.until_after(newest.max(place.0.newest()), &mut runner);
    place.assert_alone(&run);
    assert!(!runner.log().contains("is stopped"), "{}", runner.log());
}

/// The runner takes its own lock anew before its command goes on.
#[test]
fn command_goes_on_after_a_pause_of_its_runner_in_which_none_took_the_lock() {
    let directory = TempDir::new().expect("a directory");
    let backend = directory.path().join("backend");
    let place = Ticking::new(TaskPlace::in_directory(&backend, 0));
    let mut runner = place.start("runner", &[], &LOCK_AGE);
    let run = place.until_run(None);
    let newest = place.0.until_after(0, &mut runner);
    let lock = || {
        let locks = std::fs::read_dir(backend.join("count/locks")).expect("locks").flatten();
        locks.filter_map(|it| it.file_name().to_str()?.parse::<u64>().ok()).max()
    };
    let before = lock();
    runner.pause();
    let count = place.until_stopped(&run);
    pass(Duration::from_secs(1));
    assert_eq!(place.of(&run).len(), count, "a process counts");
    runner.resume();
    place.until_more(&run);
    assert!(lock() > before, "{before:?}");
    place.0.until_after(newest.max(place.0.newest()), &mut runner);
    place.assert_alone(&run);
    let log = runner.log();
    assert!(log.contains("the lock is confirmed again: the command goes on"), "{log}");
}

/// Where a process of the command is let go on by something else, it is stopped again.
#[test]
fn command_stops_while_its_backend_is_away_and_goes_on_when_it_is_back() {
    let directory = TempDir::new().expect("a directory");
    let backend = directory.path().join("backend");
    let place = Ticking::new(TaskPlace::in_directory(&backend, 0));
    let mut runner = place.start("runner", &[], &LOCK_AGE);
    let run = place.until_run(None);
    place.0.until_after(0, &mut runner);
    let (here, away) = (backend.join("count"), backend.join("away"));
    // A dump may write into it just now.
    until("it is away", SOON, || std::fs::rename(&here, &away).ok());
    place.until_stopped(&run);
    runner.until_logged("the command is stopped until it is", 1);
    let named = format!("the lock is not confirmed ({}", here.display());
    assert!(runner.log().contains(&named), "{}", runner.log());
    let continued = Instant::now();
    while continued.elapsed() < Duration::from_secs(1) {
        place.pids(&run).into_iter().for_each(|pid| send(pid, Signal::CONT));
        std::thread::sleep(Duration::from_millis(100));
    }
    let count = place.until_stopped(&run);
    pass(Duration::from_secs(1));
    assert_eq!(place.of(&run).len(), count, "a process counts");
    assert!(!here.exists(), "something was made in its place");
    std::fs::rename(&away, &here).expect("back");
    runner.until_logged("the lock is confirmed again", 1);
    place.until_more(&run);
    assert_eq!(runner.ended(), None, "{}", runner.log());
    place.assert_alone(&run);
}

/// By SIGKILL, and by SIGTERM: a stopped process handles no signal.
#[test]
fn stopped_command_ends_with_its_runner() {
    for is_killed in [true, false] {
        let directory = TempDir::new().expect("a directory");
        let backend = directory.path().join("backend");
        let place = Ticking::new(TaskPlace::in_directory(&backend, 0));
        let mut runner = place.start("runner", &[], &LOCK_AGE);
        let run = place.until_run(None);
        place.0.until_after(0, &mut runner);
        take_away(backend.join("count"));
        place.until_stopped(&run);
        let pids = place.pids(&run);
        if is_killed {
            runner.kill();
        } else {
            runner.terminate();
            let code = until("the runner ends", SOON, || runner.ended());
            assert_eq!(code, 130, "{}", runner.log());
        }
        Ticking::until_ended(&pids);
    }
}

/// As a supervisor sends them to all processes of a service, and SIGCONT after them.
#[test]
fn stopped_command_stays_so_and_ends_with_its_runner_after_signals_to_its_guard() {
    let directory = TempDir::new().expect("a directory");
    let backend = directory.path().join("backend");
    let place = Ticking::new(TaskPlace::in_directory(&backend, 0));
    let mut runner = place.start("runner", &[], &LOCK_AGE);
    let run = place.until_run(None);
    place.0.until_after(0, &mut runner);
    take_away(backend.join("count"));
    place.until_stopped(&run);
    let (guard, pids) = (runner.guard(), place.pids(&run));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        send(guard, signal);
    }
    pids.iter().for_each(|pid| send(*pid, Signal::CONT));
    pass(Duration::from_secs(1));
    assert_eq!(runner.guard(), guard, "another one was started");
    place.until_stopped(&run);
    runner.kill();
    Ticking::until_ended(&pids);
}

/// The next guard finds what the one before has stopped.
#[test]
fn stopped_command_whose_guard_is_killed_goes_on_when_its_lock_is_confirmed() {
    let directory = TempDir::new().expect("a directory");
    let backend = directory.path().join("backend");
    let place = Ticking::new(TaskPlace::in_directory(&backend, 0));
    let mut runner = place.start("runner", &[], &LOCK_AGE);
    let run = place.until_run(None);
    place.0.until_after(0, &mut runner);
    let (here, away) = (backend.join("count"), backend.join("away"));
    until("it is away", SOON, || std::fs::rename(&here, &away).ok());
    place.until_stopped(&run);
    let (guard, pids) = (runner.guard(), place.pids(&run));
    send(guard, Signal::KILL);
    until("another guard", SOON, || (runner.guard() != guard).then_some(()));
    place.until_stopped(&run);
    std::fs::rename(&away, &here).expect("back");
    place.until_more(&run);
    assert_eq!(runner.ended(), None, "{}", runner.log());
    place.assert_alone(&run);
    runner.kill();
    Ticking::until_ended(&pids);
}

/// The program that the tests run.
const PROGRAM: &str = env!("CARGO_BIN_EXE_sanderling");

/// As at an upgrade: another program has the name of the runner's.
#[test]
fn guard_of_a_runner_whose_program_was_replaced_is_started_again() {
    let directory = TempDir::new().expect("a directory");
    let backend = directory.path().join("backend");
    let mut place = Ticking::new(TaskPlace::in_directory(&backend, 0));
    let program = directory.path().join("sanderling");
    // This process never has it open for writing: one that it starts meanwhile would, too.
    let copied = Command::new("cp").arg(PROGRAM).arg(&program).status().expect("cp");
    assert!(copied.success());
    place.0.variables = vec![("PROGRAM", program.clone())];
    let around = ["sh", "-c", "exec \"$PROGRAM\" \"$@\""];
    let mut runner = place.start("runner", &around, &LOCK_AGE);
    let run = place.until_run(None);
    place.0.until_after(0, &mut runner);
    let (guard, pids) = (runner.guard(), place.pids(&run));
    let other = directory.path().join("other");
    std::fs::write(&other, "another release").expect("written");
    std::fs::rename(&other, &program).expect("replaced");
    send(guard, Signal::KILL);
    until("another guard", SOON, || (runner.guard() != guard).then_some(()));
    take_away(backend.join("count"));
    place.until_stopped(&run);
    assert!(!runner.log().contains("is not stopped"), "{}", runner.log());
    runner.kill();
    Ticking::until_ended(&pids);
}

#[test]
fn guard_that_cannot_be_started_again_is_noted_once_and_tried_until_it_can() {
    let directory = TempDir::new().expect("a directory");
    let backend = directory.path().join("backend");
    let mut place = Ticking::new(TaskPlace::in_directory(&backend, 0));
    let program = directory.path().join("program");
    let link = || std::os::unix::fs::symlink(PROGRAM, &program).expect("linked");
    link();
    place.0.variables = vec![("SANDERLING_EXE", program.clone())];
    let mut runner = place.start("runner", &[], &LOCK_AGE);
    let run = place.until_run(None);
    place.0.until_after(0, &mut runner);
    let guard = runner.guard();
    std::fs::remove_file(&program).expect("removed");
    send(guard, Signal::KILL);
    let missing = "the command is not stopped if the lock is lost: the task is not guarded";
    runner.until_logged(missing, 1);
    // As long as some attempts.
    pass(Duration::from_secs(1));
    assert_eq!(runner.log().matches(missing).count(), 1, "{}", runner.log());
    link();
    runner.until_logged("the command is stopped again if the lock is lost", 1);
    take_away(backend.join("count"));
    place.until_stopped(&run);
    runner.kill();
}

/// The first one, too. The kernel starts a guard when there is room for processes.
#[test]
fn first_guard_that_cannot_be_started_is_noted_once_and_tried_until_it_can() {
    let directory = TempDir::new().expect("a directory");
    let backend = directory.path().join("backend");
    let mut place = Ticking::new(TaskPlace::in_directory(&backend, 0));
    let Some(library) = library(directory.path(), include_str!("fail_guards.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let condition = directory.path().join("fails");
    std::fs::write(&condition, "").expect("written");
    place.0.variables = vec![("LD_PRELOAD", library), ("FAIL_IF", condition.clone())];
    let mut runner = place.start("runner", &[], &LOCK_AGE);
    let run = place.until_run(None);
    place.0.until_after(0, &mut runner);
    let missing = "the command is not stopped if the lock is lost: the task is not guarded";
    runner.until_logged(missing, 1);
    // As long as some attempts.
    pass(Duration::from_secs(1));
    assert_eq!(runner.log().matches(missing).count(), 1, "{}", runner.log());
    std::fs::remove_file(&condition).expect("it is there");
    runner.until_logged("the command is stopped again if the lock is lost", 1);
    take_away(backend.join("count"));
    place.until_stopped(&run);
    runner.kill();
}

/// Lets guards of a place wait at their begin, as on a busy machine, whose words match a pattern of
/// the shell, until there is a file `go`.
fn slow_guards(place: &mut TaskPlace, pattern: &str) -> PathBuf {
    let (script, go) = (place.path("slow.sh"), place.path("go"));
    let text = format!(
        r#"looks=0
case "$*" in
{pattern})
    while [ ! -e {go} ] && [ $looks -lt 1200 ]; do sleep 0.05; looks=$((looks + 1)); done
esac
exec {PROGRAM} "$@"
"#,
        go = go.display()
    );
    std::fs::write(&script, text).expect("written");
    let program = format!("sh\u{1f}{}", script.display());
    place.variables = vec![("SANDERLING_EXE", PathBuf::from(program))];
    go
}

/// Waits until a guard has begun to watch its pipe: it has its timer then.
fn until_watching(guard: u32) {
    let is_timer = |link: PathBuf| link.to_string_lossy().contains("timerfd");
    until("the guard watches", SOON, || {
        let open = std::fs::read_dir(format!("/proc/{guard}/fd")).ok()?.flatten();
        let mut links = open.filter_map(|it| std::fs::read_link(it.path()).ok());
        links.any(is_timer).then_some(())
    });
}

fn number_in(file: &Path) -> Option<u32> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The first guard has stopped nothing: no guard was before it.
#[test]
fn what_a_command_has_stopped_before_its_first_guard_looks_stays_stopped() {
    let directory = TempDir::new().expect("a directory");
    let mut place = TaskPlace::in_directory(&directory.path().join("backend"), 0);
    let go = slow_guards(&mut place, "'task guard'");
    let [pid, on] = ["pid", "on"].map(|name| place.path(name));
    let script = format!(
        "echo $$ > {}; kill -STOP $$; echo > {}; while :; do sleep 0.05; done",
        pid.display(),
        on.display()
    );
    let runner = place.runner_of("runner", &[], &[], &["sh".into(), "-c".into(), script.into()]);
    let pid = until("the command has begun", SOON, || number_in(&pid));
    until("it has stopped itself", SOON, || (state_of(pid) == Some('T')).then_some(()));
    std::fs::write(go, "").expect("written");
    until_watching(runner.guard());
    pass(Duration::from_secs(1));
    assert!(state_of(pid) == Some('T') && !on.exists(), "{}", runner.log());
    send(pid, Signal::CONT);
    until("it goes on", SOON, || on.exists().then_some(()));
}

/// Counts in a second thread, after the first one has ended alone: by the kernel's call.
const THREAD_TICKER: &str = r#"
import ctypes, os, platform, sys, threading, time

def count():
    while True:
        with open(sys.argv[2], "a") as file:
            file.write(".")
        time.sleep(0.01)

with open(sys.argv[1], "w") as file:
    file.write(str(os.getpid()))
threading.Thread(target=count).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"#;

/// The next guard begins only after the lock is confirmed: it finds what the one before it has
/// stopped by the threads that are left.
#[test]
fn command_whose_first_thread_has_ended_goes_on_after_its_guard_was_killed() {
    let directory = TempDir::new().expect("a directory");
    let backend = directory.path().join("backend");
    let mut place = TaskPlace::in_directory(&backend, 0);
    let go = slow_guards(&mut place, "'task guard --replaces'");
    let [program, pid, counts] = ["threads.py", "pid", "counts"].map(|name| place.path(name));
    std::fs::write(&program, THREAD_TICKER).expect("written");
    let words: [OsString; 4] =
        ["python3".into(), program.into(), pid.clone().into(), counts.clone().into()];
    let runner = place.runner_of("runner", &[], &LOCK_AGE, &words);
    let count = || std::fs::metadata(&counts).map_or(0, |it| it.len());
    let pid = until("the command has begun", SOON, || number_in(&pid));
    until("its first thread alone has ended", SOON, || {
        (state_of(pid) == Some('Z') && count() > 0).then_some(())
    });
    let threads = || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        let ids = threads.filter_map(|it| it.ok()?.file_name().to_str()?.parse::<u32>().ok());
        ids.filter(|id| *id != pid).collect::<Vec<_>>()
    };
    let are_stopped = || {
        let threads = threads();
        !threads.is_empty() && threads.into_iter().all(|id| state_of(id) == Some('T'))
    };
    // Without a guard nothing would stop it.
    until_watching(runner.guard());
    let (here, away) = (backend.join("count"), backend.join("away"));
    until("it is away", SOON, || std::fs::rename(&here, &away).ok());
    until("it is stopped", SOON, || are_stopped().then_some(()));
    send(runner.guard(), Signal::KILL);
    std::fs::rename(&away, &here).expect("back");
    runner.until_logged("the lock is confirmed again", 1);
    let before = count();
    std::fs::write(go, "").expect("written");
    until("it goes on", SOON, || (count() > before + 10).then_some(()));
}

/// The notice comes while the command is stopped, and the backend is back before its deadline.
#[test]
fn last_dump_of_a_stopped_command_is_taken_when_its_lock_is_confirmed() {
    let directory = TempDir::new().expect("a directory");
    let backend = directory.path().join("backend");
    let place = Ticking::new(TaskPlace::in_directory(&backend, 0));
    let flags = [&LOCK_AGE[..], &["--on-notice", "--notice-deadline", "10m"]].concat();
    let mut runner = place.start("runner", &[], &flags);
    let run = place.until_run(None);
    place.0.until_after(0, &mut runner);
    let (here, away) = (backend.join("count"), backend.join("away"));
    until("it is away", SOON, || std::fs::rename(&here, &away).ok());
    runner.until_logged("the command is stopped until it is", 1);
    place.until_stopped(&run);
    runner.terminate();
    runner.until_logged("it is taken now", 1);
    pass(Duration::from_secs(1));
    assert_eq!(runner.ended(), None, "{}", runner.log());
    std::fs::rename(&away, &here).expect("back");
    until("the runner ends", SOON, || runner.ended());
    let log = runner.log();
    let (_, after) = log.split_once("it is taken now").expect("it is logged");
    assert!(after.contains("taken by the hook") && !after.contains("no checkpoint"), "{log}");
}
