//! `sanderling local`: a cluster on this machine, in the background.

mod add;
mod advice;
mod directory;
mod emptying;
mod keys;
mod launch;
mod lock;
mod membership;
mod ownership;
mod record;
mod restart;
mod server_files;
mod start;
mod status;
mod stop;
mod tour;
mod unrecorded;

use clap::Subcommand;
use sanderling_command::failure::Failure;
use sanderling_command::global::Global;
use sanderling_command::output::Output;

use add::LocalAdd;
pub use advice::{addition, advice, http_of, keys};
pub use directory::{ClusterDirectory, directory};
use restart::LocalRestart;
use start::LocalStart;
pub use tour::{Tour, run as tour};

/// Start, stop and check a cluster on this machine.
#[derive(Debug, Subcommand)]
pub enum Local {
    /// Start a namenode and datanodes in the background and print the namenode's address
    Start(LocalStart),
    /// Add a datanode to the cluster
    Add(LocalAdd),
    /// Start one process of the cluster anew; the data of the others stays
    Restart(LocalRestart),
    /// Stop the cluster and delete its data
    Stop(ClusterDirectory),
    /// Show the cluster's processes; exit code 4 when one is down
    Status(ClusterDirectory),
}

/// Runs `sanderling local ...`.
///
/// # Errors
/// The command's failure: end the process with it.
pub fn run(global: &Global, command: Local) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet, task: None };
    match command {
        Local::Start(args) => start::run(global, output, &args),
        Local::Add(args) => add::run(global, output, &args),
        Local::Restart(args) => restart::run(global, output, &args),
        Local::Stop(place) => stop::run(global, output, &place),
        Local::Status(place) => status::run(output, &place),
    }
}
