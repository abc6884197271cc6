//! `local restart`.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::Signal;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::global::Global;
use sanderling_command::output::Output;
use sanderling_command::process::RecordedProcess;
use sanderling_protocol::NodeId;

use super::directory::{ClusterDirectory, directory};
use super::emptying;
use super::launch::{
    READY_TIMEOUT, Starting, catalog_of, datanode_words, is_of_group, launch, namenode_words,
};
use super::lock::Lock;
use super::membership::{PlaceInGroup, is_removed, others, rejoin, settled};
use super::record::{Record, ServerRecord, ServerRole};

/// `local restart`.
#[derive(Debug, Args)]
#[command(
    after_help = "A datanode that runs is emptied first, however long that takes: its blocks \
move to the others. Without room for them the command stops with exit code 2. A namenode keeps its \
catalog."
)]
pub struct LocalRestart {
    /// Where the cluster lives.
    #[command(flatten)]
    pub(crate) place: ClusterDirectory,
    /// The process, as `local status` names it
    pub(crate) name: String,
    /// Confirm losing the bytes that the other datanodes have no room for
    #[arg(long)]
    pub(crate) yes: bool,
}

/// How long a server may take to end by itself. A datanode that is not empty by then, since its
/// loss is confirmed, moves blocks away meanwhile, for 25 seconds at most.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// A datanode's process that was emptied.
struct Emptied {
    process: RecordedProcess,
    /// Its incarnation, if the namenode has one.
    node: Option<NodeId>,
}

pub(super) fn run(global: &Global, output: Output, args: &LocalRestart) -> Result<(), Failure> {
    let directory = directory(&args.place)?;
    let emptied = emptied(global, args, &directory)?;
    let _lock = Lock::take(&directory)?;
    let mut record = restartable(&directory, &args.name)?;
    let server = record.server(&args.name)?.clone();
    if server.process.is_running() {
        let is_same = emptied.as_ref().is_some_and(|it| it.process == server.process);
        if server.role == ServerRole::Datanode && !is_same {
            let cause = format!("another command has started {} meanwhile", args.name);
            return Err(Failure::new(Exit::Unavailable, FailureKind::Busy, cause)
                .next("sanderling local status"));
        }
        end(&server, output);
    }
    start(global, output, &mut record, &server)?;
    match emptied.and_then(|it| it.node) {
        Some(node) => emptying::nothing_lost(&record, output, node),
        None => Ok(()),
    }
}

/// Reads the record of a cluster of which a process may be started anew.
fn restartable(directory: &Path, name: &str) -> Result<Record, Failure> {
    let record = Record::existing(directory)?;
    record.must_be_started()?;
    if record.server(name)?.role == ServerRole::Datanode {
        record.must_have_namenode()?;
    }
    Ok(record)
}

/// Empties the process, if it is a datanode that runs. That may take long, so other commands of
/// `local` may go on meanwhile: `local add` makes room.
fn emptied(
    global: &Global,
    args: &LocalRestart,
    directory: &Path,
) -> Result<Option<Emptied>, Failure> {
    let record = restartable(directory, &args.name)?;
    let server = record.server(&args.name)?;
    if server.role != ServerRole::Datanode || !server.process.is_running() {
        return Ok(None);
    }
    let node = emptying::run(global, &record, &args.name, args.yes);
    let node = node.map_err(|failure| record.mended(failure))?;
    Ok(Some(Emptied { process: server.process, node }))
}

/// Ends the process.
fn end(server: &ServerRecord, output: Output) {
    server.process.signal(Signal::TERM);
    if !server.process.wait(END_TIMEOUT) {
        server.process.signal(Signal::KILL);
        let _ = server.process.wait(Duration::from_secs(2));
        output.note(format_args!("{} did not end by itself and was killed", server.name));
    }
}

/// Starts the process anew, and waits until it does what it is for.
fn start(
    global: &Global,
    output: Output,
    record: &mut Record,
    server: &ServerRecord,
) -> Result<(), Failure> {
    let words = words(record, server)?;
    let (name, shape) = (&server.name, server.shape.clone());
    let limit = Instant::now() + global.timeout.map_or(READY_TIMEOUT, |span| span.0);
    let mut starting = launch(record, server.role, name, shape, words)?;
    let ready = match starting.serves(limit) {
        Ok(ready) => ready,
        Err(failure) if is_removed(record, server)? => {
            return Err(failure.instead(rejoin(record, server)));
        }
        Err(failure) if server.role == ServerRole::Datanode => return Err(record.mended(failure)),
        Err(failure) => return Err(failure),
    };
    let restarted = record.server_mut(name)?;
    restarted.address = ready.address;
    if restarted.role == ServerRole::Namenode {
        restarted.http_address = ready.http_address;
    }
    record.write()?;
    let restarted = record.server(name)?;
    match takes_part(record, restarted, &mut starting)? {
        PlaceInGroup::Leaderless => output.note(format_args!(
            "{name} serves again, and no namenode leads its group: sanderling group ls"
        )),
        _ => output.note(format_args!("{name} serves again")),
    }
    output.result(restarted, |writer| writeln!(writer, "{name}"))
}

/// Returns the words that start the process anew.
fn words(record: &Record, server: &ServerRecord) -> Result<Vec<OsString>, Failure> {
    if server.role == ServerRole::Namenode {
        let [address, http] = record.addresses_of(server);
        let voters = record.namenode.split(',').count();
        let join = others(record, server).map(|it| it.address.as_str()).next();
        // Without its directory it is a new member: alone, it would found another cluster.
        let is_new = is_of_group(record) && !catalog_of(&record.directory, &server.name).exists();
        if is_new && join.is_none() {
            let cause = format!("{} has no catalog, and no other namenode runs", server.name);
            return Err(Failure::new(Exit::Unavailable, FailureKind::Down, cause)
                .next("sanderling local status, or sanderling local stop"));
        }
        let join = join.filter(|_| is_new);
        let directory = &record.directory;
        return Ok(namenode_words(directory, &server.name, &address, &http, (voters, join)));
    }
    match server.shape.as_ref().or(record.shape().as_ref()) {
        Some(shape) => Ok(datanode_words(record, shape, &server.name)),
        None => {
            let cause = "an older release started this cluster: how is not on record";
            Err(Failure::new(Exit::Failure, FailureKind::LocalFile, cause)
                .next("sanderling local status, or sanderling local stop"))
        }
    }
}

/// Waits until the process does what it was started for: its ready file states that it serves, and
/// a namenode that was removed from its group ends then.
fn takes_part(
    record: &Record,
    server: &ServerRecord,
    starting: &mut Starting,
) -> Result<PlaceInGroup, Failure> {
    if server.role != ServerRole::Namenode || !is_of_group(record) {
        return Ok(PlaceInGroup::Led);
    }
    let found = settled(record, server, || starting.has_ended())?;
    let failed = |failure: Failure| match found {
        PlaceInGroup::Removed => failure.instead(rejoin(record, server)),
        _ => failure,
    };
    starting.runs().map_err(failed)?;
    if found == PlaceInGroup::Removed {
        let cause = format!("{} was removed from its group: it takes no part in it", server.name);
        return Err(
            Failure::new(Exit::Failure, FailureKind::Removed, cause).next(rejoin(record, server))
        );
    }
    Ok(found)
}
