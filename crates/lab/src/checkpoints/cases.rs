//! What is measured of one policy: one case of dumps and restores, one run of a task, and one in
//! which it is killed.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sanderling_core::checkpoint::DumpTimes;
use sanderling_protocol::Millis;

use super::real_store::RatedStore;
use super::record::{Case, Experiment, Quantities, REAL, STORES};
use super::stage::{CheckpointLine, Driver, LabRunner, LabTask, Stage, StageStore};
use super::store::EmulatedStore;
use super::writer::{STEP, WriterKind};
use crate::failure::{Exit, Failure, FailureKind};
use crate::record::PolicyName;

/// How fast a writer fills its memory at least, with all its neighbours, in bytes per second. The
/// first checkpoint may not begin before. Chosen, not measured: a case that is slower is measured
/// again ([`READY_FACTORS`]).
const FILL_PER_SECOND: f64 = 120e6;

/// How much longer than expected a task may take to be ready, or has to run until it is killed: a
/// case that is too short for that is measured again with the next. Chosen, not measured: with all
/// of them a busy machine may be eight times as slow.
const READY_FACTORS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];

/// Bytes of a GiB.
const GIB: f64 = (1 << 30) as f64;

/// Bytes of a state for which one request is to suffice: the length of a part (`PART_BYTES_MIN` of
/// the core's `durable`).
const REQUEST_BYTES: f64 = (8 << 20) as f64;

/// Seconds of the authors' task (Teylo and others, "Developing Checkpointing and Recovery
/// Procedures with the Storage Services of Amazon Web Services", slide 21, "Recovery Procedure
/// Evaluation").
const RUN_SECONDS: f64 = 1200.0;
/// Seconds between two of its checkpoints, on the same slide.
const INTERVAL_SECONDS: f64 = 300.0;
/// Bytes of its state: the largest that the authors measured, 7,750 MB (slide 14).
const RUN_BYTES: f64 = 7750e6;

/// What all cases have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bench<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) driver: Driver,
    /// By which factor time and bytes of the authors' task are smaller.
    pub(crate) scale: f64,
    /// The store of cases that are not emulated.
    pub(crate) real: Option<RatedStore<'a>>,
}

/// Which cases a round has.
#[derive(Debug, Clone)]
pub(crate) struct CasePlan {
    /// Sizes of the memory, the smallest first.
    pub(crate) sizes: Vec<u64>,
    /// Numbers of tasks that dump at once.
    pub(crate) tasks: &'static [u32],
    /// The writers of runs. That of the first is killed, too.
    pub(crate) runs: &'static [WriterKind],
    /// As that of [`Bench`].
    pub(crate) scale: f64,
    /// Whether there is a real store.
    pub(crate) has_real_store: bool,
}

impl Bench<'_> {
    /// Measures a case.
    ///
    /// # Errors
    /// A server or task fails, or a restored byte is another one.
    pub(crate) async fn measure(&self, case: Case) -> Result<Quantities, Failure> {
        let mut too_slow = None;
        for factor in READY_FACTORS {
            let measured = match case.experiment {
                Experiment::Run => return self.run(case).await,
                Experiment::Recovery => self.recovery(case, factor).await,
                Experiment::Dump | Experiment::Tasks => self.dumps(case, factor).await,
            };
            match measured {
                Err(failure) if failure.kind == FailureKind::TooSlow => too_slow = Some(failure),
                measured => return measured,
            }
        }
        Err(too_slow.expect("there are factors"))
    }

    /// Makes the stage of a case, with tasks that have so many bytes in all.
    pub(super) async fn stage(&self, case: Case, bytes: u64) -> Result<Stage, Failure> {
        let store = match case.emulated_rate() {
            Some(rate) => StageStore::Emulated(EmulatedStore::start(rate).await?),
            None => StageStore::Real { url: self.real_store().store.next_place() },
        };
        Stage::start(self.directory, (case.policy, self.driver), store, bytes).await
    }

    fn real_store(&self) -> RatedStore<'_> {
        self.real.expect("a plan has cases with a real store only if there is one")
    }

    /// Returns the rate of a case's store, in bytes per second.
    fn rate(&self, case: Case) -> f64 {
        case.emulated_rate().unwrap_or_else(|| self.real_store().bytes_per_second)
    }

    /// Returns the authors' task, smaller. It takes `factor` times as long as the scale makes it.
    pub(super) fn authors_task(&self, case: Case, factor: f64) -> LabTask {
        let interval = Duration::from_secs_f64(INTERVAL_SECONDS * factor / self.scale);
        let steps = (RUN_SECONDS * factor / self.scale / STEP.as_secs_f64()) as u64;
        LabTask { steps: Some(steps), ..LabTask::new(case.kind, case.bytes, interval) }
    }

    async fn dumps(&self, case: Case, ready_factor: f64) -> Result<Quantities, Failure> {
        let all_bytes = case.bytes * u64::from(case.tasks);
        let all_seconds = all_bytes as f64 / self.rate(case);
        let filled = ready_factor * (1.5 + all_bytes as f64 / FILL_PER_SECOND);
        // A second dump begins when the first one is in the store.
        let has_second = case.has_second_dump();
        let drained = match (case.policy, has_second) {
            (PolicyName::Sanderling, true) => 1.0 + 1.3 * all_seconds,
            _ => 0.0,
        };
        let interval = Duration::from_secs_f64(filled.max(drained));
        let task = LabTask::new(case.kind, case.bytes, interval);
        let mut stage = self.stage(case, all_bytes).await?;
        let mut values = Quantities::new();
        let forecasts = case.kind == WriterKind::Append && case.policy == PolicyName::Sanderling;
        let rates = if forecasts { Some(predicted_rates(&stage)?) } else { None };
        stage.drained().await?;
        let names: Vec<String> = (0..case.tasks).map(|number| format!("t{number}")).collect();
        let runners: Result<Vec<_>, _> = names.iter().map(|it| stage.run(it, task)).collect();
        let mut runners = runners?;
        for runner in &mut runners {
            runner.is_ready().await?;
        }
        let ready = Instant::now();
        let requests = stage.requests();
        let first = one_dump(&stage, &mut runners, 1, &FIRST, &mut values).await?;
        // The slowest of several was published then, or after that.
        let dump = Duration::from_secs_f64(values["dump_seconds"]);
        if first.published < ready + dump {
            let cause = "on this machine tasks are not ready before their first checkpoint";
            return Err(Failure::new(Exit::Failure, FailureKind::TooSlow, cause));
        }
        if let (Some(before), Some(now)) = (requests, stage.requests()) {
            let requests = (now - before) as f64;
            values.insert("requests", requests);
            values.insert("requests_per_8_mib", requests * REQUEST_BYTES / values["state_bytes"]);
        }
        let first = first.line;
        if let Some((put, pack)) = rates {
            let predicted = predicted(&stage, first.state_bytes, put, pack)?;
            values.insert("forecast_seconds", predicted);
            values.insert("forecast_over_measured", predicted / first.dump_seconds);
        }
        let mut newest = 1;
        if has_second {
            newest = 2;
            one_dump(&stage, &mut runners, 2, &SECOND, &mut values).await?;
            let part = values["second_stored_bytes"] / values["stored_bytes"].max(1.0);
            values.insert("second_stored_over_first", part);
        }
        drop(runners);
        if case.policy == PolicyName::Sanderling && case.experiment == Experiment::Dump {
            let (generation, seconds) = stage.restored(&names[0], task).await?;
            is_newest(generation, newest)?;
            values.insert("restore_seconds", seconds);
            // The restored runner has renewed its lock.
            stage.drained().await?;
        }
        stage.leave_store_alone();
        let mut slowest: f64 = 0.0;
        for name in &names {
            let (generation, seconds) = stage.restored(name, task).await?;
            is_newest(generation, newest)?;
            slowest = slowest.max(seconds);
        }
        values.insert("restore_from_store_seconds", slowest);
        values.insert("restored_equal", 1.0);
        Ok(values)
    }

    /// Runs the authors' task, smaller, to its end.
    async fn run(&self, case: Case) -> Result<Quantities, Failure> {
        let task = self.authors_task(case, 1.0);
        let steps = task.steps.unwrap_or_default();
        let mut stage = self.stage(case, case.bytes).await?;
        let mut runner = stage.run("t0", task)?;
        let (elapsed, checkpoints) = runner.ended().await?;
        drop(runner);
        let ended = Instant::now();
        stage.drained().await?;
        let mut values = Quantities::new();
        if case.policy == PolicyName::Sanderling {
            values.insert("drain_after_end_seconds", ended.elapsed().as_secs_f64());
        }
        stage.leave_store_alone();
        let newest = checkpoints.iter().map(|it| it.generation).max().unwrap_or(0);
        let (generation, _) = stage.restored("t0", LabTask { steps: None, ..task }).await?;
        is_newest(generation, newest)?;
        let sum = |of: fn(&CheckpointLine) -> f64| checkpoints.iter().map(of).sum::<f64>();
        let frozen = sum(|it| it.frozen_seconds);
        values.insert("steps", steps as f64);
        values.insert("checkpoints", checkpoints.len() as f64);
        values.insert("elapsed_seconds", elapsed);
        values.insert("frozen_seconds", frozen);
        values.insert("frozen_share", frozen / elapsed.max(1e-9));
        values.insert("slowdown_share", 1.0 - steps as f64 * STEP.as_secs_f64() / elapsed);
        values.insert("stored_bytes", sum(|it| it.stored_bytes as f64));
        values.insert("restored_equal", 1.0);
        if case.policy == PolicyName::Sanderling {
            let (second, later) = notice_forecasts(&checkpoints);
            let parts = [
                ("second_forecast_over_measured", second),
                ("notice_forecast_over_measured", later),
            ];
            values.extend(parts.into_iter().filter_map(|(name, part)| Some((name, part?))));
        }
        Ok(values)
    }
}

/// Returns the forecast of the runner, if a notice came before a dump, over what the dump took: for
/// the second dump, which is forecast from the first one, of the whole state, and the median of the
/// later ones. Before the first dump the runner has only rates.
fn notice_forecasts(checkpoints: &[CheckpointLine]) -> (Option<f64>, Option<f64>) {
    let mut times = DumpTimes::default();
    let mut parts = Vec::new();
    for (index, line) in checkpoints.iter().enumerate() {
        if let Some(forecast) = times.slowest() {
            parts.push(forecast.0 as f64 / 1000.0 / line.dump_seconds.max(1e-9));
        }
        times.add(Millis((line.dump_seconds * 1000.0) as u64), index == 0);
    }
    let second = parts.first().copied();
    let mut later = parts.split_off(parts.len().min(1));
    later.sort_by(f64::total_cmp);
    (second, later.get(later.len() / 2).copied())
}

/// Returns the state's bytes of the authors' task at a scale, in whole megabytes.
pub(crate) fn run_bytes(scale: f64) -> u64 {
    ((RUN_BYTES / scale / 1e6).round().max(1.0) * 1e6) as u64
}

/// Names of what a dump took.
struct Names {
    frozen: &'static str,
    ship: &'static str,
    dump: &'static str,
    drain: &'static str,
    state: &'static str,
    new: &'static str,
    stored: &'static str,
}

const FIRST: Names = Names {
    frozen: "frozen_seconds",
    ship: "ship_seconds",
    dump: "dump_seconds",
    drain: "drain_seconds",
    state: "state_bytes",
    new: "new_bytes",
    stored: "stored_bytes",
};

const SECOND: Names = Names {
    frozen: "second_frozen_seconds",
    ship: "second_ship_seconds",
    dump: "second_dump_seconds",
    drain: "second_drain_seconds",
    state: "second_state_bytes",
    new: "second_new_bytes",
    stored: "second_stored_bytes",
};

/// Waits for one dump of all tasks, and until the store has it: the slowest task counts.
async fn one_dump(
    stage: &Stage,
    runners: &mut [LabRunner],
    generation: u64,
    names: &Names,
    values: &mut Quantities,
) -> Result<PublishedDump, Failure> {
    let mut lines = Vec::new();
    for runner in runners {
        lines.push(runner.checkpoint(generation).await?);
    }
    let published = Instant::now();
    stage.drained().await?;
    let drain = published.elapsed().as_secs_f64();
    let most = |of: fn(&CheckpointLine) -> f64| lines.iter().map(of).fold(0.0, f64::max);
    let sum = |of: fn(&CheckpointLine) -> f64| lines.iter().map(of).sum::<f64>();
    values.insert(names.frozen, most(|it| it.frozen_seconds));
    values.insert(names.ship, most(|it| (it.dump_seconds - it.frozen_seconds).max(0.0)));
    values.insert(names.dump, most(|it| it.dump_seconds));
    values.insert(names.drain, drain);
    values.insert(names.state, sum(|it| it.state_bytes as f64));
    values.insert(names.new, sum(|it| it.new_bytes as f64));
    values.insert(names.stored, sum(|it| it.stored_bytes as f64));
    if generation == 1 {
        let of = |seconds: f64, bytes: f64| seconds / (bytes.max(1.0) / GIB);
        let (hashed, new) = (sum(|it| it.hashed_bytes as f64), sum(|it| it.new_bytes as f64));
        values.insert("hash_cpu_per_gib", of(sum(|it| it.hash_cpu_seconds), hashed));
        values.insert("compress_cpu_per_gib", of(sum(|it| it.compress_cpu_seconds), new));
        values.insert("encrypt_cpu_per_gib", of(sum(|it| it.encrypt_cpu_seconds), new));
    }
    Ok(PublishedDump { line: lines.swap_remove(0), published })
}

/// A dump of all tasks: that of the first one, and when the last one was published.
struct PublishedDump {
    line: CheckpointLine,
    published: Instant,
}

/// Refuses a generation that is older than the newest that was published.
///
/// # Errors
/// It is older.
pub(super) fn is_newest(found: u64, newest: u64) -> Result<(), Failure> {
    if found >= newest {
        return Ok(());
    }
    let cause = format!("generation {found} was restored, and {newest} was published");
    Err(Failure::new(Exit::Partial, FailureKind::OlderGeneration, cause))
}

/// Returns the rates that `task predict` measures: of the backend, and of packing.
fn predicted_rates(stage: &Stage) -> Result<(u64, u64), Failure> {
    let report = predict(stage, &["--rss", "1MB"])?;
    let rate = |name: &str| report[name].as_u64().unwrap_or(0);
    Ok((rate("put_bytes_per_second"), rate("pack_bytes_per_second")))
}

/// Returns the forecast for a state at these rates, in seconds.
fn predicted(stage: &Stage, bytes: u64, put: u64, pack: u64) -> Result<f64, Failure> {
    let (bytes, put, pack) = (bytes.to_string(), put.to_string(), pack.to_string());
    let report = predict(stage, &["--rss", &bytes, "--put-rate", &put, "--pack-rate", &pack])?;
    Ok(report["seconds"].as_f64().unwrap_or(0.0))
}

fn predict(stage: &Stage, flags: &[&str]) -> Result<serde_json::Value, Failure> {
    let mut command = stage.task("predict")?;
    command.arg("--json").args(flags).stdin(Stdio::null());
    let ran = command.output();
    let ran = ran.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Process, error))?;
    serde_json::from_slice(&ran.stdout).map_err(|error| {
        let words = String::from_utf8_lossy(&ran.stderr).into_owned();
        Failure::new(
            Exit::Failure,
            FailureKind::Predict,
            format_args!("task predict: {error}: {words}"),
        )
    })
}

impl CasePlan {
    /// Returns every case of one round. Those with a real store are the first: what it refuses
    /// shows soon.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut all = Vec::new();
        if self.has_real_store {
            self.add_cases(&[REAL], &mut all);
        }
        self.add_cases(&STORES.map(|(name, _)| name), &mut all);
        all
    }

    /// Adds the cases of stores: dumps by store and size, by kind, by number of tasks, runs, and
    /// one that is killed.
    fn add_cases(&self, stores: &[&'static str], all: &mut Vec<Case>) {
        let policies = [PolicyName::Sanderling, PolicyName::Baseline];
        let mut add = |experiment, store, bytes, kind, tasks| {
            for policy in policies {
                all.push(Case { experiment, store, bytes, kind, tasks, policy });
            }
        };
        let sizes = &self.sizes;
        for store in stores {
            for bytes in sizes {
                add(Experiment::Dump, *store, *bytes, WriterKind::Dense, 1);
            }
        }
        let middle = sizes[sizes.len() / 2];
        for kind in [WriterKind::Sparse, WriterKind::Append] {
            add(Experiment::Dump, stores[0], middle, kind, 1);
        }
        for tasks in self.tasks {
            add(Experiment::Tasks, stores[stores.len() / 2], sizes[0], WriterKind::Dense, *tasks);
        }
        let bytes = run_bytes(self.scale);
        for kind in self.runs {
            add(Experiment::Run, stores[0], bytes, *kind, 1);
        }
        for kind in self.runs.iter().take(1) {
            add(Experiment::Recovery, stores[0], bytes, *kind, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_store_has_all_cases_and_is_the_first() {
        let plan = |has_real_store| CasePlan {
            sizes: vec![1, 2],
            tasks: &[1, 2],
            runs: &[WriterKind::Dense, WriterKind::Sparse],
            scale: 20.0,
            has_real_store,
        };
        let emulated = plan(false).cases();
        assert!(emulated.iter().all(|case| case.emulated_rate().is_some()), "{emulated:?}");
        let all = plan(true).cases();
        let (real, others) = all.split_at(all.len() - emulated.len());
        assert_eq!(others, emulated);
        assert!(real.iter().all(|case| case.store == REAL), "{real:?}");
        // What is measured with any emulated store is measured with the real one.
        let what = |case: &Case| (case.experiment, case.bytes, case.kind, case.tasks, case.policy);
        for case in &emulated {
            assert_eq!(real.iter().filter(|it| what(it) == what(case)).count(), 1, "{case:?}");
        }
    }
}
