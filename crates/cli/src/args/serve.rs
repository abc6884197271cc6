//! The servers: `sanderling namenode`, `datanode`, `manager`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use sanderling_core::preemption::Spec;
use sanderling_datanode::NoticeSource;

use super::background::Background;
use super::security::{Guard, Held};
use crate::policy::PolicyName;
use crate::server::Process;
use crate::units::{Rate, Size, Span, UnitError};

/// When a change of the catalog is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SyncMode {
    /// When the kernel has the journal record: survives kill -9 of the namenode
    Os,
    /// When the disk has it: survives a power cut
    Always,
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
    /// With `--sync os`, longest time that an acknowledged change waits for the disk: when the disk
    /// takes longer, changes are refused until it has caught up
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) unsynced_max: Span,
    /// Start without what lies behind this damage of the journal; it is lost. The refusal of the
    /// start names the damage
    #[arg(long, value_name = "FILE:OFFSET")]
    pub(crate) accept_journal_loss: Option<String>,
    /// Most memory that it takes, or `none`: beyond it, what would make the catalog larger is
    /// refused [default: three quarters of the machine's or the control group's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_max: Option<MemoryMax>,
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
    /// Nodes that must be able to leave at once without a loss: the room for what they hold stays
    /// free, 0 keeps none [default: 1 from three nodes on]
    #[arg(long, value_name = "N")]
    pub(crate) departures: Option<u32>,
    /// Whom it lets in.
    #[command(flatten)]
    pub(crate) guard: Guard,
    /// What the manager inside does without a notice.
    #[command(flatten)]
    pub(crate) background: Background,
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
    /// A store that outlives the node, the same for all nodes that have one: `file:///directory` or
    /// `s3://bucket/prefix`, for which `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` and their kin are
    /// read from the environment
    #[arg(long, value_name = "URL", requires = "object_bytes")]
    pub(crate) object: Option<String>,
    /// Most bytes that this node puts there
    #[arg(long, value_name = "SIZE", requires = "object")]
    pub(crate) object_bytes: Option<Size>,
    /// Encrypt the disk tier and the object tier with the key in this file, that nobody else can
    /// read: 32 bytes as 64 hexadecimal digits or in base64 [default: they are not encrypted]
    #[arg(long, value_name = "KEYFILE")]
    pub(crate) encrypt: Option<PathBuf>,
    /// Send at most this many bytes per second, reads and pushes together: for several nodes on one
    /// machine [default: what the network takes]
    #[arg(long, value_name = "RATE")]
    pub(crate) egress_limit: Option<Rate>,
    /// Where clients on the same machine come in: the path of a Unix socket, or `none`; a node with
    /// --egress-limit has none [default: a new one that only this user can open]
    #[arg(long, value_name = "PATH")]
    pub(crate) local_socket: Option<String>,
    /// A user, by number, who may come in there beside this one, and read the memory for blocks;
    /// repeat it for more than one
    #[arg(long, value_name = "UID")]
    pub(crate) local_uid: Vec<u32>,
    /// How notices are met: the same for all servers of a cluster
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = PolicyName::Sanderling)]
    pub(crate) policy: PolicyName,
    /// Where to learn that the machine will be taken: aws, gcp, azure, file:PATH; repeat it for
    /// more than one [default: SIGTERM and POST /v1/notice only]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) notice_source: Vec<Source>,
    /// Where the cloud's metadata service is [default: the cloud's own address]
    #[arg(long, value_name = "URL", requires = "notice_source")]
    pub(crate) notice_url: Option<String>,
    /// Time between two looks at a source [default: 5s aws, 1s gcp and azure, 200ms file]
    #[arg(long, value_name = "DURATION", requires = "notice_source")]
    pub(crate) notice_poll: Option<Span>,
    /// Longest time of one call to a source
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub(crate) notice_call_within: Span,
    /// Time that is left after a notice that names no moment
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) notice_deadline: Span,
    /// When Azure is told that the machine may be taken before its time
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = AzureAcknowledge::Drained)]
    pub(crate) azure_acknowledge: AzureAcknowledge,
    /// The shortest notice that the cloud gives: what does not leave in it is copied before
    /// [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) notice_min: Option<Span>,
    /// What the network card may send, for the same reckoning [default: as measured]
    #[arg(long, value_name = "RATE")]
    pub(crate) egress: Option<Rate>,
    /// Compare blocks with their checksums unasked, at this many bytes per second, or `none`
    #[arg(long, value_name = "RATE", default_value = "32MiB")]
    pub(crate) scrub_rate: ScrubRate,
    /// Time between two block reports, which find garbage and files that somebody removed
    #[arg(long, value_name = "DURATION", default_value = "3m")]
    pub(crate) report_every: Span,
    /// How long tokens are let in after the namenode last said which were revoked
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub(crate) revocations_age_max: Span,
    /// On SIGTERM, move the data away for at most this long, then exit
    #[arg(long, value_name = "DURATION", default_value = "25s")]
    pub(crate) sigterm_deadline: Span,
    /// Whom it lets in.
    #[command(flatten)]
    pub(crate) guard: Guard,
    /// The process.
    #[command(flatten)]
    pub(crate) process: Process,
}

/// How fast blocks are scrubbed; `None` for not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScrubRate(pub(crate) Option<u64>);

impl FromStr for ScrubRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text {
            "none" => Ok(Self(None)),
            _ => text.parse::<Rate>().map(|rate| Self(Some(rate.0))),
        }
    }
}

/// How much memory a server takes; `None` for as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryMax(pub(crate) Option<u64>);

impl FromStr for MemoryMax {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text {
            "none" => Ok(Self(None)),
            _ => text.parse::<Size>().map(|size| Self(Some(size.0))),
        }
    }
}

/// A source of notices as the command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source(pub(crate) NoticeSource);

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(match text.split_once(':') {
            None if text == "aws" => NoticeSource::Aws,
            None if text == "gcp" => NoticeSource::Gcp,
            None if text == "azure" => NoticeSource::Azure,
            Some(("file", path)) if !path.is_empty() => NoticeSource::File(PathBuf::from(path)),
            _ => return Err("give aws, gcp, azure or file:PATH".to_owned()),
        }))
    }
}

/// When Azure is told that the machine may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AzureAcknowledge {
    /// When nothing has its home here any more.
    Drained,
    /// As soon as the namenode knows: the time left is given away.
    AtOnce,
    /// Never: the event starts at its own time.
    Never,
}

/// `sanderling manager`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Manager {
    /// Where to serve health and metrics, on loopback; `none` for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) http: String,
    /// The manager's name, for the events [default: manager-PID]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How notices are met: the same for all servers of a cluster
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = PolicyName::Sanderling)]
    pub(crate) policy: PolicyName,
    /// What it does without a notice.
    #[command(flatten)]
    pub(crate) background: Background,
    /// What it has.
    #[command(flatten)]
    pub(crate) held: Held,
    /// The process.
    #[command(flatten)]
    pub(crate) process: Process,
}
