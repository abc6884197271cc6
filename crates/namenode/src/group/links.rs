//! Connections to the other members. Most messages are sent without an answer by the thread that
//! has them. A task for each member connects, and sends what waits in a bounded queue: messages
//! without a connection, and some of the others, whose answers name a later generation of the
//! group. A member that takes nothing costs the leader nothing: what does not fit is dropped, and
//! the replica sends it again.
//!
//! A connection that breaks is replaced at once, also while it carries nothing: followers send each
//! other no message until one of them requests a vote, and that request is to arrive. What a broken
//! connection has not certainly delivered is sent again over the next one.
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
use sanderling_core::replica::{APPENDS_MAX, GroupGeneration};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{ClusterId, Header, MemberId, Op, Refusal};
use sanderling_transport::{
    CallError, Connection, ConnectionOptions, Credentials, KnownGeneration, LogLimiter, OWN_TOKEN,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::wire::{GroupFrame, LaterGeneration};

/// Messages that wait for one member. Heartbeats are sent every 60 ms, and entries within the
/// replica's own window ([`APPENDS_MAX`]): four of those. Chosen, not measured.
const QUEUE_MAX: usize = 4 * APPENDS_MAX;

/// Connections at once: to more members than a group has, and to some that have left. A group has
/// 15 members at most, and remembers 16 former ones.
const PEERS_MAX: usize = 64;

/// Frames to one member that are not answered yet. As many messages of entries as the replica sends
/// before it has an answer.
const IN_FLIGHT_MAX: usize = APPENDS_MAX;

/// Messages that are kept for the next connection: as many as the one before may have had under
/// way.
const KEPT_MAX: usize = IN_FLIGHT_MAX;

/// A message that waited longer is dropped: the replica has sent another since. Eight heartbeats'
/// time, and longer than the 400 ms without the leader after which its members look for another.
const STALE_AFTER: Duration = Duration::from_millis(500);

/// Time of one frame, and of a connection's start. A lost packet is sent again after 1 s at most,
/// as a rule. A message of 1 MiB passes a link of 10 Mbit/s in it. Chosen, not measured.
const FRAME_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between two messages whose answers are waited for. An answer is needed only so that a
/// member of an older generation ends: half a second later matters little, and each costs a wake-up
/// at both ends.
const ANSWER_INTERVAL: Duration = Duration::from_millis(500);

/// Pause before a connection is made again that could not be made, or lasted no longer than this.
/// About the time between two heartbeats (60 ms): a member that was started again has the leader's
/// next one or the one after it.
const PAUSE: Duration = Duration::from_millis(50);

/// Age at which a connection is replaced. Half of the time that a server's own token holds, a day,
/// so that clocks which differ by hours end none before.
const RENEW_AFTER: Duration = Duration::from_secs(OWN_TOKEN.as_secs() / 2);

/// Pause between two looks at whether a connection that carries nothing is to be replaced, and
/// before another one is tried for one that could not be replaced; that is used meanwhile. As often
/// as a server looks at the file of its secret.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Lines about members that are of other generations, or refuse this one's token.
static REFUSED: LogLimiter = LogLimiter::per_second();

/// A message on its way to a member's task.
#[derive(Debug)]
struct WaitingMessage {
    body: Bytes,
    since: Instant,
}

impl WaitingMessage {
    fn is_stale(&self) -> bool {
        self.since.elapsed() >= STALE_AFTER
    }
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
        if now.duration_since(self.queued) < ANSWER_INTERVAL {
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
                Err(CallError::TimedOut { address: address.to_owned(), waited: FRAME_TIMEOUT })
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

/// Sends a message and waits for its answer; returns the message with it.
async fn send_message(
    connection: &Connection,
    message: WaitingMessage,
) -> (WaitingMessage, Result<Bytes, CallError>) {
    let sent = send(connection, message.body.clone(), Instant::now() + FRAME_TIMEOUT).await;
    (message, sent)
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
    /// may have been refused, and is kept.
    Due,
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
    // What may not have been delivered: the replica takes a message twice.
    let mut kept: Vec<WaitingMessage> = Vec::new();
    loop {
        let secrets = dialer.credentials.secret_version();
        let mut age = RENEW_AFTER;
        match dialer.connect(address, Instant::now() + FRAME_TIMEOUT).await {
            Ok(connection) => {
                kept.retain(|message| !message.is_stale());
                // Before what other threads send over it.
                for WaitingMessage { body, .. } in kept.drain(..) {
                    // If it is lost, the replica sends it again.
                    let _ = connection.post(Header::new(Op::Group, 0), vec![body]);
                }
                *link.lock() = Some(connection.clone());
                used = Some(connection);
            }
            Err(error) => {
                log_refused(address, &error);
                age = POLL_INTERVAL;
            }
        }
        let began = Instant::now();
        let renewal = Renewal { at: began + age, secrets };
        let end = match &used {
            Some(connection) => {
                send_all(dialer, connection, &mut waiting, &mut kept, later, renewal).await
            }
            None => LinkEnd::Broken,
        };
        match end {
            LinkEnd::Idle => return,
            LinkEnd::Due => continue,
            LinkEnd::Broken => (used, *link.lock()) = (None, None),
        }
        if began.elapsed() < PAUSE {
            sleep(PAUSE).await;
        }
        keep_waiting(&mut waiting, &mut kept);
    }
}

/// Takes what waits for the next connection, and drops what is too old, or too much: the oldest.
fn keep_waiting(waiting: &mut mpsc::Receiver<WaitingMessage>, kept: &mut Vec<WaitingMessage>) {
    while let Ok(message) = waiting.try_recv() {
        kept.push(message);
    }
    kept.retain(|message| !message.is_stale());
    kept.sort_by_key(|message| message.since);
    let over = kept.len().saturating_sub(KEPT_MAX);
    kept.drain(..over);
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

/// Sends until the connection breaks, is refused, or is to be replaced. Keeps the messages that it
/// may not have delivered.
async fn send_all(
    dialer: &Dialer,
    connection: &Connection,
    waiting: &mut mpsc::Receiver<WaitingMessage>,
    kept: &mut Vec<WaitingMessage>,
    later: &AtomicU64,
    renewal: Renewal,
) -> LinkEnd {
    let mut under_way = FuturesUnordered::new();
    let end = loop {
        tokio::select! {
            message = waiting.recv(), if under_way.len() < IN_FLIGHT_MAX => {
                let Some(message) = message else { return LinkEnd::Idle };
                if message.is_stale() {
                    continue;
                }
                if renewal.is_due(&dialer.credentials) {
                    // At once, as the next connection takes its time; and over that one, too.
                    let _ = connection.post(Header::new(Op::Group, 0), vec![message.body.clone()]);
                    kept.push(message);
                    return LinkEnd::Due;
                }
                under_way.push(send_message(connection, message));
            }
            () = connection.broken() => break LinkEnd::Broken,
            () = sleep(POLL_INTERVAL) => {
                if renewal.is_due(&dialer.credentials) {
                    return LinkEnd::Due;
                }
            }
            Some((message, sent)) = under_way.next(), if !under_way.is_empty() => {
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
                        kept.push(message);
                        break LinkEnd::Broken;
                    }
                    Err(_) if connection.is_broken() => {
                        kept.push(message);
                        break LinkEnd::Broken;
                    }
                    // Another refusal concerns one message: the member may be starting.
                    Err(_) => {}
                }
            }
        }
    };
    if connection.is_broken() {
        // All of its calls have ended.
        while let Some((message, sent)) = under_way.next().await {
            if sent.is_err() {
                kept.push(message);
            }
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use sanderling_protocol::message::HelloReply;
    use sanderling_transport::{Handled, Response, Secret, Security, ServeOptions, Service, serve};
    use tokio::io::copy_bidirectional;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::{Notify, watch};
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// What is to happen happens within this time, on any machine.
    const WITHIN: Duration = Duration::from_secs(60);

    /// A message that is not answered.
    const UNANSWERED: &[u8] = b"unanswered";

    /// A member that keeps what arrives.
    #[derive(Debug, Default)]
    struct ReceivingMember {
        greetings: watch::Sender<usize>,
        messages: watch::Sender<Vec<Bytes>>,
    }

    impl Service for ReceivingMember {
        fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
            self.greetings.send_modify(|greetings| *greetings += 1);
            Ok(HelloReply { role: Role::Namenode, cluster: Some(ClusterId(7)), node: None })
        }

        fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
            let is_answered = body != UNANSWERED;
            self.messages.send_modify(|messages| messages.push(body));
            if !is_answered {
                return Handled::Later(Box::pin(std::future::pending()));
            }
            Handled::Now(Response::message(&header, &None::<LaterGeneration>))
        }
    }

    /// A member, a relay before it whose connection breaks when that is ordered, and a link.
    struct BreakableLink {
        member: Arc<ReceivingMember>,
        breaks: Arc<Notify>,
        queue: mpsc::Sender<WaitingMessage>,
        _tasks: [AbortOnDropHandle<()>; 3],
    }

    impl BreakableLink {
        async fn start() -> Self {
            let (member, breaks) = (Arc::new(ReceivingMember::default()), Arc::new(Notify::new()));
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let behind = listener.local_addr().unwrap();
            let (options, shutdown) = (ServeOptions::default(), CancellationToken::new());
            let serving = tokio::spawn(serve(listener, Arc::clone(&member), options, shutdown));
            let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = front.local_addr().unwrap().to_string();
            let relaying = tokio::spawn(relay(front, behind, Arc::clone(&breaks)));
            let (queue, waiting) = mpsc::channel(QUEUE_MAX);
            let running = tokio::spawn(async move {
                let (dialer, link) = (dialer(None), MemberLink::default());
                run(&dialer, &address, waiting, &link, &AtomicU64::new(0)).await;
            });
            let tasks = [serving, relaying, running].map(AbortOnDropHandle::new);
            Self { member, breaks, queue, _tasks: tasks }
        }

        /// Queues a message that becomes stale only after the test.
        async fn send(&self, body: &'static [u8]) {
            let message = message(Instant::now() + WITHIN, body);
            assert!(self.queue.send(message).await.is_ok(), "the link takes messages");
        }
    }

    fn message(since: Instant, body: &'static [u8]) -> WaitingMessage {
        WaitingMessage { body: Bytes::from_static(body), since }
    }

    /// Passes connections on, one after the other.
    async fn relay(front: TcpListener, behind: SocketAddr, breaks: Arc<Notify>) {
        while let Ok((mut taken, _)) = front.accept().await {
            let mut onward = TcpStream::connect(behind).await.unwrap();
            tokio::select! {
                _ = copy_bidirectional(&mut taken, &mut onward) => {}
                () = breaks.notified() => {}
            }
        }
    }

    async fn until<T>(seen: &watch::Sender<T>, is_so: impl FnMut(&T) -> bool) {
        let mut seen = seen.subscribe();
        let found = timeout_at(Instant::now() + WITHIN, seen.wait_for(is_so)).await;
        assert!(matches!(found, Ok(Ok(_))), "in time");
    }

    #[tokio::test]
    async fn connection_that_breaks_while_it_is_idle_is_replaced_before_there_is_a_message() {
        let link = BreakableLink::start().await;
        link.send(b"first").await;
        until(&link.member.messages, |messages| messages.len() == 1).await;
        link.breaks.notify_one();
        until(&link.member.greetings, |greetings| *greetings >= 2).await;
        link.send(b"second").await;
        // The first one is sent again if its answer was not there when the connection broke.
        until(&link.member.messages, |messages| messages.iter().any(|it| it == "second")).await;
    }

    #[tokio::test]
    async fn message_that_a_broken_connection_may_have_lost_is_sent_over_the_next_one() {
        let link = BreakableLink::start().await;
        link.send(UNANSWERED).await;
        until(&link.member.messages, |messages| messages.len() == 1).await;
        link.breaks.notify_one();
        until(&link.member.messages, |messages| messages.len() >= 2).await;
        assert!(link.member.messages.borrow().iter().all(|message| message == UNANSWERED));
    }

    #[test]
    fn what_is_kept_for_the_next_connection_is_recent_and_bounded() {
        let (queue, mut waiting) = mpsc::channel(QUEUE_MAX);
        let first = Instant::now() + WITHIN;
        let later = |number: usize| first + Duration::from_secs(number as u64);
        let mut kept = vec![message(later(0), b"kept"), message(first - 2 * WITHIN, b"stale")];
        for number in 1..=KEPT_MAX {
            queue.try_send(message(later(number), b"waiting")).unwrap();
        }
        keep_waiting(&mut waiting, &mut kept);
        let since: Vec<Instant> = kept.iter().map(|message| message.since).collect();
        assert_eq!(since, (1..=KEPT_MAX).map(later).collect::<Vec<_>>());
    }

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
