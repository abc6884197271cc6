//! `sanderling local`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::units::Size;

/// Start, stop and look at a cluster on this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Local {
    /// Start a namenode and datanodes in the background and print the namenode's address
    Start(Start),
    /// Stop the cluster; its data goes with it
    Stop(Place),
    /// Show the cluster's processes; exit code 4 when one is down
    Status(Place),
}

/// Where the cluster lives.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// The cluster's directory: catalog, logs and process list [default: sanderling/local in
    /// $XDG_STATE_HOME or ~/.local/state]
    #[arg(long = "dir", value_name = "D", env = "SANDERLING_LOCAL_DIR", hide_env_values = true)]
    pub(crate) directory: Option<PathBuf>,
}

/// `local start`.
#[derive(Debug, Args)]
pub(crate) struct Start {
    /// Where it lives.
    #[command(flatten)]
    pub(crate) place: Place,
    /// How many datanodes
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) datanodes: u16,
    /// Memory of each datanode
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) dram: Size,
    /// Disk of each datanode; none by default
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Size>,
    /// Encrypt the disks with the key in this file, as `sanderling datanode --encrypt`
    #[arg(long, value_name = "KEYFILE", requires = "disk")]
    pub(crate) encrypt: Option<PathBuf>,
    /// The namenode's port; 0 for any free one
    #[arg(long, default_value_t = 7600)]
    pub(crate) port: u16,
    /// The port of the namenode's HTTP; 0 for any free one [default: the namenode's port + 1]
    #[arg(long)]
    pub(crate) http_port: Option<u16>,
    /// Make a secret, certificates and an admin's token, and ask everybody for a token over TLS
    #[arg(long)]
    pub(crate) secure: bool,
}
