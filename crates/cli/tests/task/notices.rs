//! How a runner ends its task, what a notice does to a dump that is under way, and how the interval
//! follows from what was measured.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path as LocalPath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::tasks::library;
use crate::cluster::{Killed, SOON, run, sanderling, until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use sanderling_command::units::Span;
use sanderling_core::checkpoint::DumpTimes;
use sanderling_protocol::Millis;
use serde_json::Value;
use tempfile::TempDir;

/// Takes as long to write its state as the file `pace` has, in seconds. When it begins to, and
/// when it ends, it writes a line with the time into the file `times`.
const PACED: &str = r#"
import os, signal, sys, time
state, place, is_due = os.environ["SANDERLING_TASK_STATE"], sys.argv[1], False

def due(*_):
    global is_due
    is_due = True

def end(*_):
    open(os.path.join(place, "ended"), "w").close()
    sys.exit()

def note(word):
    with open(os.path.join(place, "times"), "a") as file:
        file.write(f"{word} {time.monotonic()}\n")

signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGUSR1, due)
number = 0
while True:
    if not is_due:
        time.sleep(0.01)
        continue
    is_due, number = False, number + 1
    pace = float(open(os.path.join(place, "pace")).read())
    note("begun")
    time.sleep(pace)
    open(os.path.join(state, "state"), "w").write(str(number))
    note("done")
    open(os.path.join(state, "done"), "w").close()
"#;

/// A place with such a task.
struct Paced(TempDir);

impl Paced {
    fn new(pace: &str) -> Self {
        let place = Self(TempDir::new().expect("a directory"));
        fs::write(place.path("task.py"), PACED).expect("written");
        place.set("pace", pace);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file that others read, as a whole.
    fn set(&self, name: &str, text: &str) {
        fs::write(self.path("draft"), text).expect("written");
        fs::rename(self.path("draft"), self.path(name)).expect("renamed");
    }

    fn task(&self, verb: &str) -> Command {
        let mut command = sanderling();
        command.args(["task", verb, "--name", "t", "--key"]).arg(self.path("key"));
        command.arg("--backend").arg(format!("dir:{}", self.path("backend").display()));
        command
    }

    /// Starts a runner with some flags.
    fn start(&self, flags: &[&str]) -> Killed {
        let (script, place) = (self.path("task.py"), self.0.path());
        let text = |path: &LocalPath| path.to_str().expect("UTF-8").to_owned();
        self.start_command(flags, &["python3", &text(&script), &text(place)])
    }

    /// Starts a runner of another task, in a process group of its own.
    fn start_command(&self, flags: &[&str], words: &[&str]) -> Killed {
        let mut command = self.task("run");
        command.args(["--driver", "hook", "--record"]).arg(self.path("record")).args(flags);
        command.arg("--").args(words).process_group(0);
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log"));
        let runner = command.stdout(Stdio::null()).stderr(log.expect("a log")).spawn();
        Killed(runner.expect("started"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn until_logged(&self, text: &str) {
        until(text, SOON, || self.log().contains(text).then_some(()));
    }

    /// Returns when the task began to write its state, or ended, in seconds.
    fn times(&self, word: &str) -> Vec<f64> {
        let lines = fs::read_to_string(self.path("times")).unwrap_or_default();
        let lines = lines.lines().filter_map(|line| line.split_once(' '));
        let those = lines.filter(|(found, _)| *found == word);
        those.filter_map(|(_, time)| time.parse().ok()).collect()
    }

    /// Waits until the task was requested so often to write its state.
    fn until_begun(&self, times: usize) {
        until("the task writes its state", SOON, || {
            (self.times("begun").len() >= times).then_some(())
        });
    }

    /// Returns the newest lock and its record.
    fn lock(&self) -> (PathBuf, String) {
        let locks = fs::read_dir(self.path("backend/t/locks")).expect("locks").flatten();
        let names = locks.filter(|it| !it.file_name().as_encoded_bytes().starts_with(b"."));
        let newest = names.map(|entry| entry.path()).max().expect("a lock");
        let record = fs::read_to_string(&newest).expect("readable");
        (newest, record)
    }

    fn has_released_lock(&self) -> bool {
        self.lock().1.contains(r#""is_released":true"#)
    }

    /// Shows a notice of a machine that is taken after ten minutes, once the task can give its
    /// state, and waits until the task writes it.
    fn notice(&self, runner: &Killed) -> u32 {
        let task = until("the task handles its signals", SOON, || handling_child(&runner.0));
        self.set("notice", r#"{"deadline_seconds":600}"#);
        self.until_begun(1);
        task
    }

    fn generations(&self) -> usize {
        let found = fs::read_dir(self.path("backend/t/generations")).into_iter().flatten();
        let names = found.flatten().map(|entry| entry.file_name());
        names.filter(|name| !name.as_encoded_bytes().starts_with(b".")).count()
    }

    fn until_generations(&self, least: usize) {
        until("generations", SOON, || (self.generations() >= least).then_some(()));
    }

    /// Starts a runner and waits for a generation.
    fn until_one(&self) -> Killed {
        let runner = self.start(&["--interval", "100ms"]);
        self.until_generations(1);
        runner
    }

    /// Returns what was recorded of each dump: how long it took, in seconds.
    fn dump_seconds(&self) -> Vec<f64> {
        let lines = fs::read_to_string(self.path("record")).unwrap_or_default();
        let lines = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter_map(|line| line["dump_seconds"].as_f64()).collect()
    }

    /// Returns the intervals that the runner announced, in seconds.
    fn intervals(&self) -> Vec<f64> {
        let log = self.log();
        let lines = log.lines().filter_map(|line| line.rsplit_once("next in "));
        let spans = lines.filter_map(|(_, text)| text.trim().parse::<Span>().ok());
        spans.map(|span| span.0.as_secs_f64()).collect()
    }
}

/// The second dump is under way for 6 s of its 12 s when the notice comes, with 12 s left: its rest
/// fits with the margin, a dump from the beginning does not.
#[test]
fn dump_whose_rest_fits_at_a_notice_goes_on() {
    let place = Paced::new("12");
    let flags = ["--interval", "1s", "--on-notice", "--notice-deadline", "12s"];
    let mut runner = place.start(&flags);
    place.until_generations(1);
    place.until_begun(2);
    let begun = Instant::now();
    until("half of it is done", SOON, || (begun.elapsed().as_secs() >= 6).then_some(()));
    runner.signal(Signal::TERM);
    assert_eq!(runner.end(), Some(130), "{}", place.log());
    let log = place.log();
    assert!(log.contains("notice from SIGTERM") && log.contains("it goes on"), "{log}");
    assert_eq!(place.generations(), 2, "{log}");
    let restored = run(place.task("restore").arg("--state").arg(place.path("to")));
    assert_eq!(restored.code, 0, "{restored}");
    assert_eq!(fs::read_to_string(place.path("to/state")).expect("restored"), "2");
}

/// The second dump has just begun when the notice comes: its 12 s do not fit into 4 s.
#[test]
fn dump_whose_rest_does_not_fit_is_given_up() {
    let place = Paced::new("12");
    let flags = ["--interval", "1s", "--on-notice", "--notice-deadline", "4s"];
    let mut runner = place.start(&flags);
    place.until_generations(1);
    place.until_begun(2);
    let begun = Instant::now();
    runner.signal(Signal::TERM);
    assert_eq!(runner.end(), Some(130), "{}", place.log());
    assert!(begun.elapsed() < Duration::from_secs(10), "it waited for what is of no use");
    let log = place.log();
    assert!(log.contains("it is given up"), "{log}");
    assert!(log.contains("none is begun, generation 1 counts"), "{log}");
    assert_eq!(place.generations(), 1, "{log}");
}

/// The first dump takes 10 s, as a whole state may, and would not fit into a notice of 9 s with the
/// margin. The second one is fast, so the dump of the notice is begun, and ends.
#[test]
fn first_dump_counts_at_a_notice_only_until_the_second() {
    let place = Paced::new("10");
    let flags = ["--interval", "1s", "--on-notice", "--notice-deadline", "9s"];
    let mut runner = place.start(&flags);
    place.until_begun(1);
    place.set("pace", "0.05");
    place.until_generations(2);
    runner.signal(Signal::TERM);
    assert_eq!(runner.end(), Some(130), "{}", place.log());
    let log = place.log();
    let is_taken = log.contains("it is taken now") || log.contains("it goes on");
    assert!(is_taken && !log.contains("none is begun"), "{log}");
}

/// Flags of a runner that takes no checkpoint but that of a notice in a file.
fn at_notices(place: &Paced) -> Vec<String> {
    let source = format!("file:{}", place.path("notice").display());
    let flags = ["--interval", "1h", "--hook-timeout", "1h", "--on-notice", "--notice-source"];
    flags.into_iter().map(str::to_owned).chain([source]).collect()
}

/// Starts a runner with these flags, and others.
fn start_at_notices(place: &Paced, others: &[&str]) -> Killed {
    let flags = at_notices(place);
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(others.iter().copied()).collect();
    place.start(&flags)
}

/// The machine pauses while the checkpoint of a notice is written, and another runner takes the
/// task meanwhile.
#[test]
fn machine_that_wakes_during_the_dump_of_a_notice_ends_what_another_has_taken() {
    let place = Paced::new("600");
    let mut runner = start_at_notices(&place, &["--lock-age", "3s"]);
    let task = Pid::from_raw(place.notice(&runner).try_into().expect("a pid")).expect("a pid");
    runner.signal(Signal::STOP);
    kill_process(task, Signal::STOP).expect("it runs");
    let (own, record) = place.lock();
    let number: u64 = own.file_name().and_then(|it| it.to_str()?.parse().ok()).expect("a number");
    let record = record.replacen(r#""owner":""#, r#""owner":"another "#, 1);
    fs::write(own.with_file_name(format!("{:010}", number + 1)), record).expect("written");
    kill_process(task, Signal::CONT).expect("it runs");
    runner.signal(Signal::CONT);
    assert_eq!(runner.end(), Some(1), "{}", place.log());
    let log = place.log();
    assert!(log.contains("another runner has taken the task t"), "{log}");
    assert_eq!(place.generations(), 0, "{log}");
}

/// A service manager sends its signal to all processes of a service.
#[test]
fn task_that_ends_with_its_runner_at_sigterm_is_not_waited_for() {
    let shell = ["sh", "-c", "trap : USR1; while :; do sleep 0.01; done"];
    for ends_well in [true, false] {
        let place = Paced::new("600");
        let flags = ["--interval", "1h", "--on-notice", "--notice-deadline", "10m"];
        let mut runner = match ends_well {
            true => place.start(&flags),
            false => place.start_command(&flags, &shell),
        };
        until("the task handles SIGUSR1", SOON, || child_handling(&runner.0, &[Signal::USR1]));
        kill_process_group(Pid::from_child(&runner.0), Signal::TERM).expect("they run");
        assert_eq!(runner.end(), Some(130), "{}", place.log());
        assert!(place.has_released_lock(), "{}", place.log());
    }
}

#[test]
fn sigterm_during_the_dump_of_another_notice_shortens_it() {
    let place = Paced::new("600");
    let mut runner = start_at_notices(&place, &["--notice-deadline", "3s"]);
    place.notice(&runner);
    runner.signal(Signal::TERM);
    assert_eq!(runner.end(), Some(130), "{}", place.log());
    let log = place.log();
    assert!(log.contains("notice from SIGTERM: "), "{log}");
    // A runner that is forced to end leaves both.
    assert!(place.path("ended").exists(), "the task got no SIGTERM: {log}");
    assert!(place.has_released_lock(), "{log}");
}

#[test]
fn source_of_notices_that_fails_is_printed_once_and_once_more_when_it_answers() {
    let place = Paced::new("0");
    let source = format!("file:{}", place.path("notice").display());
    // The same source again is no other one.
    let runner = start_at_notices(&place, &["--notice-source", &source]);
    place.set("notice", "garbage");
    place.until_logged("the source of notices file fails: ");
    place.set("notice", r#"{"deadline_at": "2099-01-01T00:00:00Z"}"#);
    place.until_logged("the source of notices file answers again");
    place.until_logged("the notice from file counts when 7d are left");
    assert!(place.times("begun").is_empty(), "{}", place.log());
    place.notice(&runner);
    place.until_logged("notice from file: ");
    let log = place.log();
    assert_eq!(log.matches("the source of notices").count(), 2, "{log}");
    assert_eq!(log.matches("notice from file: ").count(), 1, "{log}");
}

/// By SIGINT and, without `--on-notice`, SIGTERM: the task gets SIGTERM, and no checkpoint is
/// taken.
#[test]
fn interrupted_runner_ends_its_task_without_another_checkpoint() {
    for signal in [Signal::INT, Signal::TERM] {
        let place = Paced::new("0");
        drop(place.until_one());
        // The next one is far away: what is stored from now on was taken for the signal.
        let mut runner = place.start(&["--interval", "1h"]);
        place.until_logged("restored generation");
        let before = place.generations();
        let task = until("the task handles its signals", SOON, || handling_child(&runner.0));
        runner.signal(signal);
        assert_eq!(runner.end(), Some(130), "{signal:?}: {}", place.log());
        assert!(place.path("ended").exists(), "{signal:?}: the task got no SIGTERM");
        assert!(!fs::exists(format!("/proc/{task}/exe")).unwrap_or(false), "{signal:?}: it runs");
        assert_eq!(place.generations(), before, "{signal:?}: {}", place.log());
        // The lock was given up: the next runner does not wait for its age.
        assert!(place.has_released_lock(), "{signal:?}");
    }
}

/// The dump of the first signal would go on for ten minutes.
#[test]
fn second_signal_gives_the_checkpoint_of_the_first_one_up() {
    for second in [Signal::INT, Signal::TERM] {
        let place = Paced::new("600");
        let flags = ["--interval", "1h", "--on-notice", "--notice-deadline", "10m"];
        // Without the second signal the hook would be given up only then.
        let flags = [&flags[..], &["--hook-timeout", "10m"]].concat();
        let mut runner = place.start(&flags);
        until("the task handles its signals", SOON, || handling_child(&runner.0));
        runner.signal(Signal::TERM);
        place.until_begun(1);
        // One that comes sooner is the same.
        let begun = Instant::now();
        until("it is another one", SOON, || (begun.elapsed().as_secs() >= 1).then_some(()));
        runner.signal(second);
        assert_eq!(runner.end(), Some(130), "{second:?}: {}", place.log());
        assert!(place.path("ended").exists(), "{second:?}: the task got no SIGTERM");
        assert!(place.has_released_lock(), "{second:?}: {}", place.log());
    }
}

/// The restore takes ten seconds: longer than the time after the signal.
#[test]
fn runner_that_gets_sigterm_during_a_restore_ends_at_once() {
    let place = Paced::new("0");
    let Some(library) = library(place.0.path(), include_str!("slow_reads.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    drop(place.until_one());
    let (before, _) = place.lock();
    let mut command = place.task("run");
    command.args(["--driver", "hook", "--on-notice", "--notice-deadline", "3s", "--", "python3"]);
    command.arg(place.path("task.py")).arg(place.0.path());
    command.env("LD_PRELOAD", library).env("SLOW_BELOW", "/packs/");
    let log = fs::OpenOptions::new().create(true).append(true).open(place.path("log"));
    let child = command.stdout(Stdio::null()).stderr(log.expect("a log")).spawn();
    let mut runner = Killed(child.expect("started"));
    until("it has the lock", SOON, || (place.lock().0 > before).then_some(()));
    let begun = Instant::now();
    runner.signal(Signal::TERM);
    assert_eq!(runner.end(), Some(130), "{}", place.log());
    assert!(begun.elapsed() < Duration::from_secs(8), "it waited: {}", place.log());
    assert!(place.has_released_lock(), "{}", place.log());
}

#[test]
fn interrupted_task_may_take_a_few_seconds_to_end() {
    let place = Paced::new("0");
    let script = format!(
        "trap 'sleep 2.5; touch {}; exit' TERM; trap : USR1; while :; do sleep 0.01; done",
        place.path("ended").display()
    );
    let mut runner = place.start_command(&["--interval", "1h"], &["sh", "-c", &script]);
    until("the task handles its signals", SOON, || handling_child(&runner.0));
    runner.signal(Signal::TERM);
    assert_eq!(runner.end(), Some(130), "{}", place.log());
    assert!(place.path("ended").exists(), "it was killed: {}", place.log());
    assert!(place.has_released_lock(), "{}", place.log());
}

/// Returns the task of a runner, once it handles SIGTERM and SIGUSR1.
fn handling_child(runner: &Child) -> Option<u32> {
    child_handling(runner, &[Signal::TERM, Signal::USR1])
}

/// Returns the task of a runner, once it handles those signals. The runner's guard handles none.
fn child_handling(runner: &Child, signals: &[Signal]) -> Option<u32> {
    let threads = fs::read_dir(format!("/proc/{}/task", runner.id())).ok()?.flatten();
    let children = threads.filter_map(|it| fs::read_to_string(it.path().join("children")).ok());
    let pids = children.flat_map(|it| {
        it.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    });
    pids.into_iter().find(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let bits = caught.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
        let handles = |bits: u64, signal: &Signal| bits >> (signal.as_raw() - 1) & 1 == 1;
        bits.is_some_and(|bits| signals.iter().all(|signal| handles(bits, signal)))
    })
}

/// The first dump is fast, and the ones after it are slow: the interval gets longer.
#[test]
fn interval_follows_from_measured_dumps() {
    let place = Paced::new("0.05");
    let life = Millis(12_000);
    let _runner = place.start(&["--interval", "auto", "--mean-life", "12s"]);
    // It may take long on a busy machine.
    let first = until("the first dump", SOON, || place.dump_seconds().first().copied());
    place.set("pace", &format!("{:.3}", 2.0 + 3.0 * first));
    until("a longer interval after three dumps", SOON, || {
        let announced = place.intervals();
        (announced.len() >= 3 && *announced.last()? > 1.3 * announced[0]).then_some(())
    });
    let (dumps, announced, mut times) =
        (place.dump_seconds(), place.intervals(), DumpTimes::default());
    for (index, (dump, announced)) in dumps.iter().zip(&announced).enumerate() {
        times.add(Millis((dump * 1000.0) as u64), index == 0);
        let expected = times.interval(life).0 as f64 / 1000.0;
        assert!((expected / announced - 1.0).abs() < 0.03, "{expected} {announced} {dumps:?}");
    }
    // It is not only announced.
    for (at, announced) in announced.iter().enumerate().take(2) {
        let waited = place.times("begun")[at + 1] - place.times("done")[at];
        assert!(waited > 0.9 * announced, "{waited} of {announced} after dump {at}");
    }
}

#[test]
fn model_of_lives_gives_the_interval() {
    let place = Paced::new("0.05");
    // Without memory it is that of the mean; the default mean of 4 h is far longer.
    let runner = place.start(&["--lives", "exponential:mean=12s"]);
    until("two dumps", SOON, || (place.intervals().len() >= 2).then_some(()));
    let mut times = DumpTimes::default();
    times.add(Millis((place.dump_seconds()[0] * 1000.0) as u64), true);
    let expected = times.interval(Millis(12_000)).0 as f64 / 1000.0;
    let announced = place.intervals()[0];
    assert!((expected / announced - 1.0).abs() < 0.03, "{expected} {announced}");
    drop(runner);
    // No machine has lived as long as this one: its age counts, and each second may be its last.
    let uptime = fs::read_to_string("/proc/uptime").expect("readable");
    let uptime = uptime.split_whitespace().next().and_then(|it| it.parse::<f64>().ok());
    let lifetime = uptime.expect("a number") / 2.0;
    fs::write(place.path("lives"), format!("lifetime_seconds\n{lifetime}\n")).expect("written");
    let before = place.intervals().len();
    let model = format!("lifetimes:{}", place.path("lives").display());
    let _runner = place.start(&["--lives", &model]);
    until("three more", SOON, || (place.intervals().len() >= before + 3).then_some(()));
    assert_eq!(place.intervals()[before..before + 3], [1.0; 3], "{}", place.log());
}

#[test]
fn models_that_cannot_be_used_are_refused() {
    let place = Paced::new("0");
    let refused = |flags: &[&str], why: &str| {
        let ran = run(place.task("run").args(flags).arg("--").arg("touch").arg(place.path("ran")));
        assert!(ran.code == 2 && ran.stderr.contains(why), "{flags:?}: {ran}");
    };
    refused(&["--lives", "square:mean=1h"], "square:mean=1h");
    refused(&["--lives", "lifetimes:/nonexistent/lives"], "/nonexistent/lives");
    refused(&["--lives", "exponential:mean=1h", "--mean-life", "1h"], "cannot be used with");
    assert!(!place.path("ran").exists(), "the task was started");
}

#[test]
fn prices_and_ages_of_no_use_are_refused() {
    let place = Paced::new("0");
    let rates = ["task", "predict", "--rss", "1GB", "--put-rate", "36MB/s", "--pack-rate", "1GB/s"];
    for flag in ["--price-storage", "--price-requests"] {
        for price in ["nan", "inf", "-1"] {
            let ran = run(sanderling().args(rates).arg(format!("{flag}={price}")));
            assert!(ran.code == 2 && ran.stderr.contains("is no price"), "{flag} {price}: {ran}");
        }
    }
    for age in ["0s", "1ms"] {
        let mut command = place.task("run");
        let ran = run(command.args(["--lock-age", age, "--", "touch"]).arg(place.path("ran")));
        assert!(ran.code == 2 && ran.stderr.contains("is too short"), "{age}: {ran}");
    }
    assert!(!place.path("ran").exists(), "the task was started");
}

/// A hundred years are most: what is longer overflows a clock.
#[test]
fn durations_that_no_clock_can_count_are_refused() {
    let place = Paced::new("0");
    for flag in ["--interval", "--hook-timeout", "--mean-life", "--lock-age", "--notice-deadline"] {
        for span in ["1e19s", "36501d"] {
            let mut command = place.task("run");
            command.args([flag, span, "--", "touch"]).arg(place.path("ran"));
            let ran = run(&mut command);
            let is_named = ran.stderr.contains("the longest is 36500d");
            assert!(ran.code == 2 && is_named, "{flag} {span}: {ran}");
        }
    }
    let refused = run(place.task("ls").args(["--timeout", "1e19s"]));
    assert!(refused.code == 2, "{refused}");
    assert!(!place.path("ran").exists(), "the task was started");
    // The longest one is taken.
    let mut command = place.task("run");
    for flag in ["--interval", "--hook-timeout", "--lock-age", "--notice-deadline", "--timeout"] {
        command.args([flag, "36500d"]);
    }
    let ran = run(command.args(["--on-notice", "--", "true"]));
    assert_eq!(ran.code, 0, "{ran}");
}
