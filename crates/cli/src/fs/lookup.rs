//! What the commands look up before they work: objects by their paths, and paths that are meant.

use std::collections::BTreeMap;
use std::fmt::Display;

use sanderling_client::Client;
use sanderling_protocol::message::ObjectStat;
use sanderling_protocol::{Path, Refusal, Reply, Request};

use super::pattern::Destination;
use crate::failure::{Exit, Failure, FailureKind, RefusalKind};
use crate::refused;
use crate::refused::unexpected;
use crate::session::Session;

/// Files transferred at once by a recursive put or get: enough to hide a round trip to the
/// namenode, few enough to keep memory small: a get holds some 12 MiB for each. Chosen, not
/// measured.
pub(super) const FILES_AT_ONCE_MAX: usize = 8;

/// Bytes read from or written to a local file at once: one block, so a piece is one write to a
/// datanode.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// How the next command begins where a directory is missing.
pub(super) const MAKE_DIRECTORY: &str = "sanderling fs mkdir -p";

/// Returns `to/name` when `to` is a directory, else `to`. One of several objects can only go into a
/// directory, and so can one whose destination was typed with a slash at its end.
pub(super) async fn target(
    session: &Session,
    client: &Client,
    to: &Destination,
    name: Option<&str>,
    is_one_of_many: bool,
) -> Result<Path, Failure> {
    let stat = stat_of(session, client, &to.path).await?;
    let path = refused::shell_word(to.path.as_str());
    match (stat, name) {
        (Some(stat), Some(name)) if stat.kind.is_container() => joined(&to.path, name),
        (Some(_), _) if is_one_of_many || to.is_directory => {
            Err(refused::refusal_failure(&Refusal::NotADirectory { path: to.path.clone() }))
        }
        (None, _) if is_one_of_many || to.is_directory => {
            let refusal = Refusal::NotFound { path: to.path.clone() };
            Err(refused::refusal_failure(&refusal)
                .instead(format_args!("{MAKE_DIRECTORY} {path}"))
                .tried("looked for the directory that the objects go into"))
        }
        _ => Ok(to.path.clone()),
    }
}

/// Refuses sources of which two would get the same name: the second would replace the first.
pub(super) fn check_distinct<S: Display, D: Display + Ord>(
    pairs: &[(S, D)],
) -> Result<(), Failure> {
    let mut taken: BTreeMap<&D, &S> = BTreeMap::new();
    for (from, to) in pairs {
        if let Some(first) = taken.insert(to, from) {
            let cause = format!("{first} and {from} would both become {to}");
            return Err(Failure::usage(cause).next("the same with one source at a time"));
        }
    }
    Ok(())
}

pub(super) fn joined(directory: &Path, name: &str) -> Result<Path, Failure> {
    refused::joined(directory, name)
}

/// Returns an object's metadata; `None` when it does not exist.
pub(super) async fn stat_of(
    session: &Session,
    client: &Client,
    path: &Path,
) -> Result<Option<ObjectStat>, Failure> {
    match session.call(client, Request::Stat { path: path.clone() }).await {
        Ok(Reply::Stat(stat)) => Ok(Some(stat)),
        Ok(reply) => Err(unexpected(&reply)),
        Err(failure) if failure.exit == Exit::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns what a look-up found; `None` if the token does not allow it, such as one that may only
/// write. Only for a caller whose next request is refused where the answer would have been needed.
///
/// # Errors
/// Any other failure of the look-up.
pub(super) fn if_allowed<T>(found: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match found {
        Err(failure) if is_forbidden(&failure) => Ok(None),
        found => found.map(Some),
    }
}

/// Returns whether the token has not the right that was needed.
pub(super) fn is_forbidden(failure: &Failure) -> bool {
    failure.kind == FailureKind::Refusal(RefusalKind::Forbidden)
}

pub(super) async fn existing(
    session: &Session,
    client: &Client,
    path: &Path,
) -> Result<ObjectStat, Failure> {
    match session.call(client, Request::Stat { path: path.clone() }).await? {
        Reply::Stat(stat) => Ok(stat),
        reply => Err(unexpected(&reply)),
    }
}
