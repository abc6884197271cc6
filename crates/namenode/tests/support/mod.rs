//! A namenode on loopback and a pool of connections to it.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part; a test may panic")]

use std::path::Path as FilePath;
use std::time::Duration;

use sanderling_namenode::{NamenodeOptions, NamenodeServer, NamenodeStartError};
use sanderling_protocol::message::{Create, ObjectKind, Register};
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::{
    Event, EventKind, Millis, NodeId, Nonce, Path, Refusal, Reply, Request, Tier,
};
use sanderling_transport::{CallError, Pool, PoolOptions};
use tokio::time::Instant;

pub(crate) const WITHIN: Duration = Duration::from_secs(60);

pub(crate) type Answers = Vec<Result<Reply, Refusal>>;

pub(crate) struct Fixture {
    pub(crate) server: NamenodeServer,
    pub(crate) address: String,
    pub(crate) pool: Pool,
}

pub(crate) fn options(directory: &FilePath) -> NamenodeOptions {
    NamenodeOptions {
        listen: "127.0.0.1:0".to_owned(),
        http_listen: Some("127.0.0.1:0".to_owned()),
        directory: directory.to_owned(),
        ..NamenodeOptions::default()
    }
}

/// Starts a namenode, waiting while an earlier one still holds the directory.
pub(crate) async fn start(options: NamenodeOptions) -> Fixture {
    let deadline = Instant::now() + WITHIN;
    loop {
        match NamenodeServer::start(options.clone()).await {
            Ok(server) => {
                let address = server.address().to_string();
                return Fixture { server, address, pool: Pool::new(PoolOptions::default()) };
            }
            Err(NamenodeStartError::DirectoryLocked { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl Fixture {
    pub(crate) async fn try_all(&self, requests: Vec<Request>) -> Result<Answers, CallError> {
        self.pool.meta(&self.address, requests, Instant::now() + WITHIN).await
    }

    pub(crate) async fn all(&self, requests: Vec<Request>) -> Answers {
        self.try_all(requests).await.unwrap()
    }

    pub(crate) async fn call(&self, request: Request) -> Result<Reply, Refusal> {
        self.all(vec![request]).await.pop().unwrap()
    }

    pub(crate) async fn datanode(&self, nonce: u64, address: &str) -> NodeId {
        let register = Register {
            cluster: None,
            nonce: Nonce(nonce),
            name: format!("node-{nonce}"),
            address: address.to_owned(),
            http_address: String::new(),
            host: String::new(),
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 1 << 30 }],
            notice_min: None,
            egress_bytes_per_second: None,
        };
        match self.call(Request::Register(register)).await {
            Ok(Reply::Registered(registered)) => registered.node,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn events(&self, after: u64) -> Vec<Event> {
        let request = Request::Events { after, limit: 1000, wait: Millis(0) };
        let Ok(Reply::Events(events)) = self.call(request).await else { panic!() };
        events
    }

    /// Waits until an event is of that kind.
    pub(crate) async fn wait_for(&self, is_it: impl Fn(&EventKind) -> bool) -> Event {
        let deadline = Instant::now() + WITHIN;
        let mut after = 0;
        loop {
            let request = Request::Events { after, limit: 100, wait: Millis(1000) };
            let Ok(Reply::Events(events)) = self.call(request).await else { panic!() };
            after = events.last().map_or(after, |event| event.sequence);
            if let Some(event) = events.into_iter().find(|event| is_it(&event.kind)) {
                return event;
            }
            assert!(Instant::now() < deadline, "no such event");
        }
    }
}

/// Returns a socket that takes connections and never sends a byte, and its address.
pub(crate) fn silent() -> (std::net::TcpListener, String) {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

pub(crate) fn path(text: &str) -> Path {
    text.parse().unwrap()
}

pub(crate) fn directory(text: &str) -> Request {
    let kind = ObjectKind::Directory;
    Request::MakeDirectory { path: path(text), kind, parents: false, is_listed: true }
}

pub(crate) fn inline(text: &str, value: &[u8]) -> Request {
    let (parents, inline) = (false, Some(value.to_vec()));
    Request::Create(Create { parents, inline, ..Create::new(path(text), Nonce(7)) })
}

pub(crate) fn stat(text: &str) -> Request {
    Request::Stat { path: path(text) }
}

pub(crate) fn list(text: &str) -> Request {
    Request::List { path: path(text), after: String::new(), limit: 4096, with_attributes: false }
}

pub(crate) fn names(reply: Result<Reply, Refusal>) -> Vec<String> {
    let Ok(Reply::Entries { entries, .. }) = reply else { panic!("{reply:?}") };
    entries.into_iter().map(|entry| entry.name).collect()
}
