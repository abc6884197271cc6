//! Agents that lose their lock, hang or get a signal, bags that are removed, and strange objects.

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path as LocalPath;
use std::time::Duration;

use crate::bag::{Place, has_checkpoint, kill, send, signal};
use crate::cluster::tasks::library;
use crate::cluster::{SOON, run, take_away, until};
use rustix::process::Signal;

const BAG: [&str; 4] = ["--time", "1s", "--deadline", "10m"];

/// Submits a bag with a command of the shell.
fn submit(place: &Place, options: &[&str], script: &str) {
    let mut command = place.task("submit");
    command.args(BAG).args(options).args(["--", "sh", "-c", script]);
    let submitted = run(&mut command);
    assert_eq!(submitted.code, 0, "{submitted}");
}

fn until_there(place: &Place, name: &str) {
    until(name, SOON, || place.path(name).exists().then_some(()));
}

fn ended_records(place: &Place) -> usize {
    let ended = std::fs::read_dir(place.path("backend/@bag/ended")).expect("a directory");
    // A record is written under another name first.
    let names = ended.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).count()
}

#[test]
fn agent_without_its_lock_records_no_end() {
    let place = Place::new();
    let (started, go) = (place.path("started"), place.path("go"));
    let (started, go) = (started.display(), go.display());
    let script = format!("touch {started}; while [ ! -e {go} ]; do sleep 0.05; done; exit 3");
    submit(&place, &[], &script);
    // It renews its lock, and looks whether it has it, after minutes.
    let agent = place.agent("spot", &["--lock-age", "30m", "--retries", "0"]);
    until_there(&place, "started");
    let locks = place.path("backend/bag.000001/locks");
    let (own, other) = (locks.join("0000000001"), locks.join("0000000002"));
    let record = std::fs::read_to_string(&own).expect("a lock");
    let elsewhere = record.replacen(r#""machine":""#, r#""machine":"elsewhere "#, 1);
    std::fs::write(&other, elsewhere).expect("written");
    std::fs::write(place.path("go"), "").expect("written");
    until("it gives its lock up", SOON, || {
        let record = std::fs::read_to_string(&own).unwrap_or_default();
        record.contains(r#""is_released":true"#).then_some(())
    });
    assert_eq!(ended_records(&place), 0);
    drop(agent);
}

/// A service manager sends its signal to all processes of a service.
#[test]
fn signal_to_an_agent_and_its_task_is_no_failure() {
    let place = Place::new();
    let (pid, started) = (place.path("pid"), place.path("started"));
    let (pid, started) = (pid.display(), started.display());
    submit(&place, &[], &format!("echo $$ > {pid}; touch {started}; exec sleep 600"));
    let mut agent = place.agent("spot", &["--retries", "0"]);
    until_there(&place, "started");
    let task = std::fs::read_to_string(place.path("pid")).expect("written");
    // The task comes first.
    send(task.trim().parse().expect("a pid"), Signal::TERM);
    signal(&agent, Signal::TERM);
    agent.wait().expect("waited for");
    assert_eq!(ended_records(&place), 0);
    let (_, view) = place.show(&[]);
    assert_eq!(view["tasks"][0]["failures"], 0, "{view}");
}

#[test]
fn agent_ends_when_its_bag_is_removed_and_runs_nothing_for_the_next_one() {
    let place = Place::new();
    let script = |word: &str| {
        let (log, go) = (place.path("log"), place.path("go"));
        let (log, go) = (log.display(), go.display());
        format!("echo {word} >> {log}; while [ ! -e {go} ]; do sleep 0.05; done")
    };
    submit(&place, &["--count", "2"], &script("old"));
    let mut first = place.agent("spot", &[]);
    until_there(&place, "log");
    let backend = place.path("backend");
    for name in ["@bag", "bag.000001"] {
        take_away(backend.join(name));
    }
    submit(&place, &["--count", "2"], &script("new"));
    let ended = first.wait().expect("waited for");
    assert_eq!((ended.code(), ended.signal()), (Some(3), None));
    let log = std::fs::read_to_string(place.path("agents.log")).expect("a log");
    assert!(log.contains("was submitted anew"), "{log}");
    assert_eq!(std::fs::read_to_string(place.path("log")).expect("it ran"), "old\n");
    std::fs::write(place.path("go"), "").expect("written");
    let mut second = place.agent("spot", &[]);
    assert_eq!(place.show(&["--wait"]).0, 0);
    assert!(second.wait().expect("waited for").success());
    assert_eq!(std::fs::read_to_string(place.path("log")).expect("it ran"), "old\nnew\nnew\n");
}

#[test]
fn agent_and_wait_end_when_their_bag_is_removed() {
    let place = Place::new();
    submit(&place, &[], "sleep 600");
    let mut agent = place.agent("spot", &[]);
    let mut wait = place.task("bag").arg("--wait").spawn().expect("started");
    until("it runs", SOON, || (place.show(&[]).1["tasks"][0]["state"] == "runs").then_some(()));
    take_away(place.path("backend/@bag"));
    for ended in [agent.wait(), wait.wait()] {
        assert_eq!(ended.expect("waited for").code(), Some(3));
    }
    let log = std::fs::read_to_string(place.path("agents.log")).expect("a log");
    assert!(log.contains("there is no bag in"), "{log}");
}

/// It runs a task that another agent has ended meanwhile, so that it begins no other one.
#[test]
fn agent_whose_last_task_ends_after_its_bag_was_removed_ends() {
    let place = Place::new();
    let (started, go) = (place.path("started"), place.path("go"));
    let (started, go) = (started.display(), go.display());
    let wait = format!("touch {started}; while [ ! -e {go} ]; do sleep 0.05; done");
    let script = format!("[ $SANDERLING_TASK_NUMBER = 2 ] || {{ {wait}; }}");
    submit(&place, &["--count", "2"], &script);
    let mut agent = place.agent("spot", &["--at-once", "2"]);
    until_there(&place, "started");
    until_there(&place, "backend/@bag/ended/000002");
    let ended = place.path("backend/@bag/ended");
    std::fs::copy(ended.join("000002"), ended.join("000001")).expect("copied");
    // An agent that looks at its bag writes itself down every 5 s, or later on a busy machine.
    until("it looks no more", SOON, || {
        let mut records = std::fs::read_dir(place.path("backend/@bag/agents")).expect("agents");
        let record = records.next()?.ok()?.metadata().ok()?;
        (record.modified().ok()?.elapsed().ok()? > Duration::from_secs(20)).then_some(())
    });
    take_away(place.path("backend/@bag"));
    std::fs::write(place.path("go"), "").expect("written");
    let exited = until("it ends", SOON, || agent.try_wait().expect("waited for"));
    assert_eq!(exited.code(), Some(0));
    assert!(!place.path("backend/@bag").exists(), "a part of the bag is there again");
}

#[test]
fn agent_that_hangs_loses_its_task_to_another_one_of_its_machine() {
    let place = Place::new();
    place.submit(&BAG, 10);
    place.hold();
    let mut first = place.agent("spot", &["--lock-age", "2s"]);
    let starts = || place.lines().iter().filter(|it| it.word == "start").count();
    until("it runs", SOON, || (starts() == 1).then_some(()));
    signal(&first, Signal::STOP);
    let mut second = place.agent("spot", &["--lock-age", "2s"]);
    until("the second one has it", SOON, || (starts() >= 2).then_some(()));
    place.release();
    let (code, view) = place.show(&["--wait"]);
    assert_eq!(code, 0, "{view}");
    assert!(second.wait().expect("waited for").success());
    // The command of the first one was stopped, and does not run when that goes on.
    signal(&first, Signal::CONT);
    until("it ends with its bag", SOON, || first.try_wait().expect("our own child"));
    let ends = place.lines().iter().filter(|it| it.word == "end").count();
    assert_eq!(ends, 1, "{:?}", place.lines());
}

#[test]
fn task_whose_place_is_a_file_fails_and_the_others_run() {
    let place = Place::new();
    submit(&place, &["--count", "3"], "true");
    std::fs::write(place.path("backend/bag.000001"), "x").expect("written");
    let mut agent = place.agent("spot", &[]);
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["ended"], &view["failed"]), (5, &3.into(), &1.into()), "{view}");
    let why = view["tasks"][0]["why"].as_str().expect("a text");
    assert!(why.contains("bag.000001 is no directory"), "{view}");
    assert!(agent.wait().expect("waited for").success());
}

#[test]
fn end_that_cannot_be_read_counts_as_a_failure() {
    let place = Place::new();
    submit(&place, &["--count", "2"], "true");
    let mut agent = place.agent("spot", &[]);
    assert_eq!(place.show(&["--wait"]).0, 0);
    assert!(agent.wait().expect("waited for").success());
    let end = place.path("backend/@bag/ended/000002");
    let fails = || {
        let (code, view) = place.show(&["--wait"]);
        assert_eq!((code, &view["failed"]), (5, &1.into()), "{view}");
        assert_eq!(view["tasks"][1]["state"], "failed", "{view}");
    };
    std::fs::write(&end, "").expect("written");
    fails();
    std::fs::remove_file(&end).expect("removed");
    std::fs::create_dir(&end).expect("made");
    fails();
}

/// A link to itself, which cannot be opened.
fn link_to_itself(path: &LocalPath) {
    symlink(path.file_name().expect("a name"), path).expect("linked");
}

#[test]
fn record_that_cannot_be_read_is_named_and_holds_no_bag_up() {
    let (progress, ended) = ("progress/000001", "ended/000002");
    for (record, failed) in [(progress, 0), (ended, 1), ("agents/0123456789abcdef", 0)] {
        let place = Place::new();
        submit(&place, &["--count", "2"], "true");
        link_to_itself(&place.path("backend/@bag").join(record));
        let mut agent = place.agent("spot", &[]);
        let (code, view) = place.show(&["--wait"]);
        assert_eq!((&view["ended"], &view["failed"]), (&2.into(), &failed.into()), "{record}");
        assert_eq!(code, if failed == 0 { 0 } else { 5 }, "{record}: {view}");
        assert!(agent.wait().expect("waited for").success(), "{record}");
        let shown = run(&mut place.task("bag"));
        assert!(shown.code == 0 && shown.stderr.contains(record), "{record}: {shown}");
        let log = std::fs::read_to_string(place.path("agents.log")).expect("a log");
        let times = usize::from(record == progress);
        assert_eq!(log.matches("Too many levels").count(), times, "{record}: {log}");
    }
}

#[test]
fn lock_that_cannot_be_read_is_named_and_holds_its_task_up_alone() {
    let place = Place::new();
    submit(&place, &["--count", "2"], "true");
    let lock = place.path("backend/bag.000001/locks/0000000001");
    std::fs::create_dir_all(lock.parent().expect("a directory")).expect("made");
    link_to_itself(&lock);
    let mut agent = place.agent("spot", &[]);
    until_there(&place, "backend/@bag/ended/000002");
    until("it is named", SOON, || {
        let log = std::fs::read_to_string(place.path("agents.log")).unwrap_or_default();
        log.contains("locks/0000000001: Too many levels").then_some(())
    });
    assert_eq!(ended_records(&place), 1);
    std::fs::remove_file(&lock).expect("removed");
    assert_eq!(place.show(&["--wait"]).0, 0);
    assert!(agent.wait().expect("waited for").success());
}

#[test]
fn task_that_ends_during_a_notice_is_recorded_at_once() {
    let place = Place::new();
    let [begun, signalled, go] = ["begun", "signalled", "go"].map(|name| place.path(name));
    let (begun, signalled, go) = (begun.display(), signalled.display(), go.display());
    let trap = format!("trap 'touch {signalled}' USR1; touch {begun}");
    submit(&place, &[], &format!("{trap}; while [ ! -e {go} ]; do sleep 0.01; done"));
    let source = format!("file:{}", place.path("notice").display());
    let flags = ["--interval", "1h", "--hook-timeout", "1h", "--on-notice", "--notice-source"];
    let mut agent = place.agent("spot", &[&flags[..], &[source.as_str()]].concat());
    until_there(&place, "begun");
    std::fs::write(place.path("draft"), r#"{"deadline_seconds":600}"#).expect("written");
    std::fs::rename(place.path("draft"), place.path("notice")).expect("renamed");
    // The agent waits for its state.
    until_there(&place, "signalled");
    std::fs::write(place.path("go"), "").expect("written");
    until_there(&place, "backend/@bag/ended/000001");
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["failed"]), (0, &0.into()), "{view}");
    assert!(agent.wait().expect("waited for").success());
}

/// Changes the last byte of each object of a directory.
fn damage(directory: &LocalPath) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let mut bytes = std::fs::read(entry.path()).expect("readable");
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        std::fs::write(entry.path(), bytes).expect("written");
    }
}

#[test]
fn task_whose_checkpoints_are_all_damaged_fails_unless_the_key_may_be_wrong() {
    let place = Place::new();
    place.submit(&BAG, 10);
    place.hold();
    let task = place.path("backend/bag.000001");
    let mut first = place.agent("spot", &[]);
    until("a checkpoint", SOON, || has_checkpoint(&task).then_some(()));
    kill(&mut first);
    let key = std::fs::read(place.path("key")).expect("a key");
    std::fs::write(place.path("key"), "1".repeat(64)).expect("written");
    let mut second = place.agent("spot", &["--retries", "0"]);
    until("the key is found wrong", SOON, || {
        let log = std::fs::read_to_string(place.path("agents.log")).unwrap_or_default();
        log.contains("it was encrypted with another key").then_some(())
    });
    kill(&mut second);
    assert_eq!(ended_records(&place), 0);
    std::fs::write(place.path("key"), key).expect("written");
    damage(&task.join("generations"));
    let mut third = place.agent("spot", &["--retries", "1"]);
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["failed"]), (5, &1.into()), "{view}");
    assert_eq!(view["tasks"][0]["failures"], 1, "{view}");
    let why = view["tasks"][0]["why"].as_str().expect("a text");
    assert!(why.contains("no generation of bag.000001 can be restored"), "{view}");
    assert!(third.wait().expect("waited for").success());
}

/// The packs can be listed, and not be read.
#[test]
fn task_whose_checkpoint_cannot_be_read_for_a_while_has_not_failed() {
    let mut place = Place::new();
    let Some(library) = library(&place.path(""), include_str!("fail_reads.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    place.submit(&BAG, 10);
    place.hold();
    let mut first = place.agent("spot", &[]);
    let task = place.path("backend/bag.000001");
    until("a checkpoint", SOON, || has_checkpoint(&task).then_some(()));
    kill(&mut first);
    let condition = place.path("fails");
    std::fs::write(&condition, "").expect("written");
    let below = "/bag.000001/packs/".into();
    place.variables =
        vec![("LD_PRELOAD", library), ("FAIL_IF", condition.clone()), ("FAIL_BELOW", below)];
    let mut second = place.agent("spot", &["--retries", "0"]);
    until("a pack cannot be read", SOON, || {
        let log = std::fs::read_to_string(place.path("agents.log")).unwrap_or_default();
        log.contains("Input/output error").then_some(())
    });
    assert_eq!(ended_records(&place), 0);
    std::fs::remove_file(&condition).expect("it is there");
    place.release();
    let (code, view) = place.show(&["--wait"]);
    assert_eq!((code, &view["failed"]), (0, &0.into()), "{view}");
    assert_eq!(view["tasks"][0]["failures"], 0, "{view}");
    assert!(second.wait().expect("waited for").success());
    let lines = place.lines();
    assert!(lines.iter().any(|line| line.word == "end" && line.is_restored), "{lines:?}");
}

#[test]
fn agent_without_enough_memory_reports_it() {
    let place = Place::new();
    submit(&place, &["--memory", "2GB"], "true");
    let _agent = place.agent("spot", &["--memory", "1GB"]);
    until("it is logged", SOON, || {
        let log = std::fs::read_to_string(place.path("agents.log")).unwrap_or_default();
        log.contains("none starts here").then_some(())
    });
}

/// Before its agent starts, and while a task runs.
#[test]
fn bag_without_one_of_its_directories_is_done() {
    for directory in ["ended", "progress", "agents"] {
        let place = Place::new();
        let (started, go) = (place.path("started"), place.path("go"));
        let (started, go) = (started.display(), go.display());
        let wait = format!("touch {started}; while [ ! -e {go} ]; do sleep 0.05; done");
        submit(&place, &["--count", "2"], &wait);
        let removed = place.path("backend/@bag").join(directory);
        std::fs::remove_dir_all(&removed).expect("removed");
        let mut agent = place.agent("spot", &[]);
        until_there(&place, "started");
        assert!(removed.exists(), "{directory}");
        take_away(removed);
        std::fs::write(place.path("go"), "").expect("written");
        until_there(&place, "backend/@bag/ended/000001");
        until_there(&place, "backend/@bag/ended/000002");
        let (code, view) = place.show(&["--wait"]);
        assert_eq!((code, &view["ended"]), (0, &2.into()), "{directory}: {view}");
        assert!(agent.wait().expect("waited for").success(), "{directory}");
    }
}
