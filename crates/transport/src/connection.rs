//! One connection to a peer, with many calls under way.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_core::group_generation::GroupGeneration;
use sanderling_protocol::frame::{ACCEPTS_CANCELS, UNANSWERED, decode_body, encode_body};
use sanderling_protocol::limits::CALLS_IN_FLIGHT_MAX;
use sanderling_protocol::message::{Hello, HelloReply};
use sanderling_protocol::trace::ACCEPTS_TRACES;
use sanderling_protocol::{Frame, Header, Op, Refusal, version};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::buffers::Buffers;
use crate::calls::{Begun, CallEnd, CallResult, Calls, Timeouts};
use crate::error::{CallError, CloseCause, ReplyFault};
use crate::gather::length;
use crate::inbound::{Inbound, InboundError};
use crate::known_generation::KnownGeneration;
use crate::outgoing::Outgoing;
use crate::security::Credentials;
use crate::stream::{Stream, prepare};
use crate::trace::call_span;

/// Bounds what one connection has under way, and holds what it shows to its peer.
#[derive(Debug, Clone)]
pub struct ConnectionOptions {
    /// Most calls under way; further ones wait until their deadline.
    pub in_flight_max: usize,
    /// Memory that long answers are received into; connections with clones of it share it.
    pub buffers: Buffers,
    /// The credentials for the peer.
    pub credentials: Credentials,
    /// The generation of the group of namenodes that the process has met. Greetings name it.
    pub generation: KnownGeneration,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            in_flight_max: CALLS_IN_FLIGHT_MAX,
            buffers: Buffers::default(),
            credentials: Credentials::default(),
            generation: KnownGeneration::default(),
        }
    }
}

/// Frames without an answer that may wait for a peer that takes no bytes. As many as calls may be
/// under way by default ([`CALLS_IN_FLIGHT_MAX`]); further ones fail at once.
const POSTED_MAX: usize = CALLS_IN_FLIGHT_MAX;

/// Time after which a peer that takes no bytes is given up: longer than any call waits by default.
/// The default deadline of a call is 10 s.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// One connection to a peer. Clones share it; it closes with the last of them.
#[derive(Debug, Clone)]
pub struct Connection {
    shared: Arc<ConnectionInner>,
    /// The version of the messages that both sides speak.
    version: u8,
    /// The generation of the group of namenodes that the peer has named.
    generation: GroupGeneration,
    /// Whether the peer records spans, and is sent the traces of requests.
    accepts_traces: bool,
    /// Whether the peer reads which answers are not waited for any more.
    accepts_cancels: bool,
}

#[derive(Debug)]
struct ConnectionInner {
    wire: Arc<Wire>,
    permits: Semaphore,
    tasks: [JoinHandle<()>; 3],
}

/// What callers and the connection's own tasks share.
#[derive(Debug)]
struct Wire {
    address: String,
    calls: Calls,
    outgoing: Outgoing,
    inbound: Inbound,
    /// A call ends before the timer's next look.
    earlier: Notify,
}

impl Drop for ConnectionInner {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Connection {
    /// Connects to a peer and exchanges greetings until `deadline`. Returns the connection and the
    /// peer's answer to `hello`.
    ///
    /// # Errors
    /// [`CallError::Unreachable`] when no process listens there: try again, or correct the address.
    /// [`CallError::Refused`] when the peer is another cluster or incarnation: look its address up
    /// again.
    pub async fn connect(
        address: &str,
        hello: Hello,
        deadline: Instant,
    ) -> Result<(Self, HelloReply), CallError> {
        Self::connect_with(address, hello, deadline, &ConnectionOptions::default()).await
    }

    /// Connects as [`Self::connect`] does, with other bounds.
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub async fn connect_with(
        address: &str,
        hello: Hello,
        deadline: Instant,
        options: &ConnectionOptions,
    ) -> Result<(Self, HelloReply), CallError> {
        let credentials = &options.credentials;
        let mut signed = hello.clone();
        credentials.sign(address, &mut signed)?;
        match Self::connect_signed(address, signed, deadline, options).await {
            Err(CallError::Refused(refusal)) if credentials.has_earlier(&refusal) => {
                let mut signed = hello;
                credentials.sign_for_earlier(address, &mut signed)?;
                Self::connect_signed(address, signed, deadline, options).await
            }
            connected => connected,
        }
    }

    /// Connects, and sends a greeting that has its token.
    async fn connect_signed(
        address: &str,
        hello: Hello,
        deadline: Instant,
        options: &ConnectionOptions,
    ) -> Result<(Self, HelloReply), CallError> {
        let began = Instant::now();
        let dialled = timeout_at(deadline, TcpStream::connect(address)).await;
        let stream = dialled
            .map_err(|_| timed_out(address, began.elapsed()))?
            .map_err(|error| CallError::unreachable(address, error))?;
        let Some(tls) = &options.credentials.tls else {
            return Self::greet_signed(address, stream, hello, deadline, options).await;
        };
        prepare(&stream);
        let shaken = timeout_at(deadline, tls.connect(stream)).await;
        let stream =
            shaken.map_err(|_| timed_out(address, began.elapsed()))?.map_err(|error| match tls
                .distrust(&error)
            {
                Some(distrust) => {
                    CallError::Credentials { address: address.to_owned(), cause: distrust.into() }
                }
                None => closed(address, error),
            })?;
        Self::greet_signed(address, stream, hello, deadline, options).await
    }

    /// Exchanges greetings over a stream that is connected already. The address is for messages.
    ///
    /// # Errors
    /// [`CallError::Refused`] when the peer is another cluster or incarnation: look its address up
    /// again. [`CallError::Closed`]: connect again.
    pub async fn greet(
        address: &str,
        stream: impl Into<Stream>,
        mut hello: Hello,
        deadline: Instant,
        options: &ConnectionOptions,
    ) -> Result<(Self, HelloReply), CallError> {
        options.credentials.sign(address, &mut hello)?;
        Self::greet_signed(address, stream, hello, deadline, options).await
    }

    async fn greet_signed(
        address: &str,
        stream: impl Into<Stream>,
        hello: Hello,
        deadline: Instant,
        options: &ConnectionOptions,
    ) -> Result<(Self, HelloReply), CallError> {
        let mut connection = Self::over(address, stream.into(), options);
        let (flags, offset) = (version::greeting_flags(), options.generation.get().0);
        let header = Header { flags, offset, ..Header::new(Op::Hello, 0) };
        let body = vec![Bytes::from(encode_body(&hello))];
        let frame = connection.call(header, body, deadline).await?;
        connection.version = version::agreed(frame.header.flags)?;
        connection.generation = GroupGeneration(frame.header.offset);
        connection.accepts_traces = frame.header.length & ACCEPTS_TRACES != 0;
        connection.accepts_cancels = frame.header.length & ACCEPTS_CANCELS != 0;
        let reply = decode_body::<HelloReply>(&frame.body)
            .map_err(|refusal| bad_reply(address, refusal))?;
        Ok((connection, reply))
    }

    fn over(address: &str, stream: Stream, options: &ConnectionOptions) -> Self {
        let (read, write) = stream.prepared();
        let wire = Arc::new(Wire {
            address: address.to_owned(),
            calls: Calls::default(),
            outgoing: Outgoing::new(write),
            inbound: Inbound::new(read, options.buffers.clone()),
            earlier: Notify::new(),
        });
        let tasks = [
            tokio::spawn(receive(Arc::clone(&wire))),
            tokio::spawn(send(Arc::clone(&wire))),
            tokio::spawn(end_late(Arc::clone(&wire))),
        ];
        let permits = Semaphore::new(options.in_flight_max);
        let shared = Arc::new(ConnectionInner { wire, permits, tasks });
        let (version, generation) = (version::MESSAGES_MIN, GroupGeneration::default());
        Self { shared, version, generation, accepts_traces: false, accepts_cancels: false }
    }

    /// Sends a frame and waits for its answer. The header's `request` and `body_bytes` are filled
    /// in.
    ///
    /// # Errors
    /// [`CallError`]: its `recovery` names the next step. After `TimedOut` and `Closed` the call
    /// may have been done.
    pub async fn call(
        &self,
        mut header: Header,
        body: Vec<Bytes>,
        timeouts: impl Into<Timeouts>,
    ) -> CallResult {
        let timeouts = timeouts.into();
        let wire = &*self.shared.wire;
        header.body_bytes = checked_length(&body)?;
        let _permit = self.permit(timeouts.deadline).await?;
        let mut span = call_span(&wire.address, &header, &body);
        let Begun { request, mut is_alone, is_earliest } =
            wire.calls.begin(timeouts, Instant::now())?;
        let cancels = self.accepts_cancels && is_read(header.op);
        let mut under_way = InFlightCall { wire, request, cancels, is_answered: false };
        if is_earliest {
            wire.earlier.notify_one();
        }
        header.request = request;
        if let Some(span) = span.as_ref().filter(|_| self.accepts_traces) {
            // Both are queued: they leave together, or not at all if the call is given up.
            is_alone = false;
            let _ = wire.outgoing.send(span.context().header(request), Vec::new(), false);
        }
        if let Err(error) = wire.outgoing.send(header, body, is_alone) {
            wire.calls.fail(&closed(&wire.address, error));
        } else if is_alone {
            wire.wait_spinning(request);
        }
        let answered = poll_fn(|context| wire.calls.poll(request, context.waker())).await;
        under_way.is_answered = answered.is_ok();
        let answer = match answered {
            Ok(frame) => check(&wire.address, frame),
            Err(CallEnd::Broken(error)) => Err(error),
            Err(CallEnd::Late(waited)) => Err(timed_out(&wire.address, waited)),
        };
        if let (Some(span), Err(error)) = (&mut span, &answer) {
            span.fail(error);
        }
        answer
    }

    /// Sends a frame that is not answered: at once and on this thread, if no other is being
    /// written. Never waits, and needs no runtime. The header's `request` and `body_bytes` are
    /// filled in.
    ///
    /// # Errors
    /// [`CallError::TooBusy`]: the peer has not taken the frames before; send again later.
    /// [`CallError::Closed`]: connect again. After either the frame may be lost.
    pub fn post(&self, mut header: Header, body: Vec<Bytes>) -> Result<(), CallError> {
        let wire = &*self.shared.wire;
        if wire.calls.is_broken() {
            return Err(closed(&wire.address, CloseCause::Before));
        }
        if wire.outgoing.waiting() >= POSTED_MAX {
            return Err(CallError::TooBusy { address: wire.address.clone() });
        }
        (header.request, header.body_bytes) = (UNANSWERED, checked_length(&body)?);
        wire.outgoing.send(header, body, true).map_err(|error| {
            let error = closed(&wire.address, error);
            wire.calls.fail(&error);
            error
        })
    }

    async fn permit(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, CallError> {
        if let Ok(permit) = self.shared.permits.try_acquire() {
            return Ok(permit);
        }
        match timeout_at(deadline, self.shared.permits.acquire()).await {
            Ok(permit) => Ok(permit.expect("the semaphore is never closed")),
            Err(_) => Err(CallError::TooBusy { address: self.shared.wire.address.clone() }),
        }
    }

    /// Returns whether the connection has broken: calls on it fail at once.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.shared.wire.calls.is_broken()
    }

    /// Returns once the connection has broken, also while no call is under way.
    pub async fn broken(&self) {
        self.shared.wire.calls.broken().await;
    }

    /// Returns whether both are clones of one connection.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the version of the messages that both sides have agreed on in their greetings.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// Returns the generation of its group that a namenode has named; the default if it names none.
    #[must_use]
    pub const fn generation(&self) -> GroupGeneration {
        self.generation
    }

    /// Returns the peer's address as the connection was made to, `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.shared.wire.address
    }
}

/// Forgets a call however it ends, so that a cancelled one leaves nothing behind.
struct InFlightCall<'a> {
    wire: &'a Wire,
    request: u64,
    /// Whether the peer need not answer what nothing waits for.
    cancels: bool,
    is_answered: bool,
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        self.wire.calls.forget(self.request);
        if self.is_answered || self.wire.outgoing.withdraw(self.request) {
            return;
        }
        let may_post = self.wire.outgoing.waiting() < POSTED_MAX;
        if self.cancels && may_post && !self.wire.calls.is_broken() {
            let header = Header { offset: self.request, ..Header::new(Op::Cancel, UNANSWERED) };
            // If it is not sent, the connection has broken.
            let _ = self.wire.outgoing.send(header, Vec::new(), false);
        }
    }
}

/// Returns whether a request changes nothing, and may have a long answer.
const fn is_read(op: Op) -> bool {
    matches!(op, Op::Read | Op::ReadMany)
}

fn checked_length(body: &[Bytes]) -> Result<u32, CallError> {
    let bytes = length(body);
    let limit = sanderling_protocol::limits::FRAME_BODY_BYTES_MAX;
    u32::try_from(bytes).ok().filter(|bytes| *bytes <= limit).ok_or_else(|| {
        let (value, limit) = (bytes as u64, u64::from(limit));
        Refusal::TooLarge { what: "frame body".to_owned(), value, limit }.into()
    })
}

fn check(address: &str, frame: Frame<Bytes>) -> CallResult {
    if frame.header.status == 0 {
        return Ok(frame);
    }
    let refusal = decode_body::<Refusal>(&frame.body);
    Err(refusal.map_or_else(|error| bad_reply(address, error), CallError::Refused))
}

impl Wire {
    /// Busy-polls for the answer, for a moment: then no other task has to be woken.
    fn wait_spinning(&self, request: u64) {
        let take = |frame| self.calls.take(frame);
        let is_done = || self.calls.is_done(request);
        if let Err(broken) = self.inbound.read_spinning(take, || self.received(), is_done) {
            self.calls.fail(&self.why(broken));
        }
    }

    fn received(&self) {
        self.calls.received(Instant::now());
    }

    fn why(&self, broken: InboundError) -> CallError {
        match broken {
            InboundError::Read(error) => closed(&self.address, error),
            InboundError::Refused(frame) => match check(&self.address, frame) {
                Err(error) => error,
                Ok(_) => closed(&self.address, CloseCause::NoRequest),
            },
        }
    }
}

/// Answers that were there together, after which their callers go on before more are read: their
/// next requests are on their way while the rest is read. The fewest that leave another one to
/// read.
const TOGETHER_MIN: usize = 2;

/// Hands each answer to its caller until the connection breaks.
async fn receive(wire: Arc<Wire>) {
    let take = |frame| wire.calls.take(frame);
    let broken = loop {
        let read = poll_fn(|context| wire.inbound.poll_read(context, take, || wire.received()));
        match read.await {
            Ok(frames) if frames >= TOGETHER_MIN => yield_now().await,
            Ok(_) => {}
            Err(broken) => break broken,
        }
    };
    wire.calls.fail(&wire.why(broken));
}

/// Writes queued frames, all that are there at once.
async fn send(wire: Arc<Wire>) {
    let error = wire.outgoing.run(WRITE_TIMEOUT, || wire.calls.sent(Instant::now())).await;
    wire.calls.fail(&closed(&wire.address, error));
}

/// Ends calls that have waited long enough: one timer for all calls of the connection.
async fn end_late(wire: Arc<Wire>) {
    loop {
        match wire.calls.end_late(Instant::now()) {
            None => wire.earlier.notified().await,
            Some(at) => tokio::select! {
                () = sleep_until(at) => {}
                () = wire.earlier.notified() => {}
            },
        }
    }
}

fn closed(address: &str, cause: impl Into<CloseCause>) -> CallError {
    CallError::Closed { address: address.to_owned(), cause: cause.into() }
}

fn timed_out(address: &str, waited: Duration) -> CallError {
    CallError::TimedOut { address: address.to_owned(), waited }
}

pub(crate) fn bad_reply(address: &str, refusal: Refusal) -> CallError {
    CallError::BadReply {
        address: address.to_owned(),
        fault: ReplyFault::Undecodable(Box::new(refusal)),
    }
}
