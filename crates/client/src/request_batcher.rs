//! Batches requests to the namenode.
//!
//! The first caller sends on its own task. While its frame is in flight later requests are queued
//! and sent together in the next one, so frames grow with the load: once a frame has carried
//! several requests, the next one waits until the callers that were just answered had a chance to
//! send again. When a queue is long, another connection is opened: more threads get more done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_protocol::limits::FRAME_BODY_BYTES_MAX;
use sanderling_protocol::message::Repetition;
use sanderling_protocol::{Refusal, Reply, Request};
use sanderling_transport::{
    CallError, CloseCause, EncodedRequest, Namenodes, Pool, Repeats, trace,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Requests of one frame. A lookup in a batch costs a small part of one alone; beyond this the
/// first of a batch would wait noticeably for the last.
const BATCH_MAX: usize = 128;

/// Requests that may wait for a frame of one connection. 32 full frames ([`BATCH_MAX`]); a further
/// one fails at once. Callers of one process are its tasks, so a longer queue would only hold their
/// memory while the namenode is slow. Chosen, not measured.
const QUEUE_MAX: usize = 4096;

/// Requests that wait for a connection before the next one is used: half a batch.
const SPILL_AT: usize = BATCH_MAX / 2;

/// Time after which queued requests overtake a frame that its caller sends on its own task. The
/// caller may not be polling: a future that is polled only between other things, as in a buffered
/// stream, is not when these other things wait for the namenode in turn.
const OVERTAKE_AFTER: Duration = Duration::from_millis(5);

type ReplyResult = Result<Reply, CallError>;

#[derive(Debug)]
struct PendingRequest {
    request: EncodedRequest,
    repeats: Repeats,
    deadline: Instant,
    answer: oneshot::Sender<ReplyResult>,
}

/// Sends requests to the namenode that leads.
#[derive(Debug)]
pub(crate) struct RequestBatcher {
    connections: Vec<Arc<BatchedConnection>>,
    next: AtomicUsize,
}

/// One connection, and the requests that wait for it.
#[derive(Debug)]
struct BatchedConnection {
    pool: Pool,
    namenodes: Namenodes,
    /// Frames that may be under way together.
    frames_max: usize,
    waiting: Mutex<BatchQueue>,
}

#[derive(Debug, Default)]
struct BatchQueue {
    queue: VecDeque<PendingRequest>,
    /// Frames under way.
    frames: usize,
    /// Those of them whose callers send them themselves, the oldest first.
    direct: VecDeque<u64>,
    /// Number of the last of these.
    direct_last: u64,
    /// Whether the last frame carried several requests: then more come in a moment, from callers
    /// that have just got their answers, and the next frame waits for them.
    is_crowded: bool,
}

impl RequestBatcher {
    /// Batches over these pools, each of which is one connection with so many frames in flight.
    pub(crate) fn new(pools: Vec<Pool>, namenodes: &Namenodes, frames_max: usize) -> Self {
        let connection = |pool| {
            let (namenodes, waiting) = (namenodes.clone(), Mutex::default());
            Arc::new(BatchedConnection { pool, namenodes, frames_max, waiting })
        };
        Self { connections: pools.into_iter().map(connection).collect(), next: AtomicUsize::new(0) }
    }

    /// Sends a request once.
    pub(crate) async fn send(&self, request: &Request, deadline: Instant) -> ReplyResult {
        let encoded = EncodedRequest::new(request);
        let repeats = match request.repeat() {
            Repetition::Reads => Repeats::Always,
            Repetition::Once | Repetition::Alike => Repeats::Undone,
        };
        // A frame has one trace: the request of a sampled one travels alone.
        if waits(request) || trace::current().is_some() {
            return self.next_connection().send_alone(encoded, repeats, deadline).await;
        }
        let is_free =
            |connection: &&Arc<BatchedConnection>| connection.waiting.lock().queue.len() < SPILL_AT;
        let connection =
            self.connections.iter().find(is_free).unwrap_or_else(|| self.next_connection());
        match connection.send_batched(encoded, repeats, deadline).await {
            // If the frame's answer was too large, the request is sent again alone. That does not
            // make a change again: its answer is repeated.
            Err(CallError::Refused(Refusal::TooLarge { .. })) if does_nothing_twice(request) => {
                connection.send_alone(EncodedRequest::new(request), repeats, deadline).await
            }
            answer => answer,
        }
    }

    fn next_connection(&self) -> &Arc<BatchedConnection> {
        &self.connections[self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len()]
    }
}

impl BatchedConnection {
    async fn send_batched(
        self: &Arc<Self>,
        request: EncodedRequest,
        repeats: Repeats,
        deadline: Instant,
    ) -> ReplyResult {
        let queued = {
            let mut waiting = self.waiting.lock();
            let may_begin = waiting.frames < self.frames_max && waiting.queue.is_empty();
            if may_begin && !waiting.is_crowded {
                waiting.frames += 1;
                waiting.direct_last += 1;
                let number = waiting.direct_last;
                waiting.direct.push_back(number);
                Err((number, request))
            } else if waiting.queue.len() >= QUEUE_MAX {
                return Err(CallError::TooBusy { address: self.address() });
            } else {
                let (answer, answered) = oneshot::channel();
                waiting.queue.push_back(PendingRequest { request, repeats, deadline, answer });
                waiting.frames += usize::from(may_begin);
                Ok((answered, may_begin))
            }
        };
        let mut answered = match queued {
            Ok((answered, false)) => answered,
            Ok((answered, true)) => {
                let turn = InFlightFrame { connection: Arc::clone(self), direct: None };
                // Its end begins the frame, after all callers that are ready have queued requests.
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    drop(turn);
                });
                answered
            }
            Err((number, request)) => {
                let _turn = InFlightFrame { connection: Arc::clone(self), direct: Some(number) };
                return self.send_alone(request, repeats, deadline).await;
            }
        };
        let began = Instant::now();
        let mut answer = timeout_at(deadline.min(began + OVERTAKE_AFTER), &mut answered).await;
        if answer.is_err() {
            self.overtake();
            answer = timeout_at(deadline, answered).await;
        }
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                Err(CallError::Closed { address: self.address(), cause: CloseCause::ShutDown })
            }
            Err(_) => {
                let (address, waited): (_, Duration) = (self.address(), began.elapsed());
                Err(CallError::TimedOut { address, waited })
            }
        }
    }

    /// Takes over from the oldest frame that its caller sends on its own task.
    fn overtake(self: &Arc<Self>) {
        if self.waiting.lock().direct.pop_front().is_some() {
            drop(InFlightFrame { connection: Arc::clone(self), direct: None });
        }
    }

    async fn send_alone(
        &self,
        request: EncodedRequest,
        repeats: Repeats,
        deadline: Instant,
    ) -> ReplyResult {
        let request = [request];
        let sent = self.namenodes.meta(&self.pool, &request, repeats, deadline);
        let mut answers = sent.await?;
        answers.pop().expect("one answer to one request").map_err(CallError::Refused)
    }

    fn address(&self) -> String {
        self.namenodes.target().to_string()
    }

    /// Takes the requests of the next frame. Those whose callers have gone are left out.
    fn next_batch(&self) -> Option<Vec<PendingRequest>> {
        let mut waiting = self.waiting.lock();
        let mut batch = Vec::with_capacity(waiting.queue.len().min(BATCH_MAX));
        while batch.len() < BATCH_MAX
            && let Some(pending) = waiting.queue.pop_front()
        {
            if !pending.answer.is_closed() {
                batch.push(pending);
            }
        }
        if batch.is_empty() {
            waiting.frames -= 1;
            return None;
        }
        waiting.is_crowded = batch.len() > 1;
        Some(batch)
    }

    async fn send_batch(&self, batch: Vec<PendingRequest>) {
        debug_assert!(BATCH_MAX * 8192 < FRAME_BODY_BYTES_MAX as usize, "a batch fits a frame");
        let deadline = batch.iter().map(|it| it.deadline).max().unwrap_or_else(Instant::now);
        let mut waiters = Vec::with_capacity(batch.len());
        let mut requests = Vec::with_capacity(batch.len());
        // What one of them must not meet, the frame does not meet.
        let is_read = batch.iter().all(|it| it.repeats == Repeats::Always);
        let repeats = if is_read { Repeats::Always } else { Repeats::Undone };
        for pending in batch {
            waiters.push(pending.answer);
            requests.push(pending.request);
        }
        // A caller may have given up meanwhile.
        match self.namenodes.meta(&self.pool, &requests, repeats, deadline).await {
            Ok(answers) => {
                for (waiter, answer) in waiters.into_iter().zip(answers) {
                    let _ = waiter.send(answer.map_err(CallError::Refused));
                }
            }
            Err(error) => {
                for waiter in waiters {
                    let _ = waiter.send(Err(error.clone()));
                }
            }
        }
    }
}

/// A frame under way. However it ends, cancelled or answered, the next one follows.
struct InFlightFrame {
    connection: Arc<BatchedConnection>,
    /// The frame's number when its caller sends it on its own task: it may have been overtaken.
    direct: Option<u64>,
}

impl Drop for InFlightFrame {
    fn drop(&mut self) {
        if let Some(number) = self.direct {
            let direct = &mut self.connection.waiting.lock().direct;
            let Some(at) = direct.iter().position(|it| *it == number) else { return };
            direct.remove(at);
        }
        let Some(batch) = self.connection.next_batch() else { return };
        let Ok(runtime) = Handle::try_current() else {
            // The runtime has ended; the batch's drop fails its waiters.
            self.connection.waiting.lock().frames -= 1;
            return;
        };
        let turn = Self { connection: Arc::clone(&self.connection), direct: None };
        runtime.spawn(async move {
            let is_batch = batch.len() > 1;
            turn.connection.send_batch(batch).await;
            if is_batch {
                // Else the callers that were just answered would miss every next frame.
                tokio::task::yield_now().await;
            }
            drop(turn);
        });
    }
}

/// Returns whether a request may take long, or is long: others must not wait for it.
fn waits(request: &Request) -> bool {
    match request.inner() {
        Request::Events { wait, .. } => wait.0 > 0,
        // A namenode of the version before refuses them, and all that is in their frame.
        Request::OpenClient { .. } | Request::DeleteObject { .. } | Request::Room => true,
        Request::BlockReport { .. }
        | Request::LookupMany { .. }
        | Request::Usage { .. }
        | Request::Fsck => true,
        _ => false,
    }
}

const fn does_nothing_twice(request: &Request) -> bool {
    matches!(
        request,
        Request::Once(_)
            | Request::Lookup { .. }
            | Request::LookupObject { .. }
            | Request::Stat { .. }
            | Request::List { .. }
            | Request::Nodes { .. }
            | Request::NodeBlocks { .. }
            | Request::Jobs
            | Request::Report
    )
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sanderling_protocol::frame::decode_body;
    use sanderling_protocol::message::{Hello, HelloReply, Role};
    use sanderling_protocol::{Header, Path};
    use sanderling_transport::{Handled, PoolOptions, Response, ServeOptions, Service, serve};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// A namenode that answers everything alike and counts frames.
    #[derive(Default)]
    struct Counting {
        frames: AtomicUsize,
        requests: AtomicUsize,
    }

    impl Service for Counting {
        fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
            Ok(HelloReply { role: Role::Namenode, cluster: None, node: None })
        }

        fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
            let requests = decode_body::<Vec<Request>>(&body).unwrap();
            if requests == [Request::Members] {
                // The client requests them by itself, besides what is counted.
                let why = Refusal::UnknownVersion { ours: 4, theirs: 3 };
                return Handled::Now(Response::refused(&header, &why));
            }
            self.frames.fetch_add(1, Ordering::Relaxed);
            self.requests.fetch_add(requests.len(), Ordering::Relaxed);
            let answers: Vec<Result<Reply, Refusal>> = vec![Ok(Reply::Done); requests.len()];
            Handled::Now(Response::message(&header, &answers))
        }
    }

    /// Serves on loopback. Returns a batcher with one connection.
    async fn serve_batcher(
        service: &Arc<Counting>,
        stop: &CancellationToken,
    ) -> (Arc<RequestBatcher>, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = serve(listener, Arc::clone(service), ServeOptions::default(), stop.clone());
        let batcher = Pool::new(PoolOptions::default());
        let batcher = RequestBatcher::new(vec![batcher], &Namenodes::new(&address), 1);
        (Arc::new(batcher), tokio::spawn(serving))
    }

    #[tokio::test]
    async fn callers_that_are_answered_together_ask_together() {
        let (service, stop) = (Arc::new(Counting::default()), CancellationToken::new());
        let (batcher, serving) = serve_batcher(&service, &stop).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        let callers = (0..16).map(|_| {
            let batcher = Arc::clone(&batcher);
            tokio::spawn(async move {
                for _ in 0..50 {
                    let answer =
                        batcher.send(&Request::Stat { path: Path::root() }, deadline).await;
                    assert_eq!(answer.unwrap(), Reply::Done);
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        assert_eq!(service.requests.load(Ordering::Relaxed), 16 * 50);
        // One caller alone and fifteen together, in turns, would be a hundred.
        let frames = service.frames.load(Ordering::Relaxed);
        assert!(frames < 75, "{frames} frames for fifty rounds of sixteen callers");
        stop.cancel();
        serving.await.unwrap();
    }
    #[tokio::test]
    async fn caller_that_does_not_look_holds_nobody_up() {
        let (service, stop) = (Arc::new(Counting::default()), CancellationToken::new());
        let (batcher, serving) = serve_batcher(&service, &stop).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        let stat = Request::Stat { path: Path::root() };
        let mut idle = Box::pin(batcher.send(&stat, deadline));
        // Polled once, as a buffered stream does that is then left alone: it has its turn now.
        assert!(futures_util::poll!(&mut idle).is_pending());
        for _ in 0..20 {
            assert_eq!(batcher.send(&stat, deadline).await.unwrap(), Reply::Done);
        }
        assert_eq!(idle.await.unwrap(), Reply::Done);
        assert_eq!(batcher.connections[0].waiting.lock().frames, 0);
        assert!(batcher.connections[0].waiting.lock().direct.is_empty());
        stop.cancel();
        serving.await.unwrap();
    }
}
