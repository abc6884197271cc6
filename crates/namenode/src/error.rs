//! Why a namenode does not start, or stops.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use sanderling_core::catalog::Catalog;
use sanderling_transport::ListenError;
use thiserror::Error;
use tokio::task::JoinError as TaskError;

use crate::archive::place::ArchiveError;
use crate::damage::{JournalDamage, SnapshotDamage};
use crate::group::join::JoinError;
use crate::group::log::{LogError, MemberFilesError};
use crate::group::round::RoundError;
use crate::journal::JournalFailure;
use crate::journal::header::{PLAIN_VERSION, VERSION};

/// A reason why a namenode does not start.
#[derive(Debug, Error)]
pub enum NamenodeStartError {
    /// An address cannot be listened on: it is in use, or reaches beyond this machine.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Another namenode runs on this directory.
    #[error("{} is in use by another namenode", .directory.display())]
    DirectoryLocked {
        /// The directory.
        directory: PathBuf,
    },
    /// A restore into this directory did not reach its end. The same restore may be made again.
    #[error("a restore into {} did not reach its end", .directory.display())]
    Unrestored {
        /// The directory.
        directory: PathBuf,
    },
    /// A file or directory cannot be read or written.
    #[error("cannot {what} {}: {cause}", .path.display())]
    Files {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
    /// A snapshot is not what was written, and no older one and the journal since then take its
    /// place. Move the directory away to start empty.
    #[error("snapshot {} is corrupt: {damage}", .path.display())]
    CorruptSnapshot {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        damage: SnapshotDamage,
    },
    /// The journal is damaged, not torn: changes that the disk had once are missing. An operator
    /// that names it in [`NamenodeOptions::accepted_loss`](crate::NamenodeOptions) starts
    /// without them.
    #[error(
        "journal {} is damaged at byte {offset} ({damage}): {records} whole records in {bytes} \
         bytes from there on would be lost",
        .path.display()
    )]
    DamagedJournal {
        /// The file.
        path: PathBuf,
        /// Up to where it is whole.
        offset: u64,
        /// Whole records behind the damage: acknowledged changes, most likely.
        records: u64,
        /// Bytes of journal from there on.
        bytes: u64,
        /// What is wrong there.
        #[source]
        damage: JournalDamage,
        /// What to put into [`NamenodeOptions::accepted_loss`](crate::NamenodeOptions).
        name: String,
    },
    /// The journal was written by another version of the program.
    #[error(
        "journal {} is of format {version}, and this program reads {} to {}",
        .path.display(), PLAIN_VERSION, VERSION
    )]
    JournalVersion {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
    /// A snapshot was written by another version of the program.
    #[error(
        "snapshot {} is of format {version}, and this program reads {} to {}",
        .path.display(), Catalog::FORMAT_MIN, Catalog::FORMAT
    )]
    SnapshotVersion {
        /// The file.
        path: PathBuf,
        /// Its format.
        version: u32,
    },
    /// A later program wrote commands that mean something else than this one would do.
    #[error(
        "the log in {} follows rules {rules}, and this program supports them up to {}",
        .path.display(), Catalog::RULES
    )]
    NewerRules {
        /// The directory.
        path: PathBuf,
        /// The rules of its last commands.
        rules: u32,
    },
    /// The journal cannot be read, or a part of it is not there: nothing can go on from it.
    #[error("journal {} is corrupt: {damage}", .path.display())]
    CorruptJournal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        damage: JournalDamage,
    },
    /// The directory could not be read to its end.
    #[error("reading the directory failed: {0}")]
    Reading(#[source] TaskError),
    /// The archive cannot be written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// It does not become a member of the group.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A group's member has files that cannot be read or written.
    #[error("the directory of a group's member: {0}")]
    Group(#[source] MemberFilesError),
    /// What the directory of a group's member has of the catalog is damaged. Another member has all
    /// of it.
    #[error("{cause}; it is the directory of member {member} of a group")]
    DamagedMember {
        /// The member.
        member: u64,
        /// What is damaged.
        #[source]
        cause: Box<Self>,
    },
    /// The directory has a catalog, and `--join` needs one without.
    #[error("{} has a catalog already: a namenode joins a group with an empty directory",
        .directory.display())]
    NotEmpty {
        /// The directory.
        directory: PathBuf,
    },
    /// The machine was booted since the member wrote its log, and not all of it was synced; or a
    /// sync of it has failed. Others may have more than this directory.
    #[error("{cause}: without --sync always member {member} may have forgotten what it has \
        acknowledged{}", its_spares(.spares))]
    Forgotten {
        /// The member.
        member: u64,
        /// What happened.
        #[source]
        cause: ForgottenCause,
        /// Where the spares are, if it is the only voter: they may have it.
        spares: Vec<String>,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

/// The cause of which a member may have forgotten a part of its log that it has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ForgottenCause {
    /// The log was not synced, and memory is empty.
    #[error("the machine was booted since")]
    Boot,
    /// The kernel may have dropped what it could not write.
    #[error("a sync of the group's log has failed")]
    FailedSync,
}

/// Describes where the spares of the only voter are.
fn its_spares(spares: &[String]) -> String {
    match spares {
        [] => String::new(),
        spares => format!("; it is the only voter, and its spare {} has", spares.join(", ")),
    }
}

impl From<LogError> for NamenodeStartError {
    fn from(error: LogError) -> Self {
        Self::Group(error.into())
    }
}

/// A reason why a running namenode cannot go on.
#[derive(Debug, Clone, Error)]
pub enum NamenodeFailure {
    /// The journal cannot be trusted any more: what was written may not be on the disk.
    #[error("the journal has failed: {cause}")]
    Journal {
        /// What happened.
        #[source]
        cause: JournalFailure,
    },
    /// The journal cannot follow the group: what is agreed is not to be applied to it.
    #[error("the journal has failed: {cause}")]
    Unapplied {
        /// What happened.
        #[source]
        cause: RoundError,
    },
    /// The log of its group cannot be trusted any more: what was written may not be on the disk.
    #[error("the log of the group has failed: {cause}")]
    GroupLog {
        /// What happened, and to which file.
        #[source]
        cause: Arc<LogError>,
        /// Whether the member may have forgotten what it has acknowledged, and others have it.
        may_have_forgotten: bool,
    },
    /// Another namenode has recovered from the archive, and goes on in place of this one.
    #[error("another namenode has taken over from the archive {archive}")]
    Superseded {
        /// The archive.
        archive: String,
    },
    /// The group has removed this member: another has taken its place, or an operator removed it.
    #[error("this namenode was removed from its group")]
    Removed,
    /// Its group was begun anew without it, after the majority was lost.
    #[error(
        "this namenode is of generation {own} of its group, and there is generation {later}: an \
         operator has begun the group anew"
    )]
    OlderGeneration {
        /// Its generation.
        own: u64,
        /// The later one.
        later: u64,
    },
    /// Its machine will be taken in a moment, and no other can take its place: it closes its
    /// archive.
    #[error("this namenode stops before its machine is taken: no other can take its place")]
    Last,
    /// It has left its group, because its machine will be taken: nothing is wrong.
    #[error("this namenode has left its group: its machine may be taken")]
    Left,
    /// A part of the server ended by itself.
    #[error("the {part} ended by itself")]
    Ended {
        /// The part.
        part: &'static str,
    },
}

impl NamenodeFailure {
    /// Returns whether the journal lacks changes, or may: nothing counts as complete then.
    pub(crate) const fn is_of_the_journal(&self) -> bool {
        matches!(self, Self::Journal { .. } | Self::Unapplied { .. })
    }

    /// Returns whether this failure is kept in place of the one before: the first one is kept,
    /// unless a later one shows that the journal lacks changes.
    pub(crate) fn replaces(&self, kept: Option<&Self>) -> bool {
        kept.is_none_or(|kept| self.is_of_the_journal() && !kept.is_of_the_journal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namenode that gets a notice, and cannot sync its journal while it stops, closes no
    /// archive.
    #[test]
    fn failure_of_the_journal_replaces_one_that_shows_nothing_of_it() {
        let cause = Arc::new(io::Error::other("no such device"));
        let cause = JournalFailure::Unsynced { path: "journal-0".into(), cause };
        let journal = NamenodeFailure::Journal { cause };
        assert!(NamenodeFailure::Last.replaces(None));
        assert!(journal.replaces(Some(&NamenodeFailure::Last)));
        assert!(!NamenodeFailure::Last.replaces(Some(&journal)));
        assert!(!NamenodeFailure::Left.replaces(Some(&NamenodeFailure::Last)));
        assert!(!journal.replaces(Some(&journal)), "the first one is shown");
    }
}
