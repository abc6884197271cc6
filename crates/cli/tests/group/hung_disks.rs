//! Members of a group whose disk hangs: what needs no disk goes on, at such a member and in the
//! group.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sanderling_client::{Client, ClientConfig};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{Header, Op, Refusal, Reply, Request};
use sanderling_transport::{Connection, Credentials, TokenSource};
use serde_json::Value;
use tokio::time::timeout;

use crate::cluster::namenodes::{Group, assert_there, client, config, put};
use crate::cluster::{SOON, block_on, http, path, until};
use crate::disk::{Disks, Faults};
use crate::journals::lead;
use crate::rogue_members::Guarded;
use crate::secrets::{assert_refused_for_now, lead_in_turn, restart, until_answered};

/// Within this time a member answers what needs no disk, on a busy machine. A read at a leader that
/// hangs may wait for 2 s of it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// The name of the disk that hangs.
const DISK: &str = "hung";

/// Returns how a disk hangs, and how its member syncs its log. Under `os` writes hang, and a
/// follower writes a short entry on the thread that has received it.
fn hangs() -> [(&'static str, Faults); 2] {
    let syncs = Faults { sync_waits: true, ..Faults::default() };
    [("os", Faults { waits: true, ..syncs }), ("always", syncs)]
}

/// Starts a member again, on a disk that can be made to hang.
fn start_on_disk(group: &mut Group, disks: &Disks, place: usize, sync: &str) {
    group.kill(place);
    group.variables = disks.variables_of(DISK, "FAULTY_DIRECTORY", group.catalog(place));
    let address = group.addresses[place].clone();
    let server = group.spawn(place, &address, None, &["--sync", sync]);
    group.variables.clear();
    group.members[place] = Some(server);
    group.until_voters(3);
}

/// Puts five more values.
fn put_more(addresses: &str, stored: &mut u64) {
    let numbers = *stored..*stored + 5;
    *stored = numbers.end;
    block_on(async {
        let client = client(addresses).await;
        for number in numbers {
            put(&client, number).await;
        }
    });
}

/// Returns a member's answer to a request for a page.
fn page(group: &Group, place: usize, target: &str) -> String {
    let address = &group.members[place].as_ref().expect("it runs").http_address;
    block_on(async {
        let answer = timeout(ANSWERED_WITHIN, http::page(address, target)).await;
        answer.unwrap_or_else(|_| panic!("{target} is not answered in time"))
    })
}

fn is_ok(answer: &str) -> bool {
    answer.split(' ').nth(1) == Some("200")
}

/// Sends a request to one member over a new connection, and returns what that one answers.
fn answer_of(group: &Group, place: usize, request: Request) -> Result<Reply, Refusal> {
    let requests = Vec::from([request]);
    block_on(async {
        let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
        let limit = tokio::time::Instant::now() + ANSWERED_WITHIN;
        let connected = Connection::connect(&group.addresses[place], hello, limit).await;
        let (connection, _) = connected.expect("it greets in time");
        let body = vec![Bytes::from(encode_body(&requests))];
        let answer = connection.call(Header::new(Op::Meta, 0), body, limit).await;
        let answer = answer.expect("it answers in time");
        let answers = decode_body::<Vec<Result<Reply, Refusal>>>(&answer.body);
        answers.expect("it is of the protocol").pop().expect("one for each request")
    })
}

/// Checks that a member that does not lead answers what it answers by itself.
fn assert_answers(group: &Group, place: usize) {
    for _ in 0..5 {
        for target in ["/healthz", "/metrics", "/v1/group"] {
            let answer = page(group, place, target);
            assert!(is_ok(&answer), "{target}: {answer}");
        }
        let members = answer_of(group, place, Request::Members);
        assert!(matches!(members, Ok(Reply::Members(_))), "{members:?}");
        let stat = answer_of(group, place, Request::Stat { path: path("/0") });
        assert!(matches!(stat, Err(Refusal::NotLeader { .. })), "{stat:?}");
    }
}

/// Returns how the leader sees a member.
fn seen(group: &Group, place: usize) -> Option<Value> {
    let page = group.cli(group.leader(), &["group", "ls", "--json"]).stdout;
    let page: Value = serde_json::from_str(&page).ok()?;
    let mut rows = page["members"].as_array()?.iter();
    rows.find(|row| row["address"] == *group.addresses[place]).cloned()
}

/// Waits until a member has all that the leader has.
fn until_current(group: &Group, place: usize) {
    until("the member has everything", SOON, || {
        let row = seen(group, place)?;
        let has_all = row["is_active"] == true && row["behind_entries"] == 0;
        (has_all || row["role"] == "Leader").then_some(())
    });
}

fn assert_none_has_ended(group: &mut Group) {
    for server in group.members.iter_mut().flatten() {
        assert!(server.ended().is_none(), "{} has ended: {}", server.name, server.log());
    }
}

/// The thread that writes may be that of a connection, and the one that waits for all others.
#[test]
fn member_whose_disk_hangs_answers_what_needs_no_disk_and_the_group_goes_on() {
    let mut group = Group::start(3, &[]);
    let Some(disks) = Disks::build(group.directory.path()) else {
        return eprintln!("SKIPPED: no C compiler makes the disk that hangs");
    };
    let (all, leader) = (group.addresses.join(","), group.leader());
    let place = (leader + 1) % 3;
    let mut stored = 0;
    for (sync, faults) in hangs() {
        start_on_disk(&mut group, &disks, place, sync);
        // Which thread writes is chance.
        for _ in 0..3 {
            lead(&group, leader);
            disks.set(DISK, faults);
            put_more(&all, &mut stored);
            until("its leader gets no answers", SOON, || {
                (seen(&group, place)?["is_active"] == false).then_some(())
            });
            assert_answers(&group, place);
            until("it passes a page on to the leader", SOON, || {
                is_ok(&page(&group, place, "/v1/nodes")).then_some(())
            });
            put_more(&all, &mut stored);
            disks.set(DISK, Faults::default());
            until_current(&group, place);
        }
    }
    assert_none_has_ended(&mut group);
    lead(&group, place);
    block_on(async { assert_there(&client(&group.addresses[place]).await, 0..stored).await });
}

/// It sends nothing while it writes, so the others elect another one. It does not find out.
#[test]
fn leader_whose_disk_hangs_is_followed_refuses_callers_and_catches_up_when_it_goes_on() {
    let mut group = Group::start(3, &[]);
    let Some(disks) = Disks::build(group.directory.path()) else {
        return eprintln!("SKIPPED: no C compiler makes the disk that hangs");
    };
    let (all, place) = (group.addresses.join(","), group.leader());
    let other = (place + 1) % 3;
    let mut stored = 0;
    for (sync, faults) in hangs() {
        start_on_disk(&mut group, &disks, place, sync);
        lead(&group, place);
        put_more(&all, &mut stored);
        let address = group.members[place].as_ref().expect("it runs").http_address.clone();
        let (stream, _) = http::follow(&address, "/v1/stream", " 200 ");
        disks.set(DISK, faults);
        let began = Instant::now();
        // The first one is in the log of the leader that hangs, or waits for it.
        put_more(&all, &mut stored);
        eprintln!("--sync {sync}: the values are stored after {:?}", began.elapsed());
        until("another member leads", SOON, || {
            group.leader_seen_by(other).filter(|leader| *leader != place)
        });
        assert_answers(&group, place);
        let nodes = page(&group, place, "/v1/nodes");
        assert!(nodes.contains("NotLeader"), "{nodes}");
        until("it shows that it leads no more", SOON, || {
            let shown = page(&group, place, "/healthz");
            let words = [r#""state":"follower""#, r#""standing":"follower""#];
            words.iter().all(|word| shown.contains(word)).then_some(())
        });
        http::ends(stream);
        put_more(&all, &mut stored);
        disks.set(DISK, Faults::default());
        until_current(&group, place);
        assert_none_has_ended(&mut group);
        lead(&group, place);
        block_on(async { assert_there(&client(&group.addresses[place]).await, 0..stored).await });
    }
}

/// Which tokens are revoked is in the log, of which such a member takes nothing.
#[test]
fn member_whose_disk_hangs_accepts_no_token_that_may_have_been_revoked() {
    let mut guarded = Guarded::start(Vec::new());
    guarded.settled();
    let Some(disks) = Disks::build(guarded.group.directory.path()) else {
        return eprintln!("SKIPPED: no C compiler makes the disk that hangs");
    };
    // The first one leads then.
    lead_in_turn(&guarded);
    let (token, place) = (guarded.token(&["--role", "admin"]), 2);
    guarded.group.kill(place);
    let catalog = guarded.group.catalog(place);
    guarded.group.variables = disks.variables_of(DISK, "FAULTY_DIRECTORY", catalog);
    restart(&mut guarded, place);
    guarded.group.variables.clear();
    guarded.settled();
    until_answered(&guarded, place, &token, 200);
    disks.set(DISK, Faults { waits: true, sync_waits: true, ..Faults::default() });
    let credentials = Credentials { token: Some(TokenSource::Given(token.clone())), tls: None };
    let (addresses, config) =
        (guarded.group.addresses[..2].join(","), ClientConfig { credentials, ..config() });
    // It is to write that.
    block_on(async {
        put(&Client::connect(&addresses, config).await.expect("one leads"), 1).await;
    });
    until_answered(&guarded, place, &token, 503);
    assert_refused_for_now(&guarded, place, &token);
    assert!(is_ok(&page(&guarded.group, place, "/healthz")));
    disks.set(DISK, Faults::default());
    until_answered(&guarded, place, &token, 200);
    assert_none_has_ended(&mut guarded.group);
}
