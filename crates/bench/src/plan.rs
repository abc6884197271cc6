//! The command line with every default filled in, and what it refuses.

use std::sync::{Arc, OnceLock};

use sanderling_protocol::Path;

use super::error::BenchError;
use super::kinds::{Bytes, Depth, Kind};
use super::tree;
use crate::args::bench::Bench;
use crate::failure::Failure;
use crate::refused;

/// Look-ups of one operation.
const BATCH: u32 = 128;

/// Files of the tree.
const PATHS: u64 = 10_000;

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) kind: &'static Kind,
    pub(super) args: Bench,
    /// Bytes of one operation; 0 where it moves none.
    pub(super) size: u64,
    pub(super) depth: u32,
    /// Things of one operation.
    pub(super) batch: u32,
    /// The directory of this run.
    pub(super) own: Path,
    /// The directory of the files that are looked up.
    pub(super) tree: Path,
    paths: OnceLock<Arc<Vec<Path>>>,
}

impl Plan {
    /// Fills the defaults in.
    ///
    /// # Errors
    /// Usage (2) for a flag that the type has no use for.
    pub(super) fn new(args: Bench) -> Result<Self, Failure> {
        let kind = Kind::named(&args.kind);
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
            (Depth::Lanes(usual) | Depth::Window(usual), depth) => depth.unwrap_or(usual),
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
        let own = directory(&args.path, &format!("{}-{}", kind.name, std::process::id()))?;
        let tree = match args.keep {
            true => directory(&args.path, &format!("tree-{}", args.paths.unwrap_or(PATHS)))?,
            false => directory(&own, "tree")?,
        };
        Ok(Self { kind, args, size, depth, batch, own, tree, paths: OnceLock::new() })
    }

    /// Returns how many operations at once are lanes, each with a state of its own.
    pub(super) const fn lanes(&self) -> u32 {
        match self.kind.depth {
            Depth::Lanes(_) => self.depth,
            Depth::One | Depth::Window(_) => 1,
        }
    }

    /// Returns how many writes of a writer may be under way.
    pub(super) const fn window(&self) -> u32 {
        match self.kind.depth {
            Depth::Window(_) => self.depth,
            Depth::One | Depth::Lanes(_) => 1,
        }
    }

    /// Returns how many operations a thread does; `u64::MAX` when time ends it.
    pub(super) fn operations(&self) -> u64 {
        match self.args.duration {
            Some(_) => u64::MAX,
            None => self.args.warmup.saturating_add(self.args.count),
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

    /// Returns how many files the tree has.
    pub(super) fn files(&self) -> u64 {
        self.args.paths.unwrap_or(PATHS)
    }

    /// Returns the paths that are looked up, the same for all threads.
    pub(super) fn paths(&self) -> Result<Arc<Vec<Path>>, BenchError> {
        if let Some(paths) = self.paths.get() {
            return Ok(Arc::clone(paths));
        }
        let paths = tree::mixed(&self.tree, self.files(), self.batch)?;
        Ok(Arc::clone(self.paths.get_or_init(|| Arc::new(paths))))
    }
}

fn directory(above: &Path, name: &str) -> Result<Path, Failure> {
    above.join(name).map_err(|refusal| refused::refusal_failure(&refusal))
}

fn no_use(kind: &Kind, flag: &str) -> Failure {
    Failure::usage(format_args!("{} has no use for {flag}", kind.name))
        .next(format_args!("the same without {flag}, or sanderling bench --help"))
}
