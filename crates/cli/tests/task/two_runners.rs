//! Two runners of one task: the one with the lock goes on, and the other one ends.

use std::time::{Duration, Instant};

use crate::cluster::stores::{fleet, make};
use crate::cluster::tasks::{TaskPlace, is_root};
use crate::cluster::{SOON, run, until};
use tempfile::TempDir;

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
    let elsewhere = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"];
    let mut runner = place.runner("runner", &elsewhere, &["--lock-age", "9s"]);
    let newest = place.until_after(1, &mut runner);
    let refused = run(place.task("gc").args(["--lock-age", "200ms"]));
    assert!(refused.code == 4 && refused.stderr.contains("another runner has"), "{refused}");
    place.until_after(newest, &mut runner);
    assert_eq!(runner.ended(), None, "{}", runner.log());
}

/// Below a durable directory whose store is away no lock can be renewed.
#[test]
fn lock_that_cannot_be_renewed_is_taken_and_one_of_the_runners_goes_on() {
    if !is_root("lock_that_cannot_be_renewed") {
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
    // It cannot be seen from here, as one on another machine.
    let elsewhere = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"];
    let mut refused = place.runner("refused", &elsewhere, &flags);
    until("the second one is refused", SOON, || refused.ended());
    assert!(refused.log().contains("another runner has the task"), "{}", refused.log());
    let away = store.with_extension("away");
    std::fs::rename(&store, &away).expect("away");
    // One renewal may still be in the memory of the cluster: then the second one is refused again.
    let (mut second, began) = until("the second one has the lock", SOON, || {
        let (began, mut second) = (Instant::now(), place.runner("second", &elsewhere, &flags));
        until("it is refused or restores", SOON, || {
            let is_refused = second.ended().is_some();
            (is_refused || second.log().contains("restored generation")).then_some(())
        });
        second.ended().is_none().then_some((second, began))
    });
    assert!(began.elapsed() >= age, "taken after {:?}", began.elapsed());
    let code = until("the first one ends", SOON, || first.ended());
    assert!(code == 1 && first.log().contains("another runner has taken"), "{}", first.log());
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
