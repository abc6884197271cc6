//! The failures by which a runner, an agent or a reader of checkpoints decides what comes next.

use std::fmt::Display;
use std::io;

use sanderling_command::failure::{Exit, Failure, FailureKind, RefusalKind};

/// What a failure means for the one that runs a task. A [`Failure`] has its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskFailure {
    /// Another runner has the task: this one must not write.
    Taken,
    /// The task ended before: it is not run again.
    Ended,
    /// The task's command failed.
    Failed,
    /// An object of the backend is longer than it may be, and was not read.
    TooLong,
    /// A file on this machine cannot be read or written.
    LocalFile,
    /// A record of a bag is not what an agent writes.
    BagDamaged,
    /// The bag was removed, or another one has its name.
    BagGone,
    /// A state changed while it was read: it can be read again.
    StateChanged,
    /// CRIU has closed a pipe: its own error counts.
    BrokenPipe,
    /// A generation cannot be used; the one before may be good.
    BadGeneration,
    /// The same, and its manifest shows that the key is the one that it was made with.
    DamagedGeneration,
    /// The same, and its manifest names another key.
    OtherKey,
    /// A generation was written by a release whose format this one does not read. It may be newer
    /// work than all that can be read, so that none before it is taken.
    OtherRelease,
    /// None of a task's generations can be used, or there is none.
    NoGeneration,
    /// This machine cannot restore a generation; another one may.
    OtherMachine,
    /// CRIU has read a good generation and could not restore it here, as where a file that was open
    /// is missing; on another machine it may.
    CriuRestore,
    /// The store has lost bytes of a generation; the one before may be good. The client makes it.
    DataLost,
}

impl TaskFailure {
    /// Returns the kind of failures with this meaning, whose name scripts read.
    const fn kind(self) -> FailureKind {
        match self {
            Self::Taken => FailureKind::TaskTaken,
            Self::Ended => FailureKind::TaskEnded,
            Self::Failed => FailureKind::TaskFailed,
            Self::TooLong => FailureKind::TaskObjectTooLong,
            Self::LocalFile => FailureKind::LocalFile,
            Self::BagDamaged => FailureKind::BagDamaged,
            Self::BagGone => FailureKind::BagGone,
            Self::StateChanged => FailureKind::StateChanged,
            Self::BrokenPipe => FailureKind::BrokenPipe,
            Self::BadGeneration => FailureKind::BadGeneration,
            Self::DamagedGeneration => FailureKind::DamagedGeneration,
            Self::OtherKey => FailureKind::OtherKey,
            Self::OtherRelease => FailureKind::OtherRelease,
            Self::NoGeneration => FailureKind::NoGeneration,
            Self::OtherMachine => FailureKind::OtherMachine,
            Self::CriuRestore => FailureKind::CriuRestore,
            Self::DataLost => FailureKind::Refusal(RefusalKind::DataUnavailable),
        }
    }

    /// Makes a failure with this meaning from its cause.
    pub(crate) fn failure(self, exit: Exit, cause: impl Display) -> Failure {
        Failure::new(exit, self.kind(), cause)
    }

    /// Makes the failure of a generation that is refused from what is wrong with it.
    pub(crate) fn of_generation(self, task: &str, generation: u64, why: impl Display) -> Failure {
        let cause = format!("generation {generation} of {task} is refused: {why}");
        self.failure(Exit::Partial, cause)
    }

    /// Returns whether a failure has this meaning.
    pub(crate) fn is(self, failure: &Failure) -> bool {
        failure.kind == self.kind()
    }
}

/// Returns the system's error that a failure was made from, if it was made from one.
pub(crate) fn system_error(failure: &Failure) -> Option<&io::Error> {
    failure.source.as_deref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use sanderling_client::ClientError;
    use sanderling_command::refused;
    use sanderling_protocol::{ObjectId, Path};

    use super::*;

    #[test]
    fn lost_data_has_the_name_that_the_client_gives_it() {
        let (path, object, ranges) = (Path::root(), ObjectId(1), Vec::new());
        let lost = ClientError::DataUnavailable { path, object, ranges };
        assert_eq!(lost.name(), TaskFailure::DataLost.kind().name());
        assert!(TaskFailure::DataLost.is(&refused::client(&lost, "h:1")));
    }
}
