//! What all phases share: the cluster, the tokens, and the directories.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sanderling_client::{Client, ClientConfig, ClientError};
use sanderling_protocol::{Path, Refusal};
use sanderling_transport::Credentials;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::credentials;
use crate::failure::Failure;
use crate::refused;
use crate::session::Session;

/// `sanderling bench noisy`.
#[derive(Debug, Clone, Args)]
#[command(after_help = hogs_help())]
pub(crate) struct Noisy {
    /// Seconds of each phase: the tenant alone, beside each hog, and alone again
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// The hogs, one after the other in this order [default: all]
    #[arg(
        long = "hog",
        value_name = "KIND,...",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub(crate) hogs: Vec<HogKind>,
    /// A file with the hogs' token, so that they are another tenant [default: the tenant's own]
    #[arg(long, value_name = "FILE")]
    pub(crate) hog_token_file: Option<PathBuf>,
    /// Names in the directory that hogs list; hog delete has one with five times as many
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) entries: u64,
    /// The namenode's HTTP address, for hog followers
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) namenode_http: Option<String>,
    /// The directory in the store that is filled and deleted
    #[arg(long, default_value = "/bench")]
    pub(crate) path: Path,
    /// The same for the hogs, where their token allows no other [default: that of --path]
    #[arg(long, value_name = "PATH")]
    pub(crate) hog_path: Option<Path>,
}

/// What a hog does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HogKind {
    /// What the whole tree holds: frames of 512, pipelined
    Usage,
    /// Pages of the directory with attributes: frames of 512, pipelined
    ListAttributes,
    /// Two clients that list the directory page by page
    List,
    /// Metadata of one object each: frames of 512, 16 in flight on each of 4 connections
    StatFrames,
    /// Values made: frames of 512, 16 in flight on each of 4 connections
    CreateFrames,
    /// The catalog checked against itself, again and again
    Fsck,
    /// A directory of many names, made and deleted again and again
    Delete,
    /// 64 connections to a datanode that request 1 MiB reads and never read the answers
    #[serde(rename = "deaf")]
    #[value(name = "deaf")]
    UnreadReplies,
    /// A reader on the datanode's machine that keeps its leases
    Leases,
    /// 1500 followers of events over HTTP
    Followers,
    /// 10,000 connections to the namenode that send nothing
    Connections,
}

impl HogKind {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("no kind is skipped");
        value.get_name().to_owned()
    }

    /// Returns whether it needs the directory of many names.
    pub(crate) const fn lists(self) -> bool {
        matches!(
            self,
            Self::Usage | Self::ListAttributes | Self::List | Self::StatFrames | Self::Fsck
        )
    }
}

/// Describes every hog, for the help text.
fn hogs_help() -> String {
    let line = |kind: &HogKind| {
        let value = kind.to_possible_value().expect("no kind is skipped");
        let about = value.get_help().map(ToString::to_string).unwrap_or_default();
        format!("  {:<16} {about}", value.get_name())
    };
    let lines: Vec<String> = HogKind::value_variants().iter().map(line).collect();
    format!("Hogs:\n{}", lines.join("\n"))
}

/// Longest call of a hog: more than the stalls that it makes, which last seconds. Chosen, not
/// measured.
const HOG_CALL_MAX: Duration = Duration::from_secs(60);

/// What all phases share.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) namenode: String,
    pub(super) namenode_http: Option<String>,
    /// What the tenant shows.
    pub(super) credentials: Credentials,
    /// What the hogs show.
    pub(super) hog_credentials: Credentials,
    /// Whether that is another token.
    pub(super) is_other_tenant: bool,
    /// The subtree whose usage hog `usage` requests.
    pub(super) usage_of: Path,
    /// The tenant's directory.
    pub(super) own_dir: Path,
    /// The directory of all hogs.
    pub(super) hog_dir: Path,
    /// The directory of many names in it.
    pub(super) big: Path,
    pub(super) entries: u64,
    pub(super) seconds: Duration,
    /// Cancelled when the command is to end early.
    pub(super) ended: CancellationToken,
    hogs: Vec<HogKind>,
}

impl Setting {
    /// Fills the defaults in.
    ///
    /// # Errors
    /// The hogs' token cannot be read.
    pub(super) fn new(session: &Session, args: Noisy) -> Result<Self, Failure> {
        let credentials = session.credentials.clone();
        let hog_credentials = match &args.hog_token_file {
            Some(file) => credentials::with_token_file(&credentials, file)?,
            None => credentials.clone(),
        };
        // Two runs at once, or one that was killed, must not meet in one directory.
        let name = |what: &str| format!("noisy-{what}-{}", std::process::id());
        let own_dir = refused::joined(&args.path, &name("tenant"))?;
        let above_hogs = args.hog_path.as_ref().unwrap_or(&args.path);
        let hog_dir = refused::joined(above_hogs, &name("hogs"))?;
        let big = refused::joined(&hog_dir, "many")?;
        // A token for a subtree allows nothing above it.
        let usage_of = if args.hog_path.is_some() { hog_dir.clone() } else { Path::root() };
        Ok(Self {
            namenode: session.namenode.clone(),
            namenode_http: args.namenode_http,
            credentials,
            hog_credentials,
            is_other_tenant: args.hog_token_file.is_some(),
            usage_of,
            own_dir,
            hog_dir,
            big,
            entries: args.entries,
            seconds: Duration::from_secs(args.seconds),
            ended: session.ended.clone(),
            hogs: args.hogs,
        })
    }

    /// Returns the hogs that were chosen, all without a choice.
    pub(super) fn kinds(&self) -> Vec<HogKind> {
        match self.hogs.is_empty() {
            true => HogKind::value_variants().to_vec(),
            false => self.hogs.clone(),
        }
    }

    /// Returns a path in the hogs' directory.
    pub(super) fn hog_path(&self, name: &str) -> Path {
        self.hog_dir.join(name).expect("names of this program are short and plain")
    }

    /// Connects as a hog.
    ///
    /// # Errors
    /// [`ClientError`]: the namenode of the measurement does not run any more; begin anew.
    pub(super) async fn hog_client(&self) -> Result<Client, ClientError> {
        let credentials = self.hog_credentials.clone();
        let call_deadline = HOG_CALL_MAX;
        let config = ClientConfig { credentials, call_deadline, ..ClientConfig::default() };
        Client::connect(&self.namenode, config).await
    }

    /// Deletes what the hogs made.
    ///
    /// # Errors
    /// [`ClientError`] when something may be left.
    pub(super) async fn clean(&self) -> Result<(), ClientError> {
        delete(&self.hog_client().await?, &self.hog_dir).await
    }
}

/// Deletes a directory with what is in it, if it is there.
///
/// # Errors
/// [`ClientError`] when something may be left.
pub(super) async fn delete(client: &Client, path: &Path) -> Result<(), ClientError> {
    match client.delete(path, true).await {
        Ok(_) | Err(ClientError::Refused(Refusal::NotFound { .. })) => Ok(()),
        Err(error) => Err(error),
    }
}
