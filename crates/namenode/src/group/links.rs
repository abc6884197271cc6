//! Connections to the other members. Most messages are sent without an answer by the thread that
//! has them. A task for each member connects, and sends what waits in a bounded queue: messages
//! without a connection, and some of the others, whose answers name a later generation of the
//! group. A member that takes nothing costs the leader nothing: what does not fit is dropped, and
//! the replica sends it again.
//!
//! A connection shows its token once, when it begins, and is refused everything when that token
//! does not hold any more. So another connection replaces it before, without a pause, also where no
//! messages are sent for days, as between followers: the first one there requests a vote.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use sanderling_core::replica::GroupGeneration;
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{ClusterId, Header, MemberId, Op, Refusal};
use sanderling_transport::{
    CallError, Connection, ConnectionOptions, Credentials, KnownGeneration, LogLimiter,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::wire::{GroupFrame, LaterGeneration};

/// Messages that wait for one member. Heartbeats are sent every 60 ms, and entries
/// within the replica's own window. That window has 64 (`APPENDS_MAX` of the core), so four of
/// them. Chosen, not measured.
const QUEUE_MAX: usize = 256;

/// Connections at once: to more members than a group has, and to some that have left. A group has
/// 15 members at most, and remembers 16 former ones.
const PEERS_MAX: usize = 64;

/// Frames to one member that are not answered yet. As many messages of entries as the replica sends
/// before it has an answer (`APPENDS_MAX` of the core).
const IN_FLIGHT_MAX: usize = 64;

/// A message that waited longer is dropped: the replica has sent another since. Eight heartbeats'
/// time, and longer than the 400 ms without the leader after which its members look for another.
const STALE_AFTER: Duration = Duration::from_millis(500);

/// Time of one frame, and of a connection's start. A lost packet is sent again after 1 s at most,
/// as a rule. A message of 1 MiB passes a link of 10 Mbit/s in it.
const FRAME_WITHIN: Duration = Duration::from_secs(2);

/// Pause between two messages whose answers are waited for. An answer is needed only so that a
/// member of an older generation ends: half a second later matters little, and each costs a wake-up
/// at both ends.
const ANSWER_EVERY: Duration = Duration::from_millis(500);

/// Pause before a connection is made again. About the time between two heartbeats (60 ms): a member
/// that was started again has the leader's next one or the one after it.
const PAUSE: Duration = Duration::from_millis(50);

/// Age at which a connection is replaced. Half of the time that a server's own token holds (a day,
/// `OWN_TOKEN` of the transport), so that clocks which differ by hours end none before.
const RENEW_AFTER: Duration = Duration::from_secs(12 * 3600);

/// Pause between two looks at whether a connection that carries nothing is to be replaced, and
/// before another one is tried for one that could not be replaced; that is used meanwhile. As often
/// as a server looks at the file of its secret.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Lines about members that are of other generations, or refuse this one's token.
static REFUSED: LogLimiter = LogLimiter::per_second();

/// A message on its way to a member's task.
#[derive(Debug)]
struct WaitingMessage {
    body: Bytes,
    since: Instant,
}

/// The connection to a member, while there is one.
type MemberLink = Arc<Mutex<Option<Connection>>>;

#[derive(Debug)]
struct Peer {
    address: String,
    link: MemberLink,
    queue: mpsc::Sender<WaitingMessage>,
    /// When the last message went to the queue.
    queued: Instant,
    _task: AbortOnDropHandle<()>,
}

impl Peer {
    /// Sends a message on this thread: none has to be woken for it. Without a connection, and when
    /// an answer is due, the task sends it. Returns whether it was taken.
    fn send(&mut self, body: Bytes) -> bool {
        let now = Instant::now();
        if now.duration_since(self.queued) < ANSWER_EVERY {
            let mut link = self.link.lock();
            if let Some(connection) = &*link {
                match connection.post(Header::new(Op::Group, 0), vec![body.clone()]) {
                    Ok(()) => return true,
                    Err(CallError::Closed { .. }) => *link = None,
                    Err(_) => return false,
                }
            }
        }
        self.queued = now;
        self.queue.try_send(WaitingMessage { body, since: now }).is_ok()
    }
}

/// How members call one another.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    pub(crate) cluster: ClusterId,
    pub(crate) credentials: Credentials,
    pub(crate) generation: KnownGeneration,
}

impl Dialer {
    pub(crate) async fn connect(
        &self,
        address: &str,
        deadline: Instant,
    ) -> Result<Connection, CallError> {
        let cluster = Some(self.cluster);
        let hello = Hello { role: Role::Namenode, cluster, node: None, token: None };
        let (credentials, generation) = (self.credentials.clone(), self.generation.clone());
        let options = ConnectionOptions { credentials, generation, ..Default::default() };
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
    /// The latest generation that a member answered to be of, if it is later than the message's.
    later: Arc<AtomicU64>,
}

impl Links {
    pub(crate) fn new(dialer: Dialer, runtime: Handle, own: String) -> Self {
        let (dialer, peers, later) = (Arc::new(dialer), BTreeMap::new(), Arc::default());
        Self { dialer, runtime, own, peers, dropped: 0, later }
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

    /// Returns the latest generation that a member answered to be of, if it is a later one.
    pub(crate) fn later_generation(&self) -> GroupGeneration {
        GroupGeneration(self.later.load(Ordering::Acquire))
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
        let is_there = self.peers.get(&to).is_some_and(|peer| peer.address == address);
        if !is_there {
            let peer = self.begin(address);
            self.peers.insert(to, peer);
        }
        let is_taken = self.peers.get_mut(&to).is_some_and(|peer| peer.send(body));
        self.dropped += u64::from(!is_taken);
    }

    /// Ends the connections to members that are not in the group any more.
    pub(crate) fn keep(&mut self, is_member: impl Fn(MemberId) -> bool) {
        self.peers.retain(|member, _| is_member(*member));
    }

    fn begin(&self, address: &str) -> Peer {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let (dialer, to) = (Arc::clone(&self.dialer), address.to_owned());
        let (link, later) = (MemberLink::default(), Arc::clone(&self.later));
        let made = Arc::clone(&link);
        let task =
            self.runtime.spawn(async move { run(&dialer, &to, waiting, &made, &later).await });
        let (queued, task) = (Instant::now(), AbortOnDropHandle::new(task));
        Peer { address: address.to_owned(), link, queue, queued, _task: task }
    }
}

/// When a connection is to be replaced.
#[derive(Debug, Clone, Copy)]
struct Renewal {
    at: Instant,
    /// The secrets that the process had when the connection began.
    secrets: u64,
}

impl Renewal {
    fn is_due(&self, credentials: &Credentials) -> bool {
        Instant::now() >= self.at || credentials.secret_version() != self.secrets
    }
}

/// Why no more messages are sent over a connection.
#[derive(Debug)]
enum LinkEnd {
    /// It is broken, or the member does not accept its token any more.
    Broken,
    /// It is to be replaced, and is used until it is. The last message over it, if there was one,
    /// may have been refused.
    Due(Option<Bytes>),
    /// No more messages will come.
    Idle,
}

/// Sends what waits, in order, over one connection after the other.
async fn run(
    dialer: &Dialer,
    address: &str,
    mut waiting: mpsc::Receiver<WaitingMessage>,
    link: &Mutex<Option<Connection>>,
    later: &AtomicU64,
) {
    let mut used: Option<Connection> = None;
    // A message to send again: the replica takes one twice.
    let mut again: Option<Bytes> = None;
    loop {
        let secrets = dialer.credentials.secret_version();
        let mut age = RENEW_AFTER;
        match dialer.connect(address, Instant::now() + FRAME_WITHIN).await {
            Ok(connection) => {
                if let Some(body) = again.take() {
                    // If it is lost, the replica sends it again.
                    let _ = connection.post(Header::new(Op::Group, 0), vec![body]);
                }
                *link.lock() = Some(connection.clone());
                used = Some(connection);
            }
            Err(error) => {
                log_refused(address, &error);
                (age, again) = (LOOK_EVERY, None);
            }
        }
        let renewal = Renewal { at: Instant::now() + age, secrets };
        let end = match &used {
            Some(connection) => send_all(dialer, connection, &mut waiting, later, renewal).await,
            None => LinkEnd::Broken,
        };
        match end {
            LinkEnd::Idle => return,
            LinkEnd::Due(last) => {
                again = last;
                continue;
            }
            LinkEnd::Broken => (used, *link.lock()) = (None, None),
        }
        sleep(PAUSE).await;
        // What waited meanwhile is old.
        while let Ok(it) = waiting.try_recv() {
            drop(it);
        }
    }
}

/// Writes why a member takes no message, if that lasts until an operator does something.
fn log_refused(address: &str, error: &CallError) {
    let refusal = match error {
        CallError::Refused(
            refusal @ (Refusal::OtherGeneration { .. } | Refusal::Unauthenticated { .. }),
        ) => refusal,
        error => return debug!(address, %error, "a member of the group is not reached"),
    };
    let Some(passed_over) = REFUSED.admit(std::time::Instant::now()) else { return };
    match refusal {
        Refusal::OtherGeneration { .. } => {
            warn!(address, %refusal, passed_over, "a namenode is none of this group");
        }
        _ => warn!(
            address,
            %refusal,
            passed_over,
            "a member of the group does not accept this namenode's token; give all members the \
             same secrets, and clocks that agree"
        ),
    }
}

/// Returns the later generation that an answer proves.
fn proven(dialer: &Dialer, address: &str, answer: &Bytes) -> Option<GroupGeneration> {
    let later = decode_body::<Option<LaterGeneration>>(answer).ok()??;
    if later.is_proven(dialer.cluster, &dialer.credentials) {
        return Some(later.generation);
    }
    if let Some(passed_over) = REFUSED.admit(std::time::Instant::now()) {
        let generation = later.generation;
        warn!(address, %generation, passed_over, "a later generation of the group is not proven");
    }
    None
}

/// Sends until the connection breaks, is refused, or is to be replaced.
async fn send_all(
    dialer: &Dialer,
    connection: &Connection,
    waiting: &mut mpsc::Receiver<WaitingMessage>,
    later: &AtomicU64,
    renewal: Renewal,
) -> LinkEnd {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            message = waiting.recv(), if under_way.len() < IN_FLIGHT_MAX => {
                let Some(WaitingMessage { body, since }) = message else { return LinkEnd::Idle };
                if since.elapsed() >= STALE_AFTER {
                    continue;
                }
                if renewal.is_due(&dialer.credentials) {
                    // At once, as the next connection takes its time; and over that one, too.
                    let _ = connection.post(Header::new(Op::Group, 0), vec![body.clone()]);
                    return LinkEnd::Due(Some(body));
                }
                under_way.push(send(connection, body, Instant::now() + FRAME_WITHIN));
            }
            () = sleep(LOOK_EVERY) => {
                if renewal.is_due(&dialer.credentials) {
                    return LinkEnd::Due(None);
                }
            }
            Some(sent) = under_way.next(), if !under_way.is_empty() => {
                match sent {
                    Ok(answer) => {
                        if let Some(generation) = proven(dialer, connection.address(), &answer) {
                            later.fetch_max(generation.0, Ordering::AcqRel);
                        }
                    }
                    // All that follows would be refused, too: the next connection shows another
                    // token.
                    Err(error @ CallError::Refused(Refusal::Unauthenticated { .. })) => {
                        log_refused(connection.address(), &error);
                        return LinkEnd::Broken;
                    }
                    Err(_) if connection.is_broken() => return LinkEnd::Broken,
                    // Another refusal concerns one message: the member may be starting.
                    Err(_) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_transport::{Secret, Security};

    use super::*;

    fn dialer(secret: Option<&[u8]>) -> Dialer {
        let secret = secret.map(Secret::of);
        let security = Security { secret, ..Security::default() };
        let credentials = security.credentials(Role::Namenode);
        Dialer { cluster: ClusterId(7), credentials, generation: KnownGeneration::default() }
    }

    fn answer(of: &Dialer, generation: GroupGeneration) -> Bytes {
        let later = LaterGeneration::new(of.cluster, generation, &of.credentials);
        encode_body(&Some(later)).into()
    }

    #[test]
    fn later_generation_counts_only_with_a_proof_by_the_clusters_secret() {
        let later = GroupGeneration::first(1_800_000_000).next(5);
        let (own, other) = (dialer(Some(&[1; 32])), dialer(Some(&[2; 32])));
        let (open, elsewhere) = (dialer(None), Dialer { cluster: ClusterId(8), ..own.clone() });
        assert_eq!(proven(&own, "a:1", &answer(&own, later)), Some(later));
        for from in [&open, &other, &elsewhere] {
            assert_eq!(proven(&own, "a:1", &answer(from, later)), None);
        }
        // A proof of one generation is none of another.
        let mut forged = LaterGeneration::new(own.cluster, later, &own.credentials);
        forged.generation = later.next(6);
        assert_eq!(proven(&own, "a:1", &encode_body(&Some(forged)).into()), None);
        // Where there is no secret nothing is authenticated.
        assert_eq!(proven(&open, "a:1", &answer(&open, later)), Some(later));
        assert_eq!(proven(&own, "a:1", &encode_body(&None::<LaterGeneration>).into()), None);
    }
}
