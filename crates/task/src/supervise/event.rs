//! What happens to a task that runs.

use sanderling_command::failure::Failure;
use sanderling_core::checkpoint::CheckpointManifest;
use sanderling_protocol::Millis;

use crate::cell::TaskEnd;
use crate::machine_notices::MachineNotice;

/// What became of a checkpoint; nothing if the task cannot give its state yet.
pub(super) type TakenCheckpoint = Result<Option<CheckpointManifest>, Failure>;

/// What happened to a task that runs.
pub(super) enum RunnerEvent {
    Ended(Result<TaskEnd, Failure>),
    Interrupted,
    LockLost,
    /// The machine will be taken. If a dump was under way and went on, what became of it.
    Notice(MachineNotice, Option<TakenCheckpoint>),
    /// What became of the checkpoint that was begun for a notice; nothing if that was over before.
    LastCheckpoint(MachineNotice, Option<TakenCheckpoint>),
    /// At its turn the last checkpoint did not fit any more: it would have taken so long.
    Refused(MachineNotice, Millis),
    Checkpoint(TakenCheckpoint),
}
