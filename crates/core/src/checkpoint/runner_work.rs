//! What a task's runner reports to its [`super::TaskSupervisor`], and what it does for that.

use sanderling_protocol::{Instant, Millis};

use super::dump_turns::LastDump;

/// The time and the sizes that the runner reads when it hands a [`RunnerInput`] over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunnerView {
    /// The time, by a clock that never steps.
    pub now: Instant,
    /// How long the machine runs already, where the interval depends on that
    /// ([`super::TaskSupervisor::needs_age`]).
    pub machine_age: Millis,
    /// The memory that the task has in use, where the forecast needs it
    /// ([`super::TaskSupervisor::needs_size`]).
    pub resident_bytes: u64,
    /// For how long the dump under way has waited for its turn so far.
    pub waited: Millis,
}

/// A notice that the task's machine will be taken, with what the runner does about its task then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnerNotice {
    /// When it will be taken.
    pub deadline: Instant,
    /// Whether it is a signal, after which the runner ends its task.
    pub is_sigterm: bool,
    /// Whether the runner also ends its task once a generation of this notice is stored: another
    /// one goes on with it before the machine is taken, as in a bag.
    pub hands_over: bool,
}

/// What became of a dump: [`RunnerInput::Dumped`] has it. After all but [`Self::Stored`] the task
/// has no new generation, and its work since the last one is unsaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpEnd {
    /// Its generation is stored.
    Stored {
        /// How long it took, without the wait for its turn.
        took: Millis,
        /// The same from its turn on.
        in_turn: Millis,
        /// Which work the generation has: that until then.
        worked_until: Instant,
    },
    /// The task cannot give its state yet.
    NotYet,
    /// At its turn it would not have ended in time any more.
    Refused {
        /// How long it takes.
        takes: Millis,
    },
    /// Another runner has the lock, or has written the generation.
    Taken,
    /// There is no generation, for another reason.
    Failed {
        /// Whether packs may be stored that no generation names, or the store may be too full
        /// for the lock.
        leaves_packs: bool,
    },
}

/// What happens to a run, in the order in which the runner saw it. The end of work that was given
/// up changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerInput {
    /// The machine will be taken. It waits during [`RunnerWork::AwaitStop`], and one that is no
    /// signal also while another one is attended to ([`super::TaskSupervisor::attended`]).
    Notice(RunnerNotice),
    /// The runner has to end, and that is no notice.
    Interrupted,
    /// Another runner has the lock.
    LockLost,
    /// The task has ended.
    TaskEnded {
        /// Whether it did not fail.
        is_success: bool,
    },
    /// [`RunnerWork::Dump`] has ended.
    Dumped(DumpEnd),
    /// [`RunnerWork::Collect`] or [`RunnerWork::MakeRoom`] has ended.
    Tidied,
    /// [`RunnerWork::LookAtLock`] has ended.
    LockSeen {
        /// Whether another runner has the lock. One that cannot be read is not lost.
        is_lost: bool,
    },
    /// [`RunnerWork::LookAtGenerations`] has ended.
    GenerationsSeen,
    /// [`RunnerWork::AwaitStop`] has ended.
    StopAwaited {
        /// Whether the runner has to end, too.
        is_stopped: bool,
    },
}

/// What the runner does beside waiting for what happens. Only one work is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerWork {
    /// Nothing: the task works.
    Wait,
    /// Take a checkpoint. It can be given up.
    Dump,
    /// Now that a generation is stored, record the work that it has, and remove what is old. It can
    /// be given up.
    Collect,
    /// Remove what the store may be full of: packs that no generation names, and old generations
    /// that stayed. It can be given up.
    MakeRoom,
    /// Look whether another runner has the lock. It can be given up.
    LookAtLock,
    /// Look again which generations there are, and take the number of the last dump for that of
    /// another runner. It can be given up.
    LookAtGenerations,
    /// Wait a little whether the runner has to end, too, after its task has failed: a service
    /// manager and a terminal send their signal to all processes at once.
    AwaitStop,
    /// End.
    End(RunnerEnd),
}

/// How a run ends, and what the runner does with its task then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerEnd {
    /// The task has ended, or failed.
    TaskEnded,
    /// The runner has to end, and its task has ended with it: another one goes on with it.
    Stopped,
    /// The runner has to end, or hands its task over at a notice, and ends it: another one goes on
    /// with it.
    EndTask,
    /// Another runner has the task. This one ends it here, soon: both run meanwhile.
    Lost,
}

/// What the runner prints for an operator. The shell of the runner has the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerNote {
    /// There is no checkpoint, because of the last failure.
    Failed,
    /// The same, because another runner has written the generation.
    Overtaken,
    /// Nothing can take a checkpoint of the task.
    Undriven,
    /// At the last notice a dump is begun.
    TakenNow {
        /// How long it takes.
        takes: Millis,
    },
    /// A dump would not end before the deadline of the last notice: none is begun.
    NoneBegun {
        /// How long it takes.
        takes: Millis,
    },
    /// At the last notice a dump is under way.
    UnderWay {
        /// How much longer it takes, 0 if it is overdue.
        rest: Millis,
        /// Whether it goes on; it is given up if not.
        goes_on: bool,
    },
    /// The dump under way did not end in time.
    NotInTime,
    /// The dump that was begun for the notice did not end in time: the last generation counts.
    LastNotInTime,
    /// The same for a task that cannot give its state.
    LastUngiven,
    /// The same for a dump that has failed.
    LastFailed,
}

/// An effect of the machine of a run, which the runner carries out. It takes them in the order in
/// which [`TaskSupervisor::poll_output`](super::TaskSupervisor::poll_output) returns them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerOutput {
    /// Prints a line about the run.
    Note(RunnerNote),
    /// Gives up the work that is under way, and begins this.
    Work(RunnerWork),
    /// Puts the dump under way among the last dumps at the notice, of which the tasks of a process
    /// take turns.
    Turn {
        /// The dump.
        dump: LastDump,
        /// How much longer it takes if it has begun already.
        rest: Millis,
    },
}
