//! Replaces `measure.rs` in a build without the feature `measure`: it accepts the names of those
//! commands and reports which build has them.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::failure::{Exit, Failure, FailureKind};
use crate::global::Global;

/// The text of `sanderling --help` about them.
pub(crate) const ABOUT: &str = "\n
Not in this build: bench, sim, lab, mock-metadata. `make build` in a checkout of the
repository makes target/release/sanderling, which has them.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Measure {
    /// Measure the store
    #[command(hide = true, disable_help_flag = true)]
    Bench(CommandWords),
    /// Run the cluster's decisions in a simulated, faulty world
    #[command(hide = true, disable_help_flag = true)]
    Sim(CommandWords),
    /// Experiments: what preemptions cost, the figures of the paper
    #[command(hide = true, disable_help_flag = true)]
    Lab(CommandWords),
    /// Serve the metadata services of clouds, to rehearse notices
    #[command(hide = true, disable_help_flag = true)]
    MockMetadata(CommandWords),
}

impl Measure {
    /// Returns whether the command may connect to a cluster that runs already.
    pub(crate) const fn uses_cluster(&self) -> bool {
        matches!(self, Self::Bench(_))
    }
}

/// Whatever follows the command's name.
#[derive(Debug, Args)]
pub(crate) struct CommandWords {
    /// The words
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Reports which build has the command.
///
/// # Errors
/// Usage (2), always.
pub(crate) fn run(_: &Global, command: Measure) -> Result<(), Failure> {
    let (name, words) = match command {
        Measure::Bench(it) => ("bench", it.words),
        Measure::Sim(it) => ("sim", it.words),
        Measure::Lab(it) => ("lab", it.words),
        Measure::MockMetadata(it) => ("mock-metadata", it.words),
    };
    let words: String = words.iter().map(|word| format!(" {}", word.to_string_lossy())).collect();
    let cause = format!("this build of sanderling has no {name}: the one with all commands has it");
    Err(Failure::new(Exit::Usage, FailureKind::NotInThisBuild, cause).next(format_args!(
        "make build in a checkout of the repository, then target/release/sanderling {name}{words}"
    )))
}
