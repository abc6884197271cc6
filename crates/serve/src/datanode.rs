//! `sanderling datanode`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgMatches, Args, Subcommand};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::global::Global;
use sanderling_command::policy::PolicyName;
use sanderling_command::ready::Ready;
use sanderling_command::server::ProcessArgs;
use sanderling_command::units::{Rate, Size, Span, UnitError};
use sanderling_command::{refused, server, session, units};
use sanderling_datanode::{
    DatanodeOptions, DatanodeServer, DatanodeStartError, DiskOptions, DrainEnd, DurableOptions,
    DurableStoreError, JoinFailure, LocalOptions, ObjectOptions, check_durable_stores,
};
use sanderling_notices::Acknowledge;
use sanderling_protocol::Refusal;
use sanderling_transport::CallError;
use thiserror::Error;

use super::console::ConsoleArgs;
use super::drain::{self, LocalDrain};
use super::namenode::MemoryMax;
use super::notices::NoticeArgs;
use super::process::{
    Signals, Stop, close_to_others, exit_of, keep_private, machine_bytes, not_started,
    object_settings, within,
};
use crate::config_file::ConfigArgs;
use crate::listen_address::{ListenIp, PageIp};
use crate::security;
use crate::security::Guard;

/// Where a datanode serves HTTP unless a flag names another address.
pub(crate) const HTTP_DEFAULT: &str = "127.0.0.1:7611";

/// The next step where another live node has the node's name.
const WITH_ANOTHER_NAME: &str = "the same with --name OTHER";

/// What is done to a datanode that runs.
#[derive(Debug, Clone, Subcommand)]
pub enum DatanodeCommand {
    /// Give the datanode of this machine its notice: it is emptied and takes no writes
    Drain(LocalDrain),
}

/// `sanderling datanode`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Datanode {
    /// What to do to a datanode that runs; without it, this serves.
    #[command(subcommand)]
    pub command: Option<DatanodeCommand>,
    /// The address to serve blocks at; port 0 selects a free port
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:0",
        help_heading = "Network options"
    )]
    pub(crate) listen: ListenIp,
    /// The address to serve health and metrics at, or `none` [default: 127.0.0.1:7611, or a free
    /// port while another process has that one]
    #[arg(long, value_name = "ADDRESS", help_heading = "Network options")]
    pub(crate) http: Option<PageIp>,
    /// The console.
    #[command(flatten)]
    pub(crate) console: ConsoleArgs,
    /// The host name or address at which others reach it; needed when it listens on every address
    #[arg(
        long,
        value_name = "HOST",
        default_value = "",
        hide_default_value = true,
        help_heading = "Network options"
    )]
    pub(crate) advertise: String,
    /// The node's name [default: its address]
    #[arg(long, default_value = "", hide_default_value = true, help_heading = "Cluster options")]
    pub(crate) name: String,
    /// Its machine, for affinity [default: the host's name]
    #[arg(long, help_heading = "Cluster options")]
    pub(crate) host: Option<String>,
    /// Memory for blocks
    #[arg(long, value_name = "SIZE", default_value = "1GiB", help_heading = "Storage options")]
    pub(crate) dram: Size,
    /// Upper bound of the process's memory, including that for blocks and for long requests, or
    /// `none`; at the bound the node rejects new blocks [default: the machine's or the control
    /// group's, if that is enough]
    #[arg(
        long,
        value_name = "SIZE",
        env = "SANDERLING_DATANODE_MEMORY_MAX",
        hide_env_values = true,
        help_heading = "Storage options"
    )]
    pub(crate) memory_max: Option<MemoryMax>,
    /// Disk for blocks, in --disk-dir
    #[arg(long, value_name = "SIZE", requires = "disk_dir", help_heading = "Storage options")]
    pub(crate) disk: Option<Size>,
    /// The directory of the disk tier
    #[arg(long, value_name = "D", requires = "disk", help_heading = "Storage options")]
    pub(crate) disk_dir: Option<PathBuf>,
    /// A store that outlives the node, the same for all nodes that have one: `file:///directory` or
    /// `s3://bucket/prefix`, for which `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID` and their kin are
    /// read from the environment
    #[arg(long, value_name = "URL", requires = "object_bytes", help_heading = "Storage options")]
    pub(crate) object: Option<String>,
    /// Most bytes that this node stores there
    #[arg(long, value_name = "SIZE", requires = "object", help_heading = "Storage options")]
    pub(crate) object_bytes: Option<Size>,
    /// A store that durable directories may choose by its name: `file:///directory`, which all
    /// datanodes that name it share, or `s3://bucket/prefix`, with the same environment; repeat it
    /// for more than one
    #[arg(long, value_name = "NAME=URL", help_heading = "Storage options")]
    pub(crate) durable: Vec<DurablePlace>,
    /// Encrypt the disk tier and the object tier with the key in this file, which only its owner
    /// may be able to read: 32 bytes as 64 hexadecimal digits or in base64 [default: no encryption]
    #[arg(long, value_name = "KEYFILE", help_heading = "Storage options")]
    pub(crate) encrypt: Option<PathBuf>,
    /// Send at most this many bytes per second, reads and pushes together: for several nodes on one
    /// machine [default: what the network takes]
    #[arg(long, value_name = "RATE", help_heading = "Network options")]
    pub(crate) egress_limit: Option<Rate>,
    /// The Unix socket through which clients on the same machine connect: a path, or `none`; a node
    /// with --egress-limit has none [default: a new one that only this user can open]
    #[arg(long, value_name = "PATH", help_heading = "Network options")]
    pub(crate) local_socket: Option<String>,
    /// A user, by number, that may connect there besides this one, and read the memory for blocks;
    /// repeat it for more than one
    #[arg(long, value_name = "UID", help_heading = "Network options")]
    pub(crate) local_uid: Vec<u32>,
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
    /// When Azure is informed that the machine may be taken before its time
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value_t = AzureAcknowledge::Drained,
        help_heading = "Notice options"
    )]
    pub(crate) azure_acknowledge: AzureAcknowledge,
    /// The shortest notice that the cloud gives; the manager copies in advance what cannot leave in
    /// it [default: 30s]
    #[arg(long, value_name = "DURATION", help_heading = "Notice options")]
    pub(crate) notice_min: Option<Span>,
    /// Bytes per second that the network card may send, for the same calculation [default: as
    /// measured]
    #[arg(long, value_name = "RATE", help_heading = "Notice options")]
    pub(crate) egress: Option<Rate>,
    /// Bytes per second of the scrub, which compares blocks with their checksums, or `none`
    #[arg(long, value_name = "RATE", default_value = "32MiB", help_heading = "Storage options")]
    pub(crate) scrub_rate: ScrubRate,
    /// Time between two block reports, which find garbage and files that were removed
    #[arg(long, value_name = "DURATION", default_value = "3m", help_heading = "Cluster options")]
    pub(crate) report_every: Span,
    /// How long tokens are accepted after the namenode last reported which were revoked
    #[arg(long, value_name = "DURATION", default_value = "10m", help_heading = "Cluster options")]
    pub(crate) revocations_age_max: Span,
    /// On SIGTERM, move the data away for at most this long, then exit
    #[arg(long, value_name = "DURATION", default_value = "25s", help_heading = "Notice options")]
    pub(crate) sigterm_deadline: Span,
    /// Which callers it admits.
    #[command(flatten)]
    pub(crate) guard: Guard,
    /// The file with further flags.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The process.
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

/// A store of durable directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DurablePlace {
    name: String,
    url: String,
}

/// Why a text is no store of durable directories.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a store is NAME=URL, such as archive=s3://bucket/prefix")]
pub(crate) struct DurablePlaceError {
    /// What was given.
    text: String,
}

impl FromStr for DurablePlace {
    type Err = DurablePlaceError;

    fn from_str(text: &str) -> Result<Self, DurablePlaceError> {
        match text.split_once('=') {
            Some((name, url)) if !name.is_empty() && url.contains("://") => {
                Ok(Self { name: name.to_owned(), url: url.to_owned() })
            }
            _ => Err(DurablePlaceError { text: text.to_owned() }),
        }
    }
}

/// How fast blocks are scrubbed; `None` for not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScrubRate(pub(crate) Option<u64>);

impl FromStr for ScrubRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text {
            "none" => Ok(Self(None)),
            _ => text.parse::<Rate>().map(|rate| Self(Some(rate.0))),
        }
    }
}

/// When Azure is informed that the machine may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AzureAcknowledge {
    /// When no block has its home here any more.
    Drained,
    /// As soon as the namenode has recorded it: the remaining time is given up.
    AtOnce,
    /// Never: the event starts at its own time.
    Never,
}

/// Serves blocks until SIGINT, or until SIGTERM and then until its data has left.
///
/// # Errors
/// It cannot start, the namenode refuses it for good, or its data did not leave in time (5): end
/// the process with it.
pub fn run(global: &Global, mut args: Datanode) -> Result<(), Failure> {
    if let Some(DatanodeCommand::Drain(args)) = args.command.take() {
        return session::run(global, |session| drain::run(session, args));
    }
    keep_private();
    let options = options(global, &args)?;
    let expiries = options.security.expiries();
    let limit = global.timeout.map(|span| span.0);
    server::run(global, &args.process.clone(), expiries, serve(options, args, limit))
}

fn options(global: &Global, args: &Datanode) -> Result<DatanodeOptions, Failure> {
    let disk = match (&args.disk, &args.disk_dir) {
        (Some(size), Some(directory)) => {
            std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
            Some(DiskOptions { directory: directory.clone(), bytes: size.0 })
        }
        _ => None,
    };
    let http = args.http.unwrap_or_else(|| HTTP_DEFAULT.parse().expect("it is an address"));
    let security = security::guard(global, &args.guard)?;
    let console = args.console.url(&global.namenode, security.tls.is_some());
    let mut options = DatanodeOptions {
        namenode: global.namenode.clone(),
        listen: args.listen.0,
        http_listen: http.0,
        http_may_move: args.http.is_none(),
        console,
        advertise: args.advertise.clone(),
        name: args.name.clone(),
        host: args.host.clone().unwrap_or_default(),
        dram_bytes: args.dram.0,
        disk,
        object: object(args)?,
        durable: durable(args)?,
        encryption: args.encrypt.as_deref().map(security::encryption_key).transpose()?,
        local: local(args),
        egress_limit: args.egress_limit.map(|rate| rate.0),
        mechanism: args.policy.into(),
        notices: args.notice.options(match args.azure_acknowledge {
            AzureAcknowledge::Drained => Acknowledge::Drained,
            AzureAcknowledge::AtOnce => Acknowledge::AtOnce,
            AzureAcknowledge::Never => Acknowledge::Never,
        }),
        posted_notice: args.notice.notice_deadline.0,
        notice_min: args.notice_min.map(|span| span.0),
        egress_bytes_per_second: args.egress.or(args.egress_limit).map(|rate| rate.0),
        security,
        revocations_age_max: args.revocations_age_max.0,
        scrub_bytes_per_second: args.scrub_rate.0,
        report_every: args.report_every.0,
        // `--timeout` ends the start before.
        start_time_max: global.timeout.map_or(DatanodeOptions::default().start_time_max, |span| {
            span.0.saturating_add(Duration::from_secs(5))
        }),
        ..DatanodeOptions::default()
    };
    bound_memory(&mut options, args.memory_max)?;
    Ok(options)
}

/// Allocates the memory that the process may take. Without an explicit flag, the least that it
/// needs is never rejected as too much.
fn bound_memory(
    options: &mut DatanodeOptions,
    memory_max: Option<MemoryMax>,
) -> Result<(), Failure> {
    let min = options.memory_min();
    options.memory_max = match memory_max {
        Some(MemoryMax(max)) => max,
        None => machine_bytes().map(|bytes| bytes.max(min)),
    };
    if let Some(max) = options.memory_max.filter(|max| *max < min) {
        let [max, dram, beside] = [max, options.dram_bytes, min - options.dram_bytes];
        let [max, dram, beside] = [max, dram, beside].map(units::bytes);
        let cause = format!(
            "--memory-max is {max}: the memory tier takes {dram} of it, and what \
            is kept beside that {beside} at least"
        );
        let next = format!("sanderling datanode --memory-max {}MiB", min.div_ceil(1 << 20));
        return Err(Failure::new(Exit::Usage, FailureKind::BadOption, cause).next(next));
    }
    Ok(())
}

fn local(args: &Datanode) -> Option<LocalOptions> {
    let socket = match args.local_socket.as_deref() {
        Some("none") => return None,
        path => path.map(PathBuf::from),
    };
    Some(LocalOptions { socket, uids: args.local_uid.clone(), ..LocalOptions::default() })
}

fn object(args: &Datanode) -> Result<Option<ObjectOptions>, Failure> {
    let (Some(url), Some(size)) = (&args.object, &args.object_bytes) else { return Ok(None) };
    if let Some(directory) = url.strip_prefix("file://").filter(|it| it.starts_with('/')) {
        let directory = std::path::Path::new(directory);
        std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
    }
    let settings = object_settings();
    Ok(Some(ObjectOptions { url: url.clone(), bytes: size.0, settings, ..Default::default() }))
}

fn durable(args: &Datanode) -> Result<Vec<DurableOptions>, Failure> {
    let options = args.durable.iter().map(|place| {
        let DurablePlace { name, url } = place.clone();
        Ok(DurableOptions { name, url, settings: object_settings() })
    });
    options.collect()
}

/// Refuses the durable stores that the start of the datanode refuses; `given` are the flags of
/// `sanderling datanode`. The settings of buckets are not checked: they are in the environment in
/// which the datanode will start.
///
/// # Errors
/// [`DurableStoreError`]: a URL is wrong, two stores have one name, or one is in another one;
/// correct the `--durable` that it names.
pub async fn check_stores(given: &ArgMatches) -> Result<(), DurableStoreError> {
    let places = given.get_many::<DurablePlace>("durable").unwrap_or_default();
    let options = places.map(|place| {
        let DurablePlace { name, url } = place.clone();
        DurableOptions { name, url, settings: Vec::new() }
    });
    check_durable_stores(&options.collect::<Vec<_>>()).await
}

async fn serve(
    options: DatanodeOptions,
    args: Datanode,
    limit: Option<Duration>,
) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    if let Some(disk) = &options.disk {
        close_to_others(&disk.directory, &["sanderling-datanode"])?;
    }
    let namenode = options.namenode.clone();
    let join_failure = options.join_failure.clone();
    // A datanode waits for its namenode until it gets a signal.
    let server = tokio::select! {
        started = within(limit, "datanode", DatanodeServer::start(options)) => started
            .map_err(|failure| match refusal_of(&join_failure) {
                Some(refusal) => refused_start(failure, &namenode, &refusal),
                None => failure,
            })?
            .map_err(start_failure)?,
        _ = signals.next() => return Err(stopped_start(&namenode, &join_failure)),
    };
    let http = server.http_address().map(|address| address.to_string());
    let address = server.address().to_string();
    let ready = Ready::here(address, http, Some(server.cluster()));
    Ready { node: Some(server.node()), ..ready }.write(args.process.ready_file.as_deref())?;
    let result = tokio::select! {
        stop = signals.next() => match stop {
            Stop::Interrupt => Ok(()),
            Stop::Term => leave(&server, &mut signals, &args).await,
        },
        failure = server.failed() => {
            Err(Failure::caused(Exit::Failure, FailureKind::DatanodeFailed, failure)
                .next("sanderling node ls --all, then start it again"))
        }
    };
    server.stop().await;
    result
}

/// Returns the refusal of the last registration, if it was refused.
fn refusal_of(failure: &JoinFailure) -> Option<Refusal> {
    match failure.last() {
        Some(CallError::Refused(refusal)) => Some(refusal),
        _ => None,
    }
}

/// Describes a start that a signal has ended.
fn stopped_start(namenode: &str, join_failure: &JoinFailure) -> Failure {
    let stopped = |cause: &str| Failure::new(Exit::Interrupted, FailureKind::Interrupted, cause);
    match refusal_of(join_failure) {
        Some(refusal) => refused_start(stopped("stopped before it joined"), namenode, &refusal),
        None => stopped(&format!("stopped before the namenode at {namenode} answered")),
    }
}

/// Adds why the namenode refused the node to the failure of a start that ended before it served.
fn refused_start(failure: Failure, namenode: &str, refusal: &Refusal) -> Failure {
    let cause =
        format!("{}: the namenode at {namenode} refuses this node: {refusal}", failure.cause);
    let failure = Failure { cause, ..failure };
    match refusal {
        Refusal::NameInUse { .. } => failure.instead(WITH_ANOTHER_NAME),
        _ => failure,
    }
}

/// Describes a failed start.
fn start_failure(error: DatanodeStartError) -> Failure {
    let failure = not_started("datanode", &error, next(&error));
    let exit = match &error {
        DatanodeStartError::Unreachable { cause, .. } => exit_of(cause),
        DatanodeStartError::Refused { refusal, .. } => refused::exit(refusal),
        _ => failure.exit,
    };
    Failure { exit, ..failure }.with_source(error)
}

/// Returns the next command after a failed start.
fn next(error: &DatanodeStartError) -> &'static str {
    match error {
        DatanodeStartError::Listen(_) => "the same with --listen 127.0.0.1:0 --http 127.0.0.1:0",
        DatanodeStartError::NoAdvertisedHost { .. } => "the same with --advertise $(uname -n)",
        DatanodeStartError::TooLittleMemory { .. } => "the same with --dram 1GiB",
        DatanodeStartError::TooMuchMemory { .. } | DatanodeStartError::Memory { .. } => {
            "the same with --dram 256MiB, or sanderling doctor"
        }
        DatanodeStartError::Refused { refusal: Refusal::NameInUse { .. }, .. } => WITH_ANOTHER_NAME,
        DatanodeStartError::Disk(_) => "the same with --disk-dir DIR",
        DatanodeStartError::Durable(DurableStoreError::Overlap { .. }) => {
            "the same with a place of its own for each --durable"
        }
        DatanodeStartError::Durable(DurableStoreError::LongPrefix { .. }) => {
            "the same with a shorter prefix in --durable"
        }
        _ => "sanderling doctor",
    }
}

/// Moves the data away; a second SIGTERM, or SIGINT, ends it at once.
async fn leave(
    server: &DatanodeServer,
    signals: &mut Signals,
    args: &Datanode,
) -> Result<(), Failure> {
    let end = tokio::select! {
        end = server.drain(args.sigterm_deadline.0, "SIGTERM") => end,
        () = signals.again() => return Err(Failure::new(
            Exit::Interrupted,
            FailureKind::Interrupted,
            "a second signal ended the drain",
        ).next("sanderling fsck")),
    };
    let deadline = units::duration(args.sigterm_deadline.0);
    let cause = match end {
        DrainEnd::Drained => return Ok(()),
        DrainEnd::DeadlinePassed { home_blocks: Some(0) } => {
            format!("the namenode did not confirm within {deadline} that the node is empty")
        }
        DrainEnd::DeadlinePassed { home_blocks: Some(blocks) } => {
            let blocks = units::count(blocks, "block was", "blocks were");
            format!("{blocks} still here after {deadline}")
        }
        DrainEnd::DeadlinePassed { home_blocks: None } => {
            format!("the namenode did not take the notice within {deadline}")
        }
        DrainEnd::NoticeRefused { refusal } => {
            format!("the namenode refused the notice: {refusal}")
        }
        DrainEnd::GivenUp { home_blocks: None | Some(0) } => {
            "the namenode gave the node up before it confirmed that it is empty".to_owned()
        }
        DrainEnd::GivenUp { home_blocks: Some(blocks) } => {
            let blocks = units::count(blocks, "block was", "blocks were");
            format!("the namenode gave the node up while {blocks} still here")
        }
    };
    Err(Failure::new(Exit::Partial, FailureKind::NotDrained, cause).next("sanderling fsck"))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn start_without_its_namenode_may_be_tried_again() {
        let namenode = "127.0.0.1:1".to_owned();
        let cause = CallError::unreachable(&namenode, io::ErrorKind::ConnectionRefused.into());
        let error = DatanodeStartError::Unreachable { namenode, seconds: 30, cause };
        let failure = start_failure(error);
        assert_eq!((failure.exit, &failure.kind), (Exit::Unavailable, &FailureKind::NotStarted));
        assert!(failure.source.is_some_and(|source| source.is::<DatanodeStartError>()));
        let refusal = Refusal::Unauthenticated { why: "a token is needed here".to_owned() };
        let namenode = "127.0.0.1:1".to_owned();
        let failure = start_failure(DatanodeStartError::Refused { namenode, refusal });
        assert_eq!(failure.exit, Exit::Failure);
    }

    #[test]
    fn start_that_a_signal_ends_names_the_refusal_and_another_name() {
        let join_failure = JoinFailure::default();
        let silent = stopped_start("h:1", &join_failure);
        assert_eq!(silent.cause, "stopped before the namenode at h:1 answered");
        assert_eq!(silent.next, None);
        let refusal =
            Refusal::NameInUse { name: "a".to_owned(), node: sanderling_protocol::NodeId(3) };
        let stopped = refused_start(silent, "h:1", &refusal);
        assert!(stopped.cause.ends_with(&format!("refuses this node: {refusal}")), "{stopped:?}");
        assert_eq!(stopped.next.as_deref(), Some(WITH_ANOTHER_NAME));
        let error = DatanodeStartError::Refused { namenode: "h:1".to_owned(), refusal };
        assert_eq!(start_failure(error).next.as_deref(), Some(WITH_ANOTHER_NAME));
    }
}
