//! Orders to datanodes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex};

use crate::support::{self, options, start};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{EventKind, Header, NodeId, Order, OrderReply, Refusal, Reply, Request};
use sanderling_transport::{Handled, Response, ServeOptions, Service, serve};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A datanode that takes orders and notes them.
struct Listener {
    node: NodeId,
    orders: Mutex<Vec<Order>>,
    /// Orders that are dropped before one is answered.
    deaf: Mutex<u32>,
}

impl Service for Listener {
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        match hello.node {
            Some(asked) if asked != self.node => Err(Refusal::WrongNode { here: self.node, asked }),
            _ => Ok(HelloReply { role: Role::Datanode, cluster: None, node: Some(self.node) }),
        }
    }

    fn handle(self: &Arc<Self>, header: Header, body: bytes::Bytes) -> Handled {
        let mut deaf = self.deaf.lock().unwrap();
        if *deaf > 0 {
            *deaf -= 1;
            return Handled::Later(Box::pin(std::future::pending()));
        }
        self.orders.lock().unwrap().push(decode_body(&body).unwrap());
        let body = vec![encode_body(&OrderReply::Done).into()];
        Handled::Now(Response { header: header.reply(), body })
    }
}

async fn listener(fixture: &support::Fixture, nonce: u64, deaf: u32) -> (NodeId, Arc<Listener>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = fixture.datanode(nonce, &socket.local_addr().unwrap().to_string()).await;
    let orders = Mutex::default();
    let service = Arc::new(Listener { node, orders, deaf: Mutex::new(deaf) });
    let serving =
        serve(socket, Arc::clone(&service), ServeOptions::default(), CancellationToken::new());
    tokio::spawn(serving);
    (node, service)
}

fn is_fenced(node: NodeId) -> impl Fn(&EventKind) -> bool {
    move |kind| matches!(kind, EventKind::NodeFenced { node: it } if *it == node)
}

#[tokio::test(flavor = "multi_thread")]
async fn noticed_datanode_is_fenced_at_once_and_unfenced_when_the_notice_is_taken_back() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let (node, datanode) = listener(&fixture, 1, 0).await;
    let reason = "cloud".to_owned();
    let notice = Request::Notice { node: node.into(), deadline_millis: 20_000, reason };
    let Ok(Reply::Node(_)) = fixture.call(notice).await else { panic!() };
    // No heartbeat requests it: the order is pushed.
    fixture.wait_for(is_fenced(node)).await;
    fixture.call(Request::Cancel { node: node.into() }).await.unwrap();
    let until = tokio::time::Instant::now() + support::WITHIN;
    while datanode.orders.lock().unwrap().last() != Some(&Order::UnfenceNode) {
        assert!(tokio::time::Instant::now() < until);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let first = datanode.orders.lock().unwrap()[0].clone();
    assert!(matches!(first, Order::FenceNode { deadline_in: Some(left) } if left.0 <= 20_000));
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_without_an_answer_is_given_again() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let (node, datanode) = listener(&fixture, 1, 1).await;
    let reason = String::new();
    fixture.call(Request::Decommission { node: node.into(), reason }).await.unwrap();
    fixture.wait_for(is_fenced(node)).await;
    assert_eq!(*datanode.orders.lock().unwrap(), [Order::FenceNode { deadline_in: None }]);
    fixture.server.stop().await;
}

/// A datanode that joins and has not yet received its id: the first orders and probes meet a
/// process without an id.
struct Newcomer {
    listener: Arc<Listener>,
    unnamed: Mutex<u32>,
}

impl Service for Newcomer {
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        let mut unnamed = self.unnamed.lock().unwrap();
        match hello.node {
            Some(asked) if *unnamed > 0 => {
                *unnamed -= 1;
                Err(Refusal::WrongNode { here: NodeId::default(), asked })
            }
            _ => self.listener.hello(hello),
        }
    }

    fn handle(self: &Arc<Self>, header: Header, body: bytes::Bytes) -> Handled {
        self.listener.handle(header, body)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn datanode_that_has_not_received_its_id_yet_is_not_gone() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = fixture.datanode(1, &socket.local_addr().unwrap().to_string()).await;
    let listener = Listener { node, orders: Mutex::default(), deaf: Mutex::default() };
    let newcomer = Newcomer { listener: Arc::new(listener), unnamed: Mutex::new(3) };
    let newcomer = Arc::new(newcomer);
    let stop = CancellationToken::new();
    tokio::spawn(serve(socket, Arc::clone(&newcomer), ServeOptions::default(), stop));
    fixture.call(Request::Suspect { node }).await.unwrap();
    let reason = String::new();
    fixture.call(Request::Decommission { node: node.into(), reason }).await.unwrap();
    fixture.wait_for(is_fenced(node)).await;
    assert_eq!(*newcomer.unnamed.lock().unwrap(), 0);
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn datanode_that_answers_as_another_incarnation_is_gone() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let node = fixture.datanode(1, &socket.local_addr().unwrap().to_string()).await;
    let other = Listener { node: NodeId(77), orders: Mutex::default(), deaf: Mutex::default() };
    let stop = CancellationToken::new();
    tokio::spawn(serve(socket, Arc::new(other), ServeOptions::default(), stop));
    fixture.call(Request::Suspect { node }).await.unwrap();
    fixture.wait_for(|kind| matches!(kind, EventKind::NodeGone { .. })).await;
    fixture.server.stop().await;
}
