//! What measures the product or stands in for the world around it: crates of their own, which a
//! build without the feature `measure` leaves out (`measure_absent.rs`).

use clap::Subcommand;
use sanderling_bench::Benches;
use sanderling_lab::Lab;
use sanderling_lab::mock::{self, MockMetadata};
use sanderling_lab::sim::{self, Sim};

use crate::failure::Failure;
use crate::global::Global;
use crate::session;

/// The text of a build with all commands about the others.
pub(crate) const ABOUT: &str = "";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Measure {
    /// Measure the store
    Bench(Benches),
    /// Run the cluster's decisions in a simulated, faulty world
    Sim(Sim),
    /// Experiments: what preemptions cost, the figures of the paper
    #[command(subcommand)]
    Lab(Lab),
    /// Serve the metadata services of clouds, to rehearse notices
    MockMetadata(MockMetadata),
}

impl Measure {
    /// Returns whether it connects to a cluster that runs already. The others call none, or one
    /// that they start.
    pub(crate) const fn uses_cluster(&self) -> bool {
        matches!(self, Self::Bench(args) if args.uses_cluster())
    }
}

/// Runs one of them.
///
/// # Errors
/// The command's.
pub(crate) fn run(global: &Global, command: Measure) -> Result<(), Failure> {
    match command {
        Measure::Bench(args) => sanderling_bench::main(global, args),
        Measure::Sim(args) => {
            let global = global.clone();
            session::run_blocking(move || sim::run(&global, args))
        }
        Measure::Lab(command) => sanderling_lab::run(global, command),
        Measure::MockMetadata(args) => mock::run(global, args),
    }
}
