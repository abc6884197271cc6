//! `sanderling bench`.

use clap::Args;
use clap::builder::PossibleValuesParser;
use sanderling_protocol::{Path, StorageClass};

use crate::bench::TYPES;
use crate::units::Size;

/// `sanderling bench`.
#[derive(Debug, Clone, Args)]
#[command(after_help = crate::bench::types_help())]
pub(crate) struct Bench {
    /// What to measure
    #[arg(value_name = "TYPE", hide_possible_values = true,
          value_parser = PossibleValuesParser::new(TYPES.iter().map(|kind| kind.name)))]
    pub(crate) kind: String,
    /// Bytes of one operation (a write, a read, a value)
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    pub(crate) size: Size,
    /// Operations of each thread
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: u64,
    /// Operations in flight of each thread, where the type is asynchronous
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) depth: u32,
    /// Threads, each with its own objects
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// Operations of each thread before the measurement
    #[arg(long, default_value_t = 10)]
    pub(crate) warmup: u64,
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
