//! Directories that lack files, and members that only seem to be there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cluster::guarded::text;
use crate::cluster::namenodes::{Group, assert_there, client, put};
use crate::cluster::tasks::{SmallDisk, is_root};
use crate::cluster::{Ran, SOON, block_on, run, sanderling, until};

/// Returns the files of a directory whose names begin so.
fn files_of(directory: &Path, begin: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("listed").flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(begin))
        .map(|entry| entry.path())
        .collect()
}

fn remove_files(directory: &Path, begin: &str) -> usize {
    let found = files_of(directory, begin);
    found.iter().for_each(|path| fs::remove_file(path).expect("removed"));
    found.len()
}

/// Starts a namenode that ends at once.
fn refused(listen: &str, directory: &Path, flags: &[&str]) -> Ran {
    let there = text(directory.to_owned());
    let words = ["namenode", "--listen", listen, "--http", "none", "--dir", &there];
    let ended = run(sanderling().args(words).args(flags));
    assert_ne!(ended.code, 0, "{ended}");
    ended
}

fn put_some(address: &str, numbers: std::ops::Range<u64>) {
    block_on(async {
        let client = client(address).await;
        for number in numbers {
            put(&client, number).await;
        }
    });
}

/// Returns a member's number and whether it is shown to answer, by another one.
fn shown(group: &Group, by: usize, address: &str) -> Option<(u64, bool)> {
    let page = group.cli(by, &["group", "ls", "--json"]).stdout;
    let page: serde_json::Value = serde_json::from_str(&page).ok()?;
    let rows = page["members"].as_array()?;
    let row = rows.iter().find(|row| row["address"] == address)?;
    Some((row["id"].as_u64()?, row["is_active"].as_bool()?))
}

fn until_shown(group: &Group, by: usize, address: &str, is_active: bool) -> u64 {
    until("the member is shown as it is", SOON, || {
        shown(group, by, address).filter(|(_, found)| *found == is_active).map(|(id, _)| id)
    })
}

/// Alone it would serve the same clients and datanodes beside the group that it is a member of.
#[test]
fn member_without_its_state_does_not_start_alone() {
    let mut group = Group::start(3, &[]);
    put_some(&group.addresses[0].clone(), 0..3);
    group.kill(0);
    assert_eq!(remove_files(&group.catalog(0), "group-state."), 1);
    let ended = refused(&group.addresses[0], &group.catalog(0), &[]);
    for part in ["group-state.bin", "it is missing", "--join ADDRESS"] {
        assert!(ended.stderr.contains(part), "{part}: {ended}");
    }
    let leader = group.leader();
    put_some(&group.addresses[leader].clone(), 3..6);
    block_on(async { assert_there(&client(&group.addresses[leader]).await, 0..6).await });
}

/// It would vote as if it had never acknowledged what is lost.
#[test]
fn member_whose_log_is_gone_does_not_vote() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    put_some(&group.addresses[leader].clone(), 0..3);
    let lost = (leader + 1) % 3;
    group.kill(lost);
    assert!(remove_files(&group.catalog(lost), "rounds-") > 0);
    let ended = refused(&group.addresses[lost], &group.catalog(lost), &[]);
    for part in ["lacks entries that this member has acknowledged", "--join ADDRESS"] {
        assert!(ended.stderr.contains(part), "{part}: {ended}");
    }
    // As it advises.
    fs::rename(group.catalog(lost), group.directory.path().join("away")).expect("renamed");
    let (at, join) = (group.addresses[lost].clone(), group.addresses[leader].clone());
    group.members[lost] = Some(group.spawn(lost, &at, Some(&join), &[]));
    group.until_voters(3);
}

/// An older copy of the log beside the catalog of today: the catalog shows what is missing.
#[test]
fn member_whose_log_is_older_than_its_catalog_does_not_vote() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    put_some(&group.addresses[leader].clone(), 0..3);
    let old = (leader + 1) % 3;
    group.kill(old);
    let kept = group.directory.path().join("kept");
    fs::create_dir(&kept).expect("made");
    let rounds = || {
        fs::read_dir(group.catalog(old))
            .expect("listed")
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("rounds-"))
    };
    for entry in rounds() {
        fs::copy(entry.path(), kept.join(entry.file_name())).expect("copied");
    }
    group.restart(old);
    group.until_voters(3);
    put_some(&group.addresses[leader].clone(), 3..9);
    // The log holds the entries before the catalog does: only what is agreed is applied.
    until("its catalog has some of them", SOON, || {
        let entries = fs::read_dir(group.catalog(old)).expect("listed").flatten();
        let mut journals =
            entries.filter(|it| it.file_name().to_string_lossy().starts_with("jour"));
        let has = |bytes: Vec<u8>| bytes.windows(7).any(|part| part == b"value 7");
        journals.any(|it| fs::read(it.path()).is_ok_and(has)).then_some(())
    });
    group.kill(old);
    for entry in fs::read_dir(&kept).expect("listed").flatten() {
        fs::copy(entry.path(), group.catalog(old).join(entry.file_name())).expect("copied");
    }
    let ended = refused(&group.addresses[old], &group.catalog(old), &[]);
    assert!(ended.stderr.contains("lacks entries"), "{ended}");
}

/// Returns where the records of a log of the group end, ascending, and its header at first: a
/// header has 40 bytes, and a record 21 before its payload, whose length is in it.
fn ends_of_records(log: &[u8]) -> Vec<usize> {
    let (mut ends, mut end) = (Vec::new(), 40);
    loop {
        ends.push(end);
        let Some(length) = log.get(end + 1..end + 5) else { return ends };
        let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
        end += 21 + length as usize;
    }
}

/// Wherever the log ends: before the place from which the member goes on, which a change of the
/// members has moved, at that place, or after it.
#[test]
fn member_whose_log_ends_anywhere_before_its_catalog_does_not_vote() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let at = group.addresses[leader].clone();
    put_some(&at, 0..5);
    group.add("127.0.0.1:0", Some(&at), &[]);
    until_shown(&group, leader, &group.addresses[3], true);
    put_some(&at, 5..9);
    let cut = (leader + 1) % 3;
    let whole = group.catalog(cut);
    let has_last = |bytes: &[u8]| bytes.windows(7).any(|part| part == b"value 8");
    until("its catalog has all of them", SOON, || {
        let mut journals = files_of(&whole, "journal-").into_iter();
        journals.any(|it| fs::read(it).is_ok_and(|bytes| has_last(&bytes))).then_some(())
    });
    group.kill(cut);
    let (rounds, all) = (files_of(&whole, "rounds-"), files_of(&whole, ""));
    let [rounds] = &rounds[..] else { panic!("{rounds:?}") };
    let log = fs::read(rounds).expect("read");
    let ends = ends_of_records(&log);
    let last = ends.windows(2).rposition(|it| has_last(&log[it[0]..it[1]])).expect("it has it");
    assert!(last > 5, "{ends:?}");
    for end in &ends[..=last] {
        let directory = group.directory.path().join(format!("cut-{end}"));
        fs::create_dir(&directory).expect("made");
        for path in &all {
            let to = directory.join(path.file_name().expect("a name"));
            fs::copy(path, to).expect("copied");
        }
        let short = directory.join(rounds.file_name().expect("a name"));
        fs::write(short, &log[..*end]).expect("written");
        let ended = refused(&group.addresses[cut], &directory, &[]);
        let text = "lacks entries that this member has acknowledged";
        assert!(ended.stderr.contains(text), "cut at {end} of {ends:?}: {ended}");
    }
    // With all of it, it is a member.
    group.restart(cut);
    group.until_voters(3);
}

/// Any of them is enough to find the leader.
#[test]
fn members_join_and_are_removed_through_one_that_does_not_lead() {
    let mut group = Group::start(3, &[]);
    let follower = (group.leader() + 1) % 3;
    let at = group.addresses[follower].clone();
    group.add("127.0.0.1:0", Some(&at), &[]);
    let added = group.addresses[3].clone();
    let id = until_shown(&group, follower, &added, true);
    group.kill(3);
    let removed = group.cli(follower, &["group", "remove", &id.to_string()]);
    assert_eq!(removed.code, 0, "{removed}");
    assert_eq!(shown(&group, follower, &added), None);
}

/// It had noted what was agreed before it could write it.
#[test]
fn member_whose_disk_was_full_is_one_again_once_there_is_room() {
    if !is_root("member_whose_disk_was_full") {
        return;
    }
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let (full, at) = ((leader + 1) % 3, group.addresses[leader].clone());
    group.kill(full);
    let disk = SmallDisk::of(2);
    for entry in fs::read_dir(group.catalog(full)).expect("listed").flatten() {
        fs::copy(entry.path(), disk.path().join(entry.file_name())).expect("copied");
    }
    fs::rename(group.catalog(full), group.directory.path().join("away")).expect("renamed");
    std::os::unix::fs::symlink(disk.path(), group.catalog(full)).expect("linked");
    put_some(&at, 0..150);
    group.add("127.0.0.1:0", Some(&at), &[]);
    put_some(&at, 150..300);
    disk.fill_but(8 << 10);
    let ended = refused(&group.addresses[full], &group.catalog(full), &[]);
    assert!(ended.stderr.contains("No space left"), "{ended}");
    disk.empty();
    group.restart(full);
    let own = group.addresses[full].clone();
    until_shown(&group, leader, &own, true);
    until("it has everything", SOON, || {
        let page = group.cli(leader, &["group", "ls", "--json"]).stdout;
        let page: serde_json::Value = serde_json::from_str(&page).ok()?;
        let mut rows = page["members"].as_array()?.iter();
        rows.find(|row| row["address"] == own && row["behind_entries"] == 0).map(drop)
    });
}

/// A process with the flags of another member must not take its place while it serves.
#[test]
fn joining_namenode_does_not_replace_a_member_that_answers() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let (taken, at) = ((leader + 1) % 3, group.addresses[leader].clone());
    let id = until_shown(&group, leader, &group.addresses[taken], true);
    let other = group.directory.path().join("other");
    let advertised = group.addresses[taken].clone();
    let flags = ["--join", &at, "--advertise", &advertised];
    let ended = refused("127.0.0.1:0", &other, &flags);
    let answers = format!("member {id} answers at this address");
    assert!(ended.stderr.contains(&answers), "{ended}");
    assert_eq!(until_shown(&group, leader, &group.addresses[taken], true), id);
    // One that has ended is replaced.
    group.kill(taken);
    until_shown(&group, leader, &group.addresses[taken], false);
    fs::rename(group.catalog(taken), group.directory.path().join("away")).expect("renamed");
    group.members[taken] = Some(group.spawn(taken, &advertised, Some(&at), &[]));
    group.until_voters(3);
    assert_ne!(until_shown(&group, leader, &advertised, true), id);
}

/// The change could never be agreed on: those that are left could not decide.
#[test]
fn voter_that_the_others_need_is_not_removed() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let (dead, needed) = ((leader + 1) % 3, (leader + 2) % 3);
    let (dead_at, needed_at) = (group.addresses[dead].clone(), group.addresses[needed].clone());
    group.kill(dead);
    let dead_id = until_shown(&group, leader, &dead_at, false);
    let needed_id = until_shown(&group, leader, &needed_at, true);
    // Also where an address of the list leads to nothing.
    let all = group.addresses.join(",");
    let words = ["group", "remove", &needed_id.to_string(), "--namenode", &all];
    let kept = run(sanderling().args(words));
    assert_eq!(kept.code, 1, "{kept}");
    let text = format!("the voters that are left could not decide: member {dead_id} does not");
    assert!(kept.stderr.contains(&text), "{kept}");
    put_some(&group.addresses[leader].clone(), 0..3);
    // The dead one can go, and the group goes on.
    let removed = group.cli(leader, &["group", "remove", &dead_id.to_string()]);
    assert_eq!(removed.code, 0, "{removed}");
    put_some(&group.addresses[leader].clone(), 3..6);
    block_on(async { assert_there(&client(&needed_at).await, 0..6).await });
}

/// It requests votes, so something of it arrives: that does not show that it receives anything.
#[test]
fn member_that_was_started_at_another_address_is_shown_as_silent() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let moved = (leader + 1) % 3;
    let before = group.addresses[moved].clone();
    group.kill(moved);
    let server = group.spawn(moved, "127.0.0.1:0", None, &[]);
    assert_ne!(server.address, before);
    until("it requests votes", SOON, || {
        let seen = group.cli(leader, &["group", "ls"]);
        seen.stdout.contains("silent").then_some(())
    });
    // Longer than its requests are apart.
    let mut looks = 0;
    let until_then = std::time::Instant::now() + std::time::Duration::from_secs(6);
    while std::time::Instant::now() < until_then {
        let seen = shown(&group, leader, &before);
        assert!(seen.is_none_or(|(_, is_active)| !is_active), "{seen:?}");
        looks += u32::from(seen.is_some());
    }
    assert!(looks > 0, "its row was never shown");
    drop(server);
}

/// The directory has the later generation already, and files that were to be set aside.
#[test]
fn recovery_of_a_group_that_was_cut_off_is_ended_by_the_next_start() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    put_some(&group.addresses[leader].clone(), 0..3);
    (0..3).for_each(|place| group.kill(place));
    let there = group.catalog(leader);
    let recovered = run(sanderling().args(["group", "recover", "--dir"]).arg(&there));
    assert_eq!(recovered.code, 0, "{recovered}");
    let rename = |from: &str, to: &str| fs::rename(there.join(from), there.join(to));
    rename("cut-group-state.bin", "leaving-group-state.bin").expect("renamed");
    let names = fs::read_dir(&there).expect("listed").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let cut = names.filter(|name| name.starts_with("cut-rounds-")).last().expect("a log");
    let log = cut.replace("cut-", "").replace(".bin", ".log");
    rename(&cut, &log).expect("renamed");
    group.restart(leader);
    block_on(async { assert_there(&client(&group.addresses[leader]).await, 0..3).await });
    assert!(there.join("cut-group-state.bin").exists() && !there.join(log).exists());
}

/// Afterwards it is a namenode alone, with what the backup has.
#[test]
fn restore_into_the_directory_of_a_member_sets_the_files_of_the_group_aside() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    put_some(&group.addresses[leader].clone(), 0..3);
    let backup = text(group.directory.path().join("backup"));
    let http = group.members[leader].as_ref().expect("it runs").http_address.clone();
    let words = ["namenode", "backup", "--to", &backup, "--http", &http];
    let made = group.cli(leader, &words);
    assert_eq!(made.code, 0, "{made}");
    (0..3).for_each(|place| group.kill(place));
    let there = text(group.catalog(0));
    let words = ["namenode", "restore", "--from", &backup, "--dir", &there, "--replace"];
    let restored = run(sanderling().args(words));
    assert_eq!(restored.code, 0, "{restored}");
    let aside = group.catalog(0).join("replaced-1/group-state.bin");
    assert!(aside.exists(), "{}", aside.display());
    group.restart(0);
    block_on(async {
        let client = client(&group.addresses[0]).await;
        assert_there(&client, 0..3).await;
        put(&client, 3).await;
    });
}

#[test]
fn addresses_that_no_other_can_reach_are_refused_at_the_start() {
    let place = tempfile::TempDir::new().expect("a directory");
    for (flags, part) in [
        (["--advertise", "0.0.0.0"], "it stands for every address"),
        (["--advertise", "[::]:7600"], "it stands for every address"),
        (["--advertise", "a:1,b:1"], "it is a list"),
        (["--advertise", ""], "it is no address"),
        (["--join", "http://127.0.0.1:7601"], "http"),
        (["--join", ""], "--join"),
    ] {
        let ended = refused("127.0.0.1:0", &place.path().join("catalog"), &flags);
        assert_eq!(ended.code, 2, "{flags:?}: {ended}");
        assert!(ended.stderr.contains(part), "{flags:?}: {ended}");
    }
}
