//! Serving: listeners, what a service is, and the bounds of both.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::limits::REQUESTS_IN_FLIGHT_MAX;
use sanderling_protocol::message::{Hello, HelloReply};
use sanderling_protocol::{Header, Refusal};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::body_sink::BodySink;
use crate::buffers::Buffers;
use crate::connection_limit::{ConnectionLimit, PendingAdmission};
use crate::descriptors::DescriptorShares;
use crate::listen::accept_until;
use crate::memory::Memory;
use crate::security::Admitted;
use crate::session::{greeted, refuse_connection};
use crate::stream::{Stream, prepare};
use crate::tls::{Accepted, ServerTls, turn_away};

/// An answer. The header's `body_bytes` is filled in when it is sent.
#[derive(Debug)]
pub struct Response {
    /// The header.
    pub header: Header,
    /// The body in pieces: `Bytes::from_owner` lets a datanode answer straight from its arena.
    pub body: Vec<Bytes>,
}

impl Response {
    /// Returns the answer that refuses a request: its status is the refusal's number, its body the
    /// refusal.
    #[must_use]
    pub fn refused(request: &Header, refusal: &Refusal) -> Self {
        let mut header = request.reply();
        header.status = refusal.code();
        Self { header, body: vec![Bytes::from(encode_body(refusal))] }
    }

    /// Returns the answer to a request with a message as its body, encoded with postcard.
    #[must_use]
    pub fn message<T: serde::Serialize>(request: &Header, message: &T) -> Self {
        Self { header: request.reply(), body: vec![Bytes::from(encode_body(message))] }
    }
}

/// The result of handling a frame: an answer now, or a future that has it later.
pub enum Handled {
    /// At once, together with the other frames of the buffer.
    Now(Response),
    /// When this is done; other frames are answered meanwhile. Dropped when the connection ends.
    Later(Pin<Box<dyn Future<Output = Response> + Send>>),
}

/// Handles the frames of a server's connections. One service answers those of all connections,
/// unless a greeting returns another.
pub trait Service: Send + Sync + Sized + 'static {
    /// Answers the greeting.
    ///
    /// # Errors
    /// The refusal is sent and the connection closed.
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal>;

    /// Answers the greeting, and returns the service of the connection from then on: one for this
    /// caller, where its identity matters.
    ///
    /// # Errors
    /// As [`Service::hello`].
    fn admit(self: &Arc<Self>, hello: &Hello) -> Result<Admitted<Self>, Refusal> {
        self.hello(hello).map(|reply| (reply, Arc::clone(self)))
    }

    /// Takes the generation of the group of namenodes that an admitted caller has met, 0 for none,
    /// and returns the server's own.
    ///
    /// # Errors
    /// [`Refusal::OtherGeneration`]: it is sent and the connection closed.
    fn generation(&self, _hello: &Hello, _known: u64) -> Result<u64, Refusal> {
        Ok(0)
    }

    /// Returns the service of a connection whose caller uses this version of the messages.
    fn speaking(self: &Arc<Self>, _version: u8) -> Arc<Self> {
        Arc::clone(self)
    }

    /// Returns whose share of the server's memory the connection's counts against; `None` if the
    /// caller is not known, and the connection has one of its own.
    fn tenant(&self) -> Option<String> {
        None
    }

    /// Returns the service of a connection whose long answers are to be counted in `memory`.
    fn counting_in(self: &Arc<Self>, _memory: &Memory) -> Arc<Self> {
        Arc::clone(self)
    }

    /// Takes one frame. Must not block.
    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled;

    /// Returns whether an answer to this request that comes later may be held back for long, as by
    /// a slow link. Its caller may cancel it.
    fn holds(&self, _header: &Header) -> bool {
        false
    }

    /// Returns whether callers get reports of what is held back. Without these they take the server
    /// for dead after a while, and look elsewhere.
    fn reports_held(&self) -> bool {
        true
    }

    /// Returns how many bytes the connection keeps until its answers are sent, of something that
    /// others wait for; 0 while none does. A peer that does not take its answers is given up
    /// earlier then.
    fn awaited_bytes(&self) -> usize {
        0
    }

    /// Called when a connection was accepted.
    fn opened(&self) {}

    /// Called when it has ended.
    fn closed(&self) {}

    /// Offers memory for a long body whose header has come; then the memory takes the frame, and
    /// [`Self::handle`] never sees it. Without an offer, `handle` gets the body in a buffer.
    fn body_sink(self: &Arc<Self>, _header: &Header) -> Option<Box<dyn BodySink>> {
        None
    }
}

/// Default of the bytes of long requests and long answers that a server holds at once: sixteen of
/// the longest frames, each in a buffer of a power of two. A tenant has an eighth of it, two of the
/// longest, while more than half is used. Chosen, not measured; `--memory-max` makes it smaller.
pub const MEMORY_MAX: usize = 512 << 20;

/// The limits of a server: how many connections, frames and bytes it accepts at a time.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Most connections whose caller has been admitted; a further caller is refused. A tenant
    /// ([`Service::tenant`]) has a quarter of them at most, an eighth when three quarters are
    /// taken. By default a quarter of the descriptors that the process may have open, and 4,096 at
    /// most.
    pub connections_max: usize,
    /// Most connections whose caller has not been admitted yet. A further one takes the place of
    /// the oldest of the address that has most, once that has had a moment to greet. By default a
    /// quarter of the descriptors that the process may have open, and 1,024 at most.
    pub unadmitted_max: usize,
    /// Most frames of one connection that are answered later; then reading stops until some are.
    pub in_flight_max: usize,
    /// A connection without a byte for this long is closed.
    pub first_byte_within: Duration,
    /// A connection without a greeting for this long is closed, the handshake of TLS included.
    pub hello_within: Duration,
    /// A peer that receives no bytes for this long is disconnected.
    pub write_within: Duration,
    /// A peer that sends nothing for this long in the middle of a frame is given up: the frame's
    /// memory is free then.
    pub read_within: Duration,
    /// Time after which other connections get their turn: a peer whose next request is always there
    /// already would keep a thread for itself. Each turn costs that peer tens of microseconds,
    /// because the runtime wakes another thread while one searches for work.
    pub turn: Duration,
    /// Memory that long bodies are received into, by all connections.
    pub buffers: Buffers,
    /// The server's certificate; without it the endpoint uses no TLS.
    pub tls: Option<ServerTls>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        let shares = DescriptorShares::of_process();
        Self {
            connections_max: shares.admitted,
            unadmitted_max: shares.unadmitted,
            in_flight_max: REQUESTS_IN_FLIGHT_MAX,
            // A caller sends at once what it connects for. Lost packets are sent again after 1 s.
            first_byte_within: Duration::from_secs(3),
            // Machines may be busy.
            hello_within: Duration::from_secs(10),
            write_within: Duration::from_secs(30),
            read_within: Duration::from_secs(30),
            // Half of what a frame of 512 short requests takes.
            turn: Duration::from_micros(250),
            // Most long bodies go elsewhere: little is worth keeping. In use may be sixteen of the
            // longest at once.
            buffers: Buffers::within(8 << 20, Memory::new(MEMORY_MAX)),
            tls: None,
        }
    }
}

/// A connection, from its start to its end however that comes.
struct Open<S: Service>(Arc<S>);

impl<S: Service> Open<S> {
    fn new(service: Arc<S>) -> Self {
        service.opened();
        Self(service)
    }
}

impl<S: Service> Drop for Open<S> {
    fn drop(&mut self) {
        self.0.closed();
    }
}

/// Waits for the first byte, and shakes hands where the endpoint has TLS. A peer that does not
/// speak it gets a refusal.
async fn met(stream: TcpStream, options: &ServeOptions) -> Option<Stream> {
    let first_byte = timeout(options.first_byte_within, stream.peek(&mut [0])).await;
    if !matches!(first_byte, Ok(Ok(1))) {
        return None;
    }
    let Some(tls) = &options.tls else { return Some(stream.into()) };
    prepare(&stream);
    match tls.accept(stream).await {
        Ok(Accepted::Tls(stream)) => Some(stream),
        Ok(Accepted::Plain(stream)) => {
            tracing::info!("a caller without TLS was turned away");
            let why = Refusal::TLS_REQUIRED.to_owned();
            let refusal = refuse_connection(&Refusal::Unauthenticated { why });
            let mut header = refusal.header;
            header.body_bytes = refusal.body[0].len() as u32;
            turn_away(stream, &[&header.encode()[..], &refusal.body[0]].concat()).await;
            None
        }
        Err(error) => {
            tracing::info!(%error, "a TLS handshake failed");
            None
        }
    }
}

/// Attends one connection until it ends, or until another one has its place.
async fn attend<S: Service>(
    stream: TcpStream,
    service: Arc<S>,
    options: &ServeOptions,
    pending: PendingAdmission,
) {
    let greeting = async {
        let stream = met(stream, options).await?;
        greeted(stream, service, options, |tenant| pending.admit(tenant)).await
    };
    let admitted = tokio::select! {
        () = pending.evicted() => None,
        admitted = timeout(options.hello_within, greeting) => admitted.ok().flatten(),
    };
    drop(pending);
    if let Some(session) = admitted {
        session.attend().await;
    }
}

/// Accepts connections and serves them until `shutdown`, then ends every connection and returns.
pub async fn serve<S: Service>(
    listener: TcpListener,
    service: Arc<S>,
    options: ServeOptions,
    shutdown: CancellationToken,
) {
    let room = ConnectionLimit::new(options.connections_max, options.unadmitted_max);
    let options = Arc::new(options);
    let begin = move |stream: TcpStream, pending: PendingAdmission| {
        let (service, options) = (Arc::clone(&service), Arc::clone(&options));
        let open = Open::new(Arc::clone(&service));
        async move {
            let _open = open;
            attend(stream, service, &options, pending).await;
        }
    };
    let enter = |address| room.enter(address);
    let close_oldest = || room.close_oldest(Instant::now());
    let mut connections =
        accept_until(&shutdown, &listener, "protocol", enter, close_oldest, begin).await;
    connections.shutdown().await;
}
