//! A group whose members authenticate one another: it goes on when the secret is replaced, and
//! when the tokens end that its connections began with. A member that is cut off accepts no token
//! that may have been revoked.

#[path = "../clock/mod.rs"]
mod clock;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::cluster::guarded::text;
use crate::cluster::http;
use crate::cluster::namenodes::{config, put};
use crate::cluster::{SOON, block_on, run, sanderling, until};
use crate::rogue_members::{Guarded, RogueMember};
use clock::Clock;
use sanderling_client::{Client, ClientConfig};
use sanderling_namenode::{group_page, notice_member};
use sanderling_protocol::message::Role;
use sanderling_protocol::{Refusal, Token};
use sanderling_transport::{CallError, Credentials, TokenSource};

/// What each member answers by itself: method, page and body.
const OF_A_MEMBER: [(&str, &str, &str); 4] = [
    ("GET", "/metrics", ""),
    ("GET", "/v1/group", ""),
    ("PUT", "/v1/log", r#"{"filter": "info"}"#),
    ("DELETE", "/v1/notice", ""),
];

/// Lets each member lead, so that each has connections to all others.
pub(crate) fn lead_in_turn(guarded: &Guarded) {
    let address = &guarded.group.addresses[0];
    let leads = |number: u64| {
        let page = guarded.page(0);
        let mut rows = page["members"].as_array().into_iter().flatten();
        rows.any(|row| row["id"] == number && row["role"] == "Leader")
    };
    for number in [2, 3, 1] {
        until(&format!("member {number} leads"), SOON, || {
            let (id, admin) = (number.to_string(), &guarded.admin);
            let words = ["group", "move-leader", &id, "--namenode", address];
            let is_done = leads(number);
            if !is_done {
                run(sanderling().args(words).env("SANDERLING_TOKEN", admin));
            }
            is_done.then_some(())
        });
    }
}

/// Stores a value through the group, and waits until every member has it.
fn assert_goes_on(guarded: &Guarded, token: &Token, number: u64) {
    block_on(async {
        let token = Some(TokenSource::Given(token.clone()));
        let credentials = Credentials { token, tls: None };
        let config = ClientConfig { credentials, ..config() };
        let stored = tokio::time::timeout(SOON, async {
            let addresses = guarded.group.addresses.join(",");
            put(&Client::connect(&addresses, config).await.expect("one leads"), number).await;
        });
        stored.await.expect("the group goes on");
    });
    let pages = guarded.group.members.iter().flatten().map(|it| it.http_address.clone());
    let pages: Vec<String> = pages.collect();
    until("all members have everything", SOON, || {
        let commands = |page: &String| {
            let health = block_on(http::get(page, "/healthz"));
            health["commands"].as_u64().expect("a number")
        };
        let all: Vec<u64> = pages.iter().map(commands).collect();
        all.iter().all(|it| *it == all[0]).then_some(())
    });
}

/// Replaces the secrets of all members as an operator does, at once.
fn replace(guarded: &Guarded, secrets: &[&str]) {
    let next = format!("{}.replaced", guarded.secret);
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next);
    let written = file.and_then(|mut it| it.write_all(secrets.concat().as_bytes()));
    written.and_then(|()| fs::rename(&next, &guarded.secret)).expect("replaced");
}

/// Waits until every member has read its secrets so often since it started.
fn until_read(guarded: &Guarded, times: usize) {
    for member in guarded.group.members.iter().flatten() {
        until(&format!("{} has read its secrets {times} times", member.name), SOON, || {
            let read = member.log().matches("the secret was read again").count();
            (read >= times).then_some(())
        });
    }
}

/// Checks that no member has refused another one's token: each connection was replaced before.
fn assert_none_refused(guarded: &Guarded) {
    for member in guarded.group.members.iter().flatten() {
        let log = member.log();
        assert!(!log.contains("does not accept this namenode's token"), "{}: {log}", member.name);
    }
}

fn until_accepted(guarded: &Guarded, token: &Token, is_accepted: bool) {
    for address in &guarded.group.addresses {
        until(&format!("{address} accepts a token: {is_accepted}"), SOON, || {
            let greeted = block_on(RogueMember::connect(address, Role::Client, Some(token)));
            (greeted.is_ok() == is_accepted).then_some(())
        });
    }
}

#[test]
fn secret_of_a_group_is_replaced_and_its_members_go_on() {
    let mut guarded = Guarded::start(Vec::new());
    guarded.settled();
    lead_in_turn(&guarded);
    let next = text(guarded.group.directory.path().join("next"));
    let made = run(sanderling().args(["token", "secret", "--out", &next]));
    assert_eq!(made.code, 0, "{made}");
    let words = ["token", "new", "--secret-file", &next, "-q", "--cluster", "any"];
    let made = run(sanderling().args(words).args(["--role", "admin"]));
    assert_eq!(made.code, 0, "{made}");
    let (new, old) = (Token::new(&made.stdout), guarded.token(&["--role", "admin"]));
    let read = |path: &str| fs::read_to_string(path).expect("written");
    let (first, second) = (read(&guarded.secret), read(&next));
    replace(&guarded, &[&first, &second]);
    until_read(&guarded, 1);
    until_accepted(&guarded, &new, true);
    guarded.admin = new.reveal().to_owned();
    replace(&guarded, &[&second, &first]);
    until_read(&guarded, 2);
    // A message over each connection, which is replaced then.
    lead_in_turn(&guarded);
    assert_goes_on(&guarded, &new, 1);
    replace(&guarded, &[&second]);
    until_read(&guarded, 3);
    until_accepted(&guarded, &old, false);
    lead_in_turn(&guarded);
    assert_goes_on(&guarded, &new, 2);
    assert_none_refused(&guarded);
}

/// Starts a group whose members have connections to one another, and for which time passes with a
/// clock. Returns it with a token of an operator that holds for four days.
fn with_clock(clock: &Clock) -> (Guarded, Token) {
    let mut variables = clock.variables();
    variables.push(("WRONG_UPTIME", PathBuf::from("1")));
    let mut guarded = Guarded::start(variables);
    guarded.settled();
    let token = guarded.token(&["--role", "admin", "--expires", "96h"]);
    guarded.admin = token.reveal().to_owned();
    lead_in_turn(&guarded);
    assert_goes_on(&guarded, &token, 1);
    (guarded, token)
}

/// Lets so many hours pass since the start. A connection that is being made meanwhile would be
/// given up, so this waits until the group is at rest.
fn pass(clock: &Clock, guarded: &Guarded, hours: i64) {
    guarded.settled();
    clock.set_hours(hours);
}

#[test]
fn connections_of_a_group_are_replaced_before_their_tokens_end() {
    let Some(clock) = Clock::ahead_by_hours(0) else { return eprintln!("SKIPPED: no C compiler") };
    let (guarded, token) = with_clock(&clock);
    // A server's own token holds for a day: of half a day's age, each connection is replaced.
    pass(&clock, &guarded, 13);
    lead_in_turn(&guarded);
    assert_goes_on(&guarded, &token, 2);
    pass(&clock, &guarded, 25);
    lead_in_turn(&guarded);
    assert_goes_on(&guarded, &token, 3);
    assert_none_refused(&guarded);
}

#[test]
fn group_goes_on_when_the_tokens_of_its_connections_have_ended() {
    let Some(clock) = Clock::ahead_by_hours(0) else { return eprintln!("SKIPPED: no C compiler") };
    let (guarded, token) = with_clock(&clock);
    // A server's own token holds for a day.
    for (day, hours) in [(1, 25), (2, 50)] {
        pass(&clock, &guarded, hours);
        assert_goes_on(&guarded, &token, 1 + day);
    }
}

/// Returns a member's answers to what it answers by itself, with a token.
fn answers(guarded: &Guarded, place: usize, token: &Token) -> Vec<String> {
    let address = &guarded.group.members[place].as_ref().expect("it runs").http_address;
    let answer = |(method, target, body)| {
        block_on(http::send(address, (method, target), Some(token.reveal()), body))
    };
    OF_A_MEMBER.map(answer).into()
}

/// Waits until a member answers with this status all that it answers by itself.
pub(crate) fn until_answered(guarded: &Guarded, place: usize, token: &Token, status: u16) {
    let begin = format!("HTTP/1.1 {status} ");
    until(&format!("member {place} answers with {status}"), SOON, || {
        let answers = answers(guarded, place, token);
        answers.iter().all(|answer| answer.starts_with(&begin)).then_some(())
    });
}

/// Checks that a member refuses a token for now, over HTTP and in frames of the group.
pub(crate) fn assert_refused_for_now(guarded: &Guarded, place: usize, token: &Token) {
    for answer in answers(guarded, place, token) {
        let is_refused = answer.starts_with("HTTP/1.1 503 ") && answer.contains("RetryAfter");
        assert!(is_refused, "{answer}");
    }
    let token = Some(TokenSource::Given(token.clone()));
    let (address, credentials) =
        (&guarded.group.addresses[place], Credentials { token, tls: None });
    let shown = block_on(group_page(address, &credentials)).map(drop);
    let given = block_on(notice_member(address, &credentials, || None, ""));
    for answer in [shown, given] {
        let is_refused = matches!(answer, Err(CallError::Refused(Refusal::RetryAfter { .. })));
        assert!(is_refused, "{answer:?}");
    }
}

/// Starts a member that was killed again, on its directory and port.
pub(crate) fn restart(guarded: &mut Guarded, place: usize) {
    let flags = ["--secret-file", guarded.secret.as_str()];
    let address = guarded.group.addresses[place].clone();
    let server = guarded.group.spawn(place, &address, None, &flags);
    guarded.group.members[place] = Some(server);
}

/// The others may have revoked it, and be gone since.
#[test]
fn member_that_no_leader_reaches_accepts_no_token_that_may_have_been_revoked() {
    let mut guarded = Guarded::start(Vec::new());
    guarded.settled();
    let [left, stays] =
        ["left", "stays"].map(|subject| guarded.token(&["--role", "admin", "--subject", subject]));
    for place in 0..3 {
        until_answered(&guarded, place, &left, 200);
    }
    // A member that runs stops to accept tokens a while after the others are gone.
    let (cut, others) = (2, [0, 1]);
    others.iter().for_each(|place| guarded.group.kill(*place));
    until_answered(&guarded, cut, &stays, 503);
    assert_refused_for_now(&guarded, cut, &left);
    // The members are let in by one another, and go on.
    others.iter().for_each(|place| restart(&mut guarded, *place));
    until_answered(&guarded, cut, &stays, 200);
    guarded.settled();
    // One that was away has not received what the others have revoked meanwhile.
    guarded.group.kill(cut);
    let addresses = guarded.group.addresses[..2].join(",");
    let words = ["token", "revoke", "--subject", "left", "--namenode", &addresses];
    until("the others revoke it", SOON, || {
        let revoked = run(sanderling().args(words).env("SANDERLING_TOKEN", &guarded.admin));
        (revoked.code == 0).then_some(())
    });
    others.iter().for_each(|place| guarded.group.kill(*place));
    restart(&mut guarded, cut);
    for token in [&left, &stays] {
        assert_refused_for_now(&guarded, cut, token);
    }
    let health = &guarded.group.members[cut].as_ref().expect("it runs").http_address;
    assert_eq!(block_on(http::get(health, "/healthz"))["status"], "no_leader");
    others.iter().for_each(|place| restart(&mut guarded, *place));
    until_answered(&guarded, cut, &left, 401);
    until_answered(&guarded, cut, &stays, 200);
}
