//! What all phases share: where the cluster is, who calls, and what is made there.

use std::time::Duration;

use clap::ValueEnum;
use sanderling_client::{Client, ClientConfig, ClientError};
use sanderling_protocol::{Path, Refusal};
use sanderling_transport::Credentials;
use tokio_util::sync::CancellationToken;

use crate::args::noisy::{HogKind, Noisy};
use crate::credentials;
use crate::failure::Failure;
use crate::refused;
use crate::session::Session;

/// Longest call of a hog: more than the stalls that it makes.
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
    /// The subtree of which hog `usage` asks.
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
        let join = |above: &Path, name: &str| {
            above.join(name).map_err(|refusal| refused::refusal_failure(&refusal))
        };
        let own_dir = join(&args.path, &name("tenant"))?;
        let hog_dir = join(args.hog_path.as_ref().unwrap_or(&args.path), &name("hogs"))?;
        let big = join(&hog_dir, "many")?;
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
    /// [`ClientError`].
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
