//! What an operator of a group can read when something cannot be done: the cause and the next step.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::cluster::guarded::text;
use crate::cluster::http;
use crate::cluster::namenodes::{Group, assert_there, client, put};
use crate::cluster::{SOON, Server, block_on, run, sanderling, spawn_with, until};
use crate::disk::{Disks, EIO, ENOSPC, Faults};
use crate::faulty_files::{FaultyFiles, FileFaults};
use bytes::Bytes;
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{Header, Op, Refusal};
use sanderling_transport::{CallError, Connection};
use tokio::time::Instant;

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
fn notice_of_more_than_seven_days_is_refused() {
    let group = Group::start(1, &[]);
    let refused = group.cli(0, &["group", "notice", "1", "--deadline", "169h"]);
    assert_ne!(refused.code, 0, "{refused}");
    assert!(refused.stderr.contains("the limit is 7d"), "{refused}");
    let taken = group.cli(0, &["group", "notice", "1", "--deadline", "168h"]);
    assert_eq!(taken.code, 0, "{taken}");
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
fn member_with_a_damaged_snapshot_reports_it_and_comes_back_by_joining_again() {
    let mut group = Group::start(3, &[]);
    block_on(async { put(&client(&group.addresses[0]).await, 0).await });
    let damaged = (group.leader() + 1) % 3;
    group.kill(damaged);
    let directory = group.catalog(damaged);
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
    for part in ["is corrupt", "of member ", "move the directory away", "--join ADDRESS"] {
        assert!(ended.stderr.contains(part), "{part}: {ended}");
    }
    fs::rename(&directory, directory.with_extension("kept")).expect("moved away");
    let to = group.addresses[group.leader()].clone();
    group.members[damaged] = Some(group.spawn(damaged, &listen, Some(&to), &[]));
    group.until_voters(3);
}

/// Makes the state of a member one that another boot of the machine wrote without a sync.
fn as_before_a_boot(directory: &Path) {
    let state = directory.join("group-state.bin");
    let mut bytes = fs::read(&state).expect("read");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("read");
    let boot = boot.trim().as_bytes();
    let at = bytes.windows(boot.len()).position(|it| it == boot).expect("the boot is in it");
    bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
    let checksum = sanderling_protocol::checksum::crc32c(&bytes[16..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&state, &bytes).expect("written");
}

/// Returns the number of the member at an address.
pub(crate) fn member(group: &Group, address: &str) -> String {
    // Any of them answers; the one that leads may run outside of the group's list.
    let one = group.running().next().expect("one runs");
    let listed = group.cli(one, &["group", "ls", "--json"]);
    let page: serde_json::Value = serde_json::from_str(&listed.stdout).expect("it is JSON");
    let mut members = page["members"].as_array().expect("a list").iter();
    let member = members.find(|it| it["address"] == address);
    member.map(|it| it["id"].to_string()).unwrap_or_else(|| panic!("no {address}: {page}"))
}

#[test]
fn directory_that_a_crash_may_have_cut_is_recovered_only_on_demand() {
    let mut group = Group::start(3, &["--sync", "os"]);
    for place in 0..3 {
        group.kill(place);
    }
    let directory = group.catalog(0);
    as_before_a_boot(&directory);
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

#[test]
fn member_that_a_crash_may_have_cut_comes_back_only_as_a_new_one() {
    let mut group = Group::start(3, &["--sync", "os"]);
    block_on(async { put(&client(&group.addresses[0]).await, 0).await });
    let cut = (group.leader() + 1) % 3;
    group.kill(cut);
    let directory = group.catalog(cut);
    as_before_a_boot(&directory);
    let (listen, there) = (group.addresses[cut].clone(), text(directory.clone()));
    let words = ["namenode", "--listen", &listen, "--http", "none", "--dir", &there];
    let ended = run(sanderling().args(words));
    assert_ne!(ended.code, 0, "{ended}");
    for part in ["may have forgotten", "--join"] {
        assert!(ended.stderr.contains(part), "{part}: {ended}");
    }
    fs::rename(&directory, directory.with_extension("cut")).expect("moved away");
    let to = group.addresses[group.leader()].clone();
    group.members[cut] = Some(group.spawn(cut, &listen, Some(&to), &["--sync", "os"]));
    group.until_voters(3);
    block_on(async { assert_there(&client(&listen).await, 0..1).await });
}

/// A member writes that the members have changed before it applies the rest of its round.
#[test]
fn member_whose_journal_lacks_a_round_before_a_change_takes_it_from_the_log() {
    let mut group = Group::start(3, &[]);
    let cut = (group.leader() + 1) % 3;
    let journals = || -> Vec<PathBuf> {
        let entries = fs::read_dir(group.catalog(cut)).expect("listed").flatten();
        let is_journal = |path: &PathBuf| text(path.clone()).contains("/journal-");
        entries.map(|entry| entry.path()).filter(is_journal).collect()
    };
    let values = |numbers: std::ops::Range<u64>| {
        let address = group.addresses[group.leader()].clone();
        block_on(async {
            let client = client(&address).await;
            for number in numbers {
                put(&client, number).await;
            }
        });
    };
    values(0..3);
    let before: Vec<_> =
        journals().into_iter().map(|it| (fs::read(&it).expect("read"), it)).collect();
    values(3..5);
    let (to, wide) = (group.addresses[group.leader()].clone(), group.addresses.join(","));
    let state = || fs::read(group.catalog(cut).join("group-state.bin")).expect("read");
    let written = state();
    group.add("127.0.0.1:0", Some(&to), &[]);
    let state = || fs::read(group.catalog(cut).join("group-state.bin")).expect("read");
    until("the change is written", SOON, || (state() != written).then_some(()));
    until("the new one is a spare", SOON, || {
        let roles = group.roles(cut);
        (roles.len() == 4 && roles.iter().any(|(_, role)| role == "Leader")).then_some(())
    });
    group.kill(cut);
    for (bytes, path) in before {
        fs::write(path, bytes).expect("written");
    }
    group.restart(cut);
    group.until_voters(3);
    // It leads with all of them.
    let own = member(&group, &group.addresses[cut]);
    // It may not have received yet which member leads; then it refuses the order.
    let is_moved = || group.cli(cut, &["group", "move-leader", &own]).code == 0;
    until("it leads", SOON, || is_moved().then_some(()));
    block_on(async { assert_there(&client(&wide).await, 0..5).await });
    let log = group.members[cut].as_ref().expect("it runs").log();
    assert!(!log.contains("the catalog at"), "{log}");
}

/// The leader counts what a spare has confirmed once the spare votes.
#[test]
fn spare_that_a_crash_may_have_cut_comes_back_only_as_a_new_one() {
    let mut group = Group::start(1, &["--sync", "os"]);
    let to = group.addresses[0].clone();
    group.add("127.0.0.1:0", Some(&to), &["--sync", "os"]);
    let spare = (group.addresses[1].clone(), "Learner".to_owned());
    until("the second one is a spare", SOON, || group.roles(0).contains(&spare).then_some(()));
    block_on(async { put(&client(&to).await, 0).await });
    // One that has received nothing since its last sync has forgotten nothing.
    let commands = |place: usize| {
        let page = group.members[place].as_ref().expect("it runs").http_address.clone();
        block_on(http::get(&page, "/healthz"))["commands"].as_u64()
    };
    until("the spare has it", SOON, || (commands(1) == commands(0)).then_some(()));
    group.kill(1);
    as_before_a_boot(&group.catalog(1));
    let there = text(group.catalog(1));
    let words = ["namenode", "--listen", &spare.0, "--http", "none", "--dir", &there];
    let ended = run(sanderling().args(words));
    assert!(ended.code != 0 && ended.stderr.contains("may have forgotten"), "{ended}");
    // The only member starts as itself: no other has more.
    let removed = group.cli(0, &["group", "remove", "2"]);
    assert_eq!(removed.code, 0, "{removed}");
    group.kill(0);
    as_before_a_boot(&group.catalog(0));
    group.restart(0);
    block_on(async { assert_there(&client(&to).await, 0..1).await });
}

/// Cuts the last entries off the logs of a directory, as a crash of the machine may do.
fn cut_ends(directory: &Path) {
    for entry in fs::read_dir(directory).expect("listed").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("rounds-") || name.starts_with("journal-") {
            let file = fs::OpenOptions::new().write(true).open(entry.path()).expect("opened");
            let length = file.metadata().expect("it is there").len();
            file.set_len(length - length / 3).expect("cut");
        }
    }
}

/// The only voter may have lost what its spare has: if it went on, the spare would keep what is in
/// no log, and what callers had received would be gone.
#[test]
fn only_voter_that_a_crash_may_have_cut_leaves_it_to_the_operator_to_go_on_from_its_spare() {
    let mut group = Group::start(1, &["--sync", "os", "--voters", "1"]);
    let to = group.addresses[0].clone();
    group.add("127.0.0.1:0", Some(&to), &["--sync", "os", "--voters", "1"]);
    block_on(async {
        let client = client(&to).await;
        for number in 0..50 {
            put(&client, number).await;
        }
    });
    until("the spare has everything", SOON, || {
        let page = group.cli(0, &["group", "ls", "--json"]).stdout;
        let page: serde_json::Value = serde_json::from_str(&page).ok()?;
        let rows = page["members"].as_array()?;
        (rows.len() == 2 && rows.iter().all(|it| it["behind_entries"] == 0)).then_some(())
    });
    group.kill(0);
    as_before_a_boot(&group.catalog(0));
    cut_ends(&group.catalog(0));
    let there = text(group.catalog(0));
    let words = ["namenode", "--listen", &to, "--http", "none", "--dir", &there];
    let refused = run(sanderling().args([&words[..], &["--sync", "os"]].concat()));
    assert_ne!(refused.code, 0, "{refused}");
    let spare = group.addresses[1].clone();
    for part in ["may have forgotten", &spare, "group recover", "--accept-loss"] {
        assert!(refused.stderr.contains(part), "{part}: {refused}");
    }
    group.kill(1);
    let recovered = run(sanderling().args(["group", "recover", "--dir"]).arg(group.catalog(1)));
    assert_eq!(recovered.code, 0, "{recovered}");
    group.restart(1);
    block_on(async { assert_there(&client(&spare).await, 0..50).await });
    // Without what is lost, the voter's directory begins another generation.
    let mut accepted = sanderling();
    accepted.args(["group", "recover", "--accept-loss", "--dir"]).arg(group.catalog(0));
    let accepted = run(&mut accepted);
    assert_eq!(accepted.code, 0, "{accepted}");
}

/// What a failed sync leaves is not known, whatever the next one reports. The journal's syncs work:
/// they have a test of their own, and the first that fails ends the member.
#[test]
fn member_whose_sync_fails_ends_at_once_and_the_others_go_on() {
    let mut group = Group::start(3, &["--sync", "always"]);
    let Some(files) = FaultyFiles::build(group.directory.path(), "rounds-") else {
        eprintln!("SKIPPED: no C compiler makes the files that fail");
        return;
    };
    for leads in [false, true] {
        let failed = (group.leader() + usize::from(!leads)) % 3;
        let all = group.addresses.join(",");
        let mut server = with_files(&mut group, &files, failed, leads);
        let first = u64::from(leads) * 10;
        files.set(FileFaults { on_sync: EIO, left: FileFaults::ALL, ..FileFaults::default() });
        block_on(async {
            let client = client(&all).await;
            for number in first..first + 10 {
                put(&client, number).await;
            }
        });
        assert!(!server.wait(SOON).success(), "{}", server.log());
        let log = server.log();
        for part in ["the log of the group has failed", "/rounds-", "sync: ", "the same directory"]
        {
            assert!(log.contains(part), "{part}: {log}");
        }
        let mark = group.catalog(failed).join("group-sync-failed");
        assert!(mark.exists(), "the next start must not believe a sync");
        files.set(FileFaults::default());
        group.restart(failed);
        assert!(!mark.exists(), "the log was written anew");
        group.until_voters(3);
        block_on(async { assert_there(&client(&all).await, 0..first + 10).await });
    }
}

/// Without --sync always nothing is known of what it had acknowledged.
#[test]
fn member_whose_log_was_not_synced_when_it_ended_comes_back_only_as_a_new_one() {
    let mut group = Group::start(3, &["--sync", "os"]);
    let leader = group.leader();
    block_on(async { put(&client(&group.addresses[leader]).await, 0).await });
    let failed = (leader + 1) % 3;
    group.kill(failed);
    let directory = group.catalog(failed);
    // As a process leaves it whose sync has failed.
    fs::write(directory.join("group-sync-failed"), b"").expect("written");
    let (listen, there) = (group.addresses[failed].clone(), text(directory.clone()));
    let words = ["namenode", "--listen", &listen, "--http", "none", "--dir", &there];
    let refused = run(sanderling().args([&words[..], &["--sync", "os"]].concat()));
    assert_ne!(refused.code, 0, "{refused}");
    for part in ["a sync of the group's log has failed", "may have forgotten", "--join"] {
        assert!(refused.stderr.contains(part), "{part}: {refused}");
    }
    fs::rename(&directory, directory.with_extension("failed")).expect("moved away");
    let to = group.addresses[group.leader()].clone();
    group.members[failed] = Some(group.spawn(failed, &listen, Some(&to), &["--sync", "os"]));
    group.until_voters(3);
    block_on(async { assert_there(&client(&listen).await, 0..1).await });
}

/// Starts a member again with files that can be made to fail, as the leader or not.
fn with_files(group: &mut Group, files: &FaultyFiles, place: usize, leads: bool) -> Server {
    let variables = files.variables();
    group.kill(place);
    let (listen, there) = (group.addresses[place].clone(), text(group.catalog(place)));
    let words = ["namenode", "--listen", &listen, "--http", "none", "--dir", &there];
    let words = [&words[..], &["--sync", "always"]].concat();
    let variables: Vec<_> = variables.iter().map(|(key, path)| (*key, &**path)).collect();
    let name = format!("namenode-{place}");
    let server = spawn_with(group.directory.path(), &name, &words, &variables).serves();
    group.until_voters(3);
    let one = group.running().next().expect("one runs");
    // It may have been elected again after its restart.
    if leads && !group.roles(one).contains(&(listen.clone(), "Leader".to_owned())) {
        let moved = group.cli(place, &["group", "move-leader", &member(group, &listen)]);
        assert_eq!(moved.code, 0, "{moved}");
    }
    server
}

#[test]
fn member_whose_disk_is_full_ends_and_the_others_go_on() {
    let mut group = Group::start(3, &[]);
    let Some(disks) = Disks::build(group.directory.path()) else {
        eprintln!("SKIPPED: no C compiler makes the disk that fails");
        return;
    };
    for leads in [false, true] {
        let full = group.leader() + usize::from(!leads);
        let (full, all) = (full % 3, group.addresses.join(","));
        group.kill(full);
        let (listen, there) = (group.addresses[full].clone(), text(group.catalog(full)));
        let words = ["namenode", "--listen", &listen, "--http", "none", "--dir", &there];
        let variables = disks.variables("full", &group.catalog(full));
        let variables: Vec<_> = variables.iter().map(|(key, path)| (*key, &**path)).collect();
        let name = format!("namenode-{full}");
        let mut server = spawn_with(group.directory.path(), &name, &words, &variables).serves();
        group.until_voters(3);
        let one = group.running().next().expect("one runs");
        let role = (listen.clone(), "Leader".to_owned());
        // It may have been elected again after its restart.
        if leads && !group.roles(one).contains(&role) {
            let moved = group.cli(full, &["group", "move-leader", &member(&group, &listen)]);
            assert_eq!(moved.code, 0, "{moved}");
        }
        let first = u64::from(leads) * 10;
        disks.set("full", Faults { on_write: ENOSPC, ..Faults::default() });
        block_on(async {
            let client = client(&all).await;
            for number in first..first + 10 {
                put(&client, number).await;
            }
        });
        assert!(!server.wait(SOON).success(), "{}", server.log());
        assert!(server.log().contains("No space left on device"), "{}", server.log());
        disks.set("full", Faults::default());
        group.restart(full);
        group.until_voters(3);
        block_on(async { assert_there(&client(&all).await, 0..first + 10).await });
    }
}

/// A message by which a namenode joins, as a program with other rules sends it.
fn join_by_other_rules() -> Vec<u8> {
    let (join, version, rules, snapshot) = (1_u32, 4_u32, u32::MAX, 1_u32);
    let (address, http_address, nonce) = ("127.0.0.1:1", "", 7_u64);
    encode_body(&(join, (version, rules, snapshot), (address, http_address, nonce)))
}

#[test]
fn namenode_of_another_version_does_not_join() {
    let group = Group::start(1, &[]);
    let refused = block_on(async {
        let hello = Hello { role: Role::Namenode, cluster: None, node: None, token: None };
        let limit = Instant::now() + SOON;
        let connected = Connection::connect(&group.addresses[0], hello, limit).await;
        let (connection, _) = connected.expect("it serves");
        let body = vec![Bytes::from(join_by_other_rules())];
        connection.call(Header::new(Op::Group, 0), body, limit).await.err()
    });
    let Some(CallError::Refused(Refusal::BadRequest { why })) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("runs the same version of sanderling"), "{why}");
    assert_eq!(group.roles(0).len(), 1, "{:?}", group.roles(0));
}

/// Kills the command at moments that are spread over its whole time.
#[test]
fn recovery_of_a_group_that_is_killed_is_given_again() {
    let mut group = Group::start(3, &[]);
    block_on(async {
        let client = client(&group.addresses.join(",")).await;
        for number in 0..200 {
            put(&client, number).await;
        }
    });
    group.until_voters(3);
    let survivor = group.leader();
    for place in 0..3 {
        group.kill(place);
    }
    let copy = |to: &Path| {
        fs::create_dir(to).expect("made");
        for entry in fs::read_dir(group.catalog(survivor)).expect("listed").flatten() {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    };
    let recover = |directory: &Path| {
        let mut command = sanderling();
        command.args(["group", "recover", "--dir"]).arg(directory);
        command
    };
    // The shortest of some: on a busy machine one may take many times as long as all others.
    let times = (0..4).map(|number| {
        let whole = group.directory.path().join(format!("whole-{number}"));
        copy(&whole);
        let recovered = run(&mut recover(&whole));
        assert_eq!(recovered.code, 0, "{recovered}");
        recovered.took
    });
    let took = times.min().expect("there are four");
    let moments = 24;
    let (mut killed, mut begun) = (0, 0);
    for moment in 0..moments {
        let directory = group.directory.path().join(format!("killed-{moment}"));
        copy(&directory);
        let mut command = recover(&directory);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut child = child.expect("started");
        std::thread::sleep(took * moment / moments);
        child.kill().expect("killed, or it has ended");
        killed += u32::from(!child.wait().expect("waited for").success());
        let again = run(&mut recover(&directory));
        // It has begun anew already: then it is no member's directory any more.
        begun += u32::from(again.code != 0);
        let is_done = again.stderr.contains("is no directory of a group's member");
        assert!(again.code == 0 || is_done, "after {moment}: {again}");
        let there = text(directory);
        let words = ["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir", &there];
        let server = spawn_with(group.directory.path(), "anew", &words, &[]).serves();
        block_on(async { assert_there(&client(&server.address).await, 0..200).await });
        let words = ["group", "ls", "--json", "--namenode", &server.address];
        let listed = run(sanderling().args(words));
        let page: serde_json::Value = serde_json::from_str(&listed.stdout).expect("it is JSON");
        // Its terms begin with the generation: they are above all of the one before.
        let term = page["term"].as_u64().expect("a number");
        assert_eq!(term >> 32, 1, "after {moment}: {listed}");
    }
    assert!(killed > 3, "{killed} of {moments} were killed, {begun} had begun anew");
}
