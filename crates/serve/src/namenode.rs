//! `sanderling namenode`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::TypedValueParser as _;
use clap::{Args, Subcommand};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::global::Global;
use sanderling_command::policy::PolicyName;
use sanderling_command::ready::{NotReady, Ready};
use sanderling_command::server::ProcessArgs;
use sanderling_command::units::{Size, Span, UnitError};
use sanderling_command::{refused, server, session, units};
use sanderling_core::Mechanism;
use sanderling_core::preemption::{Model, Spec};
use sanderling_core::reserve::Departures;
use sanderling_manager::{ManagerOptions, ManagerServer};
use sanderling_namenode::{
    GroupOptions, JoinError, LogError, MemberFilesError, NamenodeFailure, NamenodeOptions,
    NamenodeServer, NamenodeStartError, Sync, file_names,
};
use sanderling_notices::Acknowledge;
use sanderling_protocol::Nonce;
use sanderling_protocol::message::Role;
use sanderling_protocol::ports::{NAMENODE_ADDRESS, NAMENODE_HTTP_ADDRESS};
use sanderling_transport::{ListenError, Security, open_regular};
use thiserror::Error;

use super::background::BackgroundArgs;
use super::backup::{self, ArchivePlace, Backup, Recover, Restore};
use super::notices::NoticeArgs;
use super::process::{
    Signals, close_to_others, exit_of, keep_private, machine_bytes, not_started, within,
};
use crate::config_file::ConfigArgs;
use crate::listen_address::{ListenAddress, PageAddress};
use crate::security;
use crate::security::Guard;

/// When a change of the catalog is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SyncFlag {
    /// When the kernel has the journal record: survives kill -9 of the namenode
    Os,
    /// When the disk has it: survives a power cut
    Always,
}

/// What is done with the catalog of a namenode.
#[derive(Debug, Clone, Subcommand)]
pub enum NamenodeCommand {
    /// Write a backup of a running namenode's catalog
    Backup(Backup),
    /// Make a namenode's directory from a backup
    Restore(Restore),
    /// Make a namenode's directory from the archive of one that is gone
    Recover(Recover),
}

/// `sanderling namenode`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct NamenodeArgs {
    /// What to do with its catalog; without it, this serves.
    #[command(subcommand)]
    pub command: Option<NamenodeCommand>,
    /// The address to serve at; port 0 selects a free port
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = NAMENODE_ADDRESS,
        help_heading = "Network options"
    )]
    pub(crate) listen: ListenAddress,
    /// The address to serve health, metrics and the HTTP interface at, or `none`
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = NAMENODE_HTTP_ADDRESS,
        help_heading = "Network options"
    )]
    pub(crate) http: PageAddress,
    /// The catalog's directory: journal and snapshots
    #[arg(
        long = "dir",
        value_name = "D",
        env = "SANDERLING_NAMENODE_DIR",
        hide_env_values = true,
        required = true,
        help_heading = "Storage options"
    )]
    pub(crate) directory: Option<PathBuf>,
    /// Join the group of namenodes of which this address is a member, with an empty directory;
    /// several are separated by commas; without effect once the directory is that of a member
    #[arg(
        long,
        value_name = "ADDRESS",
        value_parser = sanderling_context::address,
        help_heading = "Cluster options"
    )]
    pub(crate) join: Option<String>,
    /// The host or `host:port` where the other namenodes, clients and datanodes reach this one
    /// [default: the address to serve at]
    #[arg(
        long,
        value_name = "HOST",
        value_parser = advertised,
        help_heading = "Network options"
    )]
    pub(crate) advertise: Option<String>,
    /// Namenodes of a group that vote: spares become voters while there are fewer
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Cluster options",
          value_parser = clap::value_parser!(u8).range(1..=7).try_map(odd))]
    pub(crate) voters: u8,
    /// Namenodes of a group that are ready to take the place of one that votes. Fewer are reported
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Cluster options",
          value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(crate) spares: u8,
    /// The cloud does not take this machine back: of a group, its namenode leads before those whose
    /// machines may be taken
    #[arg(long, help_heading = "Cluster options")]
    pub(crate) steady: bool,
    /// When a change is acknowledged
    #[arg(
        long,
        value_enum,
        value_name = "MODE",
        default_value_t = SyncFlag::Os,
        help_heading = "Storage options"
    )]
    pub(crate) sync: SyncFlag,
    /// With `--sync os`, longest time that an acknowledged change waits for the disk: when the disk
    /// takes longer, changes are refused until it has caught up
    #[arg(long, value_name = "DURATION", default_value = "2s", help_heading = "Storage options",
          value_parser = unsynced_span)]
    pub(crate) unsynced_max: Span,
    /// Start without the records after this damage of the journal; they are lost. The error of the
    /// failed start names the damage
    #[arg(long, value_name = "FILE:OFFSET", help_heading = "Storage options")]
    pub(crate) accept_journal_loss: Option<String>,
    /// Copy the catalog to this place too, at most a second behind, so that `namenode recover`
    /// continues it on another machine: a directory, or `s3://BUCKET/PREFIX` with
    /// `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` and their kin in the environment
    #[arg(long, value_name = "PLACE", help_heading = "Storage options")]
    pub(crate) archive: Option<ArchivePlace>,
    /// Upper bound of the process's memory, or `none`; at the bound the namenode refuses requests
    /// that would make the catalog larger [default: three quarters of the machine's or the control
    /// group's]
    #[arg(long, value_name = "SIZE", help_heading = "Storage options",
          value_parser = memory_max)]
    pub(crate) memory_max: Option<MemoryMax>,
    /// Run no manager inside the namenode: it is a process of its own
    #[arg(long, help_heading = "Cluster options")]
    pub(crate) no_manager: bool,
    /// How notices are handled: the same for all servers of a cluster
    #[arg(
        long,
        value_enum,
        value_name = "POLICY",
        default_value_t = PolicyName::Sanderling,
        help_heading = "Cluster options"
    )]
    pub(crate) policy: PolicyName,
    /// Where notices come from.
    #[command(flatten)]
    pub(crate) notice: NoticeArgs,
    /// How long machines live: bathtub:n1-highcpu-16, bathtub:a=,tau1=,tau2=,b=,
    /// exponential:mean=12h, lifetimes:FILE or trace:FILE [default: unknown]
    #[arg(long, value_name = "SPEC", help_heading = "Notice options")]
    pub(crate) preemption_model: Option<Spec>,
    /// Nodes that must be able to leave at once without losing data: room for what they hold stays
    /// free; 0 keeps none [default: 1 from three nodes on]
    #[arg(long, value_name = "N", help_heading = "Cluster options")]
    pub(crate) departures: Option<u32>,
    /// Which callers it admits.
    #[command(flatten)]
    pub(crate) guard: Guard,
    /// What the manager inside does without a notice.
    #[command(flatten)]
    pub(crate) background: BackgroundArgs,
    /// The file with further flags.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The process.
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

/// How much memory a server takes; `None` for as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryMax(pub(crate) Option<u64>);

impl FromStr for MemoryMax {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text {
            "none" => Ok(Self(None)),
            _ => text.parse::<Size>().map(|size| Self(Some(size.0))),
        }
    }
}

/// How the names of a catalog's files begin.
const OURS: [&str; 2] = [file_names::JOURNAL.0, file_names::SNAPSHOT.0];

/// How long after a change its sync begins, if the disk may be that late: five syncs a second at
/// most, and a tenth of the 2 s that the disk may be late by default. Chosen, not measured.
const SYNC_INTERVAL: Duration = Duration::from_millis(200);

/// Bytes below which the memory is of no use: one frame of the longest and its answers take as
/// much.
const MEMORY_MIN: u64 = 64 << 20;

/// A disk that is late by less is not slow: a sync of a rotating disk takes about as long. Chosen,
/// not measured.
const UNSYNCED_MIN: Duration = Duration::from_millis(20);

/// Why a value of a flag is refused, wherever it comes from: so `config check` refuses it as well.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum BadValue {
    #[error(transparent)]
    Unit(#[from] UnitError),
    #[error("an even number survives no more than one less: use 1, 3, 5 or 7")]
    EvenVoters,
    #[error(
        "it is less than {} ms: use more, or --sync always if no change may wait for the disk",
        UNSYNCED_MIN.as_millis()
    )]
    UnsyncedTooShort,
    #[error("it is less than {}: use 256MiB or more", units::bytes(MEMORY_MIN))]
    MemoryTooSmall,
    #[error("it is no address: use HOST or HOST:PORT, where others reach this namenode")]
    NoAddress(#[source] sanderling_context::AddressError),
    #[error("it is a list: use the one HOST or HOST:PORT where others reach this namenode")]
    AddressList,
    #[error("it stands for every address: use the one where others reach this namenode")]
    EveryAddress,
}

/// Checks where others reach this namenode: they get it as it is.
fn advertised(text: &str) -> Result<String, BadValue> {
    if text.contains(',') {
        return Err(BadValue::AddressList);
    }
    sanderling_context::address(text).map_err(BadValue::NoAddress)?;
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    let ip = [text, host].iter().find_map(|it| it.trim_matches(['[', ']']).parse::<IpAddr>().ok());
    match ip.is_some_and(|ip| ip.is_unspecified()) {
        true => Err(BadValue::EveryAddress),
        false => Ok(text.to_owned()),
    }
}

fn odd(voters: u8) -> Result<u8, BadValue> {
    if voters.is_multiple_of(2) { Err(BadValue::EvenVoters) } else { Ok(voters) }
}

fn unsynced_span(text: &str) -> Result<Span, BadValue> {
    let span: Span = text.parse()?;
    if span.0 < UNSYNCED_MIN { Err(BadValue::UnsyncedTooShort) } else { Ok(span) }
}

fn memory_max(text: &str) -> Result<MemoryMax, BadValue> {
    let memory: MemoryMax = text.parse()?;
    let is_enough = memory.0.is_none_or(|bytes| bytes >= MEMORY_MIN);
    if is_enough { Ok(memory) } else { Err(BadValue::MemoryTooSmall) }
}

/// Serves the catalog until SIGTERM or SIGINT.
///
/// # Errors
/// It cannot start, or its journal has failed: end the process with it.
pub fn run(global: &Global, args: NamenodeArgs) -> Result<(), Failure> {
    match args.command {
        Some(NamenodeCommand::Backup(args)) => {
            return session::run(global, |session| backup::run(session, args));
        }
        Some(NamenodeCommand::Restore(args)) => {
            keep_private();
            return session::run(global, |session| backup::restore(session, args));
        }
        Some(NamenodeCommand::Recover(args)) => {
            keep_private();
            return session::run(global, |session| backup::recover(session, args));
        }
        None => {}
    }
    keep_private();
    let security = security::guard(global, &args.guard)?;
    let expiries = security.expiries();
    server::run(
        global,
        &args.process.clone(),
        expiries,
        serve(args, security, global.timeout.map(|span| span.0)),
    )
}

async fn serve(
    args: NamenodeArgs,
    security: Security,
    limit: Option<Duration>,
) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    args.directory.as_deref().map_or(Ok(()), |it| close_to_others(it, &OURS))?;
    let mechanism = Mechanism::from(args.policy);
    let credentials = security.credentials(Role::Manager);
    let options = options(&args, security)?;
    let server = within(limit, "namenode", NamenodeServer::start(options))
        .await?
        .map_err(|error| not_served(&args.process, error))?;
    let address = server.address().to_string();
    let start_manager = || {
        let name = format!("namenode-{}", std::process::id());
        ManagerServer::start(ManagerOptions {
            namenode: address.clone(),
            name,
            credentials: credentials.clone(),
            mechanism,
            background: (&args.background).into(),
            // The directory's lock sees to it that there is only one of them, and of a group only
            // the leader has one.
            holder: Some(Nonce(server.cluster().0)),
            ..ManagerOptions::default()
        })
    };
    if let Some(failure) = failed_already(&server).await {
        server.stop().await;
        return ended_with(&failure);
    }
    let http = server.http_address().map(|address| address.to_string());
    Ready::here(address.clone(), http, Some(server.cluster()))
        .write(args.process.ready_file.as_deref())?;
    let start_manager = (!args.no_manager).then_some(start_manager);
    let result = until_end(&server, &mut signals, start_manager).await;
    server.stop().await;
    result?;
    if let Some(why) = server.unarchived() {
        let cause = format!("the archive may lack the last changes: {why}");
        return Err(Failure::new(Exit::Failure, FailureKind::Unarchived, cause)
            .next("start it again on the same directory, with the same --archive"));
    }
    server.journal_failure().map_or(Ok(()), |failure| {
        Err(Failure::caused(Exit::Failure, FailureKind::NamenodeFailed, failure)
            .next("look at the disk, then start it again on the same directory"))
    })
}

/// Runs the manager while this namenode serves, until a signal or a failure ends it.
async fn until_end(
    server: &NamenodeServer,
    signals: &mut Signals,
    start_manager: Option<impl Fn() -> ManagerServer>,
) -> Result<(), Failure> {
    let mut manager = None;
    let mut serving = server.serving_state();
    let result = loop {
        let serves = serving.borrow_and_update().serves();
        if serves && manager.is_none() {
            manager = start_manager.as_ref().map(|start| start());
        }
        if let Some(old) = manager.take_if(|_| !serves) {
            old.stop().await;
        }
        tokio::select! {
            _ = signals.next() => {
                server.leave_leadership().await;
                break Ok(());
            }
            failure = server.failed() => {
                break ended_with(&failure);
            }
            Ok(()) = serving.changed() => {}
        }
    };
    if let Some(manager) = manager {
        manager.stop().await;
    }
    result
}

/// Returns why the server cannot go on, if that is so at its start: one that was removed from its
/// group must not report that it serves.
async fn failed_already(server: &NamenodeServer) -> Option<NamenodeFailure> {
    tokio::select! {
        biased;
        failure = server.failed() => Some(failure),
        () = std::future::ready(()) => None,
    }
}

/// Returns the end of a command whose server cannot go on.
fn ended_with(failure: &NamenodeFailure) -> Result<(), Failure> {
    if matches!(failure, NamenodeFailure::Left | NamenodeFailure::Last) {
        return Ok(());
    }
    Err(Failure::caused(Exit::Failure, FailureKind::NamenodeFailed, failure.clone())
        .next(ended(failure)))
}

/// Returns what the server is started with.
fn options(args: &NamenodeArgs, security: Security) -> Result<NamenodeOptions, Failure> {
    let mechanism = Mechanism::from(args.policy);
    let mut options = NamenodeOptions {
        listen: args.listen.0.clone(),
        http_listen: args.http.0.clone(),
        directory: args.directory.clone().unwrap_or_default(),
        sync: match args.sync {
            SyncFlag::Os => Sync::Os,
            SyncFlag::Always => Sync::Always,
        },
        sync_every: SYNC_INTERVAL.min(args.unsynced_max.0 / 4),
        unsynced_age_max: args.unsynced_max.0,
        accepted_loss: args.accept_journal_loss.clone(),
        archive: args.archive.as_ref().map(|place| place.open(true)).transpose()?,
        group: GroupOptions {
            join: args.join.clone(),
            advertise: args.advertise.clone(),
            advertise_http: None,
            voters: args.voters.into(),
            spares: args.spares.into(),
            is_steady: args.steady,
        },
        // An Azure event starts at its own time: a member that has left ends at once.
        notices: args.notice.options(Acknowledge::Never),
        posted_notice: args.notice.notice_deadline.0,
        mechanism,
        security,
        ..NamenodeOptions::default()
    };
    options.core.preemption = args.preemption_model.as_ref().map(model).transpose()?;
    options.core.ramp_up = args.background.ramp_up();
    options.core.departures = args.departures.map_or(Departures::Default, Departures::Fixed);
    mechanism.configure(&mut options.core);
    bound_memory(&mut options, args.memory_max)?;
    Ok(options)
}

/// Shares the memory that the server may take out: a quarter, and 512 MiB at most, to requests and
/// answers on their way; of the rest three quarters to the catalog, since a snapshot copies what
/// changes while it is taken.
fn bound_memory(
    options: &mut NamenodeOptions,
    memory_max: Option<MemoryMax>,
) -> Result<(), Failure> {
    let all = match memory_max {
        Some(MemoryMax(max)) => max,
        None => machine_bytes().map(|bytes| bytes / 4 * 3),
    };
    let Some(all) = all else { return Ok(()) };
    if all < MEMORY_MIN {
        let (all, min) = (units::bytes(all), units::bytes(MEMORY_MIN));
        let cause = format!("three quarters of this machine's memory are {all}, less than {min}");
        return Err(Failure::new(Exit::Usage, FailureKind::BadOption, cause)
            .next("sanderling namenode --memory-max 256MiB"));
    }
    let on_the_way = (all / 4).min(options.memory_on_the_way_max as u64);
    options.memory_on_the_way_max = usize::try_from(on_the_way).unwrap_or(usize::MAX);
    options.core.memory_max = (all - on_the_way) / 4 * 3;
    tracing::info!(
        memory = %units::bytes(all),
        catalog = %units::bytes(options.core.memory_max),
        on_the_way = %units::bytes(on_the_way),
        "memory is bounded"
    );
    Ok(())
}

/// Reads the preemption model and the files that it names.
fn model(spec: &Spec) -> Result<Model, Failure> {
    let read = |file: &str| open_regular(Path::new(file)).and_then(std::io::read_to_string);
    Model::load(spec, read).map_err(|error| {
        Failure::caused(Exit::Usage, FailureKind::BadPreemptionModel, error)
            .next("sanderling namenode with another --preemption-model, or without one")
    })
}

/// Describes why the namenode does not start, also to a process that started it in the background.
fn not_served(process: &ProcessArgs, error: NamenodeStartError) -> Failure {
    let is_in_use = matches!(
        error,
        NamenodeStartError::Listen(ListenError::InUse { .. })
            | NamenodeStartError::DirectoryLocked { .. }
    );
    if let Some(file) = process.ready_file.as_ref().filter(|_| is_in_use && process.detach) {
        // Without it the process that started this one has the log's last line.
        let _ = NotReady::InUse.write(file);
    }
    start_failure(error)
}

/// Returns the next step after a failure of a running server.
const fn ended(failure: &NamenodeFailure) -> &'static str {
    match failure {
        NamenodeFailure::Superseded { .. } => {
            "nothing here: the other namenode serves; its directory may be removed"
        }
        NamenodeFailure::OlderGeneration { .. } => {
            "sanderling namenode --join ADDRESS of the later group, with an empty --dir"
        }
        NamenodeFailure::Removed | NamenodeFailure::Left | NamenodeFailure::Last => {
            "nothing here; or the same with --join ADDRESS and an empty --dir to come back"
        }
        NamenodeFailure::GroupLog { may_have_forgotten: true, .. } => {
            "check the disk, then sanderling group remove this member, move its directory away, \
             and the same with --join ADDRESS"
        }
        NamenodeFailure::GroupLog { .. } => {
            "check the disk and its room (dmesg, df), then start it again on the same directory"
        }
        NamenodeFailure::Journal { .. }
        | NamenodeFailure::Unapplied { .. }
        | NamenodeFailure::Ended { .. } => {
            "df on the namenode's directory, then start it again on the same directory"
        }
    }
}

/// Describes a failed start.
fn start_failure(error: NamenodeStartError) -> Failure {
    let failure = not_started("namenode", &error, &next(&error));
    let exit = match &error {
        NamenodeStartError::Join(JoinError::NotFound { cause, .. }) => exit_of(cause),
        NamenodeStartError::Join(JoinError::Refused { refusal, .. }) => refused::exit(refusal),
        _ => failure.exit,
    };
    Failure { exit, ..failure }.with_source(error)
}

fn next(error: &NamenodeStartError) -> Cow<'static, str> {
    Cow::Borrowed(match error {
        NamenodeStartError::Listen(_) => {
            "the same with --listen 127.0.0.1:0 --http 127.0.0.1:0, or sanderling doctor"
        }
        NamenodeStartError::Archive(error) => backup::archive_kind(error).1,
        NamenodeStartError::Unrestored { .. } => {
            "sanderling namenode restore or recover, with the same flags as before"
        }
        NamenodeStartError::Join(JoinError::Itself { .. }) => {
            "the same with the address of another namenode, or without --join for the first"
        }
        NamenodeStartError::Join(JoinError::NotFound { .. }) => {
            "sanderling group ls --namenode ADDRESS, then the same with the address of a member"
        }
        NamenodeStartError::Join(JoinError::Refused { .. }) => {
            "the version of sanderling that the group runs"
        }
        NamenodeStartError::NotEmpty { .. } => "the same with --dir DIR, or without --join",
        NamenodeStartError::Forgotten { member, spares, .. } if spares.is_empty() => {
            return Cow::Owned(format!(
                "sanderling group remove {member}, move the directory away, then the same with \
                 --join ADDRESS"
            ));
        }
        NamenodeStartError::Forgotten { .. } => {
            "end the spare, then sanderling group recover --dir DIR with its directory, start it, \
             and this one with --join and an empty --dir; or, without what is lost, sanderling \
             group recover --dir DIR --accept-loss with this one"
        }
        NamenodeStartError::DamagedMember { .. }
        | NamenodeStartError::Group(MemberFilesError::Log(LogError::Damaged { .. })) => {
            "move the directory away and keep it, then the same with --join ADDRESS of a member; \
             where none leads, sanderling group recover from another directory"
        }
        NamenodeStartError::DirectoryLocked { .. } => "the same with --dir DIR",
        NamenodeStartError::DamagedJournal { name, .. } => {
            return Cow::Owned(format!(
                "restore the directory from a copy; or start without what would be lost, which \
                 stays beside the journal: the same with --accept-journal-loss {name}"
            ));
        }
        NamenodeStartError::JournalVersion { .. }
        | NamenodeStartError::SnapshotVersion { .. }
        | NamenodeStartError::NewerRules { .. } => "the version of sanderling that wrote it",
        NamenodeStartError::CorruptSnapshot { .. } | NamenodeStartError::CorruptJournal { .. } => {
            "move the directory away and keep it, then start again: its data are ephemeral"
        }
        _ => "sanderling doctor",
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use sanderling_transport::CallError;

    use super::*;

    #[test]
    fn join_without_its_group_may_be_tried_again() {
        let address = "127.0.0.1:1".to_owned();
        let cause = CallError::unreachable(&address, io::ErrorKind::ConnectionRefused.into());
        let error = JoinError::NotFound { address: address.clone(), cause };
        assert_eq!(start_failure(error.into()).exit, Exit::Unavailable);
        let error = JoinError::Itself { address };
        assert_eq!(start_failure(error.into()).exit, Exit::Failure);
    }
}
