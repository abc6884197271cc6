//! The command line: names, flags and help texts, one file per noun.

pub(crate) mod background;
pub(crate) mod fs;
pub(crate) mod gateway;
pub(crate) mod local;
pub(crate) mod node;
pub(crate) mod security;
pub(crate) mod serve;
pub(crate) mod tools;

use clap::{Parser, Subcommand};

pub(crate) use crate::global::Global;
use crate::measure::{self, Measure};

/// Printed at the end of `sanderling --help`.
const AFTER_HELP: &str = "\
Exit codes:
  0    done
  1    failure; trying again will not help
  2    wrong command line
  3    not found
  4    unavailable: somebody cannot be reached or has no room now; try again
  5    partial: some data is lost, the rest was done
  124  the deadline passed
  130  interrupted

Sizes are written 64MiB, 64M (both binary), 64MB or 1e9; durations 500ms, 30s, 2m.
stdout carries data; progress, logs and errors go to stderr. NO_COLOR is honoured.

Start here:
  sanderling local start --datanodes 3
  sanderling fs put data.parquet /data.parquet
  sanderling node notice datanode-0 --deadline 30s --wait";

/// An elastic, ephemeral datastore that moves data off spot machines before they die.
#[derive(Debug, Parser)]
#[command(
    name = "sanderling",
    bin_name = "sanderling",
    version,
    after_help = format!("{AFTER_HELP}{}", measure::ABOUT),
    max_term_width = 100,
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// What every command understands.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the demonstration: real queries on real data while nodes are preempted
    #[command(disable_help_flag = true)]
    Demo(tools::Demo),
    /// Start, stop and look at a cluster on this machine
    #[command(subcommand)]
    Local(local::Local),
    /// Serve the catalog, with the manager inside
    Namenode(serve::Namenode),
    /// Serve blocks
    Datanode(Box<serve::Datanode>),
    /// Run the manager on its own
    Manager(serve::Manager),
    /// Serve the doors of other tools: S3
    #[command(subcommand)]
    Gateway(gateway::Gateway),
    /// Work with objects
    #[command(subcommand)]
    Fs(fs::Fs),
    /// Look at nodes, give notices, decommission
    #[command(subcommand)]
    Node(node::Node),
    /// Show what happened to the cluster
    Events(tools::Events),
    /// Check the catalog, and say what is lost
    Fsck(tools::Fsck),
    /// What measures the store, or stands in for the world around it.
    #[command(flatten)]
    Measure(Measure),
    /// Make secrets and tokens
    #[command(subcommand)]
    Token(security::Token),
    /// Make certificates
    #[command(subcommand)]
    Tls(security::Tls),
    /// Check this machine and the way to the namenode
    Doctor(tools::Doctor),
    /// Write the completions of a shell
    Completions(tools::Completions),
}
