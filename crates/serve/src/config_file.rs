//! The flag that names a server's configuration file. The program reads the file before it parses
//! the flags, among which it puts those of the file.

use std::path::PathBuf;

use clap::Args;

/// The file of a server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Process options")]
pub(crate) struct ConfigArgs {
    /// Read flags that are given neither here nor in the environment from this file, in TOML; see
    /// sanderling config --help
    #[arg(long, value_name = "FILE", env = "SANDERLING_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
}
