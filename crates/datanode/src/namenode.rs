//! The namenode, as this process calls it.

use std::time::Duration;

use sanderling_core::datanode::CallFailure;
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{ClusterId, Refusal, Reply, Request};
use sanderling_transport::{CallError, Connection, Pool, Security};
use tokio::time::Instant;

use crate::options::DatanodeOptions;

/// The namenode: its address, and how it is called.
#[derive(Debug)]
pub(crate) struct Namenode {
    pool: Pool,
    /// Connections to other datanodes, which are of the same cluster.
    peers: Pool,
    address: String,
    call_time_max: Duration,
    security: Security,
}

impl Namenode {
    pub(crate) fn new(pool: Pool, peers: Pool, options: &DatanodeOptions) -> Self {
        Self {
            pool,
            peers,
            address: options.namenode.clone(),
            call_time_max: options.call_time_max,
            security: options.security.clone(),
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.call_time_max
    }

    /// Sends one request.
    pub(crate) async fn call(&self, request: Request) -> Result<Reply, CallError> {
        let replies = self.pool.meta(&self.address, vec![request], self.deadline()).await?;
        only(replies)
    }

    /// Sends one request, and in the same frame one for the tokens that were revoked.
    pub(crate) async fn call_and_update_revocations(
        &self,
        request: Request,
    ) -> Result<Reply, CallError> {
        let security = &self.security;
        if security.secret.is_none() {
            return self.call(request).await;
        }
        let asked = std::time::Instant::now();
        let deadline = self.deadline();
        let known = security.revocations.version();
        let requests = vec![request, Request::Revocations { known }];
        self.pool.learn_cluster(&self.address, deadline).await?;
        let mut replies = self.pool.meta(&self.address, requests, deadline).await?;
        match replies.pop() {
            Some(Ok(Reply::Revocations { version, list })) => {
                if let Some(list) = &list {
                    tracing::info!(tokens = list.len(), "the list of revoked tokens changed");
                }
                security.revocations.update(asked, version, list);
            }
            // A namenode of the previous release cannot revoke tokens.
            Some(Err(Refusal::UnknownVersion { .. })) => {
                security.revocations.confirm(asked);
            }
            other => tracing::debug!(?other, "the namenode does not report revoked tokens"),
        }
        only(replies)
    }

    /// Returns the pool's connection, to see when it breaks; `None` when there is none.
    pub(crate) async fn connection(&self) -> Option<Connection> {
        self.pool.connection(&self.address, None, self.deadline()).await.ok()
    }

    /// Returns the cluster that the namenode serves; `None` if it does not answer yet.
    pub(crate) async fn cluster(&self) -> Option<ClusterId> {
        let hello = Hello { role: Role::Datanode, cluster: None, node: None, token: None };
        let options = self.pool.connection_options();
        let connected =
            Connection::connect_with(&self.address, hello, self.deadline(), options).await;
        connected.ok()?.1.cluster
    }

    /// Sets the cluster of all calls from now on; with `None`, of whichever answers.
    pub(crate) fn set_cluster(&self, cluster: Option<ClusterId>) {
        self.pool.set_cluster(cluster);
        self.peers.set_cluster(cluster);
    }

    /// Returns the error of a reply that is none to the request.
    pub(crate) fn bad_reply(&self, reply: &Reply) -> CallError {
        let why = format!("{reply:?}").chars().take(100).collect();
        CallError::BadReply { address: self.address.clone(), why }
    }

    /// Returns the error of a call that was not answered.
    pub(crate) fn unanswered(&self, why: &str) -> CallError {
        CallError::Closed { address: self.address.clone(), why: why.to_owned() }
    }
}

fn only(mut replies: Vec<Result<Reply, Refusal>>) -> Result<Reply, CallError> {
    Ok(replies.pop().expect("the pool returns one reply to each request")?)
}

/// Returns what a failed call means for a member.
pub(crate) fn failure(error: &CallError) -> CallFailure {
    match error {
        CallError::Refused(refusal) => CallFailure::Refused(refusal.clone()),
        CallError::TimedOut { .. } | CallError::TooBusy { .. } => CallFailure::Busy,
        CallError::Unreachable { .. }
        | CallError::Closed { .. }
        | CallError::WrongAddress { .. }
        | CallError::Credentials { .. }
        | CallError::BadReply { .. } => CallFailure::Broken,
    }
}
