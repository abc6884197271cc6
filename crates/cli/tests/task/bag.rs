//! Bags of tasks: agents die, others go on from checkpoints, and a machine on demand takes a task
//! when its latest start has come.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path as LocalPath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::cluster::{Cluster, Killed, Ran, SOON, run, sanderling, until};
use rustix::process::{Pid, Signal, kill_process};
use sanderling_core::checkpoint::LEAVES_URGENT;
use serde_json::Value;
use tempfile::TempDir;

/// Counts to its second argument and on while there is a file `hold` beside its log, and writes a
/// line when it starts and one when it has ended. It writes its count when it gets SIGUSR1.
const COUNTER: &str = r#"
import os, signal, sys, time
state, number = os.environ["SANDERLING_TASK_STATE"], os.environ["SANDERLING_TASK_NUMBER"]
log, last, count = sys.argv[1], int(sys.argv[2]), 0
restored = "SANDERLING_TASK_RESTORED" in os.environ
if restored:
    count = int(open(os.path.join(state, "count")).read())

def line(word):
    with open(log, "a") as file:
        file.write(f"{word} {number} {int(restored)} {time.time()}\n")

def save(*_):
    with open(os.path.join(state, "count"), "w") as file:
        file.write(str(count))
    with open(os.path.join(state, "done"), "w"):
        pass

signal.signal(signal.SIGUSR1, save)
line("start")
hold = os.path.join(os.path.dirname(log), "hold")
while count < last or os.path.exists(hold):
    time.sleep(0.01)
    count += 1
line("end")
"#;

/// A place with the counter, a key and a backend.
pub(crate) struct Place {
    directory: TempDir,
    backend: String,
    namenode: Option<String>,
    /// The command that agents are started by.
    around: Vec<&'static str>,
    /// Environment of the agents.
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
}

/// What one start or end of a task wrote.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) word: String,
    number: u32,
    /// It had the state of a checkpoint, whose count may be zero.
    pub(crate) is_restored: bool,
    pub(crate) at: f64,
}

impl Place {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        std::fs::write(directory.path().join("counter.py"), COUNTER).expect("written");
        let backend = format!("dir:{}", directory.path().join("backend").display());
        Self { directory, backend, namenode: None, around: Vec::new(), variables: Vec::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Lets no task end until [`Self::release`], however slow the machine is.
    pub(crate) fn hold(&self) {
        std::fs::write(self.path("hold"), "").expect("written");
    }

    pub(crate) fn release(&self) {
        std::fs::remove_file(self.path("hold")).expect("removed");
    }

    pub(crate) fn task(&self, verb: &str) -> Command {
        let mut command = sanderling();
        command.args(["task", verb, "--bag", "bag", "--backend", &self.backend]);
        if let Some(namenode) = &self.namenode {
            command.env("SANDERLING_NAMENODE", namenode);
        }
        command
    }

    pub(crate) fn submit(&self, options: &[&str], last: u32) -> Ran {
        let mut command = self.task("submit");
        command.args(options).args(["--", "python3"]).arg(self.path("counter.py"));
        run(command.arg(self.path("log")).arg(last.to_string()))
    }

    pub(crate) fn agent(&self, market: &str, options: &[&str]) -> Killed {
        let mut log = std::fs::OpenOptions::new();
        let log = log.create(true).append(true).open(self.path("agents.log")).expect("a log");
        let mut command = self.task("agent");
        command.args(["--market", market, "--price", "0.36", "--key"]).arg(self.path("key"));
        if !options.contains(&"--interval") {
            command.args(["--interval", "100ms"]);
        }
        command.args(options);
        if let [program, words @ ..] = &self.around[..] {
            let mut around = Command::new(program);
            around.args(words).arg(command.get_program()).args(command.get_args());
            command = around;
        }
        command.envs(self.variables.iter().map(|(key, value)| (key, value)));
        Killed(command.stdout(Stdio::null()).stderr(log).spawn().expect("started"))
    }

    /// Begins a bag of two tasks that go on until [`Self::release`], and kills their agent once
    /// both have a checkpoint and a record of progress. Returns the directories of the tasks.
    pub(crate) fn two_checkpoints(&self) -> [PathBuf; 2] {
        self.submit(&["--count", "2", "--time", "1s", "--deadline", "10m"], 10);
        self.hold();
        let mut first = self.agent("spot", &["--at-once", "2"]);
        let tasks = ["backend/bag.000001", "backend/bag.000002"].map(|name| self.path(name));
        until("checkpoints", SOON, || tasks.iter().all(|task| has_checkpoint(task)).then_some(()));
        // With that, agents look whether the key is that of the other task.
        let begun = self.path("backend/@bag/progress/000002");
        until("a record of progress", SOON, || begun.exists().then_some(()));
        kill(&mut first);
        tasks
    }

    pub(crate) fn show(&self, options: &[&str]) -> (i32, Value) {
        let ran = run(self.task("bag").arg("--json").args(options));
        (ran.code, serde_json::from_str(&ran.stdout).unwrap_or(Value::Null))
    }

    /// Returns for how many milliseconds the only agent had run when it last wrote itself down.
    pub(crate) fn ran(&self) -> Option<u64> {
        let entries = std::fs::read_dir(self.path("backend/@bag/agents")).ok()?.flatten();
        // What is not finished begins with a dot.
        let mut whole = entries.filter(|it| !it.file_name().as_encoded_bytes().starts_with(b"."));
        let text = std::fs::read_to_string(whole.next()?.path()).ok()?;
        serde_json::from_str::<Value>(&text).ok()?["ran"].as_u64()
    }

    /// Verifies all generations of a task.
    pub(crate) fn verified(&self, number: u32) -> Ran {
        let mut command = sanderling();
        command.args(["task", "verify", "--name", &format!("bag.{number:06}")]);
        command.args(["--backend", &self.backend, "--key"]);
        run(command.arg(self.path("key")))
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().filter_map(parsed).collect()
    }
}

impl Drop for Place {
    /// Shows what the agents printed, if the test has failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.path("agents.log")).unwrap_or_default();
            eprintln!("{log}");
        }
    }
}

fn parsed(line: &str) -> Option<Line> {
    let mut words = line.split(' ');
    let word = words.next()?.to_owned();
    let number = words.next()?.parse().ok()?;
    let is_restored = words.next()? == "1";
    Some(Line { word, number, is_restored, at: words.next()?.parse().ok()? })
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    send(child.id(), signal);
}

pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().expect("a pid")).expect("a pid");
    // It may have ended.
    let _ = kill_process(pid, signal);
}

pub(crate) fn is_there(pid: u32) -> bool {
    LocalPath::new(&format!("/proc/{pid}")).exists()
}

/// Returns the processes below one, those that were started last at the end. Each thread of a
/// process has children of its own.
pub(crate) fn below(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.map(|it| std::fs::read_to_string(it.path().join("children")));
    let children: Vec<String> = children.map(Result::unwrap_or_default).collect();
    let pids = children.iter().flat_map(|it| it.split_whitespace());
    let pids = pids.filter_map(|pid| pid.parse().ok());
    pids.flat_map(|child| [vec![child], below(child)].concat()).collect()
}

pub(crate) fn kill(child: &mut Child) {
    child.kill().expect("killed");
    child.wait().expect("waited for");
}

pub(crate) fn has_checkpoint(task: &LocalPath) -> bool {
    let entries = std::fs::read_dir(task.join("generations")).into_iter().flatten().flatten();
    // What is not finished begins with a dot.
    entries.into_iter().any(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
}

#[test]
fn tasks_of_a_killed_agent_go_on_elsewhere_from_their_checkpoints() {
    let place = Place::new();
    let submitted = place.submit(&["--count", "4", "--time", "2s", "--deadline", "10m"], 100);
    assert_eq!(submitted.code, 0, "{submitted}");
    place.hold();
    let mut first = place.agent("spot", &["--at-once", "2"]);
    let stored = place.path("backend").join("bag.000001");
    until("a checkpoint of task 1", SOON, || has_checkpoint(&stored).then_some(()));
    kill(&mut first);
    place.release();
    let mut second = place.agent("spot", &["--at-once", "2"]);
    let (code, view) = place.show(&["--wait"]);
    assert_eq!(
        (code, &view["ended"], &view["failed"], &view["late"]),
        (0, &4.into(), &0.into(), &0.into()),
        "{view}"
    );
    assert!(second.wait().expect("waited for").success(), "an agent ends with its bag");

    let lines = place.lines();
    for number in 1..=4 {
        let ends = lines.iter().filter(|it| it.word == "end" && it.number == number);
        assert_eq!(ends.count(), 1, "{lines:?}");
    }
    let goes_on = |it: &Line| it.word == "start" && it.number == 1 && it.is_restored;
    assert!(lines.iter().any(goes_on), "task 1 began anew: {lines:?}");
    // Both agents have an account, the killed one too.
    assert_eq!(view["agents"].as_array().expect("a list").len(), 2, "{view}");
    assert!(view["dollars"].as_f64().expect("a number") > 0.0, "{view}");
}

/// The first tasks of a machine start at once, and each of them needs the key that none has made.
#[test]
fn first_tasks_of_a_machine_start_with_one_new_key() {
    let place = Place::new();
    place.submit(&["--count", "16", "--time", "1s", "--deadline", "10m"], 10);
    let mut agent = place.agent("spot", &["--at-once", "16"]);
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["ended"]), (0, &16.into()), "{view}");
    assert!(agent.wait().expect("waited for").success());
    let log = std::fs::read_to_string(place.path("agents.log")).expect("a log");
    // A task may end before it has written its state.
    let mut others = log.lines().filter(|line| !line.contains("no checkpoint"));
    assert!(!others.any(|line| line.contains("error")), "{log}");
}

#[test]
fn each_task_runs_once_while_no_agent_dies() {
    let place = Place::new();
    let mut submit = place.task("submit");
    submit.args(["--count", "60", "--time", "1s", "--deadline", "10m", "--", "sh", "-c"]);
    let log = place.path("log");
    submit.arg(format!("echo $SANDERLING_TASK_NUMBER >> {}; sleep 0.1", log.display()));
    assert_eq!(run(&mut submit).code, 0);
    // What agents read between the list of what has ended and their look at locks: so the list is
    // older than many an end.
    for number in 1000..4000 {
        let record = place.path(&format!("backend/@bag/progress/{number:06}"));
        std::fs::write(record, r#"{"worked":0,"failures":0}"#).expect("written");
    }
    let mut agents = [(); 3].map(|()| place.agent("spot", &["--at-once", "3"]));
    let (code, view) = place.show(&["--wait"]);
    assert_eq!(code, 0, "{view}");
    for agent in &mut agents {
        assert!(agent.wait().expect("waited for").success());
    }
    let text = std::fs::read_to_string(log).expect("they ran");
    let mut numbers: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=60).collect::<Vec<_>>());
}

#[test]
fn end_of_a_task_is_recorded_when_the_backend_comes_back() {
    let place = Place::new();
    place.submit(&["--time", "1s", "--deadline", "10m"], 200);
    let mut agent = place.agent("spot", &[]);
    let started = || place.lines().iter().any(|it| it.word == "start").then_some(());
    until("it runs", SOON, started);
    let (here, away) = (place.path("backend"), place.path("away"));
    std::fs::rename(&here, &away).expect("away");
    let has_ended = || place.lines().iter().any(|it| it.word == "end").then_some(());
    until("it ends", SOON, has_ended);
    // Whatever was made here meanwhile, or is being made, is no backend.
    until("it is back", SOON, || {
        let _ = std::fs::remove_dir_all(&here);
        std::fs::rename(&away, &here).ok()
    });
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["ended"]), (0, &1.into()), "{view}");
    assert!(agent.wait().expect("waited for").success());
    assert_eq!(place.lines().iter().filter(|it| it.word == "start").count(), 1);
}

#[test]
fn agent_that_gets_a_notice_leaves_a_last_checkpoint_and_a_free_lock() {
    let place = Place::new();
    place.submit(&["--time", "5s", "--deadline", "10m"], 100);
    place.hold();
    let mut first = place.agent("spot", &["--interval", "10m", "--on-notice"]);
    let runs = || place.lines().iter().any(|it| it.word == "start").then_some(());
    until("it runs", SOON, runs);
    let stored = place.path("backend").join("bag.000001");
    assert!(!has_checkpoint(&stored), "the interval is ten minutes");
    signal(&first, Signal::TERM);
    first.wait().expect("waited for");
    assert!(has_checkpoint(&stored), "the notice triggered none");
    let locks = std::fs::read_dir(stored.join("locks")).expect("locks");
    let newest = locks.map(|it| it.expect("readable").path()).max().expect("a lock");
    let lock = std::fs::read_to_string(newest).expect("readable");
    assert!(lock.contains(r#""is_released":true"#), "{lock}");
    place.release();
    let mut second = place.agent("spot", &[]);
    let (code, view) = place.show(&["--wait"]);
    assert_eq!(code, 0, "{view}");
    assert!(second.wait().expect("waited for").success());
    assert_eq!(place.lines().iter().filter(|it| it.word == "end").count(), 1);
}

#[test]
fn machine_that_comes_back_from_a_pause_ends_what_another_has_taken() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED machine_that_comes_back: PID namespaces need root");
        return;
    }
    let mut place = Place::new();
    place.submit(&["--time", "10s", "--deadline", "10m"], 100);
    place.hold();
    // In a namespace of its own a runner cannot be seen from here, as one on another machine.
    place.around = vec!["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"];
    let mut first = place.agent("spot", &["--lock-age", "1s"]);
    let stored = place.path("backend").join("bag.000001");
    until("a checkpoint", SOON, || has_checkpoint(&stored).then_some(()));
    let machine = below(first.id());
    assert!(machine.len() > 1, "the agent and its task: {machine:?}");
    machine.iter().for_each(|pid| send(*pid, Signal::STOP));
    place.around.clear();
    let mut second = place.agent("spot", &["--lock-age", "1s"]);
    let starts = || place.lines().iter().filter(|it| it.word == "start").count();
    until("it is taken", SOON, || (starts() >= 2).then_some(()));
    machine.iter().for_each(|pid| send(*pid, Signal::CONT));
    let task = *machine.last().expect("a process of the task");
    until("the task of before ends", SOON, || (!is_there(task)).then_some(()));
    let log = std::fs::read_to_string(place.path("agents.log")).unwrap_or_default();
    let ends = place.lines().iter().filter(|it| it.word == "end").count();
    assert_eq!(ends, 0, "{:?} {log}", place.lines());
    place.release();
    let (code, view) = place.show(&["--wait"]);
    assert_eq!(code, 0, "{view}");
    assert!(second.wait().expect("waited for").success());
    assert_eq!(place.lines().iter().filter(|it| it.word == "end").count(), 1);
    kill(&mut first);
}

#[test]
fn damaged_records_and_impossible_prices_stop_no_bag() {
    let place = Place::new();
    place.submit(&["--count", "2", "--time", "1s", "--deadline", "10m"], 10);
    let progress = place.path("backend/@bag/progress/000001");
    std::fs::write(progress, "{").expect("written");
    let mut agent = place.agent("spot", &[]);
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["ended"]), (0, &2.into()), "{view}");
    assert!(agent.wait().expect("waited for").success());
    for price in ["nan", "-1", "inf"] {
        let refused = run(place.task("agent").args(["--market", "spot", "--price", price]));
        assert_eq!(refused.code, 2, "{refused}");
    }
    let record = place.path("backend/@bag/bag");
    let text = std::fs::read_to_string(&record).expect("a record");
    let mut changed: Value = serde_json::from_str(&text).expect("JSON");
    for tasks in [0, 100_001, u32::MAX] {
        changed["tasks"] = tasks.into();
        std::fs::write(&record, changed.to_string()).expect("written");
        let why = format!("is damaged: it has {tasks} tasks, and a bag has 1 to 100000");
        let mut agent = place.task("agent");
        agent.args(["--market", "spot"]);
        for mut command in [place.task("bag"), agent] {
            let refused = run(&mut command);
            assert!(refused.code == 1 && refused.stderr.contains(&why), "{refused}");
        }
    }
}

#[test]
fn bag_whose_tasks_would_have_longer_names_than_commands_take_is_refused() {
    let place = Place::new();
    let submit = |bag: &str| {
        let mut command = sanderling();
        command.args(["task", "submit", "--bag", bag, "--backend", &place.backend]);
        run(command.args(["--time", "1s", "--deadline", "10m", "--", "true"]))
    };
    let refused = submit(&"b".repeat(94));
    assert!(refused.code == 2 && refused.stderr.contains("1 to 93 characters"), "{refused}");
    let submitted = submit(&"b".repeat(93));
    assert_eq!(submitted.code, 0, "{submitted}");
}

#[test]
fn program_with_an_equals_sign_in_its_name_runs() {
    let place = Place::new();
    let (program, log) = (place.path("job=1"), place.path("log"));
    let script = format!("#!/bin/sh\necho $SANDERLING_TASK_NUMBER >> {}\n", log.display());
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("set");
    let mut submit = place.task("submit");
    submit.args(["--count", "2", "--time", "1s", "--deadline", "10m", "--"]).arg(&program);
    let submitted = run(&mut submit);
    assert_eq!(submitted.code, 0, "{submitted}");
    let mut agent = place.agent("spot", &[]);
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["ended"]), (0, &2.into()), "{view}");
    assert!(agent.wait().expect("waited for").success());
    assert_eq!(std::fs::read_to_string(log).expect("it ran"), "1\n2\n");
}

/// They end at once, and the agent finds that all have ended before it has met each of them.
#[test]
fn agent_counts_all_tasks_that_it_has_finished() {
    for _ in 0..3 {
        let place = Place::new();
        let mut submit = place.task("submit");
        submit.args(["--count", "8", "--time", "1s", "--deadline", "10m", "--", "sleep", "1"]);
        let submitted = run(&mut submit);
        assert_eq!(submitted.code, 0, "{submitted}");
        let mut agent = place.task("agent");
        agent.args(["--market", "spot", "--at-once", "8", "--json", "--key"]);
        let ran = run(agent.arg(place.path("key")));
        let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        assert_eq!((ran.code, &report["finished"]), (0, &8.into()), "{ran}");
    }
}

#[test]
fn machine_on_demand_takes_a_task_from_its_latest_start_on() {
    let place = Place::new();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64();
    place.submit(&["--time", "1s", "--deadline", "5s"], 10);
    let mut agent = place.agent("on-demand", &["--margin", "1s"]);
    let (code, view) = place.show(&["--wait"]);
    assert!(agent.wait().expect("waited for").success());
    assert_eq!(view["tasks"][0]["market"], "on-demand", "{view}");
    let start = place.lines().first().expect("it started").at;
    // 5 s less the second that it runs and the margin.
    assert!(start >= before + 3.0, "{start} {before}");
    // Whether it met its deadline depends on this machine; what is shown has to agree with it.
    assert_eq!(code == 0, view["late"] == 0, "{view}");
}

#[test]
fn spot_machine_does_it_before_one_on_demand_has_to() {
    let place = Place::new();
    place.submit(&["--count", "2", "--time", "1s", "--deadline", "10m"], 10);
    let mut on_demand = place.agent("on-demand", &[]);
    let mut spot = place.agent("spot", &[]);
    let (code, view) = place.show(&["--wait"]);
    assert_eq!(code, 0, "{view}");
    assert!(spot.wait().expect("waited for").success());
    assert!(on_demand.wait().expect("waited for").success());
    for task in view["tasks"].as_array().expect("a list") {
        assert_eq!(task["market"], "spot", "{view}");
    }
    assert!(view["on_demand_from"].is_null(), "{view}");
}

/// The task is urgent for the spot agent from the begin on, by its margin, and not for the other.
#[test]
fn spot_agent_leaves_an_urgent_task_to_an_idle_agent_on_demand_for_a_while() {
    let place = Place::new();
    place.submit(&["--time", "1s", "--deadline", "1h"], 10);
    let _idle = place.agent("on-demand", &["--margin", "1s"]);
    let agents = || place.show(&[]).1["agents"].as_array().map_or(0, Vec::len);
    until("it has written itself down", SOON, || (agents() == 1).then_some(()));
    let before = Instant::now();
    let mut spot = place.agent("spot", &["--margin", "2h"]);
    until("it takes the task in the end", SOON, || (!place.lines().is_empty()).then_some(()));
    let waited = before.elapsed().as_millis();
    assert!(waited >= u128::from(LEAVES_URGENT.0), "it started after {waited} ms");
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["tasks"][0]["market"]), (0, &"spot".into()), "{view}");
    assert!(spot.wait().expect("waited for").success());
}

#[test]
fn command_that_fails_is_tried_again_and_then_reported() {
    let place = Place::new();
    let mut submit = place.task("submit");
    submit.args(["--time", "1s", "--deadline", "10m", "--", "sh", "-c"]);
    let submitted = run(submit.arg(format!("echo x >> {}; exit 3", place.path("log").display())));
    assert_eq!(submitted.code, 0, "{submitted}");
    let mut agent = place.agent("spot", &["--retries", "1"]);
    let (code, view) = place.show(&["--wait"]);
    assert!(agent.wait().expect("waited for").success());
    assert_eq!((code, &view["failed"]), (5, &1.into()), "{view}");
    let why = view["tasks"][0]["why"].as_str().expect("a text");
    assert!(why.contains("exit code 3"), "{view}");
    let runs = std::fs::read_to_string(place.path("log")).expect("it ran");
    assert_eq!(runs.lines().count(), 2);
}

#[test]
fn names_that_are_taken_or_absent_are_refused() {
    let place = Place::new();
    let options = ["--time", "1s", "--deadline", "10m"];
    assert_eq!(place.submit(&options, 1).code, 0);
    let again = place.submit(&options, 1);
    assert!(again.code == 1 && again.stderr.contains("there is a bag bag"), "{again}");
    for verb in ["bag", "agent"] {
        let mut command = sanderling();
        command.args(["task", verb, "--bag", "other", "--backend", &place.backend]);
        if verb == "agent" {
            command.args(["--market", "spot"]);
        }
        let absent = run(&mut command);
        assert!(absent.code == 3 && absent.stderr.contains("no bag other"), "{absent}");
    }
}

#[test]
fn bag_in_a_cluster_is_done_by_two_agents() {
    let cluster = Cluster::of(2);
    let mut place = Place::new();
    (place.backend, place.namenode) = ("/tasks".to_owned(), Some(cluster.namenode.address.clone()));
    let submitted = place.submit(&["--count", "4", "--time", "1s", "--deadline", "10m"], 20);
    assert_eq!(submitted.code, 0, "{submitted}");
    let mut agents = [place.agent("spot", &[]), place.agent("spot", &[])];
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["ended"]), (0, &4.into()), "{view}");
    for agent in &mut agents {
        assert!(agent.wait().expect("waited for").success());
    }
}
