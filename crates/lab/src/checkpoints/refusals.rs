//! What CRIU does not dump: each is tried once, with a task that has it.

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::obstacle::{Obstacle, OutsideEnds};
use super::record::STORES;
use super::stage::{Driver, LabRunner, LabTask, Stage, StageStore};
use super::store::EmulatedStore;
use super::writer::{READY, UNTRIED, WriterKind};
use crate::failure::{Failure, FailureKind};
use crate::record::PolicyName;

/// Bytes of the task's memory: few, because the refusal is measured and not the dump. Chosen, not
/// measured.
const BYTES: u64 = 1_000_000;

/// Time between two of its checkpoints: the next one comes soon after a refusal. Chosen, not
/// measured.
const INTERVAL: Duration = Duration::from_millis(300);

/// How long a task may take to start, and its runner to refuse a checkpoint, on a busy machine:
/// both take less than a second on an idle one. Chosen, not measured.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(60);

/// How refusals begin: that of the runner before anything is frozen, and that of CRIU.
const REFUSALS: [(&str, DumpOutcome); 2] = [
    ("the task cannot be dumped: ", DumpOutcome::RefusedBefore),
    ("CRIU cannot dump the task: ", DumpOutcome::RefusedByCriu),
];

/// What became of a dump that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TriedDump {
    /// What the task had.
    pub(crate) has: &'static str,
    pub(crate) outcome: DumpOutcome,
    /// The runner's sentence, or why it was not tried.
    pub(crate) sentence: String,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DumpOutcome {
    /// The runner refused it before anything was frozen.
    RefusedBefore,
    /// CRIU refused it.
    RefusedByCriu,
    /// It was dumped.
    Dumped,
    /// This machine does not have it.
    NotTried,
}

impl TriedDump {
    /// Returns the row of a table.
    pub(crate) fn cells(&self) -> Vec<String> {
        let outcome = match self.outcome {
            DumpOutcome::RefusedBefore => "refused before the freeze",
            DumpOutcome::RefusedByCriu => "refused by CRIU",
            DumpOutcome::Dumped => "dumped",
            DumpOutcome::NotTried => "not tried",
        };
        vec![self.has.to_owned(), outcome.to_owned(), self.sentence.clone()]
    }
}

/// Tries everything; nothing where CRIU cannot be used. After a refusal the task goes on.
///
/// # Errors
/// A task cannot be started, or does not go on.
pub(crate) async fn tried(directory: &Path, driver: Driver) -> Result<Vec<TriedDump>, Failure> {
    if driver == Driver::Hook {
        return Ok(Vec::new());
    }
    let [(_, rate), ..] = STORES;
    let store = StageStore::Emulated(EmulatedStore::start(rate).await?);
    let stage = Stage::start(directory, (PolicyName::Baseline, driver), store, 0).await?;
    let mut tried = Vec::new();
    for obstacle in Obstacle::value_variants() {
        tried.push(tried_dump(&stage, *obstacle).await?);
    }
    Ok(tried)
}

async fn tried_dump(stage: &Stage, obstacle: Obstacle) -> Result<TriedDump, Failure> {
    let (name, has) = (obstacle.name(), obstacle.what());
    let control = stage.control(name)?;
    let outside = OutsideEnds::open(&control);
    let mut outside = outside.map_err(|error| Failure::file(&control, error))?;
    let task = LabTask::new(WriterKind::Append, BYTES, INTERVAL);
    let mut runner = stage.run(name, LabTask { obstacle: Some(obstacle), ..task })?;
    let (outcome, sentence) = outcome(&mut runner, &mut outside).await?;
    if outcome != DumpOutcome::NotTried {
        stage.request_steps(name)?;
        runner.steps(REFUSAL_TIMEOUT).await?;
    }
    runner.kill_whole().await?;
    Ok(TriedDump { has, outcome, sentence })
}

async fn outcome(
    runner: &mut LabRunner,
    outside: &mut OutsideEnds,
) -> Result<(DumpOutcome, String), Failure> {
    let ready = runner.until_within("is ready", REFUSAL_TIMEOUT, |runner| runner.text(READY)).await;
    match ready {
        Err(failure) if failure.kind == FailureKind::TaskFailed => {
            let why = runner.text(UNTRIED).ok_or(failure)?;
            return Ok((DumpOutcome::NotTried, why));
        }
        ready => ready?,
    };
    outside.accept();
    // One may have been begun before.
    let first = newest(runner) + 1;
    let refused = runner.until_within("is refused or dumped", REFUSAL_TIMEOUT, |runner| {
        let refused = refusal(&runner.printed());
        let dumped = || (newest(runner) > first).then(|| (DumpOutcome::Dumped, String::new()));
        refused.or_else(dumped)
    });
    refused.await
}

fn newest(runner: &LabRunner) -> u64 {
    runner.checkpoints().into_iter().map(|it| it.generation).max().unwrap_or(0)
}

/// Returns the first refusal that a runner has printed.
fn refusal(printed: &str) -> Option<(DumpOutcome, String)> {
    printed.lines().find_map(|line| {
        let found = |(begin, outcome): &(&str, DumpOutcome)| {
            let at = line.find(*begin)?;
            Some((*outcome, line[at..].trim_end().to_owned()))
        };
        REFUSALS.iter().find_map(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_found_among_what_a_runner_prints() {
        let before = "generation 1: 1 MB of state, all new, taken by CRIU 4.2.1 in 0.20 s\n";
        assert_eq!(refusal(before), None);
        let why = "the task cannot be dumped: process 300 (a) has /dev/x mapped: a device";
        let printed = format!("{before}no checkpoint: error: {why}\n  next:  again\n");
        assert_eq!(refusal(&printed), Some((DumpOutcome::RefusedBefore, why.to_owned())));
        let why = "CRIU cannot dump the task: unix: External socket is used.";
        let printed = format!("no checkpoint: error: {why}\n");
        assert_eq!(refusal(&printed), Some((DumpOutcome::RefusedByCriu, why.to_owned())));
    }
}
