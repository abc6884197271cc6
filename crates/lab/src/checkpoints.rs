//! `sanderling lab checkpoint --measure`: the experiments of Teylo, Brum, Arantes, Sens and
//! Drummond ("Developing Checkpointing and Recovery Procedures with the Storage Services of Amazon
//! Web Services", SRMPDS 2020) with real tasks, emulated stores and a real one, their policy and
//! ours.

mod cases;
pub(crate) mod figure;
pub(crate) mod measure_args;
mod obstacle;
mod pace;
mod processes;
mod real_store;
pub(crate) mod record;
mod recovery;
pub(crate) mod refusals;
pub(crate) mod stage;
mod store;
pub(crate) mod writer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{Exit, Failure};
use crate::session::Session;
use crate::units;
use cases::{Bench, CasePlan};
use figure::{MeasuredCheckpoints, MeasuredSetup};
use measure_args::MeasureArgs;
use real_store::{CLEAR_TIMEOUT, RealStore};
use record::{MeasuredSample, compare_with_run};
use stage::Driver;
use writer::WriterKind;

/// Numbers of tasks that dump at once: those of the authors (slide 17), with a machine for each.
const TASKS: &[u32] = &[1, 2, 4, 6];

/// The writers of runs.
const RUNS: &[WriterKind] = &[WriterKind::Dense, WriterKind::Sparse];

/// How long an interrupted measurement may take until nothing of it is left in a real store: it is
/// removed twice (`LATE_REQUESTS` of `real_store`).
const CLEAN_UP: Duration = CLEAR_TIMEOUT.saturating_mul(2);

/// Measures everything, and returns it when all of it is measured. It is polled on the program's
/// main thread, with which its servers die.
///
/// # Errors
/// Usage (2); a real store that cannot be used, or is not empty; a server or task that fails; a
/// restored byte that is another one (5).
pub(crate) async fn measured(
    session: &Session,
    args: &MeasureArgs,
) -> Result<MeasuredCheckpoints, Failure> {
    let plan = plan(args)?;
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { 5 });
    let directory = LabDirectory::new();
    let real = match &args.store {
        Some(url) => Some(RealStore::open(url).await?),
        None => None,
    };
    if real.is_some() {
        session.clean_up_within(CLEAN_UP);
    }
    let measured = tokio::select! {
        measured = all_measured(session, (&plan, rounds), &directory.0, real.as_ref()) => measured,
        // Its servers and tasks have ended by now. The session has the reason.
        () = session.ended.cancelled() => Err(Failure::silent(Exit::Interrupted)),
    };
    if let Some(real) = &real
        && let Err(failure) = real.clear_finally().await
    {
        session.output.note(failure.cause);
    }
    measured
}

/// Returns which cases the options select.
///
/// # Errors
/// Usage (2).
fn plan(args: &MeasureArgs) -> Result<CasePlan, Failure> {
    let default: &[u64] = if args.quick { &[16] } else { &[140, 546, 1024] };
    let mut sizes: Vec<u64> = args.sizes.iter().map(|size| size.0).collect();
    if sizes.is_empty() {
        sizes.extend(default.iter().map(|megabytes| megabytes * 1_000_000));
    }
    let scale = args.scale.unwrap_or(if args.quick { 200.0 } else { 20.0 });
    if !(1.0..=1000.0).contains(&scale) || !sizes.is_sorted() {
        return Err(Failure::usage(
            "--scale is from 1 to 1000, and --sizes has the smallest first",
        )
        .next("sanderling lab checkpoint --measure --quick"));
    }
    let (tasks, runs) = if args.quick { (&TASKS[1..2], &RUNS[..1]) } else { (TASKS, RUNS) };
    Ok(CasePlan { sizes, tasks, runs, scale, has_real_store: args.store.is_some() })
}

async fn all_measured(
    session: &Session,
    (plan, rounds): (&CasePlan, u32),
    directory: &Path,
    real: Option<&RealStore>,
) -> Result<MeasuredCheckpoints, Failure> {
    let driver = stage::usable_driver(directory)?;
    if driver == Driver::Hook {
        session.output.note("CRIU cannot be used here: the tasks write their states themselves");
    }
    let real = match real {
        Some(store) => Some(store.rated().await?),
        None => None,
    };
    let setup = MeasuredSetup::here(driver, (rounds, plan.scale), real);
    let place = directory.join("s");
    let refused = refusals::tried(&place, driver).await?;
    let bench = Bench { directory: &place, driver, scale: plan.scale, real };
    let samples = samples(session, &bench, &plan.cases(), rounds).await?;
    Ok(MeasuredCheckpoints::of(setup, samples, refused))
}

/// Measures all cases in each round.
async fn samples(
    session: &Session,
    bench: &Bench<'_>,
    all: &[record::Case],
    rounds: u32,
) -> Result<Vec<MeasuredSample>, Failure> {
    let mut samples = Vec::new();
    for round in 0..rounds {
        // The policies alternate in being first.
        for pair in all.chunks(2) {
            let mut pair = pair.to_vec();
            if round % 2 == 1 {
                pair.reverse();
            }
            for case in pair {
                let begun = std::time::Instant::now();
                let mut values = bench.measure(case).await?;
                compare_with_run(&mut values, (case, round), &samples);
                samples.push(MeasuredSample { case, round, values });
                if let Some(real) = bench.real {
                    real.store.clear().await?;
                }
                let (at, of) = (samples.len(), all.len() * rounds as usize);
                let took = units::duration(begun.elapsed());
                session.output.note(format_args!("{at} of {of}: {}: {took}", case.name()));
            }
        }
    }
    // The first round may have begun with either one.
    samples.sort_by_key(|sample| {
        let at = all.iter().position(|case| *case == sample.case);
        (at, sample.round)
    });
    Ok(samples)
}

/// A directory of this process alone, which is removed in the end. Its names are short: CRIU's
/// socket is in it, whose path has 107 bytes at most.
struct LabDirectory(PathBuf);

impl LabDirectory {
    fn new() -> Self {
        let name = format!("lab-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for LabDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
