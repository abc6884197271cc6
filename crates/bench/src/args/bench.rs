//! `sanderling bench`.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueEnum};
use sanderling_protocol::{Path, StorageClass};

use crate::kinds::TYPES;
use crate::units::{Size, Span};

/// `sanderling bench`.
#[derive(Debug, Clone, Args)]
#[command(after_help = crate::types_help())]
pub(crate) struct Bench {
    /// What to measure
    #[arg(value_name = "TYPE", hide_possible_values = true, value_parser = types())]
    pub(crate) kind: String,
    /// Bytes of one operation (a write, a read, a value) [default: the type's]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<Size>,
    /// Operations of each thread
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    /// Measure for this long instead of a number of operations
    #[arg(long, value_name = "DURATION", conflicts_with = "count")]
    pub(crate) duration: Option<Span>,
    /// Operations of each thread before the measurement
    #[arg(long, default_value_t = 100)]
    pub(crate) warmup: u64,
    /// Operations in flight of each thread [default: the type's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) depth: Option<u32>,
    /// Threads, each with a client and objects of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) threads: u32,
    /// One client for all threads, which are tasks then
    #[arg(long)]
    pub(crate) share_client: bool,
    /// Every write and read goes to the datanode by itself; so it is unless --buffered
    #[arg(long, conflicts_with = "buffered")]
    pub(crate) direct: bool,
    /// Writes and reads go through a buffer, where the type has a stream
    #[arg(long)]
    pub(crate) buffered: bool,
    /// Whether bytes that arrive are held against their checksums
    #[arg(
        long,
        value_name = "on|off",
        value_enum,
        default_value = "on",
        hide_possible_values = true
    )]
    pub(crate) checksums: Switch,
    /// Bytes go over TCP also where a datanode is on this machine
    #[arg(long)]
    pub(crate) no_same_host: bool,
    /// Things of one operation of the types for many [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub(crate) batch: Option<u32>,
    /// Files of lookup-many's tree [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) paths: Option<u64>,
    /// Bytes that all threads together prepare to read, or keep of what they write
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    pub(crate) working_set: Size,
    /// Keep this process on one core
    #[arg(long, value_name = "CPU", value_parser = clap::value_parser!(u16).range(..1024))]
    pub(crate) pin: Option<u16>,
    /// The namenode's HTTP address, for its CPU time
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) namenode_http: Option<String>,
    /// Print every latency with how often it was met
    #[arg(long)]
    pub(crate) histogram: bool,
    /// The directory in the store that is filled and deleted
    #[arg(long, default_value = "/bench")]
    pub(crate) path: Path,
    /// The storage class
    #[arg(long, value_name = "CLASS", default_value = "dram")]
    pub(crate) class: StorageClass,
    /// Keep what was written
    #[arg(long)]
    pub(crate) keep: bool,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// The types, by their names and by those that Apache Crail's iobench gives them.
fn types() -> PossibleValuesParser {
    let named = TYPES.iter().map(|kind| {
        let value = PossibleValue::new(kind.name);
        if kind.crail.is_empty() { value } else { value.alias(kind.crail) }
    });
    PossibleValuesParser::new(named)
}
