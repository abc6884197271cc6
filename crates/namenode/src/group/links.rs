//! Connections to the other members: one task for each, with a bounded queue. A member that takes
//! nothing costs the leader nothing: what does not fit into its queue is dropped, and the replica
//! sends it again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{ClusterId, Header, MemberId, Op};
use sanderling_transport::{CallError, Connection, ConnectionOptions, Credentials};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

use super::wire::GroupFrame;

/// Messages that wait for one member. Heartbeats are sent about ten times a second, and entries
/// within the replica's own window.
const QUEUE_MAX: usize = 256;

/// Connections at once: to more members than a group has, and to some that have left.
const PEERS_MAX: usize = 64;

/// Frames to one member that are not answered yet.
const IN_FLIGHT_MAX: usize = 64;

/// A message that waited longer is dropped: the replica has sent another since.
const STALE_AFTER: Duration = Duration::from_millis(500);

/// Time of one frame, and of a connection's start.
const FRAME_WITHIN: Duration = Duration::from_secs(2);

/// Pause before a connection is made again.
const PAUSE: Duration = Duration::from_millis(50);

/// A message on its way to a member's task.
#[derive(Debug)]
struct WaitingMessage {
    body: Bytes,
    since: Instant,
}

#[derive(Debug)]
struct Peer {
    address: String,
    queue: mpsc::Sender<WaitingMessage>,
    _task: AbortOnDropHandle<()>,
}

/// How members call one another.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    pub(crate) cluster: ClusterId,
    pub(crate) credentials: Credentials,
}

impl Dialer {
    pub(crate) async fn connect(
        &self,
        address: &str,
        deadline: Instant,
    ) -> Result<Connection, CallError> {
        let cluster = Some(self.cluster);
        let hello = Hello { role: Role::Namenode, cluster, node: None, token: None };
        let credentials = self.credentials.clone();
        let options = ConnectionOptions { credentials, ..ConnectionOptions::default() };
        let connected = Connection::connect_with(address, hello, deadline, &options);
        // The greeting of a member that is stopped takes its time.
        match timeout_at(deadline, connected).await {
            Ok(connected) => connected.map(|(connection, _)| connection),
            Err(_) => {
                Err(CallError::TimedOut { address: address.to_owned(), waited: FRAME_WITHIN })
            }
        }
    }
}

/// Sends one frame and waits for its answer.
pub(crate) async fn send(
    connection: &Connection,
    body: Bytes,
    deadline: Instant,
) -> Result<Bytes, CallError> {
    let answered = connection.call(Header::new(Op::Group, 0), vec![body], deadline).await;
    answered.map(|frame| frame.body)
}

/// The connections of one member.
#[derive(Debug)]
pub(crate) struct Links {
    dialer: Arc<Dialer>,
    runtime: Handle,
    /// Where this member is.
    own: String,
    peers: BTreeMap<MemberId, Peer>,
    /// Messages that were dropped, as their member's queue was full.
    dropped: u64,
}

impl Links {
    pub(crate) fn new(dialer: Dialer, runtime: Handle, own: String) -> Self {
        Self { dialer: Arc::new(dialer), runtime, own, peers: BTreeMap::new(), dropped: 0 }
    }

    pub(crate) const fn dialer(&self) -> &Arc<Dialer> {
        &self.dialer
    }

    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Sends a message to a member, or drops it.
    pub(crate) fn send(&mut self, to: MemberId, address: &str, message: Bytes) {
        let frame = GroupFrame::Message { address: self.own.clone(), bytes: message };
        self.send_frame(to, address, &frame);
    }

    /// Sends a frame to a member, or drops it.
    pub(crate) fn send_frame(&mut self, to: MemberId, address: &str, frame: &GroupFrame) {
        let body = Bytes::from(encode_body(frame));
        if self.peers.len() >= PEERS_MAX && !self.peers.contains_key(&to) {
            self.dropped += 1;
            return;
        }
        let peer = match self.peers.get(&to).filter(|peer| peer.address == address) {
            Some(peer) => peer,
            None => {
                let peer = self.begin(address);
                self.peers.insert(to, peer);
                &self.peers[&to]
            }
        };
        if peer.queue.try_send(WaitingMessage { body, since: Instant::now() }).is_err() {
            self.dropped += 1;
        }
    }

    /// Ends the connections to members that are not in the group any more.
    pub(crate) fn keep(&mut self, is_member: impl Fn(MemberId) -> bool) {
        self.peers.retain(|member, _| is_member(*member));
    }

    fn begin(&self, address: &str) -> Peer {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let (dialer, to) = (Arc::clone(&self.dialer), address.to_owned());
        let task = self.runtime.spawn(async move { run(&dialer, &to, waiting).await });
        Peer { address: address.to_owned(), queue, _task: AbortOnDropHandle::new(task) }
    }
}

/// Sends what waits, in order, over one connection after the other.
async fn run(dialer: &Dialer, address: &str, mut waiting: mpsc::Receiver<WaitingMessage>) {
    loop {
        match dialer.connect(address, Instant::now() + FRAME_WITHIN).await {
            Ok(connection) => {
                if send_all(&connection, &mut waiting).await.is_none() {
                    return;
                }
            }
            Err(error) => debug!(address, %error, "a member of the group is not reached"),
        }
        sleep(PAUSE).await;
        // What waited meanwhile is old.
        while let Ok(it) = waiting.try_recv() {
            drop(it);
        }
    }
}

/// Sends until the connection breaks; `None` when no more messages will come.
async fn send_all(
    connection: &Connection,
    waiting: &mut mpsc::Receiver<WaitingMessage>,
) -> Option<()> {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            message = waiting.recv(), if under_way.len() < IN_FLIGHT_MAX => {
                let WaitingMessage { body, since } = message?;
                if since.elapsed() < STALE_AFTER {
                    under_way.push(send(connection, body, Instant::now() + FRAME_WITHIN));
                }
            }
            Some(sent) = under_way.next(), if !under_way.is_empty() => {
                // A refusal concerns one message: the member may be starting.
                if sent.is_err() && connection.is_broken() {
                    return Some(());
                }
            }
        }
    }
}
