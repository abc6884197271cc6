//! The lab: `sanderling lab ...`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sanderling_core::preemption::Spec;

use crate::policy::PolicyName;
use crate::units::{Rate, Span};

/// `sanderling lab`.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Read long-lived data at random, with and without preemptions (figures 3 and 4)
    Read(Options),
    /// Write short-lived data, with and without preemptions (figures 3 and 4)
    Write(Options),
    /// Read around one notice to one of two nodes, and watch the bandwidth (figure 5)
    Notice(Options),
    /// Give random notices to nodes that hold three times what a notice lets them move
    Exposure(Options),
    /// Read, write and notice, with all figures on one page
    All(Options),
    /// How long spot machines live: preemption models, and the data they were fitted to
    Figure2(Figure2),
    /// What a fleet costs on demand and on spot machines
    Figure6(Figure6),
    /// Which instance sizes fit which notice, with and without the exposure bound
    Figure7(Figure7),
    /// When which machine is taken, for experiments that are run by others
    Trace(Trace),
    /// Write the page of an earlier run anew from its records
    Page(Page),
}

/// Returns arguments as they are where no flag was given.
pub(crate) fn defaults<A: Args>() -> A {
    let command = A::augment_args(clap::Command::new("defaults"));
    let matches = command.try_get_matches_from(["defaults"]).expect("nothing is required");
    A::from_arg_matches(&matches).expect("defaults are understood")
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
pub struct Figure2 {
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
pub struct Figure6 {
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

/// A family of machine types whose memory and egress are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
pub(crate) enum Family {
    /// Google Cloud: egress at most, as in the paper
    #[serde(rename = "n2-standard")]
    N2Standard,
    /// Amazon EC2: the baseline bandwidth
    #[serde(rename = "m6i")]
    M6i,
}

/// `sanderling lab figure7`.
#[derive(Debug, Args)]
pub struct Figure7 {
    /// Which machine types
    #[arg(long, value_enum, value_name = "FAMILY", default_value_t = Family::N2Standard)]
    pub(crate) family: Family,
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

/// `sanderling lab trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// Machines of the fleet, all new at the beginning
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) nodes: u32,
    /// No notice comes later; the model's two hours pass in this time
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(crate) work: Span,
    /// Seconds of the model that pass in one second here [default: two hours in --work]
    #[arg(long, value_name = "FACTOR")]
    pub(crate) time_scale: Option<f64>,
    /// Time from a notice to the end of the machine
    #[arg(long, value_name = "DURATION", default_value = "4s")]
    pub(crate) notice: Span,
    /// Time from there to the start of its replacement
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) replace_after: Span,
    /// Machines that may leave at a time; one more waits
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) overlap: u32,
    /// How long the machines live, as of --preemption-model of the namenode
    #[arg(long, value_name = "MODEL", default_value = "bathtub:n1-highcpu-16")]
    pub(crate) model: Spec,
    /// The first draw, from this seed's on, with a notice in the first half of --work is taken
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// What all experiments understand.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Lab options")]
pub struct Options {
    /// Measure this mechanism alone [default: both, in turn]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub(crate) policy: Option<PolicyName>,
    /// Rounds; each runs every policy on the same trace [default: 5; 1 with --quick and for
    /// `exposure`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) repeat: Option<u32>,
    /// Datanodes [default: 8; 4 with --quick and for `exposure`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64))]
    pub(crate) nodes: Option<u32>,
    /// What each node may send, and may receive [default: 200Mbit; 80Mbit with --quick;
    /// 40Mbit for `exposure`]
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<Rate>,
    /// Time from a notice to SIGKILL [default: 4s; 3s with --quick; 2s for `exposure`]
    #[arg(long, value_name = "DURATION")]
    pub(crate) notice: Option<Span>,
    /// Time from SIGKILL to the start of the replacement
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) replace_after: Span,
    /// Work that the fleet's links carry in this time [default: 60s; 6s with --quick]
    #[arg(long, value_name = "DURATION")]
    pub(crate) work: Option<Span>,
    /// Data of each node: the part of what its link carries within a notice, in percent [default:
    /// 5; 40 for `notice`, 300 for `exposure`]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) fill: Option<u32>,
    /// How long the machines live, as of --preemption-model of the namenode
    #[arg(long, value_name = "MODEL", default_value = "bathtub:n1-highcpu-16")]
    pub(crate) model: Spec,
    /// Seconds of the model that pass in one second here [default: two hours in --work]
    #[arg(long, value_name = "FACTOR")]
    pub(crate) time_scale: Option<f64>,
    /// The first round's trace; each round takes the next
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Notices of `exposure`, one after the other [default: 100; 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) notices: Option<u32>,
    /// A small run of about a minute that shows that everything works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run on loopback although namespaces are allowed
    #[arg(long)]
    pub(crate) loopback: bool,
    /// Where results and logs go
    #[arg(long, value_name = "DIR", default_value = "lab")]
    pub(crate) out: PathBuf,
}

/// `sanderling lab page`.
#[derive(Debug, Args)]
pub struct Page {
    /// The directory of the run, with its lab.json
    #[arg(value_name = "D")]
    pub(crate) directory: PathBuf,
    /// Recorded lifetimes to show beside the models, as for figure2
    #[arg(long, value_name = "FILE")]
    pub(crate) lifetimes: Option<PathBuf>,
}
