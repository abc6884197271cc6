//! `sanderling namenode restore`: a new directory from a backup.

use std::path::{Path, PathBuf};

use clap::Args;
use sanderling_command::failure::{
    Exit, Failure, FailureKind, RefusalKind, is_without_room, whole,
};
use sanderling_command::refused::shell_word;
use sanderling_command::session::Session;
use sanderling_core::group_generation::GroupGeneration;
use sanderling_namenode::{
    BackupDescription, BackupError, NamenodeStartError, RestoreError, RestoreOptions,
    RestoredBackup, is_restore_unfinished,
};
use sanderling_protocol::ClusterId;
use sanderling_protocol::token::read_hex;
use thiserror::Error;
use tokio::task::spawn_blocking;

use super::location::Place;

/// `sanderling namenode restore`.
#[derive(Debug, Clone, Args)]
pub struct Restore {
    /// Where the backup is: a file, or `s3://BUCKET/KEY` with the environment of `namenode backup`
    #[arg(long, value_name = "PLACE")]
    from: Place,
    /// The directory to make, for the next start of the namenode
    #[arg(long = "dir", value_name = "D", env = "SANDERLING_NAMENODE_DIR", hide_env_values = true)]
    directory: PathBuf,
    /// Refuse a backup of any other cluster; 16 hexadecimal digits, as `doctor` prints them
    #[arg(long, value_name = "ID", value_parser = cluster_id)]
    cluster: Option<ClusterId>,
    /// Set aside the catalog that the directory holds, in a directory `replaced-N` inside
    #[arg(long)]
    replace: bool,
}

/// A text is no id of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a cluster's id has 16 hexadecimal digits")]
pub(super) struct ClusterIdError;

/// Reads a cluster's id; capitals are accepted.
pub(super) fn cluster_id(text: &str) -> Result<ClusterId, ClusterIdError> {
    read_hex(&text.to_ascii_lowercase()).map(ClusterId).ok_or(ClusterIdError)
}

/// Restores a backup into a directory that no namenode uses.
///
/// # Errors
/// The backup or the directory is refused, and what was there is as it was; or writing failed at
/// the very end, and the same command may be run again.
pub(crate) async fn run(session: Session, args: Restore) -> Result<(), Failure> {
    let source = args.from.read().await?;
    let options = RestoreOptions {
        directory: args.directory.clone(),
        cluster: args.cluster,
        is_replacing: args.replace,
    };
    let restored = spawn_blocking(move || sanderling_namenode::restore(source, &options)).await;
    let restored =
        restored.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Restore, error))?;
    let RestoredBackup { backup, group } = restored.map_err(|error| failed(error, &args))?;
    let document = serde_json::json!({
        "directory": args.directory, "backup": backup, "group": group.number(),
        "group_name": group.to_string(),
    });
    session.output.result(&document, |writer| {
        let BackupDescription { cluster, commands, .. } = &backup;
        let directory = args.directory.display();
        writeln!(writer, "{directory}: cluster {cluster} after {commands} changes")?;
        if group.number() > 0 {
            writeln!(writer, "{}", begun_anew(group))?;
        }
        let word = shell_word(&args.directory.to_string_lossy());
        writeln!(writer, "next: sanderling namenode --dir {word}")?;
        if group.number() > 0 {
            writeln!(writer, "then: sanderling namenode --join ADDRESS, with an empty --dir each")?;
        }
        Ok(())
    })
}

/// Describes what follows where a namenode begins a group anew.
pub(super) fn begun_anew(group: GroupGeneration) -> String {
    let number = group.number();
    format!(
        "the group begins anew, as generation {number} ({group}): its older members are refused, \
         and so is the outcome of another recovery"
    )
}

fn failed(error: RestoreError, args: &Restore) -> Failure {
    let (kind, next) = kind(&error);
    let cause = format!("{} was not restored: {error}", args.from);
    let tried = tried(&error, args);
    Failure::new(Exit::Failure, kind, cause).with_source(error).tried(tried).next(next)
}

/// Returns what was tried before the error, and whether the directory is as it was.
fn tried(error: &RestoreError, args: &Restore) -> String {
    let directory = whole(&args.directory);
    match error {
        RestoreError::Backup(_) | RestoreError::OtherCluster { .. } => {
            format!("read {}; {directory} is as it was", args.from)
        }
        RestoreError::NotEmpty { .. } | RestoreError::Foreign { .. } => {
            format!("looked at {directory}: it is as it was")
        }
        RestoreError::Unfinished(_) => {
            format!("exchanged files in {directory}, {}", marked(&args.directory))
        }
        RestoreError::Directory(error) if is_locked(error) => format!("restore into {directory}"),
        RestoreError::Directory(_) => {
            let marked = marked(&args.directory);
            format!("restore into {directory}: no file was exchanged in it, {marked}")
        }
    }
}

/// Returns whether a namenode may start on a directory, as a part of a sentence.
pub(super) fn marked(directory: &Path) -> &'static str {
    match is_restore_unfinished(directory) {
        true => "and it has the mark restore-unfinished: no namenode starts on it",
        false => "and it has no mark restore-unfinished",
    }
}

fn has_no_room(error: &NamenodeStartError) -> bool {
    matches!(error, NamenodeStartError::Files { cause, .. } if is_without_room(cause.kind()))
}

fn is_locked(error: &NamenodeStartError) -> bool {
    matches!(error, NamenodeStartError::DirectoryLocked { .. })
}

/// The kind and the next step where a disk has no room.
const NO_SPACE: (FailureKind, &str) =
    (FailureKind::NoSpace, "the same with another --dir, on a disk with room");

/// Returns the kind of failure, and the next step.
pub(super) fn kind(error: &RestoreError) -> (FailureKind, &'static str) {
    match error {
        RestoreError::Backup(BackupError::OtherFormat { .. } | BackupError::OtherLayout { .. }) => {
            (FailureKind::OtherFormat, "the version of sanderling that wrote it")
        }
        RestoreError::Backup(BackupError::Io { cause, .. }) if is_without_room(cause.kind()) => {
            NO_SPACE
        }
        RestoreError::Backup(BackupError::Io { .. }) => (FailureKind::BadBackup, "the same again"),
        RestoreError::Backup(_) => (FailureKind::BadBackup, "the same with another backup"),
        RestoreError::Directory(error) if is_locked(error) => {
            (FailureKind::InUse, "the same with --dir DIR, or stop that namenode first")
        }
        RestoreError::Directory(error) | RestoreError::Unfinished(error) if has_no_room(error) => {
            NO_SPACE
        }
        RestoreError::Unfinished(_) => {
            (FailureKind::NotRestored, "the same again, or the same with another --dir")
        }
        RestoreError::Directory(_) => (FailureKind::NotRestored, "the same with another --dir"),
        RestoreError::NotEmpty { .. } => {
            (RefusalKind::NotEmpty.into(), "the same with --dir DIR, or the same with --replace")
        }
        RestoreError::Foreign { .. } => (RefusalKind::NotEmpty.into(), "the same with --dir DIR"),
        RestoreError::OtherCluster { .. } => (
            RefusalKind::WrongCluster.into(),
            "the same with a backup of that cluster, or the same with --dir DIR",
        ),
    }
}
