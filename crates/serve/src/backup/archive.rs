//! `sanderling namenode recover`: a new directory from the archive of a namenode that is gone.

use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use sanderling_command::failure::{Exit, Failure, FailureKind, RefusalKind, whole};
use sanderling_command::refused::shell_word;
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_core::group_generation::GroupGeneration;
use sanderling_datanode::ObjectOptions;
use sanderling_namenode::{
    ArchiveError, ArchiveOptions, NamenodeStartError, RecoverError, RecoverMemberError,
    RecoverOptions, RecoveredArchive, RecoveredMember, RestoreError, is_restore_unfinished,
    recover_from_archive, recover_from_member,
};
use sanderling_protocol::ClusterId;
use thiserror::Error;
use tokio::task::spawn_blocking;

use super::restore::{begun_anew, cluster_id, kind, marked};
use crate::process::{keep_private, object_settings};

/// Longest time for one operation on the store: the default of a datanode's object tier
/// (`ObjectOptions::time_max`).
const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Where an archive is: a directory, or a place in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArchivePlace {
    Directory(PathBuf),
    /// `s3://BUCKET` or `s3://BUCKET/PREFIX`.
    Bucket(String),
}

/// Why a text is no place of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ArchivePlaceError {
    /// It names no bucket.
    #[error("an archive in a bucket is at s3://BUCKET or s3://BUCKET/PREFIX")]
    NoBucket {
        /// What was given.
        text: String,
    },
    /// It is neither a directory nor in a bucket.
    #[error("an archive is in a directory or at s3://BUCKET/PREFIX")]
    NeitherDirectoryNorBucket {
        /// What was given.
        text: String,
    },
}

impl FromStr for ArchivePlace {
    type Err = ArchivePlaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("s3://") {
            Some(place) if place.is_empty() || place.starts_with('/') => {
                Err(ArchivePlaceError::NoBucket { text: text.to_owned() })
            }
            Some(_) => Ok(Self::Bucket(text.to_owned())),
            None if text.is_empty() || text.contains("://") => {
                Err(ArchivePlaceError::NeitherDirectoryNorBucket { text: text.to_owned() })
            }
            None => Ok(Self::Directory(text.into())),
        }
    }
}

impl fmt::Display for ArchivePlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(formatter),
            Self::Bucket(url) => url.fmt(formatter),
        }
    }
}

impl ArchivePlace {
    /// Opens the store; makes the directory if `is_made`.
    pub(crate) fn open(&self, is_made: bool) -> Result<ArchiveOptions, Failure> {
        let url = match self {
            Self::Directory(path) => {
                let mut builder = std::fs::DirBuilder::new();
                builder.recursive(true).mode(0o700);
                let made = if is_made { builder.create(path) } else { Ok(()) };
                let absolute = made.and_then(|()| path.canonicalize());
                let absolute = absolute.map_err(|error| Failure::file(path, error))?;
                format!("file://{}", absolute.display())
            }
            Self::Bucket(url) => url.clone(),
        };
        let settings = object_settings();
        let time_max = OPERATION_TIMEOUT;
        let options = ObjectOptions { url, settings, time_max, ..ObjectOptions::default() };
        let opened = options.open();
        let (store, prefix) = opened.map_err(|error| {
            let cause = format!("{self} cannot be used: {error}");
            Failure::new(Exit::Unavailable, FailureKind::Archive, cause)
                .next("the same with AWS_ENDPOINT_URL, AWS_REGION and the keys in the environment")
        })?;
        Ok(ArchiveOptions { store, prefix, url: self.to_string() })
    }
}

/// `sanderling namenode recover`.
#[derive(Debug, Clone, Args)]
pub struct Recover {
    /// The archive that `namenode --archive` has written: a directory, or `s3://BUCKET/PREFIX` with
    /// `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` and their kin in the environment
    #[arg(long, value_name = "PLACE")]
    archive: ArchivePlace,
    /// The directory to make, for the next start of the namenode
    #[arg(long = "dir", value_name = "D", env = "SANDERLING_NAMENODE_DIR", hide_env_values = true)]
    directory: PathBuf,
    /// Recover that cluster and no other; 16 hexadecimal digits, as `doctor` prints them
    #[arg(long, value_name = "ID", value_parser = cluster_id)]
    cluster: Option<ClusterId>,
    /// Recover what that start of a namenode has written [default: the newest]
    #[arg(long, value_name = "N")]
    generation: Option<u64>,
    /// Set aside the catalog that the directory holds, in a directory `replaced-N` inside
    #[arg(long)]
    replace: bool,
}

/// `group recover`.
#[derive(Debug, Clone, Args)]
pub struct GroupRecover {
    /// The directory of a member that survived, whose process has ended; with --archive, the
    /// directory to make
    #[arg(long = "dir", value_name = "D", env = "SANDERLING_NAMENODE_DIR", hide_env_values = true)]
    directory: PathBuf,
    /// The archive of the group, where no member's directory has survived: a directory, or
    /// `s3://BUCKET/PREFIX`
    #[arg(long, value_name = "PLACE")]
    archive: Option<ArchivePlace>,
    /// Recover that cluster and no other; 16 hexadecimal digits, as `doctor` prints them
    #[arg(long, value_name = "ID", value_parser = cluster_id, requires = "archive")]
    cluster: Option<ClusterId>,
    /// Recover what that leader has written [default: the newest]
    #[arg(long, value_name = "N", requires = "archive")]
    generation: Option<u64>,
    /// Set aside the catalog that the directory holds, in a directory `replaced-N` inside
    #[arg(long, requires = "archive")]
    replace: bool,
    /// Begin a generation after the one of this number, which a restore or a recovery has printed
    /// that is given up for this one. Refusals with `OtherGeneration` have it, too
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(..=GroupGeneration::NUMBER_FOLLOWED_MAX))]
    after: u64,
    /// Recover from a member whose machine has crashed although it did not run with --sync always:
    /// the changes that its disk did not have are missing
    #[arg(long, conflicts_with = "archive")]
    accept_loss: bool,
}

/// Makes a namenode's directory from an archive.
///
/// # Errors
/// The archive or the directory is refused; what was there is as it was.
pub(crate) async fn run(session: Session, args: Recover) -> Result<(), Failure> {
    restore(&session, args, None).await
}

/// Begins a group anew, from its archive or from the directory of a member that survived.
///
/// # Errors
/// The archive or the directory is refused: end the command with the failure, which has the cause.
/// What was there is as it was.
pub async fn recover_group(session: &Session, args: GroupRecover) -> Result<(), Failure> {
    keep_private();
    match args.archive {
        Some(archive) => {
            let GroupRecover { directory, cluster, generation, replace, after, .. } = args;
            let args = Recover { archive, directory, cluster, generation, replace };
            restore(session, args, Some(after)).await
        }
        None => from_member(session, &args).await,
    }
}

/// Recovers an archive, that of a group after the generation of a number.
async fn restore(session: &Session, args: Recover, after: Option<u64>) -> Result<(), Failure> {
    let archive = args.archive.open(false)?;
    let options = RecoverOptions {
        directory: args.directory.clone(),
        cluster: args.cluster,
        generation: args.generation,
        is_replacing: args.replace,
        is_of_group: after.is_some(),
        after: after.unwrap_or_default(),
    };
    let recovered = tokio::select! {
        recovered = recover_from_archive(&archive, &options) => recovered,
        () = session.ended.cancelled() => return Err(Failure::silent(Exit::Interrupted)),
    };
    let recovered = recovered.map_err(|error| failed(error, &args))?;
    print(session, &args, &recovered)
}

fn print(session: &Session, args: &Recover, found: &RecoveredArchive) -> Result<(), Failure> {
    let RecoveredArchive { cluster, generation, commands, is_closed, later, .. } = *found;
    let RecoveredArchive { at_unix_millis, group, .. } = *found;
    let cluster = format!("{:016x}", cluster.0);
    let document = serde_json::json!({
        "directory": args.directory, "archive": args.archive.to_string(), "cluster": cluster,
        "generation": generation, "commands": commands, "is_closed": is_closed, "later": later,
        "at_unix_millis": at_unix_millis, "group": group.number(),
        "group_name": group.to_string(),
    });
    session.output.result(&document, |writer| {
        let directory = args.directory.display();
        writeln!(writer, "{directory}: cluster {cluster} after {commands} changes")?;
        match (is_closed, later) {
            (true, _) => writeln!(writer, "its namenode had stopped: no change is missing")?,
            (false, Some(later)) => writeln!(
                writer,
                "this is generation {generation}, and a namenode has begun generation {later} \
                 since: what that one acknowledged is missing"
            )?,
            (false, None) => {
                let since = UNIX_EPOCH + Duration::from_millis(at_unix_millis);
                let ago = SystemTime::now().duration_since(since).unwrap_or_default();
                let ago = units::duration(ago);
                writeln!(
                    writer,
                    "its namenode was not stopped: changes of its last second, written after the \
                     archive {ago} ago, may be missing"
                )?;
            }
        }
        if group.number() > 0 {
            writeln!(writer, "{}", begun_anew(group))?;
        }
        let archive = shell_word(&args.archive.to_string());
        let word = shell_word(&args.directory.to_string_lossy());
        writeln!(writer, "next: sanderling namenode --dir {word} --archive {archive}")?;
        if group.number() > 0 {
            writeln!(writer, "then: sanderling namenode --join ADDRESS, with an empty --dir each")?;
        }
        Ok(())
    })
}

async fn from_member(session: &Session, args: &GroupRecover) -> Result<(), Failure> {
    let (path, accepts, after) = (args.directory.clone(), args.accept_loss, args.after);
    let recovered = spawn_blocking(move || recover_from_member(&path, accepts, after)).await;
    let recovered = recovered
        .map_err(|error| Failure::caused(Exit::Failure, FailureKind::NotRecovered, error))?;
    let RecoveredMember { cluster, member, commands, unconfirmed, group } =
        recovered.map_err(|error| member_failed(error, args))?;
    let cluster = format!("{:016x}", cluster.0);
    let document = serde_json::json!({
        "directory": args.directory, "cluster": cluster, "member": member, "commands": commands,
        "unconfirmed": unconfirmed, "group": group.number(), "group_name": group.to_string(),
    });
    session.output.result(&document, |writer| {
        let directory = args.directory.display();
        writeln!(
            writer,
            "{directory}: cluster {cluster} after {commands} changes of member {member}"
        )?;
        writeln!(
            writer,
            "its last {unconfirmed} changes are kept, and may not have been acknowledged"
        )?;
        writeln!(
            writer,
            "changes that the others acknowledged without this member are missing: at most those \
             of the time in which it was cut off or behind"
        )?;
        writeln!(writer, "{}", begun_anew(group))?;
        let word = shell_word(&args.directory.to_string_lossy());
        writeln!(writer, "next: sanderling namenode --dir {word}")?;
        writeln!(writer, "then: sanderling namenode --join ADDRESS, with an empty --dir each")
    })
}

fn member_failed(error: RecoverMemberError, args: &GroupRecover) -> Failure {
    let (kind, next) = match &error {
        RecoverMemberError::NoMember { .. } => (
            FailureKind::Refusal(RefusalKind::NotFound),
            "the same with the --dir of a member that survived, or the same with --archive PLACE",
        ),
        RecoverMemberError::Forgotten { .. } => (
            FailureKind::MayHaveForgotten,
            "the same with the directory of another member, with --archive, or with --accept-loss",
        ),
        RecoverMemberError::Directory(_) | RecoverMemberError::Log { .. } => (
            FailureKind::NotRecovered,
            "the same with the directory of another member, or with --archive",
        ),
    };
    let directory = args.directory.display();
    let cause = format!("no group was recovered from {directory}: {error}");
    Failure::new(Exit::Failure, kind, cause)
        .with_source(error)
        .tried(format_args!("read the log of the member in {directory}"))
        .next(next)
}

fn failed(error: RecoverError, args: &Recover) -> Failure {
    let exit = match &error {
        RecoverError::Archive(ArchiveError::Store { .. }) => Exit::Unavailable,
        _ => Exit::Failure,
    };
    let (kind, next) = recover_kind(&error);
    let cause = format!("{} was not recovered: {error}", args.archive);
    let tried = tried(&error, args);
    Failure::new(exit, kind, cause).with_source(error).tried(tried).next(next)
}

/// Returns the kind of failure, and the next step.
fn recover_kind(error: &RecoverError) -> (FailureKind, &'static str) {
    let error = match error {
        RecoverError::Directory(error) => error,
        RecoverError::Archive(error) => return archive_kind(error),
    };
    match (error, kind(error)) {
        // What the archive has cannot be read as a catalog.
        (RestoreError::Unfinished(error), (FailureKind::NotRestored, _))
            if !matches!(**error, NamenodeStartError::Files { .. }) =>
        {
            (
                FailureKind::NotRecovered,
                "the same with --generation N, or the same with another --dir",
            )
        }
        (_, (FailureKind::NotRestored, next)) => (FailureKind::NotRecovered, next),
        (_, found) => found,
    }
}

/// Returns what was tried before the error, and what is true of the directory.
fn tried(error: &RecoverError, args: &Recover) -> String {
    let (archive, directory) = (&args.archive, whole(&args.directory));
    let marked = marked(&args.directory);
    match error {
        RecoverError::Directory(RestoreError::Unfinished(_)) => {
            format!("read the archive {archive} and exchanged files in {directory}, {marked}")
        }
        RecoverError::Directory(RestoreError::Directory(_)) => format!(
            "read the archive {archive} to recover into {directory}: no file was exchanged in it, \
             {marked}"
        ),
        RecoverError::Archive(_) if is_restore_unfinished(&args.directory) => {
            format!("read the archive {archive} to recover into {directory}, {marked}")
        }
        _ => format!("read the archive {archive}"),
    }
}

/// Returns the kind of failure, and the next step.
pub(crate) fn archive_kind(error: &ArchiveError) -> (FailureKind, &'static str) {
    match error {
        ArchiveError::Store { .. } => {
            (FailureKind::Archive, "the same again, when the store answers")
        }
        ArchiveError::Directory(_) => (FailureKind::Archive, "the same with another --dir"),
        ArchiveError::OtherCluster { .. } => (
            RefusalKind::WrongCluster.into(),
            "the same with another --archive, a place of its own",
        ),
        ArchiveError::Ahead { .. } => (
            FailureKind::ArchiveAhead,
            "sanderling namenode recover --archive PLACE --dir DIR --replace, then this again",
        ),
        ArchiveError::LaterGroup { .. } => (
            FailureKind::OlderGeneration,
            "sanderling namenode --join ADDRESS of the later group, with an empty --dir",
        ),
        ArchiveError::OtherRecovery { .. } => (
            RefusalKind::OtherGeneration.into(),
            "end one of the two groups: namenodes of its own join the other with --join ADDRESS, \
             with an empty --dir each",
        ),
        ArchiveError::Overtaken { .. } => (
            FailureKind::Archive,
            "nothing here, if the other namenode is to serve; else end it, then the same again",
        ),
        ArchiveError::Unconditional { .. } => (
            FailureKind::Archive,
            "the same with --archive in a directory, or in a bucket whose server supports \
             If-None-Match on PutObject",
        ),
        ArchiveError::OfGroup { .. } => {
            (FailureKind::BadOption, "sanderling group recover, with the same flags")
        }
        ArchiveError::Empty { .. } => {
            (RefusalKind::NotFound.into(), "the same with the right --archive")
        }
        ArchiveError::NoGeneration { .. } => {
            (RefusalKind::NotFound.into(), "the same with one of those")
        }
        ArchiveError::SeveralClusters { .. } => {
            (FailureKind::BadOption, "the same with --cluster ID")
        }
        ArchiveError::Damaged { .. } => {
            (FailureKind::BadArchive, "the same with an older --generation")
        }
    }
}
