//! The options that every command understands.

use std::path::PathBuf;

use clap::Args;
use sanderling_context::{
    AddressOrigin, CONTEXT_VARIABLE, NAMENODE_VARIABLE, TLS_CA_VARIABLE, TLS_NAME_VARIABLE,
    TOKEN_FILE_VARIABLE,
};
use sanderling_otlp::Collector;
use sanderling_protocol::ports::NAMENODE_ADDRESS;

use crate::units::Span;

/// The options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The namenode's address, or those of a group, separated by commas
    #[arg(
        id = "namenode",
        long = "namenode",
        global = true,
        value_name = "ADDRESS",
        env = NAMENODE_VARIABLE,
        hide_env_values = true,
        action = clap::ArgAction::Append,
        default_value = NAMENODE_ADDRESS
    )]
    pub given_namenodes: Vec<String>,
    /// The address that [`Global::resolve`] found, or the addresses, separated by commas.
    #[arg(skip)]
    pub namenode: String,
    /// The cluster of this name, as `sanderling context add` set it [default: the current context,
    /// if there is one; of a datanode and a manager none]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = CONTEXT_VARIABLE,
        hide_env_values = true
    )]
    pub context: Option<String>,
    /// Where the namenode's address comes from.
    #[arg(skip = AddressOrigin::Default)]
    pub origin: AddressOrigin,
    /// Print results as JSON with stable keys
    #[arg(long, global = true)]
    pub json: bool,
    /// End the whole command after this long, with exit code 124; a server only if it does not
    /// serve by then
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
    /// Log more to stderr; twice for all lines
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Export spans of requests to this OpenTelemetry collector, http://HOST[:PORT][/PATH]
    /// [default: none are recorded]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "SANDERLING_OTLP",
        hide_env_values = true
    )]
    pub otlp: Option<Collector>,
    /// What the process is called in its spans.
    #[arg(skip = "sanderling")]
    pub service: &'static str,
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
        env = TOKEN_FILE_VARIABLE,
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,
    /// The authorities whose certificates are trusted: use TLS
    #[arg(long, global = true, value_name = "PEM", env = TLS_CA_VARIABLE, hide_env_values = true)]
    pub tls_ca: Option<PathBuf>,
    /// The name that the cluster's certificates are made for
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = TLS_NAME_VARIABLE,
        hide_env_values = true,
        default_value = sanderling_transport::TLS_NAME
    )]
    pub tls_name: String,
}
