//! Why a call brought no answer.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Millis, Refusal, amount};
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
        #[source]
        cause: SystemError,
    },
    /// A server listens there, but no namenode.
    #[error("{address} is not a namenode's address: {why}")]
    WrongAddress {
        /// The address.
        address: String,
        /// What listens there, and what to do.
        why: String,
    },
    /// A namenode listens there, but of another cluster.
    #[error("{address} serves cluster {why}")]
    OtherCluster {
        /// The address.
        address: String,
        /// Its cluster, and the one that is called.
        why: String,
    },
    /// The deadline passed before the answer came.
    #[error("{address} did not answer within {}", amount::duration(*waited))]
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
    /// Returns the error of a connection that could not be made.
    #[must_use]
    pub fn unreachable(address: &str, error: io::Error) -> Self {
        Self::Unreachable { address: address.to_owned(), cause: SystemError(Arc::new(error)) }
    }

    /// Returns the caller's next step: try again with a new look-up or after a time, correct the
    /// call, or inform an operator. That of a refusal is the refusal's own.
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        match self {
            Self::Refused(refusal) => refusal.recovery(),
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Closed { .. } => {
                Recovery::Refresh
            }
            Self::TooBusy { .. } => Recovery::RetryAfter(Millis(10)),
            Self::Credentials { .. } | Self::WrongAddress { .. } | Self::OtherCluster { .. } => {
                Recovery::Fix
            }
            Self::BadReply { .. } => Recovery::Report,
        }
    }

    /// Returns whether the peer's machine reported that no process listens there: its process has
    /// ended.
    #[must_use]
    pub fn is_connection_refused(&self) -> bool {
        let is_refused = |cause: &SystemError| cause.0.kind() == io::ErrorKind::ConnectionRefused;
        matches!(self, Self::Unreachable { cause, .. } if is_refused(cause))
    }
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// An error of the operating system, in the words of a sentence. Its source is the [`io::Error`],
/// which the waiters on a connection share.
#[derive(Debug, Clone)]
pub struct SystemError(Arc<io::Error>);

impl fmt::Display for SystemError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The number of the error adds nothing to its words, which the rest of a sentence precedes.
        let whole = self.0.to_string();
        let words = whole.split(" (os error").next().unwrap_or_default();
        let mut letters = words.chars();
        let first = letters.next().map(|first| first.to_ascii_lowercase());
        first.into_iter().chain(letters).try_for_each(|letter| write!(formatter, "{letter}"))
    }
}

impl StdError for SystemError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

impl PartialEq for SystemError {
    fn eq(&self, other: &Self) -> bool {
        self.0.kind() == other.0.kind() && self.to_string() == other.to_string()
    }
}

impl Eq for SystemError {}
