//! Why a call of the drain of durable directories failed.

use std::error::Error as StdError;

use sanderling_protocol::message::refused_name;
use sanderling_protocol::order::OrderReply;
use sanderling_protocol::{NodeId, Refusal};
use thiserror::Error;

/// Most characters that are shown of a name that a store refuses: the namenode keeps 256 of all.
const NAME_CHARS_MAX: usize = 60;

/// A reason why an order to a datanode did not bring what it was sent for.
#[derive(Debug, Error)]
pub enum DurableCallError {
    /// The datanode refused it.
    #[error("{0}")]
    Refused(#[source] Refusal),
    /// No answer came: the order may have been executed or not.
    #[error("node {node} at {address}: {cause}")]
    NoAnswer {
        /// The datanode.
        node: NodeId,
        /// The address at which it serves blocks.
        address: String,
        /// The error of the caller's transport.
        #[source]
        cause: Box<dyn StdError + Send + Sync>,
    },
    /// The datanode has given the order up, and ended the upload that it began for it.
    #[error("node {node} could not send an order's parts in the time that it has for them")]
    GivenUp {
        /// The datanode.
        node: NodeId,
    },
    /// The datanode is gone: no answer is waited for.
    #[error("node {node} was gone before it answered")]
    NodeGone {
        /// The datanode.
        node: NodeId,
    },
    /// The answer is that of another order.
    #[error("node {node} answered {reply:?}")]
    BadReply {
        /// The datanode.
        node: NodeId,
        /// Its answer.
        reply: Box<OrderReply>,
    },
}

impl DurableCallError {
    /// Returns whether the store has no room.
    pub(super) const fn is_full(&self) -> bool {
        matches!(self, Self::Refused(Refusal::NodeFull { .. }))
    }

    /// Returns the error for a refusal of an order.
    #[must_use]
    pub fn refused(node: NodeId, refusal: Refusal) -> Self {
        match refusal {
            Refusal::DeadlinePassed { .. } => Self::GivenUp { node },
            refusal => Self::Refused(refusal),
        }
    }

    /// Returns why a change with that number stalls its directory by this error.
    pub(super) fn stall(&self, number: u64) -> String {
        match self {
            Self::Refused(refusal) => stall_by(refusal, number),
            error => error.to_string(),
        }
    }

    /// Returns whether the order came to no end in its time.
    pub(super) const fn is_out_of_time(&self) -> bool {
        matches!(self, Self::NoAnswer { .. } | Self::GivenUp { .. })
    }

    /// Returns whether the datanode could not read the object's own bytes, which shows nothing of
    /// the store. Another failure may be that datanode's alone: the store is full all the same.
    pub(super) const fn is_unread(&self) -> bool {
        matches!(self, Self::Refused(Refusal::RetryAfter { .. }))
    }
}

/// Returns why a change with that number stalls its directory by a refusal of a datanode. A
/// datanode refuses a name if its store never takes an object by it.
pub(super) fn stall_by(refusal: &Refusal, number: u64) -> String {
    match refusal {
        Refusal::BadPath { path, why } => {
            let name: String = path.chars().take(NAME_CHARS_MAX).collect();
            let more = if name.len() < path.len() { "..." } else { "" };
            refused_name(number, &format!("{name:?}{more}: {why}"))
        }
        refusal => refusal.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_failed_calls_are_typed() {
        let refusal = Refusal::BadRequest { why: "no store".to_owned() };
        let text = refusal.to_string();
        let refused = DurableCallError::Refused(refusal.clone());
        assert_eq!(refused.to_string(), text);
        assert_eq!(refused.source().and_then(|it| it.downcast_ref()), Some(&refusal));
        let no_number = "x".parse::<u64>().expect_err("no number");
        let lost = DurableCallError::NoAnswer {
            node: NodeId(3),
            address: "host-3:1".to_owned(),
            cause: Box::new(no_number.clone()),
        };
        assert_eq!(lost.to_string(), format!("node {} at host-3:1: {no_number}", NodeId(3)));
        assert_eq!(lost.source().and_then(|it| it.downcast_ref()), Some(&no_number));
    }
}
