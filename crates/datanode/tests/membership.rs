//! Joining, staying, being given up, and the endpoints of the operator.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::collections::BTreeSet;
use std::error::Error;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::{self, Caller, Served, refusal, soon, until, until_answer, write_header};
use sanderling_datanode::{DatanodeFailure, DatanodeOptions, DatanodeServer, DatanodeStartError};
use sanderling_protocol::message::Wiped;
use sanderling_protocol::{
    BlockId, ClusterId, LogPosition, Millis, NodeId, Op, Order, OrderReply, Policy, Refusal, Term,
};
use sanderling_transport::Security;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout_at;

#[tokio::test]
async fn node_introduces_itself_and_reports_its_load() {
    let served = Served::start().await;
    let mut options = served.options();
    options.name = "tern".to_owned();
    options.host = "shore".to_owned();
    let server = DatanodeServer::start(options).await.unwrap();
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    served.namenode.next_beat(server.node()).await;
    let state = served.namenode.state.lock();
    let register = &state.registers[0];
    assert_eq!((register.name.as_str(), register.host.as_str()), ("tern", "shore"));
    assert_eq!(register.address, server.address().to_string());
    assert_eq!(register.http_address, server.http_address().unwrap().to_string());
    assert_eq!((register.tiers.len(), register.tiers[0].bytes), (1, 8 << 20));
    let load = state.heartbeats[&server.node()].1;
    assert_eq!((load.blocks, load.dram_used_bytes, load.written_bytes_total), (1, 4096, 3));
    assert_eq!(load.connections, 1);
    drop(caller);
}

#[tokio::test]
async fn node_reports_its_last_log_position_and_what_it_had_to_wipe() {
    let served = Served::start().await;
    let position = LogPosition { term: Term(5), index: 70 };
    served.namenode.state.lock().position = Some(position);
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    assert_eq!(served.namenode.state.lock().seen, [(None, None)]);
    let later = LogPosition { index: 90, ..position };
    served.namenode.state.lock().position = Some(later);
    served.namenode.next_beat(server.node()).await;
    let node = server.node();
    served.namenode.set_policy(node, Policy::Gone);
    until("another registration", || served.namenode.state.lock().seen.len() >= 2).await;
    let wiped = Wiped { node, blocks: 1, bytes: 4096 };
    assert_eq!(served.namenode.state.lock().seen[1], (Some(later), Some(wiped)));
}

#[tokio::test]
async fn namenode_of_another_term_gets_the_log_position_that_the_node_had_before() {
    let served = Served::start().await;
    let position = LogPosition { term: Term(5), index: 70 };
    served.namenode.state.lock().position = Some(position);
    let server = served.datanode().await;
    // Another process behind the same connection, whose log is shorter.
    let other = LogPosition { term: Term(6), index: 50 };
    served.namenode.state.lock().position = Some(other);
    until("another registration", || served.namenode.state.lock().seen.len() >= 2).await;
    served.namenode.next_beat(server.node()).await;
    assert_eq!(served.namenode.state.lock().seen[1..], [(Some(position), None)]);
    server.stop().await;
}

#[tokio::test]
async fn node_comes_back_to_a_namenode_that_restarted() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    caller.write(2, 0, b"abc").await.unwrap();
    let node = server.node();
    let (address, namenode) = served.stop().await;
    assert_eq!(caller.read(1, 1, 0, 3).await.unwrap(), "abc");
    {
        let mut state = namenode.state.lock();
        state.reported.clear();
        state.unwanted.insert(BlockId(2));
    }
    let served = Served::start_at(&address, namenode).await;
    until("a registration", || served.namenode.state.lock().registers.len() >= 2).await;
    let nonces: Vec<_> =
        served.namenode.state.lock().registers.iter().map(|it| (it.nonce, it.cluster)).collect();
    assert_eq!(nonces[0].0, nonces[1].0);
    assert_eq!(nonces[1].1, Some(harness::CLUSTER));
    until("a block report", || served.namenode.state.lock().reported.len() >= 2).await;
    until_answer("the unwanted block to go", || async { caller.held().await.len() == 1 }).await;
    assert_eq!(server.node(), node);
    assert_eq!(caller.read(1, 1, 0, 3).await.unwrap(), "abc");
    server.stop().await;
}

#[tokio::test]
async fn node_that_was_given_up_forgets_everything_and_joins_as_another() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    let old = server.node();
    served.namenode.set_policy(old, Policy::Gone);
    until("another incarnation", || server.node() != old && server.node().0 != 0).await;
    let refused = refusal(caller.call(write_header(Op::Write, 1, 1, 3, b"d"), b"d").await);
    assert!(matches!(refused, Err(Refusal::WrongNode { .. })), "{refused:?}");
    let new = Caller::new(&server);
    assert_eq!(new.held().await, []);
    let unknown = Refusal::UnknownBlock { block: BlockId(1) };
    assert_eq!(new.read(1, 1, 0, 3).await, Err(unknown));
    new.write(5, 0, b"anew").await.unwrap();
    let nonces: Vec<_> =
        served.namenode.state.lock().registers.iter().map(|register| register.nonce).collect();
    assert_ne!(nonces[0], nonces[nonces.len() - 1]);
    server.stop().await;
}

#[tokio::test]
async fn node_that_was_noticed_serves_old_copies_for_a_while_before_it_joins_again() {
    let served = Served::start().await;
    let options = DatanodeOptions {
        rejoin_after_notice: soon() - tokio::time::Instant::now(),
        ..served.options()
    };
    let server = DatanodeServer::start(options).await.unwrap();
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    let old = server.node();
    served.namenode.set_policy(old, Policy::Draining);
    served.namenode.next_beat(old).await;
    served.namenode.set_policy(old, Policy::Gone);
    let last = served.namenode.beats(old);
    until("a heartbeat", || served.namenode.beats(old) > last).await;
    assert_eq!(caller.read(1, 1, 0, 3).await.unwrap(), "abc");
    assert!(matches!(caller.write(2, 0, b"x").await, Err(Refusal::Moved { .. })));
    assert_eq!(server.node(), old);
    assert_eq!(served.namenode.state.lock().registers.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn node_that_was_given_up_before_its_welcome_came_joins_as_another_process() {
    let served = Served::start().await;
    // The namenode has logged the node, its answer was lost, and it has given the node up since.
    served.namenode.set_policy(NodeId(1), Policy::Gone);
    let server = served.datanode().await;
    assert_eq!(server.node(), NodeId(2));
    served.namenode.set_policy(NodeId(3), Policy::Gone);
    served.namenode.set_policy(NodeId(2), Policy::Gone);
    until("another incarnation", || server.node() == NodeId(4)).await;
    let nonces: BTreeSet<_> =
        served.namenode.state.lock().registers.iter().map(|register| register.nonce).collect();
    assert_eq!(nonces.len(), 4);
    server.stop().await;
}

#[tokio::test]
async fn late_order_does_not_lift_the_fence_of_a_node_that_was_given_up() {
    let served = Served::start().await;
    let options = DatanodeOptions {
        rejoin_after_notice: soon() - tokio::time::Instant::now(),
        ..served.options()
    };
    let server = DatanodeServer::start(options).await.unwrap();
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    let node = server.node();
    caller.order(Order::FenceNode { deadline_in: Some(Millis(60_000)) }).await;
    served.namenode.set_policy(node, Policy::Gone);
    until_answer("the policy", || async {
        http(&server, &get("/healthz")).await.contains("\"policy\":\"gone\"")
    })
    .await;
    assert_eq!(caller.order(Order::UnfenceNode).await, OrderReply::Done);
    assert!(matches!(caller.write(2, 0, b"x").await, Err(Refusal::Moved { .. })));
    assert_eq!(caller.read(1, 1, 0, 3).await.unwrap(), "abc");
    server.stop().await;
}

#[tokio::test]
async fn block_report_that_was_not_taken_is_sent_again_soon() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    let (address, namenode) = served.stop().await;
    {
        let mut state = namenode.state.lock();
        state.reported.clear();
        state.reports_to_refuse = 1;
    }
    let served = Served::start_at(&address, namenode).await;
    until("a block report", || served.namenode.state.lock().reported.len() == 1).await;
    assert_eq!(served.namenode.state.lock().reports_to_refuse, 0);
    server.stop().await;
}

#[tokio::test]
async fn namenode_that_cannot_list_expected_blocks_is_not_sent_everything_again() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    let (address, namenode) = served.stop().await;
    namenode.state.lock().is_older = Some(0);
    let served = Served::start_at(&address, namenode).await;
    until("the end of a report", || served.namenode.state.lock().is_older > Some(0)).await;
    // A report that the restart broke off is sent again, and one follows a registration; no other.
    let seen = || {
        let state = served.namenode.state.lock();
        (state.is_older, state.reported.len())
    };
    loop {
        let (before, beats) = (seen(), served.namenode.beats(server.node()));
        // Longer than a report waits that failed.
        until("many heartbeats", || served.namenode.beats(server.node()) > beats + 100).await;
        assert!(seen().1 <= 2, "{:?}", seen());
        if seen() == before {
            break;
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn namenode_of_another_cluster_ends_the_node_with_a_clear_error() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let (address, namenode) = served.stop().await;
    let other = ClusterId(0xbad);
    namenode.state.lock().cluster = Some(other);
    let served = Served::start_at(&address, namenode).await;
    let failure = timeout_at(soon(), server.failed()).await.unwrap();
    let wrong = Refusal::WrongCluster { here: other, asked: harness::CLUSTER };
    assert_eq!(failure, DatanodeFailure::Refused(wrong));
    server.stop().await;
    served.stop().await;
}

#[tokio::test]
async fn start_waits_for_the_namenode_but_not_for_ever() {
    let served = Served::start().await;
    let options = served.options();
    let (address, namenode) = served.stop().await;
    let timeouts = DatanodeOptions { start_time_max: Duration::ZERO, ..options.clone() };
    let refused = DatanodeServer::start(timeouts).await.unwrap_err();
    assert!(matches!(refused, DatanodeStartError::Unreachable { .. }), "{refused}");
    let system = refused.source().and_then(Error::source).and_then(Error::source);
    let system = system.and_then(|error| error.downcast_ref::<std::io::Error>());
    assert_eq!(system.map(|it| it.kind()), Some(ErrorKind::ConnectionRefused), "{refused}");
    let starting = tokio::spawn(DatanodeServer::start(options));
    let served = Served::start_at(&address, Arc::clone(&namenode)).await;
    let server = starting.await.unwrap().unwrap();
    server.stop().await;
    served.stop().await;
}

#[tokio::test]
async fn start_reports_what_is_wrong() {
    let served = Served::start().await;
    let good = served.options();
    let running = DatanodeServer::start(good.clone()).await.unwrap();
    let anywhere = "0.0.0.0:0".parse().unwrap();
    let missing = std::path::PathBuf::from("/does/not/exist");
    let disk = sanderling_datanode::DiskOptions { directory: missing, bytes: 1 << 20 };
    let cases = [
        (DatanodeOptions { listen: running.address(), ..good.clone() }, "is in use"),
        (DatanodeOptions { http_listen: Some(running.address()), ..good.clone() }, "is in use"),
        (DatanodeOptions { listen: anywhere, ..good.clone() }, "not be authenticated"),
        (
            DatanodeOptions {
                listen: anywhere,
                security: Security { allow_unauthenticated: true, ..Security::default() },
                ..good.clone()
            },
            "advertise",
        ),
        (DatanodeOptions { dram_bytes: 0, ..good.clone() }, "at least 4.00 KiB"),
        (DatanodeOptions { dram_bytes: 1 << 43, ..good.clone() }, "are available"),
        (DatanodeOptions { disk: Some(disk), ..good.clone() }, "/does/not/exist"),
    ];
    for (options, what) in cases {
        let error = DatanodeServer::start(options).await.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    running.stop().await;
}

async fn http(server: &DatanodeServer, request: &str) -> String {
    let mut stream = TcpStream::connect(server.http_address().unwrap()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout_at(soon(), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}

fn post_notice(query: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/notice{query} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn http_endpoint_serves_health_and_metrics_and_takes_notices() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let caller = Caller::new(&server);
    caller.write(1, 0, b"abc").await.unwrap();
    caller.write(1, 9, b"abc").await.unwrap_err();
    let health = http(&server, &get("/healthz")).await;
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("\"status\":\"ok\""), "{health}");
    let metrics = http(&server, &get("/metrics")).await;
    for line in [
        "sanderling_datanode_blocks 1\n",
        "sanderling_datanode_block_bytes 3\n",
        "sanderling_datanode_tier_used_bytes{tier=\"dram\"} 4096\n",
        "sanderling_datanode_traffic_bytes_total{direction=\"written\"} 3\n",
        "sanderling_datanode_requests_total{op=\"write\"} 2\n",
        "sanderling_datanode_refusals_total{kind=\"NotAtEnd\"} 1\n",
        "# EOF\n",
    ] {
        assert!(metrics.contains(line), "{line} is missing in {metrics}");
    }
    for body in [
        "{",
        "{}",
        "{\"deadline_seconds\":-1}",
        "{\"deadline_seconds\":0}",
        "{\"deadline_seconds\":1,\"reson\":\"\"}",
    ] {
        let answer = http(&server, &post_notice("", body)).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert!(served.namenode.state.lock().notices.is_empty());
    let body = "{\"deadline_seconds\":30,\"reason\":\"spot\"}";
    let answer = http(&server, &post_notice("", body)).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let notices = served.namenode.state.lock().notices.clone();
    let [(noticed, left, reason)] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!((noticed, reason.as_str()), (&server.node().to_string(), "spot"));
    assert!((1..=30_000).contains(left), "{left} ms");
    server.stop().await;
}

#[tokio::test]
async fn wait_for_a_drain_is_not_ended_by_the_end_of_a_cancelled_one() {
    let served = Served::start().await;
    let server = served.datanode().await;
    let (node, namenode) = (server.node(), &served.namenode);
    namenode.set_policy(node, Policy::Drained);
    until_answer("the end of the earlier drain", async || {
        http(&server, &get("/healthz")).await.contains("\"policy\":\"drained\"")
    })
    .await;
    // The namenode has cancelled that drain; the node's heartbeats have not returned it yet.
    namenode.state.lock().beat_policy = Some(Policy::Drained);
    namenode.set_policy(node, Policy::Active);
    let body = "{\"deadline_seconds\":60,\"reason\":\"spot\"}";
    let request = post_notice("?wait=true", body);
    let mut waits = Box::pin(http(&server, &request));
    tokio::select! {
        answer = &mut waits => panic!("it waits no more: {answer}"),
        () = until("two confirmations", || namenode.state.lock().listed >= 2) => {}
    }
    namenode.set_policy(node, Policy::Drained);
    let answer = waits.await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("\"policy\":\"drained\""), "{answer}");
    server.stop().await;
}
