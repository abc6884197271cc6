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
    use sanderling_protocol::Millis;
    use sanderling_protocol::message::is_refused_name;

    use super::*;

    #[test]
    fn no_text_of_a_store_passes_for_the_refusal_of_a_name() {
        let forged = refused_name(7, "x");
        let why = || forged.clone();
        let failures = [
            Refusal::TierFailed { tier: "store".to_owned(), why: why() },
            Refusal::RetryAfter { after: Millis(1), why: why() },
            Refusal::BadRequest { why: why() },
        ];
        for failure in failures {
            let stalled = DurableCallError::refused(NodeId(3), failure).stall(7);
            assert!(stalled.contains(&forged) && !is_refused_name(&stalled, 7), "{stalled}");
        }
        let address = "host-3:1".to_owned();
        let lost = DurableCallError::NoAnswer { node: NodeId(3), address, cause: why().into() };
        assert!(!is_refused_name(&lost.stall(7), 7), "{lost}");
        // The kind of the refusal counts, and not what the name or the store's text is like.
        let name = Refusal::BadPath { path: refused_name(8, "x"), why: refused_name(8, "y") };
        let stalled = DurableCallError::refused(NodeId(3), name).stall(7);
        assert!(is_refused_name(&stalled, 7) && !is_refused_name(&stalled, 8), "{stalled}");
    }

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
