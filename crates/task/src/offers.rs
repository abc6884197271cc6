//! The generations that are offered to a restore, one after the other, as `GenerationOffers` of
//! `core::checkpoint` decides.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::output::Output;
use sanderling_core::checkpoint::{GenerationOffers, OfferEnd, OfferInput, OfferWork};

use crate::backend::TaskBackend;
use crate::generations::{CheckedGeneration, Generations, verdict_of, verdicts};
use crate::task_failure::TaskFailure;

/// The generations of a task, and why some of them are refused.
pub(crate) struct OfferedGenerations {
    machine: GenerationOffers,
    failures: BTreeMap<u64, Failure>,
    /// Those whose refusal was printed.
    printed: BTreeSet<u64>,
}

impl OfferedGenerations {
    /// Begins for the holder of the lock, with what it has found.
    pub(crate) fn to_runner(looked: &[CheckedGeneration], must_restore: bool) -> Self {
        Self::new(GenerationOffers::of_runner(verdicts(looked), must_restore), looked)
    }

    /// Begins for a reader, beside which a runner may replace generations.
    pub(crate) fn to_reader(looked: &[CheckedGeneration]) -> Self {
        Self::new(GenerationOffers::of_reader(verdicts(looked)), looked)
    }

    fn new(machine: GenerationOffers, looked: &[CheckedGeneration]) -> Self {
        let mut offered = Self { machine, failures: BTreeMap::new(), printed: BTreeSet::new() };
        offered.keep_failures(looked);
        offered
    }

    fn keep_failures(&mut self, looked: &[CheckedGeneration]) {
        let failures = looked.iter().filter_map(|(number, stored)| {
            stored.as_ref().err().map(|failure| (*number, failure.clone()))
        });
        self.failures.extend(failures);
    }

    /// Returns the number of the generation to restore next; `None` if the task begins without one.
    /// Prints those that are passed over.
    ///
    /// # Errors
    /// There are generations and none is good, or each was replaced; there are none any more; a
    /// newer one was written by another release. The backend cannot be read.
    pub(crate) async fn next(
        &mut self,
        generations: &Generations,
        output: Output,
    ) -> Result<Option<u64>, Failure> {
        loop {
            while let Some(number) = self.machine.poll_refused() {
                self.print(number, output);
            }
            let input = match self.machine.work() {
                OfferWork::Restore(number) => return Ok(Some(number)),
                OfferWork::List => {
                    let there = Generations::numbers(&generations.backend).await?;
                    OfferInput::Listed(there.into_iter().collect())
                }
                OfferWork::Look => {
                    let looked = generations.look().await?;
                    self.keep_failures(&looked);
                    OfferInput::Looked(verdicts(&looked))
                }
                OfferWork::End(OfferEnd::Anew) => return Ok(None),
                OfferWork::End(end) => return Err(self.failure(end, generations)),
            };
            self.machine.handle(input);
        }
    }

    /// Takes that the restore of a generation has failed.
    ///
    /// # Errors
    /// That failure, if it is not of the generation: no other one is offered.
    pub(crate) fn refused(&mut self, number: u64, failure: Failure) -> Result<(), Failure> {
        let Some(verdict) = verdict_of(&failure) else { return Err(failure) };
        self.failures.insert(number, failure);
        self.machine.handle(OfferInput::Refused(verdict));
        Ok(())
    }

    /// Prints also those of no use that are older than what was offered.
    pub(crate) fn print_others(&mut self, output: Output) {
        let numbers: Vec<u64> = self.failures.keys().rev().copied().collect();
        numbers.into_iter().for_each(|number| self.print(number, output));
    }

    fn print(&mut self, number: u64, output: Output) {
        if self.printed.insert(number) {
            output.note(&self.failures[&number].cause);
        }
    }

    fn failure(&self, end: OfferEnd, generations: &Generations) -> Failure {
        let Generations { task, backend, .. } = generations;
        match end {
            OfferEnd::Failed(number) => self.failures[&number].clone(),
            OfferEnd::NoneGood(first) => none_good(task, &self.failures[&first]),
            OfferEnd::Replaced => replaced(task),
            OfferEnd::Absent | OfferEnd::Anew => absent(task, backend),
        }
    }
}

/// Returns the failure of a task whose generations are all refused, the first one for this reason.
fn none_good(task: &str, first: &Failure) -> Failure {
    let cause = format!("no generation of {task} can be restored; {}", first.cause);
    let failure = TaskFailure::NoGeneration.failure(Exit::Partial, cause);
    if TaskFailure::OtherKey.is(first) {
        let next = "the same with the --key that they were made with, or with another --name";
        return failure.next(next);
    }
    failure.next(format_args!("sanderling task verify --name {task}, which reads all of them"))
}

/// Returns the failure of a reader that has found none: a runner has removed each meanwhile.
pub(crate) fn replaced(task: &str) -> Failure {
    let cause = format!("a runner of {task} has replaced each generation while it was read");
    let next = "the same again, or with a longer --interval or a larger --keep of the runner";
    Failure::new(Exit::Unavailable, FailureKind::TaskBusy, cause).next(next)
}

/// Returns the failure of a task without checkpoints.
pub(crate) fn absent(task: &str, backend: &TaskBackend) -> Failure {
    let cause = format!("the task {task} has no checkpoint in {backend}");
    TaskFailure::NoGeneration.failure(Exit::NotFound, cause).next("sanderling task ls")
}
