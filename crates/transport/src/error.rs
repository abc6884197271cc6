//! Why a call brought no answer.

use std::io;
use std::time::Duration;

use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Millis, Refusal};
use thiserror::Error;

/// The reason why a call got no answer. Every waiter on a connection that breaks gets the same one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CallError {
    /// The peer answered that it will not.
    #[error("{0}")]
    Refused(Refusal),
    /// No connection could be made.
    #[error("{address} cannot be reached: {cause}")]
    Unreachable {
        /// The peer.
        address: String,
        /// The operating system's error.
        cause: io::ErrorKind,
    },
    /// The deadline passed before the answer came.
    #[error("{address} did not answer within {waited:?}")]
    TimedOut {
        /// The peer.
        address: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The connection broke while the call was under way. It may have been done or not.
    #[error("the connection to {address} broke: {why}")]
    Closed {
        /// The peer.
        address: String,
        /// How.
        why: String,
    },
    /// More calls are under way on the connection than it carries, until the deadline.
    #[error("too many calls to {address} are under way")]
    TooBusy {
        /// The peer.
        address: String,
    },
    /// What is to be shown to the peer cannot be had, or what the peer shows is not believed.
    #[error("{address}: {why}")]
    Credentials {
        /// The peer.
        address: String,
        /// What is wrong.
        why: String,
    },
    /// The peer's answer is not one to this question.
    #[error("{address} sent a reply that does not match the request: {why}")]
    BadReply {
        /// The peer.
        address: String,
        /// What is wrong.
        why: String,
    },
}

impl CallError {
    /// Returns what the caller does next.
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        match self {
            Self::Refused(refusal) => refusal.recovery(),
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Closed { .. } => {
                Recovery::Refresh
            }
            Self::TooBusy { .. } => Recovery::RetryAfter(Millis(10)),
            Self::Credentials { .. } => Recovery::Fix,
            Self::BadReply { .. } => Recovery::Report,
        }
    }

    /// Returns whether the peer's machine reported that no process listens there: its process has
    /// ended.
    #[must_use]
    pub const fn is_connection_refused(&self) -> bool {
        matches!(self, Self::Unreachable { cause: io::ErrorKind::ConnectionRefused, .. })
    }
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
