//! Reads at a leader whose lease has ended, for which the other members confirm that it leads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{Header, Op, Refusal, Reply, Request};
use sanderling_transport::Connection;

use crate::cluster::namenodes::{Group, client, put};
use crate::cluster::{SOON, block_on, path};

type Answer = Vec<Result<Reply, Refusal>>;

/// A lease counts from when its message was sent, and ends within this time.
const LEASE_MAX: Duration = Duration::from_millis(380);

/// More reads than a leader has rounds under way.
const CONNECTIONS: usize = 8;
const READS_OF_EACH: usize = 200;

async fn connect(address: &str) -> Connection {
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let limit = tokio::time::Instant::now() + SOON;
    Connection::connect(address, hello, limit).await.expect("it serves").0
}

async fn read(connection: Connection, answered: Arc<AtomicUsize>) -> Answer {
    let requests = Vec::from([Request::Stat { path: path("/0") }]);
    let body = vec![Bytes::from(encode_body(&requests))];
    let limit = tokio::time::Instant::now() + SOON;
    let answer = connection.call(Header::new(Op::Meta, 0), body, limit).await.expect("an answer");
    answered.fetch_add(1, Ordering::Relaxed);
    decode_body(&answer.body).expect("it is of the protocol")
}

fn term(group: &Group) -> u64 {
    let page = group.cli(group.leader(), &["group", "ls", "--json"]).stdout;
    let page: serde_json::Value = serde_json::from_str(&page).expect("JSON");
    page["term"].as_u64().expect("a term")
}

/// Sends all reads while the leader has no lease and its followers stand still. Returns the
/// answers, and whether none came before the followers went on.
fn reads_without_a_lease(group: &Group, leader: usize) -> (Vec<Answer>, bool) {
    let server = |place: usize| group.members[place].as_ref().expect("it runs");
    let others = || (0..3).filter(|place| *place != leader);
    block_on(async {
        let address = &group.addresses[leader];
        let connections = join_all((0..CONNECTIONS).map(|_| connect(address))).await;
        let answered = Arc::new(AtomicUsize::new(0));
        others().for_each(|place| server(place).pause());
        tokio::time::sleep(LEASE_MAX).await;
        let of = |connection: &Connection| {
            let reads = (0..READS_OF_EACH).map(|_| read(connection.clone(), Arc::clone(&answered)));
            reads.collect::<Vec<_>>()
        };
        let reads: Vec<_> = connections.iter().flat_map(of).collect();
        let reads = tokio::spawn(join_all(reads));
        // They arrive. Without an answer the leader gives up 400 ms after it had the last one, or
        // later.
        tokio::time::sleep(Duration::from_millis(40)).await;
        let are_held = answered.load(Ordering::Relaxed) == 0;
        others().for_each(|place| server(place).resume());
        (reads.await.expect("no read panics"), are_held)
    })
}

/// One message to each member confirms all reads that came before it.
#[test]
fn reads_that_wait_for_the_quorum_are_all_answered_by_a_leader_that_goes_on() {
    let group = Group::start(3, &[]);
    block_on(async { put(&client(&group.addresses.join(",")).await, 0).await });
    let limit = Instant::now() + 3 * SOON;
    let mut held = 0;
    while held < 3 {
        assert!(Instant::now() < limit, "the leader goes on in one of some attempts: {held}");
        let (leader, before) = (group.leader(), term(&group));
        let (answers, are_held) = reads_without_a_lease(&group, leader);
        // A leader that gave up leads only in a later term.
        if term(&group) != before {
            continue;
        }
        for answer in &answers {
            assert!(matches!(answer[..], [Ok(Reply::Stat(_))]), "{answer:?}");
        }
        assert_eq!(answers.len(), CONNECTIONS * READS_OF_EACH);
        held += usize::from(are_held);
    }
}
