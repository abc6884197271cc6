//! What a bag records about the work and the failures of its tasks.

use std::path::{Path as LocalPath, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::bag::{Place, kill, signal};
use crate::cluster::tasks::library;
use crate::cluster::{SOON, run, until};
use rustix::process::Signal;

const BAG: [&str; 4] = ["--time", "1h", "--deadline", "10h"];

/// Returns the seconds of work that are in the task's checkpoints, as `task bag` shows them.
fn worked(place: &Place) -> f64 {
    let (_, view) = place.show(&[]);
    view["tasks"][0]["worked_seconds"].as_f64().expect("a number")
}

fn until_recorded(place: &Place) {
    let record = place.path("backend/@bag/progress/000001");
    until("work is recorded", SOON, || record.exists().then_some(()));
}

/// Returns the names of whole objects in a directory, in order.
pub(crate) fn objects(directory: &LocalPath) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let whole = entries.filter(|it| !it.file_name().as_encoded_bytes().starts_with(b"."));
    let mut paths: Vec<PathBuf> = whole.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Stops an agent, as if it hung, and waits until all of it stands still.
fn stop(agent: &Child) {
    signal(agent, Signal::STOP);
    until("it stands still", SOON, || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", agent.id())).ok()?;
        stat.rsplit_once(") ")?.1.starts_with('T').then_some(())
    });
}

/// The first agent hangs; the second one takes its task and a checkpoint, and hangs as well. So no
/// other process writes what the first one does when it goes on.
#[test]
fn pause_of_an_agent_is_no_work_of_its_task() {
    let pause = Duration::from_secs(10);
    let place = Place::new();
    assert_eq!(place.submit(&BAG, 10).code, 0);
    place.hold();
    let began = Instant::now();
    let first = place.agent("spot", &["--lock-age", "2s"]);
    until_recorded(&place);
    let own = objects(&place.path("backend/@bag/agents"));
    stop(&first);
    let stored = place.path("backend/bag.000001/generations");
    let before = objects(&stored).pop();
    let second = place.agent("spot", &["--lock-age", "2s"]);
    until("a checkpoint of the second one", SOON, || {
        (objects(&stored).pop() > before).then_some(())
    });
    stop(&second);
    let most = began.elapsed();
    let paused = Instant::now();
    until("the pause is over", SOON, || (paused.elapsed() > pause).then_some(()));
    let written = || own.first().and_then(|it| it.metadata().ok()?.modified().ok());
    let last = written();
    let resumed = Instant::now();
    signal(&first, Signal::CONT);
    until("the first one writes itself down", SOON, || (written() > last).then_some(()));
    let worked = worked(&place);
    let most = (most + resumed.elapsed()).as_secs_f64();
    assert!(worked > 0.0 && worked < most, "{worked} of {most}");
}

#[test]
fn time_of_a_restore_is_no_work() {
    let mut place = Place::new();
    let Some(library) = library(&place.path(""), include_str!("slow_reads.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    assert_eq!(place.submit(&BAG, 10).code, 0);
    place.hold();
    let mut first = place.agent("spot", &[]);
    until_recorded(&place);
    kill(&mut first);
    let before = worked(&place);
    place.variables = vec![("LD_PRELOAD", library), ("SLOW_BELOW", "/packs/".into())];
    let _second = place.agent("spot", &[]);
    let after = until("more work is recorded", SOON, || {
        Some(worked(&place)).filter(|worked| *worked > before)
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64();
    let lines = place.lines();
    let start = lines.iter().rfind(|line| line.is_restored).expect("it is restored");
    // The command starts before its first line.
    let most = before + (now - start.at) + 5.0;
    assert!(after < most, "{after} of {most}, after {before}");
}

/// The record is there, and the agent gets an error and writes it again.
#[test]
fn failure_that_is_recorded_twice_counts_once() {
    let mut place = Place::new();
    let Some(library) = library(&place.path(""), include_str!("lost_answer.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let mut command = place.task("submit");
    let script = format!("echo x >> {}; exit 3", place.path("log").display());
    let submitted = run(command.args(BAG).args(["--", "sh", "-c", &script]));
    assert_eq!(submitted.code, 0, "{submitted}");
    place.variables = vec![("LD_PRELOAD", library), ("LOST_AT", "/progress/000001".into())];
    let mut agent = place.agent("spot", &["--retries", "1"]);
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["failed"]), (5, &1.into()), "{view}");
    assert_eq!(view["tasks"][0]["failures"], 1, "{view}");
    assert!(agent.wait().expect("waited for").success());
    let runs = std::fs::read_to_string(place.path("log")).expect("it ran");
    assert_eq!(runs.lines().count(), 2);
}
