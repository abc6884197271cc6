//! `sanderling lab`: real processes behind shaped links are preempted, and what that costs is
//! measured.

mod experiment;
mod figures;
mod fleet;
mod measure;
mod page;
mod plan;
pub(crate) mod record;
mod report;
mod trace;
mod workload;

use std::path::Path;

use crate::args::Global;
use crate::args::lab::Lab;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::session;
use figures::{Figure, figure2, figure6, figure7};
use record::{Kind, LabRecord};

/// Runs one command of the lab.
///
/// # Errors
/// A file cannot be read or written, or is not of its format.
pub(crate) fn run(global: &Global, command: Lab) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet };
    let measure = |kinds: &[Kind], options| {
        session::run(global, |session| measure::run(session, kinds, options))
    };
    match command {
        Lab::Read(options) => measure(&[Kind::Read], options),
        Lab::Write(options) => measure(&[Kind::Write], options),
        Lab::Notice(options) => measure(&[Kind::Notice], options),
        Lab::All(options) => measure(&[Kind::Read, Kind::Write, Kind::Notice], options),
        Lab::Figure2(arguments) => {
            let figure = figure2::compute(&arguments)?;
            show(output, &figure, arguments.written.directory.as_deref())
        }
        Lab::Figure6(arguments) => {
            let record = arguments.record.as_deref().map(read).transpose()?;
            let figure = figure6::compute(&arguments, record.as_ref());
            show(output, &figure, arguments.written.directory.as_deref())
        }
        Lab::Figure7(arguments) => {
            let figure = figure7::compute(&arguments);
            show(output, &figure, arguments.written.directory.as_deref())
        }
    }
}

/// Prints a figure, and writes its files if there is a directory for them.
fn show<F: Figure>(output: Output, figure: &F, directory: Option<&Path>) -> Result<(), Failure> {
    output.result(figure, |writer| figure.write(writer))?;
    let Some(directory) = directory else { return Ok(()) };
    page::write_figure(figure, directory)?;
    output.note(format_args!("wrote {}", directory.join(F::NAME).with_extension("html").display()));
    Ok(())
}

/// Reads the records of a run.
fn read(path: &Path) -> Result<LabRecord, Failure> {
    let text = std::fs::read(path).map_err(|error| Failure::file(path, &error))?;
    serde_json::from_slice(&text).map_err(|error| {
        let cause = format!("{} holds no records of the lab: {error}", path.display());
        Failure::new(Exit::Failure, "LabRecord", cause)
    })
}
