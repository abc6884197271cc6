//! Notices for the machines of namenodes: another member takes the place of the noticed one before
//! its deadline, and no caller gets an error.

use crate::cluster;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::cluster::guarded::text;
use crate::cluster::http;
use crate::cluster::namenodes::{Group, Load, assert_there, config, put_large};
use crate::cluster::{SOON, Server, block_on, until};
use crate::faulty_files::{FaultyFiles, FileFaults};
use sanderling_client::Client;
use sanderling_core::replica::RISK_LASTS;
use serde_json::Value;

/// The file of a member's notices, and the flag that names it.
fn source(group: &Group, place: usize) -> (std::path::PathBuf, String) {
    let file = group.directory.path().join(format!("notice-{place}"));
    let flag = format!("file:{}", text(file.clone()));
    (file, flag)
}

/// Starts voters and spares, each of which reads a file for its notices.
fn started(voters: usize, spares: usize) -> Group {
    let mut group = Group::start(0, &[]);
    for place in 0..voters + spares {
        let first = group.addresses.first().cloned();
        let (_, flag) = source(&group, place);
        group.add("127.0.0.1:0", first.as_deref(), &["--notice-source", &flag]);
    }
    group.until_voters(voters);
    group
}

fn give(group: &Group, place: usize, seconds: u64) {
    let (file, _) = source(group, place);
    std::fs::write(file, format!("{{\"deadline_seconds\": {seconds}}}")).expect("written");
}

fn page(group: &Group, place: usize) -> Value {
    let ran = group.cli(place, &["group", "ls", "--json"]);
    serde_json::from_str(&ran.stdout).unwrap_or_default()
}

/// Waits until a member has ended by itself, in order, and has left the group.
fn until_left(group: &mut Group, place: usize) {
    let mut server = group.members[place].take().expect("it runs");
    assert!(server.wait(SOON).success(), "{}", server.log());
    assert!(server.log().contains("has left its group"), "{}", server.log());
    let address = &group.addresses[place];
    let leader = group.leader();
    assert!(!group.roles(leader).iter().any(|(there, _)| there == address));
}

/// Every value is there, through a client that has only the members that are left.
fn assert_kept(group: &Group, stored: u64) {
    let address = group.addresses[group.leader()].clone();
    block_on(async {
        let client = Client::connect(&address, config()).await.expect("it leads");
        assert_there(&client, 0..stored).await;
    });
}

#[test]
fn noticed_leader_is_followed_and_a_spare_takes_its_place_before_the_deadline() {
    let mut group = started(3, 1);
    let load = Load::start(&group);
    let leader = group.leader();
    // On a busy machine the group may have been small for as long, before it had three.
    let risks = |group: &Group, place: usize| {
        let ran = group.cli(place, &["events"]);
        ran.stdout.matches("AT RISK").count()
    };
    let before = risks(&group, leader);
    let began = Instant::now();
    give(&group, leader, 60);
    until_left(&mut group, leader);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
    load.until_more(20);
    group.until_voters(3);
    let stored = load.stop();
    assert_kept(&group, stored);
    let leader = group.leader();
    let text = until("the events are there", SOON, || {
        let ran = group.cli(leader, &["events"]);
        let is_there = |text: &str| ran.stdout.contains(text);
        (is_there("leads the group") && is_there("leaves")).then_some(ran.stdout.clone())
    });
    let is_short = took < Duration::from(RISK_LASTS);
    assert!(!is_short || risks(&group, leader) == before, "at risk for {took:?}: {text}");
}

#[test]
fn leader_and_voter_noticed_at_once_are_replaced_by_two_spares() {
    let mut group = started(3, 2);
    let load = Load::start(&group);
    let leader = group.leader();
    let other = (leader + 1) % 3;
    give(&group, leader, 60);
    give(&group, other, 60);
    until_left(&mut group, leader);
    until_left(&mut group, other);
    load.until_more(20);
    group.until_voters(3);
    let stored = load.stop();
    assert_kept(&group, stored);
}

#[test]
fn notice_without_a_spare_is_a_risk_that_is_shown_until_it_is_taken_back() {
    let group = started(3, 0);
    let leader = group.leader();
    let place = (leader + 1) % 3;
    // Members have the numbers in which they joined.
    let number = (place + 1).to_string();
    let given = group.cli(leader, &["group", "notice", &number, "--deadline", "1h"]);
    assert_eq!(given.code, 0, "{given}");
    let shown = until("the risk is shown", SOON, || {
        let ran = group.cli(leader, &["group", "ls"]);
        ran.stdout.contains("AT RISK").then_some(ran.stdout)
    });
    assert!(shown.contains("taken in "), "{shown}");
    assert!(shown.contains("missing: sanderling namenode --join"), "{shown}");
    let rows = page(&group, leader);
    let row = &rows["members"][place];
    assert_eq!((&row["role"], row["notice_left"].is_u64()), (&"Voter".into(), true), "{rows}");
    let events = |kind: &str| {
        let ran = group.cli(leader, &["events", "--kind", kind]);
        ran.stdout.lines().filter(|line| line.to_lowercase().contains("group")).count()
    };
    until("the risk is an event", SOON, || (events("group_at_risk") == 1).then_some(()));
    assert_eq!(events("group_restored"), 0);
    let cancelled = group.cli(leader, &["group", "cancel", &number]);
    assert_eq!(cancelled.code, 0, "{cancelled}");
    until("the risk is over", SOON, || {
        let rows = page(&group, leader);
        (rows["at_risk"].is_null() && rows["members"][place]["notice_left"].is_null()).then_some(())
    });
    until("its end is an event", SOON, || (events("group_restored") == 1).then_some(()));
    let unknown = group.cli(leader, &["group", "notice", "77", "--deadline", "1h"]);
    assert_eq!(unknown.code, 2, "{unknown}");
}

/// The member through which the command found it is gone meanwhile: the notice is given all the
/// same.
#[test]
fn notice_of_a_member_that_stands_still_is_repeated_and_keeps_its_deadline() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let (place, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let (number, through) = ((place + 1).to_string(), group.addresses[other].clone());
    group.members[place].as_ref().expect("it runs").pause();
    let words = ["group", "notice", &number, "--deadline", "1h", "--timeout", "60s"];
    let mut command = cluster::sanderling();
    command.args(words).args(["--namenode", &through]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut notice = command.spawn().expect("the program can be started");
    let mut stderr = BufReader::new(notice.stderr.take().expect("it is piped"));
    let mut shown = String::new();
    stderr.read_line(&mut shown).expect("readable");
    assert!(shown.contains("does not answer: trying for "), "{shown}");
    group.kill(other);
    group.members[place].as_ref().expect("it runs").resume();
    stderr.read_to_string(&mut shown).expect("readable");
    let status = notice.wait().expect("our own child");
    assert!(status.success() && shown.contains("done; "), "{status}: {shown}");
    let left = until("the leader has it", SOON, || {
        page(&group, group.leader())["members"][place]["notice_left"].as_u64()
    });
    // The first attempt took 4 s of the hour.
    assert!(left <= 3_596_000, "{left} ms");
}

#[test]
fn notice_is_known_to_the_next_leader() {
    let mut group = started(3, 0);
    let load = Load::start(&group);
    let leader = group.leader();
    let place = (leader + 1) % 3;
    give(&group, place, 600);
    until("the leader has it", SOON, || {
        page(&group, leader)["members"][place]["notice_left"].is_u64().then_some(())
    });
    group.kill(leader);
    // A noticed voter gives the leadership away.
    let last = (leader + 2) % 3;
    until("the one without a notice leads and has it", SOON, || {
        let rows = page(&group, last);
        let is_leader = rows["members"][last]["role"] == "Leader";
        (is_leader && rows["members"][place]["notice_left"].is_u64()).then_some(())
    });
    let (_, flag) = source(&group, 3);
    let to = group.addresses[last].clone();
    group.add("127.0.0.1:0", Some(&to), &["--notice-source", &flag]);
    until_left(&mut group, place);
    load.until_more(20);
    let stored = load.stop();
    assert_kept(&group, stored);
}

#[test]
fn notice_is_posted_to_the_member_whose_machine_will_be_taken() {
    let mut group = started(3, 1);
    let leader = group.leader();
    let place = (leader + 1) % 3;
    let address = group.members[place].as_ref().expect("it runs").http_address.clone();
    let post = |body: &str| block_on(http::post(&address, "/v1/notice", body));
    let refused = post("{\"deadline_seconds\": 700000}");
    assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    let garbled = post("{\"deadline\"");
    assert!(garbled.starts_with("HTTP/1.1 400"), "{garbled}");
    // What is meant for a datanode takes no namenode out of its group.
    let drain = ["datanode", "drain", "--http", &address, "--deadline", "20s"];
    for words in [&drain[..], &[&drain[..], &["--wait"]].concat()] {
        let ran = group.cli(place, words);
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains("a namenode serves at"), "{ran}");
    }
    let body = "{\"deadline_seconds\": 60}";
    let waits = block_on(http::post(&address, "/v1/notice?wait=true", body));
    assert!(waits.starts_with("HTTP/1.1 400"), "{waits}");
    // It passes on what the leader answers, also a wait.
    let body = "{\"path\": \"/none\", \"within_seconds\": 1}";
    let waited = block_on(http::post(&address, "/v1/durable/wait", body));
    assert!(waited.starts_with("HTTP/1.1 404"), "{waited}");
    let shown = block_on(http::get(&address, "/v1/group"));
    let members = shown["members"].as_array().expect("a list");
    assert!(members.iter().all(|member| member["notice_left_millis"].is_null()), "{shown}");
    let given = post("{\"deadline_seconds\": 60, \"reason\": \"spot\"}");
    assert!(given.starts_with("HTTP/1.1 200"), "{given}");
    until_left(&mut group, place);
}

/// As of a datanode. What is taken back is over.
#[test]
fn second_notice_of_a_namenode_can_only_bring_its_deadline_nearer() {
    let group = started(3, 0);
    let leader = group.leader();
    let place = (leader + 1) % 3;
    let address = group.members[place].as_ref().expect("it runs").http_address.clone();
    let left_of = |answer: String| -> Value {
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        let page: Value = serde_json::from_str(body).expect("JSON");
        page["notice_left_millis"].clone()
    };
    let post = |seconds: u64| {
        let body = format!("{{\"deadline_seconds\": {seconds}}}");
        let left = left_of(block_on(http::post(&address, "/v1/notice", &body)));
        left.as_u64().expect("it has a deadline")
    };
    assert!(post(600) > 300_000);
    for seconds in [60, 600] {
        let left = post(seconds);
        assert!(left <= 60_000, "{left} ms after one of {seconds} s");
    }
    // An operator's second one neither.
    let number = (place + 1).to_string();
    for deadline in ["50s", "600s"] {
        let given = group.cli(leader, &["group", "notice", &number, "--deadline", deadline]);
        assert_eq!(given.code, 0, "{given}");
        let left = post(600);
        assert!(left <= 50_000, "{left} ms after one of {deadline}");
    }
    let taken_back = block_on(http::send(&address, ("DELETE", "/v1/notice"), None, ""));
    assert_eq!(left_of(taken_back), Value::Null);
    assert!(post(600) > 300_000);
}

/// A user that can write to the file's directory may put a pipe there.
#[test]
fn pipe_as_the_file_of_notices_keeps_no_namenode_from_ending() {
    let group = Group::start(0, &[]);
    let (file, flag) = source(&group, 0);
    let made = std::process::Command::new("mkfifo").arg(&file).status().expect("mkfifo");
    assert!(made.success());
    let mut server = group.spawn(0, "127.0.0.1:0", None, &["--notice-source", &flag]);
    until("the source fails", SOON, || server.log().contains("is no file").then_some(()));
    server.terminate();
    assert!(server.wait(SOON).success(), "{}", server.log());
}

#[test]
fn even_number_of_voters_is_refused() {
    let group = started(1, 0);
    let directory = text(group.directory.path().join("even"));
    let words = ["namenode", "--dir", &directory, "--listen", "127.0.0.1:0", "--voters", "4"];
    let ran = cluster::run(cluster::sanderling().args(words));
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("survives no more than one less"), "{ran}");
}

/// There is no group yet: the notice counts once there is one.
#[test]
fn notice_of_a_namenode_alone_counts_as_soon_as_others_have_joined() {
    let mut group = started(1, 0);
    give(&group, 0, 600);
    until("it is logged", SOON, || {
        let server = group.members[0].as_ref().expect("it runs");
        server.log().contains("machine will be taken").then_some(())
    });
    let first = group.addresses[0].clone();
    let load = Load::start(&group);
    for _ in 0..3 {
        group.add("127.0.0.1:0", Some(&first), &[]);
    }
    until_left(&mut group, 0);
    load.until_more(20);
    group.until_voters(3);
    let stored = load.stop();
    assert_kept(&group, stored);
}

/// The two that stay must decide although both newcomers die: so voters are replaced one by one.
#[test]
fn spares_that_die_while_they_replace_two_voters_stop_no_member() {
    let mut group = started(3, 2);
    let leader = group.leader();
    let others: Vec<usize> = (0..3).filter(|place| *place != leader).collect();
    for place in [3, 4] {
        group.members[place].as_ref().expect("it runs").pause();
    }
    until("the spares are silent", SOON, || {
        let rows = page(&group, leader);
        [3, 4].iter().all(|place| rows["members"][*place]["is_active"] == false).then_some(())
    });
    for place in &others {
        give(&group, *place, 60);
    }
    until("both notices are known", SOON, || {
        let rows = page(&group, leader);
        let is_known = |place: &usize| rows["members"][*place]["notice_left"].is_u64();
        others.iter().all(is_known).then_some(())
    });
    // On a busy machine another one may lead by now.
    let changes = |group: &Group| -> usize {
        let logs = group.members.iter().flatten().map(Server::log);
        logs.map(|log| log.matches("the group changes its members").count()).sum()
    };
    let before = changes(&group);
    for place in [3, 4] {
        group.members[place].as_ref().expect("it runs").resume();
    }
    until("the members change", SOON, || (changes(&group) > before).then_some(()));
    group.kill(3);
    group.kill(4);
    // The voters that live decide.
    group.leader();
}

#[test]
fn noticed_leader_without_other_voters_lets_its_spare_lead() {
    let mut group = started(1, 1);
    let load = Load::start(&group);
    let leader = group.leader();
    give(&group, leader, 60);
    until_left(&mut group, leader);
    load.until_more(20);
    let stored = load.stop();
    assert_kept(&group, stored);
}

#[test]
fn notice_that_was_taken_back_is_forgotten_by_an_earlier_leader() {
    let mut group = started(3, 0);
    let (leader, other) = (group.leader(), (group.leader() + 1) % 3);
    let noticed = 3 - leader - other;
    // On a busy machine the other one may get no vote in time, and the earlier leader goes on.
    let lead = |group: &Group, from: usize, to: usize| {
        let begun = Instant::now();
        while group.leader() != to {
            assert!(begun.elapsed() < SOON, "the other does not lead");
            let moved = group.cli(from, &["group", "move-leader", &(to + 1).to_string()]);
            let is_taken = moved.code == 0 || moved.stderr.contains("took the order");
            assert!(is_taken, "{moved}");
            let ordered = Instant::now();
            while group.leader() != to && ordered.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    };
    let number = (noticed + 1).to_string();
    let given = group.cli(leader, &["group", "notice", &number, "--deadline", "1s"]);
    assert_eq!(given.code, 0, "{given}");
    lead(&group, leader, other);
    let cancelled = group.cli(other, &["group", "cancel", &number]);
    assert_eq!(cancelled.code, 0, "{cancelled}");
    let to = group.addresses[other].clone();
    group.add("127.0.0.1:0", Some(&to), &[]);
    until("the spare has everything", SOON, || {
        let rows = page(&group, other);
        (rows["members"][3]["behind_entries"] == 0).then_some(())
    });
    group.members[noticed].as_ref().expect("it runs").pause();
    lead(&group, other, leader);
    // As long as a leader takes to find a member silent, many times over.
    let limit = Instant::now() + Duration::from_secs(4);
    let mut looks = 0;
    while looks == 0 || Instant::now() < limit {
        assert!(Instant::now() < limit + SOON, "no leader shows its members");
        // Without a leader, as for a moment on a busy machine, there is no page.
        if let Some(members) = page(&group, leader)["members"].as_array() {
            assert_eq!(members.len(), 4, "{members:?}");
            looks += 1;
        }
    }
    group.members[noticed].as_ref().expect("it runs").resume();
    until("it answers", SOON, || {
        (page(&group, leader)["members"][noticed]["is_active"] == true).then_some(())
    });
}

/// A spare never calls for votes, by which others learn of their removal.
#[test]
fn spare_that_was_removed_while_it_was_away_ends_when_it_comes_back() {
    let mut group = started(3, 1);
    let leader = group.leader();
    group.kill(3);
    let removed = group.cli(leader, &["group", "remove", "4"]);
    assert_eq!(removed.code, 0, "{removed}");
    // The leader may remove it before it was seen to serve.
    let mut back = group.restarted_to_end(3);
    assert!(!back.wait(SOON).success(), "a removed member serves no more");
}

#[test]
fn spare_that_is_removed_while_it_runs_ends() {
    let mut group = started(3, 1);
    let removed = group.cli(group.leader(), &["group", "remove", "4"]);
    assert_eq!(removed.code, 0, "{removed}");
    let mut spare = group.members[3].take().expect("it runs");
    assert!(!spare.wait(SOON).success(), "a removed member serves no more");
}

#[test]
fn voters_of_an_idle_group_are_never_shown_as_silent() {
    let group = started(3, 0);
    let leader = group.leader();
    let address = group.members[leader].as_ref().expect("it runs").http_address.clone();
    // A voter that a busy machine lets stand still for a second is silent indeed. One that idleness
    // made silent would be so again and again.
    let (limit, mut calm, mut looks) = (Instant::now() + SOON, Instant::now(), 0);
    while calm.elapsed() < Duration::from_secs(10) || looks < 10 {
        let shown = block_on(http::page(&address, "/v1/group"));
        let body = shown.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let rows: Value = serde_json::from_str(body).unwrap_or_default();
        let is_calm = rows["members"].is_array() && rows["at_risk"].is_null();
        if is_calm {
            looks += 1;
        } else {
            (calm, looks) = (Instant::now(), 0);
        }
        assert!(Instant::now() < limit, "{shown}");
    }
}

#[test]
fn notice_of_a_namenode_alone_is_shown_as_a_risk() {
    let group = started(1, 0);
    give(&group, 0, 600);
    until("the risk is shown", SOON, || {
        let ran = group.cli(0, &["group", "ls"]);
        (ran.stdout.contains("AT RISK") && ran.stdout.contains("taken in")).then_some(())
    });
}

/// The earliest of what they show counts, and a file that is removed takes no other's notice back.
#[test]
fn two_files_of_a_namenode_are_two_sources() {
    let mut group = Group::start(0, &[]);
    let [(first, flag), (_, other)] = [0, 1].map(|place| source(&group, place));
    let flags = ["--notice-source", &flag, "--notice-source", &other];
    group.add("127.0.0.1:0", None, &flags);
    let left = |group: &Group| page(group, 0)["members"][0]["notice_left"].as_u64();
    give(&group, 0, 600);
    until("the first one is shown", SOON, || left(&group));
    give(&group, 1, 6000);
    until("both are logged", SOON, || {
        let log = group.members[0].as_ref().expect("it runs").log();
        (log.matches("machine will be taken").count() == 2).then_some(())
    });
    let earliest = left(&group).expect("both are there");
    assert!(earliest <= 600_000, "{earliest} ms");
    std::fs::remove_file(first).expect("removed");
    let later = until("the other one holds", SOON, || left(&group).filter(|left| *left > 600_000));
    assert!(later <= 6_000_000, "{later} ms");
}

/// The snapshot may take longer than the machine lives: what the archive lacks comes first.
#[test]
fn archive_is_closed_before_the_deadline_while_a_snapshot_is_being_written() {
    let archive = tempfile::tempdir().expect("a directory for the archive");
    let place = text(archive.path().into());
    let mut group = Group::start(0, &[]);
    let Some(files) = FaultyFiles::build(group.directory.path(), "snapshot-") else {
        return eprintln!("SKIPPED: no C compiler makes the files that wait");
    };
    group.variables = files.variables();
    let (_, flag) = source(&group, 0);
    group.add("127.0.0.1:0", None, &["--archive", &place, "--notice-source", &flag]);
    files.set(FileFaults { waits: true, ..FileFaults::default() });
    let catalog = group.directory.path().join("catalog-0");
    let is_begun = || {
        let mut names = std::fs::read_dir(&catalog).expect("listed").flatten();
        names.any(|entry| {
            let name = text(entry.file_name().into());
            name.starts_with("snapshot-") && name.ends_with(".tmp")
        })
    };
    block_on(async {
        let client = Client::connect(&group.addresses[0], config()).await.expect("it serves");
        // One is due after 64 MiB of journal.
        let mut stored = 0;
        while !is_begun() {
            assert!(stored < 40_000, "no snapshot begins");
            let puts = (stored..stored + 500).map(|number| put_large(&client, number));
            futures_util::future::join_all(puts).await;
            stored += 500;
        }
    });
    let given = Instant::now();
    give(&group, 0, 20);
    let mut server = group.members[0].take().expect("it runs");
    until("the archive is closed", Duration::from_secs(20), || {
        server.log().contains("the archive is closed").then_some(())
    });
    assert!(given.elapsed() > Duration::from_secs(5), "it stopped at once");
    assert!(is_begun(), "the snapshot was not in the way");
    files.set(FileFaults::default());
    assert!(server.wait(SOON).success(), "{}", server.log());
    let directory = text(group.directory.path().join("anew"));
    let words = ["namenode", "recover", "--archive", &place, "--dir", &directory];
    let recovered = cluster::run(cluster::sanderling().args(words));
    assert!(recovered.stdout.contains("no change is missing"), "{recovered}");
}

/// A restart takes less time, and costs no member its place.
#[test]
fn voter_that_is_silent_for_30_s_is_replaced_by_a_spare_and_ends_when_it_is_back() {
    let mut group = started(3, 1);
    let leader = group.leader();
    let silent = (leader + 1) % 3;
    let (old, spare) = (group.addresses[silent].clone(), group.addresses[3].clone());
    let load = Load::start(&group);
    let since = Instant::now();
    group.members[silent].as_ref().expect("it runs").pause();
    until("the spare votes in its place", SOON + SOON, || {
        let roles = group.roles(leader);
        let is_there = roles.iter().any(|(address, _)| *address == old);
        let votes = roles.contains(&(spare.clone(), "Voter".to_owned()));
        (votes && !is_there).then_some(())
    });
    // The leader counts from the last message, which came some time before on a busy machine.
    assert!(since.elapsed() > Duration::from_secs(25), "after {:?}", since.elapsed());
    load.until_more(20);
    group.members[silent].as_ref().expect("it runs").resume();
    let mut back = group.members[silent].take().expect("it runs");
    assert!(!back.wait(SOON).success(), "{}", back.log());
    assert!(back.log().contains("removed from its group"), "{}", back.log());
    let stored = load.stop();
    group.until_voters(3);
    assert_kept(&group, stored);
}
