//! Why a call brought no answer.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use sanderling_core::call_outcome::CallOutcome;
use sanderling_protocol::frame::FrameError;
use sanderling_protocol::message::{Reply, Role};
use sanderling_protocol::ports::NAMENODE_PORT;
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{ClusterId, Millis, Refusal, amount};
use thiserror::Error;

use crate::secret::SecretError;
use crate::tls::Distrust;

/// The reason why a call got no answer. Every waiter on a connection that breaks gets the same one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CallError {
    /// The peer answered that it will not.
    #[error("{0}")]
    Refused(#[source] Refusal),
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
    #[error("{address} is not a namenode's address: {found}")]
    WrongAddress {
        /// The address.
        address: String,
        /// What listens there, and what to do.
        #[source]
        found: WrongPeer,
    },
    /// A namenode listens there, but of another cluster.
    #[error("{address} serves cluster {found}")]
    OtherCluster {
        /// The address.
        address: String,
        /// Its cluster, and the one that is called.
        #[source]
        found: ForeignCluster,
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
    #[error("the connection to {address} broke: {cause}")]
    Closed {
        /// The peer.
        address: String,
        /// How.
        #[source]
        cause: CloseCause,
    },
    /// More calls are under way on the connection than it carries, until the deadline.
    #[error("too many calls to {address} are under way")]
    TooBusy {
        /// The peer.
        address: String,
    },
    /// What is to be shown to the peer cannot be had, or what the peer shows is not believed.
    #[error("{address}: {cause}")]
    Credentials {
        /// The peer.
        address: String,
        /// What is wrong.
        #[source]
        cause: CredentialsFault,
    },
    /// The peer's reply does not match the request.
    #[error("{address} sent a reply that does not match the request: {fault}")]
    BadReply {
        /// The peer.
        address: String,
        /// What is wrong.
        #[source]
        fault: ReplyFault,
    },
}

/// A server that listens at an address given for a namenode's and is none; the text has what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WrongPeer {
    /// Another server of a cluster.
    #[error(
        "it is that of a {role}; the namenode's is what the {role}s are started with",
        role = named(*.0)
    )]
    Server(Role),
    /// A server that answers in HTTP.
    #[error(
        "it serves HTTP; the namenode's own port is {NAMENODE_PORT} unless it was started with \
         another --listen"
    )]
    Http,
    /// A server that takes no connection without TLS.
    #[error(
        "it requires TLS: give the authorities of its certificates (--tls-ca, SANDERLING_TLS_CA)"
    )]
    Tls,
}

/// Returns how a server is named in a sentence.
fn named(role: Role) -> String {
    format!("{role:?}").to_lowercase()
}

/// The cluster of a namenode, beside that of another one that was given with it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ForeignCluster {
    /// They are of two clusters.
    #[error(
        "{:016x}, while {other} serves cluster {:016x}: give addresses of one cluster",
        .cluster.0, .known.0
    )]
    Other {
        /// The cluster of the namenode.
        cluster: ClusterId,
        /// The other namenode.
        other: String,
        /// Its cluster.
        known: ClusterId,
    },
    /// They are of one cluster, and two recoveries have begun its group.
    #[error("of another group than {other}: {refusal}")]
    OtherGroup {
        /// The other namenode.
        other: String,
        /// How one namenode refuses the other.
        #[source]
        refusal: Box<Refusal>,
    },
}

/// The reason why a connection ended, as the error of a call on it has it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CloseCause {
    /// Reading or writing failed.
    #[error("{}", .0.whole())]
    Io(#[source] SystemError),
    /// The peer has ended.
    #[error("the peer closed the connection")]
    ByPeer,
    /// The peer sent what is no frame.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The process has no memory for what the peer sent.
    #[error("an answer came for which there is no memory")]
    NoMemory,
    /// The peer answered what was not sent.
    #[error("an answer to no request")]
    NoRequest,
    /// It had ended before the call.
    #[error("the connection has broken")]
    Before,
    /// The task that made the connection has ended.
    #[error("{}", .0.whole())]
    Task(#[source] SystemError),
    /// The group has another leader, and the one that was called does not answer.
    #[error("another namenode leads by now")]
    OtherLeader,
    /// The process ends.
    #[error("the client was shut down")]
    ShutDown,
    /// Another server has taken the peer's place.
    #[error("{0}")]
    Replaced(#[source] Box<Refusal>),
    /// The peer was not reached, and no call shows why.
    #[error("no answer")]
    NoAnswer,
}

impl From<io::Error> for CloseCause {
    fn from(error: io::Error) -> Self {
        Self::Io(error.into())
    }
}

/// A fault of the token or the certificate that one end of a connection shows to the other.
#[derive(Debug, Clone, Error)]
pub enum CredentialsFault {
    /// The token of this process cannot be read.
    #[error("{0}")]
    Token(#[source] Arc<SecretError>),
    /// The peer's certificate is not believed.
    #[error("{0}")]
    Peer(#[from] Distrust),
}

impl PartialEq for CredentialsFault {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for CredentialsFault {}

/// A fault of a reply: it answers another request than the one that was sent, or its bytes are no
/// reply.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReplyFault {
    /// Its bytes are no reply.
    #[error("{0}")]
    Undecodable(#[source] Box<Refusal>),
    /// It answers more or fewer requests.
    #[error("{replies} answers to {requests} requests")]
    Count {
        /// Answers.
        replies: usize,
        /// Requests.
        requests: usize,
    },
    /// It answers another request.
    #[error("{}", shortened(.0))]
    Unexpected(Box<Reply>),
    /// It answers another request than that for the members of a group.
    #[error("{} to a request for members", shortened(.0))]
    NoMembers(Box<Reply>),
    /// A namenode does not name its cluster in its greeting.
    #[error("a namenode that names no cluster")]
    NoCluster,
    /// Another server answers where a namenode should.
    #[error("it is no namenode")]
    NoNamenode,
    /// A part of the reply of a server on the same machine is not what it should be.
    #[error("{part}")]
    Local {
        /// The part.
        part: &'static str,
    },
}

/// Most characters of a reply in an error: one line of a terminal or a log. A whole reply may be a
/// page of blocks.
const REPLY_CHARS_MAX: usize = 100;

fn shortened(reply: &Reply) -> String {
    format!("{reply:?}").chars().take(REPLY_CHARS_MAX).collect()
}

impl CallError {
    /// Returns the error of a connection that could not be made to the server at `address`.
    #[must_use]
    pub fn unreachable(address: &str, error: io::Error) -> Self {
        Self::Unreachable { address: address.to_owned(), cause: error.into() }
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

    /// Returns what the call came to, as the decisions of the core take it.
    #[must_use]
    pub fn outcome(&self) -> CallOutcome<'_> {
        match self {
            Self::Refused(refusal) => CallOutcome::Refused(refusal),
            Self::TimedOut { .. } => CallOutcome::TimedOut,
            error if error.is_connection_refused() => CallOutcome::NoProcess,
            _ => CallOutcome::Broken,
        }
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

impl SystemError {
    /// Returns the error's own text, with its number.
    fn whole(&self) -> &io::Error {
        &self.0
    }
}

impl From<io::Error> for SystemError {
    fn from(error: io::Error) -> Self {
        Self(Arc::new(error))
    }
}

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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn source<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> &'a T {
        error.source().and_then(|it| it.downcast_ref()).expect("a source of this type")
    }

    #[test]
    fn connection_that_broke_has_the_error_of_the_system_as_source() {
        let address = "h:1".to_owned();
        let cause = CloseCause::from(io::Error::from_raw_os_error(104));
        let closed = CallError::Closed { address: address.clone(), cause: cause.clone() };
        // With its number, as it is in logs.
        let text = "the connection to h:1 broke: Connection reset by peer (os error 104)";
        assert_eq!(closed.to_string(), text);
        assert_eq!(source::<CloseCause>(&closed), &cause);
        let system: &io::Error = source(source::<SystemError>(source::<CloseCause>(&closed)));
        assert_eq!(system.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(closed, closed.clone());
        assert_ne!(closed, CallError::Closed { address, cause: CloseCause::ByPeer });
    }

    #[test]
    fn only_a_refused_connection_shows_that_no_process_listens() {
        let address = || "h:1".to_owned();
        let unreachable = |kind: io::ErrorKind| {
            let cause = io::Error::from(kind).into();
            CallError::Unreachable { address: address(), cause }
        };
        let refused = unreachable(io::ErrorKind::ConnectionRefused);
        assert_eq!(refused.outcome(), CallOutcome::NoProcess);
        let silent = CallError::TimedOut { address: address(), waited: Duration::ZERO };
        assert_eq!(silent.outcome(), CallOutcome::TimedOut);
        let closed = CallError::Closed { address: address(), cause: CloseCause::ByPeer };
        for broken in [unreachable(io::ErrorKind::HostUnreachable), closed] {
            assert_eq!(broken.outcome(), CallOutcome::Broken);
        }
        let refusal = Refusal::BadRequest { why: "no".to_owned() };
        let answered = CallError::Refused(refusal.clone());
        assert_eq!(answered.outcome(), CallOutcome::Refused(&refusal));
    }

    #[test]
    fn token_that_cannot_be_read_is_a_source_of_its_call() {
        let path = PathBuf::from("/token");
        let secret = SecretError::File { path, cause: io::ErrorKind::NotFound.into() };
        let cause = CredentialsFault::Token(Arc::new(secret));
        let refused = CallError::Credentials { address: "h:1".to_owned(), cause };
        assert_eq!(refused.to_string(), "h:1: /token: entity not found");
        let secret: &Arc<SecretError> = source(source::<CredentialsFault>(&refused));
        assert_eq!(source::<io::Error>(&**secret).kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn reply_of_another_request_is_shown_by_its_beginning() {
        let block = sanderling_protocol::BlockId(u64::MAX);
        let listed = Reply::Drop { blocks: vec![block; 20] };
        let fault = ReplyFault::Unexpected(Box::new(listed.clone()));
        let text: String = format!("{listed:?}").chars().take(REPLY_CHARS_MAX).collect();
        assert_eq!(fault.to_string(), text);
    }

    #[test]
    fn addresses_of_servers_that_do_not_belong_together_have_these_texts() {
        let address = || "h:1".to_owned();
        let found = WrongPeer::Server(Role::Datanode);
        let wrong = CallError::WrongAddress { address: address(), found };
        let text = "h:1 is not a namenode's address: it is that of a datanode; the namenode's is \
                    what the datanodes are started with";
        assert_eq!(wrong.to_string(), text);
        let (cluster, known) = (ClusterId(1), ClusterId(2));
        let found = ForeignCluster::Other { cluster, other: "h:2".to_owned(), known };
        let other = CallError::OtherCluster { address: address(), found };
        let text = "h:1 serves cluster 0000000000000001, while h:2 serves cluster \
                    0000000000000002: give addresses of one cluster";
        assert_eq!(other.to_string(), text);
        let refusal = Refusal::NotFound { path: "/a".parse().expect("a path") };
        let text = format!("h:1 serves cluster of another group than h:2: {refusal}");
        let refusal = Box::new(refusal);
        let found = ForeignCluster::OtherGroup { other: "h:2".to_owned(), refusal };
        let other = CallError::OtherCluster { address: address(), found };
        assert_eq!(other.to_string(), text);
        let refusal = source::<Box<Refusal>>(source::<ForeignCluster>(&other));
        assert!(matches!(**refusal, Refusal::NotFound { .. }));
    }
}
