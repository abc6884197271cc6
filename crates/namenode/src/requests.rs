//! The way of a request: answered at once under the read lock, or through the writer.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use postcard::experimental::serialized_size;
use sanderling_core::access::Claims;
use sanderling_core::namenode::{
    Answers, FrameRead, FrameStep, LongFrame, are_changes, queue_full, writer_at_once,
};
use sanderling_protocol::limits::{REQUEST_BYTES_MAX, REQUESTS_PER_FRAME_MAX};
use sanderling_protocol::{Millis, Refusal, Reply, Request};
use tokio::sync::oneshot;

use crate::caller::RequestOrigin;
use crate::checks::Checks;
use crate::group::{Admission, GroupInput, HUNG_AFTER, ServingState};
use crate::long_reads::LongReads;
use crate::metrics::CountedRequest;
use crate::state::NamenodeState;
use crate::writer::CatalogWriter;
use crate::writer_queue::{Unqueued, WaitingFrame, WorkQueue};

/// Pause before a read comes again that found too many others waiting for the quorum. Within twice
/// the shortest time of an election (400 ms) a leader has an answer of its quorum or leads no more.
const UNCONFIRMED_PAUSE: Millis = Millis(200);

/// Where requests of the protocol and of HTTP go in.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    pub(crate) state: Arc<NamenodeState>,
    work: Arc<WorkQueue>,
    long_reads: Arc<LongReads>,
    checks: Arc<Checks>,
    /// The writer, for small changes while it is idle; empty where all connections have one thread.
    writer: Weak<Mutex<CatalogWriter>>,
}

/// Requests on their way.
pub(crate) enum Submitted {
    /// Answered already.
    Now(Answers),
    /// Changes that were made already.
    Made(Answers),
    /// Answered once an event comes or the time is over.
    Events { after: u64, limit: u32, wait: Duration },
    /// What takes long: a check of the whole catalog, reads that visit many entries, and the parts
    /// of a frame that has such requests among changes.
    Long { frame: LongFrame, bytes: usize, claims: Option<Arc<Claims>> },
    /// Answered once the quorum has confirmed that this namenode leads its group.
    Unconfirmed { requests: Vec<Request>, bytes: usize, claims: Option<Arc<Claims>> },
    /// Answered by the writer.
    Later { answers: oneshot::Receiver<Answers>, kinds: Vec<CountedRequest> },
}

impl Submitted {
    /// Returns whether these are reads, answered or not.
    pub(crate) const fn is_read(&self) -> bool {
        let is_of_parts = matches!(self, Self::Long { frame: LongFrame::Parts(_), .. });
        !is_of_parts && !matches!(self, Self::Made(_) | Self::Later { .. })
    }

    /// Returns whether the answers may be long: then no others are made for the same connection.
    pub(crate) const fn is_long(&self) -> bool {
        matches!(self, Self::Long { .. })
    }
}

impl Requests {
    /// Longest wait for an event: callers repeat the request. Each costs a timer and a place among
    /// the frames of its connection. Shorter ones would let an idle follower send more requests;
    /// firewalls and proxies forget idle connections after a minute or more. Chosen, not measured.
    const WAIT_MAX: Duration = Duration::from_secs(30);

    pub(crate) fn new(
        state: Arc<NamenodeState>,
        work: Arc<WorkQueue>,
        long_reads: Arc<LongReads>,
        writer_handle: Weak<Mutex<CatalogWriter>>,
    ) -> Self {
        Self { state, work, long_reads, checks: Arc::default(), writer: writer_handle }
    }

    /// Starts to answer requests that came in a frame of `bytes`, in their order. `claims` is what
    /// their caller may do, `None` if it may do everything; it is checked where each is decided.
    ///
    /// A wait for events is kept only when it is alone: among others it would hold up their
    /// answers.
    pub(crate) fn submit(
        &self,
        requests: Vec<Request>,
        bytes: usize,
        caller: &RequestOrigin,
        claims: Option<&Arc<Claims>>,
    ) -> Submitted {
        self.state.count_frame();
        match self.state.group.admit() {
            Admission::Here => self.submit_here(requests, bytes, caller, claims),
            Admission::Confirmed if are_changes(&requests) => {
                self.change(requests, bytes, caller, claims)
            }
            Admission::Confirmed => {
                Submitted::Unconfirmed { requests, bytes, claims: claims.cloned() }
            }
            Admission::Refused(refusal) => Submitted::Now(self.refused(&requests, &refusal)),
        }
    }

    /// Returns whether requests come while this member, which was elected, is about to answer them.
    pub(crate) fn are_early(&self, requests: &[Request]) -> bool {
        // Each member answers at once which members there are.
        self.state.group.serving_state() == ServingState::Elected
            && requests.iter().any(|request| !matches!(request, Request::Members))
    }

    /// Refuses what a member of a group does not answer that does not lead.
    fn refused(&self, requests: &[Request], refusal: &Refusal) -> Answers {
        let answer = |request: &Request| match request {
            Request::Members => self.state.read(request).unwrap_or_else(|| Err(stopping())),
            _ => Err(refusal.clone()),
        };
        requests.iter().map(answer).collect()
    }

    /// Starts to answer what this namenode may answer now.
    fn submit_here(
        &self,
        requests: Vec<Request>,
        bytes: usize,
        caller: &RequestOrigin,
        claims: Option<&Arc<Claims>>,
    ) -> Submitted {
        // Nothing is closed to an unrestricted token, whatever has become of names meanwhile. For a
        // change that waits the token may be taken back until its turn comes.
        let bound = claims.filter(|claims| !claims.is_everywhere());
        let look = || (self.state.now(), self.state.namenode.read());
        match FrameStep::first(requests, bound, FrameRead::AT_ONCE_ENTRIES, look) {
            FrameStep::Answered(requests, answers) => {
                Submitted::Now(self.counted_reads(&requests, answers))
            }
            FrameStep::Changes(requests) => self.change(requests, bytes, caller, claims),
            FrameStep::Events { after, limit, wait } => {
                let wait = Duration::from(wait).min(Self::WAIT_MAX);
                Submitted::Events { after, limit, wait }
            }
            FrameStep::Long(frame) => Submitted::Long { frame, bytes, claims: claims.cloned() },
        }
    }

    /// Starts to make changes, among which there may be reads.
    fn change(
        &self,
        requests: Vec<Request>,
        bytes: usize,
        caller: &RequestOrigin,
        claims: Option<&Arc<Claims>>,
    ) -> Submitted {
        let claims = claims.cloned();
        let kinds: Vec<CountedRequest> = requests.iter().map(counted).collect();
        let requests = match self.make(requests, claims.clone()) {
            Ok(answers) => {
                self.state.metrics.answered(kinds.into_iter(), &answers);
                return Submitted::Made(answers);
            }
            Err(requests) => requests,
        };
        let (reply, answers) = oneshot::channel();
        let count = requests.len();
        let frame = WaitingFrame { requests, claims, reply };
        match self.work.push_frame(caller.tenant.clone(), bytes, frame) {
            Ok(()) => Submitted::Later { answers, kinds },
            Err(why) => Submitted::Now(vec![Err(unqueued(why)); count]),
        }
    }

    /// Makes small changes here and now, or gives them back: the writer is busy or has a
    /// queue, something is due before them, or they may take long.
    fn make(
        &self,
        requests: Vec<Request>,
        claims: Option<Arc<Claims>>,
    ) -> Result<Answers, Vec<Request>> {
        let writer_handle = self.writer.upgrade();
        let idle = || writer_handle.as_ref()?.try_lock();
        let Some(mut writer) = writer_at_once(&requests, idle) else { return Err(requests) };
        let count = requests.len();
        Ok(writer.change(requests, claims).unwrap_or_else(|| vec![Err(stopping()); count]))
    }

    /// Counts reads that were answered, and returns their answers.
    fn counted_reads(&self, requests: &[Request], answers: Answers) -> Answers {
        self.state.metrics.answered(requests.iter().map(counted), &answers);
        answers
    }

    /// Answers submitted requests. What the future still holds when it is done is held until
    /// the caller has been sent the answers, or is gone.
    pub(crate) async fn answer(&self, asked: Submitted, caller: &RequestOrigin) -> Answers {
        let (answers, kinds) = match asked {
            Submitted::Now(answers) | Submitted::Made(answers) => return answers,
            Submitted::Events { after, limit, wait } => {
                (vec![self.events(after, limit, wait).await], vec![("events", 1)])
            }
            Submitted::Long { frame: LongFrame::Check, .. } => {
                (vec![self.checks.check(&self.state).await], vec![("fsck", 1)])
            }
            Submitted::Long { frame: LongFrame::Slices(reading), .. } => {
                let count = reading.requests().len();
                return match self.long_reads.push(caller.tenant.clone(), *reading) {
                    Ok(read) => match read.await {
                        Ok(reading) => {
                            let (requests, answers) = reading.finish();
                            self.counted_reads(&requests, answers)
                        }
                        Err(_) => vec![Err(unqueued(self.long_reads.why_dropped())); count],
                    },
                    Err(why) => vec![Err(unqueued(why)); count],
                };
            }
            Submitted::Long { frame: LongFrame::Parts(parts), bytes, claims } => {
                let mut answers = Vec::new();
                for part in parts {
                    let asked = self.submit(part, bytes, caller, claims.as_ref());
                    answers.extend(Box::pin(self.answer(asked, caller)).await);
                }
                return answers;
            }
            Submitted::Unconfirmed { requests, bytes, claims } => {
                if let Err(refusal) = self.confirm().await {
                    return self.refused(&requests, &refusal);
                }
                let asked = self.submit_here(requests, bytes, caller, claims.as_ref());
                return Box::pin(self.answer(asked, caller)).await;
            }
            Submitted::Later { answers, kinds } => {
                let none = |_| vec![Err(stopping()); kinds.len()];
                (answers.await.unwrap_or_else(none), kinds)
            }
        };
        self.state.metrics.answered(kinds.into_iter(), &answers);
        answers
    }

    /// Returns once this namenode may show what its catalog has now: it is alone, it has a lease,
    /// or the quorum has confirmed that it leads. For pages that read the catalog without a
    /// request.
    ///
    /// # Errors
    /// [`Refusal::NotLeader`]: another member leads, or may. [`Refusal::RetryAfter`]: too many
    /// others wait for the quorum.
    pub(crate) async fn may_show(&self) -> Result<(), Refusal> {
        match self.state.group.admit() {
            Admission::Here => Ok(()),
            Admission::Confirmed => self.confirm().await,
            Admission::Refused(refusal) => Err(refusal),
        }
    }

    /// Waits until the quorum has confirmed that this namenode leads.
    async fn confirm(&self) -> Result<(), Refusal> {
        let Ok(_place) = self.work.unconfirmed().try_acquire() else {
            return Err(too_many_unconfirmed());
        };
        let (reply, confirmed) = oneshot::channel();
        if self.work.push_group(GroupInput::Confirm(reply)).is_err() {
            return Err(self.state.group.refusal());
        }
        // A writer that hangs confirms nothing, and does not find out that another member leads.
        match tokio::time::timeout(HUNG_AFTER, confirmed).await {
            Ok(Ok(true)) => Ok(()),
            _ => Err(self.state.group.refusal()),
        }
    }

    /// Answers one request, of a caller with a share of its own.
    pub(crate) async fn one(&self, request: Request) -> Result<Reply, Refusal> {
        let caller = RequestOrigin::new(None);
        let asked = self.submit(vec![request], 0, &caller, None);
        self.answer(asked, &caller).await.pop().unwrap_or_else(|| Err(stopping()))
    }

    async fn events(&self, after: u64, limit: u32, wait: Duration) -> Result<Reply, Refusal> {
        let mut last = self.state.event_last.subscribe();
        // Too late is no error: the answer is then an empty list.
        let _ = tokio::time::timeout(wait, last.wait_for(|last| *last > after)).await;
        let request = Request::Events { after, limit, wait: Millis(0) };
        self.state.read(&request).unwrap_or_else(|| Err(stopping()))
    }
}

const fn counted(request: &Request) -> CountedRequest {
    (request.kind(), request.count())
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

/// Refuses requests one of which is longer than a group of namenodes can agree on. `bytes` is the
/// length of all.
pub(crate) fn check_lengths(requests: &[Request], bytes: usize) -> Result<(), Refusal> {
    if bytes <= REQUEST_BYTES_MAX {
        return Ok(());
    }
    let length = |request| serialized_size(request).unwrap_or(usize::MAX);
    match requests.iter().map(length).find(|length| *length > REQUEST_BYTES_MAX) {
        None => Ok(()),
        Some(length) => Err(Refusal::TooLarge {
            what: "a request".to_owned(),
            value: length as u64,
            limit: REQUEST_BYTES_MAX as u64,
        }),
    }
}

fn too_many_unconfirmed() -> Refusal {
    let why = "too many reads wait until most namenodes of the group have answered the leader";
    Refusal::RetryAfter { after: UNCONFIRMED_PAUSE, why: why.to_owned() }
}

fn unqueued(why: Unqueued) -> Refusal {
    match why {
        Unqueued::Full => queue_full(),
        Unqueued::Stopped => stopping(),
    }
}

pub(crate) fn stopping() -> Refusal {
    Refusal::RetryAfter { after: Millis(500), why: "the namenode is stopping".to_owned() }
}
