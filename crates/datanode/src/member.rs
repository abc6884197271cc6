//! Being a member of the cluster: does what `core` decides about registering, heartbeats and
//! reports, and tells it what came of that.

use std::sync::Arc;

use sanderling_core::datanode::{
    Beaten, BlockTotals, CallFailure, Joining, LostEnd, MemberOptions, MemberStep, Registration,
    RequestStamp, StartLimit, Welcome,
};
use sanderling_protocol::message::{Heartbeat, HeartbeatReply, Join, Joined, Register};
use sanderling_protocol::{Instant, LogPosition, Millis, Nonce, Refusal, Reply, Request};
use sanderling_transport::{CallError, Connection};
use tokio::time::sleep_until;

use crate::error::DatanodeStartError;
use crate::node::{Node, NodeIdentity};
use crate::options::DatanodeOptions;
use crate::report::report;

/// Time between two attempts to reach the namenode.
pub(crate) const ATTEMPT_EVERY: Millis = Millis(250);

/// Why [`stay`] ended.
#[derive(Debug)]
pub(crate) enum Turned {
    /// The process is a node now, and was none before.
    Joined,
    /// It is none any more: what is here belongs to nobody.
    BeginsAgain,
    /// The namenode will never take it, or could not be reached at the start.
    Stopped(CallError),
}

/// Returns what `core` is to know of the options.
pub(crate) fn member_options(options: &DatanodeOptions) -> MemberOptions {
    MemberOptions {
        mechanism: options.mechanism,
        attempt_every: ATTEMPT_EVERY,
        draining_heartbeat: options.draining_heartbeat.into(),
        report_every: options.report_every.into(),
        rejoin_after_notice: options.rejoin_after_notice.into(),
    }
}

/// Registers for the first time, for a bounded while.
///
/// # Errors
/// [`DatanodeStartError::Refused`], [`DatanodeStartError::Unreachable`].
pub(crate) async fn join_first(node: &Arc<Node>) -> Result<(), DatanodeStartError> {
    let namenode = node.options.namenode.clone();
    match join(node).await {
        Ok(()) => Ok(()),
        Err(CallError::Refused(refusal)) => Err(DatanodeStartError::Refused { namenode, refusal }),
        Err(error) => Err(DatanodeStartError::Unreachable {
            namenode,
            seconds: node.options.start_time_max.as_secs(),
            why: error.to_string(),
        }),
    }
}

/// Makes the process a node, for as long as it takes.
///
/// # Errors
/// The namenode will never take it.
pub(crate) async fn join(node: &Arc<Node>) -> Result<(), CallError> {
    loop {
        match stay(node).await {
            Turned::Joined => return Ok(()),
            Turned::BeginsAgain if node.begin_again() => return Ok(()),
            Turned::BeginsAgain => {}
            Turned::Stopped(error) => return Err(error),
        }
    }
}

/// Does what a member does, until it turns into another one.
pub(crate) async fn stay(node: &Arc<Node>) -> Turned {
    let is_node = node.identity().node.is_some();
    let mut connection = if is_node { node.namenode_connection().await } else { None };
    let mut last_error = None;
    loop {
        let is_broken = connection.as_ref().is_none_or(Connection::is_broken);
        match node.change(|member, now| member.next(now, is_broken)) {
            MemberStep::Register(joining) => match node.register(joining).await {
                Ok(Welcome::Joined) => return Turned::Joined,
                Ok(_) => connection = node.namenode_connection().await,
                Err(error) => last_error = Some(error),
            },
            MemberStep::Beat { node: id, nonce, asked } => {
                node.beat(Heartbeat { node: id, nonce, load: node.load() }, asked).await;
            }
            MemberStep::Report(_) => {
                let reported = report(node).await;
                if let Err(error) = &reported {
                    tracing::debug!(node = %node.id(), %error, "block report not taken");
                }
                node.change(|member, now| member.reported(now, reported.is_ok()));
            }
            MemberStep::Repeat => {
                node.repeat().await;
                node.change(|member, now| member.repeated(now));
            }
            MemberStep::Wait(at) => sleep_until(node.clock.moment(at)).await,
            MemberStep::BeginAgain => return Turned::BeginsAgain,
            MemberStep::Stop(failure) => {
                return Turned::Stopped(stopped(node, failure, last_error));
            }
            MemberStep::Pending => unreachable!("whatever was begun was handed over"),
        }
    }
}

/// Returns the error with which the process stops: the one that it met last.
fn stopped(node: &Node, failure: CallFailure, last: Option<CallError>) -> CallError {
    match (failure, last) {
        (CallFailure::Refused(refusal), _) => CallError::Refused(refusal),
        (_, Some(error)) => error,
        (_, None) => {
            let (address, why) = (node.options.namenode.clone(), "no answer".to_owned());
            CallError::Closed { address, why }
        }
    }
}

impl Node {
    /// Introduces the node to the namenode, or introduces it again.
    async fn register(&self, joining: Joining) -> Result<Welcome, CallError> {
        let Joining { cluster, nonce, seen, wiped, asked } = joining;
        let options = &self.options;
        let register = Register {
            cluster,
            nonce,
            name: options.name.clone(),
            address: self.address.clone(),
            http_address: self.http_address.clone(),
            host: options.host.clone(),
            tiers: self.store.tiers().sizes(),
            notice_min: options.notice_min.map(Millis::from),
            // Where the node holds itself back, that is its link.
            egress_bytes_per_second: options.egress_bytes_per_second.or(options.egress_limit),
        };
        let request = Request::Join(Box::new(Join { register, seen, wiped }));
        if cluster.is_none() {
            // Whom it greeted before may not be who registers it.
            self.pool.set_cluster(None);
        }
        let answer = match self.ask_also_for_revocations(request).await {
            Ok(Reply::Joined(joined)) => Ok(joined),
            Ok(other) => Err(self.bad_reply(&other)),
            Err(CallError::Refused(refusal @ Refusal::WrongCluster { .. }))
                if cluster.is_none() =>
            {
                // Another namenode took the place of the one that was greeted.
                let (address, why) = (options.namenode.clone(), refusal.to_string());
                Err(CallError::Closed { address, why })
            }
            Err(error) => Err(error),
        };
        let registration = self.registered(asked, answer.as_deref());
        if let Some(LostEnd { seen, position }) = registration.lost {
            tracing::error!(
                node = %self.id(),
                ?seen,
                ?position,
                "the namenode's log has lost its end: it lacks changes that this node was told of"
            );
        }
        self.welcomed(registration.welcome);
        answer.map(|_| registration.welcome)
    }

    fn registered(&self, asked: RequestStamp, answer: Result<&Joined, &CallError>) -> Registration {
        if let Ok(joined) = answer {
            self.enter_cluster(joined.registered.cluster);
        }
        let answer = answer.map_err(failure);
        self.change(|member, now| member.registered(now, asked, answer))
    }

    fn welcomed(&self, welcome: Welcome) {
        let (node, cluster) = (self.id(), self.identity().cluster.unwrap_or_default());
        match welcome {
            Welcome::Joined => {
                self.counters.registrations.inc();
                tracing::info!(%node, %cluster, address = self.address, "joined");
            }
            Welcome::Rejoined => {
                self.counters.registrations.inc();
                tracing::info!(%node, "registered again");
            }
            Welcome::Another => tracing::warn!(%node, "the namenode knows it by another id"),
            Welcome::Gone { is_expected } => {
                tracing::warn!(%node, is_expected, "given up by the namenode");
            }
            Welcome::NotYet => tracing::debug!("not taken by the namenode yet"),
            Welcome::Never => tracing::debug!("the namenode will never take the node"),
        }
    }

    async fn beat(&self, heartbeat: Heartbeat, asked: RequestStamp) {
        let answer = match self.ask_also_for_revocations(Request::Beat(heartbeat)).await {
            Ok(Reply::Beat { heartbeat: reply, position }) => Ok((reply, position)),
            Ok(other) => Err(self.bad_reply(&other)),
            Err(error) => Err(error),
        };
        let node = self.id();
        if let Err(error) = &answer {
            self.counters.heartbeats_failed.inc();
            tracing::debug!(%node, %error, "heartbeat not answered");
        }
        if let Beaten::Gone { is_expected } = self.beaten(asked, answer) {
            tracing::warn!(%node, is_expected, "given up by the namenode");
        }
    }

    fn beaten(
        &self,
        asked: RequestStamp,
        answer: Result<(HeartbeatReply, Option<LogPosition>), CallError>,
    ) -> Beaten {
        let answer = answer.map_err(|error| failure(&error));
        self.change(|member, now| member.beaten(now, asked, answer))
    }

    /// Forgets everything. Returns whether the process is another node already; else it is nobody
    /// until it has registered.
    pub(crate) fn begin_again(&self) -> bool {
        let load = self.store.load();
        let held =
            BlockTotals { blocks: load.blocks, bytes: load.dram_used_bytes + load.disk_used_bytes };
        self.wipe(held, nonce());
        let is_joined = self.change(|member, now| member.wiped(now));
        if is_joined {
            self.welcomed(Welcome::Joined);
        }
        is_joined
    }

    /// Returns who the process is to its peers.
    pub(crate) fn identity(&self) -> NodeIdentity {
        let member = self.member.read();
        NodeIdentity { cluster: member.cluster(), node: member.node(), nonce: member.nonce() }
    }
}

/// Returns when the first registration is given up.
pub(crate) fn start(options: &DatanodeOptions, now: Instant) -> StartLimit {
    StartLimit::Until(now + options.start_time_max.into())
}

/// Returns the number by which a namenode knows a process.
pub(crate) fn nonce() -> Nonce {
    Nonce(rand::random())
}

/// Returns what a failed call says of the namenode.
pub(crate) fn failure(error: &CallError) -> CallFailure {
    match error {
        CallError::Refused(refusal) => CallFailure::Refused(refusal.clone()),
        CallError::TimedOut { .. } | CallError::TooBusy { .. } => CallFailure::Busy,
        CallError::Unreachable { .. }
        | CallError::Closed { .. }
        | CallError::Credentials { .. }
        | CallError::BadReply { .. } => CallFailure::Broken,
    }
}
