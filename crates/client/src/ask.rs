//! Asking the namenode: requests that wait together travel together.
//!
//! Who asks first asks at once, without another task between him and the connection. While his
//! frame is under way others gather and travel together in the next one, so frames grow with the
//! load. When many gather, another lane with its own connection opens: more threads get more done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_protocol::limits::FRAME_BODY_BYTES_MAX;
use sanderling_protocol::{Refusal, Reply, Request};
use sanderling_transport::{CallError, Pool};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Requests of one frame. A lookup in a batch costs a small part of one alone; beyond this the
/// first of a batch would wait noticeably for the last.
const BATCH_MAX: usize = 128;

/// Requests that may wait for a frame of one lane.
const QUEUE_MAX: usize = 4096;

/// Requests that wait in a lane before the next lane is used: half a batch.
const CROWD: usize = BATCH_MAX / 2;

type Answer = Result<Reply, CallError>;

#[derive(Debug)]
struct Asked {
    request: Request,
    deadline: Instant,
    answer: oneshot::Sender<Answer>,
}

/// Sends requests to one namenode.
#[derive(Debug)]
pub(crate) struct Asker {
    lanes: Vec<Arc<Lane>>,
    turn: AtomicUsize,
}

/// One connection, and who waits for it.
#[derive(Debug)]
struct Lane {
    pool: Pool,
    namenode: String,
    /// Frames that may be under way together.
    frames_max: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: VecDeque<Asked>,
    /// Frames under way.
    frames: usize,
    /// Whether the last frame carried several requests: then more come in a moment, from callers
    /// that have just got their answers, and the next frame waits for them.
    is_crowded: bool,
}

impl Asker {
    /// Returns who asks over these pools, each of which is one lane with so many frames under way.
    pub(crate) fn new(pools: Vec<Pool>, namenode: &str, frames_max: usize) -> Self {
        let lane = |pool| {
            let (namenode, waiting) = (namenode.to_owned(), Mutex::default());
            Arc::new(Lane { pool, namenode, frames_max, waiting })
        };
        Self { lanes: pools.into_iter().map(lane).collect(), turn: AtomicUsize::new(0) }
    }

    /// Asks once.
    pub(crate) async fn ask(&self, request: Request, deadline: Instant) -> Answer {
        if waits(&request) {
            return self.in_turn().alone(request, deadline).await;
        }
        let is_free = |lane: &&Arc<Lane>| lane.waiting.lock().queue.len() < CROWD;
        let lane = self.lanes.iter().find(is_free).unwrap_or_else(|| self.in_turn());
        lane.ask(request, deadline).await
    }

    fn in_turn(&self) -> &Arc<Lane> {
        &self.lanes[self.turn.fetch_add(1, Ordering::Relaxed) % self.lanes.len()]
    }
}

impl Lane {
    async fn ask(self: &Arc<Self>, request: Request, deadline: Instant) -> Answer {
        let answered = {
            let mut waiting = self.waiting.lock();
            let may_begin = waiting.frames < self.frames_max && waiting.queue.is_empty();
            if may_begin && !waiting.is_crowded {
                waiting.frames += 1;
                Err(request)
            } else if waiting.queue.len() >= QUEUE_MAX {
                return Err(CallError::TooBusy { address: self.namenode.clone() });
            } else {
                let (answer, answered) = oneshot::channel();
                waiting.queue.push_back(Asked { request, deadline, answer });
                waiting.frames += usize::from(may_begin);
                Ok((answered, may_begin))
            }
        };
        let answered = match answered {
            Ok((answered, false)) => answered,
            Ok((answered, true)) => {
                let turn = Turn { lane: Arc::clone(self) };
                // Its end begins the frame, when all who are ready have had their say.
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    drop(turn);
                });
                answered
            }
            Err(request) => {
                let _turn = Turn { lane: Arc::clone(self) };
                return self.alone(request, deadline).await;
            }
        };
        let began = Instant::now();
        match timeout_at(deadline, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(CallError::Closed {
                address: self.namenode.clone(),
                why: "the client was shut down".to_owned(),
            }),
            Err(_) => {
                let (address, waited): (_, Duration) = (self.namenode.clone(), began.elapsed());
                Err(CallError::TimedOut { address, waited })
            }
        }
    }

    async fn alone(&self, request: Request, deadline: Instant) -> Answer {
        let mut answers = self.pool.meta(&self.namenode, vec![request], deadline).await?;
        answers.pop().expect("one answer to one request").map_err(CallError::Refused)
    }

    /// Takes the requests of the next frame. Those whose callers have gone are left out.
    fn next_batch(&self) -> Option<Vec<Asked>> {
        let mut waiting = self.waiting.lock();
        let mut batch = Vec::new();
        while batch.len() < BATCH_MAX
            && let Some(asked) = waiting.queue.pop_front()
        {
            if !asked.answer.is_closed() {
                batch.push(asked);
            }
        }
        if batch.is_empty() {
            waiting.frames -= 1;
            return None;
        }
        waiting.is_crowded = batch.len() > 1;
        Some(batch)
    }

    async fn send(&self, batch: Vec<Asked>) {
        debug_assert!(BATCH_MAX * 8192 < FRAME_BODY_BYTES_MAX as usize, "a batch fits a frame");
        let deadline = batch.iter().map(|asked| asked.deadline).max().unwrap_or_else(Instant::now);
        let mut waiters = Vec::with_capacity(batch.len());
        let mut requests = Vec::with_capacity(batch.len());
        for asked in batch {
            // What may be asked again alone is kept.
            let is_kept = only_reads(&asked.request);
            waiters.push((asked.answer, is_kept.then(|| asked.request.clone())));
            requests.push(asked.request);
        }
        match self.pool.meta(&self.namenode, requests, deadline).await {
            Ok(answers) => {
                for ((waiter, request), answer) in waiters.into_iter().zip(answers) {
                    let answer = match (request, answer) {
                        (Some(request), Err(Refusal::TooLarge { .. })) => {
                            self.alone(request, deadline).await
                        }
                        (_, answer) => answer.map_err(CallError::Refused),
                    };
                    // The caller may have given up meanwhile.
                    let _ = waiter.send(answer);
                }
            }
            Err(error) => self.refuse(waiters, error, deadline).await,
        }
    }

    /// Tells everybody that the frame failed. What was too large together is asked again alone.
    async fn refuse(
        &self,
        waiters: Vec<(oneshot::Sender<Answer>, Option<Request>)>,
        error: CallError,
        deadline: Instant,
    ) {
        let is_too_large = matches!(error, CallError::Refused(Refusal::TooLarge { .. }));
        for (waiter, request) in waiters {
            let answer = match request.filter(|_| is_too_large) {
                Some(request) => self.alone(request, deadline).await,
                None => Err(error.clone()),
            };
            let _ = waiter.send(answer);
        }
    }
}

/// A frame under way. However it ends, cancelled or answered, the next one follows.
struct Turn {
    lane: Arc<Lane>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(batch) = self.lane.next_batch() else { return };
        let Ok(runtime) = Handle::try_current() else {
            // Nobody runs any more; the waiters hear it when the batch is dropped.
            self.lane.waiting.lock().frames -= 1;
            return;
        };
        let turn = Self { lane: Arc::clone(&self.lane) };
        runtime.spawn(async move {
            turn.lane.send(batch).await;
            drop(turn);
        });
    }
}

/// Tells whether a request may take long, or is long: others must not wait for it.
fn waits(request: &Request) -> bool {
    match request {
        Request::Events { wait, .. } => wait.0 > 0,
        Request::BlockReport { .. }
        | Request::LookupMany { .. }
        | Request::Usage { .. }
        | Request::Fsck => true,
        _ => false,
    }
}

const fn only_reads(request: &Request) -> bool {
    matches!(
        request,
        Request::Lookup { .. }
            | Request::LookupObject { .. }
            | Request::Stat { .. }
            | Request::List { .. }
            | Request::Nodes { .. }
            | Request::NodeBlocks { .. }
            | Request::Jobs
            | Request::Report
    )
}
