//! How a namenode starts: alone, as the member that its directory is of, or as a new member.

use std::sync::Arc;

use sanderling_core::replica::{GroupGeneration, GroupRole, MemberAddress, StartAs};
use sanderling_protocol::message::Role;
use sanderling_protocol::{MemberId, Nonce};
use sanderling_transport::ListenError;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tracing::info;

use crate::directory::{Directory, FileKind};
use crate::error::{ForgottenCause, NamenodeStartError};
use crate::group::hard_state::{self, HardState};
use crate::group::join::join;
use crate::group::log::{GroupFileDamage, GroupLog, LogError, MemberFilesError};
use crate::group::origin;
use crate::group::recover::leave;
use crate::group::{GroupSetup, OwnMachine};
use crate::options::NamenodeOptions;
use crate::recovery::{Recovered, recover, recover_member};

/// What a namenode starts as.
#[derive(Debug)]
pub(crate) enum MemberStart {
    /// The only namenode, of this generation.
    Alone(GroupGeneration),
    /// A member that the group has just taken.
    Joined(MemberId, GroupGeneration),
    /// The member that the directory is of.
    Member(Box<HardState>),
}

impl MemberStart {
    /// Returns the term in which a namenode alone serves: its generation's first.
    pub(super) const fn term(&self) -> u64 {
        match self {
            Self::Alone(generation) => generation.first_term(),
            Self::Joined(..) | Self::Member(_) => 0,
        }
    }
}

/// A directory that was read, and what the namenode starts as.
pub(super) type Read = (Arc<Directory>, Recovered, MemberStart);

/// Returns where other members, clients and datanodes reach this namenode.
pub(super) fn address(
    options: &NamenodeOptions,
    listener: &TcpListener,
    http_listener: Option<&TcpListener>,
) -> Result<MemberAddress, NamenodeStartError> {
    let local = |listener: &TcpListener| {
        let io = |cause| ListenError::Io { address: options.listen.clone(), cause };
        listener.local_addr().map_err(io)
    };
    let at = local(listener)?;
    let http = http_listener.map(local).transpose()?;
    let shown = |advertised: &Option<String>, at: std::net::SocketAddr| match advertised {
        Some(host) if host.rsplit_once(':').is_some_and(|(_, it)| it.parse::<u16>().is_ok()) => {
            host.clone()
        }
        Some(host) => format!("{host}:{}", at.port()),
        None => at.to_string(),
    };
    Ok(MemberAddress {
        address: shown(&options.group.advertise, at),
        http_address: http.map_or_else(String::new, |http| {
            let advertised = options.group.advertise_http.as_ref().or(options
                .group
                .advertise
                .as_ref()
                .filter(|it| !it.contains(':')));
            shown(&advertised.cloned(), http)
        }),
        nonce: Nonce(rand::random()),
    })
}

/// Returns what the namenode brings into a group.
pub(super) fn setup(options: &NamenodeOptions, at: MemberAddress) -> GroupSetup {
    GroupSetup {
        at,
        voters: options.group.voters,
        spares: options.group.spares,
        has_archive: options.archive.is_some(),
        machine: OwnMachine {
            is_steady: options.group.is_steady,
            model: options.core.preemption.clone(),
        },
        sync: options.sync,
        credentials: options.security.credentials(Role::Namenode),
        runtime: Handle::current(),
    }
}

/// Reads the directory; a namenode that joins a group becomes a member before.
pub(super) async fn read(
    options: &NamenodeOptions,
    at: &MemberAddress,
) -> Result<Read, NamenodeStartError> {
    let reading = options.clone();
    let found = blocking(move || find(&reading)).await?;
    let (directory, found) = match found {
        FoundDirectory::Read(read) => return Ok(*read),
        FoundDirectory::Joins(directory, address) => (directory, address),
    };
    let credentials = options.security.credentials(Role::Namenode);
    let joined = join(&found, &credentials, at).await?;
    info!(group = found, member = joined.member.0, "this namenode is a member of the group");
    let reading = options.clone();
    blocking(move || {
        let recovered = recover_member(&directory, &reading, joined.cluster)?;
        Ok((directory, recovered, MemberStart::Joined(joined.member, joined.generation)))
    })
    .await
}

async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, NamenodeStartError> + Send + 'static,
) -> Result<T, NamenodeStartError> {
    tokio::task::spawn_blocking(read).await.map_err(NamenodeStartError::Reading)?
}

enum FoundDirectory {
    Read(Box<Read>),
    /// An empty directory, and a member of the group.
    Joins(Arc<Directory>, String),
}

fn find(options: &NamenodeOptions) -> Result<FoundDirectory, NamenodeStartError> {
    let directory = Arc::new(Directory::open(&options.directory)?);
    if let Some(state) = HardState::read(&directory)? {
        if state.start_as(&directory) == StartAs::NewMember {
            return Err(forgotten(&directory, &state));
        }
        let recovered = recover_member(&directory, options, state.cluster);
        let recovered = recovered.map_err(|cause| damaged(state.member, cause))?;
        let found = recovered.namenode.catalog().cluster();
        if found != state.cluster {
            return Err(NamenodeStartError::Group(MemberFilesError::OtherCluster(found)));
        }
        let start = MemberStart::Member(Box::new(state));
        return Ok(FoundDirectory::Read(Box::new((directory, recovered, start))));
    }
    let is_leaving = hard_state::is_leaving(&directory).map_err(MemberFilesError::Kept);
    if is_leaving.map_err(NamenodeStartError::Group)? {
        // A recovery of the group ended in between: the directory has the later generation.
        leave(&directory)?;
    }
    let has_entries = GroupLog::has_entries(&directory).map_err(MemberFilesError::Kept);
    if has_entries.map_err(NamenodeStartError::Group)? {
        // Alone it would serve beside the group that it is a member of.
        let (path, damage) = (HardState::path(&directory), GroupFileDamage::NoFile);
        return Err(NamenodeStartError::Group(LogError::Damaged { path, damage }.into()));
    }
    match &options.group.join {
        None => {
            let recovered = recover(&directory, options)?;
            let start = MemberStart::Alone(origin::read(&directory)?);
            Ok(FoundDirectory::Read(Box::new((directory, recovered, start))))
        }
        Some(address) => {
            clear(&directory)?;
            Ok(FoundDirectory::Joins(directory, address.clone()))
        }
    }
}

/// Describes a member that may have forgotten what it had acknowledged, and where that may be.
fn forgotten(directory: &Directory, state: &HardState) -> NamenodeStartError {
    let cause = match directory.is_group_suspect() {
        true => ForgottenCause::FailedSync,
        false => ForgottenCause::Boot,
    };
    let is_only_voter = state.record.group.voters().eq([state.member]);
    let spares = state.record.group.members().filter(|(_, it)| it.role == GroupRole::Spare);
    let spares = match is_only_voter {
        true => spares.map(|(_, it)| it.at.address.clone()).collect(),
        false => Vec::new(),
    };
    NamenodeStartError::Forgotten { member: state.member.0, cause, spares }
}

/// Names the member whose directory is damaged: others have what it lacks.
fn damaged(member: MemberId, cause: NamenodeStartError) -> NamenodeStartError {
    match cause {
        NamenodeStartError::CorruptSnapshot { .. }
        | NamenodeStartError::DamagedJournal { .. }
        | NamenodeStartError::CorruptJournal { .. } => {
            NamenodeStartError::DamagedMember { member: member.0, cause: Box::new(cause) }
        }
        cause => cause,
    }
}

/// Removes what a namenode left that ended while it joined; refuses a directory with a catalog.
fn clear(directory: &Directory) -> Result<(), NamenodeStartError> {
    /// A journal without a command has only a header. A header has 40 bytes, and the record of a
    /// command adds more than 24 to it.
    const HEADER_BYTES_MAX: u64 = 64;
    let fail = |cause| NamenodeStartError::Files {
        what: "clear",
        path: directory.path().to_owned(),
        cause,
    };
    let segments = directory.list(FileKind::Journal).map_err(fail)?;
    let bytes = |first: &u64| directory.bytes(FileKind::Journal, *first);
    let has_commands = segments.iter().any(|it| *it > 0 || bytes(it) > HEADER_BYTES_MAX);
    let has_snapshot = !directory.list(FileKind::Snapshot).map_err(fail)?.is_empty();
    if has_commands || has_snapshot {
        return Err(NamenodeStartError::NotEmpty { directory: directory.path().to_owned() });
    }
    for first in segments {
        let path = directory.file(FileKind::Journal, first);
        directory.files().remove(&path).map_err(fail)?;
    }
    Ok(())
}
