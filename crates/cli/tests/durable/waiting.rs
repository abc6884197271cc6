//! Waits for stores: their own time ends them, and no call's deadline.

use std::fs;
use std::time::{Duration, Instant};

use crate::cluster::stores::{fleet, make, put};
use crate::cluster::{SOON, block_on, path, until};

/// The deadline of the calls of a client that waits.
const CALL: Duration = Duration::from_millis(300);

#[test]
fn wait_goes_on_while_the_namenode_is_away_for_longer_than_a_call_may_take() {
    let (cluster, store) = fleet(1);
    make(&cluster, "/out");
    let away = cluster.path("away");
    fs::rename(&store, &away).expect("moved");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/out/x", 1, 5000).await;
        let hasty = client.with_deadline(CALL);
        let waiting = tokio::spawn(async move { hasty.wait_durable(&path("/out"), SOON).await });
        cluster.namenode.pause();
        // This is the fault: so long the namenode does not answer.
        tokio::time::sleep(4 * CALL).await;
        cluster.namenode.resume();
        fs::rename(&away, &store).expect("moved back");
        let left = waiting.await.expect("it ends").expect("it goes on");
        assert_eq!(left, None);
    });
}

#[test]
fn wait_ends_with_its_time_although_calls_may_take_longer() {
    let (cluster, _) = fleet(1);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await.with_deadline(2 * SOON);
        cluster.namenode.pause();
        let began = Instant::now();
        let ended = client.wait_durable(&path("/out"), 2 * CALL).await;
        let took = began.elapsed();
        cluster.namenode.resume();
        let error = ended.expect_err("the namenode does not answer");
        assert_eq!(error.name(), "TimedOut", "{error}");
        assert!(took < SOON, "it took {took:?}");
    });
}

/// The first path takes a part of the time, so the rest is all that the second one has.
#[test]
fn sync_of_two_paths_ends_within_its_limit_with_what_the_second_one_misses() {
    let (mut cluster, store) = fleet(1);
    make(&cluster, "/first");
    let second = cluster.path("second");
    fs::create_dir(&second).expect("made");
    let place = format!("second=file://{}", second.display());
    cluster.add("other", &["--durable", &place, "--dram", "64MiB"]);
    until("the second store is reported", SOON, || {
        let made = cluster.cli(&["fs", "mkdir", "/second", "--durable", "second"]);
        (made.code == 0).then_some(())
    });
    let away = cluster.path("away");
    fs::rename(&store, &away).expect("moved");
    fs::rename(&second, cluster.path("gone")).expect("moved");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/first/x", 1, 5000).await;
        put(&client, "/second/x", 2, 5000).await;
    });
    let back = std::thread::spawn(move || {
        // This is the fault: so long the first store is away.
        std::thread::sleep(Duration::from_secs(3));
        fs::rename(&away, &store)
    });
    let synced = cluster.cli(&["--timeout", "12s", "fs", "sync", "/first", "/second"]);
    back.join().expect("it ends").expect("moved back");
    assert_eq!(synced.code, 124, "{synced}");
    let missing = "changes of /second wait for the store second";
    assert!(synced.stderr.contains(missing), "{synced}");
}
