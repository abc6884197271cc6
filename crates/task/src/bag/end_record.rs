//! What a run of a bag's task sees and records while it has the task's lock. `EndRecorder` of
//! `core::checkpoint` decides about the record of its end.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use sanderling_command::failure::{Exit, Failure};
use sanderling_command::session::Session;
use sanderling_core::checkpoint::{
    EndInput, EndRecorder, EndWork, KeyEvidence, RunProgress, TaskProgress, TaskRunEnd,
};
use sanderling_protocol::Millis;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::market::MarketArg;
use super::store::{BagRecord, BagStore, BagWatch, Ended, task_name};
use crate::args::StorageArgs;
use crate::backend::TaskBackend;
use crate::dump_turns::TurnQueue;
use crate::generations::key_evidence;
use crate::lock::TaskLock;
use crate::machine_notices::MachineNotices;
use crate::run_record::{MeasuredRates, RunRecord};
use crate::runner;
use crate::supervise::wall_clock;
use crate::task_failure::TaskFailure;

/// What a run of a bag's task sees and records while it has the lock: so no agent can start the
/// task between its end and the record of it, nor after.
pub(super) struct EndRecord {
    pub(super) store: BagStore,
    /// That of all tasks.
    pub(super) backend: TaskBackend,
    pub(super) storage: StorageArgs,
    pub(super) bag_name: String,
    pub(super) session: Session,
    pub(super) bag: Arc<BagRecord>,
    pub(super) number: u32,
    pub(super) retries: u32,
    pub(super) agent: String,
    pub(super) market: MarketArg,
    pub(super) turns: Arc<TurnQueue>,
    pub(super) notices: MachineNotices,
    pub(super) rates: MeasuredRates,
    /// How far the task was before this run, and is now; nothing before that was read.
    pub(super) progress: Mutex<Option<RunProgress>>,
}

/// Returns how a run has ended that failed so.
pub(super) fn end_of(failure: &Failure) -> TaskRunEnd {
    match failure {
        it if TaskFailure::Taken.is(it) => TaskRunEnd::Taken,
        it if TaskFailure::Ended.is(it) => TaskRunEnd::EndedBefore,
        it if TaskFailure::OtherMachine.is(it) => TaskRunEnd::Unrestorable,
        it if TaskFailure::OtherRelease.is(it) => TaskRunEnd::Unrestorable,
        it if TaskFailure::CriuRestore.is(it) => TaskRunEnd::Unrestorable,
        it if TaskFailure::NoGeneration.is(it) => TaskRunEnd::NoGeneration,
        it if TaskFailure::Failed.is(it) => TaskRunEnd::CommandFailed,
        _ => TaskRunEnd::Failed,
    }
}

impl RunRecord for EndRecord {
    fn number(&self) -> u32 {
        self.number
    }

    fn turns(&self) -> Arc<TurnQueue> {
        Arc::clone(&self.turns)
    }

    fn notices(&self) -> MachineNotices {
        self.notices.clone()
    }

    fn rates(&self) -> MeasuredRates {
        Arc::clone(&self.rates)
    }

    fn has_ended(&self) -> BoxFuture<'_, Result<bool, Failure>> {
        Box::pin(async move {
            if !self.store.has(&self.bag).await? {
                return Err(self.store.removed());
            }
            self.store.has_ended(self.number).await
        })
    }

    fn stored<'a>(
        &'a self,
        lock: &'a TaskLock,
        is_restored: bool,
        work: Millis,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let mut held = self.progress.lock().await;
            let progress = self.run_progress(&mut held).await?.stored(is_restored, work);
            // Another bag may have the name by now. The lock is looked at last of all, as this
            // process may have been stopped for long before.
            if self.store.has(&self.bag).await? && lock.may_remove().await? {
                self.store.put_progress(&self.bag, self.number, progress).await?;
            }
            Ok(())
        })
    }

    fn record<'a>(
        &'a self,
        lock: &'a TaskLock,
        failure: Option<Failure>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.record_end(lock, failure))
    }
}

impl EndRecord {
    /// Records how the run has ended, as far as that ends the task or counts for it: why it failed,
    /// if it did.
    ///
    /// # Errors
    /// Another runner has the lock, the bag was removed, or another one has its name.
    async fn record_end(&self, lock: &TaskLock, failure: Option<Failure>) -> Result<(), Failure> {
        let end = failure.as_ref().map_or(TaskRunEnd::Ended, end_of);
        let has_to_end = self.session.ended.is_cancelled();
        let mut recorder = EndRecorder::new(self.number, end, self.retries, has_to_end);
        let (mut watch, mut last) = (BagWatch::default(), None::<Failure>);
        loop {
            let done = match recorder.work() {
                EndWork::LookAtKey(number) => {
                    Ok(self.evidence(number).await.map_or(EndInput::Failed, EndInput::KeySeen))
                }
                EndWork::ListBegun => {
                    let begun = self.store.begun(self.bag.tasks).await;
                    Ok(begun.map_or(EndInput::Failed, EndInput::BegunListed))
                }
                EndWork::LookAtBag => {
                    let looked = watch.look(&self.store, &self.bag).await;
                    looked.map(|is_there| EndInput::BagSeen { is_there })
                }
                EndWork::LookAtLock => self.look_at_lock(lock).await,
                EndWork::ReadProgress => self.read_progress().await.map(EndInput::ProgressRead),
                EndWork::WriteProgress(progress) => {
                    let written = self.store.put_progress(&self.bag, self.number, progress).await;
                    written.map(|()| EndInput::Written)
                }
                EndWork::WriteEnd => {
                    self.write_end(failure.as_ref()).await.map(|()| EndInput::Written)
                }
                EndWork::Pause(pause) => {
                    sleep(pause.into()).await;
                    Ok(EndInput::Paused)
                }
                EndWork::Done => return Ok(()),
                EndWork::Taken => return Err(self.taken()),
                EndWork::Useless => return Err(last.unwrap_or_else(|| self.store.removed())),
            };
            let input = done.unwrap_or_else(|failure| {
                let is_useless =
                    TaskFailure::Taken.is(&failure) || TaskFailure::BagGone.is(&failure);
                if !is_useless && last.is_none() {
                    let output = self.session.output;
                    output.note(format_args!("the end of the run is not recorded yet: {failure}"));
                }
                last = Some(failure);
                if is_useless { EndInput::Useless } else { EndInput::Failed }
            });
            if input == EndInput::Written && last.is_some() {
                self.session.output.note("the end of the run is recorded");
            }
            recorder.handle(self.session.ended.is_cancelled(), input);
        }
    }

    /// Looks at the lock, and at the bag once more: another one may have got its name since.
    async fn look_at_lock(&self, lock: &TaskLock) -> Result<EndInput, Failure> {
        let looks = tokio::join!(self.store.has(&self.bag), lock.is_held());
        let (is_there, is_held) = (looks.0?, looks.1?);
        // The look at the bag may have taken longer than the lock lasts.
        let is_held = is_held && (!is_there || lock.may_remove().await?);
        Ok(match is_there {
            true => EndInput::LockSeen { is_held },
            false => EndInput::BagSeen { is_there },
        })
    }

    /// Returns the failure of a run whose lock another agent has.
    fn taken(&self) -> Failure {
        let cause = format!("another agent has taken task {}", self.number);
        TaskFailure::Taken.failure(Exit::Failure, cause)
    }

    /// Returns how far the task is.
    ///
    /// # Errors
    /// The backend cannot be read.
    async fn read_progress(&self) -> Result<RunProgress, Failure> {
        let mut held = self.progress.lock().await;
        let progress = *self.run_progress(&mut held).await?;
        Ok(progress)
    }

    /// Returns how far the task is. What was recorded before this run is read once: what the run
    /// writes itself would count twice. A record that is damaged counts as none.
    ///
    /// # Errors
    /// The backend cannot be read.
    async fn run_progress<'a>(
        &self,
        held: &'a mut Option<RunProgress>,
    ) -> Result<&'a mut RunProgress, Failure> {
        let progress = match *held {
            Some(progress) => progress,
            None => match self.store.progress(self.number).await {
                Err(failure) if TaskFailure::BagDamaged.is(&failure) => {
                    RunProgress::new(TaskProgress::default())
                }
                before => RunProgress::new(before?),
            },
        };
        Ok(held.insert(progress))
    }

    /// Returns what the generations of a task show about the key.
    async fn evidence(&self, number: u32) -> Result<Vec<KeyEvidence>, Failure> {
        let name = task_name(&self.bag_name, number);
        let backend = self.backend.of_task(&name)?;
        let generations = runner::opened(&backend, &name, &self.storage, false).await?;
        Ok(key_evidence(&generations.look().await?))
    }

    /// Writes the end of the task, and why it failed if it did.
    async fn write_end(&self, failure: Option<&Failure>) -> Result<(), Failure> {
        let failed = failure.map(|failure| failure.cause.clone());
        let (agent, market) = (self.agent.clone(), self.market);
        let ended = Ended { at: wall_clock(), agent, market, failed };
        self.store.put_ended(&self.bag, self.number, &ended).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_a_run_means_what_its_agent_does_about_it() {
        let end = |failure: TaskFailure| end_of(&failure.failure(Exit::Failure, "it failed"));
        assert_eq!(end(TaskFailure::Taken), TaskRunEnd::Taken);
        assert_eq!(end(TaskFailure::Ended), TaskRunEnd::EndedBefore);
        assert_eq!(end(TaskFailure::OtherMachine), TaskRunEnd::Unrestorable);
        assert_eq!(end(TaskFailure::OtherRelease), TaskRunEnd::Unrestorable);
        assert_eq!(end(TaskFailure::CriuRestore), TaskRunEnd::Unrestorable);
        assert_eq!(end(TaskFailure::NoGeneration), TaskRunEnd::NoGeneration);
        assert_eq!(end(TaskFailure::Failed), TaskRunEnd::CommandFailed);
        assert_eq!(end(TaskFailure::BagGone), TaskRunEnd::Failed, "the agent finds it itself");
    }
}
