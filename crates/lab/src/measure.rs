//! The experiments that run a fleet, in their order.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::failure::Failure;
use crate::session::Session;

use super::experiment::{RunId, run as run_one, targets::targets};
use super::fleet::network::Network;
use super::plan::{LabPlan, Options};
use super::record::{ExperimentKind, LabRecord, PolicyName, Setup};
use super::report;

/// Runs the experiments, prints and saves their results. It is polled on the program's main thread,
/// with which its servers die.
///
/// # Errors
/// Usage (2); a fleet that does not start; local files.
pub(crate) async fn run(
    session: Session,
    kinds: &[ExperimentKind],
    options: Options,
) -> Result<(), Failure> {
    let plan = LabPlan::of(kinds, options)?;
    let out = &plan.out;
    std::fs::create_dir_all(out).map_err(|error| Failure::file(out, error))?;
    let network = network(&session, &plan);
    let setup = setup(&plan, &network);
    let mut lab = LabRecord { setup, runs: Vec::new(), targets: Vec::new() };
    let all = order(&plan);
    for (index, which) in all.iter().enumerate() {
        let name = which.name();
        let logs = out.join("logs").join(&name);
        if logs.exists() {
            std::fs::remove_dir_all(&logs).map_err(|error| Failure::file(&logs, error))?;
        }
        let record = run_one(&plan, &network, *which).await?;
        session.output.note(format_args!(
            "{} of {}: {name}: {:.2} s, {} preemptions, {} bytes lost, {} errors",
            index + 1,
            all.len(),
            record.seconds,
            record.drains.len(),
            record.lost_bytes,
            record.client_errors
        ));
        lab.runs.push(record);
        lab.targets = targets(&lab, &plan.policies);
        // After every run: an interrupted lab has measured something, too.
        report::save(&lab, out)?;
        super::write_page(&lab, out, None)?;
    }
    report::print(session.output, &lab, out)
}

/// Makes the network. Without namespaces it prints that and uses loopback.
fn network(session: &Session, plan: &LabPlan) -> Network {
    let link = plan.link_bytes_per_second;
    if plan.is_loopback {
        return Network::loopback(plan.nodes, link);
    }
    match Network::namespaces(plan.nodes, link) {
        Ok(network) => network,
        Err(failure) => {
            session.output.note(format_args!(
                "no network namespaces here ({}): everything runs on loopback, each node paces \
                 what it sends, and what is sent to it is not limited",
                failure.cause
            ));
            Network::loopback(plan.nodes, link)
        }
    }
}

/// Returns every run in its order. The mechanisms take turns in being first, so that whatever else
/// changes over time on this machine meets both alike.
fn order(plan: &LabPlan) -> Vec<RunId> {
    let mut all = Vec::new();
    for round in 0..plan.rounds {
        for kind in &plan.kinds {
            let mut policies: Vec<PolicyName> = plan.policies.clone();
            if round % 2 == 1 {
                policies.reverse();
            }
            for policy in policies {
                let which = RunId { kind: *kind, policy, is_preempted: true, round };
                if matches!(kind, ExperimentKind::Read | ExperimentKind::Write) {
                    all.push(RunId { is_preempted: false, ..which });
                }
                all.push(which);
            }
        }
    }
    all
}

fn setup(plan: &LabPlan, network: &Network) -> Setup {
    let file = |path| std::fs::read_to_string(path).unwrap_or_default();
    let load = file("/proc/loadavg");
    let millis = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Setup {
        began_unix_seconds: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |it| it.as_secs()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
        processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        load_average: load.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0.0),
        isolation: network.isolation(),
        nodes: plan.nodes,
        link_bytes_per_second: plan.link_bytes_per_second,
        notice_millis: millis(plan.notice),
        replace_millis: millis(plan.replace),
        model: plan.spec.to_string(),
        time_scale: plan.time_scale,
        seed: plan.seed,
        rounds: plan.rounds,
    }
}
