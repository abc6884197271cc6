//! A group of namenodes as real processes: killed, stopped and removed under load. What was
//! acknowledged is there, whichever member leads.

use crate::cluster;
use std::time::{Duration, Instant};

use crate::cluster::guarded::text;
use crate::cluster::http;
use crate::cluster::namenodes::{Group, Load, assert_there, client, config, put, put_large, value};
use crate::cluster::{
    Port, Ran, SOON, block_on, path, previous_program, program_at, run, sanderling, spawn_with,
};
use bytes::Bytes;
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Change, ClientId, Hello, ObjectKind, Once, Role};
use sanderling_protocol::{Header, Millis, Nonce, Op, Refusal, Reply, Request};
use sanderling_transport::Connection;

#[test]
fn killed_leader_is_followed_and_everything_acknowledged_is_there() {
    let mut group = Group::start(3, &[]);
    let mut stored = 0;
    for _ in 0..3 {
        let leader = group.leader();
        block_on(async {
            let client = client(&group.addresses[leader]).await;
            assert_there(&client, 0..stored).await;
            for number in stored..stored + 50 {
                put(&client, number).await;
            }
        });
        stored += 50;
        group.kill(leader);
        let next = group.leader();
        block_on(async {
            let client = client(&group.addresses[next]).await;
            assert_there(&client, 0..stored).await;
            put(&client, stored).await;
        });
        stored += 1;
        group.restart(leader);
        group.until_voters(3);
    }
}

#[test]
fn stopped_leader_is_followed_and_answers_no_read_when_it_continues() {
    let group = Group::start(3, &[]);
    let leader = group.leader();
    let old = group.members[leader].as_ref().expect("it runs");
    block_on(async { put(&client(&group.addresses[leader]).await, 0).await });
    old.pause();
    let others: Vec<usize> = group.running().filter(|place| *place != leader).collect();
    let next = cluster::until("another member leads", SOON, || {
        others.iter().copied().find(|place| group.answers(*place))
    });
    block_on(async {
        let client = client(&group.addresses[next]).await;
        assert_there(&client, 0..1).await;
        put(&client, 1).await;
    });
    old.resume();
    // From its first answer on it has what the other acknowledged, or refuses.
    let address = group.addresses[leader].clone();
    let config = ClientConfig { call_deadline: Duration::from_millis(300), ..config() };
    for _ in 0..20 {
        block_on(async {
            let Ok(client) = Client::connect(&address, config.clone()).await else { return };
            if let Ok(reply) = client.request(Request::Stat { path: path("/1") }).await {
                assert!(matches!(reply, Reply::Stat(_)), "{reply:?}");
            }
        });
    }
    group.until_voters(3);
}

#[test]
fn silent_address_that_is_tried_last_holds_no_call_up() {
    let group = Group::start(3, &[]);
    let leader = group.leader();
    let followers: Vec<usize> = group.running().filter(|place| *place != leader).collect();
    // The two that are stopped are a majority: no member leads until one of them continues.
    let stopped = [leader, followers[1]].map(|it| group.members[it].as_ref().expect("it runs"));
    stopped.iter().for_each(|it| it.pause());
    // It accepts connections, as the kernel of a stopped process does, and answers none.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    silent.set_nonblocking(true).expect("set");
    let last = silent.local_addr().expect("bound").to_string();
    let [first, second] = [0, 1].map(|it| group.addresses[followers[it]].clone());
    let addresses = [first, second, last].join(",");
    let caller = std::thread::spawn(move || {
        let words = ["fs", "stat", "/", "--timeout", "30s", "--namenode", &addresses];
        run(sanderling().args(words))
    });
    // The first connection is for the greeting at the start, the second one for the call.
    let connections: Vec<_> = (0..2)
        .map(|_| cluster::until("the call turns to the silent one", SOON, || silent.accept().ok()))
        .collect();
    stopped[1].resume();
    let ran = caller.join().expect("it ends");
    assert_eq!(ran.code, 0, "{ran}");
    drop(connections);
}

#[test]
fn terminated_leader_gives_the_leadership_away_and_ends() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    block_on(async { put(&client(&group.addresses[leader]).await, 0).await });
    let mut old = group.members[leader].take().expect("it runs");
    old.terminate();
    let status = old.wait(SOON);
    assert!(status.success(), "{status}");
    assert!(old.log().contains("another namenode leads the group"), "{}", old.log());
    let next = group.leader();
    block_on(async { assert_there(&client(&group.addresses[next]).await, 0..1).await });
    group.restart(leader);
    group.until_voters(3);
}

/// The first successor stands still: of two voters that have everything, the one that joined first.
#[test]
fn terminated_leader_gives_the_leadership_to_the_next_voter_if_the_first_stands_still() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    block_on(async { put(&client(&group.addresses[leader]).await, 0).await });
    let (first, next) = if leader == 0 { (1, 2) } else { (0, 3 - leader) };
    group.members[first].as_ref().expect("it runs").pause();
    let mut old = group.members[leader].take().expect("it runs");
    old.terminate();
    let status = old.wait(SOON);
    assert!(status.success(), "{status}");
    assert!(old.log().contains("another namenode leads the group"), "{}", old.log());
    group.members[first].as_ref().expect("it runs").resume();
    // With it there is a majority again. Whichever leads then has everything.
    let addresses = [first, next].map(|place| group.addresses[place].as_str()).join(",");
    block_on(async { assert_there(&client(&addresses).await, 0..1).await });
}

/// Reads a page of a member; returns its status, 0 if there is none, and its text.
fn page_of(group: &Group, place: usize, target: &str) -> (u16, String) {
    let address = &group.members[place].as_ref().expect("it runs").http_address;
    let answer = block_on(http::page(address, target));
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    (status.unwrap_or(0), answer)
}

#[test]
fn every_member_answers_over_http_whichever_leads() {
    let mut group = Group::start(3, &[]);
    let addresses = group.addresses.join(",");
    let words = ["datanode", "--namenode", &addresses, "--name", "one", "--dram", "8MiB"];
    let _datanode = spawn_with(group.directory.path(), "one", &words, &[]).serves();
    let leader = group.leader();
    for place in 0..3 {
        let (status, page) = page_of(&group, place, "/v1/nodes");
        assert!(status == 200 && page.contains("\"name\":\"one\""), "{page}");
        let (status, page) = page_of(&group, place, "/v1/nodes/none");
        assert!(status == 404 && page.contains("UnknownNode"), "the leader's refusal: {page}");
        let (status, page) = page_of(&group, place, "/healthz");
        let expected = if place == leader { "\"leader\"" } else { "\"follower\"" };
        assert!(status == 200 && page.contains(expected), "its own: {page}");
        let (status, page) = page_of(&group, place, "/v1/targets");
        let members = group.members.iter().flatten();
        let are_all_there = members.clone().all(|member| page.contains(&member.http_address));
        assert!(status == 200 && are_all_there, "{page}");
    }
    for place in 0..3 {
        let (_, page) = page_of(&group, place, "/metrics");
        let leads = format!("sanderling_namenode_group_leads {}\n", u8::from(place == leader));
        assert!(page.contains(&leads) && page.contains("_group_voters 3\n"), "{page}");
        let at_risk = page.contains("sanderling_namenode_group_at_risk 0\n");
        assert_eq!(at_risk, place == leader, "{page}");
        // A stream comes through as it is written, although it has no end.
        let address = &group.members[place].as_ref().expect("it runs").http_address;
        let (_, seen) = http::follow(address, "/v1/events", "\"name\":\"one\"");
        assert!(seen.contains("content-type: text/event-stream"), "{seen}");
    }
    // A change through a member that does not lead.
    let place = (0..3).find(|place| *place != leader).expect("two follow");
    let address = group.members[place].as_ref().expect("it runs").http_address.clone();
    let posted = block_on(http::post(&address, "/v1/nodes/one/decommission", "{}"));
    assert!(posted.contains(" 200 ") && posted.contains("\"name\":\"one\""), "{posted}");
    // Two members that take each other for the leader send nothing in a circle.
    let circle = "/v1/nodes HTTP/1.0\r\nsanderling-passed-on: 1\r\nx-rest:";
    let (status, page) = page_of(&group, place, circle);
    assert!(status == 503 && page.contains("NotLeader"), "{page}");

    group.kill(leader);
    let next = group.leader();
    let follower = group.running().find(|place| *place != next).expect("one follows");
    cluster::until("the follower answers again", SOON, || {
        let (status, page) = page_of(&group, follower, "/v1/nodes");
        assert!([200, 503].contains(&status), "{page}");
        (status == 200).then_some(())
    });
}

#[test]
fn member_that_starts_again_reports_its_group_from_its_first_answer() {
    let mut group = Group::start(3, &[]);
    for place in 0..3 {
        group.kill(place);
        group.restart(place);
        let roles = group.roles(place);
        assert_eq!(roles.len(), 3, "{roles:?}");
        group.until_voters(3);
    }
}

/// A browser that follows a member connects again once its stream has ended.
#[test]
fn streams_end_when_another_member_leads() {
    let group = Group::start(3, &[]);
    let page = |place: usize| &group.members[place].as_ref().expect("it runs").http_address;
    for target in ["/v1/stream", "/v1/events"] {
        let leader = group.leader();
        let place = (0..3).find(|place| *place != leader).expect("two follow");
        let (own, _) = http::follow(page(leader), target, " 200 ");
        let (through, _) = http::follow(page(place), target, " 200 ");
        let moved = group.cli(place, &["group", "move-leader"]);
        assert_eq!(moved.code, 0, "{moved}");
        http::ends(own);
        http::ends(through);
    }
    // A leader that is stopped closes no connection.
    let leader = group.leader();
    let place = (0..3).find(|place| *place != leader).expect("two follow");
    let (through, _) = http::follow(page(place), "/v1/stream", " 200 ");
    let old = group.members[leader].as_ref().expect("it runs");
    old.pause();
    let asked = Instant::now();
    let (status, answer) = page_of(&group, place, "/v1/nodes");
    assert!(status == 200 || status == 503, "{answer}");
    // It may take 30 s until an answer of a leader begins.
    assert!(asked.elapsed() < Duration::from_secs(25), "it waits for a leader that is stopped");
    http::ends(through);
    cluster::until("the next leader answers", SOON, || {
        (page_of(&group, place, "/v1/nodes").0 == 200).then_some(())
    });
    old.resume();
}

/// `NotLeader` states that nothing was changed.
#[test]
fn change_that_the_leader_did_not_answer_is_not_refused_as_unmade() {
    let group = Group::start(3, &[]);
    // Where the machine is busy, the leader is followed before the change is sent.
    let answer = (0..5).find_map(|_| {
        let leader = group.leader();
        let place = (0..3).find(|place| *place != leader).expect("two follow");
        let page = &group.members[place].as_ref().expect("it runs").http_address;
        let old = group.members[leader].as_ref().expect("it runs");
        old.pause();
        let answer = block_on(http::post(page, "/v1/nodes/none/decommission", "{}"));
        old.resume();
        Some(answer).filter(|answer| !answer.contains("NotLeader"))
    });
    let answer = answer.expect("a stopped leader got it");
    assert!(answer.contains(" 502 ") && answer.contains("may have been made"), "{answer}");
}

/// A leader that the others do not answer gives up: its successor may find the change in its log.
#[test]
fn change_that_the_leader_could_not_agree_on_is_not_refused_as_unmade() {
    let group = Group::start(3, &[]);
    let all = group.addresses.join(",");
    let words = ["datanode", "--namenode", &all, "--name", "d0", "--dram", "8MiB"];
    let words = [&words[..], &["--listen", "127.0.0.1:0", "--http", "none"]].concat();
    let _node = spawn_with(group.directory.path(), "d0", &words, &[]).serves();
    let server = |place: usize| group.members[place].as_ref().expect("it runs");
    // Where the machine is busy, it may have given up before the change comes.
    let answer = (0..5).find_map(|number| {
        let leader = group.leader();
        let others = || (0..3).filter(|place| *place != leader);
        others().for_each(|place| server(place).pause());
        let page = &server(leader).http_address;
        let answer = block_on(http::post(page, "/v1/nodes/d0/decommission", "{}"));
        others().for_each(|place| server(place).resume());
        if !answer.contains("NotLeader") {
            return Some(answer);
        }
        // Whatever was in a log is agreed with what comes after it.
        block_on(async { put(&client(&all).await, number).await });
        let nodes = group.cli(group.leader(), &["node", "ls", "--json"]).stdout;
        assert!(nodes.contains(r#""policy":"active""#), "refused as unmade, and made: {nodes}");
        None
    });
    let answer = answer.expect("a leader got it");
    assert!(answer.contains(" 502 ") && answer.contains("may have been made"), "{answer}");
}

/// Sends requests in one frame to one namenode, and returns what that one answers.
async fn answers_of(address: &str, requests: Vec<Request>) -> Vec<Result<Reply, Refusal>> {
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let limit = tokio::time::Instant::now() + SOON;
    let (connection, _) = Connection::connect(address, hello, limit).await.expect("it serves");
    let body = vec![Bytes::from(encode_body(&requests))];
    let answer = connection.call(Header::new(Op::Meta, 0), body, limit).await.expect("an answer");
    decode_body(&answer.body).expect("it is of the protocol")
}

/// The leader has the change in its log, and ceases to lead before the others have it. A client
/// that took it for unmade could send it under another sequence.
#[test]
fn change_that_the_leader_has_proposed_is_not_answered_as_if_another_led() {
    let group = Group::start(3, &[]);
    let all = group.addresses.join(",");
    let server = |place: usize| group.members[place].as_ref().expect("it runs");
    let make = |number: u64| Request::MakeDirectory {
        path: path(&format!("/made-{number}")),
        kind: ObjectKind::Directory,
        parents: false,
        is_listed: true,
    };
    // Where the machine is busy, it may have given up before the change comes.
    let undecided = (0..5).find_map(|number| {
        let leader = group.leader();
        let others = || (0..3).filter(|place| *place != leader);
        others().for_each(|place| server(place).pause());
        let answers = block_on(answers_of(&group.addresses[leader], vec![make(number)]));
        others().for_each(|place| server(place).resume());
        let [Err(refusal)] = &answers[..] else { panic!("no quorum has it: {answers:?}") };
        if matches!(refusal, Refusal::Undecided { .. }) {
            return Some(refusal.to_string());
        }
        assert!(matches!(refusal, Refusal::NotLeader { .. }), "{refusal:?}");
        // Whatever was in a log is agreed with what comes after it.
        block_on(async {
            let client = client(&all).await;
            put(&client, number).await;
            let made = client.stat(&path(&format!("/made-{number}"))).await;
            assert!(made.is_err(), "refused as unmade, and made: {made:?}");
        });
        None
    });
    let undecided = undecided.expect("a leader got it");
    assert!(undecided.contains("may have been made"), "{undecided}");
}

/// Its lease ends before it finds out that the others follow another one.
#[test]
fn leader_without_a_lease_shows_no_page_of_its_catalog() {
    /// A lease counts from when its message was sent, and ends within this time.
    const LEASE_MAX: Duration = Duration::from_millis(380);
    let group = Group::start(3, &[]);
    let server = |place: usize| group.members[place].as_ref().expect("it runs");
    for target in ["/v1/backup", "/v1/history", "/v1/backup", "/v1/history", "/v1/stream"] {
        let leader = group.leader();
        let others = || (0..3).filter(|place| *place != leader);
        others().for_each(|place| server(place).pause());
        let stopped = Instant::now();
        let page = &server(leader).http_address;
        cluster::until("it refuses", SOON, || {
            let began = stopped.elapsed();
            let answer = block_on(first_of(page, target));
            let is_shown = answer.split(' ').nth(1) == Some("200");
            assert!(!is_shown || began < LEASE_MAX, "{target} after {began:?}");
            (!is_shown).then_some(())
        });
        others().for_each(|place| server(place).resume());
    }
}

/// Returns the first line of an answer: a stream has no end, and a backup is no text.
async fn first_of(address: &str, target: &str) -> String {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it serves");
    let request = format!("GET {target} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await.expect("answered");
    line
}

#[test]
fn members_that_are_restarted_one_by_one_cost_no_write_and_no_place() {
    restart_one_by_one(Group::start(3, &[]));
}

#[test]
#[ignore = "make upgrade-test: it needs the program of an earlier release"]
fn members_of_an_earlier_program_are_upgraded_one_by_one() {
    let previous = previous_program();
    let has_groups = run(program_at(&previous).args(["group", "ls", "--help"])).code == 0;
    if has_groups {
        restart_one_by_one(Group::start_with(Some(previous), 3, &[]));
    } else {
        eprintln!("SKIPPED: the earlier program has no groups of namenodes");
    }
}

/// Restarts members with the present program as an upgrade does: the spare first, then the voters
/// that follow, and the leader last. SIGTERM makes it give the leadership away.
fn restart_one_by_one(mut group: Group) {
    let to = group.addresses[0].clone();
    group.add("127.0.0.1:0", Some(&to), &[]);
    let spare = (group.addresses[3].clone(), "Learner".to_owned());
    cluster::until("there is a spare", SOON, || group.roles(0).contains(&spare).then_some(()));
    let members = |group: &Group| {
        let page = group.cli(group.leader(), &["group", "ls", "--json"]).stdout;
        let page: serde_json::Value = serde_json::from_str(&page).unwrap_or_default();
        page["members"].as_array().cloned().unwrap_or_default()
    };
    let places = |group: &Group| {
        let place = |row: &serde_json::Value| (row["id"].clone(), row["address"].clone());
        members(group).iter().map(place).collect::<Vec<_>>()
    };
    let before = places(&group);
    assert_eq!(before.len(), 4);
    let load = Load::start(&group);
    group.program = None;
    let mut left: Vec<usize> = (0..4).collect();
    while !left.is_empty() {
        // On a busy machine another one may lead by now.
        let leader = group.leader();
        let follows = left.iter().rposition(|place| *place != leader);
        let place = left.remove(follows.unwrap_or(0));
        let mut server = group.members[place].take().expect("it runs");
        server.terminate();
        assert!(server.wait(SOON).success(), "{}", server.log());
        let moved = server.log().contains("another namenode leads the group");
        assert_eq!(moved, place == leader, "{leader} leads, {place} ends: {}", server.log());
        load.until_more(20);
        let address = group.addresses[place].clone();
        // The same command as before: a member does not join once more.
        let join = group.addresses[(place + 1) % 3].clone();
        group.members[place] = Some(group.spawn(place, &address, Some(&join), &[]));
        cluster::until("it has everything", SOON, || {
            let rows = members(&group);
            let row = rows.iter().find(|row| row["address"] == *address)?;
            let is_back = row["is_active"] == true && row["behind_entries"].as_u64() < Some(20);
            is_back.then_some(())
        });
    }
    let stored = load.stop();
    assert_eq!(places(&group), before, "none has lost its place");
    assert!(group.roles(0).contains(&spare), "{:?}", group.roles(0));
    for place in 0..3 {
        block_on(async { assert_there(&client(&group.addresses[place]).await, 0..stored).await });
    }
}

#[test]
fn two_of_three_killed_answer_nothing_until_one_is_back() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    block_on(async { put(&client(&group.addresses[leader]).await, 0).await });
    let others: Vec<usize> = group.running().filter(|place| *place != leader).collect();
    for place in &others {
        group.kill(*place);
    }
    cluster::until("the last one refuses reads", SOON, || (!group.answers(leader)).then_some(()));
    let page = group.members[leader].as_ref().expect("it runs").http_address.clone();
    let until_health = |status: &str| {
        cluster::until(&format!("its health is {status}"), SOON, || {
            (block_on(http::get(&page, "/healthz"))["status"] == status).then_some(())
        });
    };
    until_health("no_leader");
    let place = text(group.directory.path().join("x"));
    let words = ["doctor", "--dram", "1MiB", "--dir", &place, "--http", &page];
    let examined = group.cli(leader, &words);
    assert!(examined.code == 1 && examined.stdout.contains("has no leader"), "{examined}");
    group.restart(others[0]);
    until_health("ok");
    let next = group.leader();
    block_on(async {
        let client = client(&group.addresses[next]).await;
        assert_there(&client, 0..1).await;
        put(&client, 1).await;
    });
}

#[test]
fn move_of_the_leadership_waits_until_a_member_leads() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let (place, away) = ((leader + 1) % 3, (leader + 2) % 3);
    group.kill(leader);
    group.kill(away);
    let page = group.members[place].as_ref().expect("it runs").http_address.clone();
    cluster::until("the last one follows no leader", SOON, || {
        (block_on(http::get(&page, "/healthz"))["status"] == "no_leader").then_some(())
    });
    let given_up = group.cli(place, &["group", "move-leader", "--timeout", "1s"]);
    assert_ne!(given_up.code, 0, "{given_up}");
    assert!(given_up.took >= Duration::from_millis(700), "it is repeated: {:?}", given_up.took);
    let address = group.addresses[place].clone();
    let moving = std::thread::spawn(move || {
        let words = ["group", "move-leader", "--namenode", &address, "--timeout", "60s"];
        run(sanderling().args(words))
    });
    group.restart(away);
    let moved = moving.join().expect("the command ends");
    assert!(moved.code == 0 || is_slow(&moved), "{moved}");
}

/// The others name the killed one until the next one leads.
#[test]
fn order_right_after_the_leader_was_killed_is_given_to_the_next_one() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let other = (leader + 1) % 3;
    group.kill(leader);
    let moved = group.cli(other, &["group", "move-leader", "--timeout", "60s"]);
    assert!(moved.code == 0 || is_slow(&moved), "{moved}");
}

/// A machine that was taken away is silent, and refuses nothing.
#[test]
fn order_passes_over_a_member_that_does_not_answer() {
    let group = Group::start(3, &[]);
    let leader = group.leader();
    let silent = (leader + 1) % 3;
    group.members[silent].as_ref().expect("it runs").pause();
    let addresses = format!("{},{}", group.addresses[silent], group.addresses[leader]);
    let words = ["group", "move-leader", "--namenode", &addresses, "--timeout", "60s"];
    let moved = run(sanderling().args(words));
    assert!(moved.code == 0 || is_slow(&moved), "{moved}");
}

/// Returns whether a leader took an order, and the other voter did not answer in time: on a busy
/// machine a transfer may end so.
fn is_slow(ran: &Ran) -> bool {
    ["in time", "no other voter", "took the order"].iter().any(|text| ran.stderr.contains(text))
}

#[test]
fn leadership_is_moved_and_a_member_is_removed_by_hand() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let moved = group.cli(leader, &["group", "move-leader"]);
    assert_eq!(moved.code, 0, "{moved}");
    let next = cluster::until("another member leads", SOON, || {
        Some(group.leader()).filter(|next| *next != leader)
    });
    // Members have the numbers in which they joined.
    let number = (leader + 1).to_string();
    let removed = group.cli(next, &["group", "remove", &number]);
    assert_eq!(removed.code, 0, "{removed}");
    let mut old = group.members[leader].take().expect("it runs");
    assert!(!old.wait(SOON).success(), "a removed member serves no more");
    assert!(old.log().contains("removed from its group"), "{}", old.log());
    let own = (next + 1).to_string();
    let refused = group.cli(next, &["group", "remove", &own]);
    assert_ne!(refused.code, 0, "{refused}");
    assert!(refused.stderr.contains("cannot remove itself"), "{refused}");
}

/// The time without a leader does not count against times to live.
#[test]
fn absence_of_the_whole_group_ends_no_time_to_live() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let life = Duration::from_secs(9);
    block_on(async {
        let options = PutOptions { ttl: Some(Millis::from(life)), ..PutOptions::default() };
        let client = client(&group.addresses[leader]).await;
        client.put(&path("/0"), value(0), &options).await.expect("stored");
    });
    (0..3).for_each(|place| group.kill(place));
    // This is the absence.
    std::thread::sleep(life + Duration::from_secs(1));
    (0..3).for_each(|place| group.restart(place));
    let leader = group.leader();
    block_on(async {
        let client = client(&group.addresses[leader]).await;
        assert_there(&client, 0..1).await;
        let limit = Instant::now() + SOON;
        while client.get(&path("/0")).await.is_ok() {
            assert!(Instant::now() < limit, "it ends once a leader serves");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

/// A client sent a change to a member that did not answer, and got its refusal from another one.
/// The first request arrives when its receiver leads.
#[test]
fn late_copy_of_a_refused_change_is_refused_by_the_next_leader_too() {
    let group = Group::start(3, &[]);
    let leader = group.leader();
    let delete = |client| {
        let change = Change::new(Request::Delete { path: path("/0"), recursive: false });
        Request::Once(Box::new(Once { client, sequence: 1, settled_below: 1, change }))
    };
    let assert_missing = async |client: &Client, id| {
        let answer = client.request(delete(id)).await;
        assert!(
            matches!(answer, Err(ClientError::Refused(Refusal::NotFound { .. }))),
            "{answer:?}"
        );
    };
    let id = block_on(async {
        let client = client(&group.addresses[leader]).await;
        let key = Nonce(7);
        let opened = client.request(Request::OpenClient { key }).await;
        let Ok(Reply::Client { number }) = opened else { panic!("{opened:?}") };
        let id = ClientId { number, key };
        assert_missing(&client, id).await;
        put(&client, 0).await;
        id
    });
    let moved = group.cli(leader, &["group", "move-leader"]);
    assert_eq!(moved.code, 0, "{moved}");
    let next = cluster::until("another member leads", SOON, || {
        Some(group.leader()).filter(|next| *next != leader)
    });
    block_on(async {
        let client = client(&group.addresses[next]).await;
        assert_missing(&client, id).await;
        assert_there(&client, 0..1).await;
    });
}

/// Commands of a few KiB, so that a round has several entries of the log, of which a new leader may
/// have the first ones only.
#[test]
fn rounds_of_several_entries_survive_moves_of_the_leadership() {
    let mut group = Group::start(3, &[]);
    let addresses = group.addresses.join(",");
    let (waves, puts) = (4, 800);
    for wave in 0..waves {
        let leader = group.leader();
        let storing = std::thread::scope(|scope| {
            let storing = scope.spawn(|| {
                block_on(async {
                    let client = client(&addresses).await;
                    let numbers = wave * puts..(wave + 1) * puts;
                    futures_util::future::join_all(numbers.map(|it| put_large(&client, it))).await;
                });
            });
            let moved = group.cli(leader, &["group", "move-leader"]);
            assert_eq!(moved.code, 0, "{moved}");
            storing.join()
        });
        storing.expect("all are stored");
    }
    let leader = group.leader();
    block_on(async {
        assert_there(&client(&group.addresses[leader]).await, 0..waves * puts).await;
    });
    for (place, member) in group.members.iter_mut().enumerate() {
        let server = member.as_mut().expect("it runs");
        assert!(server.ended().is_none(), "member {place} has ended: {}", server.log());
    }
}

#[test]
fn member_that_lost_its_directory_joins_again_and_gets_everything() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    block_on(async {
        let client = client(&group.addresses[leader]).await;
        for number in 0..20 {
            put(&client, number).await;
        }
    });
    let lost = group.running().find(|place| *place != leader).expect("another runs");
    group.kill(lost);
    let catalog = group.catalog(lost);
    std::fs::remove_dir_all(catalog).expect("removed");
    let (own, join) = (group.addresses[lost].clone(), group.addresses[leader].clone());
    group.members[lost] = Some(group.spawn(lost, &own, Some(&join), &[]));
    group.until_voters(3);
    group.kill(leader);
    let next = group.leader();
    block_on(async { assert_there(&client(&group.addresses[next]).await, 0..20).await });
}

#[test]
fn namenode_joins_neither_itself_nor_with_a_catalog_of_its_own() {
    let group = Group::start(1, &[]);
    let join = |directory: &str, listen: &str, address: &str| {
        let catalog = text(group.directory.path().join(directory));
        let words = ["namenode", "--listen", listen, "--http", "none", "--dir", &catalog];
        run(sanderling().args(words).args(["--exit-with-parent", "--join", address]))
    };
    let port = Port::new();
    let own = port.address();
    let refused = join("itself", &own, &own);
    assert_ne!(refused.code, 0, "{refused}");
    assert!(refused.stderr.contains("is the address of this namenode itself"), "{refused}");
    let other = Group::start(1, &[]);
    block_on(async { put(&client(&other.addresses[0]).await, 0).await });
    let mut other = other;
    other.kill(0);
    let catalog = text(other.directory.path().join("catalog-0"));
    let refused = join(&catalog, "127.0.0.1:0", &group.addresses[0]);
    assert_ne!(refused.code, 0, "{refused}");
    assert!(refused.stderr.contains("has a catalog already"), "{refused}");
    // An orderly answer about the group that is none.
    let alone = group.cli(0, &["group", "move-leader"]);
    assert_ne!(alone.code, 0, "{alone}");
    assert!(alone.stderr.contains("this namenode is alone"), "{alone}");
}

/// No member reports the removal to it until it calls for votes itself.
#[test]
fn member_that_was_removed_while_it_was_away_ends_when_it_comes_back() {
    let mut group = Group::start(3, &[]);
    let leader = group.leader();
    let away = (leader + 1) % 3;
    group.kill(away);
    let number = (away + 1).to_string();
    let removed = group.cli(leader, &["group", "remove", &number]);
    assert_eq!(removed.code, 0, "{removed}");
    group.restart(away);
    let mut back = group.members[away].take().expect("it was started");
    assert!(!back.wait(SOON).success(), "a removed member serves no more");
    assert!(back.log().contains("removed from its group"), "{}", back.log());
    assert_eq!(group.roles(leader).len(), 2);
}

/// There was no other one before.
#[test]
fn first_manager_of_a_group_is_not_logged_as_another_one() {
    let group = Group::start(3, &[]);
    let logs = || group.members.iter().flatten().map(cluster::Server::log).collect::<String>();
    cluster::until("its manager leads", SOON, || {
        let is_there = |line: &str| logs().contains(line);
        (is_there("a manager leads from now on") && is_there("this manager leads")).then_some(())
    });
    assert!(!logs().contains("another manager"), "{}", logs());
}
