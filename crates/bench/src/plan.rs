//! The command line with every default filled in, and what it refuses.

use std::sync::{Arc, OnceLock};

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, ValueEnum};
use sanderling_protocol::{Path, StorageClass};

use super::kinds::{BenchKind, Bytes, Depth, TYPES};
use super::work::Workload;
use crate::failure::Failure;
use crate::refused;
use crate::units::{Size, Span};

/// Look-ups of one operation without `--batch`: as many as the client sends in one frame
/// (`BATCH_MAX` of the core's `client`).
const BATCH: u32 = 128;

/// Files of the tree without `--paths`: more than one frame of look-ups has ([`BATCH`]), so a
/// repeated look-up is not that of the same frame. Chosen, not measured.
const PATHS: u64 = 10_000;

/// `sanderling bench`.
#[derive(Debug, Clone, Args)]
#[command(after_help = types_help())]
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

/// What is to be done.
#[derive(Debug)]
pub(super) struct BenchPlan {
    pub(super) kind: &'static BenchKind,
    pub(super) args: Bench,
    pub(super) depth: u32,
    /// The directory of this run.
    pub(super) own: Path,
    pub(super) load: Arc<Workload>,
}

impl BenchPlan {
    /// Fills the defaults in.
    ///
    /// # Errors
    /// Usage (2) for a flag that the type has no use for.
    pub(super) fn new(args: Bench) -> Result<Self, Failure> {
        let kind = BenchKind::named(&args.kind);
        let kind = kind.ok_or_else(|| Failure::usage(format_args!("no type {}", args.kind)))?;
        let size = match (kind.size, args.size) {
            (Bytes::None, None) => 0,
            (Bytes::Always(bytes), None) => bytes,
            (Bytes::Or(bytes), size) => size.map_or(bytes, |size| size.0),
            (Bytes::None | Bytes::Always(_), Some(_)) => return Err(no_use(kind, "--size")),
        };
        if size == 0 && kind.size != Bytes::None {
            return Err(Failure::usage("--size 0: an operation of no bytes measures nothing"));
        }
        let depth = match (kind.depth, args.depth) {
            (Depth::One, None | Some(1)) => 1,
            (Depth::One, Some(_)) => return Err(no_use(kind, "--depth")),
            (Depth::Workers(usual) | Depth::Window(usual), depth) => depth.unwrap_or(usual),
        };
        if (args.buffered || args.direct) && !kind.has_stream {
            return Err(no_use(kind, if args.buffered { "--buffered" } else { "--direct" }));
        }
        if args.batch.is_some() && !kind.is_batched {
            return Err(no_use(kind, "--batch"));
        }
        if args.paths.is_some() && !kind.has_tree {
            return Err(no_use(kind, "--paths"));
        }
        let batch = if kind.is_batched { args.batch.unwrap_or(BATCH) } else { 1 };
        // Two runs at once, or one that was killed, must not meet in one directory.
        let own = format!("{}-{}", kind.name, std::process::id());
        let own = refused::joined(&args.path, &own)?;
        let files = args.paths.unwrap_or(PATHS);
        let tree = match args.keep {
            true => refused::joined(&args.path, &format!("tree-{files}"))?,
            false => refused::joined(&own, "tree")?,
        };
        let load = Workload {
            size,
            batch,
            workers: if matches!(kind.depth, Depth::Workers(_)) { depth } else { 1 },
            operations: match args.duration {
                Some(_) => u64::MAX,
                None => args.warmup.saturating_add(args.count),
            },
            share: args.working_set.0 / u64::from(args.threads),
            is_buffered: args.buffered,
            class: args.class,
            tree,
            files,
            paths: OnceLock::new(),
        };
        Ok(Self { kind, args, depth, own, load: Arc::new(load) })
    }

    /// Returns how many writes of a writer may be under way.
    pub(super) const fn window(&self) -> u32 {
        match self.kind.depth {
            Depth::Window(_) => self.depth,
            Depth::One | Depth::Workers(_) => 1,
        }
    }

    /// Returns how the bytes travel, where there is a choice.
    pub(super) const fn stream(&self) -> Option<&'static str> {
        match (self.kind.has_stream, self.args.buffered) {
            (false, _) => None,
            (true, false) => Some("direct"),
            (true, true) => Some("buffered"),
        }
    }
}

fn no_use(kind: &BenchKind, flag: &str) -> Failure {
    Failure::usage(format_args!("{} has no use for {flag}", kind.name))
        .next("sanderling bench --help")
}

/// The types, by their names and by those that Apache Crail's iobench gives them.
fn types() -> PossibleValuesParser {
    let named = TYPES.iter().map(|kind| {
        let value = PossibleValue::new(kind.name);
        if kind.crail.is_empty() { value } else { value.alias(kind.crail) }
    });
    PossibleValuesParser::new(named)
}

/// Describes every type, for the help text.
fn types_help() -> String {
    let line = |kind: &BenchKind| format!("  {:<22} {}", kind.name, kind.about);
    let lines: Vec<String> = TYPES.iter().map(line).collect();
    format!("Types:\n{}", lines.join("\n"))
}
