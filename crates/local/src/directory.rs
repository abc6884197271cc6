//! Where the cluster on this machine lives.

use std::path::PathBuf;

use clap::Args;
use sanderling_command::failure::Failure;

/// The file that a command locks while it changes the cluster. It contains the mark that the
/// directory is a local cluster's.
pub(super) const LOCK: &str = "lock";

/// The file that a namenode locks in the directory of its catalog.
pub(super) const CATALOG_LOCK: &str = "lock";

/// The directory with the catalogs of all namenodes.
pub(super) const CATALOGS: &str = "namenode";

/// The directory with the disks of all datanodes.
pub(super) const DISKS: &str = "disk";

/// The file that marks the disk of a datanode, which locks it.
pub(super) const DISK_MARKER: &str = "sanderling-datanode";

/// The directory with the ready files of all servers.
pub(super) const READY: &str = "ready";

/// The directory with the secret, the token and the certificates of a secure cluster.
pub(super) const KEYS: &str = "keys";

/// The directory with the servers' logs, which outlive the cluster.
pub(super) const LOGS: &str = "logs";

/// Where the cluster lives.
#[derive(Debug, Clone, Args)]
pub struct ClusterDirectory {
    /// The cluster's directory: catalog, logs and process list [default: sanderling/local in
    /// $XDG_STATE_HOME or ~/.local/state]
    #[arg(long = "dir", value_name = "D", env = "SANDERLING_LOCAL_DIR", hide_env_values = true)]
    pub directory: Option<PathBuf>,
}

/// Returns the cluster's directory.
///
/// # Errors
/// Usage (2) when there is no home directory to default to: name a directory.
pub fn directory(place: &ClusterDirectory) -> Result<PathBuf, Failure> {
    if let Some(directory) = &place.directory {
        return std::path::absolute(directory).map_err(|error| Failure::file(directory, error));
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = variable("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".local").join("state")));
    state.map(|state| state.join("sanderling").join("local")).ok_or_else(|| {
        Failure::usage("there is neither HOME nor XDG_STATE_HOME").next("the same with --dir D")
    })
}
