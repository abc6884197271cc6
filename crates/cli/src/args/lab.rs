//! The lab: `sanderling lab ...`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sanderling_core::preemption::Spec;

use crate::units::{Rate, Span};

/// `sanderling lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// How long spot machines live: preemption models, and the data they were fitted to
    Figure2(Figure2),
    /// What a fleet costs on demand and on spot machines
    Figure6(Figure6),
    /// Which instance sizes fit which notice, with and without the exposure bound
    Figure7(Figure7),
}

/// Where a figure goes, beside stdout.
#[derive(Debug, Clone, Args)]
pub(crate) struct Written {
    /// Also write the figure into this directory, as an HTML page, CSV and JSON
    #[arg(long = "out", value_name = "D")]
    pub(crate) directory: Option<PathBuf>,
}

/// `sanderling lab figure2`.
#[derive(Debug, Args)]
pub(crate) struct Figure2 {
    /// Recorded lifetimes: CSV with the columns machine_type, zone and lifetime_seconds. Without it
    /// only models are shown
    #[arg(long, value_name = "FILE")]
    pub(crate) lifetimes: Option<PathBuf>,
    /// Show this model too: bathtub:NAME, bathtub:a=,tau1=,tau2=,b=, exponential:mean=12h,
    /// lifetimes:FILE or trace:FILE. May be given several times
    #[arg(long = "model", value_name = "MODEL")]
    pub(crate) models: Vec<Spec>,
    /// Where it goes.
    #[command(flatten)]
    pub(crate) written: Written,
}

/// `sanderling lab figure6`.
#[derive(Debug, Args)]
pub(crate) struct Figure6 {
    /// Dollars per hour of a machine on demand
    #[arg(long, value_name = "DOLLARS", default_value_t = 0.776944)]
    pub(crate) on_demand: f64,
    /// Dollars per hour of a spot machine
    #[arg(long, value_name = "DOLLARS", default_value_t = 0.188320)]
    pub(crate) spot: f64,
    /// Machines of the fleet; one of them is on demand in either deployment, for the namenode
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) machines: u32,
    /// How long the work takes undisturbed
    #[arg(long, value_name = "DURATION", default_value = "2h")]
    pub(crate) work: Span,
    /// Take the slowdown from these records of a lab run: its lab.json
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Where it goes.
    #[command(flatten)]
    pub(crate) written: Written,
}

/// `sanderling lab figure7`.
#[derive(Debug, Args)]
pub(crate) struct Figure7 {
    /// Lengths of a notice to compare with
    #[arg(
        long = "notice",
        value_name = "DURATION",
        value_delimiter = ',',
        default_value = "15s,30s,2m"
    )]
    pub(crate) notices: Vec<Span>,
    /// Part of the link, in percent, that background copies may take
    #[arg(long, value_name = "PERCENT", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) background: u32,
    /// Every machine sends no faster than this [default: its egress limit]
    #[arg(long, value_name = "RATE")]
    pub(crate) egress: Option<Rate>,
    /// Where it goes.
    #[command(flatten)]
    pub(crate) written: Written,
}
