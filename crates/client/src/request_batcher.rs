//! Batches requests to the namenode. `core::client` decides which of them share a frame and when a
//! frame is sent; here are the connections, the tasks, and the callers that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::client::{
    BATCH_MAX, BatchQueue, OVERTAKE_AFTER, SendStep, may_follow_alone, repeats_of,
    repeats_of_frame, travels_alone,
};
use sanderling_protocol::limits::FRAME_BODY_BYTES_MAX;
use sanderling_protocol::{Refusal, Reply, Request};
use sanderling_transport::{
    CallError, CloseCause, EncodedRequest, Namenodes, Pool, Repeats, trace,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

type ReplyResult = Result<Reply, CallError>;

#[derive(Debug)]
struct PendingRequest {
    request: EncodedRequest,
    repeats: Repeats,
    deadline: Instant,
    answer: oneshot::Sender<ReplyResult>,
}

impl PendingRequest {
    /// Returns whether its caller waits for the answer.
    fn is_awaited(&self) -> bool {
        !self.answer.is_closed()
    }
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
    queue: Mutex<BatchQueue<PendingRequest>>,
}

impl RequestBatcher {
    /// Batches over these pools, each of which is one connection with so many frames in flight.
    pub(crate) fn new(pools: Vec<Pool>, namenodes: &Namenodes, frames_max: usize) -> Self {
        let connection = |pool| {
            let queue = Mutex::new(BatchQueue::new(frames_max));
            Arc::new(BatchedConnection { pool, namenodes: namenodes.clone(), queue })
        };
        Self { connections: pools.into_iter().map(connection).collect(), next: AtomicUsize::new(0) }
    }

    /// Sends a request once.
    pub(crate) async fn send(&self, request: &Request, deadline: Instant) -> ReplyResult {
        let encoded = EncodedRequest::new(request);
        let repeats = repeats_of(request);
        // A frame has one trace: the request of a sampled one travels alone.
        if travels_alone(request) || trace::current().is_some() {
            return self.next_connection().send_alone(encoded, repeats, deadline).await;
        }
        let is_free = |it: &&Arc<BatchedConnection>| it.queue.lock().is_short();
        let connection =
            self.connections.iter().find(is_free).unwrap_or_else(|| self.next_connection());
        match connection.send_batched(encoded, repeats, deadline).await {
            // The frame's answer was too large.
            Err(CallError::Refused(Refusal::TooLarge { .. })) if may_follow_alone(request) => {
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
            let mut queue = self.queue.lock();
            match queue.admit() {
                SendStep::Direct(number) => Err((number, request)),
                SendStep::Wait { begins_frame } => {
                    let (answer, answered) = oneshot::channel();
                    queue.push(PendingRequest { request, repeats, deadline, answer });
                    Ok((answered, begins_frame))
                }
                SendStep::Refused => return Err(CallError::TooBusy { address: self.address() }),
            }
        };
        let mut answered = match queued {
            Ok((answered, false)) => answered,
            Ok((answered, true)) => {
                let frame = InFlightFrame { connection: Arc::clone(self), direct: None };
                // Its end begins the frame, after all callers that are ready have queued requests.
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    drop(frame);
                });
                answered
            }
            Err((number, request)) => {
                let _frame = InFlightFrame { connection: Arc::clone(self), direct: Some(number) };
                return self.send_alone(request, repeats, deadline).await;
            }
        };
        let began = Instant::now();
        let overtakes_at = began + Duration::from(OVERTAKE_AFTER);
        let mut answer = timeout_at(deadline.min(overtakes_at), &mut answered).await;
        if answer.is_err() {
            let batch = self.queue.lock().overtake(PendingRequest::is_awaited);
            if let Some(batch) = batch {
                self.begin_frame(batch);
            }
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

    /// Sends a frame of these requests on a task of its own.
    fn begin_frame(self: &Arc<Self>, batch: Vec<PendingRequest>) {
        let Ok(runtime) = Handle::try_current() else {
            // The runtime has ended; the batch's drop fails its waiters.
            self.queue.lock().abandon();
            return;
        };
        let frame = InFlightFrame { connection: Arc::clone(self), direct: None };
        runtime.spawn(async move {
            let is_batch = batch.len() > 1;
            frame.connection.send_batch(batch).await;
            if is_batch {
                // Else the callers that were just answered would miss every next frame.
                tokio::task::yield_now().await;
            }
            drop(frame);
        });
    }

    async fn send_batch(&self, batch: Vec<PendingRequest>) {
        debug_assert!(BATCH_MAX * 8192 < FRAME_BODY_BYTES_MAX as usize, "a batch fits a frame");
        let deadline = batch.iter().map(|it| it.deadline).max().unwrap_or_else(Instant::now);
        let mut waiters = Vec::with_capacity(batch.len());
        let mut requests = Vec::with_capacity(batch.len());
        let repeats = repeats_of_frame(batch.iter().map(|it| it.repeats));
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
        let mut queue = self.connection.queue.lock();
        let batch = match self.direct {
            Some(number) => queue.end_direct(number, PendingRequest::is_awaited),
            None => queue.next_batch(PendingRequest::is_awaited),
        };
        drop(queue);
        if let Some(batch) = batch {
            self.connection.begin_frame(batch);
        }
    }
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
    async fn callers_that_are_answered_together_send_together() {
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
    async fn caller_that_does_not_look_delays_no_other_one() {
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
        assert_eq!(batcher.connections[0].queue.lock().frames(), (0, 0));
        stop.cancel();
        serving.await.unwrap();
    }
}
