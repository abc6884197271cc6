//! One connection to a peer, with many calls under way.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Hello, HelloReply};
use sanderling_protocol::{Frame, Header, Op, Refusal};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::CallError;
use crate::reader::FrameReader;
use crate::socket::prepare;

/// Bounds of one connection.
#[derive(Debug, Clone)]
pub struct ConnectionOptions {
    /// Most calls under way; further ones wait until their deadline.
    pub in_flight_max: usize,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        // Enough to hide the latency of small calls, and at most as many whole blocks in memory.
        Self { in_flight_max: 256 }
    }
}

type Answer = Result<Frame<Bytes>, CallError>;

/// One connection to a peer. Clones share it; it closes with the last of them.
#[derive(Debug, Clone)]
pub struct Connection {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: String,
    outgoing: mpsc::Sender<Vec<Bytes>>,
    waiters: Arc<Mutex<Waiters>>,
    next_request: AtomicU64,
    permits: Semaphore,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Shared {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

#[derive(Debug, Default)]
struct Waiters {
    by_request: HashMap<u64, oneshot::Sender<Answer>>,
    /// Why the connection broke, once it has.
    broken: Option<CallError>,
}

impl Waiters {
    fn fail(&mut self, error: &CallError) {
        self.broken.get_or_insert_with(|| error.clone());
        for (_, waiter) in self.by_request.drain() {
            // A waiter that has given up does not listen any more.
            let _ = waiter.send(Err(error.clone()));
        }
    }
}

impl Connection {
    /// Connects to a peer and exchanges greetings.
    ///
    /// # Errors
    /// [`CallError::Unreachable`] when nobody listens there, [`CallError::Refused`] when the peer
    /// is not who was meant.
    pub async fn connect(
        address: &str,
        hello: Hello,
        deadline: Instant,
    ) -> Result<(Self, HelloReply), CallError> {
        Self::connect_with(address, hello, deadline, &ConnectionOptions::default()).await
    }

    /// The same with other bounds.
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub async fn connect_with(
        address: &str,
        hello: Hello,
        deadline: Instant,
        options: &ConnectionOptions,
    ) -> Result<(Self, HelloReply), CallError> {
        let began = Instant::now();
        let dialled = timeout_at(deadline, TcpStream::connect(address)).await;
        let stream = dialled.map_err(|_| timed_out(address, began))?.map_err(|error| {
            CallError::Unreachable { address: address.to_owned(), cause: error.kind() }
        })?;
        prepare(&stream);
        let connection = Self::over(address, stream, options);
        let frame = connection
            .call(Header::new(Op::Hello, 0), vec![Bytes::from(encode_body(&hello))], deadline)
            .await?;
        let reply = decode_body::<HelloReply>(&frame.body)
            .map_err(|refusal| bad_reply(address, &refusal))?;
        Ok((connection, reply))
    }

    fn over(address: &str, stream: TcpStream, options: &ConnectionOptions) -> Self {
        let (read, write) = stream.into_split();
        let waiters = Arc::new(Mutex::new(Waiters::default()));
        let (outgoing, queue) = mpsc::channel(options.in_flight_max);
        let tasks = [
            tokio::spawn(receive(address.to_owned(), read, Arc::clone(&waiters))),
            tokio::spawn(send(address.to_owned(), write, queue, Arc::clone(&waiters))),
        ];
        let shared = Shared {
            address: address.to_owned(),
            outgoing,
            waiters,
            next_request: AtomicU64::new(1),
            permits: Semaphore::new(options.in_flight_max),
            tasks,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Sends a frame and waits for its answer. The header's `request` and `body_bytes` are filled
    /// in.
    ///
    /// # Errors
    /// [`CallError`]: its `recovery` says what to do. After `TimedOut` and `Closed` the call may
    /// have been done.
    pub async fn call(&self, header: Header, body: Vec<Bytes>, deadline: Instant) -> Answer {
        let began = Instant::now();
        let shared = &*self.shared;
        let permit = timeout_at(deadline, shared.permits.acquire()).await;
        let _permit = match permit {
            Ok(permit) => permit.expect("the semaphore is never closed"),
            Err(_) => return Err(CallError::TooBusy { address: shared.address.clone() }),
        };
        let request = shared.next_request.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiters = shared.waiters.lock();
            if let Some(error) = &waiters.broken {
                return Err(error.clone());
            }
            waiters.by_request.insert(request, sender);
        }
        let _forget = Forget { waiters: &shared.waiters, request };
        let frame = framed(header, request, body)?;
        let answered = timeout_at(deadline, async {
            let closed = |_| self.broken_error();
            shared.outgoing.send(frame).await.map_err(closed)?;
            receiver.await.map_err(|_| self.broken_error())?
        });
        match answered.await {
            Ok(answer) => check(&shared.address, answer?),
            Err(_) => Err(timed_out(&shared.address, began)),
        }
    }

    /// Tells whether the connection has broken: calls on it fail at once.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.shared.waiters.lock().broken.is_some()
    }

    /// Returns the peer's address.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    fn broken_error(&self) -> CallError {
        let broken = self.shared.waiters.lock().broken.clone();
        broken.unwrap_or_else(|| closed(&self.shared.address, "it was closed"))
    }
}

/// Forgets a waiter however its call ends, so that a cancelled call leaves nothing behind.
struct Forget<'a> {
    waiters: &'a Mutex<Waiters>,
    request: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.waiters.lock().by_request.remove(&self.request);
    }
}

fn framed(mut header: Header, request: u64, body: Vec<Bytes>) -> Result<Vec<Bytes>, CallError> {
    let bytes: usize = body.iter().map(Bytes::len).sum();
    let limit = sanderling_protocol::limits::FRAME_BODY_BYTES_MAX;
    header.body_bytes =
        u32::try_from(bytes).ok().filter(|bytes| *bytes <= limit).ok_or_else(|| {
            let (value, limit) = (bytes as u64, u64::from(limit));
            Refusal::TooLarge { what: "frame body".to_owned(), value, limit }
        })?;
    header.request = request;
    let mut frame = Vec::with_capacity(1 + body.len());
    frame.push(Bytes::copy_from_slice(&header.encode()));
    frame.extend(body);
    Ok(frame)
}

fn check(address: &str, frame: Frame<Bytes>) -> Answer {
    if frame.header.status == 0 {
        return Ok(frame);
    }
    let refusal = decode_body::<Refusal>(&frame.body);
    Err(refusal.map_or_else(|error| bad_reply(address, &error), CallError::Refused))
}

/// Hands each answer to its waiter until the connection breaks.
async fn receive(
    address: String,
    mut stream: impl AsyncRead + Unpin,
    waiters: Arc<Mutex<Waiters>>,
) {
    let mut reader = FrameReader::default();
    let error = loop {
        match reader.next(&mut stream).await {
            Ok(frame) if frame.header.request == 0 => {
                // A refusal of the connection itself.
                break match check(&address, frame) {
                    Err(error) => error,
                    Ok(_) => closed(&address, "an answer to no request"),
                };
            }
            Ok(frame) => {
                let waiter = waiters.lock().by_request.remove(&frame.header.request);
                if let Some(waiter) = waiter {
                    // The caller may have given up meanwhile.
                    let _ = waiter.send(Ok(frame));
                }
            }
            Err(error) => break closed(&address, &error.to_string()),
        }
    };
    waiters.lock().fail(&error);
}

/// Time after which a peer that takes no bytes is given up: longer than any call waits by default.
const WRITE_WITHIN: Duration = Duration::from_secs(30);

/// Writes queued frames, all that are there at once.
async fn send(
    address: String,
    mut stream: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Vec<Bytes>>,
    waiters: Arc<Mutex<Waiters>>,
) {
    let mut frames = Vec::new();
    while queue.recv_many(&mut frames, 64).await > 0 {
        let mut parts: Vec<Bytes> = frames.drain(..).flatten().collect();
        if let Err(error) = write_all(&mut stream, &mut parts, WRITE_WITHIN).await {
            waiters.lock().fail(&closed(&address, &error.to_string()));
            return;
        }
    }
}

/// Most parts given to one system call, as Linux takes no more (`UIO_MAXIOV`).
const PARTS_PER_WRITE_MAX: usize = 1024;

/// Writes all parts in order with gathered writes. Fails when the peer takes nothing for `within`.
pub(crate) async fn write_all(
    stream: &mut (impl AsyncWrite + Unpin),
    parts: &mut Vec<Bytes>,
    within: Duration,
) -> std::io::Result<()> {
    parts.retain(|part| !part.is_empty());
    let mut first = 0;
    while first < parts.len() {
        let upto = parts.len().min(first + PARTS_PER_WRITE_MAX);
        let slices: Vec<IoSlice<'_>> =
            parts[first..upto].iter().map(|part| IoSlice::new(part)).collect();
        // Each write has the whole time: many answers may take a slow link longer together.
        let mut written = timeout(within, stream.write_vectored(&slices))
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
        if written == 0 {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        while written > 0 {
            let taken = written.min(parts[first].len());
            parts[first].advance(taken);
            written -= taken;
            if parts[first].is_empty() {
                first += 1;
            }
        }
    }
    parts.clear();
    Ok(())
}

fn closed(address: &str, why: &str) -> CallError {
    CallError::Closed { address: address.to_owned(), why: why.to_owned() }
}

fn timed_out(address: &str, began: Instant) -> CallError {
    let waited: Duration = began.elapsed();
    CallError::TimedOut { address: address.to_owned(), waited }
}

pub(crate) fn bad_reply(address: &str, refusal: &Refusal) -> CallError {
    CallError::BadReply { address: address.to_owned(), why: refusal.to_string() }
}
