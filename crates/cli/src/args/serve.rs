//! The servers: `sanderling namenode`, `datanode`, `manager`.

use std::path::PathBuf;

use clap::Args;
use sanderling_core::Mechanism;
use sanderling_core::preemption::Spec;

use crate::units::{Rate, Size, Span};

/// What all servers understand.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Process options")]
pub(crate) struct Process {
    /// Write a JSON object with addresses and process id here when the server serves
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Die with the process that started this one
    #[arg(long)]
    pub(crate) exit_with_parent: bool,
    /// How log lines are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Leave the terminal's session
    #[arg(long, hide = true)]
    pub(crate) detach: bool,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// When a change of the catalog is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SyncMode {
    /// When the kernel has the journal record: survives kill -9 of the namenode
    Os,
    /// When the disk has it: survives a power cut
    Always,
}

/// How a cluster meets notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PolicyName {
    /// Fence at once, push many blocks straight to planned targets
    Sanderling,
    /// Baseline of experiments: one block at a time through the relocator, writes wait
    Seed,
}

impl From<PolicyName> for Mechanism {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Sanderling => Self::Sanderling,
            PolicyName::Seed => Self::Seed,
        }
    }
}

/// `sanderling namenode`.
#[derive(Debug, Args)]
pub(crate) struct Namenode {
    /// Where to serve; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7600")]
    pub(crate) listen: String,
    /// Where to serve health, metrics and the HTTP interface; `none` for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7601")]
    pub(crate) http: String,
    /// The catalog's directory: journal and snapshots
    #[arg(long = "dir", value_name = "D", env = "SANDERLING_NAMENODE_DIR", hide_env_values = true)]
    pub(crate) directory: PathBuf,
    /// When a change is acknowledged
    #[arg(long, value_enum, value_name = "MODE", default_value_t = SyncMode::Os)]
    pub(crate) sync: SyncMode,
    /// Run no manager inside: one runs on its own
    #[arg(long)]
    pub(crate) no_manager: bool,
    /// How notices are met: the same for all servers of a cluster
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = PolicyName::Sanderling)]
    pub(crate) policy: PolicyName,
    /// How long machines live: bathtub:n1-highcpu-16, bathtub:a=,tau1=,tau2=,b=,
    /// exponential:mean=12h, lifetimes:FILE or trace:FILE [default: unknown]
    #[arg(long, value_name = "SPEC")]
    pub(crate) preemption_model: Option<Spec>,
    /// A new node gets less than its share of new blocks for this long
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) ramp_up: Span,
    /// Listen beyond loopback although nobody is asked who they are
    #[arg(long)]
    pub(crate) allow_unauthenticated: bool,
    /// The process.
    #[command(flatten)]
    pub(crate) process: Process,
}

/// `sanderling datanode`.
#[derive(Debug, Args)]
pub(crate) struct Datanode {
    /// Where to serve blocks; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: String,
    /// Where to serve health and metrics; `none` for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) http: String,
    /// The host name or address that others reach it by, when it listens on every address
    #[arg(long, value_name = "HOST", default_value = "", hide_default_value = true)]
    pub(crate) advertise: String,
    /// The node's name [default: its address]
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) name: String,
    /// Its machine, for affinity [default: the host's name]
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Memory for blocks
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) dram: Size,
    /// Disk for blocks, in --disk-dir
    #[arg(long, value_name = "SIZE", requires = "disk_dir")]
    pub(crate) disk: Option<Size>,
    /// The directory of the disk tier
    #[arg(long, value_name = "D", requires = "disk")]
    pub(crate) disk_dir: Option<PathBuf>,
    /// Send at most this many bytes per second, reads and pushes together: for several nodes on one
    /// machine [default: what the network takes]
    #[arg(long, value_name = "RATE")]
    pub(crate) egress_limit: Option<Rate>,
    /// How notices are met: the same for all servers of a cluster
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = PolicyName::Sanderling)]
    pub(crate) policy: PolicyName,
    /// On SIGTERM, move the data away for at most this long, then exit
    #[arg(long, value_name = "DURATION", default_value = "25s")]
    pub(crate) sigterm_deadline: Span,
    /// Listen beyond loopback although nobody is asked who they are
    #[arg(long)]
    pub(crate) allow_unauthenticated: bool,
    /// The process.
    #[command(flatten)]
    pub(crate) process: Process,
}

/// `sanderling manager`.
#[derive(Debug, Args)]
pub(crate) struct Manager {
    /// The manager's name, for the events [default: manager-PID]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How notices are met: the same for all servers of a cluster
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = PolicyName::Sanderling)]
    pub(crate) policy: PolicyName,
    /// The process.
    #[command(flatten)]
    pub(crate) process: Process,
}
