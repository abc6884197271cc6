//! The manager's calls: each has a deadline and ends as one piece of news.

use std::time::Duration;

use sanderling_core::manager::{LeaseAnswer, LeaseRequest, ViewRequest};
use sanderling_core::relocation::{Input, Output};
use sanderling_protocol::message::MoveCandidate;
use sanderling_protocol::order::PushMove;
use sanderling_protocol::{
    BlockId, Epoch, EventKind, Millis, NodeId, Nonce, Order, OrderReply, Refusal, Reply, Request,
};
use sanderling_transport::{CallError, EncodedRequest, Namenodes, Pool, Repeats};
use tokio::time::Instant;
use tracing::debug;

use crate::options::ManagerOptions;

/// What a call brought.
#[derive(Debug)]
pub(crate) enum Completion {
    /// Something for the decisions.
    Input(Input),
    /// What came of a request for a view of the drains.
    View(ViewRequest, Result<Input, Option<Refusal>>),
    /// What came of a request for the leadership lease.
    Lease(LeaseRequest, LeaseAnswer),
    /// A call was refused because another manager acts, for this long at least.
    NotManager(Millis),
    /// The last event's sequence, if one came, and whether the manager has not done itself what
    /// happened.
    Event(Option<(u64, bool)>),
    /// A report to the namenode succeeded or failed; no call waits for it.
    Reported,
}

/// Makes the manager's calls.
#[derive(Debug, Clone)]
pub(crate) struct NamenodeClient {
    pub(crate) pool: Pool,
    namenodes: Namenodes,
    name: String,
    pub(crate) holder: Nonce,
    lease: Millis,
    pub(crate) within: Duration,
}

/// Most events in one answer: more only repeat that something happened.
const EVENTS_MAX: u32 = 1000;

/// How long the namenode waits for an event.
const EVENT_WAIT: Duration = Duration::from_secs(5);

impl NamenodeClient {
    pub(crate) fn new(pool: Pool, options: &ManagerOptions, holder: Nonce) -> Self {
        Self {
            pool,
            namenodes: Namenodes::new(&options.namenode),
            name: options.name.clone(),
            holder,
            lease: Millis::from(options.lease),
            within: options.call_within,
        }
    }

    /// Gives the leadership lease back.
    pub(crate) async fn release(mut self) {
        self.lease = Millis(0);
        self.manage().await;
    }

    /// Requests the leadership lease, or renews it.
    pub(crate) async fn manage(self) -> LeaseAnswer {
        let request =
            Request::Manage { holder: self.holder, name: self.name.clone(), lease: self.lease };
        match self.send(request).await {
            Ok(Reply::ManagerGrant { .. }) => LeaseAnswer::Granted,
            Err(Some(Refusal::NotManager { remaining })) => LeaseAnswer::Taken(remaining),
            _ => LeaseAnswer::Unknown,
        }
    }

    /// Reads the drains and the nodes; the error is the refusal, or nothing without an answer.
    pub(crate) async fn drains(self) -> Result<Input, Option<Refusal>> {
        match self.send(Request::Drains { holder: self.holder }).await? {
            Reply::Drains { drains, nodes } => Ok(Input::Drains { drains, nodes }),
            _ => Err(None),
        }
    }

    /// Waits for an event after `after`.
    pub(crate) async fn event(self, after: u64) -> Completion {
        let wait = Millis::from(EVENT_WAIT);
        let request = Request::Events { after, limit: EVENTS_MAX, wait };
        match self.send_within(request, EVENT_WAIT + self.within).await {
            Ok(Reply::Events(events)) => {
                let last = events.last().map_or(after, |event| event.sequence);
                Completion::Event(Some((last, events.iter().any(|event| is_relevant(&event.kind)))))
            }
            _ => Completion::Event(None),
        }
    }

    /// Executes the decisions' calls.
    pub(crate) async fn perform(self, output: Output) -> Completion {
        Completion::Input(match output {
            Output::Fetch { node, after, limit } => {
                let page = |page| Input::Candidates { node, page };
                return self.page((node, after, limit), page).await;
            }
            Output::Page { call, node, after, limit } => {
                return self.page((node, after, limit), |page| Input::Page { call, page }).await;
            }
            Output::Reserve { call, moves } => {
                let request = Request::Reserve { holder: self.holder, moves };
                return self.epochs(request, |epochs| Input::Reserved { call, epochs }).await;
            }
            Output::Commit { call, moves } => {
                let request = Request::Commit { holder: self.holder, moves };
                return self.epochs(request, |epochs| Input::Committed { call, epochs }).await;
            }
            Output::Abandon { call, blocks } => {
                let request = Request::Abandon { holder: self.holder, blocks };
                return self.done(request, |is_done| Input::Abandoned { call, is_done }).await;
            }
            Output::DropCopies { call, blocks } => {
                let request = Request::DropCopies { holder: self.holder, blocks };
                return self.done(request, |is_done| Input::Dropped { call, is_done }).await;
            }
            Output::Forecast { node, forecast } => {
                let request = Request::Forecast { holder: self.holder, node, forecast };
                return match self.send(request).await {
                    Err(Some(Refusal::NotManager { remaining })) => {
                        Completion::NotManager(remaining)
                    }
                    _ => Completion::Reported,
                };
            }
            Output::Push { call, source, address, moves, within } => {
                let outcomes = match self.push(source, &address, moves, within).await {
                    Ok(OrderReply::Pushed(outcomes)) => Some(outcomes),
                    Ok(other) => {
                        debug!(%source, ?other, "a push brought another answer");
                        None
                    }
                    Err(error) => {
                        debug!(%source, %error, "a push failed");
                        None
                    }
                };
                Input::Pushed { call, outcomes }
            }
        })
    }

    async fn push(
        &self,
        source: NodeId,
        address: &str,
        moves: Vec<PushMove>,
        within: Millis,
    ) -> Result<OrderReply, CallError> {
        let deadline = Instant::now() + Duration::from(within);
        self.namenodes.learn_cluster(&self.pool, deadline).await?;
        self.pool.order(source, address, Order::Push { moves }, deadline).await
    }

    async fn page(
        self,
        (node, after, limit): (NodeId, BlockId, u32),
        input: impl FnOnce(Option<(Vec<MoveCandidate>, bool)>) -> Input,
    ) -> Completion {
        let request = Request::DrainBlocks { holder: self.holder, node, after, limit };
        Completion::Input(input(match self.send(request).await {
            Ok(Reply::Candidates { candidates, is_more }) => Some((candidates, is_more)),
            Err(Some(Refusal::NotManager { remaining })) => {
                return Completion::NotManager(remaining);
            }
            _ => None,
        }))
    }

    async fn done(self, request: Request, input: impl FnOnce(bool) -> Input) -> Completion {
        match self.send(request).await {
            Ok(_) => Completion::Input(input(true)),
            Err(Some(Refusal::NotManager { remaining })) => Completion::NotManager(remaining),
            Err(_) => Completion::Input(input(false)),
        }
    }

    async fn epochs(
        self,
        request: Request,
        input: impl FnOnce(Option<Vec<Result<Epoch, Refusal>>>) -> Input,
    ) -> Completion {
        Completion::Input(input(match self.send(request).await {
            Ok(Reply::Epochs(epochs)) => Some(epochs),
            Err(Some(Refusal::NotManager { remaining })) => {
                return Completion::NotManager(remaining);
            }
            _ => None,
        }))
    }

    /// Calls the namenode with a token that names its cluster.
    async fn meta(
        &self,
        requests: Vec<Request>,
        deadline: Instant,
    ) -> Result<Vec<Result<Reply, Refusal>>, CallError> {
        self.namenodes.learn_cluster(&self.pool, deadline).await?;
        let requests: Vec<EncodedRequest> = requests.iter().map(EncodedRequest::new).collect();
        // Epochs and the holder make a second arrival harmless.
        let sent = self.namenodes.meta(&self.pool, &requests, Repeats::Always, deadline);
        let answered = sent.await;
        if let Err(CallError::Refused(
            Refusal::WrongCluster { .. } | Refusal::Unauthenticated { .. },
        )) = &answered
        {
            // Another cluster's namenode may serve at the address now.
            self.pool.set_cluster(None);
        }
        answered
    }

    pub(crate) async fn send(&self, request: Request) -> Result<Reply, Option<Refusal>> {
        self.send_within(request, self.within).await
    }

    /// Sends one request; the error is the refusal, or nothing when there was no answer.
    async fn send_within(
        &self,
        request: Request,
        within: Duration,
    ) -> Result<Reply, Option<Refusal>> {
        let deadline = Instant::now() + within;
        match self.meta(vec![request], deadline).await {
            Ok(mut answers) => match answers.pop() {
                Some(Ok(reply)) => Ok(reply),
                Some(Err(refusal)) => {
                    debug!(%refusal, "the namenode refused");
                    Err(Some(refusal))
                }
                None => Err(None),
            },
            Err(error) => {
                debug!(%error, "the namenode did not answer");
                Err(None)
            }
        }
    }
}

/// Returns whether an event reports something about nodes that the manager does not have from its
/// own calls: a view of all nodes after each of its moves would cost more than the moves, and one
/// after each job would let any tenant cause views.
const fn is_relevant(kind: &EventKind) -> bool {
    !matches!(
        kind,
        EventKind::BlocksMoved { .. }
            | EventKind::BlocksCopied { .. }
            | EventKind::BlocksRebalanced { .. }
            | EventKind::JobRegistered { .. }
            | EventKind::JobEnded { .. }
    )
}
