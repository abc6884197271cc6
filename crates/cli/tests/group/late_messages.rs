//! Messages that come late: orders of a leader that another one has followed, and votes of an
//! election that has ended.

use std::time::{Duration, Instant};

use crate::cluster::namenodes::{Group, client, put};
use crate::cluster::relay::{RELAY_HOST, Relay};
use crate::cluster::{SOON, block_on, http, run, sanderling, until};
use bytes::Bytes;
use sanderling_core::replica::{Body, Envelope};
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::{Header, Op, Order};
use serde_json::Value;
use tokio::runtime::Runtime;

/// How often a test begins anew: where the machine is busy, the leadership moves by itself, or too
/// late.
const ATTEMPTS: usize = 5;

fn page(group: &Group, place: usize) -> Value {
    let listed = group.cli(place, &["group", "ls", "--json"]);
    serde_json::from_str(&listed.stdout).unwrap_or_default()
}

/// Returns the term of a member, and the address of the one that it takes for the leader.
pub(crate) fn seen(group: &Group, place: usize) -> (u64, String) {
    let page = page(group, place);
    let mut rows = page["members"].as_array().into_iter().flatten();
    let leader = rows.find(|row| row["role"] == "Leader").and_then(|row| row["address"].as_str());
    (page["term"].as_u64().unwrap_or(0), leader.unwrap_or_default().to_owned())
}

/// Orders the leader to let the member at another place lead. Returns whether that comes about.
fn move_to(group: &Group, leader: usize, place: usize) -> bool {
    // Members have the numbers in which they joined.
    let number = (place + 1).to_string();
    group.cli(leader, &["group", "move-leader", &number]).code == 0
}

/// Returns what a relay has held back since it had so much: the terms.
fn terms(relay: &Relay, before: usize) -> Vec<u64> {
    let held = relay.all_held().split_off(before);
    held.iter().map(|term| term.parse().expect("it was one")).collect()
}

/// Chooses orders to fence a node: returns the term of the leader.
fn fence_of_a_node(header: &Header, body: &[u8]) -> Option<String> {
    if header.op != Op::Order {
        return None;
    }
    match decode_body(body) {
        Ok(Order::FenceNode { .. }) => Some(header.offset.to_string()),
        _ => None,
    }
}

/// The leader between the two takes the reason of the order back.
#[test]
fn leader_that_leads_again_gives_no_order_of_its_former_term() {
    /// An order without an answer is sent again after this time and a pause of 50 ms.
    const ORDER_WITHIN: Duration = Duration::from_secs(2);
    /// Leads again before that, also if the order was sent a while before it was seen.
    const BACK_WITHIN: Duration = Duration::from_millis(1500);
    let relaying = Runtime::new().expect("a runtime");
    let group = Group::start(3, &[]);
    let all = group.addresses.join(",");
    let relay = relaying.block_on(Relay::before_advertised(fence_of_a_node));
    let flags = ["--listen", &relay.server, "--advertise", RELAY_HOST];
    let datanode = group.datanode("d0", &all, &flags);
    let node = |words: &[&str]| run(sanderling().args(words).args(["--namenode", &all]));
    let cancel = || node(&["node", "cancel", "d0"]);
    let is_shown = (0..ATTEMPTS).any(|_| {
        relay.open();
        // Of an attempt before.
        cancel();
        until("the node takes writes", SOON, || {
            let health = block_on(http::get(&datanode.http_address, "/healthz"));
            (health["is_fenced"] == false).then_some(())
        });
        let (leader, before) = (group.leader(), relay.all_held().len());
        let (other, former) = ((leader + 1) % 3, seen(&group, leader).0);
        relay.close();
        let noticed = node(&["node", "notice", "d0", "--deadline", "1h", "--yes"]);
        assert_eq!(noticed.code, 0, "{noticed}");
        until("it is ordered to fence", SOON, || (!terms(&relay, before).is_empty()).then_some(()));
        let sent = Instant::now();
        let is_moved = terms(&relay, before)[0] == former && move_to(&group, leader, other);
        let cancelled = cancel();
        assert_eq!(cancelled.code, 0, "{cancelled}");
        if !is_moved || !move_to(&group, other, leader) || sent.elapsed() >= BACK_WITHIN {
            return false;
        }
        let term = seen(&group, leader).0;
        // In this time the order would be sent again.
        while sent.elapsed() < 2 * ORDER_WITHIN {
            let given = terms(&relay, before);
            assert!(given.iter().all(|given| *given < term), "{given:?}, {term} by now");
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    });
    if !is_shown {
        eprintln!("SKIPPED: the leadership does not move twice within {BACK_WITHIN:?} here");
    }
}

/// Chooses votes, but for those that only would be given: returns their term.
fn vote(header: &Header, body: &[u8]) -> Option<String> {
    if header.op != Op::Group {
        return None;
    }
    // The first kind of a frame of the group, where its sender is, and the message.
    let (0, _, message) = decode_body::<(u32, String, Bytes)>(body).ok()? else { return None };
    let Envelope { term, body, .. } = Envelope::decode(&message).ok()?;
    let is_vote = matches!(body, Body::VoteAnswer { is_pre: false, is_granted: true, .. });
    is_vote.then(|| term.to_string())
}

/// Waits until the member at a place has all that was agreed.
fn until_even(group: &Group, place: usize) {
    until("it has everything", SOON, || {
        let page = page(group, group.leader());
        let mut rows = page["members"].as_array()?.iter();
        let row = rows.find(|row| row["address"] == group.addresses[place])?;
        (row["behind_entries"] == 0 || row["role"] == "Leader").then_some(())
    });
}

/// A member gets the votes of a majority when another one leads in a later term.
#[test]
fn votes_that_come_after_their_election_change_nothing() {
    let relaying = Runtime::new().expect("a runtime");
    let (mut group, mut relays) = (Group::start(0, &[]), Vec::new());
    for place in 0..3 {
        let relay = relaying.block_on(Relay::before_advertised(vote));
        let first = group.addresses.first().cloned();
        group.add(&relay.server, first.as_deref(), &["--advertise", RELAY_HOST]);
        group.addresses[place].clone_from(&relay.address);
        relays.push(relay);
    }
    group.until_voters(3);
    let all = group.addresses.join(",");
    let is_unchanged = (0..ATTEMPTS).any(|attempt| {
        let leader = group.leader();
        let other = (leader + 1) % 3;
        let (relay, before) = (&relays[other], relays[other].all_held().len());
        relay.close();
        assert!(!move_to(&group, leader, other), "it leads without a vote of another member");
        let leader = group.leader();
        let (term, address) = seen(&group, leader);
        let is_late = terms(relay, before).iter().any(|vote| *vote < term);
        relay.open();
        // What comes behind them over the same connection is there when the member has this.
        block_on(async { put(&client(&all).await, attempt as u64).await });
        until_even(&group, other);
        let is_same = |place: usize| seen(&group, place) == (term, address.clone());
        is_late && (0..3).all(is_same)
    });
    assert!(is_unchanged, "the leader or its term was another one each time");
}
