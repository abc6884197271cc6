//! The kinds of failures: the closed table of the names that scripts read.

use std::fmt;

use sanderling_protocol::RefusalKind;

macro_rules! kinds {
    ($( $(#[$meta:meta])* $name:ident, )*) => {
        /// What kind of failure it is. Commands decide by it; scripts read its name.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum FailureKind {
            $( $(#[$meta])* $name, )*
            /// Nothing is printed: the output is complete, or its reader has gone.
            Silent,
            /// A server refuses it, or a command finds what a server refuses by that name.
            Refusal(RefusalKind),
            /// A server's page refuses it by a name that this release does not have.
            Foreign(Box<str>),
        }

        impl FailureKind {
            /// Every kind of our own, in the order of the table.
            const OWN: &'static [Self] = &[ $( Self::$name, )* Self::Silent ];

            /// Returns the name, as scripts read it.
            #[must_use]
            pub fn name(&self) -> &str {
                match self {
                    $( Self::$name => stringify!($name), )*
                    Self::Silent => "",
                    Self::Refusal(kind) => kind.name(),
                    Self::Foreign(name) => name.as_ref(),
                }
            }
        }
    };
}

kinds! {
    // What any command can meet.
    /// The command line is wrong.
    Usage,
    /// The results cannot be written to standard output.
    Output,
    /// Something that was done to a local file.
    LocalFile,
    /// A process cannot be started, followed or ended, or cannot be what it has to be.
    Process,
    /// The runtime of the process, or what records its spans, cannot be made.
    Runtime,
    /// The program contradicts itself.
    Bug,
    /// The user has ended it.
    Interrupted,
    /// It was not done in time.
    Deadline,
    /// It was not confirmed.
    NotConfirmed,
    /// The program was built without the command.
    NotInThisBuild,
    /// The system gives no random numbers.
    Random,

    // Calls of servers.
    /// No server answers.
    Unreachable,
    /// No server answers over HTTP.
    Unavailable,
    /// The call's deadline passed.
    TimedOut,
    /// The connection broke while the call was under way.
    Closed,
    /// Too many calls are under way on the connection.
    TooBusy,
    /// The writer was closed, or failed before.
    WriterClosed,
    /// The answer does not match the request.
    BadReply,
    /// An address is none, or not that of the server that is meant.
    BadAddress,

    // Configuration and credentials.
    /// The configuration file, or a key of it, is wrong.
    BadConfig,
    /// The file of contexts cannot be used.
    BadContexts,
    /// There is no home directory for the file of contexts.
    NoHome,
    /// A token, a secret or a certificate cannot be used for a call.
    Credentials,
    /// A certificate or an authority cannot be used.
    BadCertificate,
    /// A secret cannot be used.
    BadSecret,
    /// A token cannot be read.
    BadToken,
    /// A key cannot be used.
    BadKey,
    /// The keys of the gateway's users cannot be used.
    BadKeys,

    // Servers.
    /// An option has a value that this machine or this server cannot have.
    BadOption,
    /// The model of preemptions cannot be used.
    BadPreemptionModel,
    /// A server does not start.
    NotStarted,
    /// The namenode has ended by a failure.
    NamenodeFailed,
    /// The namenode has ended before its archive had all changes.
    Unarchived,
    /// The datanode has ended by a failure.
    DatanodeFailed,
    /// Blocks were left on the node at its deadline, or its drain was taken back.
    NotDrained,
    /// The leadership of a group of namenodes has not moved as it was ordered.
    NotMoved,
    /// The server answers over HTTP with an error without a name of its own.
    Http,

    // Backups and archives.
    /// The task that takes a backup has failed.
    Backup,
    /// The backup is damaged or cut off.
    BadBackup,
    /// The task that restores a backup has failed.
    Restore,
    /// The directory cannot be used for what is restored.
    NotRestored,
    /// Another version wrote the backup.
    OtherFormat,
    /// A disk has no room.
    NoSpace,
    /// A namenode uses the directory.
    InUse,
    /// A bucket cannot be used.
    ObjectStore,
    /// The place of an archive cannot be used.
    Archive,
    /// The archive has changes that the directory lacks.
    ArchiveAhead,
    /// The archive is damaged.
    BadArchive,
    /// It was not recovered.
    NotRecovered,
    /// The member may have forgotten changes that it had acknowledged.
    MayHaveForgotten,
    /// It belongs to an earlier generation than the newest.
    OlderGeneration,

    // The store, as commands see it.
    /// The source and the destination are the same object.
    SameObject,
    /// Not everything is in the object store yet.
    NotDurable,
    /// Not everything of a bucket is adopted yet.
    NotAdopted,
    /// The catalog contradicts itself.
    Problems,
    /// Blocks could not be looked at.
    NotLookedAt,
    /// A check of `sanderling doctor` has failed.
    Unfit,
    /// The demonstration's package is missing.
    NoDemo,

    // Local clusters.
    /// Servers of the local cluster do not run.
    Down,
    /// Another command changes the local cluster.
    Busy,
    /// The server has left its group and cannot come back as it was.
    Removed,
    /// Other bytes came back than were stored.
    Damaged,

    // Tasks and bags of tasks.
    /// Another runner has the task.
    TaskTaken,
    /// The task has ended before.
    TaskEnded,
    /// The task's command has failed.
    TaskFailed,
    /// The task runs: its checkpoints cannot be looked at now.
    TaskBusy,
    /// The key of a task's checkpoints cannot be used.
    TaskKey,
    /// The place of a task's checkpoints cannot be used.
    TaskBackend,
    /// An object of the place of checkpoints is longer than it may be.
    TaskObjectTooLong,
    /// The state of the laboratory's task cannot be read.
    TaskState,
    /// Another runner uses the directory with the task's state.
    StateTaken,
    /// The state of a task changed while it was read.
    StateChanged,
    /// A file of a state is of a kind that no checkpoint holds.
    StateKind,
    /// A state is too large for a checkpoint.
    StateTooLarge,
    /// The task has ended instead of writing its state.
    HookEnded,
    /// The task has not written its state in time.
    HookTimeout,
    /// CRIU cannot be used.
    Criu,
    /// CRIU has not dumped the task.
    CriuDump,
    /// CRIU has not restored the task.
    CriuRestore,
    /// A pipe was closed at its other end.
    BrokenPipe,
    /// The checkpoint was made on a machine that this one cannot stand in for.
    OtherMachine,
    /// A generation cannot be used.
    BadGeneration,
    /// A generation is damaged, and the key is the one that it was made with.
    DamagedGeneration,
    /// A generation was made with another key.
    OtherKey,
    /// A generation was written by a release whose format this one does not read.
    OtherRelease,
    /// There is no generation that can be used.
    NoGeneration,
    /// The bag exists.
    BagExists,
    /// The bag does not exist.
    NoBag,
    /// The bag was removed, or another one has its name.
    BagGone,
    /// A record of a bag is not what an agent writes.
    BagDamaged,
    /// A bag has missed its deadline or its price.
    BagMissed,

    // What measures.
    /// A connection of a benchmark broke.
    Io,
    /// A benchmark has read other bytes than were written.
    WrongBytes,
    /// A namenode has refused what a benchmark needs.
    Namenode,
    /// What a benchmark needs was not prepared.
    NotPrepared,
    /// The tenant of a benchmark got errors.
    TenantErrors,
    /// A record of the laboratory cannot be read.
    LabRecord,
    /// This machine or this user cannot make network namespaces.
    NoNamespaces,
    /// A notice of an experiment was not given.
    Notice,
    /// A measured task was not ready in time.
    TooSlow,
    /// A task has restored other bytes than it had stored.
    OtherBytes,
    /// The prediction of a task's checkpoints cannot be read.
    Predict,
    /// A checker of the simulator found a violation.
    Violation,
}

impl FailureKind {
    /// Returns the kind with a name, such as that of the page of a server: one of our own, that of
    /// a refusal, or [`FailureKind::Foreign`].
    #[must_use]
    pub fn named(name: &str) -> Self {
        let own = Self::OWN.iter().find(|kind| kind.name() == name).cloned();
        let refusal = || RefusalKind::named(name).map(Self::Refusal);
        own.or_else(refusal).unwrap_or_else(|| Self::Foreign(name.into()))
    }

    /// Returns the kind that the page of a server names; a page without a name is no answer of one.
    #[must_use]
    pub fn of_page(name: &str) -> Self {
        match name {
            "" => Self::BadReply,
            name => Self::named(name),
        }
    }
}

impl From<RefusalKind> for FailureKind {
    fn from(kind: RefusalKind) -> Self {
        Self::Refusal(kind)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The names of our own kinds, which scripts compare: one is added with its kind, and none is
    /// changed.
    const NAMES: &str = "
        Usage Output LocalFile Process Runtime Bug Interrupted Deadline NotConfirmed NotInThisBuild
        Random Unreachable Unavailable TimedOut Closed TooBusy WriterClosed BadReply BadAddress
        BadConfig BadContexts NoHome Credentials BadCertificate BadSecret BadToken BadKey BadKeys
        BadOption BadPreemptionModel NotStarted NamenodeFailed Unarchived DatanodeFailed NotDrained
        NotMoved Http Backup BadBackup Restore NotRestored OtherFormat NoSpace InUse ObjectStore
        Archive ArchiveAhead BadArchive NotRecovered MayHaveForgotten OlderGeneration SameObject
        NotDurable NotAdopted Problems NotLookedAt Unfit NoDemo Down Busy Removed Damaged TaskTaken
        TaskEnded TaskFailed TaskBusy TaskKey TaskBackend TaskObjectTooLong TaskState StateTaken
        StateChanged StateKind StateTooLarge HookEnded HookTimeout Criu CriuDump CriuRestore
        BrokenPipe OtherMachine BadGeneration DamagedGeneration OtherKey OtherRelease NoGeneration
        BagExists NoBag BagGone BagDamaged BagMissed Io WrongBytes Namenode NotPrepared TenantErrors
        LabRecord NoNamespaces Notice TooSlow OtherBytes Predict Violation
    ";

    #[test]
    fn names_of_kinds_are_stable() {
        let names: Vec<&str> = FailureKind::OWN.iter().map(FailureKind::name).collect();
        let (silent, named) = names.split_last().unwrap();
        assert_eq!(*silent, FailureKind::Silent.name());
        assert_eq!(*silent, "");
        assert_eq!(named, NAMES.split_whitespace().collect::<Vec<_>>());
    }

    #[test]
    fn names_of_kinds_are_unique() {
        let refusals = RefusalKind::ALL.iter().copied().map(FailureKind::from);
        let all: Vec<FailureKind> = FailureKind::OWN.iter().cloned().chain(refusals).collect();
        let names: BTreeSet<&str> = all.iter().map(FailureKind::name).collect();
        assert_eq!(names.len(), all.len());
        for kind in &all {
            assert_eq!(&FailureKind::named(kind.name()), kind);
            assert_eq!(kind.to_string(), kind.name());
        }
    }

    #[test]
    fn name_of_a_later_release_stays_as_it_is() {
        let kind = FailureKind::named("OfLaterRelease");
        assert_eq!(kind, FailureKind::Foreign("OfLaterRelease".into()));
        assert_eq!(kind.to_string(), "OfLaterRelease");
    }

    #[test]
    fn page_without_a_name_is_a_bad_reply() {
        assert_eq!(FailureKind::of_page(""), FailureKind::BadReply);
        assert_eq!(FailureKind::of_page("NotFound"), RefusalKind::NotFound.into());
    }
}
