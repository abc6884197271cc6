//! The way of a request: answered at once under the read lock, or through the writer.

use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::access::Claims;
use sanderling_core::namenode::Weight;
use sanderling_protocol::limits::REQUESTS_PER_FRAME_MAX;
use sanderling_protocol::{Millis, Refusal, Reply, Request};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::metrics::Counted;
use crate::state::State;
use crate::writer::{Answers, Work, Writer};

/// Where requests of the protocol and of HTTP go in.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    pub(crate) state: Arc<State>,
    work: SyncSender<Work>,
    /// The writer, for small changes when nobody else is at it.
    desk: Weak<Mutex<Writer>>,
    /// Bytes that may still wait for the writer.
    room: Arc<Semaphore>,
}

/// Requests on their way.
pub(crate) enum Asked {
    /// Answered already.
    Now(Answers),
    /// Changes that were made already.
    Made(Answers),
    /// Answered once an event comes or the time is over.
    Events { after: u64, limit: u32, wait: Duration },
    /// Answered by a check of the whole catalog, which takes its time.
    Check,
    /// Answered by the writer.
    Later { answers: oneshot::Receiver<Answers>, kinds: Vec<Counted>, _room: OwnedSemaphorePermit },
}

impl Requests {
    /// Longest wait for an event: callers ask again.
    const WAIT_MAX: Duration = Duration::from_secs(30);

    /// Most small changes that are made by whoever brings them: together they take as long as a few
    /// wake-ups.
    const MADE_AT_ONCE_MAX: usize = 256;

    pub(crate) fn new(
        state: Arc<State>,
        work: SyncSender<Work>,
        desk: Weak<Mutex<Writer>>,
        bytes_max: usize,
    ) -> Self {
        let room = Arc::new(Semaphore::new(bytes_max.min(Semaphore::MAX_PERMITS)));
        Self { state, work, desk, room }
    }

    /// Starts to answer requests that came in a frame of `bytes`, in their order. `claims` is what
    /// their caller may do, `None` if he may do everything; it is checked where each is decided.
    ///
    /// A wait for events is kept only when it is alone: among others it would hold up their
    /// answers.
    pub(crate) fn ask(
        &self,
        requests: Vec<Request>,
        bytes: usize,
        claims: Option<&Arc<Claims>>,
    ) -> Asked {
        // Nothing is closed to who may go everywhere, whatever has become of names meanwhile.
        let claims = claims.filter(|claims| !claims.is_everywhere());
        match requests.as_slice() {
            [Request::Events { after, limit, wait }] if wait.0 > 0 => {
                let wait = Duration::from(*wait).min(Self::WAIT_MAX);
                return Asked::Events { after: *after, limit: *limit, wait };
            }
            [Request::Fsck] => return Asked::Check,
            _ => {}
        }
        if let Some(answers) = self.read_all(&requests, claims) {
            return Asked::Now(answers);
        }
        let kinds: Vec<Counted> = requests.iter().map(counted).collect();
        let claims = claims.cloned();
        let requests = match self.make(requests, claims.clone()) {
            Ok(answers) => {
                self.state.metrics.answered(kinds.into_iter(), &answers);
                return Asked::Made(answers);
            }
            Err(requests) => requests,
        };
        let (reply, answers) = oneshot::channel();
        let count = requests.len();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Ok(_room) = Arc::clone(&self.room).try_acquire_many_owned(bytes) else {
            return Asked::Now(vec![Err(busy()); count]);
        };
        match self.work.try_send(Work::Frame { requests, claims, reply }) {
            Ok(()) => Asked::Later { answers, kinds, _room },
            Err(TrySendError::Full(_)) => Asked::Now(vec![Err(busy()); count]),
            Err(TrySendError::Disconnected(_)) => Asked::Now(vec![Err(stopping()); count]),
        }
    }

    /// Makes small changes here and now, or gives them back: somebody else is at it, something is
    /// due before them, or they may take long.
    fn make(
        &self,
        requests: Vec<Request>,
        claims: Option<Arc<Claims>>,
    ) -> Result<Answers, Vec<Request>> {
        if requests.len() > Self::MADE_AT_ONCE_MAX || !requests.iter().all(is_small) {
            return Err(requests);
        }
        let Some(desk) = self.desk.upgrade() else { return Err(requests) };
        let Some(mut writer) = desk.try_lock() else { return Err(requests) };
        if writer.is_due() {
            return Err(requests);
        }
        let count = requests.len();
        Ok(writer.change(requests, claims).unwrap_or_else(|| vec![Err(stopping()); count]))
    }

    /// Answers requests that change nothing; `None` if one of them does.
    fn read_all(&self, requests: &[Request], claims: Option<&Arc<Claims>>) -> Option<Answers> {
        let now = self.state.now();
        let namenode = self.state.namenode.read();
        let mut weight = Weight::default();
        let read = |request| {
            let answer = match claims.map_or(Ok(()), |claims| namenode.allows(claims, request)) {
                Ok(()) => namenode.read(now, request)?,
                Err(refusal) => Err(refusal),
            };
            Some(weight.admit(answer))
        };
        let answers: Option<Answers> = requests.iter().map(read).collect();
        drop(namenode);
        let answers = answers?;
        self.state.metrics.answered(requests.iter().map(counted), &answers);
        Some(answers)
    }

    /// Answers requests that were asked.
    pub(crate) async fn answer(&self, asked: Asked) -> Answers {
        let (answers, kinds) = match asked {
            Asked::Now(answers) | Asked::Made(answers) => return answers,
            Asked::Events { after, limit, wait } => {
                (vec![self.events(after, limit, wait).await], vec![("events", 1)])
            }
            Asked::Check => {
                let state = Arc::clone(&self.state);
                let check = move || state.read(&Request::Fsck);
                let answer = tokio::task::spawn_blocking(check).await;
                (vec![answer.ok().flatten().unwrap_or_else(|| Err(stopping()))], vec![("fsck", 1)])
            }
            Asked::Later { answers, kinds, _room } => {
                let none = |_| vec![Err(stopping()); kinds.len()];
                (answers.await.unwrap_or_else(none), kinds)
            }
        };
        self.state.metrics.answered(kinds.into_iter(), &answers);
        answers
    }

    /// Answers one request.
    pub(crate) async fn one(&self, request: Request) -> Result<Reply, Refusal> {
        let asked = self.ask(vec![request], 0, None);
        self.answer(asked).await.pop().unwrap_or_else(|| Err(stopping()))
    }

    async fn events(&self, after: u64, limit: u32, wait: Duration) -> Result<Reply, Refusal> {
        let mut last = self.state.event_last.subscribe();
        // Too late is no error: the answer is then an empty list.
        let _ = tokio::time::timeout(wait, last.wait_for(|last| *last > after)).await;
        let request = Request::Events { after, limit, wait: Millis(0) };
        self.state.read(&request).unwrap_or_else(|| Err(stopping()))
    }
}

const fn counted(request: &Request) -> Counted {
    (request.kind(), request.count())
}

/// Tells whether a request takes the same short time whatever the catalog holds.
const fn is_small(request: &Request) -> bool {
    matches!(
        request.inner(),
        Request::Create(_)
            | Request::Append { .. }
            | Request::AddBlocks { .. }
            | Request::Publish { .. }
            | Request::Seal { .. }
            | Request::RenewLeases { .. }
            | Request::RenewJob { .. }
            | Request::OpenClient { .. }
            | Request::Heartbeat(_)
            | Request::Beat(_)
            | Request::Lookup { .. }
            | Request::LookupObject { .. }
            | Request::Stat { .. }
    )
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
