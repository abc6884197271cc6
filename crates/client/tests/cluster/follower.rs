//! Members of a group that do not lead, or do not answer, over the real transport.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::message::{Hello, HelloReply, Member, MemberRole, Members, Role};
use sanderling_protocol::{ClusterId, Header, MemberId, Refusal, Reply, Request};
use sanderling_transport::{Handled, Response, ServeOptions, Service, serve};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// What a member does with requests.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    /// It refuses them, and names the leader if it has one.
    Refuses(Option<String>),
    /// It accepts them and does not answer, as a process that was stopped.
    Silent,
}

/// A member that serves until it is dropped.
pub(crate) struct Follower {
    pub(crate) address: String,
    service: Arc<FollowerService>,
    _serving: DropGuard,
}

struct FollowerService {
    cluster: ClusterId,
    behaviour: Mutex<Behaviour>,
    members: Mutex<Members>,
    requests: Mutex<Vec<&'static str>>,
}

impl Service for FollowerService {
    fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
        // A cluster that the caller names is not checked: the caller must.
        Ok(HelloReply { role: Role::Namenode, cluster: Some(self.cluster), node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        let requests = decode_body::<Vec<Request>>(&body).unwrap();
        self.requests.lock().extend(requests.iter().map(Request::kind));
        let leader = match self.behaviour.lock().clone() {
            Behaviour::Refuses(leader) => leader,
            Behaviour::Silent => return Handled::Later(Box::pin(std::future::pending())),
        };
        let answer = |request: &Request| match request {
            Request::Members => Ok(Reply::Members(self.members.lock().clone())),
            _ => Err(Refusal::NotLeader { leader: leader.clone() }),
        };
        let answers: Vec<Result<Reply, Refusal>> = requests.iter().map(answer).collect();
        Handled::Now(Response::message(&header, &answers))
    }
}

impl Follower {
    pub(crate) async fn start(cluster: ClusterId, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let service = Arc::new(FollowerService {
            cluster,
            behaviour: Mutex::new(behaviour),
            members: Mutex::default(),
            requests: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let serving = serve(listener, Arc::clone(&service), ServeOptions::default(), stop.clone());
        tokio::spawn(serving);
        Self { address, service, _serving: stop.drop_guard() }
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.service.behaviour.lock() = behaviour;
    }

    /// Sets what it reports of the group: it is member 1 itself, the others follow in their order.
    pub(crate) fn report(&self, term: u64, leader: &str, others: &[&str]) {
        let all = std::iter::once(self.address.as_str()).chain(others.iter().copied());
        let members = all.enumerate().map(|(place, address)| Member {
            id: MemberId(place as u64 + 1),
            address: address.to_owned(),
            http_address: String::new(),
            role: if address == leader { MemberRole::Leader } else { MemberRole::Voter },
        });
        let members = members.collect();
        *self.service.members.lock() = Members { term, here: MemberId(1), members };
    }

    /// Returns the kinds of the requests that came.
    pub(crate) fn requests(&self) -> Vec<&'static str> {
        self.service.requests.lock().clone()
    }
}

/// Returns an address at which a process listens that does not run: connections are made, and
/// nothing answers.
pub(crate) async fn paused() -> (String, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap().to_string(), listener)
}

/// Returns an address at which nothing listens.
pub(crate) async fn dead() -> String {
    let (address, listener) = paused().await;
    drop(listener);
    address
}
