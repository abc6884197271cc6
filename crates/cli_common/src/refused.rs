//! What a refusal or a broken call means for the shell: exit code and next command.

use sanderling_client::ClientError;
pub use sanderling_context::shell_word;
use sanderling_protocol::{Millis, Refusal, Reply};
use sanderling_transport::CallError;

use crate::failure::{BAD_ADDRESS, CREDENTIALS, Exit, Failure, UNREACHABLE};

/// The next step of a caller that named another server.
const WITH_THE_ADDRESS: &str = "the same with --namenode HOST:PORT";

/// Returns the failure of a client's call.
#[must_use]
pub fn client(error: &ClientError, namenode: &str) -> Failure {
    let exit = match error {
        ClientError::Refused(refusal) => return refusal_failure(refusal),
        ClientError::Call { cause, .. } => match call(cause).exit {
            Exit::Unavailable if concerns(cause, namenode) => {
                return unreachable(namenode, cause);
            }
            exit => exit,
        },
        ClientError::DataUnavailable { .. } => Exit::Partial,
        ClientError::TimedOut { .. } => Exit::Deadline,
        ClientError::WriterClosed { .. } | ClientError::BadReply { .. } => Exit::Failure,
    };
    let next = match exit {
        Exit::Partial => "sanderling fsck",
        _ if has_wrong_address(error) => WITH_THE_ADDRESS,
        _ => "sanderling doctor",
    };
    Failure::new(exit, error.name(), error).next(next)
}

fn has_wrong_address(error: &ClientError) -> bool {
    let wrong = |cause: &CallError| {
        matches!(cause, CallError::WrongAddress { .. } | CallError::OtherCluster { .. })
    };
    matches!(error, ClientError::Call { cause, .. } if wrong(cause))
}

fn concerns(cause: &CallError, namenode: &str) -> bool {
    match cause {
        CallError::Unreachable { address, .. }
        | CallError::Closed { address, .. }
        | CallError::TooBusy { address } => address == namenode,
        _ => false,
    }
}

/// Returns the failure of a call to a namenode that does not answer. Where something listens, a
/// cluster is there: starting another one is no next step.
#[must_use]
pub fn unreachable(namenode: &str, cause: &CallError) -> Failure {
    let is_there = !matches!(cause, CallError::Unreachable { .. });
    let start = "sanderling local start, or sanderling doctor";
    Failure::new(Exit::Unavailable, UNREACHABLE, format_args!("no namenode answers: {cause}"))
        .tried(namenode)
        .next(if is_there { "sanderling doctor" } else { start })
}

/// Returns the failure of a call without a client's retries.
#[must_use]
pub fn call(error: &CallError) -> Failure {
    let exit = match error {
        CallError::Refused(refusal) => return refusal_failure(refusal),
        CallError::Unreachable { .. } | CallError::Closed { .. } | CallError::TooBusy { .. } => {
            Exit::Unavailable
        }
        CallError::TimedOut { .. } => Exit::Deadline,
        CallError::Credentials { .. }
        | CallError::BadReply { .. }
        | CallError::WrongAddress { .. }
        | CallError::OtherCluster { .. } => Exit::Failure,
    };
    let name = match error {
        CallError::Refused(_) => "Refused",
        CallError::Unreachable { .. } => UNREACHABLE,
        CallError::TimedOut { .. } => "TimedOut",
        CallError::Closed { .. } => "Closed",
        CallError::TooBusy { .. } => "TooBusy",
        CallError::Credentials { .. } => CREDENTIALS,
        CallError::BadReply { .. } => "BadReply",
        CallError::WrongAddress { .. } | CallError::OtherCluster { .. } => BAD_ADDRESS,
    };
    let next = if name == BAD_ADDRESS { WITH_THE_ADDRESS } else { "sanderling doctor" };
    Failure::new(exit, name, error).next(next)
}

/// Returns the failure of a reply that answers another question.
#[must_use]
pub fn unexpected(reply: &Reply) -> Failure {
    let text = format!("{reply:?}");
    let word = text.split([' ', '(', '{']).next().unwrap_or_default();
    Failure::new(Exit::Failure, "BadReply", format_args!("the namenode answered with {word}"))
        .next("sanderling doctor")
}

/// Returns the failure of a refusal.
#[must_use]
pub fn refusal_failure(refusal: &Refusal) -> Failure {
    let mut failure = Failure::new(exit(refusal), refusal.name(), refusal);
    failure.path = refusal.path().map(Into::into);
    match next(refusal) {
        Some(next) => failure.next(next),
        None => failure,
    }
}

/// Returns the exit code of a refusal.
#[must_use]
pub const fn exit(refusal: &Refusal) -> Exit {
    match refusal {
        Refusal::NotFound { .. }
        | Refusal::ObjectGone { .. }
        | Refusal::UnknownNode { .. }
        | Refusal::UnknownJob { .. } => Exit::NotFound,
        Refusal::Full { .. }
        | Refusal::ReserveKept { .. }
        | Refusal::NodeFull { .. }
        | Refusal::JournalFull { .. }
        | Refusal::RetryAfter { .. }
        | Refusal::SecondWriter { .. }
        | Refusal::NotLeader { .. }
        | Refusal::Undecided { .. }
        | Refusal::NotManager { .. } => Exit::Unavailable,
        Refusal::DataUnavailable { .. } => Exit::Partial,
        _ => Exit::Failure,
    }
}

/// Returns the next command to type after a refusal, where one helps. The command line adds what
/// the refusal alone does not show, such as which directory is there.
fn next(refusal: &Refusal) -> Option<String> {
    let quoted = |path: &sanderling_protocol::Path| shell_word(path.as_str());
    Some(match refusal {
        Refusal::NotFound { path } => {
            let parent = path.parent().unwrap_or_else(sanderling_protocol::Path::root);
            format!("sanderling fs ls {}", quoted(&parent))
        }
        Refusal::Exists { .. } => "the same with --force".to_owned(),
        Refusal::NotADirectory { path }
        | Refusal::WrongKind { path, .. }
        | Refusal::Changed { path, .. }
        | Refusal::SecondWriter { path, .. } => format!("sanderling fs stat {}", quoted(path)),
        Refusal::IsADirectory { path } | Refusal::IntoItself { from: path } => {
            format!("sanderling fs ls {}", quoted(path))
        }
        Refusal::CrossesJob { from, to } => {
            format!("sanderling fs cp -r {} {}", quoted(from), quoted(to))
        }
        Refusal::NotEmpty { path } => format!("sanderling fs rm -r {}", quoted(path)),
        Refusal::Full { .. } | Refusal::NodeFull { .. } | Refusal::ReserveKept { .. } => {
            "sanderling fs df".to_owned()
        }
        Refusal::QuotaPassed { .. }
        | Refusal::JobLimitPassed { .. }
        | Refusal::UnknownJob { .. } => "sanderling job ls".to_owned(),
        Refusal::DataUnavailable { .. } => "sanderling fsck".to_owned(),
        Refusal::DeadlinePassed { .. } => "the same with --deadline 30s".to_owned(),
        Refusal::TooLarge { limit, .. } if refusal.is_far_notice() => {
            format!("the same with --deadline {}", Millis(*limit))
        }
        Refusal::UnknownNode { .. } | Refusal::NodeGone { .. } | Refusal::WrongState { .. } => {
            "sanderling node ls --all".to_owned()
        }
        Refusal::Unauthenticated { why } if why == Refusal::TLS_REQUIRED => {
            "the same with --tls-ca PEM".to_owned()
        }
        Refusal::Unauthenticated { .. } | Refusal::Forbidden { .. } => {
            "the same with --token-file FILE".to_owned()
        }
        Refusal::JournalFull { .. }
        | Refusal::RetryAfter { .. }
        | Refusal::Undecided { .. }
        | Refusal::UnknownVersion { .. }
        | Refusal::WrongCluster { .. } => "sanderling doctor".to_owned(),
        _ => return None,
    })
}
