//! Serving HTTP/1.1: a bound on connections, and a deadline on everything that a peer may be slow
//! with. A connection without a request under way gives its place to a new one.

mod client;
mod connection;
mod connection_slots;
mod received;
mod refusal_status;

use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use sanderling_protocol::amount;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::connection::{ConnectionSet, ConnectionSlot, ResponseBody};
use crate::descriptors::DescriptorShares;
use crate::listen::accept_until;
use crate::stream::{break_unacknowledged, prepare};
use crate::tls::{ServerTls, begins_tls, turn_away};

pub use self::client::{PageCall, PageCallError, PageFault, pass_on};
pub use self::connection::HttpConnection;
pub use self::received::RequestBody;
pub use self::refusal_status::http_status;

/// The answer to a caller that does not speak TLS.
const PLAIN_ANSWER: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n\
    connection: close\r\n\r\n{\"schema\":1,\"error\":{\"code\":160,\"name\":\"Unauthenticated\",\
    \"message\":\"not authenticated: this port speaks TLS: use https\"}}\n";

type Failed = Box<dyn Error + Send + Sync>;

/// Why a connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error("{0}")]
    Failed(Failed),
    #[error("the request had no answer within {}", amount::duration(*.0))]
    Late(Duration),
    #[error("the connection made room for another")]
    Evicted,
}

/// Bounds of an HTTP server.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Most connections, followers apart. A further one takes the place of the oldest without a
    /// request under way, of the address that has most of those. While there is none, further ones
    /// wait in the kernel's queue. By default an eighth of the descriptors that the process may
    /// have open, and 256 at most.
    pub connections_max: usize,
    /// Most connections whose answer has no end, see [`HttpConnection::follow`]. By default an
    /// eighth of the descriptors, and 128 at most.
    pub followers_max: usize,
    /// How long a peer may take to send a request's head, counted from the first moment at which
    /// it could: a connection that idles for this long is closed.
    pub head_within: Duration,
    /// How long it may take until an answer begins, the request's body included; then the
    /// connection is closed. How long the answer goes on is not bounded: events have no end.
    pub answer_within: Duration,
    /// How long a peer may receive or acknowledge nothing of an answer that is being sent; then the
    /// connection is closed.
    pub take_within: Duration,
    /// How long answers that are under way at the end may still take.
    pub end_within: Duration,
    /// The server's certificate; without it the endpoint uses no TLS.
    pub tls: Option<ServerTls>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        let shares = DescriptorShares::of_process();
        Self {
            connections_max: shares.http,
            followers_max: shares.followers,
            // The default of hyper.
            head_within: Duration::from_secs(30),
            answer_within: Duration::from_secs(60),
            take_within: Duration::from_secs(60),
            end_within: Duration::from_secs(2),
            tls: None,
        }
    }
}

/// Serves until `shutdown` is cancelled, and the answers that are then under way within
/// [`HttpOptions::end_within`].
pub async fn serve_http<S, B>(
    listener: TcpListener,
    service: S,
    options: HttpOptions,
    shutdown: CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Failed>,
    B: Body<Data: Send, Error: Into<Failed>> + Send + 'static,
{
    let connection_set = ConnectionSet::new(options.connections_max, options.followers_max);
    let end_within = options.end_within;
    let (options, stop) = (Arc::new(options), shutdown.clone());
    let begin = move |stream: TcpStream, place: ConnectionSlot| {
        // A peer whose machine is gone sends nothing: probes find out, and what it is sent.
        prepare(&stream);
        break_unacknowledged(&stream, options.take_within);
        let (service, options) = (service.clone(), Arc::clone(&options));
        let stop = stop.clone();
        async move {
            tokio::select! {
                () = place.evicted() => {}
                () = meet(stream, service, &options, stop, &place) => {}
            }
        }
    };
    let enter = |address| connection_set.enter(address);
    let close_oldest = || connection_set.close_oldest(Instant::now());
    let mut connections =
        accept_until(&shutdown, &listener, "HTTP", enter, close_oldest, begin).await;
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(end_within, ended).await.is_err() {
        tracing::info!("HTTP answers were cut at the end");
    }
    connections.shutdown().await;
}

/// Serves requests with short bodies: one that does not arrive within 10 s is given up, and a
/// connection makes room for others until it is there.
pub async fn serve_pages<S, B>(
    listener: TcpListener,
    service: S,
    options: HttpOptions,
    shutdown: CancellationToken,
) where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Failed>,
    B: Body<Data: Send, Error: Into<Failed>> + Send + 'static,
{
    let pages = ShortBodies(service);
    serve_http(listener, pages, options, shutdown).await;
}

/// A service that sees bodies as [`RequestBody`].
#[derive(Clone)]
struct ShortBodies<S>(S);

impl<S: Service<Request<RequestBody>>> Service<Request<Incoming>> for ShortBodies<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, request: Request<Incoming>) -> S::Future {
        let connection = request.extensions().get::<HttpConnection>().cloned();
        self.0.call(request.map(|body| RequestBody::new(body, connection)))
    }
}

/// Shakes hands where the endpoint has TLS, and attends the connection.
async fn meet<S, B>(
    stream: TcpStream,
    service: S,
    options: &HttpOptions,
    shutdown: CancellationToken,
    place: &ConnectionSlot,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Future: Send, Error: Into<Failed>> + Send,
    B: Body<Data: Send, Error: Into<Failed>> + Send + 'static,
{
    let Some(tls) = &options.tls else {
        return attend(stream, service, options, shutdown, place).await;
    };
    let shaken = async {
        if begins_tls(&stream).await? {
            return tls.acceptor().accept(stream).await.map(Some);
        }
        turn_away(stream, PLAIN_ANSWER.as_bytes()).await;
        Ok(None)
    };
    match timeout(options.head_within, shaken).await {
        Ok(Ok(Some(stream))) => attend(stream, service, options, shutdown, place).await,
        Ok(Ok(None)) => tracing::info!("a caller without TLS was turned away from HTTP"),
        Ok(Err(error)) => tracing::info!(%error, "a TLS handshake for HTTP failed"),
        Err(_) => {}
    }
}

async fn attend<S, B, I>(
    stream: I,
    service: S,
    options: &HttpOptions,
    shutdown: CancellationToken,
    place: &ConnectionSlot,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Future: Send, Error: Into<Failed>> + Send,
    B: Body<Data: Send, Error: Into<Failed>> + Send + 'static,
    I: AsyncRead + AsyncWrite + Unpin + Send,
{
    let within = options.answer_within;
    let bounded = service_fn(move |mut request: Request<Incoming>| {
        let under_way = place.connection().begin();
        request.extensions_mut().insert(place.connection().clone());
        let answer = under_way.map(|it| (service.call(request), it));
        async move {
            let (answer, under_way) = answer.ok_or(NoAnswer::Evicted)?;
            let answer = async { answer.await.map_err(Into::<Failed>::into) };
            let mut answer = std::pin::pin!(answer);
            let answered = match timeout(within, answer.as_mut()).await {
                Ok(answered) => answered,
                // It has a place among the answers that take long.
                Err(_) if place.connection().follows() => answer.await,
                Err(_) => return Err(NoAnswer::Late(within)),
            };
            match answered {
                Ok(answer) => Ok(answer.map(|body| ResponseBody::new(body, under_way))),
                Err(error) => Err(NoAnswer::Failed(error)),
            }
        }
    });
    let taken = Taken { stream, within: options.take_within, timer: None, place };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(options.head_within);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(taken), bounded));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}

/// A stream whose peer may not stop taking what is written. It notes when all of that was taken.
struct Taken<'a, I> {
    stream: I,
    within: Duration,
    /// Runs while nothing is taken.
    timer: Option<Pin<Box<Sleep>>>,
    place: &'a ConnectionSlot,
}

impl<I> Taken<'_, I> {
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let within = self.within;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(within)));
        ready!(timer.as_mut().poll(context));
        let why = format!("the peer took nothing for {}", amount::duration(within));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Taken<'_, I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Taken<'_, I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.place.connection().flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Either, Full};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const GET: &[u8] =
        b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\nhere";
    const SOON: Duration = Duration::from_secs(60);

    /// Echoes bodies; follows for ever without one.
    async fn serve(request: Request<Incoming>) -> Result<Response<Answered>, hyper::Error> {
        if !matches!(request.uri().path(), "/events" | "/late") {
            let body = request.into_body().collect().await?.to_bytes();
            return Ok(Response::new(Answered::Right(Full::new(body))));
        }
        let connection = request.extensions().get::<HttpConnection>().unwrap();
        if request.uri().path() == "/late" {
            connection.follow().unwrap();
            sleep(LATE).await;
            return Ok(Response::new(Answered::Right(Full::new(Bytes::from_static(b"late")))));
        }
        let mut answer = Response::new(Answered::Left(Endless));
        if connection.follow().is_err() {
            *answer.body_mut() = Answered::Right(Full::default());
            *answer.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE;
        }
        Ok(answer)
    }

    /// Ten times what an answer may take in the test that needs it.
    const LATE: Duration = Duration::from_millis(200);

    type Answered = Either<Endless, Full<Bytes>>;

    struct Endless;

    impl Body for Endless {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    struct Endpoint {
        address: std::net::SocketAddr,
        stop: CancellationToken,
        served: tokio::task::JoinHandle<()>,
    }

    impl Endpoint {
        async fn open(options: HttpOptions) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let stop = CancellationToken::new();
            let service = service_fn(serve);
            let served = tokio::spawn(serve_http(listener, service, options, stop.clone()));
            Self { address, stop, served }
        }

        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.address).await.unwrap()
        }

        /// Waits until a connection is served: on a busy machine a peer may be slow through no
        /// fault of its own.
        async fn serves(&self) {
            let served =
                async { while !request(&mut self.connect().await).await.ends_with("here") {} };
            timeout(SOON, served).await.expect("a peer that is not slow is served");
        }
    }

    async fn request(stream: &mut TcpStream) -> String {
        // A peer that was too slow finds the connection closed.
        let _ = stream.write_all(GET).await;
        rest(stream).await
    }

    async fn rest(stream: &mut TcpStream) -> String {
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        // A connection that was closed with bytes unread ends with a reset.
        drop(timeout(SOON, read).await.expect("the endpoint sends something or closes"));
        answer
    }

    #[tokio::test]
    async fn peer_that_never_ends_its_head_is_left() {
        let within = Duration::from_millis(50);
        let endpoint =
            Endpoint::open(HttpOptions { head_within: within, ..HttpOptions::default() }).await;
        let mut silent = endpoint.connect().await;
        let mut slow = endpoint.connect().await;
        slow.write_all(b"GET / HTTP/1.1\r\nx: ").await.unwrap();
        assert!(!rest(&mut silent).await.contains("200"));
        assert!(!rest(&mut slow).await.contains("200"));
        endpoint.serves().await;
    }

    #[tokio::test]
    async fn peer_that_never_ends_its_body_is_left() {
        let within = Duration::from_millis(50);
        let endpoint =
            Endpoint::open(HttpOptions { answer_within: within, ..HttpOptions::default() }).await;
        let mut slow = endpoint.connect().await;
        slow.write_all(&GET[..GET.len() - 1]).await.unwrap();
        assert!(!rest(&mut slow).await.contains("200"));
        endpoint.serves().await;
    }

    #[tokio::test]
    async fn answer_of_a_follower_may_begin_late() {
        let within = LATE / 10;
        let endpoint =
            Endpoint::open(HttpOptions { answer_within: within, ..HttpOptions::default() }).await;
        let mut stream = endpoint.connect().await;
        let request = b"GET /late HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        assert!(rest(&mut stream).await.ends_with("late"));
    }

    #[tokio::test]
    async fn peer_that_takes_nothing_is_left() {
        let within = Duration::from_millis(50);
        let endpoint =
            Endpoint::open(HttpOptions { take_within: within, ..HttpOptions::default() }).await;
        let mut deaf = endpoint.connect().await;
        // More than the kernel takes off the server's hands; the echo of it is never read.
        let body = vec![b'x'; 64 << 20];
        let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        deaf.write_all(head.as_bytes()).await.unwrap();
        deaf.write_all(&body).await.unwrap();
        let left = async { while deaf.write_all(b"x").await.is_ok() {} };
        timeout(SOON, left).await.expect("the endpoint closes");
        endpoint.serves().await;
    }

    #[tokio::test]
    async fn connection_beyond_the_bound_waits_until_another_ends() {
        let endpoint =
            Endpoint::open(HttpOptions { connections_max: 1, ..HttpOptions::default() }).await;
        let mut first = endpoint.connect().await;
        first.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        first.read_u8().await.unwrap();
        let mut second = endpoint.connect().await;
        second.write_all(GET).await.unwrap();
        drop(first);
        assert!(rest(&mut second).await.ends_with("here"));
    }

    #[tokio::test]
    async fn silent_connections_make_room_for_others() {
        let long = Duration::from_secs(3600);
        let options = HttpOptions { connections_max: 4, head_within: long, ..Default::default() };
        let endpoint = Endpoint::open(options).await;
        let mut silent = Vec::new();
        for _ in 0..9 {
            silent.push(endpoint.connect().await);
            // A connection that was answered and sends no further request is as idle.
            let mut idle = endpoint.connect().await;
            idle.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            timeout(SOON, idle.read_u8()).await.expect("it is answered").unwrap();
            silent.push(idle);
        }
        assert!(request(&mut endpoint.connect().await).await.ends_with("here"));
        assert!(!rest(&mut silent[0]).await.contains("200"), "it was closed");
    }

    #[tokio::test]
    async fn request_under_way_keeps_its_place() {
        let endpoint =
            Endpoint::open(HttpOptions { connections_max: 1, ..HttpOptions::default() }).await;
        let mut first = endpoint.connect().await;
        // After `100 Continue` its request is under way.
        let head =
            b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
        first.write_all(head).await.unwrap();
        timeout(SOON, first.read_u8()).await.expect("it may go on").unwrap();
        let mut second = endpoint.connect().await;
        second.write_all(GET).await.unwrap();
        let waits = timeout(Duration::from_millis(50), second.read_u8()).await;
        assert!(waits.is_err(), "there is one place");
        first.write_all(b"here").await.unwrap();
        assert!(rest(&mut second).await.ends_with("here"));
        assert!(rest(&mut first).await.ends_with("here"));
    }

    #[tokio::test]
    async fn followers_leave_places_to_others_and_have_a_bound() {
        let bounds = HttpOptions { connections_max: 1, followers_max: 3, ..Default::default() };
        let endpoint = Endpoint::open(bounds).await;
        let follow = async || {
            let mut stream = endpoint.connect().await;
            stream.write_all(b"GET /events HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            let mut status = [0; 12];
            let read = timeout(SOON, stream.read_exact(&mut status)).await;
            read.expect("it is answered").unwrap();
            (stream, status[9..].to_vec())
        };
        let mut followers = Vec::new();
        for _ in 0..3 {
            let (follower, status) = follow().await;
            assert_eq!(status, b"200");
            followers.push(follower);
        }
        assert_eq!(follow().await.1, b"503");
        assert!(request(&mut endpoint.connect().await).await.ends_with("here"));
        followers.pop();
        let again = async { while follow().await.1 != b"200" {} };
        timeout(SOON, again).await.expect("a follower's place comes back");
    }

    #[tokio::test]
    async fn end_comes_although_a_peer_sends_nothing() {
        let end_within = Duration::from_millis(50);
        let endpoint = Endpoint::open(HttpOptions { end_within, ..HttpOptions::default() }).await;
        let mut idle = endpoint.connect().await;
        idle.write_all(b"GET / HTTP/1.1\r\nx").await.unwrap();
        assert!(request(&mut endpoint.connect().await).await.ends_with("here"));
        endpoint.stop.cancel();
        timeout(SOON, endpoint.served).await.expect("it ends").unwrap();
    }
}
