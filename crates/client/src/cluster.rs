//! The cluster: nodes, notices, events.

use sanderling_protocol::event::LossReport;
use sanderling_protocol::message::{FsckReport, Room};
use sanderling_protocol::token::Revocation;
use sanderling_protocol::{
    Event, Millis, NodeInfo, NodeSelector, Refusal, Reply, Request, TokenSelector,
};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::ClientError;
use crate::namespace::reply_of;

impl Client {
    /// Returns the nodes; with `all` also those that are gone.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer.
    pub async fn nodes(&self, all: bool) -> Result<Vec<NodeInfo>, ClientError> {
        let reply = self.request(Request::Nodes { all }).await?;
        reply_of!(reply, "nodes", Reply::Nodes(nodes) => nodes)
    }

    /// Returns what may still be written, and what is kept so that nodes can leave; `None` from a
    /// namenode of the release before, which keeps nothing.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer.
    pub async fn room(&self) -> Result<Option<Room>, ClientError> {
        let reply = match self.request(Request::Room).await {
            Err(ClientError::Refused(Refusal::UnknownVersion { .. })) => return Ok(None),
            reply => reply?,
        };
        reply_of!(reply, "room", Reply::Room(room) => Some(room))
    }

    /// Gives a node a notice of that many milliseconds.
    ///
    /// # Errors
    /// `UnknownNode`, `DeadlinePassed` unless it is positive, `WrongState` when the node is gone.
    pub async fn notice(
        &self,
        node: &NodeSelector,
        deadline_millis: i64,
        reason: &str,
    ) -> Result<NodeInfo, ClientError> {
        let (node, reason) = (node.clone(), reason.to_owned());
        let reply = self.request(Request::Notice { node, deadline_millis, reason }).await?;
        reply_of!(reply, "notice", Reply::Node(info) => *info)
    }

    /// Starts an orderly removal without a deadline.
    ///
    /// # Errors
    /// As [`Client::notice`].
    pub async fn decommission(
        &self,
        node: &NodeSelector,
        reason: &str,
    ) -> Result<NodeInfo, ClientError> {
        let (node, reason) = (node.clone(), reason.to_owned());
        let reply = self.request(Request::Decommission { node, reason }).await?;
        reply_of!(reply, "decommission", Reply::Node(info) => *info)
    }

    /// Takes a notice or decommission back.
    ///
    /// # Errors
    /// `WrongState` when the node does not drain.
    pub async fn cancel(&self, node: &NodeSelector) -> Result<NodeInfo, ClientError> {
        let reply = self.request(Request::Cancel { node: node.clone() }).await?;
        reply_of!(reply, "cancel", Reply::Node(info) => *info)
    }

    /// Returns events after a sequence; waits up to `wait` for the first.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer.
    pub async fn events(
        &self,
        after: u64,
        limit: u32,
        wait: Millis,
    ) -> Result<Vec<Event>, ClientError> {
        let request = Request::Events { after, limit, wait };
        if wait.0 == 0 {
            let reply = self.request(request).await?;
            return reply_of!(reply, "events", Reply::Events(events) => events);
        }
        let deadline = Instant::now() + self.shared.config.attempt_deadline + wait.into();
        let reply = self.shared.batcher.send(&request, deadline).await;
        let reply = reply.map_err(|error| ClientError::from_call("events", error))?;
        reply_of!(reply, "events", Reply::Events(events) => events)
    }

    /// Returns everything that was ever declared lost.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer.
    pub async fn report(&self) -> Result<LossReport, ClientError> {
        let reply = self.request(Request::Report).await?;
        reply_of!(reply, "report", Reply::Report(report) => report)
    }

    /// Checks the catalog against itself.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer.
    pub async fn fsck(&self) -> Result<FsckReport, ClientError> {
        let reply = self.request(Request::Fsck).await?;
        reply_of!(reply, "fsck", Reply::Fsck(report) => report)
    }

    /// Takes tokens back that end by themselves at `until`, in seconds since 1970; with `None` they
    /// hold again.
    ///
    /// # Errors
    /// `Forbidden` without the right to administrate; `BadRequest` when there is nothing to take
    /// back, or as many revocations are kept as may be.
    pub async fn revoke_tokens(
        &self,
        tokens: &TokenSelector,
        until: Option<u64>,
    ) -> Result<(), ClientError> {
        let tokens = tokens.clone();
        let reply = self.request(Request::RevokeTokens { tokens, until }).await?;
        reply_of!(reply, "revoke tokens", Reply::Done => ())
    }

    /// Returns what was taken back and is kept because the tokens could hold still.
    ///
    /// # Errors
    /// `Forbidden` without the right to administrate.
    pub async fn revocations(&self) -> Result<Vec<Revocation>, ClientError> {
        // No list has this version: all of it is returned.
        let reply = self.request(Request::Revocations { known: u64::MAX }).await?;
        reply_of!(reply, "revocations", Reply::Revocations { list, .. } => list.unwrap_or_default())
    }
}
