//! The seeded world in which the decisions of `core` are proved.

mod broken;
mod options;
mod run;

pub use broken::{Broken, UnknownBroken};
pub use options::{Options, Outcome, Statistics, Violation};
pub use run::{run, run_many};
