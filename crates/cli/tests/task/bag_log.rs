//! What agents print: why a task has no checkpoint, what was passed over, and failures of the
//! backend, each once.

use crate::bag::{Place, kill};
use crate::bag_work::objects;
use crate::cluster::tasks::library;
use crate::cluster::{SOON, run, until};

const BAG: [&str; 4] = ["--time", "1s", "--deadline", "10m"];

/// Submits a bag with a command of the shell.
fn submit(place: &Place, options: &[&str], script: &str) {
    let mut command = place.task("submit");
    command.args(BAG).args(options).args(["--", "sh", "-c", script]);
    let submitted = run(&mut command);
    assert_eq!(submitted.code, 0, "{submitted}");
}

fn log(place: &Place) -> String {
    std::fs::read_to_string(place.path("agents.log")).unwrap_or_default()
}

fn until_logged(place: &Place, text: &str) {
    until(text, SOON, || log(place).contains(text).then_some(()));
}

fn until_there(place: &Place, name: &str) {
    until(name, SOON, || place.path(name).exists().then_some(()));
}

/// Waits until the agent has worked for so many seconds more, by its own record.
fn until_worked(place: &Place, seconds: u64) {
    let before = until("it reports", SOON, || place.ran());
    until("it reports again", SOON, || (place.ran()? > before + 1000 * seconds).then_some(()));
}

#[test]
fn agent_names_a_damaged_generation_that_it_passes_over() {
    let place = Place::new();
    assert_eq!(place.submit(&BAG, 10).code, 0);
    place.hold();
    let mut first = place.agent("spot", &[]);
    let stored = place.path("backend/bag.000001/generations");
    until("two generations", SOON, || (objects(&stored).len() >= 2).then_some(()));
    kill(&mut first);
    let newest = objects(&stored).pop().expect("a generation");
    let mut bytes = std::fs::read(&newest).expect("readable");
    *bytes.last_mut().expect("a manifest") ^= 1;
    std::fs::write(&newest, bytes).expect("written");
    let name = newest.file_name().and_then(|name| name.to_str()).expect("a name");
    let number: u64 = name.parse().expect("a number");
    let mut second = place.agent("spot", &[]);
    until_logged(&place, &format!("task 1: generation {number} of bag.000001 is refused"));
    until_logged(&place, "task 1: restored generation");
    place.release();
    let (code, view) = place.show(&["--wait"]);
    assert_eq!(code, 0, "{view}");
    assert!(second.wait().expect("waited for").success());
}

#[test]
fn agent_prints_a_checkpoint_only_where_what_becomes_of_them_changes() {
    let place = Place::new();
    let [fails, go] = ["fails", "go"].map(|name| place.path(name).display().to_string());
    // With the first word its state cannot be written.
    let link = format!(r#"[ -e {fails} ] && ln -s failed "$SANDERLING_TASK_STATE/done""#);
    let save = format!(r#"trap '{link} || : > "$SANDERLING_TASK_STATE/done"' USR1"#);
    submit(&place, &[], &format!("{save}; while [ ! -e {go} ]; do sleep 0.05; done"));
    let mut agent = place.agent("spot", &[]);
    let stored = place.path("backend/bag.000001/generations");
    let newest = || {
        let newest = objects(&stored).pop()?;
        newest.file_name()?.to_str()?.parse::<u64>().ok()
    };
    let until_stored = |count: u64| {
        let before = newest().unwrap_or(0);
        until("generations", SOON, || (newest()? > before + count).then_some(()));
    };
    until_stored(3);
    assert_eq!(log(&place).matches("taken by").count(), 1, "{}", log(&place));
    std::fs::write(place.path("fails"), "").expect("written");
    until_logged(&place, "task 1: no checkpoint: error: the task could not write its state");
    std::fs::remove_file(place.path("fails")).expect("removed");
    until_stored(3);
    assert_eq!(log(&place).matches("taken by").count(), 2, "{}", log(&place));
    std::fs::write(place.path("go"), "").expect("written");
    assert_eq!(place.show(&["--wait"]).0, 0);
    assert!(agent.wait().expect("waited for").success());
}

#[test]
fn agent_names_the_task_that_has_no_checkpoint_and_the_reason() {
    let place = Place::new();
    let go = place.path("go").display().to_string();
    let fails = r#"trap 'ln -s failed "$SANDERLING_TASK_STATE/done"' USR1"#;
    submit(&place, &[], &format!("{fails}; while [ ! -e {go} ]; do sleep 0.05; done"));
    let mut agent = place.agent("spot", &[]);
    until_logged(&place, "task 1: no checkpoint: error: the task could not write its state");
    std::fs::write(place.path("go"), "").expect("written");
    assert_eq!(place.show(&["--wait"]).0, 0);
    assert!(agent.wait().expect("waited for").success());
}

#[test]
fn end_that_cannot_be_recorded_is_printed_once_and_once_more_when_it_is() {
    let mut place = Place::new();
    let Some(library) = library(&place.path(""), include_str!("fail_reads.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let (started, go) = (place.path("started"), place.path("go"));
    let (started, go) = (started.display(), go.display());
    let script = format!("touch {started}; while [ ! -e {go} ]; do sleep 0.05; done");
    submit(&place, &[], &script);
    let (condition, below) = (place.path("fails"), "/@bag/ended/".into());
    place.variables =
        vec![("LD_PRELOAD", library), ("FAIL_IF", condition.clone()), ("FAIL_BELOW", below)];
    let mut agent = place.agent("spot", &[]);
    until_there(&place, "started");
    std::fs::write(&condition, "").expect("written");
    std::fs::write(place.path("go"), "").expect("written");
    let unrecorded = "task 1: the end of the run is not recorded yet: error: ";
    until_logged(&place, unrecorded);
    // It tries that twice a second.
    until_worked(&place, 8);
    let printed = log(&place);
    assert_eq!(printed.matches(unrecorded).count(), 1, "{printed}");
    std::fs::remove_file(&condition).expect("it is there");
    until_logged(&place, "task 1: the end of the run is recorded");
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["failed"]), (0, &0.into()), "{view}");
    assert!(agent.wait().expect("waited for").success());
}

/// The list of the tasks that have ended cannot be read for a while.
#[test]
fn failure_of_the_backend_is_printed_once_and_its_end_once() {
    let mut place = Place::new();
    let Some(library) = library(&place.path(""), include_str!("fail_reads.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let (started, go) = (place.path("started"), place.path("go"));
    let (started, go) = (started.display(), go.display());
    let wait = format!("touch {started}; while [ ! -e {go} ]; do sleep 0.05; done");
    submit(&place, &["--count", "2"], &format!("[ $SANDERLING_TASK_NUMBER = 1 ] || {{ {wait}; }}"));
    let (condition, below) = (place.path("fails"), "/@bag/ended".into());
    place.variables =
        vec![("LD_PRELOAD", library), ("FAIL_IF", condition.clone()), ("FAIL_LOOK", below)];
    let mut agent = place.agent("spot", &["--at-once", "2"]);
    until_there(&place, "started");
    until_there(&place, "backend/@bag/ended/000001");
    std::fs::write(&condition, "").expect("written");
    until_logged(&place, "Input/output error");
    // Each round fails, twice a second.
    until_worked(&place, 8);
    std::fs::remove_file(&condition).expect("it is there");
    until_logged(&place, "the bag can be read again");
    std::fs::write(place.path("go"), "").expect("written");
    assert_eq!(place.show(&["--wait"]).0, 0);
    assert!(agent.wait().expect("waited for").success());
    let printed = log(&place);
    for text in ["Input/output error", "the bag can be read again"] {
        assert_eq!(printed.matches(text).count(), 1, "{printed}");
    }
}
