//! `sanderling namenode backup`, `restore` and `recover`: the catalog of a running namenode to a
//! file or a bucket, and from there, or from its archive, into a directory.

mod archive;
mod location;
mod restore;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use sanderling_command::cluster::first_address;
use sanderling_command::failure::{Exit, Failure, FailureKind, RefusalKind};
use sanderling_command::ready::Ready;
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_namenode::{BackupDescription, check_backup};
use sanderling_transport::{PageCall, PageCallError};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

pub(crate) use self::archive::{ArchivePlace, Recover, archive_kind, run as recover};
pub use self::archive::{GroupRecover, recover_group};
use self::location::{Place, Received};
pub(crate) use self::restore::{Restore, run as restore};
use super::page_token::{PageEndpoint, page_token};
use crate::security::CallerCredentials;

/// `sanderling namenode backup`.
#[derive(Debug, Clone, Args)]
pub struct Backup {
    /// Where to write it: a file, which is replaced when the backup is whole, or `s3://BUCKET/KEY`,
    /// for which `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` and their kin are read from the
    /// environment
    #[arg(long, value_name = "PLACE")]
    to: Place,
    /// Where the namenode serves HTTP [default: the port after that of --namenode]
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// The namenode's ready file, which has that address
    #[arg(long, value_name = "FILE", conflicts_with = "http")]
    ready_file: Option<PathBuf>,
    /// What makes a token, where no token is given.
    #[command(flatten)]
    held: CallerCredentials,
}

/// How long the namenode may take to write the backup before it sends it, and to send on: as long
/// as a follower waits for its leader's (`BACKUP_TIMEOUT` of the namenode's `http/pass_on`). A
/// catalog of a hundred million objects has tens of gigabytes. Chosen, not measured.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a store may take to remove what an interrupted command has sent it: one request.
/// Chosen, not measured.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pieces of 256 KiB that wait to be written or checked: 1 MiB, so that neither side waits for the
/// other at each. Chosen, not measured.
const PIECES_MAX: usize = 4;

/// Takes a backup, and checks it before it gets its name.
///
/// # Errors
/// Unavailable (4): no namenode answers there, or another backup is being taken.
pub(crate) async fn run(session: Session, args: Backup) -> Result<(), Failure> {
    let (pieces, received) = mpsc::channel(PIECES_MAX);
    let address = address(&session, &args)?;
    let endpoint = PageEndpoint { address: &address, server: "namenode" };
    let token = page_token(&session, &args.held, "backup", &endpoint)?;
    let tls = session.credentials.tls.as_ref();
    let call = PageCall {
        address: &address,
        tls,
        token,
        method: "GET",
        target: "/v1/backup",
        body: String::new(),
        within: ANSWER_TIMEOUT,
    };
    if matches!(args.to, Place::Bucket(_)) {
        session.clean_up_within(REMOVE_TIMEOUT);
    }
    let download = async {
        tokio::select! {
            answer = call.download(pieces) => Some(answer),
            () = session.ended.cancelled() => None,
        }
    };
    let (answer, kept) = tokio::join!(download, keep(&session, &args.to, received));
    let failure = match (answer, kept) {
        (None, kept) => {
            give_up(kept).await;
            return Err(Failure::silent(Exit::Interrupted));
        }
        // A backup that was cut off is damaged because of that.
        (Some(Err(error)), Err(failure)) if failure.kind == FailureKind::BadBackup => {
            unanswered(error)
        }
        (_, Err(failure)) => failure,
        (Some(Err(error)), kept) => {
            give_up(kept).await;
            unanswered(error)
        }
        (Some(Ok((200, _))), Ok(Some((place, description, bytes)))) => {
            place.publish(&session).await?;
            return print(&session, &args, &description, bytes);
        }
        (Some(Ok((status, body))), Ok(_)) => refused(status, &body),
    };
    Err(failure.tried(format_args!("a request for a backup to the namenode at {address}")))
}

/// A backup that is whole and has no name yet.
type Kept = (location::Writing, BackupDescription, u64);

/// Writes what is received, and checks it on the way. `None`: there was no answer to keep, or it
/// broke off, which the call reports.
async fn keep(
    session: &Session,
    to: &Place,
    mut received: mpsc::Receiver<Bytes>,
) -> Result<Option<Kept>, Failure> {
    let Some(first) = received.recv().await else { return Ok(None) };
    let mut writing = to.begin().await?;
    let filled = tokio::select! {
        filled = fill(&mut writing, first, received) => filled,
        () = session.ended.cancelled() => Err(Failure::silent(Exit::Interrupted)),
    };
    match filled {
        Ok((description, bytes)) => Ok(Some((writing, description, bytes))),
        Err(failure) => {
            writing.give_up().await;
            Err(failure)
        }
    }
}

/// Writes what is received to its end. Returns what it is a backup of, and its bytes.
async fn fill(
    writing: &mut location::Writing,
    first: Bytes,
    mut received: mpsc::Receiver<Bytes>,
) -> Result<(BackupDescription, u64), Failure> {
    let (checked, source) = mpsc::channel(PIECES_MAX);
    let check = spawn_blocking(move || check_backup(Received::new(source), &mut std::io::sink()));
    let (mut next, mut bytes) = (Some(first), 0);
    while let Some(piece) = next {
        bytes += piece.len() as u64;
        writing.write(piece.clone()).await?;
        // The check ends early only to report damage, below.
        let _ = checked.send(Ok(piece)).await;
        next = received.recv().await;
    }
    drop(checked);
    let description =
        check.await.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Backup, error))?;
    let description = description.map_err(|error| {
        Failure::caused(Exit::Unavailable, FailureKind::BadBackup, error).next("the same again")
    })?;
    Ok((description, bytes))
}

/// Removes a backup that has no name yet.
async fn give_up(kept: Result<Option<Kept>, Failure>) {
    if let Ok(Some((writing, ..))) = kept {
        writing.give_up().await;
    }
}

fn address(session: &Session, args: &Backup) -> Result<String, Failure> {
    if let Some(file) = &args.ready_file {
        return Ready::read(file).and_then(|ready| ready.http_address).ok_or_else(|| {
            let cause = format!("{} names no namenode that serves HTTP", file.display());
            Failure::new(Exit::NotFound, RefusalKind::NotFound, cause)
                .next("the same with --http ADDRESS")
        });
    }
    if let Some(address) = &args.http {
        return Ok(address.clone());
    }
    let parts = first_address(&session.namenode).rsplit_once(':');
    let next = |port: &str| port.parse::<u16>().ok()?.checked_add(1);
    let found = parts.and_then(|(host, port)| Some(format!("{host}:{}", next(port)?)));
    found.ok_or_else(|| {
        let cause = format!("{} has no port", session.namenode);
        Failure::usage(cause).next("the same with --http ADDRESS")
    })
}

fn unanswered(error: PageCallError) -> Failure {
    Failure::caused(Exit::Unavailable, FailureKind::Unavailable, error)
        .next("the same with --http ADDRESS, or --ready-file FILE of the namenode")
}

fn refused(status: u16, body: &[u8]) -> Failure {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |key: &str| answer["error"][key].as_str().unwrap_or_default().to_owned();
    let (exit, next) = match status {
        401 | 403 => (Exit::Failure, "the same with --token-file FILE, or --secret-file FILE"),
        500 => (Exit::Failure, "df on the namenode's directory"),
        503 => (Exit::Unavailable, "the same again, later"),
        _ => (Exit::Failure, "the same with --http ADDRESS of the namenode"),
    };
    match text("message") {
        message if message.is_empty() || status == 200 => {
            let cause = format!("the answer has status {status}: no namenode serves there");
            Failure::new(exit, FailureKind::BadReply, cause).next(next)
        }
        message => Failure::new(exit, FailureKind::of_page(&text("name")), message).next(next),
    }
}

fn print(
    session: &Session,
    args: &Backup,
    description: &BackupDescription,
    bytes: u64,
) -> Result<(), Failure> {
    let document = serde_json::json!({
        "to": args.to.to_string(), "bytes": bytes, "backup": description,
    });
    session.output.result(&document, |writer| {
        let BackupDescription { cluster, commands, .. } = description;
        let bytes = units::bytes(bytes);
        writeln!(writer, "{}: {bytes}, cluster {cluster} after {commands} changes", args.to)
    })
}
