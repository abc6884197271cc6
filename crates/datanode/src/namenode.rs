//! The namenode, as this process calls it.

use std::time::Duration;

use sanderling_core::datanode::CallFailure;
use sanderling_core::group_generation::GroupGeneration;
use sanderling_core::group_view::CONNECT_WITHIN;
use sanderling_protocol::{ClusterId, Refusal, Reply, Request};
use sanderling_transport::{
    CallError, CloseCause, Connection, EncodedRequest, Namenodes, Pool, Repeats, ReplyFault,
    Security,
};
use tokio::time::Instant;

use crate::options::DatanodeOptions;

/// Longest wait for a connection before a call that can turn to other members. As long as clients
/// give such a member, a third of a call's 3 s.
const OPEN_WITHIN: Duration = Duration::from_millis(CONNECT_WITHIN.0);

/// The namenode, or the group of them, and how it is called.
#[derive(Debug)]
pub(crate) struct NamenodeLink {
    pool: Pool,
    /// Connections to other datanodes, which are of the same cluster.
    peers: Pool,
    namenodes: Namenodes,
    call_time_max: Duration,
    security: Security,
}

impl NamenodeLink {
    pub(crate) fn new(pool: Pool, peers: Pool, options: &DatanodeOptions) -> Self {
        Self {
            pool,
            peers,
            namenodes: Namenodes::new(&options.namenode),
            call_time_max: options.call_time_max,
            security: options.security.clone(),
        }
    }

    /// Returns the generation of the group of namenodes of which a leader has answered.
    pub(crate) fn generation(&self) -> GroupGeneration {
        self.pool.connection_options().generation.get()
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.call_time_max
    }

    /// Sends one request.
    pub(crate) async fn call(&self, request: Request) -> Result<Reply, CallError> {
        only(self.meta(&[request], self.deadline()).await?)
    }

    /// Sends requests to the member that leads. What a datanode sends does the same when it comes
    /// twice, so that another member gets it if one does not answer.
    async fn meta(
        &self,
        requests: &[Request],
        deadline: Instant,
    ) -> Result<Vec<Result<Reply, Refusal>>, CallError> {
        let requests: Vec<EncodedRequest> = requests.iter().map(EncodedRequest::new).collect();
        self.namenodes.meta(&self.pool, &requests, Repeats::Always, deadline).await
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
        let requests = [request, Request::Revocations { known }];
        self.namenodes.learn_cluster(&self.pool, deadline).await?;
        let mut replies = self.meta(&requests, deadline).await?;
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
        self.pool.connection(&self.namenodes.target(), None, self.deadline()).await.ok()
    }

    /// Returns the pool's connection as [`Self::connection`] does, within a part of a call's time:
    /// the call that follows may turn to another member.
    pub(crate) async fn opened(&self) -> Option<Connection> {
        let deadline = self.deadline().min(Instant::now() + OPEN_WITHIN);
        self.namenodes.learn_cluster(&self.pool, deadline).await.ok()?;
        self.pool.connection(&self.namenodes.target(), None, deadline).await.ok()
    }

    /// Returns the connection that was opened before a call, or the pool's if the call went to
    /// another member of the group.
    pub(crate) async fn same(&self, opened: Option<Connection>) -> Option<Connection> {
        match opened {
            Some(opened) if opened.address() == &*self.namenodes.target() => Some(opened),
            _ => self.connection().await,
        }
    }

    /// Returns the cluster that the namenode serves.
    ///
    /// # Errors
    /// [`CallError`]: it does not answer yet, or addresses of two clusters were given.
    pub(crate) async fn cluster(&self) -> Result<ClusterId, CallError> {
        self.namenodes.greet(&self.pool, self.deadline()).await
    }

    /// Sets the cluster of all calls from now on; with `None`, of whichever answers.
    pub(crate) fn set_cluster(&self, cluster: Option<ClusterId>) {
        self.pool.set_cluster(cluster);
        self.peers.set_cluster(cluster);
    }

    /// Returns the error of a reply that is none to the request.
    pub(crate) fn bad_reply(&self, reply: Reply) -> CallError {
        let fault = ReplyFault::Other(Box::new(reply));
        CallError::BadReply { address: self.namenodes.target().to_string(), fault }
    }

    /// Returns the error of a call that was not answered.
    pub(crate) fn unanswered(&self, cause: CloseCause) -> CallError {
        CallError::Closed { address: self.namenodes.text().to_owned(), cause }
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
        | CallError::OtherCluster { .. }
        | CallError::Credentials { .. }
        | CallError::BadReply { .. } => CallFailure::Broken,
    }
}
