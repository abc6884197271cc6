//! Look-ups of datanodes that the leader does not answer: what they show of it concerns no other
//! call.

use crate::cluster::namenodes::{Group, client, until_up};
use crate::cluster::relay::Relay;
use crate::cluster::{SOON, block_on, bytes_of, path, until};
use crate::late_messages::seen;
use sanderling_client::PutOptions;
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::{Header, Op, Request};
use tokio::runtime::Runtime;

/// How often the test begins anew: on a busy machine the leadership moves by itself, and then
/// heartbeats go to other members.
const ATTEMPTS: usize = 5;

const LOOK_UP: &str = "a look-up of ends";
const HEARTBEAT: &str = "a heartbeat";

/// Returns whether one of the requests of a frame is of this kind.
fn has(header: &Header, body: &[u8], is_meant: fn(&Request) -> bool) -> bool {
    let requests = || decode_body::<Vec<Request>>(body).unwrap_or_default();
    header.op == Op::Meta && requests().iter().any(is_meant)
}

/// Chooses look-ups of the ends of blocks.
fn look_up(header: &Header, body: &[u8]) -> Option<String> {
    let is_look_up = has(header, body, |it| matches!(it, Request::CountedBlocks { .. }));
    is_look_up.then(|| LOOK_UP.to_owned())
}

/// Chooses these, and heartbeats.
fn look_up_or_heartbeat(header: &Header, body: &[u8]) -> Option<String> {
    let is_heartbeat = |it: &Request| matches!(it, Request::Heartbeat(_) | Request::Beat(_));
    let is_beat = has(header, body, is_heartbeat);
    is_beat.then(|| HEARTBEAT.to_owned()).or_else(|| look_up(header, body))
}

/// The leader answers everything else. A look-up that it does not answer in time goes to another
/// member; heartbeats would follow it there if both had one view of the group.
#[test]
fn look_up_that_the_leader_does_not_answer_sends_no_heartbeat_to_another_member() {
    let relaying = Runtime::new().expect("a runtime");
    let is_shown = (0..ATTEMPTS).any(|_| {
        let group = Group::start(3, &[]);
        let leader = group.leader();
        let before = seen(&group, leader);
        let others = [1, 2].map(|step| &group.addresses[(leader + step) % 3]);
        let slow = relaying.block_on(Relay::before(&group.addresses[leader], look_up));
        let begin = |other| relaying.block_on(Relay::before(other, look_up_or_heartbeat));
        let others = others.map(|other: &String| begin(other.as_str()));
        let addresses = [&slow, &others[0], &others[1]].map(|relay| relay.address.clone());
        let _datanode = group.datanode("d0", &addresses.join(","), &[]);
        until_up(&group.addresses[leader], 1);
        slow.close();
        others.iter().for_each(Relay::close);
        // A block whose end the datanode does not have.
        block_on(async {
            let client = client(&group.addresses[leader]).await;
            let (to, bytes) = (path("/file"), bytes_of(1, 1 << 20));
            client.put(&to, bytes, &PutOptions::default()).await.expect("stored");
        });
        let held = || others.iter().flat_map(Relay::all_held).collect::<Vec<String>>();
        until("a look-up goes to another member", SOON, || held().pop());
        let is_same = seen(&group, leader) == before;
        if is_same {
            assert!(!slow.all_held().is_empty(), "the leader has not got the first look-up");
            assert!(held().iter().all(|what| what == LOOK_UP), "{:?}", held());
        }
        is_same
    });
    assert!(is_shown, "the leadership has moved each time");
}
