//! What an operator of a group is told when something cannot be done: the cause and the next step.

mod cluster;

use std::fs;
use std::io::Write;

use cluster::guarded::text;
use cluster::namenodes::{Group, client, put};
use cluster::{block_on, run, sanderling, spawn_with};

#[test]
fn last_voter_is_not_removed() {
    let mut group = Group::start(1, &["--voters", "1"]);
    let first = group.addresses[0].clone();
    group.add("127.0.0.1:0", Some(&first), &["--voters", "1"]);
    group.until_voters(1);
    let removed = group.cli(0, &["group", "remove", "1"]);
    assert_ne!(removed.code, 0, "{removed}");
    assert!(removed.stderr.contains("no voter would be left"), "{removed}");
    assert!(removed.stderr.contains("--join"), "{removed}");
    block_on(async { put(&client(&first).await, 0).await });
}

#[test]
fn addresses_of_two_clusters_are_refused_by_name() {
    let (one, other) = (Group::start(1, &[]), Group::start(1, &[]));
    let both = format!("{},{}", one.addresses[0], other.addresses[0]);
    let refused = run(sanderling().args(["fs", "ls", "/", "--namenode", &both]));
    assert_ne!(refused.code, 0, "{refused}");
    assert!(refused.stderr.contains("give addresses of one cluster"), "{refused}");
    for group in [&one, &other] {
        assert!(refused.stderr.contains(&group.addresses[0]), "{refused}");
    }
}

#[test]
fn member_with_a_damaged_snapshot_says_so_and_comes_back_by_joining_again() {
    let mut group = Group::start(3, &[]);
    block_on(async { put(&client(&group.addresses[0]).await, 0).await });
    let damaged = (group.leader() + 1) % 3;
    group.kill(damaged);
    let directory = group.directory.path().join(format!("catalog-{damaged}"));
    let mut snapshots = 0;
    for entry in fs::read_dir(&directory).expect("listed").flatten() {
        if entry.file_name().to_string_lossy().starts_with("snapshot") {
            let bytes = fs::read(entry.path()).expect("read");
            let mut file = fs::File::create(entry.path()).expect("writable");
            file.write_all(&bytes[..bytes.len() / 2]).expect("written");
            snapshots += 1;
        }
    }
    assert!(snapshots > 0, "it has got a snapshot");
    let (listen, catalog) = (group.addresses[damaged].clone(), text(directory.clone()));
    let words = ["namenode", "--listen", &listen, "--http", "none", "--dir", &catalog];
    let ended = run(sanderling().args(words));
    assert_ne!(ended.code, 0, "{ended}");
    for says in ["is corrupt", "of member ", "move the directory away", "--join ADDRESS"] {
        assert!(ended.stderr.contains(says), "{says}: {ended}");
    }
    fs::rename(&directory, directory.with_extension("kept")).expect("moved away");
    let to = group.addresses[group.leader()].clone();
    group.members[damaged] = Some(group.spawn(damaged, &listen, Some(&to), &[]));
    group.until_voters(3);
}

/// Makes the state of a member one that another boot of the machine wrote without a sync.
#[test]
fn directory_that_a_crash_may_have_cut_is_recovered_only_on_demand() {
    let mut group = Group::start(3, &["--sync", "os"]);
    for place in 0..3 {
        group.kill(place);
    }
    let directory = group.directory.path().join("catalog-0");
    let state = directory.join("group-state.bin");
    let mut bytes = fs::read(&state).expect("read");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("read");
    let boot = boot.trim().as_bytes();
    let at = bytes.windows(boot.len()).position(|it| it == boot).expect("the boot is in it");
    bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    let checksum = sanderling_protocol::checksum::crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&state, &bytes).expect("written");
    let catalog = text(directory);
    let words = ["group", "recover", "--dir", &catalog];
    let refused = run(sanderling().args(words));
    assert_ne!(refused.code, 0, "{refused}");
    assert!(refused.stderr.contains("was booted since"), "{refused}");
    assert!(refused.stderr.contains("--accept-loss"), "{refused}");
    let accepted = run(sanderling().args([&words[..], &["--accept-loss"]].concat()));
    assert_eq!(accepted.code, 0, "{accepted}");
    let listen = group.addresses[0].clone();
    let words = ["namenode", "--listen", &listen, "--http", "none", "--dir", &catalog];
    let server = spawn_with(group.directory.path(), "anew", &words, &[]).serves();
    block_on(async { put(&client(&server.address).await, 0).await });
}
