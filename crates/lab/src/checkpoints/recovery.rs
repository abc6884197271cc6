//! A run whose machine ends in the middle of an interval: what the next runner restores, and what
//! is done again.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::cases::{Bench, is_newest};
use super::record::{Case, Quantities};
use super::stage::{CheckpointLine, LabRunner, LabTask, STEP_TIMEOUT, Stage};
use super::writer::STEP;
use crate::failure::{Exit, Failure, FailureKind};

/// The name of the task.
const NAME: &str = "t0";

/// A runner that was killed with its task.
struct KilledRun {
    at: Instant,
    /// Steps that the task had done.
    steps: u64,
    /// The newest generation that the runner had recorded.
    generation: u64,
}

impl Bench<'_> {
    /// Kills the authors' task and its runner half an interval after the first checkpoint, and lets
    /// the next runner bring the task to its end.
    pub(super) async fn recovery(&self, case: Case, factor: f64) -> Result<Quantities, Failure> {
        let task = LabTask { verifies_end: true, ..self.authors_task(case, factor) };
        let stage = self.stage(case, case.bytes).await?;
        let killed = killed_run(&stage, task).await?;
        stage.request_steps(NAME)?;
        let mut next = stage.run(NAME, task)?;
        let (generation, restore) = next.restore().await?;
        is_newest(generation, killed.generation)?;
        let restored = next.steps(STEP_TIMEOUT).await?;
        let restart = killed.at.elapsed().as_secs_f64();
        let (elapsed, checkpoints) = next.ended().await?;
        if next.verified_steps() != task.steps {
            let cause = format!("the memory is another one at the end of {}", case.name());
            return Err(Failure::new(Exit::Partial, FailureKind::OtherBytes, cause));
        }
        let lost = killed.steps.saturating_sub(restored) as f64;
        let steps = task.steps.unwrap_or_default() as f64;
        let sum = |of: fn(&CheckpointLine) -> f64| checkpoints.iter().map(of).sum::<f64>();
        let frozen = sum(|it| it.frozen_seconds);
        let share = |seconds: f64| seconds / elapsed.max(1e-9);
        Ok(Quantities::from([
            ("steps", steps),
            ("elapsed_seconds", elapsed),
            ("checkpoints", checkpoints.len() as f64),
            ("frozen_seconds", frozen),
            ("frozen_share", share(frozen)),
            ("restored_work_seconds", restored as f64 * STEP.as_secs_f64()),
            ("lost_steps", lost),
            ("lost_seconds", lost * STEP.as_secs_f64()),
            ("restore_seconds", restore),
            ("restart_seconds", restart),
            ("restart_share", share(restart)),
            ("useful_share", share(steps * STEP.as_secs_f64())),
            ("restored_equal", 1.0),
        ]))
    }
}

/// Runs a task, and kills it and its runner half an interval after the first checkpoint.
///
/// # Errors
/// [`FailureKind::TooSlow`]: the task has ended before; or the runner has failed.
async fn killed_run(stage: &Stage, task: LabTask) -> Result<KilledRun, Failure> {
    let mut runner = stage.run(NAME, task)?;
    let killed = killed(stage, &mut runner, task.interval / 2).await;
    match runner.has_ended() {
        true => {
            let cause = "on this machine tasks end before they can be killed";
            Err(Failure::new(Exit::Failure, FailureKind::TooSlow, cause))
        }
        false => killed,
    }
}

async fn killed(
    stage: &Stage,
    runner: &mut LabRunner,
    after_dump: Duration,
) -> Result<KilledRun, Failure> {
    runner.is_ready().await?;
    let ready = Instant::now();
    let first = runner.checkpoint(1).await?;
    if ready.elapsed().as_secs_f64() < first.dump_seconds {
        let cause = "on this machine a task is not ready before its first checkpoint";
        return Err(Failure::new(Exit::Failure, FailureKind::TooSlow, cause));
    }
    sleep(after_dump).await;
    stage.request_steps(NAME)?;
    let steps = runner.steps(STEP_TIMEOUT).await?;
    let at = Instant::now();
    runner.kill_whole().await?;
    let generations = runner.checkpoints().into_iter().map(|it| it.generation);
    Ok(KilledRun { at, steps, generation: generations.max().unwrap_or(0) })
}
