//! `sanderling bench` and its tool `scale`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::bench::Bench;
use super::noisy::Noisy;
use crate::units::Percent;
use crate::units::Span;

/// `sanderling bench`: one type of operation against a cluster, or a tool of its own.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Benches {
    /// A tool of its own.
    #[command(subcommand)]
    pub(crate) tool: Option<Tool>,
    /// One type of operation.
    #[command(flatten)]
    pub(crate) types: Option<Bench>,
}

/// Tools that measure something else than one type of operation.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Tool {
    /// Measure what one namenode carries: objects, nodes, and the cost of one of each
    Scale(Scale),
    /// Measure what a tenant's small operations take while another one takes all it can get
    Noisy(Noisy),
}

/// `sanderling bench scale`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Scale {
    /// Objects of the catalog; each number is measured with each number of nodes
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "10000,100000",
          value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub(crate) objects: Vec<u64>,
    /// Datanodes that register, send heartbeats and report their blocks
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "16",
          value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub(crate) nodes: Vec<u32>,
    /// Share of the objects that are values in the catalog; the others are files of one block
    #[arg(long, value_name = "PERCENT", default_value = "20%")]
    pub(crate) values: Percent,
    /// Time of each phase that is measured for a time
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) phase: Span,
    /// How often the cost of one unit may be that of the cheapest before it is called super-linear
    #[arg(long, value_name = "FACTOR", default_value_t = 4.0)]
    pub(crate) factor: f64,
    /// Where catalogs and logs are kept meanwhile [default: a directory for temporary files]
    #[arg(long = "dir", value_name = "D")]
    pub(crate) directory: Option<PathBuf>,
}
