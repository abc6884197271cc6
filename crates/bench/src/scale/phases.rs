//! The phases of one point, in their order.

use std::path::Path;
use std::time::{Duration, Instant};

use sanderling_protocol::message::Role;
use sanderling_protocol::{NodeId, NodeSelector, Policy, Reply, Request};
use tokio::time::sleep;

use super::Scale;
use crate::failure::{Exit, Failure, FailureKind};
use crate::session::Session;

use super::fill::{FILLING, FilledObject, fill};
use super::fleet::StubFleet;
use super::namenode::{Cpu, NamenodeProcess};
use super::probe::{Probed, during, many};
use super::record::{CallLatencies, CallLatency, Cost, Point, Recovery};
use super::requests::{Meta, failed, unexpected};

/// Objects over which the journal's bytes are measured. At some hundred bytes each they stay below
/// the 64 MiB after which a snapshot takes the journal away.
const JOURNALLED: u64 = 10_000;

/// How long a drain, or the return of all nodes, may take. Both take seconds (docs/SCALE.md); after
/// it the command fails. Chosen, not measured.
const DONE_TIMEOUT: Duration = Duration::from_secs(120);

/// Notice of the drain in milliseconds, ten minutes: longer than [`DONE_TIMEOUT`], so nothing is
/// lost to it.
const NOTICE_MILLIS: i64 = 600_000;

/// Measures one point.
///
/// # Errors
/// The first thing that was refused or did not come.
pub(super) async fn measure(
    session: &Session,
    args: &Scale,
    (objects, nodes): (u64, u32),
    directory: &Path,
) -> Result<Point, Failure> {
    let mut namenode = NamenodeProcess::start(directory).await?;
    let values = objects * args.values.0 / 100;
    let (files, phase) = (objects - values, args.phase.0);
    let note = |what| session.output.note(format_args!("  {what}"));

    note("registrations");
    let meter = Meter::begin(&namenode, 0.0)?;
    let fleet = StubFleet::register(&namenode.address, nodes).await?;
    let register = meter.end(&namenode, u64::from(nodes))?;
    let (heartbeat, heartbeat_micros) = heartbeats(&namenode, &fleet, phase).await?;
    let base = heartbeat.cpu_micros_each * heartbeat.per_second / 1e6;

    note("files");
    let filed = filled(&namenode, &fleet, FilledObject::File, files, base).await?;
    note("values");
    let valued = filled(&namenode, &fleet, FilledObject::Value, values, base).await?;
    let (memory_bytes, memory_bytes_max) = namenode.memory()?;

    note("lookups");
    let address = namenode.address.clone();
    let ((), quiet) = during(&address, files, pause(phase)).await?;
    let meter = Meter::begin(&namenode, base)?;
    let looked = many(&address, files, phase).await?;
    let lookup = meter.end(&namenode, looked)?;

    note("block reports");
    // Lookups one after the other cost as much as they did while it was quiet.
    let (report, reporting) = reports(&namenode, &fleet, files, base).await?;
    note("recovery");
    let recovery = recover(&mut namenode, &fleet, objects).await?;
    note("drain");
    let (drain, draining) = drained(&namenode, &fleet, files, base).await?;
    Ok(Point {
        objects,
        files,
        values,
        nodes,
        register,
        file: filed.cost,
        value: valued.cost,
        bytes_per_file: filed.memory_each,
        bytes_per_value: valued.memory_each,
        memory_bytes,
        memory_bytes_max,
        journal_bytes_per_file: filed.journal_each,
        journal_bytes_per_value: valued.journal_each,
        filling: filed.calls,
        heartbeat,
        heartbeat_micros,
        lookup,
        quiet: calls(&quiet),
        report,
        reporting: calls(&reporting),
        drain,
        draining: calls(&draining),
        snapshot_bytes: namenode.file_bytes("snapshot-")?,
        recovery,
    })
}

/// Takes the namenode's processor time from one moment to another.
struct Meter {
    began: Instant,
    cpu: Cpu,
    /// Processor seconds that pass in a second anyway.
    base: f64,
}

impl Meter {
    fn begin(namenode: &NamenodeProcess, base: f64) -> Result<Self, Failure> {
        Ok(Self { began: Instant::now(), cpu: namenode.cpu()?, base })
    }

    fn end(self, namenode: &NamenodeProcess, count: u64) -> Result<Cost, Failure> {
        let seconds = self.began.elapsed().as_secs_f64();
        let cpu = namenode.cpu()?.since(self.cpu).as_secs_f64();
        let units = count.max(1) as f64;
        let own = (cpu - self.base * seconds).max(0.0);
        let per_second = units / seconds;
        Ok(Cost { count, seconds, per_second, cpu_micros_each: own * 1e6 / units })
    }
}

async fn pause(phase: Duration) -> Result<(), Failure> {
    sleep(phase).await;
    Ok(())
}

async fn heartbeats(
    namenode: &NamenodeProcess,
    fleet: &StubFleet,
    phase: Duration,
) -> Result<(Cost, CallLatency), Failure> {
    // The manager's first looks are over then.
    sleep(Duration::from_millis(500)).await;
    drop(fleet.shared.take_beats());
    let meter = Meter::begin(namenode, 0.0)?;
    sleep(phase).await;
    let beats = fleet.shared.take_beats();
    Ok((meter.end(namenode, beats.len())?, CallLatency::from(&beats)))
}

/// What filling cost.
struct Filled {
    cost: Cost,
    calls: CallLatencies,
    memory_each: f64,
    journal_each: f64,
}

async fn filled(
    namenode: &NamenodeProcess,
    fleet: &StubFleet,
    what: FilledObject,
    count: u64,
    base: f64,
) -> Result<Filled, Failure> {
    let address = &namenode.address;
    let first = JOURNALLED.min(count);
    let (journal, (memory, _)) = (namenode.file_bytes("journal-")?, namenode.memory()?);
    let meter = Meter::begin(namenode, base)?;
    fill(address, fleet, what, 0..first, FILLING).await?;
    let journal = namenode.file_bytes("journal-")?.saturating_sub(journal);
    // Only files can be looked up while others are made: the first of them are there by now.
    let probed = match what {
        FilledObject::File => first,
        FilledObject::Value => JOURNALLED.min(fleet.held()),
    };
    let rest = fill(address, fleet, what, first..count, FILLING);
    let ((), calls_during) = during(address, probed.max(1), rest).await?;
    let cost = meter.end(namenode, count)?;
    let memory = namenode.memory()?.0.saturating_sub(memory);
    let calls = calls(&calls_during);
    Ok(Filled { cost, calls, memory_each: each(memory, count), journal_each: each(journal, first) })
}

async fn reports(
    namenode: &NamenodeProcess,
    fleet: &StubFleet,
    files: u64,
    base: f64,
) -> Result<(Cost, Probed), Failure> {
    // Alone first: the probes cost processor time as well.
    let meter = Meter::begin(namenode, base)?;
    let (reported, unwanted) = fleet.report().await?;
    let cost = meter.end(namenode, reported)?;
    if unwanted > 0 {
        return Err(failed(format_args!("{unwanted} of {reported} reported blocks are not known")));
    }
    let (_, probed) = during(&namenode.address, files, fleet.report()).await?;
    Ok((cost, probed))
}

async fn recover(
    namenode: &mut NamenodeProcess,
    fleet: &StubFleet,
    objects: u64,
) -> Result<Recovery, Failure> {
    let journal_bytes = namenode.file_bytes("journal-")?;
    let before = fleet.shared.comebacks();
    let began = Instant::now();
    let served = namenode.restart().await?;
    let cpu = namenode.cpu()?.whole();
    let wanted = before + fleet.stubs.len() as u64;
    let are_back = until("the nodes' return", async || Ok(fleet.shared.comebacks() >= wanted));
    are_back.await?;
    let seconds = served.as_secs_f64();
    Ok(Recovery {
        journal_bytes,
        seconds,
        seconds_per_million_objects: seconds * 1e6 / each(objects, 1),
        cpu_micros_per_object: cpu.as_secs_f64() * 1e6 / each(objects, 1),
        nodes_back_seconds: began.elapsed().as_secs_f64(),
    })
}

async fn drained(
    namenode: &NamenodeProcess,
    fleet: &StubFleet,
    files: u64,
    base: f64,
) -> Result<(Cost, Probed), Failure> {
    let (node, blocks) = fleet.fullest().ok_or_else(|| failed("there is no node to drain"))?;
    let meta = Meta::connect(&namenode.address, Role::Client).await.map_err(failed)?;
    let meter = Meter::begin(namenode, base)?;
    let drain = async {
        let (reason, deadline_millis) = ("scale".to_owned(), NOTICE_MILLIS);
        let notice = Request::Notice { node: NodeSelector::from(node), deadline_millis, reason };
        meta.one(notice).await.map_err(failed)?;
        until("the drain's end", async || Ok(policy(&meta, node).await? == Policy::Drained)).await
    };
    let ((), probed) = during(&namenode.address, files, drain).await?;
    Ok((meter.end(namenode, blocks)?, probed))
}

async fn policy(meta: &Meta, node: NodeId) -> Result<Policy, Failure> {
    match meta.one(Request::Nodes { all: false }).await.map_err(failed)? {
        Reply::Nodes(nodes) => {
            let found = nodes.iter().find(|info| info.id == node);
            found.map(|info| info.policy).ok_or_else(|| failed("the draining node is gone"))
        }
        other => Err(unexpected(&other)),
    }
}

async fn until(
    what: &str,
    is_done: impl AsyncFn() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let limit = Instant::now() + DONE_TIMEOUT;
    while Instant::now() < limit {
        if is_done().await? {
            return Ok(());
        }
        sleep(Duration::from_millis(20)).await;
    }
    Err(Failure::new(Exit::Deadline, FailureKind::Deadline, format_args!("{what} did not come")))
}

fn calls(probed: &Probed) -> CallLatencies {
    let Probed { lookups, changes } = probed;
    CallLatencies { lookup_micros: lookups.into(), change_micros: changes.into() }
}

fn each(sum: u64, count: u64) -> f64 {
    sum as f64 / count.max(1) as f64
}
