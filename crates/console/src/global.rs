//! The options that every command understands.

use std::path::PathBuf;

use clap::Args;

use crate::units::Span;

/// The options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The namenode's address
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        env = "SANDERLING_NAMENODE",
        hide_env_values = true,
        default_value = "127.0.0.1:7600"
    )]
    pub namenode: String,
    /// Print results as JSON with stable keys
    #[arg(long, global = true)]
    pub json: bool,
    /// End the whole command after this long, with exit code 124
    #[arg(
        long,
        global = true,
        value_name = "DURATION",
        env = "SANDERLING_TIMEOUT",
        hide_env_values = true
    )]
    pub timeout: Option<Span>,
    /// Print nothing on stderr but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Log more to stderr; twice for every request
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// The credentials for the cluster.
    #[command(flatten)]
    pub shown: CredentialArgs,
}

/// The options with a command's credentials.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Security options")]
pub struct CredentialArgs {
    /// A file with the token to show; or put the token itself into SANDERLING_TOKEN
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "SANDERLING_TOKEN_FILE",
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,
    /// The authorities whose certificates are trusted: use TLS
    #[arg(
        long,
        global = true,
        value_name = "PEM",
        env = "SANDERLING_TLS_CA",
        hide_env_values = true
    )]
    pub tls_ca: Option<PathBuf>,
    /// The name that the cluster's certificates are made for
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "SANDERLING_TLS_NAME",
        hide_env_values = true,
        default_value = sanderling_transport::TLS_NAME
    )]
    pub tls_name: String,
}
