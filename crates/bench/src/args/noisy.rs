//! `sanderling bench noisy`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sanderling_protocol::Path;
use serde::Serialize;

/// `sanderling bench noisy`.
#[derive(Debug, Clone, Args)]
#[command(after_help = hogs_help())]
pub(crate) struct Noisy {
    /// Seconds of each phase: the tenant alone, beside each hog, and alone again
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// The hogs, one after the other in this order [default: all]
    #[arg(
        long = "hog",
        value_name = "KIND,...",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub(crate) hogs: Vec<HogKind>,
    /// A file with the hogs' token, so that they are another tenant [default: the tenant's own]
    #[arg(long, value_name = "FILE")]
    pub(crate) hog_token_file: Option<PathBuf>,
    /// Names in the directory that hogs list; hog delete has one with five times as many
    #[arg(long, value_name = "N", default_value_t = 20_000,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) entries: u64,
    /// The namenode's HTTP address, for hog followers
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) namenode_http: Option<String>,
    /// The directory in the store that is filled and deleted
    #[arg(long, default_value = "/bench")]
    pub(crate) path: Path,
    /// The same for the hogs, where their token allows no other [default: that of --path]
    #[arg(long, value_name = "PATH")]
    pub(crate) hog_path: Option<Path>,
}

/// What a hog does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HogKind {
    /// What the whole tree holds: frames of 512, pipelined
    Usage,
    /// Pages of the directory with attributes: frames of 512, pipelined
    ListAttributes,
    /// Two clients that list the directory page by page
    List,
    /// Metadata of one object each: frames of 512, 16 in flight on each of 4 connections
    StatFrames,
    /// Values made: frames of 512, 16 in flight on each of 4 connections
    CreateFrames,
    /// The catalog checked against itself, again and again
    Fsck,
    /// A directory of many names, made and deleted again and again
    Delete,
    /// 64 connections to a datanode that request 1 MiB reads and never read the answers
    Deaf,
    /// A reader on the datanode's machine that keeps its leases
    Leases,
    /// 1500 followers of events over HTTP
    Followers,
    /// 10,000 connections to the namenode that send nothing
    Connections,
}

/// Describes every hog, for the help text.
fn hogs_help() -> String {
    let line = |kind: &HogKind| {
        let value = kind.to_possible_value().expect("no kind is skipped");
        let about = value.get_help().map(ToString::to_string).unwrap_or_default();
        format!("  {:<16} {about}", value.get_name())
    };
    let lines: Vec<String> = HogKind::value_variants().iter().map(line).collect();
    format!("Hogs:\n{}", lines.join("\n"))
}

impl HogKind {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("no kind is skipped");
        value.get_name().to_owned()
    }

    /// Tells whether it needs the directory of many names.
    pub(crate) const fn lists(self) -> bool {
        matches!(
            self,
            Self::Usage | Self::ListAttributes | Self::List | Self::StatFrames | Self::Fsck
        )
    }
}
