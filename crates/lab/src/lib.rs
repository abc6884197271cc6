//! `sanderling lab`: real processes behind shaped links are preempted, and what that costs is
//! measured. Beside it, what stands in for the world: [`sim`], the simulated one, and [`mock`], the
//! clouds' metadata services.

mod checkpoints;
mod experiment;
mod figures;
mod fleet;
mod measure;
pub mod mock;
mod own_cluster;
mod page;
mod plan;
mod print_trace;
mod record;
mod report;
pub mod sim;
mod trace;
mod workload;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sanderling_command::global::Global;
use sanderling_command::{
    child, failure, global, output, policy, process, progress, ready, refused, server, session,
    units,
};

use crate::failure::{Exit, Failure, FailureKind};
use crate::output::Output;
use figures::{Figure, checkpoint, defaults, figure2, figure6, figure7};
use page::run::Computed;
use plan::Options;
use print_trace::TraceArgs;
use record::{ExperimentKind, LabRecord};

/// `sanderling lab`.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Read long-lived data at random, with and without preemptions (figures 3 and 4)
    Read(Options),
    /// Write short-lived data, with and without preemptions (figures 3 and 4)
    Write(Options),
    /// Read around one notice to one of two nodes, and watch the bandwidth (figure 5)
    Notice(Options),
    /// Give random notices to nodes that hold three times what a notice lets them move
    Exposure(Options),
    /// Read, write and notice, with all figures on one page
    All(Options),
    /// How long spot machines live: preemption models, and the data they were fitted to
    Figure2(figure2::Figure2Args),
    /// What a fleet costs on demand and on spot machines
    Figure6(figure6::Figure6Args),
    /// Which instance sizes fit which notice, with and without the exposure bound
    Figure7(figure7::Figure7Args),
    /// How often a task dumps its state, what a notice holds, and what 30 days of checkpoints cost
    Checkpoint(checkpoint::CheckpointArgs),
    /// Be a task whose checkpoints are measured.
    #[command(hide = true)]
    CheckpointTask(checkpoints::writer::CheckpointTask),
    /// Draw a trace of preemptions for other experiments: which machine is taken when
    Trace(TraceArgs),
    /// Write the page of an earlier run anew from its records
    Page(LabPage),
}

/// `sanderling lab page`.
#[derive(Debug, Args)]
pub struct LabPage {
    /// The directory of the run, with its lab.json
    #[arg(value_name = "D")]
    pub(crate) directory: PathBuf,
    /// Recorded lifetimes to show beside the models, as for figure2
    #[arg(long, value_name = "FILE")]
    pub(crate) lifetimes: Option<PathBuf>,
}

/// Runs one command of the lab.
///
/// # Errors
/// A file cannot be read or written, or is not of its format: end the command with the failure,
/// which names the file.
pub fn run(global: &Global, command: Lab) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet, task: None };
    let measure = |kinds: &[ExperimentKind], options| {
        session::run(global, |session| measure::run(session, kinds, options))
    };
    match command {
        Lab::Read(options) => measure(&[ExperimentKind::Read], options),
        Lab::Write(options) => measure(&[ExperimentKind::Write], options),
        Lab::Notice(options) => measure(&[ExperimentKind::Notice], options),
        Lab::Exposure(options) => measure(&[ExperimentKind::Exposure], options),
        Lab::All(options) => {
            measure(&[ExperimentKind::Read, ExperimentKind::Write, ExperimentKind::Notice], options)
        }
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
        Lab::Checkpoint(arguments) if arguments.measure.measure => {
            let (measure, out) = (arguments.measure, arguments.written.directory);
            session::run(global, |session| async move {
                let measured = checkpoints::measured(&session, &measure).await?;
                show(session.output, &measured, out.as_deref())
            })
        }
        Lab::Checkpoint(arguments) => {
            let figure = checkpoint::compute(&arguments)?;
            show(output, &figure, arguments.written.directory.as_deref())
        }
        Lab::CheckpointTask(arguments) => checkpoints::writer::run(&arguments),
        Lab::Trace(arguments) => print_trace::print(output, &arguments),
        Lab::Page(arguments) => {
            let lab = read(&arguments.directory.join("lab.json"))?;
            let path = write_page(&lab, &arguments.directory, arguments.lifetimes.as_deref())?;
            output.note(format_args!("wrote {}", path.display()));
            Ok(())
        }
    }
}

/// Writes the page of a run and the figures that go with it; returns the page's path.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn write_page(
    lab: &LabRecord,
    directory: &Path,
    lifetimes: Option<&Path>,
) -> Result<PathBuf, Failure> {
    let models = lab.setup.model.parse().ok().filter(figure2::can_load).into_iter().collect();
    let lifetimes = lifetimes.map(Path::to_owned);
    let figure2 = figure2::Figure2Args { lifetimes, models, ..defaults() };
    let computed = Computed {
        figure2: figure2::compute(&figure2)?,
        figure6: figure6::compute(&defaults(), Some(lab)),
        figure7: figure7::compute(&defaults()),
    };
    page::run::save(lab, &computed, directory)
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
    let text = std::fs::read(path).map_err(|error| Failure::file(path, error))?;
    serde_json::from_slice(&text).map_err(|error| {
        let cause = format!("{} holds no records of the lab: {error}", path.display());
        Failure::new(Exit::Failure, FailureKind::LabRecord, cause)
    })
}
