//! `sanderling tour`: the first minute. It starts a cluster, stores data, gives a node its notice,
//! kills the node when it is empty, and compares every byte.

mod data;
mod drain;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::Signal;
use sanderling_command::failure::{Exit, Failure, FailureKind, RefusalKind};
use sanderling_command::global::Global;
use sanderling_command::output::Output;
use sanderling_command::refused::shell_word;
use sanderling_command::session::{self, Session};
use sanderling_command::units::{self, Size, Span};
use sanderling_protocol::ports::{NAMENODE_ADDRESS, NAMENODE_PORT};
use serde::Serialize;
use tokio::io::AsyncReadExt;

use super::directory::ClusterDirectory;
use super::launch::{READY_TIMEOUT, datanode_words, launch};
use super::lock::Lock;
use super::record::{DatanodeShape, Record, ServerRole};
use super::start::{LocalStart, started};
use super::stop::end;
use data::Data;
use drain::Drained;

/// The node that gets the notice.
const SPOT: &str = "spot-0";

/// The nodes that stay: two, so that the blocks of the drained one have more than one target.
const LASTING: u16 = 2;

/// How long the drain takes at the default rate, in seconds: long enough to be watched, short
/// enough that a visitor stays. Chosen, not measured.
const DRAIN_SECONDS: u64 = 10;

/// The least rate by default, in bytes per second: little data drains sooner, not slower than a
/// block a second.
const RATE_MIN: u64 = 1 << 20;

/// The least memory of a node in bytes. A datanode takes 48 MiB for itself beside it (`OWN_BYTES`
/// of its budget), and less data is no example. Chosen, not measured.
const DRAM_MIN: u64 = 64 << 20;

/// How long a killed node may take to end: the kernel frees its memory, which takes less than a
/// second. Chosen, not measured.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// `tour`.
#[derive(Debug, Args)]
pub struct Tour {
    /// Where the cluster lives.
    #[command(flatten)]
    pub(crate) place: ClusterDirectory,
    /// How much to store; the machine needs three times as much free memory
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) data: Size,
    /// Time from the notice until the node would be killed
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) deadline: Span,
    /// Bytes per second that the node with the notice sends at most [default: so that it is empty
    /// after about ten seconds]
    #[arg(long, value_name = "SIZE")]
    pub(crate) rate: Option<Size>,
    /// The namenode's port; the console's is the next one; 0 for any free ones
    #[arg(long, default_value_t = NAMENODE_PORT)]
    pub(crate) port: u16,
    /// Do not wait for Enter before the notice
    #[arg(long)]
    pub(crate) yes: bool,
}

/// What the tour measured.
#[derive(Debug, Serialize)]
struct TourReport {
    namenode: String,
    console: Option<String>,
    stored_bytes: u64,
    objects: u64,
    node: &'static str,
    #[serde(flatten)]
    drained: Drained,
    /// Bytes that were read back and equal what was stored.
    equal_bytes: u64,
    seconds: f64,
}

/// Runs `sanderling tour`. The cluster goes on after it.
///
/// # Errors
/// The start's failure; partial (5) when data was lost. End the command with it. A tour that does
/// not come to its end leaves no process behind.
pub fn run(global: &Global, args: Tour) -> Result<(), Failure> {
    if args.data.0 == 0 || args.rate.is_some_and(|rate| rate.0 == 0) {
        return Err(Failure::usage("--data and --rate are at least one byte"));
    }
    let began = Instant::now();
    let record = start(global, &args)?;
    let shown = record.clone();
    let toured = session::run(global, |mut session| async move {
        session.namenode.clone_from(&shown.namenode);
        session.credentials = shown.credentials()?;
        toured(&session, &args, &shown, began).await
    });
    // Lost data is a result like another: the cluster stays, to be looked at.
    if toured.as_ref().is_err_and(|failure| failure.exit != Exit::Partial) {
        end(&record, END_TIMEOUT);
        let _ = record.delete();
    }
    toured
}

/// Starts the cluster: the nodes that stay, and the one that will get the notice.
fn start(global: &Global, args: &Tour) -> Result<Record, Failure> {
    let limit = Instant::now() + global.timeout.map_or(READY_TIMEOUT, |span| span.0);
    // All data has room on the nodes that stay, with as much again for blocks in flight.
    let dram = args.data.0.max(DRAM_MIN);
    let cluster = LocalStart {
        place: args.place.clone(),
        namenodes: 1,
        datanodes: LASTING,
        dram: Size(dram),
        disk: None,
        encrypt: None,
        port: args.port,
        http_port: None,
        secure: false,
        // `--yes` of the tour is for its notice alone.
        yes: false,
    };
    let share = args.data.0 / u64::from(LASTING + 1);
    let rate = args.rate.map_or((share / DRAIN_SECONDS).max(RATE_MIN), |rate| rate.0);
    let spot = DatanodeShape {
        dram_bytes: dram,
        disk_bytes: None,
        encrypt: None,
        egress_limit: Some(rate),
    };
    let record = started(&cluster, "sanderling local stop", limit, |record| {
        let words = datanode_words(record, &spot, SPOT);
        let ready = launch(record, ServerRole::Datanode, SPOT, Some(spot), words)?.serves(limit)?;
        record.server_mut(SPOT)?.address = ready.address;
        record.write()
    })?;
    let output = Output { is_json: global.json, is_quiet: global.quiet, task: None };
    output.note(format_args!("started   1 namenode, {} datanodes", LASTING + 1));
    output.note(format_args!("console   {}", record.console().unwrap_or_default()));
    Ok(record)
}

async fn toured(
    session: &Session,
    args: &Tour,
    record: &Record,
    began: Instant,
) -> Result<(), Failure> {
    let client = session.client().await?;
    let data = Data::of(args.data.0);
    data.store(session, &client).await?;
    if !args.yes {
        wait_for_enter(session).await?;
    }
    let drained = drain::run(session, &client, &data, SPOT, args.deadline).await?;
    kill(session, record)?;
    let equal_bytes = data.compare(session, &client).await?;
    let report = TourReport {
        namenode: record.namenode.clone(),
        console: record.console(),
        stored_bytes: data.bytes(),
        objects: data.objects(),
        node: SPOT,
        drained,
        equal_bytes,
        seconds: began.elapsed().as_secs_f64(),
    };
    session.output.result(&report, |writer| report.write(writer))?;
    next(session.output, record, args);
    match drained.lost_bytes.max(data.bytes() - equal_bytes) {
        0 => Ok(()),
        lost => {
            let cause = format!("{} lost with {SPOT}", units::bytes(lost));
            Err(Failure::new(Exit::Partial, RefusalKind::DataUnavailable, cause)
                .next("sanderling fsck"))
        }
    }
}

/// Gives the person at the terminal time to open the console.
async fn wait_for_enter(session: &Session) -> Result<(), Failure> {
    let is_watched = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !is_watched || session.output.is_quiet || session.output.is_json {
        return Ok(());
    }
    session
        .output
        .note(format_args!("Open the console, then press Enter: {SPOT} gets its notice."));
    let mut line = [0_u8; 64];
    let mut stdin = tokio::io::stdin();
    tokio::select! {
        _ = stdin.read(&mut line) => Ok(()),
        () = session.ended.cancelled() => Err(Failure::silent(Exit::Interrupted)),
    }
}

/// Kills the node, as the cloud does, and forgets it.
fn kill(session: &Session, record: &Record) -> Result<(), Failure> {
    let _lock = Lock::take(&record.directory)?;
    let mut record = Record::existing(&record.directory)?;
    let spot = record.server(SPOT)?.process;
    spot.signal(Signal::KILL);
    if !spot.wait(END_TIMEOUT) {
        let cause = format!("{SPOT} does not end, not even when it is killed");
        return Err(Failure::new(Exit::Failure, FailureKind::Process, cause));
    }
    record.processes.retain(|server| server.name != SPOT);
    session.output.note(format_args!("killed    {SPOT}, process {}, with SIGKILL", spot.pid));
    record.write()
}

impl TourReport {
    fn write(&self, writer: &mut dyn std::io::Write) -> std::io::Result<()> {
        let Drained { moved_bytes, moved_blocks, drain_millis, lost_bytes, .. } = self.drained;
        let Drained { reads, writes, failed, .. } = self.drained;
        let blocks = units::count(moved_blocks, "block", "blocks");
        let took = units::millis(drain_millis);
        writeln!(writer, "moved     {} ({blocks}) in {took}", units::bytes(moved_bytes))?;
        writeln!(writer, "lost      {}", units::bytes(lost_bytes))?;
        writeln!(writer, "meanwhile {reads} reads and {writes} writes, {failed} failed")?;
        let (equal, stored) = (units::bytes(self.equal_bytes), units::bytes(self.stored_bytes));
        writeln!(writer, "compared  {equal} of {stored} equal what was stored")
    }
}

/// Prints what can be done with the cluster, which goes on.
fn next(output: Output, record: &Record, args: &Tour) {
    output.note("\nThe cluster goes on:");
    if record.namenode != NAMENODE_ADDRESS || sanderling_command::cluster::is_chosen() {
        output.note(format_args!("  export SANDERLING_NAMENODE={}", record.namenode));
    }
    // Without it, `local stop` would look in the default directory.
    let stop = match &args.place.directory {
        Some(_) => {
            format!(
                "sanderling local stop --dir {}",
                shell_word(&record.directory.to_string_lossy())
            )
        }
        None => "sanderling local stop".to_owned(),
    };
    for (command, what) in [
        ("sanderling top", "nodes, throughput and events in this terminal"),
        ("sanderling fs ls -lh /tour", "what was stored"),
        (stop.as_str(), "end it and delete its data"),
    ] {
        output.note(format_args!("  {command:27} {what}"));
    }
}
