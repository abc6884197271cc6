//! What the caller of a run records: an agent does so for the tasks of its bag.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use sanderling_command::failure::Failure;
use sanderling_core::checkpoint::DumpRates;
use sanderling_protocol::Millis;
use tokio::sync::OnceCell;

use crate::dump_turns::TurnQueue;
use crate::lock::TaskLock;
use crate::machine_notices::MachineNotices;

/// How fast this machine and the backend are, once that was measured.
pub(crate) type MeasuredRates = Arc<OnceCell<DumpRates>>;

/// What a caller of a run has to see and to record while no other runner can have the task.
pub(crate) trait RunRecord: Send + Sync {
    /// Returns the number of the task, which is in its environment.
    fn number(&self) -> u32;

    /// Returns the turns of the last dumps of all tasks that this process runs.
    fn turns(&self) -> Arc<TurnQueue>;

    /// Returns the notices of this machine. All runs of a process have one poller for each source:
    /// clouds allow few requests.
    fn notices(&self) -> MachineNotices;

    /// Returns how fast this machine and the backend are. All runs of a process share the
    /// measurement, which writes 64 MiB: the first one measures.
    fn rates(&self) -> MeasuredRates;

    /// Returns whether the task has ended, so that it is not started.
    fn has_ended(&self) -> BoxFuture<'_, Result<bool, Failure>>;

    /// Records the work of this run that a generation has which was just stored, as long as this
    /// runner has the lock: the time from the start of the command on, after a restore.
    ///
    /// # Errors
    /// Nothing was recorded: the backend cannot be used. The next generation has that work, too.
    fn stored<'a>(
        &'a self,
        lock: &'a TaskLock,
        is_restored: bool,
        work: Millis,
    ) -> BoxFuture<'a, Result<(), Failure>>;

    /// Records how the task ended, as long as this runner has the lock: why it failed, if it did.
    ///
    /// # Errors
    /// Nothing was recorded: another runner has taken the task, or its end is of no use any more.
    fn record<'a>(
        &'a self,
        lock: &'a TaskLock,
        failure: Option<Failure>,
    ) -> BoxFuture<'a, Result<(), Failure>>;
}
