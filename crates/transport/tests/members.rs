//! Calls to a group of namenodes, one of which is silent, or none of which leads.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{ClusterId, Header, Refusal, Reply, Request};
use sanderling_transport::{
    EncodedRequest, Handled, Namenodes, Pool, PoolOptions, Repeats, Response, Security,
    ServeOptions, Service, listen, serve,
};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A namenode that leads, and answers one request in each frame.
struct Leading;

impl Service for Leading {
    fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
        Ok(HelloReply { role: Role::Namenode, cluster: Some(ClusterId(1)), node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, _: Bytes) -> Handled {
        let replies: [Result<Reply, Refusal>; 1] = [Ok(Reply::Done)];
        Handled::Now(Response::message(&header, &replies.as_slice()))
    }
}

/// A namenode that does not lead. It counts the frames that came.
#[derive(Default)]
struct Following {
    frames: AtomicUsize,
}

impl Service for Following {
    fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
        Ok(HelloReply { role: Role::Namenode, cluster: Some(ClusterId(1)), node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, _: Bytes) -> Handled {
        self.frames.fetch_add(1, Ordering::Relaxed);
        let replies: [Result<Reply, Refusal>; 1] = [Err(Refusal::NotLeader { leader: None })];
        Handled::Now(Response::message(&header, &replies.as_slice()))
    }
}

#[tokio::test]
async fn one_call_of_a_process_looks_for_a_leader_often_and_the_others_seldom() {
    let (shutdown, following) = (CancellationToken::new(), Arc::new(Following::default()));
    let mut addresses = Vec::new();
    for _ in 0..2 {
        let listener = listen("127.0.0.1:0", &Security::default()).await.unwrap();
        addresses.push(listener.local_addr().unwrap().to_string());
        let options = ServeOptions::default();
        tokio::spawn(serve(listener, Arc::clone(&following), options, shutdown.clone()));
    }
    let (pool, namenodes) =
        (Pool::new(PoolOptions::default()), Namenodes::new(&addresses.join(",")));
    let requests = [EncodedRequest::new(&Request::Members)];
    let deadline = Instant::now() + Duration::from_secs(2);
    let calls = (0..8).map(|_| namenodes.meta(&pool, &requests, Repeats::Undone, deadline));
    assert!(join_all(calls).await.iter().all(Result::is_err), "none leads");
    // Without a draw in their favour: 170 of the one whose pauses are 25 to 50 ms, and 50 of each
    // of the others. If all had short pauses, 850 would come.
    let frames = following.frames.load(Ordering::Relaxed);
    assert!((16..600).contains(&frames), "{frames} frames in two seconds");
    shutdown.cancel();
}

#[tokio::test]
async fn calls_that_wait_for_one_connection_to_a_silent_member_turn_to_the_next_one() {
    // The kernel accepts its connections; no greeting is answered.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listener = listen("127.0.0.1:0", &Security::default()).await.unwrap();
    let addresses = [&silent, &listener].map(|it| it.local_addr().unwrap().to_string());
    let shutdown = CancellationToken::new();
    tokio::spawn(serve(listener, Arc::new(Leading), ServeOptions::default(), shutdown.clone()));
    let (pool, namenodes) =
        (Pool::new(PoolOptions::default()), Namenodes::new(&addresses.join(",")));
    let requests = [EncodedRequest::new(&Request::Members)];
    let deadline = Instant::now() + Duration::from_secs(60);
    let call = || namenodes.meta(&pool, &requests, Repeats::Undone, deadline);
    // One of them makes the connection, and the other one waits for it.
    let (first, second) = tokio::join!(call(), call());
    for answer in [first, second] {
        assert!(matches!(answer.as_deref(), Ok([Ok(Reply::Done)])), "{answer:?}");
    }
    shutdown.cancel();
}
