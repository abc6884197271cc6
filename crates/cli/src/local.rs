//! `sanderling local`: a cluster on this machine, in the background.

mod keys;
mod lock;
mod record;
mod start;
mod status;
mod stop;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::global::Global;
use crate::output::Output;
use start::LocalStart;

/// Start, stop and check a cluster on this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Local {
    /// Start a namenode and datanodes in the background and print the namenode's address
    Start(LocalStart),
    /// Stop the cluster and delete its data
    Stop(ClusterDirectory),
    /// Show the cluster's processes; exit code 4 when one is down
    Status(ClusterDirectory),
}

/// Where the cluster lives.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterDirectory {
    /// The cluster's directory: catalog, logs and process list [default: sanderling/local in
    /// $XDG_STATE_HOME or ~/.local/state]
    #[arg(long = "dir", value_name = "D", env = "SANDERLING_LOCAL_DIR", hide_env_values = true)]
    pub(crate) directory: Option<PathBuf>,
}

/// Runs `sanderling local ...`.
///
/// # Errors
/// See each command.
pub(crate) fn run(global: &Global, command: Local) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet };
    match command {
        Local::Start(args) => start::run(global, output, &args),
        Local::Stop(place) => stop::run(global, output, &place),
        Local::Status(place) => status::run(output, &place),
    }
}

/// Returns the cluster's directory.
///
/// # Errors
/// Usage (2) when there is no home directory to default to.
pub(crate) fn directory(place: &ClusterDirectory) -> Result<PathBuf, Failure> {
    if let Some(directory) = &place.directory {
        return std::path::absolute(directory).map_err(|error| Failure::file(directory, &error));
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = variable("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".local").join("state")));
    state.map(|state| state.join("sanderling").join("local")).ok_or_else(|| {
        Failure::usage("there is neither HOME nor XDG_STATE_HOME").next("the same with --dir D")
    })
}
