//! The figures that need no fleet: they are computed from models, prices and limits.

pub(crate) mod figure2;
pub(crate) mod figure6;
pub(crate) mod figure7;

use std::io::{self, Write};

use serde::Serialize;

use crate::page::Section;
use crate::page::csv::Csv;

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
