//! The client itself, and how a call is tried.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sanderling_core::client::{ChangeAttempts, NextAttempt};
use sanderling_core::retry::{Retry, RetryDecision};
use sanderling_protocol::message::{Repetition, Role};
use sanderling_protocol::{ClusterId, NodeId, Order, OrderReply, Path, Refusal, Reply, Request};
use sanderling_transport::{
    CallError, ConnectionOptions, KnownGeneration, Namenodes, Pool, PoolOptions,
};
use tokio::time::Instant;

use crate::changes::{Changes, failure};
use crate::config::ClientConfig;
use crate::diagnosis::diagnosed;
use crate::error::ClientError;
use crate::leases::Leases;
use crate::local::LocalNodes;
use crate::locations::Locations;
use crate::metrics::{ClientMetrics, Counters, count};
use crate::nonce::Nonces;
use crate::request_batcher::RequestBatcher;

/// A connection to a cluster. Clones share everything.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) shared: Arc<ClientInner>,
    /// Longest time that a call of this clone may take.
    call_deadline: Duration,
}

#[derive(Debug)]
pub(crate) struct ClientInner {
    pub(crate) namenodes: Namenodes,
    pub(crate) cluster: ClusterId,
    pub(crate) config: ClientConfig,
    pub(crate) pool: Pool,
    pub(crate) batcher: RequestBatcher,
    pub(crate) changes: Changes,
    pub(crate) nonces: Nonces,
    pub(crate) leases: Leases,
    pub(crate) local: Arc<LocalNodes>,
    pub(crate) locations: Locations,
    pub(crate) counters: Counters,
}

/// One call: its deadline and the attempts so far.
pub(crate) struct Attempts {
    pub(crate) what: CallName,
    pub(crate) deadline: Instant,
    began: Instant,
    failed_at: Option<Instant>,
    retry: Retry,
    attempt_deadline: Duration,
    /// Refusal of the last attempt that was answered.
    refused: Option<Refusal>,
}

/// What a call is about. It is formatted only when the call fails.
pub(crate) enum CallName {
    /// A text.
    Text(String),
    /// A verb.
    Kind(&'static str),
    /// A verb and what it is done to.
    To(&'static str, Path),
}

impl From<String> for CallName {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&'static str> for CallName {
    fn from(kind: &'static str) -> Self {
        Self::Kind(kind)
    }
}

impl From<(&'static str, &Path)> for CallName {
    fn from((verb, path): (&'static str, &Path)) -> Self {
        Self::To(verb, path.clone())
    }
}

impl fmt::Display for CallName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => formatter.write_str(text),
            Self::Kind(kind) => formatter.write_str(kind),
            Self::To(verb, path) => write!(formatter, "{verb} {path}"),
        }
    }
}

impl Client {
    /// Connects to the namenode at `host:port`, or to the group whose members have these addresses,
    /// separated by commas. One member that answers suffices, and the client learns the others.
    ///
    /// # Errors
    /// [`ClientError::Call`] if no namenode listens there, or if two of the addresses are of
    /// different clusters: start one, or correct the addresses.
    pub async fn connect(namenode: &str, config: ClientConfig) -> Result<Self, ClientError> {
        let options = PoolOptions {
            role: Role::Client,
            connection: ConnectionOptions {
                credentials: config.credentials.clone(),
                // Another client of the same configuration may be one of another cluster.
                generation: KnownGeneration::default(),
                ..config.connection.clone()
            },
            ..PoolOptions::default()
        };
        let pool = Pool::new(options.clone());
        let namenodes = Namenodes::new(namenode);
        // A slow namenode has as long as for any call.
        let deadline = Instant::now() + config.call_deadline;
        let cluster = match namenodes.greet(&pool, deadline).await {
            Ok(cluster) => cluster,
            Err(error) => {
                let error = diagnosed(namenode, error, deadline).await;
                // The error has the address.
                return Err(ClientError::from_call("connect", error));
            }
        };
        pool.set_cluster(Some(cluster));
        // The first one also serves every other kind of call; the others open under load.
        let connections = (1..config.namenode_connections_max.max(1)).map(|_| {
            let pool = Pool::new(options.clone());
            pool.set_cluster(Some(cluster));
            pool
        });
        let pools = std::iter::once(pool.clone()).chain(connections).collect();
        let batcher = RequestBatcher::new(pools, &namenodes, config.namenode_frames_max.max(1));
        let leases = Leases::new();
        let local = LocalNodes::new(config.same_host);
        let shared = Arc::new(ClientInner {
            namenodes,
            cluster,
            config,
            pool,
            batcher,
            changes: Changes::default(),
            nonces: Nonces::new(),
            leases,
            local,
            locations: Locations::default(),
            counters: Counters::default(),
        });
        shared.leases.start(&shared);
        let call_deadline = shared.config.call_deadline;
        Ok(Self { shared, call_deadline })
    }

    /// Returns a client that shares everything with this one, but whose calls may take that long.
    #[must_use]
    pub fn with_deadline(&self, call_deadline: Duration) -> Self {
        Self { shared: Arc::clone(&self.shared), call_deadline }
    }

    /// Returns the id of the cluster that this client is connected to.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.shared.cluster
    }

    /// Returns the namenode's address as it was given, or the addresses of a group.
    #[must_use]
    pub fn namenode(&self) -> &str {
        self.shared.namenodes.text()
    }

    /// Returns the addresses of namenodes that are known by now: the given ones, and those that
    /// members of the group reported.
    #[must_use]
    pub fn namenodes(&self) -> Vec<String> {
        self.shared.namenodes.addresses()
    }

    pub(crate) const fn call_deadline(&self) -> Duration {
        self.call_deadline
    }

    /// Returns the configuration that the client was connected with. All clones share it; the
    /// deadline of [`Client::with_deadline`] is not part of it.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.shared.config
    }

    /// Returns the counters of this client and all of its clones since it was connected.
    #[must_use]
    pub fn metrics(&self) -> ClientMetrics {
        self.shared.counters.read()
    }

    /// Sends a request to the namenode, repeated until the call's deadline if that helps. A change
    /// is made once, however often it is sent.
    ///
    /// # Errors
    /// [`ClientError`]: its `recovery` is the next step.
    pub async fn request(&self, request: Request) -> Result<Reply, ClientError> {
        let mut attempts = self.attempts(request.kind());
        self.request_within(&mut attempts, request).await
    }

    pub(crate) async fn request_within(
        &self,
        attempts: &mut Attempts,
        request: Request,
    ) -> Result<Reply, ClientError> {
        if request.repeat() == Repetition::Once {
            return self.change_within(attempts, request).await;
        }
        loop {
            match self.shared.batcher.send(&request, attempts.attempt_deadline()).await {
                Ok(reply) => {
                    self.succeeded(attempts);
                    return Ok(reply);
                }
                Err(error) => self.again(attempts, error).await?,
            };
        }
    }

    /// Makes a change: it is sent until there is an answer, and made once.
    async fn change_within(
        &self,
        attempts: &mut Attempts,
        request: Request,
    ) -> Result<Reply, ClientError> {
        let mut sending = self.begin_change(attempts, request).await?;
        let mut change = ChangeAttempts::default();
        loop {
            let deadline = attempts.attempt_deadline();
            let error = match self.shared.batcher.send(&sending.request, deadline).await {
                Ok(reply) => {
                    self.succeeded(attempts);
                    return Ok(reply);
                }
                Err(error) => error,
            };
            let now = machine_time(attempts.began.elapsed());
            let next = change.failed(&mut attempts.retry, now, &failure(&error));
            let (verdict, as_other_client) = match next {
                NextAttempt::Again { pause, as_other_client } => {
                    (RetryDecision::Again { pause }, as_other_client)
                }
                NextAttempt::GiveUp => (RetryDecision::GiveUp, false),
                // What refused the last attempt is no outcome of an earlier one.
                NextAttempt::TooLate if change.is_in_doubt() => {
                    let last = attempts.reason(error);
                    return Err(self.timed_out(attempts, last));
                }
                NextAttempt::TooLate => (RetryDecision::TooLate, false),
            };
            self.follow(attempts, verdict, error).await?;
            if as_other_client {
                self.begin_change_again(attempts, &mut sending).await?;
            }
        }
    }

    /// Sends an order to a datanode and returns its reply. A failed attempt is not repeated.
    ///
    /// # Errors
    /// [`ClientError::Refused`] or [`ClientError::Call`]; [`ClientError::recovery`] names the next
    /// step.
    pub async fn order(
        &self,
        node: NodeId,
        address: &str,
        order: Order,
    ) -> Result<OrderReply, ClientError> {
        let deadline = Instant::now() + self.call_deadline;
        let answer = self.shared.pool.order(node, address, order, deadline).await;
        answer.map_err(|error| ClientError::from_call(&format!("order to node {node}"), error))
    }

    pub(crate) fn attempts(&self, what: impl Into<CallName>) -> Attempts {
        self.attempts_since(Instant::now(), what)
    }

    /// Returns the state of a call's attempts before the first one. The call's deadline counts from
    /// `began`.
    pub(crate) fn attempts_since(&self, began: Instant, what: impl Into<CallName>) -> Attempts {
        let config = &self.shared.config;
        Attempts {
            what: what.into(),
            deadline: began + self.call_deadline,
            began,
            failed_at: None,
            // Counted from the call's start: the wall clock may step.
            retry: Retry::new(config.retry, machine_time(self.call_deadline)),
            attempt_deadline: config.attempt_deadline,
            refused: None,
        }
    }

    /// Waits until the next attempt.
    pub(crate) async fn again(
        &self,
        attempts: &mut Attempts,
        error: CallError,
    ) -> Result<(), ClientError> {
        let recovery = failure(&error).recovery();
        let verdict = attempts.retry.failed(machine_time(attempts.began.elapsed()), recovery);
        self.follow(attempts, verdict, error).await
    }

    /// Does what follows from a failed attempt: waits, or fails the call.
    async fn follow(
        &self,
        attempts: &mut Attempts,
        verdict: RetryDecision,
        error: CallError,
    ) -> Result<(), ClientError> {
        attempts.failed_at.get_or_insert_with(Instant::now);
        let error = attempts.reason(error);
        match verdict {
            RetryDecision::Again { pause } => {
                count(&self.shared.counters.retries, 1);
                tokio::time::sleep(pause.into()).await;
                Ok(())
            }
            RetryDecision::GiveUp => {
                count(&self.shared.counters.failed, 1);
                Err(ClientError::from_call(&attempts.what.to_string(), error))
            }
            RetryDecision::TooLate => Err(self.timed_out(attempts, error)),
        }
    }

    /// Returns the error of a call whose deadline came before its outcome.
    fn timed_out(&self, attempts: &Attempts, last: CallError) -> ClientError {
        count(&self.shared.counters.failed, 1);
        // The reason is known, whether the last attempt was refused or had no time left.
        if let CallError::Refused(refusal @ Refusal::SecondWriter { .. }) = last {
            return ClientError::Refused(refusal);
        }
        let (what, waited) = (attempts.what.to_string(), attempts.began.elapsed());
        ClientError::TimedOut { what, waited, last }
    }

    pub(crate) fn succeeded(&self, attempts: &mut Attempts) {
        if let Some(failed_at) = attempts.failed_at.take() {
            self.shared.counters.stalled(failed_at.elapsed());
        }
    }

    /// Reports to the namenode that a node did not answer, without waiting for a reply, and forgets
    /// the cached locations on the node.
    pub(crate) fn suspect(&self, node: NodeId) {
        self.shared.locations.forget_node(node);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let deadline = Instant::now() + shared.config.attempt_deadline;
            // A hint: the namenode also detects it by itself.
            let _ = shared.batcher.send(&Request::Suspect { node }, deadline).await;
        });
    }
}

/// Returns the time since a moment, such as a call's start, as the machines count it.
pub(crate) fn machine_time(since: Duration) -> sanderling_protocol::Instant {
    sanderling_protocol::Instant(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

impl Attempts {
    pub(crate) fn attempt_deadline(&self) -> Instant {
        self.deadline.min(Instant::now() + self.attempt_deadline)
    }

    /// Notes why an attempt failed. Returns the reason to report if it was the last. An attempt for
    /// which the call's deadline left no time has none; the refusal before it is reported.
    fn reason(&mut self, error: CallError) -> CallError {
        match error {
            CallError::Refused(refusal) => {
                self.refused = Some(refusal.clone());
                CallError::Refused(refusal)
            }
            CallError::TimedOut { address, waited } if waited < self.attempt_deadline => {
                match self.refused.take() {
                    Some(refusal) => CallError::Refused(refusal),
                    None => CallError::TimedOut { address, waited },
                }
            }
            error => {
                self.refused = None;
                error
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_core::retry::RetryPolicy;

    use super::*;

    #[test]
    fn attempt_without_time_leaves_the_refusal_before_it_as_the_reason() {
        let attempt_deadline = Duration::from_secs(1);
        let began = Instant::now();
        let mut attempts = Attempts {
            what: "append".into(),
            deadline: began,
            began,
            failed_at: None,
            retry: Retry::new(RetryPolicy::default(), sanderling_protocol::Instant(0)),
            attempt_deadline,
            refused: None,
        };
        let late = |waited| CallError::TimedOut { address: "n0".to_owned(), waited };
        let (cut, whole) = (Duration::from_micros(467), attempt_deadline);
        let refusal = || CallError::Refused(Refusal::UnknownOp { op: 7 });
        assert!(matches!(attempts.reason(late(cut)), CallError::TimedOut { .. }));
        assert!(matches!(attempts.reason(refusal()), CallError::Refused(_)));
        assert!(matches!(attempts.reason(late(cut)), CallError::Refused(_)));
        // A node that had all the time and did not answer is the reason.
        attempts.reason(refusal());
        assert!(matches!(attempts.reason(late(whole)), CallError::TimedOut { .. }));
        assert!(matches!(attempts.reason(late(cut)), CallError::TimedOut { .. }));
    }
}
