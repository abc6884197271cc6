//! The figures that need no fleet: they are computed from models, prices and limits.

pub(crate) mod bags;
pub(crate) mod checkpoint;
pub(crate) mod figure2;
pub(crate) mod figure6;
pub(crate) mod figure7;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::page::Section;
use crate::page::csv::Csv;

/// Returns arguments as they are where no flag was given.
pub(crate) fn defaults<A: Args>() -> A {
    let command = A::augment_args(clap::Command::new("defaults"));
    let matches = command.try_get_matches_from(["defaults"]).expect("nothing is required");
    A::from_arg_matches(&matches).expect("defaults are understood")
}

/// Where a figure goes, beside stdout.
#[derive(Debug, Clone, Args)]
pub(crate) struct Written {
    /// Also write the figure into this directory, as an HTML page, CSV and JSON
    #[arg(long = "out", value_name = "D")]
    pub(crate) directory: Option<PathBuf>,
}

/// A figure in all its forms but the page's.
pub(crate) trait Figure: Serialize {
    /// The names of its files.
    const NAME: &'static str;

    /// Writes it for people.
    ///
    /// # Errors
    /// The writer's.
    fn write(&self, writer: &mut dyn Write) -> io::Result<()>;

    /// Returns its rows for spreadsheets.
    fn csv(&self) -> Csv;

    /// Returns the part of a page that shows it.
    fn section(&self) -> Section;
}
