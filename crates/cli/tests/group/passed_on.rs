//! Pages that take long, at a member that does not lead: it passes them on to the leader.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cluster::guarded::text;
use crate::cluster::namenodes::{Group, client};
use crate::cluster::tasks::library;
use crate::cluster::{SOON, block_on, http, spawn_with, stores, until};
use tempfile::TempDir;

/// How long a member waits for the head of the leader's answer, of most pages.
const WITHIN: Duration = Duration::from_secs(30);

/// How often a page is requested again for which the leadership has moved: on a busy machine it
/// does.
const ATTEMPTS: usize = 3;

/// Returns the HTTP address of a member that does not lead.
fn follower(group: &Group) -> String {
    let leader = group.leader();
    let place = (0..3).find(|place| *place != leader).expect("two follow");
    group.members[place].as_ref().expect("it runs").http_address.clone()
}

#[test]
fn wait_for_a_store_through_a_member_that_does_not_lead_takes_all_of_its_time() {
    let group = Group::start(3, &[]);
    let store = group.directory.path().join("store");
    fs::create_dir(&store).expect("made");
    let (all, place) = (group.addresses.join(","), format!("archive=file://{}", store.display()));
    let words = ["datanode", "--namenode", &all, "--name", "d0", "--dram", "16MiB"];
    let words = [&words[..], &["--durable", &place, "--http", "none"]].concat();
    let _datanode = spawn_with(group.directory.path(), "d0", &words, &[]).serves();
    until("a datanode reports its store", SOON, || {
        let made = group.cli(0, &["fs", "mkdir", "-p", "/out", "--durable", "archive"]);
        (made.code == 0).then_some(())
    });
    fs::rename(&store, store.with_extension("away")).expect("moved");
    block_on(async { stores::put(&client(&all).await, "/out/first", 1, 5000).await });
    let body = r#"{"path": "/out", "within_seconds": 30}"#;
    let began = Instant::now();
    let wait = |_| block_on(http::post(&follower(&group), "/v1/durable/wait", body));
    let answer = (0..ATTEMPTS).map(wait).find(|answer| !answer.contains("NotLeader"));
    let answer = answer.expect("a leader waited");
    let is_over = answer.contains(" 200 ") && answer.contains("\"is_copied\":false");
    assert!(is_over && began.elapsed() >= WITHIN, "after {:?}: {answer}", began.elapsed());
}

#[test]
fn backup_that_takes_longer_than_other_pages_comes_through_a_member_that_does_not_lead() {
    let place = TempDir::new().expect("a directory");
    let Some(library) = library(place.path(), include_str!("slow_backup.c")) else {
        return eprintln!("SKIPPED: no C compiler makes the disk that is slow");
    };
    let slow = WITHIN + Duration::from_secs(2);
    let variables = vec![
        ("LD_PRELOAD", library),
        ("SLOW_BELOW", PathBuf::from("backup.tmp")),
        ("SLOW_SECONDS", PathBuf::from(slow.as_secs().to_string())),
    ];
    let mut group = Group { variables, ..Group::start(0, &[]) };
    for _ in 0..3 {
        let first = group.addresses.first().cloned();
        group.add("127.0.0.1:0", first.as_deref(), &[]);
    }
    group.until_voters(3);
    let to = text(group.directory.path().join("catalog.backup"));
    let take = |_| {
        let http = follower(&group);
        group.cli(0, &["namenode", "backup", "--to", &to, "--http", &http])
    };
    let taken = (0..ATTEMPTS).map(take).find(|taken| taken.code == 0);
    let taken = taken.expect("a leader sent one");
    assert!(taken.took >= slow, "the disk is slow: {taken}");
}

/// The leader stands still. Its group has no other voter, so it leads on afterwards.
#[test]
fn forecast_through_a_member_that_does_not_lead_is_awaited_for_longer_than_other_pages() {
    const FORECAST: &str = "/v1/nodes/d0/forecast";
    let alone = ["--voters", "1"];
    let mut group = Group::start(1, &alone);
    let first = group.addresses[0].clone();
    group.add("127.0.0.1:0", Some(&first), &alone);
    let _datanode = group.datanode("d0", &first, &[]);
    let [leader, spare] = [0, 1].map(|place| group.members[place].as_ref().expect("it runs"));
    let page = |target: &str| block_on(http::page(&spare.http_address, target));
    until("the spare passes pages on", SOON, || page(FORECAST).contains(" 200 ").then_some(()));
    leader.pause();
    let began = Instant::now();
    let (other, forecast) = std::thread::scope(|scope| {
        let forecast = scope.spawn(|| page(FORECAST));
        let other = page("/v1/nodes");
        // Too late for that one.
        leader.resume();
        (other, forecast.join().expect("no panic"))
    });
    assert!(other.contains(" 503 ") && other.contains("NotLeader"), "{other}");
    assert!(began.elapsed() >= WITHIN, "after {:?}: {other}", began.elapsed());
    assert!(forecast.contains(" 200 ") && forecast.contains("\"fits\""), "{forecast}");
}
