//! `sanderling man`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use sanderling_command::pages;
use sanderling_config::{PAGE, after_help};

use crate::args::Cli;
use crate::failure::Failure;

/// `sanderling man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory for the pages, made if it is not there: sanderling.1, sanderling-fs-put.1, ...
    #[arg(value_name = "DIRECTORY")]
    pub(crate) directory: PathBuf,
}

/// Writes a manual page for every command into a directory.
///
/// # Errors
/// The directory cannot be written to.
pub(crate) fn run(args: &Man) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::file(&args.directory, error);
    std::fs::create_dir_all(&args.directory).map_err(failed)?;
    let mut command = Cli::command();
    if let Some(of_config) = command.find_subcommand_mut("config") {
        // Packages have the manual for machines on which the pages may be anywhere.
        let end = after_help(&pages::on_site(PAGE));
        *of_config = std::mem::take(of_config).after_help(end);
    }
    clap_mangen::generate_to(command, &args.directory).map_err(failed)
}
