//! Asking the namenode: requests that wait together travel together.

use std::time::Duration;

use parking_lot::Mutex;
use sanderling_protocol::limits::FRAME_BODY_BYTES_MAX;
use sanderling_protocol::{Refusal, Reply, Request};
use sanderling_transport::{CallError, Pool};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// Requests of one frame. A lookup in a batch costs a small part of one alone; beyond this the
/// first of a batch would wait noticeably for the last.
const BATCH_MAX: usize = 128;

/// Requests that may wait for the task that sends them.
const QUEUE_MAX: usize = 4096;

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
    pool: Pool,
    namenode: String,
    queue: mpsc::Sender<Asked>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Asker {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
    }
}

impl Asker {
    pub(crate) fn new(pool: Pool, namenode: String) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let task = tokio::spawn(send_batches(pool.clone(), namenode.clone(), waiting));
        Self { pool, namenode, queue, task: Mutex::new(Some(task)) }
    }

    /// Asks once.
    pub(crate) async fn ask(&self, request: Request, deadline: Instant) -> Answer {
        if waits(&request) {
            return self.alone(request, deadline).await;
        }
        let began = Instant::now();
        let (answer, answered) = oneshot::channel();
        let asked = Asked { request, deadline, answer };
        let closed = || CallError::Closed {
            address: self.namenode.clone(),
            why: "the client was shut down".to_owned(),
        };
        let whole = async {
            self.queue.send(asked).await.map_err(|_| closed())?;
            answered.await.map_err(|_| closed())?
        };
        timeout_at(deadline, whole).await.unwrap_or_else(|_| {
            let (address, waited): (_, Duration) = (self.namenode.clone(), began.elapsed());
            Err(CallError::TimedOut { address, waited })
        })
    }

    async fn alone(&self, request: Request, deadline: Instant) -> Answer {
        one(&self.pool, &self.namenode, request, deadline).await
    }
}

async fn one(pool: &Pool, namenode: &str, request: Request, deadline: Instant) -> Answer {
    let mut answers = pool.meta(namenode, vec![request], deadline).await?;
    answers.pop().expect("one answer to one request").map_err(CallError::Refused)
}

/// Tells whether a request may take long, or is long: others must not wait for it.
fn waits(request: &Request) -> bool {
    match request {
        Request::Events { wait, .. } => wait.0 > 0,
        Request::BlockReport { .. } | Request::Usage { .. } | Request::Fsck => true,
        _ => false,
    }
}

async fn send_batches(pool: Pool, namenode: String, mut waiting: mpsc::Receiver<Asked>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let (pool, namenode) = (pool.clone(), namenode.clone());
        let batch = std::mem::take(&mut batch);
        // The next batch is sent while this one is being answered; the number of callers, each of
        // whom waits for its own answer, bounds how many there are.
        tokio::spawn(async move { send_batch(&pool, &namenode, batch).await });
    }
}

async fn send_batch(pool: &Pool, namenode: &str, batch: Vec<Asked>) {
    debug_assert!(BATCH_MAX * 8192 < FRAME_BODY_BYTES_MAX as usize, "a batch fits a frame");
    let deadline = batch.iter().map(|asked| asked.deadline).max().unwrap_or_else(Instant::now);
    let mut waiters = Vec::with_capacity(batch.len());
    let mut requests = Vec::with_capacity(batch.len());
    for asked in batch {
        waiters.push(asked.answer);
        requests.push(asked.request);
    }
    let is_batch = requests.len() > 1;
    match pool.meta(namenode, requests.clone(), deadline).await {
        Ok(answers) => {
            for ((waiter, request), answer) in waiters.into_iter().zip(requests).zip(answers) {
                let answer = answer.map_err(CallError::Refused);
                give(pool, namenode, request, deadline, (waiter, answer), is_batch).await;
            }
        }
        Err(error) => {
            for (waiter, request) in waiters.into_iter().zip(requests) {
                let answer = Err(error.clone());
                give(pool, namenode, request, deadline, (waiter, answer), is_batch).await;
            }
        }
    }
}

/// Gives the caller, who may have given up meanwhile, the answer. What was too large together with
/// the others' is asked again alone, if that changes nothing.
async fn give(
    pool: &Pool,
    namenode: &str,
    request: Request,
    deadline: Instant,
    (waiter, answer): (oneshot::Sender<Answer>, Answer),
    is_batch: bool,
) {
    let is_too_large = matches!(answer, Err(CallError::Refused(Refusal::TooLarge { .. })));
    let answer = if is_batch && is_too_large && only_reads(&request) {
        one(pool, namenode, request, deadline).await
    } else {
        answer
    };
    let _ = waiter.send(answer);
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
