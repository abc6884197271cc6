//! A group that begins anew after its majority was lost: from the directory of a member that
//! survived, or from an archive.
//!
//! The directory becomes that of a namenode alone, of a later generation. Others join it. What the
//! survivor has in the group's log, agreed or not, is applied: a majority may have acknowledged it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sanderling_core::catalog::Command;
use sanderling_core::replica::{GroupGeneration, LogEntry, Payload};
use sanderling_protocol::ClusterId;
use thiserror::Error;

use super::hard_state::{self, HardState};
use super::log::{GroupLog, LogError, MemberFilesError};
use super::origin;
use super::round::{self, RoundError};
use crate::directory::{Directory, FileKind};
use crate::error::NamenodeStartError;
use crate::options::{NamenodeOptions, Sync};
use crate::recovery::{Recovered, recover_member};

/// Commands that are written at once. Half of a round of the writer. Nothing waits for them, so it
/// bounds the memory of one write only. Chosen, not measured.
const APPEND_MAX: usize = 1024;

/// A report of what became of a survivor's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveredMember {
    /// The cluster.
    pub cluster: ClusterId,
    /// The member that the directory was of.
    pub member: u64,
    /// Changes since the cluster began.
    pub commands: u64,
    /// Of those, changes at the end that this member had not received as agreed. A majority may
    /// have acknowledged them, or not.
    pub unconfirmed: u64,
    /// The generation that begins.
    pub group: GroupGeneration,
}

/// A reason why a group does not begin anew from a directory.
#[derive(Debug, Error)]
pub enum RecoverMemberError {
    /// It was never a member's, or has begun anew already.
    #[error("{} is no directory of a group's member", .directory.display())]
    NoMember {
        /// The directory.
        directory: PathBuf,
    },
    /// It may have forgotten what it had acknowledged: another member's directory may have more.
    #[error(
        "the machine was booted since member {member} wrote {}, or a sync of it has failed: \
         without --sync always it may lack changes that it had acknowledged", .directory.display()
    )]
    Forgotten {
        /// The directory.
        directory: PathBuf,
        /// The member.
        member: u64,
    },
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] Box<NamenodeStartError>),
    /// The group's log in it cannot be used.
    #[error("the group's log in {} cannot be used: {cause}", .directory.display())]
    Log {
        /// The directory.
        directory: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: MemberFilesError,
    },
}

impl From<NamenodeStartError> for RecoverMemberError {
    fn from(error: NamenodeStartError) -> Self {
        Self::Directory(Box::new(error))
    }
}

/// Makes the directory of a member that of a namenode alone, which begins the group anew.
/// `accepts_forgotten` accepts a directory that a crash of its machine may have cut. The generation
/// that begins follows the directory's own and the one of the number `after`.
///
/// # Errors
/// [`RecoverMemberError`]: take the directory of another member, or correct the cause and call
/// again. The directory is as it was; what was applied of the group's log stays in its journal, as
/// if the member had received that it is agreed.
pub fn recover_from_member(
    path: &Path,
    accepts_forgotten: bool,
    after: u64,
) -> Result<RecoveredMember, RecoverMemberError> {
    let no_member = || RecoverMemberError::NoMember { directory: path.to_owned() };
    // Before it is opened, which locks it and removes unfinished files: it may be of another use.
    if !path.is_dir() || !hard_state::may_be_in(path) {
        return Err(no_member());
    }
    let directory = Arc::new(Directory::open(path)?);
    let failed = |error: LogError| log_error(path, error);
    let hard = HardState::read(&directory).map_err(failed)?.ok_or_else(no_member)?;
    if hard.has_forgotten(&directory) && !accepts_forgotten {
        let (directory, member) = (path.to_owned(), hard.member.0);
        return Err(RecoverMemberError::Forgotten { directory, member });
    }
    // After a crash of the machine the end of the journal may be torn.
    let sync = if accepts_forgotten { Sync::Os } else { Sync::Always };
    let options = NamenodeOptions { sync, ..NamenodeOptions::default() };
    let mut recovered = recover_member(&directory, &options, hard.cluster)?;
    let found = recovered.namenode.catalog().cluster();
    if found != hard.cluster {
        return Err(log_error(path, MemberFilesError::OtherCluster(found)));
    }
    let opened = GroupLog::open(&directory, hard.cluster, Sync::Always, hard.record.start);
    let (log, entries) = opened.map_err(failed)?;
    drop(log);
    let index = recovered.namenode.catalog().index();
    let is_known = |entry: &LogEntry| round::is_known(entry, index);
    let kept = GroupLog::kept_before(&directory, hard.cluster, hard.record.start, is_known);
    let kept = kept.map_err(|error| log_error(path, error))?;
    let entries = [kept, entries].concat();
    let unconfirmed = apply(&mut recovered, entries, hard.record.vote.committed);
    let unconfirmed = unconfirmed.map_err(|error| log_error(path, error))?;
    let next = hard.generation.next_after(after, rand::random());
    drop(recovered.journal);
    begin(&directory, next)?;
    Ok(RecoveredMember {
        cluster: hard.cluster,
        member: hard.member.0,
        commands: recovered.namenode.catalog().index(),
        unconfirmed,
        group: next,
    })
}

fn log_error(path: &Path, cause: impl Into<MemberFilesError>) -> RecoverMemberError {
    RecoverMemberError::Log { directory: path.to_owned(), cause: cause.into() }
}

/// Applies what the log has and the journal does not. Returns how many commands of that are of
/// entries that were not known to be agreed.
fn apply(
    recovered: &mut Recovered,
    entries: Vec<LogEntry>,
    committed: u64,
) -> Result<u64, RoundError> {
    let (mut unconfirmed, restored) = (0, recovered.namenode.catalog().index());
    for LogEntry { place, payload } in entries {
        let Payload::Round { commands, .. } = payload else { continue };
        let round = round::decode(&commands)?;
        let new = round.after(recovered.namenode.catalog().index(), restored)?;
        for commands in new.chunks(APPEND_MAX) {
            let commands: Vec<&Command> = commands.iter().collect();
            recovered.journal.append(commands.iter().copied())?;
            for command in commands {
                recovered.namenode.apply(command);
            }
        }
        if place.index > committed {
            unconfirmed += new.len() as u64;
        }
    }
    recovered.journal.sync()?;
    Ok(unconfirmed)
}

/// Makes the directory that of a namenode alone of a later generation. The generation is there
/// before the member is not, so that no namenode starts on it as one of the older generation.
fn begin(directory: &Directory, generation: GroupGeneration) -> Result<(), NamenodeStartError> {
    origin::write(directory, generation)?;
    leave(directory)
}

/// Sets aside what makes the directory a member's.
pub(crate) fn leave(directory: &Directory) -> Result<(), NamenodeStartError> {
    let fail = |cause| NamenodeStartError::Files {
        what: "set the group's files aside in",
        path: directory.path().to_owned(),
        cause,
    };
    hard_state::begin_leaving(directory).map_err(fail)?;
    directory.sync().map_err(fail)?;
    for first in directory.list(FileKind::Rounds).map_err(fail)? {
        directory.set_aside(FileKind::Rounds, first).map_err(fail)?;
    }
    hard_state::set_aside(directory).map_err(fail)?;
    directory.sync().map_err(fail)
}
