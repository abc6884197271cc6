//! Snapshots that the leader sends to members which lag, or are new.

use std::time::{Duration, Instant};

use crate::cluster::namenodes::{Group, assert_there, client, put, put_large};
use crate::cluster::tasks::{SmallDisk, is_root};
use crate::cluster::{SOON, Server, block_on, until};

/// Returns how many snapshots one member has sent that did not arrive: the most of any member.
fn failed_sends(group: &Group) -> usize {
    let line = "a member did not receive the snapshot";
    let of = |server: &Server| server.log().matches(line).count();
    group.members.iter().flatten().map(of).max().unwrap_or(0)
}

/// The leader encodes the whole catalog for each attempt.
#[test]
fn spare_whose_disk_is_full_is_sent_few_snapshots_and_becomes_a_member_once_there_is_room() {
    if !is_root("spare_whose_disk_is_full") {
        return;
    }
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let at = group.addresses[leader].clone();
    // A snapshot of more than 1 MiB.
    block_on(async {
        let client = client(&at).await;
        for number in 0..150 {
            put_large(&client, number).await;
        }
    });
    let disk = SmallDisk::of(8);
    let catalog = group.directory.path().join("catalog-3");
    std::os::unix::fs::symlink(disk.path(), catalog).expect("linked");
    // Enough for the files of a member that has nothing.
    disk.fill_but(512 << 10);
    group.add("127.0.0.1:0", Some(&at), &[]);
    until("a snapshot is refused", SOON, || (failed_sends(&group) >= 1).then_some(()));
    let first = Instant::now();
    until("the fourth one is refused", SOON, || (failed_sends(&group) >= 4).then_some(()));
    // Pauses of 1, 2 and 4 s lie between them.
    let took = first.elapsed();
    assert!(took >= Duration::from_secs(6), "four within {took:?}");
    let logs: String = group.members.iter().flatten().map(Server::log).collect();
    assert!(logs.contains("the snapshot cannot be written"), "{logs}");
    block_on(async { put(&client(&at).await, 150).await });
    let spare = group.members[3].as_mut().expect("it was started");
    assert!(spare.ended().is_none(), "it waits for room: {}", spare.log());
    disk.empty();
    let own = group.addresses[3].clone();
    until("it has everything", SOON, || {
        let page = group.cli(group.leader(), &["group", "ls", "--json"]).stdout;
        let page: serde_json::Value = serde_json::from_str(&page).ok()?;
        let mut rows = page["members"].as_array()?.iter();
        let is_there = |row: &serde_json::Value| {
            row["address"] == own && row["is_active"] == true && row["behind_entries"] == 0
        };
        rows.any(is_there).then_some(())
    });
    block_on(async { assert_there(&client(&at).await, 0..151).await });
}
