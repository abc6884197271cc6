//! Serving: every complete frame in the buffer is handled, then all answers go out in one write.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Hello, HelloReply};
use sanderling_protocol::{Frame, FrameError, Header, Op, Refusal};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::connection::write_all;
use crate::reader::{FrameReader, ReadError};
use crate::socket::prepare;

/// An answer. The header's `body_bytes` is filled in when it is sent.
#[derive(Debug)]
pub struct Response {
    /// The fixed part.
    pub header: Header,
    /// The body in pieces: `Bytes::from_owner` lets a datanode answer straight from its arena.
    pub body: Vec<Bytes>,
}

impl Response {
    /// Returns the answer that refuses a request.
    #[must_use]
    pub fn refused(request: &Header, refusal: &Refusal) -> Self {
        let mut header = request.reply();
        header.status = refusal.code();
        Self { header, body: vec![Bytes::from(encode_body(refusal))] }
    }

    /// Returns the answer with a message as its body.
    #[must_use]
    pub fn message<T: serde::Serialize>(request: &Header, message: &T) -> Self {
        Self { header: request.reply(), body: vec![Bytes::from(encode_body(message))] }
    }
}

/// How a frame is answered.
pub enum Handled {
    /// At once, together with the other frames of the buffer.
    Now(Response),
    /// When this is done; other frames are answered meanwhile. Dropped when the connection ends.
    Later(Pin<Box<dyn Future<Output = Response> + Send>>),
}

/// What a server does with frames.
pub trait Service: Send + Sync + 'static {
    /// Answers the greeting.
    ///
    /// # Errors
    /// The refusal is sent and the connection closed.
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal>;

    /// Takes one frame. Must not block.
    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled;
}

/// Bounds of a server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Most connections; further ones are closed at once.
    pub connections_max: usize,
    /// Most frames of one connection that are answered later; then reading stops until some are.
    pub in_flight_max: usize,
    /// A connection without a greeting for this long is closed.
    pub hello_within: Duration,
    /// A peer that takes no bytes for this long is given up.
    pub write_within: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            // Half of what systemd lets a service open by default on Debian (524288) is far more;
            // this bounds the memory of their buffers to 256 MiB.
            connections_max: 4096,
            in_flight_max: 256,
            hello_within: Duration::from_secs(10),
            write_within: Duration::from_secs(30),
        }
    }
}

/// Serves until `shutdown`, then ends every connection.
pub async fn serve<S: Service>(
    listener: TcpListener,
    service: Arc<S>,
    options: ServeOptions,
    shutdown: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(options.connections_max));
    let options = Arc::new(options);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: serve who is there, then look again.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            tracing::warn!(limit = options.connections_max, "connection refused: too many");
            continue;
        };
        let (service, options) = (Arc::clone(&service), Arc::clone(&options));
        connections.spawn(async move {
            let _permit = permit;
            prepare(&stream);
            attend(stream, service, &options).await;
        });
    }
    connections.shutdown().await;
}

/// Attends one connection until it ends.
async fn attend<S: Service>(stream: TcpStream, service: Arc<S>, options: &ServeOptions) {
    let (mut read, mut write) = stream.into_split();
    let mut reader = FrameReader::default();
    let greeted = timeout(options.hello_within, reader.next(&mut read)).await;
    let (reply, is_welcome) = match greeted {
        Err(_) | Ok(Err(ReadError::Io(_) | ReadError::Closed)) => return,
        Ok(Err(ReadError::Frame(error))) => (refuse_connection(&error.refusal()), false),
        Ok(Ok(frame)) => greet(&*service, &frame),
    };
    if send(&mut write, vec![reply], options).await.is_err() || !is_welcome {
        return;
    }
    let session = Session { service, options, later: FuturesUnordered::new() };
    session.run(&mut reader, &mut read, &mut write).await;
}

fn greet<S: Service>(service: &S, frame: &Frame<Bytes>) -> (Response, bool) {
    if frame.header.op != Op::Hello {
        return (Response::refused(&frame.header, &Refusal::NoHello), false);
    }
    let answer = decode_body::<Hello>(&frame.body).and_then(|hello| service.hello(&hello));
    match answer {
        Ok(reply) => (Response::message(&frame.header, &reply), true),
        Err(refusal) => (Response::refused(&frame.header, &refusal), false),
    }
}

/// A refusal of the connection itself: it answers request 0, which nobody makes.
fn refuse_connection(refusal: &Refusal) -> Response {
    Response::refused(&Header::new(Op::Hello, 0), refusal)
}

struct Session<'a, S> {
    service: Arc<S>,
    options: &'a ServeOptions,
    later: FuturesUnordered<Pin<Box<dyn Future<Output = Response> + Send>>>,
}

impl<S: Service> Session<'_, S> {
    async fn run(
        mut self,
        reader: &mut FrameReader,
        read: &mut (impl AsyncRead + Unpin),
        write: &mut (impl AsyncWrite + Unpin),
    ) {
        loop {
            let (responses, broken) = self.handle_buffered(reader);
            if !responses.is_empty() && send(write, responses, self.options).await.is_err() {
                return;
            }
            if let Some(error) = broken {
                let goodbye = refuse_connection(&error.refusal());
                let _ = send(write, vec![goodbye], self.options).await;
                return;
            }
            let may_read = self.later.len() < self.options.in_flight_max;
            tokio::select! {
                filled = reader.fill(read), if may_read => match filled {
                    Ok(()) => {}
                    Err(ReadError::Frame(error)) => {
                        let goodbye = refuse_connection(&error.refusal());
                        let _ = send(write, vec![goodbye], self.options).await;
                        return;
                    }
                    Err(ReadError::Io(_) | ReadError::Closed) => return,
                },
                Some(response) = self.later.next() => {
                    let mut responses = vec![response];
                    self.take_done(&mut responses);
                    if send(write, responses, self.options).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Handles every complete frame of the buffer.
    fn handle_buffered(&self, reader: &mut FrameReader) -> (Vec<Response>, Option<FrameError>) {
        let mut responses = Vec::new();
        while self.later.len() < self.options.in_flight_max {
            match reader.buffered() {
                Ok(None) => break,
                Err(error) => return (responses, Some(error)),
                Ok(Some(frame)) => match self.service.handle(frame.header, frame.body) {
                    Handled::Now(response) => responses.push(response),
                    Handled::Later(future) => self.later.push(future),
                },
            }
        }
        (responses, None)
    }

    /// Takes the answers that are ready by now, without waiting.
    fn take_done(&mut self, responses: &mut Vec<Response>) {
        while let Some(Some(response)) = futures_util::FutureExt::now_or_never(self.later.next()) {
            responses.push(response);
        }
    }
}

async fn send(
    write: &mut (impl AsyncWrite + Unpin),
    responses: Vec<Response>,
    options: &ServeOptions,
) -> std::io::Result<()> {
    let mut parts = Vec::with_capacity(2 * responses.len());
    for response in responses {
        let bytes: usize = response.body.iter().map(Bytes::len).sum();
        let mut header = response.header;
        header.body_bytes = u32::try_from(bytes).expect("a service keeps to the frame's limit");
        parts.push(Bytes::copy_from_slice(&header.encode()));
        parts.extend(response.body);
    }
    write_all(write, &mut parts, options.write_within).await
}
