//! The commands without a noun.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use crate::units::Size;

/// `sanderling demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Passed to the demonstration; --help lists its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub(crate) arguments: Vec<OsString>,
}

/// `sanderling events`.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Go on and wait for more
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Start after this event
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
    pub(crate) after: u64,
}

/// `sanderling fsck`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 5 when data is lost, damaged or missing, 1 when the catalog contradicts itself or two
nodes each other, else 0.")]
pub(crate) struct Fsck {
    /// Compare with the blocks that each datanode holds, too
    #[arg(long)]
    pub(crate) deep: bool,
    /// Have each datanode compare its blocks in memory and on disk with their checksums, too
    #[arg(long, requires = "deep")]
    pub(crate) verify: bool,
}

/// `sanderling doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code 1 when a line says fail.")]
pub(crate) struct Doctor {
    /// Also connect to the cloud's metadata service, from which notices come
    #[arg(long)]
    pub(crate) cloud: bool,
    /// The directory whose disk is measured [default: that of `local`]
    #[arg(long = "dir", value_name = "D")]
    pub(crate) directory: Option<PathBuf>,
    /// Memory that datanodes on this machine are to have
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) dram: Size,
    /// A server's certificate, to see when it ends and whether --tls-ca believes it
    #[arg(long, value_name = "PEM", env = "SANDERLING_TLS_CERT", hide_env_values = true)]
    pub(crate) tls_cert: Option<PathBuf>,
}

/// `sanderling completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}
