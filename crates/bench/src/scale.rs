//! `sanderling bench scale`: what one namenode carries.
//!
//! A namenode runs in a process of its own; datanodes that hold no bytes speak to it as real ones
//! do. What is measured is the namenode's: its processor time, memory, journal, and how long its
//! answers take. Cost per unit must not grow with the number of units.

mod create_seal;
mod datanode_stub;
mod fill;
mod fleet;
mod namenode;
mod phases;
mod probe;
mod record;
mod report;
mod requests;

use std::path::{Path, PathBuf};

use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::units::{Percent, Span};

use clap::Args;
pub(super) use create_seal::{CreateSeal, run as run_create_seal};
use record::Point;

/// `sanderling bench scale`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Scale {
    /// Objects of the catalog; each number is measured with each number of nodes
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "10000,100000",
          value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub(crate) objects: Vec<u64>,
    /// Datanodes that register, send heartbeats and report their blocks
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "16",
          value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub(crate) nodes: Vec<u32>,
    /// Share of the objects that are values in the catalog; the others are files of one block
    #[arg(long, value_name = "PERCENT", default_value = "20%")]
    pub(crate) values: Percent,
    /// Time of each phase that is measured for a time
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub(crate) phase: Span,
    /// How often the cost of one unit may be that of the cheapest before it is called super-linear
    #[arg(long, value_name = "FACTOR", default_value_t = 4.0)]
    pub(crate) factor: f64,
    /// Where catalogs and logs are kept meanwhile [default: a directory for temporary files]
    #[arg(long = "dir", value_name = "D")]
    pub(crate) directory: Option<PathBuf>,
}

/// Measures every point and prints the table.
///
/// # Errors
/// The namenode's that does not start, or the first request that was refused.
pub(super) async fn run(session: Session, args: Scale) -> Result<(), Failure> {
    let place = RunDirectory::make(args.directory.as_deref())?;
    let mut points: Vec<Point> = Vec::new();
    for (at, (objects, nodes)) in grid(&args).enumerate() {
        session.output.note(format_args!("{objects} objects, {nodes} nodes"));
        let directory = place.0.join(format!("point-{at}"));
        let point = tokio::select! {
            point = phases::measure(&session, &args, (objects, nodes), &directory) => point?,
            () = session.ended.cancelled() => {
                let tried = format!("a measurement of {objects} objects and {nodes} nodes");
                return Err(Failure::silent(Exit::Interrupted).tried(tried));
            }
        };
        // The next catalog finds the disk as this one did.
        std::fs::remove_dir_all(&directory).map_err(|error| Failure::file(&directory, error))?;
        points.push(point);
    }
    report::print(&session, &args, points)
}

fn grid(args: &Scale) -> impl Iterator<Item = (u64, u32)> + '_ {
    args.objects.iter().flat_map(|objects| args.nodes.iter().map(|nodes| (*objects, *nodes)))
}

/// The directory of a run, deleted when it ends.
struct RunDirectory(PathBuf);

impl RunDirectory {
    fn make(directory: Option<&Path>) -> Result<Self, Failure> {
        let name = format!("sanderling-scale-{}", std::process::id());
        let path = directory.map_or_else(std::env::temp_dir, Path::to_owned).join(name);
        std::fs::create_dir_all(&path).map_err(|error| Failure::file(&path, error))?;
        Ok(Self(path))
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // Nothing can be done about one that stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
