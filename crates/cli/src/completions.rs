//! `sanderling completions`.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Failure;

/// `sanderling completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Writes the completions of a shell to stdout.
///
/// # Errors
/// Its reader cannot be written to.
pub(crate) fn run(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sanderling", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}
