//! A group whose members authenticate one another: it goes on when the secret is replaced, and
//! when the tokens end that its connections began with.

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
use sanderling_protocol::Token;
use sanderling_protocol::message::Role;
use sanderling_transport::{Credentials, TokenSource};

/// Lets each member lead, so that each has connections to all others.
fn lead_in_turn(guarded: &Guarded) {
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
