//! Many datanodes as the namenode sees them: they register and send heartbeats with growing
//! counters, all on one connection. They hold no bytes and take no orders.

use std::time::Duration;

use bytes::Bytes;
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Heartbeat, Hello, Register, Role};
use sanderling_protocol::node::{Load, TierCapacity};
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{
    BlockId, Header, Millis, NodeId, Nonce, Op, Refusal, Reply, Request, Tier,
};
use sanderling_transport::Connection;
use tokio::time::Instant;

/// Every node's period, as real ones have it.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// Requests in one frame.
const FRAME_REQUESTS: usize = 100;

/// Datanodes without bytes.
pub(crate) struct Stubs {
    connection: Connection,
    nodes: Vec<(NodeId, Nonce)>,
}

impl Stubs {
    /// Registers so many nodes.
    pub(crate) async fn register(namenode: &str, count: u32) -> Self {
        let hello = Hello { role: Role::Datanode, cluster: None, node: None, token: None };
        let deadline = Instant::now() + super::SOON;
        let connected = Connection::connect(namenode, hello, deadline).await;
        let (connection, _) = connected.expect("the namenode serves");
        let mut stubs = Self { connection, nodes: Vec::new() };
        let register = |at: u32| Register {
            cluster: None,
            nonce: Nonce(u64::from(at) + 1),
            name: format!("stub-{at}"),
            address: format!("10.{}.{}.1:7700", at / 250, at % 250),
            http_address: String::new(),
            host: format!("host-{at}"),
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 64 << 30 }],
            notice_min: Some(Millis::from_secs(120)),
            egress_bytes_per_second: Some(1 << 30),
        };
        let requests = (0..count).map(|at| Request::Register(register(at))).collect();
        for (reply, at) in stubs.send(requests).await.into_iter().zip(1..) {
            let Reply::Registered(registered) = reply else { panic!("{reply:?}") };
            stubs.nodes.push((registered.node, Nonce(at)));
        }
        stubs
    }

    /// Sends heartbeats until this is dropped.
    pub(crate) async fn live(&self) {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(HEARTBEAT);
        loop {
            ticks.tick().await;
            let elapsed = began.elapsed().as_micros() as u64;
            let beat = |(at, (node, nonce)): (usize, &(NodeId, Nonce))| {
                let load = Load {
                    read_bytes_total: elapsed * (at as u64 + 1),
                    written_bytes_total: elapsed * 7,
                    connections: 3,
                    ..Load::default()
                };
                Request::Heartbeat(Heartbeat { node: *node, nonce: *nonce, load })
            };
            let requests = self.nodes.iter().enumerate().map(beat).collect();
            self.send(requests).await;
        }
    }

    /// Reports for the first node that it holds these blocks; returns those that it is to drop.
    pub(crate) async fn report(&self, blocks: Vec<HeldBlock>) -> Vec<BlockId> {
        let request = Request::BlockReport { node: self.nodes[0].0, blocks };
        match self.send(vec![request]).await.pop() {
            Some(Reply::Drop { blocks }) => blocks,
            other => panic!("{other:?}"),
        }
    }

    async fn send(&self, requests: Vec<Request>) -> Vec<Reply> {
        let mut replies = Vec::new();
        for requests in requests.chunks(FRAME_REQUESTS) {
            let body = vec![Bytes::from(encode_body(&requests.to_vec()))];
            let deadline = Instant::now() + super::SOON;
            let answer = self.connection.call(Header::new(Op::Meta, 0), body, deadline).await;
            let answers: Vec<Result<Reply, Refusal>> =
                decode_body(&answer.expect("the namenode answers").body).expect("it is whole");
            replies.extend(answers.into_iter().map(|answer| answer.expect("not refused")));
        }
        replies
    }
}
