//! Joining the cluster and staying in it: does what `core` decides about registering, heartbeats
//! and reports, and returns to it what came of that.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::datanode::{
    CallFailure, HeartbeatOutcome, Joining, LostEnd, MemberStep, RegistrationOutcome, RequestStamp,
};
use sanderling_protocol::message::{Heartbeat, Join, Register};
use sanderling_protocol::{Millis, Nonce, Refusal, Reply, Request};
use sanderling_transport::{CallError, CloseCause, Connection};
use tokio::time::sleep_until;

use crate::activity::Activity;
use crate::counters::Counters;
use crate::error::DatanodeStartError;
use crate::join_failure::JoinFailure;
use crate::membership::Membership;
use crate::namenode::failure;
use crate::options::DatanodeOptions;
use crate::report::report;
use crate::store::BlockStore;

/// Why [`Joiner::stay`] ended.
#[derive(Debug)]
pub(crate) enum MembershipChange {
    /// The process is a node now, and was none before.
    Joined,
    /// It is none any more: what is here has no owner.
    BeginsAgain,
    /// The namenode will never take it, or could not be reached at the start.
    Stopped(CallError),
}

/// Where peers reach the node.
#[derive(Debug)]
pub(crate) struct Addresses {
    pub(crate) blocks: String,
    /// Empty when it serves no HTTP.
    pub(crate) http: String,
}

/// Makes the process a member, and keeps it one.
#[derive(Debug)]
pub(crate) struct Joiner {
    membership: Arc<Membership>,
    store: Arc<BlockStore>,
    activity: Arc<Activity>,
    counters: Arc<Counters>,
    /// What the node registers with, but for what changes.
    introduction: Register,
    namenode: String,
    start_time_max: Duration,
    /// The error of the last registration, for the starter.
    failure: JoinFailure,
    /// The connection of the last registration: when it ends, the namenode may be another process,
    /// with which the node must register again.
    registered_on: Mutex<Option<Connection>>,
}

impl Joiner {
    pub(crate) fn new(
        options: &DatanodeOptions,
        addresses: Addresses,
        membership: Arc<Membership>,
        store: Arc<BlockStore>,
        activity: Arc<Activity>,
        counters: Arc<Counters>,
    ) -> Self {
        let introduction = Register {
            cluster: None,
            nonce: Nonce::default(),
            name: options.name.clone(),
            address: addresses.blocks,
            http_address: addresses.http,
            host: options.host.clone(),
            tiers: Vec::new(),
            notice_min: options.notice_min.map(Millis::from),
            // Where the node holds itself back, that is its link.
            egress_bytes_per_second: options.egress_bytes_per_second.or(options.egress_limit),
        };
        let (namenode, start_time_max) = (options.namenode.clone(), options.start_time_max);
        Self {
            membership,
            store,
            activity,
            counters,
            introduction,
            namenode,
            start_time_max,
            failure: options.join_failure.clone(),
            registered_on: Mutex::default(),
        }
    }

    /// Registers for the first time, for a bounded while.
    ///
    /// # Errors
    /// [`DatanodeStartError::Refused`], [`DatanodeStartError::Unreachable`].
    pub(crate) async fn join_first(&self) -> Result<(), DatanodeStartError> {
        let namenode = self.namenode.clone();
        self.join().await.map_err(|error| match error {
            CallError::Refused(refusal) => DatanodeStartError::Refused { namenode, refusal },
            cause => {
                let seconds = self.start_time_max.as_secs();
                DatanodeStartError::Unreachable { namenode, seconds, cause }
            }
        })
    }

    /// Makes the process a node, for as long as it takes.
    ///
    /// # Errors
    /// The namenode will never take it.
    pub(crate) async fn join(&self) -> Result<(), CallError> {
        loop {
            match self.stay().await {
                MembershipChange::Joined => return Ok(()),
                MembershipChange::BeginsAgain if self.begin_again() => return Ok(()),
                MembershipChange::BeginsAgain => {}
                MembershipChange::Stopped(error) => return Err(error),
            }
        }
    }

    /// Does what a member does, until it turns into another one.
    pub(crate) async fn stay(&self) -> MembershipChange {
        let member = &self.membership;
        if member.identity().node.is_none() {
            *self.registered_on.lock() = None;
        }
        let mut last_error = None;
        loop {
            let is_broken = self.registered_on.lock().as_ref().is_none_or(Connection::is_broken);
            match member.change(|member, now| member.next(now, is_broken)) {
                MemberStep::Register(joining) => match self.register(joining).await {
                    Ok(RegistrationOutcome::Joined) => return MembershipChange::Joined,
                    Ok(_) => {}
                    Err(error) => last_error = Some(error),
                },
                MemberStep::Beat { node, nonce, asked } => {
                    self.beat(Heartbeat { node, nonce, load: self.activity.load() }, asked).await;
                }
                MemberStep::Report(_) => {
                    let reported = report(member, &self.store).await;
                    if let Err(error) = &reported {
                        tracing::debug!(node = %member.id(), %error, "block report not taken");
                    }
                    member.change(|member, now| member.reported(now, reported.is_ok()));
                }
                MemberStep::Repeat => {
                    member.repeat_notice().await;
                    member.change(|member, now| member.repeated(now));
                }
                MemberStep::Wait(at) => sleep_until(member.clock().moment(at)).await,
                MemberStep::BeginAgain => return MembershipChange::BeginsAgain,
                MemberStep::Stop(failure) => {
                    return MembershipChange::Stopped(self.stopped(failure, last_error));
                }
                MemberStep::Pending => unreachable!("whatever was begun was handed over"),
            }
        }
    }

    /// Returns the error with which the process stops: the one that it met last.
    fn stopped(&self, failure: CallFailure, last: Option<CallError>) -> CallError {
        match (failure, last) {
            (CallFailure::Refused(refusal), _) => CallError::Refused(refusal),
            (_, Some(error)) => error,
            (_, None) => self.membership.namenode().unanswered(CloseCause::NoAnswer),
        }
    }

    /// Registers the node with the namenode, or registers it again.
    async fn register(&self, joining: Joining) -> Result<RegistrationOutcome, CallError> {
        let Joining { cluster, nonce, seen, wiped, asked } = joining;
        let namenode = self.membership.namenode();
        let tiers = self.store.tiers().sizes();
        let register = Register { cluster, nonce, tiers, ..self.introduction.clone() };
        let request = Request::Join(Box::new(Join { register, seen, wiped }));
        if cluster.is_none() {
            // The namenode that was greeted before may not be the one that registers the node.
            namenode.set_cluster(None);
        }
        // Opened before the call: one that is opened after it may be to the next process.
        let opened = namenode.opened().await;
        let answer = match namenode.call_and_update_revocations(request).await {
            Ok(Reply::Joined(joined)) => Ok(joined),
            Ok(other) => Err(namenode.bad_reply(other)),
            Err(CallError::Refused(refusal @ Refusal::WrongCluster { .. }))
                if cluster.is_none() =>
            {
                // Another namenode took the place of the one that was greeted.
                Err(namenode.unanswered(CloseCause::Replaced(Box::new(refusal))))
            }
            Err(error) => Err(error),
        };
        if let Ok(joined) = &answer {
            self.membership.enter_cluster(joined.registered.cluster);
            *self.registered_on.lock() = namenode.same(opened).await;
        }
        self.called(answer.as_ref().map(|_| ()));
        let result = answer.as_deref().map_err(failure);
        let registration =
            self.membership.change(|member, now| member.registered(now, asked, result));
        if let Some(LostEnd { seen, position }) = registration.lost {
            tracing::error!(
                node = %self.membership.id(),
                ?seen,
                ?position,
                "the namenode's log has lost its end: it lacks changes that this node has seen"
            );
        }
        self.failure.set(answer.as_ref().err().cloned());
        let attempt = answer.as_ref().map(|_| ());
        self.noted(registration.outcome, attempt);
        self.registered(registration.outcome);
        answer.map(|_| registration.outcome)
    }

    /// Notes the outcome of a registration that does not end the process, for operators.
    fn noted(&self, outcome: RegistrationOutcome, attempt: Result<(), &CallError>) {
        if attempt.is_ok() || outcome == RegistrationOutcome::NotYet {
            let now = self.membership.clock().now();
            self.membership.contact().registered(now, attempt);
        }
    }

    fn registered(&self, outcome: RegistrationOutcome) {
        let identity = self.membership.identity();
        let (node, cluster) =
            (identity.node.unwrap_or_default(), identity.cluster.unwrap_or_default());
        match outcome {
            RegistrationOutcome::Joined => {
                self.store.look_up_set_aside();
                self.counters.registrations.inc();
                let cluster = format_args!("{:016x}", cluster.0);
                tracing::info!(%node, %cluster, address = self.introduction.address, "joined");
            }
            RegistrationOutcome::Rejoined => {
                self.store.look_up_set_aside();
                self.counters.registrations.inc();
                tracing::info!(%node, "registered again");
            }
            RegistrationOutcome::Another => {
                tracing::warn!(%node, "the namenode has it under another id");
            }
            RegistrationOutcome::Gone { is_expected } => self.given_up(is_expected),
            RegistrationOutcome::NotYet => tracing::debug!("not taken by the namenode yet"),
            RegistrationOutcome::Never => tracing::debug!("the namenode will never take the node"),
        }
    }

    async fn beat(&self, heartbeat: Heartbeat, asked: RequestStamp) {
        let namenode = self.membership.namenode();
        let request = Request::Beat(heartbeat);
        let answer = match namenode.call_and_update_revocations(request).await {
            Ok(Reply::Beat { heartbeat: reply, position }) => Ok((reply, position)),
            Ok(other) => Err(namenode.bad_reply(other)),
            Err(error) => Err(error),
        };
        let node = self.membership.id();
        if let Err(error) = &answer {
            self.counters.heartbeats_failed.inc();
            tracing::debug!(%node, %error, "heartbeat not answered");
        }
        self.called(answer.as_ref().map(|_| ()));
        let answer = answer.map_err(|error| failure(&error));
        let beaten = self.membership.change(|member, now| member.beaten(now, asked, answer));
        if let HeartbeatOutcome::Gone { is_expected } = beaten {
            self.given_up(is_expected);
        }
    }

    /// Notes the outcome of a call, for operators.
    fn called(&self, outcome: Result<(), &CallError>) {
        let now = self.membership.clock().now();
        self.membership.contact().called(now, self.membership.id(), outcome);
    }

    /// Notes that the namenode gave the node up, for operators.
    fn given_up(&self, is_expected: bool) {
        let (now, load) = (self.membership.clock().now(), self.activity.load());
        let homes = self.membership.registration().borrow().home_blocks.unwrap_or(load.blocks);
        let expected = is_expected.then_some(homes);
        self.membership.contact().given_up(now, self.membership.id(), load, expected);
    }

    /// Forgets what no incarnation owns any more. Returns whether the process is another node
    /// already; else it is none until it has registered.
    pub(crate) fn begin_again(&self) -> bool {
        let is_joined = self.membership.begin_again();
        if is_joined {
            self.registered(RegistrationOutcome::Joined);
        }
        is_joined
    }
}
