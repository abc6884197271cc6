//! What an agent of a bag reports to its [`super::BagAgent`], and what it does for that.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::{Instant, Millis};

use super::bag::{Market, TaskProgress};
use super::lock::LockView;

/// An agent whose last record is older is not counted as running: four pauses between two records
/// ([`RECORD_EVERY`](super::own_record::RECORD_EVERY)). Chosen, not measured.
const SILENT_AFTER: Millis = Millis(20_000);

/// The times and signs that the agent reads when it hands an [`AgentInput`] over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentView {
    /// The time, by a clock that never steps.
    pub now: Instant,
    /// The time of day, with which deadlines are compared.
    pub wall: Instant,
    /// Whether a source shows a notice that the machine will be taken.
    pub is_noticed: bool,
    /// Whether the agent has to end, as after a signal.
    pub has_to_end: bool,
}

/// The tasks of an agent, as its record shows them to other agents and to the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentLoad {
    /// The numbers of those that run, in rising order.
    pub running: Vec<u32>,
    /// Whether one more may start.
    pub has_room: bool,
}

/// An agent of the bag, as the newest record that it has written shows it to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentStatus {
    /// How its machine is paid.
    pub market: Market,
    /// Whether it has room for one task more.
    pub has_room: bool,
    /// When it wrote the record, by its clock.
    pub seen: Instant,
}

impl AgentStatus {
    /// Returns whether it has written nothing for more than 20 s, so that it may be dead.
    #[must_use]
    pub fn is_silent(&self, now: Instant) -> bool {
        now.since(self.seen) > SILENT_AFTER
    }

    /// Returns whether it is an agent on demand that can take a task more.
    #[must_use]
    pub fn is_idle_on_demand(&self, now: Instant) -> bool {
        self.market == Market::OnDemand && self.has_room && !self.is_silent(now)
    }
}

/// How a run of a bag's task has ended. [`EndRecorder`](super::EndRecorder) decides what is
/// recorded about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskRunEnd {
    /// The task has ended, and its command did not fail.
    Ended,
    /// The runner has ended the task, as after a signal or at a notice: it goes on elsewhere.
    Stopped,
    /// Another agent has the task.
    Taken,
    /// The task had ended before, and was not started.
    EndedBefore,
    /// This machine or release cannot restore the task; another one may.
    Unrestorable,
    /// None of the task's generations can be restored.
    NoGeneration,
    /// The command has failed.
    CommandFailed,
    /// Something else has failed, such as the backend.
    Failed,
}

/// What happens to an agent: the end of its work, of a run or of a write, or a removed bag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentInput {
    /// [`AgentWork::Wait`] is over.
    Waited,
    /// The agent has to end. It is handed over during [`AgentWork::Wait`].
    Stop,
    /// A run has ended. It is handed over during [`AgentWork::Wait`], and after
    /// [`AgentWork::End`].
    RunEnded {
        /// The task's number.
        task: u32,
        /// How it ended.
        end: TaskRunEnd,
    },
    /// The write of [`AgentOutput::WriteRecord`] has ended, at any time.
    RecordEnded {
        /// Whether the record is stored.
        is_stored: bool,
    },
    /// [`AgentWork::LookAtBag`] has ended.
    BagSeen {
        /// Whether the bag is there. One that is absent may be in a backend that is away.
        is_there: bool,
    },
    /// The bag was removed, or another one has its name.
    BagGone,
    /// [`AgentWork::ListEnded`] has ended: these tasks have ended.
    EndedListed(BTreeSet<u32>),
    /// [`AgentWork::ListBegun`] has ended: these tasks have begun.
    BegunListed(BTreeSet<u32>),
    /// [`AgentWork::ReadProgress`] has ended: so far are those of the tasks whose records can be
    /// read.
    ProgressRead(BTreeMap<u32, TaskProgress>),
    /// [`AgentWork::LookAtLock`] has ended.
    LockSeen(LockView),
    /// [`AgentWork::ReadAgents`] has ended: these agents could be read.
    AgentsRead(Vec<AgentStatus>),
    /// [`AgentWork::LookAtPlace`] has ended.
    PlaceSeen {
        /// Whether something else has the place, so that no agent can run the task.
        is_blocked: bool,
    },
    /// [`AgentWork::RecordBlocked`] has ended.
    BlockedRecorded,
    /// The work under way has failed, as while the backend is away.
    Failed,
}

/// What the agent does next. Only one work is under way; runs and the agent's record go on beside
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentWork {
    /// Wait until then, or until a run ends or the agent has to end.
    Wait {
        /// When the next round begins.
        until: Instant,
    },
    /// Look whether the bag is there.
    LookAtBag,
    /// List the tasks that have ended.
    ListEnded,
    /// List the tasks that have begun.
    ListBegun,
    /// Read at once how far some of the tasks are ([`super::BagAgent::next_reads`]).
    ReadProgress,
    /// Look whether a runner has the lock of a task.
    LookAtLock(u32),
    /// Read the records of all agents, as far as they can be read.
    ReadAgents,
    /// Look whether something else has the place of a task, whose lock could not be read.
    LookAtPlace(u32),
    /// Record that a task has failed whose place is blocked.
    RecordBlocked(u32),
    /// End.
    End(AgentEnd),
}

/// How an agent ends: with its runs, or without them since the bag is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentEnd {
    /// All tasks have ended, or the agent has to end. It waits for its runs, and then writes that
    /// it runs none, for [`LAST_RECORD_WITHIN`](super::LAST_RECORD_WITHIN) at most.
    Over,
    /// The bag is gone. The agent ends its runs, writes nothing, and fails.
    BagGone,
}

/// What the agent prints for an operator. The shell of the agent has the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentNote {
    /// A task uses more memory than the machine has for tasks: none starts here.
    TooLarge,
    /// The machine has a notice: no task starts until that is withdrawn.
    Noticed,
    /// The notice is withdrawn: tasks start again.
    Withdrawn,
    /// The work under way has failed, because of the last failure. Until [`AgentNote::WorksAgain`]
    /// failures of one kind are printed once.
    WorkFailed,
    /// After such a failure a round has read all that it needs.
    WorksAgain,
    /// A record was not written, because of the last failure. Each cause is printed once.
    Unrecorded,
    /// The last failure concerns this task. It is not printed again while it is the same.
    TaskFailed(u32),
    /// The command of this task has failed. That is printed each time.
    CommandFailed(u32),
}

/// An effect of the machine of an agent, which the agent carries out. It takes them in the order in
/// which [`BagAgent::poll_output`](super::BagAgent::poll_output) returns them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentOutput {
    /// Prints a line.
    Note(AgentNote),
    /// Starts a run of this task.
    Start(u32),
    /// Begins to write the agent's record. Nothing waits for that: below a durable directory a
    /// replacement takes as long as the store.
    WriteRecord(AgentLoad),
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn idle_agent_on_demand_has_room_and_has_written_itself_down_lately() {
        let seen = Instant(1010 * SECOND);
        let status = AgentStatus { market: Market::OnDemand, has_room: true, seen };
        let now = Instant(1020 * SECOND);
        assert!(status.is_idle_on_demand(now));
        assert!(!status.is_silent(Instant(1030 * SECOND)));
        assert!(!status.is_idle_on_demand(Instant(1031 * SECOND)), "it may be dead");
        assert!(!AgentStatus { has_room: false, ..status }.is_idle_on_demand(now));
        assert!(!AgentStatus { market: Market::Spot, ..status }.is_idle_on_demand(now));
    }
}
