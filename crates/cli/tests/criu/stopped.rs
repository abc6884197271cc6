//! Runners that are stopped with all processes of their group, for longer than their lock is waited
//! for. The task has a session of its own, and is stopped by process 1 of its namespaces.

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::cluster::{SOON, until};
use super::{Killed, Place};

/// Starts the counter, by a runner with a group of processes of its own.
fn start(place: &Place, interval: &str) -> Killed {
    let mut options = std::fs::OpenOptions::new();
    let log = options.create(true).append(true).open(place.path("runner.log"));
    let mut command = place.task("run");
    command.arg("--criu").arg(&place.criu).args(["--driver", "criu", "--lock-age", "2s"]);
    command.args(["--interval", interval, "--", "python3"]).arg(place.path("counter.py"));
    command.arg(place.directory.path()).arg("none").process_group(0);
    let runner = command.stdout(Stdio::null()).stderr(log.expect("a log")).spawn();
    let mut runner = Killed(runner.expect("started"));
    until("the counter counts", SOON, || {
        assert!(!runner.has_ended(), "{}", place.text("runner.log"));
        (place.numbers().len() > 10).then_some(())
    });
    runner
}

fn signal(runner: &Killed, signal: Signal) {
    kill_process_group(Pid::from_child(&runner.0), signal).expect("they run");
}

/// Waits until the counter has stood still for two seconds, and returns how many numbers there are.
fn until_still(place: &Place) -> usize {
    let mut seen = (0, Instant::now());
    until("the counter stands still", SOON, || {
        let count = place.numbers().len();
        if count != seen.0 {
            seen = (count, Instant::now());
        }
        (seen.1.elapsed() > Duration::from_secs(2)).then_some(())
    });
    seen.0
}

/// With dumps that are under way when the runner is stopped, and without.
#[test]
fn task_of_a_stopped_runner_stands_still_and_goes_on_with_it() {
    for interval in ["1h", "200ms"] {
        let Some(place) = Place::new("task_of_a_stopped_runner_stands_still") else { return };
        let mut runner = start(&place, interval);
        signal(&runner, Signal::STOP);
        let count = until_still(&place);
        let newest = place.newest();
        signal(&runner, Signal::CONT);
        until("the counter goes on", SOON, || {
            assert!(!runner.has_ended(), "{}", place.text("runner.log"));
            (place.numbers().len() > count + 10).then_some(())
        });
        let numbers = place.numbers();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        if interval == "1h" {
            continue;
        }
        // No generation has the stop in it.
        until("a later generation", SOON, || (place.newest() > newest).then_some(()));
        drop(runner);
        let ran = place.finish(&[]);
        assert_eq!(ran.code, 0, "{ran}\n{}", place.text("runner.log"));
        assert!(ran.stderr.contains("restored generation"), "{ran}");
        place.assert_went_on();
    }
}

#[test]
fn task_of_a_stopped_runner_never_runs_again_once_its_lock_is_taken() {
    let Some(place) = Place::new("task_of_a_stopped_runner_never_runs_again") else { return };
    let mut runner = start(&place, "1h");
    signal(&runner, Signal::STOP);
    let count = until_still(&place);
    std::fs::write(place.path("backend/count/locks/0000000009"), "{}").expect("written");
    signal(&runner, Signal::CONT);
    let ended = until("the runner ends", SOON, || runner.0.try_wait().expect("our own child"));
    let log = place.text("runner.log");
    assert!(ended.code() == Some(1) && log.contains("another runner has taken"), "{log}");
    assert_eq!(place.numbers().len(), count, "it counted: {log}");
}
