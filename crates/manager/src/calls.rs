//! The manager's calls: each has a deadline and ends as one `Completion`.

use std::time::Duration;

use sanderling_core::durable::{
    self, CHANGE_BEGINS_WITHIN, DurableCallError, DurableInput, DurableOutput, STORE_OPERATION_MAX,
    UploadedParts,
};
use sanderling_core::manager::{LeadershipAnswer, LeadershipRequest, ViewRequest};
use sanderling_core::relocation::{Input, MoveOutput};
use sanderling_protocol::limits::EVENTS_PER_REPLY_MAX;
use sanderling_protocol::message::{
    AdoptionStep, DurableRecord, DurableReply, DurableRequest, MoveCandidate, StoreSlice,
};
use sanderling_protocol::order::PushMove;
use sanderling_protocol::{
    BlockId, Epoch, Event, Millis, NodeId, Nonce, ObjectId, Order, OrderReply, Refusal, Reply,
    Request,
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
    Lease(LeadershipRequest, LeadershipAnswer),
    /// A call was refused because another manager leads, for this long at least.
    NotManager(Millis),
    /// Events, if the namenode answered.
    Events(Option<Vec<Event>>),
    /// Something for the drain of durable directories.
    Durable(DurableInput),
    /// What came of a request for the work of durable directories.
    DurableView(Result<DurableInput, Option<Refusal>>),
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

/// Longest time to take a store over, to list a part of it, and to read blocks back. A datanode
/// does each of these within 60 s (`LISTING_MAX`).
const UPLOAD_TIMEOUT: Duration = Duration::from_millis(durable::UPLOAD_WITHIN.0);

/// Longest time to change what is visible in a store. A datanode begins the last one within 5 s
/// ([`CHANGE_BEGINS_WITHIN`]) and it takes 20 s at most ([`STORE_OPERATION_MAX`]), so an answer
/// that comes at all comes before.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

const _: () =
    assert!(CHANGE_BEGINS_WITHIN.0 + STORE_OPERATION_MAX.0 < CHANGE_TIMEOUT.as_secs() * 1000);

/// How long the namenode waits for an event. An event that a broken connection has lost is found by
/// the next view, at most a second later by default (`ManagerOptions::poll_idle`). Each wait costs
/// one request. Chosen, not measured.
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
    pub(crate) async fn manage(self) -> LeadershipAnswer {
        let request =
            Request::Manage { holder: self.holder, name: self.name.clone(), lease: self.lease };
        match self.send(request).await {
            Ok(Reply::ManagerGrant { .. }) => LeadershipAnswer::Granted,
            Err(Some(Refusal::NotManager { remaining })) => LeadershipAnswer::Taken(remaining),
            _ => LeadershipAnswer::Unknown,
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
    pub(crate) async fn events(self, after: u64) -> Completion {
        let wait = Millis::from(EVENT_WAIT);
        // More would only repeat that something happened.
        let request = Request::Events { after, limit: EVENTS_PER_REPLY_MAX, wait };
        let answer = self.send_within(request, Repeats::Always, EVENT_WAIT + self.within).await;
        Completion::Events(match answer {
            Ok(Reply::Events(events)) => Some(events),
            _ => None,
        })
    }

    /// Executes the decisions' calls.
    pub(crate) async fn perform(self, output: MoveOutput) -> Completion {
        Completion::Input(match output {
            MoveOutput::Fetch { node, after, limit } => {
                let page = |page| Input::Candidates { node, page };
                return self.page((node, after, limit), page).await;
            }
            MoveOutput::Page { call, node, after, limit } => {
                return self.page((node, after, limit), |page| Input::Page { call, page }).await;
            }
            MoveOutput::Reserve { call, moves } => {
                let request = Request::Reserve { holder: self.holder, moves };
                return self.epochs(request, |epochs| Input::Reserved { call, epochs }).await;
            }
            MoveOutput::Commit { call, moves } => {
                let request = Request::Commit { holder: self.holder, moves };
                return self.epochs(request, |epochs| Input::Committed { call, epochs }).await;
            }
            MoveOutput::Abandon { call, blocks } => {
                let request = Request::Abandon { holder: self.holder, blocks };
                return self.done(request, |is_done| Input::Abandoned { call, is_done }).await;
            }
            MoveOutput::DropCopies { call, blocks } => {
                let request = Request::DropCopies { holder: self.holder, blocks };
                return self.done(request, |is_done| Input::Dropped { call, is_done }).await;
            }
            MoveOutput::Forecast { node, forecast } => {
                let request = Request::Forecast { holder: self.holder, node, forecast };
                return match self.send(request).await {
                    Err(Some(Refusal::NotManager { remaining })) => {
                        Completion::NotManager(remaining)
                    }
                    _ => Completion::Reported,
                };
            }
            MoveOutput::Push { call, source, address, moves, within } => {
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

    /// Reads what is to be done for durable directories.
    pub(crate) async fn durable_work(self) -> Completion {
        let request = DurableRequest::Work { holder: self.holder };
        let answer = self.send(Request::Durable(Box::new(request))).await;
        Completion::DurableView(answer.and_then(|reply| match reply {
            Reply::Durable(reply) => match *reply {
                DurableReply::Work { directories: work, losses, nodes } => {
                    Ok(DurableInput::View { work, nodes, losses })
                }
                _ => Err(None),
            },
            _ => Err(None),
        }))
    }

    /// Executes the calls of the drain of durable directories.
    pub(crate) async fn perform_durable(self, output: DurableOutput) -> Completion {
        Completion::Durable(match output {
            DurableOutput::Layout { call, object, offset, bytes } => {
                let found = self.send(Request::LookupObject { object, offset, bytes }).await;
                let layout = match found {
                    Ok(Reply::Layout(layout)) => Some(Box::new(layout)),
                    _ => None,
                };
                DurableInput::Layout { call, layout }
            }
            DurableOutput::Upload { call, node, address, order } => {
                let within = durable::upload_within(&order.parts).into();
                let order = Order::Upload(Box::new(order));
                let reply = self.durable_order((node, &address), order, within).await;
                let answer = reply.and_then(|reply| match reply {
                    OrderReply::Uploaded { upload, parts } => Ok(UploadedParts { upload, parts }),
                    other => Err(bad_reply(node, other)),
                });
                DurableInput::Uploaded { call, answer }
            }
            DurableOutput::Abort { call, node, address, directory, store, uploads } => {
                let order = Order::AbortUploads { directory, store, uploads };
                let done = self.durable_order((node, &address), order, CHANGE_TIMEOUT).await;
                DurableInput::Aborted { call, is_done: matches!(done, Ok(OrderReply::Done)) }
            }
            DurableOutput::Change { call, node, address, directory, store, changes } => {
                let order = Order::ChangeStore { directory, store, changes };
                let reply = self.durable_order((node, &address), order, CHANGE_TIMEOUT).await;
                let answer = match reply {
                    Ok(OrderReply::StoreChanged { done, failure }) => Some((done, failure)),
                    Err(DurableCallError::Refused(refusal)) => Some((0, Some(refusal))),
                    _ => None,
                };
                DurableInput::Changed { call, answer }
            }
            DurableOutput::Restore { call, node, address, loss } => {
                let order = Order::Restore(Box::new(loss));
                let reply = self.durable_order((node, &address), order, UPLOAD_TIMEOUT).await;
                let answer = reply.and_then(|reply| match reply {
                    OrderReply::Restored(tiers) => Ok(tiers),
                    other => Err(bad_reply(node, other)),
                });
                DurableInput::Restored { call, answer }
            }
            DurableOutput::Adopt { call, node, address, directory, store, step } => {
                let answer = self.adopt((node, &address), directory, store, step).await;
                DurableInput::Adopted { call, answer }
            }
            DurableOutput::Report { call, record } => match self.report(record).await {
                Err(Some(Refusal::NotManager { remaining })) => {
                    return Completion::NotManager(remaining);
                }
                answer => DurableInput::Reported { call, is_done: answer.is_ok() },
            },
        })
    }

    /// Reports what was done for durable directories. A namenode of an earlier program does not
    /// read what the report compares, and gets it without that.
    async fn report(&self, record: DurableRecord) -> Result<Reply, Option<Refusal>> {
        let request =
            |record: DurableRecord| Request::Durable(Box::new(record.into_request(self.holder)));
        let answer = self.send(request(record.clone())).await;
        let is_compared = !record.uploads.is_empty() || !record.made.is_empty();
        match answer {
            Err(Some(Refusal::BadFrame { .. })) if is_compared => {
                self.send(request(record.without_comparison())).await
            }
            answer => answer,
        }
    }

    /// Orders a step of an adoption. Returns what the store has, and how long its former owner may
    /// still change it.
    async fn adopt(
        &self,
        (node, address): (NodeId, &str),
        directory: ObjectId,
        store: String,
        step: AdoptionStep,
    ) -> Result<(StoreSlice, Millis), DurableCallError> {
        let order = match step {
            AdoptionStep::Take => Order::TakeStore { directory, store },
            AdoptionStep::List(after) => Order::ListStore { directory, store, after },
        };
        match self.durable_order((node, address), order, UPLOAD_TIMEOUT).await? {
            OrderReply::StoreTaken { settles_in } => Ok((StoreSlice::default(), settles_in)),
            OrderReply::StoreListed(slice) => Ok((slice, Millis(0))),
            other => Err(bad_reply(node, other)),
        }
    }

    /// Sends an order for a durable directory; returns the answer if that is no refusal.
    async fn durable_order(
        &self,
        (node, address): (NodeId, &str),
        order: Order,
        within: Duration,
    ) -> Result<OrderReply, DurableCallError> {
        let no_answer = |error: CallError| DurableCallError::NoAnswer {
            node,
            address: address.to_owned(),
            cause: Box::new(error),
        };
        let deadline = Instant::now() + within;
        self.namenodes.learn_cluster(&self.pool, deadline).await.map_err(no_answer)?;
        match self.pool.order(node, address, order, deadline).await {
            // Of the second kind nothing was begun.
            Ok(OrderReply::Refused(refusal)) | Err(CallError::Refused(refusal)) => {
                Err(DurableCallError::refused(node, refusal))
            }
            Ok(reply) => Ok(reply),
            Err(error) => Err(no_answer(error)),
        }
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
        repeats: Repeats,
        deadline: Instant,
    ) -> Result<Vec<Result<Reply, Refusal>>, CallError> {
        self.namenodes.learn_cluster(&self.pool, deadline).await?;
        let requests: Vec<EncodedRequest> = requests.iter().map(EncodedRequest::new).collect();
        let sent = self.namenodes.meta(&self.pool, &requests, repeats, deadline);
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

    /// Sends one request, of which epochs, names and the holder make a second arrival harmless.
    pub(crate) async fn send(&self, request: Request) -> Result<Reply, Option<Refusal>> {
        self.send_within(request, Repeats::Always, self.within).await
    }

    /// Sends one request; the error is the refusal, or nothing when there was no answer.
    async fn send_within(
        &self,
        request: Request,
        repeats: Repeats,
        within: Duration,
    ) -> Result<Reply, Option<Refusal>> {
        let deadline = Instant::now() + within;
        match self.meta(vec![request], repeats, deadline).await {
            Ok(mut answers) => match answers.pop() {
                Some(Ok(reply)) => Ok(reply),
                Some(Err(refusal)) => {
                    debug!(%refusal, "the namenode refused");
                    Err(Some(refusal))
                }
                None => Err(None),
            },
            // It refused the frame as a whole.
            Err(CallError::Refused(refusal)) => {
                debug!(%refusal, "the namenode refused");
                Err(Some(refusal))
            }
            Err(error) => {
                debug!(%error, "the namenode did not answer");
                Err(None)
            }
        }
    }
}

fn bad_reply(node: NodeId, reply: OrderReply) -> DurableCallError {
    DurableCallError::BadReply { node, reply: Box::new(reply) }
}
