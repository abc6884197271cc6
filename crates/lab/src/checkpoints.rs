//! `sanderling lab checkpoint --measure`: the experiments of Teylo, Brum, Arantes, Sens and
//! Drummond ("Developing Checkpointing and Recovery Procedures with the Storage Services of Amazon
//! Web Services", SRMPDS 2020) with real tasks and emulated stores, their policy and ours.

mod cases;
pub(crate) mod figure;
pub(crate) mod measure_args;
mod pace;
pub(crate) mod record;
pub(crate) mod stage;
mod store;
pub(crate) mod writer;

use std::path::PathBuf;

use crate::failure::Failure;
use crate::session::Session;
use crate::units;
use cases::Bench;
use figure::{MeasuredCheckpoints, MeasuredSetup};
use measure_args::MeasureArgs;
use record::MeasuredSample;
use stage::Driver;

/// Numbers of tasks that dump at once; the authors had a machine for each.
const TASKS: [u32; 4] = [1, 2, 4, 6];

/// Measures everything, and returns it when all of it is measured. It is polled on the program's
/// main thread, with which its servers die.
///
/// # Errors
/// Usage (2); a server or task that fails; a restored byte that is another one (5).
pub(crate) async fn measured(
    session: &Session,
    args: &MeasureArgs,
) -> Result<MeasuredCheckpoints, Failure> {
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
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { 5 });
    let tasks = if args.quick { &TASKS[..2] } else { &TASKS[..] };
    let directory = LabDirectory::new();
    let driver = stage::usable_driver(&directory.0)?;
    if driver == Driver::Hook {
        session.output.note("CRIU cannot be used here: the tasks write their states themselves");
    }
    let setup = MeasuredSetup::here(driver, rounds, scale);
    let stores = record::STORES.map(|(name, _)| name);
    let all = cases::cases(&sizes, tasks, scale, &stores);
    let place = directory.0.join("s");
    let bench = Bench { directory: &place, driver, scale };
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
                let values = bench.measure(case).await?;
                samples.push(MeasuredSample { case, round, values });
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
    Ok(MeasuredCheckpoints::of(setup, samples))
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
