//! Why a call failed, and what to do next.

use std::time::Duration;

use sanderling_core::client::ClosedWriter;
use sanderling_protocol::refusal::{ByteRange, Recovery};
use sanderling_protocol::{ObjectId, Path, Refusal, amount};
use sanderling_transport::CallError;
use thiserror::Error;

/// A reason why a call failed.
#[derive(Debug, Clone, Error)]
pub enum ClientError {
    /// The cluster refused it.
    #[error("{0}")]
    Refused(#[source] Refusal),
    /// Bytes of the object are lost: compute them again.
    #[error(
        "{path}: {} are lost, the first at offset {}",
        amount::bytes(ranges.iter().map(|range| range.bytes).sum()),
        ranges.first().map_or(0, |range| range.offset)
    )]
    DataUnavailable {
        /// The object's path when it was opened.
        path: Path,
        /// The object.
        object: ObjectId,
        /// What is lost of the requested bytes, in order.
        ranges: Vec<ByteRange>,
    },
    /// The call's deadline passed. It may have been done or not.
    #[error("{what} took longer than {}; last: {last}", amount::duration(*waited))]
    TimedOut {
        /// The call.
        what: String,
        /// How long was waited.
        waited: Duration,
        /// Why the last attempt failed.
        #[source]
        last: CallError,
    },
    /// No attempt brought an answer.
    #[error("{what}: {cause}")]
    Call {
        /// The call.
        what: String,
        /// How the last attempt failed.
        #[source]
        cause: CallError,
    },
    /// The writer was closed, aborted, or failed before.
    #[error("the writer of {path} is closed: {cause}")]
    WriterClosed {
        /// The object.
        path: Path,
        /// Why.
        #[source]
        cause: ClosedWriter,
    },
    /// The namenode's answer does not match the request.
    #[error("{what}: the namenode's reply does not match the request")]
    BadReply {
        /// The call.
        what: String,
    },
}

impl ClientError {
    /// Returns the caller's next step: try again with a new look-up or after a time, recompute the
    /// lost ranges, correct the call, or inform an operator.
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        match self {
            Self::Refused(refusal) => refusal.recovery(),
            Self::DataUnavailable { .. } => Recovery::Recompute,
            Self::TimedOut { .. } => Recovery::RetryAfter(sanderling_protocol::Millis(1000)),
            Self::Call { cause, .. } => cause.recovery(),
            Self::WriterClosed { .. } => Recovery::Fix,
            Self::BadReply { .. } => Recovery::Report,
        }
    }

    /// Returns the error's name, the same in every language and in scripts.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.name(),
            Self::DataUnavailable { .. } => "DataUnavailable",
            Self::TimedOut { .. } | Self::Call { cause: CallError::TimedOut { .. }, .. } => {
                "TimedOut"
            }
            Self::Call { cause: CallError::Credentials { .. }, .. } => "Credentials",
            Self::Call {
                cause: CallError::WrongAddress { .. } | CallError::OtherCluster { .. },
                ..
            } => "BadAddress",
            Self::Call { .. } => "Unreachable",
            Self::WriterClosed { .. } => "WriterClosed",
            Self::BadReply { .. } => "BadReply",
        }
    }

    /// Returns the path that the call was about, if the error has it.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => refusal.path(),
            Self::DataUnavailable { path, .. } | Self::WriterClosed { path, .. } => {
                Some(path.as_str())
            }
            _ => None,
        }
    }

    /// Returns the refusal with which a server answered; `None` for every other variant, also for
    /// [`ClientError::DataUnavailable`].
    #[must_use]
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Returns the error of a call that will not be tried again.
    pub(crate) fn from_call(what: &str, error: CallError) -> Self {
        match error {
            CallError::Refused(Refusal::DataUnavailable { path, object, ranges }) => {
                Self::DataUnavailable { path, object, ranges }
            }
            CallError::Refused(refusal) => Self::Refused(refusal),
            cause => Self::Call { what: what.to_owned(), cause },
        }
    }
}

impl From<Refusal> for ClientError {
    /// A path that the client rejects itself is refused in the same words.
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;
    use std::io;

    use sanderling_transport::{CloseCause, ForeignCluster, ReplyFault};

    use super::*;

    /// Returns the sources of an error.
    fn sources(error: &ClientError) -> Vec<&(dyn StdError + 'static)> {
        let mut all = Vec::new();
        let mut next = error.source();
        while let Some(source) = next {
            all.push(source);
            next = source.source();
        }
        all
    }

    #[test]
    fn error_of_the_system_is_a_source_of_the_call_that_it_ended() {
        let cause = CallError::unreachable("h:1", io::ErrorKind::ConnectionRefused.into());
        let error = ClientError::from_call("stat /a", cause.clone());
        let all = sources(&error);
        assert_eq!(all.first().and_then(|it| it.downcast_ref()), Some(&cause));
        let system = all.last().and_then(|last| last.downcast_ref::<io::Error>());
        assert_eq!(system.map(io::Error::kind), Some(io::ErrorKind::ConnectionRefused));
        assert_eq!(error.to_string(), "stat /a: h:1 cannot be reached: connection refused");
        let what = "stat /a".to_owned();
        let late = ClientError::TimedOut { what, waited: Duration::from_secs(1), last: cause };
        assert!(sources(&late).last().is_some_and(|last| last.is::<io::Error>()));
    }

    #[test]
    fn refusal_that_ended_a_connection_or_spoiled_a_reply_is_the_last_source() {
        let refusal = || Box::new(Refusal::BadRequest { why: "no".to_owned() });
        let address = || "h:1".to_owned();
        let cause = CloseCause::Replaced(refusal());
        let closed = CallError::Closed { address: address(), cause };
        let fault = ReplyFault::Undecodable(refusal());
        let spoiled = CallError::BadReply { address: address(), fault };
        let found = ForeignCluster::OtherGroup { other: "h:2".to_owned(), refusal: refusal() };
        let other = CallError::OtherCluster { address: address(), found };
        for cause in [closed, spoiled, other] {
            let error = ClientError::from_call("stat /a", cause.clone());
            let all = sources(&error);
            assert_eq!(all.first().and_then(|it| it.downcast_ref()), Some(&cause));
            assert_eq!(all.last().and_then(|it| it.downcast_ref()), Some(&refusal()));
        }
    }

    #[test]
    fn refusal_is_the_source_of_the_error_that_carries_it() {
        let refusal = Refusal::BadRequest { why: "no".to_owned() };
        let call = CallError::Refused(refusal.clone());
        assert_eq!(call.source().and_then(|it| it.downcast_ref()), Some(&refusal));
        let error = ClientError::from_call("stat /a", call);
        assert_eq!(sources(&error)[0].downcast_ref(), Some(&refusal));
        assert_eq!(error.to_string(), refusal.to_string());
    }

    #[test]
    fn cause_of_a_closed_writer_is_its_source() {
        let cause = ClosedWriter::Cancelled;
        let error = ClientError::WriterClosed { path: "/a".parse().unwrap(), cause };
        assert_eq!(sources(&error)[0].downcast_ref(), Some(&cause));
        let text = "the writer of /a is closed: an earlier write was cancelled half-way";
        assert_eq!(error.to_string(), text);
    }
}
