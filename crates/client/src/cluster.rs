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
    /// Returns the cluster's nodes; with `all` also those that are gone and remembered.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer before the call's deadline: try again.
    pub async fn nodes(&self, all: bool) -> Result<Vec<NodeInfo>, ClientError> {
        let reply = self.request(Request::Nodes { all }).await?;
        reply_of!(reply, "nodes", Reply::Nodes(nodes) => nodes)
    }

    /// Returns how many bytes may still be written and how many are reserved so that nodes can
    /// leave; `None` from a namenode of the previous release, which reserves nothing.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer before the call's deadline: try again.
    pub async fn room(&self) -> Result<Option<Room>, ClientError> {
        let reply = match self.request(Request::Room).await {
            Err(ClientError::Refused(Refusal::UnknownVersion { .. })) => return Ok(None),
            reply => reply?,
        };
        reply_of!(reply, "room", Reply::Room(room) => Some(room))
    }

    /// Gives a node a notice: it ends in `deadline_millis` milliseconds, and as many of its blocks
    /// as possible move to other nodes before. Returns the node's state.
    ///
    /// # Errors
    /// `UnknownNode`: select one of [`Client::nodes`]. `DeadlinePassed`: give a positive deadline.
    /// `WrongState`: the node is gone already.
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

    /// Starts the orderly removal of a node, without a deadline: it takes no new blocks and no
    /// writes, and its blocks move to other nodes. Returns the node's state.
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

    /// Cancels the notice or the decommission of a node, so that it stays. Returns the node's
    /// state.
    ///
    /// # Errors
    /// `WrongState` when the node does not drain: there is nothing to cancel.
    pub async fn cancel(&self, node: &NodeSelector) -> Result<NodeInfo, ClientError> {
        let reply = self.request(Request::Cancel { node: node.clone() }).await?;
        reply_of!(reply, "cancel", Reply::Node(info) => *info)
    }

    /// Returns events after a sequence; waits up to `wait` for the first.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer in time: try again with the same sequence.
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
    /// [`ClientError`] if the namenode did not answer before the call's deadline: try again.
    pub async fn report(&self) -> Result<LossReport, ClientError> {
        let reply = self.request(Request::Report).await?;
        reply_of!(reply, "report", Reply::Report(report) => report)
    }

    /// Makes the namenode check its catalog for contradictions, and returns the report.
    ///
    /// # Errors
    /// [`ClientError`] if the namenode did not answer before the call's deadline: try again, or
    /// with more time ([`Client::with_deadline`]).
    pub async fn fsck(&self) -> Result<FsckReport, ClientError> {
        let reply = self.request(Request::Fsck).await?;
        reply_of!(reply, "fsck", Reply::Fsck(report) => report)
    }

    /// Revokes tokens that end by themselves at `until`, in seconds since 1970, so that servers
    /// refuse them. With `None` they hold again.
    ///
    /// # Errors
    /// `Forbidden` without the right to administrate: use a token that has it. `BadRequest` when
    /// there is nothing to take back: nothing is left to do; or when as many revocations are kept
    /// as may be: take some back, or revoke a subject.
    pub async fn revoke_tokens(
        &self,
        tokens: &TokenSelector,
        until: Option<u64>,
    ) -> Result<(), ClientError> {
        let tokens = tokens.clone();
        let reply = self.request(Request::RevokeTokens { tokens, until }).await?;
        reply_of!(reply, "revoke tokens", Reply::Done => ())
    }

    /// Returns the revocations that are kept because their tokens have not ended by themselves.
    ///
    /// # Errors
    /// `Forbidden` without the right to administrate: use a token that has it.
    pub async fn revocations(&self) -> Result<Vec<Revocation>, ClientError> {
        // No list has this version: all of it is returned.
        let reply = self.request(Request::Revocations { known: u64::MAX }).await?;
        reply_of!(reply, "revocations", Reply::Revocations { list, .. } => list.unwrap_or_default())
    }
}
