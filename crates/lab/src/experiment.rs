//! One run: a fleet, a workload, a trace, and what came of it.

mod end_state;
mod exposure;
pub(crate) mod targets;

use std::sync::Arc;
use std::time::Duration;

use sanderling_client::Client;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::fleet::network::Network;
use super::fleet::{FleetOptions, LabFleet, play};
use super::plan::LabPlan;
use super::record::{ExperimentKind, NodeRecord, PolicyName, RunRecord, Sample};
use super::trace::{self, Preemption, TraceBounds};
use super::workload::meter::{Meter, Sampler};
use super::workload::{self, DataSet, PIECE_BYTES};
use crate::failure::Failure;

use end_state::Aftermath;

/// Time between two samples of the bandwidth: a run of a minute has 600 points, as many as a
/// picture shows. Chosen, not measured.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Readers for each node: enough that a link rarely waits for a reader (a closed network of N
/// stations and K customers is busy to K / (K + N - 1)): of four nodes, to 64 / 67.
const READERS_PER_NODE: u32 = 16;

/// Writers for each node: one sends while the other waits for its seal. Chosen, not measured.
const WRITERS_PER_NODE: u32 = 2;

/// Writers for each node that wait for each of their writes: most nodes have an open block of one
/// of them when they get a notice. Chosen, not measured.
const PROBES_PER_NODE: u32 = 2;

/// How long a new node gets less than its share, by default, in the cloud's seconds: the default of
/// the namenode (`NamenodeConfig::ramp_up`).
const RAMP_UP_SECONDS: f64 = 30.0;

/// Time after the start in which nodes touch their memory and first heartbeats arrive, two of 500
/// ms. Chosen, not measured.
const SETTLE: Duration = Duration::from_secs(1);

/// Datanodes of figure 5, as in the paper (Brodmann et al., section 4.3).
const NOTICE_NODES: u32 = 2;

/// How far ahead traces are drawn, in times of the work: the slower mechanism needs longer. Chosen,
/// not measured.
const HORIZON_FACTOR: u32 = 4;

/// Which run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunId {
    pub(crate) kind: ExperimentKind,
    pub(crate) policy: PolicyName,
    pub(crate) is_preempted: bool,
    pub(crate) round: u32,
}

impl RunId {
    /// Returns how many nodes it has.
    #[must_use]
    pub(crate) const fn nodes(self, plan: &LabPlan) -> u32 {
        match self.kind {
            ExperimentKind::Notice => NOTICE_NODES,
            ExperimentKind::Read | ExperimentKind::Write | ExperimentKind::Exposure => plan.nodes,
        }
    }

    /// Returns its name, also of its directory of logs.
    #[must_use]
    pub(crate) fn name(self) -> String {
        let Self { kind, policy, round, .. } = self;
        let what = if self.is_preempted { "preempted" } else { "without-preemptions" };
        format!("{kind}-{policy}-{what}-{round}")
    }

    /// Returns its trace.
    fn trace(self, plan: &LabPlan) -> Vec<Preemption> {
        if !self.is_preempted {
            return Vec::new();
        }
        if self.kind == ExperimentKind::Notice {
            return vec![Preemption { at: plan.notice, slot: 0 }];
        }
        let shape = TraceBounds {
            slots: plan.nodes,
            horizon: plan.work * HORIZON_FACTOR,
            notice: plan.notice,
            replace: plan.replace,
            overlap_max: plan.overlap_max(),
            notices_min: plan.overlap_max(),
            busy: plan.work / 2,
        };
        trace::draw(&plan.model, &shape, plan.seed + u64::from(self.round))
    }

    /// Returns how long it is measured; `None` until the work is done.
    fn time(self, plan: &LabPlan) -> Option<Duration> {
        // One notice before it, one during it, and two for what comes after.
        (self.kind == ExperimentKind::Notice).then(|| plan.notice * 4 + plan.replace)
    }
}

/// Runs it. The future must be polled on a thread that outlives the fleet.
///
/// # Errors
/// What keeps the run from being one: a server that does not start, a notice that is refused.
/// Failed calls of the workload are counted, not returned.
pub(crate) async fn run(
    plan: &LabPlan,
    network: &Network,
    which: RunId,
) -> Result<RunRecord, Failure> {
    if which.kind == ExperimentKind::Exposure {
        return exposure::run(plan, network, which).await;
    }
    let nodes = which.nodes(plan);
    let mut fleet = LabFleet::start(network, fleet_options(plan, which)).await?;
    let (client, control) = (fleet.client().await?, fleet.client().await?);
    let calls = if which.time(plan).is_some() { u64::MAX } else { plan.work_bytes() / PIECE_BYTES };
    let meter = Arc::new(Meter::of_calls(calls));
    let work =
        RunWorkload { plan, which, nodes, client: client.clone(), meter: Arc::clone(&meter) };
    let data = work.prepare().await?;
    sleep(settle(plan, which)).await;

    let began = Instant::now();
    let (stopped, over) = (CancellationToken::new(), CancellationToken::new());
    let workers = work.start(data.as_ref(), &stopped).await?;
    let prober = fleet.client().await?;
    let round_trips = Arc::new(Meter::of_calls(0));
    let probes = if which.kind == ExperimentKind::Write { nodes * PROBES_PER_NODE } else { 0 };
    let probes = workload::probe(&prober, probes, &round_trips, &over);
    let trace = which.trace(plan);
    let worked = async {
        let done = until_done(workers, which.time(plan), began, &stopped).await;
        over.cancel();
        done.map(|()| Instant::now())
    };
    let played = play(&mut fleet, &control, &trace, began, &over);
    let sampled = sample(&meter, began, &over);
    let (ended, played, samples) = tokio::join!(worked, played, sampled);
    let (ended, ()) = (ended?, played?);
    workload::finish(probes).await?;
    let aftermath = Aftermath::look(plan, which, &fleet, &control, began).await?;
    let measured = Measured { began, ended, client, prober, meter, round_trips };
    Ok(measured.record(plan, which, &fleet, aftermath, samples))
}

/// Returns how long a fleet stands before it is measured. Data that is read is old: it has been
/// there for longer than a node is new.
fn settle(plan: &LabPlan, which: RunId) -> Duration {
    match which.kind {
        ExperimentKind::Read | ExperimentKind::Notice => SETTLE.max(plan.scaled(RAMP_UP_SECONDS)),
        ExperimentKind::Write | ExperimentKind::Exposure => SETTLE,
    }
}

/// What a run has counted by its end.
struct Measured {
    began: Instant,
    ended: Instant,
    client: Client,
    prober: Client,
    meter: Arc<Meter>,
    round_trips: Arc<Meter>,
}

impl Measured {
    fn record(
        self,
        plan: &LabPlan,
        which: RunId,
        fleet: &LabFleet<'_>,
        aftermath: Aftermath,
        samples: Vec<Sample>,
    ) -> RunRecord {
        let Self { began, ended, client, prober, meter, round_trips } = self;
        let (nodes, seconds) = (which.nodes(plan), (ended - began).as_secs_f64());
        let (errors, first_error) = meter.errors();
        let (probe_errors, first_probe_error) = round_trips.errors();
        let (read_bytes, written_bytes) = meter.bytes();
        let records = fleet.records(began);
        let capacity = |gone: &dyn Fn(&NodeRecord) -> Option<f64>| {
            end_state::capacity(&records, nodes, seconds, gone)
        };
        RunRecord {
            kind: which.kind,
            policy: which.policy,
            is_preempted: which.is_preempted,
            round: which.round,
            seconds,
            work_bytes: read_bytes + written_bytes,
            capacity: capacity(&|node| aftermath.gone(node)),
            capacity_until_killed: capacity(&|node| node.killed),
            client_errors: errors + probe_errors,
            first_error: first_error.or(first_probe_error),
            lost_bytes: aftermath.report.bytes,
            recomputed_bytes: meter.recomputed_bytes(),
            moved_bytes: aftermath.report.moved_bytes,
            promoted_bytes: aftermath.report.promoted_bytes,
            copied_bytes: aftermath.report.copied_bytes,
            rebalanced_bytes: aftermath.report.rebalanced_bytes,
            writer_stall_millis: stall_millis(&prober),
            stall_millis: stall_millis(&client),
            calls: meter.latency(),
            round_trips: round_trips.latency(),
            imbalance: aftermath.imbalance,
            drains: aftermath.drains,
            bandwidth: with_nodes(samples, &records),
            nodes: records,
        }
    }
}

fn stall_millis(client: &Client) -> f64 {
    client.metrics().longest_stall.as_secs_f64() * 1e3
}

fn fleet_options(plan: &LabPlan, which: RunId) -> FleetOptions {
    FleetOptions {
        policy: which.policy,
        nodes: which.nodes(plan),
        dram_bytes: plan.dram_bytes(which.kind),
        notice: plan.notice,
        replace: plan.replace,
        directory: plan.out.join("logs").join(which.name()),
        namenode_flags: namenode_flags(plan, which),
        datanode_flags: datanode_flags(plan, which),
    }
}

/// The settings of our mechanism in the lab's time; the other has none.
fn namenode_flags(plan: &LabPlan, which: RunId) -> Vec<String> {
    if which.policy != PolicyName::Sanderling {
        return Vec::new();
    }
    let ramp_up = format!("{}ms", plan.scaled(RAMP_UP_SECONDS).as_millis());
    let model = plan.scaled_spec.to_string();
    let share = format!("{}%", plan.background_share(which.kind));
    let flags = ["--preemption-model", &model, "--ramp-up", &ramp_up, "--background-share", &share];
    flags.map(str::to_owned).to_vec()
}

fn datanode_flags(plan: &LabPlan, which: RunId) -> Vec<String> {
    if which.policy != PolicyName::Sanderling {
        return Vec::new();
    }
    let notice = format!("{}ms", plan.notice.as_millis());
    let link = plan.link_bytes_per_second.to_string();
    ["--notice-min", &notice, "--egress", &link].map(str::to_owned).to_vec()
}

/// What the clients do in a run.
struct RunWorkload<'a> {
    plan: &'a LabPlan,
    which: RunId,
    nodes: u32,
    client: Client,
    meter: Arc<Meter>,
}

impl RunWorkload<'_> {
    /// Writes what is to be read.
    async fn prepare(&self) -> Result<Option<Arc<DataSet>>, Failure> {
        if self.which.kind == ExperimentKind::Write {
            return Ok(None);
        }
        let bytes = self.plan.data_bytes(self.which.kind) * u64::from(self.nodes);
        DataSet::write(&self.client, bytes).await.map(Some)
    }

    async fn start(
        &self,
        data: Option<&Arc<DataSet>>,
        stopped: &CancellationToken,
    ) -> Result<JoinSet<()>, Failure> {
        let Self { plan, which, nodes, client, meter } = self;
        match data {
            Some(data) => Ok(data.read(nodes * READERS_PER_NODE, plan.seed, meter, stopped)),
            None => {
                let live_bytes = plan.data_bytes(which.kind) * u64::from(*nodes);
                workload::write(client, nodes * WRITERS_PER_NODE, live_bytes, meter, stopped).await
            }
        }
    }
}

/// Waits until the work is done, or, where the time is fixed, stops it then.
async fn until_done(
    workers: JoinSet<()>,
    time: Option<Duration>,
    began: Instant,
    stopped: &CancellationToken,
) -> Result<(), Failure> {
    if let Some(time) = time {
        sleep_until(began + time).await;
        stopped.cancel();
    }
    workload::finish(workers).await
}

/// Samples until it is over.
async fn sample(meter: &Meter, began: Instant, over: &CancellationToken) -> Vec<Sample> {
    let mut sampler = Sampler::new(began);
    let mut ticks = interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => sampler.take(meter),
            () = over.cancelled() => break,
        }
    }
    sampler.take(meter);
    sampler.finish()
}

fn with_nodes(mut samples: Vec<Sample>, nodes: &[NodeRecord]) -> Vec<Sample> {
    for sample in &mut samples {
        let is_alive = |node: &&NodeRecord| {
            node.served <= sample.at && node.killed.is_none_or(|killed| killed > sample.at)
        };
        sample.nodes = u32::try_from(nodes.iter().filter(is_alive).count()).unwrap_or(u32::MAX);
    }
    samples
}
