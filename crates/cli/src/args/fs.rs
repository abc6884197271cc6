//! `sanderling fs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sanderling_protocol::{Path, StorageClass};

use crate::units::Span;

/// Work with objects.
#[derive(Debug, Subcommand)]
pub(crate) enum Fs {
    /// List a directory, multifile or table
    Ls(Ls),
    /// Store a local file, a directory (-r) or stdin (-)
    Put(Put),
    /// Fetch an object into a local file or to stdout (-)
    Get(Get),
    /// Write objects to stdout, one after the other
    Cat(Cat),
    /// Delete objects
    Rm(Rm),
    /// Make a directory, multifile or table
    Mkdir(Mkdir),
    /// Rename an object, or a directory with everything in it, at once
    Mv(Mv),
    /// Show the facts about an object
    Stat(Paths),
    /// Show or change what is kept beside an object's bytes
    Attr(Attr),
    /// Make one file of others, which are gone then, without moving a byte
    Concat(Concat),
    /// Sum up what subtrees hold
    Du(Du),
    /// Show the room left on the nodes
    Df,
    /// Draw a subtree
    Tree(Tree),
}

/// `fs ls`.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// What to list
    #[arg(default_value = "/")]
    pub(crate) path: Path,
    /// Show kind, size and time
    #[arg(short)]
    pub(crate) long: bool,
    /// List what is inside, too, at any depth
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

/// How objects are stored.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Storing {
    /// Replace what has the name; readers see the old object until the new one is complete
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Make missing directories above it
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// The storage class: dram or disk, then :fall-through, :wait or :refuse
    #[arg(long, value_name = "CLASS", default_value = "dram")]
    pub(crate) class: StorageClass,
    /// Delete it after this long
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<Span>,
}

/// `fs put`.
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// A local file or directory; - for stdin
    #[arg(required = true, value_name = "LOCAL")]
    pub(crate) sources: Vec<PathBuf>,
    /// The object; with several sources, or when it is a directory, they go into it
    #[arg(value_name = "PATH")]
    pub(crate) to: Path,
    /// Store directories with what is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep this text beside the bytes of each; may be repeated
    #[arg(long, value_name = "NAME=TEXT", value_parser = attribute)]
    pub(crate) attribute: Vec<(String, String)>,
    /// How to store them.
    #[command(flatten)]
    pub(crate) storing: Storing,
}

/// `fs get`.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The object
    pub(crate) path: Path,
    /// The local file or directory; - for stdout; by default the object's name here
    pub(crate) to: Option<PathBuf>,
    /// Fetch directories with what is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Overwrite local files
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `fs cat`.
#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// The objects; a multifile is read as one stream
    #[arg(required = true)]
    pub(crate) paths: Vec<Path>,
    /// Start at this byte
    #[arg(long, default_value_t = 0)]
    pub(crate) offset: u64,
    /// Write at most this many bytes of each
    #[arg(long)]
    pub(crate) bytes: Option<u64>,
}

/// `fs rm`.
#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// The objects
    #[arg(required = true)]
    pub(crate) paths: Vec<Path>,
    /// Delete directories with what is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Accept that an object does not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Say what would be deleted and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Agree to delete everything: needed for /
    #[arg(long)]
    pub(crate) yes: bool,
}

/// `fs mkdir`.
#[derive(Debug, Args)]
pub(crate) struct Mkdir {
    /// The directories
    #[arg(required = true)]
    pub(crate) paths: Vec<Path>,
    /// Make missing directories above, and accept that it exists
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// What to make
    #[arg(long, value_enum, default_value_t = ContainerKind::Directory)]
    pub(crate) kind: ContainerKind,
}

/// What `fs mkdir` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ContainerKind {
    /// Holds objects of any kind
    Directory,
    /// Holds parts, read as one stream
    Multifile,
    /// Holds key-values
    Table,
}

/// `fs mv`.
#[derive(Debug, Args)]
pub(crate) struct Mv {
    /// The old name
    pub(crate) from: Path,
    /// The new name; into it when it is a directory
    pub(crate) to: Path,
    /// Replace a file of that name
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `fs attr`.
#[derive(Debug, Args)]
pub(crate) struct Attr {
    /// The object
    pub(crate) path: Path,
    /// Texts to set; without any, and without --remove, they are shown
    #[arg(value_name = "NAME=TEXT", value_parser = attribute)]
    pub(crate) set: Vec<(String, String)>,
    /// Take the text of this name out; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) remove: Vec<String>,
}

/// Reads `name=text`.
fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, text)) if !name.is_empty() => Ok((name.to_owned(), text.to_owned())),
        _ => Err("an attribute is written NAME=TEXT".to_owned()),
    }
}

/// `fs concat`.
#[derive(Debug, Args)]
pub(crate) struct Concat {
    /// The parts, in their order: sealed files longer than 512 bytes, but for the first
    #[arg(required = true, value_name = "PART")]
    pub(crate) parts: Vec<Path>,
    /// The new file
    #[arg(value_name = "PATH")]
    pub(crate) to: Path,
    /// Replace what has the name
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Make missing directories above it
    #[arg(short, long)]
    pub(crate) parents: bool,
}

/// Some objects.
#[derive(Debug, Args)]
pub(crate) struct Paths {
    /// The objects
    #[arg(required = true)]
    pub(crate) paths: Vec<Path>,
}

/// `fs du`.
#[derive(Debug, Args)]
pub(crate) struct Du {
    /// The subtrees
    #[arg(default_value = "/")]
    pub(crate) paths: Vec<Path>,
}

/// `fs tree`.
#[derive(Debug, Args)]
pub(crate) struct Tree {
    /// The subtree
    #[arg(default_value = "/")]
    pub(crate) path: Path,
    /// Go at most this deep
    #[arg(long, short = 'L', value_name = "LEVELS")]
    pub(crate) depth: Option<usize>,
}
