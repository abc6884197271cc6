//! What a refusal or a broken call means for the shell: exit code and next command.

use sanderling_client::ClientError;
pub use sanderling_context::shell_word;
use sanderling_protocol::{Millis, Refusal, Reply};
use sanderling_transport::CallError;

use crate::failure::{Exit, Failure, FailureKind};

/// The next step of a caller that named another server.
const WITH_THE_ADDRESS: &str = "the same with --namenode HOST:PORT";

/// Returns the failure of a client's call: exit code, cause, and the next command. `namenode` is
/// the address that the command was given; only if that one does not answer, the next step is to
/// start a cluster.
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
    Failure::caused(exit, FailureKind::named(error.name()), error.clone()).next(next)
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
    let text = format!("no namenode answers: {cause}");
    Failure::new(Exit::Unavailable, FailureKind::Unreachable, text)
        .with_source(cause.clone())
        .tried(namenode)
        .next(if is_there { "sanderling doctor" } else { start })
}

/// Returns the failure of a call without a client's retries.
#[must_use]
pub fn call(error: &CallError) -> Failure {
    let (exit, kind) = match error {
        CallError::Refused(refusal) => return refusal_failure(refusal),
        CallError::Unreachable { .. } => (Exit::Unavailable, FailureKind::Unreachable),
        CallError::Closed { .. } => (Exit::Unavailable, FailureKind::Closed),
        CallError::TooBusy { .. } => (Exit::Unavailable, FailureKind::TooBusy),
        CallError::TimedOut { .. } => (Exit::Deadline, FailureKind::TimedOut),
        CallError::Credentials { .. } => (Exit::Failure, FailureKind::Credentials),
        CallError::BadReply { .. } => (Exit::Failure, FailureKind::BadReply),
        CallError::WrongAddress { .. } | CallError::OtherCluster { .. } => {
            (Exit::Failure, FailureKind::BadAddress)
        }
    };
    let is_elsewhere = kind == FailureKind::BadAddress;
    let next = if is_elsewhere { WITH_THE_ADDRESS } else { "sanderling doctor" };
    Failure::caused(exit, kind, error.clone()).next(next)
}

/// Returns the failure of a reply that answers another question.
#[must_use]
pub fn unexpected(reply: &Reply) -> Failure {
    let text = format!("{reply:?}");
    let word = text.split([' ', '(', '{']).next().unwrap_or_default();
    let cause = format!("the namenode answered with {word}");
    Failure::new(Exit::Failure, FailureKind::BadReply, cause).next("sanderling doctor")
}

/// Returns the failure of a refusal of a server: its exit code ([`exit`]), its kind as scripts read
/// it, and the next command where there is one (docs/ERRORS.md).
#[must_use]
pub fn refusal_failure(refusal: &Refusal) -> Failure {
    let failure = Failure::caused(exit(refusal), refusal.kind(), refusal.clone());
    match next(refusal) {
        Some(next) => failure.next(next),
        None => failure,
    }
}

/// Returns the path of a name in a directory.
///
/// # Errors
/// No path has this name: choose another name. The failure shows that no server was called for it.
pub fn joined(
    directory: &sanderling_protocol::Path,
    name: &str,
) -> Result<sanderling_protocol::Path, Failure> {
    directory.join(name).map_err(|refusal| {
        refusal_failure(&refusal).tried(format_args!("a path in {directory}, without a request"))
    })
}

/// Returns the exit code of a refusal: 3 where a thing does not exist, 4 where a later attempt may
/// succeed, 5 where data is lost, else 1.
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
        Refusal::Unauthenticated { .. } if refusal.requires_tls() => {
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

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::time::Duration;

    use sanderling_protocol::{ObjectId, Path};

    use super::*;
    use crate::failure::RefusalKind;

    #[test]
    fn refusal_is_the_source_of_its_failure() {
        let refusal = Refusal::NotFound { path: "/a/b".parse().unwrap() };
        let failure = client(&ClientError::Refused(refusal.clone()), "h:1");
        assert_eq!(failure.kind, FailureKind::Refusal(RefusalKind::NotFound));
        assert_eq!(failure.kind.to_string(), "NotFound");
        assert_eq!(failure.refusal(), Some(&refusal));
        let source = failure.source().and_then(|it| it.downcast_ref::<Refusal>());
        assert_eq!(source, Some(&refusal));
    }

    #[test]
    fn name_that_no_path_has_is_refused_without_a_request() {
        let directory: Path = "/a".parse().unwrap();
        assert_eq!(joined(&directory, "b").unwrap().as_str(), "/a/b");
        let failure = joined(&directory, "b/c").unwrap_err();
        assert_eq!(failure.kind, FailureKind::Refusal(RefusalKind::BadPath));
        assert_eq!(failure.tried.as_deref(), Some("a path in /a, without a request"));
    }

    #[test]
    fn failure_of_a_call_has_the_name_and_the_source_of_its_error() {
        let late = || CallError::TimedOut { address: "h:1".into(), waited: Duration::ZERO };
        let (path, object, ranges) = (Path::root(), ObjectId(1), Vec::new());
        let errors = [
            ClientError::DataUnavailable { path, object, ranges },
            ClientError::TimedOut { what: "a".into(), waited: Duration::ZERO, last: late() },
            ClientError::Call { what: "a".into(), cause: late() },
            ClientError::Call {
                what: "a".into(),
                cause: CallError::TooBusy { address: "other:1".into() },
            },
            ClientError::BadReply { what: "a".into() },
        ];
        for error in errors {
            let failure = client(&error, "h:1");
            assert_eq!(failure.kind.name(), error.name());
            assert_eq!(failure.cause, error.to_string());
            let source = failure.source().and_then(|it| it.downcast_ref::<ClientError>());
            assert_eq!(source.map(ToString::to_string), Some(error.to_string()));
        }
        let failure = call(&late());
        let source = failure.source().and_then(|it| it.downcast_ref::<CallError>());
        assert_eq!(source, Some(&late()));
    }
}
