//! Nodes that hold three times what a notice lets them move, and random notices to them.

use std::sync::Arc;
use std::time::Duration;

use sanderling_client::{Client, ClientError};
use sanderling_protocol::Policy;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Aftermath, Measured, PolicyName, RunId, fleet_options};
use crate::failure::{Exit, Failure, FailureKind};
use crate::fleet::network::Network;
use crate::fleet::{LabFleet, play};
use crate::own_cluster;
use crate::plan::LabPlan;
use crate::record::RunRecord;
use crate::trace::{Chance, Preemption};
use crate::workload::DataSet;
use crate::workload::meter::Meter;

/// Time between two looks whether exposure is within its bound: as often as a manager views drains
/// by default.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How long copies may take after a change before the next notice is given all the same, in
/// notices: a node's data at the background's rate, several times. Chosen, not measured.
const BOUND_TIMEOUT_NOTICES: u32 = 120;

/// Gives random nodes a notice, one after the other, and reads everything after each: what is lost
/// is written again, and counted.
///
/// # Errors
/// As those of a run; a fleet whose exposure stays beyond its bound.
pub(super) async fn run(
    plan: &LabPlan,
    network: &Network,
    which: RunId,
) -> Result<RunRecord, Failure> {
    let nodes = which.nodes(plan);
    let mut fleet = LabFleet::start(network, fleet_options(plan, which)).await?;
    let (client, control) = (fleet.client().await?, fleet.client().await?);
    let data = DataSet::write(&client, plan.data_bytes(which.kind) * u64::from(nodes)).await?;
    let meter = Arc::new(Meter::of_calls(0));
    let mut chance = Chance::new(plan.seed + u64::from(which.round));
    let began = Instant::now();
    for _ in 0..plan.exposure_notices {
        if which.policy == PolicyName::Sanderling {
            until_bounded(&control, nodes, plan.notice * BOUND_TIMEOUT_NOTICES).await?;
        }
        let slot = u32::try_from(chance.below(u64::from(nodes))).expect("a place");
        let now = [Preemption { at: Duration::ZERO, slot }];
        play(&mut fleet, &control, &now, Instant::now(), &CancellationToken::new()).await?;
        data.read_all(&meter).await;
    }
    let ended = Instant::now();
    let aftermath = Aftermath::look(plan, which, &fleet, &control, began).await?;
    let (prober, round_trips) = (client.clone(), Arc::new(Meter::of_calls(0)));
    let measured = Measured { began, ended, client, prober, meter, round_trips };
    Ok(measured.record(plan, which, &fleet, aftermath, Vec::new()))
}

/// Waits until no node holds more alone than it can send within a notice.
async fn until_bounded(client: &Client, nodes: u32, within: Duration) -> Result<(), Failure> {
    let failed = |error: ClientError| own_cluster::failed(&error, client.namenode());
    let limit = Instant::now() + within;
    loop {
        let all = client.nodes(false).await.map_err(failed)?;
        let active = all.iter().filter(|node| node.policy == Policy::Active);
        let bounded = active.filter(|node| node.exposure_bytes <= node.budget_bytes);
        if bounded.count() == nodes as usize {
            return Ok(());
        }
        if Instant::now() >= limit {
            let rows: Vec<String> = all
                .iter()
                .map(|it| format!("{} {}/{}", it.name, it.exposure_bytes, it.budget_bytes))
                .collect();
            let cause = format!("exposure stays beyond its bound: {}", rows.join(", "));
            return Err(Failure::new(Exit::Deadline, FailureKind::Deadline, cause));
        }
        sleep(POLL_INTERVAL).await;
    }
}
