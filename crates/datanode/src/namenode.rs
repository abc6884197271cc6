//! The namenode, as this process calls it.

use std::time::Duration;

use sanderling_core::datanode::CallFailure;
use sanderling_core::group_generation::GroupGeneration;
use sanderling_core::group_view::CONNECT_TIMEOUT;
use sanderling_protocol::{ClusterId, Refusal, Reply, Request};
use sanderling_transport::{
    CallError, CloseCause, Connection, EncodedRequest, Namenodes, Pool, Repeats, ReplyFault,
    Security,
};
use tokio::time::Instant;

use crate::options::DatanodeOptions;

/// Longest wait for a connection before a call that can turn to other members. As long as clients
/// give such a member, a third of a call's 3 s.
const OPEN_TIMEOUT: Duration = Duration::from_millis(CONNECT_TIMEOUT.0);

/// Connections to the namenode, apart: what fills them, or fails on them, concerns nothing else.
#[derive(Debug)]
pub(crate) struct NamenodePools {
    /// For what the node itself sends: heartbeats, reports, notices, damage, revocations.
    pub(crate) own: Pool,
    /// For what callers of the node make it look up, as many as they are.
    pub(crate) lookups: Pool,
}

/// The namenode, or the group of them, and how it is called.
#[derive(Debug)]
pub(crate) struct NamenodeLink {
    pools: NamenodePools,
    /// Connections to other datanodes, which are of the same cluster.
    peers: Pool,
    namenodes: Namenodes,
    /// The same, as look-ups have found them: one that is slow is no sign for heartbeats that its
    /// member is away.
    lookup_namenodes: Namenodes,
    /// The same, as the look-ups of the ends of blocks have found them: a page takes longer than a
    /// heartbeat.
    end_namenodes: Namenodes,
    call_time_max: Duration,
    security: Security,
}

impl NamenodeLink {
    pub(crate) fn new(pools: NamenodePools, peers: Pool, options: &DatanodeOptions) -> Self {
        Self {
            pools,
            peers,
            namenodes: Namenodes::new(&options.namenode),
            lookup_namenodes: Namenodes::new(&options.namenode),
            end_namenodes: Namenodes::new(&options.namenode),
            call_time_max: options.call_time_max,
            security: options.security.clone(),
        }
    }

    /// Returns the generation of the group of namenodes of which a leader has answered.
    pub(crate) fn generation(&self) -> GroupGeneration {
        self.pools.own.connection_options().generation.get()
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.call_time_max
    }

    /// Sends one request.
    pub(crate) async fn call(&self, request: Request) -> Result<Reply, CallError> {
        only(self.meta(&[request], self.deadline()).await?)
    }

    /// Sends a look-up that a caller of the node has caused, over a connection for such alone.
    pub(crate) async fn look_up(&self, request: Request) -> Result<Reply, CallError> {
        let pool = &self.pools.lookups;
        self.forget_left_generation();
        let requests = [EncodedRequest::new(&request)];
        let namenodes = &self.lookup_namenodes;
        only(namenodes.meta(pool, &requests, Repeats::Always, self.deadline()).await?)
    }

    /// Sends a look-up of the ends of blocks, over the node's own connection.
    pub(crate) async fn look_up_ends(&self, request: Request) -> Result<Reply, CallError> {
        let requests = [EncodedRequest::new(&request)];
        let (namenodes, pool) = (&self.end_namenodes, &self.pools.own);
        only(namenodes.meta(pool, &requests, Repeats::Always, self.deadline()).await?)
    }

    /// Keeps look-ups from a group of namenodes that the node has left behind for a later one.
    fn forget_left_generation(&self) {
        let (met, known) = (self.generation(), &self.pools.lookups.connection_options().generation);
        if known.get().meets(met) == Ok(true) {
            known.set(met);
            for address in self.lookup_namenodes.addresses() {
                self.pools.lookups.forget(&address);
            }
        }
    }

    /// Sends requests to the member that leads. What a datanode sends does the same when it comes
    /// twice, so that another member gets it if one does not answer.
    async fn meta(
        &self,
        requests: &[Request],
        deadline: Instant,
    ) -> Result<Vec<Result<Reply, Refusal>>, CallError> {
        let requests: Vec<EncodedRequest> = requests.iter().map(EncodedRequest::new).collect();
        self.namenodes.meta(&self.pools.own, &requests, Repeats::Always, deadline).await
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
        self.namenodes.learn_cluster(&self.pools.own, deadline).await?;
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
        self.pools.own.connection(&self.namenodes.target(), None, self.deadline()).await.ok()
    }

    /// Returns the pool's connection as [`Self::connection`] does, within a part of a call's time:
    /// the call that follows may turn to another member.
    pub(crate) async fn opened(&self) -> Option<Connection> {
        let deadline = self.deadline().min(Instant::now() + OPEN_TIMEOUT);
        self.namenodes.learn_cluster(&self.pools.own, deadline).await.ok()?;
        self.pools.own.connection(&self.namenodes.target(), None, deadline).await.ok()
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
        self.namenodes.greet(&self.pools.own, self.deadline()).await
    }

    /// Sets the cluster of all calls from now on; with `None`, of whichever answers.
    pub(crate) fn set_cluster(&self, cluster: Option<ClusterId>) {
        self.pools.own.set_cluster(cluster);
        self.pools.lookups.set_cluster(cluster);
        self.peers.set_cluster(cluster);
    }

    /// Returns the error of a reply that is none to the request.
    pub(crate) fn bad_reply(&self, reply: Reply) -> CallError {
        let fault = ReplyFault::Unexpected(Box::new(reply));
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
