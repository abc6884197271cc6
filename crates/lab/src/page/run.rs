//! The page of a run of the lab.

use std::path::{Path, PathBuf};

use sanderling_plot::Headline;

use super::{
    POLICIES, Section, bandwidth, exposure, json, page, paragraph, rerun, runtimes, targets,
    timeline, write, write_rows,
};
use crate::failure::Failure;
use crate::figures::Figure;
use crate::figures::figure2::Figure2;
use crate::figures::figure6::Figure6;
use crate::figures::figure7::Figure7;
use crate::record::{ExperimentKind, Isolation, LabRecord, PolicyName, RunRecord, Setup};
use crate::units::{self, bytes};

/// The figures that need no fleet, as they go with a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Computed {
    /// How long machines live.
    pub(crate) figure2: Figure2,
    /// What the fleet costs, with the slowdown that was measured.
    pub(crate) figure6: Figure6,
    /// Which sizes fit.
    pub(crate) figure7: Figure7,
}

/// Writes `lab.html` into a directory, and the figures' CSV and JSON. Returns the page's path.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn save(
    lab: &LabRecord,
    computed: &Computed,
    directory: &Path,
) -> Result<PathBuf, Failure> {
    write_rows(&computed.figure2, directory)?;
    write_rows(&computed.figure6, directory)?;
    write_rows(&computed.figure7, directory)?;
    write(directory, "targets.csv", &targets::csv(lab).to_string())?;
    write(directory, "targets.json", &json(&lab.targets))?;
    write(directory, "lab.html", &of(lab, computed))?;
    Ok(directory.join("lab.html"))
}

fn of(lab: &LabRecord, computed: &Computed) -> String {
    let parts = [
        taken(lab),
        targets::section(lab),
        runtimes::section(lab),
        bandwidth::section(lab),
        exposure::section(lab),
        Some(computed.figure6.section()),
        Some(computed.figure7.section()),
        Some(computed.figure2.section()),
        Some(measured(&lab.setup)),
    ];
    let sections: Vec<Section> = parts.into_iter().flatten().collect();
    page(
        "Sanderling lab: what it costs when machines are taken away",
        verdict(lab).as_ref(),
        &sections,
    )
}

/// Describes the results of our policy against the other.
fn verdict(lab: &LabRecord) -> Option<Headline> {
    let preempted = || lab.runs.iter().filter(|run| run.is_preempted);
    let found = |policy: PolicyName| {
        let runs: Vec<&RunRecord> = preempted().filter(|run| run.policy == policy).collect();
        let (mut notices, mut lost, mut errors) = (0, 0, 0);
        for run in &runs {
            notices += run.drains.len();
            lost += run.lost_bytes;
            errors += run.client_errors;
        }
        let lost =
            if lost == 0 { "lost nothing".to_owned() } else { format!("lost {}", bytes(lost)) };
        (!runs.is_empty())
            .then(|| format!("{policy} met {notices} notices, {lost}, {errors} calls failed"))
    };
    let words: Vec<String> = POLICIES.into_iter().filter_map(found).collect();
    if words.is_empty() {
        return None;
    }
    let ours = lab.targets.iter().filter(|it| it.policy == PolicyName::Sanderling);
    let known: Vec<bool> = ours.filter_map(|target| target.is_reached).collect();
    let reached = known.iter().filter(|is_reached| **is_reached).count();
    let text = format!(
        "{}. Of {} targets measured, sanderling reached {reached}.",
        words.join("; "),
        known.len()
    );
    Some(Headline { text, is_good: reached == known.len() })
}

/// Returns the picture of one preempted run of each policy.
fn taken(lab: &LabRecord) -> Option<Section> {
    let kinds = [
        ExperimentKind::Read,
        ExperimentKind::Write,
        ExperimentKind::Notice,
        ExperimentKind::Exposure,
    ];
    let kind = kinds
        .into_iter()
        .find(|kind| lab.runs.iter().any(|run| run.kind == *kind && run.is_preempted))?;
    let mut body = timeline::colours();
    let first = |policy| lab.runs_of(kind, policy, true).next();
    let runs: Vec<&RunRecord> = POLICIES.into_iter().filter_map(first).collect();
    body += &timeline::pictures(&runs);
    let notice = units::duration(std::time::Duration::from_millis(lab.setup.notice_millis));
    body += &paragraph(&format!(
        "The first round of the {kind} experiment: every machine of the fleet, the same notices \
         under both policies. A notice gives {notice}; then the machine is killed with SIGKILL, \
         and a new one takes its place. Where a bar of data ends before SIGKILL the \
         machine was empty."
    ));
    Some(Section { title: "Machines, from notice to gone".to_owned(), body })
}

fn measured(setup: &Setup) -> Section {
    let isolation = match setup.isolation {
        Isolation::Namespaces => {
            "each node is a process in a network namespace of its own, its link shaped by the \
             kernel in both directions"
        }
        Isolation::Loopback => {
            "every node is a process on loopback that paces what it sends; what it receives is \
             not limited"
        }
    };
    let second = std::time::Duration::from_secs(1);
    let mut body = paragraph(&format!(
        "{} datanodes, {isolation}: {} ({:.0} Mbit/s). Notices of {} and replacements {} after \
         SIGKILL. Lifetimes from the model {}, one second here for {:.0} s of the model, seeds \
         from {} on, {} rounds.",
        setup.nodes,
        units::rate(setup.link_bytes_per_second, second),
        setup.link_bytes_per_second as f64 * 8.0 / 1e6,
        units::duration(std::time::Duration::from_millis(setup.notice_millis)),
        units::duration(std::time::Duration::from_millis(setup.replace_millis)),
        setup.model,
        setup.time_scale,
        setup.seed,
        setup.rounds,
    ));
    body += &paragraph(&format!(
        "All processes and the clients shared {} processors of one computer (Linux {}, load {:.1} \
         when it began), so work of the mechanism takes processor time from the work that is \
         measured. Both policies run the same program; baseline is the mechanism of Brodmann et \
         al., “An Elastic Ephemeral Datastore using Cheap, Transient Cloud Resources”: one \
         block at a time through a relocator, the fence with the next heartbeat, writes refused \
         until the relocation has ended, no plan, no copies ahead, no rebalancing. It has the \
         benefit where the paper leaves something open.",
        setup.processors, setup.kernel, setup.load_average
    ));
    let at = sanderling_protocol::Instant(setup.began_unix_seconds.saturating_mul(1_000_000));
    body +=
        &format!("<p class=note>Begun {}, version {}.</p>\n", units::instant(at), setup.version);
    body += &rerun("sanderling lab all --out D");
    Section { title: "How it was measured".to_owned(), body }
}

#[cfg(test)]
mod tests;
