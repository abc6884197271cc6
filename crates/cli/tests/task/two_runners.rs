//! Two runners of one task: the one with the lock goes on, and the other one ends.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::cluster::stores::{fleet, make};
use crate::cluster::tasks::{TaskPlace, is_root, library, within};
use crate::cluster::{SOON, run, until};
use tempfile::TempDir;

/// How a runner is started that cannot be seen from here, as one on another machine.
const ELSEWHERE: [&str; 5] = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"];

/// How a runner is started to which `/proc` hides the processes of other users, and which may write
/// to all files.
const HIDDEN: [&str; 6] = ["unshare", "--mount", "sh", "-c", HIDE, "sh"];

const HIDE: &str = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 \
                    --regid 65534 --clear-groups --inh-caps=+dac_override \
                    --ambient-caps=+dac_override \"$@\"";

/// The first runner has given a number up, and is stopped before it writes the next manifest. The
/// second one takes the lock, and is killed when it has stored its first generation. The first one
/// writes its manifest only then, with a higher number.
#[test]
fn generation_of_a_runner_without_the_lock_is_not_taken_for_the_newest() {
    if !is_root("generation_of_a_runner_without_the_lock") {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let Some(library) = library(directory.path(), include_str!("stop_links.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let mut place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    let condition = directory.path().join("stops");
    place.variables = vec![("LD_PRELOAD", library), ("STOP_IF", condition.clone())];
    let flags = ["--lock-age", "2s", "--keep", "3"];
    let mut first = place.runner("first", &[], &flags);
    place.until_after(1, &mut first);
    std::fs::write(&condition, "").expect("written");
    first.until_stopped();
    let before = place.newest();
    place.variables.push(("HANG_AFTER_LINK", PathBuf::from("yes")));
    let mut second = place.runner("second", &ELSEWHERE, &flags);
    let newest = place.until_after(before, &mut second);
    assert!(second.log().contains(&format!("restored generation {before}")), "{}", second.log());
    second.kill();
    let (_, count) = place.restored();
    first.resume();
    let code = until("the first one ends", SOON, || first.ended());
    assert!(code == 1 && first.log().contains("another runner has taken"), "{}", first.log());
    let late = newest + 1;
    assert_eq!(place.generations()[..2], [late, newest], "{}", first.log());
    let verified = place.verified();
    assert_eq!(verified.code, 0, "it is whole: {verified}");
    assert_eq!(place.restored(), (newest, count));
    // The next one goes on from there, and its generations come after both.
    place.variables.clear();
    let mut third = place.runner("third", &[], &flags);
    let last = place.until_after(late, &mut third);
    assert!(third.log().contains(&format!("restored generation {newest}")), "{}", third.log());
    third.kill();
    let (restored, later) = place.restored();
    assert!(restored >= last && later >= count, "{restored} {last}");
}

/// As over NFS: a link that was made is answered as one that another runner has made.
#[test]
fn link_that_is_repeated_is_no_other_runners() {
    let directory = TempDir::new().expect("a directory");
    let Some(library) = library(directory.path(), include_str!("repeated_link.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let mut place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    place.variables = vec![("LD_PRELOAD", library)];
    let mut runner = place.runner("runner", &[], &["--keep", "3"]);
    place.until_after(2, &mut runner);
    let log = runner.log();
    runner.kill();
    assert!(!log.contains("no checkpoint") && !log.contains("has written"), "{log}");
    assert_eq!(place.verified().code, 0);
}

/// Returns whether `/proc` can hide processes here; prints why not in a test that needs it.
fn hides_processes(test: &str) -> bool {
    let mut look = Command::new("test");
    look.args(["!", "-e", "/proc/1"]);
    let looked = run(&mut within(&HIDDEN, look));
    if looked.code != 0 {
        eprintln!("SKIPPED {test}: /proc cannot hide processes here: {looked}");
    }
    looked.code == 0
}

/// The process of the first one cannot be seen, so that its lock alone shows whether it runs.
#[test]
fn lock_of_a_process_that_proc_hides_is_watched_and_that_of_an_ended_one_is_free() {
    let test = "lock_of_a_process_that_proc_hides";
    if !is_root(test) || !hides_processes(test) {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(directory.path(), 10_000);
    let mut first = place.runner("first", &[], &["--lock-age", "9s"]);
    let newest = place.until_after(1, &mut first);
    let mut second = place.runner("second", &HIDDEN, &["--lock-age", "9s"]);
    let code = until("the second one is refused", SOON, || second.ended());
    assert!(code == 4 && second.log().contains("another runner has the task"), "{}", second.log());
    let waits = second.log().contains("for the lock of process ");
    assert!(waits && second.log().contains(" on this machine"), "{}", second.log());
    place.until_after(newest, &mut first);
    assert_eq!(first.ended(), None, "{}", first.log());
    first.kill();
    // No process has the id of one that has ended: its age does not count.
    let flags = ["--lock-age", "1h"];
    let mut third = place.runner("third", &[], &flags);
    let newest = place.until_after(place.newest(), &mut third);
    third.kill();
    let mut fourth = place.runner("fourth", &HIDDEN, &flags);
    place.until_after(newest, &mut fourth);
    fourth.kill();
}

/// Its runner writes it anew with the next renewal.
#[test]
fn record_of_a_lock_that_is_damaged_makes_no_runner_lose_it() {
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(directory.path(), 10_000);
    let flags = ["--lock-age", "9s"];
    let mut first = place.runner("first", &[], &flags);
    let newest = place.until_after(1, &mut first);
    let locks = directory.path().join("count/locks");
    std::fs::write(locks.join("0000000001"), "{").expect("written");
    let mut second = place.runner("second", &[], &flags);
    let code = until("the second one is refused", SOON, || second.ended());
    assert!(code == 4 && second.log().contains("another runner has the task"), "{}", second.log());
    place.until_after(newest, &mut first);
    assert_eq!(first.ended(), None, "{}", first.log());
}

/// The store is away for longer than a lock is watched that waits for it. Meanwhile no record of
/// the lock can be replaced: its runner takes the lock anew, again and again.
#[test]
fn lock_of_a_runner_whose_store_is_away_stays_with_it_and_its_command_runs() {
    if !is_root("lock_of_a_runner_whose_store_is_away") {
        return;
    }
    let (cluster, store) = fleet(2);
    make(&cluster, "/tasks");
    let place = TaskPlace::in_cluster(&cluster.namenode.address, 10_000);
    // Longer than a busy machine holds up a look at the lock.
    let age = Duration::from_secs(9);
    // A renewal waits for as long as a call may: longer than this test waits for anything.
    let flags = ["--lock-age", "9s", "--keep", "3", "--timeout", "10m"];
    let mut first = place.runner("first", &[], &flags);
    place.until_after(1, &mut first);
    let away = store.with_extension("away");
    std::fs::rename(&store, &away).expect("away");
    let began = Instant::now();
    while began.elapsed() < 5 * age {
        let mut second = place.runner("second", &ELSEWHERE, &flags);
        let code = until("the second one is refused", SOON, || second.ended());
        let log = second.log();
        assert!(code == 4 && log.contains("another runner has the task"), "{log}");
        // Its command runs: one that is stopped gives no state.
        place.until_after(place.newest(), &mut first);
    }
    until("the store is back", SOON, || {
        let _ = std::fs::remove_dir_all(&store);
        std::fs::rename(&away, &store).ok()
    });
    place.until_after(place.newest(), &mut first);
}

/// A manifest of a number that the runner comes to, as one that a runner wrote after it had lost
/// the lock.
#[test]
fn runner_with_the_lock_goes_on_after_generations_of_one_without_it() {
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(directory.path(), 10_000);
    let mut runner = place.runner("runner", &[], &["--keep", "3"]);
    let newest = place.until_after(1, &mut runner);
    let generations = directory.path().join("count/generations");
    let bytes = until("a manifest", SOON, || {
        std::fs::read(generations.join(format!("{:010}", place.newest()))).ok()
    });
    let foreign = newest + 20;
    std::fs::write(generations.join(format!("{foreign:010}")), bytes).expect("written");
    runner.until_logged("has written generation", 1);
    let newest = place.until_after(foreign + 1, &mut runner);
    assert_eq!(runner.log().matches("has written generation").count(), 1, "{}", runner.log());
    runner.kill();
    assert!(place.restored().0 >= newest);
}

/// A removal of old generations judges the lock by the age of the runner, which is longer.
#[test]
fn collection_with_a_short_age_takes_no_lock_of_a_runner_with_a_long_one() {
    if !is_root("collection_with_a_short_age") {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let place = TaskPlace::in_directory(directory.path(), 10_000);
    let mut runner = place.runner("runner", &ELSEWHERE, &["--lock-age", "9s"]);
    let newest = place.until_after(1, &mut runner);
    let refused = run(place.task("gc").args(["--lock-age", "1s"]));
    assert!(refused.code == 4 && refused.stderr.contains("another runner has"), "{refused}");
    place.until_after(newest, &mut runner);
    assert_eq!(runner.ended(), None, "{}", runner.log());
}

/// Below a durable directory whose store is away no record can be replaced: a lock is watched for
/// four ages.
#[test]
fn lock_of_a_runner_that_died_while_its_store_is_away_is_taken() {
    if !is_root("lock_of_a_runner_that_died") {
        return;
    }
    let (cluster, store) = fleet(2);
    make(&cluster, "/tasks");
    let place = TaskPlace::in_cluster(&cluster.namenode.address, 10_000);
    // Longer than a busy machine holds up a renewal that is acknowledged by the store.
    let age = Duration::from_secs(9);
    // A renewal waits for as long as a call may: longer than this test waits for anything.
    let flags = ["--lock-age", "9s", "--keep", "3", "--timeout", "10m"];
    let mut first = place.runner("first", &[], &flags);
    place.until_after(1, &mut first);
    let away = store.with_extension("away");
    std::fs::rename(&store, &away).expect("away");
    let mut refused = place.runner("refused", &ELSEWHERE, &flags);
    until("the second one is refused", SOON, || refused.ended());
    assert!(refused.log().contains("another runner has the task"), "{}", refused.log());
    first.kill();
    let (began, mut second) = (Instant::now(), place.runner("second", &ELSEWHERE, &flags));
    until("the second one has the lock", SOON, || {
        assert_eq!(second.ended(), None, "{}", second.log());
        second.log().contains("restored generation").then_some(())
    });
    assert!(began.elapsed() >= age, "taken after {:?}", began.elapsed());
    let newest = place.newest();
    place.until_after(newest + 2, &mut second);
    until("the store is back", SOON, || {
        let _ = std::fs::remove_dir_all(&store);
        std::fs::rename(&away, &store).ok()
    });
    let newest = place.until_after(place.newest() + 2, &mut second);
    second.kill();
    let (restored, _) = place.restored();
    assert!(restored >= newest, "{restored} {newest}");
}
