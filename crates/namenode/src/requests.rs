//! The way of a request: answered at once under the read lock, or through the writer.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use sanderling_protocol::limits::REQUESTS_PER_FRAME_MAX;
use sanderling_protocol::{Millis, Refusal, Reply, Request};
use tokio::sync::oneshot;

use crate::metrics::kind;
use crate::state::State;
use crate::writer::{Answers, Work};

/// Where requests of the protocol and of HTTP go in.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    pub(crate) state: Arc<State>,
    work: SyncSender<Work>,
}

/// Requests on their way.
pub(crate) enum Asked {
    /// Answered already.
    Now(Answers),
    /// Answered once an event comes or the time is over.
    Events { after: u64, limit: u32, wait: Duration },
    /// Answered by a check of the whole catalog, which takes its time.
    Check,
    /// Answered by the writer.
    Later(oneshot::Receiver<Answers>),
}

impl Requests {
    /// Longest wait for an event: callers ask again.
    const WAIT_MAX: Duration = Duration::from_secs(30);

    pub(crate) const fn new(state: Arc<State>, work: SyncSender<Work>) -> Self {
        Self { state, work }
    }

    /// Starts to answer requests, in their order.
    ///
    /// A wait for events is kept only when it is alone: among others it would hold up their
    /// answers.
    pub(crate) fn ask(&self, requests: Vec<Request>) -> Asked {
        match requests.as_slice() {
            [Request::Events { after, limit, wait }] if wait.0 > 0 => {
                let wait = Duration::from(*wait).min(Self::WAIT_MAX);
                return Asked::Events { after: *after, limit: *limit, wait };
            }
            [Request::Fsck] => return Asked::Check,
            _ => {}
        }
        if let Some(answers) = self.read_all(&requests) {
            return Asked::Now(answers);
        }
        let (reply, answers) = oneshot::channel();
        let count = requests.len();
        match self.work.try_send(Work::Frame { requests, reply }) {
            Ok(()) => Asked::Later(answers),
            Err(TrySendError::Full(_)) => Asked::Now(vec![Err(busy()); count]),
            Err(TrySendError::Disconnected(_)) => Asked::Now(vec![Err(stopping()); count]),
        }
    }

    /// Answers requests that change nothing; `None` if one of them does.
    fn read_all(&self, requests: &[Request]) -> Option<Answers> {
        let now = self.state.now();
        let namenode = self.state.namenode.read();
        let answers: Option<Answers> =
            requests.iter().map(|request| namenode.read(now, request)).collect();
        drop(namenode);
        let answers = answers?;
        for (request, answer) in requests.iter().zip(&answers) {
            self.state.metrics.answered(kind(request), answer);
        }
        Some(answers)
    }

    /// Answers requests that were asked.
    pub(crate) async fn answer(&self, asked: Asked, kinds: &[&'static str]) -> Answers {
        let answers = match asked {
            Asked::Now(answers) => return answers,
            Asked::Events { after, limit, wait } => vec![self.events(after, limit, wait).await],
            Asked::Check => {
                let state = Arc::clone(&self.state);
                let check = move || state.read(&Request::Fsck);
                let answer = tokio::task::spawn_blocking(check).await;
                vec![answer.ok().flatten().unwrap_or_else(|| Err(stopping()))]
            }
            Asked::Later(answers) => {
                answers.await.unwrap_or_else(|_| vec![Err(stopping()); kinds.len()])
            }
        };
        for (kind, answer) in kinds.iter().zip(&answers) {
            self.state.metrics.answered(kind, answer);
        }
        answers
    }

    /// Answers one request.
    pub(crate) async fn one(&self, request: Request) -> Result<Reply, Refusal> {
        let kinds = [kind(&request)];
        let asked = self.ask(vec![request]);
        self.answer(asked, &kinds).await.pop().unwrap_or_else(|| Err(stopping()))
    }

    async fn events(&self, after: u64, limit: u32, wait: Duration) -> Result<Reply, Refusal> {
        let mut last = self.state.event_last.subscribe();
        // Too late is no error: the answer is then an empty list.
        let _ = tokio::time::timeout(wait, last.wait_for(|last| *last > after)).await;
        let request = Request::Events { after, limit, wait: Millis(0) };
        self.state.read(&request).unwrap_or_else(|| Err(stopping()))
    }
}

/// Refuses a list of requests that is too long.
pub(crate) fn check_count(requests: &[Request]) -> Result<(), Refusal> {
    if requests.len() <= REQUESTS_PER_FRAME_MAX {
        return Ok(());
    }
    Err(Refusal::TooLarge {
        what: "requests in one frame".to_owned(),
        value: requests.len() as u64,
        limit: REQUESTS_PER_FRAME_MAX as u64,
    })
}

fn busy() -> Refusal {
    Refusal::RetryAfter { after: Millis(20), why: "too many changes wait".to_owned() }
}

fn stopping() -> Refusal {
    Refusal::RetryAfter { after: Millis(500), why: "the namenode is stopping".to_owned() }
}
